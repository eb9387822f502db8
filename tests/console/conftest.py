"""One shop, one server and one browser for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.server.console import history
from tests.console.browser import ChromiumBrowser
from tests.console.shop import Shop
from tests.server.worlds import Served, served
from tests.servers.fixtures import started


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.projection.host.LOOK_S", 0.1)
        patch.setattr("strandline.server.console.handlers.LIVE_S", 0.2)
        patch.setattr(history, "LOOK_S", 0.5)
        patch.setattr(history, "FRESH_S", 0.1)
        with Shop(tmp_path_factory.mktemp("shop")) as made:
            yield made


@pytest.fixture(scope="package")
def server(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(shop.s, tmp_path_factory.mktemp("tokens"), groups=shop.groups) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. It ends with the module: while it runs, this thread has an event loop, and others want theirs."""
    browser = started(ChromiumBrowser())
    yield browser.driver
    browser.stop()
