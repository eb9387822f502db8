"""Replay: the rows of every key up to a cut are those that a read gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from strandline import Event, MissingEvent, SchemaMismatch
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.journal import replay
from strandline.store.api import StoreSettings
from strandline.testing import LastWriteWinsStore, carry
from strandline.testing.faults import Crash, Faults
from strandline.values.events import RecordedEvent
from tests.journal.worlds import BACKENDS, events, paired, replayed, seq_nrs, world

KEYS = [f"{entity_type}|{number}" for entity_type in ("order", "user") for number in range(20)]


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=2) as opened:
        yield opened


def fill(s: Strandline, round_: int) -> None:
    """Something of everything."""
    for number, key in enumerate(KEYS):
        s.journal.append(key, [Event("Placed", [round_, index], tags=["a"]) for index in range(number % 4 + 1)])
        if number % 5 == 0:
            s.journal.delete(key, to=number % 3 + 1)
        if number % 7 == 0:
            s.journal.purge(key)
        if number % 14 == 0:
            s.journal.append(key, events("again"))


def all_of(s: Strandline, cuts: list[int], *, tasks: int = 1, **wanted: Any) -> list[RecordedEvent]:
    """All partitions, each in so many runs of slices."""
    rows: list[RecordedEvent] = []
    for partition, cut in enumerate(cuts):
        for task in range(tasks):
            slices = (task * 1024 // tasks, (task + 1) * 1024 // tasks - 1)
            rows += replayed(s, partition, cut=cut, slices=slices, **wanted)
    return rows


def by_key(rows: list[RecordedEvent]) -> dict[str, list[RecordedEvent]]:
    found: dict[str, list[RecordedEvent]] = {}
    for row in rows:
        found.setdefault(str(row.key), []).append(row)
    return found


def place(event: RecordedEvent) -> tuple[str, int, int]:
    return str(event.key), event.life, event.seq_nr


def as_read(s: Strandline) -> dict[str, list[RecordedEvent]]:
    return {key: given for key in KEYS if (given := list(s.journal.read(key)))}


@pytest.mark.req("J113", "J114")
def test_replay_equals_read(s: Strandline) -> None:
    for carried in (0, 3, 40, None):
        fill(s, carried or 0)
        carry(s, limit=carried)
        rows = all_of(s, s.log.newest())
        assert by_key(rows) == as_read(s)
        assert not any(row.damaged for row in rows)
        for tasks in (4, 32):
            assert by_key(all_of(s, s.log.newest(), tasks=tasks)) == by_key(rows)
        assert {row.key for row in all_of(s, s.log.newest(), entity_type="user")} == {
            row.key for row in rows if row.key.entity_type == "user"
        }


@pytest.mark.req("J114")
def test_a_tail_larger_than_the_buffer(tmp_path: Path) -> None:
    for buffer in (0, 1000, 20_000):
        with world("memory", tmp_path, partitions=2, tail_buffer_bytes=buffer, read_page=3) as s:
            fill(s, 0)
            carry(s, limit=10)
            fill(s, 1)
            assert by_key(all_of(s, s.log.newest())) == as_read(s)


@pytest.mark.req("J113", "J114")
def test_events_by_time(s: Strandline) -> None:
    """Whatever part of the time is asked for, what the tail takes away is not in it."""
    fill(s, 0)
    carry(s, limit=40)
    fill(s, 1)
    whole = all_of(s, s.log.newest())
    times = sorted(event.timestamp for event in whole)
    for edges in ([len(times) // 2], [0, 1, 2], list(range(0, len(times), 7))):
        parts = [0, *(times[edge] for edge in edges), replay.LAST]
        found = [event for lo, hi in pairwise(parts) for event in all_of(s, s.log.newest(), from_=lo, to=hi - 1)]
        assert sorted(found, key=place) == sorted(whole, key=place)


@pytest.mark.req("J114")
@pytest.mark.parametrize("portion", [1, 7, 50])
def test_a_tail_in_portions(portion: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "PORTION_RECORDS", portion)
    with world("memory", tmp_path, partitions=2, tail_buffer_bytes=500, read_page=9) as s:
        fill(s, 0)
        carry(s, limit=10)
        fill(s, 1)
        assert by_key(all_of(s, s.log.newest())) == as_read(s)


@pytest.mark.req("J114")
@pytest.mark.parametrize("store_kind", [MemoryStore, LastWriteWinsStore])
def test_the_pipeline_moves_at_any_moment(store_kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two calls the next actions are carried, some or all, or only half of what one writes."""
    monkeypatch.setattr(replay, "PAGE", 5)
    monkeypatch.setattr(replay, "PORTION_RECORDS", 30)
    points = [f"{when} {call}" for when in ("before", "after") for call in ("store.scan", "store.look", "log.read")]
    points += ["before store.pointers", "after store.pointers"]
    moved = 0
    for point, nth, limit in product(points, range(1, 5), (1, 7, None)):
        log, faults = MemoryLog(partitions=1), Faults()
        store = store_kind(StoreSettings(log.log_id, 1, 10_000))
        still, s = paired(log, store), paired(faults.around("log", log), faults.around("store", store), read_page=40)
        fill(s, 0)
        carry(still, limit=50)
        fill(s, 1)
        expected = as_read(still)

        def move(still: Strandline = still, store: Any = store, limit: int | None = limit) -> None:
            if limit == 7 and isinstance(store, LastWriteWinsStore):  # dies in the middle
                store.before_write = Dies(40)
                with suppress(Crash):
                    carry(still)
                store.before_write = lambda table: None
            else:
                carry(still, limit=limit)

        faults.at(point, move, nth=nth)
        before = faults.seen[point]
        assert by_key(list(replayed(s, 0, cut=log.newest()[0]))) == expected, (point, nth, limit)
        moved += faults.seen[point] - before >= nth
    assert moved > 60


class Dies:
    """Lets so many writes pass, and then none."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def __call__(self, table: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash


@pytest.mark.req("J114", "RJ5")
def test_a_pipeline_that_died_anywhere() -> None:
    """A head may be ahead of the pointer, and a removal half done."""
    for writes in range(0, 400, 5):
        log = MemoryLog(partitions=1)
        store = LastWriteWinsStore(StoreSettings(log.log_id, 1, 10_000))
        s = paired(log, store)
        fill(s, 0)
        carry(s, limit=60)
        fill(s, 1)
        store.before_write = Dies(writes)
        with suppress(Crash):
            carry(s)
        assert by_key(list(replayed(s, 0, cut=log.newest()[0]))) == as_read(s), writes


@pytest.mark.req("J114")
def test_what_comes_after_the_cut_is_not_shown(s: Strandline) -> None:
    """Appends, carried or not, while the replay runs; a key is whole up to the cut."""
    fill(s, 0)
    carry(s, limit=20)
    cuts, expected = s.log.newest(), as_read(s)
    for carried in (0, 5, None):
        for key in KEYS:
            s.journal.append(key, events("later"))
        carry(s, limit=carried)
        assert by_key(all_of(s, cuts)) == expected


@pytest.mark.req("J114")
def test_what_is_removed_while_it_runs_is_left_out_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for how in ("delete", "purge"):
        faults = Faults()
        log = MemoryLog(partitions=1)
        store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
        s = paired(log, faults.around("store", store))
        monkeypatch.setattr(replay, "PAGE", 3)
        for key in ("order|1", "order|2", "order|3"):
            s.journal.append(key, events(1, 2, 3, 4, 5, 6))
        carry(s)
        cut = s.log.newest()[0]

        def remove(s: Strandline = s, how: str = how) -> None:
            for key in ("order|1", "order|2", "order|3"):
                s.journal.delete(key, to=4) if how == "delete" else s.journal.purge(key)
                s.journal.append(key, events("later"))
            carry(s)

        faults.at("before store.scan", remove, nth=2)
        found = by_key(list(replayed(s, 0, cut=cut)))
        given = sorted([event.seq_nr for event in rows] for rows in found.values())
        # the first page was on its way, the second was not
        assert given == ([[1, 2, 3, 5, 6], [5, 6], [5, 6]] if how == "delete" else [[1, 2, 3]])


@pytest.mark.req("J114")
def test_without_the_tail(s: Strandline) -> None:
    s.journal.append("order|1", events(1, 2))
    carry(s)
    s.journal.append("order|1", events(3))
    s.journal.append("order|2", events(1))
    for tail, expected in ((False, {"order|1": [1, 2]}), (True, {"order|1": [1, 2, 3], "order|2": [1]})):
        found: dict[str, list[int]] = {}
        for partition, cut in enumerate(s.log.newest()):
            for row in replayed(s, partition, cut=cut, tail=tail):
                found.setdefault(str(row.key), []).append(row.seq_nr)
        assert found == expected


@pytest.mark.req("J114", "RR7")
def test_a_log_trimmed_past_the_pointer(s: Strandline) -> None:
    for number in range(10):
        s.journal.append(f"order|{number}", events(1))
    cuts = s.log.newest()
    partition = cuts.index(max(cuts))
    s.log.trim(partition, to=1, pointer=1, keep_after=2**62)
    with pytest.raises(MissingEvent) as caught:
        list(replayed(s, partition, cut=cuts[partition]))
    assert caught.value.name == "MissingEvent.log_trimmed"
    assert (caught.value.partition, caught.value.first, caught.value.last) == (partition, 0, 1)


@pytest.mark.req("J114", "RR6")
def test_a_log_that_ends_before_the_cut(s: Strandline) -> None:
    """It was put back from an older copy after the replay was planned: that is said, and not waited for."""
    s.journal.append("order|1", events(1, 2))
    cuts = s.log.newest()
    partition = cuts.index(max(cuts))
    with pytest.raises(SchemaMismatch) as caught:
        list(replayed(s, partition, cut=cuts[partition] + 3))
    assert caught.value.name == "SchemaMismatch.log_replaced"


@pytest.mark.req("J114")
def test_a_tail_trimmed_while_it_runs() -> None:
    faults = Faults()
    log = MemoryLog(partitions=1)
    s = paired(faults.around("log", log), MemoryStore(StoreSettings(log.log_id, 1, 10_000)), read_page=2)
    for number in range(10):
        s.journal.append(f"order|{number % 3}", events(number))

    def carry_and_trim() -> None:
        faults.clear()
        carry(s)
        log.trim(0, to=9, pointer=9, keep_after=2**62)

    faults.at("before log.read", carry_and_trim, nth=2)
    rows = list(replayed(s, 0, cut=9))
    assert sorted((str(row.key), row.seq_nr) for row in rows) == sorted(
        (f"order|{key}", seq_nr) for key in range(3) for seq_nr in seq_nrs(s.journal.read(f"order|{key}"))
    )
