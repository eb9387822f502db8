"""Tables of cells as Cassandra keeps them: the last write wins, and at equal timestamps a removal beats a write.

A row is a place in a partition of a table; each of its cells has its own write timestamp. Two writes of one cell with
one timestamp: the greater value stays. A removal covers a stretch of a partition, and everything written there up to
its timestamp, whichever came first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

ALWAYS = 2**63 - 1
"""A timestamp above any clock's: what is removed with it never comes back."""


class _Cell(NamedTuple):
    timestamp: int
    value: Any

    def loses_to(self, other: _Cell) -> bool:
        if self.timestamp != other.timestamp:
            return self.timestamp < other.timestamp
        if self.value is None or other.value is None:  # nothing is a removal
            return self.value is not None
        return _bytes(self.value) < _bytes(other.value)


class _Removal(NamedTuple):
    first: Any
    last: Any
    timestamp: int

    def covers(self, place: Any) -> bool:
        return (self.first is None or self.first <= place) and (self.last is None or place <= self.last)


class Table:
    """Rows of cells, by partition key and place within it."""

    def __init__(self) -> None:
        self._rows: dict[Any, dict[Any, dict[str, _Cell]]] = {}
        self._removals: dict[Any, set[_Removal]] = {}

    def put(self, partition: Any, place: Any, cells: dict[str, Any], timestamp: int) -> None:
        """Write cells of one row. None removes a cell."""
        row = self._rows.setdefault(partition, {}).setdefault(place, {})
        for name, value in cells.items():
            cell = _Cell(timestamp, value)
            if name not in row or row[name].loses_to(cell):
                row[name] = cell

    def remove(self, partition: Any, timestamp: int, *, first: Any = None, last: Any = None) -> None:
        """Remove rows `first`..`last` of a partition; without bounds, all of it."""
        self._removals.setdefault(partition, set()).add(_Removal(first, last, timestamp))

    def row(self, partition: Any, place: Any) -> dict[str, Any]:
        """The cells of a row that are there; empty if there is no such row."""
        cells = self._rows.get(partition, {}).get(place, {})
        removed = [r.timestamp for r in self._removals.get(partition, ()) if r.covers(place)]
        newest = max(removed, default=-1)
        return {n: cell.value for n, cell in cells.items() if cell.timestamp > newest and cell.value is not None}

    def rows(self, partition: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Place and cells of each row of a partition, by place."""
        for place in sorted(self._rows.get(partition, {})):
            if row := self.row(partition, place):
                yield place, row

    def partitions(self) -> list[Any]:
        """Partition keys that were ever written, sorted."""
        return sorted(self._rows)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else orjson.dumps(value)
