"""The contract of a journal store, on every back-end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.servers.fixtures import plain_postgres
from tests.store.keyspaces import RELAXED, EmptyStores

from strandline.backends.memory.store import MemoryStore
from strandline.backends.postgres.store import open_store as open_postgres_store
from strandline.backends.sqlite.store import open_store as open_sqlite_store
from strandline.settings import Settings
from strandline.store.api import Store, StoreSettings
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.store_contract import Make, StoreContract
from strandline.urls import urls_of


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make(self) -> Make:
        return MemoryStore


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Iterator[Make]:
        made: list[Store] = []

        def make(settings: StoreSettings) -> Store:
            given = Settings(segment_size=settings.segment_size)
            path = tmp_path / f"store-{len(made)}.db"
            made.append(open_sqlite_store(path, given, settings.log_id, settings.partitions))
            return made[-1]

        yield make
        for store in made:
            store.close()


@RELAXED
class TestCassandraStore(StoreContract):
    finds_conflicts = False
    quick = False

    @pytest.fixture
    def make(self, empty_stores: EmptyStores) -> Make:
        return empty_stores.make


class TestLastWriteWinsStore(StoreContract):
    finds_conflicts = False

    @pytest.fixture
    def make(self) -> Make:
        return LastWriteWinsStore


@pytest.mark.req("P95")
class TestPostgresStore(StoreContract):
    @pytest.fixture
    def make(self) -> Iterator[Make]:
        made: list[Store] = []

        def make(settings: StoreSettings) -> Store:
            given = Settings(segment_size=settings.segment_size)
            url = urls_of(f"{plain_postgres()}&schema=s{uuid4().hex}").store
            made.append(open_postgres_store(url, given, settings.log_id, settings.partitions))
            return made[-1]

        yield make
        for store in made:
            store.close()
