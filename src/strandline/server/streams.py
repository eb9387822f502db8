"""Answers of any length: events as JSON lines, and live ones as server-sent events.

Events are read from the journal a page at a time, in one of the server's threads, and the next page when the reader has
taken this one: a slow or stopped reader holds one page, no thread and no transaction. An error in the query is answered
with its status; a later error is the last line, `{"error": …}`, or the event `error`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline.errors import StrandlineError, Unavailable
from strandline.server.answers import problem_of
from strandline.server.calls import HttpCall
from strandline.server.routes import EVENTS_MEDIA, LINES_MEDIA

PAGE_EVENTS: Final = 200
PAGE_BYTES: Final = 32 * 1024
"""A page ends with the event that goes beyond this size; so at most one event more is held."""
LIVE_EVENTS: Final = 50
LIVE_BYTES: Final = 16 * 1024
"""The size of a live stream's page; there may be a thousand live streams."""
RETRY_LEAST_S: Final = 0.1
RETRY_MOST_S: Final = 5.0
Chunks = AsyncIterator[bytes]


class Shown(Protocol):
    """An event that can be shown: of a journal, or of a query, where it has an offset."""

    @property
    def offset(self) -> Any: ...

    def to_dict(self) -> dict[str, Any]: ...


class StreamedAnswer(Response):
    """A response whose body comes in chunks, until it ends or its reader is gone."""

    def __init__(self, chunks: Chunks, media: str) -> None:
        super().__init__(media_type=media)
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await self._chunks.aclose()  # type: ignore[attr-defined]
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        body = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((body, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (body, gone):
                task.cancel()
            ended = await asyncio.gather(body, gone, return_exceptions=True)
        if isinstance(ended[0], Exception):
            raise ended[0]

    async def _send(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# ---------------------------------------------------------------- JSON lines


class LinesPage(NamedTuple):
    """Some lines, and the error that ended them, if any."""

    lines: bytes
    over: bool
    error: StrandlineError | None = None


async def lines_of(call: HttpCall, events: Callable[[], Iterator[Shown]]) -> Response:
    """Return events, one JSON object a line; `events` opens the iterator."""
    opened = await call.run(events)
    first = await call.run(_next_lines, opened)
    if first.error is not None and not first.lines:
        raise first.error
    return StreamedAnswer(_lines(call, opened, first), LINES_MEDIA)


async def _lines(call: HttpCall, events: Iterator[Shown], page: LinesPage) -> Chunks:
    try:
        while True:
            if page.lines:
                yield page.lines
            if page.error is not None:
                yield orjson.dumps({"error": problem_of(page.error, "")}, option=orjson.OPT_APPEND_NEWLINE)
            if page.over:
                return
            page = await call.run(_next_lines, events)
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            with suppress(ValueError):  # a thread is inside the generator: it ends there
                close()


def _next_lines(events: Iterator[Shown]) -> LinesPage:
    lines: list[bytes] = []
    size = 0
    try:
        for event in islice(events, PAGE_EVENTS):
            line = orjson.dumps(event.to_dict(), option=orjson.OPT_APPEND_NEWLINE)
            lines.append(line)
            size += len(line)
            if size >= PAGE_BYTES:
                return LinesPage(b"".join(lines), False)
    except StrandlineError as error:
        return LinesPage(b"".join(lines), True, error)
    return LinesPage(b"".join(lines), len(lines) < PAGE_EVENTS)


# ---------------------------------------------------------------- server-sent events


class LiveFeed(Protocol):
    """A query that ends with what is in the store now."""

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def resume_offset(self) -> Any: ...

    def close(self) -> None: ...


class LivePage(NamedTuple):
    """Some events as they are sent, and where the next page begins."""

    sent: bytes
    after: Any
    more: bool


Opener = Callable[[Any], LiveFeed]
"""Opens a query strictly after an offset."""


async def live_events(call: HttpCall, opens: Opener, after: str | None) -> Response:
    """Return the events of a query as server-sent events, without end. The `id` of each is the
    offset to go on after.
    """
    line = await call.app.watch.now()
    first = await call.run(_next_events, opens, after)
    return StreamedAnswer(_live(call, opens, first, line), EVENTS_MEDIA)


async def _live(call: HttpCall, opens: Opener, page: LivePage, line: int) -> Chunks:
    stopping = asyncio.create_task(call.app.stopping.wait())
    pause_s = RETRY_LEAST_S
    try:
        yield b": open\n\n"
        while not stopping.done():
            if page.sent:
                yield page.sent
            if not page.more:
                moved = asyncio.create_task(call.app.watch.beyond(line))
                try:
                    while not moved.done() and not stopping.done():
                        await asyncio.wait(
                            (moved, stopping),
                            timeout=call.app.limits.idle_timeout_s / 2,
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                        if not moved.done() and not stopping.done():
                            yield b": waiting\n\n"
                    if not moved.done():
                        return
                    line = moved.result()
                finally:
                    moved.cancel()
                    with suppress(asyncio.CancelledError):
                        await moved
            try:
                page = await call.run(_next_events, opens, page.after)
                pause_s = RETRY_LEAST_S
            except Unavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)
                page = LivePage(b"", page.after, True)
            except StrandlineError as error:
                yield b"event: error\ndata: " + orjson.dumps(problem_of(error, "")) + b"\n\n"
                return
    finally:
        stopping.cancel()


def _next_events(opens: Opener, after: Any) -> LivePage:
    feed = opens(after)
    sent: list[bytes] = []
    size = 0
    more = False
    try:
        for event in feed:
            told = b"id: " + str(event.offset).encode() + b"\ndata: " + orjson.dumps(event.to_dict()) + b"\n\n"
            sent.append(told)
            size += len(told)
            if len(sent) == LIVE_EVENTS or size >= LIVE_BYTES:
                more = True
                break
        resume = feed.resume_offset
        return LivePage(b"".join(sent), after if resume is None else resume, more)
    finally:
        feed.close()
