"""A future that costs little until somebody waits for it.

Making the condition of a `concurrent.futures.Future` takes longer than all the rest of handing an append over, and most
answers are asked for when they are there. Here the first thread that needs the condition makes it: by waiting for the
answer, adding a callback, or giving the future to `concurrent.futures.wait`, `as_completed` or `asyncio.wrap_future`.
An answer that comes before that needs none.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Condition, Lock
from typing import Final, TypeVar

T = TypeVar("T")

RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"
_making: Final = Lock()
"""Held while a condition is made, and while a future without one is answered, so that each sees what the other did."""


class AnswerFuture(Future[T]):
    """The answer of an operation that is under way and cannot be cancelled."""

    _made: Condition | None = None
    _state = RUNNING
    _result = None
    _exception = None

    def __init__(self) -> None:
        """Make a future whose state its condition guards."""

    @property
    def _condition(self) -> Condition:  # type: ignore[override]
        if self._made is None:
            with _making:
                if self._made is None:
                    self._waiters = []
                    self._done_callbacks: list[object] = []
                    self._made = Condition()
        return self._made

    def set_result(self, result: T) -> None:
        with _making:
            if self._made is None and self._state == RUNNING:
                self._result = result
                self._state = FINISHED
                return
        super().set_result(result)

    def result(self, timeout: float | None = None) -> T:
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result(timeout)

    def done(self) -> bool:
        return self._state == FINISHED
