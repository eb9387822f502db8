"""Samples: how the system did over time, taken by a thread four times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.testing.shop.ledger import LedgerFollower

EVERY_S = 0.25
RATE_SAMPLES = 4


class DemoSample(NamedTuple):
    """One moment."""

    at_s: float
    """Since the start."""
    appends: int
    """Acknowledged so far."""
    rate_per_s: float
    """Over the last second."""
    share: float
    """Of the writers' day."""
    lag: int
    """Actions that are in the log and not in the store."""
    strandline_s: float
    """How far the strandline is behind the newest event."""
    carrying: bool = False
    """Whether a pipeline holds the lease."""


class StoryMark(NamedTuple):
    """Something that the story did, to be marked in the pictures."""

    at_s: float
    what: str
    bad: bool


class Sampler:
    """Samples in the background; a context manager."""

    def __init__(
        self, s: Strandline, ledgers: Sequence[LedgerFollower], tasks: int, show: Callable[[DemoSample], None]
    ) -> None:
        self._s, self._ledgers, self._tasks, self._show = s, ledgers, tasks, show
        self._start = time.monotonic()
        self._first_us = self._newest_us = 0
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._counted = [0] * len(ledgers)
        self.appends = 0
        self.samples: list[DemoSample] = []
        self.events: list[StoryMark] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def last(self) -> DemoSample:
        return self.samples[-1] if self.samples else DemoSample(0.0, 0, 0.0, 0.0, 0, 0.0)

    def mark(self, what: str, *, bad: bool = False) -> None:
        """Remember that something happened now."""
        self.events.append(StoryMark(self.now_s, what, bad))

    def take(self) -> DemoSample:
        """Sample now."""
        with self._lock:
            for n, ledger in enumerate(self._ledgers):
                ledger.follow()
                new = ledger.answered[self._counted[n] :]
                self.appends += sum(entry.accepted and not entry.duplicate for entry in new)
                self._counted[n] += len(new)
                for entry in new:
                    timestamp = (entry.answer or {}).get("timestamp", 0)
                    self._first_us = self._first_us or timestamp
                    self._newest_us = max(self._newest_us, timestamp)
            status = self._s.status(parts=False)
            now = self.now_s
            lag = sum(partition.lag_actions for partition in status.partitions)
            behind_s = max(0, self._newest_us - (status.strandline or self._first_us)) / 10**6
            done = sum(ledger.all[-1].task + 1 for ledger in self._ledgers if ledger.all)
            before = self.samples[-RATE_SAMPLES:][0] if self.samples else DemoSample(0.0, 0, 0.0, 0.0, 0, 0.0)
            rate_per_s = (self.appends - before.appends) / max(now - before.at_s, EVERY_S)
            carrying = status.lease_holder is not None
            sample = DemoSample(now, self.appends, rate_per_s, done / self._tasks, lag, behind_s, carrying)
            self.samples.append(sample)
        self._show(sample)
        return sample

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            try:
                self.take()
            except StrandlineError:  # a busy moment; the next sample comes soon
                continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
