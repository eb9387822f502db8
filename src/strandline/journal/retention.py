"""Retention: what a log that can be trimmed no longer has to keep."""

from __future__ import annotations

import time

from strandline.log.api import Log
from strandline.settings import Settings
from strandline.store.api import Readable


def trim(log: Log, store: Readable, settings: Settings, now: int | None = None) -> int:
    """Forget what is in the store and older than `log_retention_s`; how many records went.

    Each partition is trimmed at its own pointer, never above it. `now` is in µs; the wall clock if left out.
    """
    now = time.time_ns() // 1000 if now is None else now
    keep_after = now - int(settings.log_retention_s * 1_000_000)
    return sum(
        log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=keep_after)
        for pointer in store.pointers()
        if pointer.offset >= 0
    )
