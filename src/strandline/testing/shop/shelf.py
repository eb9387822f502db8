"""What lies in the store, read from its database and not through Strandline.

Only for a store that nobody writes to: it is what the checker compares after the pipeline has ended.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from strandline.pipeline.target import JournalRef
from strandline.sql.statements import statement
from strandline.testing.shop.checker import ShownEvent
from strandline.urls import Url, urls_of

TYPE_AT = 68


def stored_events(target: JournalRef) -> dict[str, list[ShownEvent]]:
    """The events of each key, by life and number."""
    events: dict[str, list[ShownEvent]] = {}
    rows = sorted(_rows(_store_of(target), "stored_events"), key=lambda row: (row[0], row[2], row[1]))
    for key, seq_nr, life, body in rows:
        events.setdefault(key, []).append(ShownEvent(seq_nr, *_taken_apart(bytes(body)), life))
    return events


def stored_keys(target: JournalRef) -> set[str]:
    """The keys that have a head."""
    return {key for (key,) in _rows(_store_of(target), "stored_keys")}


def _taken_apart(body: bytes) -> tuple[str, Any]:
    """Type and payload, by the places that the body itself names."""
    type_end, _, _, payload_at = struct.unpack_from("<4I", body, TYPE_AT - 16)
    payload = body[payload_at:]
    return body[TYPE_AT:type_end].decode(), json.loads(payload) if payload else None


def _store_of(target: JournalRef) -> Url:
    return urls_of(target.url, target.log, target.store).store


def _rows(store: Url, name: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, in no order."""
    text = statement("strandline.testing.shop", name)
    if store.scheme == "sqlite":
        yield from _sqlite_rows(store.path or Path(), text)
    elif store.scheme == "postgresql":
        yield from _postgres_rows(store, text)
    else:
        yield from _cassandra_rows(store, text)


def _sqlite_rows(path: Path, text: str) -> Iterator[tuple[Any, ...]]:
    import apsw

    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        yield from connection.execute(text)


def _postgres_rows(store: Url, text: str) -> Iterator[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(store.text, options="-c search_path=strandline") as connection:
        yield from connection.execute(text)


def _cassandra_rows(store: Url, text: str) -> Iterator[tuple[Any, ...]]:
    from cassandra.cluster import Cluster

    (host, port), *_ = store.hosts
    with Cluster([host], port=port or 9042) as cluster:
        yield from cluster.connect(store.name).execute(text)
