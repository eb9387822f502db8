"""Retention: what a log that can be trimmed no longer has to keep."""

from __future__ import annotations

from typing import cast

from strandline.log.api import ExactLog, Log
from strandline.settings import Settings
from strandline.store.api import Store


def trim(log: Log, store: Store, settings: Settings) -> int:
    """Forget what is in the store and older than `log_retention_s`; how many records went.

    Each partition is trimmed at its own pointer, never above it. How old a record is, the log's own clock says: that
    of this machine may be wrong. A log that is not exact has a retention of its own and is left alone.
    """
    if not log.exact:
        return 0
    keep_after = cast(ExactLog, log).now() - int(settings.log_retention_s * 1_000_000)
    return sum(
        log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=keep_after)
        for pointer in store.pointers()
        if pointer.offset >= 0
    )
