"""A Spark task does its ranges, one after the other, and returns the result of each.

A task never fails and never retries: an error is its result, and the driver decides.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.pipeline.failures import to_text
from strandline.pipeline.target import JournalRef


class RangeTask(Protocol):
    """The order to a task, for one part of the work. It is sent there pickled."""

    @property
    def part(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The result of a range. A job adds fields of its own, each with a default."""

    part: int
    error: str | None = None


Task = Callable[[Strandline, int, Any], Iterator[RangeResult]]
"""Does a range under a fence. It yields the result so far."""


def do_ranges(
    task: Task, result: type[RangeResult], target: JournalRef, fence: int, tasks: Iterator[Sequence[RangeTask]]
) -> Iterator[RangeResult]:
    """Do the ranges of a batch, as Spark maps it: one result per range. One that fails stops no other."""
    for ranges in tasks:
        for range_ in ranges:
            with uncollected():
                done = _do(task, result(range_.part), target, fence, range_)
            yield done


def _do(task: Task, so_far: RangeResult, target: JournalRef, fence: int, range_: RangeTask) -> RangeResult:
    try:
        for step in task(target.open(), fence, range_):
            so_far = step
    except Exception as error:  # noqa: BLE001 - reported, not raised: the other parts do not wait
        if not isinstance(error, StrandlineError) or error.retryable:
            target.drop()
        return replace(so_far, error=to_text(error))
    return so_far


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn the collector of cycles off: ranges make no cycles, and searching their rows takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
