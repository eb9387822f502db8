"""The schema of a file: its steps (`strandline.steps`) are `sql/schema/NNN_name.sql` of a package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

import apsw

from strandline.statements import statement
from strandline.steps import Columns, Description, Kind, Step, StepDone, check_schema, missing_steps, steps_in

APPLICATION_IDS: dict[Kind, int] = {"log": 0x5374724C, "store": 0x53747253, "work": 0x53747257}
_sql = partial(statement, "strandline.backends.sqlite")


@dataclass(frozen=True, eq=False, slots=True)
class Schema:
    """What a program knows of a kind of file."""

    kind: Kind
    steps: tuple[Step, ...]
    """In order."""
    columns: Columns

    @property
    def application_id(self) -> int:
        return APPLICATION_IDS[self.kind]

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]


@cache
def schema_of(kind: Kind, package: str) -> Schema:
    """The schema that the steps of a package make."""
    return schema_with(kind, steps_in(package, "sql/schema"))


def schema_with(kind: Kind, steps: tuple[Step, ...]) -> Schema:
    """The schema that these steps make. Its columns are learnt by making it in memory."""
    connection = apsw.Connection(":memory:")
    _run(connection, _sql("foundation"))
    for step in steps:
        _run(connection, step.script)
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
    for step in schema.steps:
        _do(connection, step)
    version = {"schema_version": str(len(schema.steps))}
    connection.executemany(_sql("fix_setting"), [*fixed.items(), *version.items()])
    connection.execute("COMMIT")


def upgrade(connection: apsw.Connection, schema: Schema) -> list[str]:
    """Do the steps that are missing, each in a transaction of its own; their names. The caller holds the lock."""
    missing = missing_steps(schema.kind, _done(connection), schema.steps)
    for step in missing:
        connection.execute("BEGIN IMMEDIATE")
        _do(connection, step)
        connection.execute(_sql("fix_setting"), ("schema_version", str(len(_done(connection)))))
        connection.execute("COMMIT")
    return [step.name for step in missing]


def check(connection: apsw.Connection, schema: Schema) -> None:
    """`SchemaMismatch.version` unless the steps done are those known and the columns are as declared."""
    check_schema(schema.kind, _done(connection), schema.steps, _columns(connection), schema.columns)


def describe(connection: apsw.Connection, schema: Schema) -> Description:
    """What a file says of itself."""
    return Description([step.name for step in _done(connection)], schema.names, fixed_settings(connection))


def fixed_settings(connection: apsw.Connection) -> dict[str, str]:
    """What creation fixed, by name."""
    return {str(name): str(value) for name, value in connection.execute(_sql("settings")).fetchall()}


def _do(connection: apsw.Connection, step: Step) -> None:
    _run(connection, step.script)
    connection.execute(_sql("record_step"), (step.name, step.additive))


def _done(connection: apsw.Connection) -> list[StepDone]:
    return [StepDone(str(name), bool(additive)) for name, additive in connection.execute(_sql("steps_done")).fetchall()]


def _columns(connection: apsw.Connection) -> Columns:
    found: dict[str, set[tuple[object, ...]]] = {}
    for table, *column in connection.execute(_sql("columns")).fetchall():
        found.setdefault(str(table), set()).add(tuple(column))
    return found


def _run(connection: apsw.Connection, script: str) -> None:
    # Without the loop the library stops at the first statement that gives a row.
    for _ in connection.execute(script):
        pass
