"""A journal on each back-end whose offsets are in its own database, and a table for handlers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.connect import Strandline
from strandline.projection import host
from tests.journal.worlds import world
from tests.projection.worlds import BACKENDS, Table

PARTITIONS = 3


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of this process look around more often than every second, so that tests need not wait for them."""
    monkeypatch.setattr(host, "LOOK_S", 0.1)


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=PARTITIONS) as opened:
        yield opened


@pytest.fixture
def table(s: Strandline) -> Iterator[Table]:
    made = Table(s)
    yield made
    made.close()
