"""A wait that any number of tasks share: one task looks, and the others wait for its result without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from strandline.errors import StrandlineError

T = TypeVar("T")
AWAY_S: Final = 1.0
"""How long the task pauses after a look that failed."""


class SharedWait(Generic[T]):
    """Hands the result of `look` to all tasks that wait. It calls `look` again and again while a task waits."""

    def __init__(self, look: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._look = look
        self._waiting: list[asyncio.Future[T]] = []
        self._task: asyncio.Task[None] | None = None

    async def next(self) -> T:
        """Return the result of the next look."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[T] = loop.create_future()
        self._waiting.append(found)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        try:
            return await found
        finally:
            if found in self._waiting:
                self._waiting.remove(found)

    async def _run(self) -> None:
        while self._waiting:
            try:
                value = await self._look()
            except StrandlineError:
                await asyncio.sleep(AWAY_S)
                continue
            told, self._waiting = self._waiting, []
            for one in told:
                if not one.done():
                    one.set_result(value)
