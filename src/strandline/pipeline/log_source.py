"""The log as a Spark stream: one Python data source over the log protocol, for every log.

A row is a range of one partition: which records, not the records. The task that gets it reads them from the log itself,
so that no byte of them goes through a JVM, there and back, only to reach the next process on the same machine. A task
has one range if it is long, several if they are short, or if more tasks would only wait for each other.

Each batch is planned from the store's pointers, which are asked for once, whatever Spark remembers: what failed is
planned again from where it stands, once the driver no longer holds it back. So an offset is no position. It is the
number of a batch and the ranges that were planned for it, as JSON in order of partition; where nothing is planned it
stays the same. Marks that are due are written first (`marks`), so that the batch carries them, too. Nothing is kept
between calls but the end that an available-now run froze, and since when partitions need a Mark.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from strandline.pipeline.failures import crossing
from strandline.pipeline.held import Held
from strandline.pipeline.marks import Marker
from strandline.pipeline.target import Target
from strandline.rows import Pointer

NAME = "strandline_log"
SCHEMA = "partition int, start long, position long"
ARROW_SCHEMA = pa.schema([("partition", pa.int32()), ("start", pa.int64()), ("position", pa.int64())])
IDLE_WAIT_S = 0.25
TASK_RECORDS = 500
"""Ranges are put into one task up to so many records."""

Offset = dict[str, Any]
"""`batch`, a number that grows; `ranges`, a list of (partition, start, position); `marks`, those partitions that have
nothing but a Mark that was just written."""


class LogSource(DataSource):
    """Format `strandline_log`: what `pipeline run` reads.

    Options: `target`; `held`, the file that says which partitions to leave alone; `ends`, positions where an
    available-now run ends; `slots`, how many tasks run at once.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> LogReader:  # noqa: N802 - Spark's names
        return LogReader(self.options)


@dataclass
class LogRange:
    """Offsets `start` to `position` - 1 of a partition."""

    partition: int
    start: int
    position: int

    @property
    def span(self) -> int:
        return self.position - self.start


@dataclass
class LogRanges(InputPartition):
    """What one task carries, in this order."""

    ranges: list[LogRange]

    @property
    def span(self) -> int:
        return sum(range_.span for range_ in self.ranges)


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges in one process of the driver's; a task hands on its own."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.target = Target.from_json(options["target"])
        self.held = Held(options["held"])
        self.ends: list[int] | None = orjson.loads(options.get("ends", "null"))
        self.slots: int | None = orjson.loads(options.get("slots", "null"))
        self.frozen: list[int] | None = None
        self._marker: Marker | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"batch": 0, "ranges": [], "marks": []}

    @crossing
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.frozen = self.ends or self._ends()

    @crossing
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        s = self.target.open()
        return ReadMaxRows(s.settings.batch_actions_max * s.log.partitions)

    @crossing
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        s = self.target.open()
        now = time.monotonic()
        held = self.held.get(now)
        pointers = s.store.pointers()
        newest, marks = self._look(pointers)
        ranges = self._planned(pointers, held, newest, limit)
        if not ranges and self.frozen is None:
            after = {pointer.partition: pointer.offset for pointer in pointers if pointer.partition not in held}
            until = min([now + IDLE_WAIT_S, self.marker.next_at, *held.values()])
            if s.log.wait(after, max(0.0, until - now)):
                newest, marks = self._look(pointers)
                ranges = self._planned(pointers, held, newest, limit)
        if not ranges:
            return start
        places = [[range_.partition, range_.start, range_.position] for range_ in ranges]
        return {"batch": start["batch"] + 1, "ranges": places, "marks": marks}

    def partitions(self, start: Offset, end: Offset) -> Sequence[LogRanges]:
        if end == start:
            return []
        tasks = tasks_of([LogRange(*range_) for range_ in end["ranges"]], self.slots)
        for task in tasks:
            task.ranges.sort(key=lambda range_: range_.partition in end["marks"])  # nobody waits for those
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogRanges):
            raise TypeError(partition)
        columns = zip(*[(range_.partition, range_.start, range_.position) for range_ in partition.ranges], strict=True)
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, ARROW_SCHEMA.types)), schema=ARROW_SCHEMA)

    def stop(self) -> None:
        self.target.drop()

    def _ends(self) -> list[int]:
        return [offset + 1 for offset in self.target.open().log.newest()]

    @property
    def marker(self) -> Marker:
        s = self.target.open()
        if self._marker is None:
            self._marker = Marker(s.log, s.settings.mark_idle_s)
        return self._marker

    def _look(self, pointers: Sequence[Pointer]) -> tuple[list[int], list[int]]:
        """Where each partition ends, and those that have nothing but a Mark that was just written."""
        if self.frozen is not None:
            return [position - 1 for position in self.frozen], []
        seen, marks = self.marker.look(pointers)
        return seen.newest, marks

    def _planned(
        self, pointers: Sequence[Pointer], held: Container[int], newest: Sequence[int], limit: ReadLimit
    ) -> list[LogRange]:
        """The next ranges of those partitions that are not held."""
        positions = {pointer.partition: pointer.offset + 1 for pointer in pointers if pointer.partition not in held}
        ends = {partition: newest[partition] + 1 for partition in positions}
        if not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            ends = _limited(positions, ends, rows, self.target.open().settings.batch_actions_max)
        return [LogRange(p, position, ends[p]) for p, position in positions.items() if ends[p] > position]


def tasks_of(ranges: list[LogRange], slots: int | None = None) -> list[LogRanges]:
    """Ranges shared out to tasks: a task costs more than a few records, so short ranges share one.

    Where no more than `slots` tasks run at once there are no more, each with about as many records: from one task to
    the next a core waits for 50 ms.
    """
    tasks: list[LogRanges] = []
    free = 0
    for range_ in sorted(ranges, key=lambda range_: range_.span):
        if range_.span > free:
            tasks.append(LogRanges([]))
            free = TASK_RECORDS
        tasks[-1].ranges.append(range_)
        free -= range_.span
    if slots is None or len(tasks) <= slots:
        return tasks
    shared = [LogRanges([]) for _ in range(slots)]
    for task in reversed(tasks):  # the longest first
        min(shared, key=lambda other: other.span).ranges.extend(task.ranges)
    return shared


def _limited(positions: dict[int, int], ends: dict[int, int], rows_max: int | None, span_max: int) -> dict[int, int]:
    """Ends cut to `span_max` offsets a partition and `rows_max` in all, fairly: the smallest backlog first."""
    spans = {p: min(max(ends[p] - position, 0), span_max) for p, position in positions.items()}
    left = sum(spans.values()) if rows_max is None else rows_max
    for served, partition in enumerate(sorted(spans, key=spans.__getitem__)):
        spans[partition] = min(spans[partition], -(-left // (len(spans) - served)))
        left -= spans[partition]
    return {p: position + spans[p] for p, position in positions.items()}
