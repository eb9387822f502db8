"""A tag view in memory that plays a schedule: rows come when their time is there, and a pause lets time pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from strandline.errors import StrandlineError, Unavailable
from strandline.query.by_tag import StrandlineTagFeed, TagFeed
from strandline.query.feed import FeedPage, Pace, QueryClosed
from strandline.query.tag_offset import TagOffset, TagView, place_of
from strandline.query.tag_search import SearchingTagFeed
from strandline.query.tag_settings import TagSettings
from strandline.values.buckets import LENGTHS_US
from strandline.values.events import Life, bodies
from strandline.values.tag_rows import Place, TagRow, resealed

VIEW = TagView("blue", "a history")
MINUTE = LENGTHS_US["minute"]
T0 = 1_800_000_000_000_000 // MINUTE * MINUTE
"""The start of a minute."""
SECOND = 1_000_000


def row_of(
    key: str, number: int, timestamp: int, *, life: int = 1, link: tuple[int, int] | None = None, seq_nr: int = 0
) -> TagRow:
    """A row; its seq_nr is ten times its number unless another is given, its link is given or none."""
    seq_nr = seq_nr or 10 * number
    ((_, prev, body, digest),) = bodies(
        seq_nr, seq_nr - 1, (0, 0, timestamp), bytes(16), None, [(("T", (VIEW.tag,)), (1, b"%d" % number, None))],
        Life(key, life).seed,
    )  # fmt: skip
    linked_at, linked_nr = link or (0, 0)
    row = TagRow(
        VIEW.tag, timestamp // MINUTE, timestamp, key, life, number, linked_at, linked_nr, 0, seq_nr, prev, body, digest
    )
    return resealed(row)


def linked(rows: Iterable[TagRow]) -> list[TagRow]:
    """The same rows, each linked to the one before it of its key and life."""
    made, last = [], dict[tuple[str, int], TagRow]()
    for row in sorted(rows, key=place_of):
        before = last.get((row.key, row.life))
        link = (0, 0) if before is None else (before.timestamp, before.seq_nr)
        last[row.key, row.life] = row
        made.append(resealed(row._replace(previous_timestamp=link[0], previous_seq_nr=link[1])))
    return made


class Play(Pace):
    """The time of a play, in seconds from 0, and what happens when."""

    def __init__(self, end_s: float = 3600.0) -> None:
        super().__init__()
        self.time_s = 0.0
        self.pauses = 0
        self._end_s = end_s
        self._acts: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Do this then."""
        self._acts.append((time_s, len(self._acts), act))
        self._acts.sort()

    def now_s(self) -> float:
        return self.time_s

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.time_s += seconds
        while self._acts and self._acts[0][0] <= self.time_s:
            self._acts.pop(0)[2]()
        if self.ended or self.time_s > self._end_s:
            raise QueryClosed


class PlayedView:
    """Rows that are there, by place."""

    of = VIEW
    bucket_us = MINUTE

    def __init__(self, rows: Iterable[TagRow] = (), play: Play | None = None) -> None:
        self.play = play or Play()
        self.rows = {place_of(row): row for row in rows}
        self.bound = T0 + 10**12
        self.clock_starts = T0
        self.ended_lives: set[tuple[str, int]] = set()
        self.pages = self.looks = self.looked_there = 0
        self.away = 0
        """So many of the next reads fail."""

    def add(self, *rows: TagRow) -> None:
        self.rows.update({place_of(row): row for row in rows})

    def take(self, row: TagRow) -> None:
        del self.rows[place_of(row)]

    def page(self, after: Place, to: int, limit: int) -> FeedPage:
        if self.away:
            self.away -= 1
            raise Unavailable("away", code="away")
        self.pages += 1
        found = sorted(row for place, row in self.rows.items() if place > after and place[0] <= to)
        found.sort(key=place_of)
        return FeedPage(found[:limit], len(found) > limit)

    def numbered(self, key: str, life: int, first: int, last: int, limit: int) -> Sequence[Any]:
        self.looks += 1
        mine = [row for row in self.rows.values() if (row.key, row.life) == (key, life)]
        return sorted([row for row in mine if first <= row.tag_seq_nr <= last], key=lambda row: row.tag_seq_nr)[:limit]

    def there(self, places: Sequence[Place]) -> set[Place]:
        self.looked_there += 1
        return {place for place in places if place in self.rows}

    def ended(self, key: str, life: int) -> bool:
        return (key, life) in self.ended_lives

    def strandline(self) -> int:
        return self.bound

    def strandline_within(self, age_s: float) -> int:
        return self.bound

    def now(self) -> int:
        return self.clock_starts + round(self.play.time_s * SECOND)


def feed(view: PlayedView, *, start: TagOffset | None = None, **more: Any) -> TagFeed:
    """A query of a view, with or without the strandline."""
    names = ("to", "live", "seen")
    given = {name: more.pop(name) for name in names if name in more}
    settings = TagSettings.of(more)
    kind = StrandlineTagFeed if settings.use_strandline else SearchingTagFeed
    return kind(view, settings, start=start, pace=view.play, **given)


def shown(events: Iterable[Any]) -> list[str]:
    """`A1` for number 1 of key `k|A`."""
    return [f"{event.key.entity_id}{event.tag_seq_nr}" for event in events]


def until_error(events: Iterable[Any]) -> tuple[list[str], StrandlineError]:
    """What comes before the error that ends a query, and the error."""
    got: list[Any] = []
    with pytest.raises(StrandlineError) as caught:
        got.extend(events)
    return shown(got), caught.value


def from_time(timestamp: int) -> TagOffset:
    return TagOffset.before(VIEW, timestamp)


def offset_of(row: TagRow) -> TagOffset:
    return TagOffset.of_row(VIEW, row)
