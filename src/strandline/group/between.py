"""Evaluates what lies between the statements of a segment, expressions and checks, while its transaction is open.

    what is wrong (a statement, an expression, a check)   the transaction is rolled back: nothing has to be undone
    nothing is                                            it is committed with all results; the last segment's COMMIT
                                                          decides the group, too

The run works on its own copy of the history, and begins again if the database begins the transaction again. The
resulting events are the same as if each step were a transaction of its own.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from strandline.group.actions import Note
from strandline.group.core.parts import IDENTITY
from strandline.group.core.step import StepFailed, StepState, context
from strandline.group.following import Following
from strandline.group.history import History, HistoryEvent, Payload, result
from strandline.group.plan import GroupPlan, Planned
from strandline.group.target import Done, Limits, Segment, StepId, TargetStep

Events = list[tuple[str, Payload]]


class Stopped(Exception):
    """Raised when the group was cancelled or is past its deadline."""


class SegmentRun:
    """A try of a segment, or of a rollback step. The target calls it as its `SegmentHost`."""

    def __init__(
        self, plan: GroupPlan, history: History, name: str, limits: Callable[[Planned], Limits],
        clock: Callable[[], int], stops: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`stops` is called after each step; if the group has failed meanwhile, no further step starts."""
        self._plan, self._real, self._name = plan, history, name
        self._decides = name == plan.segments.last
        self._limits, self._clock, self._stops = limits, clock, stops
        self._follows = name in plan.steps and not plan.steps[name].is_alone
        """True if expressions and checks are part of the transaction, which then asks no handler. A rollback step is
        different: it runs once, whatever its checks say.
        """
        steps: Sequence[str] = plan.segments.steps.get(name, (name,))
        self._order: Final = [plan.step(step) for step in steps]
        self._fresh = {one.name for one in self._order}
        """The steps that have no state before the transaction."""
        self._first = next(one.name for one in self._order if one.plan is not None)
        self.events: Events = []
        self._started = clock()
        self._history = history
        self.at = self._first
        """The step that is run."""
        self._wrong = False
        """Whether an expression before all statements failed."""
        with suppress(StepFailed):  # the first statement reports what fails before it
            self._begin()

    def segment(self, fence: int) -> Segment:
        real = self._real
        steps = tuple(self._step(one) for one in self._order if one.plan is not None)
        return Segment(StepId(real.id, real.life, real.hash, self._name), steps, fence)

    def _step(self, one: Planned) -> TargetStep:
        """Return a step, with its values if they are known. If not, the target asks for them when
        it comes to the step.
        """
        values = None
        if one.step.for_each is None:
            with suppress(StepFailed):
                mine = all(source.kind == "value" or source.name not in self._fresh for source in one.sources.values())
                values = context(one, self._history.steps) if mine else None
        return segment_step(one, values, self._limits(one), undo=not self._decides)

    # ------------------------------------------------------------ in the transaction

    def values(self, step: str) -> tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...] | None]:
        self._begin_again(step)
        one, self.at = self._plan.step(step), step
        return context(one, self._history.steps), each_of(self._history, one)

    def did(self, step: str, done: Done) -> None:
        self._begin_again(step)
        one = self._plan.step(step)
        for type_, payload in result(step, done, self._clock(), query=not one.writes, started=self._started):
            self._add(type_, payload)
        place = self._order.index(one)
        self._go_on(place)
        left = [other.name for other in self._order[place + 1 :] if other.plan is not None]
        self.at = left[0] if left else step
        if (left or self._decides) and self._stops():
            raise Stopped
        self._started = self._clock()

    def _begin_again(self, step: str) -> None:
        """Begin from the start if the database has begun the transaction anew."""
        if step == self._first and (self._wrong or self._history.step(step).data is not None):
            self._begin()

    def _begin(self) -> None:
        """Begin from the start."""
        self._wrong = True
        real = self._real
        self._history = History(real.id, real.life, hash=real.hash, state="running", last=real.last)
        states = ChainMap({name: StepState() for name in self._fresh}, real.steps)
        # Steps of other segments are not copied: there may be many.
        self._history.steps = cast("dict[str, StepState]", states)
        self.events, self._started = [], self._clock()
        self._go_on(-1)
        self._wrong = False

    def _go_on(self, at: int) -> None:
        """Work out expressions and checks of a step, and of those behind it that have no statement."""
        for one in self._order[max(at, 0) :] if self._follows else ():
            if one.plan is not None and (at < 0 or one is not self._order[at]):
                return
            self._follow(one)

    def _follow(self, one: Planned) -> None:
        following = Following(self._history)
        while True:
            found, _, _ = following.follow(one, self._history.step(one.name), 0)
            notes = [action for action in found if isinstance(action, Note)]
            for note in notes:
                self._add(note.type, note.payload)
            if self._history.failure is not None:
                raise StepFailed(*self._history.failure[1:])
            if not notes:
                return

    def _add(self, type_: str, payload: Payload) -> None:
        payload = payload if "at" in payload else {**payload, "at": self._clock()}
        self._history.apply(HistoryEvent(self._history.last + 1, type_, payload))
        self.events.append((type_, payload))

    # ------------------------------------------------------------ what came of it

    @property
    def failed(self) -> bool:
        """Return whether the events have the reason of the failure."""
        return self._history.failure is not None

    def repeated(self, done: Mapping[str, Done]) -> None:
        """Work out again the results of a segment that was done before."""
        self._stops = lambda: False
        for one in self._order:
            if one.plan is not None:
                self.did(one.name, done[one.name])

    def done(self) -> Events:
        """Return the new events, without those that the log has already: a process may have ended
        between two appends.
        """
        return [(type_, payload) for type_, payload in self.events if not self._is_known(type_, payload)]

    def _is_known(self, type_: str, payload: Payload) -> bool:
        state = self._real.step(payload["step"])
        if type_ in ("Result", "Page"):
            return state.data is not None
        return payload["recipe"] in state.results if type_ == "RecipeDone" else state.success is not None

    def undone(self, failed: StepFailed | None = None) -> Events:
        """Return the events of a transaction that is rolled back, and of the failure of the step that ran. If nobody
        knows whether it was rolled back, return only an event that says so.
        """
        events: Events = [
            (type_, {**payload, "gone": True} if type_ == "Result" and "reason" not in payload else payload)
            for type_, payload in (() if failed is not None and failed.unknown else self.done())
        ]
        if failed is not None:
            reason = {"reason": failed.reason, "detail": failed.detail, "unknown": failed.unknown}
            events.append(("Result", {"step": self.at, **reason}))
        return events


def segment_step(one: Planned, values: Mapping[str, Any] | None, limits: Limits, *, undo: bool = True) -> TargetStep:
    """Return a step as its target runs it. `undo`: whether it may have to be undone by images."""
    if one.plan is None:
        raise TypeError(one)
    return TargetStep(
        one.name, one.plan, values or {}, known=values is not None, limits=limits,
        undo=undo and one.undo == "automatic", before=(*(need for need, _ in one.wants), *one.order),
        require="exists" if one.step.must_exist else "absent" if one.step.must_not_exist else "",
    )  # fmt: skip


def each_of(history: History, one: Planned) -> tuple[Mapping[str, Any], ...] | None:
    """Return the values of each run of a step's statement; None for a step that runs it once."""
    if one.step.for_each is None:
        return None
    source = one.step.for_each.partition(".")[0]
    rows = history.step(source).results[IDENTITY]["rows"]
    wanted = {name: each.name for name, each in one.sources.items() if each.kind == "row"}
    try:
        return tuple({name: row[column] for name, column in wanted.items()} for row in rows)
    except KeyError as error:
        raise StepFailed("binding", f":row has no {error}") from None
