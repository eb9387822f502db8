"""What a Spark task does: take the pages of its ranges, carry them, say what came of each.

A task never fails and never retries: an error is its result, and the driver decides.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from strandline.carry import Carriage, Range, carry
from strandline.errors import StrandlineError
from strandline.pipeline import pages
from strandline.pipeline.failures import to_text
from strandline.pipeline.target import Target
from strandline.record import Record

RESULT_SCHEMA = "partition int, actions long, events long, offset long, timestamp long, seconds double, error string"
RESULT_ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("actions", pa.int64()),
        ("events", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)


class Result(NamedTuple):
    """What one task did."""

    partition: int
    actions: int = 0
    events: int = 0
    offset: int = -1
    timestamp: int = 0
    seconds: float = 0.0
    error: str | None = None


def carry_pages(target: Target, fence: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark maps over the stream: one result per range. One that fails stops no other."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for partition, pages_of in groupby(rows, key=itemgetter("partition")):
        with _uncollected():
            result = _carry_range(target, fence, partition, pages_of)
        yield _row(result)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for cycles: a range makes none, and looking through its rows takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _carry_range(target: Target, fence: int, partition: int, rows: Iterable[dict[str, Any]]) -> Result:
    started = time.perf_counter()
    task: _Task | None = None
    try:
        for row in rows:
            task = task or _Task(target, fence, partition, row["start"], row["position"])
            if row["error"] is not None:
                return task.result(started)._replace(error=row["error"])
            task.take(pages.unpack(partition, row["page"]))
        if task is not None:
            task.finish()
        return task.result(started) if task else Result(partition)
    except Exception as error:  # noqa: BLE001 - reported, not raised: the other partitions do not wait
        if not isinstance(error, StrandlineError) or error.retryable:
            target.drop()
        done = task.result(started) if task else Result(partition)
        return done._replace(error=to_text(error))


class _Task:
    """One range on its way into the store, committed whenever it holds enough bytes."""

    def __init__(self, target: Target, fence: int, partition: int, start: int, position: int) -> None:
        self.s = target.open()
        self.fence, self.partition, self.start, self.position = fence, partition, start, position
        self.records: list[Record] = []
        self.size = 0
        self.done = Result(partition)

    def take(self, records: list[Record]) -> None:
        self.records += records
        self.size += pages.size_of(records)
        if self.size >= self.s.settings.batch_bytes_max and self.records[-1].offset + 1 < self.position:
            self._commit(self.records[-1].offset + 1)

    def finish(self) -> None:
        self._commit(self.position)

    def result(self, started: float) -> Result:
        return self.done._replace(seconds=time.perf_counter() - started)

    def _commit(self, position: int) -> None:
        range_ = Range(self.partition, self.start, position, self.records, self.s.log.exact)
        carried: Carriage = carry(self.s.store, self.s.store.settings, range_, self.fence)
        self.start, self.records, self.size = position, [], 0
        self.done = Result(
            self.partition,
            self.done.actions + carried.actions,
            self.done.events + carried.events,
            carried.pointer.offset,
            carried.pointer.timestamp,
        )


def _row(result: Result) -> pa.RecordBatch:
    arrays = [pa.array([value], type=field.type) for value, field in zip(result, RESULT_ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULT_ARROW_SCHEMA)
