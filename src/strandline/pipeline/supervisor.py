"""Supervise: run a job on Spark, batch by batch, until it is stopped or has come to its end.

                 ┌────────────────────────────────────┐
                 ▼                                    │ Spark broke it, or log or store are away
    take lease ─▶ pass ─▶ batch ─▶ batch ─▶ … ─▶ end ──┘
                                                  │
                                                  └─▶ stopped, or `once` is done ─▶ give the lease back

A job defines the work. Its planner, in this process, plans ranges batch by batch. Its task does one range and never
fails: an error is its result. A batch is one Spark job. The supervisor is the same for all jobs: it goes on after an
error that broke a pass, holds failed parts back while the others go on, watches the lease and the cluster, and reports
progress. Only what the tasks wrote says what is done; no state of Spark does.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from strandline.connect import Strandline
from strandline.errors import LeaseLost, StrandlineError, Unavailable, Unsupported, counted, text_of
from strandline.pipeline import cluster, jvm, session
from strandline.pipeline.failures import crossed, from_text
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import RangeResult, RangeTask, Task, do_ranges
from strandline.repeated_warnings import RepeatedWarnings
from strandline.store.api import Lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACK_OFF_S, BACK_OFF_MAX_S = 0.1, 5.0
LOOK_S = 0.1
BESIDE_EVERY_S = 60.0
BROKEN_PASSES_MAX = 5
"""How many passes in a row may break, without a batch in between, while log and store are reachable."""
AWAY_WAIT_S = 1.0
POLL_S = 0.01
BATCHES = "strandline-batches"
UNDER_WAY_S = 5.0
"""How often progress is reported while a batch is under way."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PartFailure:
    """A part of the work that failed: its error, how often in a row, since when, and until when it is held back."""

    error: Exception
    times: int
    since: float
    until: float


class SparkBroke(Exception):
    """Spark itself failed, not one of our tasks."""


class BatchPlanner(Protocol):
    """Plans batches, for one pass."""

    def tasks(self, held: Mapping[int, float]) -> Sequence[Sequence[RangeTask]]:
        """Return the tasks of the next batch, each a list of ranges. An empty list says that there is nothing to do
        now: a pass with ends is then over; any other asks again, so this should wait a little for work. Parts that are
        `held`, until a time (monotonic), are left out.
        """


class Job(Protocol):
    """A job that runs batch by batch.

    It has parts, numbered from 0 (a partition of the log, a range of slices). Each is done in order, and fails and
    waits by itself.
    """

    @property
    def name(self) -> str:
        """Return the name that its Spark jobs have."""

    @property
    def parts(self) -> int:
        """Return how many parts there are."""

    @property
    def task(self) -> Task:
        """The function that does one range on an executor. It must be a module's function, because it travels by its
        name.
        """

    @property
    def result(self) -> type[RangeResult]:
        """The class of a range's result."""

    def take_lease(self, holder: str) -> Lease:
        """Take the lease of this job; `LeaseHeld` if another process has it. The tasks write under its fence."""

    def planner(self, slots: int | None, ends: Sequence[int] | None) -> BatchPlanner:
        """Return a planner, which begins where the work stands. `slots` is how many tasks run at once, None if that is
        not known. With `ends`, positions by part, it plans up to these.
        """

    def rounds(self) -> Iterator[Sequence[int]]:
        """Yield the ends that a run `once` has to reach, one round after the other. The next round is asked for when
        one is reached.
        """

    def unfinished(self, ends: Sequence[int]) -> list[int]:
        """Return the parts that have not reached these ends."""

    def take(self, results: Sequence[Any], errors: Mapping[int, str]) -> None:
        """Take the results of a batch, and all parts that fail now."""

    def progress(self, batch: int, seconds: float, errors: Mapping[int, str], *, under_way: bool = False) -> Any:
        """Return the progress after a batch, or of one that is under way. It is called only if the run reports
        progress.
        """

    def maintain(self) -> None:
        """Do the upkeep that is due now and then while the job runs, and at the end of a run `once`."""


def supervise(
    s: Strandline,
    target: JournalRef,
    job: Job,
    *,
    once: bool = False,
    progress: Callable[[Any], None] | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
) -> None:
    """Run a job until `stop` is set, or with `once` to the end of its rounds, under a lease that is released at the
    end.

    Without a `spark` session one is started on `master`, this machine by default, and ended.
    """
    check_shared(s, spark.sparkContext.master if spark else master)
    lease = job.take_lease(f"{socket.gethostname()} pid {os.getpid()}")
    stop = stop or threading.Event()
    try:
        with suppress(jvm.JvmUnwanted), interrupted_in_order(stop), open_session(spark, master, stop) as running:
            supervisor = Supervisor(s, target, running, lease, job, progress, stop)
            supervisor.run_once() if once else supervisor.run()
    except BaseException:
        with suppress(StrandlineError):  # the first error is the one to raise
            lease.release()
        raise
    lease.release()


@contextmanager
def interrupted_in_order(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C set `stop`, and raise it when the run is over; a third Ctrl-C is raised at once.

    Raised in the middle of a call to the JVM, it would leave half an answer behind, which the next call takes for its
    own.
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
def open_session(given: SparkSession | None, master: str | None, stop: threading.Event) -> Iterator[SparkSession]:
    """Yield the caller's session, one that runs already, or a new one, which ends with this block."""
    if given is not None:
        session.check(given, stop)
        yield given
        return
    own = not session.runs()
    try:
        # The JVM only hands ranges out: its optimising compiler took half of its processor time and gained nothing.
        yield session.start(master, short=True, stop=stop)
    finally:
        if own:
            session.end()


def check_shared(s: Strandline, master: str | None) -> None:
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


class Supervisor:
    """The supervisor of one job."""

    def __init__(
        self,
        s: Strandline,
        target: JournalRef,
        spark: SparkSession,
        lease: Lease,
        job: Job,
        progress: Callable[[Any], None] | None,
        stop: threading.Event,
    ) -> None:
        self.s, self.lease, self.job = s, lease, job
        self._place = jvm.temporary_folder()
        self.target = target.by_reference(self._place)
        session.send_files(spark, self.target.files)
        self.spark = spark
        self.progress, self.stop = progress, stop
        self.batches = 0
        self.failures: dict[int, PartFailure] = {}
        self.fatal: Exception | None = None
        self._ending = threading.Event()
        self._group = f"strandline-{uuid.uuid4().hex}"
        self._warnings = RepeatedWarnings(_logger)
        self._cluster = cluster.watch_of(spark.sparkContext)
        self._batch_since: float | None = None
        self._telling = threading.Lock()
        """When the batch in hand began (monotonic)."""
        self._told_at = 0.0

    def run(self) -> None:
        """Work until `stop` is set."""
        keeper = threading.Thread(target=self._keep, name="strandline-keeper", daemon=True)
        keeper.start()
        broken = 0
        try:
            while not self.stop.is_set():
                broken = self._pass(None, broken)
        finally:
            self._ending.set()
            self.stop.set()
            keeper.join()

    def run_once(self) -> None:
        """Reach the ends of each round; then do the job's upkeep, even after an error."""
        rounds = self.job.rounds()
        try:
            while not self.stop.is_set() and (ends := next(rounds, None)) is not None:
                self._reach(ends)
        finally:
            if self.fatal is None and not self.stop.is_set():
                try:
                    self.job.maintain()
                except StrandlineError as error:
                    self._warn(error, "what is done beside the batches waits: %s", error)

    def _reach(self, ends: Sequence[int]) -> None:
        """Work up to these ends. Once all parts that are left have failed for too long, raise the error of one."""
        broken = 0
        while not self.stop.is_set():
            left = self.job.unfinished(ends)
            if not left:
                return
            failed = [self.failures[part] for part in left if part in self.failures]
            if len(failed) == len(left):
                now = time.monotonic()
                if all(now - failure.since >= self.s.settings.append_timeout_s for failure in failed):
                    raise max(failed, key=lambda failure: failure.times).error
                self.stop.wait(max(0.0, min(failure.until for failure in failed) - now))
            broken = self._pass(ends, broken)

    # ------------------------------------------------------------ one pass

    def _pass(self, ends: Sequence[int] | None, broken: int) -> int:
        """Do batches until they end or have to stop; return how many passes in a row have broken by now."""
        self._ending.clear()
        if self.fatal is not None:  # found while the previous pass was ending
            raise self.fatal
        before, broken_by = self.batches, list[Exception]()
        batches = threading.Thread(target=self._batches, args=(ends, broken_by), name=BATCHES, daemon=True)
        batches.start()
        while batches.is_alive() and not self.stop.is_set() and not self._ending.is_set():
            batches.join(LOOK_S)
            try:
                self._cluster.check(waits=self._batch_since is not None)
                self._tell_of_batch()
            except Exception as gone:  # noqa: BLE001 - the cluster is gone, or a caller's own
                self._end(gone)
        interrupted = batches.is_alive()
        self._ending.set()
        while batches.is_alive():
            with suppress(*session.spark_errors()):
                self.spark.sparkContext.cancelJobGroup(self._group)
            batches.join(LOOK_S)
        if self.fatal is not None:
            raise self.fatal
        if interrupted or not broken_by:
            return 0
        (why,) = broken_by
        return self._broke(why, broken if self.batches == before else 0, patient=ends is None)

    def _batches(self, ends: Sequence[int] | None, broken_by: list[Exception]) -> None:
        """Plan batches and do them. An error that breaks the pass is put into `broken_by`."""
        context = self.spark.sparkContext
        gather_s = 0.0 if ends is not None else self.s.settings.tag_flush_interval_s
        try:
            context.setJobGroup(self._group, self.job.name, interruptOnCancel=True)
            # a cluster's executors come and go
            slots = context.defaultParallelism if session.is_local(context.master) else None
            planner = self.job.planner(slots, ends)
            while not (self.stop.is_set() or self._ending.is_set()):
                next_at = time.monotonic() + gather_s
                tasks = planner.tasks(self._held())
                if tasks:
                    self._batch(tasks)
                elif ends is not None:
                    return
                self._ending.wait(max(0.0 if tasks else POLL_S, next_at - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - what follows is decided by the thread that waits
            ours = isinstance(error, (StrandlineError, SparkBroke))
            if ours or isinstance(error, (OSError, *session.spark_errors())):
                broken_by.append(error if ours else of_spark(error))
            else:
                self._end(error)  # a bug

    def _held(self) -> dict[int, float]:
        """Return the parts that failed and are not tried again yet, and until when."""
        now = time.monotonic()
        return {part: failure.until for part, failure in self.failures.items() if failure.until > now}

    def _broke(self, error: Exception, broken: int, *, patient: bool) -> int:
        """Handle a pass that broke: raise an error that would only come again; after any other wait, and return the new
        count of broken passes.
        """
        if isinstance(error, StrandlineError) and (error.retry != "yes" or _moved(error)):
            raise error
        if patient and isinstance(error, Unavailable):
            self._warn(error, "the pipeline waits: %s", error)
            self.stop.wait(AWAY_WAIT_S)
            return 0
        if broken + 1 >= BROKEN_PASSES_MAX:
            raise _ended(error)
        self._warn(error, "a batch broke, and the next begins at the pointers: %s", error)
        self.stop.wait(min(BACK_OFF_MAX_S, BACK_OFF_S * 2**broken))
        return broken + 1

    def _batch(self, tasks: Sequence[Sequence[RangeTask]]) -> None:
        self._batch_since = self._told_at = started = time.monotonic()
        task = partial(do_ranges, self.job.task, self.job.result, self.target, self.lease.fence)
        context = self.spark.sparkContext
        context.setJobDescription(f"{self.job.name}: batch {self.batches + 1}, {counted(sum(map(len, tasks)), 'part')}")
        try:
            results = context.parallelize(tasks, len(tasks)).mapPartitions(task).collect()
        finally:
            self._batch_since = None
        for result in results:
            if result.error is None:
                self.failures.pop(result.part, None)
            else:
                self._failed(result.part, from_text(result.error))
        errors = self._errors()
        self.job.take(results, errors)
        self.batches += 1
        if self.progress is not None:
            told = self.job.progress(self.batches, time.monotonic() - started, errors)
            try:
                with self._telling:
                    self.progress(told)
            except Exception as error:  # noqa: BLE001 - a caller's own
                self._end(error)

    def _tell_of_batch(self) -> None:
        """Report the progress of a batch that takes long, now and then."""
        since, now = self._batch_since, time.monotonic()
        if self.progress is None or since is None or now - self._told_at < UNDER_WAY_S:
            return
        self._told_at = now
        try:
            told = self.job.progress(self.batches + 1, now - since, self._errors(), under_way=True)
        except Unavailable:  # the batch finds that out, too
            return
        with self._telling:
            if self._batch_since == since:  # else the batch has ended, and its end was reported
                self.progress(told)

    def _errors(self) -> dict[int, str]:
        return {part: str(failure.error) for part, failure in list(self.failures.items())}

    def _failed(self, part: int, error: Exception) -> None:
        if isinstance(error, LeaseLost) or _moved(error):
            self._end(error)
            return
        now = time.monotonic()
        before = self.failures.get(part)
        times = before.times + 1 if before else 1
        wait_s = min(BACK_OFF_MAX_S, BACK_OFF_S * 2 ** min(times - 1, 10))
        self.failures[part] = PartFailure(error, times, before.since if before else now, now + wait_s)
        self._warn(error, "partition %d failed and is tried again in %.1f s: %s", part, wait_s, error, part=part)

    def _warn(self, error: Exception, text: str, *arguments: object, part: int | None = None) -> None:
        """Log a warning. While a server is away, all warnings about it count as repeats of one."""
        if isinstance(error, Unavailable):
            self._warnings.warning((error.name, error.message.partition(": ")[0]), text, *arguments)
        else:
            self._warnings.warning((type(error), part), text, *arguments)

    def _end(self, why: Exception) -> None:
        """End the job: it cannot go on."""
        self.fatal = why
        self._ending.set()

    # ------------------------------------------------------------ beside the batches

    def _keep(self) -> None:
        """Check the lease and do the job's upkeep, while batches are done."""
        done = time.monotonic()
        while not self.stop.wait(self.s.settings.mark_idle_s / 4):
            try:
                self.lease.check()
                if time.monotonic() - done >= BESIDE_EVERY_S:
                    self.job.maintain()
                    done = time.monotonic()
            except StrandlineError as error:
                if isinstance(error, LeaseLost) or _moved(error):
                    self._end(error)
                    return
                self._warn(error, "what is done beside the batches waits: %s", error)


def _ended(error: Exception) -> Exception:
    if not isinstance(error, SparkBroke):
        return error
    return Unavailable(
        f"Spark ended the run: {error}",
        code="away",
        hint="see `strandline doctor`; what was carried is safe, run it again",
    )


def of_spark(error: Exception) -> Exception:
    """Return the error that broke a Spark job: the `StrandlineError` in Spark's text, no disk
    space, or `SparkBroke`.
    """
    text = text_of(error)
    if os.strerror(errno.ENOSPC) in text:
        return Unavailable(
            "Spark has no space for its temporary files",
            code="no_space",
            hint=f"free some space in {tempfile.gettempdir()}, or set TMPDIR to a folder with more",
        )
    return crossed(text) or SparkBroke(_last_words(text) or type(error).__name__)


def _last_words(text: str) -> str:
    """Return the message of Spark's error in one line: where Python failed inside, Python's last line."""
    lines = text.strip().splitlines() or [""]
    if "Traceback (most recent call last):" in text:
        lines = [line for line in lines if _SAID.match(line)][-1:] or lines
    return lines[0][:300]


_SAID = re.compile(r"[\w.]+(Error|Exception|Failed)\b.*")


def _moved(error: Exception) -> bool:
    """Return whether a file of log or store was moved or replaced: a new file in its place has other contents."""
    return isinstance(error, StrandlineError) and bool(error.facts.get("moved"))
