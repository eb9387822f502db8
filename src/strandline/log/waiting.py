"""Waits for a log's new records: appends of this process wake at once, those of others are polled every few
milliseconds.

A back-end that is notified of others' appends (`heard`) polls seldom. It polls often again as soon as it finds a record
of which it was not notified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Condition, RLock
from typing import Final

POLL_LEAST_S: Final = 0.001
POLL_MOST_S: Final = 0.05
POLL_TOLD_S: Final = 1.0
"""The pause between polls while others' appends are notified."""


class Arrivals:
    """Wakes callers that wait for a new record of a log."""

    def __init__(self) -> None:
        self._lock = RLock()  # Condition's own way in is Python, and could be interrupted half-way
        self._appended = Condition(self._lock)
        self._waiting = self._count = 0
        self._told = False

    def announce(self) -> None:
        """Wake the waiting callers, because this process has appended something."""
        if self._waiting:
            with self._lock:
                self._count += 1
                self._appended.notify_all()

    def heard(self, told: bool) -> None:
        """Note that another process has appended something; or with False, that notifications no longer come."""
        self._told = told
        self.announce()

    def wait(self, newest: Callable[[], list[int]], after: Mapping[int, int], timeout_s: float) -> bool:
        """Wait until a partition has something after its offset; False after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        pause_s = POLL_LEAST_S
        with self._lock:
            self._waiting += 1
        try:
            woken = True
            while True:
                count = self._count
                ends = newest()
                if any(ends[partition] > offset for partition, offset in after.items()):
                    if not woken:
                        self._told = False
                    return True
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                with self._lock:
                    pause_now_s = min(POLL_TOLD_S if self._told else pause_s, left_s)
                    woken = self._count != count or self._appended.wait(pause_now_s)
                pause_s = min(pause_s * 2, POLL_MOST_S)
        finally:
            with self._lock:
                self._waiting -= 1
