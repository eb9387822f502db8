"""Looking back by key: what lies between the last event that is done and one that came too early.

Each look reads the head and the event's own row again. A delete or a skip may have covered the hole since, or the
event's life may have ended: then there is nothing to look for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from strandline.query.acceptance import Candidate, Last, Looked, Place, Verdict, Way, judge
from strandline.store.api import Store
from strandline.store.scans import look_at
from strandline.values.events import EventRow, Life, RecordedEvent
from strandline.values.heads import Head
from strandline.values.keys import key_partition

STEP: Final = 500


class LookedBack(NamedTuple):
    """What to hand over now, in order; and if a hole is left, its life, first and last number."""

    rows: list[EventRow]
    missing: tuple[int, int, int] | None = None
    unseen: int = 0


def candidate(row: EventRow) -> Candidate:
    """What the table reads of a row."""
    return Candidate(row.life, row.seq_nr, row.prev_seq_nr, row.timestamp, row.key.encode())


def look(store: Store, row: EventRow) -> Looked:
    """What the store says of an event's key, and of the event before it."""
    head = _head(store, row.key)
    if head is None or head.life != row.life:
        return Looked(None if head is None else head.life)
    before = next(_rows(store, row.key, head, row.prev_seq_nr, row.prev_seq_nr), None)
    return Looked(head.life, head.delete_to, None if before is None else before.timestamp)


def look_back(store: Store, row: EventRow, last: Last | None, line: Place) -> LookedBack:
    """The events of a key that come before `row`, and `row` itself, as far as they follow on each other."""
    head = _head(store, row.key)
    if head is None or head.life > row.life:
        return LookedBack([])
    if head.life < row.life:
        return LookedBack([], (row.life, 1, row.prev_seq_nr))
    own = next(_rows(store, row.key, head, row.seq_nr, row.seq_nr), None)
    if own is None:
        return LookedBack([]) if head.delete_to >= row.seq_nr else LookedBack([], (row.life, row.seq_nr, row.seq_nr))
    known = last is not None and last.life == row.life
    low = max(head.delete_to, last.seq_nr if known and last is not None else 0) + 1
    before, found = _above(store, head, own, low, None if known else line)
    done, handed, unseen = last, [], 0
    for each in (*found, own):
        looked = Looked(head.life, head.delete_to, before)
        verdict = judge(candidate(each), done, way=Way.LOOK_BACK, line=line, looked=looked)
        if verdict is Verdict.REJECTED:
            first = done.seq_nr + 1 if done is not None and done.life == each.life else low
            return LookedBack([], (each.life, first, each.prev_seq_nr))
        if verdict is Verdict.UNSEEN and done is not None:
            unseen += each.prev_seq_nr - done.seq_nr
        if verdict is not Verdict.DUPLICATE:
            handed.append(each)
            done = Last(each.life, each.seq_nr)
    return LookedBack(handed, None, unseen)


def journal_of(store: Store, key: str, life: int, from_: int, to: int) -> Iterator[EventRow]:
    """The events of a key's life that the store has, by number; none if the life is over."""
    head = _head(store, key)
    if head is None or head.life != life:
        return
    while from_ <= to:
        rows = list(_rows(store, key, head, from_, to))
        yield from rows
        if len(rows) < STEP:
            return
        from_ = rows[-1].seq_nr + 1


def _above(store: Store, head: Head, row: EventRow, low: int, line: Place | None) -> tuple[int | None, list[EventRow]]:
    """The events `low`..prev of a row above the line, in order, and when the one at which this ended was recorded."""
    found: list[EventRow] = []
    to = row.prev_seq_nr
    while to >= low:
        rows = list(_rows(store, row.key, head, low, to, backwards=True))
        for each in rows:
            if line is not None and candidate(each).place <= line:
                return each.timestamp, found[::-1]
            found.append(each)
        if len(rows) < STEP:
            break
        to = rows[-1].seq_nr - 1
    return None, found[::-1]


def _head(store: Store, key: str) -> Head | None:
    _, state = look_at(store, key, key_partition(key, store.settings.partitions))
    return state if isinstance(state, Head) else None


def _rows(store: Store, key: str, head: Head, from_: int, to: int, *, backwards: bool = False) -> Iterator[EventRow]:
    cells = store.page(key, head.life, head.segment_size, from_=from_, to=to, limit=STEP, backwards=backwards).rows
    life = Life(key, head.life)
    return (_row(life, head.segment_size, each) for each in cells)


def _row(life: Life, segment_size: int, cells: tuple[Any, ...]) -> EventRow:
    """The row of an event, also of a damaged one."""
    event = RecordedEvent(life, cells)
    seq_nr, prev, body, digest = cells
    segment = (seq_nr - 1) // segment_size
    return EventRow(
        life.key, life.number, segment, seq_nr, prev, life.entity_type, life.slice,
        event.partition, event.timestamp, body, digest,
    )  # fmt: skip
