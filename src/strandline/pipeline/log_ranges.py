"""The planner of replication: which ranges of the log's partitions are carried next, batch by batch, in the driver's
process.

A range names records but has none of them. Its task reads them from the log itself, so no record goes through a JVM
only to reach the next process on the same machine. A task has one range if it is long, several if they are short, or if
more tasks would only wait for each other. From batch to batch all cores wait for a moment, so a range with more behind
it goes on while its task is young (`GO_ON_S`).

Each batch is planned from the store's pointers, which are read once: a partition that failed is planned again from its
pointer, once it is no longer held back. Marks that are due are written first (`marks`), so that the batch carries them,
too. The only state between calls is since when partitions need a Mark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from strandline.connect import Strandline
from strandline.pipeline.marks import Marker
from strandline.rows import Pointer

IDLE_WAIT_S = 0.25
TASK_RECORDS: Final = 500
"""How many records the short ranges that share a task have together, at most."""
GO_ON_S: Final = 1.0
"""How long the ranges of a task go on together. Records that other partitions get meanwhile wait for the next batch."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets `start` to `position` - 1 of a partition. While less than `go_on_s` has passed, the task goes on with the
    `more` records behind them, as many at a time.
    """

    partition: int
    start: int
    position: int
    more: int = 0
    go_on_s: float = 0.0

    @property
    def part(self) -> int:
        return self.partition

    @property
    def span(self) -> int:
        return self.position - self.start


class LogPlanner:
    """Plans the batches of a run: up to the log's ends, or up to `ends`, exclusive offsets by partition."""

    def __init__(self, s: Strandline, slots: int | None = None, ends: Sequence[int] | None = None) -> None:
        """`slots` is how many tasks run at once; None if that is not known."""
        self._s, self._slots, self._ends = s, slots, ends
        self.marker = Marker(s.log, s.settings.mark_idle_s)

    def tasks(self, held: Mapping[int, float]) -> list[list[LogRange]]:
        """Return the tasks of the next batch; none where nothing is to be carried now, after waiting a little for
        something.

        `held` are partitions that are left alone, and until when (monotonic).
        """
        s, now = self._s, time.monotonic()
        pointers = s.store.pointers()
        newest, marks = self._look(pointers)
        ranges = self._planned(pointers, held, newest)
        if not ranges and self._ends is None:
            after = {pointer.partition: pointer.offset for pointer in pointers if pointer.partition not in held}
            until = min([now + IDLE_WAIT_S, self.marker.next_at, *held.values()])
            if s.log.wait(after, max(0.0, until - now)):
                newest, marks = self._look(pointers)
                ranges = self._planned(pointers, held, newest)
        tasks = tasks_of(ranges, self._slots)
        for task in tasks:
            task.sort(key=lambda range_: range_.partition in marks)  # no append waits for a Mark alone
        return [
            [replace(range_, go_on_s=GO_ON_S / len(task)) if range_.more else range_ for range_ in task]
            for task in tasks
        ]

    def _look(self, pointers: Sequence[Pointer]) -> tuple[list[int], list[int]]:
        """Return the newest offset of each partition, and the partitions that have only a Mark to carry."""
        if self._ends is not None:
            return [position - 1 for position in self._ends], []
        seen, marks = self.marker.look(pointers)
        return seen.newest, marks

    def _planned(self, pointers: Sequence[Pointer], held: Mapping[int, float], newest: Sequence[int]) -> list[LogRange]:
        """Return the next ranges of those partitions that are not held."""
        most = self._s.settings.batch_actions_max
        ranges = [
            LogRange(
                partition,
                offset + 1,
                min(offset + most, newest[partition]) + 1,
                max(0, newest[partition] - offset - most),
            )
            for partition, offset, *_ in pointers
            if partition not in held
        ]
        return [range_ for range_ in ranges if range_.span > 0]


def tasks_of(ranges: list[LogRange], slots: int | None = None) -> list[list[LogRange]]:
    """Share ranges out to tasks: a task costs more than a few records, so short ranges share one.

    There are at most `slots` tasks, each with about as many records: from one task to the next a core waits for 50 ms.
    """
    tasks: list[list[LogRange]] = []
    free = 0
    for range_ in sorted(ranges, key=lambda range_: range_.span):
        if range_.span > free:
            tasks.append([])
            free = TASK_RECORDS
        tasks[-1].append(range_)
        free -= range_.span
    if slots is None or len(tasks) <= slots:
        return tasks
    shared: list[list[LogRange]] = [[] for _ in range(slots)]
    for task in reversed(tasks):  # the longest first
        min(shared, key=span_of).extend(task)
    return shared


def span_of(task: Sequence[LogRange]) -> int:
    """Return how many records a task has."""
    return sum(range_.span for range_ in task)
