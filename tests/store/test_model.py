"""Heads and rows in a store are what a naive model of the specification says, whatever the batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.backends.memory.store import MemoryStore
from strandline.carry.range import decode
from strandline.store.api import Store
from strandline.store.scans import look_at
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.store_contract import random_tape, settings_of
from strandline.values.actions import Place
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head
from strandline.values.keys import key_partition
from tests.core.naive import NaiveKey
from tests.store.stores import open_store

MAKERS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda path: MemoryStore(settings_of(partitions=3)),
    "sqlite": lambda path: open_store(path, partitions=3),
    "last write wins": lambda path: LastWriteWinsStore(settings_of(partitions=3)),
}


@pytest.mark.req("J19", "J77", "J78", "RR1")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", MAKERS)
def test_a_store_is_the_fold_of_its_log(name: str, seed: int, tmp_path: Path) -> None:
    store = MAKERS[name](tmp_path / "store.db")
    tape = random_tape(seed, actions=400, keys=15, partitions=3)
    tape.carry(store, size=1 + seed * 9)
    naive: dict[str, NaiveKey] = {}
    for past in tape.records:
        for record, action, _ in decode(past, 3)[0]:
            if action is not None and action.key is not None:
                place = Place(record.partition, record.offset, record.timestamp)
                naive.setdefault(action.key, NaiveKey(3)).apply(action, place)
    events = 0
    for key, model in naive.items():
        _, state = look_at(store, key, key_partition(key, 3))
        expected = model.head()
        if expected is None:
            assert (state.life if isinstance(state, EndedLife) else 0) == model.lives_ended()
        else:
            assert isinstance(state, Head)
            ids = {(one.append_id, one.first, one.last) for one in (*state.given, *filter(None, [state.generated]))}
            assert {**state._asdict(), "ids": ids}.items() >= expected.items()
        for life in range(1, model.lives_ended() + 2):
            rows = store.page(key, life, 3, from_=1, to=SEQ_NR_MAX, limit=1000).rows
            found = [(life, cells[0], cells[1]) for cells in rows]
            assert found == [event for event in model.events if event[0] == life]
            events += len(found)
    assert events > 100
    store.close()
