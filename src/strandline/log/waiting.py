"""Waiting for a log: appends of this process wake at once, those of others are looked for every few milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Condition
from typing import Final

POLL_LEAST_S: Final = 0.001
POLL_MOST_S: Final = 0.05


class Arrivals:
    """Those who wait for something new in a log."""

    def __init__(self) -> None:
        self._appended = Condition()
        self._waiting = 0

    def announce(self) -> None:
        """Something was appended here."""
        if self._waiting:
            with self._appended:
                self._appended.notify_all()

    def wait(self, newest: Callable[[], list[int]], after: Mapping[int, int], timeout_s: float) -> bool:
        """Wait until a partition has something after its offset; False after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        pause_s = POLL_LEAST_S
        with self._appended:
            self._waiting += 1
        try:
            while True:
                ends = newest()
                if any(ends[partition] > offset for partition, offset in after.items()):
                    return True
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                with self._appended:
                    self._appended.wait(min(pause_s, left_s))
                pause_s = min(pause_s * 2, POLL_MOST_S)
        finally:
            with self._appended:
                self._waiting -= 1
