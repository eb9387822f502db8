"""Views: pure functions that make the rows of a store's tables from what the fold made of a key.

A view is handed *cuts*: a run of a key's appends that a delete or purge may end, with what was looked up for the key
before it (rows of tables that declare `looked_up`, as the cuts before left them). It says

    rows      which rows the cut makes, by table; also those of events that the cut itself, or a later one of the same
              batch, takes away: a table that a delete does not take keeps them
    asks      for a removal, where to look: stretches of tables whose rows tell where the view's own stand
    gone      from what was found there: the stretches that go
    mirrors   rows that have no more to say than an event's own: a correction writes them anew, or removes them, with it

SQL stores need `rows` alone: `delete_TABLE` and `purge_TABLE` take the others. Stores that find rows by partition keys
run `phases`. The journal's own tables are one more view, and the only one here that stores know by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from strandline.fold import LifePurged, segment_of
from strandline.rows import KeyRun, PartitionBatch
from strandline.store.tables import (
    ENTITY_TYPE,
    JOURNAL,
    PACKAGE,
    QUARANTINE,
    REPAIRED,
    SLICE_BUCKET,
    SLICE_VIEW,
    SNAPSHOT,
    SliceRow,
    Table,
)
from strandline.values.actions import EventHeader
from strandline.values.events import EventRow
from strandline.values.heads import Head
from strandline.values.tuples import new_tuple

Row = Sequence[Any]
Rows = dict[Table, list[Row]]
ViewRows = Mapping[Table, Sequence[Row]]
"""What was looked up for a key: rows by table."""
MINUTE_US: Final = 60_000_000


class Span(NamedTuple):
    """A stretch of a partition of a table: from `first` to `last`, both of them places in it; all of it without."""

    table: Table
    partition: tuple[Any, ...]
    first: tuple[Any, ...] = ()
    last: tuple[Any, ...] = ()

    @classmethod
    def of(cls, table: Table, row: Row) -> Span:
        """Return the place of one row."""
        within = table.within(row)
        return cls(table, table.partition_of(row), within, within)


def _nothing(*_: object) -> Iterable[Any]:
    return ()


def _no_rows(_: KeyRun) -> Rows:
    return {}


def _no_mirrors(_: Sequence[EventRow]) -> Rows:
    return {}


def _never(_: EventHeader) -> bool:
    return False


class View(NamedTuple):
    """A view: its tables, and the functions that say what a cut changes in them."""

    name: str
    tables: tuple[Table, ...]
    rows: Callable[[KeyRun], Rows] = _no_rows
    asks: Callable[[KeyRun], Iterable[Span]] = _nothing
    gone: Callable[[KeyRun, Mapping[Span, Sequence[Row]]], Iterable[Span]] = _nothing
    mirrors: Callable[[Sequence[EventRow]], Rows] = _no_mirrors
    follows: Callable[[EventHeader], bool] = _never
    """Whether an event of this type and these tags wants what is looked up for its key."""


# ---------------------------------------------------------------- the journal's own tables


def _spans(cut: KeyRun) -> Iterator[Span]:
    """Yield the stretches of events to remove, by segment. Nothing is left below the head's `removed_to`."""
    if cut.ended_by is None or not isinstance(cut.before, Head):
        return
    size, first, last = cut.before.segment_size, cut.before.removed_to + 1, cut.ended_by.to
    for segment in range(segment_of(first, size), segment_of(last, size) + 1) if first <= last else ():
        yield Span(JOURNAL, (cut.key, cut.ended_by.life, segment), (first,), (last,))


def _listed(cut: KeyRun) -> Iterator[Span]:
    if isinstance(cut.ended_by, LifePurged) and cut.state is not None:
        yield Span(QUARANTINE, (cut.state.partition,))


def _journal_gone(cut: KeyRun, found: Mapping[Span, Sequence[Row]]) -> Iterator[Span]:
    if not isinstance(cut.ended_by, LifePurged):
        yield from _spans(cut)
        return
    life = (cut.key, cut.ended_by.life)
    for span in _spans(cut):
        yield span._replace(first=(), last=())
    yield Span(SNAPSHOT, life)
    key, number = QUARANTINE.at("key"), QUARANTINE.at("life")
    for span in _listed(cut):
        for row in found[span]:
            if (row[key], row[number]) == life:
                yield Span.of(QUARANTINE, row)


JOURNAL_ITSELF: Final = View("journal", (JOURNAL, SNAPSHOT, QUARANTINE), asks=_listed, gone=_journal_gone)


# ---------------------------------------------------------------- what was put back


def _put_back(cut: KeyRun) -> Iterator[Span]:
    if isinstance(cut.ended_by, LifePurged) and cut.state is not None:
        yield Span(REPAIRED, (cut.state.partition,))


def _put_back_gone(cut: KeyRun, found: Mapping[Span, Sequence[Row]]) -> Iterator[Span]:
    key, life = REPAIRED.at("key"), REPAIRED.at("life")
    for span in _put_back(cut):
        for row in found[span]:
            if cut.ended_by is not None and (row[key], row[life]) == (cut.key, cut.ended_by.life):
                yield Span.of(REPAIRED, row)


REPAIRS: Final = View("repairs", (REPAIRED,), asks=_put_back, gone=_put_back_gone)


# ---------------------------------------------------------------- events by slices


def _slice_rows(cut: KeyRun) -> Rows:
    if cut.state is None or not (cut.events or isinstance(cut.state, Head)):
        return {}
    rows = _slice_mirrors(cut.events)
    buckets = dict.fromkeys(map(SLICE_VIEW.partition_of, rows[SLICE_VIEW]))
    known: list[Row] = [(cut.state.partition, cut.key.partition("|")[0])]
    return {ENTITY_TYPE: known, SLICE_BUCKET: [*buckets], **rows}


def _slice_mirrors(events: Sequence[EventRow]) -> Rows:
    rows: list[Row] = []
    for key, life, _, seq_nr, prev, entity_type, _, partition, timestamp, body, digest in events:
        row = entity_type, partition, timestamp // MINUTE_US, timestamp, seq_nr, key, life, prev, body, digest
        rows.append(new_tuple(SliceRow, row))
    return {SLICE_VIEW: rows}


def _slice_gone(cut: KeyRun, found: Mapping[Span, Sequence[Row]]) -> Iterator[Span]:
    """Yield the rows of the slice view to remove. The journal's rows tell where they are."""
    entity_type, partition = cut.key.partition("|")[0], cut.state.partition if cut.state is not None else 0
    seq_nr, timestamp = JOURNAL.at("seq_nr"), JOURNAL.at("timestamp")
    for span in _spans(cut):
        for row in found[span]:
            within = row[timestamp], row[seq_nr], cut.key
            yield Span(SLICE_VIEW, (entity_type, partition, row[timestamp] // MINUTE_US), within, within)


SLICES: Final = View(
    "slices", (SLICE_VIEW, SLICE_BUCKET, ENTITY_TYPE), _slice_rows, _spans, _slice_gone, _slice_mirrors
)


# ---------------------------------------------------------------- what a store keeps


def kept(views: Sequence[View], *, partitioned: bool) -> tuple[View, ...]:
    """Return the views that a store keeps, each with those of its tables that it has."""
    found = []
    for view in views:
        tables = tuple(table for table in view.tables if partitioned or not table.partitioned_only)
        if tables:
            found.append(view._replace(tables=tables))
    return tuple(found)


def packages_of(views: Sequence[View]) -> tuple[str, ...]:
    """Return the packages whose steps and statements their tables have, beside the store's own."""
    packages = [table.package for view in views for table in view.tables if table.package != PACKAGE]
    return tuple(dict.fromkeys(packages))


def add_rows(batch: PartitionBatch, views: Sequence[View], view_rows: Mapping[str, ViewRows]) -> None:
    """Add to the cuts of a batch the rows that views make of them. Each cut updates the looked-up rows of its key."""
    if not views:
        return
    making = [view for view in views if view.rows is not _no_rows]
    now: dict[str, ViewRows] = dict(view_rows)
    once = len({cut.key for cut in batch.cuts}) == len(batch.cuts)  # then nothing follows
    for cut in batch.cuts:
        cut.view_rows = now.get(cut.key, {})
        for view in making:
            made = view.rows(cut)
            if made:
                cut.rows.update({table: rows for table, rows in made.items() if table in view.tables})
        if once:
            continue
        after = {table: rows for table, rows in cut.rows.items() if table.looked_up}
        if isinstance(cut.ended_by, LifePurged):
            now.pop(cut.key, None)
        elif after:
            now[cut.key] = _followed(cut.view_rows, after)


def mirrored(views: Sequence[View], events: Sequence[EventRow]) -> Rows:
    """Return rows of views that go with events in a correction."""
    return {table: rows for view in views for table, rows in view.mirrors(events).items() if table in view.tables}


def _followed(before: ViewRows, rows: Mapping[Table, Sequence[Row]]) -> dict[Table, list[Row]]:
    """Return the looked-up rows after a cut: new rows replace those before."""
    found = {table: {table.place_of(row): row for row in given} for table, given in before.items()}
    for table, given in rows.items():
        found.setdefault(table, {}).update({table.place_of(row): row for row in given})
    return {table: list(by_place.values()) for table, by_place in found.items()}
