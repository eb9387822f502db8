"""The pointers, read once for all queries and projections of a process."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from threading import Lock
from typing import Final

from strandline.clock import time_text
from strandline.errors import StrandlineError
from strandline.rows import Pointer
from strandline.store.api import Store

STILL_S: Final = 10.0
"""How long the pointers may stand still before a waiting reader asks whether a pipeline runs. A pipeline moves them
every `mark_idle_s`, even if nothing is recorded.
"""
_logger = logging.getLogger("strandline")


class PointerWatch:
    """The pointers as they were a moment ago. A reader that finds them too old looks for all readers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._seen: list[Pointer] = []
        self._at = 0.0
        self._still_since = 0.0
        self._said = False
        self.looks = 0
        """How often the store was asked for the pointers."""

    def now(self) -> list[Pointer]:
        """Return the pointers of this moment, or a later one."""
        return self.within(0.0)

    def due_in(self, age_s: float) -> float:
        """Return the seconds until the pointers are that old: all readers wake up together then, and one of them asks
        the store.
        """
        return max(0.0, self._at + age_s - time.monotonic())

    def within(self, age_s: float) -> list[Pointer]:
        """Return the pointers, not older than this."""
        asked = time.monotonic()
        with self._lock:
            if not self._seen or asked - self._at >= age_s:
                at = time.monotonic()
                found = self._store.pointers()
                if found != self._seen:
                    self._still_since, self._said = at, False
                self._seen = found
                self._at = at
                self.looks += 1
            return self._seen

    def awaited(self, age_s: float) -> list[Pointer]:
        """Return the pointers as `within` does, for a reader that waits until they move."""
        found = self.within(age_s)
        self.say_if_still()
        return found

    def say_if_still(self) -> None:
        """Warn, once, if the pointers stand still and no pipeline runs: readers that wait for them
        would wait for ever.
        """
        with self._lock:
            now, pointers = time.monotonic(), self._seen
            if self._said or not pointers or now - self._still_since < STILL_S:
                return
            self._still_since, self._said = now, True
        with suppress(StrandlineError):  # the store is away: the reader hears of that itself
            if self._store.lease().holder() is not None:
                self._said = False  # the lease is looked at again after the same time
                return
            carried = min(pointer.timestamp for pointer in pointers)
            since = f"since {time_text(carried, digits=0)}" if carried else "yet"
            _logger.warning("nothing has been carried %s: is a pipeline running? (strandline pipeline run)", since)
