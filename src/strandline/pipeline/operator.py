"""What an operator asks of a pipeline's store: what was quarantined, and what is to become of it."""

from __future__ import annotations

import os
import socket
from typing import Any, Final

from strandline.carry import carry_up_to
from strandline.connect import Strandline
from strandline.pipeline import marks
from strandline.pipeline.target import Target
from strandline.resolve import resolve as resolve_in
from strandline.rows import QuarantineRow

ROOM_US: Final = 1000
"""How many corrections of one row find a write timestamp of their own."""


def quarantine(
    url: str | None = None, *, log: str | None = None, store: str | None = None, limit: int = 1000, **settings: Any
) -> list[QuarantineRow]:
    """Damaged and foreign records, by partition and offset, without their bytes."""
    with Target(url, log, store, settings).connect(schema="check") as s:
        return s.store.quarantined(limit=limit)


def resolve(
    url: str | None,
    partition: int,
    offset: int,
    how: str,
    *,
    log: str | None = None,
    store: str | None = None,
    **settings: Any,
) -> None:
    """`how` is "skip" (damaged events become gaps; a foreign record leaves the list) or "retry" (read it again)."""
    with Target(url, log, store, settings).connect(schema="check") as s:
        if getattr(s.store, "corrected_under_lease", False):
            _resolve_under_lease(s, partition, offset, how)
        else:
            resolve_in(s.store, partition, offset, how)


def _resolve_under_lease(s: Strandline, partition: int, offset: int, how: str) -> None:
    """Where writes are ordered by their timestamps: behind all that the log has, and before all that it will have.

    The Mark's timestamp leaves room for the corrections', and no later action can have one below it.
    """
    lease = s.store.take_lease(f"resolve, {socket.gethostname()} pid {os.getpid()}")
    try:
        newest = s.store.pointers()[partition].timestamp
        marks.write(s.log, {partition: newest + ROOM_US})
        carry_up_to(s.log, s.store, partition, s.log.newest()[partition], lease.fence, s.settings)
        resolve_in(s.store, partition, offset, how)
    finally:
        lease.release()
