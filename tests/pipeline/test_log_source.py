"""The log as a stream: what is planned, what travels. The reader's own methods, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import strandline
from strandline import Event
from strandline.connect import Strandline
from strandline.errors import MissingEvent
from strandline.pipeline.failures import from_text
from strandline.pipeline.log_source import ARROW_SCHEMA, SCHEMA, LogRange, LogRanges, LogReader, LogSource, tasks_of
from strandline.pipeline.target import Target
from strandline.pipeline.task import RESULT_ARROW_SCHEMA, carry_ranges
from strandline.testing import carry

KEYS = {4: "order|42", 5: "order|43", 7: "user|a|b"}


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Strandline]:
    with strandline.connect(f"sqlite:{tmp_path}/shop") as connected:
        yield connected


@pytest.fixture
def target(tmp_path: Path, s: Strandline) -> Iterator[Target]:
    target = Target(f"sqlite:{tmp_path}/shop", settings={"batch_actions_max": 5})
    yield target
    target.drop()


def reader(target: Target, **options: object) -> LogReader:
    texts = {name: json.dumps(value) for name, value in options.items()}
    return LogReader({"target": target.to_json(), **texts})


def fill(s: Strandline, counts: dict[int, int]) -> None:
    for partition, count in counts.items():
        for number in range(count):
            s.journal.append(KEYS[partition], [Event("Placed", number)])


def carried(target: Target, fence: int, *ranges: LogRange) -> list[dict[str, Any]]:
    """What a task says of these ranges."""
    batches = reader(target).read(LogRanges(list(ranges)))
    return [row for out in carry_ranges(target, fence, batches) for row in out.to_pylist()]


def spans(start: dict[str, int], end: dict[str, int]) -> dict[int, int]:
    return {int(p): end[p] - start[p] for p in end if end[p] != start[p]}


@pytest.mark.req("J80", "J87", "RR2")
def test_ranges_start_at_the_pointers(s: Strandline, target: Target) -> None:
    fill(s, {4: 3, 5: 2})
    carry(s, partition=4)
    start = reader(target).initialOffset()
    assert list(start) == [str(p) for p in range(8)], "in order of partition"
    assert start == {**{str(p): 0 for p in range(8)}, "4": 3}


@pytest.mark.req("J86", "J87")
def test_a_range_spans_no_more_than_the_limit(s: Strandline, target: Target) -> None:
    fill(s, {4: 12, 5: 3})
    r = reader(target)
    start = r.initialOffset()
    assert spans(start, r.latestOffset(start, r.getDefaultReadLimit())) == {4: 5, 5: 3}


@pytest.mark.req("J87")
def test_row_limits_and_all_available_are_honoured(s: Strandline, target: Target) -> None:
    fill(s, {4: 12, 5: 3, 7: 1})
    r = reader(target)
    start = r.initialOffset()
    assert sum(spans(start, r.latestOffset(start, ReadMaxRows(6))).values()) <= 6
    assert spans(start, r.latestOffset(start, ReadMaxRows(1))) != {}
    assert spans(start, r.latestOffset(start, ReadAllAvailable())) == {4: 12, 5: 3, 7: 1}


@pytest.mark.req("J87")
def test_an_available_now_run_freezes_its_end(s: Strandline, target: Target) -> None:
    fill(s, {4: 2})
    r = reader(target)
    start = r.initialOffset()
    r.prepareForTriggerAvailableNow()
    fill(s, {4: 2, 5: 1})
    assert spans(start, r.latestOffset(start, ReadAllAvailable())) == {4: 2}
    end = r.latestOffset(start, ReadAllAvailable())
    assert r.latestOffset(end, ReadAllAvailable()) == end


def test_held_partitions_stay_where_they_are(s: Strandline, target: Target) -> None:
    fill(s, {4: 2, 5: 1})
    r = reader(target, held=[4])
    start = r.initialOffset()
    assert spans(start, r.latestOffset(start, ReadAllAvailable())) == {5: 1}


@pytest.mark.req("J87")
def test_ranges_come_in_one_exact_schema(s: Strandline, target: Target) -> None:
    assert [name.split()[0] for name in SCHEMA.split(", ")] == ARROW_SCHEMA.names
    assert LogSource.name() == "strandline_log"
    (batch,) = reader(target).read(LogRanges([LogRange(4, 1, 3), LogRange(5, 0, 2)]))
    assert batch.schema.equals(ARROW_SCHEMA)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [(4, 1, 3), (5, 0, 2)]


@pytest.mark.req("RR7", "U6", "J32")
def test_a_log_trimmed_past_a_pointer_is_said_at_the_start(s: Strandline, target: Target) -> None:
    fill(s, {4: 5})
    s.log.trim(4, to=2, pointer=2, keep_after=2**62)
    with pytest.raises(MissingEvent) as caught:
        reader(target).initialOffset()
    assert caught.value.name == "MissingEvent.log_trimmed"
    assert (caught.value.partition, caught.value.first, caught.value.last) == (4, 0, 2)


@pytest.mark.req("J84")
def test_an_error_of_a_range_is_its_result_and_no_failed_task(s: Strandline, target: Target) -> None:
    fill(s, {4: 5})
    s.log.trim(4, to=2, pointer=2, keep_after=2**62)
    lease = s.store.take_lease("test")
    (result,) = carried(target, lease.fence, LogRange(4, 0, 5))
    assert (result["partition"], result["events"], result["offset"]) == (4, 0, -1)
    assert "trimmed" in str(from_text(result["error"]))


@pytest.mark.req("J80", "J84")
def test_a_range_above_the_pointer_writes_nothing(s: Strandline, target: Target) -> None:
    fill(s, {4: 5})
    lease = s.store.take_lease("test")
    (result,) = carried(target, lease.fence, LogRange(4, 2, 5))
    assert getattr(from_text(result["error"]), "name", "") == "Unavailable.serialization"
    assert s.store.pointers()[4].offset == -1


@pytest.mark.req("J86", "J79")
def test_a_task_commits_whenever_it_holds_enough_bytes(s: Strandline, tmp_path: Path) -> None:
    for number in range(5):
        s.journal.append(KEYS[4], [Event("Placed", bytes([number]) * 600_000)])
    target = Target(f"sqlite:{tmp_path}/shop", settings={"batch_bytes_max": 2**20})
    lease = s.store.take_lease("test")
    try:
        (result,) = carried(target, lease.fence, LogRange(4, 0, 5))
    finally:
        target.drop()
    assert (result["actions"], result["events"], result["offset"], result["error"]) == (5, 5, 4, None)
    assert list(result) == RESULT_ARROW_SCHEMA.names
    assert s.store.pointers()[4].revision >= 3, "two actions reach a megabyte: three commits of their own"
    assert [event.payload[0] for event in s.journal.read(KEYS[4])] == [0, 1, 2, 3, 4]


def test_short_ranges_share_a_task_and_long_ones_do_not() -> None:
    ranges = [LogRange(0, 0, 10_000), LogRange(1, 5, 6), LogRange(2, 0, 400), LogRange(3, 7, 8), LogRange(4, 0, 200)]
    tasks = tasks_of(ranges)
    assert [[range_.partition for range_ in task.ranges] for task in tasks] == [[1, 3, 4], [2], [0]]
    assert tasks_of([]) == []


def test_no_more_tasks_than_run_at_once_and_each_with_as_much() -> None:
    spans = [9_000, 1_000, 1, 5_000, 4_000, 2_000, 900]
    ranges = [LogRange(partition, 10, 10 + span) for partition, span in enumerate(spans)]
    for slots in range(1, 9):
        tasks = tasks_of(ranges, slots)
        assert len(tasks) == min(slots, 7)
        assert sorted(range_.partition for task in tasks for range_ in task.ranges) == list(range(7))
    assert [task.span for task in tasks_of(ranges, 2)] == [11_000, 10_901]
    assert len(tasks_of(ranges[2:3], 4)) == 1
    assert tasks_of([], 2) == []


@pytest.mark.req("J84")
def test_a_range_that_fails_stops_no_other_of_its_task(s: Strandline, target: Target) -> None:
    fill(s, {4: 5, 5: 3, 7: 2})
    s.log.trim(4, to=2, pointer=2, keep_after=2**62)
    lease = s.store.take_lease("test")
    results = carried(target, lease.fence, LogRange(5, 0, 3), LogRange(4, 0, 5), LogRange(7, 0, 2))
    assert [(result["partition"], result["events"], result["error"] is None) for result in results] == [
        (5, 3, True),
        (4, 0, False),
        (7, 2, True),
    ]
    assert [s.store.pointers()[partition].offset for partition in (4, 5, 7)] == [-1, 2, 1]
