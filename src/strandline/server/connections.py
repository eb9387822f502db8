"""Connections of the server: uvicorn's, with limits for slow and silent clients.

A request's headers must come within a time and a size; an idle connection is closed if another one needs its place; the
unsent part of an answer to a slow reader stays small.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from strandline.server.answers import PROBLEM_MEDIA
from strandline.server.limits import HttpLimits

WRITE_BUFFER_BYTES: Final = 16 * 1024
"""So much of an answer waits in this process for a reader, beside what the kernel holds."""
REASONS: Final = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class IdleConnections:
    """The connections that wait for a request; the one that has waited longest is first."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self._idle: OrderedDict[LimitedConnection, None] = OrderedDict()

    def add(self, connection: LimitedConnection) -> None:
        """Note that a connection waits for a request."""
        self._idle[connection] = None
        self._idle.move_to_end(connection)

    def discard(self, connection: LimitedConnection) -> None:
        """Note that a connection has a request, or is gone."""
        self._idle.pop(connection, None)

    def make_room(self, open_connections: int) -> bool:
        """Close the connection that has been idle longest if there are too many; return False if none is idle."""
        if open_connections <= self.limits.connections_max:
            return True
        if not self._idle:
            return False
        connection, _ = self._idle.popitem(last=False)
        connection.transport.abort()
        return True


class LimitedConnection(H11Protocol):
    """One connection of a client."""

    idle: IdleConnections
    """Shared by all connections of a server: set on the class that `connections_of` makes."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._deadline: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self.idle.make_room(len(self.connections)):
            transport.abort()
            return
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self._unstuck()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the reader has stopped reading; if that lasts, abort the connection."""
        super().pause_writing()
        self._unstuck()
        self._stuck = self.loop.call_later(self.idle.limits.idle_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._unstuck()
        super().resume_writing()

    def _unstuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._headers_came()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_headers()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, or headers that are too long."""
        too_long = len(self.conn.trailing_data[0]) > self.idle.limits.header_bytes_max
        self._refuse(431 if too_long else 400)

    def _wait_for_headers(self) -> None:
        self._headers_came()
        self.idle.add(self)
        self._deadline = self.loop.call_later(self.idle.limits.header_timeout_s, self._too_slow)

    def _headers_came(self) -> None:
        self.idle.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        """End a connection whose request did not come in time; one that began a request gets an answer."""
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0] and self.conn.our_state is h11.IDLE:
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        if self.transport.is_closing():
            return
        code, detail = {
            400: ("framing", "this is no HTTP request"),
            408: ("slow", f"the headers did not come within {self.idle.limits.header_timeout_s:g} s"),
            431: ("headers_too_large", f"the headers are longer than {self.idle.limits.header_bytes_max} bytes"),
        }[status]
        problem = {"title": "Refused", "code": code, "status": status, "detail": detail, "hint": "", "applied": "no"}
        problem |= {"retryable": status == 408, "facts": {}, "request_id": ""}
        body = json.dumps(problem).encode()
        head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {PROBLEM_MEDIA}\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()


def connections_of(limits: HttpLimits) -> type[LimitedConnection]:
    """Return the class of the connections of one server."""
    return type("LimitedConnection", (LimitedConnection,), {"idle": IdleConnections(limits)})
