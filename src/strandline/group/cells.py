"""Decides how a group's writes on a target without transactions are undone. Pure. On such a target the write of a cell
with the greatest timestamp wins. So each cell that a group wrote is put back once: to the value of its first image, one
microsecond above the last timestamp that the group gave it. Cells that others wrote later stay, because theirs are
above that. A row that was not there is removed at the last timestamp, where a deletion wins over a write.

Values are kept as the target stores them; None is no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from strandline.group.points import reached
from strandline.group.statements.api import TargetTable
from strandline.group.target import Wrote

Row = tuple[Any, ...]
SECOND_US = 1_000_000


class Cell(NamedTuple):
    value: Any = None
    ttl: int | None = None
    """The remaining seconds of its life when it was read."""
    read_at: int = 0


class UndoStatement(NamedTuple):
    """A statement of an undo. Each of them may be repeated."""

    how: Literal["remove_row", "add_row", "set", "unset"]
    table: TargetTable
    key: Row
    """The key of the row; for static columns, that of the partition."""
    timestamp: int
    values: tuple[tuple[str, Any], ...] = ()
    """Columns, and of `set` their values."""
    ttl: int = 0


class RowState:
    """The state of a row that a group changed, or (with the key of a partition) of static columns."""

    def __init__(self, table: TargetTable, key: Row, *, present: bool) -> None:
        self.table, self.key, self.present = table, key, present
        self.first: dict[str, Cell] = {}
        """The value before the group of each cell that the group wrote."""
        self.last: dict[str, int] = {}
        """The last timestamp that the group gave each of them."""
        self.others: dict[str, Cell] = {}
        """Cells that it read and did not write."""
        self.newest = 0
        self.inserted = self.removed = False
        self.writes: set[int] = set()
        """The timestamps of the group's writes to this row."""

    def note(self, wrote: Wrote, read: dict[str, Cell]) -> None:
        """Add one more write."""
        plan = wrote.step.plan
        self.writes.add(wrote.timestamp)
        self.newest = max(self.newest, wrote.timestamp)
        self.inserted |= plan.undo == "insert"
        self.removed |= plan.undo == "delete" and not plan.statement.shape.columns
        for name, cell in read.items():
            if name in plan.changed:
                self.first.setdefault(name, cell)
                self.last[name] = wrote.timestamp
            elif name not in self.first:
                self.others.setdefault(name, cell)

    def cover(self, wrote: Wrote) -> None:
        """Note a removal that found nothing left of this row. Cells put back must have later timestamps."""
        columns = wrote.step.plan.statement.shape.columns
        self.writes.add(wrote.timestamp)
        self.removed |= not columns
        self.newest = max(self.newest, wrote.timestamp)
        for name in columns or self.last:
            if name in self.last:
                self.last[name] = wrote.timestamp


Covers = Callable[[Wrote, Row], bool]
"""Returns whether a removal covers the row, or the partition, with this key."""


def rows_written(writes: Sequence[Wrote], covers: Covers) -> list[RowState]:
    """Return what the writes of a group did, row by row; static columns are a row of their own, with a shorter key."""
    found: dict[tuple[str, Row], RowState] = {}
    for wrote in writes:
        plan, image = wrote.step.plan, wrote.cells.image
        table = plan.table
        if table is None:
            raise AssertionError(plan.statement.text)
        static = {column.name for column in table.columns if column.role == "static"}
        size = len(table.partition)
        numbers = {row[: image.keys]: number for number, row in enumerate(image.rows)}
        partitions = {key[:size]: number for key, number in numbers.items()}
        for key in wrote.cells.keys if plan.undo != "delete" else tuple(numbers):
            if None not in key:  # else the image has only the static columns of a partition
                read = {name: cell for name, cell in _cells(wrote, numbers.get(key)).items() if name not in static}
                new = RowState(table, key, present=key in numbers)
                found.setdefault((table.name, key), new).note(wrote, read)
            if static & set(plan.changed):
                cells = _cells(wrote, partitions.get(key[:size]))
                new = RowState(table, key[:size], present=True)
                read = {name: cell for name, cell in cells.items() if name in static}
                found.setdefault((table.name, key[:size]), new).note(wrote, read)
        if plan.undo == "delete":
            for (name, key), state in found.items():
                if name == table.name and key not in numbers and key not in partitions and covers(wrote, key):
                    state.cover(wrote)
    return list(found.values())


def _cells(wrote: Wrote, number: int | None) -> dict[str, Cell]:
    """Return the cells of a row of the image; a row that is not there has none."""
    image = wrote.cells.image
    columns = wrote.step.plan.columns[image.keys :]
    if number is None:
        return dict.fromkeys(columns, Cell())
    read = zip(columns, image.rows[number][image.keys :], wrote.cells.ttls[number], strict=True)
    return {name: Cell(value, ttl, wrote.cells.read_at) for name, value, ttl in read}


def undo_of(states: Iterable[RowState], now: int) -> list[UndoStatement]:
    """Return the statements that undo what was written, in the order in which they are sent."""
    return [back for state in states for back in _back(state, now)]


def _back(state: RowState, now: int) -> Iterable[UndoStatement]:
    table, key = state.table, state.key
    whole = len(key) == len(table.key)
    if whole and not state.present:
        yield UndoStatement("remove_row", table, key, state.newest)
        return
    first, last = dict(state.first), dict(state.last)
    if whole and (state.inserted or state.removed):
        there = [cell for cell in (*first.values(), *state.others.values()) if cell.value is not None]
        if there and all(cell.ttl is not None for cell in there):
            # The row ends with its last cell: what the group made must not keep it.
            yield UndoStatement("remove_row", table, key, state.newest)
            for name, cell in state.others.items():
                first.setdefault(name, cell)
            last = dict.fromkeys(first, state.newest)
        elif state.removed:
            reached("group.row_comes_back")
            yield UndoStatement("add_row", table, key, state.newest + 1)
    puts: dict[tuple[int, int], list[tuple[str, Any]]] = {}
    gone: dict[int, list[tuple[str, Any]]] = {}
    for name, cell in first.items():
        left = _left(cell, now)
        if cell.value is None or left is None:
            gone.setdefault(last[name] + 1, []).append((name, None))
        else:
            puts.setdefault((last[name] + 1, left), []).append((name, cell.value))
    for timestamp, names in gone.items():
        yield UndoStatement("unset", table, key, timestamp, tuple(names))
    for (timestamp, left), values in puts.items():
        yield UndoStatement("set", table, key, timestamp, tuple(values), left)


def _left(cell: Cell, now: int) -> int | None:
    """Return the TTL to write: 0 for a cell without one, None for a cell whose TTL is over."""
    if cell.ttl is None:
        return 0
    left = cell.ttl - -(-(now - cell.read_at) // SECOND_US)
    return left if left >= 1 else None
