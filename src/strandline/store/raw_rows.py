"""Raw rows: everything that a table has, for comparisons. Nothing is hidden, and no digest is checked.

Stores that find rows by partition keys hide rows that a delete or purge has covered, and find other rows only through
their keys. So they have `raw_rows` beside the contract, which walks a table part by part. Other stores show all rows
anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from strandline.rows import life_of
from strandline.store.api import Store
from strandline.store.scans import ALL_EVENTS, MOST, SNAPSHOT_LIVES
from strandline.store.tables import JOURNAL, SLICE_VIEW, SNAPSHOT, Table
from strandline.store.tag_scans import TAGS, is_partitioned
from strandline.store.tag_view import TAG_PLACE, TAG_VIEW
from strandline.values.events import EventRow
from strandline.values.keys import partition_of
from strandline.values.tag_rows import TagRow

PAGE = 4000
PAGE_BYTES = 8 * 2**20


class RawRows(Protocol):
    """A store that walks its tables."""

    def raw_rows(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        """Return the rows of a part of a table, without digests, in any order. All parts together have all rows."""

    def raw_partitions(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        """Return the partition keys that have rows, each once."""

    def raw_row(self, table: Table, place: Sequence[Any]) -> Any:
        """Return the row at a place, without its digest; None if there is none."""


def raw_events(
    store: Store,
    part: int,
    slices: tuple[int, int] | None = None,
    spans: Sequence[tuple[int, int]] = ((-1, MOST),),
) -> Iterator[list[EventRow]]:
    """Yield pages of rows of table `journal`: those of a partition of the log in these stretches of time, or on
    partitioned stores any part of all."""
    if is_partitioned(store):
        for rows in _pages(store, JOURNAL, part):
            yield [_event_row(row, store.settings.partitions) for row in rows]
        return
    for first, last in spans:
        after, more = (first, -1), True
        while more:
            page = store.scan(
                ALL_EVENTS, (part,), after=after, to=last, limit=PAGE, slices=slices, bytes_max=PAGE_BYTES
            )
            more = page.more and bool(page.rows)
            if page.rows:
                after = page.rows[-1].timestamp, page.rows[-1].seq_nr
                yield page.rows


def _event_row(row: Sequence[Any], partitions: int) -> EventRow:
    key, number, segment, seq_nr, prev, timestamp, body, digest = row
    life = life_of(key, number)
    partition = partition_of(life.slice, partitions)
    return EventRow(
        key, number, segment, seq_nr, prev, life.entity_type, life.slice, partition, timestamp, body, digest
    )


def raw_slice_rows(store: Store, part: int) -> Iterator[list[Any]]:
    """Yield pages of rows of table `slice_view`."""
    for page in _pages(store, SLICE_VIEW, part):
        yield list(map(SLICE_VIEW.row, page))


def raw_tag_rows(store: Store, part: int) -> Iterator[list[TagRow]]:
    """Yield pages of rows of table `tag_view`, of all tags and buckets."""
    for page in _pages(store, TAG_VIEW, part):
        yield list(map(TagRow._make, page))


def raw_row(store: Store, table: Table, place: Sequence[Any]) -> Any:
    """Return the row at a place of a partitioned store, hidden or not."""
    return cast(RawRows, store).raw_row(table, place)


def raw_tag_places(store: Store, part: int) -> Iterator[list[Any]]:
    """Yield pages of rows of table `tag_place`."""
    for page in _pages(store, TAG_PLACE, part):
        yield list(map(TAG_PLACE.row, page))


def raw_snapshot_lives(store: Store, part: int) -> Iterator[list[tuple[str, int]]]:
    """Yield pages of (key, life) that have snapshots. Stores that are not partitioned give all of them as part 0."""
    if is_partitioned(store):
        walk = cast(RawRows, store).raw_partitions(SNAPSHOT, part, store.settings.partitions)
        yield [tuple(row) for row in walk]
        return
    after, more = None, not part
    while more:
        page = store.scan(SNAPSHOT_LIVES, after=after, limit=PAGE)
        more = page.more and bool(page.rows)
        if page.rows:
            after = page.rows[-1]
            yield [tuple(row) for row in page.rows]


def tags_in_view(store: Store) -> list[str]:
    """Return the tags that have rows, sorted; of stores that are not partitioned."""
    found: list[str] = []
    more = True
    while more:
        page = store.scan(TAGS, after=found[-1:] or None, limit=PAGE)
        found += [tag for (tag,) in page.rows]
        more = page.more and bool(page.rows)
    return found


def _pages(store: Store, table: Table, part: int) -> Iterator[list[Any]]:
    page: list[Any] = []
    for row in cast(RawRows, store).raw_rows(table, part, store.settings.partitions):
        page.append(row)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
