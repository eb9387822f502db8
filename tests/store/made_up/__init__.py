"""A made-up view, as somebody else would add it: two tables, their statements and steps, and no edit in any store.

made_day     every event by the day of its timestamp; a delete takes its rows
made_total   how many events a life ever had, numbered on from what was looked up; only a purge takes it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from strandline.fold import LifePurged, segment_of
from strandline.rows import KeyRun
from strandline.store.scans import Scan
from strandline.store.tables import JOURNAL, Table, columns_of
from strandline.store.views import Row, Rows, Span, View
from strandline.values.events import EventRow
from strandline.values.heads import Head

DAY_US: Final = 86_400_000_000


class DayRow(NamedTuple):
    """An event by its day."""

    day: int
    timestamp: int
    key: str
    seq_nr: int
    life: int
    note: str | None


class TotalRow(NamedTuple):
    """What was counted of a life, up to an event."""

    key: str
    life: int
    events: int
    seq_nr: int
    timestamp: int


MADE_DAY: Final = Table(
    "made_day", DayRow._make,
    columns_of("day bigint, timestamp bigint, key text, seq_nr bigint, life bigint, note text null"),
    place=("day", "timestamp", "key", "seq_nr"), partitioned_by=1, taken_by="delete", phase="views", package=__name__,
)  # fmt: skip
MADE_TOTAL: Final = Table(
    "made_total", TotalRow._make,
    columns_of("key text, life bigint, events bigint, seq_nr bigint, timestamp bigint"),
    place=("key", "life"), partitioned_by=2, taken_by="purge", phase="progress", looked_up=True, package=__name__,
)  # fmt: skip
OF_DAY: Final = Scan("made_of_day", MADE_DAY, ("day",), ("timestamp", "key", "seq_nr"))
TOTAL_OF: Final = Scan("made_total_of", MADE_TOTAL, ("key", "life"), ())


def _rows(cut: KeyRun) -> Rows:
    found = [TotalRow(*row) for row in cut.view_rows.get(MADE_TOTAL, ())]
    total = found[0] if found else None
    for event in cut.events:
        if total is None or total.life != event.life:
            total = TotalRow(event.key, event.life, 0, 0, 0)
        if event.seq_nr > total.seq_nr:
            total = total._replace(events=total.events + 1, seq_nr=event.seq_nr, timestamp=event.timestamp)
    counted: list[Row] = [total] if total is not None and cut.events else []
    return {**_days(cut.events), MADE_TOTAL: counted}


def _days(events: Sequence[EventRow]) -> Rows:
    rows: list[Row] = [
        DayRow(event.timestamp // DAY_US, event.timestamp, event.key, event.seq_nr, event.life,
               "even" if event.seq_nr % 2 == 0 else None)
        for event in events
    ]  # fmt: skip
    return {MADE_DAY: rows}


def _asks(cut: KeyRun) -> Iterator[Span]:
    if cut.ended_by is None or not isinstance(cut.before, Head):
        return
    size, first, last = cut.before.segment_size, cut.before.removed_to + 1, cut.ended_by.to
    for segment in range(segment_of(first, size), segment_of(max(last, first), size) + 1):
        yield Span(JOURNAL, (cut.key, cut.ended_by.life, segment), (first,), (last,))


def _gone(cut: KeyRun, found: Mapping[Span, Sequence[Row]]) -> Iterator[Span]:
    timestamp, seq_nr = JOURNAL.at("timestamp"), JOURNAL.at("seq_nr")
    for span in _asks(cut):
        for row in found[span]:
            within: tuple[Any, ...] = (row[timestamp], cut.key, row[seq_nr])
            yield Span(MADE_DAY, (row[timestamp] // DAY_US,), within, within)
    if isinstance(cut.ended_by, LifePurged):
        yield Span(MADE_TOTAL, (cut.key, cut.ended_by.life))


MADE_UP: Final = View("made up", (MADE_DAY, MADE_TOTAL), _rows, _asks, _gone, _days, follows=lambda event: True)
