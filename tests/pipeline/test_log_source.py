"""The log as a stream: what is planned, what travels. The reader's own methods, without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

import strandline
from strandline import Event
from strandline.connect import Strandline
from strandline.errors import MissingEvent, Unavailable
from strandline.pipeline.failures import TaskFailed, crossed, from_text
from strandline.pipeline.held import Held
from strandline.pipeline.log_source import ARROW_SCHEMA, SCHEMA, LogRange, LogRanges, LogReader, LogSource, tasks_of
from strandline.pipeline.marks import Marker
from strandline.pipeline.replicate import Replication
from strandline.pipeline.target import Target
from strandline.pipeline.task import arrow_schema, do_ranges
from strandline.rows import Pointer
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


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held.create(tmp_path, partitions=8)


@pytest.fixture
def source(target: Target, held: Held, monkeypatch: pytest.MonkeyPatch) -> Callable[[], LogReader]:
    monkeypatch.setattr(Marker, "due", lambda *_: {})  # see test_marks
    return lambda: LogReader({"target": target.to_json(), "held": held.path})


def fill(s: Strandline, counts: dict[int, int]) -> None:
    for partition, count in counts.items():
        for number in range(count):
            s.journal.append(KEYS[partition], [Event("Placed", number)])


def carried(target: Target, fence: int, *ranges: LogRange) -> list[dict[str, Any]]:
    """What a task says of these ranges."""
    batches = LogReader({"target": target.to_json(), "held": ""}).read(LogRanges(list(ranges)))
    return [
        row
        for out in do_ranges(Replication.task, Replication.result, target, fence, batches)
        for row in out.to_pylist()
    ]


def planned(r: LogReader, start: dict[str, Any], end: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Start and position of the ranges of a batch, by partition."""
    return {
        range_.partition: (range_.start, range_.position) for task in r.partitions(start, end) for range_ in task.ranges
    }


def next_ranges(
    r: LogReader, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
) -> dict[int, tuple[int, int]]:
    start = start or r.initialOffset()
    return planned(r, start, r.latestOffset(start, limit or ReadAllAvailable()))


@pytest.mark.req("J80", "J81", "RR2")
def test_every_batch_starts_at_the_pointers_whatever_spark_remembers(
    s: Strandline, source: Callable[[], LogReader]
) -> None:
    fill(s, {4: 3, 5: 2})
    carry(s, partition=4, limit=1)
    r = source()
    start = r.initialOffset()
    end = r.latestOffset(start, ReadAllAvailable())
    assert planned(r, start, end) == {4: (1, 3), 5: (0, 2)}
    again = r.latestOffset(end, ReadAllAvailable())
    assert again != end, "nothing of it was carried, so there is another batch"
    assert planned(r, end, again) == {4: (1, 3), 5: (0, 2)}
    carry(s, partition=5, limit=1)
    assert next_ranges(r, again) == {4: (1, 3), 5: (1, 2)}
    assert next_ranges(r, {"batch": 99, "ranges": [[4, 50, 60], [7, 0, 1]], "marks": []}) == {4: (1, 3), 5: (1, 2)}
    carry(s)
    last = r.latestOffset(again, ReadAllAvailable())
    assert last == again, "no batch where there is nothing to carry"
    assert r.partitions(last, last) == []
    fill(s, {5: 1})
    assert next_ranges(source(), last) == {5: (2, 3)}, "a query that starts anew goes on there"


@pytest.mark.req("J80", "RR2")
def test_the_pointers_are_asked_for_once_a_batch(
    s: Strandline, source: Callable[[], LogReader], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = target.open().store
    asked: list[int] = []
    pointers = store.pointers

    def count() -> list[Pointer]:
        asked.append(1)
        return pointers()

    monkeypatch.setattr(store, "pointers", count)
    fill(s, {4: 3, 5: 2})
    r = source()
    assert next_ranges(r, limit=r.getDefaultReadLimit()) == {4: (0, 3), 5: (0, 2)}
    assert len(asked) == 1


@pytest.mark.req("J87")
def test_offsets_are_json_in_order_of_partition(s: Strandline, source: Callable[[], LogReader]) -> None:
    fill(s, {7: 1, 4: 3, 5: 2})
    r = source()
    start = r.initialOffset()
    end = r.latestOffset(start, ReadAllAvailable())
    assert json.loads(json.dumps(end)) == end
    assert end == {"batch": 1, "ranges": [[4, 0, 3], [5, 0, 2], [7, 0, 1]], "marks": []}


@pytest.mark.req("J86", "J87")
def test_a_range_spans_no_more_than_the_limit(s: Strandline, source: Callable[[], LogReader]) -> None:
    fill(s, {4: 12, 5: 3})
    r = source()
    assert next_ranges(r, limit=r.getDefaultReadLimit()) == {4: (0, 5), 5: (0, 3)}


@pytest.mark.req("J87")
def test_row_limits_and_all_available_are_honoured(s: Strandline, source: Callable[[], LogReader]) -> None:
    fill(s, {4: 12, 5: 3, 7: 1})
    r = source()
    assert sum(position - start for start, position in next_ranges(r, limit=ReadMaxRows(6)).values()) <= 6
    assert next_ranges(r, limit=ReadMaxRows(1)) != {}
    assert next_ranges(r) == {4: (0, 12), 5: (0, 3), 7: (0, 1)}


@pytest.mark.req("J87")
def test_an_available_now_run_freezes_its_end(s: Strandline, source: Callable[[], LogReader]) -> None:
    fill(s, {4: 2})
    r = source()
    start = r.initialOffset()
    r.prepareForTriggerAvailableNow()
    fill(s, {4: 2, 5: 1})
    end = r.latestOffset(start, ReadAllAvailable())
    assert planned(r, start, end) == {4: (0, 2)}
    carry(s)
    assert r.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.req("J84")
def test_a_partition_that_is_held_is_planned_again_from_its_pointer_afterwards(
    s: Strandline, source: Callable[[], LogReader], held: Held
) -> None:
    fill(s, {4: 2, 5: 1})
    r = source()
    held.put({4: time.monotonic() + 3600}, 8)
    assert next_ranges(r) == {5: (0, 1)}
    carry(s, partition=5)
    fill(s, {5: 1})
    assert next_ranges(r) == {5: (1, 2)}, "the same reader goes on with the others"
    held.put({4: time.monotonic() - 1}, 8)
    assert next_ranges(r) == {4: (0, 2), 5: (1, 2)}
    held.put({}, 8)
    assert next_ranges(r) == {4: (0, 2), 5: (1, 2)}


@pytest.mark.req("J84")
def test_nobody_waits_longer_than_a_partition_is_held(
    s: Strandline, source: Callable[[], LogReader], held: Held, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(s, {4: 2})
    waits: list[tuple[dict[int, int], float]] = []
    monkeypatch.setattr(target.open().log, "wait", lambda after, timeout_s: waits.append((after, timeout_s)))
    held.put({4: time.monotonic() + 0.2}, 8)
    assert next_ranges(source()) == {}
    ((after, wait_s),) = waits
    assert 4 not in after
    assert 0 < wait_s <= 0.2


@pytest.mark.req("J87")
def test_ranges_come_in_one_exact_schema(s: Strandline, source: Callable[[], LogReader]) -> None:
    assert [name.split()[0] for name in SCHEMA.split(", ")] == ARROW_SCHEMA.names
    assert LogSource.name() == "strandline_log"
    (batch,) = source().read(LogRanges([LogRange(4, 1, 3), LogRange(5, 0, 2)]))
    assert batch.schema.equals(ARROW_SCHEMA)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [(4, 1, 3), (5, 0, 2)]


@pytest.mark.req("RR7", "U6", "J32", "J84")
def test_a_log_trimmed_past_a_pointer_is_its_partitions_failure(
    s: Strandline, target: Target, source: Callable[[], LogReader]
) -> None:
    fill(s, {4: 5, 5: 1})
    s.log.trim(4, to=2, pointer=2, keep_after=2**62)
    lease = s.store.lease().take("test")
    ranges = next_ranges(source())
    assert ranges == {4: (0, 5), 5: (0, 1)}
    lost, other = carried(target, lease.fence, *[LogRange(p, *ranges[p]) for p in (4, 5)])
    assert (lost["part"], lost["actions"], lost["events"]) == (4, 0, 0)
    error = from_text(lost["error"])
    assert isinstance(error, MissingEvent)
    assert error.name == "MissingEvent.log_trimmed"
    assert (error.partition, error.first, error.last) == (4, 0, 2)
    assert (other["events"], other["error"]) == (1, None)


@pytest.mark.req("J84")
def test_what_fails_while_a_batch_is_planned_keeps_its_class(
    source: Callable[[], LogReader], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> list[Any]:
        raise Unavailable("it is not there", code="away", hint="look", partition=3)

    monkeypatch.setattr(target.open().store, "pointers", away)
    with pytest.raises(TaskFailed) as caught:
        next_ranges(source())
    text = f"[STREAM_FAILED] Traceback\n  File x\nTaskFailed: {caught.value}\n\tat org.apache.spark.Thing(Thing.java:1)"
    error = crossed(text)
    assert isinstance(error, Unavailable)
    assert (error.code, error.hint, error.facts) == ("away", "look", {"partition": 3})
    assert crossed("[STREAM_FAILED] something else") is None


@pytest.mark.req("J80", "J84")
def test_a_range_above_the_pointer_writes_nothing(s: Strandline, target: Target) -> None:
    fill(s, {4: 5})
    lease = s.store.lease().take("test")
    (result,) = carried(target, lease.fence, LogRange(4, 2, 5))
    assert getattr(from_text(result["error"]), "name", "") == "Unavailable.serialization"
    assert s.store.pointers()[4].offset == -1


@pytest.mark.req("J86", "J79")
def test_a_task_commits_whenever_it_holds_enough_bytes(s: Strandline, tmp_path: Path) -> None:
    for number in range(5):
        s.journal.append(KEYS[4], [Event("Placed", bytes([number]) * 600_000)])
    target = Target(f"sqlite:{tmp_path}/shop", settings={"batch_bytes_max": 2**20})
    lease = s.store.lease().take("test")
    try:
        (result,) = carried(target, lease.fence, LogRange(4, 0, 5))
    finally:
        target.drop()
    assert (result["actions"], result["events"], result["error"]) == (5, 5, None)
    assert list(result) == arrow_schema(Replication.result).names
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
    lease = s.store.lease().take("test")
    results = carried(target, lease.fence, LogRange(5, 0, 3), LogRange(4, 0, 5), LogRange(7, 0, 2))
    assert [(result["part"], result["events"], result["error"] is None) for result in results] == [
        (5, 3, True),
        (4, 0, False),
        (7, 2, True),
    ]
    assert [s.store.pointers()[partition].offset for partition in (4, 5, 7)] == [-1, 2, 1]
