"""Channels between the processes that use one schema: a process that has committed rings, and waiting ones wake.

A ring only wakes. It may be lost, so a process that waits must look from time to time. Where the server has no LISTEN,
or a pooler stands in between, nothing is heard.

    Bell.ring ─▶ thread "strandline-ring": NOTIFY by a connection of the pool; what fails is dropped
    Listener  ─▶ thread "strandline-listen": LISTEN on a connection of its own, for all channels of a database
                 ─▶ heard(True) for each ring, heard(False) when it cannot hear any more; tried again after `AGAIN_S`

A bell is for a process that commits often: its ring is a transaction of its own, sent after the commit, at most one in
an interval, because a NOTIFY in the transaction itself makes all commits of the database take turns. A process that
commits seldom has that (`Transaction.notify`).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from threading import Condition, Event, Lock, RLock, Thread
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.sql import SQL, Identifier

from strandline import forks
from strandline.backends.postgres.binary import texts
from strandline.backends.postgres.round_trips import BinaryStatement, Connection
from strandline.closed_at_end import ClosedAtEnd
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.backends.postgres.database import Database

RING_S: Final = 0.05
"""The least interval of rings. A reader that works through a stream of appends does not wait, so only the first ring
after a pause matters."""
AGAIN_S: Final = 30.0
"""How long nothing is tried after a ring that failed, or while nothing can be heard."""
END_S: Final = 1.0
Heard = Callable[[bool], None]


class Bell:
    """Rings on a channel, at most once in an interval. Its thread starts with the first ring."""

    def __init__(self, database: Database, channel: str, interval_s: float = RING_S) -> None:
        self._database = database
        self._interval_s = interval_s
        self._ring = BinaryStatement(database.schema.server("ring").encode(), (texts([channel]),))
        self._generation = forks.generation
        self._lock = Lock()
        self._wanted = Event()
        self._closed = Event()
        self._ringer: Thread | None = None

    def ring(self) -> None:
        """Wake those who listen, soon."""
        if not self._wanted.is_set():
            self._wanted.set()
            if self._ringer is None:
                self._start()

    def close(self) -> None:
        """End the thread. A second call, or one in a forked child, does nothing."""
        if forks.generation != self._generation:
            return
        with self._lock:
            self._closed.set()
            self._wanted.set()
        if self._ringer is not None:
            self._ringer.join(END_S)  # a thread that waits for the server ends when the server answers

    def _start(self) -> None:
        with self._lock:
            if not self._closed.is_set() and self._ringer is None:
                self._ringer = Thread(target=self._ring_on, name="strandline-ring", daemon=True)
                self._ringer.start()

    def _ring_on(self) -> None:
        while self._wanted.wait() and not self._closed.is_set():
            self._wanted.clear()
            pause_s = self._interval_s
            try:
                self._database.execute(self._ring)
            except (StrandlineError, psycopg.Error):
                pause_s = AGAIN_S
            self._closed.wait(pause_s)


class Listener:
    """Hears all channels of a database with one connection, in a thread that starts with the first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listen = database.schema.server("listen")
        self._generation = forks.generation
        self._lock = Lock()
        self._closed = Event()
        self._heard: dict[str, list[Heard]] = {}
        self._thread: Thread | None = None
        self._ends: tuple[int, int] | None = None

    def hear(self, channel: str, heard: Heard) -> None:
        """Listen to a channel from now on. The first call of `heard` comes when listening has begun; earlier rings are
        not reported."""
        with self._lock:
            if self._closed.is_set():
                return
            self._heard.setdefault(channel, []).append(heard)
            if self._ends is not None:
                os.write(self._ends[1], b"+")
                return
            self._ends = os.pipe()
            self._thread = Thread(target=self._live, args=(self._ends[0],), name="strandline-listen", daemon=True)
            self._thread.start()

    def leave(self, channel: str, heard: Heard) -> None:
        """Stop calling this `heard` for the channel."""
        with self._lock:
            self._heard[channel].remove(heard)

    def close(self) -> None:
        """End the thread. A second call, or one in a forked child, does nothing."""
        if forks.generation != self._generation:
            return
        with self._lock:
            self._closed.set()
            ends, self._ends = self._ends, None
            if ends is not None:
                os.close(ends[1])  # the thread notices that the connection ended
        if self._thread is not None:
            self._thread.join(END_S)
        if ends is not None:
            os.close(ends[0])

    def _live(self, end: int) -> None:
        while not self._closed.is_set():
            try:
                with self._database.connection() as connection:
                    if not connection.is_direct():
                        return
                    self._hear(connection, end)
            except (psycopg.NotSupportedError, psycopg.ProgrammingError):
                return
            except (StrandlineError, psycopg.Error):
                self._tell(None, False)
                self._closed.wait(AGAIN_S)

    def _hear(self, connection: Connection, end: int) -> None:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(end, select.POLLIN)
        listened: set[str] = set()
        while not self._closed.is_set():
            for channel in set(self._heard) - listened:
                connection.execute(SQL(self._listen).format(channel=Identifier(channel)))
                listened.add(channel)
                self._tell(channel, True)
            if any(found == end for found, _ in poll.poll()):
                os.read(end, 100)  # another channel, or the end; or one more who hears a channel
                self._tell(None, True)
            connection.pgconn.consume_input()
            rung: set[str] = set()
            while (notified := connection.pgconn.notifies()) is not None:
                rung.add(notified.relname.decode())
            for channel in rung:
                self._tell(channel, True)

    def _tell(self, channel: str | None, told: bool) -> None:
        with self._lock:
            names = list(self._heard) if channel is None else [channel]
            calls = [heard for name in names for heard in self._heard.get(name, ())]
        for heard in calls:
            heard(told)


class PostgresWatch(ClosedAtEnd):
    """Woken by what is notified on a channel (`sql.api.Watch`); where nothing is heard, after every interval."""

    def __init__(self, listener: Listener, channel: str, interval_s: float) -> None:
        self._listener, self._channel, self._interval_s = listener, channel, interval_s
        self._changed = Condition(RLock())
        self._count = 0
        self._told = self._closed = False
        listener.hear(channel, self._hear)

    def _hear(self, told: bool) -> None:
        with self._changed:
            self._told = told
            self._count += 1
            self._changed.notify_all()

    def seen(self) -> int:
        return self._count

    def wait(self, seen: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._count == seen and not self._closed:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                told = self._told
                if not self._changed.wait(left_s if told else min(left_s, self._interval_s)) and not told:
                    return left_s > self._interval_s
        return True

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._listener.leave(self._channel, self._hear)
