"""The transaction that a handler writes in. It executes statements; the range, never the handler, commits it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from strandline.errors import InvalidInput, LeaseLost
from strandline.sql.api import Transaction

SERIALIZATION: Final = ("40001", "40P01")
_IN_ERROR: Final = 3  # libpq's PQTRANS_INERROR

# Words, ends of statements, and what must be skipped between them: texts, quoted names, comments.
_TOKEN: Final = re.compile(
    r"""
    '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
    | --[^\n]* | /\*.*?\*/ | (?P<word>[A-Za-z_][A-Za-z0-9_]*) | (?P<end>;)
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDING: Final = {"commit", "end", "abort", "begin", "start", "rollback"}


@lru_cache(maxsize=1024)
def ends_transaction(sql: str) -> bool:
    """Return whether an SQL text begins or ends a transaction, or turns autocommit on. Savepoints do neither."""
    words: list[str] = []
    for token in _TOKEN.finditer(sql + ";"):
        if token["word"]:
            words.append(token["word"].lower())
        elif token["end"]:
            if _is_ending(words):
                return True
            words = []
    return False


def _is_ending(words: Sequence[str]) -> bool:
    if not words:
        return False
    first, rest = words[0], words[1:]
    if first == "rollback":
        return "to" not in rest[:2]  # ROLLBACK TO, ROLLBACK TRANSACTION TO
    if first in ("prepare", "discard"):
        return rest[:1] in (["transaction"], ["all"])
    if first == "set":
        return "autocommit" in rest or "transaction" in rest[:2]
    return first in _ENDING


class HandlerTransaction:
    """The `tx` of `handle(tx, event)`. For one thread, and only while the handler runs."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._lock = Lock()
        """Held while a statement runs."""
        self._ending = Lock()
        """Held by the thread that ends the transaction, so that `break_off` never hits statements after the handler."""
        self._ended = False
        self._cursor: Any = None

    @property
    def dialect(self) -> str:
        """Either "sqlite" or "postgres". Placeholders for values are the driver's (`?` or `%s`)."""
        return self._tx.dialect

    @property
    def raw(self) -> object:
        """The driver's connection, for other libraries that join this transaction."""
        self._check()
        return self._tx.raw

    def execute(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; return its rows."""
        with self._lock:
            self._refuse(sql)
            if self._tx.dialect == "sqlite":
                return list(self._connection.execute(sql, values))
            cursor = self._psycopg_cursor()
            cursor.execute(sql, values or None)  # psycopg takes a % as a plain character if there are no values
            return cursor.fetchall() if cursor.description else []

    def executemany(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Execute a statement with each of many values."""
        with self._lock:
            self._refuse(sql)
            if self._tx.dialect == "sqlite":
                for _ in self._connection.executemany(sql, many):
                    pass
                return
            self._psycopg_cursor().executemany(sql, many)

    @property
    def broken(self) -> bool:
        """Return whether the database would answer a commit with a rollback: an error inside was swallowed."""
        if self._tx.dialect == "sqlite":
            return not self._connection.in_transaction
        return bool(self._connection.info.transaction_status == _IN_ERROR)

    def end(self) -> None:
        """Close the transaction to its handler: later statements are refused."""
        with self._ending:
            self._ended = True

    def break_off(self) -> None:
        """From another thread: cancel the running statement, roll back, and refuse later statements."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            if self._tx.dialect == "postgres":
                self._connection.cut()
                return
            self._connection.interrupt()
            if self._lock.acquire(timeout=1):
                try:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                finally:
                    self._lock.release()

    def _psycopg_cursor(self) -> Any:
        """Return psycopg's usual cursor, with %s for values. One cursor for all statements is faster."""
        if self._cursor is None:
            from psycopg import Cursor
            from psycopg.rows import tuple_row

            self._cursor = Cursor(self._connection, row_factory=tuple_row)
        return self._cursor

    @property
    def _connection(self) -> Any:
        return self._tx.raw

    def _refuse(self, sql: str) -> None:
        self._check()
        if ends_transaction(sql):
            raise InvalidInput(
                "tx: a handler does not begin, commit or roll back the transaction that it is called in",
                code="handler_transaction",
                hint="raise an error to undo what the handler did; savepoints are free",
                field="tx",
            )

    def _check(self) -> None:
        if self._ended:
            raise LeaseLost(
                "this transaction is over: the handler took longer than handler_timeout_s, or has returned",
                code="lease_lost",
                hint="use tx inside the handler alone",
            )


def is_serialization(error: BaseException) -> bool:
    """Return whether a database refused a transaction because of concurrent ones, so that a retry may work."""
    return getattr(error, "sqlstate", None) in SERIALIZATION or getattr(error, "code", None) == "serialization"
