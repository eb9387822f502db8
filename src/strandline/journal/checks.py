"""Checks of a caller's input: it becomes a draft for the log, or is refused with a code, a field and what is allowed.

Everything is checked here, before any back-end is asked, so the same input gets the same answer on every back-end. This
is the hot path of an append: what repeats from call to call (keys, types, tags) is checked once and remembered.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Final
from uuid import UUID, uuid5

import orjson

from strandline.errors import InvalidInput, invalid
from strandline.log.api import ActionDraft
from strandline.record import content_digest, encode_header, encode_value
from strandline.settings import Settings
from strandline.values.actions import KEEP_EXPIRY, NO_EXPIRY, Append, EventHeader
from strandline.values.answers import KEEP
from strandline.values.events import Event
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import SLICES, Key, slice_of
from strandline.values.payloads import BYTES, JSON, encode, encode_json
from strandline.values.tuples import new_tuple

RESERVED_ENTITY_TYPES: Final = frozenset({"group", "group_stream", "group_inbox", "admin_act"})
RESERVED_TAG_PREFIX: Final = "strandline."
TYPE_BYTES_MAX: Final = 256
TAG_BYTES_MAX: Final = 256
MARK_ID_BYTES_MAX: Final = 128
APPEND_ID_BYTES_MAX: Final = 256
APPEND_ID_NAMESPACE: Final = UUID("4f6b1e0c-6c0e-5d0a-9d53-7b1f8f6a2c11")
"""With it an id that is any text, such as an Idempotency-Key, becomes the same UUID in every process and program."""
LIMIT_MAX: Final = 1000
APPENDS: Final = "(key, events) or (key, events, {options})"
APPEND_OPTIONS: Final = ("expected", "first", "append_id", "expire_after", "headers", "numbers")
EXPIRE_AFTER_MAX: Final = timedelta(days=36500)
TAGS_ADVISED: Final = 10
_TAG: Final = f"1 to {TAG_BYTES_MAX} bytes without control characters or white space at its ends"
SEQ_NRS: Final = "seq_nr is 1..2^63-1"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# For each random byte, the byte with the bits of a UUID's version, and that with the bits of its variant.
_VERSION: Final = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VARIANT: Final = bytes(byte & 0x3F | 0x80 for byte in range(256))
IDS_AT_ONCE: Final = 256
_logger = logging.getLogger("strandline")

# ---------------------------------------------------------------- keys


def parse_key(key: object) -> tuple[Key, str, int]:
    """Return the key that a caller gives, its written form, and its slice."""
    if type(key) is Key:
        written = f"{key.entity_type}|{key.entity_id}"
        return key, written, slice_of(written)
    if type(key) is str:
        return _known(key)
    other = Key.of(key)  # type: ignore[arg-type]
    return other, str(other), other.slice


@lru_cache(maxsize=8192)
def _known(written: str) -> tuple[Key, str, int]:
    key = Key.of(written)
    return key, written, key.slice


def writable_key(key: object) -> tuple[Key, str, int]:
    """Return a key that users may write to."""
    known = parse_key(key)
    if known[0].entity_type in RESERVED_ENTITY_TYPES:
        raise invalid(
            "reserved_entity_type",
            "key.entity_type",
            "belongs to Strandline itself",
            allowed="any other entity type",
            got=known[0].entity_type,
        )
    return known


def entity_type(value: object) -> str:
    """Return the entity type that a caller looks for."""
    return Key(value, "-").entity_type  # type: ignore[arg-type]


# ---------------------------------------------------------------- append


def append_draft(
    settings: Settings,
    partitions: int,
    key: object,
    events: object,
    *,
    expected: object = None,
    first: object = None,
    append_id: object = None,
    expire_after: object = KEEP,
    headers: object = None,
    reserved: bool = False,
) -> tuple[Key, ActionDraft]:
    """Return the key and the draft of an append. `reserved`: the caller is a part of this system that owns reserved
    types."""
    known, written, slice_ = parse_key(key) if reserved else writable_key(key)
    listed = _listed(events, settings.append_events_max)
    event_headers, value = _encoded(listed, settings, known.entity_type, reserved)
    said = None if headers is None else _headers(headers)
    action = new_tuple(Append, (
        written,
        event_headers,
        new_id() if append_id is None else id_of("append_id", append_id, code="append_id"),
        append_id is not None,
        content_digest(event_headers, said, value),
        None if first is None else seq_nr(first, "first"),
        None if expected is None else _expected(expected),
        KEEP_EXPIRY if expire_after is KEEP else _expire_after_us(expire_after),
        said,
    ))  # fmt: skip
    header = encode_header(action)
    if len(header) + len(value) > settings.append_bytes_max:
        raise _too_large("append_too_large", "events", len(header) + len(value), settings.append_bytes_max)
    return known, new_tuple(ActionDraft, (slice_ * partitions // SLICES, action, header, value, None))


def append_drafts(settings: Settings, partitions: int, appends: object) -> list[tuple[Key, ActionDraft, object, bool]]:
    """Check many appends, each with its id as it was given and whether it waits for its numbers.

    A refusal has the index of the bad one.
    """
    if isinstance(appends, (str, bytes, bytearray, Mapping, Set)) or not isinstance(appends, Iterable):
        raise invalid("events_type", "appends", "not a list", allowed=f"a list of {APPENDS}", got=appends)
    drafts: list[tuple[Key, ActionDraft, object, bool]] = []
    for index, one in enumerate(appends):
        try:
            if type(one) is tuple and len(one) == 2:  # most of them
                known, draft = append_draft(settings, partitions, *one)
                drafts.append((known, draft, None, True))
                continue
            key, events, options = _one_of_many(one)
            numbers = bool(options.pop("numbers", True))
            known, draft = append_draft(settings, partitions, key, events, **options)
            drafts.append((known, draft, options.get("append_id"), numbers))
        except InvalidInput as error:
            at, facts = f"appends[{index}]", dict(error.facts)
            field = facts.pop("field", "")
            place = f"{at}.{field}" if field else at
            message = error.message.removeprefix(f"{field}: ") if field else error.message
            raise InvalidInput(
                f"{place}: {message}", code=error.code, hint=error.hint, field=place, index=index, **facts
            ) from None
    return drafts


def _one_of_many(one: object) -> tuple[object, object, dict[str, Any]]:
    if not isinstance(one, (list, tuple)) or not 2 <= len(one) <= 3:
        raise invalid("events_type", "", "not an append", allowed=APPENDS, got=one)
    options = one[2] if len(one) == 3 else {}
    if not isinstance(options, Mapping):
        raise invalid("option", "", "options are no dict", allowed=APPENDS, got=options)
    for name in options:
        if name not in APPEND_OPTIONS:
            raise invalid("option", str(name), "no option of an append", allowed=", ".join(APPEND_OPTIONS), got=name)
    return one[0], one[1], dict(options)


def new_id() -> str:
    """Return a random UUID (version 4) as 32 hexadecimal digits.

    Random bytes for many ids come from one call of the kernel, because each call lets other threads have the
    interpreter.
    """
    try:
        return _ids.pop()
    except IndexError:
        numbers = bytearray(os.urandom(16 * IDS_AT_ONCE))
    numbers[6::16] = numbers[6::16].translate(_VERSION)
    numbers[8::16] = numbers[8::16].translate(_VARIANT)
    digits = numbers.hex()
    id_, *more = [digits[at : at + 32] for at in range(0, len(digits), 32)]
    _ids.extend(more)
    return id_


_ids: Final[list[str]] = []
os.register_at_fork(after_in_child=_ids.clear)  # so that a forked child does not repeat its parent's ids


def _listed(events: object, most: int) -> list[Event] | tuple[Event, ...]:
    if not isinstance(events, (list, tuple)):
        if isinstance(events, (Event, str, bytes, bytearray, Mapping, Set)) or not isinstance(events, Iterable):
            raise invalid(
                "events_type",
                "events",
                "not a list",
                allowed="a list of Event",
                got=events,
                hint="give a list of Event",
            )
        events = list(islice(events, most + 1))
    if not events:
        raise invalid("empty_append", "events", "empty", allowed=f"1 to {most} events", got=events)
    if len(events) > most:
        raise invalid("too_many_events", "events", "too many", allowed=f"at most {most} events", got=len(events))
    return events


def _encoded(
    events: list[Event] | tuple[Event, ...], settings: Settings, entity_type: str, reserved: bool
) -> tuple[tuple[EventHeader, ...], bytes]:
    headers: list[EventHeader] = []
    contents: list[tuple[int, bytes, bytes | None]] = []
    event_bytes_max, left = settings.event_bytes_max, settings.append_bytes_max
    for event in events:
        if not isinstance(event, Event):
            raise _refused_append(len(headers), "events_type", "", "not an Event", "a list of Event", event)
        payload = event.payload
        if type(payload) is bytes:
            form, data = BYTES, payload
        elif reserved:
            # The part of this system that owns the reserved type has made sure that its payload can be kept.
            form, data = JSON, orjson.dumps(payload)
        else:
            form, data = _payload(payload, len(headers))
        if len(data) > event_bytes_max:
            raise _too_large("event_too_large", f"events[{len(headers)}].payload", len(data), event_bytes_max)
        metadata = event.metadata
        said = None if metadata is None else _metadata(metadata, len(headers), settings.metadata_bytes_max)
        left -= len(data)
        if left < 0:
            raise _too_large("append_too_large", "events", settings.append_bytes_max - left, settings.append_bytes_max)
        tags = event.tags
        kept = () if tags == () else _tags(tags, len(headers), entity_type, reserved)
        headers.append((_type(event.type, len(headers)), kept))
        contents.append((form, data, said))
    return tuple(headers), encode_value(contents)


def _payload(payload: object, index: int) -> tuple[int, bytes]:
    try:
        return encode(payload)
    except InvalidInput:
        # Encoded again, to name the place in the payload: only a refused event costs this.
        return encode(payload, f"events[{index}].payload")


def _metadata(metadata: object, index: int, most: int) -> bytes:
    field = f"events[{index}].metadata"
    if not isinstance(metadata, dict):
        raise _refused_append(index, "payload_type", ".metadata", "not a JSON object", "a dict, or None", metadata)
    data = encode_json(metadata, field)
    if len(data) > most:
        raise _too_large("event_too_large", field, len(data), most)
    return data


def _type(type_: object, index: int) -> str:
    wrong = _type_wrong(type_) if type(type_) is str else "not text"
    if wrong and type(type_) is not str and isinstance(type_, str):
        type_ = "".join((type_,))  # the plain text of a value of a subclass, such as a member of an enumeration
        wrong = _type_wrong(type_)
    if wrong:
        raise _refused_append(
            index,
            "events_type",
            ".type",
            wrong,
            f"text of 1 to {TYPE_BYTES_MAX} bytes without control characters",
            type_,
        )
    return type_  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def _type_wrong(type_: str) -> str:
    if _CONTROL.search(type_):
        return "control character"
    return _size_wrong(type_, TYPE_BYTES_MAX)


def _tags(tags: object, index: int, entity_type: str, reserved: bool) -> tuple[str, ...]:
    if not isinstance(tags, (list, tuple, set, frozenset)):
        raise _bad_tag(index, "not a set, frozenset, list or tuple", tags)
    kept: dict[str, None] = {}
    for tag in tags:
        wrong = _tag_wrong(tag, reserved) if isinstance(tag, str) else "not text"
        if wrong:
            raise _bad_tag(index, wrong, tag)
        kept["".join((tag,))] = None
    if len(kept) >= TAGS_ADVISED:
        _advise_fewer_tags(entity_type)
    return tuple(sorted(kept) if isinstance(tags, (set, frozenset)) else kept)


@lru_cache(maxsize=8192)
def _tag_wrong(tag: str, reserved: bool) -> str:
    if _CONTROL.search(tag):
        return "control character"
    if tag != tag.strip():
        return "white space at an end"
    if tag.startswith(RESERVED_TAG_PREFIX) and not reserved:
        return f"starts with {RESERVED_TAG_PREFIX}"
    return _size_wrong(tag, TAG_BYTES_MAX)


def _size_wrong(text: str, most: int) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "lone surrogate"
    return "empty" if not size else f"{size} bytes" if size > most else ""


def _bad_tag(index: int, rule: str, tag: object) -> InvalidInput:
    allowed = f"a set or list of text, each {_TAG}, not {RESERVED_TAG_PREFIX}*"
    return invalid("invalid_tag", f"events[{index}].tags", rule, allowed=allowed, got=tag, rule=rule, tag=tag)


def tag(value: object) -> str:
    """Return the tag that a caller asks for. Tags that groups use are allowed, too."""
    rule = _tag_wrong(value, True) if isinstance(value, str) else "not text"
    if rule:
        raise invalid("invalid_tag", "tag", rule, allowed=f"text of {_TAG}", got=value, rule=rule, tag=value)
    return "".join((str(value),))


@lru_cache(maxsize=1024)
def _advise_fewer_tags(entity_type: str) -> None:
    _logger.warning(
        "events of %s carry %d tags or more: each tag is one more row to write, fewer than %d is advised",
        entity_type, TAGS_ADVISED, TAGS_ADVISED,
    )  # fmt: skip


def _headers(headers: object) -> dict[str, str] | None:
    if not isinstance(headers, Mapping):
        raise invalid("header", "headers", "not a mapping", allowed="a dict of text to text", got=headers)
    kept: dict[str, str] = {}
    for name, text in headers.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise invalid("header", "headers", "not text", allowed="a dict of text to text", got={name: text})
        kept["".join((name,))] = "".join((text,))
    encode_json(kept, "headers")
    return kept or None


def id_of(field: str, given: object, *, code: str) -> str:
    """Return the UUID that a caller gives a call, as hexadecimal digits. Text that is no UUID becomes
    `uuid5(APPEND_ID_NAMESPACE, text)`.
    """
    if isinstance(given, UUID):
        return given.hex
    if isinstance(given, str):
        with suppress(ValueError):
            return UUID(given).hex
        with suppress(UnicodeEncodeError):
            if 1 <= len(given.encode()) <= APPEND_ID_BYTES_MAX:
                return uuid5(APPEND_ID_NAMESPACE, given).hex
    allowed = f"a UUID, or text of 1..{APPEND_ID_BYTES_MAX} bytes"
    wrong = "not an append id" if code == "append_id" else "not an id of an add"
    raise invalid(code, field, wrong, allowed=allowed, got=given)


def _expire_after_us(expire_after: object) -> int:
    if expire_after is None:
        return NO_EXPIRY
    if isinstance(expire_after, timedelta) and timedelta(0) < expire_after <= EXPIRE_AFTER_MAX:
        return expire_after // timedelta(microseconds=1)
    raise invalid(
        "expire_after",
        "expire_after",
        "out of range" if isinstance(expire_after, timedelta) else "not a timedelta",
        allowed="a timedelta above zero, up to 36500 days, None, or KEEP",
        got=expire_after,
        hint="give a timedelta",
    )


# ---------------------------------------------------------------- bounds


def seq_nr(value: object, field: str) -> int:
    """Return a number of an event."""
    if type(value) is not int or not 1 <= value <= SEQ_NR_MAX:
        raise invalid("seq_nr_range", field, "not a seq_nr", allowed="1..2^63-1", got=value, hint=SEQ_NRS)
    return value


def _expected(value: object) -> int:
    if type(value) is not int or not 0 <= value <= SEQ_NR_MAX:
        hint = "give the seq_nr of the key's last event, as `head` tells it; 0 for a key without events; none for any"
        raise invalid("seq_nr_range", "expected", "not a seq_nr or 0", allowed="0..2^63-1", got=value, hint=hint)
    return value


def bounds(from_: object, to: object) -> tuple[int, int]:
    """Return the numbers that a read asks for, both included."""
    least = seq_nr(from_, "from_")
    most = SEQ_NR_MAX if to is None else seq_nr(to, "to")
    if least > most:
        raise invalid("empty_range", "from_", "above to", allowed=f"1..{most}", got=least)
    return least, most


def limit(value: object, most: int = LIMIT_MAX) -> int:
    """Return the limit that a caller gives."""
    if type(value) is not int or not 1 <= value <= most:
        allowed = "1..2^63-1, or None" if most == SEQ_NR_MAX else f"1..{most}"
        raise invalid("limit_range", "limit", "out of range", allowed=allowed, got=value)
    return value


def mark_id(value: object) -> str:
    """Return the id of a mark; a random one if none is given."""
    if value is None:
        return new_id()
    allowed = f"text of 1 to {MARK_ID_BYTES_MAX} bytes without control characters"
    if not isinstance(value, str):
        raise invalid("mark_id", "id", "not text", allowed=allowed, got=value)
    wrong = "control character" if _CONTROL.search(value) else _size_wrong(value, MARK_ID_BYTES_MAX)
    if wrong:
        raise invalid("mark_id", "id", wrong, allowed=allowed, got=value)
    return "".join((value,))


def timeout_s(value: object) -> float:
    """Return how long to wait."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        allowed = "seconds, 0 or more"
        raise invalid("setting", "timeout_s", "not a duration", allowed=allowed, got=value, setting="timeout_s")
    return float(seconds)


def state_bytes(state: object, most: int) -> tuple[int, bytes]:
    """Return the form and the bytes of a snapshot's state, which may be whatever a payload may be."""
    form, data = encode(state, "state")
    if len(data) > most:
        raise _too_large("event_too_large", "state", len(data), most)
    return form, data


def _refused_append(index: int, code: str, part: str, wrong: str, allowed: str, got: object) -> InvalidInput:
    return invalid(code, f"events[{index}]{part}", wrong, allowed=allowed, got=got, hint=f"give {allowed}")


def _too_large(code: str, field: str, size: int, most: int) -> InvalidInput:
    return invalid(code, field, f"{size} bytes", allowed=f"at most {most} bytes", got=f"{size} bytes")
