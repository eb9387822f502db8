"""The contracts of a journal store: what readers need, what the pipeline needs, and two small extras.

Only the pipeline writes events, heads, pointers, ended lives and the quarantine. A pointer never moves back, and never
passes a record that is neither wholly in the store nor listed in the quarantine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from strandline.fold import Rules
from strandline.rows import Batch, Pointer, QuarantineRow
from strandline.settings import APPEND_IDS_KEPT_DEFAULT
from strandline.values.events import EventRow
from strandline.values.heads import Head, State

Coming = Callable[[list[Any]], None]
"""Is told rows of a page while others are on their way."""
CarryMark = Callable[[int, int], None]
"""Writes a Mark of at least this timestamp into a partition, and carries the partition up to it under this fence."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What creation fixed. A start with other values is refused."""

    log_id: str
    partitions: int
    segment_size: int
    append_ids_kept: int = APPEND_IDS_KEPT_DEFAULT
    slices: int = 1024
    bucket_size: str = "hour"

    @property
    def rules(self) -> Rules:
        """What the fold goes by."""
        return Rules(self.segment_size, self.append_ids_kept)


class SnapshotRow(NamedTuple):
    """A saved state. `state` is None where only the list was asked for. The store sets `digest` when it saves."""

    key: str
    life: int
    seq_nr: int
    timestamp: int
    form: int
    state: bytes | None
    digest: int = 0


def snapshot_digest(row: SnapshotRow) -> int:
    """The digest of a snapshot, over all other fields."""
    numbers = f"{row.key}\0{row.life}\0{row.seq_nr}\0{row.timestamp}\0{row.form}"
    return zlib.crc32(row.state or b"", zlib.crc32(numbers.encode()))


class Readable(Protocol):
    """What a Journal reads."""

    settings: StoreSettings

    def pointers(self) -> list[Pointer]:
        """One per partition, in order of partition. A new store has offset -1 and timestamp 0."""

    def look(self, key: str, partition: int) -> tuple[Pointer, State]:
        """The partition's pointer and the key's state: the pointer first, or both of one moment.

        A head that an ended life covers is none.
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
        coming: Coming | None = None,
        backwards: bool = False,
    ) -> list[Any]:
        """`Cells` of events `from_`..`to` of one life by seq_nr, at most `limit`: the first, or `backwards` the last.

        Backwards they come from the last on, and so is everything that is said here of a page.

        With `bytes_max` a page may end with the row that brings its bodies to so many bytes, and does if one of them
        is large (`pages`). Else there are fewer than `limit` only if there are no more. They may come as plain tuples,
        which are made in a third of the time. Gaps may span segments. No transaction stays open.

        `coming` may be given rows from the first on, for work that is done while the others are on their way; and again
        from the first, if they have to be asked for again. What counts is what is returned.
        """

    def range(
        self, partition: int, *, after: tuple[int, int], to: int, limit: int, entity_type: str | None = None
    ) -> list[EventRow]:
        """Events of a partition by (timestamp, seq_nr), after that place, up to timestamp `to`, at most `limit`."""

    def entity_types(self) -> list[str]:
        """Entity types that have a head, sorted by their bytes."""

    def keys(
        self, entity_type: str, *, after: str | None, limit: int, slices: tuple[int, int] | None = None
    ) -> list[str]:
        """Written keys with a head, by slice, then bytes, after that key; purged ones not. `slices`: lo and hi."""

    def expired(self, *, at: int, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str, int]]:
        """Heads with expire_at <= `at`, after a place: (expire_at, written key, offset of the head), in this order."""

    def close(self) -> None:
        """Let go of everything. Twice is harmless."""


class Carried(Protocol):
    """What the pipeline needs to carry a partition."""

    def states(self, partition: int, keys: Iterable[str]) -> tuple[Pointer, dict[str, State]]:
        """The pointer, and the states of these keys (absent ones left out), all of one moment."""

    def write(self, batch: Batch, seen: Pointer) -> None:
        """Write a batch, its pointer last; on SQL in one transaction that holds the pointer's lock.

        `seen` is the pointer that the batch was made from. `LeaseLost` if another fence is in force;
        `Unavailable.serialization` if the partition moved since `seen`: prepare again; `Corrupt.conflict` if another
        event stands at a place. Repeating a batch changes nothing.
        """


class Leased(Protocol):
    """One pipeline per store."""

    def take_lease(self, holder: str) -> Lease:
        """Become the pipeline of this store, raising the fence in all pointer rows; `LeaseHeld` with holder, since."""

    def lease_holder(self) -> tuple[str, int] | None:
        """Who carries, and since when (µs); None if nobody does."""

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        """Say which partitions fail now, and why, for `reported`. Nothing happens under another fence."""

    def reported(self) -> dict[int, str]:
        """What the pipeline last said of partitions that fail; a new one starts with none."""


class Lease(Protocol):
    """A right to carry. It ends by `release`, or by the death of its process."""

    fence: int

    def check(self) -> None:
        """`LeaseLost` if it went to somebody else."""

    def release(self) -> None:
        """Give it back. Twice is harmless."""


class Quarantined(Protocol):
    """Damaged and foreign records."""

    def quarantined(self, *, limit: int = 1000) -> list[QuarantineRow]:
        """Those that are listed, by partition and offset, values left out."""

    def quarantined_at(self, partition: int, offset: int) -> QuarantineRow | None:
        """One of them, with its bytes."""

    def correcting(self, partition: int, holder: str, carry_mark: CarryMark) -> AbstractContextManager[None]:
        """Within, `amend` may be called for this partition: what it writes stays, and hides nothing that comes later.

        Where `amend` holds a lock there is nothing to do. Where a later write wins by its timestamp alone, this takes
        the lease in the name of `holder` (`LeaseHeld` if somebody carries), calls `carry_mark` once, so that there is
        room for timestamps above all that was written and below all that will be, and gives the lease back at the end.
        """

    def amend(
        self,
        seen: Pointer,
        *,
        resolved: int,
        remove: Sequence[EventRow] = (),
        replace: Sequence[EventRow] = (),
        head: tuple[str, Head] | None = None,
    ) -> None:
        """An operator's correction, under the pointer's lock: rows out, rows anew, a head, one record off the list.

        `Unavailable.serialization` if the partition moved since `seen`; `LeaseLost` if `correcting` takes the lease
        and this is not within it. Raises the pointer's revision.
        """


class Snapshots(Protocol):
    """States that users save."""

    def save_snapshot(self, row: SnapshotRow, partition: int) -> None:
        """Save, or replace. `Conflict.life_ended` if the life is over, looked up with the pointer row locked."""

    def load_snapshot(self, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
        """The one with the greatest seq_nr in `from_`..`to`."""

    def snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        """All of a life by seq_nr, without their states."""

    def delete_snapshots(self, key: str, life: int, *, to: int) -> int:
        """Remove those up to `to`; how many went."""


class Store(Readable, Carried, Leased, Quarantined, Snapshots, Protocol):
    """All of it."""
