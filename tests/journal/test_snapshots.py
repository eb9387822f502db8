"""Snapshots and recovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Conflict, Corrupt, InvalidInput, MissingEvent
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.store.api import StoreSettings
from strandline.store.scans import snapshots_of
from strandline.store.tables import SNAPSHOT
from strandline.testing import FakeClock, carry
from strandline.testing.faults import Faults
from tests.journal.worlds import BACKENDS, KEY, events, paired, seq_nrs, world


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=1) as opened:
        yield opened


@pytest.mark.req("J107")
@pytest.mark.parametrize("carried", [0, 1, 2])
@pytest.mark.parametrize(("saved", "expected"), [((7, 13), 13), ((7,), None), ((13, 20), 20), ((), None)])
def test_snap_13(s: Strandline, saved: tuple[int, ...], expected: int | None, carried: int) -> None:
    s.journal.append(KEY, events(*range(1, 21)))
    for seq_nr in saved:
        s.journal.save_snapshot(KEY, seq_nr, {"at": seq_nr})
    s.journal.delete(KEY, to=13)
    carry(s, limit=carried)
    recovery = s.journal.recover(KEY)
    assert (None if recovery.snapshot is None else recovery.snapshot.state) == (
        None if expected is None else {"at": expected}
    )
    assert seq_nrs(recovery.events) == list(range((expected or 13) + 1, 21))


@pytest.mark.req("J107")
def test_recovery_of_nothing_and_of_the_zero_state(s: Strandline) -> None:
    nothing = s.journal.recover(KEY)
    assert (nothing.snapshot, list(nothing.events)) == (None, [])
    s.journal.append(KEY, events(1, 2))
    s.journal.save_snapshot(KEY, 2, "two")
    s.journal.delete(KEY, to=2)
    zero = s.journal.recover(KEY)
    assert zero.snapshot is not None
    assert (zero.snapshot.state, list(zero.events)) == ("two", [])
    s.journal.append(KEY, events(3))
    assert seq_nrs(s.journal.recover(KEY).events) == [3]


@pytest.mark.req("J107")
def test_snapshot_and_events_are_of_one_plan() -> None:
    """Whatever is appended or purged after the plan, the events go on after that snapshot, or say that they cannot."""
    s = paired(log := MemoryLog(partitions=1), MemoryStore(StoreSettings(log.log_id, 1, 10_000)), read_page=1)
    s.journal.append(KEY, events(1, 2, 3, 4))
    s.journal.save_snapshot(KEY, 2, "two")
    carry(s)
    recovery = s.journal.recover(KEY)
    s.journal.save_snapshot(KEY, 4, "four")
    s.journal.append(KEY, events(5))
    assert recovery.snapshot is not None
    assert recovery.snapshot.seq_nr == 2
    assert seq_nrs(recovery.events) == [3, 4]
    recovery = s.journal.recover(KEY)
    assert recovery.snapshot is not None
    assert recovery.snapshot.seq_nr == 4
    s.journal.delete(KEY, to=5)
    assert seq_nrs(recovery.events) == [5]


@pytest.mark.req("J104")
def test_any_number_of_states_of_any_kind(tmp_path: Path) -> None:
    for backend in BACKENDS:
        clock = FakeClock()
        with world(backend, tmp_path / backend, clock=clock) as s:
            s.journal.append(KEY, events(*range(10)))
            states: list[tuple[int, Any]] = [(1, b"\x00bytes"), (3, {"b": 1.0, "a": [None]}), (4, None), (9, "😀")]
            for seq_nr, state in reversed(states):
                s.journal.save_snapshot(KEY, seq_nr, state)
                clock.advance(1)
            for seq_nr, state in states:
                loaded = s.journal.load_snapshot(KEY, to=seq_nr)
                assert loaded is not None
                assert (loaded.key, loaded.life, loaded.seq_nr, loaded.state) == (KEY, 1, seq_nr, state)
            assert [(found.seq_nr, found.state) for found in s.journal.snapshots(KEY)] == [
                (1, None),
                (3, None),
                (4, None),
                (9, None),
            ]
            newest = s.journal.load_snapshot(KEY)
            assert newest is not None
            assert newest.seq_nr == 9
            assert newest.timestamp == clock() - 4_000_000
            between = s.journal.load_snapshot(KEY, to=8)
            assert between is not None
            assert between.seq_nr == 4
            assert s.journal.delete_snapshots(KEY, to=3) == 2
            assert s.journal.load_snapshot(KEY, to=3) is None
            assert s.journal.delete_snapshots(KEY) == 2
            assert s.journal.snapshots(KEY) == []


@pytest.mark.req("J105")
def test_saving(s: Strandline) -> None:
    for seq_nr in (0, -1, True, 1.0, None, 4):
        with pytest.raises(InvalidInput) as caught:
            s.journal.save_snapshot(KEY, seq_nr, "x")  # type: ignore[arg-type]
        assert caught.value.name == "InvalidInput.snapshot_seq_nr"
    s.journal.append(KEY, events(1, 2, 3))
    with pytest.raises(InvalidInput) as caught:
        s.journal.save_snapshot(KEY, 4, "x")
    assert caught.value.name == "InvalidInput.snapshot_seq_nr"
    s.journal.save_snapshot(KEY, 3, "first")
    s.journal.save_snapshot(KEY, 3, "second", life=1)
    loaded = s.journal.load_snapshot(KEY)
    assert loaded is not None
    assert loaded.state == "second"
    for life in (2, 3):
        with pytest.raises(Conflict) as conflict:
            s.journal.save_snapshot(KEY, 1, "x", life=life)
        assert conflict.value.name == "Conflict.life_ended"


@pytest.mark.req("J105", "RJ6")
def test_a_late_save_brings_nothing_back() -> None:
    """The purge is carried between the look at the head and the save."""
    faults = Faults()
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, faults.around("store", store))
    s.journal.append(KEY, events(1, 2))

    def purge() -> None:
        s.journal.purge(KEY)
        carry(s)

    faults.at("before store.save", purge)
    with pytest.raises(Conflict) as caught:
        s.journal.save_snapshot(KEY, 2, "x")
    assert caught.value.name == "Conflict.life_ended"
    assert snapshots_of(store, str(KEY), 1) == []


@pytest.mark.req("J106")
@pytest.mark.parametrize("carried", [False, True])
def test_delete_leaves_snapshots_and_purge_takes_them(s: Strandline, carried: bool) -> None:
    s.journal.append(KEY, events(1, 2, 3))
    s.journal.save_snapshot(KEY, 1, "one")
    s.journal.delete(KEY, to=3)
    if carried:
        carry(s)
    assert [found.seq_nr for found in s.journal.snapshots(KEY)] == [1]
    s.journal.purge(KEY)
    s.journal.append(KEY, events("new", "new"))
    if carried:
        carry(s)
    assert s.journal.snapshots(KEY) == []
    assert s.journal.load_snapshot(KEY) is None
    assert s.journal.recover(KEY).snapshot is None
    with pytest.raises(Conflict):
        s.journal.save_snapshot(KEY, 1, "late", life=1)
    s.journal.save_snapshot(KEY, 1, "of life 2")
    carry(s)
    loaded = s.journal.load_snapshot(KEY)
    assert loaded is not None
    assert (loaded.life, loaded.state) == (2, "of life 2")


@pytest.mark.req("RA12")
def test_a_damaged_state_is_not_given() -> None:
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, store)
    s.journal.append(KEY, events(1))
    s.journal.save_snapshot(KEY, 1, {"total": 10})
    saved = store._tables[SNAPSHOT]
    place = str(KEY), 1, 1
    saved[place] = (*saved[place][:5], b'{"total":11}', saved[place][6])
    for call in (s.journal.load_snapshot, s.journal.recover):
        with pytest.raises(Corrupt):
            call(KEY)


@pytest.mark.req("J59")
def test_recovery_that_misses_an_event_says_so() -> None:
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, store)
    s.journal.append(KEY, events(1, 2, 3, 4))
    s.journal.save_snapshot(KEY, 2, "two")
    carry(s)
    store._remove(store._journal[str(KEY), 1][2])
    with pytest.raises(MissingEvent):
        list(s.journal.recover(KEY).events)
