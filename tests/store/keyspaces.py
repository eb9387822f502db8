"""Cassandra stores of tests. Making the tables of a keyspace takes seconds, emptying them a tenth of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.cassandra import Session
from strandline.servers.cassandra import CassandraServer
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.store.cassandra import CassandraStore
from strandline.urls import Url, urls_of

TABLES = (
    "journal", "slice_view", "slice_bucket", "entity_type", "metajournal", "ended", "pointer", "quarantine",
    "snapshot", "lease",
)  # fmt: skip
LEASE_S = 1.0
RELAXED = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
"""One node has one replica, and every start says so."""


def url_of(server: CassandraServer, keyspace: str, parameters: str = "replication=1") -> Url:
    """A keyspace of a server."""
    return urls_of(log="memory:", store=f"{server.url}/{keyspace}?{parameters}").store


def settings_for(**given: Any) -> Settings:
    """Settings of a store on one node."""
    return Settings.of({"accept_power_loss": True, "segment_size": 3, "lease_s": LEASE_S, **given})


def open_store(url: Url, *, log_id: str | None = "tape", partitions: int | None = 1, **given: Any) -> CassandraStore:
    """A store with segments of three events, made if it is not there."""
    return CassandraStore.open(url, settings_for(**given), log_id, partitions)


class EmptyStores:
    """Hands out stores in one keyspace, each time emptied. One at a time: a new one takes the rows of the last."""

    def __init__(self, url: Url) -> None:
        self.url = url
        self._session = Session(url, 30)
        self._made: list[CassandraStore] = []
        open_store(url).close()

    def make(self, settings: StoreSettings) -> CassandraStore:
        """An empty store with these settings."""
        for table in TABLES:
            self._session.alter(f'TRUNCATE "{self.url.name}".{table}')
        self._made.append(CassandraStore(Session(self.url, 10), settings, LEASE_S))
        return self._made[-1]

    def again(self, settings: StoreSettings) -> CassandraStore:
        """The same store, opened once more."""
        self._made.append(CassandraStore(Session(self.url, 10), settings, LEASE_S))
        return self._made[-1]

    def rows(self, table: str) -> list[Any]:
        """All rows of a table, sorted; columns that are no key by name."""
        return sorted(self.asked(f'SELECT * FROM "{self.url.name}".{table}'), key=repr)

    def asked(self, query: str) -> list[Any]:
        """The rows of a query."""
        return self._session.asked(query)

    def close_stores(self) -> None:
        """Close what was handed out."""
        while self._made:
            self._made.pop().close()

    def close(self) -> None:
        """Let go of everything."""
        self.close_stores()
        self._session.close()


@pytest.fixture(scope="session")
def cassandra_keyspace(cassandra: CassandraServer) -> Iterator[EmptyStores]:
    """A keyspace for the whole run."""
    stores = EmptyStores(url_of(cassandra, "shared"))
    yield stores
    stores.close()


@pytest.fixture
def empty_stores(cassandra_keyspace: EmptyStores) -> Iterator[EmptyStores]:
    """Stores in a keyspace that is emptied for each."""
    yield cassandra_keyspace
    cassandra_keyspace.close_stores()
