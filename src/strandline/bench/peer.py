"""The peer: eventsourcing's application recorder on a SQLite file, as durable as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore

NAME = "eventsourcing"
SYNCHRONOUS_FULL = 2
TIMEOUT_S = 60
"""For locks and connections: long enough that no writer ever fails for having waited."""
POOL_SIZE = 5
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
def recorder(folder: str) -> Iterator[SQLiteApplicationRecorder]:
    """A recorder on a new file in `folder`."""
    path = str(Path(folder) / "eventsourcing.db")
    datastore = SQLiteDatastore(path)
    datastore.pool = DurablePool(
        db_name=path, lock_timeout=TIMEOUT_S, pool_size=POOL_SIZE, max_overflow=0, pool_timeout=TIMEOUT_S
    )
    try:
        made = SQLiteApplicationRecorder(datastore)
        made.create_table()
        yield made
    finally:
        datastore.close()


def settings() -> dict[str, object]:
    """How the peer is set up, for the record."""
    return {
        "recorder": "SQLiteApplicationRecorder",
        "journal_mode": "wal",
        "synchronous": "FULL",
        "pool_size": POOL_SIZE,
        "max_overflow": 0,
        "lock_timeout_s": TIMEOUT_S,
        "sqlite": sqlite3.sqlite_version,
    }
