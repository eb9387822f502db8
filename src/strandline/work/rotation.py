"""Pure decisions on short-lived tables: when one closes, and how much may be moved out of a closed one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from strandline.work.dates import period_end
from strandline.work.declaration import WorkSettings

RING_MAX: Final = 16
"""The most tables in a ring. Every claim locks each of them, and a server has room for some thousands of locks."""
LIVE_MANY: Final = 8
LATER: Final = 0
"""The slot of the later table, which is not one of the ring."""
CURRENT, CLOSED, EMPTY = "current", "closed", "empty"


class TableState(NamedTuple):
    """A table of the ring, as the ledger has it."""

    slot: int
    state: str
    opened_date: int
    closed_date: int
    first_number: int
    last_number: int
    """The last number that was drawn when the table closed."""


def is_over(table: TableState, now: int, number: int, size: int, settings: WorkSettings) -> bool:
    """Return whether the current table has to close. The numbers drawn while it was current count as its rows."""
    if number < table.first_number:
        return False  # nothing was written since it was opened: an idle journal closes nothing
    end = period_end(table.opened_date, settings.table_period)
    rows = number - table.first_number + 1
    return (end is not None and now >= end) or rows >= settings.table_rows_max or size >= settings.table_bytes_max


def next_slot(tables: Sequence[TableState]) -> int | None:
    """Return the slot of the next current table: an empty one, else a new one; None if the ring is full."""
    empty = [table.slot for table in tables if table.state == EMPTY]
    if empty:
        return min(empty)
    used = {table.slot for table in tables}
    return next((slot for slot in range(1, RING_MAX + 1) if slot not in used), None)


def most_to_move(table: TableState, live: int) -> int:
    """Return the most entries that may be left in a closed table if they are to be moved to the current table."""
    rows = max(1, table.last_number - table.first_number + 1)
    return rows // 2 if live > LIVE_MANY else rows // 10
