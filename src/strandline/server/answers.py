"""Answers: JSON, and errors as `application/problem+json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from strandline.errors import StrandlineError, Unavailable
from strandline.server.frame import FrameError
from strandline.server.routes import JSON_MEDIA
from strandline.values.json_form import json_form

PROBLEM_MEDIA: Final = "application/problem+json"
RETRY_AFTER: Final = {"Retry-After": "1"}
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}
"""Every answer has these: a browser runs no inline script, loads nothing from elsewhere, keeps and frames nothing."""


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value of the API as a response."""
    return Response(encoded(value), status, dict(headers or {}), JSON_MEDIA)


def encoded(value: Any) -> bytes:
    """Return a value of the API as JSON."""
    return orjson.dumps(json_form(value))


def problem_of(error: Exception, request_id: str) -> dict[str, Any]:
    """Return the problem document of an error: never with a traceback, and for a bug only with the
    fact that it is one.
    """
    if isinstance(error, FrameError):
        told: dict[str, Any] = {"title": "Refused", "code": error.code, "status": error.status, "detail": error.detail}
        told |= {"hint": error.hint, "applied": error.applied, "retryable": error.retryable, "facts": error.facts}
    elif isinstance(error, StrandlineError):
        told = {"title": type(error).__name__, "code": error.code, "status": error.http_status}
        told |= {"detail": error.message, "hint": error.hint, "applied": error.applied, "retryable": error.retryable}
        if (field := error.facts.get("field")) is not None:
            told["field"] = field
        told["facts"] = _finite(json_form(error.facts))
    else:
        told = {"title": "Bug", "code": "bug", "status": 500, "detail": "this is a bug of the server"}
        told |= {"hint": "tell its operator the request_id: its log has the rest"}
        told |= {"applied": "unknown", "retryable": False, "facts": {}}
    return told | {"request_id": request_id}


def problem_response(error: Exception, request_id: str) -> Response:
    """Return an error as a response."""
    problem = problem_of(error, request_id)
    headers = dict(error.headers) if isinstance(error, FrameError) else {}
    if isinstance(error, Unavailable):
        headers |= RETRY_AFTER
    return Response(orjson.dumps(problem), problem["status"], headers, PROBLEM_MEDIA)


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold: a number that is not finite becomes text."""
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value
