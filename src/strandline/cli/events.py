"""Events as JSON lines, one object each: `type`, `payload` or `payload_base64`, `tags`, `metadata`.

The same strictness as everywhere: a key twice, a number that would change, a field that nobody knows are refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import IO, Any
from uuid import UUID

from strandline.cli.failure import unknown
from strandline.errors import InvalidInput, invalid
from strandline.settings import Settings
from strandline.values.events import Event, RecordedEvent
from strandline.values.keys import Key
from strandline.values.payloads import parse_json

FIELDS = ("type", "payload", "payload_base64", "tags", "metadata")
PLACE = tuple("key seq_nr prev_seq_nr life slice partition log_offset timestamp append_id type tags headers".split())
# JSON text may need six characters for one byte of payload.
INPUT_FACTOR = 6


def read_events(lines: Iterable[bytes]) -> list[Event]:
    """The events of these lines; blank ones are passed over."""
    return [parse_event(line, f"events[{index}]") for index, line in enumerate(filter(bytes.strip, lines))]


def bounded_lines(stream: IO[bytes], settings: Settings) -> Iterator[bytes]:
    """Lines of a stream, never more than an append could take: it is refused before memory is gone."""
    bytes_left = INPUT_FACTOR * settings.append_bytes_max
    for _ in range(INPUT_FACTOR * settings.append_events_max):
        line = stream.readline(bytes_left + 1)
        if not line:
            return
        bytes_left -= len(line)
        if bytes_left < 0:
            raise InvalidInput(
                f"events: over {INPUT_FACTOR * settings.append_bytes_max} bytes of input; "
                f"allowed {settings.append_bytes_max} bytes an append",
                code="append_too_large",
                hint="append fewer events at once",
                field="events",
            )
        yield line
    raise InvalidInput(
        f"events: over {INPUT_FACTOR * settings.append_events_max} lines; "
        f"allowed {settings.append_events_max} events an append",
        code="too_many_events",
        hint="append fewer events at once",
        field="events",
    )


def parse_event(line: bytes, field: str) -> Event:
    """One event."""
    value = parse_json(line.strip(), field)
    if not isinstance(value, dict):
        raise invalid("events_type", field, "no JSON object", allowed=" ".join(FIELDS), got=value)
    for name in value:
        if name not in FIELDS:
            raise unknown(f"{field} field", name, FIELDS, code="events_type")
    if "type" not in value:
        raise InvalidInput(f"{field}: no type", code="events_type", hint='give "type": "…"', field=field)
    if ("payload" in value) == ("payload_base64" in value):
        wrong = "payload and payload_base64" if "payload" in value else "no payload"
        raise InvalidInput(
            f"{field}: {wrong}; allowed one of payload, payload_base64",
            code="events_type",
            hint='give "payload": a JSON value, or "payload_base64": bytes',
            field=field,
        )
    payload = value["payload"] if "payload" in value else _bytes_of(value["payload_base64"], f"{field}.payload_base64")
    return Event(value["type"], payload, tags=value.get("tags", ()), metadata=value.get("metadata"))


def _bytes_of(text: object, field: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise invalid("payload_type", field, "no base64", allowed="bytes as base64 text", got=text)


def event_fields(event: RecordedEvent) -> dict[str, Any]:
    """An event as a JSON line shows it. A damaged one has what can still be read of its place, and no payload."""
    if event.damaged:
        return {**{name: _readable(event, name) for name in PLACE}, "damaged": True}
    shown = {name: _plain(getattr(event, name)) for name in PLACE}
    payload = event.payload
    if isinstance(payload, bytes):
        shown["payload_base64"] = base64.b64encode(payload).decode()
    else:
        shown["payload"] = payload
    return {**shown, "metadata": event.metadata, "damaged": False}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, (Key, UUID)) else value


def _readable(event: RecordedEvent, name: str) -> Any:
    try:
        return _plain(getattr(event, name))
    except (ValueError, TypeError, InvalidInput):  # the damage may be in any column
        return None
