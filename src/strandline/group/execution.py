"""Works on the targets of a group: executes segments, finds out whether they ran, and undoes them.

Each call is one try. It raises `StepFailed` or, going back, `Unavailable`. The driver decides when to try again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeVar, cast

import orjson

from strandline.errors import LeaseLost, SeqNrConflict, Unavailable
from strandline.group import cell_steps
from strandline.group.between import SegmentRun, Stopped, each_of, segment_step
from strandline.group.cells import RowState
from strandline.group.core.encoding import encoded, readable
from strandline.group.core.step import StepFailed, context
from strandline.group.history import History, Payload, result
from strandline.group.lease import StreamLease
from strandline.group.plan import GroupPlan, Planned
from strandline.group.points import reached
from strandline.group.record import GroupRecord
from strandline.group.settings import GroupSettings
from strandline.group.target import (
    CellTarget,
    Done,
    Failed,
    Limits,
    NotUndone,
    OnConflict,
    Owner,
    Ran,
    RowConflict,
    Rows,
    Segment,
    SqlTarget,
    StepId,
    Undone,
)
from strandline.group.times import Times

SHOWN_BYTES: Final = 256 * 1024
UNDONE: Final = Undone()
T = TypeVar("T")
Events = list[tuple[str, Payload]]


@dataclass(slots=True)
class OpenTarget:
    """An open target and its owner."""

    target: SqlTarget | CellTarget
    owner: Owner


class Gone(StepFailed):
    """The target did not answer. `away`: it cannot be reached at all."""

    gone = True

    def __init__(self, error: Unavailable) -> None:
        super().__init__(
            "statement", error.message, retry=error.retryable, unknown=error.applied == "unknown",
            away=error.code == "away",
        )  # fmt: skip


class Execution:
    """The statements of one group."""

    def __init__(
        self, plan: GroupPlan, record: GroupRecord, targets: Mapping[str, OpenTarget], settings: GroupSettings,
        lease: StreamLease, times: Times, clock: Callable[[], int],
    ) -> None:  # fmt: skip
        self._plan, self._record, self._targets, self._settings = plan, record, targets, settings
        self._lease, self._times, self._clock = lease, times, clock
        self._history: History = record.history
        self._cells: dict[tuple[str, frozenset[str]], dict[int, list[RowState]]] = {}
        """The rows that each write changed, by target without transactions, and by the steps whose cells are to
        stay."""
        self._cells_lock = Lock()

    def _opened(self, target: str | None) -> OpenTarget:
        """Return a target. Raises `Unavailable.away` while it is known to be away."""
        found = self._targets.get(target or "")
        if found is None:
            raise Unavailable(f"target {target} is away", code="away", hint="nothing to do: it is tried again")
        return found

    def step_id(self, step: str) -> StepId:
        return StepId(self._history.id, self._history.life, self._history.hash, step)

    # ------------------------------------------------------------ forward

    def executed(self, one: Planned) -> Events:
        """Execute a query, or a step of a target without transactions; return its events."""
        values, started = context(one, self._history.steps), self._clock()
        self._intend(one)
        reached("step.before")
        done = self._called(lambda: self._write(one, values) if one.writes else self._query(one, values))
        reached("step.done")
        events = result(one.name, done, self._clock(), query=not one.writes, started=started)
        return self._called(lambda: list(events))

    def segment_run(self, name: str, stops: Callable[[], bool]) -> SegmentRun:
        """Return a segment's steps, or a rollback step, and what lies between them. It can be executed once."""
        return SegmentRun(self._plan, self._history, name, self.limits, self._clock, stops)

    def executed_together(self, run: SegmentRun, target: str) -> Events:
        """Execute a segment in one transaction; return its events. Raises `Stopped` if the group has failed."""
        self._intend(self._plan.step(run.at))
        reached("step.before")
        segment = run.segment(self._lease.fence)

        def sent() -> Ran | Failed:
            opened = self._opened(target)
            return cast(SqlTarget, opened.target).run_segment(opened.owner, segment, run)

        ran = self._called(sent)
        reached("step.done")
        if ran.again:
            run.repeated(ran.done)
        return run.done()

    def _intend(self, one: Planned) -> None:
        """Record an irreversible step in the log before it is sent."""
        if one.undo == "never" and not self._history.final:
            self._record.add("Intent", {"step": one.name, "final": True})
            self._record.flush()
            reached("intent.recorded")

    def _called(self, call: Callable[[], T | Failed]) -> T:
        self._lease.check()
        try:
            answer = call()
        except Unavailable as error:
            raise Gone(error) from None
        except (StepFailed, Stopped, LeaseLost, SeqNrConflict):
            raise
        except Exception as error:  # any error ends this group alone: others go on
            raise StepFailed("internal", f"{type(error).__name__}: {error}", unknown=True) from error
        if isinstance(answer, Failed):
            raise StepFailed(answer.reason, answer.detail, retry=answer.retry)
        return answer

    def _query(self, one: Planned, values: Mapping[str, Any]) -> Done | Failed:
        if one.plan is None:
            raise TypeError(one)
        found = self._opened(one.target).target.query(one.plan, values, self.limits(one))
        return Done(0, found) if isinstance(found, Rows) else found

    def _write(self, one: Planned, values: Mapping[str, Any]) -> Done | Failed:
        cells = cast(CellTarget, self._opened(one.target).target)  # isinstance of a protocol takes long
        step = segment_step(one, values, self.limits(one))._replace(each=each_of(self._history, one))
        ahead_s = self._settings.clock_ahead_max_s
        return cell_steps.write(cells, step, self._record, self._times, self._called, ahead_s)

    def limits(self, one: Planned) -> Limits:
        timeout_s = one.step.timeout_s or self._settings.statement_timeout_s
        return Limits(timeout_s, self._settings.rows_max, self._settings.image_bytes_max)

    # ------------------------------------------------------------ back

    def has_run(self, segment: str) -> bool:
        """Return whether a segment of an SQL target ran. If it did not run, make sure that it never will."""
        opened = self._opened(self._plan.target_of(segment))
        self._lease.check()
        never = cast(SqlTarget, opened.target).void(opened.owner, self.step_id(segment), self._lease.fence)
        reached("void.done")
        return not never

    def undone(self, segment: str) -> Mapping[str, Undone | NotUndone]:
        """Put back what a segment changed; return the result of each step that was not held back."""
        undo = self._history.undo
        left = (name for name in self._plan.segments.steps[segment] if name in undo and undo[name].state != "undone")
        steps = [self._plan.step(name) for name in left]
        told = {one.name: self._history.undo[one.name].how for one in steps}
        opened = self._opened(steps[0].target)
        on_conflict = cast(OnConflict, self._plan.group.on_conflict or self._settings.on_conflict)
        self._lease.check()
        if opened.target.dialect == "cassandra":
            (one,) = steps
            outcome = self._cells_undone(one, cast(CellTarget, opened.target), on_conflict, told[one.name])
            return {one.name: outcome}
        made = tuple(segment_step(one, {}, self.limits(one)) for one in steps)
        whole = Segment(self.step_id(segment), made, self._lease.fence)
        return cast(SqlTarget, opened.target).undo_segment(opened.owner, whole, on_conflict, told)

    def _cells_undone(
        self, one: Planned, target: CellTarget, on_conflict: OnConflict, how: str | None
    ) -> Undone | NotUndone:
        """Put back the rows that a step changed, to what they were before the group: each cell once, at one time,
        whichever of its steps comes first."""
        if how == "accept_current" or one.name not in self._history.intents:
            return UNDONE
        rows = self._rows_written(one, target).get(int(self._history.intents[one.name]["timestamp"]), [])
        self._record.flush()
        return target.put_back(
            rows, self.limits(one), "overwrite" if how == "force" else on_conflict, now=self._clock(),
            over=lambda time: self._over(one, time),
        )  # fmt: skip

    def _rows_written(self, one: Planned, target: CellTarget) -> dict[int, list[RowState]]:
        """Return what the group did on a step's target, under whatever name, by the timestamp of each write."""
        history = self._history
        cells = {one.target or "" for one in self._plan.steps.values() if one.writes and one.sql_target is None}
        places = {name: self._opened(name).owner.identity for name in cells}
        stay = frozenset(name for name, undo in history.undo.items() if undo.how == "accept_current")
        place = places[one.target or ""]
        with self._cells_lock:
            if (place, stay) not in self._cells:
                steps = {
                    name: segment_step(other, {}, self.limits(other))
                    for name, other in self._plan.steps.items()
                    if other.undo == "automatic" and other.plan is not None and other.writes and name not in stay
                    and places.get(other.target or "") == place
                }  # fmt: skip
                found: dict[int, list[RowState]] = {}
                for row in target.rows_written(cell_steps.wrote(history, steps)):
                    for timestamp in row.writes:
                        found.setdefault(timestamp, []).append(row)
                self._cells[place, stay] = found
            return self._cells[place, stay]

    def _over(self, one: Planned, time_: int) -> int:
        """Return the timestamp at which a step's cells are put back over those of others: their last write time then.
        It is the same for every try, so that later writes stay.
        """
        undo = self._history.undo[one.name]
        if not undo.over:
            over = self._times.next(time_)
            self._record.add("UndoIntent", {"step": one.name, "over": over})
            self._record.flush()
        return undo.over


def undo_result(step: str, outcome: Undone | NotUndone) -> Payload:
    """Return the event of an undo."""
    payload: dict[str, Any] = {"step": step, "state": "undone"}
    if isinstance(outcome, NotUndone):
        conflicts = _shown(outcome.conflicts)
        payload |= {"state": "undo_failed", "detail": readable(outcome.detail[:10_000]), "conflicts": conflicts}
    elif outcome.kept:
        payload["conflicts"] = _shown(outcome.kept)
    return payload


def _shown(conflicts: Sequence[RowConflict]) -> list[dict[str, Any]]:
    """Return as many conflicts as fit into an event, with long values cut."""
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
