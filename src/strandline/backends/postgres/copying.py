"""Copies of the tables of a schema: out of one snapshot, and into a schema that has none of them yet.

A copy takes no lock that appends, reads or a pipeline wait for. Tables of work journals, which are emptied as a whole
(TRUNCATE), are locked until they are copied, and copied first: a process that wants to empty one tries again later. No
vacuum removes what the snapshot still sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.sql import Identifier

from strandline.backends.postgres import schema as schemas
from strandline.backends.postgres.database import checked_server
from strandline.backends.postgres.pool import Pool
from strandline.backends.postgres.round_trips import Connection
from strandline.backends.postgres.schema import PostgresSchema
from strandline.errors import Unavailable
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.sql.steps import Description
from strandline.urls import Url

LONG_S: Final = 3600.0
"""The time-out of one answer of the server, which may have to make an index."""
TRIES: Final = 5
_SNAPSHOT: Final = re.compile(r"[0-9A-F-]+")
_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NOT_COPIED: Final = ("schema_step", "setting", "lock")
"""Tables that are not copied but made anew: they record how the others were made."""


class ServerPart:
    """Statements of a part on a connection to its schema."""

    def __init__(self, connection: Connection, schema: PostgresSchema) -> None:
        self._connection, self.schema = connection, schema

    def describe(self) -> Description:
        """Describe the part."""
        return schemas.describe(self._connection, self.schema)

    def rows(self, name: str, values: Any = ()) -> list[Any]:
        """Return the rows of a named statement."""
        found = self._connection.execute(self.schema.statement(name), values or None)
        return found.fetchall() if found.description else []

    def fix(self, name: str, value: str) -> None:
        """Replace the value of a setting that creation fixed."""
        self._connection.execute(self.schema.own("fix_setting"), (name, value))

    @property
    def tables(self) -> Mapping[str, dict[str, str]]:
        """The tables to copy, without those of sets, each with its columns and their types."""
        left_out = {f"{self.schema.part.prefix}{name}" for name in _NOT_COPIED}
        return {table: names for table, names in self._declared().items()
                if table not in left_out and not table.startswith(f"{self.schema.part.kind}_template_")}  # fmt: skip

    def tables_of(self, set_name: str) -> Mapping[str, dict[str, str]]:
        """Return the tables of a set, each with its columns and their types."""
        kind = self.schema.part.kind
        template = f"{kind}_template_"
        return {f"{kind}_{set_name}_{table.removeprefix(template)}": names
                for table, names in self._declared().items() if table.startswith(template)}  # fmt: skip

    def _declared(self) -> Mapping[str, dict[str, str]]:
        return {table: {str(column[0]): str(column[1]) for column in sorted(columns, key=str)}
                for table, columns in sorted(self.schema.columns.items())}  # fmt: skip

    def copy_out(self, table: str, columns: Sequence[str], write: Callable[[bytes], object]) -> int:
        """Hand over all rows of a table, as the server writes them; return how many there are."""
        cursor = self._connection.cursor()
        with cursor.copy(self._text("copy_out", columns, table)) as copy:
            for data in copy:
                write(bytes(data))
        return cursor.rowcount

    def copy_in(self, table: str, columns: Sequence[str], data: Iterable[bytes]) -> int:
        """Put rows into a table, as `copy_out` handed them over; return how many there were."""
        cursor = self._connection.cursor()
        with cursor.copy(self._text("copy_in", columns, table)) as copy:
            for part in data:
                copy.write(part)
        return cursor.rowcount

    def _text(self, name: str, columns: Sequence[str], table: str) -> bytes:
        names = ", ".join(Identifier(column).as_string(None) for column in columns)
        text = self.schema.server(name).replace("{1}", names).replace("{2}", Identifier(table).as_string(None))
        return text.encode()

    def sizes(self) -> dict[str, int]:
        """Return about how many bytes each table of the schema has."""
        found = self._connection.execute(self.schema.server("table_bytes"), (self.schema.name,))
        return {str(name): int(str(size)) for name, size in found.fetchall()}


class SchemaSnapshot:
    """The parts of a schema at one moment."""

    def __init__(self, first: Connection, rest: Connection, schemas_: Sequence[PostgresSchema]) -> None:
        self._first = first
        self.moment = 0
        """The moment, by the server's clock (µs)."""
        self.sets: list[str] = []
        """The sets of tables that there are."""
        self._held = {one.part.kind: ServerPart(first, one) for one in schemas_ if one.part.sets}
        self.parts = {one.part.kind: ServerPart(rest, one) for one in schemas_}
        self._rest = rest

    def begin(self) -> None:
        """Lock the tables that may be emptied as a whole, then take the snapshot."""
        for _ in range(TRIES):
            self.sets = self._sets(self.parts)  # outside of any transaction
            self._first.execute(_BEGIN)
            for part in self._held.values():
                for name in self.sets:
                    part.rows(f"hold_set@{name}")
            server = next(iter(self.parts.values())).schema
            ((exported, now),) = self._first.execute(server.server("export_snapshot")).fetchall()
            self.moment = int(str(now))
            if self._sets(self._held) != self.sets:
                self._first.execute("ROLLBACK")  # a work journal was declared meanwhile
                continue
            if not _SNAPSHOT.fullmatch(str(exported)):
                raise ValueError(f"not the name of a snapshot: {exported}")
            self._rest.execute(_BEGIN)
            self._rest.execute(server.server("import_snapshot").replace("{1}", str(exported)))
            for connection in (self._first, self._rest):
                connection.execute(server.server("no_timeouts"))
            return
        raise Unavailable("other processes keep declaring work journals", code="serialization", hint="call again")

    def _sets(self, parts: Mapping[str, ServerPart]) -> list[str]:
        return [str(name) for part in parts.values() if part.schema.part.sets for (name,) in part.rows("sets")]

    def held(self, kind: str) -> ServerPart:
        """Return a part whose tables are held until `release`."""
        return self._held[kind]

    def release(self) -> None:
        """Release the locked tables, once they are copied."""
        self._first.execute("COMMIT")


@contextmanager
def snapshot(url: Url, parts: Sequence[Part], settings: Settings) -> Iterator[SchemaSnapshot]:
    """Open a snapshot of all parts of a schema at one moment. `SchemaMismatch.version` for a part that is not as
    declared."""
    with _pool(url, settings) as pool, _connection(pool) as first, _connection(pool) as rest:
        known = _schemas(rest, pool, url, parts, settings)
        for one in known:
            schemas.check(rest, one)
        found = SchemaSnapshot(first, rest, known)
        found.begin()
        yield found


@contextmanager
def filling(
    url: Url, parts: Sequence[Part], steps: Mapping[str, Sequence[str]], settings: Settings
) -> Iterator[dict[str, ServerPart]]:
    """Make parts, each with these steps, in a schema that has none of them; all that is done is one transaction.

    `SchemaMismatch.version` for a step that this program does not know.
    """
    with _pool(url, settings) as pool, _connection(pool) as connection:
        made = _schemas(connection, pool, url, parts, settings)
        with connection.transaction():
            for schema in made:
                schemas.create_with(connection, schema, steps[schema.part.kind])
            connection.execute(made[0].server("no_timeouts"))
            yield {schema.part.kind: ServerPart(connection, schema) for schema in made}


def _schemas(
    connection: Connection, pool: Pool, url: Url, parts: Sequence[Part], settings: Settings
) -> list[PostgresSchema]:
    server, name = checked_server(connection, pool.where, url, settings)
    return [PostgresSchema(name, part, server.collates) for part in parts]


@contextmanager
def _pool(url: Url, settings: Settings) -> Iterator[Pool]:
    """Return a pool of connections to a server, which translates the driver's errors."""
    pool = Pool(url, settings)
    try:
        yield pool
    except psycopg.Error as error:
        raise pool.translated(error, "write") from error
    finally:
        pool.close()


@contextmanager
def _connection(pool: Pool) -> Iterator[Connection]:
    connection = pool.connect()
    connection.take_long(LONG_S)
    try:
        yield connection
    finally:
        connection.close()
