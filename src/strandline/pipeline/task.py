"""What a Spark task does: its ranges, one after the other, and say what came of each.

A task never fails and never retries: an error is its result, and the driver decides.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Final

import pyarrow as pa

from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.pipeline.failures import to_text
from strandline.pipeline.target import Target


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a range. A job adds fields of its own: numbers and texts, each with a default."""

    part: int
    error: str | None = None


Task = Callable[[Strandline, int, Mapping[str, Any]], Iterator[Result]]
"""Does a range, given as a row of the source, under a fence. What it yields is what came of it so far."""

_ARROW_TYPES: Final = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "str | None": pa.string()}


def arrow_schema(result: type[Result]) -> pa.Schema:
    """A result's fields as columns."""
    return pa.schema([(field.name, _ARROW_TYPES[str(field.type)]) for field in fields(result)])


def do_ranges(
    task: Task, result: type[Result], target: Target, fence: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function that Spark maps over the stream: one result per range. One that fails stops no other."""
    schema = arrow_schema(result)
    for batch in batches:
        for row in batch.to_pylist():
            with uncollected():
                done = _do(task, result(row[batch.schema.names[0]]), target, fence, row)
            yield pa.RecordBatch.from_pylist([dict(zip(schema.names, astuple(done), strict=True))], schema=schema)


def _do(task: Task, so_far: Result, target: Target, fence: int, row: Mapping[str, Any]) -> Result:
    try:
        for step in task(target.open(), fence, row):
            so_far = step
    except Exception as error:  # noqa: BLE001 - reported, not raised: the other parts do not wait
        if not isinstance(error, StrandlineError) or error.retryable:
            target.drop()
        return replace(so_far, error=to_text(error))
    return so_far


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looking for cycles: ranges make none, and looking through their rows takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
