"""The plain host: runs projections in threads of this process, beside any number of other hosts.

Every second a host looks at its projections. It beats, takes its even share of the ranges, gives back surplus and
paused ranges, does requested rescales, passes requests on to their ranges, frees a range whose handler does not return,
and makes switches of generations (`generations`). Each range that it owns has a thread (`range_runner`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Event as Signal
from typing import Final, NamedTuple, Protocol, TypeVar

import orjson

from strandline.errors import NotFound, StrandlineError, Unavailable, invalid
from strandline.log.api import Log
from strandline.points import reached
from strandline.projection.definition import ByTag, Projection
from strandline.projection.ended_lives import forget_ended
from strandline.projection.generations import BoundedSlices, Living, switch_if_done
from strandline.projection.handler_tx import HandlerTransaction
from strandline.projection.layout import RangeRow, Share, cut_anew, line_of, share
from strandline.projection.live_feed import LogFeed
from strandline.projection.liveness import Beat, Liveness, host_name
from strandline.projection.offset_store import (
    BUILDING,
    READY,
    RETIRED,
    SERVING,
    SWITCHING,
    OffsetStore,
    ProjectionRow,
    RangeClaim,
    SliceRequest,
    check_history,
)
from strandline.projection.range_runner import RangeRunner
from strandline.projection.recovery import HandlerFailure, restart_delay_s
from strandline.projection.sources import opened_source
from strandline.query.pointer_watch import PointerWatch
from strandline.query.slices import Slices
from strandline.repeated_warnings import RepeatedWarnings
from strandline.sql.api import Transaction
from strandline.store.api import Store

LOOK_S: Final = 1.0
"""How often a host looks for requests, pauses and rescales."""
_logger = logging.getLogger("strandline")


class Offsets(NamedTuple):
    """An offset store, and what tells living hosts on it from dead ones."""

    store: OffsetStore
    alive: Callable[[str | None], Liveness]
    """Called with a host's name, or with None by a caller that only reads."""


class HostConnection(Protocol):
    """The part of a connection that a host needs."""

    @property
    def store(self) -> Store: ...

    @property
    def log(self) -> Log: ...

    pointer_watch: PointerWatch

    def check(self) -> None:
        """Raise `InvalidInput.closed` if the connection is closed."""

    def open_offsets(self, url: str | None) -> Offsets:
        """Open an offset store; the caller closes it."""

    def strandline(self) -> int: ...


class Runner(Protocol):
    """Runs a range that a host owns: in a thread, or on Spark."""

    projection: Projection
    ended: Signal

    @property
    def claim(self) -> RangeClaim:
        """Its claim, as it was last saved."""

    @property
    def handling_since(self) -> float | None:
        """When the handler that runs now was called (monotonic); None if none runs."""

    @property
    def offset_store(self) -> OffsetStore: ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """Give the range back after the event or list that the handler has now."""

    def lose(self) -> None:
        """Stop, because another host has the range."""

    def ask(self, request: SliceRequest) -> None:
        """Carry a request out, once."""

    def join(self, timeout_s: float) -> bool:
        """Wait until the run has ended; return whether it has."""

    def abandon(self) -> None:
        """Give up on a handler that does not return: nothing that it does later counts."""


class HostOffsets:
    """An offset store that a host has open, for itself and separately for its ranges: the host never waits for a
    transaction of a range.
    """

    def __init__(self, s: HostConnection, url: str | None, host: str) -> None:
        offsets = s.open_offsets(url)
        self.store, self.alive = offsets.store, offsets.alive(host)
        self._s, self._url = s, url
        self._shared: OffsetStore | None = None

    def of_range(self) -> OffsetStore:
        """Return the offset store of a range. On SQLite each range has its own, so a hanging
        handler blocks no other range.
        """
        if self.store.database.dialect == "sqlite":
            return self._s.open_offsets(self._url).store
        if self._shared is None:
            self._shared = self._s.open_offsets(self._url).store
        return self._shared

    def let_go(self, store: OffsetStore) -> None:
        """Release the offset store of a range that has ended."""
        if store is not self._shared:
            store.close()

    def close(self) -> None:
        self.alive.close()
        self.store.close()
        if self._shared is not None:
            self._shared.close()


class HostedProjection:
    """A projection on this host."""

    def __init__(self, projection: Projection, offsets: HostOffsets, row: ProjectionRow) -> None:
        self.projection, self.offsets, self.row = projection, offsets, row
        self.store, self.alive = offsets.store, offsets.alive
        self.runners: dict[int, Runner] = {}
        self.beat_at = 0.0
        self.retry_at = 0.0
        """When each failed range may start again (monotonic)."""
        self.forgot_at = time.monotonic()
        self.forgetting: Iterator[int] | None = None
        """The remaining steps of the current deletion run; None if there is none."""
        self.goal: list[int] | None = None
        """Of a build: what the serving generation had done when this host first looked."""

    def living(self, tx: Transaction, row: ProjectionRow) -> set[str]:
        """Return the hosts of a generation that live."""
        return self.alive.living(self.store.hosts(tx, row.id), self.store.database.now_us())

    @property
    def lease_s(self) -> float:
        return self.projection.settings.lease_s

    def may_start(self) -> bool:
        """Return whether a range may begin new work: the lease was renewed less than two thirds of its length ago."""
        return not self.alive.beats or time.monotonic() - self.beat_at < self.lease_s * 2 / 3


class _Waiting(NamedTuple):
    """A projection whose generation has not begun yet, while another generation serves."""

    projection: Projection
    offsets: HostOffsets


L = TypeVar("L", HostedProjection, _Waiting)


class Host:
    """Runs projections until it is stopped, or until later generations serve instead of all of its own.

    host = Host(s, [projection])
    host.run()         # in a thread of the caller's; returns after host.stop(), from any thread
    """

    def __init__(self, s: HostConnection, projections: Sequence[Projection]) -> None:
        if not hasattr(s, "pointer_watch"):
            raise invalid("setting", "s", "no connection", allowed="what strandline.connect gives", got=s)
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
        self._runs: list[HostedProjection] = []
        self._waiting: list[_Waiting] = []
        self._waited: set[str] = set()
        """Names of projections that existed when their generation had not begun. The host does not make them again."""
        self._opened: dict[str | None, HostOffsets] = {}
        fed = [one.settings.keys_in_memory_max for one in projections if one.settings.feed]
        self._feed = LogFeed(s.log, s.store, s.pointer_watch, min(fed)) if fed else None
        self._warnings = RepeatedWarnings(_logger)
        self.ready = Signal()
        """Set once the host has looked at all its projections."""

    def stop(self) -> None:
        """Make `run` return. Ranges take no new events, end or undo the current one, and are given back."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Run the projections. Raises `NotFound.projection` if one is renamed or dropped meanwhile, and
        `InvalidInput.closed` if the connection is closed.
        """
        try:
            self._open()
            while not self._stop.is_set():
                self._s.check()
                if self._tick_all():
                    self.ready.set()
                if not self._runs and not self._waiting:
                    break
                self._wake.wait(self._next_look_s())
                self._wake.clear()
        finally:
            self._close()

    def _open(self) -> None:
        """Open the offset stores of its projections."""
        for projection in self._projections:
            url = projection.settings.offset_store
            if url not in self._opened:
                self._opened[url] = HostOffsets(self._s, url, self.name)
            self._waiting.append(_Waiting(projection, self._opened[url]))

    def _close(self) -> None:
        """Give all ranges back and close the offset stores."""
        self._end(self._runs)
        if self._feed is not None:
            self._feed.close()
        for offsets in self._opened.values():
            offsets.close()

    def _tick_all(self) -> bool:
        """Begin projections that can begin, and look at all that run; return whether every look succeeded."""
        # Handlers come first: one that hangs may hold a lock that the steps below wait for.
        seen = [self._look_at(run, self._watch_handlers) for run in self._runs]
        seen += [self._look_at(waiting, self._look_whether_to_begin) for waiting in list(self._waiting)]
        seen += [self._look_at(run, self._tick) for run in list(self._runs)]
        return all(seen)

    def _look_at(self, one: L, look: Callable[[L], None]) -> bool:
        """Look at a projection. If its database is away, the next look tries again."""
        try:
            look(one)
        except Unavailable as error:
            self._warnings.warning((one.projection.name, error.name), "%s: %s", one.projection.name, error)
            return False
        except NotFound as gone:
            if not isinstance(one, HostedProjection) or not self._is_over(one.projection, one.store):
                raise gone from None
            self._leave(one)
        return True

    def _look_whether_to_begin(self, waiting: _Waiting) -> None:
        begun = self._begin(*waiting)
        if begun is not None:
            self._runs.append(begun)
        if begun is not None or self._is_over(waiting.projection, waiting.offsets.store):
            self._waiting.remove(waiting)

    def _is_over(self, projection: Projection, store: OffsetStore) -> bool:
        """Return whether a later generation serves."""
        return any(
            row.state == SERVING and row.generation > projection.generation
            for row in store.generations(projection.name)
        )

    def _next_look_s(self) -> float:
        """Return the time until the next look at requests, or until a failed range may start again."""
        waits = [run.retry_at - time.monotonic() for run in self._runs]
        return min([LOOK_S, *(max(0.005, wait) for wait in waits if wait > -LOOK_S)])

    def _begin(self, projection: Projection, offsets: HostOffsets) -> HostedProjection | None:
        """Begin to run a projection, and make it if its name is new. Return None while its generation has not begun."""
        settings, source = projection.settings, projection.source
        if settings.isolation == "read_committed" and offsets.store.database.dialect == "sqlite":
            allowed = "repeatable_read or serializable on SQLite, where transactions come one after the other"
            raise invalid("setting", "isolation", "not there", allowed=allowed, got=settings.isolation)
        start = {"beginning": 0, "now": -1}.get(str(settings.start), settings.start)
        if start == -1:
            start = self._s.strandline() if settings.use_strandline else self._s.store.now_us()
        history = self._s.store.settings.history_id
        try:
            row = offsets.store.ensure(
                projection.name,
                projection.generation,
                source.text,
                start=int(start),
                partitions=1 if isinstance(source, ByTag) else self._s.store.settings.partitions,
                history_id=history,
                revisions=[pointer.revision for pointer in self._s.pointer_watch.now()],
                new=projection.name not in self._waited,
            )
        except NotFound:
            if projection.name in self._waited and not offsets.store.generations(projection.name):
                raise
            self._waited.add(projection.name)
            return None
        check_history(row, history)
        run = HostedProjection(projection, offsets, row)
        self._beat(run)
        return run

    def _leave(self, run: HostedProjection) -> None:
        """Stop running a generation that is over, because a later one serves."""
        _logger.info("%s: generation %d is over", run.projection.name, run.projection.generation)
        self._end([run])
        self._runs.remove(run)

    def _end(self, runs: Sequence[HostedProjection]) -> None:
        runners = [(run, runner) for run in runs for runner in run.runners.values()]
        for _, runner in runners:
            runner.stop()
        grace_s = max([run.projection.settings.shutdown_grace_s for run in runs], default=0.0)
        deadline = time.monotonic() + grace_s
        for run, runner in runners:
            if not runner.join(max(0.0, deadline - time.monotonic())):
                _logger.warning("%s: a handler does not return, and is left behind", runner.projection.name)
                with suppress(StrandlineError):
                    self._abandon(run, runner, "the host was stopped")
            else:
                self._let_go(run, runner)
        for run in runs:
            with suppress(StrandlineError), run.store.database.write() as tx:
                tx.execute("leave", (run.row.id, self.name))

    # ------------------------------------------------------------ every second

    def _tick(self, run: HostedProjection) -> None:
        store, id_ = run.store, run.row.id
        if run.alive.beats and time.monotonic() - run.beat_at > run.lease_s / 3:
            self._beat(run)
        for lo, runner in list(run.runners.items()):
            if runner.ended.is_set():
                self._let_go(run, runner)
                del run.runners[lo]
        with store.look(id_) as (tx, row):
            rows, hosts, requests = store.ranges(tx, row), store.hosts(tx, id_), store.requests(tx, id_)
        if row.name != run.projection.name:
            raise NotFound(
                f"{run.projection.name} was renamed to {row.name}", code="projection", hint=f"run it as {row.name}"
            )
        run.row = row
        if row.state == RETIRED:
            self._leave(run)
            return
        living = run.alive.living(hosts, store.database.now_us()) | {self.name}
        self._bury(run, {host: beat for host, beat in hosts.items() if host not in living})
        owned = {found.lo: found.fence for found in rows if found.owner == self.name}
        for lo, runner in run.runners.items():
            if owned.get(lo) != runner.claim.row.fence:
                reached("projection.range_taken_over")
                runner.lose()
            elif _role(runner.claim.projection) != _role(row):
                reached("projection.role_changed")
                runner.stop()  # its bound has changed
        if row.paused or row.target_ranges is not None:
            self._rest(run, row, rows, living)
            return
        waiting = [request for request in requests if request.refused is None]
        for runner in run.runners.values():
            _ask(runner, waiting)
        for claim in self._share(run, row, rows, living):
            self._start(run, claim, waiting)
        self._forget(run, row, rows)
        if row.state == BUILDING:
            self._look_whether_ready(run, row, rows)
        elif row.state == SWITCHING:
            self._switch(run, row)

    def _rest(self, run: HostedProjection, row: ProjectionRow, rows: Sequence[RangeRow], living: set[str]) -> None:
        """Give back all ranges, then rescale if that is requested."""
        for runner in run.runners.values():
            runner.stop()
        self._give_back(run, row, [found for found in rows if self._lost(run, found)])
        if row.target_ranges is not None:
            self._cut(run, living)

    def _give_back(self, run: HostedProjection, row: ProjectionRow, left: Iterable[RangeRow]) -> None:
        """Give back ranges of this host that no runner has. Their runners could not do so, in an
        outage or after a late beat.
        """
        for found in left:
            reached("projection.given_back_late")
            run.store.release(RangeClaim(row, found))

    def _look_whether_ready(self, run: HostedProjection, row: ProjectionRow, rows: Sequence[RangeRow]) -> None:
        """Mark a build as ready once each range has come to where the serving generation was in its slices."""
        store = run.store
        if run.goal is None:
            with store.database.read() as tx:
                run.goal = store.done(tx, store.serving(tx, row.name))
            return  # what this host has read of this generation is older
        goal = run.goal
        if all(found.position >= min(goal[found.lo : found.hi + 1]) for found in rows):
            with store.database.write() as tx:
                now = store.locked(tx, row.id)
                if now.state == BUILDING and now.epoch == row.epoch:
                    run.row = now._replace(state=READY)
                    store.change(tx, run.row)

    def _switch(self, run: HostedProjection, row: ProjectionRow) -> None:
        """Make the generation serve once it has done exactly what the other has. If `on_switch` raises, retry later."""

        def on_switch(tx: Transaction, old: int, new: int) -> None:
            run.projection.switched(HandlerTransaction(tx), old, new)

        try:
            with run.store.database.write() as tx:
                run.store.limit_handler(tx, run.projection.settings.handler_timeout_s)
                done = switch_if_done(run.store, tx, row, run.living, on_switch)
        except StrandlineError:
            raise
        except Exception as error:  # an error of the user's `on_switch`
            _logger.exception("%s: on_switch failed", row.name)
            with run.store.database.write() as tx:
                why = HandlerFailure.of(error)
                tx.execute("refuse_all", (row.id, "switch", f"on_switch failed: {why.type}: {why.message}"))
            return
        if done:
            self._wake.set()

    def _beat(self, run: HostedProjection) -> None:
        database = run.store.database
        before = time.monotonic()
        with database.write() as tx:
            tx.execute("beat", (run.row.id, self.name, database.now_us(), round(run.lease_s * 1_000_000)))
        run.beat_at = before

    def _bury(self, run: HostedProjection, dead: Mapping[str, Beat]) -> None:
        """Remove the rows of hosts that died without removing them."""
        if not dead:
            return
        reached("projection.host_died")
        with run.store.database.write() as tx:
            for host, beat in dead.items():
                tx.execute("bury", (run.row.id, host, beat.at))
        _logger.info("%s: %s ended without giving anything back", run.projection.name, ", ".join(sorted(dead)))

    def _share(
        self, run: HostedProjection, row: ProjectionRow, rows: Sequence[RangeRow], living: set[str]
    ) -> Sequence[RangeClaim]:
        """Take and give back ranges until each living host has its share; return the ranges that were taken."""
        store = run.store
        wanted = self._wanted(run, rows, living)
        for extra in wanted.release:
            if extra.lo in run.runners:
                reached("projection.more_than_its_share")
                run.runners[extra.lo].stop()
        taken_again = {free.lo for free in wanted.claim}
        self._give_back(run, row, [one for one in rows if self._lost(run, one) and one.lo not in taken_again])
        if not wanted.claim:
            return ()
        claims: list[RangeClaim] = []
        with store.database.write() as tx:
            now_row = store.locked(tx, row.id)
            if now_row.paused or now_row.target_ranges is not None or now_row.epoch != row.epoch:
                return ()
            again = self._wanted(run, store.ranges(tx, now_row), run.living(tx, now_row))
            for free in again.claim:
                if free.lo in run.runners:
                    continue  # its thread has not ended yet
                taken = store.claim(tx, now_row, free, self.name)
                if taken is not None:
                    claims.append(RangeClaim(now_row, taken))
        return claims

    def _wanted(self, run: HostedProjection, rows: Sequence[RangeRow], living: set[str]) -> Share:
        now = run.store.database.now_us()
        waits = [found.retry_at - now for found in rows if found.retry_at > now]
        run.retry_at = time.monotonic() + min(waits, default=-1e12) / 1_000_000
        # A range of this host without a thread is one that it could not give back: it may claim that again.
        mine = [found._replace(owner=None) if self._lost(run, found) else found for found in rows]
        return share(mine, living, self.name, now)

    def _lost(self, run: HostedProjection, row: RangeRow) -> bool:
        return row.owner == self.name and row.lo not in run.runners

    def _start(self, run: HostedProjection, claim: RangeClaim, requests: Sequence[SliceRequest]) -> None:
        runner = self._runner(run, claim)
        run.runners[claim.row.lo] = runner
        _logger.info("%s %s taken by %s, fence %d", run.projection.name, claim.row.range, self.name, claim.row.fence)
        _ask(runner, requests)  # passed on before the range begins, because it may be stuck without these requests
        runner.start()

    def _runner(self, run: HostedProjection, claim: RangeClaim) -> Runner:
        """Return the runner of a range: here a thread."""
        projection, store = run.projection, run.offsets.of_range()
        slices = slices_of(self._s.store, projection, claim, store, run.living)
        feed = self._feed if projection.settings.feed and claim.projection.state == SERVING else None
        return RangeRunner(projection, claim, store, slices, self._s.pointer_watch, run.may_start, self._wake.set, feed)

    def _cut(self, run: HostedProjection, living: set[str]) -> None:
        if not run.runners:
            with run.store.database.write() as tx:
                rescale_if_free(run.store, tx, run.row.id, living - {self.name})

    def _watch_handlers(self, run: HostedProjection) -> None:
        """Free ranges whose handler does not return."""
        limit_s = run.projection.settings.handler_timeout_s
        for lo, runner in list(run.runners.items()):
            since = runner.handling_since
            if since is not None and time.monotonic() - since > limit_s:
                _logger.error(
                    "%s %s: a handler took more than %g s", run.projection.name, runner.claim.row.range, limit_s
                )
                self._abandon(run, runner, too_long(limit_s))
                del run.runners[lo]

    def _let_go(self, run: HostedProjection, runner: Runner) -> None:
        run.offsets.let_go(runner.offset_store)

    def _abandon(self, run: HostedProjection, runner: Runner, why: str) -> None:
        runner.abandon()
        take_away(run.store, runner.projection, runner.claim, why)

    def _forget(self, run: HostedProjection, row: ProjectionRow, rows: Sequence[RangeRow]) -> None:
        """Do a few steps of the deletion run. Only the host that owns the projection's first range does this."""
        settings = run.projection.settings
        due = run.forgetting is None and time.monotonic() - run.forgot_at >= settings.delete_interval_s
        if due and rows[0].owner == self.name:
            run.forgot_at = time.monotonic()
            line = line_of(rows, row.line, round(settings.delete_after_s * 1_000_000))
            if line > row.line or row.epoch > 1:
                run.forgetting = run.store.forget(row, line)
            forget_ended(run.store, self._s.store, row)
        deadline = time.monotonic() + LOOK_S / 2
        for _ in run.forgetting or ():
            if time.monotonic() > deadline:
                return
        run.forgetting = None


def too_long(limit_s: float) -> str:
    return f"the handler took more than {limit_s:g} s"


def take_away(store: OffsetStore, projection: Projection, claim: RangeClaim, why: str) -> None:
    """Free a range whose handler does not return."""
    text = orjson.dumps({"error": "HandlerTimeout", "message": why}).decode()
    delay_s = restart_delay_s(projection.settings, claim.row.restarts, random.random())
    store.take_away(claim, text, store.database.now_us() + round(delay_s * 1_000_000))


def slices_of(s: Store, projection: Projection, claim: RangeClaim, store: OffsetStore, living: Living) -> Slices:
    """Return the slices that a range reads, up to the strandline and, in a build, also up to the serving generation."""
    source, range_ = projection.source, claim.row.range
    if claim.projection.state == SERVING or isinstance(source, ByTag):
        return opened_source(s, source, range_)
    return BoundedSlices(s, source.entity_type, range_, store, projection.name, living)


def _role(row: ProjectionRow) -> str:
    """Return the state of a generation, reduced to what its ranges depend on. A change of it stops the ranges."""
    return READY if row.state == BUILDING else row.state


def _ask(runner: Runner, requests: Sequence[SliceRequest]) -> None:
    for request in requests:
        if request.slice in runner.claim.row.range:
            runner.ask(request)


def rescale_if_free(store: OffsetStore, tx: Transaction, id_: str, living: set[str]) -> bool:
    """Rescale a projection if that is requested and no range is owned; return whether it was done."""
    row = store.locked(tx, id_)
    if row.target_ranges is None:
        return True
    rows = store.ranges(tx, row)
    if any(found.owner is not None and found.owner in living for found in rows):
        reached("projection.rescale_waits")
        return False
    cut = cut_anew(rows, store.slice_rows(tx, row), row.target_ranges)
    if cut.slices:
        reached("projection.slices_ahead_of_their_range")
    store.change(tx, store.cut(tx, row, cut))
    return True
