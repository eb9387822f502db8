"""Where the tests of the Journal run: a log and a store of each kind, and ways to look at all that they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event, Key
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.journal.replay import Wanted, replay_partition
from strandline.settings import Settings
from strandline.store.api import Store, StoreSettings
from strandline.store.scans import entity_types_of, events_of, keys_of, look_at, quarantined, snapshots_of
from strandline.testing import LastWriteWinsStore
from strandline.testing.inexact import InexactMemoryLog
from strandline.values.events import RecordedEvent
from tests.servers.fixtures import shared_postgres

BACKENDS = ("memory", "sqlite", "postgresql", "inexact")
KEY = Key("order", "42")


@contextmanager
def world(backend: str, folder: Path, **settings: Any) -> Iterator[Strandline]:
    """An empty journal, or the one that is in the folder."""
    if backend == "inexact":
        with inexact(**{"partitions": 8, **settings}) as s:
            yield s
        return
    with strandline.connect(url_of(backend, folder), **settings) as s:
        yield s


def url_of(backend: str, folder: Path) -> str:
    """Where the journal of a folder is. On a server a schema stands for the folder."""
    if backend == "memory":
        return "memory:"
    if backend == "postgresql":
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
        return f"{shared_postgres().url}&schema=folder_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:{folder}/orders"


def last_write_wins(*, partitions: int = 1, segment_size: int = 10_000, **settings: Any) -> Strandline:
    """A memory log with a store that has no transactions."""
    log = MemoryLog(partitions=partitions, segment_size=segment_size)
    store: Store = LastWriteWinsStore(StoreSettings(log.log_id, partitions, segment_size))
    return Strandline(log, store, Settings.of(settings))


def inexact(
    *,
    partitions: int = 1,
    segment_size: int = 10_000,
    append_ids_kept: int = 32,
    clock: Callable[[], int] = now_us,
    **settings: Any,
) -> Strandline:
    """A log that does not fold, as Kafka, with a store in memory."""
    log = InexactMemoryLog(partitions=partitions, clock=clock)
    fixed = StoreSettings(log.log_id, partitions, segment_size, append_ids_kept)
    store: Store = MemoryStore(fixed, clock=clock)
    return Strandline(log, store, Settings.of(settings), clock=clock)


def needs_exact(s: Strandline, reason: str) -> None:
    """Skip the rest of a test on a log that is not exact."""
    if not s.log.exact:
        pytest.skip(reason)


def paired(log: MemoryLog, store: Store, **settings: Any) -> Strandline:
    """A Journal over a log and a store that a test has made or wrapped."""
    return Strandline(log, store, Settings.of(settings))


def events(*payloads: Any) -> list[Event]:
    """Events with these payloads."""
    return [Event("Placed", payload) for payload in payloads]


def numbered(found: Iterator[RecordedEvent]) -> list[tuple[int, int, Any]]:
    """seq_nr, prev_seq_nr and payload of each."""
    return [(event.seq_nr, event.prev_seq_nr, event.payload) for event in found]


def replayed(s: Strandline, partition: int, *, tail: bool = True, **wanted: Any) -> Iterator[RecordedEvent]:
    """The events that a replay gives."""
    pages = replay_partition(s.log, s.store, s.settings, Wanted(partition, **wanted), tail=tail)
    return (row.event for page in pages for row in page)


def seq_nrs(found: Iterator[RecordedEvent]) -> list[int]:
    return [event.seq_nr for event in found]


def fields(event: RecordedEvent) -> dict[str, Any]:
    """Every field that a reader can see."""
    names = (
        "key slice seq_nr prev_seq_nr life partition log_offset timestamp append_id type tags headers damaged payload "
        "metadata"
    )
    return {name: getattr(event, name) for name in names.split()}


def digest(s: Strandline) -> str:
    """Over everything in log and store that a reader, a writer or the pipeline could see."""
    seen = hashlib.sha256()
    for partition in range(s.log.partitions):
        page = s.log.read(partition, after=s.log.oldest()[partition] - 1, limit=10_000)
        seen.update(repr(page).encode())
        seen.update(repr(events_of(s.store, partition, after=(0, 0), to=2**62, limit=10_000).rows).encode())
    pointers = [pointer._replace(fence=0) for pointer in s.store.pointers()]
    seen.update(repr((s.log.newest(), pointers, quarantined(s.store))).encode())
    for entity_type in entity_types_of(s.store):
        for key in keys_of(s.store, entity_type, after=None, limit=1000):
            _, state = look_at(s.store, key, Key.of(key).partition(s.log.partitions))
            life = state.life if state is not None else 0
            seen.update(repr((key, state, snapshots_of(s.store, key, life))).encode())
    return seen.hexdigest()
