"""Another log for a store, in one transaction: what it was filled from, and what follows from that.

    setting                 id of the log, number of partitions, where its offsets begin, and how many were before it
    pointer                 a row for each partition of the new log. Those of the old one stay, and say that it is over:
                            who opened the store beside the old log is refused at its next look
    journal                 the column `partition`, by which slices are read
    quarantine, repaired    the partition of each row is that of its key

Offsets of the new log begin above all of the old one. So heads, ended lives and bodies stay as they are: an action at
or below an offset in one of them is done, whichever log recorded it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from strandline.errors import SchemaMismatch, Unavailable
from strandline.rows import Pointer, QuarantineRow
from strandline.sql.api import Transaction
from strandline.store.api import StoreSettings
from strandline.store.tables import POINTER, QUARANTINE, REPAIRED, RepairedRow, repaired_number
from strandline.values.keys import SLICES, key_partition

OVER: Final = 2**63 - 1
"""The offset of a pointer of a log that another one has followed."""


class NextLog(NamedTuple):
    """A log that takes over."""

    log_id: str
    partitions: int
    starts: int
    """The first offset of the new log, in each partition."""
    timestamp: int
    """The timestamps of the new log's records are above this one."""


def row_number(log_nr: int, partition: int) -> int:
    """Return the number under which the pointer of a partition is kept: each log of a store has its own."""
    return log_nr * SLICES + partition


def log_is_over(log_id: str) -> SchemaMismatch:
    """Return the error for a caller that has a store open beside a log that another log has followed since."""
    return SchemaMismatch(
        "the store goes on from another log, with another number of partitions",
        code="log_replaced",
        hint="connect again, with the URL of the new log",
        stored=None,
        given=log_id,
    )


def pair(tx: Transaction, settings: StoreSettings, found: Sequence[Pointer], new: NextLog) -> None:
    """Pair the store with the new log. `found` are the pointers of the old log, which are locked and at its end."""
    revision = max(pointer.revision for pointer in found) + 1
    acted, fence = max(pointer.last_action_at for pointer in found), max(pointer.fence for pointer in found)
    over = [
        pointer._replace(partition=row_number(settings.log_nr, pointer.partition), offset=OVER, revision=revision)
        for pointer in found
    ]
    first = row_number(settings.log_nr + 1, 0)
    begun = [
        Pointer(first + partition, new.starts - 1, new.timestamp, acted, fence, revision)
        for partition in range(new.partitions)
    ]
    tx.each("set_pointer", map(POINTER.stored, [*over, *begun]))
    tx.execute("move_events", (new.partitions,))
    listed = [QUARANTINE.read(row) for row in tx.rows("all_quarantined")]
    tx.execute("empty_quarantine")
    tx.many("put_quarantine", list(map(QUARANTINE.stored, _of_partitions(listed, settings.partitions, new.partitions))))
    mended = [REPAIRED.read(row) for row in tx.rows("all_repaired")]
    tx.execute("empty_repaired")
    tx.many("put_repaired", list(map(REPAIRED.stored, _numbered(mended, new.partitions))))
    changed: Mapping[str, object] = {
        "log_id": new.log_id, "partitions": new.partitions, "log_starts": new.starts, "log_nr": settings.log_nr + 1,
    }  # fmt: skip
    tx.each("change_setting", [(name, str(value)) for name, value in changed.items()])


def check_at_end(found: Iterable[Pointer], newest: Sequence[int]) -> None:
    """`Unavailable.serialization` unless all of the old log is in the store."""
    behind = [pointer.partition for pointer in found if pointer.offset < newest[pointer.partition]]
    if behind:
        raise Unavailable(
            f"partition {behind[0]} is not carried to the end of the log",
            code="serialization",
            hint="start it again",
            partition=behind[0],
        )


def _of_partitions(listed: Iterable[QuarantineRow], before: int, partitions: int) -> Iterator[QuarantineRow]:
    """Return rows in the partitions of their keys; without a key, in that of their old partition's first slice."""
    for row in listed:
        whole = row.key is not None and row.life is not None
        now = key_partition(str(row.key), partitions) if whole else row.partition * partitions // before
        yield row._replace(partition=now)


def _numbered(rows: Iterable[RepairedRow], partitions: int) -> Iterator[RepairedRow]:
    """Return rows in the partitions of their keys, each with a new number of the correction that listed it.

    A projection compares the corrections' numbers (`repaired_number`): a correction that began later has a greater one.
    """
    next_at: dict[tuple[int, int], int] = {}
    for row in rows:
        partition = key_partition(row.key, partitions)
        revision = row.number // repaired_number(1)
        at = next_at[partition, revision] = next_at.get((partition, revision), -1) + 1
        yield row._replace(partition=partition, number=repaired_number(revision, at))
