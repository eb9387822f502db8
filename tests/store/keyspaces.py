"""Cassandra stores of tests. Making the tables of a keyspace takes seconds, emptying those that were used much less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.backends.cassandra import Session
from strandline.backends.cassandra.store import CassandraStore
from strandline.servers.cassandra import CassandraServer
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.urls import Url, urls_of

TABLES = (
    "journal", "slice_view", "slice_bucket", "entity_type", "metajournal", "ended", "pointer", "quarantine",
    "snapshot", "lease", "tag_view", "tag_progress", "tag_place", "tag_bucket", "repaired",
)  # fmt: skip
LEASE_S = 1.0
RELAXED = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
"""One node has one replica, and every start says so."""
WRITES = "SELECT table_name, count FROM system_views.local_write_latency WHERE keyspace_name = '{}' ALLOW FILTERING"


def url_of(server: CassandraServer, keyspace: str, parameters: str = "replication=1") -> Url:
    """A keyspace of a server."""
    return urls_of(log="memory:", store=f"{server.url}/{keyspace}?{parameters}").store


def settings_for(**given: Any) -> Settings:
    """Settings of a store on one node."""
    return Settings.of({"accept_power_loss": True, "segment_size": 3, "lease_s": LEASE_S, **given})


def open_store(url: Url, *, log_id: str | None = "tape", partitions: int | None = 1, **given: Any) -> CassandraStore:
    """A store with segments of three events, made if it is not there."""
    return CassandraStore.open(url, settings_for(**given), log_id, partitions)


def by_hand(session: Session, query: str) -> list[Any]:
    """The rows of a query that has no name."""
    return list(session._open().execute(query))


class Keyspace:
    """Tables of a store that can be emptied."""

    def __init__(self, server: CassandraServer, name: str) -> None:
        self.url = url_of(server, name)
        self._server = server
        self._process: object = None
        self._session: Session | None = None
        self._seen: dict[str, int] = {}
        open_store(self.url).close()

    def empty(self, *tables: str) -> None:
        """Empty those of the tables that were written to since.

        Rows do not tell that: what was deleted would still hide what the next test writes with an older timestamp.
        """
        written = self._writes()
        for table in tables:
            if written.get(table) != self._seen.get(table):
                self.session.alter(f'TRUNCATE "{self.url.name}".{table}')
                self._seen[table] = written[table]

    def _writes(self) -> dict[str, int]:
        """How often each table was written to since the node started."""
        return dict(by_hand(self.session, WRITES.format(self.url.name)))

    @property
    def session(self) -> Session:
        """A session with the node, and a new one if it was killed: no test waits until the old one knows."""
        if self._session is None or self._process is not self._server.process:
            self.close()
            self._process, self._session, self._seen = self._server.process, Session(self.url, 30), {}
        return self._session

    def close(self) -> None:
        """Let go of it."""
        if self._session is not None:
            self._session.close()
            self._session = None


class EmptyStores:
    """Hands out stores in one keyspace, each time emptied. One at a time: a new one takes the rows of the last."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.url = keyspace.url
        self._keyspace = keyspace
        self._made: list[CassandraStore] = []

    def make(self, settings: StoreSettings) -> CassandraStore:
        """An empty store with these settings."""
        self._keyspace.empty(*TABLES)
        return self.again(settings)

    def again(self, settings: StoreSettings) -> CassandraStore:
        """The same store, opened once more."""
        self._made.append(CassandraStore(Session(self.url, 10), settings, LEASE_S))
        return self._made[-1]

    def rows(self, table: str) -> list[Any]:
        """All rows of a table, sorted; columns that are no key by name."""
        return sorted(self.asked(f'SELECT * FROM "{self.url.name}".{table}'), key=repr)

    def asked(self, query: str) -> list[Any]:
        """The rows of a query."""
        return by_hand(self._keyspace.session, query)

    def close_stores(self) -> None:
        """Close what was handed out."""
        while self._made:
            self._made.pop().close()


@pytest.fixture(scope="session")
def cassandra_keyspace(cassandra: CassandraServer) -> Iterator[Keyspace]:
    """A keyspace for the whole run."""
    keyspace = Keyspace(cassandra, "shared")
    yield keyspace
    keyspace.close()


@pytest.fixture
def empty_stores(cassandra_keyspace: Keyspace) -> Iterator[EmptyStores]:
    """Stores in a keyspace that is emptied for each."""
    stores = EmptyStores(cassandra_keyspace)
    yield stores
    stores.close_stores()


@pytest.fixture(scope="session")
def cassandra_pool() -> Iterator[list[Keyspace]]:
    """Keyspaces that nobody uses now."""
    pool: list[Keyspace] = []
    yield pool
    for keyspace in pool:
        keyspace.close()


@pytest.fixture
def unused_keyspace(cassandra: CassandraServer, cassandra_pool: list[Keyspace]) -> Iterator[Callable[[], str]]:
    """URLs of keyspaces where a store may be made: the tables are there, and nothing is in them or fixed."""
    taken: list[Keyspace] = []

    def take() -> str:
        number = len(taken) + len(cassandra_pool)
        taken.append(cassandra_pool.pop() if cassandra_pool else Keyspace(cassandra, f"pooled_{number}"))
        taken[-1].empty(*TABLES, "setting")
        return taken[-1].url.text

    yield take
    cassandra_pool.extend(taken)
