"""A worker: claims entries of several journals and calls a handler for each, many at the same time.

dispatcher   one thread for each journal: claims ahead, ends what is done with the next claim, else sleeps
handlers     `concurrency` threads: `handler(claim)`, then done; an exception is `fail`
heartbeats   one thread: every third of a lease, for all that is held

stop: no new claims; what nobody began is released; what runs gets `shutdown_grace_s`, then its claim is given back.
A handler that goes on after that has no claim: it finds `claim.lost` set, and somebody else may have its entry.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Condition, Event, Thread
from typing import Any, Final, Protocol

from strandline.errors import InvalidInput, StrandlineError, Unsupported, invalid
from strandline.plain_calls import check_plain, check_ran, check_takes, told
from strandline.settings import Settings
from strandline.work.claims import Claim, Cursor
from strandline.work.journal import CLAIM_MAX, WorkJournal

CONCURRENCY_MAX: Final = 1000
MAX_RUN_S: Final = 3600.0
WAIT_S: Final = 0.25
"""How often a sleeping dispatcher checks whether it has to stop. This asks no database."""
AGAIN_S: Final = 1.0
"""The pause after an error of the database."""
Handler = Callable[[Claim], object]
_log: Final = logging.getLogger("strandline.work")


class OpensWork(Protocol):
    """The part of a connection that a worker needs."""

    settings: Settings

    def work(self, declaration: Any, *, url: str | None = None) -> WorkJournal: ...


class Worker:
    """Runs handlers by journal: `Worker(s, {"mails": send}, concurrency=4).run()`."""

    def __init__(
        self,
        s: OpensWork,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 1,
        owner: str | None = None,
        max_run_s: float = MAX_RUN_S,
    ) -> None:
        """Make a worker for declared journals. A claim whose handler takes longer than `max_run_s` is given up."""
        if not hasattr(s, "work") or not hasattr(s, "settings"):
            raise invalid("option", "s", "no connection", allowed="what strandline.connect gives", got=s)
        if not isinstance(handlers, Mapping) or not handlers:
            allowed = "functions of a claim, by the names of their journals"
            raise invalid("option", "handlers", "not a mapping, or empty", allowed=allowed, got=handlers)
        for name, handler in handlers.items():
            _check_handler(name, handler)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= CONCURRENCY_MAX:
            raise invalid("option", "concurrency", "out of range", allowed=f"1..{CONCURRENCY_MAX}", got=concurrency)
        self._concurrency = concurrency
        self._owner = owner
        self._max_run_s = max_run_s
        self._grace_s = s.settings.shutdown_grace_s
        self._stopping = Event()
        self._asked = False
        """Whether a signal has asked the worker to stop."""
        self._queue: SimpleQueue[tuple[_Lane, Claim] | None] = SimpleQueue()
        self._lanes = [_Lane(s.work(name), handler) for name, handler in handlers.items()]
        self._changed = Condition()
        self._running = 0
        self._error: Exception | None = None
        """The error that no retry can mend: a closed connection, one of another process, or a bug."""

    def stop(self) -> None:
        """Make `run` return. May be called from any thread and from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop` is called, or until SIGTERM or Ctrl-C, unless the program handles these itself. A second
        Ctrl-C is raised at once, without waiting.

        Outages of the database are waited for. If the connection is closed meanwhile, this raises
        `InvalidInput.closed`.
        """
        handlers = [
            Thread(target=self._handle, name="strandline-handler", daemon=True) for _ in range(self._concurrency)
        ]
        others = [Thread(target=self._dispatch, args=(lane,), name="strandline-dispatch") for lane in self._lanes]
        beats = Thread(target=self._beat, name="strandline-heartbeat", daemon=True)
        with self._signals():
            for thread in (*handlers, *others, beats):
                thread.start()
            while not self._asked and not self._stopping.wait(WAIT_S):
                pass
            self.stop()
            for thread in others:
                thread.join()
            self._drain()
        for _ in handlers:
            self._queue.put(None)
        beats.join()
        if self._error is not None:
            raise self._error

    @contextmanager
    def _signals(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(*_: Any) -> None:
            self._asked = True  # not `stop`: it needs a lock that this thread may hold at this moment
            if signal.SIGINT in heeded:
                signal.signal(signal.SIGINT, signal.default_int_handler)

        free = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
        heeded = {number: own for number, own in free.items() if signal.getsignal(number) is own}
        for number in heeded:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, own in heeded.items():
                signal.signal(number, own)

    # ------------------------------------------------------------ dispatch

    def _dispatch(self, lane: _Lane) -> None:
        done: list[Claim] = []
        while not self._stopping.is_set():
            try:
                with self._changed:
                    while (held := self._held()) >= 2 * self._concurrency and not self._stopping.is_set():
                        self._changed.wait(WAIT_S)
                        if lane.finished:
                            break
                    done = lane.take_finished()
                    lane.asked = min(max(0, 2 * self._concurrency - held), CLAIM_MAX)
                if not lane.asked:
                    lane.end(done)
                    continue
                claims = self._claim(lane, done, slow=held < self._concurrency)
                lane.ended(done)
                if not claims:
                    self._sleep(lane)
            except (InvalidInput, Unsupported) as error:
                self._error = error
                self._stopping.set()
            except StrandlineError as error:
                self._say_again(lane, done)
                _log.warning("worker on %s: %s", lane.journal.name, error)
                self._stopping.wait(AGAIN_S)
            except Exception as error:  # noqa: BLE001 (`run` raises it, instead of waiting for a thread that is gone)
                self._error = error
                self._stopping.set()
        with self._changed:
            lane.asleep = True  # handlers end their claims themselves from now on
            done = lane.take_finished()
        with suppress(StrandlineError):
            lane.end(done)

    def _claim(self, lane: _Lane, done: list[Claim], *, slow: bool) -> list[Claim]:
        """Claim and queue as many entries as the lane has asked for. No other thread claims for this lane."""
        claims: list[Claim] = []
        try:
            lane.cursor = lane.cursor or lane.journal.cursor(self._owner)
            claims = lane.journal.claim(lane.cursor, lane.asked, done, slow=slow).claims
        finally:
            with self._changed:
                lane.asked = 0
                lane.held.update(dict.fromkeys(claims))
                self._changed.notify_all()
        for claim in claims:
            self._queue.put((lane, claim))
        return claims

    def _held(self) -> int:
        """Count the claims that the worker holds, or is about to get, over all its journals."""
        return sum(len(lane.held) + lane.asked for lane in self._lanes)

    def _sleep(self, lane: _Lane) -> None:
        """Sleep until an entry may be there. Meanwhile handlers end their claims themselves."""
        with self._changed:
            if lane.finished:
                return
            lane.asleep = True
        try:
            while not self._stopping.is_set() and not lane.journal.wait(WAIT_S):
                pass
        finally:
            with self._changed:
                lane.asleep = False

    # ------------------------------------------------------------ handlers

    def _handle(self) -> None:
        while (given := self._queue.get()) is not None:
            lane, claim = given
            with self._changed:
                if self._stopping.is_set():
                    continue  # `_drain` releases it
                if claim.is_lost:
                    self._let_go(lane, claim)
                    continue
                lane.held[claim] = time.monotonic()
                self._running += 1
            try:
                check_ran(lane.handler(claim))
            except BaseException as error:  # noqa: BLE001 (sys.exit in a handler, too: else its claim is kept for ever)
                self._failed(lane, claim, error)
            else:
                self._done(lane, claim)
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def _done(self, lane: _Lane, claim: Claim) -> None:
        with self._changed:
            self._let_go(lane, claim)
            if claim.ended or claim.is_lost or claim.in_tx:
                return  # the handler has ended the claim itself, perhaps in a transaction, or has lost it
            lane.finished.append(claim)
            done = lane.take_finished() if lane.asleep else []
        try:
            lane.end(done)
        except StrandlineError:
            self._say_again(lane, done)

    def _say_again(self, lane: _Lane, done: list[Claim]) -> None:
        """Queue these claims to be ended with the next claim: ending them failed, and if they
        lapsed they would run twice.
        """
        with self._changed:
            lane.finished[:0] = [claim for claim in done if not claim.ended]

    def _failed(self, lane: _Lane, claim: Claim, error: BaseException) -> None:
        with self._changed:
            self._let_go(lane, claim)
        _log.warning("worker on %s: entry %s failed: %s", lane.journal.name, claim.entry.id, told(error))
        if not claim.ended:
            with suppress(StrandlineError):  # a claim that cannot be ended lapses
                claim.fail(f"{type(error).__name__}: {error}")

    def _let_go(self, lane: _Lane, claim: Claim) -> None:
        lane.held.pop(claim, None)
        self._changed.notify_all()

    # ------------------------------------------------------------ heartbeats and the end

    def _beat(self) -> None:
        beaten = dict.fromkeys(self._lanes, 0.0)
        while not (self._stopping.is_set() and not self._held()):
            now = time.monotonic()
            least_s = min(lane.journal.settings.lease_s for lane in self._lanes)
            for lane in self._lanes:
                with self._changed:
                    held = [
                        (claim, began) for claim, began in lane.held.items() if not claim.is_lost and not claim.in_tx
                    ]
                hung = [claim for claim, began in held if began is not None and now - began > self._max_run_s]
                for claim in hung:
                    claim.lose()  # the claim gets no more heartbeats, so it lapses
                live = [claim for claim, _ in held if not claim.is_lost]
                lease_s = min((claim.lease_s for claim in live), default=least_s)
                least_s = min(least_s, lease_s)
                if live and now >= beaten[lane] + lease_s / 3:
                    beaten[lane] = now
                    with suppress(StrandlineError):
                        lane.journal.beat(live)
            with self._changed:
                self._changed.wait(min(WAIT_S, least_s / 12))

    def _drain(self) -> None:
        """Release claims that no handler has begun, wait for running handlers, then release what is left."""
        with self._changed:
            waiting = [(lane, claim) for lane in self._lanes for claim, began in lane.held.items() if began is None]
        for lane, claim in waiting:
            self._release(lane, claim)
        deadline = time.monotonic() + self._grace_s
        with self._changed:
            while self._running and time.monotonic() < deadline:
                self._changed.wait(min(WAIT_S, max(0.0, deadline - time.monotonic())))
            left = [(lane, claim) for lane in self._lanes for claim in lane.held]
        for lane, claim in left:
            claim.lose()
            self._release(lane, claim)
        for lane in self._lanes:
            with suppress(StrandlineError):
                lane.end(lane.take_finished())

    def _release(self, lane: _Lane, claim: Claim) -> None:
        with suppress(StrandlineError):  # a claim that cannot be released lapses
            claim.release()
        with self._changed:
            self._let_go(lane, claim)


def _check_handler(name: object, handler: object) -> None:
    """Refuse a handler that cannot be called with a claim, before entries are claimed for it."""
    field, allowed = f"handlers[{name!r}]", "a function that is called with a claim"
    if not callable(handler):
        raise invalid("handler", field, "cannot be called", allowed=allowed, got=handler)
    check_plain(handler, field, "give a plain function, or take strandline.aio.Worker, whose handlers may be async")
    check_takes(handler, 1, field, allowed)


class _Lane:
    """The claims and handlers of one journal of a worker."""

    def __init__(self, journal: WorkJournal, handler: Handler) -> None:
        self.journal = journal
        self.handler = handler
        self.cursor: Cursor | None = None
        self.held: dict[Claim, float | None] = {}
        """Claims that are not over, and when a handler began each (monotonic); None if none has yet."""
        self.asked = 0
        """The number of entries that the claim under way has asked for."""
        self.finished: list[Claim] = []
        self.asleep = False

    def take_finished(self) -> list[Claim]:
        taken, self.finished = self.finished, []
        return taken

    def end(self, done: list[Claim]) -> None:
        """End claims as done, outside of `claim`."""
        if done:
            self.journal.done_many(done)
            self.ended(done)

    def ended(self, done: list[Claim]) -> None:
        lost = [claim.entry.id for claim in done if claim.is_lost]
        if lost:
            _log.warning("work journal %s: done too late: %s", self.journal.name, lost)
