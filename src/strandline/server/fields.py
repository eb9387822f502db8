"""The values of requests: of each name its JSON schema, what it means, and how a query string writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from strandline.errors import invalid
from strandline.group.groups import HOW
from strandline.server.routes import JsonSchema
from strandline.values.heads import SEQ_NR_MAX

_WHOLE: Final = re.compile(r"-?[0-9]{1,30}")
TRUTH: Final = {"true": True, "false": False}


def _text(text: str, field: str) -> Any:
    return text


def _texts(text: str, field: str) -> Any:
    return text.split(",")


def _whole(code: str) -> Callable[[str, str], Any]:
    def read(text: str, field: str) -> Any:
        if not _WHOLE.fullmatch(text):
            raise invalid(code, field, "not a whole number", allowed="digits", got=text)
        return int(text)

    return read


def _truth(text: str, field: str) -> Any:
    if text not in TRUTH:
        raise invalid("option", field, "neither true nor false", allowed="true or false", got=text)
    return TRUTH[text]


def time_from_text(text: str, field: str) -> datetime | int:
    """Return a time as a query string writes it: microseconds since 1970, or RFC 3339 with a zone."""
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        allowed = "a time with a zone such as 2026-11-15T07:30:00Z, or microseconds since 1970"
        raise invalid("time_format", field, "not a time", allowed=allowed, got=text) from None


class HttpField(NamedTuple):
    """A value of a request."""

    schema: JsonSchema
    help: str
    read: Callable[[str, str], Any] = _text
    """Its value from the text of a query string; the second argument names it in errors."""


def text(help_: str, **more: Any) -> HttpField:
    """A field that is text."""
    return HttpField({"type": "string", **more}, help_)


def whole(help_: str, least: int, most: int, *, code: str) -> HttpField:
    """A field that is a whole number."""
    return HttpField({"type": "integer", "minimum": least, "maximum": most}, help_, _whole(code))


def truth(help_: str) -> HttpField:
    """A field that is true or false."""
    return HttpField({"type": "boolean"}, help_, _truth)


KEY: Final = {
    "type": "string",
    "minLength": 3,
    "maxLength": 512,
    "pattern": r"^[^|\x00-\x1f\x7f-\x9f]+\|[^\x00-\x1f\x7f-\x9f]+$",
}
SEQ_NR: Final = {"type": "integer", "minimum": 1, "maximum": SEQ_NR_MAX}
OBJECT: Final = {"type": "object"}
EVENT: Final = {
    "type": "object",
    "required": ["type"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "minLength": 1},
        "payload": {"description": "A JSON value."},
        "payload_base64": {"type": "string", "description": "Bytes, instead of a payload.", "format": "byte"},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True},
        "metadata": {"type": ["object", "null"]},
    },
    "not": {"required": ["payload", "payload_base64"]},
}

FIELDS: Final[Mapping[str, HttpField]] = {
    "why": text("Why: it stands in the record of the act.", maxLength=1000),
}
"""Every value that a request may give, by its name in paths, query strings and bodies."""

HEADERS: Final[Mapping[str, HttpField]] = {}
"""Request headers that change what a call does."""


def duration(seconds: float | None) -> timedelta | None:
    """Return seconds as a duration; None is none."""
    return None if seconds is None else timedelta(seconds=seconds)


__all__ = ["EVENT", "FIELDS", "HEADERS", "HOW", "KEY", "OBJECT", "SEQ_NR", "HttpField"]
