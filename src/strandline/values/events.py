"""Events: as a caller gives them, as a store keeps them, and as a reader gets them.

What was appended, and where, is packed once into the event's *body*: numbers, then type, tags, headers, metadata and
payload. Log tail, store and replay hand on the same bytes, so an event looks the same wherever it was read from, and no
part of it is decoded before a caller touches it.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from strandline.errors import Corrupt, SchemaMismatch, shown
from strandline.values.keys import SLICES, Key
from strandline.values.payloads import BYTES, JSON

DAMAGED_UNDECODABLE: Final = 2
DAMAGED_DIGEST: Final = 3
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Event:
    """An event that is to be recorded. `payload` is a JSON value or bytes; `metadata` a JSON object with business
    values."""

    type: str
    payload: Any = None
    tags: Any = ()
    metadata: dict[str, Any] | None = field(default=None)


class Life:
    """A life of a key: what its events have in common."""

    __slots__ = ("entity_type", "key", "number", "seed", "slice")

    def __init__(self, key: str, number: int) -> None:
        self.key, self.number = key, number
        written = str(key)  # a damaged file may give any type for a column
        self.entity_type = written.partition("|")[0]
        checksum = zlib.crc32(written.encode())
        self.slice = checksum % SLICES  # as `slice_of`
        self.seed = zlib.crc32(f"\0{number}".encode(), checksum)


class EventCells(NamedTuple):
    """The columns of an event's row that a reader needs who knows the event's life."""

    seq_nr: int
    prev_seq_nr: int
    body: bytes
    digest: int
    """The digest over key, life and body."""


class EventRow(NamedTuple):
    """An event as a store keeps it, in the order of the columns of table `journal`.

    The body has the whole event; the columns before it repeat what a store seeks and sorts by.
    """

    key: str
    life: int
    segment: int
    seq_nr: int
    prev_seq_nr: int
    entity_type: str
    slice: int
    partition: int
    timestamp: int
    body: bytes
    digest: int

    @property
    def cells(self) -> EventCells:
        return EventCells(self[3], self[4], self[9], self[10])

    @property
    def event(self) -> RecordedEvent:
        return self.event_of(Life(self.key, self.life))

    def event_of(self, life: Life) -> RecordedEvent:
        """Return the event, given its life. It reads as damaged if body and columns contradict each other.

        Where it is kept may change (`partition`): the body has the partition of the log that recorded it.
        """
        _, _, _, seq_nr, prev, entity_type, slice_, _, timestamp, body, digest = self
        same = life.slice == slice_ and life.entity_type == entity_type
        return RecordedEvent(life, placed_cells(timestamp, seq_nr, prev, body, digest if same else NO_DIGEST))

    @classmethod
    def of(cls, life: Life, segment_size: int, cells: tuple[Any, ...]) -> EventRow:
        """Return the row of an event."""
        return RecordedEvent(life, cells).row(segment_size)


# ---------------------------------------------------------------- body


BODY_VERSION: Final = 1
NO_DIGEST: Final = -1


class Parts(NamedTuple):
    """The fixed fields of a body, in their order."""

    version: int
    seq_nr: int
    prev_seq_nr: int
    form: int
    """BYTES or JSON; DAMAGED_UNDECODABLE or DAMAGED_DIGEST where the value could not be read."""
    partition: int
    log_offset: int
    timestamp: int
    append_id: bytes
    tags_at: int
    """The index in the body where tags begin, right after the type."""
    headers_at: int
    metadata_at: int
    payload_at: int


FIXED: Final = struct.Struct("<BqqBHqq16sIIII")
_PLACED: Final = struct.Struct("<BqqBHqq16s")  # up to append_id
_PREV: Final = struct.Struct("<q")
_PREV_AT: Final = 9
_pack, _unpack = FIXED.pack, FIXED.unpack_from
_BRIEF: Final = struct.Struct(
    "<BqqB46xI"
).unpack_from  # what most readers need: _, seq_nr, prev_seq_nr, form, payload_at
timestamp_in: Final = struct.Struct("<28xq").unpack_from


def bodies(
    first: int,
    prev: int,
    place: tuple[int, int, int],
    append_id: bytes,
    headers: dict[str, str] | None,
    events: Iterable[tuple[tuple[str, tuple[str, ...]], tuple[int, bytes, bytes | None]]],
    seed: int,
) -> list[tuple[int, int, bytes, int]]:
    """Return the cells of one append's events: of each its header (type, tags) and contents (form, payload,
    metadata)."""
    packed_headers = b"" if headers is None else orjson.dumps(headers)
    partition, offset, timestamp = place
    made = []
    seq_nr = first
    for event, (form, payload, metadata) in events:
        words, tags_at, headers_at = _words_of(event)
        metadata_at = headers_at + len(packed_headers)
        payload_at = metadata_at if metadata is None else metadata_at + len(metadata)
        fixed = _pack(
            BODY_VERSION, seq_nr, prev, form, partition, offset, timestamp, append_id, tags_at, headers_at, metadata_at,
            payload_at,
        )  # fmt: skip
        body = b"".join((fixed, words, packed_headers, metadata or b"", payload))
        made.append((seq_nr, prev, body, zlib.crc32(body, seed)))
        prev, seq_nr = seq_nr, seq_nr + 1
    return made


def plain_body(
    seq_nr: int,
    prev: int,
    place: tuple[int, int, int],
    append_id: bytes,
    event: tuple[str, tuple[str, ...]],
    form: int,
    payload: bytes,
) -> bytes:
    """Return the body of an event without headers and metadata."""
    words, tags_at, payload_at = _words_of(event)
    fixed = _pack(BODY_VERSION, seq_nr, prev, form, *place, append_id, tags_at, payload_at, payload_at, payload_at)
    return fixed + words + payload


def plain_bodies(
    seq_nrs: Iterable[int],
    prevs: Iterable[int],
    forms: Iterable[int],
    partitions: Iterable[int],
    offsets: Iterable[int],
    timestamps: Iterable[int],
    append_ids: Iterable[bytes],
    events: Iterable[tuple[str, tuple[str, ...]]],
    payloads: Iterable[bytes],
) -> Iterator[bytes]:
    """Return the bodies of many such events, from columns."""
    places = map(_PLACED.pack, repeat(BODY_VERSION), seq_nrs, prevs, forms, partitions, offsets, timestamps, append_ids)
    return map(b"".join, zip(places, map(_plain_words, events), payloads, strict=True))


@lru_cache(maxsize=4096)
def _plain_words(event: tuple[str, tuple[str, ...]]) -> bytes:
    """Return the bytes between the append id and the payload of an event without headers and metadata."""
    words, tags_at, payload_at = _words_of(event)
    return struct.pack("<IIII", tags_at, payload_at, payload_at, payload_at) + words


@lru_cache(maxsize=4096)
def _words_of(event: tuple[str, tuple[str, ...]]) -> tuple[bytes, int, int]:
    """Return type and tags as a body has them, and the indexes where tags and headers begin."""
    type_, tags = event
    name, labels = type_.encode(), orjson.dumps(tags) if tags else b""
    tags_at = FIXED.size + len(name)
    return name + labels, tags_at, tags_at + len(labels)


def placed_cells(timestamp: int, seq_nr: int, prev: int, body: Any, digest: int) -> EventCells:
    """Return the cells of an event whose row has this timestamp. It reads as damaged if its body has another."""
    try:
        same = timestamp_in(body)[0] == timestamp
    except (TypeError, struct.error):  # a damaged file may give any type for a column
        same = False
    return EventCells(seq_nr, prev, body, digest if same else NO_DIGEST)


def parts_of(body: bytes) -> Parts:
    """Return the fixed fields of a body; `struct.error` if it is no body, or one of an unknown version."""
    parts = Parts._make(_unpack(body))
    if parts.version != BODY_VERSION:
        raise struct.error(f"version {parts.version}")
    return parts


def with_prev(life: Life, cells: tuple[Any, ...], prev_seq_nr: int) -> EventCells:
    """Return the event with another number before it."""
    body = cells[2][:_PREV_AT] + _PREV.pack(prev_seq_nr) + cells[2][_PREV_AT + _PREV.size :]
    return EventCells(cells[0], prev_seq_nr, body, zlib.crc32(body, life.seed))


class RecordedEvent:
    """An event of a journal: what was appended, and its place in log and journal.

    A damaged event keeps its number and place; touching `payload` or `metadata` raises `Corrupt`. Where its row itself
    was damaged, the rest is what is left of it.
    """

    __slots__ = ("_cells", "_life")

    def __init__(self, life: Life, cells: tuple[Any, ...]) -> None:
        self._life = life
        self._cells = cells

    @property
    def offset(self) -> Any:
        """The event's offset in a query by tag or slices, from which another query can go on; None elsewhere."""
        return None

    @property
    def key(self) -> Key:
        return Key.kept(self._life.key)

    @property
    def life(self) -> int:
        return self._life.number

    @property
    def seq_nr(self) -> int:
        return self._cells[0]  # type: ignore[no-any-return]

    @property
    def prev_seq_nr(self) -> int:
        return self._cells[1]  # type: ignore[no-any-return]

    @property
    def slice(self) -> int:
        return self._life.slice

    @property
    def partition(self) -> int:
        return self._fixed_fields_or_defaults().partition

    @property
    def log_offset(self) -> int:
        return self._fixed_fields_or_defaults().log_offset

    @property
    def timestamp(self) -> int:
        return self._fixed_fields_or_defaults().timestamp

    @property
    def time(self) -> datetime:
        """The timestamp, in UTC."""
        return EPOCH + timedelta(microseconds=self.timestamp)

    @property
    def append_id(self) -> UUID:
        return UUID(bytes=self._fixed_fields_or_defaults().append_id)

    @property
    def type(self) -> str:
        return self._between(FIXED.size, self._fixed_fields_or_defaults().tags_at).decode(errors="replace")

    @property
    def tags(self) -> tuple[str, ...]:
        left = self._fixed_fields_or_defaults()
        return parsed_tags(self._between(left.tags_at, left.headers_at))

    @property
    def headers(self) -> dict[str, str]:
        left = self._fixed_fields_or_defaults()
        return parsed_headers(self._between(left.headers_at, left.metadata_at))

    @property
    def damaged(self) -> bool:
        """Return whether what was appended cannot be read any more."""
        form = self._form()
        return form is None or form > JSON

    @property
    def payload(self) -> Any:
        # As in `_form`, written out: a reader of many events comes here once for each.
        seq_nr, prev, body, digest = self._cells
        try:
            if zlib.crc32(body, self._life.seed) == digest:
                version, number, before, form, payload_at = _BRIEF(body)
                if number == seq_nr and before == prev and form <= JSON and version == BODY_VERSION:
                    data = body[payload_at:]
                    return data if form == BYTES else self._loaded(data)
        except (TypeError, struct.error):
            pass
        raise self._damage()

    @property
    def metadata(self) -> dict[str, Any] | None:
        if self.damaged:
            raise self._damage()
        left = self._fixed_fields_or_defaults()
        data = self._between(left.metadata_at, left.payload_at)
        return self._loaded(data) if data else None

    def row(self, segment_size: int) -> EventRow:
        """Return the event as a store keeps it."""
        life, left = self._life, self._fixed_fields_or_defaults()
        seq_nr, prev, body, digest = self._cells
        return EventRow(
            life.key, life.number, (seq_nr - 1) // segment_size, seq_nr, prev, life.entity_type, life.slice,
            left.partition, left.timestamp, body, digest,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values: ids and times as text, bytes as `payload_base64`. A damaged event has what
        is left of its place, and no payload.
        """
        place = {
            "key": self._life.key,
            "seq_nr": self.seq_nr,
            "prev_seq_nr": self.prev_seq_nr,
            "life": self.life,
            "slice": self.slice,
            "partition": self.partition,
            "log_offset": self.log_offset,
            "timestamp": self.timestamp,
            "time": self.time.isoformat(),
            "append_id": str(self.append_id),
            "type": self.type,
            "tags": list(self.tags),
            "headers": self.headers,
        }
        try:
            payload, metadata = self.payload, self.metadata
        except Corrupt:  # only reading the payload tells for sure whether it can be read
            return {**place, "damaged": True}
        content = (
            {"payload_base64": b64encode(payload).decode()} if isinstance(payload, bytes) else {"payload": payload}
        )
        return {**place, **content, "metadata": metadata, "damaged": False}

    def packed(self) -> tuple[str | None, bytes, bool]:
        """Metadata as JSON text, payload as bytes, and whether the payload is JSON, as they were written."""
        if self.damaged:
            raise self._damage()
        left = self._fixed_fields_or_defaults()
        metadata = self._between(left.metadata_at, left.payload_at)
        return metadata.decode() if metadata else None, self._cells[2][left.payload_at :], left.form == JSON

    def _form(self) -> int | None:
        """Return `Parts.form`; None if the body is not what was written."""
        seq_nr, prev, body, digest = self._cells
        try:
            if zlib.crc32(body, self._life.seed) != digest:
                return None
            version, number, before, form, _ = _BRIEF(body)
        except (TypeError, struct.error):  # a damaged file may give any type for a column
            return None
        if version != BODY_VERSION:
            raise self._unknown(version)
        return form if (number, before) == (seq_nr, prev) else None

    def _fixed_fields_or_defaults(self) -> Parts:
        """Return the fixed fields of the body, or defaults for those that cannot be read."""
        try:
            return parts_of(self._cells[2])
        except (TypeError, struct.error):
            self._form()  # raises for an unknown version; any other body is damaged
            return Parts(BODY_VERSION, 0, 0, DAMAGED_DIGEST, 0, -1, 0, bytes(16), 0, 0, 0, 0)

    def _between(self, start: int, end: int) -> bytes:
        body = self._cells[2]
        return body[start:end] if isinstance(body, bytes) else b""

    def _loaded(self, data: bytes) -> Any:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:  # its digest is right, so it was written like this by another program
            raise self._damage(undecodable=True) from None

    def _unknown(self, version: int) -> SchemaMismatch:
        return SchemaMismatch(
            f"event {self.seq_nr} of {shown(self._life.key)} was written in version {version}",
            code="version",
            hint="use the strandline that wrote it, or a newer one",
            found=[version],
            known=[BODY_VERSION],
            remedy="use the strandline that wrote it, or a newer one",
        )

    def _damage(self, *, undecodable: bool = False) -> Corrupt:
        form = self._form()
        hint = "the row is not what was written: check the disk, and put the store back from a backup"
        if form in (DAMAGED_UNDECODABLE, DAMAGED_DIGEST):
            hint = (
                "see `strandline pipeline quarantine`; then "
                f"`strandline pipeline resolve {self.partition} {self.log_offset} skip` or `retry`"
            )
        return Corrupt(
            f"event {self.seq_nr} of {shown(self._life.key)} is damaged",
            code="undecodable" if undecodable or form == DAMAGED_UNDECODABLE else "digest",
            hint=hint,
            key=self._life.key,
            seq_nr=self.seq_nr,
            partition=self.partition,
            offset=self.log_offset,
        )

    def _whole(self) -> tuple[Any, ...]:
        return (self._life.key, self._life.number, *self._cells[:3], self.damaged)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedEvent) and self._whole() == other._whole()

    def __hash__(self) -> int:
        return hash(self._whole())

    def __repr__(self) -> str:
        said = "damaged" if self.damaged else shown(self.payload)
        return f"<RecordedEvent {self._life.key} {self.seq_nr} {self.type} {said}>"


def parsed_tags(text: bytes) -> tuple[str, ...]:
    """Return the tags that stand in a body."""
    return tuple(_parsed(text, list))


def parsed_headers(text: bytes) -> dict[str, str]:
    """Return the headers that stand in a body."""
    return _parsed(text, dict)  # type: ignore[no-any-return]


def _parsed(text: bytes, kind: type[Any]) -> Any:
    """Return JSON of this kind; an empty value where there is none, or where a damaged row has another kind."""
    try:
        found = orjson.loads(text) if text else kind()
    except orjson.JSONDecodeError:
        return kind()
    return found if type(found) is kind else kind()
