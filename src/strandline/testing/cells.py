"""Tables of cells as Cassandra keeps them: the last write wins, and at equal timestamps a removal beats a write.

A row is a place in a partition of a table; each of its cells has its own write timestamp, and may have a life. Two
writes of one cell with one timestamp: the one with a life stays, then the greater value. A removal covers rows of a
partition, and everything written there up to its timestamp, whichever came first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

ALWAYS = 2**63 - 1
"""A timestamp above any clock's: what is removed with it never comes back."""


class TimedValue(NamedTuple):
    timestamp: int
    value: Any
    """None: removed."""
    expires: int | None = None
    """When its life ends (µs)."""

    def loses_to(self, other: TimedValue) -> bool:
        if self.timestamp != other.timestamp:
            return self.timestamp < other.timestamp
        if self.value is None or other.value is None:
            return self.value is not None
        return (self.expires is not None, _bytes(self.value)) < (other.expires is not None, _bytes(other.value))


class _Removal(NamedTuple):
    covers: Callable[[Any], bool]
    timestamp: int


class CellTable:
    """Rows of cells, by partition key and place within it."""

    def __init__(self) -> None:
        self._rows: dict[Any, dict[Any, dict[str, TimedValue]]] = {}
        self._removals: dict[Any, list[_Removal]] = {}

    def put(
        self, partition: Any, place: Any, cells: dict[str, Any], timestamp: int, expires: int | None = None
    ) -> None:
        """Write cells of one row. None removes a cell."""
        row = self._rows.setdefault(partition, {}).setdefault(place, {})
        for name, value in cells.items():
            cell = TimedValue(timestamp, value, expires)
            if name not in row or row[name].loses_to(cell):
                row[name] = cell

    def remove(self, partition: Any, timestamp: int, *, first: Any = None, last: Any = None) -> None:
        """Remove rows `first`..`last` of a partition; without bounds, all of it."""
        self.remove_where(
            partition,
            lambda place: (first is None or first <= place) and (last is None or place <= last),
            timestamp,
        )

    def remove_where(self, partition: Any, covers: Callable[[Any], bool], timestamp: int) -> None:
        """Remove the rows at these places."""
        self._removals.setdefault(partition, []).append(_Removal(covers, timestamp))

    def cells(self, partition: Any, place: Any, now: int = 0) -> dict[str, TimedValue]:
        """Return the cells of a row that are there, and still alive."""
        cells = self._rows.get(partition, {}).get(place, {})
        newest = max((one.timestamp for one in self._removals.get(partition, ()) if one.covers(place)), default=-1)
        return {
            name: cell
            for name, cell in cells.items()
            if cell.timestamp > newest and cell.value is not None and (cell.expires is None or cell.expires > now)
        }

    def row(self, partition: Any, place: Any) -> dict[str, Any]:
        """Their values; empty if there is no such row."""
        return {name: cell.value for name, cell in self.cells(partition, place).items()}

    def rows(self, partition: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield place and cells of each row of a partition, by place."""
        for place in self.places(partition):
            if row := self.row(partition, place):
                yield place, row

    def places(self, partition: Any) -> list[Any]:
        """Places of a partition that were ever written, sorted."""
        return sorted(self._rows.get(partition, {}))

    def partitions(self) -> list[Any]:
        """Return partition keys that were ever written, sorted."""
        return sorted(self._rows)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else orjson.dumps(value)
