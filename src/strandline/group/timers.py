"""Timers for calls and for groups to wake. A timer holds no thread."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Lock

Due = Callable[[], None] | str
"""What to call, or the id of a group to wake."""


class Timers:
    """Keeps timers. Any number of threads may set them; one thread takes those that are due."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Due]] = []
        self._count = 0
        self._lock = Lock()

    def after(self, seconds: float, due: Due) -> bool:
        """Set a timer; return whether it is the first that will be due."""
        with self._lock:
            self._count += 1
            entry = (time.monotonic() + seconds, self._count, due)
            heapq.heappush(self._waiting, entry)
            return self._waiting[0] is entry

    def due(self) -> list[Due]:
        """Take the timers that are due, in the order of their times."""
        found: list[Due] = []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                found.append(heapq.heappop(self._waiting)[2])
        return found

    def pause_s(self, most_s: float) -> float:
        """Return the seconds until the first is due, or so many."""
        with self._lock:
            left_s = self._waiting[0][0] - time.monotonic() if self._waiting else most_s
        return max(0.0, min(most_s, left_s))
