"""The worlds in which programs run: a log and a store of each kind, their clock, and what can happen to them."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, Final, cast
from uuid import uuid4

import apsw

from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline, connect
from strandline.errors import Unavailable
from strandline.log.api import Log
from strandline.settings import (
    APPEND_IDS_KEPT_DEFAULT,
    BUCKET_SIZE_DEFAULT,
    PARTITIONS_DEFAULT,
    SEGMENT_SIZE_DEFAULT,
    Settings,
)
from strandline.store.api import Store, StoreSettings
from strandline.testing import cells
from strandline.testing.clock import FakeClock
from strandline.testing.faults import Crash, Faults
from strandline.testing.inexact import InexactMemoryLog
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.prove.servers import Servers, needed

SHM: Final = Path("/dev/shm")  # noqa: S108 (where there is one, files need no disk)


class Outage(Faults):
    """Faults at the seams, and outages: while a part is away, every call to it fails before it does anything."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[str] = set()
        self.lost: set[str] = set()
        """Parts whose next answer is lost, after the work was done."""
        self._thread = get_ident()
        self._meanwhile: tuple[str, Callable[[], None]] | None = None
        self._left = 0

    def meanwhile(self, point: str, nth: int, act: Callable[[], None]) -> None:
        """Let somebody else do something when the thread of the program comes to a point for the n-th time from now."""
        self._meanwhile, self._left = (point, act), nth

    def calm(self) -> None:
        """End what others do meanwhile."""
        self._meanwhile = None

    def reached(self, point: str) -> None:
        if self._meanwhile is not None and point == self._meanwhile[0] and get_ident() == self._thread:
            self._left -= 1
            if self._left <= 0:
                act, self._meanwhile = self._meanwhile[1], None
                act()
        when, _, where = point.partition(" ")
        part, _, method = where.partition(".")
        if when == "before" and part in self.away and method not in ("close", "lease"):
            raise Unavailable(f"the {part} is away", code="away", hint="wait", applied="no")
        if when == "after" and where == "log.append" and part in self.lost:
            self.lost.discard(part)
            raise Unavailable(f"the {part} went away", code="away", hint="wait", applied="unknown")
        super().reached(point)


class World(ABC):
    """A log and a store that outlive the process that works on them. `s` is what the present process has open."""

    transactions = True
    """Whether what a task writes is one transaction. Else it can be killed between any two writes."""
    keeps_backups = True
    """Whether a backup of the store can be put back."""

    def __init__(self, settings: dict[str, Any], *, faulty: bool = True, clock: FakeClock | None = None) -> None:
        """`faulty`: whether calls may fail. Else nothing stands between the product and its log and store."""
        self.clock = clock or FakeClock()
        self.faults = Outage()
        self.settings, self._faulty = settings, faulty
        self.s = self._start()

    @abstractmethod
    def _open(self) -> Strandline:
        """Open log and store as a new process would."""

    def _start(self) -> Strandline:
        opened = self._open()
        if not self._faulty:
            return opened
        log, store = self.faults.around("log", opened.log), self.faults.around("store", opened.store)
        s = Strandline(log, store, opened.settings, clock=self.clock, urls=opened._urls, work=opened._work)
        s.shared, s.local = opened.shared, opened.local
        opened.journal.close()
        return s

    def another(self) -> Strandline:
        """Another process on the same log and store, beside the present one; nothing stands in its way."""
        return self._open()

    def new_process(self, *, abandoned: bool = False) -> None:
        """Go on in a new process. An abandoned one is not closed: it is as if it had been killed."""
        before = self.s
        self.faults.clear()
        if not abandoned:
            self._end(before)
        self.s = self._start()
        if abandoned:
            self._end(before)  # what it holds in memory is of no more use; its files are let go

    def _end(self, s: Strandline) -> None:
        s.close()

    def kill_carry(self, writes: int, limit: int | None) -> bool:
        """Carry, and die on the way: at the n-th write of a store without transactions, else before or after the
        commit. Whether it came to that."""
        from strandline.testing import carry

        self.faults.at(("before store.write", "after store.write")[writes % 2], _crash, nth=writes // 2 % 3 + 1)
        try:
            carry(self.s, limit=limit)
        except Crash:
            self.new_process(abandoned=True)
            return True
        finally:
            self.faults.clear()
        return False

    @abstractmethod
    def backup(self) -> Any:
        """A copy of the store as it is now."""

    @abstractmethod
    def put_back(self, kept: Any) -> None:
        """Put it back under the next process."""

    def damage(self, key: str, life: int, seq_nr: int) -> bool:
        """Flip a bit in the body of a stored event; whether there was one."""
        return False

    def lose(self, table: str, named: dict[str, Any]) -> Callable[[], None] | None:
        """Let a row with these columns vanish from a view: what puts it back, or None if there is no such row."""
        return None

    def analyze(self) -> None:  # noqa: B027 (not every world has databases)
        """Let the databases count what is in their tables, as they do by themselves after a while: queries are planned
        anew by that."""

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """Return the rows of a table of the store; None where nobody can look."""
        return None

    def close(self) -> None:
        """End it, and remove what it left."""
        self._end(self.s)


def _crash() -> None:
    raise Crash


class MemoryWorld(World):
    """Log and store are objects that stay; a process is what works on them."""

    _holds: tuple[str, ...] = ("_pointers", "_journal", "_moments", "_heads", "_ended", "_tables")
    """The attributes of the store that hold what was written."""

    def __init__(self, settings: dict[str, Any], *, faulty: bool = True) -> None:
        partitions = settings.get("partitions", PARTITIONS_DEFAULT)
        size = settings.get("segment_size", SEGMENT_SIZE_DEFAULT)
        ids_kept = settings.get("append_ids_kept", APPEND_IDS_KEPT_DEFAULT)
        bucket_size = settings.get("bucket_size", BUCKET_SIZE_DEFAULT)
        self.clock = FakeClock()
        self._log = self._made_log(partitions, size, ids_kept)
        self.store = self._made_store(
            StoreSettings(self._log.log_id, partitions, size, ids_kept, bucket_size=bucket_size)
        )
        super().__init__(settings, faulty=faulty, clock=self.clock)

    def _made_log(self, partitions: int, size: int, ids_kept: int) -> Log:
        return MemoryLog(partitions=partitions, segment_size=size, append_ids_kept=ids_kept, clock=self.clock)

    def _made_store(self, fixed: StoreSettings) -> Any:
        return MemoryStore(fixed, clock=self.clock)

    def _open(self) -> Strandline:
        return Strandline(self._log, cast(Store, self.store), Settings.of(self.settings), clock=self.clock)

    def _end(self, s: Strandline) -> None:
        for groups in s._groups:
            groups.close()
        s.journal.close()

    def backup(self) -> Any:
        return {name: _copied(vars(self.store)[name]) for name in self._holds}

    def put_back(self, kept: Any) -> None:
        self._end(self.s)
        vars(self.store).update(_copied(kept))
        self.s = self._start()


class InexactWorld(MemoryWorld):
    """A log that only keeps records in order, as Kafka does."""

    def _made_log(self, partitions: int, size: int, ids_kept: int) -> Log:
        return cast(Log, InexactMemoryLog(partitions=partitions, clock=self.clock))


class LastWriteWinsWorld(MemoryWorld):
    """A store without transactions, as Cassandra."""

    transactions = False
    _holds = ("tables",)

    def _made_store(self, fixed: StoreSettings) -> Any:
        return LastWriteWinsStore(fixed)

    def kill_carry(self, writes: int, limit: int | None) -> bool:
        from strandline.testing import carry

        left = [writes]

        def dies(_table: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash

        lease = self.store.lease().take("a task that dies")
        self.store.before_write = dies
        try:
            carry(self.s, limit=limit, lease=lease)
        except Crash:
            return True
        finally:
            self.store.before_write = lambda table: None
            lease.release()  # it would lapse
            self.new_process(abandoned=True)
        return False

    def damage(self, key: str, life: int, seq_nr: int) -> bool:
        for place, rows in self.store.tables["journal"]._rows.items():
            if place[:2] == (key, life) and "body" in (row := rows.get((seq_nr,), {})):
                cell = row["body"]
                row["body"] = cell._replace(value=_flipped(cell.value))
                return True
        return False

    def lose(self, table: str, named: dict[str, Any]) -> Callable[[], None] | None:
        found = self.store.tables[table]
        for partition in found.partitions():
            for place, row in found.rows(partition):
                if all(row[name] == value for name, value in named.items()):
                    lost = found._rows[partition].pop(place)
                    return lambda: found._rows[partition].__setitem__(place, lost)
        return None

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        found = self.store.tables[table]
        return [
            tuple(row.get(name) for name in columns) for place in found.partitions() for _, row in found.rows(place)
        ]


class InexactLastWriteWinsWorld(LastWriteWinsWorld, InexactWorld):
    """Such a log, and such a store."""


class SqliteWorld(World):
    """A folder."""

    def __init__(self, settings: dict[str, Any], *, faulty: bool = True) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="strandline-prove-", dir=SHM if SHM.is_dir() else None))
        super().__init__(settings, faulty=faulty)

    @property
    def _store_file(self) -> Path:
        return self._folder / "journal" / "store.db"

    def _open(self) -> Strandline:
        return connect(f"sqlite:{self._folder}/journal", clock=self.clock, **self.settings)

    def backup(self) -> Any:
        kept = self._folder / f"backup-{uuid4().hex}.db"
        with (
            _opened(self._store_file) as source,
            _opened(kept) as target,
            target.backup("main", source, "main") as copied,
        ):
            while not copied.done:
                copied.step()
        return kept

    def put_back(self, kept: Any) -> None:
        self._end(self.s)
        for path in self._folder.glob("journal/store.db*"):
            path.unlink()
        shutil.copy(kept, self._store_file)
        self.s = self._start()

    def damage(self, key: str, life: int, seq_nr: int) -> bool:
        with _opened(self._store_file) as file:
            where = "WHERE (key, life, seq_nr) = (?, ?, ?)"
            bodies = [body for (body,) in file.execute(f"SELECT body FROM journal {where}", (key, life, seq_nr))]  # noqa: S608
            for body in bodies:
                file.execute(f"UPDATE journal SET body = ? {where}", (_flipped(body), key, life, seq_nr))  # noqa: S608
            return bool(bodies)

    def analyze(self) -> None:
        analyze_files(self._folder / "journal")

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
        with _opened(self._store_file) as file:
            known = {name for _, name, *_ in file.execute(f"PRAGMA table_info({table})")}
            if not known:
                return None
            return [tuple(row) for row in file.execute(f"SELECT {', '.join(columns)} FROM {table}")]  # noqa: S608

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class PostgresWorld(World):
    """A schema of a server."""

    keeps_backups = False

    def __init__(self, settings: dict[str, Any], *, servers: Servers | None, faulty: bool = True) -> None:
        url = needed(servers).url(POSTGRES)
        self._url = f"{url}&schema=prove_{uuid4().hex[:16]}"
        self._name = self._url.rpartition("=")[2]
        self._server = url
        super().__init__(settings, faulty=faulty)

    def _open(self) -> Strandline:
        return connect(self._url, clock=self.clock, **self.settings)

    def backup(self) -> Any:
        return None

    def put_back(self, kept: Any) -> None:
        self.new_process()

    def analyze(self) -> None:
        analyze_schema(self._server, self._name)

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
        import psycopg

        with psycopg.connect(self._server) as connection:
            if connection.execute("SELECT to_regclass(%s)", (f"{self._name}.{table}",)).fetchone() == (None,):
                return None
            wanted = f'SELECT {", ".join(columns)} FROM "{self._name}".{table}'  # noqa: S608
            return connection.execute(wanted.encode()).fetchall()

    def close(self) -> None:
        import psycopg

        super().close()
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self._name}" CASCADE'.encode())


def analyze_files(folder: Path) -> None:
    """Let each database of a folder count its rows."""
    for path in folder.glob("*.db"):
        with _opened(path) as file:
            file.execute("ANALYZE")


def analyze_schema(server: str, schema: str) -> None:
    """Let a server count the rows of a schema."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        for (table,) in tables:
            connection.execute(f'ANALYZE "{schema}"."{table}"'.encode())


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


def _copied(value: Any) -> Any:
    """A copy of what a store in memory holds; rows are never changed, and stay."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, cells.CellTable):
        made = cells.CellTable()
        vars(made).update(_copied(vars(value)))
        return made
    return value


MEMORY, SQLITE, POSTGRES, LAST_WRITE_WINS, INEXACT = "memory", "sqlite", "postgres", "last-write-wins", "inexact"
INEXACT_LAST_WRITE_WINS, KAFKA_CASSANDRA = "inexact-last-write-wins", "kafka-cassandra"
ON: Final = (SQLITE, MEMORY, LAST_WRITE_WINS, INEXACT, INEXACT_LAST_WRITE_WINS, POSTGRES, KAFKA_CASSANDRA)


def world(on: str, settings: dict[str, Any], *, servers: Servers | None = None, faulty: bool = True) -> World:
    """A new and empty one."""
    if on == POSTGRES:
        return PostgresWorld(settings, servers=servers, faulty=faulty)
    if on == KAFKA_CASSANDRA:
        from strandline.testing.prove.kafka_cassandra import KafkaCassandraWorld

        return KafkaCassandraWorld(settings, servers=needed(servers), faulty=faulty)
    kinds: dict[str, type[World]] = {
        MEMORY: MemoryWorld,
        SQLITE: SqliteWorld,
        LAST_WRITE_WINS: LastWriteWinsWorld,
        INEXACT: InexactWorld,
        INEXACT_LAST_WRITE_WINS: InexactLastWriteWinsWorld,
    }
    return kinds[on](settings, faulty=faulty)
