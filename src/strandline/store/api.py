"""The contract of a journal store: what readers, the pipeline and operators need.

Only the pipeline writes events, heads, pointers, ended lives and the quarantine. A pointer never moves back, and never
passes a record that is neither wholly in the store nor listed in the quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from strandline.fold import FoldRules
from strandline.rows import PartitionBatch, Pointer
from strandline.settings import APPEND_IDS_KEPT_DEFAULT
from strandline.store.correction import Amend
from strandline.store.tables import SnapshotRow
from strandline.store.views import View, ViewRows
from strandline.values.heads import Head, State

if TYPE_CHECKING:
    from strandline.store.archive import Archive
    from strandline.store.scans import Scan

PIPELINE: Final = "pipeline"
"""The name of the lease under which partitions are carried."""
CarryMark = Callable[[int], None]
"""Writes a Mark into a partition, and carries the partition up to it, and no further, under this fence."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings that creation fixed. A start with other values is refused."""

    log_id: str
    partitions: int
    segment_size: int
    append_ids_kept: int = APPEND_IDS_KEPT_DEFAULT
    slices: int = 1024
    bucket_size: str = "hour"
    history_id: str = ""
    """Made at creation, and kept when another log takes the store over, so that offsets kept elsewhere stay valid."""
    log_nr: int = 0
    """How many logs the store was filled from before this one."""
    log_starts: int = 0
    """Offsets of this log begin here, above those of the logs before it."""

    @property
    def rules(self) -> FoldRules:
        """The rules of the fold."""
        return FoldRules(self.segment_size, self.append_ids_kept)


class RowPage(NamedTuple):
    """Rows, and whether there may be more of them."""

    rows: list[Any]
    more: bool


class KeyStates(NamedTuple):
    """The states of some keys, and how far their partition is."""

    pointer: Pointer
    states: dict[str, State]
    """The heads of the keys that have one. A head that an ended life covers does not count."""
    unfinished: Mapping[str, Head] = {}
    """Heads that a killed purge has not removed yet. The purge is folded on them again, and then completes."""
    rows: Mapping[str, ViewRows] = {}
    """By key, rows of the tables that views have looked up."""


class Lease(Protocol):
    """A right that one process has. It ends by `release`, or by the death of its process."""

    fence: int

    def check(self) -> None:
        """Raise `LeaseLost` if another process has the lease now."""

    def release(self) -> None:
        """Give the lease back. A second call does nothing."""


class Leases(Protocol):
    """The pipeline's lease: takes it, and saves what its holder reports."""

    def take(self, holder: str) -> Lease:
        """Take the lease, and raise the fence, also in all pointer rows. `LeaseHeld` if somebody has it."""

    def holder(self) -> tuple[str, int] | None:
        """Return its holder, and since when (µs); None if it is free."""

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        """Save which partitions fail now, and why, for `reported`. Does nothing if another fence is in force."""

    def reported(self) -> dict[int, str]:
        """Return the last report on each partition that fails; a new holder starts with none."""


class Store(Protocol):
    """A journal store. The scans that `scan` takes are declared in `store.scans`."""

    settings: StoreSettings
    archive: Archive
    """The events that were moved from this store into files (`store.archive`)."""

    @property
    def views(self) -> Sequence[View]:
        """The views that the pipeline writes beside the journal itself."""

    def pointers(self) -> list[Pointer]:
        """Return the pointers, one per partition, in order of partition. A new store has offset -1 and timestamp 0."""

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates:
        """Return the partition's pointer and the states of keys: read the pointer first, or all at one moment.

        For the keys in `followed`, also return the rows that views look up.
        """

    def page(
        self,
        key: str,
        life: int,
        segment_size: int,
        *,
        from_: int,
        to: int,
        limit: int,
        bytes_max: int | None = None,
        backwards: bool = False,
    ) -> RowPage:
        """Return the first `limit` events of `from_`..`to` of one life, by seq_nr; with `backwards` the last ones.

        With `backwards` the last event comes first, and all that is said here of a page's end applies in that order.

        With `bytes_max` a page may end with the row that brings its bodies to so many bytes, and does if one of them
        is large (`pages`). Rows may come as plain tuples, which are made in a third of the time. Gaps may span
        segments. No transaction stays open.
        """

    def scan(
        self,
        scan: Scan,
        equal: Sequence[Any] = (),
        *,
        after: Sequence[Any] | None = None,
        to: Any = None,
        limit: int,
        slices: tuple[int, int] | None = None,
        bytes_max: int | None = None,
    ) -> RowPage:
        """Return rows of a table, in the order of a scan: after a place, up to a value of the order's first column.

        With `bytes_max` a page may end with the row that brings it to so many bytes.
        """

    def write(self, batch: PartitionBatch, seen: Pointer) -> None:
        """Write a batch, its pointer last; on SQL in one transaction that holds the pointer's lock.

        `seen` is the pointer that the batch was made from. `LeaseLost` if another fence is in force;
        `Unavailable.serialization` if the partition moved since `seen`: prepare again; `Corrupt.conflict` if another
        event stands at a place. Repeating a batch changes nothing.
        """

    def correct(
        self, partition: int, holder: str, carry_mark: CarryMark, *, fence: int | None = None
    ) -> AbstractContextManager[Amend]:
        """Inside this context the partition may be amended. An amendment stays, and hides no later write.

        A store whose amendments hold a lock does nothing else. A store where a later write wins by its timestamp alone
        takes the pipeline's lease in the name of `holder` (`LeaseHeld` if somebody carries), calls `carry_mark` once,
        and gives the lease back at the end; to amend after that is `LeaseLost`. Amended rows are written with the
        Mark's timestamp: above all that was written before, below all that will be.

        With a `fence`, every store amends under the lease of that fence, which the caller holds: `LeaseLost` if another
        fence is in force.
        """

    def lease(self) -> Leases:
        """Return the right to carry."""

    def save(self, row: SnapshotRow, partition: int) -> None:
        """Save a snapshot, or replace it. `Conflict.life_ended` if the life is over, seen under the pointer's lock."""

    def remove(self, key: str, life: int, *, to: int) -> int:
        """Remove the snapshots of a life up to `to`; return how many were removed."""

    def now_us(self) -> int:
        """Return the clock of the database, or of this process where there is no server."""

    def close(self) -> None:
        """Close the store's connections and files. A second call does nothing."""
