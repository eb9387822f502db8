"""Replicate: carry the log into the store, on Spark.

                 ┌────────────────────────────────────┐
                 ▼                                    │ Spark broke it, or log or store are away
    take lease ─▶ query ─▶ batch ─▶ batch ─▶ … ─▶ end ─┘
                                                  │
                                                  └─▶ stopped, or `once` is done ─▶ give the lease back

Each batch is one range per partition, from its pointer, carried by a task that never fails: its error is its result. A
partition that failed is held back for a while, then planned again; the others go on. What is done is decided by the
pointers in the store; the query's checkpoint is a temporary folder that nobody needs.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from strandline.connect import Strandline
from strandline.errors import LeaseLost, StrandlineError, Unavailable, Unsupported, text_of
from strandline.journal.retention import trim
from strandline.pipeline import jvm, log_source, marks, session
from strandline.pipeline.failures import crossed, from_text
from strandline.pipeline.held import Held
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
"""So often in a row a query may break, without a batch in between, while log and store are well."""
AWAY_WAIT_S = 1.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Failure:
    """A partition that failed: why, how often in a row, since when, and when it is tried again."""

    error: Exception
    times: int
    since: float
    until: float


class SparkBroke(Exception):
    """Something of Spark's own failed."""


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
        stop = stop or threading.Event()
        try:
            with _interrupted_in_order(stop), _session(spark, master, stop) as running:
                replicator = Replicator(s, target, running, lease, progress, stop)
                replicator.run_once() if once else replicator.run()
                summary = Summary(replicator.actions, replicator.events, s.strandline())
        except jvm.Stopped:
            summary = Summary(0, 0, s.strandline())
        except BaseException:
            with suppress(StrandlineError):  # why it ended is what counts
                lease.release()
            raise
        lease.release()
        return summary


@contextmanager
def _interrupted_in_order(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C set `stop`, and be raised when all is over; one that comes for the third time is raised at once.

    In the middle of a call to the JVM it would leave half an answer behind, which the next call takes for its own.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    times = 0

    def interrupt(*_: Any) -> None:
        nonlocal times
        times += 1
        stop.set()
        if times > 2:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if times:
            raise KeyboardInterrupt


@contextmanager
def _session(given: SparkSession | None, master: str | None, stop: threading.Event) -> Iterator[SparkSession]:
    """The caller's session, one that runs already, or one of our own, which ends with us."""
    if given is not None:
        session.check(given)
        yield given
        return
    own = not session.runs()
    try:
        # The JVM only hands ranges out: its optimising compiler took half of all its processor time and gained nothing.
        yield session.start(master, short=True, stop=stop)
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
        session.send_files(spark, self.target.files)
        self.spark = spark.newSession()  # settings of ours are nobody else's
        self.progress, self.stop = progress, stop
        self.actions = self.events = self.batches = 0
        self.failures: dict[int, Failure] = {}
        self.fatal: Exception | None = None
        self._reported: dict[int, str] = {}
        self._held = Held.create(self._place, s.log.partitions)
        self._ending = threading.Event()
        self.spark.dataSource.register(log_source.LogSource)

    def run(self) -> None:
        """Carry until `stop` is set."""
        keeper = threading.Thread(target=self._keep, name="strandline-keeper", daemon=True)
        keeper.start()
        broken = 0
        try:
            while not self.stop.is_set():
                broken = self._query(None, broken)
        finally:
            self._ending.set()
            self.stop.set()
            keeper.join()
            self._held.remove()

    def run_once(self) -> None:
        """Carry up to the ends of now, write marks, carry up to them; trim, whatever came of it."""
        try:
            self._carry_to([offset + 1 for offset in self.s.log.newest()])
            wanted = marks.behind(self.s.store.pointers())
            if wanted and not self.stop.is_set():
                marks.write(self.s.log, wanted)
                self._carry_to([offset + 1 for offset in self.s.log.newest()])
        finally:
            self._held.remove()
            if self.fatal is None and not self.stop.is_set():
                try:
                    trim(self.s.log, self.s.store, self.s.settings)
                except StrandlineError as error:
                    _logger.warning("trimming waits: %s", error)

    def _carry_to(self, ends: list[int]) -> None:
        """Carry up to these positions. What is left when all that is left has failed for too long is raised."""
        broken = 0
        while not self.stop.is_set():
            left = [
                pointer.partition
                for pointer, end in zip(self.s.store.pointers(), ends, strict=True)
                if pointer.offset + 1 < end
            ]
            if not left:
                return
            failed = [self.failures[partition] for partition in left if partition in self.failures]
            if len(failed) == len(left):
                now = time.monotonic()
                if all(now - failure.since >= self.s.settings.append_timeout_s for failure in failed):
                    raise max(failed, key=lambda failure: failure.times).error
                self.stop.wait(max(0.0, min(failure.until for failure in failed) - now))
            broken = self._query(ends, broken)

    # ------------------------------------------------------------ one query

    def _query(self, ends: list[int] | None, broken: int) -> int:
        """Run a query until it ends, or is to end; how many in a row have broken by now."""
        self._ending.clear()
        if self.fatal is not None:  # found while the last one was waited for
            raise self.fatal
        self._broken_by: Exception | None = None
        before = self.batches
        try:
            folder = tempfile.mkdtemp(prefix="checkpoint-", dir=self._place)
            query = self._start(folder, ends)
        except Exception as failed:
            if not isinstance(failed, (OSError, *session.spark_errors())):
                raise
            return self._broke(_of_spark(failed), broken, patient=ends is None)
        while query.isActive and not self.stop.is_set() and not self._ending.is_set():
            self._ending.wait(LOOK_S)
        ended_itself = not query.isActive
        self._ending.set()
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
        if self.fatal is not None:
            raise self.fatal
        error = query.exception() if ended_itself else None
        if error is None:
            return 0
        why = self._broken_by or _of_spark(error)
        return self._broke(why, broken if self.batches == before else 0, patient=ends is None)

    def _start(self, folder: str, ends: list[int] | None) -> StreamingQuery:
        stream = self.spark.readStream.format(log_source.NAME).option("target", self.target.to_json())
        stream = stream.option("held", self._held.path).option("ends", orjson.dumps(ends).decode())
        context = self.spark.sparkContext
        slots = context.defaultParallelism if session.is_local(context.master) else None  # elsewhere they come and go
        stream = stream.option("slots", orjson.dumps(slots).decode())
        writer = stream.load().writeStream.foreachBatch(self._batch).option("checkpointLocation", folder)
        if ends is not None:
            return writer.trigger(availableNow=True).start()
        return writer.options(**session.UNLOGGED).trigger(processingTime="0 seconds").start()

    def _broke(self, error: Exception, broken: int, *, patient: bool) -> int:
        """What follows when a query broke: an error that would come again is raised, others are waited for."""
        if isinstance(error, StrandlineError) and (error.retry != "yes" or _moved(error)):
            raise error
        if patient and isinstance(error, Unavailable):
            _logger.warning("the pipeline waits: %s", error)
            self.stop.wait(AWAY_WAIT_S)
            return 0
        if broken + 1 >= BROKEN_QUERIES_MAX:
            raise _ended(error)
        _logger.warning("the query broke and is started again from the pointers: %s", error)
        self.stop.wait(min(BACK_OFF_MAX_S, BACK_OFF_S * 2**broken))
        return broken + 1

    def _batch(self, frame: DataFrame, _batch_id: int) -> None:
        if self.stop.is_set() or self._ending.is_set():
            return
        started = time.monotonic()
        mapped = frame.mapInArrow(partial(carry_ranges, self.target, self.lease.fence), RESULT_SCHEMA)
        try:
            results = [Result(*row) for row in mapped.collect()]
        except Exception as error:  # noqa: BLE001 - Spark's own errors are pages long, and it chokes on them
            if self._ending.is_set() or self.stop.is_set():
                return
            self._broken_by = _of_spark(error)
            raise self._broken_by from None
        try:
            self._take(results)
            self.batches += 1
            if self.progress is not None:
                self.progress(self._progress(time.monotonic() - started))
        except Exception as error:
            self._broken_by = error
            if isinstance(error, StrandlineError):
                raise
            self.fatal = error  # a caller's own, or a bug
            self._ending.set()

    # ------------------------------------------------------------ results

    def _take(self, results: list[Result]) -> None:
        self._last_actions = sum(result.actions for result in results)
        self._last_events = sum(result.events for result in results)
        self.actions += self._last_actions
        self.events += self._last_events
        for result in results:
            if result.error is None:
                self.failures.pop(result.partition, None)
            else:
                self._failed(result.partition, from_text(result.error))
        self._held.put({p: failure.until for p, failure in self.failures.items()}, self.s.log.partitions)
        errors = self._errors()
        if errors != self._reported:
            self.s.store.report(self.lease.fence, errors)
            self._reported = errors

    def _failed(self, partition: int, error: Exception) -> None:
        if isinstance(error, LeaseLost) or _moved(error):
            self.fatal = error
            self._ending.set()
            return
        now = time.monotonic()
        before = self.failures.get(partition)
        times = before.times + 1 if before else 1
        wait_s = min(BACK_OFF_MAX_S, BACK_OFF_S * 2 ** min(times - 1, 10))
        self.failures[partition] = Failure(error, times, before.since if before else now, now + wait_s)
        _logger.warning("partition %d failed and is tried again in %.1f s: %s", partition, wait_s, error)

    def _errors(self) -> dict[int, str]:
        return {partition: str(failure.error) for partition, failure in self.failures.items()}

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
        """Trimming, and a look at the lease, while the query runs."""
        trimmed = time.monotonic()
        while not self.stop.wait(self.s.settings.mark_idle_s / 4):
            try:
                self.lease.check()
                if time.monotonic() - trimmed >= TRIM_EVERY_S:
                    trim(self.s.log, self.s.store, self.s.settings)
                    trimmed = time.monotonic()
            except LeaseLost as error:
                self.fatal = error
                self._ending.set()
                return
            except StrandlineError as error:
                if _moved(error):
                    self.fatal = error
                    self._ending.set()
                    return
                _logger.warning("trimming waits: %s", error)


def _ended(error: Exception) -> Exception:
    if not isinstance(error, SparkBroke):
        return error
    return Unavailable(
        f"Spark ended the query: {error}",
        code="away",
        hint="see `strandline doctor`; what was carried is safe, run it again",
    )


def _of_spark(error: Exception) -> Exception:
    """What broke a query, in our words: an error that crossed Spark, no space, or Spark's own."""
    text = text_of(error)
    if os.strerror(errno.ENOSPC) in text:
        return Unavailable(
            "Spark has no space for its temporary files",
            code="no_space",
            hint=f"free some space in {tempfile.gettempdir()}, or set TMPDIR to a folder with more",
        )
    return crossed(text) or SparkBroke(_last_words(text) or type(error).__name__)


def _last_words(text: str) -> str:
    """What an error of Spark's says, in one line: where Python failed inside, what Python said last."""
    lines = text.strip().splitlines() or [""]
    if "Traceback (most recent call last):" in text:
        lines = [line for line in lines if _SAID.match(line)][-1:] or lines
    return lines[0][:300]


_SAID = re.compile(r"[\w.]+(Error|Exception|Failed)\b.*")


def _moved(error: Exception) -> bool:
    """Whether a file of the log or the store is not where it was: what comes back there is not what was carried."""
    return isinstance(error, StrandlineError) and bool(error.facts.get("moved"))
