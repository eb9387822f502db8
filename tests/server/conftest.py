"""One server on SQLite for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import strandline
from strandline.connect import Strandline
from tests.server.worlds import Served, served


@pytest.fixture(scope="module")
def s(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strandline]:
    with strandline.connect(f"sqlite:{tmp_path_factory.mktemp('journal')}/shop") as opened:
        yield opened


@pytest.fixture(scope="module")
def server(s: Strandline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(s, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as opened:
        yield opened
