"""A SQLite file of the user's as a target of groups.

The file keeps its journal mode and its application id; foreign keys are enforced. It has one writer, as every SQLite
file does: a step waits for the write lock, then no other program writes until it commits. If a process is stopped
inside a step, it holds that lock, and others wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import apsw

from strandline import forks
from strandline.backends.sqlite import files
from strandline.backends.sqlite.checks import check_file_system, check_library
from strandline.backends.sqlite.driver_errors import Doing, outcome_of
from strandline.backends.sqlite.files import OPEN_FILES
from strandline.errors import SchemaMismatch, Unavailable, Unsupported, closed, unusable, used_after_fork
from strandline.group.core.encoding import decoded, encoded
from strandline.group.statements.api import Dialect, Plan, TargetTable
from strandline.group.statements.binding import Bound
from strandline.group.target import Failed, Limits, Rows
from strandline.group.targets.changes import Ask, Call, Changed, Changes, Collided, SqlRefused, SqlWords
from strandline.group.targets.sql import SqlSteps
from strandline.group.targets.sqlite_schema import table_of
from strandline.sql.statements import statement
from strandline.urls import Url

READERS_MAX: Final = 8
STEPS_BETWEEN_LOOKS: Final = 10_000
"""The steps of SQLite's machine between two looks whether a statement's time is over."""
_OURS: Final = "strandline.group"
_HERE: Final = "strandline.backends.sqlite"
MADE: Final = ("make_target", "make_barrier", "make_barrier_index")
_OF_STATEMENT: Final = (
    apsw.SQLError, apsw.ConstraintError, apsw.MismatchError, apsw.RangeError, apsw.TooBigError, apsw.BindingsError,
)  # fmt: skip
_TAKEN: Final = {
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_ROWID, apsw.SQLITE_CONSTRAINT_UNIQUE,
}  # fmt: skip
T = TypeVar("T")
Row = tuple[Any, ...]


class SqliteTarget(SqlSteps):
    """An open file. Safe to share between threads; refused after a fork."""

    dialect: Dialect = "sqlite"
    catalogue = _HERE
    words = SqlWords("sqlite", same="IS")

    def __init__(self, path: str | Path, *, timeout_s: float = 10.0) -> None:
        super().__init__()
        self.path = Path(path).absolute()
        self.name = f"sqlite:{self.path}"
        self._timeout_s = timeout_s
        self._generation = forks.generation
        self._lock = Lock()
        self._idle: list[apsw.Connection] = []
        self._closed = False
        check_library()
        check_file_system(self.path)
        if not self.path.is_file():
            raise unusable(self.path, "no such file")
        OPEN_FILES.refuse_inherited(self.path)
        self._inode = OPEN_FILES.add(self.path, self, refuse_foreign=True)
        try:
            self._writer = self._connect()
        except BaseException:
            OPEN_FILES.remove(self._inode, self)
            raise

    def _connect(self) -> apsw.Connection:
        try:
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=100)
            connection.set_busy_timeout(int(self._timeout_s * 1000))
            connection.pragma("foreign_keys", True)
            mode = str(connection.pragma("journal_mode")).lower()
            connection.pragma("synchronous", "full")
        except apsw.Error as error:
            raise outcome_of(error, self.path, "read") or error from error
        if mode in {"off", "memory"}:
            connection.close()
            raise Unsupported(
                f"{self.path}: journal_mode is {mode}: a crash would damage it",
                code="sqlite_pragma",
                hint="PRAGMA journal_mode = wal, or delete",
                pragma="journal_mode",
                found=mode,
                needed="wal, delete, truncate or persist",
            )
        return connection

    # ------------------------------------------------------------ transactions

    def changing(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        self._check()
        if not self._lock.acquire(timeout=limits.timeout_s):
            raise Unavailable(f"{self.path} is busy in this process", code="timeout", hint="call again")
        connection, clock = self._writer, _Clock(limits.timeout_s)
        doing: Doing = "write"
        try:
            with _within(connection, clock):
                connection.execute("BEGIN IMMEDIATE")
                found = work(_SqliteChanges(connection, clock))
                doing = "commit"
                connection.execute("COMMIT")
            return found
        except apsw.Error as error:
            raise self._translated(error, connection, doing, clock.timeout_s) from error
        finally:
            self._leave(connection)
            self._lock.release()

    def _leave(self, connection: apsw.Connection) -> None:
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _translated(self, error: apsw.Error, connection: apsw.Connection, doing: Doing, timeout_s: float) -> Exception:
        if isinstance(error, apsw.InterruptError):
            return SqlRefused(Failed("statement", f"it took longer than {timeout_s:g} s", retry=True))
        if isinstance(error, _OF_STATEMENT):
            return SqlRefused(Failed("statement", f"{type(error).__name__}: {error}"))
        return outcome_of(error, self.path, doing, connection) or error

    def is_taken(self, error: Exception) -> bool:
        return isinstance(error, apsw.ConstraintError) and getattr(error, "extendedresult", None) in _TAKEN

    def may_create(self, changes: Changes) -> None:
        try:
            for name in MADE:
                changes.count(name)
        except (apsw.ReadOnlyError, apsw.AuthError) as error:
            raise SchemaMismatch(
                f"{self.path} lacks Strandline's tables, and they cannot be made: {error}",
                code="barrier",
                hint="; ".join(map(_text, MADE)),
            ) from error

    # ------------------------------------------------------------ reading

    def queried(self, asked: Bound, plan: Plan, limits: Limits) -> Rows:
        with self._reading() as connection:
            try:
                with _within(connection, _Clock(limits.timeout_s)):
                    return _queried(connection, asked, plan, limits.rows_max)
            except apsw.Error as error:
                raise self._translated(error, connection, "read", limits.timeout_s) from error

    def described(self, ask: Ask, name: str) -> TargetTable | None:
        return table_of(ask, name)

    def reading(self, read: Callable[[Ask], T]) -> T:
        with self._reading() as connection:
            try:
                return read(lambda name, values: _execute(connection, Bound(_text(name, _HERE), tuple(values)))[0])
            except apsw.Error as error:
                raise outcome_of(error, self.path, "read") or error from error

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        self._check()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
            connection.pragma("query_only", True)
        try:
            yield connection
        finally:
            if self._closed or len(self._idle) >= READERS_MAX or connection.in_transaction:
                connection.close(True)
            else:
                self._idle.append(connection)

    # ------------------------------------------------------------ state

    def _check(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork(self.path)
        if self._closed:
            raise closed(self.path)
        try:
            found = files.inode_of(self.path)
        except OSError as error:
            raise files.moved(str(self.path), error.strerror, "no") from None
        if found != self._inode:
            raise files.moved(str(self.path), "another file stands there", "no")

    def connections(self) -> list[apsw.Connection]:
        """Return all connections that are open now."""
        return [self._writer, *self._idle]

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        if self._closed or forks.generation != self._generation:
            return
        with self._lock:
            self._closed = True
            with suppress(apsw.Error):
                self._writer.close(True)
            while self._idle:  # taken from the pool: a reader that has a connection closes it itself
                with suppress(apsw.Error, IndexError):
                    self._idle.pop().close(True)
            OPEN_FILES.remove(self._inode, self)


class _SqliteChanges:
    """A transaction that holds the write lock."""

    def __init__(self, connection: apsw.Connection, clock: _Clock) -> None:
        self._connection, self.limit = connection, clock.start

    def hold(self, table: str) -> None:
        """Do nothing: the write lock is on all of the file."""

    def ahead(self, calls: Sequence[Call]) -> None:
        """Make the calls one by one: a file has no round trips to save."""

    def last(self, name: str, values: Sequence[Any]) -> None:
        self.count(name, values)

    def own(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        return _execute(self._connection, Bound(_text(name), tuple(values)))[0]

    def count(self, name: str, values: Sequence[Any] = ()) -> int:
        self._connection.execute(_text(name), tuple(values))
        return self._connection.changes()

    def query(self, statement: Bound, plan: Plan, rows_max: int) -> Rows:
        return _queried(self._connection, statement, plan, rows_max)

    def image(self, statement: Bound) -> list[Row]:
        values = tuple(map(decoded, statement.values))
        return [_encoded(row) for row in _execute(self._connection, Bound(statement.text, values))[0]]

    def change(self, statement: Bound, ours: int, plan: Plan) -> Changed:
        before = self._connection.total_changes()
        rows, description = _execute(self._connection, statement)
        # After a statement that changes no rows, such as DDL, SQLite's count is that of the statement before.
        affected = self._connection.changes() if self._connection.total_changes() != before else 0
        theirs = len(description) - ours
        kept = _rows([row[:theirs] for row in rows], description[:theirs], plan) if theirs else Rows()
        return Changed(affected, kept, tuple(_encoded(row[theirs:]) for row in rows) if ours else ())

    def zone(self) -> str:
        return ""

    def restore(self, zone: str) -> None:
        self._connection.pragma("defer_foreign_keys", True)  # until the transaction ends

    def put(self, statement: Bound) -> int:
        try:
            self._connection.execute(statement.text, tuple(map(decoded, statement.values)))
        except apsw.ConstraintError as error:  # undoes this statement alone
            raise Collided(Failed("statement", f"{type(error).__name__}: {error}")) from error
        return self._connection.changes()


class _Clock:
    """Tells when a statement's time is over."""

    def __init__(self, timeout_s: float) -> None:
        self.start(timeout_s)

    def start(self, timeout_s: float) -> None:
        self.timeout_s, self._until = timeout_s, time.monotonic() + timeout_s

    def is_over(self) -> bool:
        return time.monotonic() > self._until


@contextmanager
def _within(connection: apsw.Connection, clock: _Clock) -> Iterator[None]:
    """Interrupt what runs on this connection when its time is over."""
    connection.set_busy_timeout(int(clock.timeout_s * 1000))
    connection.set_progress_handler(clock.is_over, STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        connection.set_progress_handler(None)


def _queried(connection: apsw.Connection, asked: Bound, plan: Plan, rows_max: int) -> Rows:
    rows, description = _execute(connection, asked, rows_max + 1)
    if len(rows) > rows_max:
        raise SqlRefused(Failed.too_many(rows_max))
    return _rows(rows, description, plan)


def _execute(connection: apsw.Connection, asked: Bound, most: int = 0) -> tuple[list[Row], tuple[Any, ...]]:
    """Return the rows of a statement, and what is known of its columns, also where there are no rows."""
    cursor = connection.cursor()
    described: list[tuple[Any, ...]] = []

    def look(found: Any, *_: Any) -> bool:
        described.append(tuple(found.description_full))
        return True

    cursor.exec_trace = look
    rows = []
    try:
        for row in cursor.execute(asked.text, asked.values):
            rows.append(row)
            if most and len(rows) >= most:
                break
    except UnicodeDecodeError as error:
        raise SqlRefused(Failed("statement", f"a text is not UTF-8: {error}")) from error
    finally:  # one that stays open is in the way of the next commit
        cursor.close(True)
    return rows, described[0] if described else ()


def _rows(rows: list[Row], description: tuple[Any, ...], plan: Plan) -> Rows:
    """Return rows with names as everywhere, lower case unless quoted; what is declared boolean is boolean."""
    told = plan.statement.columns
    names = told if told is not None and len(told) == len(description) else ("",) * len(description)
    columns = tuple(name or str(column[0]).lower() for name, column in zip(names, description, strict=True))
    flags = [n for n, column in enumerate(description) if (column[1] or "").lower().startswith("bool")]
    return Rows(columns, tuple(map(tuple, rows)) if not flags else tuple(_with_booleans(row, flags) for row in rows))


def _with_booleans(row: Row, flags: Sequence[int]) -> Row:
    made = list(row)
    for place in flags:
        if made[place] in (0, 1):
            made[place] = bool(made[place])
    return tuple(made)


def _encoded(row: Row) -> Row:
    return tuple(map(encoded, row))


def _text(name: str, package: str = _OURS) -> str:
    return statement(package, name, "sqlite")


def open_target(url: Url, **_: Any) -> SqliteTarget:
    """Open the file that a URL names, with one writer, and readers as they are needed."""
    if url.path is None:
        raise ValueError(f"{url} names no file")
    return SqliteTarget(url.path)
