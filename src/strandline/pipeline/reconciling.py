"""Reconcile on Spark: both sides of every check as DataFrames of counts and digests, then the keys that differ.

    parts ──some a task──▶ tallies of cells ──groupBy, sum──▶ cells that differ        (no body and no key is shuffled)
    slices that differ ──the same, by key──▶ keys that differ, odd rows
    these keys ──a task for some of them──▶ findings, corrected under the pipeline's lease if that is asked for

A cell that is even within a task goes nowhere. Where a task reads all sides of a partition, and there are no tags,
there is nothing to shuffle: what differs goes to the driver.

What is compared, and why it is right beside a running pipeline, is in `strandline.reconcile`.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from strandline.carry.resolve import mark_carrier
from strandline.connect import Strandline
from strandline.errors import StrandlineError, Unavailable, invalid
from strandline.pipeline import jvm, session
from strandline.pipeline.columns import sum_of_digests
from strandline.pipeline.failures import crossing
from strandline.pipeline.supervisor import check_shared, interrupted_in_order, of_spark, open_session
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import uncollected
from strandline.reconcile.findings import Difference, FrozenEnds, ReconcileReport
from strandline.reconcile.kept_days import REREAD, KeptDaysFile
from strandline.reconcile.rounds import KeyPart, Repair, SideTotals, look_at_keys, read_side, reconcile_rounds
from strandline.reconcile.sides import SIDES, OddRow, SidePart, SideResult
from strandline.reconcile.tallies import Tally, TallyCell, differing, signed
from strandline.store.api import Lease
from strandline.store.tag_scans import is_partitioned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "strandline reconcile"
TALLY_DDL = "check string, slice int, day int, key string, expected long, found long, digest long, told binary"
TOLD = "told"
"""The name of the check in a row that has no tally but the other facts of a part."""
TASKS_A_SLOT = 4
CELLS_MAX = 10_000


def reconcile(
    url: str | None = None,
    *,
    log: str | None = None,
    store: str | None = None,
    repair: bool = False,
    sample: float | None = None,
    keep: str | os.PathLike[str] | None = None,
    reread: float | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> ReconcileReport:
    """Compare log, store and views, and return the findings. It may run beside a pipeline.

    With `repair` it takes the pipeline's lease (`LeaseHeld` if another has it) and corrects what log and journal prove;
    rows that were put back are listed in table `repaired`. `sample` is the share of slices to compare, above 0 and up
    to 1. `keep` names a file in which digests of finished days are kept for the next run, which skips these days except
    for a share, `reread` (0.05). A run that `stop` ended raises `Unavailable.away`.
    """
    for name, share in (("sample", sample), ("reread", reread)):
        if share is not None and not 0 < share <= 1:
            raise invalid("option", name, "not a share", allowed="above 0, up to 1 (100%)", got=share)
    if sample is not None and keep is not None:
        raise invalid("option", "keep", "a sample keeps nothing", allowed="one of sample and keep", got=str(keep))
    if reread is not None and keep is None:
        raise invalid("option", "reread", "nothing is kept", allowed="reread with keep", got=reread)
    target = JournalRef(url, log, store, {"schema": "check", **settings})
    stop = stop or threading.Event()
    with target.connect() as s:
        check_shared(s, spark.sparkContext.master if spark else master)
        kept = _kept_days(s, keep, reread)
        lease = s.store.lease().take(f"reconcile, {socket.gethostname()} pid {os.getpid()}") if repair else None
        try:
            with suppress(jvm.JvmUnwanted), interrupted_in_order(stop), open_session(spark, master, stop) as running:
                return _reconciled(s, target, running, lease, sample, kept, stop)
            raise _stopped()
        finally:
            if lease is not None:
                with suppress(StrandlineError):  # why it ended is what counts
                    lease.release()


def _reconciled(
    s: Strandline,
    target: JournalRef,
    spark: SparkSession,
    lease: Lease | None,
    sample: float | None,
    keep: KeptDaysFile | None,
    stop: threading.Event,
) -> ReconcileReport:
    def going_on() -> None:
        if stop.is_set():
            raise _stopped()
        if lease is not None:
            lease.check()

    def carry_mark(partition: int, fence: int) -> None:
        mark_carrier(s.log, s.store, partition, s.settings)(fence)

    right = Repair(lease.fence, carry_mark) if lease is not None else None
    runner = SparkRunner(spark, target.by_reference(jvm.temporary_folder()))
    start = random.random()
    return reconcile_rounds(
        s.log, s.store, runner, sample=sample, start=start, repair=right, keep=keep, going_on=going_on
    )


def _kept_days(s: Strandline, path: str | os.PathLike[str] | None, reread: float | None) -> KeptDaysFile | None:
    if path is None:
        return None
    if is_partitioned(s.store):
        raise invalid(
            "option", "keep", "this store is walked as its tables lie, so no day can be passed over",
            allowed="a store on SQLite or PostgreSQL", got=str(path),
        )  # fmt: skip
    return KeptDaysFile(path, s.store.settings.history_id, REREAD if reread is None else reread)


def _stopped() -> Unavailable:
    return Unavailable(
        "reconcile was stopped before its end", code="away", hint="start it again; what it corrected stays",
        applied="unknown",
    )  # fmt: skip


class SparkRunner:
    """Runs the parts of a round as Spark tasks."""

    def __init__(self, spark: SparkSession, target: JournalRef) -> None:
        session.send_files(spark, target.files)
        self._spark, self._target = spark, target

    def sides(self, frozen: FrozenEnds, parts: Sequence[SidePart]) -> SideTotals:
        context = self._spark.sparkContext
        context.setJobDescription(f"{NAME}: {len(parts)} parts of sides")
        try:
            read = crossing_call(partial(_read, self._target, frozen))
            groups, whole = self._groups(parts)
            rows = context.parallelize(groups, min(len(groups), self._tasks(parts))).flatMap(iter).mapPartitions(read)
            if whole:
                return _totals_of(rows.map(_few).collect())
            frame = self._spark.createDataFrame(rows.flatMap(_rows), TALLY_DDL, verifySchema=False)
            tallies = differing_rows(frame).collect()
        except Exception as error:
            raise _translated(error) from error
        finally:
            context.setJobDescription(None)
        totals = SideTotals()
        for row in tallies:
            if row["check"] == TOLD:
                for told in row[TOLD]:
                    totals.add(_told(told))
                continue
            cell = TallyCell(row["check"], row["slice"], row["day"], row["key"])
            totals.differing.append(Tally(cell, row["expected"], row["found"], signed(int(row["digest"]))))
        totals.differing.sort()
        return totals

    def _groups(self, parts: Sequence[SidePart]) -> tuple[list[list[SidePart]], bool]:
        """Return the parts as tasks take them, and whether each has with it all that it is compared with."""
        if self._tasks(parts) == len(parts):
            return [[part] for part in parts], False
        groups = [list(some) for _, some in groupby(parts, attrgetter("number"))]
        return groups, all(map(needs_its_neighbours_alone, parts))

    def _tasks(self, parts: Sequence[object]) -> int:
        """Return the number of tasks: a task gets a few parts, so that tasks end together and none has next to nothing
        to do.
        """
        return max(1, min(len(parts), TASKS_A_SLOT * self._spark.sparkContext.defaultParallelism))

    def keys(self, parts: Sequence[KeyPart]) -> Iterable[tuple[list[Difference], str | None]]:
        if not parts:
            return []
        context = self._spark.sparkContext
        context.setJobDescription(f"{NAME}: {sum(len(part.keys) for part in parts)} keys one by one")
        try:
            look = crossing_call(partial(_look, self._target))
            found: list[tuple[list[Difference], str | None]] = (
                context.parallelize(list(parts), self._tasks(parts)).flatMap(look).collect()
            )
        except Exception as error:
            raise _translated(error) from error
        finally:
            context.setJobDescription(None)
        return found


def differing_rows(tallies: DataFrame) -> DataFrame:
    """Return the cells in which the sides differ, with the sums of all parts, as `tallies.differing` does; and the
    other facts of the parts.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    summed = tallies.groupBy("check", "slice", "day", "key").agg(
        F.sum("expected").alias("expected"),
        F.sum("found").alias("found"),
        sum_of_digests("digest").alias("digest"),
        F.collect_list("told").alias("told"),
    )
    return summed.where((F.col("expected") != F.col("found")) | (F.col("digest") != 0) | (F.col("check") == TOLD))


def crossing_call(function: Any) -> Any:
    """Return a function for tasks whose `StrandlineError` reaches the driver as it is."""
    return partial(_call, function)


def _call(function: Any, part: Any) -> Any:
    return crossing(function)(part)


class TaskTallies(NamedTuple):
    """The cells in which the sides differ within a task, and the other facts of its parts."""

    tallies: list[Tally]
    told: list[bytes]


def _read(target: JournalRef, frozen: FrozenEnds, parts: Iterator[SidePart]) -> list[TaskTallies]:
    """Read parts where the task runs."""
    s = target.open()
    tallies, told = list[Tally](), list[bytes]()
    for part in parts:
        with uncollected():
            result = read_side(s.log, s.store, s.settings, frozen, part)
        tallies += result.tallies
        told.append(orjson.dumps([[list(row) for row in result.odd], result.suspects, result.counts]))
    return [TaskTallies(differing(tallies), told)]


def needs_its_neighbours_alone(part: SidePart) -> bool:
    """Return whether a part is compared with parts of its own number alone."""
    return part.slices is None and part.without is None and part.side in SIDES and not part.tags


def _few(read: TaskTallies) -> TaskTallies:
    """Return so many cells that a driver can take them: where more differ, one of each check and slice tells enough."""
    tallies = read.tallies
    if len(tallies) > CELLS_MAX:
        tallies = list({tally.cell[:2]: tally for tally in tallies}.values())
    return read._replace(tallies=tallies)


def _rows(read: TaskTallies) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each cell, and for each text that was told."""
    yield from ((*cell, expected, found, digest, None) for cell, expected, found, digest in read.tallies)
    yield from ((TOLD, 0, 0, "", 0, 0, 0, told) for told in read.told)


def _totals_of(read: Sequence[TaskTallies]) -> SideTotals:
    totals = SideTotals(differing([tally for each in read for tally in each.tallies]))
    for each in read:
        for told in each.told:
            totals.add(_told(told))
    return totals


def _told(written: bytes) -> SideResult:
    odd, suspects, counts = orjson.loads(written)
    return SideResult([], [OddRow(row[0], row[1], row[2], tuple(row[3])) for row in odd], suspects, counts)


def _look(target: JournalRef, part: KeyPart) -> list[tuple[list[Difference], str | None]]:
    s = target.open()
    return list(look_at_keys(s.log, s.store, s.settings, part))


def _translated(error: Exception) -> Exception:
    if isinstance(error, session.spark_errors()):
        found = of_spark(error)
        if isinstance(found, StrandlineError):
            return found
        return Unavailable(f"Spark gave up: {found}", code="away", hint="see `strandline doctor`")
    return error
