"""Bodies of requests: refused before they are read if they are too large, and as strict as everything else."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from strandline.errors import InvalidInput, invalid, unknown
from strandline.server.fields import field_of
from strandline.server.frame import FrameError
from strandline.server.routes import JSON_MEDIA, HttpRoute
from strandline.values.payloads import parse_json

BOM: Final = b"\xef\xbb\xbf"
ASIDE_BYTES: Final = 32 * 1024
"""A longer body is parsed in a thread, so that other requests do not wait for it."""


def check_framing(request: Request, most: int) -> None:
    """Refuse, before anything of it is read, a body of two lengths, or one that says that it is too large."""
    headers = request.headers
    length = headers.get("content-length")
    if length is not None and "transfer-encoding" in headers:
        raise FrameError(400, "framing", "both Content-Length and Transfer-Encoding", "send one of them", close=True)
    if length is not None and (not length.isdigit() or int(length) > most):
        raise _too_large(most)


async def read_body(request: Request, most: int, timeout_s: float) -> bytes:
    """Return the body of a request; `FrameError` 413 once it is too large, 408 if it takes too long."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        detail = f"the body did not come within {timeout_s:g} s"
        raise FrameError(408, "slow", detail, "send it faster, or in parts", retryable=True, close=True) from None
    except ClientDisconnect:
        raise FrameError(400, "framing", "the body was cut", "send all of it", close=True) from None
    return b"".join(parts)


async def read_members(request: Request, route: HttpRoute, most: int, timeout_s: float) -> dict[str, Any]:
    """Return the members of the JSON object that a route takes as its body."""
    check_media(request)
    body = await read_body(request, most, timeout_s)
    if not body.strip():
        if not route.needs:
            return {}
        raise InvalidInput("body: empty", code="empty_body", hint="send a JSON object")
    value = parsed(body) if len(body) < ASIDE_BYTES else await asyncio.to_thread(parsed, body)
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


def check_media(request: Request) -> None:
    """Refuse a body that is not JSON as it is: nothing is decompressed here."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        hint = "send the body as it is"
        raise FrameError(415, "media_type", f"Content-Encoding {coding:.40} is not taken", hint, close=True)
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if media != JSON_MEDIA and (has_body or media):
        detail = f"Content-Type is {media or 'missing'}"
        raise FrameError(415, "media_type", detail, f"send Content-Type: {JSON_MEDIA}", close=True)


def parsed(body: bytes) -> Any:
    """Return the value of a body of JSON."""
    if body.startswith(BOM):
        raise _invalid_json("a byte order mark at byte 0")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _invalid_json(f"not UTF-8 at byte {error.start}") from None
    return parse_json(text, "body")


def _invalid_json(wrong: str) -> InvalidInput:
    return InvalidInput(
        f"body: {wrong}; allowed one JSON value in UTF-8", code="invalid_json", hint="give one JSON value", field="body"
    )


def _too_large(most: int) -> FrameError:
    detail = f"the body is larger than {most} bytes"
    return FrameError(413, "body_too_large", detail, "send less at a time", close=True, bytes_max=most)


def _listed(route: HttpRoute) -> str:
    return f"an object of {' '.join(route.body)}"
