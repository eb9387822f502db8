"""Databases of a user's, as targets of groups: made, looked at and changed from outside."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer
from typing import Any, Final
from uuid import uuid4

import apsw

from strandline.testing.lww import forget, lww
from strandline.testing.prove.group_statements import (
    COLUMNS,
    EXTRA,
    KEYS,
    MOST,
    VALUES,
    Database,
    ProgramStatement,
    Spec,
    value_of,
)
from strandline.testing.prove.servers import Servers, needed
from strandline.testing.prove.worlds import POSTGRES, SHM

TABLES: Final = (
    f"CREATE TABLE account (id integer PRIMARY KEY, name text, amount integer CHECK (amount < {MOST}))",
    "CREATE TABLE pair (a integer, b integer, n integer, PRIMARY KEY (a, b))",
    "CREATE TABLE seat (id integer PRIMARY KEY, who text UNIQUE)",
)
LOOSE: Final = "CREATE TABLE loose (a text PRIMARY KEY, n integer)"
CELLS: Final = (
    "CREATE TABLE account (id int, name text, amount int, PRIMARY KEY (id))",
    "CREATE TABLE pair (a int, b int, n int, PRIMARY KEY (a, b))",
)
FIRST: Final[Database] = {
    "account": {(n,): {"id": n, "name": f"a{n}", "amount": amount} for n, amount in ((1, 100), (2, 50), (3, 10))},
    "pair": {(1, 1): {"a": 1, "b": 1, "n": 5}, (1, 2): {"a": 1, "b": 2, "n": 0}},
    "seat": {(1,): {"id": 1, "who": "x"}},
    "loose": {("x",): {"a": "x", "n": 2}, (None, 1): {"a": None, "n": 1}},
}
"""What is there to begin with."""
PARAMETER: Final = re.compile(r":(\w+)")


class Shop(ABC):
    """A database."""

    url: str
    _timers: list[Timer]
    tables: tuple[str, ...] = ("account", "pair", "seat")

    @abstractmethod
    def execute(self, text: str) -> Sequence[tuple[Any, ...]]:
        """As another program of the user would."""

    def fill(self, creates: Sequence[str]) -> None:
        for text in creates:
            self.execute(text)
        for table in self.tables:
            for row in FIRST[table].values():
                columns, values = ", ".join(row), ", ".join(map(literal, row.values()))
                self.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})")  # noqa: S608

    def rows(self, *, extra: bool) -> dict[str, list[dict[str, Any]]]:
        """All rows of each table; of those without transactions, the ones that have a value. `extra`: with the column
        that accounts got later."""
        found = {}
        for table in self.tables:
            columns = (*COLUMNS[table], *(("extra",) if extra and table == "account" else ()))
            rows = self.execute(f"SELECT {', '.join(columns)} FROM {table}")  # noqa: S608
            made = [dict(zip(columns, row, strict=True)) for row in rows]
            found[table] = [row for row in made if any(row[name] is not None for name in columns[len(KEYS[table]) :])]
        return found

    def _let_go(self, seconds: float, let_go: Callable[[], object]) -> None:
        timer = Timer(seconds, let_go)
        timer.start()
        self._timers.append(timer)

    def free(self) -> None:
        """Wait until nobody has a lock any more."""
        for timer in self._timers:
            timer.join()
        self._timers.clear()

    def foreign(self, statement: ProgramStatement, spec: Spec) -> None:
        """Execute a statement from outside; what the database refuses has no effect."""
        values: dict[str, Any] = {
            key: spec.get(key) if spec.get(key) is not None else value for key, value in VALUES.items()
        }
        values |= {"v": value_of(statement, values), "id2": values["id"] + 1}
        text = PARAMETER.sub(lambda found: literal(values[found[1]]), statement.text)
        try:
            self.execute(text)
        except self.refusals:
            return

    refusals: tuple[type[Exception], ...] = (apsw.ConstraintError,)

    def leftovers(self) -> str:
        """Return what a processor that is gone has left open there."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Let go of it, and remove it."""


class SqlShop(Shop):
    """One with transactions, whose tables change."""

    def add_column(self) -> None:
        """Accounts get a column more, in which others write."""
        self.execute(f"ALTER TABLE account ADD COLUMN extra integer DEFAULT {EXTRA}")
        self.execute("UPDATE account SET extra = id * 10")

    @abstractmethod
    def triggers(self, *, on: bool) -> None:
        """Accounts get triggers, or lose them."""

    def race(self, over: Event) -> None:
        """Remove and insert a row, again and again."""
        while not over.is_set():
            for text in ("DELETE FROM seat WHERE id = 90", "INSERT INTO seat (id, who) VALUES (90, NULL)"):
                with suppress(*self.refusals):
                    self.execute(text)
                over.wait(0.001)

    @abstractmethod
    def lock(self, seconds: float) -> None:
        """Let nobody else write for a while."""


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"({', '.join(map(literal, value))})"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


class SqliteShop(SqlShop):
    """A file."""

    tables = ("account", "pair", "seat", "loose")

    def __init__(self) -> None:
        self._timers = []
        self._top = Path(tempfile.mkdtemp(prefix="strandline-prove-", dir=SHM if SHM.is_dir() else None))
        self.folder = self._top / "disk"
        self.folder.mkdir()
        self.url = f"sqlite:{self.folder}/shop.db"
        self._outside = apsw.Connection(str(self.folder / "shop.db"))
        self._outside.pragma("journal_mode", "wal")
        self._outside.set_busy_timeout(20_000)
        self.fill((*TABLES, LOOSE))

    def execute(self, text: str) -> Sequence[tuple[Any, ...]]:
        return list(self._outside.execute(text))

    def triggers(self, *, on: bool) -> None:
        for event in ("INSERT", "UPDATE", "DELETE"):
            made = f"CREATE TRIGGER of_{event} AFTER {event} ON account BEGIN SELECT 1; END"
            self.execute(made if on else f"DROP TRIGGER of_{event}")

    def leave(self, seconds: float) -> None:
        """Be elsewhere for a while, as a folder is whose disk is not mounted."""
        elsewhere = self._top / "elsewhere"
        self.folder.rename(elsewhere)
        self._let_go(seconds, lambda: elsewhere.rename(self.folder))

    def lock(self, seconds: float) -> None:
        other = apsw.Connection(str(self.folder / "shop.db"))
        other.set_busy_timeout(20_000)
        other.execute("BEGIN IMMEDIATE")
        self._let_go(seconds, other.close)

    def leftovers(self) -> str:
        self._outside.set_busy_timeout(1000)
        try:
            self.execute("BEGIN IMMEDIATE")
            self.execute("ROLLBACK")
        except apsw.BusyError:
            return "somebody still writes in it"
        finally:
            self._outside.set_busy_timeout(20_000)
        return ""

    def close(self) -> None:
        self._outside.close()
        shutil.rmtree(self._top, ignore_errors=True)


class PostgresShop(SqlShop):
    """A database of a server, emptied before."""

    def __init__(self, url: str, number: int) -> None:
        import psycopg

        self._timers = []
        self.refusals = (psycopg.errors.IntegrityError,)
        self.name = f"prove_{number}"
        with psycopg.connect(url, autocommit=True) as server:
            if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", (self.name,)).fetchone():
                server.execute(f"CREATE DATABASE {self.name}".encode())
        head, _, options = url.partition("?")
        self.url = f"{head.rpartition('/')[0]}/{self.name}?{options}"
        self._outside = psycopg.connect(self.url, autocommit=True, cursor_factory=psycopg.RawCursor)
        self._outside.execute("DROP SCHEMA IF EXISTS public, strandline CASCADE")
        self._outside.execute("CREATE SCHEMA public")
        self.fill(TABLES)

    def triggers(self, *, on: bool) -> None:
        if on:
            self.execute(
                "CREATE OR REPLACE FUNCTION of_account() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RETURN COALESCE(NEW, OLD); END $$"
            )
            self.execute(
                "CREATE TRIGGER of_account AFTER INSERT OR UPDATE OR DELETE ON account "
                "FOR EACH ROW EXECUTE FUNCTION of_account()"
            )
        else:
            self.execute("DROP TRIGGER of_account ON account")

    def lock(self, seconds: float) -> None:
        import psycopg

        other = psycopg.connect(self.url)
        other.execute("LOCK TABLE account, pair, seat IN ACCESS EXCLUSIVE MODE")
        self._let_go(seconds, other.close)

    def execute(self, text: str) -> Sequence[tuple[Any, ...]]:
        cursor = self._outside.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def leftovers(self) -> str:
        until = time.monotonic() + 5  # of removing old barrier rows, a processor that is over takes no notice
        while (left := self._open()) and time.monotonic() < until:
            time.sleep(0.02)
        return f"a transaction is open: {left}" if left else ""

    def _open(self) -> Sequence[tuple[Any, ...]]:
        return self.execute(
            "SELECT state, query FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
        )

    def close(self) -> None:
        self._outside.close()


class LwwShop(Shop):
    """A target without transactions, in this process."""

    tables = ("account", "pair")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._timers = []
        self.url = f"lww:{uuid4().hex}"
        self._target = lww(self.url.removeprefix("lww:"))
        self._target.clock = clock
        for text in CELLS:
            self._target.create(text)
        self.fill(())

    def execute(self, text: str) -> Sequence[tuple[Any, ...]]:
        return self._target.execute(text)

    def close(self) -> None:
        forget(self.url.removeprefix("lww:"))


class CassandraShop(Shop):
    """A keyspace of a server, emptied before."""

    tables = ("account", "pair")

    def __init__(self, servers: Servers, number: int) -> None:
        from cassandra import InvalidRequest

        from strandline.testing.prove.kafka_cassandra import Keyspace

        self._timers = []
        self.refusals = (InvalidRequest,)
        name = f"prove_{number}"
        self._keyspace = servers.keep(name, lambda: self._made(servers, name), Keyspace.close)
        self._keyspace.empty()
        self.url = self._keyspace.url.partition("?")[0]
        self.fill(())

    def _made(self, servers: Servers, name: str) -> Any:
        from strandline.testing.prove.kafka_cassandra import Keyspace

        keyspace = Keyspace(servers, name)
        replicas = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        keyspace.session.alter(f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {replicas}")
        for text in CELLS:
            keyspace.session.alter(text.replace("TABLE ", f"TABLE {name}."))
        return keyspace

    def execute(self, text: str) -> Sequence[tuple[Any, ...]]:
        named = re.sub(r"\b(INTO|FROM|UPDATE) (account|pair)\b", rf"\1 {self._keyspace.name}.\2", text)
        rows: Sequence[tuple[Any, ...]] = self._keyspace.asked(named)
        return rows

    def close(self) -> None:
        """It stays, for the next one."""


MODELLED: Final = {"cassandra": "lww"}
"""Kinds of databases that are another one to the model."""


def shop(kind: str, number: int, servers: Servers | None, clock: Callable[[], int]) -> Shop:
    """A new one, with the rows of `FIRST`."""
    if kind == "sqlite":
        return SqliteShop()
    if kind == "lww":
        return LwwShop(clock)
    if kind == "cassandra":
        return CassandraShop(needed(servers), number)
    return PostgresShop(needed(servers).url(POSTGRES), number)
