"""A small log and store, in memory and on files, of one partition unless a test asks for more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from strandline.connect import Strandline


@pytest.fixture(params=["memory", "sqlite"])
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/shop"
    with strandline.connect(url, partitions=1) as connected:
        yield connected
