"""The events of an entity type in a range of slices, as a store has them: read in order, from a place on.

A partition holds a run of slices. So each partition of the range is read in order, and the partitions are merged. A row
has all fields that queries by slices and projections judge; a large body is left out, and loaded when its event is due.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import repeat, starmap
from typing import Any

from strandline.clock import time_text
from strandline.errors import MissingEvent, shown
from strandline.points import reached
from strandline.query.acceptance import Last, Place, StoreFacts, end_of
from strandline.query.feed import PAGE_BYTES, FeedPage
from strandline.query.look_back import LookedBack, head_of, journal_of, look, look_back
from strandline.query.query_row import QueryRow, place_of
from strandline.rows import Pointer
from strandline.store.api import RowPage, Store
from strandline.store.archive import ArchiveNote, page_of_life
from strandline.store.scans import SLICE_PLACES, SLICE_ROWS, Asked, Scan, look_at_all, scan_each
from strandline.values.events import Life
from strandline.values.heads import Head
from strandline.values.keys import key_partition, slice_of
from strandline.values.ranges import Range
from strandline.values.tuples import new_tuple


class Slices:
    """The events of an entity type in a range of slices."""

    def __init__(self, store: Store, entity_type: str, range_: Range) -> None:
        self.store, self.entity_type, self.range = store, entity_type, range_
        self.partitions = range_.partitions(store.settings.partitions)
        self.shown: tuple[int, Mapping[str, tuple[int, int]]] = (0, {})
        """The start of a query that resumes: a time, and by key the (life, number) that it has shown of that time."""

    def check_archive(self, after: Place) -> None:
        """`MissingEvent.slice_hole` if events of these slices behind a place were taken into the archive.

        Call it after rows were read: by then it knows of all events that were taken out before.
        """
        archive = self.store.archive
        note = archive.note()
        if note is None or after[0] >= note.before:
            return
        at, seen = self.shown
        for slice_, end in archive.ends().get(self.entity_type, {}).items():
            if slice_ not in self.range or end <= after[:2]:
                continue
            if end[0] == at and any(slice_of(key) == slice_ and nr >= end[1] for key, (_, nr) in seen.items()):
                continue
            raise archived_event(self.entity_type, slice_, end, note.path)

    def bound(self, pointers: Sequence[Pointer]) -> int:
        """Return the time up to which all is in the store. A partition that was never replicated sets it to the
        beginning of time.
        """
        return min(pointers[partition].timestamp for partition in self.partitions)

    def newest(self, pointers: Sequence[Pointer]) -> int:
        """Return the time of the last action up to the bound that was not a Mark; 0 if there is none."""
        bound = self.bound(pointers)
        times = (pointers[partition].last_action_at for partition in self.partitions)
        return max((at for at in times if at <= bound), default=0)

    def reader(self, page_size: int, *, bodies: bool = True) -> SliceReader:
        """Return a reader of pages of one partition's rows."""
        return SliceReader(self, page_size, SLICE_ROWS if bodies else SLICE_PLACES)

    def rows_with_archive(self, after: Place, to: int, page_size: int) -> Iterator[QueryRow]:
        """Yield the rows after a place, up to a time; events that only the archive has come from its files."""
        note = self.store.archive.note()
        if note is not None and after < end_of(end := min(to, note.before - 1)):
            # by life with events in both: the number up to which the files are read
            kept: dict[tuple[str, int], int] = {}
            files = self._of_files(after, end, kept)
            yield from merge(files, self._beside_files(after, end, page_size, note, kept), key=place_of)
            after = end_of(end)
        if after < end_of(to):
            yield from Slices.rows(self, after, to, page_size)

    def _of_files(self, after: Place, to: int, kept: dict[tuple[str, int], int]) -> Iterator[QueryRow]:
        lo, hi = self.range
        for rows in self.store.archive.in_order(self.entity_type, (lo, hi), after[:2], to):
            states = self._heads_of([row.key for row in rows])
            for row in rows:
                head = states.get(row.key)
                if head is None or head.life != row.life or row.seq_nr <= head.delete_to:
                    continue
                if row.seq_nr > kept.get((row.key, row.life), head.archive_to):
                    kept.setdefault((row.key, row.life), head.archive_to)
                    continue
                yield QueryRow(row.timestamp, row.seq_nr, row.key, row.life, row.prev_seq_nr, row.body, row.digest)

    def _beside_files(
        self, after: Place, to: int, page_size: int, note: ArchiveNote, kept: dict[tuple[str, int], int]
    ) -> Iterator[QueryRow]:
        """Yield the rows of the store that are in no file; raise `MissingEvent` if an archiving run takes more events
        out meanwhile.
        """
        reader, more = SliceReader(self, page_size, SLICE_ROWS, archived=True), True
        while more:
            rows, more = reader.page(after, to)
            now = self.store.archive.note()
            if now is None or now.before != note.before:
                raise archived_event(self.entity_type, self.range.lo, (note.before, 0), note.path)
            if rows:
                after = place_of(rows[-1])
            states = self._heads_of([row[2] for row in rows])
            for row in map(QueryRow._make, rows):
                head = states.get(row.key)
                archived = head.archive_to if head is not None and head.life == row.life else 0
                if row.seq_nr > kept.get((row.key, row.life), archived):
                    yield row

    def _heads_of(self, keys: Sequence[str]) -> dict[str, Head]:
        partitions = {key: key_partition(key, self.store.settings.partitions) for key in keys}
        found = look_at_all(self.store, partitions) if partitions else {}
        return {key: state for key, (_, state) in found.items() if isinstance(state, Head)}

    def place_of(self, row: QueryRow) -> Place:
        """Return the place of a row, to read on behind it."""
        return row[:3]

    def rows(self, after: Place, to: int, page_size: int, *, bodies: bool = True) -> Iterator[QueryRow]:
        """Yield the rows after a place, up to a time, in order."""
        reader, more = self.reader(page_size, bodies=bodies), True
        while more:
            rows, more = reader.page(after, to)
            if rows:
                after = place_of(rows[-1])
            yield from map(new_tuple, repeat(QueryRow), rows) if bodies else starmap(QueryRow, rows)

    def whole(self, row: Sequence[Any]) -> QueryRow | None:
        """Return a row with its body; None if its event is not in the store any more."""
        _, seq_nr, key, life, *_ = row
        before: Head | None = None
        while True:
            head = head_of(self.store, key)
            if head is None or head.life != life or seq_nr <= head.delete_to:
                return None
            cells = page_of_life(self.store, key, head, from_=seq_nr, to=seq_nr, limit=1).rows
            if cells:
                return QueryRow(*row[:5], *cells[0][2:])
            if before is not None and before.archive_to == head.archive_to:
                return None
            before = head  # the event may have gone into the archive meanwhile

    def look(self, row: QueryRow, line: Place | None = None) -> StoreFacts:
        """Return the store's facts about an event's key and the event before it (`look_back.look`)."""
        return look(self.store, row, line)

    def look_back(self, row: QueryRow, last: Last | None, line: Place) -> LookedBack:
        """Return the events of a key that come before a row, and the row itself, as far as they follow on each
        other."""
        return look_back(self.store, row, last, line)

    def of_key(self, key: str, life: int, from_: int, to: int) -> Iterator[QueryRow]:
        """Return the events of a key's life that are there, by number; none if the life is over."""
        return journal_of(self.store, key, life, from_, to)

    def life_of(self, key: str, number: int) -> Life:
        """Return a life of a key. If the key does not belong in this range, its row is damaged: then the life has a
        wrong seed, so that each of its events fails its check.
        """
        life = Life(key, number)
        if life.entity_type != self.entity_type or life.slice not in self.range:
            life.seed ^= 1
        return life


class SliceReader:
    """Reads pages of a range, one after the other. Rows that were read ahead are kept for the next page.

    Each partition reads its share of a page. Rows are complete up to the least of the last rows of partitions that have
    more, and are handed out in order up to there. When a partition has no rows left, all that have few left read on
    with it, on a server in one round trip. Between two pages no statement is open.
    """

    def __init__(self, slices: Slices, page_size: int, scan: Scan, *, archived: bool = False) -> None:
        """`archived` says that the caller reads the archive's files, too."""
        self._slices, self._scan = slices, scan
        # rows read without bodies lie behind the place of the query
        self._checked = scan is SLICE_ROWS and not archived
        self._share = max(1, 2 * page_size // len(slices.partitions)) if len(slices.partitions) > 1 else page_size
        self._after: Place | None = None
        self._parts: list[_PartitionRows] = []

    def page(self, after: Place, to: int) -> FeedPage:
        """Return rows after a place up to a time, and whether there are more."""
        if after != self._after:
            self._parts = [_PartitionRows(self._slices, part, after, self._share) for part in self._slices.partitions]
            self._after = after
        wanting = [part for part in self._parts if part.wants(to)]
        if any(not part.rows for part in wanting):
            pages = scan_each(self._slices.store, self._scan, [part.asked() for part in wanting], to)
            if self._checked:
                self._slices.check_archive(after)
            for part, page in zip(wanting, pages, strict=True):
                part.add(page, to)
        ends = [part.rows[-1] for part in self._parts if part.more]
        bound = min(ends) if ends else None
        ready = [row for part in self._parts for row in part.take(bound)]
        if len(self._parts) > 1:
            ready.sort()
        if ready:
            self._after = place_of(ready[-1])
        return FeedPage(ready, more=bound is not None or any(part.rows for part in self._parts))


class _PartitionRows:
    """The part of a range that is in one partition: the rows that were read and not yet handed out."""

    def __init__(self, slices: Slices, partition: int, after: Place, share: int) -> None:
        self.rows: list[Any] = []
        self.more = False
        """Whether there may be more rows behind `rows`, up to the time that was asked for."""
        self._equal, self._place, self._share = (slices.entity_type, partition), after, share
        self._done = -1
        """All rows up to this time were read."""
        self._bytes_max = max(1, PAGE_BYTES // len(slices.partitions))
        whole = slices.range.covers(partition, slices.store.settings.partitions)
        self._within = None if whole else slices.range

    def wants(self, to: int) -> bool:
        """Return whether this partition should read on."""
        return self._done < to and 2 * len(self.rows) <= self._share

    def asked(self) -> Asked:
        """Return the request for its next page."""
        return Asked(self._equal, self._place, self._share - len(self.rows), self._within, self._bytes_max)

    def add(self, page: RowPage, to: int) -> None:
        """Add a page that was read."""
        self.more = page.more and bool(page.rows)
        if page.rows:
            self.rows = self.rows + page.rows if self.rows else page.rows
            self._place = place_of(page.rows[-1])
        if not self.more:
            self._done = to

    def take(self, bound: Sequence[Any] | None) -> list[Any]:
        """Return the rows up to `bound`, or all of them, and remove them here."""
        if bound is None or not self.rows or self.rows[-1] <= bound:
            taken, self.rows = self.rows, []
            return taken
        reached("slices.read_ahead")
        at = bisect_right(self.rows, bound)
        taken, self.rows = self.rows[:at], self.rows[at:]
        return taken


def archived_event(entity_type: str, slice_: int, end: tuple[int, int], path: str) -> MissingEvent:
    """Return the error for a query by slices that starts before events which only the archive has."""
    return MissingEvent(
        f"events of {entity_type} in slice {slice_} up to {time_text(end[0])} left the store for the archive {path}",
        code="slice_hole",
        hint="reads of keys, `pipeline replay` and a projection's rebuild read it; begin a query by slices behind them",
        archive=path,
        missing={},
        last_known_offset=None,
    )


def missing_event(key: str, missing: tuple[int, int, int], offset: object) -> MissingEvent:
    """Return the error at a hole that was not filled in time."""
    life, first, last = missing
    numbers = str(first) if first == last else f"{first} to {last}"
    return MissingEvent(
        f"{shown(key)} lacks {numbers} in the store",
        code="slice_hole",
        hint="put the store back from a backup; once the events are there, go on from last_known_offset",
        missing={key: (life, first, last)},
        last_known_offset=offset,
    )
