"""Hosts of projections that run step by step, in the thread of a program: what happens when is decided by the program.

Each host belongs to a process, with connections of its own. A step lets the host look at its projections once, or a
range run until there is nothing to do. Time passes where the product waits. What others do in the middle of a step is
done at a named seam: before and after each call to log, store and offsets, and around the handler.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from threading import Event, Thread
from typing import Any, Final
from uuid import UUID

from strandline.backends import backend_of
from strandline.connect import Strandline
from strandline.errors import StrandlineError, Unavailable
from strandline.projection.definition import Projection
from strandline.projection.host import Host, HostedProjection, Offsets, Runner, slices_of
from strandline.projection.live_feed import Ends, LogFeed
from strandline.projection.liveness import FileLockLiveness, HeartbeatLiveness, Liveness
from strandline.projection.management import Projections
from strandline.projection.offset_store import PART, SERVING, OffsetStore, RangeClaim
from strandline.projection.range_runner import RangeRunner
from strandline.settings import Settings
from strandline.testing.prove.worlds import Outage
from strandline.urls import Url, sql_url

MODULES: Final = (
    "projection.host", "projection.delivery", "projection.range_reader", "projection.range_runner",
    "projection.range_state", "projection.live_feed", "projection.management", "projection.offset_store",
    "query.pointer_watch",
)  # fmt: skip
"""What waits, or looks at the time."""
FEED_PAGES: Final = 4
"""So many come before a range takes any."""
BEGAN_US: Final = 1_767_225_600 * 10**6


class Stage:
    """The parts that all hosts of a program share: the time, which passes where something waits, and the seams."""

    def __init__(self, faults: Outage) -> None:
        self.faults, self.now_s = faults, 1000.0
        self.transactions = 0
        """How many transactions of offset stores are open: whoever has one may hold what others would wait for."""
        self.waited: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def now_us(self) -> int:
        return BEGAN_US + round(self.now_s * 1_000_000)

    def sleep(self, seconds: float) -> None:
        self.now_s += max(0.0, seconds)
        self.waited()

    @contextmanager
    def ruling(self) -> Iterator[None]:
        """Within, the parts of the product that run projections have this time; no id or delay is by chance."""
        chance = Random(0)
        replaced = {"time": self, "random": chance, "uuid4": lambda: UUID(int=chance.getrandbits(128))}
        with ExitStack() as undo:
            for name in MODULES:
                module = importlib.import_module(f"strandline.{name}")
                for attribute, instead in replaced.items():
                    if hasattr(module, attribute):
                        undo.callback(setattr, module, attribute, getattr(module, attribute))
                        setattr(module, attribute, instead)
            yield


class Patience(Event):
    """A signal that nobody else can set while one waits for it: time passes."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._stage.sleep(timeout or 0.0)
        return self.is_set()


class OffsetDatabase:
    """The database of an offset store, with seams before and after each transaction."""

    def __init__(self, database: Any, stage: Stage) -> None:
        self._database, self._stage, self._faults = database, stage, stage.faults
        self.now_us = stage.now_us

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def rows(self, *how: Any, **more: Any) -> Any:
        self._faults.reached("before offsets.read")
        return self._database.rows(*how, **more)

    def many(self, *how: Any) -> Any:
        self._faults.reached("before offsets.read")
        return self._database.many(*how)

    @contextmanager
    def read(self) -> Iterator[Any]:
        self._faults.reached("before offsets.read")
        with self._database.read() as tx:
            yield tx

    @contextmanager
    def write(self, **how: Any) -> Iterator[Any]:
        self._faults.reached("before offsets.write")
        with self._database.write(**how) as tx:
            self._stage.transactions += 1
            try:
                yield tx
                self._faults.reached("before offsets.commit")
            finally:
                self._stage.transactions -= 1
        self._faults.reached("after offsets.commit")

    def close(self) -> None:
        """Its process closes it."""


class Process:
    """The open log, store and offsets of a host. Others of its process share its connection to log and store."""

    def __init__(self, s: Strandline, url: str, stage: Stage, *, beats: bool) -> None:
        self.s, self.stage, self._beats = s, stage, beats
        self.store, self.log, self.pointer_watch = s.store, s.log, s.pointer_watch
        self._url: Url = sql_url("offset_store", url)
        self._databases: list[Any] = []
        self._alive: list[Liveness] = []

    def check(self) -> None:
        self.s.check()

    def strandline(self) -> int:
        return self.s.strandline()

    def open_offsets(self, url: str | None = None) -> Offsets:
        """The offset store: for a host, and once more for its ranges, which run one after the other. A host lives by
        its beat, or by a lock on a file where offsets are in one."""
        if len(self._databases) < 2:
            self._databases.append(backend_of(self._url).open_database(self._url, PART, Settings(), None, fixed={}))
        store = OffsetStore(OffsetDatabase(self._databases[-1], self.stage))
        return Offsets(store, self._is_alive)

    def _is_alive(self, host: str | None) -> Liveness:
        path = self._url.path
        alive: Liveness = HeartbeatLiveness() if self._beats or path is None else FileLockLiveness(path.resolve(), host)
        self._alive.append(alive)
        return alive

    @property
    def projections(self) -> Projections:
        """The operations on projections, as operators call them."""
        return Projections(self.store, self.open_offsets, lambda: (0.0, True))

    def kill(self) -> None:
        """End it as if it were killed: nothing is given back, but files and connections are nobody's any more."""
        for alive in self._alive:
            if isinstance(alive, FileLockLiveness) and alive._held >= 0:
                os.close(alive._held)
                alive._held = -1
        self.close()

    def close(self) -> None:
        for database in self._databases:
            database.close()


class SteppedRange(RangeRunner):
    """A range that runs when it is told."""

    def begin_with(self, stage: Stage) -> None:
        self._state.stop, self._state.wake = Patience(stage), Patience(stage)
        self._steps = self._rounds()
        self.begun = self.busy = False

    def start(self) -> None:
        self.begun = True

    def step(self) -> None:
        """Run until there is nothing to do."""
        if self.begun and not self.busy and not self.ended.is_set():
            self.busy = True
            try:
                next(self._steps, None)
            finally:
                self.busy = False

    def join(self, timeout_s: float) -> bool:
        self.step()
        return self.ended.is_set() or not self.begun


class SteppedFeed(LogFeed):
    """A feed that hands over when it is told."""

    _ends: Ends | None = None

    def _started(self) -> Thread | None:
        return None

    def step(self) -> None:
        """Hand over what is new."""
        try:
            if self._ends is None:
                self._ends = Ends(self._log)
            self._ends.newest = self._log.newest()
            self._round(self._ends)
        except StrandlineError:  # it begins again, as in its thread
            self._tails.clear()


class SteppedHost(Host):
    """A host that looks when it is told."""

    def __init__(self, process: Process, projections: Sequence[Projection], name: str) -> None:
        super().__init__(process, projections)
        self.process, self.stage, self.name = process, process.stage, name
        self._wake, self._stop = Patience(self.stage), Patience(self.stage)
        fed = [one.settings.keys_in_memory_max for one in projections if one.settings.feed]
        self._feed: SteppedFeed | None = None
        if fed:
            self._feed = SteppedFeed(self._s.log, self._s.store, self._s.pointer_watch, min(fed))
        self.opened = self.busy = False

    def _runner(self, run: HostedProjection, claim: RangeClaim) -> Runner:
        projection, store = run.projection, run.offsets.of_range()
        slices = slices_of(self._s.store, projection, claim, store, run.living)
        feed = self._feed if projection.settings.feed and claim.projection.state == SERVING else None
        watch = self._s.pointer_watch
        runner = SteppedRange(projection, claim, store, slices, watch, run.may_start, self._wake.set, feed)
        runner.begin_with(self.stage)
        return runner

    @property
    def ranges(self) -> list[SteppedRange]:
        """The ranges that it runs, in their order."""
        found = [runner for run in self._runs for _, runner in sorted(run.runners.items())]
        return [runner for runner in found if isinstance(runner, SteppedRange)]

    def look(self) -> bool:
        """Look at all projections; False if it is over."""
        if not self.opened:
            self.opened = True
            with suppress(Unavailable):
                self._open()
        self._tick_all()
        return bool(self._runs or self._waiting)

    def step(self) -> None:
        """Let the feed and every range run until there is nothing to do."""
        for _ in range(FEED_PAGES if self._feed is not None else 0):
            self._feed.step()  # type: ignore[union-attr]
        for runner in self.ranges:
            runner.step()

    def beat(self) -> None:
        """As its own thread does while ranges wait."""
        if not self.stage.transactions:
            with suppress(Unavailable):
                for run in self._runs:
                    if run.alive.beats and self.stage.now_s - run.beat_at > run.lease_s / 3:
                        self._beat(run)

    def watch_handlers(self) -> None:
        """As a host does before anything else: free ranges whose handler does not return."""
        for run in self._runs:
            self._look_at(run, self._watch_handlers)

    def finish(self) -> None:
        """Stop in order."""
        self.stop()
        self._close()
