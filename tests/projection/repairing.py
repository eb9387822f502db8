"""Rows that are lost and put back, as damage and a repair would do it, through the store's own corrections."""

from __future__ import annotations

from functools import partial
from typing import Any

from strandline import Key
from strandline.carry.resolve import mark_carrier
from strandline.carry.tag_mending import TagMender
from strandline.connect import Strandline
from strandline.projection.offset_store import DeadEvent
from strandline.store.correction import Correction
from strandline.store.scans import events_of
from strandline.store.tables import REPAIRED, RepairedRow, repaired_number
from strandline.store.tag_view import TAG_VIEW
from strandline.testing.store_contract.mending import view_of
from strandline.values.events import EventRow
from strandline.values.keys import key_partition


def amend(s: Strandline, key: object, **how: Any) -> None:
    """Correct a key's partition."""
    partition = key_partition(str(key), s.log.partitions)
    marking = mark_carrier(s.log, s.store, partition, s.settings)
    with s.store.correct(partition, "a test", marking) as correct:
        correct(s.store.pointers()[partition], Correction(**how))


def event_row(s: Strandline, key: object, seq_nr: int) -> EventRow:
    """The row of an event."""
    partition, type_ = key_partition(str(key), s.log.partitions), str(key).partition("|")[0]
    rows = events_of(s.store, partition, after=(0, 0), to=2**62, limit=1000, entity_type=type_).rows
    (row,) = [EventRow._make(row) for row in rows if (row[0], row[3]) == (str(key), seq_nr)]
    return row


class Lost:
    """An event of which the store has no row any more, until it is put back."""

    def __init__(self, s: Strandline, key: Key, seq_nr: int) -> None:
        self._s, self._row = s, event_row(s, key, seq_nr)
        amend(s, key, remove=[self._row])

    @property
    def listed(self) -> dict[Any, list[RepairedRow]]:
        """What is written into the list when it is put back."""
        row = self._row
        number = repaired_number(self._s.store.pointers()[row.partition].revision)
        return {
            REPAIRED: [RepairedRow(row.partition, number, row.key, row.life, row.seq_nr, row.timestamp, None, None)]
        }

    def put_back(self) -> None:
        amend(self._s, self._row.key, replace=[self._row], anew=self.listed)

    def only_list(self) -> None:
        """As a repair that dies between the list and the row."""
        amend(self._s, self._row.key, anew=self.listed)


class LostTag(Lost):
    """The same for the row of a tag, which a rebuild puts back."""

    def __init__(self, s: Strandline, key: Key, seq_nr: int, tag: str = "blue") -> None:
        self._s, self._tag = s, tag
        (gone,) = [row for row in view_of(s.store, tag) if (row.key, row.tag_seq_nr) == (str(key), seq_nr)]
        amend(s, key, gone={TAG_VIEW: [gone]})

    def put_back(self) -> None:
        rebuild(self._s, self._tag)


def rebuild(s: Strandline, tag: str = "blue") -> None:
    """Mend the view of a tag, as the pipeline does it."""
    lease = s.store.lease().take("a rebuild")
    try:
        mender = TagMender(s.store, tag, lease.fence, partial(mark_carrier, s.log, s.store, settings=s.settings))
        for partition in range(s.log.partitions):
            list(mender.mend_keys(partition))
        for span in mender.spans(1):
            list(mender.walk(*span))
    finally:
        lease.release()


def letters(s: Strandline, name: str = "totals") -> list[DeadEvent]:
    return list(s.projections.dead_letters(name))


def told(s: Strandline, name: str = "totals") -> list[tuple[str, int, int, str]]:
    """Key, life, number and reason of each dead letter."""
    return [(each.key, each.life, each.seq_nr, each.reason) for each in letters(s, name)]
