"""The peer: eventsourcing's application recorder on SQLite or PostgreSQL, as durable as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from eventsourcing.persistence import ApplicationRecorder
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore

from strandline.sql.statements import statement

NAME = "eventsourcing"
SYNCHRONOUS_FULL = 2
TIMEOUT_S = 60
"""For locks and connections: long enough that no writer ever fails for having waited."""
SQLITE_POOL_SIZE = 5
"""The peer's default. It writes through one connection at a time; other sizes made no difference beyond noise."""


class DurablePool(SQLiteConnectionPool):
    """The peer's own pool, whose connections are made sure to sync every commit, in its own write-ahead log."""

    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA synchronous")
        synchronous = cursor.fetchone()[0]
        cursor.execute("PRAGMA journal_mode")
        mode = cursor.fetchone()[0]
        if (synchronous, mode) != (SYNCHRONOUS_FULL, "wal"):
            raise RuntimeError(f"the peer is not as durable as ours: synchronous={synchronous}, journal_mode={mode}")
        return connection


@contextmanager
def recorder(url: str, writers: int = 1) -> Iterator[tuple[ApplicationRecorder, dict[str, Any]]]:
    """A recorder in a new folder or a new database, and how it is set up, for the record."""
    opened = _on_sqlite(url) if url.startswith("sqlite:") else _on_postgres(url, writers)
    with closing(opened[0].datastore):
        opened[0].create_table()
        yield opened


def _on_sqlite(url: str) -> tuple[SQLiteApplicationRecorder, dict[str, Any]]:
    folder = Path(url.removeprefix("sqlite:"))
    folder.mkdir()
    path = str(folder / "eventsourcing.db")
    datastore = SQLiteDatastore(path)
    datastore.pool = DurablePool(
        db_name=path, lock_timeout=TIMEOUT_S, pool_size=SQLITE_POOL_SIZE, max_overflow=0, pool_timeout=TIMEOUT_S
    )
    return SQLiteApplicationRecorder(datastore), {
        "recorder": "SQLiteApplicationRecorder",
        "journal_mode": "wal",
        "synchronous": "FULL",
        "pool_size": SQLITE_POOL_SIZE,
        "max_overflow": 0,
        "lock_timeout_s": TIMEOUT_S,
        "sqlite": sqlite3.sqlite_version,
    }


def _on_postgres(url: str, writers: int) -> tuple[Any, dict[str, Any]]:
    """With a connection for each writer, all of them open before anybody writes."""
    from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

    parts = urlsplit(url)
    datastore = PostgresDatastore(
        dbname=parts.path[1:], host=parse_qs(parts.query)["host"][0], port="", user=parts.username or "", password="",
        connect_timeout=TIMEOUT_S, pool_size=writers, max_overflow=0, lock_timeout=TIMEOUT_S,
    )  # fmt: skip
    datastore.pool.open(wait=True, timeout=TIMEOUT_S)
    with datastore.get_connection() as connection:
        found = connection.execute(statement("strandline.bench", "durability")).fetchall()
    durability = {row["name"]: row["setting"] for row in found}
    if set(durability.values()) != {"on"}:
        datastore.close()
        raise RuntimeError(f"the peer is not as durable as ours: {durability}")
    return PostgresApplicationRecorder(datastore), {
        "recorder": "PostgresApplicationRecorder",
        **durability,
        "pool_size": writers,
        "max_overflow": 0,
        "lock_timeout_s": TIMEOUT_S,
    }


class PeerView:
    """A view of the peer's: its row and its tracking record go into one transaction, as its projections write them."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self._transaction = recorder.datastore.transaction

    def execute(self, sql: str) -> None:
        with self._transaction(commit=True) as cursor:
            cursor.execute(sql)

    def handle(self, sql: str, key: str, tracking: Any) -> None:
        """One event."""
        with self._transaction(commit=True) as cursor:
            cursor.execute(sql, (key,))
            self.recorder._insert_tracking(cursor, tracking)

    def close(self) -> None:
        """Its data store is the recorder's, which closes it."""


def tracking(recorder: Any) -> PeerView:
    """A view in the recorder's own database."""
    if isinstance(recorder, SQLiteApplicationRecorder):
        from eventsourcing.sqlite import SQLiteTrackingRecorder

        return PeerView(SQLiteTrackingRecorder(recorder.datastore))
    from eventsourcing.postgres import PostgresTrackingRecorder

    return PeerView(PostgresTrackingRecorder(recorder.datastore))
