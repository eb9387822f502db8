"""Looking back by key: the events between the last one that is done and one that came too early.

Each look reads the head and the event's own row again. A delete or a skip may have covered the hole since, or the
event's life may have ended: then no event is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from strandline.points import reached
from strandline.query.acceptance import Acceptance, Candidate, Last, Place, StoreFacts, Way, judge
from strandline.query.query_row import QueryRow, place_of
from strandline.store.api import Store
from strandline.store.archive import page_of_life
from strandline.store.scans import look_at
from strandline.values.events import Life, RecordedEvent
from strandline.values.heads import Head
from strandline.values.keys import key_partition

STEP: Final = 500


class LookedBack(NamedTuple):
    """The rows to hand over now, in order; and if a hole is left, its life, first and last number.

    `done` is the event at or below the line at which the look ended, if the key was unknown.
    """

    rows: list[QueryRow]
    missing: tuple[int, int, int] | None = None
    unseen: int = 0
    done: QueryRow | None = None


def candidate(row: QueryRow) -> Candidate:
    """Return the fields of a row that the table reads."""
    return Candidate(row.life, row.seq_nr, row.prev_seq_nr, place_of(row))


def look(store: Store, row: QueryRow, line: Place | None = None) -> StoreFacts:
    """Return the store's facts about an event's key and the event before it. An archived event from before `line` is
    not read: the query is past all events below the line.
    """
    head = head_of(store, row.key)
    if head is None or head.life != row.life:
        return StoreFacts(None if head is None else head.life)
    if line is not None and 0 < row.prev_seq_nr <= head.archive_to:
        note = store.archive.note()
        latest = (0 if note is None else note.before - 1, row.prev_seq_nr, row.key)
        if note is not None and latest <= line:
            reached("slices.event_before_is_in_the_archive")
            return StoreFacts(head.life, head.delete_to, latest)
    before = next(_rows(store, row.key, head, row.prev_seq_nr, row.prev_seq_nr), None)
    return StoreFacts(head.life, head.delete_to, None if before is None else place_of(before))


def look_back(store: Store, row: QueryRow, last: Last | None, line: Place) -> LookedBack:
    """Return the events of a key that come before `row`, and `row` itself, as far as they follow on each other."""
    head = head_of(store, row.key)
    if head is None or head.life > row.life:
        return LookedBack([])
    if head.life < row.life:
        return LookedBack([], (row.life, 1, row.prev_seq_nr))
    own = next(_rows(store, row.key, head, row.seq_nr, row.seq_nr), None)
    if own is None:
        return LookedBack([]) if head.delete_to >= row.seq_nr else LookedBack([], (row.life, row.seq_nr, row.seq_nr))
    known = last is not None and last.life == row.life
    low = max(head.delete_to, last.seq_nr if known and last is not None else 0) + 1
    done, found = _above(store, head, own, low, None if known else line)
    rows = [*found, own]
    if done is None:
        return followed(rows, last, line, low, StoreFacts(head.life, head.delete_to))
    linked = done.seq_nr == rows[0].prev_seq_nr  # else an event is missing between the two
    before = place_of(done) if linked else None
    facts = StoreFacts(head.life, head.delete_to, before)
    return followed(rows, last, line, done.seq_nr + 1, facts)._replace(done=done)


def followed(rows: Sequence[QueryRow], last: Last | None, line: Place, low: int, facts: StoreFacts) -> LookedBack:
    """Return the rows of a key, by number, that are to be handed over: all, or none if they do not follow on
    each other. `low` is the number that should come first."""
    done, handed, unseen = last, [], 0
    for each in rows:
        verdict = judge(candidate(each), done, way=Way.LOOK_BACK, line=line, facts=facts)
        if verdict is Acceptance.REJECTED:
            first = done.seq_nr + 1 if done is not None and done.life == each.life else low
            return LookedBack([], (each.life, first, each.prev_seq_nr))
        if verdict is Acceptance.UNSEEN and done is not None:
            unseen += each.prev_seq_nr - done.seq_nr
        if verdict is not Acceptance.DUPLICATE:
            handed.append(each)
            done = Last(each.life, each.seq_nr)
    return LookedBack(handed, None, unseen)


def journal_of(store: Store, key: str, life: int, from_: int, to: int) -> Iterator[QueryRow]:
    """Yield the events of a key's life that the store has, by number; none if the life is over."""
    head = head_of(store, key)
    if head is None or head.life != life:
        return
    while from_ <= to:
        rows = list(_rows(store, key, head, from_, to))
        yield from rows
        if len(rows) < STEP:
            return
        from_ = rows[-1].seq_nr + 1


def _above(
    store: Store, head: Head, row: QueryRow, low: int, line: Place | None
) -> tuple[QueryRow | None, list[QueryRow]]:
    """Return the events before `row`, from number `low`, that are above the line, in order; and first the event at or
    below the line at which the search ended, if any.
    """
    found: list[QueryRow] = []
    to = row.prev_seq_nr
    while to >= low:
        rows = list(_rows(store, row.key, head, low, to, backwards=True))
        for each in rows:
            if line is not None and place_of(each) <= line:
                return each, found[::-1]
            found.append(each)
        if len(rows) < STEP:
            break
        to = rows[-1].seq_nr - 1
    return None, found[::-1]


def head_of(store: Store, key: str) -> Head | None:
    """Return the head of a key; None if it has none."""
    _, state = look_at(store, key, key_partition(key, store.settings.partitions))
    return state if isinstance(state, Head) else None


def _rows(store: Store, key: str, head: Head, from_: int, to: int, *, backwards: bool = False) -> Iterator[QueryRow]:
    cells = page_of_life(store, key, head, from_=from_, to=to, limit=STEP, backwards=backwards).rows
    life = Life(key, head.life)
    return (_row(life, each) for each in cells)


def _row(life: Life, cells: tuple[Any, ...]) -> QueryRow:
    """Return the row of an event, also of a damaged one."""
    seq_nr, prev, body, digest = cells
    return QueryRow(RecordedEvent(life, cells).timestamp, seq_nr, life.key, life.number, prev, body, digest)
