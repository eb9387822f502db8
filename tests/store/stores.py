"""SQLite stores of tests: how one is opened, and what is in its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import apsw

from strandline.backends.sqlite import Database
from strandline.backends.sqlite.store import open_store as open_sqlite_store
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.sql_store import SqlStore

TABLES = (
    "journal",
    "metajournal",
    "pointer",
    "ended",
    "quarantine",
    "snapshot",
    "tag_view",
    "tag_progress",
    "repaired",
)


def open_store(path: Path, *, log_id: str | None = "tape", partitions: int | None = 1, **settings: Any) -> SqlStore:
    """A store with segments of three events."""
    return open_sqlite_store(path, Settings.of({"segment_size": 3, **settings}), log_id, partitions)


def file_of(store: Store) -> Database:
    """The open file of a store."""
    return cast(Database, cast(SqlStore, store)._database)


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, sorted; fences aside, and with them the pointers' digests."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = {}
        for table in TABLES:
            rows = [tuple(row) for row in connection.execute(f"SELECT * FROM {table}")]
            found[table] = sorted(rows, key=repr)
        found["pointer"] = [(*row[:4], row[5]) for row in found["pointer"]]
        return found
    finally:
        connection.close()


def change(path: Path, statement: str) -> int:
    """Change a file by hand, as damage would; how many rows changed."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute(statement)
        return connection.changes()
    finally:
        connection.close()
