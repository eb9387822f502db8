"""Events on the command line: read from JSON lines, one object each, and shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

from strandline.errors import Corrupt, InvalidInput
from strandline.settings import Settings
from strandline.values.event_json import parse_event
from strandline.values.events import Event, RecordedEvent

# JSON text may need six characters for one byte of payload.
INPUT_FACTOR = 6


def read_events(lines: Iterable[bytes]) -> list[Event]:
    """Return the events of these lines; skip blank lines."""
    return [parse_event(line, f"events[{index}]") for index, line in enumerate(filter(bytes.strip, lines))]


def event_batches(stream: IO[bytes], settings: Settings) -> Iterator[list[Event]]:
    """Yield the events of a stream of any length, as many at a time as one append takes; no more are in memory."""
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
        # The other fields of an event (numbers, type, a checksum) are small; a quarter is left for them.
        if batch and (
            len(batch) == settings.append_events_max or size + len(line) > settings.append_bytes_max * 3 // 4
        ):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(line)
    if batch:
        yield batch


class Contents(NamedTuple):
    """The contents of an event, or the error of reading them."""

    payload: Any = None
    metadata: dict[str, Any] | None = None
    damage: Corrupt | None = None


def contents_of(event: RecordedEvent) -> Contents:
    """Read payload and metadata now: only reading shows whether they are damaged."""
    try:
        return Contents(event.payload, event.metadata)
    except Corrupt as error:
        return Contents(damage=error)
