"""A SQLite file in WAL mode: one writer, guarded by a lock, and a few readers.

What is committed is durable: `synchronous` is FULL unless the caller accepts power loss. After an I/O error of a write
the file can only be read, until it is opened again. The WAL is written back after commits, and stays under
`wal_bytes_max` as long as no reader keeps a transaction open.

A file may be removed, or another one put in its place, while it is open: later commits then go into a file without a
name, and the system reports no error. So every transaction makes sure that the names of file and WAL still lead to what
was opened ("no"). A commit does so again before it is acknowledged ("unknown": a file that was only moved has it).
Symbolic links are followed once, when the file is opened; after that all checks are of the file that they led to.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

import apsw

from strandline import forks
from strandline.backends.sqlite import files, schema
from strandline.backends.sqlite.checks import check_file_system, check_library
from strandline.backends.sqlite.driver_errors import Doing, kills, outcome_of
from strandline.backends.sqlite.files import OPEN_FILES
from strandline.backends.sqlite.schema import APPLICATION_ID, SqliteSchema, schema_of
from strandline.backends.sqlite.transaction import SqliteWatch, Transaction, bound, joined
from strandline.clock import now_us
from strandline.errors import (
    NO_JOURNAL,
    Applied,
    Corrupt,
    InvalidInput,
    SchemaMismatch,
    StrandlineError,
    Unavailable,
    Unsupported,
    closed,
    unusable,
    used_after_fork,
)
from strandline.settings import Settings, check_clock
from strandline.sql.api import DATABASE_ID, Dialect, Isolation, Part
from strandline.sql.steps import Description

IDLE_READERS_MAX = 8
CACHE_KIB = 16 * 1024
# The WAL is written back at 1/PASSIVE_SHARE of wal_bytes_max; at 1/WAITING_SHARE the writer also waits for readers.
PASSIVE_SHARE, WAITING_SHARE = 16, 2
FOLDER_STILL_NS: Final = 10**8
"""How old a folder's last change must be, to be trusted: ten times the resolution of file systems and clocks."""
LOOK_S: Final = 0.5
"""How often the names of open files are looked at, whatever their folder says."""
WAITING_CHECKPOINT_MS = 100
BUSY_S: Final = 0.001
"""How often the write lock is asked for while another process has it. SQLite itself asks less often the longer it
waits: processes that commit in a loop would keep it waiting."""

APART: Final[Mapping[str, str]] = {"log": "store", "store": "log"}
"""By part, the part that may not be in the same file, so that an append never waits for the pipeline's write lock."""
_PAGES_WRITTEN = apsw.SQLITE_DBSTATUS_CACHE_WRITE


class _Turns:
    """Lets one thread at a time open a file. A forked child starts with no thread in it, whatever its parent was
    doing."""

    def __init__(self) -> None:
        self.opening = Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.opening = Lock()


_turns = _Turns()


def open_database(
    path: str | Path,
    part: Part,
    *,
    settings: Settings,
    fixed: Mapping[str, str] | None = None,
    clock: Callable[[], int] | None = None,
    create: bool | None = None,
    vfs: str | None = None,
) -> Database:
    """Open a part in a file, or create it with its steps and what is `fixed` for ever.

    Nothing is created or changed where the file, its place, the library or the clock are refused. `create` is
    `settings.schema == "create"` unless given.
    """
    path = files.real_path(path)
    known = schema_of(part.kind, part.package, part.also, part.sets, part.declared)
    if clock is not None:
        check_clock(clock)
    create = settings.schema == "create" if create is None else create
    with opening(path):
        if not _has_schema(path, part, settings, vfs):
            if part.kind == "store" and settings.schema == "create":
                files.check_folder(path)  # also checked where only the log is to be made first
            if not create:
                raise no_schema(path, part)
            _create(path, part, known, settings, fixed or {}, vfs)
        connection = open_for_one(path, settings, vfs)
        try:
            _check_length(connection, path)
            schema.check(connection, known)
            found = schema.fixed_settings(connection, known)
            return Database(path, connection, settings, known, found, clock or now_us, vfs)
        except BaseException:
            connection.close()
            raise


def upgrade_database(path: str | Path, part: Part, *, settings: Settings) -> list[str]:
    """Do the steps of the schema that the file lacks; return their names. Only this changes a schema."""
    path = files.real_path(path)
    with opening(path), files.folder_lock(path.parent), _schema_in(path, part, settings) as (connection, known):
        return schema.upgrade(connection, known)


def describe_database(path: str | Path, part: Part, *, settings: Settings) -> Description:
    """Describe a file, also one whose schema is older or newer than this program's. Changes nothing."""
    path = files.real_path(path)
    with opening(path), _schema_in(path, part, settings) as (connection, known):
        return schema.describe(connection, known)


@contextmanager
def _schema_in(path: Path, part: Part, settings: Settings) -> Iterator[tuple[apsw.Connection, SqliteSchema]]:
    """Open a file that has the schema of a part."""
    if not _has_schema(path, part, settings, None):
        raise no_schema(path, part)
    connection = open_for_one(path, settings, None)
    try:
        yield connection, schema_of(part.kind, part.package, part.also, part.sets, part.declared)
    finally:
        connection.close()


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Refuse a place that is not safe, let one thread at a time open a file, and translate errors of opening it."""
    check_library()
    check_file_system(path)
    try:
        OPEN_FILES.refuse_inherited(path)
        with _turns.opening:
            yield
    except apsw.Error as error:
        raise outcome(error, path) from error
    except (PermissionError, FileNotFoundError) as error:
        raise unusable(error.filename or path, error.strerror) from error


class Database:
    """A part in an open file (`sql.api.Database`). `fixed` is what its creation fixed."""

    dialect: Dialect = "sqlite"

    def __init__(
        self,
        path: Path,
        writer: apsw.Connection,
        settings: Settings,
        known: SqliteSchema,
        fixed: dict[str, str],
        clock: Callable[[], int],
        vfs: str | None,
    ) -> None:
        self.path = path
        self.fixed: Mapping[str, str] = fixed
        self.statement = known.statement
        """The text of a named statement of the part."""
        self.now_us = clock
        self._known = known
        self._watches: set[SqliteWatch] = set()
        self.writer = writer
        """The connection for the thread that holds the write transaction (`begin`)."""
        self.cursor = writer.cursor()
        """The writer's cursor, used again because making one for every statement is slower."""
        self.changed_by_others = True
        """Inside a write transaction: whether the file may differ from what this process's last transaction left.

        It may if another process has written the file since, or if the last transaction was undone.
        """
        self._settings = settings
        self._vfs = vfs
        self._generation = forks.generation
        self._lock = Lock()
        self._idle: list[apsw.Connection] = []
        self._closed = False
        self._failed: StrandlineError | None = None
        self._busy_until = 0.0
        writer.set_busy_handler(self._busy)
        page_bytes = int(writer.pragma("page_size"))
        self._passive_pages = settings.wal_bytes_max // PASSIVE_SHARE // page_bytes
        self._waiting_pages = settings.wal_bytes_max // WAITING_SHARE // page_bytes
        self._version = -1
        wal = f"{path}-wal"
        self._wal_place = _OpenedPath(wal, *files.inode_of(wal))
        self._inode = OPEN_FILES.add(path, self)
        self._place = _OpenedPath(str(path), *self._inode)
        self._read_places = _Folder(path, self._place)
        self._written_places = _Folder(path, self._place, self._wal_place)

    # ------------------------------------------------------------ writing

    @contextmanager
    def write(self, *, isolation: Isolation = "read_committed") -> Iterator[Transaction]:
        """Open a transaction that holds the write lock: committed at the end, undone by any exception."""
        connection = self.begin()
        try:
            yield Transaction(self.cursor, self.statement)
        except apsw.Error as error:
            self.rollback()
            raise self.translated(error, connection, "write") from error
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def begin(self) -> apsw.Connection:
        """Take the write lock, here and in the file; `Unavailable.timeout` after `append_timeout_s`."""
        self._check(self._written_places)
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=self._settings.append_timeout_s):
            raise Unavailable(
                f"{self.path} is busy in this process", code="timeout", hint="call again", path=str(self.path)
            )
        try:
            if self._failed is not None:
                self.check_writable()
            self._busy_until = time.monotonic() + self._settings.append_timeout_s
            self.cursor.execute("BEGIN IMMEDIATE")
            self.changed_by_others = self.writer.data_version() != self._version
        except apsw.Error as error:
            self.rollback()
            raise self.translated(error, self.writer, "write") from error
        except BaseException:  # an interrupt, too, must not leave the file locked
            self.rollback()
            raise
        return self.writer

    def _busy(self, _: int) -> bool:
        """Return whether to ask again while another process has the write lock."""
        time.sleep(BUSY_S)
        return time.monotonic() < self._busy_until

    def commit(self) -> None:
        """Make the transaction durable and release the lock; on an error undo the transaction."""
        try:
            self.cursor.execute("COMMIT")
            self._written_places.check("unknown")
            self._version = self.writer.data_version()
            if self.writer.status(_PAGES_WRITTEN)[0] >= self._passive_pages:
                self._checkpoint()
            for watch in tuple(self._watches):
                watch.wake()
        except apsw.Error as error:
            self._undo()
            raise self.translated(error, self.writer, "commit") from error
        except BaseException:
            self._undo()
            raise
        finally:
            self._lock.release()

    def rollback(self, *, changed: bool = True) -> None:
        """Undo the transaction and release the lock. `changed`: whether there was anything to undo."""
        try:
            self._undo()
            if not changed:
                self._version = self.writer.data_version()
        finally:
            self._lock.release()

    def _undo(self) -> None:
        self._version = -1
        try:
            if self.writer.in_transaction:
                self.cursor.execute("ROLLBACK")
        except apsw.Error as error:
            # A transaction that cannot be undone is undone when the file is opened again.
            self.translated(error, self.writer, "write")

    def _checkpoint(self) -> None:
        """Write the WAL back. The commit before it stays, even if this fails."""
        try:
            found, _ = self.writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
            if found >= self._waiting_pages:
                self._wait_and_checkpoint()
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            pass  # the next checkpoint does it
        except apsw.Error as error:
            self.translated(error, self.writer, "write")
        self.writer.status(_PAGES_WRITTEN, True)  # the WAL's pages are counted from 0 again

    def _wait_and_checkpoint(self) -> None:
        """Wait until there is no reader, so that the WAL starts anew: so far readers were always in the way."""
        self.writer.set_busy_timeout(WAITING_CHECKPOINT_MS)
        try:
            self.writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self.writer.set_busy_handler(self._busy)

    # ------------------------------------------------------------ reading

    def rows(self, name: str, values: Sequence[Any] = (), *, often: bool = False) -> list[Any]:
        """Return the rows of one statement, of one moment."""
        with self.connection() as connection:
            return connection.execute(self.statement(name), bound(values)).fetchall()

    def rows_each(self, name: str, many: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the rows of a statement for each of these values."""
        with self.connection() as connection:
            text = self.statement(name)
            return [connection.execute(text, bound(values)).fetchall() for values in many]

    def many(self, name: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Any]:
        """Return the rows of a statement for many rows, all of one moment."""
        with self.read() as transaction:
            return transaction.many(name, rows, *first)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that reads: all statements see one moment."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            yield Transaction(connection.cursor(), self.statement)
            connection.execute("COMMIT")

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """Lend a connection for reading. The caller fetches all rows of each statement."""
        self.check()
        connection = self._reader()
        try:
            yield connection
        except apsw.Error as error:
            raise self.translated(error, connection, "read") from error
        finally:
            self._give_back(connection)

    def watch(self, channel: str, *, interval_s: float = 0.05) -> SqliteWatch:
        """Return a watch that all commits wake, whatever the channel."""
        self.check()
        watch = SqliteWatch(self._opened_reader(), interval_s, self._watches.discard)
        self._watches.add(watch)
        return watch

    def _reader(self) -> apsw.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._opened_reader()

    def _opened_reader(self) -> apsw.Connection:
        try:
            connection = open_for_one(self.path, self._settings, self._vfs)
            connection.pragma("query_only", True)
            self._place.check()  # it was opened by its name
            return connection
        except apsw.Error as error:
            raise outcome(error, self.path) from error

    def _give_back(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # A cursor that was left half read would keep the WAL from being written back.
            usable = connection.txn_state("main") == apsw.SQLITE_TXN_NONE
        except apsw.Error:
            usable = False
        if usable and not self._closed and len(self._idle) < IDLE_READERS_MAX:
            self._idle.append(connection)
        else:
            connection.close(True)

    # ------------------------------------------------------------ the caller's transaction

    @contextmanager
    def join(self, tx: object) -> Iterator[Transaction]:
        """Open a transaction within the caller's own, on a connection of the caller's to this file."""
        self.check()
        try:
            with joined(tx, self._known.own("database_id"), self.fixed[DATABASE_ID], str(self.path)) as cursor:
                yield Transaction(cursor, self.statement)
        except apsw.Error as error:
            raise outcome_of(error, self.path, "write") or error from error

    # ------------------------------------------------------------ state

    @property
    def where(self) -> str:
        """The file."""
        return str(self.path)

    def check(self) -> None:
        """Refuse a call after `close`, in a forked child, or where the file is not what its name leads to any more."""
        self._check(self._read_places)

    def _check(self, place: _Folder) -> None:
        self._check_open()
        try:
            place.check()
        except Unavailable:
            self._check_open()  # the database was closed meanwhile, which removes the WAL
            raise

    def _check_open(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork(self.path)
        if self._closed:
            raise closed(self.path)

    def check_writable(self) -> None:
        """Refuse to write after an I/O error: what reached the disk is known only after the file is opened again."""
        if self._failed is not None:
            raise Unavailable(
                f"{self.path} failed before: {self._failed.message}",
                code="log_failed",
                hint="check the disk, then connect again",
                path=str(self.path),
            )

    def connections(self) -> list[apsw.Connection]:
        """Return all connections that are open now."""
        return [self.writer, *self._idle]

    def close(self) -> None:
        """Close all connections, except one that hangs in a commit. A second call does nothing."""
        if self._closed or forks.generation != self._generation:
            return
        if not self._lock.acquire(timeout=self._settings.append_timeout_s):
            self._closed = True
            return
        try:
            if self._closed:
                return
            self._closed = True
            for watch in tuple(self._watches):
                watch.close()
            # What is committed is in the WAL, whether or not it can be written back now.
            with suppress(apsw.Error):
                self.writer.close(True)
            while self._idle:  # a thread that reads has taken its own, and closes it
                with suppress(apsw.Error, IndexError):
                    self._idle.pop().close(True)
            self._read_places.close()
            self._written_places.close()
            OPEN_FILES.remove(self._inode, self)
        finally:
            self._lock.release()

    def translated(self, error: apsw.Error, connection: apsw.Connection, doing: Doing) -> Exception:
        """Return our error for an error of the library. After an I/O error of a write nothing more is written."""
        outcome = outcome_of(error, self.path, doing, connection)
        if kills(error, outcome):
            self._failed = outcome
        return outcome or error


class _OpenedPath:
    """A name, and the file that it led to when it was opened."""

    def __init__(self, name: str, device: int, number: int) -> None:
        self._name, self._device, self._number = name, device, number

    def check(self, applied: Applied = "no") -> None:
        """Raise `Unavailable.away` if the name now leads nowhere, or to another file."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - at every call: a Path would take as long again
        except OSError as error:
            raise files.moved(self._name, error.strerror, applied) from None
        if found.st_ino != self._number or found.st_dev != self._device:
            raise files.moved(self._name, "another file stands there", applied)


class _Folder:
    """The open files of one folder. While nothing in the folder was made, removed or renamed, these were not either.

    The time of the folder's last change (ctime), which no program can set back, shows this, and that the folder itself
    was not renamed. Reading it through a handle takes a tenth of the time of looking a name up. Two changes in quick
    succession can have the same time, so the time is trusted only when it is old. A rename of a folder further up does
    not show, so the names are looked at now and then.
    """

    def __init__(self, path: Path, *places: _OpenedPath) -> None:
        self._handle = os.open(path.parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._handle)
        """Let go of the handle. A second call does nothing."""
        self._places = places
        self._trusted = -1
        self._looked = 0.0

    def check(self, applied: Applied = "no") -> None:
        """Check each file."""
        try:
            changed = os.fstat(self._handle).st_ctime_ns
        except OSError:
            changed = -1  # closed meanwhile: the check of each file's name tells why
        now = time.monotonic()
        if changed == self._trusted and now - self._looked < LOOK_S:
            return
        for place in self._places:
            place.check(applied)
        if time.time_ns() - changed > FOLDER_STILL_NS:
            self._trusted, self._looked = changed, now


# ---------------------------------------------------------------- opening


def _has_schema(path: Path, part: Part, settings: Settings, vfs: str | None) -> bool:
    """Return whether the file has a part; `SchemaMismatch.foreign_file` if it is not ours. Changes nothing."""
    if path.is_dir():
        raise InvalidInput(
            f"path: {path} is a folder; allowed a file", code="url_incomplete", hint="give a file", field="path"
        )
    if not path.exists() or path.stat().st_size == 0:
        return False
    header = files.read_header(path, vfs)
    if header is None or header.application_id != APPLICATION_ID:
        found = None if header is None else header.application_id
        what = "no SQLite database" if found is None else f"a database of another program ({found:#x})"
        raise _foreign(path, part, what, found)
    wal = Path(f"{path}-wal")
    if path.stat().st_size < header.length and not (wal.exists() and wal.stat().st_size):
        raise _half_copied(path, path.stat().st_size, header.length)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        connection.set_busy_timeout(_busy_ms(settings))
        if schema.is_there(connection, part):
            return True
        other = APART.get(part.kind)
        if other is not None and schema.is_there(connection, Part(other, "")):
            raise _foreign(path, part, f"a Strandline {other}", APPLICATION_ID)
        return False
    finally:
        connection.close()


def _create(
    path: Path, part: Part, known: SqliteSchema, settings: Settings, fixed: Mapping[str, str], vfs: str | None
) -> None:
    files.prepare_folder(path)
    with files.folder_lock(path.parent):
        if _has_schema(path, part, settings, vfs):
            return
        if not path.exists():
            files.create_file(path)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        try:
            connection.set_busy_timeout(_busy_ms(settings))
            for name, value in part.pragmas.items():
                connection.pragma(name, value)
            if part.pragmas and path.stat().st_size:
                connection.execute("VACUUM")  # other parts were in the file first
            connection.pragma("application_id", APPLICATION_ID)
            _prepare(connection, path, settings)
            schema.create(connection, known, fixed)
        finally:
            connection.close(True)


def open_for_one(path: Path, settings: Settings, vfs: str | None = None) -> apsw.Connection:
    """Return a connection for the caller alone. The caller is `opening` the file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs, statementcachesize=100)
    try:
        connection.set_busy_timeout(_busy_ms(settings))
        _prepare(connection, path, settings)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: apsw.Connection, path: Path, settings: Settings) -> None:
    """Set the pragmas on which durability rests, and read them back: `Unsupported.sqlite_pragma` if one is not as
    set."""
    set_pragma(connection, path, "journal_mode", "wal", "wal")
    if settings.accept_power_loss:
        set_pragma(connection, path, "synchronous", "normal", 1)
    else:
        set_pragma(connection, path, "synchronous", "full", 2)
    set_pragma(connection, path, "mmap_size", 0, 0)
    set_pragma(connection, path, "secure_delete", 1, 1)  # purged data must not stay in free pages
    set_pragma(connection, path, "journal_size_limit", settings.wal_bytes_max // WAITING_SHARE, None)
    set_pragma(connection, path, "cache_size", -CACHE_KIB, None)
    connection.wal_autocheckpoint(0)


def set_pragma(connection: apsw.Connection, path: Path, name: str, value: str | int, needed: str | int | None) -> None:
    """Set a pragma and, where something is `needed`, read it back."""
    connection.pragma(name, value)
    if needed is None:
        return
    found = connection.pragma(name)
    if found is None and needed == 0:
        found = 0  # mmap_size says nothing where the library was built without it
    if found != needed:
        raise Unsupported(
            f"{path}: {name} is {found}, needed is {needed}",
            code="sqlite_pragma",
            hint="use a local disk that SQLite can lock and share, or accept_power_loss for synchronous NORMAL",
            pragma=name,
            found=found,
            needed=needed,
        )


def _check_length(connection: apsw.Connection, path: Path) -> None:
    """Raise `Corrupt.half_copied` if the file is shorter than it says of itself, and its WAL cannot make up for it."""
    with connection:  # in one moment: a checkpoint of another process moves pages from the WAL into the file
        pages = int(connection.pragma("page_count"))
        page_bytes = int(connection.pragma("page_size"))
        wal = Path(f"{path}-wal")
        length = path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
    if length < pages * page_bytes:
        raise _half_copied(path, length, pages * page_bytes)


def _half_copied(path: Path, found: int, needed: int) -> Corrupt:
    return Corrupt(
        f"{path} has {found} bytes, but needs {needed}",
        code="half_copied",
        hint="copy it again while nothing has it open",
        found=found,
        needed=needed,
    )


def _foreign(path: Path, part: Part, what: str, found: int | None) -> SchemaMismatch:
    return SchemaMismatch(
        f"{path} is {what}; needed is a Strandline {part.kind}",
        code="foreign_file",
        hint="give another path",
        found=found,
        known=APPLICATION_ID,
    )


def no_schema(path: Path, part: Part) -> SchemaMismatch:
    return SchemaMismatch(
        f"{path} has no {part.kind} yet" if path.exists() else f"there is no {path}",
        code="no_schema",
        hint=NO_JOURNAL,
        path=str(path),
    )


def outcome(error: apsw.Error, path: Path) -> Exception:
    """Return our error for one of the library's, where a file is opened or copied."""
    return outcome_of(error, path, "read") or error


def _busy_ms(settings: Settings) -> int:
    return int(settings.append_timeout_s * 1000)
