"""Events by tag: all events with one tag, of all keys, in the order of their places.

What is done with a row, by what is known of its key:

    the key is known at (L, n)   row (L, n + 1)                         hand out
                                 (L, first to n)                        a repeat: drop
                                 (L, below first)                       stop: out of order
                                 (L, above n + 1)                       a hole
                                 (higher, 1); (higher, another)         hand out; a hole from 1 on
                                 (lower, any)                           drop: purged
    unknown                      number 1; link before the start        hand out
                                 link at or after the start             a hole

Under the strandline no row can come late, so a hole is a broken promise. Its rows are looked up by key, at their
places, for a while; then the query stops. It never passes a hole over.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

from strandline.errors import Corrupt, MissingEvent, shown
from strandline.query.feed import Feed, Pace
from strandline.query.known_keys import KnownKey, KnownKeys
from strandline.query.tag_offset import TagOffset, place_of
from strandline.query.tag_settings import TagSettings
from strandline.query.tag_source import TagSource
from strandline.query.tagged_event import TaggedEvent
from strandline.values.events import Life
from strandline.values.tag_rows import Place, first_broken

NO_END: Final = 2**63 - 1
BEGINNING: Final[Place] = (-1, "", 0)

_log = logging.getLogger(__name__)


class TagFeed(Feed[TaggedEvent]):
    """What both ways of reading share: places, the memory of keys, the errors."""

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
    ) -> None:
        super().__init__(live=live, pace=pace)
        self._source, self._settings, self._to = source, settings, to
        self._start = start
        self._first: Place = start.place if start is not None else BEGINNING
        always = {key: KnownKey(Life(key, life), number) for key, (life, number) in (seen or {}).items()}
        self._keys = KnownKeys(settings.keys_in_memory_max, always)
        if start is not None and start.tag_seq_nr and start.key not in always:
            known = KnownKey(Life(start.key, start.life), start.tag_seq_nr, start.timestamp, start.seq_nr)
            self._keys[start.key] = known
        self._passed: Any = None
        """The last row that lies behind the consumer, handed out or not."""
        self.repeats = 0
        """Rows that had been handed out before."""
        self.searches = 0
        """Looks for rows that are missing."""
        self.strandline_violations = 0
        """Rows that were not there when everything up to the strandline should have been."""

    @property
    def resume_offset(self) -> TagOffset | None:
        """Strictly after it are all events that were not handed out yet. It never goes back."""
        last = self._last._row if self._last is not None else None
        if self._passed is not None and (last is None or place_of(last) < place_of(self._passed)):
            last = self._passed
        return self._start if last is None else TagOffset.of_row(self._source.of, last)

    def _pass(self, row: Any) -> None:
        if self._passed is None or place_of(self._passed) < place_of(row):
            self._passed = row

    def _whole(self, rows: Sequence[Any]) -> tuple[Sequence[Any], Corrupt | None]:
        """The rows up to the first that is not what was written, and the error for that one."""
        broken = first_broken(rows)
        if broken is None:
            return rows, None
        row, tag = rows[broken], self._source.of.tag
        before = TagOffset.of_row(self._source.of, rows[broken - 1]) if broken else self.resume_offset
        error = Corrupt(
            f"tag {shown(tag)!r}: the row of {shown(row[3])} {shown(row[9])} is not what was written",
            code="tag_row",
            hint="`strandline pipeline rebuild --tag` mends it; then resume",
            tag=tag,
            key=row[3],
            seq_nr=row[9],
            last_known_offset=before,
        )
        return rows[:broken], error

    def _taken(self, known: KnownKey | None, row: Any) -> TaggedEvent | None:
        """Take note of a row that is due; its event, unless the row only fills the place of one."""
        life = self._noted(known, row)
        return TaggedEvent(self._source.of, life, row) if row[11] else None

    def _noted(self, known: KnownKey | None, row: Any) -> Life:
        """Take note of a row that is due."""
        _, _, timestamp, key, life, number, _, _, _, seq_nr, _, _, _ = row
        if known is None or known.life.number != life:
            known = KnownKey(Life(key, life), number, timestamp, seq_nr, first=number)
            self._keys[key] = known
        else:
            if not known.delivered:
                known.delivered = True
                known.first = min(known.first, number)
            known.number, known.timestamp, known.seq_nr = number, timestamp, seq_nr
        return known.life

    def _last_known(self, known: KnownKey | None) -> TagOffset | None:
        if known is None or known.place is None:
            return self._start
        return TagOffset(self._source.of, known.place, known.life.number, known.number)

    def _missing(
        self, holes: dict[str, tuple[int, int, int, int]], last_known: TagOffset | None, held: Any, searched: Any
    ) -> MissingEvent:
        """The error for holes: of each key its life, the first and the last number, and how many are missing."""
        tag = self._source.of.tag
        key, (life, first, last, _) = next(iter(holes.items()))
        numbers = str(first) if first == last else f"{first}..{last}"
        where = "from the start" if last_known is None else f"after {last_known}"
        return MissingEvent(
            f"tag {shown(tag)!r}: {numbers} of {shown(key)} (life {life}) is missing; rebuild, then resume {where}",
            code="tag_hole",
            hint=f"`strandline pipeline rebuild --tag` puts it back if the journal has it; then resume {where}",
            tag=tag,
            missing=holes,
            last_known_offset=last_known,
            held_offset=TagOffset.of_row(self._source.of, held),
            searched=searched,
        )

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


class StrandlineTagFeed(TagFeed):
    """A query that is bounded by the strandline."""

    def _pages(self) -> Iterator[Iterable[TaggedEvent]]:
        source, settings = self._source, self._settings
        refresh_s = settings.refresh_interval_s
        pages = self._bounded(
            lambda place, to: source.page(place, to, settings.page_size),
            self._first,
            place_of,
            bound=source.strandline,
            moved=lambda: source.strandline_within(refresh_s),
            to=self._to,
            pause_s=lambda: refresh_s,
        )
        for page in pages:
            rows, broken = self._whole(page)
            yield from self._judged(rows)
            if broken is not None:
                raise broken

    def _judged(self, rows: Sequence[Any]) -> Iterator[Iterable[TaggedEvent]]:
        keys, first = self._keys, self._first
        unknown = keys.hold([row[3] for row in rows])
        met_before = self._met_before(rows, unknown) if keys.forgot else set()
        due: list[Any] = []
        lives: list[Life] = []
        young, known, last_key = keys.young, None, ""
        for row in rows:
            _, _, timestamp, key, life, number, _, _, _, seq_nr, _, body, _ = row
            if key != last_key:  # events of one append follow each other
                known, last_key = young.get(key), key
            if known is not None and number == known.number + 1 and known.life.number == life and known.delivered:
                # Most rows. `_taken` in place: the call would take as long as the rest.
                known.number, known.timestamp, known.seq_nr = number, timestamp, seq_nr
                if body:
                    due.append(row)
                    lives.append(known.life)
                continue
            known, last_key = keys.get(key), ""
            if known is not None and life == known.life.number and number == known.number + 1:
                pass
            elif known is not None and life <= known.life.number:
                if life < known.life.number:
                    continue
                if known.first <= number <= known.number:
                    self.repeats += 1
                    continue
                if number < known.first:
                    raise self._out_of_order(known, row)
                yield self._events_of(lives, due)
                due, lives = [], []
                if not (yield from self._filled(known.number + 1, row)):
                    continue
                known = keys.get(key)
            elif number != 1 and not self._is_first(known, row, met_before):
                yield self._events_of(lives, due)
                due, lives = [], []
                wanted = 1 if known is not None else self._least_due(row, first)
                if not (yield from self._filled(wanted, row)):
                    continue
                known = keys.get(key)
            noted = self._noted(known, row)
            if body:
                due.append(row)
                lives.append(noted)
        yield self._events_of(lives, due)
        if rows:
            self._pass(rows[-1])

    def _events_of(self, lives: Sequence[Life], rows: Sequence[Any]) -> Iterator[TaggedEvent]:
        """Events of rows, each made when it is asked for: few live at a time, which the garbage collector likes."""
        return map(TaggedEvent, repeat(self._source.of), lives, rows)

    def _is_first(self, known: KnownKey | None, row: Any, met_before: set[Place]) -> bool:
        """Whether the row before this one of a new key need not have come."""
        link = (row[6], row[3], row[7])
        return known is None and (link <= self._first or link in met_before)

    def _met_before(self, rows: Sequence[Any], unknown: Sequence[str]) -> set[Place]:
        """Links of keys that may have been forgotten which have a row: it was handed out, then. One look a page."""
        first = {row[3]: row for row in reversed(rows)}
        links = [(first[key][6], key, first[key][7]) for key in unknown if first[key][5] != 1]
        links = [link for link in links if link > self._first]
        return self._ask(lambda: self._source.there(links)) if links else set()

    def _least_due(self, held: Any, first: Place) -> int:
        """The least number of a key, not met before, that lies after the start."""
        _, _, _, key, life, number, *_ = held
        size = self._settings.page_size
        last = number - 1
        while last >= 1:
            least = max(1, last - size + 1)
            rows = self._ask(lambda: self._source.numbered(key, life, least, last, size))  # noqa: B023
            before = [row[5] for row in rows if place_of(row) <= first]
            if before:
                return max(before) + 1  # type: ignore[no-any-return]
            last = least - 1
        return 1

    def _filled(self, wanted: int, held: Any) -> Generator[list[TaggedEvent], None, bool]:
        """Hand out the numbers from `wanted` up to the row that is held back; False if its life has ended."""
        _, _, _, key, life, number, *_ = held
        source, settings, pace = self._source, self._settings, self._pace
        end_s = pace.now_s() + settings.gap_timeout_s
        while True:
            self.searches += 1
            if self._ask(lambda: source.ended(key, life)):
                return False
            found = self._ask(lambda: source.numbered(key, life, wanted, number - 1, settings.page_size))  # noqa: B023
            rows, broken = self._whole(found)
            due = []
            for row in rows:
                if row[5] != wanted:
                    break
                self.strandline_violations += 1
                event = self._taken(self._keys.get(key), row)
                wanted += 1
                if event is not None:
                    due.append(event)
            if wanted > (rows[0][5] if rows else wanted):
                _log.error(
                    "tag %r: rows of %s up to number %d were not there when the strandline had passed them",
                    source.of.tag, key, wanted - 1,
                )  # fmt: skip
                end_s = pace.now_s() + settings.gap_timeout_s
                yield due
            if broken is not None:
                raise broken
            if wanted == number:
                return True
            if rows and rows[0][5] < wanted:
                continue  # there may be more of them
            if pace.now_s() >= end_s:
                missing = number - wanted - self._ask(lambda: self._count(key, life, wanted, number - 1))  # noqa: B023
                holes = {key: (life, wanted, number - 1, missing)}
                last_known = self._last_known(self._keys.get(key))
                raise self._missing(holes, last_known, held, (wanted, number - 1))
            pace.pause(min(settings.refresh_interval_s, max(0.0, end_s - pace.now_s())))

    def _count(self, key: str, life: int, first: int, last: int) -> int:
        """How many of these numbers have a row."""
        size, count = self._settings.page_size, 0
        for least in range(first, last + 1, size):
            count += len(self._source.numbered(key, life, least, min(last, least + size - 1), size))
        return count
