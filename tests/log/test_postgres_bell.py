"""The bell of a PostgreSQL log: it wakes who waits, and whoever does not hear it finds what came all the same."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from strandline.backends.postgres import notifications as bell
from strandline.backends.postgres.log import PostgresLog
from strandline.log import waiting
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import temporary_place
from strandline.testing.log_contract.made import mark_in
from tests.log.postgres_logs import opened
from tests.servers.proxy import Proxy

LONG_S = 60.0
ENDLESS_S = 3600.0


@pytest.fixture
def writer(url: str) -> Iterator[PostgresLog]:
    with closing(opened(url)) as made:
        yield made


@pytest.fixture
def reader(url: str, writer: PostgresLog) -> Iterator[PostgresLog]:
    with closing(opened(url)) as made:
        yield made


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def told(log: PostgresLog) -> bool:
    return log._arrivals._told


def listening(log: PostgresLog) -> None:
    assert not log.wait({0: 10**9}, 0)
    wait_until(lambda: told(log))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("strandline-r", "strandline-l"))}


def later(call: Callable[[], Any]) -> threading.Thread:
    """Call when somebody else waits already."""
    thread = threading.Timer(0.1, call)
    thread.start()
    return thread


def test_an_append_of_another_wakes_at_once(
    writer: PostgresLog, reader: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_TOLD_S", ENDLESS_S)
    listening(reader)
    for number in range(3):
        thread = later(lambda: writer.append([mark_in(0)]))
        started = time.monotonic()
        assert reader.wait({0: number - 1}, 2 * LONG_S)
        assert time.monotonic() - started < LONG_S  # no look would have found it
        thread.join()
    assert told(reader)


def test_who_hears_looks_seldom(reader: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
    listening(reader)
    looks: list[int] = []
    newest = reader.newest

    def counted() -> list[int]:
        looks.append(1)
        return newest()

    monkeypatch.setattr(reader, "newest", counted)
    assert not reader.wait({0: -1}, 0.5)
    assert len(looks) == 2


def test_rings_that_are_lost_are_made_up_for(
    writer: PostgresLog, reader: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_TOLD_S", 0.3)
    listening(reader)
    with monkeypatch.context() as silent:
        silent.setattr(bell.Bell, "ring", lambda self: None)
        thread = later(lambda: writer.append([mark_in(0)]))
        assert reader.wait({0: -1}, LONG_S)
        thread.join()
    assert not told(reader)  # it looks often again, until a ring is heard
    writer.append([mark_in(0)])
    wait_until(lambda: told(reader))


def test_a_listener_that_was_lost_is_made_up_for(
    url: str, writer: PostgresLog, reader: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_TOLD_S", ENDLESS_S)
    listening(reader)
    terminate_listeners(url)
    wait_until(lambda: not told(reader))
    thread = later(lambda: writer.append([mark_in(0)]))
    assert reader.wait({0: -1}, LONG_S)
    thread.join()


def test_a_listener_comes_back(url: str, reader: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "AGAIN_S", 0.05)
    listening(reader)
    before = listeners(url)
    assert len(before) == 1
    terminate_listeners(url)
    wait_until(lambda: listeners(url) - before)


def terminate_listeners(url: str) -> None:
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")


def listeners(url: str) -> set[int]:
    """Who listens, as the server sees it: one that hung up is still among them until the server has noticed."""
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        found = connection.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        return {pid for (pid,) in found.fetchall()}


def test_nobody_listens_through_a_pooler(postgres: PostgresServer, url: str) -> None:
    with (
        tempfile.TemporaryDirectory(dir=temporary_place()) as folder,
        Proxy(postgres.folder, Path(folder), renumbers=True),
        closing(opened(url.replace(str(postgres.folder), folder))) as reader,
        closing(opened(url)) as writer,
    ):
        thread = later(lambda: writer.append([mark_in(0)]))
        assert reader.wait({0: -1}, LONG_S)
        thread.join()
        wait_until(lambda: "strandline-listen" not in threads())
        assert not told(reader)
        wait_until(lambda: not listeners(url))


def test_who_may_not_ring_appends(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "AGAIN_S", 0.05)
    database = postgres.database()
    role = f"r{uuid4().hex}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {role}")
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC")
    with closing(opened(database.replace("postgres@", f"{role}@"))) as log:
        for number in range(3):
            log.append([mark_in(0)])
            assert log.newest()[0] == number
        wait_until(lambda: not log._bell._wanted.is_set())


def test_threads_come_with_the_first_call_and_end_with_the_log(url: str) -> None:
    wait_until(lambda: not threads())
    log = opened(url)
    log.read(0, after=-1)
    assert threads() == set()
    log.append([mark_in(0)])
    assert threads() == {"strandline-ring"}
    listening(log)
    assert threads() == {"strandline-ring", "strandline-listen"}
    log.close()
    assert threads() == set()
    wait_until(lambda: not listeners(url))
