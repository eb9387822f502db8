"""What the server waits for on behalf of its clients: the strandline, and work journals."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from strandline import aio
from strandline.connect import Strandline
from strandline.journal.status import strandline_of
from strandline.server.shared_wait import SharedWait

REFRESH_S: Final = 0.25
WORK_WAIT_S: Final = 1.0


class StrandlineWatch:
    """Tells live streams when the strandline has moved, by one look for all of them."""

    def __init__(self, s: Strandline, threads: ThreadPoolExecutor) -> None:
        self._s, self._threads = s, threads
        self._moved = SharedWait(self._later)

    async def now(self) -> int:
        """Return the strandline of this moment, or of a moment ago."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look)

    async def beyond(self, line: int) -> int:
        """Wait until the strandline is above this one, and return it."""
        while (found := await self._moved.next()) <= line:
            pass
        return found

    async def _later(self) -> int:
        await asyncio.sleep(REFRESH_S)
        return await self.now()

    def _look(self) -> int:
        return strandline_of(self._s.pointer_watch.awaited(REFRESH_S))


class WatchedWork:
    """A work journal, and one thread for all claims that wait for its entries."""

    def __init__(self, work: aio.WorkJournal) -> None:
        self.work = work
        self._due = SharedWait(self._look)

    async def due(self, timeout_s: float) -> None:
        """Return when a claim may find something, or after this time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._due.next()
        except TimeoutError:
            return

    async def _look(self) -> None:
        while not await self.work.wait(WORK_WAIT_S):
            pass
