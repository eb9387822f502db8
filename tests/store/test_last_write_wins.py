"""Writing without transactions: at every crash readers are right, and the next run ends in the same rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import LeaseLost
from strandline.store.api import StoreSettings
from strandline.store.heads import key_place
from strandline.store.scans import events_of, look_at, quarantined_at
from strandline.testing.cells import ALWAYS, CellTable
from strandline.testing.faults import Crash
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.store_contract import random_tape, settings_of
from strandline.testing.store_contract.made import snapshot
from strandline.testing.tape import Tape
from tests.store.reading import expected, read

KEY = "order|42"
OTHER = "order|7"


class DiesAt:
    """A hook that lets so many writes pass, and then none."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def __call__(self, table: str) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1


def rows(store: LastWriteWinsStore) -> dict[str, Any]:
    """All rows that are there, table by table; fences aside."""
    found: dict[str, Any] = {}
    for name, table in store.tables.items():
        found[name] = {place: dict(table.rows(place)) for place in table.partitions() if any(table.rows(place))}
    found["pointer"] = [pointer._replace(fence=0, revision=0) for pointer in store.pointers()]
    del found["lease"]
    return found


def head_cell(key: str) -> tuple[Any, Any]:
    """Where the head of a key stands."""
    place = key_place(key)
    return place[:2], place[2:]


def story() -> Tape:
    """Append, delete, append, purge, append: with tags, damage, a reset and another key in between."""
    tape = Tape()
    tape.append(KEY, ["a", "b", "c", "d"], tags=("red",))
    tape.append(OTHER, ["x"])
    tape.delete(KEY, 2, 1)
    tape.append(KEY, ["e"], damaged="digest")
    tape.append(KEY, ["f"], expire_after_us=10)
    tape.delete(KEY, 5, 1)
    tape.purge(KEY)
    tape.append(KEY, ["g", "h"], tags=("red",))
    tape.delete("order|reset", 3)
    tape.append("order|reset", ["i"])
    tape.delete("order|reset", 4, 1)
    tape.purge(OTHER)
    tape.append(KEY, ["j"], expire_after_us=0)
    tape.delete(KEY, 1, 2)
    return tape


def swept(
    tape: Tape, settings: StoreSettings, first: Callable[[LastWriteWinsStore], None], then: Callable[..., None]
) -> int:
    """Die before every write of `first` in turn; then readers must be right, and `then` must end like no crash."""
    whole = LastWriteWinsStore(settings)
    first(whole)
    then(whole)
    for point in range(100_000):
        store = LastWriteWinsStore(settings)
        store.before_write = hook = DiesAt(point)
        with contextlib.suppress(Crash):
            first(store)
        if hook.left:
            return point
        for key in tape.all_keys():
            assert read(store, tape, key) == expected(tape, key, settings.segment_size), (point, key)
        shown = [
            row
            for pointer in store.pointers()
            for row in events_of(store, pointer.partition, after=(0, 0), to=ALWAYS, limit=999).rows
        ]
        assert all(row.timestamp <= store.pointers()[row.partition].timestamp for row in shown)
        store.before_write = lambda table: None
        then(store)
        assert rows(store) == rows(whole), point
    raise AssertionError("the sweep has no end")


@pytest.mark.req("RJ5", "J77", "J78")
@pytest.mark.parametrize("then_size", [1, 3, None])
@pytest.mark.parametrize("size", [1, 2, 5, None])
def test_die_anywhere(size: int | None, then_size: int | None) -> None:
    tape = story()

    def first(store: LastWriteWinsStore) -> None:
        tape.carry(store, size=size)

    def then(store: LastWriteWinsStore) -> None:
        tape.carry(store, size=then_size)

    assert swept(tape, settings_of(segment_size=2), first, then) > 60


@pytest.mark.req("RJ5")
@pytest.mark.parametrize("seed", range(8))
def test_die_anywhere_in_random_actions(seed: int) -> None:
    tape = random_tape(seed, actions=14, keys=2)

    def first(store: LastWriteWinsStore) -> None:
        tape.carry(store, size=4)

    def then(store: LastWriteWinsStore) -> None:
        tape.carry(store, size=3)

    assert swept(tape, settings_of(segment_size=2), first, then) > 10


@pytest.mark.req("J77")
def test_a_purge_is_finished_before_the_next_life_starts() -> None:
    """Killed between `ended` and the head row's removal; an append follows."""
    tape = Tape()
    tape.append(KEY, ["a", "b", "c"])
    store = LastWriteWinsStore(settings_of(segment_size=2))
    tape.carry(store)
    tape.purge(KEY)
    seen: list[str] = []

    def until_the_head_row(table: str) -> None:
        seen.append(table)
        if "ended" in seen and table == "metajournal":
            raise Crash

    store.before_write = until_the_head_row
    with pytest.raises(Crash):
        tape.carry(store)
    assert store.tables["metajournal"].row(*head_cell(KEY))
    store.before_write = lambda table: None
    assert look_at(store, KEY, 0)[1] == tape.state(KEY, 2)
    tape.append(KEY, ["d"])
    tape.carry(store)
    assert [(row.life, row.seq_nr) for row in events_of(store, 0, after=(0, 0), to=ALWAYS, limit=10).rows] == [(2, 1)]


@pytest.mark.req("RJ6", "RR3")
@pytest.mark.parametrize("size", [1, None])
def test_a_pipeline_that_wakes_up_without_its_lease_undoes_nothing(size: int | None) -> None:
    """Stopped before its n-th write; another one carries everything; then it goes on writing what it had prepared."""
    tape = story()
    whole = LastWriteWinsStore(settings_of(segment_size=2))
    tape.carry(whole)
    for point in range(100_000):
        store = LastWriteWinsStore(settings_of(segment_size=2))
        stale = store.lease().take("stale")
        left = [point]

        def takeover(table: str, store: LastWriteWinsStore = store, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                store.before_write = lambda table: None
                store.lease().release(stale.fence)  # noqa: B023
                tape.carry(store, fence=store.lease().take("new").fence, size=size)

        store.before_write = takeover
        try:
            tape.carry(store, fence=stale.fence)
        except LeaseLost:
            assert rows(store) == rows(whole), point
        else:
            assert left[0] >= 0
            assert point > 60
            return
    raise AssertionError("the sweep has no end")


@pytest.mark.req("RJ6", "J77")
def test_what_comes_late_for_an_ended_life_is_gone_already() -> None:
    """Rows written with any clock, and a snapshot whose look at the life came before the purge."""
    tape, store = Tape(), LastWriteWinsStore(settings_of(segment_size=2))
    tape.append(KEY, ["a", "b", "c"])
    tape.carry(store)
    kept = {name: [(place, dict(store.tables[name].rows(place))) for place in store.tables[name].partitions()]
            for name in ("journal", "slice_view")}  # fmt: skip
    tape.purge(KEY)
    tape.append(KEY, ["d"])

    def purge_first(table: str) -> None:
        store.before_write = lambda table: None
        tape.carry(store)

    store.before_write = purge_first
    store.save(snapshot(2), 0)
    before = rows(store)
    assert before["snapshot"] == {}
    for name, places in kept.items():
        for place, late in places:
            for at, cells in late.items():
                store.tables[name].put(place, at, cells, 2**62)
    assert rows(store) == before
    assert [(row.life, row.seq_nr) for row in events_of(store, 0, after=(0, 0), to=ALWAYS, limit=10).rows] == [(2, 1)]


@pytest.mark.req("J98")
@pytest.mark.parametrize("how", ["skip", "retry"])
@pytest.mark.parametrize("followed", [True, False])
def test_a_correction_killed_anywhere_is_repeated(how: str, followed: bool) -> None:
    def carried() -> tuple[Tape, LastWriteWinsStore, int]:
        tape = Tape()
        tape.append(KEY, ["a"])
        bad = tape.append(KEY, ["b", "c", "d"], damaged="digest")
        if followed:
            tape.append(KEY, ["e"])
        store = LastWriteWinsStore(settings_of(segment_size=2))
        tape.carry(store)
        if how == "retry":  # after an upgrade that can read it
            listed = quarantined_at(store, 0, bad.offset)
            assert listed is not None
            assert listed.value is not None
            mended = listed.value[:-1] + bytes([listed.value[-1] ^ 1])
            store.tables["quarantine"].put((0,), (bad.offset,), {"value": mended}, bad.timestamp + 1)
        return tape, store, bad.offset

    def shown(store: LastWriteWinsStore) -> dict[str, Any]:
        return {**rows(store), "pointer": ()}  # each attempt carries a Mark of its own

    tape, whole, offset = carried()
    tape.resolve(whole, offset, how)
    for point in range(1000):
        tape, store, _ = carried()
        store.before_write = hook = DiesAt(point)
        with contextlib.suppress(Crash):
            tape.resolve(store, offset, how)
        if hook.left:
            assert point > 4
            return
        store.before_write = lambda table: None
        store.lease().release(1)  # that of a dead process ends by itself
        if quarantined_at(store, 0, offset):
            tape.resolve(store, offset, how)
        assert shown(store) == shown(whole), point
    raise AssertionError("the sweep has no end")


def test_the_newest_write_of_a_cell_stays() -> None:
    table = CellTable()
    table.put("p", 1, {"a": "new", "b": "b"}, 20)
    table.put("p", 1, {"a": "old", "c": "c"}, 10)
    assert table.row("p", 1) == {"a": "new", "b": "b", "c": "c"}
    table.put("p", 1, {"a": "older", "b": "z"}, 20)  # at equal timestamps the greater value
    assert table.row("p", 1) == {"a": "older", "b": "z", "c": "c"}
    table.put("p", 1, {"a": None}, 20)  # and a removal beats both
    table.put("p", 1, {"a": "zz"}, 20)
    assert table.row("p", 1) == {"b": "z", "c": "c"}


def test_a_removal_covers_what_was_written_up_to_its_time() -> None:
    table = CellTable()
    for place in range(5):
        table.put("p", place, {"a": place}, 10)
    table.remove("p", 10, first=1, last=2)
    table.remove("p", 9, first=3, last=3)
    table.put("p", 1, {"a": "late"}, 10)
    table.put("p", 2, {"a": "again"}, 11)
    assert [(place, row["a"]) for place, row in table.rows("p")] == [(0, 0), (2, "again"), (3, 3), (4, 4)]
    table.remove("p", ALWAYS)
    table.put("p", 0, {"a": 0}, ALWAYS)
    assert list(table.rows("p")) == []
