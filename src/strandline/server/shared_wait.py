"""One task looks, and any number of tasks wait for what it finds: those that wait hold no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from strandline.errors import StrandlineError

T = TypeVar("T")
AWAY_S: Final = 1.0
"""How long the task waits where what it looks at is away."""


class SharedWait(Generic[T]):
    """Hands what `look` returns to all that wait; it looks again and again while somebody waits."""

    def __init__(self, look: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._look = look
        self._waiting: list[asyncio.Future[T]] = []
        self._task: asyncio.Task[None] | None = None

    async def next(self) -> T:
        """Return what is found next."""
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
