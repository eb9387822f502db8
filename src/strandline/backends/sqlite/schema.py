"""The schema of a part in a file: its steps (`strandline.sql.steps`) are in the folder `sql` of its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from uuid import uuid4

import apsw

from strandline.sql.api import DATABASE_ID, Declared, Part, undeclared
from strandline.sql.statements import script, sqlite_text, statement
from strandline.sql.steps import (
    Columns,
    Description,
    SchemaStep,
    StepDone,
    check_schema,
    in_sets,
    in_template,
    missing_steps,
    steps_of,
    with_made,
)

APPLICATION_ID = 0x5374724C
"""The application id in the header of every file that this library makes, whatever parts are in it."""


@dataclass(frozen=True, eq=False, slots=True)
class SqliteSchema:
    """The schema of a part, as this program knows it."""

    part: Part
    steps: tuple[SchemaStep, ...]
    """In order."""
    columns: Columns
    _texts: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def statement(self, name: str) -> str:
        """Return a statement of the part."""
        return statement(self.part.package, name, "sqlite", self.part.declared)

    def own(self, name: str) -> str:
        """Return a statement that all parts have, for the tables of this part."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = statement("strandline.sql", name, "sqlite").replace("{prefix}", self.part.prefix)
        return text


@cache
def schema_of(
    kind: str, package: str, also: tuple[str, ...] = (), sets: bool = False, declared: Declared = undeclared
) -> SqliteSchema:
    """Return the schema that the steps of a part make."""
    part = Part(kind, package, also=also, sets=sets, declared=declared)
    return schema_with(part, steps_of(package, also, "sql", "sqlite"))


def schema_with(part: Part, steps: tuple[SchemaStep, ...]) -> SqliteSchema:
    """Return the schema that these steps make. Its columns are learnt by making it in memory."""
    connection = apsw.Connection(":memory:")
    schema = SqliteSchema(part, steps, {})
    _lay_foundation(connection, schema)
    for step in steps:
        _run(connection, sqlite_text(in_template(step.script)))
    columns = _columns(connection, schema)
    connection.close()
    return SqliteSchema(part, steps, columns)


def is_there(connection: apsw.Connection, part: Part) -> bool:
    """Return whether anything of a part is there."""
    found = connection.execute(statement("strandline.backends.sqlite", "has_table"), (f"{part.prefix}schema_step",))
    return bool(found.get)


def create(connection: apsw.Connection, schema: SqliteSchema, fixed: Mapping[str, str]) -> None:
    """Make the schema and keep what is fixed, in one transaction. The caller holds the folder's lock."""
    connection.execute("BEGIN IMMEDIATE")
    _lay_foundation(connection, schema)
    for step in schema.steps:
        _do(connection, schema, step)
    more = {DATABASE_ID: uuid4().hex, "schema_version": str(len(schema.steps))}
    connection.executemany(schema.own("fix_setting"), [*fixed.items(), *more.items()])
    connection.execute("COMMIT")


def upgrade(connection: apsw.Connection, schema: SqliteSchema) -> list[str]:
    """Do the missing steps, each in a transaction of its own; return their names. The caller holds the lock."""
    missing = missing_steps(schema.part.kind, _done(connection, schema), schema.steps)
    for step in missing:
        connection.execute("BEGIN IMMEDIATE")
        _do(connection, schema, step)
        connection.execute(schema.own("fix_setting"), ("schema_version", str(len(_done(connection, schema)))))
        connection.execute("COMMIT")
    return [step.name for step in missing]


def check(connection: apsw.Connection, schema: SqliteSchema) -> None:
    """Raise `SchemaMismatch.version` unless the steps done are those known and the columns are as declared."""
    connection.execute("BEGIN")  # read in one transaction, because other processes may make tables of a set meanwhile
    try:
        found, done = _columns(connection, schema), _done(connection, schema)
        made = []
        if schema.part.sets and not missing_steps(schema.part.kind, done, schema.steps):
            made = [(str(table), str(like)) for table, like in connection.execute(schema.statement("made")).fetchall()]
    finally:
        connection.execute("COMMIT")
    check_schema(schema.part.kind, done, schema.steps, found, with_made(schema.columns, made))


def describe(connection: apsw.Connection, schema: SqliteSchema) -> Description:
    """Describe the schema of a part."""
    done = [step.name for step in _done(connection, schema)]
    return Description(done, schema.names, fixed_settings(connection, schema))


def fixed_settings(connection: apsw.Connection, schema: SqliteSchema) -> dict[str, str]:
    """Return the settings that creation fixed, by name."""
    return {str(name): str(value) for name, value in connection.execute(schema.own("settings")).fetchall()}


def _lay_foundation(connection: apsw.Connection, schema: SqliteSchema) -> None:
    foundation = script("strandline.sql", "foundation", "sqlite")
    _run(connection, foundation.replace("{prefix}", schema.part.prefix))


def _do(connection: apsw.Connection, schema: SqliteSchema, step: SchemaStep) -> None:
    for script_ in in_sets(step.script, lambda: _sets(connection, schema)):
        _run(connection, sqlite_text(script_))
    connection.execute(schema.own("record_step"), (step.name, step.additive))


def _sets(connection: apsw.Connection, schema: SqliteSchema) -> list[str]:
    return [str(name) for (name,) in connection.execute(schema.statement("sets")).fetchall()]


def _done(connection: apsw.Connection, schema: SqliteSchema) -> list[StepDone]:
    rows = connection.execute(schema.own("steps_done")).fetchall()
    return [StepDone(str(name), bool(additive)) for name, additive in rows]


def _columns(connection: apsw.Connection, schema: SqliteSchema) -> Columns:
    found: dict[str, set[tuple[object, ...]]] = {}
    for table, *column in connection.execute(schema.own("columns")).fetchall():
        found.setdefault(str(table), set()).add(tuple(column))
    return found


def _run(connection: apsw.Connection, script: str) -> None:
    # Without the loop the library stops at the first statement that gives a row.
    for _ in connection.execute(script):
        pass
