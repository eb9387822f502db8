"""Rebuild: the view of a tag, compared with the journal and mended in place, on Spark.

    round 1   a part per partition of the log: its keys, one after the other (`carry.tag_mending`)
    round 2   a part per stretch of the view: rows that no key accounts for

A rebuild has the pipeline's lease: nothing is carried meanwhile; appends and queries go on. It keeps no state: a
rebuild that was killed is simply started again, and finds that mended rows are right.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.carry.resolve import mark_carrier
from strandline.carry.tag_findings import TagRebuildCounts
from strandline.carry.tag_mending import TagMender
from strandline.connect import Strandline
from strandline.errors import Unavailable, shown
from strandline.journal import checks
from strandline.pipeline.supervisor import supervise
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import RangeResult
from strandline.store.api import Lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_STRETCH = -1


def rebuild_tag(
    url: str | None,
    tag: str,
    *,
    log: str | None = None,
    store: str | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> TagRebuildCounts:
    """Compare the view of a tag with the journal, correct it in place, and return the counts.

    `LeaseHeld` while a pipeline or another rebuild works on this store. Rows that were put back are listed in table
    `repaired`; differences that the journal cannot settle are left alone, and counted as `lost` or `unproven`. A tag
    that no event has is no error. A rebuild that was killed or stopped can be started again; one that `stop` ended
    raises `Unavailable.away`.
    """
    name = checks.tag(tag)
    target = JournalRef(url, log, store, {"schema": "check", **settings})
    with target.connect() as s:
        job = TagRebuild(s, name)
        supervise(s, target, job, once=True, stop=stop, spark=spark, master=master)
        if not job.ended:
            raise Unavailable(
                f"the rebuild of tag {shown(name)!r} was stopped before its end",
                code="away",
                hint="start it again; what it mended stays",
                applied="unknown",
            )
        return job.counts


@dataclass(frozen=True, slots=True)
class Mended(RangeResult):
    """The result of a part."""

    counts: TagRebuildCounts = field(default_factory=TagRebuildCounts)


def mend(s: Strandline, fence: int, part: RebuildPart) -> Iterator[Mended]:
    """Mend the keys of a partition, or a stretch of the view."""
    mender = _mender(s, part.tag, fence)
    in_stretch = part.first != NO_STRETCH
    done = TagRebuildCounts()
    for step in mender.walk(part.first, part.last) if in_stretch else mender.mend_keys(part.part):
        done.add(step)
        yield Mended(part.part, None, replace(done))
    yield Mended(part.part, None, done)


def _mender(s: Strandline, tag: str, fence: int) -> TagMender:
    return TagMender(s.store, tag, fence, partial(mark_carrier, s.log, s.store, settings=s.settings))


class TagRebuild:
    """The job of a rebuild. Its progress is in memory only."""

    name: Final = "strandline rebuild of a tag"
    task, result = staticmethod(mend), Mended

    def __init__(self, s: Strandline, tag: str) -> None:
        self._s, self._tag = s, tag
        self._partitions = s.log.partitions
        self.parts = 2 * self._partitions
        self.counts = TagRebuildCounts()
        self._done: set[int] = set()
        self._stretches: list[tuple[int, int]] = []
        self.ended = False

    def take_lease(self, holder: str) -> Lease:
        self._lease = self._s.store.lease().take(f"rebuild of tag {self._tag!r}, {holder}")
        return self._lease

    def planner(self, slots: int | None, ends: Sequence[int] | None) -> PartPlanner:
        return PartPlanner([RebuildPart(part, self._tag, *self._stretch(part)) for part in self.unfinished(ends or ())])

    def _stretch(self, part: int) -> tuple[int, int]:
        return (NO_STRETCH, NO_STRETCH) if part < self._partitions else self._stretches[part - self._partitions]

    def rounds(self) -> Iterator[list[int]]:
        """Yield the parts with the keys of all partitions; then those of the view."""
        yield [1] * self._partitions
        self._stretches = _mender(self._s, self._tag, self._lease.fence).spans(self._partitions)
        yield [1] * (self._partitions + len(self._stretches))
        self.ended = True

    def unfinished(self, ends: Sequence[int]) -> list[int]:
        return [part for part in range(len(ends)) if part not in self._done]

    def take(self, results: Sequence[Mended], errors: Mapping[int, str]) -> None:
        for result in results:
            if result.error is None:
                self._done.add(result.part)
            else:
                result.counts.keys = result.counts.rows = 0  # the repeated part counts them again
            self.counts.add(result.counts)

    def progress(
        self, batch: int, seconds: float, errors: Mapping[int, str], *, under_way: bool = False
    ) -> TagRebuildCounts:
        return self.counts

    def maintain(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class RebuildPart:
    """The keys of a partition, or a stretch of the view."""

    part: int
    tag: str
    first: int
    last: int


class PartPlanner:
    """Plans the parts that are not done, each in a task of its own, except parts that are held back."""

    def __init__(self, parts: Sequence[RebuildPart]) -> None:
        self._parts = list(parts)

    def tasks(self, held: Mapping[int, float]) -> list[list[RebuildPart]]:
        planned = [part for part in self._parts if part.part not in held]
        self._parts = []
        return [[part] for part in planned]
