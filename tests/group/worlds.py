"""A journal, databases of users, and the groups that run on them: what tests of groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import apsw

import strandline
from strandline.connect import Strandline
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.outcome import Outcome
from strandline.group.processor import Processor
from strandline.testing.lww import LwwTarget, lww
from strandline.work.worker import Worker
from tests.group.cuts import Cuts

ACCOUNTS = [(1, "anna", 100), (2, "bert", 50), (3, None, None)]


class SqliteShop:
    """A file of the user's, looked at and changed from outside."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:{path}"
        self._outside = apsw.Connection(str(path))
        self._outside.pragma("journal_mode", "wal")
        self._outside.set_busy_timeout(10_000)

    def execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self._outside.execute(text, tuple(values)))

    def close(self) -> None:
        self._outside.close()

    def hold(self, table: str) -> Callable[[], None]:
        """Another program, which can hold a lock on a table (`take_lock`); what is given lets it go."""
        self._other = apsw.Connection(self.url.removeprefix("sqlite:"))
        self._other.set_busy_timeout(10_000)
        return self._other.close

    def take_lock(self) -> None:
        self._other.execute("BEGIN IMMEDIATE")


class PostgresShop:
    """A database of the user's, emptied before."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.url = url
        self._outside = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)
        self._outside.execute("DROP SCHEMA IF EXISTS public, strandline CASCADE")
        self._outside.execute("CREATE SCHEMA public")

    def execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._outside.execute(text, tuple(values))
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._outside.close()

    def hold(self, table: str) -> Callable[[], None]:
        """Another program, which can hold a lock on a table (`take_lock`); what is given lets it go."""
        import psycopg

        self._other = psycopg.connect(self.url)
        self._table = table
        return self._other.close

    def take_lock(self) -> None:
        self._other.execute(f"LOCK TABLE {self._table} IN ACCESS EXCLUSIVE MODE")


class LwwShop:
    """A target without transactions, in memory."""

    def __init__(self) -> None:
        self.url = f"lww:{uuid4().hex}"
        self._target: LwwTarget = lww(self.url.removeprefix("lww:"))

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        if text.startswith("CREATE TABLE"):
            self._target.create(text)
            return []
        return self._target.execute(text)

    def close(self) -> None:
        """It stays."""


class CassandraShop:
    """A keyspace of the user's."""

    def __init__(self, server: Any, tables: tuple[str, ...] = ("users", "calculations")) -> None:
        from strandline.backends.cassandra import Session
        from tests.store.keyspaces import url_of

        self._keyspace, self._tables = f"g{uuid4().hex[:12]}", tables
        self.url = f"{server.url}/{self._keyspace}"
        self._session = Session(url_of(server, self._keyspace), 30)
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._session.alter(f"CREATE KEYSPACE {self._keyspace} WITH replication = {replication}")

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        for name in self._tables:
            text = text.replace(f" {name}", f" {self._keyspace}.{name}", 1)
        if text.startswith(("CREATE", "TRUNCATE")):
            self._session.alter(text)
            if "users" in text:  # to find users by that
                self._session.alter(f"CREATE INDEX ON {self._keyspace}.users (is_active)")
            return []
        if not text.startswith("SELECT"):
            self._session.change(text, ())
            return []
        return [tuple(row) for row in self._session.each_row(text)]

    def close(self) -> None:
        self._session.alter(f"DROP KEYSPACE {self._keyspace}")
        self._session.close()


class World:
    """A journal and a shop with accounts."""

    def __init__(self, shop: Any, journal: str = "memory:") -> None:
        self.shop = shop
        self.journal_url = journal
        self.s: Strandline = strandline.connect(journal)
        self.handlers: dict[str, Callable[[Any], Any]] = {}
        shop.execute("CREATE TABLE account (id integer PRIMARY KEY, name text, amount integer)")
        shop.execute("CREATE TABLE customer (id integer PRIMARY KEY, is_active boolean, items integer)")
        for row in ACCOUNTS:
            shop.execute("INSERT INTO account VALUES ($1, $2, $3)", row)
        shop.execute("INSERT INTO customer VALUES (42, true, 10)")
        self.cuts = Cuts()
        self._groups: Groups | None = None

    def groups(self, **more: Any) -> Groups:
        more.setdefault("lease_s", 10)
        more.setdefault("targets", {"shop": self.shop.url})
        return self.cuts.watch(self.s.groups(handlers=self.handlers, **more))

    @property
    def plain(self) -> Groups:
        if self._groups is None:
            self._groups = self.groups()
        return self._groups

    def run(self, *given: Group, **more: Any) -> Outcome:
        """Submit, run until nothing is left, and look at the last one."""
        groups = self.groups(**more) if more else self.plain
        for group in given:
            groups.submit(group)
        groups.processor().run_until_idle()
        return groups.get(given[-1].id)

    def accounts(self) -> list[Any]:
        return self.shop.execute("SELECT id, name, amount FROM account ORDER BY id")

    def types(self, id_: str) -> list[str]:
        return [type_ for type_, _, _ in self.plain.history(id_)]

    def close(self) -> None:
        self.cuts.check()
        self.s.close()
        self.shop.close()


class Running:
    """A processor in a thread of its own."""

    def __init__(self, groups: Groups) -> None:
        self.processor: Processor = groups.processor()
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.processor.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.processor.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


@contextmanager
def serving(world: World, handlers: Any, name: str = "prices") -> Iterator[None]:
    """A worker in a thread of its own, which answers messages of a work journal."""
    worker = Worker(world.s, {name: world.plain.answering(handlers)})
    thread = Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


def update(group: Group, name: str, id_: int, amount: int, **more: Any) -> Any:
    """A step that adds to an account."""
    text = "UPDATE account SET amount = amount + :n WHERE id = :id"
    return group.update(name, text, {"n": amount, "id": id_}, target="shop", **more)


def transfer(id_: str, from_: int, to: int, amount: int, **more: Mapping[str, Any]) -> Group:
    """Money from one account to another, if there is enough."""
    g = Group(id_)
    update(g, "take", from_, -amount)
    g.query(
        "enough", "SELECT amount FROM account WHERE id = :id", {"id": from_}, target="shop",
        depends_on=["take"], success="amount >= 0",
    )  # fmt: skip
    update(g, "give", to, amount, depends_on=["enough"], **more)
    return g
