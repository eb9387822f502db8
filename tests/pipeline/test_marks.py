"""Marks: who gets one and when, how soon the strandline follows, and when a still log stops growing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.journal.worlds import world as journal_world

from strandline import Event, Key
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.carry.range import carry_range
from strandline.connect import Strandline
from strandline.errors import Unavailable
from strandline.log.api import ActionDraft, Answered, Recorded
from strandline.pipeline import log_ranges, marks
from strandline.pipeline.log_ranges import LogPlanner, LogRange
from strandline.pipeline.marks import LogSeen, Marker, behind, look, write
from strandline.record import is_mark
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.testing import FakeClock
from strandline.testing.inexact import InexactMemoryLog
from strandline.values.actions import Mark

PARTITIONS = 4
IDLE_S = 1.0
KEYS = {
    p: next(key for n in range(99) if Key.of(key := f"order|{n}").partition(PARTITIONS) == p) for p in range(PARTITIONS)
}
BATCHES = {"exact": 1, "inexact": 2}
"""How many batches it takes at most until the strandline is above what the first of them carries."""


class World:
    """A log, its store, and a pipeline that works when it is told to, on a clock of its own."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.time = FakeClock(), 1000.0
        self.log = (MemoryLog if kind == "exact" else InexactMemoryLog)(partitions=PARTITIONS, clock=self.wall)
        fixed = StoreSettings(self.log.log_id, PARTITIONS, 10_000)
        self.begin(
            Strandline(self.log, MemoryStore(fixed, clock=self.wall), Settings(mark_idle_s=IDLE_S)), folder, monkeypatch
        )

    def begin(self, s: Strandline, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = s
        self.lease = self.s.store.lease().take("test")
        self.reader = LogPlanner(self.s)
        monkeypatch.setattr(marks, "monotonic", lambda: self.time)
        monkeypatch.setattr(log_ranges, "IDLE_WAIT_S", 0.0)

    def pass_(self, seconds: float) -> None:
        self.time += seconds
        self.wall.advance(seconds)

    def append(self, *partitions: int) -> int:
        """An event in each of these; the timestamp of the last."""
        for partition in partitions:
            done = self.s.journal.append(KEYS[partition], [Event("Placed", 1)])
            assert done.partition == partition
        return done.timestamp or 0

    def batch(self) -> bool:
        """Plan a batch and carry it; False if there is none."""
        tasks = self.reader.tasks({})
        for range_ in itertools.chain(*tasks):
            place = (range_.partition, range_.start, range_.position)
            list(carry_range(self.log, self.s.store, *place, self.lease.fence, self.s.settings))
        return bool(tasks)

    def carry_all(self) -> None:
        for _ in range(5):
            if not self.batch():
                return
        raise AssertionError("there is always something to carry")

    def marks_written(self) -> list[int]:
        """How many each partition has."""
        return [
            sum(is_mark(record.header or b"") for record in self.log.read(partition, after=-1).records)
            for partition in range(PARTITIONS)
        ]


@pytest.fixture(params=BATCHES)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(request.param, tmp_path, monkeypatch)
    made.batches = BATCHES[request.param]  # type: ignore[attr-defined]
    return made


def batches(world: World) -> int:
    return int(world.batches)  # type: ignore[attr-defined]


# ------------------------------------------------------------ how soon


@pytest.mark.req("J92", "RR4")
def test_what_is_idle_holds_nothing_back_for_longer_than_a_batch(world: World) -> None:
    world.append(0, 1, 2, 3)
    world.carry_all()
    for _ in range(3):
        world.pass_(IDLE_S)
        assert not world.batch(), "nothing moved, so nothing needs a Mark"
        recorded = world.append(1)
        for _ in range(batches(world)):
            assert world.batch()
        assert world.s.strandline() >= recorded
        assert not world.batch()


@pytest.mark.req("J92", "RR4")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_an_event_in_an_idle_sql_log_is_below_the_strandline_after_one_batch(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World("exact", tmp_path, monkeypatch)
    with journal_world(backend, tmp_path, partitions=PARTITIONS, mark_idle_s=IDLE_S) as s:
        world.log = s.log  # type: ignore[assignment]
        world.begin(s, tmp_path, monkeypatch)
        world.append(0, 1, 2, 3)
        world.carry_all()
        for partition in (1, 3):
            world.pass_(IDLE_S)
            recorded = world.append(partition)
            assert world.batch()
            assert s.strandline() >= recorded
            assert not world.batch()
        world.lease.release()


@pytest.mark.req("J92", "RR4")
def test_a_clock_that_was_ahead_hides_nothing_although_all_are_busy(world: World) -> None:
    """What comes after it, in all partitions, is below the strandline after `mark_idle_s` and one batch (two)."""
    step_s = IDLE_S / 5
    seen: list[tuple[float, int]] = []
    world.append(0, 1, 2, 3)
    world.carry_all()
    world.wall.advance(3600)
    ahead = world.append(1)
    world.wall.advance(-3600)
    for _ in range(batches(world)):
        world.append(0, 2, 3)
        assert world.batch()
    assert world.s.strandline() >= ahead, "an hour behind is more than mark_idle_s"
    for _ in range(30):
        world.pass_(step_s)
        recorded = max(world.append(1, 1, 1, 1, 1), world.append(0, 2, 3))  # each on, but one five times as fast
        seen.append((world.time, recorded))
        assert world.batch()
        # In steps: planned in the batch after mark_idle_s, and carried by it; or by the next where there are two.
        late_s = IDLE_S + batches(world) * step_s
        assert all(world.s.strandline() >= timestamp for at, timestamp in seen if at <= world.time - late_s)
    assert max(world.marks_written()) <= 2 + 30 * step_s / IDLE_S + 1, "no more than one a mark_idle_s, or a little"


@pytest.mark.req("J92", "J93")
def test_busy_partitions_with_a_good_clock_get_none(world: World) -> None:
    world.append(0, 1, 2, 3)
    world.carry_all()
    before = world.marks_written()
    for _ in range(20):
        world.pass_(IDLE_S / 2)
        world.append(0, 1, 2, 3)
        world.batch()
    assert world.marks_written() == before


@pytest.mark.req("J93")
def test_a_still_log_stops_growing_after_one_mark_a_partition(world: World) -> None:
    recorded = world.append(1)
    for _ in range(10):
        world.pass_(IDLE_S / 2)
        world.batch()
    assert world.s.strandline() >= recorded
    assert world.marks_written() == [1, 0, 1, 1]


@pytest.mark.req("J92")
def test_one_batch_carries_marks_and_what_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("exact", tmp_path, monkeypatch)
    world.append(3)
    (task,) = world.reader.tasks({})
    assert task == [LogRange(p, 0, 1) for p in (3, 0, 1, 2)], "events do not wait for Marks"


@pytest.mark.req("J92")
def test_where_no_batch_is_marks_cause_one(world: World) -> None:
    world.append(0, 1, 2, 3)
    world.carry_all()
    world.pass_(IDLE_S / 4)
    recorded = world.append(2)
    world.batch()
    world.batch()
    assert world.s.strandline() < recorded, "the others moved a moment ago"
    assert 0 < world.reader.marker.next_at - world.time <= IDLE_S, "so long nobody waits for something else"
    world.pass_(world.reader.marker.next_at - world.time)
    assert world.batch()
    assert world.s.strandline() >= recorded


def test_a_partition_that_cannot_be_carried_gets_one_mark(world: World) -> None:
    world.append(0, 1, 2, 3)
    for _ in range(10):
        world.pass_(IDLE_S)
        world.append(0)
        for range_ in itertools.chain(*world.reader.tasks({})):
            if range_.partition != 1:
                place = (range_.partition, range_.start, range_.position)
                list(carry_range(world.log, world.s.store, *place, world.lease.fence, world.s.settings))
    assert world.marks_written()[1] == 1
    assert world.marks_written()[2] >= 5


@pytest.mark.req("J84")
def test_marks_that_cannot_be_written_stop_no_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Unavailable("no space", code="no_space")
    append, send = world.log.append, getattr(world.log, "send", None)
    tried: list[int] = []

    def refuse(drafts: Sequence[ActionDraft]) -> list[Recorded]:
        if not isinstance(drafts[0].action, Mark):
            return append(drafts)
        tried.append(len(drafts))
        raise full

    def drop(draft: ActionDraft, answered: Answered) -> None:
        if send is not None and not isinstance(draft.action, Mark):
            send(draft, answered)
        else:
            tried.append(1)
            answered(None, full)

    with monkeypatch.context() as broken:
        broken.setattr(world.log, "append", refuse)
        if send is not None:
            broken.setattr(world.log, "send", drop)
        for _ in range(4):
            world.append(1)
            assert world.batch()
            world.pass_(IDLE_S / 8)
        assert sum(tried) == PARTITIONS - 1, "they are not tried at every look"
    world.pass_(IDLE_S)
    world.carry_all()
    assert world.s.strandline() >= max(pointer.last_action_at for pointer in world.s.store.pointers())


def test_nobody_waits_for_a_partition_that_takes_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("inexact", tmp_path, monkeypatch)
    send, sent = world.log.send, []  # type: ignore[attr-defined]

    def keep(draft: ActionDraft, answered: Answered) -> None:
        if isinstance(draft.action, Mark):
            sent.append(draft.partition)
        else:
            send(draft, answered)

    monkeypatch.setattr(world.log, "send", keep)
    monkeypatch.setattr(marks, "SENT_WAIT_S", 0.01)
    for _ in range(4):
        world.append(1)
        assert world.batch()
        world.pass_(IDLE_S)
    assert sorted(sent) == [0, 2, 3], "no second one before the first is answered"


# ------------------------------------------------------------ the rule


def test_the_partition_that_moved_last_needs_no_mark() -> None:
    pointers = [Pointer(0, 5, 900, 900), Pointer(1, -1, 0, 0), Pointer(2, 3, 400, 400)]
    assert behind(pointers) == {1: 900, 2: 900}


def test_marks_are_no_movement() -> None:
    pointers = [Pointer(0, 6, 2000, 900), Pointer(1, 3, 1000, 100)]
    assert behind(pointers) == {}, "both are past 900, the newest action that was no Mark"


def test_nothing_recorded_nothing_marked() -> None:
    assert behind([Pointer(0), Pointer(1)]) == {}
    log = MemoryLog(partitions=2)
    assert Marker(log, IDLE_S).look([Pointer(0), Pointer(1)]) == (LogSeen([-1, -1], [0, 0], 0), [])


@pytest.mark.req("J92")
def test_a_mark_has_at_least_the_timestamp_asked_for() -> None:
    log = MemoryLog(partitions=2, clock=lambda: 1000)
    write(log, {1: 5000})
    assert log.newest() == [-1, 0]
    (record,) = log.read(1, after=-1).records
    assert record.timestamp == 5000
    assert record.key is None


@pytest.mark.req("J92")
def test_the_newest_is_that_of_the_log_where_it_can_tell() -> None:
    for made, reached, moved in ((MemoryLog, [0, 5000], 5000), (InexactMemoryLog, [0, 800], 700)):
        log = made(partitions=2, clock=lambda: 1000)
        write(log, {1: 5000})
        assert look(log, [Pointer(0), Pointer(1, -1, 800, 700)]) == ([-1, 0], reached, moved)


@pytest.mark.req("J92")
def test_those_that_are_half_way_there_get_theirs_with_the_first() -> None:
    marker = Marker(MemoryLog(partitions=3), 1.0)

    def due(now: float, newest: list[int]) -> list[int]:
        pointers = [Pointer(partition, offset) for partition, offset in enumerate(newest)]
        return list(marker.due(pointers, LogSeen(newest, [500, 500, 500], 900), now))

    assert due(10.0, [3, 3, 3]) == []
    marker._newest.clear()  # only stillness is looked at
    marker._newest.append((900, 20.0))
    assert due(10.5, [3, 4, 3]) == []
    assert due(10.6, [3, 4, 4]) == []
    assert due(11.0, [3, 4, 4]) == [0, 1]


@pytest.mark.req("J92")
def test_stillness_and_being_behind_are_counted_from_when_they_began() -> None:
    marker = Marker(MemoryLog(partitions=2), 1.0)

    def due(now: float, newest: list[int], reached: list[int], moved: int, carried: list[int]) -> list[int]:
        pointers = [Pointer(partition, offset) for partition, offset in enumerate(carried)]
        return list(marker.due(pointers, LogSeen(newest, reached, moved), now))

    assert due(10.0, [3, 4], [500, 900], 900, [3, 4]) == []
    assert marker.next_at == 11.0
    assert due(10.9, [3, 4], [500, 900], 900, [3, 4]) == []
    assert due(11.0, [3, 5], [500, 901], 901, [3, 4]) == [0], "still for a second"
    assert due(11.1, [4, 6], [902, 903], 903, [3, 4]) == [], "a Mark moves a partition on"
    assert due(11.9, [5, 7], [904, 1000], 1000, [4, 6]) == [], "busy, behind since now"
    assert due(12.5, [6, 8], [905, 1100], 1100, [5, 7]) == []
    assert marker.next_at == pytest.approx(12.9)
    assert due(12.9, [7, 9], [906, 1200], 1200, [6, 8]) == [0], "busy, behind for a second"
    assert due(13.0, [8, 10], [1300, 2_000_000], 2_000_000, [7, 9]) == [0], "more than a second behind"
