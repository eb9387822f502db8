"""The plain host: runs projections in threads of this process, beside any number of other hosts.

Every second a host looks at its projections: it says that it lives, takes its even share of the ranges, gives back what
is more than that or was paused, cuts ranges anew where that was asked for, hands requests to the ranges that they are
for, and frees a range whose handler does not return. Each range that it owns has a thread (`range_runner`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event as Signal
from typing import Final, NamedTuple, Protocol

import orjson

from strandline.errors import NotFound, StrandlineError, Unavailable, invalid
from strandline.projection.alive import Alive, host_name
from strandline.projection.definition import ByTag, Projection
from strandline.projection.layout import RangeRow, cut_anew, line_of, share
from strandline.projection.offset_store import Claim, OffsetStore, ProjectionRow, Request, check_history
from strandline.projection.range_runner import RangeRunner
from strandline.projection.recovery import restart_delay_s
from strandline.projection.sources import opened_source
from strandline.query.pointer_watch import PointerWatch
from strandline.sql.api import Transaction
from strandline.store.api import Store

LOOK_S: Final = 1.0
"""How often requests, pauses and wanted ranges are looked at."""
_logger = logging.getLogger("strandline")


class Offsets(NamedTuple):
    """An offset store, and how hosts on it know that they live."""

    store: OffsetStore
    alive: Callable[[str | None], Alive]
    """For a host, or None for who only looks."""


class Journalled(Protocol):
    """What a host needs of `connect`."""

    @property
    def store(self) -> Store: ...

    pointer_watch: PointerWatch

    def check(self) -> None:
        """`InvalidInput.closed` once it was closed."""

    def open_offsets(self, url: str | None) -> Offsets:
        """Open an offset store; the caller closes it."""

    def strandline(self) -> int: ...


class _Run:
    """A projection on this host."""

    def __init__(self, projection: Projection, offsets: Offsets, alive: Alive, row: ProjectionRow) -> None:
        self.projection, self.offsets, self.alive, self.row = projection, offsets, alive, row
        self.runners: dict[int, RangeRunner] = {}
        self.beat_at = 0.0
        self.retry_at = 0.0
        """When a range that failed may start again (monotonic)."""
        self.forgot_at = time.monotonic()

    @property
    def lease_s(self) -> float:
        return self.projection.settings.lease_s

    def may_start(self) -> bool:
        """Whether the lease was renewed lately: nothing new is begun after two thirds without renewal."""
        return self.offsets.store.database.dialect == "sqlite" or time.monotonic() - self.beat_at < self.lease_s * 2 / 3


class Host:
    """Runs projections until it is stopped.

    host = Host(s, [projection])
    host.run()         # in a thread of the caller's; returns after host.stop(), from any thread
    """

    def __init__(self, s: Journalled, projections: Sequence[Projection]) -> None:
        listed = isinstance(projections, Sequence) and all(isinstance(one, Projection) for one in projections)
        if not listed or not projections:
            allowed = "a list of one Projection or more, as Host(s, [projection])"
            raise invalid("setting", "projections", "no projections", allowed=allowed, got=projections)
        names: set[tuple[str, int]] = set()
        for projection in projections:
            name = (projection.name, projection.generation)
            if name in names:
                raise invalid("projection_taken", "projections", "one twice", allowed="each once", got=projection.name)
            names.add(name)
        self._s, self._projections = s, list(projections)
        self.name = host_name()
        self._stop, self._wake = Signal(), Signal()
        self._runs: list[_Run] = []
        self.ready = Signal()
        """Set once it has looked at all its projections."""

    def stop(self) -> None:
        """Let `run` end: no new event, what is in hand ends or is undone, ranges are given back."""
        self._stop.set()
        self._wake.set()

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    def run(self) -> None:
        """Run the projections. `NotFound.projection` if one was renamed or dropped meanwhile, `InvalidInput.closed` if
        the connection was closed."""
        opened: dict[str | None, tuple[Offsets, Alive]] = {}
        try:
            for projection in self._projections:
                url = projection.settings.offset_store
                if url not in opened:
                    offsets = self._s.open_offsets(url)
                    opened[url] = offsets, offsets.alive(self.name)
                self._runs.append(self._begin(projection, *opened[url]))
            while not self._stop.is_set():
                self._s.check()
                for run in self._runs:
                    try:
                        self._look(run)
                    except Unavailable as error:
                        _logger.warning("%s: %s", run.projection.name, error)
                self.ready.set()
                self._wake.wait(self._next_look_s())
                self._wake.clear()
        finally:
            self._end()
            for offsets, alive in opened.values():
                alive.close()
                offsets.store.close()

    def _next_look_s(self) -> float:
        """Until requests are looked at again, or a range that failed may start again."""
        waits = [run.retry_at - time.monotonic() for run in self._runs]
        return min([LOOK_S, *(max(0.005, wait) for wait in waits if wait > -LOOK_S)])

    def _begin(self, projection: Projection, offsets: Offsets, alive: Alive) -> _Run:
        settings, source = projection.settings, projection.source
        if settings.isolation == "read_committed" and offsets.store.database.dialect == "sqlite":
            allowed = "serializable on SQLite, which has no other"
            raise invalid("setting", "isolation", "not there", allowed=allowed, got=settings.isolation)
        start = {"beginning": 0, "now": -1}.get(str(settings.start), settings.start)
        if start == -1:
            start = self._s.strandline() if settings.use_strandline else self._s.store.now_us()
        history = self._s.store.settings.history_id
        row = offsets.store.ensure(
            projection.name,
            projection.generation,
            source.text,
            start=int(start),
            partitions=1 if isinstance(source, ByTag) else self._s.store.settings.partitions,
            history_id=history,
        )
        check_history(row, history)
        run = _Run(projection, offsets, alive, row)
        self._beat(run)
        return run

    def _end(self) -> None:
        runners = [(run, runner) for run in self._runs for runner in run.runners.values()]
        for _, runner in runners:
            runner.stop()
        grace_s = max([run.projection.settings.shutdown_grace_s for run in self._runs], default=0.0)
        deadline = time.monotonic() + grace_s
        for run, runner in runners:
            if not runner.join(max(0.0, deadline - time.monotonic())):
                _logger.warning("%s: a handler does not return, and is left behind", runner.projection.name)
                with suppress(StrandlineError):
                    self._abandon(run, runner, "the host was stopped")
            else:
                self._let_go(run, runner)
        for run in self._runs:
            with suppress(StrandlineError), run.offsets.store.database.write() as tx:
                tx.execute("leave", (run.row.id, self.name))

    # ------------------------------------------------------------ every second

    def _look(self, run: _Run) -> None:
        store, id_ = run.offsets.store, run.row.id
        if time.monotonic() - run.beat_at > run.lease_s / 3:
            self._beat(run)
        self._watch_handlers(run)
        for lo, runner in list(run.runners.items()):
            if runner.ended.is_set():
                self._let_go(run, runner)
                del run.runners[lo]
        with store.look(id_) as (tx, row):
            rows, hosts, requests = store.ranges(tx, row), store.hosts(tx, id_), store.requests(tx, id_)
        if row.name != run.projection.name:
            raise NotFound(
                f"{run.projection.name} is called {row.name} now", code="projection", hint=f"run it as {row.name}"
            )
        run.row = row
        owned = {found.lo: found.fence for found in rows if found.owner == self.name}
        for lo, runner in run.runners.items():
            if owned.get(lo) != runner.claim.row.fence:
                runner.stop()  # it went to somebody else; what it has in hand is refused
        if row.paused or row.wanted is not None:
            for runner in run.runners.values():
                runner.stop()
            if row.wanted is not None:
                self._cut(run, hosts)
            return
        waiting = [request for request in requests if request.refused is None]
        for runner in run.runners.values():
            _ask(runner, waiting)
        for claim in self._share(run, row, rows, hosts):
            self._start(run, claim, waiting)
        self._forget(run, row, rows)

    def _beat(self, run: _Run) -> None:
        database = run.offsets.store.database
        before = time.monotonic()
        with database.write() as tx:
            tx.execute("beat", (run.row.id, self.name, database.now_us()))
        run.beat_at = before

    def _share(self, run: _Run, row: ProjectionRow, rows: Sequence[RangeRow], hosts: dict[str, int]) -> Sequence[Claim]:
        """Take and give back, so that all hosts that live have their share; what was taken."""
        store = run.offsets.store
        wanted = self._wanted(run, rows, hosts)
        for extra in wanted[1]:
            if extra.lo in run.runners:
                run.runners[extra.lo].stop()
        if not wanted[0]:
            return ()
        claims: list[Claim] = []
        with store.database.write() as tx:
            now_row = store.locked(tx, row.id)
            if now_row.paused or now_row.wanted is not None or now_row.epoch != row.epoch:
                return ()
            again = self._wanted(run, store.ranges(tx, now_row), store.hosts(tx, row.id))
            for free in again[0]:
                if free.lo in run.runners:
                    continue  # its thread has not ended yet
                taken = store.claim(tx, now_row, free, self.name)
                if taken is not None:
                    claims.append(Claim(now_row, taken))
        return claims

    def _wanted(
        self, run: _Run, rows: Sequence[RangeRow], hosts: dict[str, int]
    ) -> tuple[list[RangeRow], list[RangeRow]]:
        now = run.offsets.store.database.now_us()
        waits = [found.retry_at - now for found in rows if found.retry_at > now]
        run.retry_at = time.monotonic() + min(waits, default=-1e12) / 1_000_000
        # A range of ours without a thread is one that we could not give back: it is free for us.
        mine = [found._replace(owner=None) if self._lost(run, found) else found for found in rows]
        return share(mine, run.alive.living(hosts, now, run.lease_s), self.name, now)

    def _lost(self, run: _Run, row: RangeRow) -> bool:
        return row.owner == self.name and row.lo not in run.runners

    def _start(self, run: _Run, claim: Claim, requests: Sequence[Request]) -> None:
        projection = run.projection
        slices = opened_source(self._s.store, projection.source, claim.row.range)
        store = run.offsets.store
        if store.database.dialect == "sqlite":  # one that is stuck in a handler must not hold up the others
            store = self._s.open_offsets(projection.settings.offset_store).store
        runner = RangeRunner(projection, claim, store, slices, self._s.pointer_watch, run.may_start, self._wake.set)
        run.runners[claim.row.lo] = runner
        _logger.info("%s %s taken by %s, fence %d", projection.name, claim.row.range, self.name, claim.row.fence)
        _ask(runner, requests)  # before it begins: it may be stuck without them
        runner.start()

    def _cut(self, run: _Run, hosts: dict[str, int]) -> None:
        if not run.runners:
            store = run.offsets.store
            living = run.alive.living(hosts, store.database.now_us(), run.lease_s)
            with store.database.write() as tx:
                rescale_if_free(store, tx, run.row.id, living - {self.name})

    def _watch_handlers(self, run: _Run) -> None:
        """Free ranges whose handler does not return."""
        limit_s = run.projection.settings.handler_timeout_s
        for lo, runner in list(run.runners.items()):
            since = runner.handling_since
            if since is not None and time.monotonic() - since > limit_s:
                _logger.error(
                    "%s %s: a handler took more than %g s", run.projection.name, runner.claim.row.range, limit_s
                )
                self._abandon(run, runner, f"the handler took more than {limit_s:g} s")
                del run.runners[lo]

    def _let_go(self, run: _Run, runner: RangeRunner) -> None:
        if runner.offset_store is not run.offsets.store:
            runner.offset_store.close()

    def _abandon(self, run: _Run, runner: RangeRunner, why: str) -> None:
        runner.abandon()
        text = orjson.dumps({"error": "HandlerTimeout", "message": why}).decode()
        delay_s = restart_delay_s(runner.projection.settings, runner.claim.row.restarts, random.random())
        store = run.offsets.store
        store.take_away(runner.claim, text, store.database.now_us() + round(delay_s * 1_000_000))

    def _forget(self, run: _Run, row: ProjectionRow, rows: Sequence[RangeRow]) -> None:
        """The deletion run: one host of a projection does it, the owner of its first range."""
        settings = run.projection.settings
        if time.monotonic() - run.forgot_at < settings.delete_interval_s or rows[0].owner != self.name:
            return
        run.forgot_at = time.monotonic()
        line = line_of(rows, row.line, round(settings.delete_after_s * 1_000_000))
        if line > row.line or row.epoch > 1:
            run.offsets.store.forget(row, line)


def _ask(runner: RangeRunner, requests: Sequence[Request]) -> None:
    for request in requests:
        if request.slice in runner.claim.row.range:
            runner.ask(request)


def rescale_if_free(store: OffsetStore, tx: Transaction, id_: str, living: set[str]) -> bool:
    """Cut the ranges of a projection anew, if that is wanted and none of them is owned; whether it is done."""
    row = store.locked(tx, id_)
    if row.wanted is None:
        return True
    rows = store.ranges(tx, row)
    if any(found.owner is not None and found.owner in living for found in rows):
        return False
    cut = cut_anew(rows, store.slice_rows(tx, row), row.wanted)
    store.change(tx, store.cut(tx, row, cut))
    return True
