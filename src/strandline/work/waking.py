"""Decides when to claim again: after a wake-up, at the next date, or after `poll_s`.

    claim ─▶ begin     from here on no wake-up is missed
             arm       what the claim found: the next dates, by the database's clock
    wait  ─▶ "look"    an entry may be there: a wake-up, a date, or `poll_s` after the last claim
             "upkeep"  upkeep is due (`tick`)
             ""        the caller's time-out is over

What the latest claim found (`WaitState`) counts for all threads and cursors of the journal, and one watch listens for
all of them.

An add wakes waiters. On SQLite its transaction raises a number; a waiter sees that the file has changed, and reads the
number. On PostgreSQL a thread sends NOTIFY after the commit, at most once in 10 ms, and ends when nothing is left to
send. The exit of the process waits for that thread. An add in a caller's transaction sends NOTIFY in that transaction.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from threading import Event, Lock, Thread, local
from typing import Final, Literal, NamedTuple

from strandline import forks
from strandline.errors import StrandlineError
from strandline.sql.api import Database, Transaction, Watch
from strandline.work.dates import US
from strandline.work.declaration import WorkSettings

LOOK_S: Final = 0.005
"""How often a waiter checks whether a file has changed."""
NOTIFY_S = 0.01
QUEUE_FULL, QUEUE_LOOK_S = 0.5, 1.0
"""Above this usage of the server's queue no NOTIFY is sent: if it is full, commits fail. How often it is read."""
END_S: Final = 1.0

Woken = Literal["look", "upkeep", ""]


class WaitState(NamedTuple):
    """The state of the watch when a claim began, and the dates that the claim found (monotonic)."""

    began: float
    seen: int | None
    """The moment of the watch; None if no thread listened yet."""
    wakes: int
    """SQLite: the number that grows whenever an entry becomes claimable."""
    look_at: float | None = None
    upkeep_at: float | None = None


class Waking:
    """Waits for wake-ups of one journal and sends them, for one process."""

    def __init__(self, database: Database, journal: int, settings: Callable[[], WorkSettings]) -> None:
        self._database = database
        self._journal = journal
        self._settings = settings
        self._channel = f"work_{journal}"
        self._lock = Lock()
        self._state: WaitState | None = None
        self._watch: Watch | None = None
        self._closed = Event()
        self._unsent = local()
        self._wanted = False
        self._teller: Thread | None = None
        self._usage, self._usage_at = 0.0, -math.inf
        self._generation = forks.generation

    # ------------------------------------------------------------ tell

    def tell(self, tx: Transaction, wake: int | None, *, joined: bool = False) -> None:
        """Wake waiters when `tx` commits: an entry may be claimable from the date `wake` on, or none is (None).

        `joined`: `tx` is the caller's transaction, so NOTIFY must be part of it.
        """
        if wake is None:
            return
        if tx.dialect == "sqlite":
            tx.execute("wake", (self._journal,))
        elif joined:
            tx.notify(self._channel)
        else:
            self._unsent.here = True

    def flush(self) -> None:
        """Send the wake-up that a committed transaction of this thread left, if any."""
        if not getattr(self._unsent, "here", False):
            return
        self._unsent.here = False
        if self._settings().wake == "poll":
            return
        with self._lock:
            self._wanted = True
            if self._teller is not None:
                return
            self._teller = teller = Thread(target=self._tell_on, name="strandline-work-tell")
        try:
            teller.start()
        except RuntimeError:  # the interpreter is ending and starts no more threads
            self._tell_on()

    def _tell_on(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._teller = None
                    return
                self._wanted = False
            with contextlib.suppress(StrandlineError):  # a lost wake-up: waiters look again after `poll_s`
                self._notify()
            self._closed.wait(NOTIFY_S)

    def _notify(self) -> None:
        if time.monotonic() >= self._usage_at + QUEUE_LOOK_S:
            self._usage_at = time.monotonic()
            ((self._usage,),) = self._database.rows("queue_usage")
        if self._usage <= QUEUE_FULL:
            with self._database.write() as tx:
                tx.notify(self._channel)

    # ------------------------------------------------------------ wait

    def begin(self) -> WaitState:
        """Begin a claim: every wake-up from here on ends the next wait."""
        watch = self._watch
        seen = None if watch is None else watch.seen()
        wakes = self._wakes() if watch is not None and self._database.dialect == "sqlite" else 0
        return WaitState(time.monotonic(), seen, wakes)

    def arm(self, state: WaitState, clock: tuple[float, int], next_date: int | None, upkeep_date: int | None) -> None:
        """Note the next dates that a claim found. `clock`: when the database's clock was read, and its time."""

        def at(date: int | None) -> float | None:
            return None if date is None else clock[0] + (date - clock[1]) / US

        with self._lock:
            if self._state is None or state.began >= self._state.began:
                self._state = state._replace(look_at=at(next_date), upkeep_at=at(upkeep_date))

    def wait(self, deadline: float) -> Woken:
        """Wait until there is a reason to claim or do upkeep, or until the deadline (monotonic)."""
        settings = self._settings()
        if settings.wake == "notify" and self._listens():
            return "look"  # earlier wake-ups were not heard
        while not self._closed.is_set():
            state = self._state
            if state is None or (self._watch is not None and state.seen is None):
                return "look"
            now = time.monotonic()
            look_at = min(state.began + settings.poll_s, math.inf if state.look_at is None else state.look_at)
            if now >= look_at:
                return "look"
            upkeep_at = math.inf if state.upkeep_at is None else state.upkeep_at
            if now >= upkeep_at and self._changed(state, state._replace(upkeep_at=None)):
                return "upkeep"
            if now >= deadline:
                return ""
            if self._heard(state, min(look_at, upkeep_at, deadline) - now):
                return "look"
        return ""

    def _listens(self) -> bool:
        """Begin to listen; return False if this process listens already."""
        with self._lock:
            if self._watch is not None or self._closed.is_set():
                return False
            # A server sends wake-ups by itself, with `poll_s` as the fallback. A file has to be polled.
            interval_s = LOOK_S if self._database.dialect == "sqlite" else math.inf
            self._watch = self._database.watch(self._channel, interval_s=interval_s)
            return True

    def _changed(self, before: WaitState, state: WaitState) -> bool:
        """Replace the state, unless another thread has replaced it first; return whether it was replaced."""
        with self._lock:
            if self._state is not before:
                return False
            self._state = state
            return True

    def _heard(self, state: WaitState, timeout_s: float) -> bool:
        watch = self._watch
        if watch is None or state.seen is None:
            self._closed.wait(timeout_s)
            return False
        if not watch.wait(state.seen, timeout_s):
            return False
        if self._database.dialect == "postgres":
            return True
        seen = watch.seen()
        if self._wakes() != state.wakes:
            return True
        self._changed(state, state._replace(seen=seen))
        return False

    def _wakes(self) -> int:
        ((wakes,),) = self._database.rows("wakes", (self._journal,))
        return int(wakes)

    def close(self) -> None:
        """Send the wake-up that is left, and end. Calling it twice, or in a forked child, is harmless."""
        if forks.generation != self._generation:
            return
        with self._lock:
            self._closed.set()
            teller, watch = self._teller, self._watch
        if teller is not None:
            teller.join(END_S)
        if watch is not None:
            watch.close()
