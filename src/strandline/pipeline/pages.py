"""Pages: how records travel through Spark.

A page is a run of records packed into one binary cell with a checksum. Spark turns Arrow batches into rows and back
between two Python processes; with a page per row instead of a record per row that costs next to nothing, and damage on
the way is seen.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from strandline.errors import Corrupt
from strandline.record import Record, event_count

_ROW = struct.Struct("<qqiiiqqq")
_NONE = -1
EVENT_OVERHEAD_BYTES = 1024


def pack(records: Sequence[Record]) -> bytes:
    """Records of one partition as bytes: a checksum, their number, fixed fields, then keys, headers, values."""
    table: list[bytes] = []
    blobs: list[bytes] = []
    for _, offset, timestamp, key, header, value, life, first, last in records:
        key_size = header_size = value_size = _NONE
        if key is not None:
            blobs.append(data := key.encode())
            key_size = len(data)
        if header is not None:
            blobs.append(header)
            header_size = len(header)
        if value is not None:
            blobs.append(value)
            value_size = len(value)
        numbers = (_NONE, _NONE, _NONE) if life is None or first is None or last is None else (life, first, last)
        table.append(_ROW.pack(offset, timestamp, key_size, header_size, value_size, *numbers))
    body = b"".join((len(records).to_bytes(4, "little"), *table, *blobs))
    return zlib.crc32(body).to_bytes(4, "little") + body


def unpack(partition: int, page: bytes) -> list[Record]:
    """The records of a page; `Corrupt.transport` if it is not what was packed."""
    if len(page) < 8 or zlib.crc32(memoryview(page)[4:]) != int.from_bytes(page[:4], "little"):
        raise Corrupt(
            f"partition {partition}: a page of the log arrived damaged at its Spark task",
            code="transport",
            hint="the range is read again; if it comes back, check memory and network of the workers",
            partition=partition,
        )
    count = int.from_bytes(page[4:8], "little")
    at = 8 + count * _ROW.size
    records = []
    for offset, timestamp, key_size, header_size, value_size, life, first, last in _ROW.iter_unpack(page[8:at]):
        key = header = value = None
        if key_size >= 0:
            key = page[at : at + key_size].decode()
            at += key_size
        if header_size >= 0:
            header = page[at : at + header_size]
            at += header_size
        if value_size >= 0:
            value = page[at : at + value_size]
            at += value_size
        if life == _NONE:
            records.append(Record(partition, offset, timestamp, key, header, value))
        else:
            records.append(Record(partition, offset, timestamp, key, header, value, life, first, last))
    return records


def size_of(records: Iterable[Record]) -> int:
    """About how much memory it takes to carry these: their bytes, and what each of their events becomes on the way."""
    size = 0
    for record in records:
        value = record.value or b""
        size += len(record.header or b"") + len(value) + EVENT_OVERHEAD_BYTES * event_count(value)
    return size
