"""Heads, pointers, ended lives and quarantined records as SQL tables keep them: columns and a digest over them.

Events and snapshots bring digests of their own. What fails its digest is `Corrupt.digest`: it is never given as good.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from strandline.rows import Pointer, QuarantineRow, head_columns, head_of
from strandline.store.api import SnapshotRow, snapshot_digest
from strandline.store.refusals import bad_row
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import key_digest, slice_of

HEAD_COLUMNS = 14
_HEAD = struct.Struct("<11qBqq")
_POINTER = struct.Struct("<6q")
_ENDED = struct.Struct("<3q")


def key_place(key: str) -> tuple[str, int, str]:
    """Where the head of a key stands: entity type, slice, key."""
    return key.partition("|")[0], slice_of(key), key


# ---------------------------------------------------------------- heads and ended lives


def head_row(key: str, head: Head) -> tuple[Any, ...]:
    """The row of a head in `metajournal`."""
    columns = head_columns(head)
    return (*key_place(key), *columns, _head_digest(key, columns))


def state_of(columns: Sequence[Any]) -> State:
    """The state in a row of key, head with its digest, ended life with its digest; what is absent is None.

    A head that an ended life covers is none.
    """
    key, *head = columns[: HEAD_COLUMNS + 2]
    life, partition, offset, digest = columns[HEAD_COLUMNS + 2 :]
    ended = None
    if life is not None:
        ended = Ended(life, partition, offset)
        if _ended_digest(key_digest(key), ended) != digest:
            raise bad_row("ended", key)
    if head[0] is None:
        return ended
    if _head_digest(key, head) != head[HEAD_COLUMNS]:
        raise bad_row("metajournal", key)
    return ended if ended is not None and head[2] <= ended.life else head_of(head)


def ended_row(key: str, ended: Ended) -> tuple[Any, ...]:
    """The row of an ended life."""
    digest = key_digest(key)
    return (digest, *ended, _ended_digest(digest, ended))


def _head_digest(key: str, columns: Sequence[Any]) -> int:
    (seq_nr, delete_to, life, partition, offset, created, updated, expire_after, expire_at, segment_size, archive_to,
     prev, removed_to, remembered) = columns[:HEAD_COLUMNS]  # fmt: skip
    expires = (expire_after is not None) + 2 * (expire_at is not None)
    numbers = _HEAD.pack(
        seq_nr, delete_to, life, partition, offset, created, updated, segment_size, archive_to, prev, removed_to,
        expires, expire_after or 0, expire_at or 0,
    )  # fmt: skip
    return zlib.crc32(f"{key}\0{remembered}".encode(), zlib.crc32(numbers))


def _ended_digest(digest: bytes, ended: Ended) -> int:
    return zlib.crc32(_ENDED.pack(*ended), zlib.crc32(digest))


# ---------------------------------------------------------------- pointers


def pointer_row(pointer: Pointer) -> tuple[int, ...]:
    """The row of a pointer."""
    return (*pointer, zlib.crc32(_POINTER.pack(*pointer)))


def pointer_of(columns: Sequence[Any] | None, partition: int) -> Pointer:
    """The pointer in a row; one that was never written stands before everything."""
    if columns is None or columns[0] is None:
        return Pointer(partition)
    pointer = Pointer(*columns[:6])
    if zlib.crc32(_POINTER.pack(*pointer)) != columns[6]:
        raise bad_row("pointer", str(partition))
    return pointer


# ---------------------------------------------------------------- snapshots


def snapshot_of(columns: Sequence[Any]) -> SnapshotRow:
    """The snapshot in a row."""
    row = SnapshotRow._make(columns)
    if snapshot_digest(row) != row.digest:
        raise bad_row("snapshot", f"{row.key}, life {row.life}, seq_nr {row.seq_nr}")
    return row


# ---------------------------------------------------------------- what the pipeline reports


def report_text(errors: Mapping[int, str]) -> str | None:
    """Errors by partition, as a lease's row keeps them; None if there are none."""
    return orjson.dumps({str(partition): error for partition, error in errors.items()}).decode() if errors else None


def report_in(text: str | None) -> dict[int, str]:
    """The errors that `report_text` wrote."""
    return {int(partition): error for partition, error in orjson.loads(text or "{}").items()}


# ---------------------------------------------------------------- quarantine


def listed_row(row: QuarantineRow) -> tuple[Any, ...]:
    """The row of a quarantined record."""
    return (*row, _listed_digest(row))


def listed_of(columns: Sequence[Any]) -> QuarantineRow:
    """The quarantined record in a row."""
    row = QuarantineRow._make(columns[:-1])
    if _listed_digest(row) != columns[-1]:
        raise bad_row("quarantine", f"{row.partition}, {row.offset}")
    return row


def _listed_digest(row: QuarantineRow) -> int:
    named = repr(row._replace(header=None, value=None)).encode()
    return zlib.crc32(row.value or b"", zlib.crc32(row.header or b"", zlib.crc32(named)))
