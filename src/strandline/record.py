"""Records: how an action is written into the log.

A record has a header, with all that the fold needs, and a value, with the payloads and metadata, which it never reads.

- header: JSON with its own checksum in front, `{"crc":"0a1b2c3d","v":1,"kind":"append",…}`. Fields that say nothing are
  left out.
- value: a version byte, the number of events, two lengths per event (metadata, payload; the top bit of the first says
  that there is metadata, the top bit of the second that the payload is JSON), then all bytes in the same order.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, NamedTuple

import orjson

from strandline.errors import SchemaMismatch, shown
from strandline.values.actions import EXPIRE_AFTER_US_MAX, KEEP_EXPIRY, Action, Append, Delete, EventHeader, Mark, Purge
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import is_key
from strandline.values.payloads import BYTES, JSON
from strandline.values.tuples import new_tuple

RECORD_VERSION: Final = 1
VALUE_BYTES_MAX: Final = 16 * 2**20
JOINED_BYTES_MAX: Final = 4096
PLAIN_BYTES_MAX: Final = 1024
HEADER_START: Final = b'{"crc":"'
HEADER_SIGNED_AT: Final = len(HEADER_START) + 8 + 2
"""The index after the checksum, its quote and the comma."""
HEADER_OPENED: Final = zlib.crc32(b"{")
"""The checksum of a header leaves out the checksum field itself; this is its value after the opening brace."""
LENGTH_TOP: Final = 0x80000000
_TWO_HEXADECIMAL: Final = re.compile("[0-9a-f]{64}").fullmatch
_MARK: Final = b'"kind":"mark"'
_APPEND: Final = b'"kind":"append"'
_KIND_WITHIN: Final = 48
_KIND_FIRST: Final = b'"v":%d,"kind":"%b"'
"""The kind follows the checksum, where a quick look finds it, and so does a database that lets a user record only some
kinds."""
_AT_LEAST: Final = b'"at_least":'
_ONE_EVENT: Final = struct.Struct("<BIII")
_COUNT: Final = itemgetter(slice(1, 5))
# A plain append as `encode_header` writes it; most records are one. A header that does not match is parsed as JSON.
_PLAIN: Final = re.compile(
    rb'\{"crc":"([0-9a-f]{8})","v":1,"kind":"append","key":"([^"\\\x00-\x1f]+)","events":(\[.+\]),'
    rb'"id":"([0-9a-f]{32})","digest":"([0-9a-f]{32})"\}',
    re.DOTALL,
).fullmatch

_quoted: Final = re.compile(r'["\\\x00-\x1f]').search
"""Characters that JSON writes in another way."""


class Record(NamedTuple):
    """A record as it stands in the log.

    A log that folds wrote life, first and last beside it (`record_numbers`).
    """

    partition: int
    offset: int
    timestamp: int
    key: str | None
    header: bytes | None
    value: bytes | None
    life: int | None = None
    first: int | None = None
    last: int | None = None


class Content(NamedTuple):
    """The part of a value that belongs to one event."""

    form: int
    payload: bytes
    metadata: bytes | None


class BadHeader(Exception):
    """No action can be read from this header; `reason` is the word that the quarantine shows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadValue(Exception):
    """The events of this value cannot be read; `reason` is "undecodable" or "digest"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# ---------------------------------------------------------------- header


def encode_header(action: Action) -> bytes:
    """Return the header of an action, checksum included."""
    if type(action) is Append:
        key, events, append_id, id_given, digest, first, expected, expire_after_us, headers = action
        plain = not id_given and first is None and expected is None and expire_after_us == KEEP_EXPIRY
        if plain and headers is None and not _quoted(key):  # most appends; the same bytes in a third of the time
            said = _event_json(events) if len(events) == 1 else orjson.dumps(events).decode()
            rest = f'"v":1,"kind":"append","key":"{key}","events":{said},"id":"{append_id}","digest":"{digest}"}}'
            return _sealed(rest.encode())
    return sealed(orjson.dumps(_fields(action)))


def sealed(body: bytes) -> bytes:
    """Return a header with its checksum in front."""
    return _sealed(body[1:])


def _sealed(rest: bytes) -> bytes:
    """Return a header, given the text after its opening brace."""
    return b'%b%08x",%b' % (HEADER_START, zlib.crc32(rest, HEADER_OPENED), rest)


def decode_header(data: bytes | None) -> Action:
    """Return the action of a header. `BadHeader` if it is not ours or broken, `SchemaMismatch.version` if it is
    newer."""
    if data and len(data) <= PLAIN_BYTES_MAX and (plain := _PLAIN(data)):
        crc, key, events, append_id, digest = plain.groups()
        if crc == b"%08x" % zlib.crc32(data[HEADER_SIGNED_AT:], HEADER_OPENED):
            try:
                parts = (_key_of(key), _events_of(events), append_id.decode(), False, digest.decode())
            except (ValueError, TypeError):
                pass  # parsing the JSON tells what is wrong, if anything is
            else:
                return new_tuple(Append, (*parts, None, None, KEEP_EXPIRY, None))
    if not data or not data.startswith(HEADER_START):
        raise BadHeader("foreign")
    if data[len(HEADER_START) : HEADER_SIGNED_AT] != b'%08x",' % zlib.crc32(data[HEADER_SIGNED_AT:], HEADER_OPENED):
        raise BadHeader("header")
    try:
        fields = orjson.loads(data)
        version = fields["v"]
        if type(version) is not int or version != RECORD_VERSION:
            raise _unknown(version, fields.get("kind"))
        kind = fields["kind"]
        read = _READERS.get(kind) if type(kind) is str else None
        if read is None:
            raise _unknown(version, kind)
        if not data.startswith(_KIND_FIRST % (version, kind.encode()), HEADER_SIGNED_AT):
            raise BadHeader("header")
        return read(fields)
    except (ValueError, KeyError, TypeError):
        raise BadHeader("header") from None


def derived(records: Iterable[Record], before: int) -> list[Record]:
    """Return records with the timestamps that every reader derives, where the log has only its clock's time.

    `before` is the timestamp of the record before the first one, or of any place from there on to it. All records of a
    partition must be given, whosever they are: each time is above the one before it, not below what a Mark asks for.
    """
    derived = []
    for partition, offset, timestamp, key, header, *rest in records:
        before = time_of(timestamp, header, before)
        derived.append(new_tuple(Record, (partition, offset, before, key, header, *rest)))
    return derived


def time_of(timestamp: int, header: bytes | None, before: int) -> int:
    """Return the derived timestamp of one record, from the log's clock and the timestamp of the record before it."""
    found = timestamp if timestamp > before else before + 1
    if header is not None and _AT_LEAST in header:
        return max(found, at_least_of(header))
    return found


def at_least_of(header: bytes | None) -> int:
    """Return the time that a Mark asks for; 0 for any other record, and for one that cannot be read."""
    if header is None or _AT_LEAST not in header:
        return 0
    try:
        action = decode_header(header)
    except (BadHeader, SchemaMismatch):
        return 0
    return action.at_least or 0 if isinstance(action, Mark) else 0


def is_mark(header: bytes) -> bool:
    """Return whether a header is that of a Mark, as `encode_header` writes it; quicker than to decode it."""
    return header.find(_MARK, 0, _KIND_WITHIN) >= 0


def is_append(header: bytes | None) -> bool:
    """Tell whether a header is that of an Append."""
    return header is not None and header.find(_APPEND, 0, _KIND_WITHIN) >= 0


def _unknown(version: object, kind: object) -> SchemaMismatch:
    return SchemaMismatch(
        f"record of version {shown(version)}, kind {shown(kind)}; this program knows version {RECORD_VERSION}",
        code="version",
        hint="upgrade strandline here: a newer one writes this log",
        found=version,
        known=RECORD_VERSION,
    )


def _fields(action: Action) -> dict[str, Any]:
    if isinstance(action, Append):
        return _append_fields(action)
    if isinstance(action, Mark):
        given = _without_nones(key=action.key, at_least=action.at_least)
        return {"v": RECORD_VERSION, "kind": "mark", "id": action.id, **given}
    if isinstance(action, Delete):
        given = _without_nones(life=action.life)
        return {"v": RECORD_VERSION, "kind": "delete", "key": action.key, "to": action.to, **given}
    return {"v": RECORD_VERSION, "kind": "purge", "key": action.key, **_without_nones(if_offset=action.if_offset)}


def _append_fields(action: Append) -> dict[str, Any]:
    key, events, append_id, id_given, digest, first, expected, expire_after_us, headers = action
    fields = {"v": RECORD_VERSION, "kind": "append", "key": key, "events": events, "id": append_id, "digest": digest}
    if id_given:
        fields["given"] = True
    if first is not None:
        fields["first"] = first
    if expected is not None:
        fields["expected"] = expected
    if headers is not None:
        fields["headers"] = headers
    if expire_after_us != KEEP_EXPIRY:
        fields["expire"] = expire_after_us
    return fields


def _without_nones(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _append(fields: dict[str, Any]) -> Append:
    get = fields.get
    events, append_id, digest = fields["events"], fields["id"], fields["digest"]
    given, expire, headers = get("given", False), get("expire", KEEP_EXPIRY), get("headers")
    if type(events) is not list or not events or type(given) is not bool:
        raise TypeError(events, given)
    if len(append_id) != 32 or not _TWO_HEXADECIMAL(append_id + digest):
        raise ValueError(append_id, digest)
    if type(expire) is not int or not KEEP_EXPIRY <= expire <= EXPIRE_AFTER_US_MAX:
        raise ValueError(expire)
    if headers is not None and (type(headers) is not dict or any(type(value) is not str for value in headers.values())):
        raise TypeError(headers)
    first, expected = get("first"), get("expected")
    return new_tuple(
        Append,
        (
            _key(fields["key"]),
            tuple(_events(events)),
            append_id,
            given,
            digest,
            None if first is None else _number(first, 1),
            None if expected is None else _number(expected, 0),
            expire,
            headers,
        ),
    )


def _events(events: list[Any]) -> list[EventHeader]:
    found = []
    for event in events:
        type_, tags = event
        if type(event) is not list or type(type_) is not str or type(tags) is not list:
            raise TypeError(event)
        found.append((type_, tuple(map(_text, tags)) if tags else ()))
    return found


def _mark(fields: dict[str, Any]) -> Mark:
    key = fields.get("key")
    return Mark(None if key is None else _key(key), _text(fields["id"]), _number(fields.get("at_least"), 0))


def _delete(fields: dict[str, Any]) -> Delete:
    to = _number(fields["to"], 1)
    if to is None:
        raise ValueError(to)
    return Delete(_key(fields["key"]), to, _number(fields.get("life"), 1))


def _purge(fields: dict[str, Any]) -> Purge:
    return Purge(_key(fields["key"]), _number(fields.get("if_offset"), 0))


_READERS: Final[dict[str, Callable[[dict[str, Any]], Action]]] = {
    "append": _append,
    "mark": _mark,
    "delete": _delete,
    "purge": _purge,
}


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


@lru_cache(maxsize=65536)
def _key(written: Any) -> str:
    if not is_key(written):
        raise ValueError(written)
    return str(written)


@lru_cache(maxsize=65536)
def _key_of(written: bytes) -> str:
    return _key(written.decode())


@lru_cache(maxsize=4096)
def _events_of(data: bytes) -> tuple[EventHeader, ...]:
    """Return events without payload, parsed once for many appends of the same types and tags."""
    events = orjson.loads(data)
    if not events:
        raise ValueError(events)
    return tuple(_events(events))


def _number(value: Any, least: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not least <= value <= SEQ_NR_MAX:
        raise ValueError(value)
    return value


# ---------------------------------------------------------------- value


def encode_value(contents: Sequence[tuple[int, bytes, bytes | None]]) -> bytes:
    """Return the value of an append."""
    if len(contents) == 1 and contents[0][2] is None:  # most appends
        form, payload, _ = contents[0]
        length = len(payload) | LENGTH_TOP if form == JSON else len(payload)
        return _ONE_EVENT.pack(RECORD_VERSION, 1, 0, length) + payload
    lengths: list[int] = []
    parts: list[bytes] = []
    for form, payload, metadata in contents:
        if metadata is None:
            lengths.append(0)
        else:
            lengths.append(len(metadata) | LENGTH_TOP)
            parts.append(metadata)
        lengths.append(len(payload) | LENGTH_TOP if form == JSON else len(payload))
        parts.append(payload)
    count = len(contents)
    return struct.pack(f"<BI{2 * count}I", RECORD_VERSION, count, *lengths) + b"".join(parts)


def decode_value(data: bytes | None, count: int) -> list[Content]:
    """Return the contents of an append of `count` events; `BadValue("undecodable")` if they cannot be read."""
    size = 5 + 8 * count
    if data is None or not size <= len(data) <= VALUE_BYTES_MAX:
        raise BadValue("undecodable")
    if count == 1:  # most appends have one event, without metadata
        version, found, metadata_length, payload_length = _ONE_EVENT.unpack_from(data)
        if not metadata_length and version == RECORD_VERSION and found == 1:
            form, length = (
                (BYTES, payload_length) if payload_length < LENGTH_TOP else (JSON, payload_length - LENGTH_TOP)
            )
            if size + length == len(data):
                return [new_tuple(Content, (form, data[size:], None))]
    version, found, *lengths = struct.unpack_from(f"<BI{2 * count}I", data)
    if version != RECORD_VERSION or found != count:
        raise BadValue("undecodable")
    contents = []
    at = size
    following = iter(lengths)
    for metadata_length in following:
        payload_length = next(following)
        metadata = None
        if metadata_length:
            if metadata_length < LENGTH_TOP:
                raise BadValue("undecodable")
            end = at + metadata_length - LENGTH_TOP
            metadata, at = data[at:end], end
        if payload_length < LENGTH_TOP:
            form, end = BYTES, at + payload_length
        else:
            form, end = JSON, at + payload_length - LENGTH_TOP
        contents.append(new_tuple(Content, (form, data[at:end], metadata)))
        at = end
    if at != len(data):
        raise BadValue("undecodable")
    return contents


def event_count(values: Iterable[bytes]) -> int:
    """Return how many events these values say that they have. A damaged value may say any number."""
    counts = b"".join(map(_COUNT, values))
    whole = len(counts) // 4
    return sum(struct.unpack_from(f"<{whole}I", counts))


def tag_count(headers: bytes, appends: int, events: int) -> int:
    """Return about how many tags the events of these headers have, without reading them: exactly, where appends say no
    more.

    In the header of a plain append four strings follow another one, and a list that begins with a string follows
    something once for each event but the first. All others that there are belong to tags.
    """
    return max(0, headers.count(b'","') - 4 * appends + headers.count(b',["') - (events - appends))


def content_digest(events: Sequence[EventHeader], headers: dict[str, str] | None, value: bytes) -> str:
    """Return the digest that equal appends share: of their events with payloads, and of their headers in any order."""
    if len(events) == 1 and headers is None:
        said = digest_input(events[0])
    else:
        said = orjson.dumps((events, headers), option=orjson.OPT_SORT_KEYS if headers else None)
    if len(value) <= JOINED_BYTES_MAX:  # one call is quicker than two
        return blake2b(said + value, digest_size=16).hexdigest()
    digest = blake2b(said, digest_size=16)
    digest.update(value)
    return digest.hexdigest()


@lru_cache(maxsize=4096)
def _event_json(events: tuple[EventHeader]) -> str:
    return orjson.dumps(events).decode()


@lru_cache(maxsize=4096)
def digest_input(event: EventHeader) -> bytes:
    """Return the bytes of one event without headers that are hashed before the value."""
    return orjson.dumps(((event,), None))


def read_contents(action: Append, value: bytes | None) -> list[Content]:
    """Return the contents of a recorded append, verified; `BadValue` says why they cannot be had."""
    events = action.events
    contents = decode_value(value, len(events))
    if content_digest(events, action.headers, value or b"") != action.digest:
        raise BadValue("digest")
    return contents
