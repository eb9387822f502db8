"""The row of an event as queries by slices and projections read it: the fields that they judge, and the body."""

from __future__ import annotations

from operator import itemgetter
from typing import Final, NamedTuple

from strandline.values.events import EventCells, placed_cells
from strandline.values.keys import slice_of

place_of: Final = itemgetter(0, 1, 2)
"""Where a row stands in the order of a query by slices."""


class QueryRow(NamedTuple):
    """An event as it is read in order. Rows compare as their places do; readers give them as plain tuples."""

    timestamp: int
    seq_nr: int
    key: str
    life: int
    prev_seq_nr: int
    body: bytes | None = None
    """None where it was left out: see `Slices.whole`."""
    digest: int = 0

    @property
    def slice(self) -> int:
        return slice_of(self.key)

    @property
    def cells(self) -> EventCells:
        return placed_cells(self.timestamp, self.seq_nr, self.prev_seq_nr, self.body, self.digest)
