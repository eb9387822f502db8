"""What a group's processor asks of a target: a database of the user's, on which steps run and are undone.

There are two kinds. On an SQL target (`SqlTarget`) a segment of steps is one commit: fence, before-images, changes,
after-images and *barrier row* together, so that nothing has to be in the log before, and running it again is how its
outcome is learnt. A target without transactions (`CellTarget`: Cassandra) has write timestamps instead: image, intent
and result are in the group's history, each before what comes next.

Whoever is called raises `Unavailable` if the target did not answer: `applied` is "no" if nothing was sent or it was
refused, "unknown" if nobody knows. What the database itself says of a statement is a result (`Failed`), no exception.
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
    """What a statement returned. Names are lower case unless quoted, `COUNT(*)` is `count`, booleans are booleans."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


class Image(NamedTuple):
    """Rows before or after a change, as the target encodes them: plain JSON, equal only if the values are identical."""

    columns: tuple[str, ...] = ()
    """The key first."""
    keys: int = 0
    """How many columns are the key."""
    rows: tuple[tuple[Any, ...], ...] = ()


class StepId(NamedTuple):
    """Whose barrier row. Another life of a group's id, or another definition, has other rows."""

    group: str
    life: int
    definition: str
    """The hash."""
    step: str


class Limits(NamedTuple):
    timeout_s: float = 30.0
    rows_max: int = 10_000
    image_bytes_max: int = 64 * 2**20


class Owner(NamedTuple):
    """Who uses a target: the row of its table `strandline_target`."""

    identity: str
    """The target's own, made with the row: what its rows are known by, whatever URL leads there."""
    history_id: str
    stream: str
    fence: int
    row: str
    """Its name: the same for whoever it belongs to later, because barrier rows hang on it."""

    @classmethod
    def among(
        cls, owners: Sequence[Owner], name: str, history_id: str, stream: str, *, shared: bool, hand_over: str = ""
    ) -> Owner:
        """The row of a stream; a new one if it has none, for the caller to add. `InvalidGroup.target_taken` if the
        target is another's; `hand_over`: the statement by which an operator changes that, with a place for the row."""
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
    """Whether these are its values; else the segment's host tells them when it is the step's turn."""
    each: tuple[Mapping[str, Any], ...] | None = None
    """`for_each`: the statement runs once with each of these values more, all or nothing."""
    undo: bool = True
    """Whether images are saved: not for a query, where an undo is given, for an irreversible step, nor where nothing
    of the group can fail after it."""
    require: Literal["", "exists", "absent"] = ""
    """What must hold of the rows that the statement names; else the step fails (`not_applied`)."""
    limits: Limits = Limits()
    before: tuple[str, ...] = ()
    """Steps that come before it, and are undone after it."""


class Segment(NamedTuple):
    """Steps on one target that are one transaction, in the order in which they run."""

    id: StepId
    """Its step is the segment's name."""
    steps: tuple[TargetStep, ...]
    fence: int

    @property
    def held(self) -> tuple[str, ...]:
        """Tables that nobody may alter meanwhile: a step that is not undone does whatever it does."""
        return tuple(dict.fromkeys(one.plan.statement.writes for one in self.steps if one.undo and one.plan.table))


class SegmentHost(Protocol):
    """What lies between the steps of a segment. It is asked again from the first step on if the transaction is begun
    again; whatever it raises ends the transaction, and comes out of `run_segment`."""

    def values(self, step: str) -> tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...] | None]:
        """The values of a step, and those of each of its runs (`for_each`)."""

    def did(self, step: str, done: Done) -> None:
        """Expressions and checks, before the next step is run."""


class Done(NamedTuple):
    """The step is done."""

    affected: int
    """Rows that existed and matched (G39)."""
    rows: Rows = Rows()
    before: Image = Image()
    after: Image = Image()
    zone: str = ""
    """The time zone in which values of the images are told."""


class Failed(NamedTuple):
    """The step changed nothing, and why: one of the reasons of G5."""

    reason: Literal[
        "binding", "statement", "not_applied", "too_large", "foreign_write", "clock_ahead", "schema_changed"
    ]
    detail: str
    retry: bool = False
    """The same may succeed in a moment: a deadlock, a time-out."""
    step: str = ""
    """Of a segment."""


class Ran(NamedTuple):
    """The segment is done."""

    done: Mapping[str, Done]
    """By name of step."""
    again: bool = False
    """It was done before: this is what the barrier row says. The database did not change."""


class RowConflict(NamedTuple):
    """A row that is neither as before the step nor as after it."""

    key: tuple[Any, ...]
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None
    current: tuple[Any, ...] | None


class Undone(NamedTuple):
    """The step is undone, or was; or (`ran` false) never ran, and never will."""

    ran: bool = True
    restored: int = 0
    kept: tuple[RowConflict, ...] = ()
    """Rows of others that were left as they are (`keep_current`)."""


class NotUndone(NamedTuple):
    """Nothing was put back."""

    detail: str
    conflicts: tuple[RowConflict, ...] = ()
    retry: bool = False


class Barrier(NamedTuple):
    """A barrier row, for who resumes."""

    id: StepId
    op: Literal["do", "undo"]
    void: bool
    fence: int
    steps: Mapping[str, Done] = {}
    """Of a `do` row that is not void."""


@runtime_checkable
class TargetDatabase(Protocol):
    """A database of the user's, open. Safe to share between threads."""

    dialect: Dialect
    name: str
    """Where it is, as it may be printed."""

    def tables(self, names: Sequence[str]) -> Mapping[str, TargetTable]:
        """The schema of these tables, by the name asked for; those that are not there are left out."""

    def query(self, plan: Plan, values: Mapping[str, Any], limits: Limits) -> Rows | Failed:
        """The rows of a statement that changes nothing, of one moment. More than `rows_max`: `too_large`."""

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        """Make this target ours, or find that it is: its row, and the tables that hold it.

        `InvalidGroup.target_taken` where it is another's and not `shared`, with the statement by which an operator
        changes that; `SchemaMismatch.barrier` where the tables are not there and this user may not create them.
        """

    def close(self) -> None: ...


@runtime_checkable
class SqlTarget(TargetDatabase, Protocol):
    """SQLite, PostgreSQL. Every call is one commit, or changes nothing."""

    def raise_fence(self, owner: Owner, fence: int) -> None:
        """From here on nothing commits with a lower fence. `LeaseLost` if there is a higher one already."""

    def run_segment(self, owner: Owner, segment: Segment, host: SegmentHost | None = None) -> Ran | Failed:
        """Run steps in one transaction, with what lies between them, and leave a barrier row (`do`) with their results.

        Where the row is there already, its outcome (`again`), and nothing is done: so an outcome that was lost is
        found. `LeaseLost` if the fence is not the segment's, or the row is void or undone. A statement that somebody
        else sends between before-image and change waits, or makes this one start over.
        """

    def undo_segment(
        self, owner: Owner, segment: Segment, on_conflict: OnConflict, told: Mapping[str, str | None] = {}
    ) -> Mapping[str, Undone | NotUndone]:
        """Undo a segment's steps by their images, the last one first, and leave a barrier row (`undo`) of each; once,
        however often it is called. One that cannot be undone holds back those before it, which are left out of what is
        told; the others are undone.

        Of each row, locked: as before the step, nothing is done; as after it, it is restored; else `on_conflict`
        decides. `told` of a step by an operator: `force` writes the before-image over whatever is there,
        `accept_current` leaves all as it is.
        """

    def void(self, owner: Owner, segment: StepId, fence: int) -> bool:
        """Make sure that a segment which has not run never does. False: it ran, and is to be undone."""

    def barriers(self, owner: Owner, groups: Sequence[tuple[str, int]], timeout_s: float = 30.0) -> list[Barrier]:
        """All barrier rows of these groups (id, life)."""

    def forget(self, owner: Owner, fence: int, older_s: float, open_groups: Collection[str], limit: int) -> int:
        """Remove the barrier rows of groups that are over and have one of this age; of how many groups, up to a limit.

        The age is by the target's own clock. `open_groups` are not over. `LeaseLost` as for `run_segment`.
        """


class Cells(NamedTuple):
    """The before-image of a write, with what a cell has beside its value."""

    image: Image
    times: tuple[tuple[int | None, ...], ...] = ()
    """Of each cell of the image: its write time (µs)."""
    ttls: tuple[tuple[int | None, ...], ...] = ()
    """The seconds that were left of its life when it was read."""
    read_at: int = 0
    """When that was, by this process's clock (µs)."""
    keys: tuple[tuple[Any, ...], ...] = ()
    """Of the rows that the statement writes, whether or not they are there."""
    applies: bool = True
    """Whether the statement's IF holds on it."""

    @property
    def newest(self) -> int:
        """The greatest write time: the step's own must be above it."""
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
        """The rows after the write, by key: `foreign_write`, `not_applied` if they are not what was written."""

    def rows_written(self, writes: Sequence[Wrote]) -> list[RowState]:
        """Tell row by row what these writes of one group did."""

    def put_back(
        self, states: Sequence[RowState], limits: Limits, on_conflict: OnConflict, *, now: int,
        over: Callable[[int], int],
    ) -> Undone | NotUndone:  # fmt: skip
        """Restore each cell of these rows once: its first image, one above the group's last write. To overwrite what
        others wrote, it is put back at the time that `over` gives for their last write; what is above that stays."""
