"""What of the log is carried next, and what a task says of it. Without a JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event
from strandline.connect import Strandline
from strandline.errors import MissingEvent
from strandline.pipeline.failures import from_text
from strandline.pipeline.log_ranges import GO_ON_S, LogPlanner, LogRange, span_of, tasks_of
from strandline.pipeline.marks import Marker
from strandline.pipeline.replicate import Replication
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import do_ranges
from strandline.rows import Pointer
from strandline.testing import carry

KEYS = {4: "order|42", 5: "order|43", 7: "user|a|b"}


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Strandline]:
    with strandline.connect(f"sqlite:{tmp_path}/shop", batch_actions_max=5) as connected:
        yield connected


@pytest.fixture
def target(tmp_path: Path, s: Strandline) -> Iterator[JournalRef]:
    target = JournalRef(f"sqlite:{tmp_path}/shop", settings={"batch_actions_max": 5})
    yield target
    target.drop()


@pytest.fixture
def source(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> Callable[[], LogPlanner]:
    monkeypatch.setattr(Marker, "due", lambda *_: {})  # see test_marks
    return lambda: LogPlanner(s)


def fill(s: Strandline, counts: dict[int, int]) -> None:
    for partition, count in counts.items():
        for number in range(count):
            s.journal.append(KEYS[partition], [Event("Placed", number)])


def carried(target: JournalRef, fence: int, *ranges: LogRange) -> list[Any]:
    """What a task says of these ranges."""
    return list(do_ranges(Replication.task, Replication.result, target, fence, iter([ranges])))


def next_ranges(planner: LogPlanner, held: dict[int, float] | None = None) -> dict[int, tuple[int, int]]:
    """Start and position of the ranges of the next batch, by partition."""
    tasks = planner.tasks(held or {})
    return {range_.partition: (range_.start, range_.position) for task in tasks for range_ in task}


@pytest.mark.req("J80", "J81", "RR2")
def test_every_batch_starts_at_the_pointers_whatever_was_planned(
    s: Strandline, source: Callable[[], LogPlanner]
) -> None:
    fill(s, {4: 3, 5: 2})
    carry(s, partition=4, limit=1)
    planner = source()
    for _ in range(2):  # nothing of it was carried, so it is planned again
        assert next_ranges(planner) == {4: (1, 3), 5: (0, 2)}
    carry(s, partition=5, limit=1)
    assert next_ranges(planner) == {4: (1, 3), 5: (1, 2)}
    for partition in (4, 5):
        carry(s, partition=partition)
    assert next_ranges(planner) == {}, "no batch where there is nothing to carry"
    fill(s, {5: 1})
    assert next_ranges(source()) == {5: (2, 3)}, "a pass that starts anew goes on there"


@pytest.mark.req("J80", "RR2")
def test_the_pointers_are_asked_for_once_a_batch(
    s: Strandline, source: Callable[[], LogPlanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    pointers = s.store.pointers

    def count() -> list[Pointer]:
        asked.append(1)
        return pointers()

    fill(s, {4: 3, 5: 2})
    monkeypatch.setattr(s.store, "pointers", count)
    assert next_ranges(source()) == {4: (0, 3), 5: (0, 2)}
    assert len(asked) == 1


@pytest.mark.req("J86", "J87")
def test_a_range_spans_no_more_than_the_limit(s: Strandline, source: Callable[[], LogPlanner]) -> None:
    fill(s, {4: 12, 5: 3})
    assert next_ranges(source()) == {4: (0, 5), 5: (0, 3)}


@pytest.mark.req("J85", "J87")
def test_a_run_up_to_ends_plans_nothing_above_them(
    s: Strandline, source: Callable[[], LogPlanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.pipeline.log_ranges.IDLE_WAIT_S", 20.0)
    fill(s, {4: 2})
    planner = LogPlanner(s, ends=[newest + 1 for newest in s.log.newest()])
    fill(s, {4: 2, 5: 1})
    assert next_ranges(planner) == {4: (0, 2)}
    carry(s, partition=4, limit=2)
    started = time.monotonic()
    assert next_ranges(planner) == {}
    assert time.monotonic() - started < 10, "it does not wait for more"


@pytest.mark.req("J84")
def test_a_partition_that_is_held_is_planned_again_from_its_pointer_afterwards(
    s: Strandline, source: Callable[[], LogPlanner]
) -> None:
    fill(s, {4: 2, 5: 1})
    planner, held = source(), {4: time.monotonic() + 3600}
    assert next_ranges(planner, held) == {5: (0, 1)}
    carry(s, partition=5)
    fill(s, {5: 1})
    assert next_ranges(planner, held) == {5: (1, 2)}, "the same planner goes on with the others"
    assert next_ranges(planner) == {4: (0, 2), 5: (1, 2)}


@pytest.mark.req("J84")
def test_nobody_waits_longer_than_a_partition_is_held(
    s: Strandline, source: Callable[[], LogPlanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(s, {4: 2})
    waits: list[tuple[dict[int, int], float]] = []
    monkeypatch.setattr(s.log, "wait", lambda after, timeout_s: waits.append((after, timeout_s)))
    assert next_ranges(source(), {4: time.monotonic() + 0.2}) == {}
    ((after, wait_s),) = waits
    assert 4 not in after
    assert 0 < wait_s <= 0.2


@pytest.mark.req("RR7", "U6", "J32", "J84")
def test_a_log_trimmed_past_a_pointer_is_its_partitions_failure(
    s: Strandline, target: JournalRef, source: Callable[[], LogPlanner]
) -> None:
    fill(s, {4: 5, 5: 1})
    s.log.trim(4, to=2, pointer=2, keep_after=2**62)
    lease = s.store.lease().take("test")
    ranges = next_ranges(source())
    assert ranges == {4: (0, 5), 5: (0, 1)}
    lost, other = carried(target, lease.fence, *[LogRange(p, *ranges[p]) for p in (4, 5)])
    assert (lost.part, lost.actions, lost.events) == (4, 0, 0)
    error = from_text(lost.error)
    assert isinstance(error, MissingEvent)
    assert error.name == "MissingEvent.log_trimmed"
    assert (error.partition, error.first, error.last) == (4, 0, 2)
    assert (other.events, other.error) == (1, None)


@pytest.mark.req("J80", "J84")
def test_a_range_above_the_pointer_writes_nothing(s: Strandline, target: JournalRef) -> None:
    fill(s, {4: 5})
    lease = s.store.lease().take("test")
    (result,) = carried(target, lease.fence, LogRange(4, 2, 5))
    assert getattr(from_text(result.error), "name", "") == "Unavailable.serialization"
    assert s.store.pointers()[4].offset == -1


@pytest.mark.req("J86", "J79")
def test_a_task_commits_whenever_it_holds_enough_bytes(s: Strandline, tmp_path: Path) -> None:
    for number in range(5):
        s.journal.append(KEYS[4], [Event("Placed", bytes([number]) * 600_000)])
    target = JournalRef(f"sqlite:{tmp_path}/shop", settings={"batch_bytes_max": 2**20})
    lease = s.store.lease().take("test")
    try:
        (result,) = carried(target, lease.fence, LogRange(4, 0, 5))
    finally:
        target.drop()
    assert (result.actions, result.events, result.error) == (5, 5, None)
    assert s.store.pointers()[4].revision >= 3, "two actions reach a megabyte: three commits of their own"
    assert [event.payload[0] for event in s.journal.read(KEYS[4])] == [0, 1, 2, 3, 4]


@pytest.mark.req("J79", "J86")
@pytest.mark.parametrize(("go_on_s", "events"), [(60.0, 17), (0.0, 5)])
def test_a_range_goes_on_with_what_is_behind_it_while_it_is_young(
    s: Strandline, target: JournalRef, go_on_s: float, events: int
) -> None:
    fill(s, {4: 19})
    lease = s.store.lease().take("test")
    (result,) = carried(target, lease.fence, LogRange(4, 0, 5, more=12, go_on_s=go_on_s))
    assert (result.events, result.error) == (events, None)
    assert s.store.pointers()[4].offset == events - 1
    assert s.store.pointers()[4].revision == -(-events // 5), "as many at a time as in any other batch"


@pytest.mark.req("J84")
def test_what_was_carried_before_a_range_that_went_on_failed_is_counted(s: Strandline, target: JournalRef) -> None:
    fill(s, {4: 9})
    with s.log._database.write() as tx:  # type: ignore[attr-defined]
        tx.raw.execute("DELETE FROM action WHERE partition = 4 AND log_offset = 7")
    lease = s.store.lease().take("test")
    (result,) = carried(target, lease.fence, LogRange(4, 0, 5, more=4, go_on_s=60.0))
    assert (result.events, s.store.pointers()[4].offset) == (5, 4)
    assert isinstance(from_text(result.error), MissingEvent)


@pytest.mark.req("J86", "J87")
def test_ranges_of_a_task_share_the_time_to_go_on(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Marker, "due", lambda *_: {})  # see test_marks
    fill(s, {4: 7, 5: 5, 7: 8})
    ((one, two, three),) = LogPlanner(s, 1).tasks({})
    assert {one, two, three} == {
        LogRange(4, 0, 5, 2, GO_ON_S / 3), LogRange(5, 0, 5), LogRange(7, 0, 5, 3, GO_ON_S / 3)
    }  # fmt: skip
    assert next_ranges(LogPlanner(s, ends=[0] * 4 + [6, 5, 0, 5])) == {4: (0, 5), 5: (0, 5), 7: (0, 5)}
    assert [range_.more for task in LogPlanner(s, 1, ends=[0] * 4 + [6, 5, 0, 5]).tasks({}) for range_ in task] == [
        1,
        0,
        0,
    ]


@pytest.mark.req("J79")
def test_short_ranges_share_a_task_and_long_ones_do_not() -> None:
    ranges = [LogRange(0, 0, 10_000), LogRange(1, 5, 6), LogRange(2, 0, 400), LogRange(3, 7, 8), LogRange(4, 0, 200)]
    tasks = tasks_of(ranges)
    assert [[range_.partition for range_ in task] for task in tasks] == [[1, 3, 4], [2], [0]]
    assert tasks_of([]) == []


@pytest.mark.req("J79")
def test_no_more_tasks_than_run_at_once_and_each_with_as_much() -> None:
    spans = [9_000, 1_000, 1, 5_000, 4_000, 2_000, 900]
    ranges = [LogRange(partition, 10, 10 + span) for partition, span in enumerate(spans)]
    for slots in range(1, 9):
        tasks = tasks_of(ranges, slots)
        assert len(tasks) == min(slots, 7)
        assert sorted(range_.partition for task in tasks for range_ in task) == list(range(7))
    assert [span_of(task) for task in tasks_of(ranges, 2)] == [11_000, 10_901]
    assert len(tasks_of(ranges[2:3], 4)) == 1
    assert tasks_of([], 2) == []


@pytest.mark.req("J84")
def test_a_range_that_fails_stops_no_other_of_its_task(s: Strandline, target: JournalRef) -> None:
    fill(s, {4: 5, 5: 3, 7: 2})
    s.log.trim(4, to=2, pointer=2, keep_after=2**62)
    lease = s.store.lease().take("test")
    results = carried(target, lease.fence, LogRange(5, 0, 3), LogRange(4, 0, 5), LogRange(7, 0, 2))
    assert [(result.part, result.events, result.error is None) for result in results] == [
        (5, 3, True),
        (4, 0, False),
        (7, 2, True),
    ]
    assert [s.store.pointers()[partition].offset for partition in (4, 5, 7)] == [-1, 2, 1]
