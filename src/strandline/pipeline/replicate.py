"""Replicate: carry the log into the store, on Spark.

A part of this job is a partition of the log. Each batch has one range per partition, which begins at the partition's
pointer. Only the pointers in the store say what is carried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline import extras
from strandline.carry.range import carry_range
from strandline.connect import Strandline
from strandline.journal.retention import trim
from strandline.pipeline import marks
from strandline.pipeline.log_ranges import LogPlanner, LogRange
from strandline.pipeline.progress import PartitionProgress, Progress
from strandline.pipeline.supervisor import supervise
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import RangeResult
from strandline.store.api import Lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Summary:
    """The sums of a run of the pipeline."""

    actions: int
    events: int
    strandline: int


def run(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    once: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> Summary:
    """Carry until stopped, or with `once` up to now. `LeaseHeld` if another pipeline serves this store.

    `progress` is called after each batch, and every 5 s while one is under way. Set `stop` from another thread to end
    it; what was carried stays. Without a `spark` session one is started on `master`, this machine by default, and
    ended. Settings are those of `connect`, but a missing journal is `SchemaMismatch.no_schema` unless `schema="create"`
    is given: a pipeline on a mistyped URL would carry nothing and report that all is well.
    """
    extras.check("spark", "pyspark")
    target = JournalRef(url, log, store, {"schema": "check", **settings})
    with target.connect() as s:
        job = Replication(s)
        if spark is None and master is None and s.local and job.lag() <= s.settings.batch_actions_max:
            master = (
                # SQLite has one writer at a time: more workers help only to catch up, and idle workers cost memory
                "local[1]"
            )
        supervise(s, target, job, once=once, progress=progress, stop=stop, spark=spark, master=master)
        return Summary(job.actions, job.events, s.strandline())


@dataclass(frozen=True, slots=True)
class ReplicatedRange(RangeResult):
    """The result of one range of the log."""

    actions: int = 0
    events: int = 0


def carry(s: Strandline, fence: int, range_: LogRange) -> Iterator[ReplicatedRange]:
    """Carry one range, and the records behind it while that takes little time; yield the result so
    far after each step.
    """
    began = time.monotonic()
    partition, start, position, more, go_on_s = (
        range_.partition,
        range_.start,
        range_.position,
        range_.more,
        range_.go_on_s,
    )
    end, actions, events = position + more, 0, 0
    while start < position:
        at = start
        for step in carry_range(s.log, s.store, partition, start, position, fence, s.settings):
            actions, events, at = actions + step.actions, events + step.events, step.pointer.offset + 1
            yield ReplicatedRange(partition, actions=actions, events=events)
        if at < position or time.monotonic() - began >= go_on_s:
            return
        start, position = position, min(end, position + s.settings.batch_actions_max)


class Replication:
    """The job of replication: its sums, and the ends that it has to reach."""

    name: Final = "strandline pipeline"
    task, result = staticmethod(carry), ReplicatedRange

    def __init__(self, s: Strandline) -> None:
        self._s = s
        self.parts = s.log.partitions
        self.actions = self.events = self._last_actions = self._last_events = 0
        self._reported: dict[int, str] = {}

    def lag(self) -> int:
        """Return how many actions are not carried yet."""
        return sum(
            newest - pointer.offset
            for newest, pointer in zip(self._s.log.newest(), self._s.store.pointers(), strict=True)
        )

    def take_lease(self, holder: str) -> Lease:
        self._lease = self._s.store.lease().take(holder)
        return self._lease

    def planner(self, slots: int | None, ends: Sequence[int] | None) -> LogPlanner:
        return LogPlanner(self._s, slots, ends)

    def rounds(self) -> Iterator[list[int]]:
        return marks.rounds(self._s.log, self._s.store)

    def unfinished(self, ends: Sequence[int]) -> list[int]:
        pointers = self._s.store.pointers()
        return [pointer.partition for pointer, end in zip(pointers, ends, strict=True) if pointer.offset + 1 < end]

    def take(self, results: Sequence[ReplicatedRange], errors: Mapping[int, str]) -> None:
        self._last_actions = sum(result.actions for result in results)
        self._last_events = sum(result.events for result in results)
        self.actions += self._last_actions
        self.events += self._last_events
        if errors != self._reported:
            self._s.store.lease().report(self._lease.fence, errors)
            self._reported = dict(errors)

    def progress(self, batch: int, seconds: float, errors: Mapping[int, str], *, under_way: bool = False) -> Progress:
        status = self._s.status(parts=False)
        partitions = tuple(
            PartitionProgress(p.partition, p.pointer, p.newest, p.lag_actions, errors.get(p.partition))
            for p in status.partitions
        )
        done = (0, 0) if under_way else (self._last_actions, self._last_events)
        return Progress(batch, *done, seconds, partitions, status.strandline, status.quarantined, under_way)

    def maintain(self) -> None:
        trim(self._s.log, self._s.store, self._s.settings)
