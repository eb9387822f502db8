"""Stores, tapes and what a store shows: what the parts of the suite share."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from strandline.carry.range import CarriedRange, decode, prepare
from strandline.rows import PartitionBatch, Pointer
from strandline.store.api import Store, StoreSettings
from strandline.store.scans import entity_types_of, events_of, keys_of, look_at, quarantined, snapshots_of
from strandline.store.tables import SnapshotRow
from strandline.testing.tape import START_US, Tape
from strandline.values.events import EventRow, Life
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import key_partition

Make = Callable[[StoreSettings], Store]
ALL = 10_000
KEY = "order|42"
WEIGHTS = {"append": 60, "delete": 15, "purge": 8, "mark": 6, "reset": 4, "damaged": 4, "foreign": 3}


def settings_of(partitions: int = 1, segment_size: int = 3) -> StoreSettings:
    """Settings of a small store."""
    return StoreSettings(log_id="tape", partitions=partitions, segment_size=segment_size)


def state(store: Store, key: str) -> State:
    """A key's state."""
    return look_at(store, key, key_partition(key, store.settings.partitions))[1]


def states_of(store: Store, partition: int, keys: Collection[str]) -> tuple[Pointer, dict[str, State]]:
    """The pointer, and the states of these keys as the pipeline folds on them."""
    look = store.look(partition, keys)
    return look.pointer, {**look.states, **look.unfinished}


def events(store: Store, key: str, life: int = 1, *, limit: int = ALL) -> list[EventRow]:
    """All rows of a life."""
    found = state(store, key)
    size = found.segment_size if isinstance(found, Head) else store.settings.segment_size
    page = store.page(key, life, size, from_=1, to=SEQ_NR_MAX, limit=limit).rows
    return [EventRow.of(Life(key, life), size, cells) for cells in page]


def numbers(rows: Iterable[EventRow]) -> list[int]:
    """The seq_nrs of rows."""
    return [row.seq_nr for row in rows]


def contents(store: Store, keys: Iterable[str], *, lives: int = 4) -> dict[str, Any]:
    """Everything that a store shows, fences aside: two stores with the same contents cannot be told apart."""
    shown: dict[str, Any] = {"pointers": [pointer._replace(fence=0) for pointer in store.pointers()]}
    shown["entity_types"] = types = entity_types_of(store)
    shown["keys"] = {type_: keys_of(store, type_, after=None, limit=ALL) for type_ in types}
    shown["quarantine"] = quarantined(store)
    shown["ranges"] = [
        events_of(store, pointer.partition, after=(0, 0), to=SEQ_NR_MAX, limit=ALL).rows for pointer in store.pointers()
    ]
    for key in keys:
        shown[key] = state(store, key)
        for life in range(1, lives + 1):
            shown[f"{key} {life}"] = events(store, key, life), snapshots_of(store, key, life)
    return shown


def batch_of(tape: Tape, store: Store, partition: int = 0) -> tuple[PartitionBatch, Pointer]:
    """Return the batch that a task would write now, and the pointer that it saw."""
    look = store.look(partition, tape.all_keys())
    seen = look.pointer
    records = tape.records[partition]
    decoded, _ = decode(records, tape.partitions)
    range_ = CarriedRange(partition, seen.offset + 1, records[-1].offset + 1, records)
    return prepare(range_, decoded, look, store.settings, seen.fence, views=store.views), seen


def snapshot(seq_nr: int, *, key: str = KEY, life: int = 1, state: bytes = b'{"sum":1}') -> SnapshotRow:
    """A snapshot to save."""
    return SnapshotRow(key, life, seq_nr, START_US, 1, state)


def random_tape(seed: int, *, actions: int, keys: int, partitions: int = 1) -> Tape:
    """Random actions on a few keys."""
    chance = random.Random(seed)
    tape = Tape(partitions)
    names = [f"{chance.choice(('order', 'user', 'été'))}|{index}" for index in range(keys)]
    for _ in range(actions):
        key = chance.choice(names)
        (what,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if what == "append":
            tape.append(key, ["x"] * chance.randint(1, 4), tags=chance.choice(((), ("red",))))
        elif what == "delete":
            tape.delete(key, chance.randint(1, 12), chance.randint(1, 3))
        elif what == "reset":
            tape.delete(key, chance.randint(1, 6))
        elif what == "purge":
            tape.purge(key)
        elif what == "damaged":
            tape.append(key, ["x", "y"], damaged=chance.choice(("undecodable", "digest")))
        elif what == "mark":
            tape.mark(chance.randrange(partitions))
        else:
            tape.foreign(chance.randrange(partitions))
    return tape


class MadeStore:
    """Fixtures of every part of the suite."""

    finds_conflicts = True
    """False where rows are written without looking at what stands there."""
    quick = True
    """False where a call takes so long that a sample must do."""

    @pytest.fixture
    def make(self) -> Make:
        """How a store is made; each back-end says."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, make: Make) -> Store:
        """A store of one partition, with segments of three events."""
        return make(settings_of())
