"""Replay: the rows of every key up to a cut are those that a read gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Event, MissingEvent
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.journal.replay import replay_partition
from strandline.store.api import StoreSettings
from strandline.testing import carry
from strandline.testing.faults import Faults
from strandline.values.events import RecordedEvent
from tests.journal.worlds import BACKENDS, events, paired, seq_nrs, world

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


def replayed(s: Strandline, cuts: list[int], *, tasks: int = 1, entity_type: str | None = None) -> list[RecordedEvent]:
    """All partitions, each in so many runs of slices."""
    rows: list[RecordedEvent] = []
    for partition, cut in enumerate(cuts):
        for task in range(tasks):
            slices = (task * 1024 // tasks, (task + 1) * 1024 // tasks - 1)
            rows += replay_partition(
                s.log, s.store, s.settings, partition, cut=cut, slices=slices, entity_type=entity_type
            )
    return rows


def by_key(rows: list[RecordedEvent]) -> dict[str, list[RecordedEvent]]:
    found: dict[str, list[RecordedEvent]] = {}
    for row in rows:
        found.setdefault(str(row.key), []).append(row)
    return found


def as_read(s: Strandline) -> dict[str, list[RecordedEvent]]:
    return {key: given for key in KEYS if (given := list(s.journal.read(key)))}


@pytest.mark.req("J113", "J114")
def test_replay_equals_read(s: Strandline) -> None:
    for carried in (0, 3, 40, None):
        fill(s, carried or 0)
        carry(s, limit=carried)
        rows = replayed(s, s.log.newest())
        assert by_key(rows) == as_read(s)
        assert not any(row.damaged for row in rows)
        for tasks in (4, 32):
            assert by_key(replayed(s, s.log.newest(), tasks=tasks)) == by_key(rows)
        assert {row.key for row in replayed(s, s.log.newest(), entity_type="user")} == {
            row.key for row in rows if row.key.entity_type == "user"
        }


@pytest.mark.req("J114")
def test_a_tail_larger_than_the_buffer(tmp_path: Path) -> None:
    for buffer in (0, 1000, 20_000):
        with world("memory", tmp_path, partitions=2, tail_buffer_bytes=buffer, read_page=3) as s:
            fill(s, 0)
            carry(s, limit=10)
            fill(s, 1)
            assert by_key(replayed(s, s.log.newest())) == as_read(s)


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
        assert by_key(replayed(s, cuts)) == expected


@pytest.mark.req("J114")
def test_what_is_removed_while_it_runs_is_left_out_and_nothing_else() -> None:
    for how in ("delete", "purge"):
        faults = Faults()
        log = MemoryLog(partitions=1)
        store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
        s = paired(log, faults.around("store", store), read_page=2)
        for key in ("order|1", "order|2", "order|3"):
            s.journal.append(key, events(1, 2, 3, 4, 5, 6))
        carry(s)
        cut = s.log.newest()[0]

        def remove(s: Strandline = s, how: str = how) -> None:
            for key in ("order|1", "order|2", "order|3"):
                s.journal.delete(key, to=4) if how == "delete" else s.journal.purge(key)
                s.journal.append(key, events("later"))
            carry(s)

        faults.at("before store.page", remove, nth=2)
        found = by_key(list(replay_partition(s.log, s.store, s.settings, 0, cut=cut)))
        given = sorted([event.seq_nr for event in rows] for rows in found.values())
        # the first key was under way, the others were not
        assert given == ([[1, 2, 5, 6], [5, 6], [5, 6]] if how == "delete" else [[1, 2]])


@pytest.mark.req("J114")
def test_without_the_tail(s: Strandline) -> None:
    s.journal.append("order|1", events(1, 2))
    carry(s)
    s.journal.append("order|1", events(3))
    s.journal.append("order|2", events(1))
    for tail, expected in ((False, {"order|1": [1, 2]}), (True, {"order|1": [1, 2, 3], "order|2": [1]})):
        found: dict[str, list[int]] = {}
        for partition, cut in enumerate(s.log.newest()):
            for row in replay_partition(s.log, s.store, s.settings, partition, cut=cut, tail=tail):
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
        list(replay_partition(s.log, s.store, s.settings, partition, cut=cuts[partition]))
    assert caught.value.name == "MissingEvent.log_trimmed"
    assert (caught.value.partition, caught.value.first, caught.value.last) == (partition, 0, 1)


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
    rows = list(replay_partition(s.log, s.store, s.settings, 0, cut=9))
    assert sorted((str(row.key), row.seq_nr) for row in rows) == sorted(
        (f"order|{key}", seq_nr) for key in range(3) for seq_nr in seq_nrs(s.journal.read(f"order|{key}"))
    )
