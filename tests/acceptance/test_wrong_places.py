"""Wrong URLs and servers that are not there: told alike on every back-end, with what to do, and nothing is left."""

from __future__ import annotations

import inspect
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.log.topics import admin, new_name
from tests.servers.spares import SpareKafka

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


# ---------------------------------------------------------------- a server that is not there

SERVERS = {"postgresql": "PostgreSQL", "kafka": "Kafka", "cassandra": "Cassandra"}
OF_DRIVERS = ("ipv4#", "bootstrap", "controller", "errors=", "Errno", "Local:", "last_host", "connection to server")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def absent(scheme: str, host: str, folder: Path, **settings: Any) -> StrandlineError:
    """How a server at this place is refused, with a user and without."""
    told = []
    for user in ("", "shop:hunter22@"):
        url = f"{scheme}://{user}{host}/orders"
        places = (
            {"log": url, "store": f"sqlite:{folder}/s.db"} if scheme == "kafka" else {"log": "memory:", "store": url}
        )
        began = time.monotonic()
        error = refused(**places, **settings)
        assert time.monotonic() - began < 5
        assert "hunter22" not in repr((error, error.message, error.hint, error.facts, error.__cause__))
        told.append((error.name, error.hint, error.message.rpartition(": ")[2]))
    assert told[0] == told[1]
    assert list(folder.iterdir()) == []
    assert not any(word in error.message for word in OF_DRIVERS), error.message
    assert host in error.message
    assert (error.name, error.applied) == ("Unavailable.away", "no")
    assert error.hint == f"start {SERVERS[scheme]} there, or mend host and port in the URL"
    return error


@pytest.mark.req("RS8", "RS10")
@pytest.mark.parametrize("scheme", SERVERS)
def test_nobody_listens(scheme: str, closed_port: int, tmp_path: Path) -> None:
    error = absent(scheme, f"127.0.0.1:{closed_port}", tmp_path)
    assert error.message.endswith(f"{SERVERS[scheme]} cannot be reached: the connection is refused")


@pytest.mark.req("RS8", "RS10")
@pytest.mark.parametrize("scheme", SERVERS)
def test_a_host_that_has_no_address(scheme: str, tmp_path: Path) -> None:
    error = absent(scheme, "no-such-host.invalid:1234", tmp_path)
    assert error.message.endswith(f"{SERVERS[scheme]} cannot be reached: no such host")


@pytest.mark.req("RS8", "RS10")
@pytest.mark.parametrize("scheme", SERVERS)
def test_a_port_that_never_answers(scheme: str, silent_port: int, tmp_path: Path) -> None:
    error = absent(scheme, f"127.0.0.1:{silent_port}", tmp_path, append_timeout_s=2)
    assert error.message.endswith(f"{SERVERS[scheme]} cannot be reached: no answer within 2 s")


def test_one_broker_of_two_is_enough(kafka: KafkaServer, closed_port: int, tmp_path: Path) -> None:
    log = f"kafka://127.0.0.1:{closed_port},{kafka.bootstrap}/{new_name()}"
    with strandline.connect(log=log, store=f"sqlite:{tmp_path}/store.db", accept_power_loss=True) as s:
        s.journal.append("order|1", [strandline.Event("Placed", 1)])
        assert [event.payload for event in s.journal.read("order|1")] == [1]


def test_a_broker_that_gives_an_address_where_it_is_not(spare_kafka: SpareKafka, tmp_path: Path) -> None:
    log = f"kafka://127.0.0.1:{spare_kafka.ports['NOWHERE']}/orders"
    error = refused(log=log, store=f"sqlite:{tmp_path}/store.db")
    assert (error.name, error.hint) == ("Unavailable.away", "mend advertised.listeners of the broker")
    assert f"gives 127.0.0.1:{spare_kafka.nowhere} as its address: the connection is refused" in error.message


def test_a_user_where_kafka_knows_none(kafka: KafkaServer, tmp_path: Path) -> None:
    log = f"kafka://shop:hunter22@{kafka.bootstrap}/{new_name()}"
    error = refused(log=log, store=f"sqlite:{tmp_path}/store.db")
    assert (error.name, error.hint) == ("Unavailable.away", "leave user and password out of the URL")
    assert error.message.endswith("this listener asks for no user")


def test_encryption_where_kafka_has_none(kafka: KafkaServer, tmp_path: Path) -> None:
    log = f"{kafka.url}/{new_name()}?security_protocol=ssl"
    error = refused(log=log, store=f"sqlite:{tmp_path}/store.db")
    assert error.name == "Unavailable.away"
    assert error.message.endswith("this listener does not speak TLS")
    assert "port" in error.hint


# ---------------------------------------------------------------- a log that is not the store's


@pytest.mark.req("J32", "RR6")
@pytest.mark.parametrize("scheme", ["sqlite", "postgresql", "kafka"])
def test_a_misspelt_log(scheme: str, kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path) -> None:
    place = {"sqlite": f"sqlite:{tmp_path}/", "postgresql": f"{postgres.url}&schema=", "kafka": f"{kafka.url}/"}[scheme]
    store, other = f"sqlite:{tmp_path}/store", f"sqlite:{tmp_path}/other-store"
    right, wrong = f"{place}{_keyspace()}", f"{place}{_keyspace()}"
    strandline.connect(log=right, store=store, accept_power_loss=True).close()
    error = refused(log=wrong, store=store, accept_power_loss=True)
    assert error.name == "SchemaMismatch.log_replaced"
    assert f"there is no log at {wrong.removeprefix('sqlite:')}" in error.message
    assert f"the store at {tmp_path}/store has one: " in error.message
    assert error.hint.startswith("is the log's URL right? If so, ")
    strandline.connect(log=wrong, store=other, accept_power_loss=True).close()
    error = refused(log=wrong, store=store, accept_power_loss=True)
    assert error.name == "SchemaMismatch.log_replaced"
    assert f"{wrong.removeprefix('sqlite:')} is not the log of the store at {tmp_path}/store" in error.message
    assert error.hint.startswith("is the log's URL right? If so, ")
    for fact in (error.stored, error.given):
        assert fact in error.message


# ---------------------------------------------------------------- what is said of one


def test_one_broker_is_one(kafka: KafkaServer, tmp_path: Path) -> None:
    topic, store = new_name(), f"sqlite:{tmp_path}/store.db"
    assert "1 broker, and 3 replicas are needed" in refused(log=f"{kafka.url}/{topic}", store=store).message
    strandline.connect(log=f"{kafka.url}/{topic}", store=store, accept_power_loss=True).close()
    assert "1 replica; needed 3" in refused(log=f"{kafka.url}/{topic}", store=store).message


# ---------------------------------------------------------------- warnings


@pytest.mark.req("RS11")
@pytest.mark.parametrize("scheme", ["sqlite", "kafka", "cassandra"])
def test_a_warning_names_the_callers_line_once(
    scheme: str, kafka: KafkaServer, unused_keyspace: Callable[[], str], tmp_path: Path
) -> None:
    places: dict[str, Any] = {"log": "memory:", "store": f"sqlite:{tmp_path}/store.db"}
    if scheme == "cassandra":
        places["store"] = unused_keyspace()
    else:
        places["log"] = {"sqlite": f"sqlite:{tmp_path}/log.db", "kafka": f"{kafka.url}/{new_name()}"}[scheme]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        strandline.connect(**places, accept_power_loss=True).close()
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert [(found.filename, found.lineno) for found in warned] == [(__file__, line)]
    assert "can lose" in str(warned[0].message) or "loses" in str(warned[0].message)
