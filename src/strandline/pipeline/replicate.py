"""Replicate: carry the log into the store, on Spark.

                 ┌────────────────────────────────────────────────────────────┐
                 ▼                                                            │ a partition failed, or its
    take lease ─▶ query from the pointers ─▶ batch ─▶ batch ─▶ … ─▶ end query ─┘ back-off is over
                                                     │
                                                     └─▶ stopped, or `once` is done ─▶ give the lease back

Each batch is one range per partition, carried by a task that never fails: its error is its result. What is done is
decided by the pointers in the store; the query's checkpoint is a temporary folder that nobody needs.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from strandline.connect import Strandline
from strandline.errors import LeaseLost, StrandlineError, Unavailable, Unsupported
from strandline.journal.retention import trim
from strandline.pipeline import jvm, log_source, marks, session
from strandline.pipeline.failures import TaskFailed, from_text
from strandline.pipeline.progress import PartitionProgress, Progress
from strandline.pipeline.target import Target
from strandline.pipeline.task import RESULT_SCHEMA, Result, carry_ranges
from strandline.store.api import Lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BACK_OFF_S, BACK_OFF_MAX_S = 0.1, 5.0
LOOK_S = 0.1
TRIM_EVERY_S = 60.0
BROKEN_QUERIES_MAX = 5
"""So often in a row a query may break while log and store are well."""
AWAY_WAIT_S = 1.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Failure:
    """A partition that failed: how often in a row, why, and when it is tried again."""

    error: Exception
    times: int
    until: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run carried."""

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

    `progress` is called after each batch. Set `stop` from another thread to end it; what was carried stays. Without a
    `spark` session one is started on `master`, this machine by default, and ended. Settings are those of `connect`, but
    what is not there is `SchemaMismatch.no_schema`, unless `schema="create"` is given: a pipeline on a mistyped place
    would carry nothing and say that all is well.
    """
    target = Target(url, log, store, {"schema": "check", **settings})
    with target.connect() as s:
        _check_shared(s, spark.sparkContext.master if spark else master)
        lease = s.store.take_lease(f"{socket.gethostname()} pid {os.getpid()}")
        try:
            with _session(spark, master) as running:
                replicator = Replicator(s, target, running, lease, progress, stop or threading.Event())
                replicator.run_once() if once else replicator.run()
                return Summary(replicator.actions, replicator.events, s.strandline())
        finally:
            lease.release()


@contextmanager
def _session(given: SparkSession | None, master: str | None) -> Iterator[SparkSession]:
    """The caller's session, one that runs already, or one of our own, which ends with us."""
    if given is not None:
        session.check(given)
        yield given
        return
    own = not session.runs()
    try:
        # The JVM only hands ranges out: its optimising compiler took half of all its processor time and gained nothing.
        yield session.start(master, short=True)
    finally:
        if own:
            session.end()


def _check_shared(s: Strandline, master: str | None) -> None:
    if not s.shared:
        raise Unsupported(
            "the pipeline runs in other processes, and a memory log or store is seen by one process alone",
            code="not_shared",
            hint='use "sqlite:FOLDER"; in tests, strandline.testing.carry',
        )
    if s.local and master is not None and not master.startswith("local"):
        raise Unsupported(
            f"SQLite files are on this machine; tasks on {master} cannot share them",
            code="not_shared",
            hint='use a local master, such as "local[2]"',
        )


class Replicator:
    """One pipeline at work."""

    def __init__(
        self,
        s: Strandline,
        target: Target,
        spark: SparkSession,
        lease: Lease,
        progress: Callable[[Progress], None] | None,
        stop: threading.Event,
    ) -> None:
        self.s, self.lease = s, lease
        self._place = jvm.temporary_folder()
        self.target = target.by_reference(self._place)
        if self.target.kept_in is not None and not session.is_local(spark.sparkContext.master):
            spark.sparkContext.addFile(self.target.kept_in)
        self.spark = spark.newSession()  # settings of ours are nobody else's
        self.progress, self.stop = progress, stop
        self.actions = self.events = self.batches = 0
        self.failures: dict[int, Failure] = {}
        self.fatal: Exception | None = None
        self._ending = threading.Event()
        self._patient = False
        self.spark.dataSource.register(log_source.LogSource)

    def run(self) -> None:
        """Carry until `stop` is set."""
        keeper = threading.Thread(target=self._keep, name="strandline-keeper", daemon=True)
        keeper.start()
        broken = 0
        try:
            while not self.stop.is_set():
                held = self._held()
                query = self._start(held)
                self._watch(query, until=min((self.failures[p].until for p in held), default=float("inf")))
                broken = self._end(query, broken)
        finally:
            self._ending.set()
            self.stop.set()
            keeper.join()

    def run_once(self) -> None:
        """Carry up to the ends of now, write marks, carry up to them."""
        self._patient = True
        self._carry_to([offset + 1 for offset in self.s.log.newest()])
        wanted = marks.behind(self.s.store.pointers())
        if wanted and not self.stop.is_set():
            marks.write(self.s.log, wanted)
            self._carry_to([offset + 1 for offset in self.s.log.newest()])

    def _carry_to(self, ends: list[int]) -> None:
        give_up = None
        broken = 0
        while not self.stop.is_set():
            if all(pointer.offset + 1 >= end for pointer, end in zip(self.s.store.pointers(), ends, strict=True)):
                return
            query = self._start([], ends)
            self._watch(query)
            broken = self._end(query, broken)
            if self.failures:
                give_up = give_up or time.monotonic() + self.s.settings.append_timeout_s
                worst = max(self.failures.values(), key=lambda failure: failure.times)
                if time.monotonic() >= give_up:
                    raise worst.error
                self.stop.wait(max(0.0, worst.until - time.monotonic()))

    # ------------------------------------------------------------ one query

    def _start(self, held: list[int], ends: list[int] | None = None) -> StreamingQuery:
        self._ending.clear()
        self._folder = tempfile.mkdtemp(prefix="checkpoint-", dir=self._place)
        stream = self.spark.readStream.format(log_source.NAME).option("target", self.target.to_json())
        stream = stream.option("held", orjson.dumps(held).decode()).option("ends", orjson.dumps(ends).decode())
        context = self.spark.sparkContext
        slots = context.defaultParallelism if session.is_local(context.master) else None  # elsewhere they come and go
        stream = stream.option("slots", orjson.dumps(slots).decode())
        writer = stream.load().writeStream.foreachBatch(self._batch).option("checkpointLocation", self._folder)
        if ends is not None:
            return writer.trigger(availableNow=True).start()
        return writer.options(**session.UNLOGGED).trigger(processingTime="0 seconds").start()

    def _watch(self, query: StreamingQuery, until: float = float("inf")) -> None:
        while query.isActive and not self.stop.is_set() and not self._ending.is_set() and time.monotonic() < until:
            self._ending.wait(LOOK_S)

    def _end(self, query: StreamingQuery, broken: int) -> int:
        """Stop a query and look at how it ended; how many in a row have broken by now."""
        ended_itself = not query.isActive
        self._ending.set()
        query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self.fatal is not None:
            raise self.fatal
        error = query.exception() if ended_itself else None
        if error is None:
            return 0
        if not self._patient and (away := self._away()) is not None:
            _logger.warning("the pipeline waits: %s", away)
            self.stop.wait(AWAY_WAIT_S)
            return 0
        if broken + 1 >= BROKEN_QUERIES_MAX:
            raise _ended(error)
        _logger.warning("the query broke and is started again from the pointers: %s", _first_line(error))
        self.stop.wait(min(BACK_OFF_MAX_S, BACK_OFF_S * 2**broken))
        return broken + 1

    def _away(self) -> Unavailable | None:
        """Why log or store cannot be reached, if they cannot. Then the query is started again as often as need be."""
        try:
            self.s.log.newest()
            self.s.store.pointers()
        except Unavailable as error:
            return error
        return None

    def _batch(self, frame: DataFrame, _batch_id: int) -> None:
        if self.stop.is_set() or (self._ending.is_set() and not self._patient):
            return
        started = time.monotonic()
        mapped = frame.mapInArrow(partial(carry_ranges, self.target, self.lease.fence), RESULT_SCHEMA)
        try:
            results = [Result(*row) for row in mapped.collect()]
        except Exception as error:  # noqa: BLE001 - Spark's own errors are pages long, and it chokes on them
            if self._ending.is_set() or self.stop.is_set():
                return
            raise TaskFailed(_first_line(error)) from None
        self._take(results)
        self.batches += 1
        if self.progress is not None:
            self.progress(self._progress(time.monotonic() - started))

    # ------------------------------------------------------------ results

    def _take(self, results: list[Result]) -> None:
        self._last_actions = sum(result.actions for result in results)
        self._last_events = sum(result.events for result in results)
        self.actions += self._last_actions
        self.events += self._last_events
        before = self._errors()
        for result in results:
            if result.error is None:
                self.failures.pop(result.partition, None)
            else:
                self._failed(result.partition, from_text(result.error))
        if self._errors() != before:
            self.s.store.report(self.lease.fence, self._errors())

    def _failed(self, partition: int, error: Exception) -> None:
        if isinstance(error, LeaseLost):
            self.fatal = error
            self._ending.set()
            return
        before = self.failures.get(partition)
        if before is not None and isinstance(error, Unavailable) and error.code == "serialization":
            return  # it stands after a failed range of the same query
        times = before.times + 1 if before else 1
        wait_s = min(BACK_OFF_MAX_S, BACK_OFF_S * 2 ** (times - 1))
        self.failures[partition] = Failure(error, times, time.monotonic() + wait_s)
        _logger.warning("partition %d failed and is tried again in %.1f s: %s", partition, wait_s, error)
        if not self._patient:
            self._ending.set()

    def _errors(self) -> dict[int, str]:
        return {partition: str(failure.error) for partition, failure in self.failures.items()}

    def _held(self) -> list[int]:
        now = time.monotonic()
        return sorted(partition for partition, failure in self.failures.items() if failure.until > now)

    def _progress(self, seconds: float) -> Progress:
        status = self.s.status()
        errors = self._errors()
        return Progress(
            batch=self.batches,
            actions=self._last_actions,
            events=self._last_events,
            seconds=seconds,
            partitions=tuple(
                PartitionProgress(
                    p.partition, p.pointer, p.newest, p.lag_actions, errors.get(p.partition),
                )
                for p in status.partitions
            ),
            strandline=status.strandline,
            quarantined=status.quarantined,
        )  # fmt: skip

    # ------------------------------------------------------------ beside the batches

    def _keep(self) -> None:
        """Idle marks, trimming, and a look at the lease, while the query runs."""
        stillness = marks.Stillness(self.s.settings.mark_idle_s)
        trimmed = time.monotonic()
        while not self.stop.wait(self.s.settings.mark_idle_s / 4):
            try:
                self.lease.check()
                newest = self.s.log.newest()
                pointers = self.s.store.pointers()
                idle = stillness.still(newest) & marks.carried(pointers, newest)
                marks.write(self.s.log, {p: time_ for p, time_ in marks.behind(pointers).items() if p in idle})
                if time.monotonic() - trimmed >= TRIM_EVERY_S:
                    trim(self.s.log, self.s.store, self.s.settings)
                    trimmed = time.monotonic()
            except LeaseLost as error:
                self.fatal = error
                self._ending.set()
                return
            except StrandlineError as error:
                _logger.warning("marks and trimming wait: %s", error)


def _ended(error: Exception) -> Exception:
    if isinstance(error, (StrandlineError, TaskFailed)):
        return error
    return Unavailable(
        f"Spark ended the query: {_first_line(error)}",
        code="away",
        hint="see `strandline doctor`; what was carried is safe, run it again",
    )


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
