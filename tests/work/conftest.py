"""What tests of the work journal share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.servers.postgres import PostgresServer
from tests.work.worlds import World, postgres_place, sqlite_place


@pytest.fixture
def sqlite_world(tmp_path: Path) -> Iterator[World]:
    found = World(sqlite_place(tmp_path))
    yield found
    found.close()


@pytest.fixture
def postgres_world(postgres: PostgresServer) -> Iterator[World]:
    found = World(postgres_place(postgres.url))
    yield found
    found.close()


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(f"{request.param}_world")
    return found
