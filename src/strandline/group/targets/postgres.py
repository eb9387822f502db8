"""A PostgreSQL database of the user's as a target of groups.

Statements see the role's own search path; our two tables are in the schema that the URL names. A step is one
transaction whose statements all see one moment (REPEATABLE READ). If a concurrent transaction was first, the step
begins again. The server ends a transaction whose client has stopped, before another processor may take the stream over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeVar

import psycopg

from strandline.backends.postgres.checks import check_server
from strandline.backends.postgres.database import SCHEMA_DEFAULT, server_facts
from strandline.backends.postgres.driver_errors import Doing, lost
from strandline.backends.postgres.pool import Pool
from strandline.backends.postgres.round_trips import DISCARD_PLANS, OTHER_SESSION, Connection, TimedOut
from strandline.errors import SchemaMismatch, StrandlineError, Unavailable
from strandline.group.statements.api import OURS, Dialect, Plan, TargetTable
from strandline.group.statements.binding import Bound
from strandline.group.statements.texts import named, quoted
from strandline.group.target import Failed, Limits, Owner, Rows
from strandline.group.targets import postgres_values
from strandline.group.targets.changes import Ask, Call, Changed, Changes, Collided, SqlRefused, SqlWords
from strandline.group.targets.postgres_round_trips import Answer, Ours, answers
from strandline.group.targets.postgres_schema import table_of
from strandline.group.targets.sql import OURS_S, SqlSteps
from strandline.settings import Settings
from strandline.sql.statements import statement
from strandline.urls import Url

IDLE_S: Final = 3.0
"""The time for which a client may stop inside a step and keep its locks, unless less is given: below every lease."""
AGAIN_S: Final = 0.01
"""The wait after a lost race, doubled each time."""
_OURS: Final = "strandline.group"
_HERE: Final = "strandline.backends.postgres"
_RACES: Final = {"40001", "40P01"}
_IN_A_MOMENT: Final = {"57014", "55P03"}
_OF_SERVER: Final = ("53", "58030", "40003", "XX001", "XX002")
"""States, and a class of them, that say that the server is not well, though it answers."""
_CACHED_PLAN: Final = "RevalidateCachedQuery"
"""The function in which PostgreSQL finds that a prepared statement would return other columns: the state says less."""
MADE: Final = ("make_schema", "make_target", "make_barrier", "make_barrier_index")
_BEGIN: Final = Ours(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")
_BEGIN_ALONE: Final = Ours(b"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE")
_QUERY: Final = Ours(b"SAVEPOINT strandline_query")
_READ_ONLY: Final = Ours(b"SET LOCAL transaction_read_only = on")
_CHANGED: Final = Ours(
    b"SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_xact_all_tables WHERE schemaname <> 'pg_toast'"
)
"""Counts the rows that the transaction has changed, wherever."""
_END_OF_QUERY: Final = Ours(b"RELEASE strandline_query")
_CLOSE: Final = Ours(b"CLOSE strandline_rows")
_BEGIN_READ_ONLY: Final = Ours(b"BEGIN READ ONLY")
_DISCARD_PLANS: Final = Ours(DISCARD_PLANS.text)
_COMMIT: Final = Ours(b"COMMIT")
_SAVEPOINT: Final = Ours(b"SAVEPOINT strandline_row")
_RELEASE: Final = Ours(b"RELEASE strandline_row")
_DEFERRED: Final = Ours(b"SET CONSTRAINTS ALL DEFERRED")
_BACK: Final = Ours(b"ROLLBACK TO strandline_row")
T = TypeVar("T")
Row = tuple[Any, ...]


class _TargetPool(Pool):
    def connect(self) -> Connection:
        connection = super().connect()
        postgres_values.register(connection)
        return connection


class PostgresTarget(SqlSteps):
    """An open database. Safe to share between threads; refused after a fork."""

    dialect: Dialect = "postgres"
    catalogue = _HERE
    words = SqlWords("postgres", " FOR UPDATE", " FOR UPDATE OF {}", overriding="OVERRIDING SYSTEM VALUE ")

    def __init__(
        self, url: Url, settings: Settings | None = None, *, connections: int = 10, idle_s: float = IDLE_S
    ) -> None:
        super().__init__()
        self._settings = settings or Settings()
        self._unlocked: set[str] = set()
        """Tables that this user may not lock."""
        self.name = str(url)
        self.our_schema = url.parameters.get("schema", SCHEMA_DEFAULT)
        self._idle_ms = int(idle_s * 1000)
        self._pool = _TargetPool(url, self._settings, connections)

    # ------------------------------------------------------------ transactions

    def changing(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        return self._changing(limits, work, _BEGIN)

    def alone(self, work: Callable[[Changes], T]) -> T:
        return self._changing(Limits(OURS_S), work, _BEGIN_ALONE)

    def _changing(self, limits: Limits, work: Callable[[Changes], T], begin: Ours) -> T:
        until, wait_s = time.monotonic() + limits.timeout_s, AGAIN_S
        while True:
            try:
                return self._once(limits, work, begin)
            except _Race as error:
                if time.monotonic() + wait_s > until:
                    raise SqlRefused(
                        Failed("statement", f"concurrent transactions won every time: {error}", retry=True)
                    ) from error
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, 1.0)

    def _once(self, limits: Limits, work: Callable[[Changes], T], begin: Ours) -> T:
        connection, reused = self._pool.take()
        doing: Doing = "write"
        try:
            connection.timeout_s = limits.timeout_s + 1
            first = self._begin(connection, limits, begin)
            changes = _PostgresChanges(connection, self.our_schema, first, limits.timeout_s, self._unlocked)
            found = work(changes)
            reused, doing = False, "commit"
            changes.commit()
            return found
        except psycopg.Error as error:
            if _outdated(connection, error):
                raise _Race(str(error)) from error
            if reused and not error.sqlstate and doing == "write" and lost(error) and not isinstance(error, TimedOut):
                # The connection broke while it was idle, or before the commit: nothing was done.
                raise _Race(str(error)) from self._pool.translated(error, "read")
            raise self._translated(error, doing) from error
        finally:
            self._pool.undo(connection)
            self._pool.give_back(connection)

    def _begin(self, connection: Connection, limits: Limits, begin: Ours) -> list[Ours]:
        time = _timeout(limits.timeout_s)
        settings = Ours(statement(_HERE, "target_settings").encode(), (self._idle_ms,))
        return [begin, *[_DISCARD_PLANS] * connection.plans_are_old(), time, settings]

    def is_taken(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.UniqueViolation)

    def _translated(self, error: psycopg.Error, doing: Doing) -> Exception:
        state = error.sqlstate or ""
        if doing != "read" and (state in _RACES or (state == "23505" and error.diag.table_name in OURS)):
            return _Race(_said(error))
        if state in _RACES or (state in _IN_A_MOMENT and doing != "commit"):
            return SqlRefused(Failed("statement", _said(error), retry=True))
        if not state and isinstance(error, (psycopg.ProgrammingError, psycopg.DataError)):  # before anything was sent
            return SqlRefused(Failed("binding", str(error)))
        if error.diag.severity_nonlocalized == "ERROR" and not state.startswith(_OF_SERVER):
            return SqlRefused(Failed("statement", _said(error)))  # after any error the session goes on
        return self._pool.translated(error, doing)

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        server = self._ours(lambda: self._reading(server_facts))
        check_server(server, self.name, accept_power_loss=self._settings.accept_power_loss)
        return super().own(history_id, stream, shared=shared)

    def may_create(self, changes: Changes) -> None:
        if changes.own("has_tables", (self.our_schema,)) == [(2,)]:
            return
        try:
            for name in MADE:
                changes.count(name)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable) as error:
            raise _Race("somebody else makes the tables") from error
        except psycopg.errors.InsufficientPrivilege as error:
            texts = "; ".join(_text(name, self.our_schema) for name in MADE)
            raise SchemaMismatch(
                f"{self.name} lacks Strandline's tables, and this user may not make them: {_said(error)}",
                code="barrier",
                hint=f"as a user who may, run: {texts}",
                statement=texts,
            ) from error

    # ------------------------------------------------------------ reading

    def queried(self, asked: Bound, plan: Plan, limits: Limits) -> Rows:
        def rows(connection: Connection) -> Rows:
            connection.timeout_s = limits.timeout_s
            return _queried(connection, [_BEGIN_READ_ONLY], asked, [_COMMIT], plan, limits.rows_max)

        return self._reading(rows)

    def described(self, ask: Ask, name: str) -> TargetTable | None:
        return table_of(ask, name)

    def reading(self, read: Callable[[Ask], T]) -> T:
        def asked(connection: Connection) -> T:
            def ask(name: str, values: Sequence[Any]) -> list[Row]:
                (answer,) = answers(connection, [Ours(statement(_HERE, name).encode(), tuple(values))])
                return answer.check().rows()

            return read(ask)

        return self._reading(asked)

    def _reading(self, read: Callable[[Connection], T]) -> T:
        while True:
            connection, reused = self._pool.take()
            try:
                return read(connection)
            except psycopg.Error as error:
                if _outdated(connection, error):
                    continue
                translated = self._translated(error, "read")
                if reused and not error.sqlstate and isinstance(translated, StrandlineError):
                    continue  # the connection broke while it was idle, and the other idle ones may have, too
                raise translated from error
            finally:
                with suppress(psycopg.Error):
                    self._pool.undo(connection)
                self._pool.give_back(connection)

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        self._pool.close()


class _Race(Exception):
    """A concurrent transaction was first, or the connection was dead before. Nothing was done,
    and the call is retried.
    """


class _PostgresChanges:
    """A transaction. What is asked together, and what comes last, is one round trip each."""

    def __init__(
        self, connection: Connection, schema: str, begin: list[Ours], timeout_s: float, unlocked: set[str]
    ) -> None:
        self._connection = connection
        self._held: list[str] = []
        self._unlocked = unlocked
        self._timeout_s = timeout_s
        self._schema = schema
        self._first = begin
        self._last: list[Ours] = []
        self._ahead: list[tuple[Call, Answer]] = []

    def hold(self, table: str) -> None:
        # Before the settings, which are read at the moment that the whole transaction sees.
        if table not in self._unlocked:
            self._first.insert(-1, _lock(table))
            self._held.append(table)

    def ahead(self, calls: Sequence[Call]) -> None:
        first, self._first = self._first, []
        found = answers(self._connection, [*first, *map(self._bound, calls)])
        self._check(first, found)
        self._ahead = list(zip(calls, found[len(first) :], strict=False))

    def _bound(self, call: Call) -> Bound | Ours:
        if call.name == "own":
            name, values = call.arguments
            return self._ours(name, values)
        statement: Bound = call.arguments[0]
        return statement

    def _ours(self, name: str, values: Sequence[Any]) -> Ours:
        return Ours(_text(name, self._schema).encode(), tuple(values))

    def _asked(self, call: Call) -> Answer:
        """Return the answer to a call, which may be here already."""
        if self._ahead and self._ahead[0][0] == call:
            return self._ahead.pop(0)[1].check()
        return self._now(self._bound(call))

    def _now(self, statement: Bound | Ours) -> Answer:
        first, self._first = self._first, []
        found = answers(self._connection, [*first, statement])
        self._check(first, found)
        return found[-1].check()

    def _check(self, first: Sequence[Ours], found: Sequence[Answer]) -> None:
        """Check the answers to what is sent before all else. A user with rights on columns alone locks no table."""
        for sent, answer in zip(first, found, strict=False):
            try:
                answer.check()
            except psycopg.errors.InsufficientPrivilege as error:
                refused = [table for table in self._held if sent == _lock(table)]
                if not refused:
                    raise
                self._unlocked.update(refused)
                raise _Race(f"{refused[0]} cannot be locked") from error

    def own(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._asked(Call("own", (name, tuple(values)))).rows()

    def count(self, name: str, values: Sequence[Any] = ()) -> int:
        return self._asked(Call("own", (name, tuple(values)))).affected

    def last(self, name: str, values: Sequence[Any]) -> None:
        self._last.append(self._ours(name, values))

    def commit(self) -> None:
        """Execute the last statement and commit. Statements that were sent ahead but not asked for are left out."""
        if self._ahead:
            raise AssertionError(self._ahead)
        for answer in (found := answers(self._connection, [*self._first, *self._last, _COMMIT])):
            answer.check()
        if found[-1].status != "COMMIT":
            raise Unavailable("the server undid the transaction", code="serialization", hint="call again")

    def limit(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            self._first.append(_timeout(timeout_s))
            self._timeout_s, self._connection.timeout_s = timeout_s, timeout_s + 1

    def query(self, statement: Bound, plan: Plan, rows_max: int) -> Rows:
        if plan.reads_one:
            answer = self._asked(Call("query", (statement, plan, rows_max)))
            return Rows(answer.columns(), tuple(answer.rows()))
        if plan.statement.shape is not None and plan.statement.shape.locks:
            return self._locked(statement, plan, rows_max)
        first, self._first = self._first, []
        return _queried(self._connection, [*first, _QUERY, _READ_ONLY], statement, [_END_OF_QUERY], plan, rows_max)

    def _locked(self, statement: Bound, plan: Plan, rows_max: int) -> Rows:
        """Return the rows of a query that locks them: its transaction is not read-only, and must change none."""
        before = self._rows_changed()
        rows = _queried(self._connection, [], statement, [], plan, rows_max)
        if self._rows_changed() != before:
            raise SqlRefused(
                Failed("statement", "a query step must not change rows, but a function that it calls does")
            )
        return rows

    def _rows_changed(self) -> int:
        return int(self._now(_CHANGED).rows()[0][0] or 0)

    def image(self, statement: Bound) -> list[Row]:
        return self._asked(Call("image", (statement,))).rows()

    def change(self, statement: Bound, ours: int, plan: Plan) -> Changed:
        looks = ours > 0 and plan.statement.shape.calls
        before = self._rows_changed() if looks else 0
        answer = self._asked(Call("change", (statement, ours, plan)))
        if looks and self._rows_changed() - before != answer.affected:
            wrong = "a function that it calls changes other rows, which nothing would undo"
            raise SqlRefused(Failed("statement", f"{wrong}: give undo= or irreversible=True"))
        columns = answer.columns()
        rows = answer.rows() if columns else []
        theirs = len(columns) - ours
        kept = Rows(columns[:theirs], tuple(row[:theirs] for row in rows)) if theirs else Rows()
        return Changed(answer.affected, kept, tuple(row[theirs:] for row in rows) if ours else ())

    def zone(self) -> str:
        return (self._connection.pgconn.parameter_status(b"TimeZone") or b"").decode()

    def restore(self, zone: str) -> None:
        if zone != self.zone():
            self._now(Ours(statement(_HERE, "target_zone").encode(), (zone,)))
        self._now(_DEFERRED)

    def put(self, statement: Bound) -> int:
        found = answers(self._connection, [_SAVEPOINT, statement, _RELEASE])
        try:
            for answer in found:
                answer.check()
        except psycopg.errors.IntegrityError as error:
            self._now(_BACK)
            raise Collided(Failed("statement", _said(error))) from error
        return found[1].affected


def _lock(table: str) -> Ours:
    return Ours(f"LOCK TABLE {named(table)} IN ROW EXCLUSIVE MODE".encode())


def _timeout(timeout_s: float) -> Ours:
    return Ours(f"SET LOCAL statement_timeout = {int(timeout_s * 1000)}".encode())


def _queried(
    connection: Connection, before: Sequence[Ours], asked: Bound, after: Sequence[Ours], plan: Plan, rows_max: int
) -> Rows:
    """Return the rows of a query, in one round trip with what is sent before and after it."""
    sent: list[Bound | Ours] = [asked]
    if not plan.rows or plan.rows[0].key is None:  # more than one row, perhaps
        fetch = Ours(f"FETCH {rows_max + 1} FROM strandline_rows".encode())
        sent = [asked._replace(text=f"DECLARE strandline_rows CURSOR FOR {asked.text}"), fetch, _CLOSE]
    found = [answer.check() for answer in answers(connection, [*before, *sent, *after])]
    told = found[len(before) + (len(sent) > 1)]
    rows = told.rows()
    if len(rows) > rows_max:
        raise SqlRefused(Failed.too_many(rows_max))
    return Rows(told.columns(), tuple(rows))


def _outdated(connection: Connection, error: psycopg.Error) -> bool:
    """Return whether a prepared statement is gone or returns other columns by now. It is then not used again."""
    if isinstance(error, OTHER_SESSION):
        connection.meet_pooler()
        return True
    if connection.has_prepared_theirs and error.diag.source_function == _CACHED_PLAN:
        connection.close()
        return True
    return False


@lru_cache
def _text(name: str, schema: str) -> str:
    return statement(_OURS, name, "postgres").replace("{schema}", quoted(schema))


def _said(error: psycopg.Error) -> str:
    return f"{error.sqlstate}: {error.diag.message_primary or error}"


def open_target(url: Url, *, connections: int, settings: Settings, **_: Any) -> PostgresTarget:
    """Open the database that a URL names."""
    return PostgresTarget(url, settings, connections=connections)
