"""One look at the pointers for all queries and projections of a process, however many they are."""

from __future__ import annotations

import time
from threading import Lock

from strandline.rows import Pointer
from strandline.store.api import Store


class PointerWatch:
    """The pointers as they were a moment ago. Who finds them too old looks, and everybody has what it saw."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._seen: list[Pointer] = []
        self._at = 0.0
        self.looks = 0
        """How often the store was asked."""

    def now(self) -> list[Pointer]:
        """The pointers of this moment, or a later one."""
        return self.within(0.0)

    def due_in(self, age_s: float) -> float:
        """In how many seconds they will be that old: all who wait for it wake up together, and one of them looks."""
        return max(0.0, self._at + age_s - time.monotonic())

    def within(self, age_s: float) -> list[Pointer]:
        """The pointers, not older than this."""
        asked = time.monotonic()
        with self._lock:
            if not self._seen or asked - self._at >= age_s:
                at = time.monotonic()
                self._seen = self._store.pointers()
                self._at = at
                self.looks += 1
            return self._seen
