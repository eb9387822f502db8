"""Events by tag: all events with one tag, of all keys, in the order of their places.

A key's rows are numbered, and each links to the one before it. So the same table decides as for slices
(`acceptance`), by these numbers, with one less as the number of the event before:

    the key is known at (L, n)   row (L, n + 1)                         hand out
                                 (L, up to n)                           a repeat: drop
                                 (L, above n + 1)                       a hole
                                 (higher, 1); (higher, another)         hand out; a hole from 1 on
                                 (lower, any)                           drop: purged
    unknown                      number 1; link before the start        hand out
                                 link up to the line, and its row there hand out: the key was forgotten
                                 otherwise                              a hole, from the line on

The line is where the query began; once it has forgotten a key, how far it has read. Under the strandline no row can
come late, so a hole is a broken promise. The query looks up the missing rows by key for a while, then stops. It never
skips a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

from strandline.errors import Corrupt, MissingEvent, shown
from strandline.points import reached
from strandline.query.acceptance import Acceptance, Candidate, Last, StoreFacts, judge
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
    """The base of the queries with and without the strandline: places, the memory of keys, the errors."""

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
        self._line = self._first
        """Rows of unknown keys up to here were handed out, or lie before the start."""
        self._passed: Any = None
        """The last row that the consumer is past, handed out or not."""
        self.repeats = 0
        """The number of rows that came again."""
        self.searches = 0
        """How often missing rows were looked for."""
        self.strandline_violations = 0
        """The number of rows that were missing although the strandline had passed them."""

    @property
    def resume_offset(self) -> TagOffset | None:
        """The offset to resume at: all events that were not handed out yet are strictly after it.
        It never goes back.
        """
        last = self._last._row if self._last is not None else None
        if self._passed is not None and (last is None or place_of(last) < place_of(self._passed)):
            last = self._passed
        return self._start if last is None else TagOffset.of_row(self._source.of, last)

    def _pass(self, row: Any) -> None:
        if self._passed is None or place_of(self._passed) < place_of(row):
            self._passed = row

    def _corrupt(self, row: Any, before: TagOffset | None) -> Corrupt:
        """Return the error for a damaged row, with the offset to resume at once the row is mended.

        `before` is the offset behind the rows read before it. The row may stand at a wrong time: once mended it comes
        behind the last event of its key.
        """
        tag, known = self._source.of.tag, self._keys.get(row[3])
        if known is not None and before is not None:
            last = self._last_known(known)
            before = None if last is None else min(before, last)
        return Corrupt(
            f"tag {shown(tag)!r}: the row of {shown(row[3])} {shown(row[9])} is not what was written",
            code="tag_row",
            hint="`strandline pipeline rebuild --tag` mends it; then resume",
            tag=tag,
            key=row[3],
            seq_nr=row[9],
            last_known_offset=before,
        )

    def _taken(self, known: KnownKey | None, row: Any) -> TaggedEvent | None:
        """Note that a row is done and return its event; None for a filler, which stands for an
        event that was skipped.
        """
        life = self._noted(known, row)
        return TaggedEvent(self._source.of, life, row) if row[11] else None

    def _noted(self, known: KnownKey | None, row: Any) -> Life:
        """Note that a row is done; return its life."""
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
        """Return the error for holes: of each key its life, the first and the last number, and how many are missing."""
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
            broken = first_broken(page)
            yield from self._judged(page if broken is None else page[:broken])
            if broken is not None:
                raise self._corrupt(page[broken], self.resume_offset)

    def _judged(self, rows: Sequence[Any]) -> Iterator[Iterable[TaggedEvent]]:
        met_before = self._held(rows)
        due: list[Any] = []
        lives: list[Life] = []
        young, known, last_key = self._keys.young, None, ""
        for row in rows:
            _, _, timestamp, key, life, number, _, _, _, seq_nr, _, body, _ = row
            if key != last_key:  # events of one append follow each other
                known, last_key = young.get(key), key
            if known is not None and number == known.number + 1 and known.life.number == life:
                # Most rows. `_taken` in place: the call would take as long as the rest.
                known.number, known.timestamp, known.seq_nr = number, timestamp, seq_nr
                if body:
                    due.append(row)
                    lives.append(known.life)
                continue
            known, last_key = young.get(key), ""
            verdict = self._verdict(known, row, met_before)
            if verdict is Acceptance.DUPLICATE:
                self.repeats += known is not None and life == known.life.number
                continue
            if verdict is Acceptance.REJECTED:
                yield self._events_of(lives, due)
                due, lives = [], []
                if not (yield from self._filled(self._wanted(known, row), row)):
                    continue
                known = young.get(key)
            noted = self._noted(known, row)
            if body:
                due.append(row)
                lives.append(noted)
        yield self._events_of(lives, due)
        if rows:
            self._pass(rows[-1])

    def _events_of(self, lives: Sequence[Life], rows: Sequence[Any]) -> Iterator[TaggedEvent]:
        """Return the events of rows. Each is made when it is asked for, so that few live at a time and the garbage
        collector has little to do.
        """
        return map(TaggedEvent, repeat(self._source.of), lives, rows)

    def _held(self, rows: Sequence[Any]) -> set[Place]:
        """Keep the keys of a page in memory. For keys that may have been forgotten, return the places of those previous
        rows that the store has: these rows were handed out. One query to the store a page.
        """
        keys, first = self._keys, self._first
        unknown = keys.hold([row[3] for row in rows])
        if not keys.forgot:
            return set()
        self._line = line = first if self._passed is None else max(first, place_of(self._passed))
        begin = {row[3]: row for row in reversed(rows)}
        links = [_link_of(begin[key]) for key in unknown if begin[key][5] != 1]
        links = [link for link in links if first < link <= line]
        if links:
            reached("tag.key_forgotten")
        return self._ask(lambda: self._source.there(links)) if links else set()

    def _verdict(self, known: KnownKey | None, row: Any, met_before: set[Place]) -> Acceptance:
        """Return the table's answer for a row. Only `_filled`, where a row is missing, asks whether
        the life has ended.
        """
        life, number = row[4], row[5]
        event = Candidate(life, number, number - 1, place_of(row))
        last = None if known is None else Last(known.life.number, known.number)
        verdict = judge(event, last, line=self._line)
        if verdict is Acceptance.LOOK:
            link = _link_of(row)
            before = link if link <= self._first or link in met_before else None
            verdict = judge(event, last, line=self._line, facts=StoreFacts(life, before=before))
        return verdict

    def _wanted(self, known: KnownKey | None, held: Any) -> int:
        """Return the number that is due for a key instead of the row that is held back. A forgotten key becomes known
        again.
        """
        _, _, _, key, life, number, *_ = held
        if known is not None and known.life.number == life:
            return known.number + 1
        done = self._last_done(key, life, number - 1, self._line if known is None else self._first)
        if done is None:
            return 1
        if place_of(done) > self._first:
            self._noted(None, done)
        return done[5] + 1  # type: ignore[no-any-return]

    def _last_done(self, key: str, life: int, last: int, line: Place) -> Any:
        """Return the row of a key with the greatest number up to one that lies at or before a line; None if there is
        none."""
        size = self._settings.page_size
        while last >= 1:
            least = max(1, last - size + 1)
            rows = self._ask(lambda: self._source.numbered(key, life, least, last, size))  # noqa: B023
            for row in reversed(rows):
                if place_of(row) <= line and first_broken([row]) is None:
                    return row
            last = least - 1
        return None

    def _filled(self, wanted: int, held: Any) -> Generator[list[TaggedEvent], None, bool]:
        """Yield the events from number `wanted` up to the row that is held back; return False if its life has ended."""
        _, _, _, key, life, number, *_ = held
        source, settings, pace = self._source, self._settings, self._pace
        end_s = pace.now_s() + settings.gap_timeout_s
        while True:
            self.searches += 1
            if self._ask(lambda: source.ended(key, life)):
                reached("tag.life_ended_before_a_hole")
                return False
            found = self._ask(lambda: source.numbered(key, life, wanted, number - 1, settings.page_size))  # noqa: B023
            broken = first_broken(found)
            rows = found if broken is None else found[:broken]
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
                raise self._corrupt(found[broken], self._last_known(self._keys.get(key)))
            if wanted == number:
                return True
            if rows and rows[0][5] < wanted:
                continue  # the store may have more rows of the hole
            if pace.now_s() >= end_s:
                missing = number - wanted - self._ask(lambda: self._count(key, life, wanted, number - 1))  # noqa: B023
                holes = {key: (life, wanted, number - 1, missing)}
                last_known = self._last_known(self._keys.get(key))
                reached("tag.hole_that_stays")
                raise self._missing(holes, last_known, held, (wanted, number - 1))
            pace.pause(min(settings.refresh_interval_s, max(0.0, end_s - pace.now_s())))

    def _count(self, key: str, life: int, first: int, last: int) -> int:
        """Return how many of these numbers have a row."""
        size, count = self._settings.page_size, 0
        for least in range(first, last + 1, size):
            count += len(self._source.numbered(key, life, least, min(last, least + size - 1), size))
        return count


def _link_of(row: Any) -> Place:
    """Return the place of the row with the next lower number, to which this row links."""
    return row[6], row[3], row[7]
