"""Steps on targets without transactions. Each stage of a step is in the log before the next one begins.

    image → `Intent` with image, values and timestamp, in the log → write → read back → `Result`

An intent without a result is sent again as it is: the same cells with the same timestamp change nothing. When the group
goes back, all cells that it wrote on a target are put back together, each from its first image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.step import StepFailed
from strandline.group.history import History, Payload, paged
from strandline.group.points import reached
from strandline.group.record import GroupRecord
from strandline.group.target import Cells, CellTarget, Done, Failed, Image, Rows, TargetStep, Wrote
from strandline.group.times import Times

SECOND_US = 1_000_000
T = TypeVar("T")


class Tried(Protocol):
    """Makes a call and retries it where that may help. Raises `StepFailed` if the call cannot succeed."""

    def __call__(self, call: Callable[[], T | Failed]) -> T: ...


def write(
    target: CellTarget, step: TargetStep, record: GroupRecord, times: Times, tried: Tried, clock_ahead_max_s: float
) -> Done:
    """Run a step that changes cells."""
    if step.each is not None:
        raise StepFailed("binding", "for_each is for SQL targets: bind a list with IN")
    if step.plan.before is None:
        if not step.undo:
            record.add("Intent", {"step": step.name, "at": times.now()})
            record.flush()
            reached("intent.recorded")
        tried(lambda: target.write(step, None))
        return Done(0)
    known = record.history.intents.get(step.name)
    if known is None:
        cells, timestamp = _intended(target, step, record, times, tried, clock_ahead_max_s)
    else:
        reached("group.write_sent_again")
        cells, timestamp = cells_of(known), int(known["timestamp"])
        step = step._replace(values=values_of(known))
    tried(lambda: target.write(step, timestamp))
    reached("step.written")
    after = tried(lambda: target.read_back(Wrote(step, cells, timestamp)))
    return Done(affected(step, cells), Rows(), cells.image, after)


def _intended(
    target: CellTarget, step: TargetStep, record: GroupRecord, times: Times, tried: Tried, clock_ahead_max_s: float
) -> tuple[Cells, int]:
    cells = tried(lambda: target.image(step))
    there = any(None not in row[: cells.image.keys] for row in cells.image.rows)
    if not cells.applies:
        raise StepFailed("not_applied", "its IF does not hold")
    if step.require and there != (step.require == "exists"):
        raise StepFailed("not_applied", f"its row is {'there already' if there else 'not there'}")
    if times.ahead(cells.newest) > int(clock_ahead_max_s * SECOND_US):
        raise StepFailed("clock_ahead", f"a cell was written at {cells.newest} µs, which is in the future")
    timestamp = times.next(cells.newest)
    for type_, payload in intent(step, cells, timestamp, times.now()):
        record.add(type_, payload)
    record.flush()
    reached("intent.recorded")
    return cells, timestamp


def affected(step: TargetStep, cells: Cells) -> int:
    """Return how many rows existed and matched; an INSERT counts its rows."""
    if step.plan.undo == "insert":
        return len(cells.keys)
    return sum(None not in row[: cells.image.keys] for row in cells.image.rows)


def intent(step: TargetStep, cells: Cells, timestamp: int, at: int) -> Iterator[tuple[str, Payload]]:
    """Return the events of an intent. A long image goes into pages."""
    made: dict[str, Any] = {
        "columns": list(cells.image.columns), "keys": cells.image.keys, "read_at": cells.read_at,
        "written": [list(key) for key in cells.keys],
    }  # fmt: skip
    rows = [list(row) for row in zip(cells.image.rows, cells.times, cells.ttls, strict=True)]
    yield from paged(step.name, "cells", rows, made)
    payload = {"step": step.name, "at": at, "timestamp": timestamp, "cells": made}
    yield from paged(step.name, "values", [encoded(dict(step.values))], payload)
    yield "Intent", payload


def cells_of(payload: Mapping[str, Any]) -> Cells:
    """Return the image of an intent, from the history."""
    made = payload["cells"]
    rows = made.get("rows", [])
    image = Image(tuple(made["columns"]), made["keys"], tuple(tuple(row) for row, _, _ in rows))
    return Cells(
        image,
        tuple(tuple(times) for _, times, _ in rows),
        tuple(tuple(ttls) for _, _, ttls in rows),
        made["read_at"],
        tuple(tuple(key) for key in made["written"]),
    )


def values_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an intent."""
    values: dict[str, Any] = decoded(payload["values"])
    return values


def wrote(history: History, steps: Mapping[str, TargetStep]) -> list[Wrote]:
    """Return what these steps wrote, or may have written, the first write first."""
    found = [
        Wrote(step._replace(values=values_of(intent)), cells_of(intent), int(intent["timestamp"]))
        for name, step in steps.items()
        if (intent := history.intents.get(name)) is not None
    ]
    return sorted(found, key=lambda one: one.timestamp)
