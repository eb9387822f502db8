"""Timestamps for targets without transactions: one growing clock for a stream, whoever runs it.

None is used above the horizon that the lease has in the log. A processor that takes the stream over starts above it, so
that later writes win, whatever the clocks of both show.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from strandline.group.lease import StreamLease

APART_US: Final = 2
"""Two timestamps are so far apart that an undo has room between them."""
HORIZON_US: Final = 10_000_000


class Times:
    def __init__(self, lease: StreamLease, clock: Callable[[], int]) -> None:
        self._lease, self._clock = lease, clock
        self._last = lease.progress.horizon
        self._lock = Lock()

    def now(self) -> int:
        """Return what the clock says."""
        return self._clock()

    def ahead(self, time: int) -> int:
        """Return how far a write time is ahead of the clock and of all timestamps given before (µs)."""
        with self._lock:
            return time - max(self._clock(), self._last)

    def settle(self) -> None:
        """End the clock: it gives no more timestamps, so the next processor starts above the last one given."""
        with self._lock:
            self._lease.say(horizon=self._last)

    def next(self, above: int) -> int:
        """Return a timestamp above this one, and above all that were given before."""
        with self._lock:
            made = max(self._last + APART_US, above + APART_US, self._clock())
            if made > self._lease.written.horizon or self._last == 0:
                self._lease.say(horizon=made + HORIZON_US)
                self._lease.beat()
            self._last = made
            return made
