"""Events as JSON lines, one object each: `type`, `payload` or `payload_base64`, `tags`, `metadata`.

The same strictness as everywhere: a key twice, a number that would change, a field that nobody knows are refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

from strandline.cli.failure import unknown
from strandline.errors import Corrupt, InvalidInput, invalid
from strandline.settings import Settings
from strandline.values.events import Event, RecordedEvent
from strandline.values.payloads import parse_json

FIELDS = ("type", "payload", "payload_base64", "tags", "metadata")
PASSED_OVER = frozenset(
    "key seq_nr prev_seq_nr life slice partition log_offset timestamp time append_id headers damaged".split()
)
"""What `read --json` tells of an event besides: it gets a new place, so that one journal can be piped into another."""
# JSON text may need six characters for one byte of payload.
INPUT_FACTOR = 6


def read_events(lines: Iterable[bytes]) -> list[Event]:
    """The events of these lines; blank ones are passed over."""
    return [parse_event(line, f"events[{index}]") for index, line in enumerate(filter(bytes.strip, lines))]


def event_batches(stream: IO[bytes], settings: Settings) -> Iterator[list[Event]]:
    """The events of a stream of any length, as many at a time as one append takes; never more is held."""
    batch: list[Event] = []
    size = index = 0
    while line := stream.readline(INPUT_FACTOR * settings.append_bytes_max + 1):
        if len(line) > INPUT_FACTOR * settings.append_bytes_max:
            raise InvalidInput(
                f"events[{index}]: a line of over {INPUT_FACTOR * settings.append_bytes_max} bytes; "
                f"allowed {settings.append_bytes_max} bytes an append",
                code="append_too_large",
                hint="one event is one line",
                field=f"events[{index}]",
            )
        if not line.strip():
            continue
        event = parse_event(line, f"events[{index}]")
        index += 1
        # What an event adds beside its text (numbers, type, a checksum) is small; a quarter is left for it.
        if batch and (
            len(batch) == settings.append_events_max or size + len(line) > settings.append_bytes_max * 3 // 4
        ):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(line)
    if batch:
        yield batch


def parse_event(line: bytes, field: str) -> Event:
    """One event."""
    value = parse_json(line.strip(), field)
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


class Contents(NamedTuple):
    """The readable contents of an event, or why it has none."""

    payload: Any = None
    metadata: dict[str, Any] | None = None
    damage: Corrupt | None = None


def contents_of(event: RecordedEvent) -> Contents:
    """Touch payload and metadata: only that tells for sure whether they can be read."""
    try:
        return Contents(event.payload, event.metadata)
    except Corrupt as error:
        return Contents(damage=error)
