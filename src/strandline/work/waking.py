"""When to claim again: told by others, at the next date, or after `poll_s`.

    claim ─▶ about_to_look: from here on nothing that is told is missed
             looked: the next date, by the database's clock, is armed
    wait  ─▶ "look"    something may be there: told, or the date, or `poll_s` after the last look
             "upkeep"  a tick is due
             ""        the time of the caller is over

Who adds tells, in its transaction on SQLite (a number that grows; who waits sees that the file has changed, and reads
it), after it on PostgreSQL: a thread sends at most one NOTIFY in 10 ms. A caller's own transaction notifies itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from threading import Event, Lock, Thread, local
from typing import Final, Literal

from strandline import forks
from strandline.errors import StrandlineError
from strandline.sql.api import Database, Transaction, Watch
from strandline.work.dates import US
from strandline.work.declaration import WorkSettings

LOOK_S: Final = 0.005
"""How often who waits looks whether a file has changed."""
NOTIFY_S: Final = 0.01
QUEUE_FULL, QUEUE_LOOK_S = 0.5, 1.0
"""Above this nothing is told: a commit that finds the server's queue full fails. How often that is looked at."""
END_S: Final = 1.0

Woken = Literal["look", "upkeep", ""]


class _Armed(local):
    """What one thread knows: when it looked, what it had heard by then, and when it is to look again (monotonic)."""

    watch: Watch | None = None
    seen: int | None = None
    wakes: int = 0
    looked: float | None = None
    now: int = 0
    at: float | None = None
    upkeep_at: float | None = None
    to_tell: bool = False


class Waking:
    """The waiting side and the telling side of one journal in one process."""

    def __init__(self, database: Database, journal: int, set_name: str, settings: Callable[[], WorkSettings]) -> None:
        self._database = database
        self._journal = journal
        self._settings = settings
        self._channel = f"work_{journal}"
        self._armed = _Armed()
        self._watches: list[Watch] = []
        self._lock = Lock()
        self._wanted, self._closed = Event(), Event()
        self._teller: Thread | None = None
        self._generation = forks.generation

    # ------------------------------------------------------------ tell

    def tell(self, tx: Transaction, *, joined: bool) -> None:
        """Something may be claimable from a date on that who waits does not know: said when this commits."""
        if tx.dialect == "sqlite":
            tx.execute("wake", (self._journal,))
        elif joined:
            tx.notify(self._channel)
        else:
            self._armed.to_tell = True

    def told(self) -> None:
        """A transaction of ours is committed: tell, if there was anything to tell."""
        if not self._armed.to_tell:
            return
        self._armed.to_tell = False
        if self._settings().wake == "poll":
            return
        self._wanted.set()
        if self._teller is None:
            with self._lock:
                if self._teller is None and not self._closed.is_set():
                    self._teller = Thread(target=self._tell_on, name="strandline-work-tell", daemon=True)
                    self._teller.start()

    def _tell_on(self) -> None:
        usage, looked_at = 0.0, -QUEUE_LOOK_S
        while self._wanted.wait() and not self._closed.is_set():
            self._wanted.clear()
            with contextlib.suppress(StrandlineError):  # lost: `poll_s` is left
                if time.monotonic() >= looked_at + QUEUE_LOOK_S:
                    looked_at = time.monotonic()
                    ((usage,),) = self._database.rows("queue_usage")
                if usage <= QUEUE_FULL:
                    with self._database.write() as tx:
                        tx.notify(self._channel)
            self._closed.wait(NOTIFY_S)

    # ------------------------------------------------------------ wait

    def about_to_look(self) -> None:
        """A claim begins: whatever is told from here on wakes."""
        armed = self._armed
        if armed.watch is not None:
            armed.seen = armed.watch.seen()
            if self._database.dialect == "sqlite":
                armed.wakes = self._wakes()

    def saw(self, now: int) -> None:
        """This is what the database's clock says at this moment."""
        armed = self._armed
        armed.looked, armed.now = time.monotonic(), now

    def looked(self, next_date: int | None, upkeep_date: int | None) -> None:
        """A claim has ended: these dates are the next ones, by the database's clock."""
        armed = self._armed
        began = armed.looked if armed.looked is not None else time.monotonic()
        armed.at = None if next_date is None else began + (next_date - armed.now) / US
        armed.upkeep_at = None if upkeep_date is None else began + (upkeep_date - armed.now) / US

    def wait(self, deadline: float) -> Woken:
        """Wait until there is a reason to look, or until the deadline (monotonic)."""
        armed = self._armed
        settings = self._settings()
        if armed.watch is None and settings.wake == "notify":
            armed.watch = self._database.watch(self._channel, interval_s=LOOK_S)
            with self._lock:
                self._watches.append(armed.watch)
            return "look"  # what was told before nobody heard
        if armed.looked is None or (armed.watch is not None and armed.seen is None):
            return "look"
        while not self._closed.is_set():
            now = time.monotonic()
            poll_at = armed.looked + settings.poll_s
            look_at = poll_at if armed.at is None else min(armed.at, poll_at)
            if now >= look_at:
                return "look"
            if armed.upkeep_at is not None and now >= armed.upkeep_at:
                armed.upkeep_at = None
                return "upkeep"
            if now >= deadline:
                return ""
            until = min(look_at, deadline, look_at if armed.upkeep_at is None else armed.upkeep_at)
            if self._heard(armed, until - now):
                return "look"
        return ""

    def _heard(self, armed: _Armed, timeout_s: float) -> bool:
        if armed.watch is None or armed.seen is None:
            self._closed.wait(timeout_s)
            return False
        if not armed.watch.wait(armed.seen, timeout_s):
            return False
        if self._database.dialect == "postgres":
            return True
        armed.seen = armed.watch.seen()
        return self._wakes() != armed.wakes

    def _wakes(self) -> int:
        ((wakes,),) = self._database.rows("wakes", (self._journal,))
        return int(wakes)

    def close(self) -> None:
        """End the thread. Twice, or in a forked child, is harmless."""
        if forks.generation != self._generation:
            return
        self._closed.set()
        self._wanted.set()
        if self._teller is not None:
            self._teller.join(END_S)
        for watch in self._watches:
            watch.close()
