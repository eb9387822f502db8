"""Upkeep of a set's tables: close them, move what is left, empty them as a whole. Correctness never depends on it.

An add that still writes into a closed or emptied table is not lost: claims read all tables of the ring, and a table is
emptied only under a lock, after a second check that it has no entries.
"""

from __future__ import annotations

import time
from typing import Final

from strandline.errors import Unavailable
from strandline.points import reached
from strandline.sql.api import Database, Transaction
from strandline.work import rules
from strandline.work.declaration import WorkSettings
from strandline.work.rotation import (
    CLOSED,
    CURRENT,
    EMPTY,
    LATER,
    TableState,
    is_over,
    most_to_move,
    next_slot,
)
from strandline.work.tables import Tables

TABLES_MAX: Final = 8
"""The most tables that one step works on."""
MOVED_MAX: Final = 1000
VACUUM_PAGES: Final = 1000
AGAIN_S, AGAIN_MAX_S = 0.1, 30.0


class Upkeep:
    """The upkeep that one process does for the tables of a set."""

    def __init__(self, database: Database, tables: Tables) -> None:
        self._database = database
        self._tables = tables
        self._again: dict[int, tuple[float, float]] = {}
        """For each slot that could not be emptied: when to try again, and the last delay."""

    def step(self, settings: WorkSettings, *, close: bool = False) -> None:
        """Close the current table if it is too old or too large, or if `close`; then move and empty closed tables."""
        if self._database.dialect == "sqlite":
            self._renew(settings)
            return
        if not self._rotate(settings, close=close):
            return  # another process does it
        with self._database.read() as tx:
            closed = [table for table in self._ledger(tx) if table.state == CLOSED]
        for table in closed[:TABLES_MAX]:
            self._move(table)
            if time.monotonic() >= self._again.get(table.slot, (0.0, 0.0))[0]:
                self._empty(table, settings)

    def _ledger(self, tx: Transaction) -> list[TableState]:
        return [TableState(*row) for row in tx.rows("tables", (self._tables.set_name,))]

    def _rotate(self, settings: WorkSettings, *, close: bool) -> bool:
        named, set_name = self._tables.named, self._tables.set_name
        with self._database.read() as tx:
            look = self._tables.look(tx)
            current = next(table for table in self._ledger(tx) if table.state == CURRENT)
            ((size,),) = tx.rows(named("table_bytes", current.slot))
        if not (is_over(current, look.now, look.last_number, size, settings) or close):
            return True
        with self._database.write() as tx:
            if not tx.rows("try_lock", (self._tables.lock_number(f"set {set_name}"),))[0][0]:
                return False
            ledger = self._ledger(tx)
            if next(table for table in ledger if table.state == CURRENT) != current:
                return True  # another process has just closed it
            slot = next_slot(ledger)
            if slot is None:
                return True  # the ring is full: the current table grows beyond its limits
            look = self._tables.look(tx)
            tx.execute("close_table", (set_name, current.slot, look.now, look.last_number))
            if any(table.slot == slot for table in ledger):
                tx.execute("reopen_table", (set_name, slot, look.now, look.last_number + 1))
            else:
                tx.execute(named("make_table", slot))
                tx.execute("add_table", (set_name, slot, look.now, look.last_number + 1))
        return True

    def _move(self, table: TableState) -> None:
        """Move the entries that are left in a closed table, if they are few. Locked entries stay."""
        with self._database.read() as tx:
            live = sum(other.state != EMPTY for other in self._ledger(tx))
        most = min(most_to_move(table, live), MOVED_MAX)
        named = self._tables.named
        with self._database.write() as tx:
            look = self._tables.look(tx)  # locked first, as everywhere: a schema step waits on it (`gate`)
            ((left,),) = tx.rows(named("left"), (table.slot, most + 1))
            if not 0 < left <= most:
                return
            waiting = tx.rows(named("movable_order"), (table.slot, most))
            running = tx.rows(named("movable_state"), (table.slot, most))
            horizon = look.now + rules.LATER_US
            self._shift(tx, table.slot, LATER, [row for row in waiting if row[1] == 1 and row[3] > horizon], [])
            self._shift(
                tx, table.slot, look.slot, [row for row in waiting if row[1] != 1 or row[3] <= horizon], running
            )

    def _shift(
        self, tx: Transaction, slot: int, to: int, waiting: list[tuple[int, ...]], running: list[tuple[int, ...]]
    ) -> None:
        if slot == to:
            return
        named = self._tables.named
        tx.many(named("move_order"), waiting, slot, to)
        ids = [(row[4],) for row in waiting] + running
        tx.many(named("move_entry"), ids, slot, to)
        tx.many(named("move_state"), ids, slot, to)
        self._tables.numbers(tx, len(ids))  # moved rows count as rows of the table that they go to

    def _empty(self, table: TableState, settings: WorkSettings) -> None:
        """Empty a closed table as a whole if it has no entries. This is checked again under the lock."""
        named, set_name = self._tables.named, self._tables.set_name
        if self._database.rows(named("left"), (table.slot, 1)) != [(0,)]:
            return
        try:
            with self._database.write() as tx:
                tx.rows("tables", (set_name,))  # locked first, as in `_move`
                tx.execute(named("lock_table", table.slot))
                if not tx.rows(named("is_empty", table.slot))[0][0]:
                    return
                if settings.table_empty == "delete":
                    tx.execute(named("drop_table", table.slot))
                    tx.execute("forget_table", (set_name, table.slot))
                else:
                    tx.execute(named("empty_table", table.slot))
                    tx.execute("mark_empty", (set_name, table.slot))
        except Unavailable as error:
            if error.code not in ("timeout", "serialization"):
                raise
            delay_s = min(2 * self._again.get(table.slot, (0.0, AGAIN_S / 2))[1], AGAIN_MAX_S)
            self._again[table.slot] = time.monotonic() + delay_s, delay_s
            return
        self._again.pop(table.slot, None)

    def _renew(self, settings: WorkSettings) -> None:
        """Renew the only table of SQLite: if it is empty and too old or too large, give its free pages back."""
        tables = self._tables
        with self._database.read() as tx:
            (table,) = self._ledger(tx)
            ((number,),) = tx.rows("last_number", (tables.set_name,))
            moment = tables.moment(tx)
            ((left,),) = tx.rows(tables.named("left"), (table.slot, 1))
            ((size,),) = tx.rows(tables.named("table_bytes"))
        if left or not is_over(table, moment.now, number, size, settings):
            return
        with self._database.write() as tx:
            if tx.rows(tables.named("left"), (table.slot, 1)) != [(0,)]:
                return
            tx.execute("reopen_table", (tables.set_name, table.slot, moment.now, number + 1))
        reached("work.table_emptied_as_a_whole")
        while settings.table_empty != "reset":  # in steps, so that no writer waits for long
            with self._database.write() as tx:
                tx.rows(f"vacuum@{VACUUM_PAGES}")
                if tx.rows("free_pages") == [(0,)]:
                    return
