"""One look at the strandline for all live streams of a server: those that wait hold no thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.journal.status import strandline_of

REFRESH_S: Final = 0.25
AWAY_S: Final = 1.0
"""How long it waits where the store is away."""


class StrandlineWatch:
    """Tells when the strandline has moved. Its task runs while somebody waits."""

    def __init__(self, s: Strandline, threads: ThreadPoolExecutor) -> None:
        self._s, self._threads = s, threads
        self._waiting: list[asyncio.Future[int]] = []
        self._task: asyncio.Task[None] | None = None

    async def now(self) -> int:
        """Return the strandline of this moment, or of a moment ago."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look)

    async def beyond(self, line: int) -> int:
        """Wait until the strandline is above this one, and return it."""
        loop = asyncio.get_running_loop()
        while True:
            moved: asyncio.Future[int] = loop.create_future()
            self._waiting.append(moved)
            if self._task is None or self._task.done():
                self._task = loop.create_task(self._run())
            try:
                found = await moved
            finally:
                if moved in self._waiting:
                    self._waiting.remove(moved)
            if found > line:
                return found

    async def _run(self) -> None:
        while self._waiting:
            try:
                line = await self.now()
            except StrandlineError:
                await asyncio.sleep(AWAY_S)
                continue
            told, self._waiting = self._waiting, []
            for one in told:
                if not one.done():
                    one.set_result(line)
            await asyncio.sleep(REFRESH_S)

    def _look(self) -> int:
        return strandline_of(self._s.pointer_watch.awaited(REFRESH_S))
