"""The schema of a file: its steps (`strandline.steps`) are `sql/schema/NNN_name.sql` of a package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import apsw

from strandline.statements import scripts, statement
from strandline.steps import REMEDY_BACKUP, Description, Kind, check_done, mismatch, refuse_unknown

APPLICATION_IDS: dict[Kind, int] = {"log": 0x5374724C, "store": 0x53747253, "work": 0x53747257}
_sql = partial(statement, "strandline.sqlite")
_Columns = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True, eq=False, slots=True)
class Schema:
    """What a program knows of a kind of file."""

    kind: Kind
    steps: tuple[tuple[str, str], ...]
    """Name and script of each step, in order."""
    columns: _Columns

    @property
    def application_id(self) -> int:
        return APPLICATION_IDS[self.kind]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.steps]


@cache
def schema_of(kind: Kind, package: str) -> Schema:
    """The schema that the steps of a package make."""
    return schema_with(kind, tuple(scripts(package, "schema")))


def schema_with(kind: Kind, steps: tuple[tuple[str, str], ...]) -> Schema:
    """The schema that these steps make. Its columns are learnt by making it in memory."""
    connection = apsw.Connection(":memory:")
    _run(connection, _sql("foundation"))
    for _, script in steps:
        _run(connection, script)
    columns = _columns(connection)
    connection.close()
    return Schema(kind, steps, columns)


def is_empty(connection: apsw.Connection) -> bool:
    """Whether nothing of a schema is there yet."""
    return not connection.execute(_sql("has_steps")).get


def create(connection: apsw.Connection, schema: Schema, fixed: Mapping[str, str]) -> None:
    """Make the schema and keep what is fixed, in one transaction. The caller holds the folder's lock."""
    connection.execute("BEGIN IMMEDIATE")
    _run(connection, _sql("foundation"))
    for name, script in schema.steps:
        _run(connection, script)
        connection.execute(_sql("record_step"), (name,))
    version = {"schema_version": str(len(schema.steps))}
    connection.executemany(_sql("fix_setting"), [*fixed.items(), *version.items()])
    connection.execute("COMMIT")


def upgrade(connection: apsw.Connection, schema: Schema) -> list[str]:
    """Do the steps that are missing, each in a transaction of its own; their names. The caller holds the lock."""
    done = _done(connection)
    refuse_unknown(schema.kind, done, schema.names)
    missing = [(name, script) for name, script in schema.steps if name not in done]
    for name, script in missing:
        connection.execute("BEGIN IMMEDIATE")
        _run(connection, script)
        connection.execute(_sql("record_step"), (name,))
        connection.execute(_sql("fix_setting"), ("schema_version", str(len(_done(connection)))))
        connection.execute("COMMIT")
    return [name for name, _ in missing]


def check(connection: apsw.Connection, schema: Schema) -> None:
    """`SchemaMismatch.version` unless the steps done are those known and the columns are as declared."""
    done = _done(connection)
    check_done(schema.kind, done, schema.names)
    columns = _columns(connection)
    for table, declared in schema.columns.items():
        if columns.get(table) != declared:
            wrong = f"has another table {table} than declared"
            raise mismatch(schema.kind, wrong, done, schema.names, REMEDY_BACKUP)


def describe(connection: apsw.Connection, schema: Schema) -> Description:
    """What a file says of itself."""
    return Description(_done(connection), schema.names, fixed_settings(connection))


def fixed_settings(connection: apsw.Connection) -> dict[str, str]:
    """What creation fixed, by name."""
    return {str(name): str(value) for name, value in connection.execute(_sql("settings")).fetchall()}


def _done(connection: apsw.Connection) -> list[str]:
    return [str(name) for (name,) in connection.execute(_sql("steps_done")).fetchall()]


def _columns(connection: apsw.Connection) -> _Columns:
    found: _Columns = {}
    for table, *column in connection.execute(_sql("columns")).fetchall():
        found.setdefault(str(table), []).append(tuple(column))
    return found


def _run(connection: apsw.Connection, script: str) -> None:
    # Without the loop the library stops at the first statement that gives a row.
    for _ in connection.execute(script):
        pass
