"""What the creation of a store fixed, as table `setting` keeps it: names and texts."""

from __future__ import annotations

from typing import Final

from strandline.errors import SchemaMismatch
from strandline.fold import FOLD_VERSION
from strandline.settings import Settings
from strandline.steps import check_fixed
from strandline.store.api import StoreSettings
from strandline.values.keys import SLICES

PARTITIONS_DEFAULT: Final = 8
SEGMENT_SIZE_DEFAULT: Final = 10_000
BUCKET_SIZE_DEFAULT: Final = "hour"


def fixed_texts(settings: Settings, log_id: str | None, partitions: int | None) -> dict[str, str]:
    """What the creation of a store for this log writes down."""
    return {
        "log_id": str(log_id),
        "partitions": str(partitions or settings.partitions or PARTITIONS_DEFAULT),
        "segment_size": str(settings.segment_size or SEGMENT_SIZE_DEFAULT),
        "slices": str(SLICES),
        "bucket_size": settings.bucket_size or BUCKET_SIZE_DEFAULT,
        "fold_version": str(FOLD_VERSION),
    }


def fixed_settings(
    texts: dict[str, str], settings: Settings, log_id: str | None, partitions: int | None
) -> StoreSettings:
    """What was written down; `SchemaMismatch` for another log, another fold, or other settings than are given."""
    stored = StoreSettings(
        log_id=texts["log_id"],
        partitions=int(texts["partitions"]),
        segment_size=int(texts["segment_size"]),
        slices=int(texts["slices"]),
        bucket_size=texts["bucket_size"],
        fold_version=int(texts["fold_version"]),
    )
    if log_id is not None and log_id != stored.log_id:
        raise SchemaMismatch(
            f"the store was filled from log {stored.log_id}; this is log {log_id}",
            code="log_replaced",
            hint="give the store's own log, or a new store; a restored backup brings both",
            stored=stored.log_id,
            given=log_id,
        )
    if stored.fold_version != FOLD_VERSION:
        raise SchemaMismatch(
            f"the store was written with fold {stored.fold_version}; this program has fold {FOLD_VERSION}",
            code="fold_version",
            hint="use the strandline that wrote it",
            stored=stored.fold_version,
            given=FOLD_VERSION,
        )
    check_fixed("partitions", stored.partitions, partitions)
    check_fixed("partitions", stored.partitions, settings.partitions)
    check_fixed("segment_size", stored.segment_size, settings.segment_size)
    check_fixed("bucket_size", stored.bucket_size, settings.bucket_size)
    check_fixed("slices", stored.slices, SLICES)
    return stored
