"""What a Spark task does: carry its ranges, one after the other, and say what came of each.

A task never fails and never retries: an error is its result, and the driver decides.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from strandline.carry.range import carry_range
from strandline.errors import StrandlineError
from strandline.pipeline.failures import to_text
from strandline.pipeline.target import Target

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


def carry_ranges(target: Target, fence: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark maps over the stream: one result per range. One that fails stops no other."""
    for batch in batches:
        for row in batch.to_pylist():
            with _uncollected():
                result = _carry_range(target, fence, **row)
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


def _carry_range(target: Target, fence: int, partition: int, start: int, position: int) -> Result:
    started = time.perf_counter()
    actions = events = 0
    offset, timestamp, error_text = -1, 0, None
    try:
        s = target.open()
        for step in carry_range(s.log, s.store, partition, start, position, fence, s.settings):
            actions, events = actions + step.actions, events + step.events
            _, offset, timestamp, *_ = step.pointer
    except Exception as error:  # noqa: BLE001 - reported, not raised: the other partitions do not wait
        if not isinstance(error, StrandlineError) or error.retryable:
            target.drop()
        error_text = to_text(error)
    return Result(partition, actions, events, offset, timestamp, time.perf_counter() - started, error_text)


def _row(result: Result) -> pa.RecordBatch:
    arrays = [pa.array([value], type=field.type) for value, field in zip(result, RESULT_ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULT_ARROW_SCHEMA)
