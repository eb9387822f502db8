"""Idle marks: who gets one, and when a still log stops growing."""

from __future__ import annotations

import pytest

from strandline.log.memory import MemoryLog
from strandline.pipeline.marks import Stillness, behind, carried, write
from strandline.rows import Pointer


def test_the_partition_that_moved_last_needs_no_mark() -> None:
    pointers = [Pointer(0, 5, 900, 900), Pointer(1, -1, 0, 0), Pointer(2, 3, 400, 400)]
    assert behind(pointers) == {1: 900, 2: 900}


def test_a_partition_with_something_unreplicated_is_told_apart() -> None:
    pointers = [Pointer(0, 5, 900, 900), Pointer(1, 2, 100, 100)]
    assert carried(pointers, [5, 3]) == {0}


def test_marks_are_no_movement() -> None:
    pointers = [Pointer(0, 6, 2000, 900), Pointer(1, 3, 1000, 100)]
    assert behind(pointers) == {}, "both are past 900, the newest action that was no Mark"


def test_nothing_recorded_nothing_marked() -> None:
    assert behind([Pointer(0), Pointer(1)]) == {}


@pytest.mark.req("J92")
def test_a_mark_has_at_least_the_timestamp_asked_for() -> None:
    log = MemoryLog(partitions=2, clock=lambda: 1000)
    write(log, {1: 5000})
    assert log.newest() == [-1, 0]
    (record,) = log.read(1, after=-1).records
    assert record.timestamp == 5000
    assert record.key is None


def test_stillness_counts_from_the_last_movement() -> None:
    stillness = Stillness(1.0)
    assert stillness.still([3, 4], now=10.0) == set()
    assert stillness.still([3, 5], now=11.0) == {0}
    assert stillness.still([3, 5], now=11.9) == {0}
    assert stillness.still([3, 5], now=12.0) == {0, 1}
    assert stillness.still([4, 5], now=12.1) == {1}
