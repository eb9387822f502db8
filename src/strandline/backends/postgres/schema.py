"""The tables of a part in a schema of a database: their steps (`strandline.sql.steps`), and what creation fixed.

Steps are in the folder `sql` of the part's package. One process at a time makes or changes a schema: it holds an
advisory lock of its transaction, or, on a server without such locks, the row `schema` of table `lock`, which another
process takes over when it is 60 s old. All steps may be repeated.

Names of tables begin with the part's kind (those of a store with nothing), so that parts may share a schema.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final
from uuid import uuid4

import psycopg
from psycopg.sql import Identifier

from strandline.backends.postgres.binary import Dumps, declared, parameters
from strandline.backends.postgres.round_trips import BinaryStatement, Connection
from strandline.errors import Unavailable
from strandline.sql.api import DATABASE_ID, Part
from strandline.sql.statements import script, statement
from strandline.sql.steps import (
    Columns,
    Description,
    SchemaStep,
    StepDone,
    check_schema,
    in_sets,
    in_template,
    is_on_sets,
    missing_steps,
    steps_of,
    with_made,
)

LOCK_OLD_S: Final = 60
LOCK_WAIT_S: Final = 90.0
STEP_S: Final = 3600.0
"""The time-out of a step, which may make an index on all existing rows."""
DEADLOCKS: Final = 5
ROLES: Final = ("append", "delete", "pipeline", "project", "read")
"""The roles of a journal's users (`sql/roles.sql` of each part)."""
_LOCK_POLL_S: Final = 0.05
_RACES: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateTable,
    psycopg.errors.DuplicateSchema,
    psycopg.errors.DuplicateObject,  # a row type, of a table that another process has just made
)
_TABLE: Final = re.compile(
    r"CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?\{schema\}\.(\S+) \((.*?)^\)", re.DOTALL | re.MULTILINE
)
_ADDED: Final = re.compile(r"ALTER TABLE \{schema\}\.(\S+) ADD COLUMN IF NOT EXISTS (.*?);", re.DOTALL)
_COLUMN: Final = re.compile(
    r"([a-z_]+) (smallint|integer|bigint|text|bytea|boolean|double precision|jsonb|numeric|uuid)\b(.*)"
)
_NO_COLUMN: Final = ("--", "PRIMARY KEY", "UNIQUE", "CHECK", "CONSTRAINT", "FOREIGN KEY")


@dataclass(frozen=True, slots=True)
class PostgresSchema:
    """The schema of a part: its name, what this program knows of the part, and how statements name it."""

    name: str
    part: Part
    collates: bool = True
    _texts: dict[tuple[str, str], str] = field(default_factory=dict)
    _sent: dict[str, tuple[bytes, Dumps]] = field(default_factory=dict)

    @property
    def steps(self) -> Sequence[SchemaStep]:
        """The steps that make it, in order."""
        return steps_of(self.part.package, self.part.also, "sql", "postgres")

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def statement(self, name: str) -> str:
        """Return a statement of the part, on its tables."""
        return self._text(self.part.package, name)

    def bind(self, name: str, values: Sequence[Any], *, often: bool = False) -> BinaryStatement:
        """Return a statement of the part with its values."""
        known = self._sent.get(name)
        if known is None:
            text = self.statement(name)
            known = self._sent[name] = text.encode(), declared(text)
        text_, types = known
        return BinaryStatement(text_, parameters(types, values), often)

    def own(self, name: str) -> str:
        """Return a statement that all parts have, for the tables of this part."""
        return self._text("strandline.sql", name)

    def roles(self, prefix: str) -> str:
        """The text that makes roles and gives them their rights on the part, with its comments."""
        text = script("strandline.backends.postgres", "roles") + "\n" + script(self.part.package, "roles", "postgres")
        for role in ROLES:
            text = text.replace(f"{{{role}}}", Identifier(f"{prefix}_{role}").as_string(None))
        return self.filled(text.replace("{role_prefix}", f"{prefix}_"))

    def server(self, name: str) -> str:
        """Return a statement of this back-end."""
        return self._text("strandline.backends.postgres", name)

    def _text(self, package: str, name: str) -> str:
        text = self._texts.get((package, name))
        if text is None:
            text = self._texts[package, name] = self.filled(statement(package, name, "postgres", self.part.declared))
        return text

    def filled(self, text: str) -> str:
        """Return a text with the schema's name, quoted, in its places."""
        text = text.replace("{schema}", Identifier(self.name).as_string(None)).replace("{prefix}", self.part.prefix)
        return text.replace("{by_bytes}", 'COLLATE "C"' if self.collates else "")

    @property
    def columns(self) -> Columns:
        """Name, type and whether it may be null, of each column of each table, as the steps declare them."""
        declared: dict[str, set[tuple[object, ...]]] = {}
        foundation = script("strandline.sql", "foundation", "postgres").replace("{prefix}", self.part.prefix)
        for text in (foundation, *(in_template(step.script) for step in self.steps)):
            for table, body in _TABLE.findall(text):
                lines = [line.strip().rstrip(",") for line in body.splitlines()]
                declared[table] = {_column(line) for line in lines if line and not line.startswith(_NO_COLUMN)}
            for table, column in _ADDED.findall(text):
                declared[table].add(_column(column))
        return declared


def _column(text: str) -> tuple[object, ...]:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(f"not a column as steps declare them: {text}")
    name, kind, rest = match.groups()
    return name, kind, "NOT NULL" not in rest and "PRIMARY KEY" not in rest


def is_there(connection: Connection, schema: PostgresSchema) -> bool:
    """Return whether anything of the schema is there."""
    found = connection.execute(schema.server("has_table"), (schema.name, f"{schema.part.prefix}schema_step"))
    return bool(found.fetchone())


def check_right_to_create(connection: Connection, schema: PostgresSchema) -> None:
    """Raise `InsufficientPrivilege`, as the server would raise it, for a user who could not make the schema's
    tables."""
    ((allowed,),) = connection.execute(schema.server("may_create"), (schema.name,)).fetchall()
    if not allowed:
        raise psycopg.errors.InsufficientPrivilege(f"this user has no right to create tables in schema {schema.name}")


def create(
    connection: Connection,
    schema: PostgresSchema,
    fixed: Mapping[str, str],
    filling: Sequence[tuple[str, tuple[Any, ...]]],
    *,
    advisory: bool,
) -> None:
    """Make the schema, keep what is fixed, and execute `filling`: statements of the package, with their parameters."""

    def finish() -> None:
        for name, values in filling:
            connection.execute(schema.statement(name), values)
        more = {DATABASE_ID: uuid4().hex, "schema_version": str(len(schema.steps))}
        for item in {**more, **fixed}.items():
            connection.execute(schema.own("fix_setting"), item)

    with _schema_lock(connection, schema, advisory=advisory):
        missing = missing_steps(schema.part.kind, _done(connection, schema), schema.steps)
        if not missing and fixed_settings(connection, schema):
            return
        _do(connection, schema, missing)
        with _transaction(connection):
            finish()


def create_with(connection: Connection, schema: PostgresSchema, steps: Sequence[str]) -> None:
    """Make a part that is not there with these steps alone, within the caller's transaction.

    `SchemaMismatch.version` for a step that is not known. What creation fixed is for the caller to keep.
    """
    missing_steps(schema.part.kind, [StepDone(name, additive=False) for name in steps], schema.steps)
    _lay_foundation(connection, schema)
    _do(connection, schema, [step for step in schema.steps if step.name in steps])


def upgrade(connection: Connection, schema: PostgresSchema, *, advisory: bool) -> list[str]:
    """Do the missing steps; return their names."""
    for _ in range(DEADLOCKS):
        try:
            return _upgrade(connection, schema, advisory=advisory)
        except psycopg.errors.DeadlockDetected:
            continue  # a deadlock with processes that use the tables; nothing was changed
    return _upgrade(connection, schema, advisory=advisory)


def _upgrade(connection: Connection, schema: PostgresSchema, *, advisory: bool) -> list[str]:
    with _schema_lock(connection, schema, advisory=advisory):
        missing = missing_steps(schema.part.kind, _done(connection, schema), schema.steps)
        _do(connection, schema, missing)
        connection.execute(schema.own("fix_setting"), ("schema_version", str(len(_done(connection, schema)))))
        return [step.name for step in missing]


def check(connection: Connection, schema: PostgresSchema) -> None:
    """Raise `SchemaMismatch.version` unless the steps done are those known and the columns are as declared."""
    with connection.transaction():
        # Of one moment: others make and remove tables of a set meanwhile.
        connection.execute(schema.server("one_moment"))
        done = _done(connection, schema)
        found: dict[str, set[tuple[object, ...]]] = {}
        for table, *column in connection.execute(schema.own("columns"), (schema.name,)).fetchall():
            found.setdefault(str(table), set()).add(tuple(column))
        made = []
        if schema.part.sets and not missing_steps(schema.part.kind, done, schema.steps):
            made = [(str(table), str(like)) for table, like in connection.execute(schema.statement("made")).fetchall()]
    check_schema(schema.part.kind, done, schema.steps, found, with_made(schema.columns, made))


def describe(connection: Connection, schema: PostgresSchema) -> Description:
    """Describe a schema."""
    return Description(
        [step.name for step in _done(connection, schema)], schema.names, fixed_settings(connection, schema)
    )


def fixed_settings(connection: Connection, schema: PostgresSchema) -> dict[str, str]:
    """Return the settings that creation fixed, by name."""
    return {str(name): str(value) for name, value in connection.execute(schema.own("settings")).fetchall()}


def _done(connection: Connection, schema: PostgresSchema) -> list[StepDone]:
    rows = connection.execute(schema.own("steps_done")).fetchall()
    return [StepDone(str(name), bool(additive)) for name, additive in rows]


def _do(connection: Connection, schema: PostgresSchema, missing: Sequence[SchemaStep]) -> None:
    for step in missing:
        with _transaction(connection):
            if is_on_sets(step.script):
                connection.execute(schema.statement("gate"))
            for script_ in in_sets(step.script, lambda: _sets(connection, schema)):
                connection.execute(schema.filled(script_))
            connection.execute(schema.own("record_step"), (step.name, step.additive))


def _sets(connection: Connection, schema: PostgresSchema) -> list[str]:
    return [str(name) for (name,) in connection.execute(schema.statement("sets")).fetchall()]


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """Open a transaction, or a part of the one that is open."""
    with connection.transaction():
        yield


# ---------------------------------------------------------------- one at a time


@contextmanager
def _schema_lock(connection: Connection, schema: PostgresSchema, *, advisory: bool) -> Iterator[None]:
    """Make the tables for locks and steps if they are missing, and lock the schema against other changes."""
    if advisory and _has_advisory_locks(connection, schema):
        with connection.transaction():
            with _timeout(connection, LOCK_WAIT_S):
                connection.execute(schema.server("advisory_lock"), (lock_number(schema),))
            _lay_foundation(connection, schema)
            with _timeout(connection, STEP_S):
                yield
        return
    _repeat(lambda: _lay_foundation(connection, schema))
    holder = f"{socket.gethostname()} pid {os.getpid()} {time.monotonic_ns()}"
    _take_row(connection, schema, holder)
    try:
        with _timeout(connection, STEP_S):
            yield
    finally:
        connection.execute(schema.server("free_lock"), (holder,))


def _has_advisory_locks(connection: Connection, schema: PostgresSchema) -> bool:
    try:
        with _timeout(connection, LOCK_WAIT_S), connection.transaction():
            connection.execute(schema.server("advisory_lock"), (lock_number(schema),))
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFunction):
        return False
    return True


def _lay_foundation(connection: Connection, schema: PostgresSchema) -> None:
    if not connection.execute(schema.server("has_schema"), (schema.name,)).fetchone():
        connection.execute(schema.server("create_schema"))
    if not is_there(connection, schema):
        connection.execute(schema.filled(script("strandline.sql", "foundation", "postgres")))


def _take_row(connection: Connection, schema: PostgresSchema, holder: str) -> None:
    deadline = time.monotonic() + LOCK_WAIT_S
    while not connection.execute(schema.server("take_lock"), (holder, LOCK_OLD_S * 10**6)).fetchone():
        if time.monotonic() > deadline:
            raise Unavailable(
                f"another process changes schema {schema.name}", code="timeout", hint="wait until it is done"
            )
        time.sleep(_LOCK_POLL_S)


def _repeat(work: Callable[[], None]) -> None:
    """Repeat a change that several processes may make at the same time: the one that loses the race finds it done."""
    for _ in range(10):
        try:
            work()
            return
        except _RACES:
            time.sleep(_LOCK_POLL_S)
    work()


@contextmanager
def _timeout(connection: Connection, timeout_s: float) -> Iterator[None]:
    before, connection.timeout_s = connection.timeout_s, timeout_s
    try:
        yield
    finally:
        connection.timeout_s = before


def lock_number(schema: PostgresSchema) -> int:
    """Return the advisory lock of a schema: 64 bits of a digest of its name, so that schemas do not wait for each
    other."""
    digest = blake2b(f"strandline {schema.name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
