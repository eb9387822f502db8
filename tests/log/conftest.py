"""What tests of several logs have in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from strandline.servers.postgres import PostgresServer
from tests.log.postgres_logs import new_url

DEADLINE_S = 20


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A place in PostgreSQL for a log."""
    return new_url(postgres)


@pytest.fixture(scope="module", autouse=True)
def kafka_clients_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of a file leave no client of Kafka behind: in a forked child, or in a thread of the library, a garbage
    collection that comes to it ends the process."""
    before = _kafka_threads()
    yield
    if "kafka" in request.module.__name__ and sys.platform == "linux":
        deadline = time.monotonic() + DEADLINE_S
        while left := _kafka_threads() - before:
            assert time.monotonic() < deadline, f"{len(left)} threads of Kafka's library are left"
            time.sleep(0.01)


def _kafka_threads() -> set[str]:
    found = set()
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(OSError):  # it has just ended
            if (thread / "comm").read_text().startswith("rdk:"):
                found.add(thread.name)
    return found
