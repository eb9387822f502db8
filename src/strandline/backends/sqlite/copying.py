"""Copies a file that is in use, and changes a file that nobody uses yet.

A copy shows one moment: that of a read transaction, which is open until all pages are copied. It makes no other process
wait; meanwhile the WAL grows by what others commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from strandline.backends.sqlite import files, schema
from strandline.backends.sqlite.database import no_schema, open_for_one, opening, outcome
from strandline.backends.sqlite.schema import SqliteSchema, schema_of
from strandline.clock import now_us
from strandline.errors import Corrupt
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.sql.statements import statement
from strandline.sql.steps import Description

PACKAGE: Final = "strandline.backends.sqlite"
PAGES: Final = 1024


def copy_file(path: Path, part: Part, to: Path, settings: Settings, told: Callable[[int, int], None]) -> int:
    """Copy all pages of a file into a new one, as they are at one moment; return that moment (µs).

    The copy stands alone: it needs no WAL, and can be read from a place that nobody may write.
    """
    path = files.real_path(path)
    with opening(path):
        if not path.exists():
            raise no_schema(path, part)
        source = open_for_one(path, settings)
    try:
        files.create_file(to)
        target = apsw.Connection(str(to), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            source.execute("BEGIN")
            page_bytes = int(source.pragma("page_size"))
            source.execute(statement(PACKAGE, "look_once")).fetchall()  # from now on the transaction sees one moment
            moment = now_us()
            with target.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(PAGES)
                    told((backup.page_count - backup.remaining) * page_bytes, backup.page_count * page_bytes)
            target.pragma("journal_mode", "delete")
        finally:
            target.close()
    except apsw.Error as error:
        raise outcome(error, to) from error
    finally:
        source.close()
    return moment


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """Read a file that no process writes, such as a copy. No other file is made beside it."""
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path.absolute()))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise outcome(error, path) from error


@contextmanager
def changing(path: Path, settings: Settings) -> Iterator[apsw.Connection]:
    """Open one transaction on a file that nobody else has open; when it ends, the file stands alone."""
    with opening(path):
        connection = open_for_one(path, settings)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    except apsw.Error as error:
        raise outcome(error, path) from error
    finally:
        connection.close()


class FilePart:
    """Statements of a part on a connection to its file."""

    def __init__(self, connection: apsw.Connection, part: Part) -> None:
        self._connection = connection
        self._schema: SqliteSchema = schema_of(part.kind, part.package, part.also, part.sets, part.declared)

    def describe(self) -> Description:
        """Describe the part."""
        return schema.describe(self._connection, self._schema)

    def text(self, name: str) -> str:
        """Return the text of a named statement."""
        return self._schema.statement(name)

    def rows(self, name: str, values: Any = ()) -> list[Any]:
        """Return the rows of a named statement."""
        return self._connection.execute(self.text(name), values).fetchall()

    def fix(self, name: str, value: str) -> None:
        """Replace the value of a setting that creation fixed."""
        self._connection.execute(self._schema.own("fix_setting"), (name, value))


def damage_in(path: Path) -> list[str]:
    """Return what SQLite finds wrong with pages, indexes and rows of a file that nobody has open. It changes
    nothing."""
    with reading(path) as connection:
        return _damage_in(connection)


def damage_in_use(path: Path, settings: Settings) -> list[str]:
    """Return what SQLite finds wrong, at one moment, with a file that may be in use."""
    path = files.real_path(path)
    try:
        with opening(path):
            connection = open_for_one(path, settings)
        try:
            return _damage_in(connection)
        finally:
            connection.close()
    except Corrupt as error:
        return [error.message]
    except apsw.Error as error:
        raise outcome(error, path) from error


def _damage_in(connection: apsw.Connection) -> list[str]:
    try:
        found = connection.execute(statement(PACKAGE, "damage")).fetchall()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [str(error)]
    return [str(text) for (text,) in found if text != "ok"]
