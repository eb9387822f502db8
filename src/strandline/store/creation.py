"""The settings that the creation of a store fixes for ever. SQL back-ends keep them as names and texts in table
`setting`."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from strandline.errors import SchemaMismatch
from strandline.settings import BUCKET_SIZE_DEFAULT, PARTITIONS_DEFAULT, Settings
from strandline.sql.steps import check_fixed, rules_in, rules_to_fix
from strandline.store.api import StoreSettings
from strandline.values.keys import SLICES


def to_fix(settings: Settings, log_id: str | None, partitions: int | None) -> dict[str, str]:
    """Return the settings that a new store for this log fixes."""
    return {
        "log_id": str(log_id),
        "history_id": uuid4().hex,
        "partitions": str(partitions or settings.partitions or PARTITIONS_DEFAULT),
        **rules_to_fix(settings),
        "slices": str(SLICES),
        "bucket_size": settings.bucket_size or BUCKET_SIZE_DEFAULT,
    }


def fixed_in(texts: Mapping[str, str], settings: Settings, log_id: str | None, partitions: int | None) -> StoreSettings:
    """Return a store's fixed settings. `SchemaMismatch` for another log, fold, or setting; None accepts what is
    kept."""
    if log_id is not None and log_id != texts["log_id"]:
        raise SchemaMismatch(
            f"the store was filled from log {texts['log_id']}; this is log {log_id}",
            code="log_replaced",
            hint="give the store's own log, or a new store; a restored backup brings both",
            stored=texts["log_id"],
            given=log_id,
        )
    rules = rules_in(texts, settings)
    stored = StoreSettings(
        log_id=texts["log_id"],
        partitions=int(texts["partitions"]),
        segment_size=rules.segment_size,
        append_ids_kept=rules.append_ids_kept,
        slices=int(texts["slices"]),
        bucket_size=texts["bucket_size"],
        history_id=texts["history_id"],
        log_nr=int(texts.get("log_nr", "0")),
        log_starts=int(texts.get("log_starts", "0")),
    )
    check_fixed("partitions", stored.partitions, partitions)
    check_fixed("partitions", stored.partitions, settings.partitions)
    check_fixed("bucket_size", stored.bucket_size, settings.bucket_size)
    check_fixed("slices", stored.slices, SLICES)
    return stored
