"""The Journal over a Cassandra store: the same answer at every lag."""

from __future__ import annotations

import pytest

from strandline.backends.memory.log import MemoryLog
from strandline.connect import Strandline
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from tests.journal.test_lags import STORIES, Story, check_at_every_lag
from tests.store.keyspaces import RELAXED, EmptyStores

pytestmark = RELAXED


@pytest.mark.parametrize(
    "name",
    [
        "long-mix",
        "gap",
        "reset",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("purge-append", "delete-append")),
    ],
)
@pytest.mark.req("J50", "J63", "RJ1", "RJ2", "RJ3")
def test_every_lag(name: str, empty_stores: EmptyStores) -> None:
    log = MemoryLog(partitions=1, segment_size=3)
    store = empty_stores.make(StoreSettings(log.log_id, 1, 3))
    with Strandline(log, store, Settings.of({"read_page": 2})) as s:
        check_at_every_lag(s, STORIES[name], len(STORIES[name]) // 2)


@pytest.mark.parametrize("name", ["long-mix", "gap"])
@pytest.mark.req("J128")
def test_limited_and_backwards(name: str, empty_stores: EmptyStores) -> None:
    log = MemoryLog(partitions=1, segment_size=3)
    store = empty_stores.make(StoreSettings(log.log_id, 1, 3))
    with Strandline(log, store, Settings.of({"read_page": 2, "tail_buffer_bytes": 1200})) as s:
        check_at_every_lag(s, STORIES[name], len(STORIES[name]), Story.check_parts)
