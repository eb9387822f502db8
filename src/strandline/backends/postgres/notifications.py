"""A bell between the processes that use one schema: who has committed rings, and who waits is woken.

It only wakes. A ring is a transaction of its own, sent by a thread after the append was acknowledged, at most one every
`RING_S`: a NOTIFY in the append's transaction would make all commits of the database take turns. A ring may be lost, so
whoever waits must look from time to time. Where the server has no LISTEN, or a pooler stands in between, nothing is
heard.

    ring ─▶ thread "strandline-ring": NOTIFY by a connection of the pool; what fails is dropped
    listen ─▶ thread "strandline-listen": LISTEN on a connection of its own ─▶ heard(True) for each ring,
              heard(False) when it cannot hear any more; tried again after `AGAIN_S`
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from strandline import forks
from strandline.backends.postgres.binary import texts
from strandline.backends.postgres.database import Database
from strandline.backends.postgres.round_trips import Connection, Sent
from strandline.errors import StrandlineError

RING_S: Final = 0.05
"""No more often: who works through appends that keep coming does not wait, so only the first after a pause matters."""
AGAIN_S: Final = 30.0
"""After a ring that failed, or when nothing can be heard: for so long nothing is tried."""
END_S: Final = 1.0


class Bell:
    """A bell of one log. `heard` is called in a thread of the bell's. Threads start with the first ring or listener."""

    def __init__(self, database: Database, channel: str, heard: Callable[[bool], None]) -> None:
        self._database = database
        self._heard = heard
        self._ring = Sent(database.schema.server("ring").encode(), (texts([channel]),))
        self._listen = SQL(database.schema.server("listen")).format(channel=Identifier(channel))
        self._generation = forks.generation
        self._lock = Lock()
        self._wanted = Event()
        self._closed = Event()
        self._ringer: Thread | None = None
        self._listener: Thread | None = None
        self._ends: tuple[int, int] | None = None

    def ring(self) -> None:
        """Wake those who listen, soon."""
        if not self._wanted.is_set():
            self._wanted.set()
            if self._ringer is None:
                self._start()

    def listen(self) -> None:
        """From now on, hear."""
        if self._listener is None:
            self._start(listener=True)

    def close(self) -> None:
        """End the threads. Twice, or in a forked child, is harmless."""
        if forks.generation != self._generation:
            return
        with self._lock:
            self._closed.set()
            self._wanted.set()
            threads = [thread for thread in (self._ringer, self._listener) if thread is not None]
            ends, self._ends = self._ends, None
            if ends is not None:
                os.close(ends[1])  # the listener sees the end of it
        for thread in threads:
            thread.join(END_S)  # one that waits for the server ends when that answers
        if ends is not None:
            os.close(ends[0])

    def _start(self, *, listener: bool = False) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            if listener and self._listener is None:
                self._ends = os.pipe()
                self._listener = Thread(target=self._live, args=(self._ends[0],), name="strandline-listen", daemon=True)
                self._listener.start()
            elif not listener and self._ringer is None:
                self._ringer = Thread(target=self._ring_on, name="strandline-ring", daemon=True)
                self._ringer.start()

    # ------------------------------------------------------------ threads

    def _ring_on(self) -> None:
        while self._wanted.wait() and not self._closed.is_set():
            self._wanted.clear()
            pause_s = RING_S
            try:
                self._database.execute(self._ring)
            except (StrandlineError, psycopg.Error):
                pause_s = AGAIN_S
            self._closed.wait(pause_s)

    def _live(self, end: int) -> None:
        while not self._closed.is_set():
            try:
                with self._database.connection() as connection:
                    if not connection.is_direct():
                        return
                    connection.execute(self._listen)
                    self._hear(connection, end)
            except (psycopg.NotSupportedError, psycopg.ProgrammingError):
                return
            except (StrandlineError, psycopg.Error):
                self._heard(False)
                self._closed.wait(AGAIN_S)

    def _hear(self, connection: Connection, end: int) -> None:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(end, select.POLLIN)
        rung = True  # what came before is not told: look
        while not self._closed.is_set():
            if rung:
                self._heard(True)
            poll.poll()
            connection.pgconn.consume_input()
            rung = False
            while connection.pgconn.notifies() is not None:
                rung = True
