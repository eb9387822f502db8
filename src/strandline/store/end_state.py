"""What a batch comes to where it is written as one transaction: removals first, then the rows that outlive it.

Only the end state matters there. A row that a later cut of the same batch takes away is never written, so all removals
can go before all inserts whatever their order in the log was: what survives stands above every delete of its life, and
lives are never reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from strandline.fold import LifePurged
from strandline.rows import Batch, QuarantineRow
from strandline.values.events import EventRow
from strandline.values.heads import Ended, Head


class RowsDeleted(NamedTuple):
    """Rows `from_`..`to` of a life go. `segment_size` is that of the key's head."""

    key: str
    life: int
    from_: int
    to: int
    segment_size: int


class Change(NamedTuple):
    """A batch without its order."""

    deletes: list[RowsDeleted]
    purges: list[tuple[str, Ended]]
    events: Sequence[EventRow]
    heads: list[tuple[str, Head]]
    quarantine: list[QuarantineRow]


def change_of(batch: Batch) -> Change:
    """The end state of a batch."""
    heads = [(key, state) for key, state in batch.states.items() if isinstance(state, Head)]
    if all(cut.ended_by is None for cut in batch.cuts):
        events = list(chain.from_iterable([cut.events for cut in batch.cuts]))
        return Change([], [], events, heads, batch.quarantine)
    deletes: list[RowsDeleted] = []
    purges: list[tuple[str, Ended]] = []
    alive: dict[str, list[EventRow]] = {}
    for cut in batch.cuts:
        rows = alive.setdefault(cut.key, [])
        rows.extend(cut.events)
        if cut.ended_by is None:
            continue
        if isinstance(cut.ended_by, LifePurged):
            if isinstance(cut.state, Ended):
                purges.append((cut.key, cut.state))
            rows.clear()
        elif isinstance(cut.state, Head):
            life, from_, to = cut.ended_by
            deletes.append(RowsDeleted(cut.key, life, from_, to, cut.state.segment_size))
            rows[:] = [row for row in rows if row.seq_nr > to]
    gone = {(key, ended.life) for key, ended in purges}
    quarantine = [row for row in batch.quarantine if (row.key, row.life) not in gone]
    return Change(deletes, purges, list(chain.from_iterable(alive.values())), heads, quarantine)
