"""A group as one transaction: a person who has one database writes one transaction, and so do we.

    what is wrong (a statement, an expression, a check)   the transaction is rolled back: nothing has to be undone
    nothing is                                            COMMIT decides the group, too

What lies between the steps is worked out on a history of its own, from the start again if the database begins the
transaction anew. What a user sees of the group is what a group run step by step shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from strandline.group.core.step import StepFailed, StepState, context
from strandline.group.decide import ALL, Course, Note, Rules
from strandline.group.execution import each_of
from strandline.group.history import History, HistoryEvent, Payload, result
from strandline.group.plan import GroupPlan, Planned
from strandline.group.target import Done, Limits, Ran, Segment, SegmentStep, StepId

Events = list[tuple[str, Payload]]


class Stopped(Exception):
    """The group was cancelled, or is past its deadline."""


class AsOne:
    """The host of a segment that is a whole group."""

    def __init__(
        self, plan: GroupPlan, history: History, rules: Rules, limits: Callable[[Planned], Limits],
        clock: Callable[[], int], stops: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`stops` is asked after each step whether the group has failed meanwhile."""
        self._plan, self._real, self._rules = plan, history, replace(rules, segments=False)
        self._limits, self._clock, self._stops = limits, clock, stops
        self._order: Final = [plan.steps[name] for name in plan.sequence]
        self._first = next(one.name for one in self._order if one.plan is not None)
        self.events: Events = []
        self._started = clock()
        self._history = history
        self._course = Course(plan, history, self._rules)
        self.at = self._first
        """The step that is run."""
        with suppress(StepFailed):  # an expression of a step that stands before all statements
            self._begin()

    def segment(self, fence: int) -> Segment:
        real = self._real
        steps = tuple(self._step(one) for one in self._order if one.plan is not None)
        return Segment(StepId(real.id, real.life, real.hash, ALL), steps, fence)

    def _step(self, one: Planned) -> SegmentStep:
        if one.plan is None:
            raise TypeError(one)
        known = one.step.for_each is None and all(source.kind == "value" for source in one.sources.values())
        return SegmentStep(
            one.name, one.plan, context(one, {}) if known else None, undo=False, limits=self._limits(one),
            require="exists" if one.step.must_exist else "absent" if one.step.must_not_exist else "",
        )  # fmt: skip

    # ------------------------------------------------------------ in the transaction

    def values(self, step: str) -> tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...] | None]:
        if step == self._first:
            self._begin()
        one, self.at = self._plan.steps[step], step
        return context(one, self._history.steps), each_of(self._history, one)

    def did(self, step: str, done: Done) -> None:
        if step == self._first:
            self._begin()
        one = self._plan.steps[step]
        for type_, payload in result(step, done, self._clock(), query=not one.writes, started=self._started):
            self._add(type_, payload)
        place = self._order.index(one)
        self._go_on(place)
        self.at = next((other.name for other in self._order[place + 1 :] if other.plan is not None), step)
        if self._stops():
            raise Stopped
        self._started = self._clock()

    def _begin(self) -> None:
        """From the start, perhaps once more."""
        real = self._real
        self._history = History(real.id, real.life, hash=real.hash, state="running", last=real.last)
        for name in self._plan.steps:
            self._history.steps[name] = StepState()
        self._course.history = self._history
        self.events, self._started = [], self._clock()
        self._go_on(-1)

    def _go_on(self, at: int) -> None:
        """Expressions and checks of a step, and of those behind it that have no statement."""
        for one in self._order[max(at, 0) :]:
            if one.plan is not None and (at < 0 or one is not self._order[at]):
                return
            self._follow(one)

    def _follow(self, one: Planned) -> None:
        while True:
            found, _, _ = self._course.follow(one, self._history.step(one.name), 0)
            for note in found:
                if isinstance(note, Note):
                    self._add(note.type, note.payload)
            if self._history.failure is not None:
                raise StepFailed(*self._history.failure[1:])
            if not found:
                return

    def _add(self, type_: str, payload: Payload) -> None:
        payload = payload if "at" in payload else {**payload, "at": self._clock()}
        self._history.apply(HistoryEvent(self._history.last + 1, type_, payload))
        self.events.append((type_, payload))

    # ------------------------------------------------------------ what came of it

    @property
    def failed(self) -> bool:
        """Whether the events say why."""
        return self._history.failure is not None

    def repeated(self, ran: Ran) -> None:
        """It was done before: what it came to is worked out again."""
        self._stops = lambda: False
        for one in self._order:
            if one.plan is not None:
                self.did(one.name, ran.done[one.name])

    def undone(self, failed: StepFailed | None = None) -> Events:
        """What happened in a transaction that is rolled back, and why, if the step that runs has failed."""
        events: Events = [
            (type_, {**payload, "gone": True} if type_ == "Result" and "reason" not in payload else payload)
            for type_, payload in self.events
        ]
        if failed is not None:
            events.append(("Result", {"step": self.at, "reason": failed.reason, "detail": failed.detail}))
        return events
