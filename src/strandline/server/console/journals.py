"""Pages of journals: entity types, keys, events with a tag, and one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.errors import Corrupt
from strandline.journal.checks import RESERVED_ENTITY_TYPES
from strandline.server.console.desk import ConsoleDesk, Found, PageQuery, whole
from strandline.server.console.texts import csv_text, payload_text
from strandline.values.events import RecordedEvent
from strandline.values.keys import Key, partition_of

if TYPE_CHECKING:
    from strandline.connect import Strandline

KEYS: Final = 100
EVENTS: Final = 50
CSV_EVENTS: Final = 10_000


def journals_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return entity types, and the keys of one, or the events with a tag."""
    s, type_, tag = desk.s, given.get("entity_type"), given.get("tag")
    types = [name for name in s.journal.entity_types() if name not in RESERVED_ENTITY_TYPES or name == type_]
    found: Found = {
        "types": types,
        "entity_type": type_,
        "tag": tag,
        "keys": [],
        "events": [],
        "more": "",
        "payloads": given.payloads,
    }
    if tag:
        found |= _tagged(s, tag, given)
    elif type_:
        keys = s.journal.keys(type_, after=given.get("after") or None, limit=KEYS + 1)
        found |= {"keys": [str(key) for key in keys[:KEYS]], "more": str(keys[KEYS - 1]) if len(keys) > KEYS else ""}
    return found


def _tagged(s: Strandline, tag: str, given: PageQuery) -> Found:
    events: list[dict[str, Any]] = []
    offset = None
    with s.by_tag(tag, after=given.get("after") or None) as found:
        for event in found:
            events.append(event_row(event, payloads=given.payloads))
            offset = event.offset
            if len(events) == EVENTS:
                break
    return {"events": events, "more": str(offset) if len(events) == EVENTS else ""}


def journal_page(desk: ConsoleDesk, given: PageQuery) -> Found:
    """Return a key's head, its events from the newest, and its snapshots."""
    journal, key = desk.s.journal, Key.of(given.get("key"))
    head, before = journal.head(key), whole(given.values, "before") if given.get("before") else 0
    to = before - 1 if before else None
    events: list[dict[str, Any]] = []
    if head is not None and to != 0:
        rows = journal.read(key, to=to, backwards=True, limit=EVENTS)
        events = [event_row(event, payloads=given.payloads) for event in rows]
    partitions = desk.s.log.partitions
    return {
        "key": key, "head": head, "events": events, "slice": key.slice,
        "partition": partition_of(key.slice, partitions),
        "older": events[-1]["seq_nr"] if len(events) == EVENTS and events[-1]["seq_nr"] > 1 else 0,
        "newest": not before, "payloads": given.payloads,
        "snapshots": journal.snapshots(key) if head is not None else [],
    }  # fmt: skip


def event_row(event: RecordedEvent, *, payloads: bool) -> dict[str, Any]:
    """Return an event as a table shows it; its payload and metadata only if they are asked for."""
    row: dict[str, Any] = {
        "key": str(event.key), "seq_nr": event.seq_nr, "life": event.life, "type": event.type, "tags": event.tags,
        "at": event.timestamp, "partition": event.partition, "offset": event.log_offset, "damaged": event.damaged,
        "append_id": str(event.append_id), "payload": None, "metadata": None,
    }  # fmt: skip
    if payloads and not event.damaged:
        try:
            row |= {"payload": payload_text(event.payload)}
            row |= {"metadata": payload_text(event.metadata) if event.metadata else None}
        except Corrupt:
            row["damaged"] = True
    return row


def journal_csv(desk: ConsoleDesk, given: PageQuery) -> str:
    """Return a key's events as CSV, the oldest first; payloads only if they are asked for."""
    key = Key.of(given.get("key"))
    names = ["seq_nr", "time", "type", "tags", "life", *(["payload"] if given.payloads else [])]
    rows = (
        [event.seq_nr, event.time.isoformat(), event.type, " ".join(event.tags), event.life]
        + ([event_row(event, payloads=True)["payload"]] if given.payloads else [])
        for event in desk.s.journal.read(key, limit=CSV_EVENTS)
    )
    return csv_text(names, rows)
