"""Fixtures that start a server once per run, when the first test asks for it, and stop it at the end.

Where a server cannot be had, the tests that ask for it are skipped, and the run ends with one table of reasons. In CI
(`CI` is set), or with STRANDLINE_SERVERS=required, they fail instead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ClassVar, Final, Protocol, Self, TypeVar

import psycopg
import pytest

from strandline.errors import StrandlineError
from strandline.servers import jars
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.spark import SparkCluster


class Startable(Protocol):
    """A server, or several that belong together."""

    name: ClassVar[str]

    def start(self) -> Self: ...


S = TypeVar("S", bound=Startable)
FUNCTIONS: Final = (
    "SELECT proname, pg_get_function_identity_arguments(oid) FROM pg_proc"
    " WHERE pronamespace = 'pg_catalog'::regnamespace"
    " AND (proname IN ('pg_notify', 'nextval', 'setval') OR proname ~ '^pg_(try_)?advisory')"
)
END_S = 20.0
REASONS: dict[str, str] = {}
"""Servers that could not be had, and why."""


def required() -> bool:
    """Whether a run without a server is a failure."""
    return bool(os.environ.get("CI")) or os.environ.get("STRANDLINE_SERVERS") == "required"


def started(server: S) -> S:
    """The server, running; or the test is skipped."""
    try:
        return server.start()
    except StrandlineError as error:
        REASONS[server.name] = f"{error.message} (hint: {error.hint})"
        if required():
            pytest.fail(f"{server.name} cannot be had: {REASONS[server.name]}", pytrace=False)
        pytest.skip(f"{server.name} cannot be had; see the table of reasons")


def fetch_for(items: Sequence[pytest.Item]) -> None:
    """Fetch what the tests will ask for: no test's time limit is made for that."""
    asked = {name for item in items for name in getattr(item, "fixturenames", ())}
    with ThreadPoolExecutor(len(jars.LIBRARIES)) as pool:
        for name in sorted(asked & jars.LIBRARIES.keys()):
            pool.submit(jars.jars, jars.LIBRARIES[name])  # if it fails, the fixture says it again


def reasons_table() -> list[str]:
    """The table, as lines."""
    width = max(map(len, REASONS), default=0)
    return [f"{name:<{width}}  {reason}" for name, reason in sorted(REASONS.items())]


@cache
def shared_postgres() -> PostgresServer:
    """The PostgreSQL of this run, for what has no fixture; it ends with the run."""
    return started(PostgresServer())


@cache
def plain_postgres() -> str:
    """A database of it in which nobody can draw from a sequence, take an advisory lock or notify: those that speak its
    protocol may not have them."""
    url = shared_postgres().database()
    with psycopg.connect(url) as connection:
        for name, arguments in connection.execute(FUNCTIONS).fetchall():
            connection.execute(f"ALTER FUNCTION pg_catalog.{name}({arguments}) RENAME TO no_{name}".encode())
    return url


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL; `postgres.database()` is a new database in it."""
    with shared_postgres() as server:
        yield server
        # At once: in order it would write down thousands of tables that nobody reads again.
        server.process.stop(signal.SIGQUIT, END_S)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A Kafka; topics are the test's to make."""
    with started(KafkaServer(short=True)) as server:
        yield server


@pytest.fixture(scope="session")
def cassandra(request: pytest.FixtureRequest) -> Iterator[CassandraServer]:
    """A Cassandra; keyspaces are the test's to make.

    Only the soak kills it. For all others its schema need not be on disk after each change of it, which is a quarter of
    the time for making or emptying tables.
    """
    is_killed = any(item.get_closest_marker("soak") for item in request.session.items)
    properties = {} if is_killed else {"cassandra.unsafesystem": "true"}
    with started(CassandraServer(properties=properties, short=True)) as server:
        yield server


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers; `session.start(spark_cluster.url, conf=spark_cluster.conf)`."""
    with started(SparkCluster()) as server:
        yield server
