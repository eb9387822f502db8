"""What lies in the store, read from its file and not through Strandline.

Only for a store that nobody writes to: it is what the checker compares after the pipeline has ended.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import apsw

from strandline.demo.checker import Seen
from strandline.statements import statement

TYPE_AT = 67


def stored_events(store: Path) -> dict[str, list[Seen]]:
    """The events of each key, by life and number."""
    events: dict[str, list[Seen]] = {}
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for key, seq_nr, life, body in connection.execute(statement("strandline.demo", "stored_events")):
            events.setdefault(key, []).append(Seen(seq_nr, *_taken_apart(body), life))
    finally:
        connection.close()
    return events


def _taken_apart(body: bytes) -> tuple[str, Any]:
    """Type and payload, by the places that the body itself names."""
    type_end, _, _, payload_at = struct.unpack_from("<4I", body, TYPE_AT - 16)
    payload = body[payload_at:]
    return body[TYPE_AT:type_end].decode(), json.loads(payload) if payload else None


def stored_keys(store: Path) -> set[str]:
    """The keys that have a head."""
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {key for (key,) in connection.execute(statement("strandline.demo", "stored_keys"))}
    finally:
        connection.close()
