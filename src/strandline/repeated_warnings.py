"""Warnings that come again and again, while a server is away for instance: logged once, then once a minute with how
often they came."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable
from typing import Final

EVERY_S: Final = 60.0


class RepeatedWarnings:
    """Logs the first warning about something at once, and the later ones once a minute."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._lock = logger, threading.Lock()
        self._said: dict[Hashable, tuple[float, int]] = {}
        """By subject: when a warning was logged last (monotonic), and how many came since."""

    def warning(self, about: Hashable, text: str, *arguments: object) -> None:
        """Log a text about something, or count it."""
        now = time.monotonic()
        with self._lock:
            said_at, left_out = self._said.get(about, (None, 0))
            if said_at is not None and now - said_at < EVERY_S:
                self._said[about] = said_at, left_out + 1
                return
            self._said = {each: said for each, said in self._said.items() if now - said[0] < EVERY_S}
            self._said[about] = now, 0
        if left_out:
            text, arguments = f"{text} (%d more like this in %.0f s)", (*arguments, left_out, now - (said_at or now))
        self._logger.warning(text, *arguments)
