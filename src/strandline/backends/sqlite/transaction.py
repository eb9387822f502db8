"""A transaction in a SQLite file, of this library or of the caller, and a watch for commits to the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any, Final

import apsw
import orjson

from strandline.closed_at_end import ClosedAtEnd
from strandline.sql.api import LONG_S, Dialect
from strandline.sql.joining import tx_foreign, tx_idle, tx_unknown

NAME: Final = "strandline_joined"
SAVEPOINT: Final = f"SAVEPOINT {NAME}"
RELEASE: Final = f"RELEASE {NAME}"
UNDO: Final = f"ROLLBACK TO {NAME}; {RELEASE}"


class Transaction:
    """Statements of a part on one connection (`sql.api.Transaction`)."""

    dialect: Dialect = "sqlite"

    def __init__(self, cursor: apsw.Cursor, sql: Callable[[str], str]) -> None:
        self._cursor = cursor
        self._sql = sql

    @property
    def raw(self) -> apsw.Connection:
        return self._cursor.connection

    def rows(self, name: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._cursor.execute(self._sql(name), bound(values)).fetchall()

    def execute(self, name: str, values: Sequence[Any] = ()) -> int:
        self._cursor.execute(self._sql(name), bound(values)).fetchall()
        return self._cursor.connection.changes()

    def each(self, name: str, many: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(self._sql(name), map(bound, many)).fetchall()

    def many(self, name: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Any]:
        given = [(*first, *row) for row in rows] if first else rows
        return self._cursor.executemany(self._sql(name), given).fetchall()

    def take_long(self, for_s: float = LONG_S) -> None:
        """No-op: SQLite has no statement time-out to raise."""

    def notify(self, channel: str) -> None:
        """No-op: a watch of a file sees every commit."""


def bound(values: Sequence[Any]) -> Sequence[Any]:
    """Return values as statements take them: a list as JSON, its bytes in hexadecimal."""
    for value in values:
        if type(value) is list:
            return [_json(value) if type(value) is list else value for value in values]
    return values


def _json(values: list[Any]) -> str:
    return orjson.dumps([value.hex() if isinstance(value, bytes) else value for value in values]).decode()


@contextmanager
def joined(tx: object, id_sql: str, database_id: str, where: str) -> Iterator[apsw.Cursor]:
    """Open a savepoint in the caller's transaction, with a cursor without the caller's row and statement hooks."""
    connection = _connection_of(tx)
    if connection is None:
        raise tx_unknown(tx, "an apsw connection or cursor")
    try:
        if not connection.in_transaction:
            raise tx_idle(where)
    except apsw.ConnectionClosedError:
        raise tx_foreign(where, "its connection is closed") from None
    cursor = apsw.Cursor(connection)
    cursor.row_trace = lambda _, row: row
    cursor.exec_trace = lambda *_: True
    cursor.execute(SAVEPOINT)
    try:
        try:
            found = cursor.execute(id_sql).fetchall()
        except apsw.SQLError:
            found = []
        if found != [(database_id,)]:
            raise tx_foreign(where)
        yield cursor
        cursor.execute(RELEASE)
    except BaseException:
        if connection.in_transaction:  # some errors undo all of it
            cursor.execute(UNDO)
        raise


def _connection_of(tx: object) -> apsw.Connection | None:
    if isinstance(tx, apsw.Cursor):
        return tx.connection
    if isinstance(tx, apsw.Connection):
        return tx
    raw = getattr(tx, "raw", None)
    return None if raw is None else _connection_of(raw)


class SqliteWatch(ClosedAtEnd):
    """Watches a file for commits of any process (`sql.api.Watch`), with a connection of its own.

    For one thread at a time; another one may close it.
    """

    def __init__(self, connection: apsw.Connection, interval_s: float, closed: Callable[[SqliteWatch], None]) -> None:
        self._connection = connection
        self._interval_s = interval_s
        self._tell_closed = closed
        self._woken = Event()
        self._lock = Lock()
        self._closed = False

    def seen(self) -> int:
        self._woken.clear()
        return self._version()

    def wait(self, seen: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._closed and self._version() == seen:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._woken.wait(min(self._interval_s, left_s))
            self._woken.clear()
        return True

    def _version(self) -> int:
        with self._lock:
            if self._closed:
                return -1
            return int(self._connection.pragma("data_version"))  # `data_version()` alone does not look at the file

    def wake(self) -> None:
        """Make the watch look now, because this process has committed, or closes."""
        self._woken.set()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._woken.set()
            self._connection.close(True)
        self._tell_closed(self)
