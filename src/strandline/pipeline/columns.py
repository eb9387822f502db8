"""Events as columns: a page of rows of the store becomes one Arrow batch.

The fixed fields of all bodies are read at once, by NumPy; types, tags and headers, which repeat, once for all events
that have the same. A page with a damaged event is taken apart event by event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast
from zlib import crc32

import numpy as np
import pyarrow as pa

from strandline.rows import life_of
from strandline.values.events import FIXED, EventRow, Parts, RecordedEvent, parsed_headers, parsed_tags
from strandline.values.payloads import JSON

ARROW_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("entity_type", pa.string()),
        ("slice", pa.int32()),
        ("seq_nr", pa.int64()),
        ("prev_seq_nr", pa.int64()),
        ("life", pa.int64()),
        ("partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("append_id", pa.string()),
        ("type", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("metadata", pa.string()),
        ("payload", pa.binary()),
        ("json", pa.bool_()),
        ("damaged", pa.bool_()),
    ]
)

_NUMPY_TYPES: Final = {"q": "<i8", "I": "<u4", "H": "<u2", "B": "u1", "16s": "(16,)u1"}
_CODES: Final = re.findall(r"\d*[a-zA-Z]", FIXED.format)
_FIXED_FIELDS: Final = np.dtype([(name, _NUMPY_TYPES[code]) for name, code in zip(Parts._fields, _CODES, strict=True)])
_HEXADECIMAL: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_UUID_DASHES: Final = (8, 12, 16, 20)
_UUID_SIZE: Final = 36


def record_batch(rows: Sequence[EventRow]) -> pa.RecordBatch:
    """The events of these rows, in their order."""
    columns = zip(*rows, strict=True)
    try:
        arrays = _columns(*map(cast(Any, list), columns))
    except (TypeError, ValueError):  # a damaged file may give any type for a column
        arrays = None
    if arrays is None:
        values = zip(*[_values(RecordedEvent(life_of(row.key, row.life), row.cells)) for row in rows], strict=True)
        arrays = [pa.array(list(column), type=field.type) for column, field in zip(values, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _columns(
    keys: list[str], lives: list[int], _: Any, seq_nrs: list[int], prevs: list[int], types: list[str],
    slices: list[int], _partitions: Any, _timestamps: Any, bodies: list[bytes], digests: list[int],
) -> list[pa.Array] | None:  # fmt: skip
    """All columns; None if an event is damaged."""
    fixed = np.frombuffer(b"".join([body[: FIXED.size] for body in bodies]), _FIXED_FIELDS)
    seeds = [crc32(f"{key}\0{life}".encode()) for key, life in zip(keys, lives, strict=True)]
    whole = list(map(crc32, bodies, seeds)) == digests and bool((fixed["form"] <= JSON).all())
    if not (whole and np.array_equal(fixed["seq_nr"], seq_nrs) and np.array_equal(fixed["prev_seq_nr"], prevs)):
        return None
    size = FIXED.size
    tags_at, headers_at, metadata_at, payload_at = (
        fixed[name].tolist() for name in ("tags_at", "headers_at", "metadata_at", "payload_at")
    )
    words = list(zip([body[size:end] for body, end in zip(bodies, headers_at, strict=True)], tags_at, strict=True))
    headers = [body[start:end] for body, start, end in zip(bodies, headers_at, metadata_at, strict=True)]
    metadata = [body[start:end] for body, start, end in zip(bodies, metadata_at, payload_at, strict=True)]
    payloads = [body[start:] for body, start in zip(bodies, payload_at, strict=True)]
    return [
        pa.array(keys, pa.string()),
        pa.array(types, pa.string()),
        pa.array(slices, pa.int32()),
        pa.array(fixed["seq_nr"]),
        pa.array(fixed["prev_seq_nr"]),
        pa.array(lives, pa.int64()),
        pa.array(fixed["partition"].astype(np.int32)),
        pa.array(fixed["log_offset"]),
        pa.array(fixed["timestamp"], pa.timestamp("us", tz="UTC")),
        _uuids(fixed["append_id"]),
        _repeated(words, lambda word: word[0][: word[1] - size].decode(), pa.string()),
        _repeated(words, lambda word: parsed_tags(word[0][word[1] - size :]), ARROW_SCHEMA.field("tags").type),
        _repeated(headers, parsed_headers, ARROW_SCHEMA.field("headers").type),
        _repeated(metadata, lambda text: text.decode() if text else None, pa.string()),
        pa.array(payloads, pa.binary()),
        pa.array(fixed["form"] == JSON),
        pa.repeat(False, len(bodies)),
    ]  # fmt: skip


def _repeated(written: list[Any], read: Any, type_: pa.DataType) -> pa.Array:
    """What these say, each different one read once."""
    different = {one: number for number, one in enumerate(dict.fromkeys(written))}
    values = pa.array([read(one) for one in different], type_)
    return values.take(pa.array([different[one] for one in written], pa.int64()))


def _uuids(ids: np.ndarray[Any, Any]) -> pa.Array:
    """Ids as they are written: 8-4-4-4-12 hexadecimal digits."""
    digits = _HEXADECIMAL[ids].reshape(len(ids), 32)
    text = np.insert(digits, _UUID_DASHES, ord("-"), axis=1)
    ends = np.arange(0, text.size + 1, _UUID_SIZE, dtype=np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(text)))


def _values(e: RecordedEvent) -> tuple[Any, ...]:
    metadata, payload, is_json = e.packed() if not e.damaged else (None, None, False)
    return (
        str(e.key), e.key.entity_type, e.slice, e.seq_nr, e.prev_seq_nr, e.life, e.partition, e.log_offset, e.timestamp,
        str(e.append_id), e.type, e.tags, e.headers, metadata, payload, is_json, e.damaged,
    )  # fmt: skip
