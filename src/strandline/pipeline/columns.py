"""Events as columns: a page of rows of the store becomes one Arrow batch.

NumPy reads the fixed fields of all bodies at once. Types, tags and headers repeat, so each different value is decoded
once. A page with a damaged event is decoded event by event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from struct import Struct
from typing import Any, Final, cast
from zlib import crc32

import numpy as np
import pyarrow as pa

from strandline.rows import life_of
from strandline.values.events import BODY_VERSION, FIXED, EventRow, Parts, RecordedEvent, parsed_headers, parsed_tags
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
_UUID_SIZE: Final = 36
_UUID_GROUPS: Final = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
_PLACES: Final = Struct("<4I")
"""The last fixed fields: where tags, headers, metadata and payload begin."""


def record_batch(rows: Sequence[EventRow], *, payloads: bool = True) -> pa.RecordBatch:
    """Return the events of these rows, in their order; without `payloads` the column of payloads is null."""
    columns = zip(*rows, strict=True)
    try:
        arrays = _columns(*map(cast(Any, list), columns), with_payloads=payloads)
    except (TypeError, ValueError):  # a damaged file may give any type for a column
        arrays = None
    if arrays is None:
        values = zip(*[_values(row.event_of(life_of(row.key, row.life))) for row in rows], strict=True)
        arrays = [pa.array(list(column), type=field.type) for column, field in zip(values, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _columns(
    keys: list[str], lives: list[int], _: Any, seq_nrs: list[int], prevs: list[int], types: list[str],
    slices: list[int], _partitions: Any, timestamps: list[int], bodies: list[bytes], digests: list[int],
    *, with_payloads: bool,
) -> list[pa.Array] | None:  # fmt: skip
    """Return all columns; None if an event is damaged."""
    fixed = np.frombuffer(b"".join([body[: FIXED.size] for body in bodies]), _FIXED_FIELDS)
    seeds = [crc32(f"{key}\0{life}".encode()) for key, life in zip(keys, lives, strict=True)]
    whole = list(map(crc32, bodies, seeds)) == digests and bool((fixed["form"] <= JSON).all())
    known = whole and bool((fixed["version"] == BODY_VERSION).all())
    twice = {"seq_nr": seq_nrs, "prev_seq_nr": prevs, "timestamp": timestamps}
    if not (known and all(np.array_equal(fixed[name], column) for name, column in twice.items())):
        return None
    # Type and tags, and before them the four places where the variable fields begin.
    words = _between(bodies, np.full(len(bodies), FIXED.size - _PLACES.size), fixed["headers_at"])
    names, tags = _repeated(words, {"type": _name_of, "tags": _tags_of})
    (headers,) = _repeated(_between(bodies, fixed["headers_at"], fixed["metadata_at"]), {"headers": parsed_headers})
    (metadata,) = _repeated(_between(bodies, fixed["metadata_at"], fixed["payload_at"]), {"metadata": _text_of})
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
        names,
        tags,
        headers,
        metadata,
        _payloads(bodies, fixed["payload_at"]) if with_payloads else pa.nulls(len(bodies), pa.binary()),
        pa.array(fixed["form"] == JSON),
        pa.repeat(False, len(bodies)),
    ]


def _payloads(bodies: list[bytes], starts: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([body[start:] for body, start in zip(bodies, starts.tolist(), strict=True)], pa.binary())


def _name_of(words: bytes) -> str:
    return words[_PLACES.size : _PLACES.unpack_from(words)[0] - FIXED.size + _PLACES.size].decode()


def _tags_of(words: bytes) -> tuple[str, ...]:
    return parsed_tags(words[_PLACES.unpack_from(words)[0] - FIXED.size + _PLACES.size :])


def _text_of(written: bytes) -> str | None:
    return written.decode() if written else None


def _between(bodies: list[bytes], starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> pa.DictionaryArray:
    """Return the bytes between two places of each body: mostly none, or the same in all of them."""
    if np.array_equal(starts, ends):
        return pa.DictionaryArray.from_arrays(np.zeros(len(bodies), np.int32), pa.array([b""]))
    cut = [body[start:end] for body, start, end in zip(bodies, starts.tolist(), ends.tolist(), strict=True)]
    return pa.array(cut, pa.binary()).dictionary_encode()


def _repeated(written: pa.DictionaryArray, columns: dict[str, Callable[[bytes], Any]]) -> list[pa.Array]:
    """Return a column for each reader, which decodes each different text once."""
    different = written.dictionary.to_pylist()
    read = [
        pa.array([reader(one) for one in different], ARROW_SCHEMA.field(name).type) for name, reader in columns.items()
    ]
    return [values.take(written.indices) for values in read]


def _uuids(ids: np.ndarray[Any, Any]) -> pa.Array:
    """Return ids as text: 8-4-4-4-12 hexadecimal digits."""
    digits = np.frombuffer(ids.tobytes().hex().encode(), np.uint8).reshape(len(ids), 32)
    text = np.full((len(ids), _UUID_SIZE), ord("-"), np.uint8)
    for group, (start, end) in enumerate(_UUID_GROUPS):
        text[:, start + group : end + group] = digits[:, start:end]
    ends = np.arange(0, text.size + 1, _UUID_SIZE, dtype=np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(text))


def _values(e: RecordedEvent) -> tuple[Any, ...]:
    metadata, payload, is_json = e.packed() if not e.damaged else (None, None, False)
    return (
        str(e.key), e.key.entity_type, e.slice, e.seq_nr, e.prev_seq_nr, e.life, e.partition, e.log_offset, e.timestamp,
        str(e.append_id), e.type, e.tags, e.headers, metadata, payload, is_json, e.damaged,
    )  # fmt: skip


def sum_of_digests(name: str) -> Any:
    """Return the Spark column that adds up a column of digests, modulo 2^64 as `reconcile.tallies` does."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    return F.pmod(F.sum(F.col(name).cast("decimal(20, 0)")), F.lit(Decimal(2**64)))
