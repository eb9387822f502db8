"""What the creation of a store fixes for ever, as SQL back-ends keep it: names and texts in table `setting`."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.errors import SchemaMismatch
from strandline.fold import FOLD_VERSION
from strandline.settings import Settings
from strandline.steps import check_fixed
from strandline.store.api import StoreSettings
from strandline.values.keys import SLICES

PARTITIONS_DEFAULT = 8
SEGMENT_SIZE_DEFAULT = 10_000
BUCKET_SIZE_DEFAULT = "hour"


def to_fix(settings: Settings, log_id: str | None, partitions: int | None) -> dict[str, str]:
    """What a new store for this log would keep."""
    return {
        "log_id": str(log_id),
        "partitions": str(partitions or settings.partitions or PARTITIONS_DEFAULT),
        "segment_size": str(settings.segment_size or SEGMENT_SIZE_DEFAULT),
        "slices": str(SLICES),
        "bucket_size": settings.bucket_size or BUCKET_SIZE_DEFAULT,
        "fold_version": str(FOLD_VERSION),
    }


def fixed_in(stored: Mapping[str, str]) -> StoreSettings:
    """What a store keeps."""
    return StoreSettings(
        log_id=stored["log_id"],
        partitions=int(stored["partitions"]),
        segment_size=int(stored["segment_size"]),
        slices=int(stored["slices"]),
        bucket_size=stored["bucket_size"],
        fold_version=int(stored["fold_version"]),
    )


def check_given(stored: StoreSettings, settings: Settings, log_id: str | None, partitions: int | None) -> None:
    """`SchemaMismatch` for another log, another fold, or other fixed settings. None stands for what is stored."""
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
