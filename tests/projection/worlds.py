"""Where tests of projections run: a journal, a table that a handler writes, and a host in a thread."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from strandline.connect import Strandline
from strandline.projection.definition import BySlices, Projection
from strandline.projection.host import Host
from strandline.values.keys import slice_of
from strandline.values.ranges import Range

BACKENDS = ("sqlite", "postgresql")
ORDERS = BySlices("order")
QUICK: dict[str, Any] = {
    "refresh_interval_s": 0.01,
    "retry_delay_s": 0.001,
    "restart_min_s": 0.01,
    "restart_max_s": 0.02,
}


def until(true: Callable[[], Any], timeout_s: float = 20.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)


class Table:
    """A table of a handler's own, in the offset store's database: every event that was handled, in order."""

    def __init__(self, s: Strandline) -> None:
        self._s = s
        self.name = f"handled_{uuid4().hex}"
        offsets = s.open_offsets(None)
        self.dialect = offsets.store.database.dialect
        self.name = self.name if self.dialect == "sqlite" else f"public.{self.name}"
        number = "integer primary key autoincrement" if self.dialect == "sqlite" else "bigserial primary key"
        with offsets.store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute(f"create table {self.name} (n {number}, key text, life bigint, seq_nr bigint, by_whom text)")
        self._offsets = offsets

    def close(self) -> None:
        self._offsets.store.close()

    def add(self, tx: Any, event: Any, by_whom: str = "") -> None:
        """What a handler does."""
        mark = "?" if self.dialect == "sqlite" else "%s"
        statement = f"insert into {self.name} (key, life, seq_nr, by_whom) values ({', '.join([mark] * 4)})"
        tx.execute(statement, (str(event.key), event.life, event.seq_nr, by_whom))

    def rows(self) -> list[tuple[str, int, int]]:
        """What was handled, in the order of commits on SQLite, of numbers on PostgreSQL."""
        with self._offsets.store.database.read() as tx:
            raw: Any = tx.raw
            found = raw.execute(f"select key, life, seq_nr from {self.name} order by n")
            return [tuple(row) for row in found]

    def of(self, key: object) -> list[int]:
        """The numbers of a key's events, as they were handled."""
        return [seq_nr for found, _, seq_nr in self.rows() if found == str(key)]


def everything(s: Strandline, entity_type: str = "order") -> list[tuple[str, int, int]]:
    """All events, as a plain fold over the journal sees them."""
    found = []
    for key in map(str, s.journal.keys(entity_type)):
        found += [(key, event.life, event.seq_nr) for event in s.journal.read(key)]
    return found


def check_exactly_once(s: Strandline, table: Table) -> None:
    """Every event once, and in the order of its key."""
    handled = table.rows()
    doubled = [event for event, times in Counter(handled).items() if times > 1]
    assert not doubled
    assert sorted(handled) == sorted(everything(s))
    by_key: dict[str, list[tuple[int, int]]] = {}
    for key, life, seq_nr in handled:
        by_key.setdefault(key, []).append((life, seq_nr))
    for key, places in by_key.items():
        assert places == sorted(places), key


@contextmanager
def running(s: Strandline, *projections: Projection) -> Iterator[Host]:
    """A host in a thread. What it ends with is raised here."""
    host = Host(s, projections)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            host.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: host.ready.is_set() or errors)
        if errors:
            raise errors[0]
        yield host
    finally:
        host.stop()
        thread.join(30)
        assert not thread.is_alive()
        if errors:
            raise errors[0]


def caught_up(s: Strandline, name: str = "totals") -> bool:
    """Whether every range has come to the end of the store."""
    status = s.projections.status(name)
    return all(found.state == "running" and not found.behind_store_s for found in status.ranges)


def range_of(s: Strandline, key: object, name: str = "totals") -> Any:
    """The range that a key is in."""
    slice_ = slice_of(str(key))
    return next(found for found in s.projections.status(name).ranges if slice_ in Range(found.lo, found.hi))


def error_of(s: Strandline, key: object, name: str = "totals") -> Any:
    """What the range of a key failed with, once it has: it may start again at any moment."""
    found: list[Any] = []

    def failed() -> bool:
        found[:] = [range_of(s, key, name).last_error]
        return bool(found[0])

    until(failed)
    return found[0]
