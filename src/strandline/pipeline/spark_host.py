"""Projections on Spark: the driver is the host, tasks run its ranges.

    driver   claims, renews and releases ranges, in the offset store that plain hosts use, too
      │ a job of one task for each range whose bound has moved or that was asked for something: none waits for another
      ▼
    task     runs its range up to the bound, for TASK_S at most, under the driver's fence

Progress is in the offset store alone: Spark remembers none, so a projection moves from one kind of host to the other at
any time. A task that dies leaves a claim that made no save, as a plain process does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event as Signal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from strandline.connect import Strandline
from strandline.errors import InvalidInput, StrandlineError, Unsupported
from strandline.pipeline import cluster, session
from strandline.pipeline.projection_task import ProjectionTask, ProjectionTaskResult, run_range
from strandline.pipeline.supervisor import BACK_OFF_S, BROKEN_PASSES_MAX, of_spark
from strandline.pipeline.target import JournalRef
from strandline.projection.definition import Projection
from strandline.projection.host import Host, HostedProjection, HostOffsets, Runner, slices_of
from strandline.projection.layout import RangeRow
from strandline.projection.offset_store import SWITCHING, OffsetStore, RangeClaim, SliceRequest
from strandline.projection.range_runner import FAILED, STOPPED
from strandline.rows import Pointer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "strandline projections"
TASK_S: Final = 2.0
"""How long a task runs at most: then the driver looks which ranges have something to do."""
POLL_S: Final = 0.01
"""How often Spark is asked whether tasks have ended, while there are few."""
FAILURES_MAX: Final = 3
"""How many times in a row a range of a rebuild may fail before the rebuild ends with its error."""


class RunningTask(NamedTuple):
    """A range under way on an executor."""

    run: HostedProjection
    runner: SparkRange
    work: ProjectionTask
    answer: Any
    """Spark's future of the result."""


class SparkRange:
    """A range that the driver owns. Tasks run it, round after round."""

    def __init__(self, run: HostedProjection, claim: RangeClaim, due: Callable[[], None]) -> None:
        self.projection, self.claim = run.projection, claim
        self.ended, self.stopping = Signal(), False
        self.handling_since: float | None = None  # tasks watch their handlers themselves
        self.asked: dict[str, SliceRequest] = {}
        self._done: set[str] = set()
        self.reached, self.levelled = -1, False
        self._store, self._due = run.store, due

    @property
    def offset_store(self) -> OffsetStore:
        return self._store

    def start(self) -> None:
        self._due()

    def stop(self) -> None:
        self.stopping = True
        self._due()

    lose = stop
    """A range that is lost stops in the same way: the store refuses what its task saves."""

    def ask(self, request: SliceRequest) -> None:
        if request.id not in self._done:
            self.asked[request.id] = request
            self._due()

    def join(self, timeout_s: float) -> bool:
        return self.ended.wait(timeout_s)

    def abandon(self) -> None:
        self.ended.set()

    def take(self, done: ProjectionTaskResult, asked: Sequence[SliceRequest]) -> None:
        """Take the result of a task. A task that lost its range, or failed, has released the range."""
        self.claim = self.claim._replace(row=done.row)
        self.reached, self.levelled = done.reached, done.levelled
        self._done.update(request.id for request in asked)
        self.asked = {id_: request for id_, request in self.asked.items() if id_ not in self._done}
        if done.outcome != STOPPED:
            self.ended.set()


class SparkHost(Host):
    """The driver's side: it owns the ranges and sends them to tasks."""

    def __init__(
        self, s: Strandline, projections: Sequence[Projection], target: JournalRef, spark: SparkSession, stop: Signal
    ) -> None:
        super().__init__(s, projections)
        from pyspark.cloudpickle import dumps

        self._stop = stop
        self._target, self._spark = target, spark
        self._payload = dumps(list(projections))
        self._due, self._over = Signal(), Signal()
        self._fatal: Exception | None = None
        self._cluster = cluster.watch_of(spark.sparkContext)
        # The import path of this machine means nothing on another: there handlers come from the submitted files.
        self._path = list(sys.path) if session.is_local(spark.sparkContext.master) else []
        self._running: list[RunningTask] = []
        self._ended_well = False
        self.until: Callable[[], bool] | None = None
        """Returns whether the host is to end by itself; None if it never does."""
        self._failed: Counter[tuple[str, int]] = Counter()
        self.gives_up = False
        """Whether a range that fails again and again ends the host."""

    def run(self) -> None:
        tasks = threading.Thread(target=self._tasks, name="strandline-tasks", daemon=True)
        tasks.start()
        try:
            super().run()
        finally:
            self._over.set()
            self._due.set()
            tasks.join(TASK_S)
            if self._running:  # tasks whose results are not wanted any more
                self._spark.sparkContext.cancelJobGroup(self.name)
        if self._fatal is not None:
            raise self._fatal

    # ------------------------------------------------------------ as a host

    def _begin(self, projection: Projection, offsets: HostOffsets) -> HostedProjection | None:
        master = self._spark.sparkContext.master
        if offsets.store.database.dialect == "sqlite" and not session.is_local(master):
            raise Unsupported(
                f"{projection.name}: its offsets are in a file of this machine; tasks on {master} cannot share it",
                code="not_shared",
                hint='give offset_store a postgresql: URL, or use a local master, such as "local[2]"',
            )
        return super()._begin(projection, offsets)

    def _tick_all(self) -> bool:
        seen = super()._tick_all()
        self._cluster.check(waits=bool(self._running))
        if self.until is not None and not self._waiting and self.until():
            self.stop()
        if self.gives_up:
            self._check_failures()
        return seen

    def _runner(self, run: HostedProjection, claim: RangeClaim) -> Runner:
        return SparkRange(run, claim, self._due.set)

    def _let_go(self, run: HostedProjection, runner: Runner) -> None:
        pass

    def _rows(self, run: HostedProjection) -> list[RangeRow]:
        with run.store.look(run.row.id) as (tx, row):
            return run.store.ranges(tx, row)

    def has_done(self, pointers: Sequence[Pointer]) -> bool:
        """Return whether all ranges have reached these pointers and answered all requests."""
        for run in self._runs:
            with run.store.look(run.row.id) as (tx, found):
                rows, requests = run.store.ranges(tx, found), run.store.requests(tx, run.row.id)
            if any(request.refused is None for request in requests):
                return False
            for row in rows:
                slices = slices_of(self._s.store, run.projection, RangeClaim(run.row, row), run.store, run.living)
                if row.position < slices.bound(pointers):
                    return False
        return True

    def state_of(self, projection: Projection) -> str:
        """Return the state of a generation that runs here."""
        return next(run.row.state for run in self._runs if run.projection is projection)

    def _check_failures(self) -> None:
        for run in self._runs:
            for row in self._rows(run):
                if row.failed is not None and self._failed[run.row.id, row.lo] >= FAILURES_MAX:
                    said = orjson.loads(row.failed)
                    where = f" at {said['key']} {said['seq_nr']}" if "key" in said else ""
                    raise InvalidInput(
                        f"{run.projection.name}: the handler failed{where}: {said['error']}: {said['message']}",
                        code="handler",
                        hint="mend the handler and rebuild again: it goes on there; or let it skip or park what fails",
                        field="handler",
                    )

    # ------------------------------------------------------------ tasks

    def _tasks(self) -> None:
        """Keep a task under way for each range that has something to do, each as a job, so that no range waits for
        another.
        """
        self._spark.sparkContext.setJobGroup(self.name, NAME, interruptOnCancel=True)
        broken, held_until = 0, 0.0
        while not self._over.is_set():
            self._due.clear()
            errors: list[Exception] = []
            try:
                errors += self._take_ended()
                broken = 0 if self._ended_well else broken
                if time.monotonic() >= held_until:
                    for run, runner in self._ready_ranges():
                        self._send_off(run, runner)
            except Exception as error:  # noqa: BLE001 (ours wait, others end the run: the host's thread says so)
                errors.append(error)
            # A lost executor takes several tasks with it: failures of one moment count once.
            if errors and time.monotonic() >= held_until:
                first = errors[0]
                if isinstance(first, StrandlineError) and first.retryable:
                    self._warnings.warning(first.name, "projections on Spark wait: %s", first)
                elif (broken := broken + 1) >= BROKEN_PASSES_MAX:
                    self._fatal = first
                    self.stop()
                    return
                held_until = time.monotonic() + BACK_OFF_S * 2**broken
            self._due.wait(POLL_S * max(1, len(self._running) // 8) if self._running else self._refresh_s())

    def _refresh_s(self) -> float:
        return min([run.projection.settings.refresh_interval_s for run in self._runs], default=0.05)

    def _ready_ranges(self) -> list[tuple[HostedProjection, SparkRange]]:
        """Return the ranges that have something to do, in the order of their positions; release the ranges that are to
        stop.
        """
        due: list[tuple[HostedProjection, SparkRange]] = []
        under_way = {id(task.runner) for task in self._running}
        for run in list(self._runs):
            pointers = self._s.pointer_watch.awaited(run.projection.settings.refresh_interval_s)
            for runner in list(run.runners.values()):
                if not isinstance(runner, SparkRange) or runner.ended.is_set() or id(runner) in under_way:
                    continue
                if runner.stopping:
                    run.store.release(runner.claim)
                    runner.ended.set()
                    self._wake.set()
                elif runner.asked or self._has_work(run, runner, pointers):
                    due.append((run, runner))
        due.sort(key=lambda each: each[1].reached)
        context = self._spark.sparkContext
        if not session.is_local(context.master):
            return due
        return due[: max(0, context.defaultParallelism - len(self._running))]

    def _has_work(self, run: HostedProjection, runner: SparkRange, pointers: Sequence[Pointer]) -> bool:
        claim = runner.claim
        if claim.projection.state == SWITCHING and not runner.levelled:
            return True
        slices = slices_of(self._s.store, run.projection, claim, run.store, run.living)
        return slices.bound(pointers) > max(runner.reached, claim.row.position)

    def _send_off(self, run: HostedProjection, runner: SparkRange) -> None:
        """Send a range to an executor and do not wait; `_take_ended` asks Spark now and then whether the task has
        ended.
        """
        left_s = run.beat_at + run.lease_s * 2 / 3 - time.monotonic()
        if not run.alive.beats:
            left_s = run.projection.settings.handler_timeout_s + TASK_S
        number = self._projections.index(run.projection)
        requests = tuple(runner.asked.values())
        work = ProjectionTask(number, runner.claim, requests, min(TASK_S, max(0.1, left_s * 0.8)), left_s)
        context = self._spark.sparkContext
        row = runner.claim.row
        context.setJobDescription(f"{NAME}: {run.projection.name}, slices {row.lo} to {row.hi}")
        task = partial(run_range, self._target, self._path, self._payload)
        answer = context.parallelize([work], 1).map(task)._jrdd.collectAsync()
        self._running.append(RunningTask(run, runner, work, answer))

    def _take_ended(self) -> list[Exception]:
        """Take the results of tasks that have ended; return the errors of tasks that failed in Spark itself."""
        self._ended_well = False
        errors: list[Exception] = []
        for task in [task for task in self._running if task.answer.isDone()]:
            self._running.remove(task)
            try:
                self._take(task, _result_of(task.answer))
                self._ended_well = True
            except Exception as error:  # noqa: BLE001 - Spark's own errors are pages long
                # the claim ended without a save: the range is claimed again, and the failure counted
                task.runner.ended.set()
                self._wake.set()
                if not (self._over.is_set() or self._stop.is_set()):
                    errors.append(of_spark(error))
        return errors

    def _take(self, task: RunningTask, done: ProjectionTaskResult) -> None:
        run, runner = task.run, task.runner
        runner.take(done, task.work.requests)
        if done.outcome == FAILED:
            self._failed[run.row.id, runner.claim.row.lo] += 1
        elif done.outcome == STOPPED:
            del self._failed[run.row.id, runner.claim.row.lo]
        if done.outcome != STOPPED or done.levelled or self.until is not None:
            self._wake.set()  # the host may have reached its end


def _result_of(answer: Any) -> ProjectionTaskResult:
    """Return the result of a job of one task that has ended, or raise what it raised."""
    from pyspark.serializers import CPickleSerializer

    ((result,),) = [CPickleSerializer().loads(bytes(batch)) for batch in answer.get()]
    return ProjectionTaskResult(*result)
