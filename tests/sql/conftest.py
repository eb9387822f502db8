"""Databases of both dialects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.sql.places import Place, postgres_place, sqlite_place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as held:
        if request.param == "sqlite":
            yield sqlite_place(tmp_path, held)
        else:
            yield postgres_place(request.getfixturevalue("postgres"), held)


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, Place]]:
    """Two of one dialect."""
    with ExitStack() as held:
        if request.param == "sqlite":
            yield sqlite_place(tmp_path, held), sqlite_place(tmp_path, held)
        else:
            server = request.getfixturevalue("postgres")
            yield postgres_place(server, held), postgres_place(server, held)
