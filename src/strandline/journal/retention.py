"""Retention: trims records from the log that it no longer has to keep."""

from __future__ import annotations

from typing import cast

from strandline.log.api import ExactLog, Log
from strandline.settings import Settings
from strandline.store.api import Store


def trim(log: Log, store: Store, settings: Settings) -> int:
    """Remove records that are in the store and older than `log_retention_s`; return how many were removed.

    Each partition is trimmed at its own pointer, never above it. The log's own clock says how old a record is, because
    this machine's clock may be wrong. A log that is not exact has a retention of its own and is left alone.
    """
    if not log.exact:
        return 0
    keep_after = cast(ExactLog, log).now() - int(settings.log_retention_s * 1_000_000)
    return sum(
        log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=keep_after)
        for pointer in store.pointers()
        if pointer.offset >= 0
    )
