"""Events as callers write them in JSON: `type`, `payload` or `payload_base64`, `tags`, `metadata`.

It is as strict as everywhere: a key twice, a number that would change, and an unknown field are refused.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from strandline.errors import InvalidInput, invalid, unknown
from strandline.values.events import Event
from strandline.values.payloads import parse_json

FIELDS = ("type", "payload", "payload_base64", "tags", "metadata")
PASSED_OVER = frozenset(
    "key seq_nr prev_seq_nr life slice partition log_offset timestamp time append_id headers damaged".split()
)
"""The fields of an event that a read returns and an append ignores, so that one journal can be piped into another."""


def parse_event(line: bytes, field: str) -> Event:
    """Return the event of a line of JSON."""
    return event_of(parse_json(line.strip(), field), field)


def event_of(value: Any, field: str) -> Event:
    """Return the event that a JSON value gives; `field` names it in errors."""
    if not isinstance(value, dict):
        raise invalid(
            "events_type",
            field,
            "no JSON object",
            allowed=f"an object of {' '.join(FIELDS)}",
            got=value,
            hint='give {"type": "…", "payload": …}',
        )
    if value.get("damaged") is True:
        raise InvalidInput(
            f"{field}: damaged", code="events_type", hint="resolve it first, or leave it out", field=field
        )
    for name in value:
        if name not in FIELDS and name not in PASSED_OVER:
            raise unknown(f"{field} field", name, FIELDS, code="events_type")
    if "type" not in value:
        raise InvalidInput(f"{field}: no type", code="events_type", hint='give "type": "…"', field=field)
    if "payload" in value and "payload_base64" in value:
        raise InvalidInput(
            f"{field}: payload and payload_base64; allowed one of them",
            code="events_type",
            hint='give "payload": a JSON value, or "payload_base64": bytes',
            field=field,
        )
    payload = value.get("payload")
    if "payload_base64" in value:
        payload = _bytes_of(value["payload_base64"], f"{field}.payload_base64")
    return Event(value["type"], payload, tags=value.get("tags", ()), metadata=value.get("metadata"))


def _bytes_of(text: object, field: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise invalid("payload_type", field, "no base64", allowed="bytes as base64 text", got=text)
