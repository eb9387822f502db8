"""Wrong URLs and servers that are not there: told alike on every back-end, with what to do, and nothing is left."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.log.topics import admin, new_name

import strandline
from strandline import StrandlineError, Unavailable, Unsupported
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer

pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")


def refused(**given: Any) -> StrandlineError:
    """How `connect` refuses this."""
    with pytest.raises(StrandlineError) as caught:
        strandline.connect(**given)
    return caught.value


# ---------------------------------------------------------------- a store that is refused leaves no log


@pytest.fixture
def bare_user(postgres: PostgresServer) -> str:
    """The URL of a database where a user may connect and no more."""
    url, user = postgres.database(), f"bare_{uuid4().hex}"
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN")
    return url.replace("//postgres@", f"//{user}@")


def stores_refused(cassandra: CassandraServer, bare_user: str) -> list[tuple[str, type[StrandlineError]]]:
    return [
        (f"{cassandra.url}/{_keyspace()}", Unsupported),  # three replicas on one node
        (bare_user, Unavailable),  # a user who may create nothing
        ("sqlite:/proc/store.db", Unavailable),  # where no file can be made
    ]


def _keyspace() -> str:
    return f"k{uuid4().hex}"


@pytest.mark.req("J109", "U10")
def test_a_refused_store_leaves_no_topic(kafka: KafkaServer, cassandra: CassandraServer, bare_user: str) -> None:
    for store, error in stores_refused(cassandra, bare_user):
        topic = new_name()
        found = refused(log=f"{kafka.url}/{topic}", store=store, accept_power_loss=True)
        assert (type(found), found.hint != "") == (error, True), store
        assert topic not in admin(kafka).list_topics(timeout=10).topics, store


@pytest.mark.req("J109", "U10")
def test_a_refused_store_leaves_no_schema_and_no_file(
    postgres: PostgresServer, cassandra: CassandraServer, bare_user: str, tmp_path: Path
) -> None:
    for store, error in stores_refused(cassandra, bare_user):
        url = postgres.database()
        for log in (url, f"sqlite:{tmp_path}/log.db"):
            found = refused(log=log, store=store, accept_power_loss=True)
            assert type(found) is error, (log, store)
        with closing(psycopg.connect(url)) as connection:
            assert not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'strandline'").fetchall(), store
        assert list(tmp_path.iterdir()) == [], store
