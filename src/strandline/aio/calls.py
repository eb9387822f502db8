"""How a call of the plain API becomes awaitable: by a future, in a thread, or as a stream."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar
from weakref import WeakKeyDictionary, ref

AHEAD: Final = 1000
"""How many events a stream reads ahead of its reader."""

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")


class Stream(Generic[E]):
    """An iterator of the plain API, read by a thread of its own while this stream is iterated.

    It is closed at its end. A reader that stops before the end must close it, as `async with` does.
    """

    def __init__(self, open_: Callable[[], Iterator[E]]) -> None:
        self._open = open_
        self._plain: Iterator[E] | None = None
        self._came: deque[E] = deque()
        self._error: BaseException | None = None
        self._over = self._closed = False
        self._start: Any = None
        """The offset of the query before its first event."""
        self._last: E | None = None
        """The last event that was handed out."""
        self._read_whole = False
        self._brought = self._handed = 0
        """How many events the thread has read, and how many of them were handed out."""
        self._room = Condition()
        self._waiting: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def resume_offset(self) -> Any:
        """The offset behind the last event that was handed out here, however far the thread has read ahead.

        Once all events were handed out, it is the plain query's, which is also behind events that its filter left out.
        """
        if self._read_whole and self._handed == self._brought:
            return getattr(self._plain, "resume_offset", None)
        return self._start if self._last is None else getattr(self._last, "offset", None)

    def __aiter__(self) -> AsyncIterator[E]:
        return self

    async def __anext__(self) -> E:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            Thread(target=self._read, name="strandline-stream", daemon=True).start()
        while not self._came:
            if self._over:
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                raise StopAsyncIteration
            self._waiting = self._loop.create_future()
            # Between the check above and here the thread may have added an event, and found no reader to wake.
            if not self._came and not self._over:
                await self._waiting
            self._waiting = None
        self._last = event = self._came.popleft()
        self._handed += 1
        if len(self._came) == AHEAD // 2:
            with self._room:
                self._room.notify()
        return event

    async def aclose(self) -> None:
        """End the stream, and its thread if that waits for events. Twice is harmless."""
        self._closed = True
        with self._room:
            self._room.notify()
        close = getattr(self._plain, "close", None)
        if close is not None:
            with suppress(ValueError):  # the thread is inside the generator: it sees `_closed` with its next event
                close()
        self._came.clear()
        self._over = True
        self._wake()

    def _read(self) -> None:
        """Read, in the stream's thread, until the end, or until the stream is closed."""
        try:
            self._plain = self._open()
            if self._closed:  # the stream was closed before `aclose` could see this iterator
                return
            self._start = getattr(self._plain, "resume_offset", None)
            for event in self._plain:
                if self._closed:
                    return
                self._brought += 1
                self._came.append(event)
                if self._waiting is not None:
                    self._call(self._wake)
                if len(self._came) >= AHEAD:
                    with self._room:
                        self._room.wait_for(lambda: self._closed or len(self._came) < AHEAD)
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is the reader's answer)
            self._error = error
        finally:
            close = getattr(self._plain, "close", None)
            if close is not None:
                close()
            self._read_whole = not self._closed
            self._over = True
            self._call(self._wake)

    def _call(self, wake: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(wake)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Awaited:
    """An object of the plain API, and the threads that its calls run in."""

    def __init__(self, plain_: Any, threads: ThreadPoolExecutor) -> None:
        self._plain, self._threads = plain_, threads

    def __repr__(self) -> str:
        return f"<aio {self._plain!r}>"


def _bound(call: Callable[..., R], plain_: Any) -> Callable[..., R]:
    """Return the object's present method: metrics and traces may have wrapped it since this module was loaded."""
    return getattr(plain_, call.__name__)  # type: ignore[no-any-return]


def called(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a call that runs in one of the threads."""

    @wraps(call)
    async def awaited(self: Any, /, *given: P.args, **named: P.kwargs) -> R:
        asked = partial(_bound(call, self._plain), *given, **named)
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._threads, asked)
        except RuntimeError:  # the connection is closed: the plain call raises its own error for that
            return await asyncio.to_thread(asked)
        return await answer

    return awaited


def waited(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a call that may wait long: it has a thread of its own, so that no other call waits for it."""

    @wraps(call)
    async def awaited(self: Any, /, *given: P.args, **named: P.kwargs) -> R:
        return await in_a_thread(partial(_bound(call, self._plain), *given, **named))

    return awaited


def run_of(call: Callable[[Any], None]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Return a call that runs until it is told to stop. If its task is cancelled, the call is told to stop, and its end
    is awaited.
    """

    @wraps(call)
    async def awaited(self: Any, /) -> None:
        plain_ = await self._started()
        running = in_a_thread(partial(call, plain_))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            plain_.stop()
            await running
            raise

    return awaited


def in_a_thread(call: Callable[[], R]) -> asyncio.Future[R]:
    """Run a call in a thread of its own, and return a future of its answer."""
    answer: Future[R] = Future()
    answer.set_running_or_notify_cancel()  # a call that is under way cannot be cancelled

    def answered() -> None:
        try:
            given = call()
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is the caller's answer)
            answer.set_exception(error)
        else:
            answer.set_result(given)

    waiting = asyncio.wrap_future(answer)
    Thread(target=answered, name="strandline-wait", daemon=True).start()
    return waiting


class LoopRelay:
    """Hands results from other threads to the futures of one loop. The loop is woken once for all results that have
    come.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._came: deque[tuple[Future[Any], asyncio.Future[Any]]] = deque()
        self._woken = False

    def future_of(self, future: Future[R]) -> asyncio.Future[R]:
        """Return a future of the running loop for one that another thread resolves; cancelling it does not cancel that
        one.
        """
        waiting: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: self._arrived(done, waiting))
        return waiting

    def _arrived(self, done: Future[Any], waiting: asyncio.Future[Any]) -> None:
        self._came.append((done, waiting))
        if not self._woken:
            self._woken = True
            loop = self._loop()
            if loop is not None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False  # reset before the queue is emptied, so that a result that comes later wakes the loop again
        while self._came:
            done, waiting = self._came.popleft()
            if waiting.cancelled():
                continue
            error = done.exception()
            if error is None:
                waiting.set_result(done.result())
            else:
                waiting.set_exception(error)


_relays: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopRelay]] = WeakKeyDictionary()


def _relay_of(loop: asyncio.AbstractEventLoop) -> LoopRelay:
    found = _relays.get(loop)
    if found is None:
        found = _relays[loop] = LoopRelay(loop)
    return found


def sent(call: Callable[Concatenate[Any, P], Future[R]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a call that awaits the plain call's future and holds no thread."""

    @wraps(call)
    async def awaited(self: Any, /, *given: P.args, **named: P.kwargs) -> R:
        relay = _relay_of(asyncio.get_running_loop())
        return await relay.future_of(_bound(call, self._plain)(*given, **named))

    return awaited


def streamed(call: Callable[Concatenate[Any, P], Iterator[E]]) -> Callable[Concatenate[Any, P], Stream[E]]:
    """Return a call that returns a stream; an error in its arguments is raised when the first event is asked for."""

    @wraps(call)
    def opened(self: Any, /, *given: P.args, **named: P.kwargs) -> Stream[E]:
        return Stream(partial(_bound(call, self._plain), *given, **named))

    return opened


def plain_handler(handler: Callable[[Any], Any], given: Callable[[Any], Any] = lambda one: one) -> Callable[[Any], Any]:
    """Return a handler that a thread can call. A coroutine function runs in the present loop while the thread waits."""
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(type(handler).__call__):
        return handler
    loop = asyncio.get_running_loop()
    return lambda one: asyncio.run_coroutine_threadsafe(handler(given(one)), loop).result()
