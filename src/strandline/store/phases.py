"""The order in which a batch is written without transactions, for every store that has none.

    batch     quarantine → rounds → pointer (the store's own)
    round     the next cut of every key; a key's cuts are finished one after the other, keys do not wait for each other
    appends   events → views → progress → heads
    deletes   heads of the appends before → hide → views → events → progress → heads
    purges    heads of the appends before → `ended`, which hides all → views → events, snapshots, quarantine → progress
              → head rows
    archived  rows of the slice view → events
    amend     events anew → what is listed → rows of views anew, phase by phase → head → rows of views out → events out,
              the last first, each with its rows in views before it → off the list

Each arrow waits until all before it is acknowledged: that is a *step*. Every row is written with its action's
timestamp, so a repeat is the same write, and a late write from a process that lost the lease undoes nothing. A purge
removes everything for always, except the head row. The head of the appends before a removal is always written first:
hiding 6 while the head is at 5 would number the next event 7, and a purge that was killed half-way is known by its head
row. A damaged append that its head has passed is not met again, so it is listed before any head moves. `reliability.md`
3.2 says what must hold after a crash between any two writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NamedTuple

from strandline.fold import EventsDeleted, LifePurged
from strandline.points import reached
from strandline.rows import KeyRun, PartitionBatch, Pointer
from strandline.store.archive import ArchivedPlace
from strandline.store.correction import Correction
from strandline.store.heads import ended_row, head_row, key_place
from strandline.store.tables import ENDED, JOURNAL, METAJOURNAL, QUARANTINE, REMOVED, SLICE_VIEW, WRITTEN, Table
from strandline.store.views import JOURNAL_ITSELF, MINUTE_US, Row, Rows, Span, View, mirrored
from strandline.values.heads import EndedLife, Head

ALWAYS: Final = 2**62
"""A write timestamp above any clock's: what is removed with it does not come back."""


class Put(NamedTuple):
    """Rows of a table to write, with the timestamps of their actions unless `timestamp` is given."""

    table: Table
    rows: Sequence[Row]
    timestamp: int | None = None


class Remove(NamedTuple):
    """Removes from a stretch of a table what was written there up to this timestamp."""

    span: Span
    timestamp: int


class Hide(NamedTuple):
    """Writes into a head that events up to this number are deleted, and changes nothing else of it."""

    key: str
    to: int
    timestamp: int


Write = Put | Remove | Hide


class WritePhase(NamedTuple):
    """Requests that may be sent at the same time: writes, or `asks`, whose rows the following steps need."""

    writes: Sequence[Write] = ()
    asks: Sequence[Span] = ()


SpanRows = Mapping[Span, Sequence[Row]]
Steps = Generator[WritePhase, SpanRows, None]


def run(steps: Steps, write: Callable[[Sequence[Write]], None], find: Callable[[Sequence[Span]], SpanRows]) -> None:
    """Do one step after the other. `write` returns when all of its writes are acknowledged."""
    found: SpanRows = {}
    try:
        step = next(steps)
        while True:
            if step.asks:
                found = find(step.asks)
            else:
                write(step.writes)
            step = steps.send(found)
    except StopIteration:
        pass


# ---------------------------------------------------------------- a batch


def written(batch: PartitionBatch, views: Sequence[View]) -> Steps:
    """Yield the steps that write a batch, all but its pointer."""
    yield from _put({QUARANTINE: batch.quarantine})
    for round_ in _rounds(batch.cuts):
        rows: Rows = {JOURNAL: [row for cut in round_ for row in cut.events]}
        for cut in round_:
            for table, made in cut.rows.items():
                rows.setdefault(table, []).extend(made)
        for phase in ("events", "views", "progress"):
            yield from _put({table: some for table, some in rows.items() if table.phase == phase})
        yield from _put({METAJOURNAL: [_head(cut.key, cut.state) for cut in round_ if _only_appends(cut)]})
        removals = [cut for cut in round_ if cut.ended_by is not None]
        if removals:
            yield from _removed(removals, (JOURNAL_ITSELF, *views))


def _rounds(cuts: Sequence[KeyRun]) -> list[list[KeyRun]]:
    rounds: list[list[KeyRun]] = []
    met: defaultdict[str, int] = defaultdict(int)
    for cut in cuts:
        nr = met[cut.key]
        met[cut.key] += 1
        if nr == len(rounds):
            if nr:
                reached("phases.key_removed_twice_at_once")
            rounds.append([])
        rounds[nr].append(cut)
    return rounds


def _only_appends(cut: KeyRun) -> bool:
    return cut.ended_by is None and isinstance(cut.state, Head)


def _head(key: str, state: object) -> Row:
    if not isinstance(state, Head):
        raise TypeError(state)
    return head_row(key, state)


def _put(rows: Mapping[Table, Sequence[Row]], timestamp: int | None = None) -> Steps:
    """Yield a step that writes rows. Rows that never change are written once each."""
    writes = [
        Put(table, some if table.time is not None else sorted(set(map(tuple, some))), timestamp)
        for table, some in rows.items()
        if some
    ]
    if writes:
        yield WritePhase(writes)


def _removed(cuts: Sequence[KeyRun], views: Sequence[View]) -> Steps:
    if any(cut.events for cut in cuts):
        reached("phases.appended_and_removed_at_once")
    yield from _put({METAJOURNAL: [_head(cut.key, cut.before) for cut in cuts if cut.events and _had_head(cut)]})
    yield WritePhase([_hiding(cut) for cut in cuts])
    asks = list(dict.fromkeys([span for cut in cuts for view in views if _taken(cut, view) for span in view.asks(cut)]))
    found = (yield WritePhase(asks=asks)) if asks else {}
    gone: defaultdict[str, list[Remove]] = defaultdict(list)
    for cut in cuts:
        at = ALWAYS if isinstance(cut.ended_by, LifePurged) else cut.timestamp
        for view in views:
            tables = _taken(cut, view)
            for span in view.gone(cut, found) if tables else ():
                if span.table in tables:
                    gone[span.table.phase].append(Remove(span, at))
    for phases in REMOVED:
        if removals := [removal for phase in phases for removal in gone[phase]]:
            yield WritePhase(removals)
    deleted = [cut for cut in cuts if isinstance(cut.ended_by, EventsDeleted) and isinstance(cut.state, Head)]
    yield from _put({METAJOURNAL: [_head(cut.key, cut.state) for cut in deleted]})
    # The head row is not removed for always: the next life has its head in the same place.
    purged = [Remove(_head_place(cut.key), cut.timestamp) for cut in cuts if isinstance(cut.ended_by, LifePurged)]
    if purged:
        yield WritePhase(purged)


def _had_head(cut: KeyRun) -> bool:
    return isinstance(cut.before, Head)


def _taken(cut: KeyRun, view: View) -> list[Table]:
    """Return the tables of a view whose rows this removal removes."""
    purge = isinstance(cut.ended_by, LifePurged)
    return [table for table in view.tables if table.taken_by == "delete" or (purge and table.taken_by == "purge")]


def _hiding(cut: KeyRun) -> Write:
    if isinstance(cut.state, EndedLife):
        return Put(ENDED, [ended_row(cut.key, cut.state)], cut.timestamp)
    if not isinstance(cut.state, Head):
        raise TypeError(cut.state)
    return Hide(cut.key, cut.state.delete_to, cut.timestamp)


def _head_place(key: str) -> Span:
    place = key_place(key)
    return Span(METAJOURNAL, place[:2], place[2:], place[2:])


# ---------------------------------------------------------------- a correction


def amended(views: Sequence[View], marked: Pointer, correction: Correction) -> Steps:
    """Yield the steps of a correction, with the timestamp of the Mark that the pointer stands at.

    An operator's correction that is killed in between is found again in the quarantine, by partition and offset.
    """
    resolved, remove, replace, head, anew, gone = correction
    timestamp = marked.timestamp
    yield from _put({JOURNAL: replace}, timestamp)
    rows: Mapping[Table, Sequence[Row]] = {**mirrored(views, replace), **anew}
    for phase in ("own", *WRITTEN):
        yield from _put({table: some for table, some in rows.items() if table.phase == phase}, timestamp)
    if head is not None:
        yield from _put({METAJOURNAL: [head_row(*head)]}, timestamp)
    if out := [Remove(Span.of(table, row), timestamp) for table, some in gone.items() for row in some]:
        yield WritePhase(out)
    for row in sorted(remove, key=lambda row: -row.seq_nr):
        mirrors = mirrored(views, [row])
        if out := [Remove(Span.of(table, some), timestamp) for table in mirrors for some in mirrors[table]]:
            yield WritePhase(out)
        yield WritePhase([Remove(Span.of(JOURNAL, row), timestamp)])
    if resolved is not None:
        yield WritePhase([Remove(Span(QUARANTINE, (marked.partition,), (resolved,), (resolved,)), ALWAYS)])


# ---------------------------------------------------------------- events that went into an archive


def taken_out(partition: int, rows: Sequence[ArchivedPlace]) -> Steps:
    """Remove the rows of archived events, those of the slice view first, with the timestamps that they were written
    with."""
    slices, events = [], []
    for key, life, segment, seq_nr, timestamp, _ in rows:
        entity_type = key.partition("|")[0]
        bucket, place = (entity_type, partition, timestamp // MINUTE_US), (timestamp, seq_nr, key)
        slices.append(Remove(Span(SLICE_VIEW, bucket, place, place), timestamp))
        events.append(Remove(Span(JOURNAL, (key, life, segment), (seq_nr,), (seq_nr,)), timestamp))
    yield WritePhase(slices)
    yield WritePhase(events)
