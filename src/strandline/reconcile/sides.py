"""Sides: the items of each side of a comparison, read part by part and tallied. No body leaves the process that reads
it.

    check       the items that were found                    the items that are expected
    chain       an event, less the event that it names       per head: its last event, less what its first one names
    log         an event, its digest                         the same, from the kept log
    slices      a row of the slice view                      an event (partitioned stores)
    tags        a tag row, its event's digest                an event and one of its tags
    tag_chain   a tag row, less the row that it names        what is kept of how far a key is under a tag
    places      a tag row                                    its place (partitioned stores)

Each event is named by the next one, and the last one by the head: so the sums of a chain cancel out, however it is cut.
Events and tag rows above the pointers that were read first are left out. A key that was written since, or that lost
events to a Delete meanwhile, may differ without being wrong: such keys are read afresh (`examine`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

from strandline.carry.tag_mending import TagMender
from strandline.errors import Corrupt
from strandline.log.api import Log
from strandline.reconcile.event_columns import EventColumns
from strandline.reconcile.findings import FrozenEnds
from strandline.reconcile.kept_days import BY_DAY, spans_without
from strandline.reconcile.kept_log import KeptLog
from strandline.reconcile.tallies import ANY_DAY, DAY_US, Tallies, Tally, item_of, text_number
from strandline.rows import life_of
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.archive import page_of_life
from strandline.store.raw_rows import raw_events, raw_slice_rows, raw_snapshot_lives, raw_tag_places, raw_tag_rows
from strandline.store.scans import entity_types_of, keys_of
from strandline.store.tables import SliceRow
from strandline.store.tag_scans import is_partitioned, rows_of_key
from strandline.store.tag_view import TAG_PROGRESS
from strandline.values.buckets import LENGTHS_US
from strandline.values.events import EventRow, parsed_tags, parts_of
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import SLICES, key_partition, partition_of, slice_of
from strandline.values.ranges import first_slice
from strandline.values.tag_rows import TagPlace, TagProgress, TagRow, resealed

KEYS_AT_ONCE: Final = 500
STATES_KEPT: Final = 50_000
NO_TIME: Final = ANY_DAY
SIDES: Final = ("heads", "events", "log", "tags", "snapshots")
PARTITIONED_SIDES: Final = ("slices", "places")


@dataclass(frozen=True, slots=True)
class SidePart:
    """A part of a side. With `slices` only these are read; items are tallied by key, and odd rows are returned.

    With `without` these days are left out; items are tallied by slice and day, and links by day, too (`kept_days`).
    With `sampled` rows of other slices are not read at all, so rows of tags are read by the keys that have a head.
    """

    side: str
    number: int
    tags: tuple[str, ...] = ()
    slices: frozenset[int] | None = None
    without: frozenset[int] | None = None
    sampled: bool = False


class OddRow(NamedTuple):
    """A row that no living journal accounts for, where it can be found again."""

    table: str
    key: str
    life: int
    place: tuple[str | int, ...] = ()


@dataclass(slots=True)
class SideResult:
    """The tallies, rows and keys that one part found."""

    tallies: list[Tally]
    odd: list[OddRow]
    suspects: list[str]
    """Keys that must be examined even if their digests agree."""
    counts: dict[str, int] = field(default_factory=dict)


class SideReader:
    """Reads parts of sides."""

    def __init__(self, log: Log, store: Store, settings: Settings, frozen: FrozenEnds, part: SidePart) -> None:
        self._log, self._store, self._settings, self._frozen, self._part = log, store, settings, frozen, part
        self._partitions = store.settings.partitions
        self._partitioned = is_partitioned(store)
        self._by_key = part.slices is not None and part.without is None
        self._by_day, self._spans = part.without is not None, spans_without(part.without or ())
        self._bucket_us = LENGTHS_US[store.settings.bucket_size]
        self._tallies = Tallies(by_key=self._by_key)
        self._odd: list[OddRow] = []
        self._suspects: set[str] = set()
        self._counts: dict[str, int] = {}
        self._states: dict[str, State] = {}

    def read(self) -> SideResult:
        """Read the part and tally it."""
        sides: dict[str, Callable[[], None]] = {
            "heads": self._heads, "events": self._events, "log": self._logged, "tags": self._tags,
            "snapshots": self._snapshots, "slices": self._slice_rows, "places": self._places,
        }  # fmt: skip
        sides[self._part.side]()
        return SideResult(list(self._tallies.all()), self._odd, sorted(self._suspects), self._counts)

    def _bounds(self) -> tuple[int, int] | None:
        """Return the first and the last wanted slice of this partition. None, which bounds nothing, if the partition
        has none of them: a row of theirs may still be here, in the wrong partition.
        """
        mine = [
            slice_ for slice_ in self._part.slices or () if partition_of(slice_, self._partitions) == self._part.number
        ]
        return (min(mine), max(mine)) if mine else None

    def _wanted(self, slice_: int) -> bool:
        return self._part.slices is None or slice_ in self._part.slices

    def _left_out(self, timestamp: int) -> bool:
        return timestamp // DAY_US in (self._part.without or ())

    def _count(self, name: str, count: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + count

    # ------------------------------------------------------------ heads

    def _heads(self) -> None:
        for keys in self._keys():
            self._heads_of(self._part.number, keys)

    def _keys(self) -> Iterator[list[str]]:
        """Yield the keys of a partition that have a head, and are wanted."""
        partition, total = self._part.number, self._partitions
        first, last = -(-partition * SLICES // total), -(-(partition + 1) * SLICES // total) - 1
        runs = [(first, last)] if self._part.slices is None else [
            (slice_, slice_) for slice_ in sorted(self._part.slices) if first <= slice_ <= last
        ]  # fmt: skip
        for entity_type in entity_types_of(self._store):
            for run in runs:
                after = None
                while keys := keys_of(self._store, entity_type, after=after, limit=KEYS_AT_ONCE, slices=run):
                    after = keys[-1]
                    yield keys

    def _heads_of(self, partition: int, keys: Sequence[str]) -> None:
        try:
            look = self._store.look(partition, keys, keys)
        except Corrupt:
            if len(keys) == 1:
                self._suspects.add(keys[0])
                return
            for key in keys:
                self._heads_of(partition, (key,))
            return
        end = self._frozen.pointers[partition].offset
        for key in keys:
            head = look.states.get(key)
            if not isinstance(head, Head):
                continue
            self._count("keys")
            slice_, number = slice_of(key), text_number(key)
            last = head.prev if head.offset <= end else self._last_before(key, head, end)
            if last > head.delete_to:
                links = item_of(number, head.life, last) - item_of(number, head.life, self._first_prev(key, head))
                self._tallies.add("chain", slice_, NO_TIME, key, links, found=False, count=0)
            for row in look.rows.get(key, {}).get(TAG_PROGRESS, ()):
                reached = TagProgress._make(row)
                if reached.life == head.life:
                    item = item_of(
                        text_number(reached.tag), number, reached.life, reached.timestamp, reached.seq_nr,
                        reached.tag_seq_nr,
                    )  # fmt: skip
                    self._tallies.add("tag_chain", slice_, NO_TIME, key, item, found=False, count=0)

    def _last_before(self, key: str, head: Head, end: int) -> int:
        """Return the last event of a key up to an offset of the log."""
        to = head.seq_nr
        while to > head.delete_to:
            page = page_of_life(self._store, key, head, from_=1, to=to, limit=100, backwards=True)
            for seq_nr, _, body, _ in page.rows:
                if _offset_in(body) <= end:
                    return int(seq_nr)
            if not page.rows or not page.more:
                return 0
            to = page.rows[-1][0] - 1
        return 0

    def _first_prev(self, key: str, head: Head) -> int:
        """Return the number that a key's first event names: 0, unless events before it were deleted."""
        if not head.delete_to:
            return 0
        page = page_of_life(self._store, key, head, from_=head.delete_to + 1, to=SEQ_NR_MAX, limit=1).rows
        prev = int(page[0][1]) if page else 0
        if prev > head.delete_to:
            self._suspects.add(key)
        return prev

    # ------------------------------------------------------------ events

    def _events(self) -> None:
        for page, archived in self._event_pages():
            by_slices = self._partitioned and not archived
            rows = page if self._part.slices is None else [row for row in page if self._wanted(row.slice)]
            if not self._by_key and self._by_columns(rows, by_slices=by_slices):
                continue
            if self._by_key:
                self._odd_events(rows)
            for row in rows:
                self._event(row, by_slices=by_slices)

    def _event_pages(self) -> Iterator[tuple[list[EventRow], bool]]:
        """Yield pages of the events in the store (False) and in its archive (True), each event once."""
        note = self._store.archive.note()
        for page in raw_events(self._store, self._part.number, self._bounds(), self._spans):
            yield page if note is None else [row for row, there in self._archived(page) if not there], False
        slices = self._bounds()
        if note is None or (self._by_key and slices is None):
            return
        part, total = self._part.number, self._partitions
        slices = slices or (first_slice(part, total), first_slice(part + 1, total) - 1)
        for page in self._store.archive.pages(slices=slices, after=-1, to=SEQ_NR_MAX):
            read = [row for row in page if not self._left_out(row.timestamp)]
            there = [row._replace(partition=part) for row, there in self._archived(read) if there]
            yield [row for row in there if row.seq_nr > self._head_of(row).delete_to], True

    def _archived(self, page: Sequence[EventRow]) -> Iterator[tuple[EventRow, bool]]:
        """Yield each event with whether the archive's files have it."""
        self._learn([row.key for row in page])
        for row in page:
            state = self._states.get(row.key)
            yield row, isinstance(state, Head) and state.life == row.life and row.seq_nr <= state.archive_to

    def _head_of(self, row: EventRow) -> Head:
        return cast(Head, self._states[row.key])

    def _by_columns(self, page: Sequence[EventRow], *, by_slices: bool) -> bool:
        """Tally a page at once; return False if its rows must be tallied one by one. `by_slices` says that each has a
        slice row.
        """
        columns = EventColumns.of(page, self._partitions)
        if columns is None:
            return False
        ends = [pointer.offset for pointer in self._frozen.pointers]
        oldest = [first if self._log.exact or not first else None for first in self._frozen.oldest]
        count, tagged, sums = columns.sums(ends, oldest, partitioned=by_slices, by_day=self._by_day)
        self._count("events", count)
        for check, slice_, day, counted, total, found in sums:
            if check != "chain":
                self._tallies.add_sum(check, slice_, day, total, counted, found=found)
                continue
            self._tallies.add_sum(check, slice_, None, total, 0, found=found)
            if day is not None:
                self._tallies.add_sum(BY_DAY[check], slice_, day, total, counted, found=found)
        for at, first, end in tagged:
            self._tags_of_event(page[at], first, end)
        return True

    def _event(self, row: EventRow, *, by_slices: bool) -> None:
        key, number, _, seq_nr, prev, entity_type, slice_, partition, timestamp, body, digest = row
        life = life_of(key, number)
        if not self._wanted(life.slice):
            return
        try:
            parts = parts_of(body)
        except (TypeError, struct.error):
            self._suspects.add(key)
            return
        home = key_partition(key, self._partitions)
        if parts.log_offset > self._frozen.pointers[home].offset:
            return
        self._count("events")
        columns = (seq_nr, prev, timestamp, entity_type, slice_, partition)
        said = (parts.seq_nr, parts.prev_seq_nr, parts.timestamp, life.entity_type, life.slice, home)
        if columns != said or crc32(body, life.seed) != digest:
            self._suspects.add(key)
        text, add = text_number(key), self._tallies.add
        links = item_of(text, number, seq_nr) - item_of(text, number, prev)
        add("chain", life.slice, NO_TIME, key, links, found=True, count=0)
        if self._by_day:
            add(BY_DAY["chain"], life.slice, row.timestamp, key, links, found=True)
        oldest = self._frozen.oldest[home]
        if (self._log.exact or not oldest) and parts.log_offset >= oldest:
            item = item_of(text, number, seq_nr, digest)
            add("log", life.slice, parts.timestamp, key, item, found=True)
        if by_slices:
            item = item_of(text, number, parts.timestamp, seq_nr, prev, digest)
            add("slices", life.slice, parts.timestamp, key, item, found=False)
        if parts.tags_at != parts.headers_at:
            self._tags_of_event(row._replace(timestamp=parts.timestamp), parts.tags_at, parts.headers_at)

    def _tags_of_event(self, row: EventRow, first: int, end: int) -> None:
        """Expect a row in the view of each tag of an event; the body has the tags between two places."""
        life, text = life_of(row.key, row.life), text_number(row.key)
        for tag in parsed_tags(row.body[first:end]):
            item = item_of(text_number(tag), text, row.life, row.timestamp, row.seq_nr, row.digest)
            self._tallies.add("tags", life.slice, row.timestamp, row.key, item, found=False)

    def _odd_events(self, rows: Sequence[EventRow]) -> None:
        self._learn([row.key for row in rows])
        for row in rows:
            state = self._states.get(row.key)
            if not isinstance(state, Head) or state.life != row.life:
                self._odd.append(OddRow("journal", row.key, row.life, (row.segment, row.seq_nr)))
                self._suspects.add(row.key)
            elif not state.delete_to < row.seq_nr <= state.seq_nr:
                self._odd.append(OddRow("outside", row.key, row.life, (row.seq_nr,)))
            elif self._partitioned and _timestamp_in(row.body) != row.timestamp:
                self._odd.append(OddRow("columns", row.key, row.life, (row.seq_nr,)))
                self._suspects.add(row.key)

    # ------------------------------------------------------------ the log

    def _logged(self) -> None:
        partition = self._part.number
        rules = self._store.settings.rules
        kept = KeptLog(self._log, partition, self._frozen.oldest[partition], self._settings, rules)
        if not kept.proves:
            return
        for each in kept.events(self._frozen.pointers[partition].offset, self._part.slices):
            row = each.row
            if not self._left_out(row.timestamp):
                self._count("log_events")
                item = item_of(text_number(row.key), row.life, row.seq_nr, row.digest)
                self._tallies.add("log", row.slice, row.timestamp, row.key, item, found=False)

    # ------------------------------------------------------------ views

    def _slice_rows(self) -> None:
        for page in raw_slice_rows(self._store, self._part.number):
            rows = [row for row in page if self._wanted(slice_of(row.key))]
            if self._by_key:
                self._odd_slice_rows(rows)
            for row in rows:
                if _offset_in(row.body) > self._frozen.pointers[key_partition(row.key, self._partitions)].offset:
                    continue
                text = text_number(row.key)
                item = item_of(text, row.life, row.timestamp, row.seq_nr, row.prev_seq_nr, row.digest)
                self._tallies.add("slices", slice_of(row.key), row.timestamp, row.key, item, found=True)
                if crc32(row.body, life_of(row.key, row.life).seed) != row.digest:
                    self._suspects.add(row.key)

    def _odd_slice_rows(self, rows: Sequence[SliceRow]) -> None:
        """Note the slice rows whose events are not in the journal, or are at another place."""
        self._learn([row.key for row in rows])
        for row in rows:
            state = self._states.get(row.key)
            page: Sequence[Any] = ()
            if isinstance(state, Head) and state.life == row.life:
                page = page_of_life(self._store, row.key, state, from_=row.seq_nr, to=row.seq_nr, limit=1).rows
            if not page or _timestamp_in(page[0][2]) != row.timestamp:
                self._odd.append(OddRow("slice_view", row.key, row.life, tuple(row[:6])))
                self._suspects.add(row.key)

    def _places(self) -> None:
        for page in raw_tag_places(self._store, self._part.number):
            rows = [TagPlace._make(row) for row in page if self._wanted(slice_of(row[0]))]
            self._learn([row.key for row in rows])
            for row in rows:
                state = self._states.get(row.key)
                end = self._frozen.pointers[key_partition(row.key, self._partitions)].timestamp
                if isinstance(state, Head) and state.life == row.life and row.timestamp <= end:
                    item = item_of(
                        text_number(row.tag), text_number(row.key), row.life, row.timestamp, row.seq_nr, row.tag_seq_nr
                    )
                    self._tallies.add("places", slice_of(row.key), row.timestamp, row.key, item, found=False)

    def _tags(self) -> None:
        """Read a stretch of time of each tag's view; on partitioned stores a part of the table."""
        for page in self._tag_pages():
            rows = [row for row in page if self._wanted(slice_of(row.key))]
            self._learn([row.key for row in rows])
            if self._by_key:
                self._odd_tag_rows(rows)
            for row in rows:
                self._tag_row(row)

    def _tag_pages(self) -> Iterator[list[TagRow]]:
        if self._partitioned:
            yield from raw_tag_rows(self._store, self._part.number)
            return
        if self._part.sampled:
            for keys in self._keys():
                yield from (page for key in keys for page in rows_of_key(self._store, key))
            return
        for tag in self._part.tags:
            mender = TagMender(self._store, tag, 0, _no_mark)
            spans = mender.spans(self._partitions)
            if self._part.number < len(spans):
                first, last = (bucket * self._bucket_us for bucket in spans[self._part.number])
                for start, end in self._spans:
                    yield from mender.between(max(start, first), min(end, last + self._bucket_us - 1))

    def _tag_row(self, row: TagRow) -> None:
        partition = key_partition(row.key, self._partitions)
        if row.timestamp > self._frozen.pointers[partition].timestamp:
            return
        self._count("tag_rows")
        slice_, text, tag = slice_of(row.key), text_number(row.key), text_number(row.tag)
        state, add = self._states.get(row.key), self._tallies.add
        right = resealed(row).row_digest == row.row_digest and row.bucket == row.timestamp // self._bucket_us
        if not right or (row.body and crc32(row.body, _seed(row)) != row.digest):
            self._suspects.add(row.key)
        kept = not isinstance(state, Head) or row.seq_nr > state.delete_to or row.life != state.life
        if kept and row.body:  # a filler stands for an event that was skipped
            item = item_of(tag, text, row.life, row.timestamp, row.seq_nr, row.digest)
            add("tags", slice_, row.timestamp, row.key, item, found=True)
        links = item_of(tag, text, row.life, row.timestamp, row.seq_nr, row.tag_seq_nr)
        if self._partitioned:
            add("places", slice_, row.timestamp, row.key, links, found=True)
        if row.previous_seq_nr:
            links -= item_of(tag, text, row.life, row.previous_timestamp, row.previous_seq_nr, row.tag_seq_nr - 1)
        add("tag_chain", slice_, NO_TIME, row.key, links, found=True, count=0)
        if self._by_day:
            add(BY_DAY["tag_chain"], slice_, row.timestamp, row.key, links, found=True)

    def _odd_tag_rows(self, rows: Sequence[TagRow]) -> None:
        """Note the tag rows that no key accounts for."""
        some: dict[tuple[str, int], list[TagRow]] = {}
        for row in rows:
            some.setdefault((row.tag, key_partition(row.key, self._partitions)), []).append(row)
        for (tag, partition), mine in some.items():
            try:
                strays = TagMender(self._store, tag, 0, _no_mark).strays(partition, mine)
            except Corrupt:  # a damaged head among them
                self._suspects.update(row.key for row in mine)
                continue
            for row in strays:
                place = row.tag, row.bucket, row.timestamp, row.key, row.seq_nr
                self._odd.append(OddRow("tag_view", row.key, row.life, place))
                self._suspects.add(row.key)

    # ------------------------------------------------------------ snapshots

    def _snapshots(self) -> None:
        for page in raw_snapshot_lives(self._store, self._part.number):
            lives = [(key, life) for key, life in page if self._wanted(slice_of(key))]
            self._learn([key for key, _ in lives])
            for key, life in lives:
                state = self._states.get(key)
                if not isinstance(state, Head) or state.life != life:
                    self._odd.append(OddRow("snapshot", key, life))
                    self._suspects.add(key)

    def _learn(self, keys: Sequence[str]) -> None:
        """Load the states of keys that are not known yet."""
        if len(self._states) > STATES_KEPT:
            self._states.clear()
        unknown: dict[int, set[str]] = {}
        for key in keys:
            if key not in self._states:
                unknown.setdefault(key_partition(key, self._partitions), set()).add(key)
        for partition, some in unknown.items():
            self._states.update(dict.fromkeys(some))
            self._states.update(self._states_of(partition, some))

    def _states_of(self, partition: int, keys: Collection[str]) -> dict[str, State]:
        """Return the states of keys, without those that cannot be read."""
        try:
            return self._store.look(partition, keys).states
        except Corrupt:
            if len(keys) == 1:
                self._suspects.update(keys)
                return {}
            return {key: state for one in keys for key, state in self._states_of(partition, (one,)).items()}


def _no_mark(partition: int) -> Callable[[int], None]:
    raise TypeError("whoever only looks carries no Mark")


def _seed(row: TagRow) -> int:
    return life_of(row.key, row.life).seed


def _offset_in(body: bytes) -> int:
    """Return the offset of an event in this log; -1 if its body cannot be read."""
    try:
        return parts_of(body).log_offset
    except (TypeError, struct.error):
        return -1


def _timestamp_in(body: bytes) -> int:
    try:
        return parts_of(body).timestamp
    except (TypeError, struct.error):
        return -1


def parts_of_round(
    store: Store,
    tags: Sequence[str],
    slices: frozenset[int] | None = None,
    without: frozenset[int] | None = None,
    *,
    sampled: bool = False,
) -> Iterator[SidePart]:
    """Yield the parts of a round: all of every side, or only these slices, and `without` some days."""
    partitioned = is_partitioned(store)
    by_partition = ("heads", "log") if without is None else ("heads", "log", "events")
    # all sides of a partition come together: neighbours go to one task, so tasks have about equal work
    for number in range(store.settings.partitions):
        for side in (*SIDES, *(PARTITIONED_SIDES if partitioned else ())):
            if side == "snapshots" and number and not partitioned:
                continue
            if slices is not None and side in by_partition and not _has_any(slices, number, store.settings.partitions):
                continue
            yield SidePart(side, number, tuple(tags) if side == "tags" else (), slices, without, sampled)


def _has_any(slices: frozenset[int], partition: int, partitions: int) -> bool:
    return any(slice_ * partitions // SLICES == partition for slice_ in slices)
