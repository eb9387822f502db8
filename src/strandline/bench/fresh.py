"""A new log and a new store for each round, as URLs that children can open; gone after it.

SQLite files stand in the round's folder, everything else in a server of the plan: a database, a topic, a keyspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from strandline.bench.cases import CaseSettings
from strandline.urls import urls_of

ONE_NODE = {"accept_power_loss": True}
"""What a Kafka or Cassandra of one node needs to be told; both sides have the same one."""


@contextmanager
def journal(on: str, plan: CaseSettings) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `connect` for a back-end. A Kafka topic gets a store in a SQLite file."""
    if on == "sqlite":
        yield {"url": f"sqlite:{plan.folder}/journal"}
    elif on == "kafka":
        yield {"log": log(on, plan), "store": f"sqlite:{plan.folder}/store.db", **ONE_NODE}
    else:
        with store(on, plan) as url:
            yield {"url": url}


def log(kind: str, plan: CaseSettings) -> str:
    """The URL of a new log, which stays until its server goes."""
    if kind == "kafka":
        return f"{plan.servers[kind]}/bench-{uuid4().hex[:12]}"
    return create_database(plan.servers[kind])


@contextmanager
def store(kind: str, plan: CaseSettings) -> Iterator[str]:
    """The URL of a new store."""
    server = plan.servers[kind]
    if kind == "cassandra":
        url = f"{server}/bench_{uuid4().hex[:12]}?replication=1"
        try:
            yield url
        finally:
            _drop_keyspace(url)
    else:
        url = create_database(server)
        try:
            yield url
        finally:
            _alter_database(server, "drop_database", urlsplit(url).path[1:])


def create_database(server: str) -> str:
    """The URL of a new database in a PostgreSQL."""
    name = f"bench_{uuid4().hex[:12]}"
    _alter_database(server, "create_database", name)
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def settle(url: str) -> None:
    """Have a PostgreSQL do at once what it would do in the background while a clock runs: vacuum and checkpoint."""
    import psycopg

    from strandline.sql.statements import statement

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement("strandline.bench", "vacuum"))
        connection.execute(statement("strandline.bench", "checkpoint"))


def _alter_database(server: str, statement_name: str, database: str) -> None:
    import psycopg
    from psycopg.sql import SQL, Identifier

    from strandline.sql.statements import statement

    with psycopg.connect(server, autocommit=True) as connection:
        text = statement("strandline.bench", statement_name)
        connection.execute(SQL(text).format(database=Identifier(database)))


def _drop_keyspace(url: str) -> None:
    from strandline.backends.cassandra import Session
    from strandline.backends.cassandra.statements import statement

    with closing(Session(urls_of(log="memory:", store=url).store, 60.0)) as session:
        session.alter(statement("strandline.bench", "drop_keyspace", session.keyspace))
