"""Events by slices: those of one entity type in a range of slices, by (timestamp, seq_nr, key bytes), each once.

A partition holds a run of slices, and within it a time belongs to one action. So each partition of the range is read in
order, from a place on and up to the bound, and the partitions are merged. The bound is the least pointer timestamp of
these partitions: nothing at or below it can still arrive, so there is no delay, and nothing is searched for.

The query checks all the same that each event follows on the one before it of its key (`acceptance`). At a hole it holds
the event back and looks back by key; if the missing one is not found in time it stops with `MissingEvent.slice_hole`.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from threading import Event as Signal
from types import TracebackType
from typing import Any, NamedTuple, Self

from strandline.errors import MissingEvent, invalid, shown
from strandline.journal import checks
from strandline.query.acceptance import Last, Place, Verdict, end_of, judge
from strandline.query.feed import PAGE_BYTES
from strandline.query.look_back import LookedBack, candidate, look, look_back
from strandline.query.pointer_watch import PointerWatch
from strandline.query.recent import Recent
from strandline.query.rich_offset import RichOffset, Shown
from strandline.query.settings import SliceSettings
from strandline.query.times import time_us
from strandline.rows import Pointer
from strandline.store.api import Store
from strandline.store.scans import events_of
from strandline.values.events import EventRow, Life, RecordedEvent
from strandline.values.ranges import Range

_logger = logging.getLogger("strandline")


def place_of(row: EventRow) -> Place:
    """Where a row stands in the order of a query."""
    return row[8], row[3], row[0].encode()


_order = itemgetter(8, 3, 0)  # timestamp, seq_nr, key: texts compare like their bytes in UTF-8


class Slices:
    """The events of an entity type in a range of slices, as a store has them."""

    def __init__(self, store: Store, entity_type: str, range_: Range) -> None:
        self.store, self.entity_type, self.range = store, entity_type, range_
        self._count = store.settings.partitions
        self.partitions = range_.partitions(self._count)

    def bound(self, pointers: Sequence[Pointer]) -> int:
        """Up to here all is in the store. A partition that was never replicated counts as: nothing has arrived."""
        return min(pointers[partition].timestamp for partition in self.partitions)

    def newest(self, pointers: Sequence[Pointer]) -> int:
        """The time of the last action that was no Mark, as far as the bound lets it be seen; 0 if there is none."""
        bound = self.bound(pointers)
        moved = (pointers[partition].moved for partition in self.partitions)
        return max((at for at in moved if at <= bound), default=0)

    def rows(self, after: Place, to: int, page_size: int) -> Iterator[EventRow]:
        """The rows after a place, up to a time, in order."""
        return chain.from_iterable(self.pages(after, to, page_size))

    def pages(self, after: Place, to: int, page_size: int) -> Iterator[list[EventRow]]:
        """The same, piece by piece. At most a page is held, and no statement is open between two pieces.

        Each partition reads its share of a page. What lies at or below the last row of all of them that have more is
        complete, and is handed out in order.
        """
        count = len(self.partitions)
        share, bytes_max = max(1, page_size // count), max(1, PAGE_BYTES // count)
        # In another partition the place's time may belong to a key that comes later in the order.
        begin = (after[0], after[1] if after == end_of(after[0]) else 0)
        parts = [_Part(self, partition, begin, to, share, bytes_max) for partition in self.partitions]
        key = (after[0], after[1], after[2].decode(errors="replace"))
        inside = begin[1] == 0
        while parts:
            for part in parts:
                part.fill()
                if inside:
                    part.rows = [row for row in part.rows if _order(row) > key]
            inside = inside and any(not part.rows and part.more for part in parts)
            ends = [_order(part.rows[-1]) for part in parts if part.more and part.rows]
            if any(part.more and not part.rows for part in parts):
                continue
            bound = min(ends) if ends else None
            ready = [row for part in parts for row in part.take(bound)]
            if count > 1:
                ready.sort(key=_order)
            if ready:
                yield ready
            parts = [part for part in parts if part.rows or part.more]


class _Part:
    """One partition of a range: the rows that were read and not yet handed out."""

    def __init__(
        self, slices: Slices, partition: int, place: tuple[int, int], to: int, limit: int, bytes_max: int
    ) -> None:
        self.rows: list[EventRow] = []
        self.more = True
        self._slices, self._partition, self._place, self._to = slices, partition, place, to
        self._limit, self._bytes_max = limit, bytes_max
        whole = slices.range.covers(partition, slices.store.settings.partitions)
        self._within = None if whole else slices.range

    def fill(self) -> None:
        """Read on, if all was handed out."""
        if self.rows or not self.more:
            return
        self.rows, self.more = events_of(
            self._slices.store, self._partition, after=self._place, to=self._to, limit=self._limit,
            entity_type=self._slices.entity_type, slices=self._within, bytes_max=self._bytes_max,
        )  # fmt: skip
        if self.rows:
            self._place = self.rows[-1].timestamp, self.rows[-1].seq_nr
        else:
            self.more = False

    def take(self, bound: tuple[Any, ...] | None) -> list[EventRow]:
        """The rows up to a place, or all of them."""
        if bound is None or not self.rows or _order(self.rows[-1]) <= bound:
            taken, self.rows = self.rows, []
            return taken
        at = bisect_right(self.rows, bound, key=_order)
        taken, self.rows = self.rows[:at], self.rows[at:]
        return taken


class Filter(NamedTuple):
    """Which events pass: by type, and by tag. None lets all pass."""

    types: frozenset[str] | None = None
    tags: frozenset[str] | None = None

    def passes(self, event: RecordedEvent) -> bool:
        """No payload is decoded for it."""
        if self.types is not None and event.type not in self.types:
            return False
        return self.tags is None or not self.tags.isdisjoint(event.tags)

    @classmethod
    def of(cls, given: object) -> Filter | None:
        """A filter as callers give it: {"types": [...], "tags": [...]}."""
        if given is None or isinstance(given, Filter):
            return given
        allowed = '{"types": texts, "tags": texts}'
        if not isinstance(given, Mapping) or not given or not given.keys() <= {"types", "tags"}:
            raise invalid("setting", "filter", "no filter", allowed=allowed, got=given)
        parts = {}
        for name, words in given.items():
            listed = [words] if isinstance(words, str) else words
            good = isinstance(listed, Iterable) and not isinstance(listed, bytes | Mapping)
            parts[name] = frozenset(listed) if good else frozenset()
            if not parts[name] or not all(isinstance(word, str) for word in parts[name]):
                raise invalid("setting", f"filter.{name}", "no texts", allowed=allowed, got=words)
        return cls(**parts)


class SlicedEvent(RecordedEvent):
    """A recorded event, with its place in a query by slices."""

    __slots__ = ("_offset",)

    def __init__(self, life: Life, cells: tuple[Any, ...], offset: RichOffset) -> None:
        self._life, self._cells, self._offset = life, cells, offset

    @property
    def offset(self) -> RichOffset:
        return self._offset


class SliceQuery:
    """A query by slices: iterate over it, and close it. `resume_offset` is where another one can go on."""

    def __init__(
        self,
        slices: Slices,
        watch: PointerWatch,
        start: RichOffset,
        *,
        to: int | None = None,
        live: bool = False,
        chosen: Filter | None = None,
        settings: SliceSettings | None = None,
    ) -> None:
        self._slices, self._watch, self._to, self._live, self._chosen = slices, watch, to, live, chosen
        self._settings = settings = settings or SliceSettings()
        self.violations = 0
        """How many events look-back found behind the place where they belong."""
        self.resume_offset = start
        """The rich offset after the last event that was handed out or filtered."""
        self._start = start
        self._known: Recent[tuple[int, int, Life, int]] = Recent(settings.keys_in_memory_max)
        for key, (life, seq_nr) in start.seen.items():
            self._known[key] = (life, seq_nr, Life(key, life), start.timestamp)
        self._read_to: Place = end_of(start.timestamp - 1)
        self._row_read: EventRow | None = None
        """The last row that was read: its place is `_read_to` once somebody asks."""
        self._shown: tuple[int, Shown] = (start.timestamp, start.shown)
        self._closed = Signal()
        self._events = self._run()

    def __iter__(self) -> Iterator[RecordedEvent]:
        return self

    def __next__(self) -> RecordedEvent:
        return next(self._events)

    def close(self) -> None:
        """End it; one that waits in another thread ends too. Twice is harmless."""
        self._closed.set()
        with suppress(ValueError):  # another thread is in it, and sees the signal
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ reading

    def _run(self) -> Generator[RecordedEvent]:
        pointers = self._watch.now()  # before the rows, never after
        while not self._closed.is_set():
            bound = self._slices.bound(pointers)
            if self._to is not None:
                bound = min(bound, self._to)
            if self._read_to < end_of(bound):
                for page in self._slices.pages(self._read_to, bound, self._settings.page_size):
                    for row in page:
                        key, life, _, seq_nr, prev, *_ = row
                        known = self._known.get(key)
                        if known is not None and known[0] == life and prev <= known[1] < seq_nr:
                            if (event := self._shown_event(row, known[2])) is not None:
                                yield event
                        else:
                            yield from self._passed(row)
                        self._row_read = row
                self._read_to, self._row_read = end_of(bound), None
            if not self._live or (self._to is not None and bound >= self._to):
                return
            refresh_s = self._settings.refresh_interval_s
            self._closed.wait(self._watch.due_in(refresh_s))
            pointers = self._watch.within(refresh_s)

    def _passed(self, row: EventRow) -> Iterator[RecordedEvent]:
        """What is to be shown now that this row has come."""
        if self._row_read is not None:
            self._read_to = place_of(self._row_read)
        known = self._known.get(row.key)
        last = None if known is None else Last(known[0], known[1])
        asked = candidate(row)
        verdict = judge(asked, last, line=self._read_to)
        if verdict is Verdict.LOOK:
            verdict = judge(asked, last, line=self._read_to, looked=look(self._slices.store, row))
        if verdict in (Verdict.ACCEPTED, Verdict.UNSEEN):
            if (event := self._shown_event(row, Life(row.key, row.life))) is not None:
                yield event
        elif verdict is Verdict.REJECTED:
            for each in self._looked_back(row, last).rows:
                if (event := self._shown_event(each, Life(each.key, each.life))) is not None:
                    yield event

    def _shown_event(self, row: EventRow, life: Life) -> RecordedEvent | None:
        """Count an event as shown; None if the filter does not let it pass."""
        key, number, _, seq_nr, _, _, _, _, timestamp, *_ = row
        self._known[key] = (number, seq_nr, life, timestamp)
        at, shown_before = self._shown
        start = self.resume_offset
        if timestamp >= at:  # what look-back finds lies before, and moves nothing
            shown = (shown_before if timestamp == at else None, key, number, seq_nr)
            self._shown = (timestamp, shown)
            self.resume_offset = start = RichOffset(start.entity_type, start.history, timestamp, shown)
        event = SlicedEvent(life, row.cells_of(life), start)
        return event if self._chosen is None or self._chosen.passes(event) else None

    # ------------------------------------------------------------ holes

    def _looked_back(self, row: EventRow, last: Last | None) -> LookedBack:
        """Look for what is missing until it is there, or nothing is missing any more, or the time is up."""
        settings = self._settings
        deadline = time.monotonic() + settings.gap_timeout_s
        while True:
            found = look_back(self._slices.store, row, last, self._read_to)
            if found.missing is None:
                if len(found.rows) > 1:
                    self.violations += len(found.rows) - 1
                    _logger.error(
                        "events of %s stood in the store behind the place where they belong: first %d, last %d",
                        shown(row.key), found.rows[0].seq_nr, found.rows[-2].seq_nr,
                    )  # fmt: skip
                return found
            if time.monotonic() >= deadline or self._closed.wait(
                min(settings.refresh_interval_s, settings.gap_timeout_s)
            ):
                raise missing_event(row.key, found.missing, self._last_known(row.key))

    def _last_known(self, key: str) -> RichOffset:
        """The offset of the key's last event that was shown, else where the query began: nothing is missing there."""
        known, start = self._known.get(key), self._start
        if known is None:
            return start
        return RichOffset.of(start.entity_type, start.history, known[3], {key: (known[0], known[1])})


def by_slices(
    store: Store,
    watch: PointerWatch,
    entity_type: object,
    lo: object,
    hi: object,
    *,
    after: object = None,
    from_: object = None,
    to: object = None,
    live: bool = False,
    filter: object = None,  # noqa: A002 (the name that callers give)
    **settings: Any,
) -> SliceQuery:
    """Check what a caller gives, and begin a query. Nothing is read before the first event is asked for."""
    type_, range_ = checks.entity_type(entity_type), Range.of(lo, hi)
    history = store.settings.history_id
    if after is not None and from_ is not None:
        raise invalid("offset_ambiguous", "after", "given with from_", allowed="one of after and from_", got=after)
    start = RichOffset(type_, history, 0 if from_ is None else time_us(from_, "from_"))
    if after is not None:
        start = RichOffset.checked(after, type_, history)
    end = None if to is None else time_us(to, "to")
    if end is not None and end < start.timestamp:
        raise invalid("empty_range", "to", "below the start", allowed=f"{start.timestamp} or later", got=to)
    if not isinstance(live, bool):
        raise invalid("setting", "live", "not true or false", allowed="true or false", got=live)
    checked = SliceSettings.of(settings)
    chosen = Filter.of(filter)
    slices = Slices(store, type_, range_)
    return SliceQuery(slices, watch, start, to=end, live=live, chosen=chosen, settings=checked)


def missing_event(key: str, missing: tuple[int, int, int], offset: object) -> MissingEvent:
    """The error at a hole that stays."""
    life, first, last = missing
    numbers = str(first) if first == last else f"{first} to {last}"
    return MissingEvent(
        f"{shown(key)} lacks {numbers} in the store",
        code="slice_hole",
        hint="put the store back from a backup; once the events are there, go on from last_known_offset",
        missing={key: (life, first, last)},
        last_known_offset=offset,
    )
