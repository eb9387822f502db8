"""Events by slices: those of one entity type in a range of slices, by (timestamp, seq_nr, key), each once.

The bound is the least pointer timestamp of the partitions of the range. No event at or below it can still arrive, so
the query needs no delay and no search. It checks all the same that each event follows the one before it of its key
(`acceptance`). At a hole it holds the event back and reads the key's events before it; if the missing event is not
found in time, the query stops with `MissingEvent.slice_hole`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from strandline.errors import shown
from strandline.points import reached
from strandline.query.acceptance import Acceptance, Last, Place, Way, end_of, judge
from strandline.query.feed import Feed, Pace
from strandline.query.filter import Filter
from strandline.query.known_keys import KnownKey, KnownKeys
from strandline.query.look_back import candidate
from strandline.query.pointer_watch import PointerWatch
from strandline.query.query_row import QueryRow, place_of
from strandline.query.rich_offset import RichOffset
from strandline.query.settings import SliceSettings
from strandline.query.sliced_event import Before, EarlierEvent, SlicedEvent, offset_at
from strandline.query.slices import Slices, missing_event

NO_END: Final = 2**63 - 1
ACCEPTED: Final = (Acceptance.ACCEPTED, Acceptance.UNSEEN)

_logger = logging.getLogger("strandline")


class SliceFeed(Feed[SlicedEvent]):
    """The base of the queries with and without the strandline: places, the memory of keys, looking back, the error at a
    hole.
    """

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
        pace: Pace | None = None,
    ) -> None:
        super().__init__(live=live, pace=pace)
        self._slices, self._watch, self._start, self._chosen = slices, watch, start, chosen
        self._to = NO_END if to is None else to
        self._settings = settings or SliceSettings()
        always = {
            key: KnownKey(slices.life_of(key, life), seq_nr, start.timestamp)
            for key, (life, seq_nr) in start.seen.items()
        }
        self._keys = KnownKeys(self._settings.keys_in_memory_max, always)
        slices.shown = start.timestamp, start.seen
        self._line: Place = end_of(start.timestamp - 1)
        """Events of unknown keys up to here were shown, or lie before the start. Once keys were forgotten, this is how
        far the query has read.
        """
        self._first = self._read_to = self._line
        self._passed: tuple[int, Before] = (start.timestamp, start)
        """The time of the last row that the consumer is past, and all rows of that time that it is past."""
        self.strandline_violations = 0
        """The number of events that were missing although the strandline had passed them."""

    @property
    def resume_offset(self) -> RichOffset:
        """The offset to resume at: behind the last event that was handed out or filtered out."""
        return self._last.offset if self._last is not None else offset_at(*self._passed)

    def _verdict(self, row: QueryRow, last: Last | None, way: Way, *, strandline: bool) -> Acceptance:
        """Return the table's answer for a row; ask the store where the table needs its facts."""
        line = self._line
        verdict = judge(candidate(row), last, way=way, line=line, strandline=strandline)
        if verdict is Acceptance.LOOK:
            reached("slices.store_asked_of_the_key")
            facts = self._ask(lambda: self._slices.look(row, line))
            verdict = judge(candidate(row), last, way=way, line=line, strandline=strandline, facts=facts)
        return verdict

    def _taken(self, row: QueryRow, before: Before | None) -> SlicedEvent | None:
        """Note that an event is done and return it; None if it is gone, or the filter does not let it pass.

        `before` has the rows of its time before it; None if the event lies before the place of the query.
        """
        whole = row if row.body is not None else self._ask(lambda: self._slices.whole(row))
        if whole is None:
            return None
        known = self._keys.get(row.key)
        if known is None or known.life.number != row.life:
            self._keys[row.key] = known = KnownKey(self._slices.life_of(row.key, row.life), 0)
        known.number, known.timestamp = row.seq_nr, row.timestamp
        event: SlicedEvent
        if before is None:
            event = EarlierEvent(known.life, whole, offset_at(*self._passed))
        else:
            event = SlicedEvent(known.life, whole, before)
        return event if self._chosen is None or self._chosen.passes(event) else None

    def _last_of(self, key: str) -> Last | None:
        known = self._keys.get(key)
        return None if known is None else Last(known.life.number, known.number)

    def _looked_back(self, row: QueryRow, last: Last | None) -> list[QueryRow]:
        """Look for the missing events of a key until they are there, or none is missing any more, or the time is up."""
        settings, pace = self._settings, self._pace
        end_s = pace.now_s() + settings.gap_timeout_s
        reached("slices.looked_back")
        line = self._line if last is None else min(self._line, self._first)  # a known key was not forgotten
        while True:
            found = self._ask(lambda: self._slices.look_back(row, last, line))
            if found.missing is None:
                return found.rows
            if pace.now_s() >= end_s:
                raise missing_event(row.key, found.missing, self._last_known(row.key, found.done))
            pace.pause(min(settings.refresh_interval_s, max(0.0, end_s - pace.now_s())))

    def _last_known(self, key: str, done: QueryRow | None) -> RichOffset:
        """Return the offset of the key's last event that was shown, else the start of the query: up to there no event
        is missing.

        `done` is the last event that the store has of a key that was forgotten.
        """
        known, start = self._keys.get(key), self._start
        if known is not None:
            timestamp, seen = known.timestamp, (known.life.number, known.number)
        elif done is not None and place_of(done) > self._first:
            timestamp, seen = done.timestamp, (done.life, done.seq_nr)
        else:
            return start
        return RichOffset.of(start.entity_type, start.history, timestamp, {key: seen})


class StrandlineSliceFeed(SliceFeed):
    """A query that is bounded by the strandline."""

    def _pages(self) -> Iterator[list[SlicedEvent]]:
        slices, watch, refresh_s = self._slices, self._watch, self._settings.refresh_interval_s
        pages = self._bounded(
            slices.reader(self._settings.page_size).page,
            self._line,
            place_of,
            bound=lambda: slices.bound(watch.now()),
            moved=lambda: slices.bound(watch.awaited(refresh_s)),
            to=self._to,
            pause_s=lambda: watch.due_in(refresh_s),
        )
        for rows in pages:
            yield from self._judged(rows)

    def _judged(self, rows: Sequence[Any]) -> Iterator[list[SlicedEvent]]:
        start, chosen, keys = self._start, self._chosen, self._keys
        keys.hold([row[2] for row in rows])
        if keys.forgot:
            self._line = self._read_to
        young = keys.young
        at, passed = self._passed
        due: list[SlicedEvent] = []
        for row in rows:
            timestamp, seq_nr, key, life, prev, body, _ = row
            before = passed if timestamp == at else start
            known = young.get(key)
            if known is None and prev == 0:
                keys[key] = known = KnownKey(self._slices.life_of(key, life), 0)
            if known is not None and prev <= known.number < seq_nr and known.life.number == life and body is not None:
                # The usual case. This is `_taken` inlined: the call would take as long as the rest.
                known.number, known.timestamp = seq_nr, timestamp
                passed = event = SlicedEvent(known.life, row, before)
                if chosen is None or chosen.passes(event):
                    due.append(event)
            else:
                yield due
                self._pass(at, passed)
                due = self._due(QueryRow._make(row), before)
                passed = (before, row)
            at = timestamp
        yield due
        self._pass(at, passed)

    def _pass(self, at: int, passed: Before) -> None:
        """Note that the consumer is past all rows up to this one."""
        self._passed, self._last = (at, passed), None
        if not isinstance(passed, RichOffset):
            self._read_to = place_of(passed[1] if isinstance(passed, tuple) else passed._row)

    def _due(self, row: QueryRow, before: Before) -> list[SlicedEvent]:
        """Return the events to hand out now that this row has come."""
        reached("slices.judged_one_by_one")
        last = self._last_of(row.key)
        verdict = self._verdict(row, last, Way.ORDERED, strandline=True)
        rows = [row] if verdict in ACCEPTED else []
        if verdict is Acceptance.REJECTED:
            rows = self._looked_back(row, last)
            if len(rows) > 1:
                self.strandline_violations += len(rows) - 1
                _logger.error(
                    "events of %s stood in the store behind the place where they belong: first %d, last %d",
                    shown(row.key), rows[0].seq_nr, rows[-2].seq_nr,
                )  # fmt: skip
        taken = [self._taken(each, before if each.seq_nr == row.seq_nr else None) for each in rows]
        return [event for event in taken if event is not None]
