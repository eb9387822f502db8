"""Chromium for tests, as it is installed on this machine: nothing is downloaded."""

from __future__ import annotations

import shutil
from typing import Any, ClassVar, Self

from strandline.errors import Unavailable

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class ChromiumBrowser:
    """A Chromium that Playwright drives."""

    name: ClassVar[str] = "chromium"

    def start(self) -> Self:
        """Start it; `Unavailable.away` where there is none."""
        path = next(filter(None, map(shutil.which, NAMES)), None)
        if path is None:
            hint = "make test installs it where apt-get is and you are root; else: apt-get install chromium"
            raise Unavailable("there is no Chromium on the PATH", code="away", hint=hint)
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self.driver: Any = self._playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        return self

    def stop(self) -> None:
        """End it."""
        self.driver.close()
        self._playwright.stop()
