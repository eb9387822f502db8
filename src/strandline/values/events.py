"""Events: as a caller gives them, as a store keeps them, and as a reader gets them.

One row type serves log tail, store and replay, so an event looks the same wherever it was read from.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from strandline.errors import Corrupt
from strandline.values.keys import Key
from strandline.values.payloads import BYTES, JSON

DAMAGED_UNDECODABLE: Final = 2
DAMAGED_DIGEST: Final = 3


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `payload` is a JSON value or bytes; `metadata` a JSON object with business values."""

    type: str
    payload: Any
    tags: Any = ()
    metadata: dict[str, Any] | None = field(default=None)


class EventRow(NamedTuple):
    """An event as a store keeps it, in the order of the columns of table `journal`."""

    key: str
    life: int
    segment: int
    seq_nr: int
    prev_seq_nr: int
    entity_type: str
    slice: int
    partition: int
    log_offset: int
    timestamp: int
    append_id: bytes
    type: str
    tags: str | None
    """A JSON array of text, or nothing."""
    headers: str | None
    """A JSON object of text, or nothing."""
    form: int
    """BYTES or JSON; DAMAGED_UNDECODABLE or DAMAGED_DIGEST where the value could not be read."""
    metadata: bytes | None
    payload: bytes | None
    digest: int
    """Over all other fields."""


_NUMBERS = struct.Struct("<8qB")


def row_digest(row: tuple[Any, ...]) -> int:
    """The digest of an `EventRow`, whose last field is not looked at."""
    (key, life, segment, seq_nr, prev, entity_type, slice_, partition, offset, timestamp, append_id, type_, tags,
     headers, form, metadata, payload) = row[:17]  # fmt: skip
    numbers = _NUMBERS.pack(life, segment, seq_nr, prev, slice_, partition, offset, timestamp, form)
    text = f"{key}\0{entity_type}\0{type_}\0{'' if tags is None else tags}\0{'' if headers is None else headers}\0"
    digest = zlib.crc32(text.encode(), zlib.crc32(append_id, zlib.crc32(numbers)))
    if metadata is not None:
        digest = zlib.crc32(b"m" + metadata, digest)
    return digest if payload is None else zlib.crc32(payload, zlib.crc32(b"p", digest))


class RecordedEvent:
    """An event of a journal: what was appended, and where it is.

    A damaged event keeps its number and place; touching `payload` or `metadata` raises `Corrupt`.
    """

    __slots__ = ("_row", "_sound", "offset")

    offset: Any
    """The place in a query, set by queries by tag or slices."""

    def __init__(self, row: EventRow, sound: bool = False) -> None:
        """`sound`: the contents were verified where they were read, and the row may be without its digest."""
        self._row = row
        self._sound = sound

    @property
    def key(self) -> Key:
        return Key.of(self._row[0])

    @property
    def life(self) -> int:
        return self._row[1]

    @property
    def seq_nr(self) -> int:
        return self._row[3]

    @property
    def prev_seq_nr(self) -> int:
        return self._row[4]

    @property
    def slice(self) -> int:
        return self._row[6]

    @property
    def partition(self) -> int:
        return self._row[7]

    @property
    def log_offset(self) -> int:
        return self._row[8]

    @property
    def timestamp(self) -> int:
        return self._row[9]

    @property
    def append_id(self) -> UUID:
        return UUID(bytes=self._row[10])

    @property
    def type(self) -> str:
        return self._row[11]

    @property
    def tags(self) -> tuple[str, ...]:
        tags = self._row[12]
        return tuple(orjson.loads(tags)) if tags is not None else ()

    @property
    def headers(self) -> dict[str, str]:
        headers = self._row[13]
        return dict(orjson.loads(headers)) if headers is not None else {}

    @property
    def damaged(self) -> bool:
        """Whether what was appended cannot be read any more."""
        if not self._sound and self._row[14] <= JSON:
            self._sound = row_digest(self._row) == self._row[17]
        return self._row[14] > JSON or not self._sound

    @property
    def payload(self) -> Any:
        if not self._sound and self.damaged:
            raise self._damage()
        form = self._row[14]
        if form == BYTES:
            return self._row[16]
        if form == JSON:
            return orjson.loads(self._row[16] or b"null")
        raise self._damage()

    @property
    def metadata(self) -> dict[str, Any] | None:
        if self.damaged:
            raise self._damage()
        metadata = self._row[15]
        return None if metadata is None else orjson.loads(metadata)

    def _damage(self) -> Corrupt:
        code = "undecodable" if self._row[14] == DAMAGED_UNDECODABLE else "digest"
        return Corrupt(
            f"event {self.seq_nr} of {self._row[0]} is damaged",
            code=code,
            hint="see `strandline pipeline quarantine`; then "
            f"`strandline pipeline resolve {self.partition} {self.log_offset} skip` or `retry`",
            key=self._row[0],
            seq_nr=self.seq_nr,
            partition=self.partition,
            offset=self.log_offset,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedEvent) and self._row[:17] == other._row[:17]

    def __hash__(self) -> int:
        return hash(self._row[:17])

    def __repr__(self) -> str:
        mark = " damaged" if self.damaged else ""
        return f"<RecordedEvent {self._row[0]} {self.seq_nr} {self.type}{mark}>"
