"""What tests of the work journal share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.work.worlds import World, postgres_place, sqlite_place


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "sqlite":
        found = World(sqlite_place(tmp_path))
    else:
        found = World(postgres_place(request.getfixturevalue("postgres").url))
    try:
        yield found
    finally:
        found.close()
