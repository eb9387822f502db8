"""Finds events that were put back behind a projection: a rebuild of the store found that their rows were lost.

    list of `repaired` ──▶ of this source ──▶ its place was passed ──▶ not done, by the key row ──▶ stale

Running projections record nothing of this: `status` reads the list and compares it with the events that are done.
Events that were listed before a projection's epoch began are read in their places, so they are not stale. An event that
waits with its parked key is not stale, nor one that was deleted since, nor one that an operator handed over or
discarded. Where the key row may have been forgotten, nobody can tell whether the event was done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from strandline.errors import LeaseLost, counted
from strandline.projection.offset_store import OffsetStore, ProjectionRow
from strandline.projection.offsets import KeyRows
from strandline.projection.sources import tag_of
from strandline.store.api import Store
from strandline.store.scans import put_back
from strandline.store.tables import RepairedRow, repaired_number
from strandline.values.heads import Head
from strandline.values.keys import key_partition, slice_of

AT_ONCE: Final = 500
READ_MAX: Final = 100_000
"""The most rows of the list that are read for one answer."""
NAMED_MAX: Final = 10


class StaleEvent(NamedTuple):
    """An event that was put back behind a projection. `seq_nr`: of a tag's event its number under the tag."""

    key: str
    life: int
    seq_nr: int
    timestamp: int
    perhaps_done: bool
    """The key row may have been forgotten."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The events that make a projection stale."""

    events: int
    keys: int
    first: tuple[StaleEvent, ...]
    complete: bool
    """Whether all of the list was read."""

    def __str__(self) -> str:
        named = [f"{one.key} {one.seq_nr}{' (perhaps done)' if one.perhaps_done else ''}" for one in self.first]
        named += ["…"] if self.events > len(self.first) else []
        many = f"{counted(self.events, 'event')} of {counted(self.keys, 'key')}"
        return f"{'' if self.complete else 'at least '}{many} put back behind it: {', '.join(named)}"


def partitions_listed(store: Store) -> list[int]:
    """Return the partitions that have rows on the list: usually none. One call serves all projections."""
    return [partition for partition in range(store.settings.partitions) if put_back(store, partition, limit=1)]


def stale_of(store: Store, offsets: OffsetStore, row: ProjectionRow, partitions: Sequence[int]) -> Stale | None:
    """Return what makes a projection stale, by the lists of these partitions; None if nothing does."""
    try:
        return _stale_of(store, offsets, row, partitions) if partitions else None
    except LeaseLost:  # it begins anew, so it reads all events in their places
        return None


def _stale_of(store: Store, offsets: OffsetStore, row: ProjectionRow, partitions: Sequence[int]) -> Stale | None:
    events, keys, read = 0, set(), 0
    first: list[StaleEvent] = []
    with offsets.look(row.id) as (tx, now):
        done = offsets.done(tx, now)
    settled = {tuple(found) for found in offsets.database.rows("settled", (now.id,))}
    for page in _pages(store, now, partitions, READ_MAX):
        read += len(page)
        passed = [(one, event) for one, event in _of_source(page, now) if event.timestamp <= done[slice_of(event.key)]]
        open_ = [(one, event) for one, event in passed if event[:3] not in settled]
        for event in _missed(store, offsets, now, open_):
            events += 1
            keys.add(event.key)
            first += [event] if len(first) < NAMED_MAX else []
    return Stale(events, len(keys), tuple(first), read < READ_MAX) if events else None


def was_put_back(store: Store, row: ProjectionRow, key: str, life: int, seq_nr: int) -> bool:
    """Return whether an event of its source was put back since its epoch began."""
    pages = _pages(store, row, [key_partition(key, store.settings.partitions)], None)
    return any(event[:3] == (key, life, seq_nr) for page in pages for _, event in _of_source(page, row))


def _pages(
    store: Store, row: ProjectionRow, partitions: Sequence[int], limit: int | None
) -> Iterator[list[RepairedRow]]:
    """Yield the rows that were listed since the epoch began, partition by partition."""
    revisions, left = orjson.loads(row.revisions), limit
    # The log may have had another number of partitions then. What was listed since counts from above all of these.
    then = len(revisions)
    least = repaired_number(min(revisions, default=0)) - 1
    for partition in partitions:
        after = least
        while left is None or left:
            page = put_back(store, partition, after=after, limit=AT_ONCE if left is None else min(AT_ONCE, left))
            if not page:
                break
            left = None if left is None else left - len(page)
            after = page[-1].number
            if then:
                page = [one for one in page if one.number >= repaired_number(revisions[key_partition(one.key, then)])]
            yield page


def _of_source(page: Sequence[RepairedRow], row: ProjectionRow) -> Iterator[tuple[RepairedRow, StaleEvent]]:
    """Yield the rows that a projection reads, each with its event as the projection counts it."""
    tag, type_ = tag_of(row.source), orjson.loads(row.source)[1]
    for one in page:
        if one.timestamp <= row.start:
            continue
        if tag is None and one.tag is None and one.key.partition("|")[0] == type_:
            yield one, StaleEvent(one.key, one.life, one.seq_nr, one.timestamp, perhaps_done=False)
        elif tag is not None and one.tag == tag.tag and one.tag_seq_nr is not None:
            yield one, StaleEvent(one.key, one.life, one.tag_seq_nr, one.timestamp, perhaps_done=False)


def _missed(
    store: Store, offsets: OffsetStore, row: ProjectionRow, passed: Sequence[tuple[RepairedRow, StaleEvent]]
) -> Iterator[StaleEvent]:
    """Yield the events that key rows do not show as done."""
    if not passed:
        return
    known = offsets.key_rows(row, list({event.key for _, event in passed}))
    missed = [(one, event) for one, event in passed if not _is_done(event, known)]
    if not missed:
        return
    states = store.look(missed[0][0].partition, {event.key for _, event in missed}).states
    for one, event in missed:
        head = states.get(event.key)
        deleted = one.tag is None and isinstance(head, Head) and head.delete_to >= one.seq_nr
        if isinstance(head, Head) and head.life == event.life and not deleted:
            forgotten = event.key not in known.rows and event.timestamp <= known.line
            yield event._replace(perhaps_done=forgotten)


def _is_done(event: StaleEvent, known: KeyRows) -> bool:
    """Return whether an event was handled, or will be with its parked key."""
    row = known.rows.get(event.key)
    if row is None:
        return False
    return (row.life, row.seq_nr) >= (event.life, event.seq_nr) or (row.parked is not None and row.life == event.life)
