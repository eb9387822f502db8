"""Threads for the steps of all groups of a processor: so many at a time, but for those that wait for others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, local
from typing import Final

THREADS_MAX: Final = 1000


class StepThreads:
    def __init__(self, most: int) -> None:
        """`most`: how many steps run at a time."""
        self._threads = ThreadPoolExecutor(max(most, THREADS_MAX), thread_name_prefix="strandline-step")
        self._queue: deque[tuple[Callable[[str], None], str]] = deque()
        self._free = most
        self._lock = Lock()
        self._here = local()

    def submit(self, do: Callable[[str], None], step: str, /) -> None:
        with self._lock:
            self._queue.append((do, step))
        self._go_on(0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The step of this thread waits for others: somebody else has its turn meanwhile."""
        counts = getattr(self._here, "counts", False)  # else it is in a thread of its group
        if counts:
            self._go_on(1)
        try:
            yield
        finally:
            if counts:
                with self._lock:
                    self._free -= 1  # at once: perhaps there is one too many for a while

    def shutdown(self) -> None:
        self._threads.shutdown()

    def _go_on(self, freed: int) -> None:
        with self._lock:
            self._free += freed
            if self._free <= 0 or not self._queue:
                return
            self._free -= 1
            do, step = self._queue.popleft()
        self._threads.submit(self._run, do, step)

    def _run(self, do: Callable[[str], None], step: str) -> None:
        self._here.counts = True
        try:
            do(step)
        finally:
            self._here.counts = False
            self._go_on(1)
