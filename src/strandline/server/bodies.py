"""Bodies of requests: refused before they are read if they are too large, and parsed strictly."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from typing import Any, Final

from strandline.errors import InvalidInput, invalid, unknown
from strandline.server.calls import HttpRequest
from strandline.server.fields import field_of
from strandline.server.frame import FrameError
from strandline.server.limits import HttpLimits
from strandline.server.routes import JSON_MEDIA, HttpRoute
from strandline.values.payloads import parse_json

BOM: Final = b"\xef\xbb\xbf"
ASIDE_BYTES: Final = 32 * 1024
"""A longer body is parsed in a thread, so that other requests do not wait for it."""
LARGE_BYTES: Final = 256 * 1024
LARGE_AT_ONCE: Final = 2
FORM_BYTES: Final = 16 * 1024
_TEXTS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""The texts of JSON. The repetition gives nothing back, so a text without an end costs no more than one with."""


def check_framing(request: HttpRequest, most: int) -> None:
    """Refuse, before a byte is read, a body with two lengths, or whose Content-Length is too large."""
    headers = request.given
    length = headers.get("content-length")
    if length is not None and "transfer-encoding" in headers:
        raise FrameError(400, "framing", "both Content-Length and Transfer-Encoding", "send one of them", close=True)
    if length is not None and (not length.isdigit() or int(length) > most):
        raise _too_large(f"larger than {most} bytes")


class BodyReader:
    """Reads bodies within limits: how large, for how long, of how many values, and how many large ones at once.

    A body becomes many times as large when it is parsed. So only two large bodies are in memory at a time; other
    senders wait.
    """

    def __init__(self, bytes_max: int, limits: HttpLimits) -> None:
        self.bytes_max = bytes_max
        self._limits = limits
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def read(self, request: HttpRequest, held: ExitStack) -> bytearray:
        """Return the body of a request; `FrameError` 413 once it is too large, 408 if it takes too long.

        `held` keeps the turn of a large body until the request is over.
        """
        return await self._read(request, self.bytes_max, held)

    async def read_form(self, request: HttpRequest) -> bytearray:
        """Return the body of a form. The limit is small, because the sender may be unknown."""
        check_framing(request, FORM_BYTES)
        return await self._read(request, FORM_BYTES, None)

    async def read_members(self, request: HttpRequest, route: HttpRoute, held: ExitStack) -> dict[str, Any]:
        """Return the members of the JSON object that a route takes as its body."""
        check_media(request)
        body = await self.read(request, held)
        if not body or body.isspace():
            if not route.needs:
                return {}
            raise InvalidInput("body: empty", code="empty_body", hint="send a JSON object")
        if len(body) < ASIDE_BYTES:
            value = parsed(body)
        else:
            value = await asyncio.to_thread(parsed, body, self._limits.body_values_max)
        return _members(value, route)

    async def _read(self, request: HttpRequest, most: int, held: ExitStack | None) -> bytearray:
        body = bytearray()
        timeout_s = self._limits.body_timeout_s
        large = held is None
        try:
            async with asyncio.timeout(timeout_s):
                more = True
                while more:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise FrameError(400, "framing", "the body was cut", "send all of it", close=True)
                    part, more = message.get("body", b""), message.get("more_body", False)
                    if len(body) + len(part) > most:
                        raise _too_large(f"larger than {most} bytes")
                    if held is not None and not large and len(body) + len(part) > LARGE_BYTES:
                        await self._large.acquire()
                        held.callback(self._large.release)
                        large = True
                    body += part
        except TimeoutError:
            detail = f"the body did not come within {timeout_s:g} s"
            raise FrameError(408, "slow", detail, "send it faster, or in parts", retryable=True, close=True) from None
        return body


def _members(value: Any, route: HttpRoute) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid("option", "body", "no JSON object", allowed=_listed(route), got=value)
    for name in value:
        if name not in route.body:
            raise unknown("body", name, route.body)
        field_of(route, name).check_type(value[name], name)
    for name in route.needs:
        if name not in value:
            raise invalid("option", name, "missing", allowed=_listed(route), got="nothing", hint=f"give {name}")
    return value


def check_media(request: HttpRequest) -> None:
    """Refuse a body that is not plain JSON: the server does not decompress bodies."""
    media = request.given.get("content-type", "").partition(";")[0].strip().lower()
    coding = request.given.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        hint = "send the body as it is"
        raise FrameError(415, "media_type", f"Content-Encoding {coding:.40} is not taken", hint, close=True)
    has_body = request.given.get("content-length", "0") != "0" or "transfer-encoding" in request.given
    if media != JSON_MEDIA and (has_body or media):
        detail = f"Content-Type is {media or 'missing'}"
        raise FrameError(415, "media_type", detail, f"send Content-Type: {JSON_MEDIA}", close=True)


def parsed(body: bytearray, values_max: int | None = None) -> Any:
    """Return the value of a body of JSON; `FrameError` 413, before it is parsed, if it has too many values."""
    if body.startswith(BOM):
        raise _invalid_json("a byte order mark at byte 0")
    if values_max is not None and _values_in(body) > values_max:
        raise _too_large(f"of more than {values_max} values")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _invalid_json(f"not UTF-8 at byte {error.start}") from None
    return parse_json(text, "body")


def _values_in(body: bytearray) -> int:
    """Return about how many values a body of JSON has."""
    marks = _TEXTS.sub(b"", body)
    return sum(map(marks.count, (b",", b"[", b"{")))


def _invalid_json(wrong: str) -> InvalidInput:
    return InvalidInput(
        f"body: {wrong}; allowed one JSON value in UTF-8", code="invalid_json", hint="give one JSON value", field="body"
    )


def _too_large(why: str) -> FrameError:
    return FrameError(413, "body_too_large", f"the body is {why}", "send less at a time", close=True)


def _listed(route: HttpRoute) -> str:
    return f"an object of {' '.join(route.body)}"
