"""Rows of tag views: an event under one of its tags, and the progress of each key.

    tag_view      an event, its number among those of its key and life with this tag, and a link to the one before
    tag_progress  per key, life and tag: the first and the last row
    tag_place     per key, life and tag: where the row of a seq_nr is
    tag_bucket    the buckets of a tag that ever had a row

The digest of a row covers its place, number and link, on which a query relies. The event has a digest of its own: a
damaged body costs its payload alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import crc32

from strandline.errors import SchemaMismatch
from strandline.values.events import EventCells

ROW_VERSION: Final = 1
_VERSION_AT: Final = 32
_VERSION: Final = ROW_VERSION << _VERSION_AT
_packed = struct.Struct("<7q").pack
_NOT_KEPT_SO = (TypeError, AttributeError, UnicodeEncodeError, struct.error)  # a damaged file may give any type

Place = tuple[int, str, int]
"""Timestamp, key and seq_nr: where a row is in its view. Text compares as its UTF-8 bytes do."""


class TagRow(NamedTuple):
    """An event in the view of a tag. A filler (of an event that an operator skipped) has an empty body."""

    tag: str
    bucket: int
    timestamp: int
    key: str
    life: int
    tag_seq_nr: int
    previous_timestamp: int
    """The link: where the row one number lower is; 0 and 0 in the first row of a key and life."""
    previous_seq_nr: int
    row_digest: int
    seq_nr: int
    prev_seq_nr: int
    body: bytes
    digest: int

    @property
    def place(self) -> Place:
        return self.timestamp, self.key, self.seq_nr

    @property
    def link(self) -> Place | None:
        """Where the row one number lower is; None in the first."""
        return (self.previous_timestamp, self.key, self.previous_seq_nr) if self.previous_seq_nr else None

    @property
    def cells(self) -> EventCells:
        return EventCells(*self[9:])


class TagProgress(NamedTuple):
    """The first and the last row of a key and life in the view of a tag."""

    key: str
    life: int
    tag: str
    first_seq_nr: int
    seq_nr: int
    tag_seq_nr: int
    timestamp: int


class TagPlace(NamedTuple):
    """The place of the row of a seq_nr, for a store that cannot seek by key."""

    key: str
    life: int
    segment: int
    tag: str
    seq_nr: int
    timestamp: int
    tag_seq_nr: int


class TagBucket(NamedTuple):
    """A bucket of a tag that has, or once had, a row."""

    tag: str
    bucket: int


def _checksums(
    tags: Sequence[str],
    buckets: Sequence[int],
    timestamps: Sequence[int],
    keys: Sequence[str],
    lives: Sequence[int],
    numbers: Sequence[int],
    previous_timestamps: Sequence[int],
    previous_seq_nrs: Sequence[int],
    seq_nrs: Sequence[int],
) -> Iterator[int]:
    """Yield the checksums of rows, which their digests hold beside the version, from columns."""
    packed = map(_packed, buckets, timestamps, lives, numbers, previous_timestamps, previous_seq_nrs, seq_nrs)
    if tags.count(tags[0]) < len(tags):
        return map(crc32, packed, map(crc32, map(str.encode, keys), map(_seed, tags)))
    seed = _seed(tags[0])  # most pages are of one tag, and many of few keys
    seeds = {key: crc32(key.encode(), seed) for key in set(keys)}
    return map(crc32, packed, map(seeds.__getitem__, keys))


@lru_cache(maxsize=4096)
def _seed(tag: str) -> int:
    return crc32(f"{tag}\0".encode())


def row_digest(
    tag: str, bucket: int, timestamp: int, key: str, life: int, number: int, linked_at: int, linked_nr: int, seq_nr: int
) -> int:
    """Return the digest of one row."""
    packed = _packed(bucket, timestamp, life, number, linked_at, linked_nr, seq_nr)
    return ROW_VERSION << _VERSION_AT | crc32(packed, crc32(key.encode(), _seed(tag)))


def first_broken(rows: Sequence[Any]) -> int | None:
    """Return the first of these rows that is damaged; None if none is. `SchemaMismatch` if a row is of a newer
    version."""
    if not rows:
        return None
    try:
        tags, buckets, timestamps, keys, lives, numbers, at, behind, digests, seq_nrs, _, _, _ = zip(*rows, strict=True)
        made = _checksums(tags, buckets, timestamps, keys, lives, numbers, at, behind, seq_nrs)
        if list(made) == list(map(_VERSION.__xor__, digests)):
            return None
    except _NOT_KEPT_SO:
        pass
    return next((at for at, row in enumerate(rows) if _is_broken(row)), None)


def resealed(row: TagRow) -> TagRow:
    """Return the row with the digest that belongs to it."""
    return row._replace(row_digest=row_digest(*row[:8], row[9]))


def _is_broken(row: Sequence[Any]) -> bool:
    try:
        return bool(resealed(TagRow._make(row)).row_digest != _known_version(row))
    except _NOT_KEPT_SO:
        return True


def _known_version(row: Sequence[Any]) -> Any:
    digest = row[8]
    if isinstance(digest, int) and digest >> _VERSION_AT > ROW_VERSION:
        raise SchemaMismatch(
            f"tag {row[0]!r}: a row of version {digest >> _VERSION_AT}; this program knows {ROW_VERSION}",
            code="version",
            hint="upgrade this program",
            found=digest >> _VERSION_AT,
            known=ROW_VERSION,
        )
    return digest


def fillers(rows: Iterable[TagRow]) -> list[TagRow]:
    """Return the rows without their events."""
    return [row._replace(body=b"", digest=0) for row in rows]
