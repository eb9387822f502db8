"""Cassandra as tests have it: a row that was acknowledged survives a kill, because the commit log is synced.

The tests of the store kill it, too, under load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

import strandline
from strandline import Event, Key
from strandline.servers.cassandra import CassandraServer
from strandline.servers.server import HOST
from strandline.testing import carry

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


@pytest.fixture
def own(cassandra: CassandraServer) -> Iterator[CassandraServer]:
    """The one of all tests: who uses it finds it again."""
    yield cassandra
    cassandra.start()


@contextmanager
def session(server: CassandraServer) -> Iterator[Any]:
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([HOST]), request_timeout=60)
    cluster = Cluster([HOST], port=server.port, protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_row_survives_kill_and_stop(own: CassandraServer) -> None:
    address = own.url
    with session(own) as client:
        client.execute(f"CREATE KEYSPACE kept WITH replication = {REPLICATION}")
        client.execute("CREATE TABLE kept.names (name text PRIMARY KEY)")
        client.execute("INSERT INTO kept.names (name) VALUES ('before')")
    own.kill()
    assert not own.alive
    own.restart()
    assert own.url == address
    with session(own) as client:
        client.execute("INSERT INTO kept.names (name) VALUES ('after')")
    own.restart()
    with session(own) as client:
        assert sorted(row.name for row in client.execute("SELECT name FROM kept.names")) == ["after", "before"]


def test_clients_can_see_that_writes_are_on_disk_when_answered(cassandra: CassandraServer) -> None:
    with session(cassandra) as client:
        (row,) = client.execute("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'")
    assert row.value == "batch"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:accept_power_loss is on")
def test_a_node_of_its_own_has_room_for_many_journals() -> None:
    """As `strandline servers cassandra` starts it."""
    with CassandraServer() as server:
        for number in range(30):
            store = f"{server.url}/shop_{number}?replication=1"
            with strandline.connect(log="memory:", store=store, accept_power_loss=True) as s:
                s.journal.append("order|1", [Event("Placed", number)])
                carry(s)
                assert s.store.pointers()[Key.of("order|1").partition(8)].offset == 0
        assert server.alive
