"""Archived events: rows of a store made anew from the columns of an archive's file, each with its own digest.

`event_rows` takes a batch column by column. A batch in which an event has headers or metadata, which most have not, is
read row by row, by `event_row`. Both ways return the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Final
from zlib import crc32

from strandline.fold import segment_of
from strandline.rows import life_of
from strandline.values.events import EPOCH, EventRow, bodies, plain_bodies
from strandline.values.keys import SLICES
from strandline.values.payloads import BYTES, JSON
from strandline.values.tuples import new_tuple

MICROSECOND: Final = timedelta(microseconds=1)


def event_rows(batch: Any) -> list[EventRow]:
    """Return the events of a batch or table of a file, in its order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def column(name: str) -> list[Any]:
        return batch.column(name).to_pylist()  # type: ignore[no-any-return]

    if batch.column("metadata").null_count < len(batch) or any(column("headers")):
        return list(map(event_row, rows_of(batch)))
    tags = batch.column("tags")
    labels = map(tuple, tags.to_pylist()) if len(pc.list_flatten(tags)) else repeat(())
    keys, lives, seq_nrs, prevs = column("key"), column("life"), column("seq_nr"), column("prev_seq_nr")
    partitions, times = column("partition"), batch.column("time").cast(pa.int64()).to_pylist()
    json = batch.column("payload")
    forms = [JSON if there else BYTES for there in pc.is_valid(json).to_pylist()]
    payloads = pc.coalesce(json.cast(pa.binary()), batch.column("payload_bytes")).to_pylist()
    ids = map(bytes.fromhex, pc.replace_substring(batch.column("append_id"), "-", "").to_pylist())
    events = zip(column("type"), labels, strict=False)
    packed = list(plain_bodies(seq_nrs, prevs, forms, partitions, column("log_offset"), times, ids, events, payloads))
    of_key = list(map(life_of, keys, lives))
    return list(
        map(
            new_tuple,
            repeat(EventRow),
            zip(
                keys, lives, map(segment_of, seq_nrs, repeat(SLICES)), seq_nrs, prevs,
                [life.entity_type for life in of_key], [life.slice for life in of_key], partitions, times, packed,
                map(crc32, packed, [life.seed for life in of_key]), strict=True,
            ),
        )
    )  # fmt: skip


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch or table of a file, with times in µs."""
    import pyarrow as pa

    at = batch.schema.get_field_index("time")
    return batch.set_column(at, "time", batch.column(at).cast(pa.int64())).to_pylist()  # type: ignore[no-any-return]


def event_row(row: Mapping[str, Any]) -> EventRow:
    """Return the event in a row of a file, as a store keeps it."""
    life = life_of(row["key"], row["life"])
    is_json = row["payload"] is not None
    payload = row["payload"].encode() if is_json else row["payload_bytes"]
    metadata = None if row["metadata"] is None else row["metadata"].encode()
    timestamp = time_in_us(row["time"])
    headers = dict(row["headers"]) if row["headers"] else None
    event = (row["type"], tuple(row["tags"])), (JSON if is_json else BYTES, payload, metadata)
    place = row["partition"], row["log_offset"], timestamp
    append_id = bytes.fromhex(row["append_id"].replace("-", ""))
    (cells,) = bodies(row["seq_nr"], row["prev_seq_nr"], place, append_id, headers, [event], life.seed)
    return EventRow.of(life, SLICES, cells)


def time_in_us(time: datetime | int) -> int:
    """Return the microseconds of a time as files have it."""
    return time if isinstance(time, int) else (time - EPOCH) // MICROSECOND
