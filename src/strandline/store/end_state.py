"""The end state of a batch that is written as one transaction: removals first, then the rows that remain after it.

Only the end state matters there. A row that a later cut of the same batch takes away is never written, so all removals
can go before all inserts whatever their order in the log was: what survives stands above every delete of its life, and
lives are never reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from strandline.fold import LifePurged
from strandline.points import reached
from strandline.rows import PartitionBatch
from strandline.store.tables import JOURNAL, QUARANTINE, Table
from strandline.store.views import Row, Rows
from strandline.values.events import EventRow
from strandline.values.heads import EndedLife, Head


class RowsDeleted(NamedTuple):
    """Rows `from_`..`to` of a life are removed. `segment_size` is that of the key's head."""

    key: str
    life: int
    from_: int
    to: int
    segment_size: int


class Change(NamedTuple):
    """A batch without its order."""

    deletes: list[RowsDeleted]
    purges: list[tuple[str, EndedLife]]
    events: Sequence[EventRow]
    heads: list[tuple[str, Head]]
    rows: Mapping[Table, list[Row]]
    """The rows of the other tables that batches write: the quarantine, and the tables of views."""


def change_of(batch: PartitionBatch) -> Change:
    """Return the end state of a batch."""
    heads = [(key, state) for key, state in batch.states.items() if isinstance(state, Head)]
    if all(cut.ended_by is None for cut in batch.cuts):
        events = list(chain.from_iterable([cut.events for cut in batch.cuts]))
        return Change([], [], events, heads, _rows(batch))
    deletes: list[RowsDeleted] = []
    purges: list[tuple[str, EndedLife]] = []
    alive: dict[str, Rows] = {}
    for cut in batch.cuts:
        rows = alive.setdefault(cut.key, {JOURNAL: []})
        rows[JOURNAL].extend(cut.events)
        for table, made in cut.rows.items():
            rows.setdefault(table, []).extend(made)
        if isinstance(cut.ended_by, LifePurged):
            if isinstance(cut.state, EndedLife):
                purges.append((cut.key, cut.state))
            if cut.rows:
                reached("store.view_begun_and_purged_at_once")
            rows.update({table: [] for table in rows if table.taken_by != "never"})
        elif cut.ended_by is not None and isinstance(cut.state, Head):
            life, from_, to = cut.ended_by
            deletes.append(RowsDeleted(cut.key, life, from_, to, cut.state.segment_size))
            for table, some in rows.items():
                if table.taken_by == "delete":
                    seq_nr = table.at("seq_nr")
                    rows[table] = [row for row in some if row[seq_nr] > to]
    gone = {(key, ended.life) for key, ended in purges}
    left: Rows = {QUARANTINE: [row for row in batch.quarantine if (row.key, row.life) not in gone]}
    for rows in alive.values():
        for table, some in rows.items():
            left.setdefault(table, []).extend(some)
    alive_events: Any = left.pop(JOURNAL, [])
    return Change(deletes, purges, alive_events, heads, _last(left))


def _rows(batch: PartitionBatch) -> Rows:
    rows: Rows = {QUARANTINE: list(batch.quarantine)}
    for cut in batch.cuts:
        for table, made in cut.rows.items():
            rows.setdefault(table, []).extend(made)
    return _last(rows)


def _last(rows: Rows) -> Rows:
    """Return the last row of each place, since a later cut may have written the same place again."""
    return {table: [*{table.place_of(row): row for row in some}.values()] for table, some in rows.items() if some}
