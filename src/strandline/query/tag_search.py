"""Events by tag from a store that other writers than the pipeline fill, too: rows may come late.

The query stays a while behind the store's clock, so that most rows have arrived when it gets to them. For late rows it
goes back and reads forward again through the same table: rows that were handed out are dropped as repeats, missed rows
are handed out in order, and the row that was held back is met again.

    a hole in a key's numbers     back to the key's last row, within this bucket and the one before, again and again
                                  until `gap_timeout_s`; then the query stops
    a key that is new here        the same, for `new_key_scan_timeout_s`; then its row is taken for the first
    every back_track_interval_s   back by `back_track_period_s`, for late rows of keys that get no further ones

A query that starts in the present bucket first looks through that bucket for the least number of each key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from strandline.errors import MissingEvent, shown
from strandline.query.by_tag import NO_END, TagFeed
from strandline.query.feed import Pace
from strandline.query.known_keys import KnownKey
from strandline.query.settings import OFF
from strandline.query.tag_offset import TagOffset, place_of
from strandline.query.tag_settings import MAX, TagSettings
from strandline.query.tag_source import TagSource
from strandline.query.tagged_event import TaggedEvent
from strandline.values.events import Life
from strandline.values.tag_rows import Place, first_broken


class Hole(NamedTuple):
    """Numbers of a key that are searched for, up to the row that is held back."""

    life: int
    wanted: int
    held: Any
    end_s: float
    fails: bool
    """Whether the query stops if the numbers are not found; else it takes the held row for the key's first."""


class SearchingTagFeed(TagFeed):
    """A query that waits, looks back and searches, because its store has no strandline."""

    def __init__(
        self,
        source: TagSource,
        settings: TagSettings,
        *,
        start: TagOffset | None,
        to: int = NO_END,
        live: bool = False,
        seen: dict[str, tuple[int, int]] | None = None,
        pace: Pace | None = None,
        offset_given: bool = True,
    ) -> None:
        """`offset_given` says that the caller chose `start`; else `start` is the beginning of the view."""
        super().__init__(source, settings, start=start, to=to, live=live, seen=seen, pace=pace)
        self._offset_given = offset_given and start is not None
        self._in_the_past = False
        self._high = self._first
        """The furthest place that was read."""
        self._holes: dict[str, Hole] = {}
        self.state = "catching up"

    def _pages(self) -> Iterator[Sequence[TaggedEvent]]:
        settings, source, pace = self._settings, self._source, self._pace
        delay_us = round(settings.eventual_consistency_delay_s * 1_000_000)
        if self._offset_given:
            current = self._ask(source.now) // source.bucket_us
            self._in_the_past = self._first[0] // source.bucket_us < current
            if not self._in_the_past:
                self._scan()
        interval = settings.back_track_interval_s
        due_s = None if interval == OFF else pace.now_s() + float(interval)
        bucket = self._high[0] // source.bucket_us
        while True:
            bound = min(self._ask(source.now) - delay_us, self._to)
            yield from self._swept(self._high, bound)
            if not self._live or bound >= self._to:
                return
            self.state = "following"
            if self._high[0] // source.bucket_us > bucket:
                bucket = self._high[0] // source.bucket_us
                # A back-track reads the bucket before this one again, and a search from there the one before that.
                self._keys.forget_before((bucket - 2) * source.bucket_us)
            if due_s is not None and pace.now_s() >= due_s:
                self.state = "back-tracking"
                yield from self._swept(self._back(), min(self._high[0], bound))
                self.state, due_s = "following", pace.now_s() + float(interval)
            pace.pause(settings.refresh_interval_s)

    def _scan(self) -> None:
        """Find the least number of each key in the bucket of the start: the query expects it first."""
        self.state = "scanning"
        source = self._source
        end = (self._first[0] // source.bucket_us + 1) * source.bucket_us - 1
        least: dict[str, tuple[int, int]] = {}
        place, more = self._first, True
        while more:
            rows, more = self._ask(lambda: source.page(place, end, self._settings.page_size))  # noqa: B023
            for row in rows:
                found = row[4], row[5]
                least[row[3]] = min(found, least.get(row[3], found))
            if rows:
                place = place_of(rows[-1])
        for key, (life, number) in least.items():
            if self._keys.get(key) is None:
                self._keys[key] = KnownKey(Life(key, life), number - 1, first=number)
        self.state = "catching up"

    def _back(self) -> Place:
        """Return where a back-track begins: one period before the furthest place, but not before the start of the
        previous bucket.
        """
        timestamp, bucket_us = self._high[0], self._source.bucket_us
        reach = (timestamp // bucket_us - 1) * bucket_us
        if self._settings.back_track_period_s != MAX:
            reach = max(reach, timestamp - round(float(self._settings.back_track_period_s) * 1_000_000))
        return max(self._first, (reach, "", 0))

    def _swept(self, place: Place, to: int) -> Iterator[list[TaggedEvent]]:
        """Read forward from a place. At a hole go back and read again until its time is over; rows behind the hole
        wait.
        """
        more = True
        while more:
            page, more = self._ask(lambda: self._source.page(place, to, self._settings.page_size))  # noqa: B023
            broken = first_broken(page)
            rows = page if broken is None else page[:broken]
            due: list[TaggedEvent] = []
            back: Place | None = None
            for row in rows:
                hole = self._hole(row)
                if hole is not None:
                    yield due
                    due = []
                    back = self._rewound(hole)
                    break
                if self._is_due(row):
                    self._holes.pop(row[3], None)
                    event = self._taken(self._keys.get(row[3]), row)
                    if event is not None:
                        due.append(event)
                self._high = max(self._high, place_of(row))
            yield due
            if back is not None:
                place, more = back, True
            elif broken is not None:
                before = TagOffset(self._source.of, place, 0, 0) if place > self._first else self._start
                raise self._corrupt(page[broken], TagOffset.of_row(self._source.of, rows[-1]) if rows else before)
            elif rows:
                place = place_of(rows[-1])
                self._pass(rows[-1])

    def _is_due(self, row: Any) -> bool:
        """Return whether a row without a hole before it is to be handed out."""
        key, life, number = row[3:6]
        known = self._keys.get(key)
        if known is None or life > known.life.number:
            return True
        if life < known.life.number:
            return False
        if number <= known.number and number >= known.first:
            self.repeats += 1
            return False
        if number < known.first and known.delivered:
            raise self._out_of_order(known, row)
        return True

    def _out_of_order(self, known: KnownKey, row: Any) -> MissingEvent:
        tag = self._source.of.tag
        return MissingEvent(
            f"tag {shown(tag)!r}: {row[5]} of {shown(row[3])} (life {row[4]}) came after {known.first} was handed out",
            code="out_of_order",
            hint="resume before it; a larger new_key_scan_timeout_s waits longer for rows that come late",
            tag=tag,
            missing={row[3]: (row[4], row[5], known.first - 1, known.first - row[5])},
            last_known_offset=self._start,
            held_offset=TagOffset.of_row(self._source.of, row),
        )

    def _hole(self, row: Any) -> Hole | None:
        """Return the hole that holds a row back; None if the row is not held back."""
        key, life, number = row[3:6]
        known = self._keys.get(key)
        if known is not None and life <= known.life.number:
            if life < known.life.number or number <= known.number + 1:
                return None
            wanted, fails = known.number + 1, True
        elif number == 1:
            return None
        elif known is not None:
            wanted, fails = 1, True
        elif self._in_the_past or not self._settings.new_key_scan_timeout_s:
            return None
        else:
            wanted, fails = 1, False
        timeout_s = self._settings.gap_timeout_s if fails else self._settings.new_key_scan_timeout_s
        hole = self._holes.get(key)
        if hole is None or (hole.life, hole.wanted) != (life, wanted):
            return Hole(life, wanted, row, self._pace.now_s() + timeout_s, fails)
        if not fails and self._pace.now_s() >= hole.end_s:
            return None
        return hole._replace(held=row)

    def _rewound(self, hole: Hole) -> Place:
        """Return the place from which to read again because of a hole: at once the first time, then after a pause.
        `MissingEvent` if the hole's time is over and the query must not go on without it.
        """
        self.state = "searching"
        self.searches += 1
        row, pace = hole.held, self._pace
        key, life = row[3], row[4]
        if self._ask(lambda: self._source.ended(key, life)):
            self._holes.pop(key, None)
            self._high = max(self._high, place_of(row))
            return place_of(row)
        back = self._search_from(row)
        if key in self._holes:
            left_s = hole.end_s - pace.now_s()
            if left_s > 0:
                pace.pause(min(self._settings.refresh_interval_s, left_s))
            elif hole.fails:
                raise self._not_found(hole, back)
        self._holes[key] = hole
        return back

    def _search_from(self, row: Any) -> Place:
        """Return the place of the key's last row, but no earlier than the bucket before the held
        row's, and the start.
        """
        bucket_us = self._source.bucket_us
        reach: Place = ((row[2] // bucket_us - 1) * bucket_us, "", 0)
        known = self._keys.get(row[3])
        last = known.place if known is not None else None
        return max(self._first, reach, last or self._first)

    def _not_found(self, hole: Hole, back: Place) -> Exception:
        holes = {key: each for key, each in self._holes.items() if each.fails}
        holes[hole.held[3]] = hole
        missing = {}
        last_known: TagOffset | None = None
        for at, (key, (life, wanted, held, _, _)) in enumerate(holes.items()):
            missing[key] = life, wanted, held[5] - 1, held[5] - wanted
            known = self._last_known(self._keys.get(key))
            if at == 0 or known is None or (last_known is not None and known < last_known):
                last_known = known
        return self._missing(missing, last_known, hole.held, (back[0], hole.held[2]))
