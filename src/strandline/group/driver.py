"""Drives one group: carries out what is decided, puts the results into the history, and decides again.

    news ──▶ decide ──▶ notes into the history, again ──▶ actions: one in this thread, others beside it ──▶ news

A thread is held only while a statement runs. A group that waits (for an answer, a date, a target that is away) holds
none: an answer, a timer or its processor brings it back. Forward, back and resuming after a crash are the same loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.errors import LeaseLost, SeqNrConflict, Unavailable
from strandline.group.actions import Action, Ask, Decide, End, Note, Run, Send, UndoSegment, Void
from strandline.group.between import SegmentRun, Stopped
from strandline.group.core.step import StepFailed
from strandline.group.decide import Course
from strandline.group.execution import Execution, OpenTarget, undo_result
from strandline.group.handlers import Handlers
from strandline.group.history import ENDS, History, Payload
from strandline.group.lease import StreamLease, StreamPlace
from strandline.group.mail import Boxes
from strandline.group.messages import Messages
from strandline.group.plan import GroupPlan
from strandline.group.points import reached
from strandline.group.record import GroupRecord
from strandline.group.settings import GroupSettings
from strandline.group.target import NotUndone, Undone
from strandline.group.times import Times
from strandline.group.tries import Tries
from strandline.journal.journal import Journal

if TYPE_CHECKING:
    from strandline.group.turn import Turn

SECOND_US: Final = 1_000_000
_logger: Final = logging.getLogger("strandline.group")
Work = Callable[[], None]


@dataclass(slots=True)
class Shared:
    """The things that all groups of a processor use."""

    journal: Journal
    settings: GroupSettings
    targets: Mapping[str, OpenTarget]
    handlers: Handlers
    boxes: Boxes
    lease: StreamLease
    clock: Callable[[], int]
    times: Times
    host: Turn
    """It gives groups threads and timers."""


class Drive:
    """A group that was admitted and is not over."""

    def __init__(
        self, shared: Shared, history: History, plan: GroupPlan, place: StreamPlace, targets: frozenset[str], *,
        resumed: bool,
    ) -> None:  # fmt: skip
        """`resumed`: the previous processor may have begun the group."""
        self.shared, self.plan, self.place, self.targets = shared, plan, place, targets
        self.messages = Messages(self)
        self.taken = not resumed
        """Whether the previous processor can add nothing more to its history."""
        self.begun = False
        """Whether it may run: its rows are free and its targets are there."""
        self.running = False
        """Whether the loop has not seen yet that the group has come to rest."""
        self.resting = False
        """Whether it has come to rest and its processor has to look at it."""
        self.parked = False
        """Whether it waits for an operator."""
        self.aside = False
        """Whether it was put aside: it has changed nothing, and a target is away."""
        self.unsure: set[str] = set(plan.segments.steps) if resumed else set()
        """Segments that may have been sent though the history does not say so."""
        self._active = 0
        """The number of threads that work on it, or will."""
        self._tries: dict[Action, Tries] = {}
        self._wake: int | None = None
        self._began: float | None = None
        self.lock = RLock()
        self._use(history)

    def _use(self, history: History) -> None:
        shared = self.shared
        self.history = history
        self.record = GroupRecord(
            shared.journal, history, shared.lease, shared.clock, shared.settings.history_keep_s, self.lock
        )
        self.execution = Execution(
            self.plan, self.record, shared.targets, shared.settings, shared.lease, shared.times, shared.clock
        )
        self.course = Course(self.plan, history, shared.settings, self.unsure)

    @property
    def id(self) -> str:
        return self.place.id

    @property
    def ended(self) -> bool:
        return self.history.state in ENDS

    @property
    def busy(self) -> bool:
        """Return whether a thread of this process works on the group."""
        return bool(self._active or self.messages.calls)

    def identity(self, target: str) -> str:
        """Return the identity of a target's database at the group's submit; the target's name if
        it was not recorded.
        """
        return self.history.identities.get(target, target)

    @property
    def code(self) -> Mapping[str, str]:
        """Return the versions of code that it uses."""
        return self.history.code if self.history.started else self.place.code

    def now(self) -> int:
        """Return the microseconds since the group started."""
        if self._began is None:
            return self.history.ran_us
        return self.history.ran_us + int((time.monotonic() - self._began) * SECOND_US)

    # ------------------------------------------------------------ what its processor does

    def take(self) -> None:
        """Record in the group's history that this processor has it. Late events of the previous processor count."""
        while not self.ended:
            self.record.add("Taken", {"fence": self.shared.lease.fence})
            try:
                self.record.flush()
            except SeqNrConflict:  # the lease is ours, so the previous processor has written its last events
                self._use(self._loaded())
                continue
            break
        reached("group.taken")
        self.taken = True

    def _loaded(self) -> History:
        history = self.shared.host.load(self.id)
        if history is None:
            raise LookupError(f"the history of group {self.id} is gone")
        return history

    def begin(self) -> None:
        """Drive the group on, in a thread of the pool."""
        self._enter()
        self.shared.host.submit(self, self._begin)

    def begin_here(self) -> None:
        """Drive the group on, in this thread."""
        self._enter()
        self.go(self._begin)

    def _enter(self) -> None:
        with self.lock:
            if not self.busy:
                self.shared.host.entered(self)
            self._active += 1
            self.running = True
            self.begun = not self.aside  # no step starts before it is known whether the group begins anew
            self.parked = False

    def send_hooks(self) -> None:
        """Send the remaining messages to hooks of a group that has ended."""
        self.begun = True
        self.go_on()

    def _begin(self) -> None:
        if self.aside and not self._has_begun_again():
            return  # its processor begins it once more
        if self._began is None or not self.history.started:
            self._began = time.monotonic()
        self._wake = None
        with self.lock:
            if not self.history.started:
                started: dict[str, Any] = {"fence": self.shared.lease.fence, "place": self.place.n}
                if self.place.code:
                    started["code"] = dict(self.place.code)
                self.add("Started", started)
        reached("group.started")

    def _has_begun_again(self) -> bool:
        """Go on with a group that was put aside. A group whose start is not in the log begins anew, because its target
        may be another database now. Return False if the log is away: the group then stays aside.
        """
        try:
            history = None if self.history.is_start_logged else self._loaded()
        except Unavailable as error:
            if not error.retryable:
                raise
            return False
        with self.lock:
            self.aside, self.begun = False, True
            if history is not None and not self.history.cancelled:
                self._use(history)
        return True

    def cancel(self) -> None:
        """Make the group fail, because a caller wants it undone. This is durable on return."""
        with self.lock:
            if self.history.decided is None and not self.history.cancelled and not self.ended:
                self.add("Cancelled", {})
        self.record.flush()
        self.poke()

    def resolve(self, step: str, how: str) -> None:
        """Record what an operator says about a step that could not be undone."""
        one = self.plan.steps.get(step)
        by = step if one is None else one.step.undo if isinstance(one.step.undo, str) else None
        payload: dict[str, Any] = {"step": step, "how": how}
        if by is not None:
            payload["by"] = by
        with self.lock:
            self.add("Resolved", payload)
        self.record.flush()

    def poke(self) -> None:
        """Go on with the group, because there is news."""
        if self.begun:
            self.go_on()

    # ------------------------------------------------------------ threads

    def go_on(self, work: Work | None = None) -> None:
        """Run `work` in a thread of the pool, then go on with the group."""
        with self.lock:
            if not self.busy:
                self.shared.host.entered(self)
            self._active += 1
        self.shared.host.submit(self, work)

    def later(self, seconds: float, work: Work) -> None:
        """Run `work` after a while, without holding a thread meanwhile."""
        self.shared.host.later(seconds, partial(self.go_on, work))

    def go(self, work: Work | None) -> None:
        """Run `work`, then the group's next actions, until there are none for this thread."""
        try:
            while True:
                if work is not None:
                    work()
                with self.lock:
                    actions = self._next()
                    if not actions and not self._to_flush:
                        self._rest()
                        return
                work = self._share_out(actions)
        except (LeaseLost, SeqNrConflict) as error:
            self._ends_processor(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this group's: others go on)
            self._sticks(error)
        except BaseException as error:
            self._ends_processor(error)
            raise

    @property
    def _to_flush(self) -> bool:
        """Return whether the group comes to rest while going back, with events that are not in the log."""
        return self.begun and self.history.decided == "rollback" and self.record.pending and self._active == 1

    def _next(self) -> list[Action]:
        """Return the actions to carry out now. Notes among them are applied at once. The caller holds the lock."""
        if not self.begun:
            return []
        found: list[Action] = []
        while True:
            actions = self.course.decide(self.now())
            notes = [action for action in actions if isinstance(action, Note)]
            found += [action for action in actions if not isinstance(action, Note)] if notes else actions
            if not notes:
                return found
            for note in notes:
                if note.type == "Answered" and note.payload["answer"].get("timed_out"):
                    self.messages.timed_out(note.payload["message_id"])
                self.add(note.type, note.payload)

    def _share_out(self, actions: list[Action]) -> Work | None:
        """Send to hooks, ask handlers, give the other actions to the pool except one, which is
        returned for this thread.
        """
        if not actions:
            self.record.flush()
            return None
        rest = []
        for action in actions:
            if isinstance(action, Send):
                self.messages.send(action)
            elif not isinstance(action, Ask):
                rest.append(action)
        if asks := [action for action in actions if isinstance(action, Ask)]:
            self.messages.ask(asks)
        for action in rest[1:]:
            self.go_on(partial(self._do, action))
        return partial(self._do, rest[0]) if rest else None

    def _rest(self) -> None:
        """Let this thread leave the group. The caller holds the lock."""
        self._active -= 1
        if self._active:
            return
        at = self.course.wake_at if self.begun else None
        if at is not None and (self._wake is None or at < self._wake):
            self._wake = at
            self.shared.host.wake(self, max(0.0, (at - self.now()) / SECOND_US))
        if self.messages.calls:
            return
        if self.begun and self.course.waits_for_operator and not self._tries:
            self.parked, self.begun = True, False
        self.shared.host.left(self)

    def woken(self) -> None:
        """Go on with the group, because a timer is due."""
        with self.lock:
            self._wake = None
        self.poke()

    def _ends_processor(self, error: BaseException) -> None:
        self.shared.host.failed(error)
        with self.lock:
            self._rest_of_broken()

    def _sticks(self, error: Exception) -> None:
        """After an error of this program, leave the group as it is, and keep its rows. Another
        processor tries it again.
        """
        detail = f"{type(error).__name__}: {error}"
        try:
            with self.lock:
                self.begun = False
                self.record.add("Stuck", {"detail": f"internal: {detail}"[:10_000]})
            self.record.flush()
        except (LeaseLost, SeqNrConflict) as lost:
            self.shared.host.failed(lost)
        except Exception:  # noqa: BLE001 (it is stuck all the same)
            self.history.stuck = self.history.stuck or detail
        _logger.error("group %s is stuck, and keeps its rows: %s", self.id, detail, exc_info=error)
        with self.lock:
            self.parked = True
            self._rest_of_broken()

    def _rest_of_broken(self) -> None:
        self._active -= 1
        self.begun = False
        if not self.busy:
            self.shared.host.left(self)

    def add(self, type_: str, payload: Payload) -> None:
        """Make an event. The lock is held."""
        self.record.add(type_, payload)
        self.course.heard(type_, payload)

    # ------------------------------------------------------------ actions

    def _do(self, action: Action) -> None:
        """Try an action once. If it fails, a timer tries it again; no thread waits meanwhile."""
        if isinstance(action, Run):
            self._run(action)
        elif isinstance(action, UndoSegment):
            self._undo(action)
        elif isinstance(action, Void):
            self._void(action)
        elif isinstance(action, Decide):
            self._decide(action)
        elif isinstance(action, End):
            self._end(action)

    def _over(self, action: Action, *events: tuple[str, Payload]) -> None:
        with self.lock:
            self._tries.pop(action, None)
            for type_, payload in events:
                self.add(type_, payload)
            self.course.done(action)

    def _again(self, action: Action) -> None:
        """Try an action again after a while."""
        self.later(self._tries_of(action).again(), partial(self._do, action))

    def _tries_of(self, action: Action) -> Tries:
        with self.lock:
            return self._tries.setdefault(action, Tries(self.shared.settings, time.monotonic()))

    def _waits_for_target(self, action: Action, error: Unavailable) -> bool:
        """While going back, try an action again later if its target does not answer. Return False
        once this took too long.
        """
        waits = error.retryable and self._tries_of(action).waits(time.monotonic())
        if waits:
            self._again(action)
        return waits

    def _run(self, action: Run) -> None:
        """Execute a segment, or a rollback step."""
        name, forward = action.segment, self.history.decided is None
        decides = name == self.plan.segments.last
        if forward and self._stops(name):
            return self._over(action)
        steps = [self.plan.step(step) for step in self.plan.segments.steps.get(name, (name,))]
        target = next(one.target for one in steps if one.target is not None)
        together = any(one.writes and one.sql_target for one in steps)
        if forward and together:
            with self.lock:
                self.unsure.add(name)
        run, unknown = None, False
        try:
            if together:
                run = self.execution.segment_run(name, lambda: self._stops(name))
                events = run.undone() if run.failed else self.execution.executed_together(run, target)
                events += [("Decided", {"decision": "commit"})] * (decides and not run.failed)
            else:
                events = self.execution.executed(steps[0])
        except Stopped:
            events = [] if run is None or decides else run.undone()
        except StepFailed as failed:
            step = steps[0].name if run is None else run.at
            if self._tried_again(action, step, failed, forward=forward):
                return None
            unknown, events = failed.unknown, self._of_failure(step, run, failed)
        with self.lock:
            if not unknown:
                self.unsure.discard(name)
            self._over(action, *events)
        reached("step.recorded" if forward else "rollback.step")
        return None

    def _stops(self, segment: str) -> bool:
        return self.course.stops(segment, self.now())

    def _of_failure(self, step: str, run: SegmentRun | None, failed: StepFailed) -> list[tuple[str, Payload]]:
        """Return the events of a segment that failed, in a statement or between two statements."""
        if run is not None:
            return run.undone(None if run.failed else failed)
        reason = {"reason": failed.reason, "detail": failed.detail, "unknown": failed.unknown}
        return [("Result", {"step": step, **reason})]

    def _tried_again(self, action: Run, step: str, failed: StepFailed, *, forward: bool) -> bool:
        """Return whether a segment is to be tried again, or waits for its target."""
        one, tries = self.plan.step(step), self._tries_of(action)
        last = forward and action.segment == self.plan.segments.last
        found: Literal["no", "try", "wait"]
        failed.unknown = tries.unknown = tries.unknown or failed.unknown
        if last and failed.unknown and not failed.retry:
            failed.retry = failed.unknown = self._may_be_committed(action.segment)
        if not forward:
            found = "try" if tries.back(failed, one, time.monotonic()) else "no"
        else:
            found = tries.forward(failed, one, last=last, untouched=self._changed_nothing())
        if found == "wait":
            self.shared.host.lost(str(one.target), failed.detail)
            if self._is_put_aside(action):
                return True
        if found != "no":
            self._again(action)
        return found != "no"

    def _may_be_committed(self, segment: str) -> bool:
        """Find out whether a segment ran whose outcome is unknown. If it did not run, make sure that it never will."""
        try:
            return self.execution.has_run(segment)
        except Unavailable:
            return True

    def _changed_nothing(self) -> bool:
        history = self.history
        if history.intents or history.final:
            return False
        return not any(one.writes and history.step(name).data is not None for name, one in self.plan.steps.items())

    def _is_put_aside(self, action: Run) -> bool:
        """Put the group aside until its target is back, unless another action of it runs or is retried; return whether
        it was put aside. Handlers that were asked are not asked again.
        """
        with self.lock:
            alone = self._active == 1 and not self.messages.calls and self._tries.keys() <= {action}
            if not alone or self.history.final:
                return False
            self.course.done(action)
            self._tries.clear()
            self.aside, self.begun = True, False
        if self.history.is_start_logged:
            self.record.flush()
        return True

    def _void(self, action: Void) -> None:
        try:
            ran = self.execution.has_run(action.segment)
        except Unavailable as error:
            if self._waits_for_target(action, error):
                return
            ran = True  # the undo will say that the target is away
        self._over(action, ("Voided", {"segment": action.segment, "ran": ran}))

    def _undo(self, action: UndoSegment) -> None:
        reached("undo.before")
        name = next(step for step in reversed(self.plan.segments.steps[action.segment]) if step in self.history.undo)
        outcomes: Mapping[str, Undone | NotUndone]
        try:
            outcomes = self.execution.undone(action.segment)
        except (LeaseLost, SeqNrConflict):
            raise
        except Unavailable as error:
            if self._waits_for_target(action, error):
                return
            outcomes = {name: NotUndone(error.message)}
        except Exception as error:  # noqa: BLE001 (it waits for an operator)
            outcomes = {name: NotUndone(f"internal: {type(error).__name__}: {error}")}
        again = any(isinstance(outcome, NotUndone) and outcome.retry for outcome in outcomes.values())
        if again and self._tries_of(action).undo():
            self._again(action)
            return
        reached("undo.done")
        self._over(action, *(("UndoResult", undo_result(step, outcome)) for step, outcome in outcomes.items()))
        reached("undo.recorded")

    def _decide(self, action: Decide) -> None:
        payload = {"decision": "rollback", "step": action.step, "reason": action.reason}
        with self.lock:
            self.messages.calls.clear()
            self._over(action, ("Decided", {**payload, "detail": action.detail[:10_000]}))
        self.record.flush()
        reached("decided")

    def _end(self, action: End) -> None:
        with self.lock:
            self.messages.calls.clear()
            self._over(action, ("Ended", {"end": action.end}))
        self.record.flush()
        reached("ended")
        self.shared.host.ended(self)
        self.messages.stop_handlers()
