"""The log as a Spark stream: one Python data source over the log protocol, for every log.

A row is a range of one partition: which records, not the records. The task that gets it reads them from the log itself,
so that no byte of them goes through a JVM, there and back, only to reach the next process on the same machine. A task
has one range if it is long, several if they are short, or if more tasks would only wait for each other. Ranges start at
the store's pointers, whatever Spark remembers.
Offsets are positions, as JSON in order of partition. Nothing is kept between calls but the end that an available-now
run froze.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
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

from strandline.errors import MissingEvent
from strandline.pipeline.target import Target

NAME = "strandline_log"
SCHEMA = "partition int, start long, position long"
ARROW_SCHEMA = pa.schema([("partition", pa.int32()), ("start", pa.int64()), ("position", pa.int64())])
IDLE_WAIT_S = 0.25
TASK_RECORDS = 500
"""Ranges are put into one task up to so many records."""

Positions = dict[str, int]


class LogSource(DataSource):
    """Format `strandline_log`: what `pipeline run` reads.

    Options: `target`; `held`, partitions to leave alone; `ends`, positions where an available-now run ends; `slots`,
    how many tasks run at once.
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
        self.held: list[int] = orjson.loads(options.get("held", "[]"))
        self.ends: list[int] | None = orjson.loads(options.get("ends", "null"))
        self.slots: int | None = orjson.loads(options.get("slots", "null"))
        self.frozen: list[int] | None = None

    def initialOffset(self) -> Positions:  # noqa: N802
        s = self.target.open()
        pointers = [pointer.offset + 1 for pointer in s.store.pointers()]
        for partition, (position, oldest) in enumerate(zip(pointers, s.log.oldest(), strict=True)):
            if oldest > position:
                raise _trimmed(partition, position, oldest - 1)
        return _positions(pointers)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.frozen = self.ends or self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        s = self.target.open()
        return ReadMaxRows(s.settings.batch_actions_max * s.log.partitions)

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:  # noqa: N802
        positions = [start[str(partition)] for partition in range(len(start))]
        ends = self._planned(positions, limit)
        if ends == positions and self.frozen is None:
            after = {p: position - 1 for p, position in enumerate(positions) if p not in self.held}
            if self.target.open().log.wait(after, IDLE_WAIT_S):
                ends = self._planned(positions, limit)
        return _positions(ends)

    def reportLatestOffset(self) -> Positions:  # noqa: N802
        return _positions(self._ends())

    def partitions(self, start: Positions, end: Positions) -> Sequence[LogRanges]:
        return tasks_of([LogRange(int(p), start[p], end[p]) for p in end if end[p] > start[p]], self.slots)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogRanges):
            raise TypeError(partition)
        columns = zip(*[(range_.partition, range_.start, range_.position) for range_ in partition.ranges], strict=True)
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, ARROW_SCHEMA.types)), schema=ARROW_SCHEMA)

    def stop(self) -> None:
        self.target.drop()

    def _ends(self) -> list[int]:
        return [offset + 1 for offset in self.target.open().log.newest()]

    def _planned(self, positions: list[int], limit: ReadLimit) -> list[int]:
        ends = self.frozen or self._ends()
        if not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            ends = _limited(positions, ends, rows, self.target.open().settings.batch_actions_max)
        return [
            position if partition in self.held else max(position, end)
            for partition, (position, end) in enumerate(zip(positions, ends, strict=True))
        ]


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


def _limited(positions: list[int], ends: list[int], rows_max: int | None, span_max: int) -> list[int]:
    """Ends cut to `span_max` offsets a partition and `rows_max` in all, fairly: the smallest backlog first."""
    spans = [min(max(end - position, 0), span_max) for position, end in zip(positions, ends, strict=True)]
    left = sum(spans) if rows_max is None else rows_max
    for served, partition in enumerate(sorted(range(len(spans)), key=spans.__getitem__)):
        spans[partition] = min(spans[partition], -(-left // (len(spans) - served)))
        left -= spans[partition]
    return [position + span for position, span in zip(positions, spans, strict=True)]


def _positions(positions: Sequence[int]) -> Positions:
    return {str(partition): position for partition, position in enumerate(positions)}


def _trimmed(partition: int, first: int, last: int) -> MissingEvent:
    return MissingEvent(
        f"partition {partition}: the log was trimmed past the pointer, offsets {first} to {last} are lost",
        code="log_trimmed",
        hint="restore log and store from one backup",
        partition=partition,
        first=first,
        last=last,
    )
