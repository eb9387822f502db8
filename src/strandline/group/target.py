"""The contract of a target: a database of the user's, on which steps run and are undone.

There are two kinds. On an SQL target (`SqlTarget`) a segment of steps is one commit: fence, before-images, changes,
after-images and *barrier row* together, so that nothing has to be in the log before. To learn its outcome, the
processor runs it again. A target without transactions (`CellTarget`: Cassandra) has write timestamps instead: image,
intent and result are in the group's history, each before what comes next.

Each call raises `Unavailable` if the target did not answer: `applied` is "no" if nothing was sent or the target refused
it, "unknown" if nobody knows. What the database itself says of a statement is a result (`Failed`), no exception.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable
from uuid import uuid4

from strandline.errors import InvalidGroup
from strandline.group.statements.api import Dialect, Plan, TargetTable

if TYPE_CHECKING:
    from strandline.group.cells import RowState

OnConflict = Literal["fail", "keep_current", "overwrite"]


class Rows(NamedTuple):
    """The rows that a statement returned. Names are lower case unless quoted; `COUNT(*)` is `count`."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


class Image(NamedTuple):
    """The rows before or after a change, as the target encodes them: equal JSON is identical values."""

    columns: tuple[str, ...] = ()
    """The columns of the key come first."""
    keys: int = 0
    """The number of columns that are the key."""
    rows: tuple[tuple[Any, ...], ...] = ()


class StepId(NamedTuple):
    """Names the barrier row of a step or segment. Another life of a group, or another definition, has others."""

    group: str
    life: int
    definition: str
    """The hash of the group's definition."""
    step: str


class Limits(NamedTuple):
    timeout_s: float = 30.0
    rows_max: int = 10_000
    image_bytes_max: int = 64 * 2**20


class Owner(NamedTuple):
    """The stream that uses a target: a row of its table `strandline_target`."""

    identity: str
    """The target's own name, made with the row: its rows are known by it, whatever URL leads there."""
    history_id: str
    stream: str
    fence: int
    row: str
    """The row's name. It stays when the row is given to another stream, because barrier rows hang on it."""

    @classmethod
    def among(
        cls, owners: Sequence[Owner], name: str, history_id: str, stream: str, *, shared: bool, hand_over: str = ""
    ) -> Owner:
        """Return the row of a stream, or a new one for the caller to add. Raise `InvalidGroup.target_taken` if the
        target belongs to another stream. By `hand_over`, with a place for the row, an operator changes that."""
        for owner in owners:
            if (owner.history_id, owner.stream) == (history_id, stream):
                return owner
        if owners and not shared:
            other = owners[0]
            told = f"; to hand it over: {hand_over.replace('{row}', other.row)}" if hand_over else ""
            raise InvalidGroup(
                f"{name} belongs to stream {other.stream!r} of history {other.history_id}",
                code="target_taken",
                hint="Target(..., shared=True) lets several streams use it, without an order among them" + told,
                history_id=other.history_id,
                stream=other.stream,
            )
        return cls(owners[0].identity if owners else uuid4().hex, history_id, stream, 0, uuid4().hex)


class TargetStep(NamedTuple):
    """A step as its target runs it."""

    name: str
    plan: Plan
    values: Mapping[str, Any] = {}
    """By name of parameter."""
    known: bool = True
    """Whether `values` are complete. If not, the segment's host gives them when it is the step's turn."""
    each: tuple[Mapping[str, Any], ...] | None = None
    """`for_each`: the statement runs once with each of these values more, all or nothing."""
    undo: bool = True
    """Whether images are saved: not for a query, where an undo is given, for an irreversible step, nor where nothing
    of the group can fail after it."""
    require: Literal["", "exists", "absent"] = ""
    """What must hold of the rows that the statement names; else the step fails (`not_applied`)."""
    limits: Limits = Limits()
    before: tuple[str, ...] = ()
    """The steps that run before it, and are undone after it."""


class Segment(NamedTuple):
    """Steps on one target that are one transaction, in the order in which they run."""

    id: StepId
    """Its field `step` is the segment's name."""
    steps: tuple[TargetStep, ...]
    fence: int

    @property
    def held(self) -> tuple[str, ...]:
        """The tables that must not be altered while the segment runs. Steps without an undo need no such lock."""
        return tuple(dict.fromkeys(one.plan.statement.writes for one in self.steps if one.undo and one.plan.table))


class SegmentHost(Protocol):
    """Does what lies between the steps of a segment. It is asked again from the first step on if the transaction is
    begun again. What it raises ends the transaction, and comes out of `run_segment`."""

    def values(self, step: str) -> tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...] | None]:
        """Return the values of a step, and those of each of its runs (`for_each`)."""

    def did(self, step: str, done: Done) -> None:
        """Evaluate expressions and checks of a step that was run, before the next one is."""


class Done(NamedTuple):
    """The step is done."""

    affected: int
    """So many rows existed and matched (G39)."""
    rows: Rows = Rows()
    before: Image = Image()
    after: Image = Image()
    zone: str = ""
    """The time zone in which values of the images are told."""


class Failed(NamedTuple):
    """The step changed nothing, for one of the reasons of G5."""

    reason: Literal[
        "binding", "statement", "not_applied", "too_large", "foreign_write", "clock_ahead", "schema_changed"
    ]
    detail: str
    retry: bool = False
    """The same statement may succeed in a moment: after a deadlock, a time-out."""
    step: str = ""
    """The step of a segment that failed."""

    @classmethod
    def too_many(cls, rows_max: int) -> Failed:
        return cls("too_large", f"more than rows_max rows, {rows_max:,}")


class Ran(NamedTuple):
    """The segment is done."""

    done: Mapping[str, Done]
    """What came of each step, by its name."""
    again: bool = False
    """The segment was done before: this is what its barrier row says, and the database did not change."""


class RowConflict(NamedTuple):
    """A row that is neither as before the step nor as after it."""

    key: tuple[Any, ...]
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None
    current: tuple[Any, ...] | None


class Undone(NamedTuple):
    """The step is undone, by this call or an earlier one. `ran` false: it never ran, and never will."""

    ran: bool = True
    restored: int = 0
    kept: tuple[RowConflict, ...] = ()
    """Rows that others changed, and that were left as they are (`keep_current`)."""


class NotUndone(NamedTuple):
    """Nothing was put back."""

    detail: str
    conflicts: tuple[RowConflict, ...] = ()
    retry: bool = False


class Barrier(NamedTuple):
    """A barrier row, as a processor reads it that resumes a group."""

    id: StepId
    op: Literal["do", "undo"]
    void: bool
    fence: int
    steps: Mapping[str, Done] = {}
    """What came of each step; of a `do` row that is not void."""


@runtime_checkable
class TargetDatabase(Protocol):
    """A database of the user's, open. Safe to share between threads."""

    dialect: Dialect
    name: str
    """Its URL, as it may be printed."""

    def tables(self, names: Sequence[str]) -> Mapping[str, TargetTable]:
        """Return the schema of these tables, by the name asked for. Tables that are not there are left out."""

    def query(self, plan: Plan, values: Mapping[str, Any], limits: Limits) -> Rows | Failed:
        """Return the rows of a statement that changes nothing, all of one moment. Over `rows_max`: `too_large`."""

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        """Make our row in this target, or find it, after a check that the database keeps what it acknowledges.

        Raise `InvalidGroup.target_taken` if the target belongs to another stream and is not `shared`, with the
        statement by which an operator changes that; `SchemaMismatch.barrier` if our tables are not there and this user
        may not create them; `Unsupported` for a database that could lose what it acknowledged.
        """

    def close(self) -> None: ...


@runtime_checkable
class SqlTarget(TargetDatabase, Protocol):
    """SQLite, PostgreSQL. Every call is one commit, or changes nothing."""

    def raise_fence(self, owner: Owner, fence: int) -> None:
        """Refuse commits with a lower fence from now on. Raise `LeaseLost` if there is a higher fence already."""

    def run_segment(self, owner: Owner, segment: Segment, host: SegmentHost | None = None) -> Ran | Failed:
        """Run steps in one transaction, with what lies between them, and leave a barrier row (`do`) with their results.

        If the row is there already, nothing is done, and its outcome is returned (`again`): so an outcome that was lost
        is found. Raise `LeaseLost` if the fence is not the segment's, or the row is void or undone. A statement that
        somebody else sends between before-image and change waits, or makes this one start over.
        """

    def undo_segment(
        self, owner: Owner, segment: Segment, on_conflict: OnConflict, told: Mapping[str, str | None] = {}
    ) -> Mapping[str, Undone | NotUndone]:
        """Undo a segment's steps by their images, the last one first, and leave a barrier row (`undo`) of each; once,
        however often it is called. A step that cannot be undone holds back those before it: they are left out of the
        answer. The others are undone.

        Each row is locked and compared. If it is as before the step, nothing is done; if it is as after the step, it is
        restored; else `on_conflict` decides. An operator may have `told` more of a step: `force` writes the
        before-image over whatever is there, `accept_current` leaves all rows as they are.
        """

    def void(self, owner: Owner, segment: StepId, fence: int) -> bool:
        """Make sure that a segment which has not run never will. Return False if it ran and has to be undone."""

    def barriers(self, owner: Owner, group: str, life: int, timeout_s: float = 30.0) -> list[Barrier]:
        """Return all barrier rows of a group."""

    def forget(self, owner: Owner, fence: int, older_s: float, open_groups: Collection[str], limit: int) -> int:
        """Remove the barrier rows of groups that are over, if one of a group's rows is of this age. Return the number
        of these groups, at most `limit`.

        The age is by the target's own clock. `open_groups` are not over. Raise `LeaseLost` as `run_segment` does.
        """


class Cells(NamedTuple):
    """The before-image of a write, with what a cell has beside its value."""

    image: Image
    times: tuple[tuple[int | None, ...], ...] = ()
    """The write time of each cell of the image (µs)."""
    ttls: tuple[tuple[int | None, ...], ...] = ()
    """The seconds that were left of its life when it was read."""
    read_at: int = 0
    """The time of that, by this process's clock (µs)."""
    keys: tuple[tuple[Any, ...], ...] = ()
    """The keys of the rows that the statement writes, whether or not these are there."""
    applies: bool = True
    """Whether the statement's IF holds on the image."""

    @property
    def newest(self) -> int:
        """The greatest write time. The step's own must be above it."""
        return max((time or 0 for row in self.times for time in row), default=0)


class Wrote(NamedTuple):
    """A write that was sent, as the history has it."""

    step: TargetStep
    cells: Cells
    timestamp: int


@runtime_checkable
class CellTarget(TargetDatabase, Protocol):
    """Cassandra, and what is like it: no transactions, the last write of a cell wins. Every write may be repeated."""

    def image(self, step: TargetStep) -> Cells | Failed:
        """Read what the step is about to change."""

    def write(self, step: TargetStep, timestamp: int | None) -> Failed | None:
        """Send the step's statement with this timestamp. None: as it is, for one that has no image (DDL, TRUNCATE):
        sent twice, it takes effect twice."""

    def read_back(self, wrote: Wrote) -> Image | Failed:
        """Return the rows after the write, by key; `foreign_write` or `not_applied` if they are not as it left them."""

    def rows_written(self, writes: Sequence[Wrote]) -> list[RowState]:
        """Return what these writes of one group did, row by row."""

    def put_back(
        self, states: Sequence[RowState], limits: Limits, on_conflict: OnConflict, *, now: int,
        over: Callable[[int], int],
    ) -> Undone | NotUndone:  # fmt: skip
        """Restore each cell of these rows once, to its first image, with a timestamp one above the group's last write.
        To overwrite cells of others too, it uses the timestamp that `over` returns for their last write; writes above
        that stay.
        """
