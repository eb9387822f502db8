"""Events by slices from a store that other writers than the pipeline fill, too: events may come late.

The query stays a while behind the clock of the store, so that most events have arrived when it gets to them. An event
comes late if its transaction ended after the query had passed, or if its writer's clock is behind. So the query reads
the rows shortly behind its place again, without bodies: shown events are duplicates, and missed ones are loaded.

    ──────────┬── back_track_period_s ──┬───────────┬── eventual_consistency_delay_s ──┬──▶ time
            line                      place       bound                              clock

    every back_track_interval_s     from the line to the place, unless the place is so far behind that all has arrived
    after a start at an offset      the same, first
    at a hole                       by key, as with the strandline; what comes later in its own place is a duplicate

For forgotten keys the line decides: their events at or below it count as shown. An event that comes later than the
period is found by the next event of its key, if the key is one of the `keys_in_memory_max` that are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.query.acceptance import Acceptance, Way, end_of
from strandline.query.by_slices import ACCEPTED, SliceFeed
from strandline.query.query_row import QueryRow, place_of
from strandline.query.rich_offset import RichOffset
from strandline.query.settings import OFF
from strandline.query.sliced_event import SlicedEvent


class SearchingSliceFeed(SliceFeed):
    """A query that waits and reads again, because its store has no strandline."""

    def __init__(self, *what: Any, resumed: bool = False, **how: Any) -> None:
        """`resumed` says that the start is an offset, behind which late events may come; else events before the start
        are not wanted.
        """
        super().__init__(*what, **how)
        self._period_us = round(self._settings.back_track_period_s * 1_000_000)
        self._delay_us = round(self._settings.eventual_consistency_delay_s * 1_000_000)
        self._floor = self._start.timestamp - (self._period_us if resumed else 0)
        """No event below this time is shown."""
        self._place = end_of(self._start.timestamp - 1)
        self._line = self._line_at(self._start.timestamp)
        self._due_s = self._next_s()
        self._reached = self._start.timestamp
        """All events up to this time that had arrived were handed out."""

    @property
    def resume_offset(self) -> RichOffset:
        """The offset to resume at. It has all keys of the last period, so late events are found and
        none is repeated.
        """
        start, line = self._start, self._line[0]
        seen = {key: (known.life.number, known.number) for key, known in self._keys.known() if known.timestamp > line}
        return RichOffset.of(start.entity_type, start.history, max(self._passed[0], self._reached), seen)

    def _line_at(self, timestamp: int) -> tuple[int, int, str]:
        return end_of(max(timestamp - self._period_us, self._floor) - 1)

    def _next_s(self) -> float | None:
        interval = self._settings.back_track_interval_s
        return None if interval == OFF else self._pace.now_s() + float(interval)

    def _pages(self) -> Iterator[list[SlicedEvent]]:
        now_us = self._slices.store.now_us
        if self._floor < self._start.timestamp:
            yield from self._back_tracked(self._start.timestamp - 1)
        while True:
            bound = min(self._ask(now_us) - self._delay_us - 1, self._to)
            reader, more = self._slices.reader(self._settings.page_size), True
            while more:
                rows, more = self._ask(lambda: reader.page(self._place, bound))  # noqa: B023 (called at once)
                for row in rows:
                    yield from self._judged(QueryRow(*row), Way.ORDERED)
                    self._place = place_of(row)
                if rows:
                    yield from self._back_tracked_if_due(rows[-1][0], bound)
            self._reached = max(self._reached, bound)
            if not self._live or bound >= self._to:
                return
            self._pace.pause(self._settings.refresh_interval_s)
            yield from self._back_tracked_if_due(self._reached, bound)

    def _back_tracked_if_due(self, timestamp: int, bound: int) -> Iterator[list[SlicedEvent]]:
        """Read the rows of the period before a time again, if that is due and late events may still come there."""
        if self._due_s is None or self._pace.now_s() < self._due_s:
            return
        self._due_s = self._next_s()
        self._line = self._line_at(timestamp)
        if len(self._keys) > self._settings.keys_in_memory_max:
            self._keys.forget_before(self._line[0] + 1)
        if bound - timestamp <= self._period_us:
            yield from self._back_tracked(timestamp)

    def _back_tracked(self, to: int) -> Iterator[list[SlicedEvent]]:
        """Read the rows from the line up to a time again: a late event may stand behind any number of known ones."""
        self.back_tracks += 1
        reader, place, more = self._slices.reader(self._settings.page_size, bodies=False), self._line, True
        while more:
            rows, more = self._ask(lambda: reader.page(place, to))  # noqa: B023 (called at once)
            for row in rows:
                yield from self._judged(QueryRow(*row), Way.BACK_TRACK)
            if rows:
                place = place_of(rows[-1])

    def _judged(self, row: QueryRow, way: Way) -> Iterator[list[SlicedEvent]]:
        """Hand out the events that are due now that this row has come, one by one, so that only events that the
        consumer has count as known.
        """
        last = self._last_of(row.key)
        verdict = self._verdict(row, last, way, strandline=False)
        rows = [row] if verdict in ACCEPTED else []
        if verdict is Acceptance.REJECTED:
            rows = self._looked_back(row, last)
        for each in rows:
            at, passed = self._passed
            before = None if each.timestamp < at else passed if each.timestamp == at else self._start
            event = self._taken(each, before)
            if before is not None:
                self._passed = each.timestamp, (before, each)
            if event is not None:
                yield [event]
