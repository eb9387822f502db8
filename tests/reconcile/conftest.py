"""A journal on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from strandline.connect import Strandline


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Strandline]:
    with strandline.connect(f"sqlite:{tmp_path}/orders") as s:
        yield s
