"""Executes statements of a part in the caller's own transaction, on the caller's connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, cast

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from strandline.backends.postgres.binary import register
from strandline.backends.postgres.round_trips import BinaryStatement
from strandline.sql.joining import tx_foreign, tx_idle, tx_unknown

_OPEN: Final = (TransactionStatus.IDLE, TransactionStatus.INTRANS)


class Sending(Protocol):
    """Sends the statements of a transaction through a connection."""

    @property
    def raw(self) -> psycopg.Connection[Any]:
        """The connection that other parts join."""

    def send(self, statement: BinaryStatement) -> PGresult:
        """Execute one statement."""

    def send_each(self, statements: Iterable[BinaryStatement]) -> None:
        """Execute statements one after the other."""

    def take_long(self, for_s: float) -> None:
        """Let statements take so long from now on."""

    def rows_of(self, answer: PGresult) -> list[Any]:
        """Return the rows of an answer, as psycopg makes them."""


class Joined:
    """A connection of the caller's. Values and rows are converted as on our own connections, whatever the caller
    registered."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.raw = connection
        self._cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        register(self._cursor)
        self._transformer = Transformer(_PsycopgValues(connection))

    def send(self, statement: BinaryStatement) -> PGresult:
        text, parameters, _ = statement
        self._cursor.execute(text, parameters, prepare=False, binary=True)
        return cast(PGresult, self._cursor.pgresult)

    def take_long(self, for_s: float) -> None:
        """Do nothing: the caller decides how long it may take."""

    def send_each(self, statements: Iterable[BinaryStatement]) -> None:
        for statement in statements:
            self.send(statement)

    def rows_of(self, answer: PGresult) -> list[Any]:
        self._transformer.set_pgresult(answer)
        return self._transformer.load_rows(0, answer.ntuples, tuple)


class _PsycopgValues:
    """Reads values as psycopg does on a connection on which nothing was registered."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.adapters = AdaptersMap(psycopg.adapters)


@contextmanager
def joined(tx: object, id_sql: str, database_id: str, where: str) -> Iterator[Joined]:
    """Open a savepoint in the caller's transaction."""
    connection = _connection_of(tx)
    if connection is None:
        raise tx_unknown(tx, "a psycopg connection or cursor")
    status = connection.info.transaction_status
    if connection.closed or status not in _OPEN or connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise tx_foreign(where, "its connection is closed, in a pipeline, or in a transaction that has failed")
    caller = Joined(connection)
    if status == TransactionStatus.IDLE:
        if connection.autocommit:
            raise tx_idle(where)
        caller.send(
            BinaryStatement(b"SELECT", often=False)
        )  # psycopg begins the transaction that the caller will commit
    with connection.transaction():
        try:
            with connection.transaction():
                found = caller.rows_of(caller.send(BinaryStatement(id_sql.encode(), often=False)))
        except psycopg.ProgrammingError:  # no such table, or none that this user may read
            found = []
        if not found or found[0][0] != database_id:
            raise tx_foreign(where)
        if found[0][1] != "read committed":
            why = f"its isolation is {found[0][1]}, not read committed"
            hint = 'begin it with ISOLATION LEVEL READ COMMITTED; for a projection give isolation="read_committed"'
            raise tx_foreign(where, why, hint)
        yield caller


def _connection_of(tx: object) -> psycopg.Connection[Any] | None:
    if isinstance(tx, psycopg.Cursor):
        return tx.connection
    if isinstance(tx, psycopg.Connection):
        return tx
    raw = getattr(tx, "raw", None)
    return None if raw is None else _connection_of(raw)
