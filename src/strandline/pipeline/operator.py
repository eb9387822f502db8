"""An operator's calls on a pipeline's store: list quarantined records, and resolve one of them."""

from __future__ import annotations

from typing import Any

from strandline.carry.resolve import resolve as resolve_in
from strandline.pipeline.target import JournalRef
from strandline.rows import QuarantineRow
from strandline.store.scans import quarantined


def quarantine(
    url: str | None = None, *, log: str | None = None, store: str | None = None, limit: int = 1000, **settings: Any
) -> list[QuarantineRow]:
    """Return damaged and foreign records, by partition and offset, without their bytes."""
    with JournalRef(url, log, store, settings).connect(schema="check") as s:
        return quarantined(s.store, limit=limit)


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
    """Resolve a quarantined record. `how` is "skip" (damaged events become gaps; a foreign record leaves the list) or
    "retry" (the record is read again).
    """
    with JournalRef(url, log, store, settings).connect(schema="check") as s:
        resolve_in(s.log, s.store, partition, offset, how, s.settings)
