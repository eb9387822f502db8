"""Strandline for asyncio: the same calls, to await, and `async for` where the plain ones iterate.

    async with aio.connect("sqlite:orders") as s:
        await s.journal.append("order|42", [Event("Placed", {"total": 99})], expected=0)
        async for event in s.journal.read("order|42"): ...

Nothing is decided here: each call is the plain one. An append is its future (`Journal.append_future`) and holds no
thread; every other call runs in one of `threads` threads; each stream that is open has one of its own, which reads on
while the loop is busy, up to `AHEAD` events. Arguments, answers and errors are those of `strandline.Journal` and
`strandline.Strandline`.

Who stops waiting (a cancelled task, a time-out) does not undo a call that is under way: an append may be recorded all
the same. Send it again with the same `append_id`, and it is stored once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from strandline.connect import Strandline as PlainStrandline
from strandline.connect import connect as plain_connect
from strandline.journal.journal import Journal as PlainJournal
from strandline.query.tagged_event import TaggedEvent
from strandline.values.events import RecordedEvent

AHEAD: Final = 1000
"""So many events a stream reads ahead of its reader."""
THREADS: Final = 8

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")


class Stream(Generic[E]):
    """An iterator of the plain API, read by a thread of its own while this is iterated; closed at its end or by hand.

    Left before its end it is to be closed: `async with` does that.
    """

    def __init__(self, open_: Callable[[], Iterator[E]]) -> None:
        self._open = open_
        self._plain: Iterator[E] | None = None
        self._came: deque[E] = deque()
        self._error: BaseException | None = None
        self._over = self._closed = False
        self._room = Condition()
        self._waiting: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def resume_offset(self) -> Any:
        """As the plain query has it: after what was read, which may be ahead of what was handed out here.

        An event's own `offset` says exactly where to go on behind it.
        """
        return getattr(self._plain, "resume_offset", None)

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
            # Between the look above and here the thread may have brought something, and found nobody to wake.
            if not self._came and not self._over:
                await self._waiting
            self._waiting = None
        event = self._came.popleft()
        if len(self._came) == AHEAD // 2:
            with self._room:
                self._room.notify()
        return event

    async def aclose(self) -> None:
        """End it; a thread that waits for events ends too. Twice is harmless."""
        self._closed = True
        with self._room:
            self._room.notify()
        close = getattr(self._plain, "close", None)
        if close is not None:
            with suppress(ValueError):  # a generator that its thread is in: that sees `_closed` with its next event
                close()
        self._came.clear()
        self._over = True
        self._wake()

    def _read(self) -> None:
        """The thread: reads until there is no more, or nobody wants it any more."""
        try:
            self._plain = self._open()
            if self._closed:  # before `aclose` could see what to close
                return
            for event in self._plain:
                if self._closed:
                    return
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


# ---------------------------------------------------------------- the three ways of a call


class _Awaitable:
    """An object of the plain API, and the threads that its calls run in."""

    def __init__(self, plain_: Any, threads: ThreadPoolExecutor) -> None:
        self._plain, self._threads = plain_, threads


def _call(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A call that runs in a thread."""

    @wraps(call)
    async def awaited(self: Any, /, *given: P.args, **named: P.kwargs) -> R:
        asked = partial(call, self._plain, *given, **named)
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._threads, asked)
        except RuntimeError:  # closed: the plain call says so in its own words
            return await asyncio.to_thread(asked)
        return await answer

    return awaited


def _future(call: Callable[Concatenate[Any, P], Future[R]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A call that gives a future and does not wait."""

    @wraps(call)
    async def awaited(self: Any, /, *given: P.args, **named: P.kwargs) -> R:
        return await asyncio.wrap_future(call(self._plain, *given, **named))

    return awaited


def _stream(call: Callable[Concatenate[Any, P], Iterator[E]]) -> Callable[Concatenate[Any, P], Stream[E]]:
    """A call that gives an iterator; what is wrong with its arguments is told with the first event."""

    @wraps(call)
    def streamed(self: Any, /, *given: P.args, **named: P.kwargs) -> Stream[E]:
        return Stream(partial(call, self._plain, *given, **named))

    return streamed


# ---------------------------------------------------------------- what there is


class Journal(_Awaitable):
    """`strandline.Journal`, to await."""

    append = _future(PlainJournal.append_future)
    append_many = _call(PlainJournal.append_many)
    read = _stream(PlainJournal.read)
    head = _call(PlainJournal.head)
    delete = _call(PlainJournal.delete)
    purge = _call(PlainJournal.purge)
    mark = _call(PlainJournal.mark)
    wait_replicated = _call(PlainJournal.wait_replicated)
    entity_types = _call(PlainJournal.entity_types)
    keys = _call(PlainJournal.keys)
    save_snapshot = _call(PlainJournal.save_snapshot)
    load_snapshot = _call(PlainJournal.load_snapshot)
    snapshots = _call(PlainJournal.snapshots)
    delete_snapshots = _call(PlainJournal.delete_snapshots)
    recover = _call(PlainJournal.recover)


class Strandline(_Awaitable):
    """`strandline.Strandline`, to await. An async context manager."""

    def __init__(self, plain_: PlainStrandline, threads: ThreadPoolExecutor) -> None:
        super().__init__(plain_, threads)
        self.journal = Journal(plain_.journal, threads)

    strandline = _call(PlainStrandline.strandline)
    status = _call(PlainStrandline.status)

    def by_slices(self, entity_type: str, lo: int, hi: int, **how: Any) -> Stream[RecordedEvent]:
        """Events of an entity type in slices `lo`..`hi`, as `strandline.Strandline.by_slices` gives them."""
        return Stream(partial(self._plain.by_slices, entity_type, lo, hi, **how))

    def by_tag(self, tag: str, **how: Any) -> Stream[TaggedEvent]:
        """Events with a tag, as `strandline.Strandline.by_tag` gives them."""
        return Stream(partial(self._plain.by_tag, tag, **how))

    wait_for_strandline = _call(PlainStrandline.wait_for_strandline)

    async def close(self) -> None:
        """Finish what is queued and let go of log and store. Twice is harmless."""
        await asyncio.to_thread(self._plain.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connecting:
    """What `connect` gives: `await` it, or enter it with `async with`."""

    def __init__(self, open_: Callable[[], PlainStrandline], threads: int) -> None:
        self._open, self._count = open_, threads
        self._opened: Strandline | None = None

    async def _connected(self) -> Strandline:
        threads = ThreadPoolExecutor(self._count, thread_name_prefix="strandline-call")
        try:
            return Strandline(await asyncio.get_running_loop().run_in_executor(threads, self._open), threads)
        except BaseException:
            threads.shutdown(wait=False)
            raise

    def __await__(self) -> Generator[Any, Any, Strandline]:
        return self._connected().__await__()

    async def __aenter__(self) -> Strandline:
        self._opened = await self._connected()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def connect(url: str | None = None, *, threads: int = THREADS, **options: Any) -> Connecting:
    """Open a log and its store as `strandline.connect` does, with the same arguments."""
    return Connecting(partial(plain_connect, url, **options), threads)
