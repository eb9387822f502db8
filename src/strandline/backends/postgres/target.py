"""A PostgreSQL database of the user's as a target of groups.

Statements see the role's own search path; our two tables are in the schema that the URL names. A step is one
transaction in which all statements see one moment (REPEATABLE READ): where somebody else was first it is begun again.
The server ends a transaction whose client has stopped, before another processor may take the stream over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg

from strandline.backends.postgres import target_values
from strandline.backends.postgres.database import SCHEMA_DEFAULT
from strandline.backends.postgres.driver_errors import Doing
from strandline.backends.postgres.pool import Pool
from strandline.backends.postgres.round_trips import Connection
from strandline.backends.postgres.target_schema import table_of
from strandline.errors import SchemaMismatch, StrandlineError, Unavailable
from strandline.group.sql_steps import Changed, Changes, Collided, Refused, SqlSteps
from strandline.group.statements.api import Dialect, Plan, Table
from strandline.group.statements.binding import Bound, Unbound, bound
from strandline.group.statements.texts import quoted
from strandline.group.target import Failed, Limits, Rows
from strandline.settings import Settings
from strandline.sql.statements import statement
from strandline.urls import Url

IDLE_S: Final = 3.0
"""For how long a client may stop inside a step and keep its locks, unless less is given: below every lease."""
AGAIN_S: Final = 0.01
"""After a lost race, doubled each time."""
_OURS: Final = "strandline.group"
_HERE: Final = "strandline.backends.postgres"
_RACES: Final = {"40001", "40P01"}
_IN_A_MOMENT: Final = {"57014", "55P03"}
_OF_STATEMENT: Final = ("0A", "21", "22", "23", "25", "26", "2F", "38", "39", "42", "44", "54", "P0")
"""Classes of states that are about what the user wrote."""
T = TypeVar("T")
Row = tuple[Any, ...]


class _TargetPool(Pool):
    def connect(self) -> Connection:
        connection = super().connect()
        target_values.register(connection)
        return connection


class PostgresTarget(SqlSteps):
    """An open database. Safe to share between threads; refused after a fork."""

    dialect: Dialect = "postgres"
    lock = " FOR UPDATE"
    lock_of = " FOR UPDATE OF {}"
    overriding = "OVERRIDING SYSTEM VALUE "

    def __init__(self, url: Url, settings: Settings | None = None, *, connections: int = 10, idle_s: float = IDLE_S):
        self.name = str(url)
        self.our_schema = url.parameters.get("schema", SCHEMA_DEFAULT)
        self._idle_ms = int(idle_s * 1000)
        self._pool = _TargetPool(url, settings or Settings(), connections)

    # ------------------------------------------------------------ transactions

    def changing(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        until, wait_s = time.monotonic() + limits.timeout_s, AGAIN_S
        while True:
            try:
                return self._once(limits, work)
            except _Race as error:
                if time.monotonic() + wait_s > until:
                    raise Refused(Failed("statement", f"others were always first: {error}", retry=True)) from error
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, 1.0)

    def _once(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        connection, reused = self._pool.take()
        doing: Doing = "write"
        try:
            connection.timeout_s = limits.timeout_s + 1
            self._begin(connection, limits)
            reused = False
            found = work(_Changes(connection, self.our_schema))
            doing = "commit"
            if connection.execute("COMMIT").statusmessage != "COMMIT":
                raise Unavailable("the server undid the transaction", code="serialization", hint="call again")
            return found
        except psycopg.Error as error:
            if reused and not error.sqlstate:  # it broke while it was idle: nothing was sent
                raise _Race(str(error)) from self._pool.translated(error, "read")
            raise self._translated(error, doing) from error
        finally:
            self._pool.undo(connection)
            self._pool.give_back(connection)

    def _begin(self, connection: Connection, limits: Limits) -> None:
        times = {"statement_ms": int(limits.timeout_s * 1000), "idle_ms": self._idle_ms}
        connection.execute(statement(_HERE, "target_begin").format(**times))

    def _translated(self, error: psycopg.Error, doing: Doing) -> Exception:
        state = error.sqlstate or ""
        if state in _RACES or (state == "23505" and error.diag.table_name == "strandline_barrier"):
            return _Race(_said(error))
        if state in _IN_A_MOMENT and doing != "commit":
            return Refused(Failed("statement", _said(error), retry=True))
        if state[:2] in _OF_STATEMENT and state not in {"25P02", "25P03"}:
            return Refused(Failed("statement", _said(error)))
        return self._pool.translated(error, doing)

    def may_create(self, changes: Changes) -> None:
        if changes.own("has_tables", (self.our_schema,)) == [(2,)]:
            return
        try:
            for name in ("make_schema", "make_target", "make_barrier"):
                changes.count(name)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable) as error:
            raise _Race("somebody else makes the tables") from error
        except psycopg.errors.InsufficientPrivilege as error:
            texts = "; ".join(_text(name, self.our_schema) for name in ("make_schema", "make_target", "make_barrier"))
            raise SchemaMismatch(
                f"{self.name} has no tables of ours, and this user may not make them: {_said(error)}",
                code="barrier",
                hint=f"let somebody who may run: {texts}",
                statement=texts,
            ) from error

    # ------------------------------------------------------------ reading

    def query(self, plan: Plan, values: Mapping[str, Any], limits: Limits) -> Rows | Failed:
        try:
            asked = bound(plan.statement.template, values, "postgres", limits.rows_max)
        except Unbound as error:
            return Failed("binding", str(error))

        def rows(connection: Connection) -> Rows | Failed:
            connection.timeout_s = limits.timeout_s
            found: list[Row] = []
            with connection.cursor() as cursor:
                if plan.rows and plan.rows[0].key is not None:  # one row at most
                    found = cursor.execute(asked.text, asked.values).fetchall()
                else:
                    for row in cursor.stream(asked.text, asked.values):
                        found.append(row)
                        if len(found) > limits.rows_max:
                            return Failed("too_large", f"more than rows_max rows, {limits.rows_max:,}")
                return _rows(connection, cursor.description, found, plan)

        try:
            return self._reading(rows)
        except Refused as error:
            return error.failed

    def tables(self, names: Sequence[str]) -> Mapping[str, Table]:
        def read(connection: Connection) -> dict[str, Table]:
            def ask(name: str, values: Sequence[Any]) -> list[Row]:
                return connection.execute(statement(_HERE, name), values).fetchall()

            found = {name: table_of(ask, name) for name in names}
            return {name: table for name, table in found.items() if table is not None}

        return self._reading(read)

    def _reading(self, read: Callable[[Connection], T]) -> T:
        while True:
            connection, reused = self._pool.take()
            try:
                return read(connection)
            except psycopg.Error as error:
                translated = self._translated(error, "read")
                if reused and not error.sqlstate and isinstance(translated, StrandlineError):
                    continue  # it broke while it was idle, and the others may be as old
                raise translated from error
            finally:
                with suppress(psycopg.Error):
                    self._pool.undo(connection)
                self._pool.give_back(connection)

    def close(self) -> None:
        """Twice is harmless."""
        self._pool.close()


class _Race(Exception):
    """Somebody else was first, or the connection was dead to begin with: nothing was done, and is tried again."""


class _Changes:
    """A transaction."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def own(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(_text(name, self._schema), values).fetchall()

    def count(self, name: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(_text(name, self._schema), values).rowcount

    def image(self, statement: Bound) -> list[Row]:
        return self._connection.execute(statement.text, statement.values).fetchall()

    def change(self, statement: Bound, ours: int, plan: Plan) -> Changed:
        cursor = self._connection.execute(statement.text, statement.values)
        rows = cursor.fetchall() if cursor.description else []
        theirs = len(cursor.description or ()) - ours
        kept = Rows()
        if theirs:
            kept = _rows(self._connection, cursor.description, [row[:theirs] for row in rows], plan, theirs)
        return Changed(max(cursor.rowcount, 0), kept, tuple(row[theirs:] for row in rows) if ours else ())

    def put(self, statement: Bound) -> int:
        self._connection.execute("SAVEPOINT strandline_row")
        try:
            found = self._connection.execute(statement.text, statement.values).rowcount
        except psycopg.errors.IntegrityError as error:
            self._connection.execute("ROLLBACK TO strandline_row")
            raise Collided(Failed("statement", _said(error))) from error
        self._connection.execute("RELEASE strandline_row")
        return found


def _rows(connection: Connection, description: Any, rows: list[Row], plan: Plan, most: int | None = None) -> Rows:
    described = list(description or ())[:most]
    columns = tuple(column.name for column in described)
    types = tuple(_type(connection, column.type_code) for column in described)
    keys = plan.table.key if plan.table is not None else ()
    return Rows(columns, types, tuple(rows), tuple(name for name in columns if name in keys))


def _type(connection: Connection, oid: int) -> str:
    found = connection.adapters.types.get(oid)
    return found.name if found is not None else ""


def _text(name: str, schema: str) -> str:
    return statement(_OURS, name, "postgres").replace("{schema}", quoted(schema))


def _said(error: psycopg.Error) -> str:
    return f"{error.sqlstate}: {error.diag.message_primary or error}"


def open_target(url: Url, *, connections: int, **_: Any) -> PostgresTarget:
    """The database that a URL names."""
    return PostgresTarget(url, connections=connections)
