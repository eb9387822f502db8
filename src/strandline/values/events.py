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

from strandline.errors import Corrupt, shown
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


_NUMBERS = struct.Struct("<12q").pack
_READABLE = (BYTES, JSON)


def row_digest(row: tuple[Any, ...]) -> int:
    """The digest of an `EventRow`, whose last field is not looked at.

    One checksum over one run of bytes: this is most of the time that touching a payload takes. Numbers, texts and bytes
    of other types than they should be raise. The lengths tell where metadata ends and payload begins.
    """
    (key, life, segment, seq_nr, prev, entity_type, slice_, partition, offset, timestamp, append_id, type_, tags,
     headers, form, metadata, payload) = row[:17]  # fmt: skip
    absent = 0
    if tags is None:
        tags, absent = "", 1
    if headers is None:
        headers, absent = "", absent + 2
    if metadata is None:
        metadata_length, metadata = -1, b""
    else:
        metadata_length = len(metadata)
    if payload is None:
        payload_length, payload = -1, b""
    else:
        payload_length = len(payload)
    numbers = _NUMBERS(
        life, segment, seq_nr, prev, slice_, partition, offset, timestamp, form, absent, metadata_length, payload_length
    )
    text = "\0".join((key, entity_type, type_, tags, headers)).encode()
    return zlib.crc32(b"".join((text, append_id, numbers, metadata, payload)))


class RecordedEvent:
    """An event of a journal: what was appended, and where it is.

    A damaged event keeps its number and place; touching `payload` or `metadata` raises `Corrupt`. Where its row itself
    was damaged, the rest is what is left of it.
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
        return Key.kept(self._row[0])

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
        append_id = self._row[10]
        return UUID(bytes=append_id) if type(append_id) is bytes and len(append_id) == 16 else UUID(int=0)

    @property
    def type(self) -> str:
        return self._row[11]

    @property
    def tags(self) -> tuple[str, ...]:
        tags = self._row[12]
        return tuple(_parsed(tags, list)) if tags is not None else ()

    @property
    def headers(self) -> dict[str, str]:
        headers = self._row[13]
        return _parsed(headers, dict) if headers is not None else {}

    @property
    def damaged(self) -> bool:
        """Whether what was appended cannot be read any more."""
        row = self._row
        if row[14] not in _READABLE:
            return True
        if not self._sound:
            try:
                self._sound = row_digest(row) == row[17]
            except (TypeError, ValueError, struct.error):  # a damaged file may give any type for a column
                return True
        return not self._sound

    @property
    def payload(self) -> Any:
        form, data = self._row[14], self._row[16]
        if not (self._sound and form in _READABLE) and self.damaged:
            raise self._damage()
        if form == BYTES:
            return data
        try:
            return orjson.loads(data or b"")
        except orjson.JSONDecodeError:  # its digest is right: it was written so, and not by this library
            raise self._damage(undecodable=True) from None

    @property
    def metadata(self) -> dict[str, Any] | None:
        if self.damaged:
            raise self._damage()
        metadata = self._row[15]
        try:
            return None if metadata is None else orjson.loads(metadata)
        except orjson.JSONDecodeError:
            raise self._damage(undecodable=True) from None

    def _damage(self, *, undecodable: bool = False) -> Corrupt:
        form = self._row[14]
        hint = "the row is not what was written: check the disk, and put the store back from a backup"
        if form in (DAMAGED_UNDECODABLE, DAMAGED_DIGEST):
            hint = (
                "see `strandline pipeline quarantine`; then "
                f"`strandline pipeline resolve {self.partition} {self.log_offset} skip` or `retry`"
            )
        return Corrupt(
            f"event {self.seq_nr} of {shown(self._row[0])} is damaged",
            code="undecodable" if undecodable or form == DAMAGED_UNDECODABLE else "digest",
            hint=hint,
            key=self._row[0],
            seq_nr=self.seq_nr,
            partition=self.partition,
            offset=self.log_offset,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedEvent) and self._row[:17] == other._row[:17] and self.damaged == other.damaged

    def __hash__(self) -> int:
        return hash(self._row[:17])

    def __repr__(self) -> str:
        mark = " damaged" if self.damaged else ""
        return f"<RecordedEvent {self._row[0]} {self.seq_nr} {self.type}{mark}>"


def _parsed(text: str, kind: type[Any]) -> Any:
    """JSON of this kind, or an empty one where a damaged row has something else."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return kind()
    return found if type(found) is kind else kind()
