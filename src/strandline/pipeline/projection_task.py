"""A Spark task that runs a range of a projection, up to the range's bound or for a while, under the driver's fence."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.pipeline.failures import crossing
from strandline.pipeline.target import JournalRef
from strandline.projection.definition import Projection
from strandline.projection.host import Offsets, slices_of, take_away, too_long
from strandline.projection.layout import RangeRow
from strandline.projection.offset_store import ProjectionRow, RangeClaim, SliceRequest
from strandline.projection.range_runner import LOST, RangeRunner
from strandline.sql.api import Transaction

WATCH_S: Final = 0.2
"""How often a task checks whether its handler hangs, and whether its time is over."""


class ProjectionTask(NamedTuple):
    """The order to a task: which projection and range it runs, and for how long it may."""

    number: int
    claim: RangeClaim
    requests: tuple[SliceRequest, ...]
    for_s: float
    lease_s: float


class ProjectionTaskResult(NamedTuple):
    """The result of such a task."""

    outcome: str
    row: RangeRow
    reached: int
    levelled: bool


_OPEN: dict[tuple[int, str, str | None], tuple[Strandline, Offsets]] = {}


@crossing
def run_range(target: JournalRef, path: Sequence[str], payload: bytes, work: ProjectionTask) -> ProjectionTaskResult:
    """Run a range up to its bound, or for a while."""
    from pyspark.cloudpickle import loads

    sys.path.extend(each for each in path if each not in sys.path)  # where the driver found its handlers
    projection = loads(payload)[work.number]
    s = target.open()
    offsets = _offsets(target, s, projection.settings.offset_store)
    try:
        return _run(s, offsets, projection, work)
    except StrandlineError:
        target.drop()
        raise


def _offsets(target: JournalRef, s: Strandline, url: str | None) -> Offsets:
    """Return the offset store, opened once in a process for each connection."""
    place = (os.getpid(), target.to_json(), url)
    opened = _OPEN.get(place)
    if opened is None or opened[0] is not s:
        if opened is not None:
            opened[1].store.close()
        opened = _OPEN[place] = s, s.open_offsets(url, create=False)
    return opened[1]


def _run(s: Strandline, offsets: Offsets, projection: Projection, work: ProjectionTask) -> ProjectionTaskResult:
    store, started = offsets.store, time.monotonic()
    settings = projection.settings

    def living(tx: Transaction, row: ProjectionRow) -> set[str]:
        return offsets.alive(None).living(store.hosts(tx, row.id), store.database.now_us())

    slices = slices_of(s.store, projection, work.claim, store, living)
    runner = RangeRunner(
        projection, work.claim, store, slices, s.pointer_watch,
        lambda: time.monotonic() - started < work.lease_s, lambda: None, once=True,
    )  # fmt: skip
    for request in work.requests:
        runner.ask(request)
    runner.start()
    while not runner.ended.wait(WATCH_S if settings.handler_timeout_s > 1 else WATCH_S / 10):
        now, since = time.monotonic(), runner.handling_since
        if now - started > work.for_s:
            runner.stop()
        if since is not None and now - since > settings.handler_timeout_s:
            runner.abandon()
            _OPEN.clear()  # the handler that hangs keeps this connection
            fresh = s.open_offsets(settings.offset_store, create=False).store
            take_away(fresh, projection, runner.claim, too_long(settings.handler_timeout_s))
            fresh.close()
            return ProjectionTaskResult(LOST, runner.claim.row, runner.reached, levelled=False)
    return ProjectionTaskResult(runner.outcome, runner.claim.row, runner.reached, runner.levelled)
