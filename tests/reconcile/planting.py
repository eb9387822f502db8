"""Differences planted by hand: rows of a store's tables changed behind the store's back, on each kind of store."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast
from zlib import crc32

from strandline import Event
from strandline.backends.cassandra.store import CassandraStore
from strandline.backends.cassandra.writing import Writing
from strandline.carry.resolve import mark_carrier
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.reconcile.findings import Difference, ReconcileReport
from strandline.reconcile.rounds import HereRunner, Repair, reconcile_rounds
from strandline.rows import life_of
from strandline.store.heads import head_row, key_place
from strandline.store.phases import Put, Remove
from strandline.store.raw_rows import raw_events, raw_slice_rows, raw_tag_places
from strandline.store.sql_store import SqlStore
from strandline.store.tables import JOURNAL, METAJOURNAL, SLICE_VIEW, SNAPSHOT, SliceRow, SnapshotRow, Table
from strandline.store.tag_scans import is_partitioned, progress_of
from strandline.store.tag_view import TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.store.views import Span
from strandline.testing import LastWriteWinsStore, carry
from strandline.testing.store_contract.mending import view_of
from strandline.values.events import EventRow, with_prev
from strandline.values.heads import Head
from strandline.values.keys import key_partition
from strandline.values.tag_rows import TagPlace, TagRow, resealed

KEYS = [f"order|{number}" for number in range(24)]
TAG = "new"


def history(s: Strandline) -> None:
    """Keys with three tagged events and an untagged one; some were cut short, some purged, one lives again."""
    for number, key in enumerate(KEYS):
        s.journal.append(key, [Event("Placed", {"n": number}, tags=[TAG]), Event("Paid", 1, tags=[TAG, "paid"])])
        s.journal.append(key, [Event("Sent", "ø"), Event("Back", None, tags=[TAG])])
    for key in KEYS[:2]:
        s.journal.delete(key, to=2)
    for key in KEYS[2:4]:
        s.journal.purge(key)
    s.journal.append(KEYS[3], [Event("Placed", "again", tags=[TAG])])
    carry(s)


def reconciled(s: Strandline, *, repair: bool = False, **how: Any) -> ReconcileReport:
    """Reconcile in this process; with `repair` under the pipeline's lease."""
    runner = HereRunner(s.log, s.store, s.settings)
    if not repair:
        return reconcile_rounds(s.log, s.store, runner, **how)
    lease = s.store.lease().take("a repair")
    try:

        def carry_mark(partition: int, fence: int) -> None:
            mark_carrier(s.log, s.store, partition, s.settings)(fence)

        return reconcile_rounds(s.log, s.store, runner, repair=Repair(lease.fence, carry_mark), **how)
    finally:
        lease.release()


def names(findings: Sequence[Difference]) -> list[tuple[str, str | None, tuple[int, ...]]]:
    """Kind, key and numbers of findings, sorted."""
    return sorted((finding.kind, finding.key, finding.seq_nrs) for finding in findings)


class Hand:
    """Changes rows of a store as nobody should."""

    def __init__(self, s: Strandline) -> None:
        self.s, self.store = s, s.store
        self.partitioned = is_partitioned(s.store)

    def put(self, table: Table, row: Sequence[Any]) -> None:
        store = self.store
        if isinstance(store, SqlStore):
            with store._database.write() as tx:
                put = tx.each if table is SNAPSHOT else tx.many
                put(f"put_{table.name}", [table.stored(row)])
        elif isinstance(store, CassandraStore):
            Writing(store._session).write([Put(table, [row], now_us())])
        else:
            cast(LastWriteWinsStore, store)._put_row(table, row, now_us())

    def remove(self, table: Table, row: Sequence[Any]) -> None:
        store = self.store
        if isinstance(store, SqlStore):
            with store._database.write() as tx:
                tx.each(f"remove_{table.name}_row", [table.place_of(row)])
        elif isinstance(store, CassandraStore):
            Writing(store._session).write([Remove(Span.of(table, row), now_us())])
        else:
            span = Span.of(table, row)
            cast(LastWriteWinsStore, store)._remove(
                table.name, span.partition, now_us(), first=span.first, last=span.last
            )

    def replace(self, table: Table, old: Sequence[Any], new: Sequence[Any]) -> None:
        self.remove(table, old)
        self.put(table, new)

    # ------------------------------------------------------------ what is there

    def event(self, key: str, seq_nr: int) -> EventRow:
        parts = range(self.store.settings.partitions)
        rows = [row for part in parts for page in raw_events(self.store, part) for row in page]
        (row,) = [row for row in rows if (row.key, row.seq_nr) == (key, seq_nr)]
        return row

    def head(self, key: str) -> Head:
        state = self.store.look(key_partition(key, self.store.settings.partitions), (key,)).states[key]
        assert isinstance(state, Head)
        return state

    def put_head(self, key: str, head: Head) -> None:
        self.put(METAJOURNAL, head_row(key, head))

    def tag_row(self, key: str, number: int, tag: str = TAG) -> TagRow:
        (row,) = [row for row in view_of(self.store, tag) if (row.key, row.tag_seq_nr) == (key, number)]
        return row

    def slice_row(self, key: str, seq_nr: int) -> SliceRow:
        parts = range(self.store.settings.partitions)
        rows = [row for part in parts for page in raw_slice_rows(self.store, part) for row in page]
        (row,) = [row for row in rows if (row.key, row.seq_nr) == (key, seq_nr)]
        return cast(SliceRow, row)

    def place(self, key: str, seq_nr: int) -> TagPlace:
        parts = range(self.store.settings.partitions)
        rows = [row for part in parts for page in raw_tag_places(self.store, part) for row in page]
        (row,) = [row for row in rows if (row.key, row.seq_nr, row.tag) == (key, seq_nr, TAG)]
        return cast(TagPlace, row)


Plant = Callable[[Hand, str], tuple[int, ...]]
"""Plants a difference in a key; the numbers that the finding must have."""


def _event_missing(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(key, 3)
    hand.remove(JOURNAL, row)
    if hand.partitioned:
        hand.remove(SLICE_VIEW, hand.slice_row(key, 3))
    return (3,)


def _last_event_missing(hand: Hand, key: str) -> tuple[int, ...]:
    """The head names it, and in the views nothing follows it."""
    hand.remove(JOURNAL, hand.event(key, 4))
    if hand.partitioned:
        hand.remove(SLICE_VIEW, hand.slice_row(key, 4))
    return (4,)


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def _damaged(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(key, 3)
    hand.replace(JOURNAL, row, row._replace(body=_flipped(row.body)))
    return (3,)


def _other_content(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(key, 3)
    body = _flipped(row.body)
    hand.replace(JOURNAL, row, row._replace(body=body, digest=crc32(body, life_of(key, row.life).seed)))
    if hand.partitioned:
        mirror = hand.slice_row(key, 3)
        digest = crc32(body, life_of(key, row.life).seed)
        hand.replace(SLICE_VIEW, mirror, mirror._replace(body=body, digest=digest))
    return (3,)


def _columns(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(key, 3)
    hand.replace(JOURNAL, row, row._replace(timestamp=row.timestamp + 5))
    return (3,)


def _chain(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(key, 3)
    cells = with_prev(life_of(key, row.life), row.cells, 1)
    hand.replace(JOURNAL, row, row._replace(prev_seq_nr=1, body=cells.body, digest=cells.digest))
    if hand.partitioned:
        mirror = hand.slice_row(key, 3)
        new = mirror._replace(prev_seq_nr=1, body=cells.body, digest=cells.digest)
        hand.replace(SLICE_VIEW, mirror, new)
    return (3,)


def _head(hand: Hand, key: str) -> tuple[int, ...]:
    head = hand.head(key)
    hand.put_head(key, head._replace(seq_nr=head.seq_nr - 1, prev=head.seq_nr - 1))
    return ()


def _deleted_comes_back(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(key, 4)
    life = life_of(key, row.life)
    cells = with_prev(life, row.cells, 0)
    body = cells.body[:1] + (1).to_bytes(8, "little") + cells.body[9:]
    old = row._replace(seq_nr=1, prev_seq_nr=0, segment=0, body=body, digest=crc32(body, life.seed))
    hand.put(JOURNAL, old)
    return (1,)


def _ended(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.event(KEYS[-1], 1)
    life = life_of(key, 0)
    hand.put(JOURNAL, EventRow.of(life, 10, row.cells)._replace(digest=crc32(row.body, life.seed), segment=0))
    return (1,)


def _snapshot(hand: Hand, key: str) -> tuple[int, ...]:
    hand.put(SNAPSHOT, SnapshotRow(key, 0, 2, 1, 1, b"{}"))
    return (2,)


def _slice_missing(hand: Hand, key: str) -> tuple[int, ...]:
    hand.remove(SLICE_VIEW, hand.slice_row(key, 2))
    return (2,)


def _slice_wrong(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.slice_row(key, 2)
    hand.replace(SLICE_VIEW, row, row._replace(prev_seq_nr=0))
    return (2,)


def _slice_extra(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.slice_row(key, 2)
    hand.put(SLICE_VIEW, row._replace(timestamp=row.timestamp + 1))
    return (2,)


def _tag(number: int, **change: Callable[[TagRow], Any]) -> Plant:
    def plant(hand: Hand, key: str) -> tuple[int, ...]:
        row = hand.tag_row(key, number)
        new = resealed(row._replace(**{name: made(row) for name, made in change.items()}))
        hand.replace(TAG_VIEW, row, new)
        return (row.seq_nr,)

    return plant


def _tag_missing(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.tag_row(key, 2)
    hand.remove(TAG_VIEW, row)
    return (row.seq_nr,)


def _tag_digest(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.tag_row(key, 2)
    hand.replace(TAG_VIEW, row, row._replace(row_digest=row.row_digest ^ 1))
    return (row.seq_nr,)


def _tag_event(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.tag_row(key, 2)
    hand.replace(TAG_VIEW, row, row._replace(body=_flipped(row.body)))
    return (row.seq_nr,)


def _tag_doubled(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.tag_row(key, 2)
    doubled = resealed(row._replace(timestamp=row.timestamp + 2, tag_seq_nr=row.tag_seq_nr + 600))
    hand.put(TAG_VIEW, doubled)
    if hand.partitioned:  # where rows are found by places, a second one needs a place to be a second one
        pass
    return (row.seq_nr,)


def _tag_extra(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.tag_row(KEYS[-1], 1)
    hand.put(TAG_VIEW, resealed(row._replace(key=key, life=0)))
    return (row.seq_nr,)


def _tag_progress(hand: Hand, key: str) -> tuple[int, ...]:
    row = progress_of(hand.store, key, 1, TAG)
    assert row is not None
    hand.put(TAG_PROGRESS, row._replace(tag_seq_nr=row.tag_seq_nr - 1))
    return (row.seq_nr,)


def _tag_place(hand: Hand, key: str) -> tuple[int, ...]:
    row = hand.place(key, 2)
    hand.replace(TAG_PLACE, row, row._replace(tag_seq_nr=77))
    return (2,)


PLANTS: dict[str, tuple[str, str, Plant]] = {
    "missing": ("event_missing", KEYS[5], _event_missing),
    "last missing": ("event_missing", KEYS[6], _last_event_missing),
    "damaged": ("event_different", KEYS[7], _damaged),
    "other content": ("event_different", KEYS[8], _other_content),
    "columns": ("event_different", KEYS[9], _columns),
    "chain": ("chain_broken", KEYS[10], _chain),
    "head": ("head_wrong", KEYS[11], _head),
    "deleted comes back": ("event_extra", KEYS[0], _deleted_comes_back),
    "row of an ended life": ("ended_life", KEYS[2], _ended),
    "snapshot of an ended life": ("snapshot_orphaned", KEYS[3], _snapshot),
    "tag row missing": ("tag_missing", KEYS[12], _tag_missing),
    "tag number": ("tag_number", KEYS[13], _tag(2, tag_seq_nr=lambda row: 9)),
    "tag link": ("tag_link", KEYS[14], _tag(2, previous_timestamp=lambda row: row.previous_timestamp + 1)),
    "tag bucket": ("tag_bucket", KEYS[15], _tag(2, bucket=lambda row: row.bucket + 1)),
    "tag digest": ("tag_digest", KEYS[16], _tag_digest),
    "tag event": ("tag_digest", KEYS[17], _tag_event),
    "tag doubled": ("tag_doubled", KEYS[18], _tag_doubled),
    "tag extra": ("tag_extra", KEYS[2], _tag_extra),
    "tag progress": ("tag_progress", KEYS[19], _tag_progress),
}
PARTITIONED_PLANTS: dict[str, tuple[str, str, Plant]] = {
    "slice missing": ("slice_missing", KEYS[20], _slice_missing),
    "slice wrong": ("slice_wrong", KEYS[21], _slice_wrong),
    "slice extra": ("slice_extra", KEYS[22], _slice_extra),
    "tag place": ("tag_place", KEYS[23], _tag_place),
}


def plants_of(s: Strandline) -> dict[str, tuple[str, str, Plant]]:
    """The differences that can be planted in a store."""
    return {**PLANTS, **(PARTITIONED_PLANTS if is_partitioned(s.store) else {})}


def all_of(s: Strandline) -> dict[str, Any]:
    """All rows that a store keeps of events, heads and tags."""
    store = s.store
    parts = range(store.settings.partitions)
    found: dict[str, Any] = {
        "events": sorted(row for part in parts for page in raw_events(store, part) for row in page),
        "heads": {key: store.look(key_partition(key, len(parts)), (key,)).states.get(key) for key in KEYS},
        "tags": {tag: sorted(view_of(store, tag)) for tag in (TAG, "paid")},
        "progress": [progress_of(store, key, life, tag) for key in KEYS for life in (1, 2) for tag in (TAG, "paid")],
    }
    if is_partitioned(store):
        found["slices"] = sorted(tuple(row) for part in parts for page in raw_slice_rows(store, part) for row in page)
        found["places"] = sorted(tuple(row) for part in parts for page in raw_tag_places(store, part) for row in page)
    return found


__all__ = ["KEYS", "PLANTS", "TAG", "Hand", "all_of", "history", "key_place", "names", "random", "reconciled"]
