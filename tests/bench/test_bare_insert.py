"""The bare process writes what the pipeline writes: else its speed would say nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import strandline
from strandline.bench.fill import fill_in_child
from strandline.bench.floor import bare_in_child
from strandline.testing import carry


def _stored(url: str) -> tuple[list[object], list[object]]:
    with strandline.connect(url) as s:
        keys = [f"order|{number:08d}" for number in range(20)]
        rows = [
            s.store.range(partition, after=(0, 0), to=2**62, limit=1000)
            for partition in range(s.store.settings.partitions)
        ]
        states = [s.store.states(partition, keys)[1] for partition in range(s.store.settings.partitions)]
        pointers = [(p.offset, p.timestamp, p.moved) for p in s.store.pointers()]
    return [*rows, *states], [*pointers]


def test_the_bare_process_leaves_the_store_as_the_carry_does(tmp_path: Path) -> None:
    carried, bare = tmp_path / "carried", tmp_path / "bare"
    fill_in_child({"url": f"sqlite:{carried}"}, keys=20, appends=300, events=2)
    shutil.copytree(carried, bare)
    with strandline.connect(f"sqlite:{carried}") as s:
        carry(s)
    answer = bare_in_child({"url": f"sqlite:{bare}", "batch_actions_max": 7})
    assert answer["events"] == 600
    assert _stored(f"sqlite:{bare}") == _stored(f"sqlite:{carried}")
    with strandline.connect(f"sqlite:{bare}") as s:
        assert len(list(s.journal.read("order|00000007"))) == 30
