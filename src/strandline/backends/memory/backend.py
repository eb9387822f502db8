"""The back-end of `memory:` URLs: a log and a store in this process, which end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.backends.api import Backend, Clock, by_rules_of
from strandline.clock import now_us
from strandline.errors import NO_JOURNAL, SchemaMismatch, Unsupported
from strandline.log.api import Log
from strandline.settings import (
    APPEND_IDS_KEPT_DEFAULT,
    BATCH_ACTIONS_DEFAULT,
    BUCKET_SIZE_DEFAULT,
    PARTITIONS_DEFAULT,
    SEGMENT_SIZE_DEFAULT,
    Settings,
)
from strandline.sql.api import Part
from strandline.store.api import Store, StoreSettings
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.sql.steps import Description


class MemoryBackend(Backend):
    shared, local = False, False
    batch_actions_max = BATCH_ACTIONS_DEFAULT

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        from strandline.backends.memory.log import MemoryLog

        return MemoryLog(
            partitions=settings.partitions or PARTITIONS_DEFAULT,
            segment_size=settings.segment_size or SEGMENT_SIZE_DEFAULT,
            append_ids_kept=settings.append_ids_kept or APPEND_IDS_KEPT_DEFAULT,
            clock=clock or now_us,
        )

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        from strandline.backends.memory.store import MemoryStore

        if log is None:
            raise SchemaMismatch("a new memory store is empty", code="no_schema", hint=NO_JOURNAL)
        settings = by_rules_of(log, settings)
        fixed = StoreSettings(
            log_id=log.log_id,
            partitions=log.partitions,
            segment_size=settings.segment_size or SEGMENT_SIZE_DEFAULT,
            append_ids_kept=settings.append_ids_kept or APPEND_IDS_KEPT_DEFAULT,
            bucket_size=settings.bucket_size or BUCKET_SIZE_DEFAULT,
            history_id=uuid4().hex,
        )
        return MemoryStore(fixed, clock=clock or now_us)

    def describe(self, url: Url, part: Part, settings: Settings) -> Description:
        raise _no_schema_in_memory()

    def upgrade(self, url: Url, part: Part, settings: Settings) -> list[str]:
        raise _no_schema_in_memory()


def _no_schema_in_memory() -> Unsupported:
    return Unsupported("a journal in memory has no schema", code="not_shared", hint="give sqlite:FOLDER")


BACKEND = MemoryBackend()
