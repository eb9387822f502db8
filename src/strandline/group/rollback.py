"""Going back: every step that was executed, or may have been, is undone, the last one first.

    1. It is decided, in the log. Nothing starts any more, and what runs has come to its end.
    2. Each writing step that may have run gets a void barrier row: where that works it never ran, and never will.
    3. The others are undone in reverse order, branches side by side; a failed undo holds back those behind it.
    4. After all undo the failed step's `execute_on_failure`. Then the rows are free, and the group has ended.

Undo may be interrupted and repeated anywhere, with the same end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, Final, TypeVar, cast

import orjson

from strandline.errors import Unavailable
from strandline.group import cell_steps
from strandline.group.asking import OpenTarget, Shared
from strandline.group.cells import RowState
from strandline.group.core.encoding import encoded, readable
from strandline.group.core.parts import SUCCESS, Data, Handler, Undo
from strandline.group.core.perform import StepFailed, perform
from strandline.group.core.runner import Runner
from strandline.group.core.schedule import Schedule
from strandline.group.execution import Forward, asks
from strandline.group.history import History
from strandline.group.plan import GroupPlan, Planned
from strandline.group.points import reached
from strandline.group.record import Record
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S
from strandline.group.statements import held
from strandline.group.statements.api import Given, Held, Plan, RowSet
from strandline.group.target import CellTarget, Conflict, NotUndone, OnConflict, SqlTarget, Undone

SHOWN_BYTES: Final = 256 * 1024
UNDONE: Final = Undone()
T = TypeVar("T")


class Execution(Forward):
    """A group, forward and back."""

    def __init__(self, shared: Shared, record: Record, plan: GroupPlan, *, resumed: bool) -> None:
        super().__init__(shared, record, plan, resumed=resumed)
        self._cells: dict[tuple[str, frozenset[str]], dict[int, list[RowState]]] = {}
        """Of targets without transactions, without steps whose cells are to stay: the rows that each write changed."""
        self._cells_lock = Lock()

    def run(self) -> str:
        """Run it to its end, or until only an operator can help; its state then."""
        with self.record.lock:
            resuming = self.history.decided
        if resuming is None:
            self.forward()
        elif resuming == "rollback":
            self._start_handler()  # its undo may ask for it
        if self.history.decided is None:
            self._decide()
        if self.history.decided == "commit":
            self._end("committed")
        else:
            self._back()
        return self.history.state

    def _decide(self) -> None:
        with self.record.lock:
            if self.failure is None:
                self.record.add("Decided", {"decision": "commit", "at": self.shared.clock()})
                return
            step, reason, detail = self.failure
            payload = {"decision": "rollback", "step": step, "reason": reason, "detail": detail[:10_000]}
            self.record.add("Decided", {**payload, "at": self.shared.clock()})
        self.record.flush()
        reached("decided")

    def _end(self, end: str) -> None:
        with self.record.lock:
            if self.history.state != end:
                self.queue_post(end)
                self.record.add("Ended", {"end": end, "at": self.shared.clock()})
        self.record.flush()
        reached("ended")
        self.stop_handlers()
        self.send_hooks()

    # ------------------------------------------------------------ back

    def submit(self, do: Callable[[str], None], step: str, /) -> object:
        """A thread for a step, or its undo."""
        one = self.plan.steps[step]
        undo = self.plan.rollback.get(one.step.undo) if isinstance(one.step.undo, str) else None
        if self.history.decided is not None and (one.undo == "handler" or (undo is not None and asks(undo))):
            return self.shared.asking_pool.submit(do, step)
        return super().submit(do, step)

    def _back(self) -> None:
        ran = self._ran()
        wants: dict[str, list[tuple[str, str]]] = {name: [] for name in reversed(self.plan.steps)}
        for name, needs in self.plan.wants().items():
            for need, _ in needs:
                wants[need].append((name, SUCCESS))
        Runner(Schedule(wants), lambda name: name not in ran or self._undo(name), self, stop_on_failure=False).run()
        if self.not_undone():
            self.record.flush()
            return
        if not self._run_on_failure():
            self.record.flush()
            return
        self._end("rolled_back" if ran or self.history.undo else "aborted")

    def not_undone(self) -> list[str]:
        """Steps whose undo has failed."""
        return [name for name, undo in self.history.undo.items() if undo.state == "undo_failed"]

    def _ran(self) -> set[str]:
        """The steps that are to be undone."""
        found = set()
        for name, one in self.plan.steps.items():
            if one.undo not in ("automatic", "step", "handler"):
                continue
            if one.writes:
                if name in self.history.undo or self._has_run(one):
                    found.add(name)
            elif name in self.history.undo or self._was_performed(name):
                found.add(name)
        return found

    def _was_performed(self, name: str) -> bool:
        state = self.history.step(name)
        asked = any(question.step == name for question in self.history.questions.values())
        return asked or bool(state.results) or state.data is not None

    def _has_run(self, one: Planned) -> bool:
        state = self.history.step(one.name)
        if state.data is not None or one.name in self.history.intents or state.attempts > 0:
            return True
        if one.name not in self.attempted or (one.plan is not None and one.plan.statement.dialect == "cassandra"):
            return False
        opened = self._target(one)
        target = cast(SqlTarget, opened.target)
        try:
            never = self._until_there(
                lambda: target.void(opened.owner, self.step_id(one.name), self.shared.lease.fence)
            )
        except Unavailable:
            return True  # its undo will say that the target is away
        reached("void.done")
        return not never

    def _target(self, one: Planned) -> OpenTarget:
        return self.shared.targets[one.target or ""]

    def _undo(self, name: str) -> bool:
        """Undo a step; whether it is undone."""
        known = self.history.undo.get(name)
        if known is not None and known.state == "undone":
            return True
        if known is not None and known.state == "undo_failed":
            return False  # it waits for an operator
        one = self.plan.steps[name]
        self.record.add("UndoIntent", {"step": name, "at": self.shared.clock()})
        reached("undo.before")
        outcome = self._undone(one, known.how if known is not None else None)
        reached("undo.done")
        payload: dict[str, Any] = {"step": name, "at": self.shared.clock(), "state": "undone"}
        if isinstance(outcome, NotUndone):
            conflicts = _shown(outcome.conflicts)
            payload |= {"state": "undo_failed", "detail": readable(outcome.detail[:10_000]), "conflicts": conflicts}
        elif outcome.kept:
            payload["conflicts"] = _shown(outcome.kept)
        self.record.add("UndoResult", payload)
        reached("undo.recorded")
        return isinstance(outcome, Undone)

    def _undone(self, one: Planned, how: str | None) -> Undone | NotUndone:
        if how == "accept_current" and one.undo != "automatic":
            return UNDONE
        if one.undo == "handler":
            return self._undone_by_handler(one)
        if one.undo == "step":
            return self._undone_by_step(str(one.step.undo))
        opened = self._target(one)
        on_conflict = cast(OnConflict, self.plan.group.on_conflict or self.shared.settings.on_conflict)
        target = opened.target
        if isinstance(target, CellTarget):
            return self._cells_undone(one, target, on_conflict, how)
        work = self.work(one, {}, b"")._replace(each=None)

        def undo() -> Undone | NotUndone:
            return target.undo(opened.owner, work, on_conflict, force=how == "force", accept=how == "accept_current")

        return self._undo_tried(undo)

    def _cells_undone(
        self, one: Planned, target: CellTarget, on_conflict: OnConflict, how: str | None
    ) -> Undone | NotUndone:
        """Put back the rows that a step changed, to what they were before the group: each cell once, at one time,
        whichever of its steps comes first."""
        if how == "accept_current" or one.name not in self.history.intents:
            return UNDONE
        rows = self._rows_written(one, target).get(int(self.history.intents[one.name]["timestamp"]), [])
        self.record.flush()
        limits, force = self.limits(one), how == "force"

        def undo() -> Undone | NotUndone:
            return target.put_back(
                rows, limits, on_conflict, now=self.shared.clock(), force=force, over=lambda time: self._over(one, time)
            )

        return self._undo_tried(undo)

    def _rows_written(self, one: Planned, target: CellTarget) -> dict[int, list[RowState]]:
        """What the group did on a step's target, under whatever name, by the timestamp of each write."""
        stay = frozenset(name for name, undo in self.history.undo.items() if undo.how == "accept_current")
        place = self._target(one).owner.identity
        with self._cells_lock:
            if (place, stay) not in self._cells:
                works = {
                    name: self.work(other, {}, b"")._replace(each=None)
                    for name, other in self.plan.steps.items()
                    if other.undo == "automatic" and other.plan is not None and other.writes and name not in stay
                    and self._target(other).owner.identity == place
                }  # fmt: skip
                found = self._cells.setdefault((place, stay), {})
                for row in target.rows_written(cell_steps.wrote(self.history, works)):
                    for timestamp in row.writes:
                        found.setdefault(timestamp, []).append(row)
            return self._cells[place, stay]

    def _over(self, one: Planned, time_: int) -> int:
        """The time at which a step's cells are put back over those that others wrote, the last one then; the same for
        every try, so that what is written after the undo stays."""
        undo = self.history.undo[one.name]
        if not undo.over:
            over = self.shared.times.next(time_)
            self.record.add("UndoIntent", {"step": one.name, "at": self.shared.clock(), "over": over})
            self.record.flush()
        return undo.over

    def _undo_tried(self, undo: Callable[[], Undone | NotUndone]) -> Undone | NotUndone:
        tries, wait_s = 0, WAIT_LEAST_S
        while True:
            try:
                outcome = self._until_there(undo)
            except Unavailable as error:
                return NotUndone(error.message)
            tries += 1
            if isinstance(outcome, Undone) or not outcome.retry or tries > self.shared.settings.undo_retries:
                return outcome
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_MOST_S)

    def _undone_by_handler(self, one: Planned) -> Undone | NotUndone:
        handler = cast(Handler, one.step.undo)
        data = self.history.step(one.name).data
        message_id = self.message_id(one.name, "undo")
        known = data is not None and all(
            question.answer is not None and not question.answer.get("timed_out")
            for message, question in self.history.questions.items()
            if question.step == one.name and message != message_id
        )
        message = Undo(self.history.id, one.name, "done" if known else "unknown", data or Data(), message_id)
        for attempt in range(self.shared.settings.undo_retries + 1):
            answer = self.asked(one.name, "undo", handler.name, message, handler.timeout_s, again=attempt > 0)
            if answer.results is not None:
                return UNDONE
        return NotUndone(answer.reason)

    def _undone_by_step(self, name: str) -> Undone | NotUndone:
        """Run a rollback step; one whose data was never made has nothing to undo."""
        job, state = self.plan.rollback[name], self.history.step(name)
        sources = [source for source in job.sources.values() if source.kind == "result"]
        if any(source.recipe not in self.history.step(source.name).results for source in sources):
            return UNDONE
        if any(need not in self.history.steps or not self._finished(need) for need, _ in job.wants):
            return UNDONE
        if state.data is not None and state.success is not False:
            return UNDONE
        until, wait_s = time.monotonic() + self.shared.settings.undo_wait_s, WAIT_LEAST_S
        while True:
            state.reason = None
            try:
                perform(job, state, self.history.steps, self, lambda: None)
            except StepFailed as failed:
                state.success, state.data = None, None
                if not failed.away or time.monotonic() >= until:
                    return NotUndone(f"{name}: {failed}")
                self.pause(wait_s)
                wait_s = min(2 * wait_s, WAIT_MOST_S)
            else:
                reached("rollback.step")
                return UNDONE

    def _finished(self, name: str) -> bool:
        """Whether a step came so far that its data is there."""
        one = self.plan.steps.get(name)
        if one is None or one.plan is None:
            return name in self.history.steps
        return self.history.step(name).data is not None

    def _run_on_failure(self) -> bool:
        """After all undo the rollback steps of the failed step, in their order; each runs at most once."""
        failed = self.plan.group.steps.get(self.history.failed_step or "")
        undoing = {one.step.undo for one in self.plan.steps.values() if isinstance(one.step.undo, str)}
        for name in failed.execute_on_failure if failed is not None else ():
            known = self.history.undo.get(name)
            if name in undoing or (known is not None and known.state == "undone"):
                continue
            if known is not None and known.how == "accept_current":
                self.record.add("UndoResult", {"step": name, "at": self.shared.clock(), "state": "undone"})
                continue
            outcome = self._undone_by_step(name)
            payload: dict[str, Any] = {"step": name, "at": self.shared.clock(), "state": "undone"}
            if isinstance(outcome, NotUndone):
                payload |= {"state": "undo_failed", "detail": readable(outcome.detail[:10_000])}
            self.record.add("UndoResult", payload)
            if isinstance(outcome, NotUndone):
                return False
        return True

    def _until_there(self, call: Callable[[], T]) -> T:
        """Call until the target answers, for `undo_wait_s`; then `Unavailable`."""
        until, wait_s = time.monotonic() + self.shared.settings.undo_wait_s, WAIT_LEAST_S
        while True:
            self.shared.lease.check()
            try:
                return call()
            except Unavailable as error:
                if not error.retryable or time.monotonic() >= until:
                    raise
            self.pause(min(wait_s, max(0.0, until - time.monotonic())))
            wait_s = min(2 * wait_s, WAIT_MOST_S)

    # ------------------------------------------------------------ for an operator

    def resolve(self, step: str, how: str) -> None:
        """An operator says what to do with a step that could not be undone; `run` then goes on."""
        self.record.add("Resolved", {"step": step, "how": how, "at": self.shared.clock()})
        self.record.flush()

    def still_held(self) -> Iterable[Held]:
        """What a group that waits for an operator keeps: the rows in images of steps that are not undone, and those of
        rollback steps that are still to run."""
        return still_held(self.plan, self.history)


def still_held(plan: GroupPlan, history: History) -> Iterator[Held]:
    """What a group that waits for an operator keeps."""
    failed = plan.group.steps.get(history.failed_step or "")
    to_run = set(failed.execute_on_failure if failed is not None else ())
    for name, one in plan.steps.items():
        undo = history.undo.get(name)
        if one.plan is None or undo is None or undo.state == "undone":
            continue
        if isinstance(one.step.undo, str):
            to_run.add(one.step.undo)
        yield from _rows_of(one, history) or one.holds
    for name in to_run:
        undo = history.undo.get(name)
        if undo is None or undo.state != "undone":
            yield from plan.rollback[name].holds


def _rows_of(one: Planned, history: History) -> list[Held]:
    images = history.images.get(one.name, {})
    table = one.plan.table if one.plan is not None else None
    if not images or table is None or one.plan is None or one.target is None:
        return []
    if one.plan.statement.dialect == "cassandra":  # it holds partitions, and keys in images are bytes
        return []
    types = tuple(column.type for name in table.key for column in table.columns if column.name == name)
    found = []
    for image in images.values():
        for row in image["rows"]:
            given = tuple(Given(name, value) for name, value in zip(table.key, row, strict=False))
            plan = Plan(one.plan.statement, rows=(RowSet(table.name, given, writes=True, types=types),))
            found += [place._replace(place=(one.target, *place.place)) for place in held(plan, {})]
    return found


def _shown(conflicts: Sequence[Conflict]) -> list[dict[str, Any]]:
    """As many as an event takes; of a long value, how it begins."""
    found, left = [], SHOWN_BYTES
    for conflict in conflicts[:100]:
        made = {name: encoded(_begun(value)) for name, value in conflict._asdict().items()}
        left -= len(orjson.dumps(made))
        if left < 0:
            break
        found.append(made)
    return found


def _begun(row: Any) -> Any:
    return row if row is None else tuple(_cut(value) for value in row)


def _cut(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("v"), str):
        return {**value, "v": _cut(value["v"])}
    return f"{value[:200]}… ({len(value):,})" if isinstance(value, str) and len(value) > 1000 else value
