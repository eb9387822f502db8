"""What lies in the store, read from its file and not through Strandline.

Only for a store that nobody writes to: it is what the checker compares after the pipeline has ended.
"""

from __future__ import annotations

import json
from pathlib import Path

import apsw

from strandline.demo.checker import Seen
from strandline.sqlite.statements import statement


def stored_events(store: Path) -> dict[str, list[Seen]]:
    """The events of each key, by life and number."""
    events: dict[str, list[Seen]] = {}
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for key, seq_nr, type_, payload, life in connection.execute(statement("strandline.demo", "stored_events")):
            shown = None if payload is None else json.loads(payload)
            events.setdefault(key, []).append(Seen(seq_nr, type_, shown, life))
    finally:
        connection.close()
    return events


def stored_keys(store: Path) -> set[str]:
    """The keys that have a head."""
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {key for (key,) in connection.execute(statement("strandline.demo", "stored_keys"))}
    finally:
        connection.close()
