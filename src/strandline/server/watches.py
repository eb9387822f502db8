"""The waits of the server for its clients: on the strandline, and on work journals."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from strandline import aio
from strandline.connect import Strandline
from strandline.journal.status import strandline_of
from strandline.server.shared_wait import SharedWait

REFRESH_S: Final = 0.25
WORK_WAIT_S: Final = 1.0


class CarriedTo(NamedTuple):
    """How far the store has been filled."""

    line: int
    """The strandline."""
    last_action_at: int
    """The time of the last carried action that is not a Mark."""


class StrandlineWatch:
    """Tells live streams when there may be more to read, with one look for all of them.

    A stream has read all events up to the strandline. So it has more to read only if the strandline has moved and an
    action above the old one was carried: the Marks of an idle pipeline, one a second, wake no stream.
    """

    def __init__(self, s: Strandline, threads: ThreadPoolExecutor) -> None:
        self._s, self._threads = s, threads
        self._moved = SharedWait(self._later)

    async def now(self) -> int:
        """Return the strandline of this moment, or of a moment ago."""
        return (await self._now()).line

    async def beyond(self, line: int) -> int:
        """Wait until there may be events above `line`, and return the strandline of that moment."""
        while (found := await self._moved.next()).line <= line or found.last_action_at <= line:
            pass
        return found.line

    async def _later(self) -> CarriedTo:
        await asyncio.sleep(REFRESH_S)
        return await self._now()

    async def _now(self) -> CarriedTo:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look)

    def _look(self) -> CarriedTo:
        pointers = self._s.pointer_watch.awaited(REFRESH_S)
        return CarriedTo(strandline_of(pointers), max(pointer.last_action_at for pointer in pointers))


class WatchedWork:
    """A work journal, and one thread for all claims that wait for its entries."""

    def __init__(self, work: aio.WorkJournal) -> None:
        self.work = work
        self._due = SharedWait(self._look)

    async def due(self, timeout_s: float) -> None:
        """Return when a claim may find an entry, or after this time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._due.next()
        except TimeoutError:
            return

    async def _look(self) -> None:
        while not await self.work.wait(WORK_WAIT_S):
            pass
