"""Where databases of tests are: a file, or a schema of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import apsw
import psycopg

from strandline.backends import backend_of
from strandline.servers.postgres import PostgresServer
from strandline.settings import Settings
from strandline.sql.api import Database, Part
from strandline.urls import Url, urls_of

NOTES: Final = Part("note", "tests.sql.notes")
STAMPS: Final = Part("stamp", "tests.sql.stamps")


class Place:
    """A place for databases, and how a caller who knows nothing of us connects to it."""

    def __init__(self, url: Url, held: ExitStack) -> None:
        self.url = url
        self._held = held

    def open(self, part: Part = NOTES, *, fixed: dict[str, str] | None = None, **settings: Any) -> Database:
        given = Settings.of(settings)
        database = backend_of(self.url).open_database(self.url, part, given, fixed=fixed or {})
        self._held.callback(database.close)
        return database

    @contextmanager
    def caller(self) -> Iterator[Any]:
        """A connection of the caller's own, in an open transaction; `commit` and `rollback` are functions of it."""
        if self.url.path is not None:
            with closing(apsw.Connection(str(self.url.path))) as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        else:
            text = self.url.text.partition("&schema")[0]
            with psycopg.connect(text, row_factory=psycopg.rows.dict_row) as opened:
                opened.execute("SET search_path TO pg_catalog")
                yield opened


def commit(connection: Any) -> None:
    """End the caller's transaction."""
    if isinstance(connection, apsw.Connection):
        connection.execute("COMMIT")
    else:
        connection.commit()


def undo(connection: Any) -> None:
    """Undo the caller's transaction."""
    if isinstance(connection, apsw.Connection):
        connection.execute("ROLLBACK")
    else:
        connection.rollback()


def sqlite_place(folder: Path, held: ExitStack) -> Place:
    return Place(Url("sqlite", folder / f"{uuid4().hex}.db"), held)


def postgres_place(server: PostgresServer, held: ExitStack) -> Place:
    return Place(urls_of(f"{server.url}&schema=k{uuid4().hex}").store, held)
