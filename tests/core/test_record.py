"""Records: what is written is read again, and nothing else is ever taken for it."""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.errors import SchemaMismatch
from strandline.fold import FoldRules, fold
from strandline.record import (
    VALUE_BYTES_MAX,
    BadHeader,
    BadValue,
    Content,
    Record,
    at_least_of,
    content_digest,
    decode_header,
    decode_value,
    derived,
    encode_header,
    encode_value,
    read_contents,
)
from strandline.values.actions import (
    EXPIRE_AFTER_US_MAX,
    KEEP_EXPIRY,
    NO_EXPIRY,
    Action,
    Append,
    Delete,
    Mark,
    Place,
    Purge,
)
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.payloads import BYTES, JSON
from tests.repeats import examples

RULES = FoldRules(10, 32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
KEYS = st.builds("{}|{}".format, NAME.filter(lambda text: "|" not in text), NAME)
HEX = st.binary(min_size=16, max_size=16).map(bytes.hex)
NUMBERS = st.integers(1, SEQ_NR_MAX)
OR_NOTHING = st.none()

APPENDS = st.builds(
    Append,
    key=KEYS,
    events=st.lists(st.tuples(TEXT, st.lists(TEXT, max_size=3).map(tuple)), min_size=1, max_size=5).map(tuple),
    append_id=HEX,
    id_given=st.booleans(),
    digest=HEX,
    first=OR_NOTHING | NUMBERS,
    expected=OR_NOTHING | st.integers(0, SEQ_NR_MAX),
    expire_after_us=st.sampled_from([KEEP_EXPIRY, NO_EXPIRY]) | st.integers(1, EXPIRE_AFTER_US_MAX),
    headers=OR_NOTHING | st.dictionaries(TEXT, TEXT, max_size=3),
)
ACTIONS = (
    APPENDS
    | st.builds(Mark, key=OR_NOTHING | KEYS, id=TEXT, at_least=OR_NOTHING | st.integers(0, SEQ_NR_MAX))
    | st.builds(Delete, key=KEYS, to=NUMBERS, life=OR_NOTHING | NUMBERS)
    | st.builds(Purge, key=KEYS, if_offset=OR_NOTHING | st.integers(0, SEQ_NR_MAX))
)
CONTENTS = st.lists(
    st.builds(Content, form=st.sampled_from([BYTES, JSON]), payload=st.binary(), metadata=OR_NOTHING | st.binary()),
    min_size=1,
    max_size=6,
)

ID, DIGEST = "0123456789abcdef" * 2, "fedcba9876543210" * 2
APPEND = Append(
    "order|42", (("Placed", ("new", "élan")), ("Paid", ())), ID, True, DIGEST, 7, 6, 90_000_000, {"by": "eve"}
)
EXAMPLES = [
    APPEND,
    Append("order|42", (("Placed", ()),), ID, False, DIGEST),
    Mark(None, "idle", at_least=1_700_000_000_000_000),
    Mark("order|42", "m"),
    Delete("order|42", 5, life=2),
    Delete("order|42", 5),
    Purge("user|a|b", if_offset=0),
    Purge("order|😀"),
]


def signed(fields: object) -> bytes:
    """A header with a right checksum, whatever it says."""
    body = fields if isinstance(fields, bytes) else orjson.dumps(fields)
    return b'{"crc":"%08x",' % zlib.crc32(body) + body[1:]


def refused(header: bytes | None) -> str:
    with pytest.raises(BadHeader) as caught:
        decode_header(header)
    return caught.value.reason


# ---------------------------------------------------------------- header


@pytest.mark.req("J25", "J126")
@settings(max_examples=examples(200), deadline=None)
@given(ACTIONS)
def test_a_header_says_all_of_its_action(action: Action) -> None:
    header = encode_header(action)
    found = decode_header(header)
    assert found == action
    assert type(found) is type(action)
    assert [type(field) for field in found] == [type(field) for field in action]
    assert orjson.loads(header)["v"] == 1  # it is JSON for everybody


AT_THEIR_BOUNDS = [
    Mark(None, "", at_least=0),
    Delete("order|42", 1, life=1),
    Delete("order|42", SEQ_NR_MAX, life=SEQ_NR_MAX),
    Purge("order|42", if_offset=0),
    APPEND._replace(first=1, expected=0, expire_after_us=NO_EXPIRY, headers={}),
    APPEND._replace(first=SEQ_NR_MAX, expected=SEQ_NR_MAX, expire_after_us=EXPIRE_AFTER_US_MAX),
    APPEND._replace(key="order|" + "x" * 506),
]


@pytest.mark.req("J126")
@pytest.mark.parametrize("action", [*EXAMPLES, *AT_THEIR_BOUNDS], ids=repr)
def test_limits_are_within(action: Action) -> None:
    assert decode_header(encode_header(action)) == action


@pytest.mark.req("J126")
def test_a_header_is_readable_by_people() -> None:
    header = encode_header(APPEND).decode()
    assert header[:8] == '{"crc":"'
    assert header[16:] == (
        '","v":1,"kind":"append","key":"order|42","events":[["Placed",["new","élan"]],["Paid",[]]],"id":"' + ID
        + '","digest":"' + DIGEST + '","given":true,"first":7,"expected":6,"headers":{"by":"eve"},"expire":90000000}'
    )  # fmt: skip
    assert encode_header(Purge("order|42"))[17:] == b',"v":1,"kind":"purge","key":"order|42"}'


@pytest.mark.req("J126")
@settings(max_examples=examples(100), deadline=None)
@given(ACTIONS, ACTIONS)
def test_headers_alone_decide(before: Action, action: Action) -> None:
    """Who folds what was read from headers comes to the same state as who folds the actions themselves."""
    places = [Place(0, 1, 1_000), Place(0, 2, 2_000)]
    told, read = None, None
    for one, place in zip([before, action], places, strict=True):
        told, effect = fold(told, one, place, RULES)
        read, same = fold(read, decode_header(encode_header(one)), place, RULES)
        assert same == effect
    assert read == told


@pytest.mark.req("RA12")
@pytest.mark.parametrize("action", EXAMPLES, ids=repr)
def test_every_flipped_bit_of_a_header_is_found(action: Action) -> None:
    header = encode_header(action)
    for bit in range(8 * len(header)):
        flipped = bytearray(header)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadHeader):
            decode_header(bytes(flipped))


@pytest.mark.req("RA12")
@settings(max_examples=examples(200), deadline=None)
@given(ACTIONS, st.data())
def test_every_changed_header_is_found(action: Action, data: st.DataObject) -> None:
    header = bytearray(encode_header(action))
    at = data.draw(st.integers(0, len(header) - 1))
    header[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != header[at]))
    with pytest.raises(BadHeader):
        decode_header(bytes(header))


@pytest.mark.req("RA12")
@pytest.mark.parametrize("action", EXAMPLES, ids=repr)
def test_a_header_that_was_cut_or_grew_is_found(action: Action) -> None:
    header = encode_header(action)
    for end in range(len(header)):
        refused(header[:end])
        if end:
            refused(header[end:])
    for more in (b"}", b" ", b"\0", b"\n"):
        refused(header + more)


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"{}",
        b"null",
        b"hello",
        b'{"v":1,"kind":"mark","id":"m"}',
        b' {"crc":"00000000",',
        b'{"crc":',
        b"\xff",
    ],
)
def test_what_is_not_ours_is_foreign(header: bytes | None) -> None:
    assert refused(header) == "foreign"


def without(*names: str) -> dict[str, Any]:
    return {name: field for name, field in orjson.loads(encode_header(APPEND)).items() if name not in ("crc", *names)}


SAID = without()
BAD_FORMS: dict[str, object] = {
    "no JSON": b'{"v":1,',
    "not UTF-8": b'{"v":1,"kind":"\xff"}',
    "array": b"[1]",
    "text": b'"v"',
    "number": b"1",
    "nothing": b"null",
    "no version": without("v"),
    "no kind": without("kind"),
    "no key": without("key"),
    "no id": without("id"),
    "no digest": without("digest"),
    "no events": without("events"),
    "key not text": SAID | {"key": 42},
    "key a list": SAID | {"key": ["order|42"]},
    "key without bar": SAID | {"key": "order"},
    "key empty": SAID | {"key": "order|"},
    "key too long": SAID | {"key": "order|" + "x" * 507},
    "key with control character": SAID | {"key": "order|\n"},
    "key nothing": SAID | {"key": None},
    "events empty": SAID | {"events": []},
    "events nothing": SAID | {"events": None},
    "events a number": SAID | {"events": 1},
    "events an object": SAID | {"events": {"ab": 1}},
    "events a text": SAID | {"events": "ab"},
    "event a text": SAID | {"events": ["ab"]},
    "event an object": SAID | {"events": [{"T": 1, "U": 2}]},
    "event without tags": SAID | {"events": [["T"]]},
    "event with more": SAID | {"events": [["T", [], 1]]},
    "event with type of number": SAID | {"events": [[1, []]]},
    "event with type of nothing": SAID | {"events": [[None, []]]},
    "tags a text": SAID | {"events": [["T", "tag"]]},
    "tags an object": SAID | {"events": [["T", {"tag": 1}]]},
    "tags nothing": SAID | {"events": [["T", None]]},
    "tag a number": SAID | {"events": [["T", [1]]]},
    "id short": SAID | {"id": ID[1:]},
    "id long": SAID | {"id": ID + "0"},
    "id no hexadecimal": SAID | {"id": "g" * 32},
    "id with space": SAID | {"id": "ab " * 10 + "ab"},
    "id in capitals": SAID | {"id": ID.upper()},
    "id a number": SAID | {"id": 5},
    "id a list": SAID | {"id": ["0"] * 32},
    "digest short": SAID | {"digest": DIGEST[1:]},
    "digest no hexadecimal": SAID | {"digest": "x" * 32},
    "digest with space": SAID | {"digest": "ab " * 10 + "ab"},
    "id and digest shifted": SAID | {"id": ID + DIGEST[:2], "digest": DIGEST[2:]},
    "given a number": SAID | {"given": 1},
    "given a text": SAID | {"given": "false"},
    "first 0": SAID | {"first": 0},
    "first too large": SAID | {"first": 2**63},
    "first a fraction": SAID | {"first": 7.0},
    "first true": SAID | {"first": True},
    "first a text": SAID | {"first": "7"},
    "expected negative": SAID | {"expected": -1},
    "expected too large": SAID | {"expected": 2**64 - 1},
    "expire below": SAID | {"expire": -2},
    "expire nothing": SAID | {"expire": None},
    "expire a fraction": SAID | {"expire": 1.5},
    "expire too long": SAID | {"expire": EXPIRE_AFTER_US_MAX + 1},
    "headers a list": SAID | {"headers": ["by"]},
    "headers a text": SAID | {"headers": "by"},
    "header a number": SAID | {"headers": {"by": 1}},
    "mark without id": {"v": 1, "kind": "mark"},
    "mark id a number": {"v": 1, "kind": "mark", "id": 1},
    "mark with a bad key": {"v": 1, "kind": "mark", "id": "m", "key": "order"},
    "mark at least negative": {"v": 1, "kind": "mark", "id": "m", "at_least": -1},
    "delete without to": {"v": 1, "kind": "delete", "key": "order|42"},
    "delete to nothing": {"v": 1, "kind": "delete", "key": "order|42", "to": None},
    "delete to 0": {"v": 1, "kind": "delete", "key": "order|42", "to": 0},
    "delete without key": {"v": 1, "kind": "delete", "to": 1},
    "delete life 0": {"v": 1, "kind": "delete", "key": "order|42", "to": 1, "life": 0},
    "purge without key": {"v": 1, "kind": "purge"},
    "purge offset negative": {"v": 1, "kind": "purge", "key": "order|42", "if_offset": -1},
}


@pytest.mark.req("RA12")
@pytest.mark.parametrize("fields", BAD_FORMS.values(), ids=BAD_FORMS.keys())
def test_bad_form_and_limits_are_found_behind_a_right_checksum(fields: object) -> None:
    assert refused(signed(fields)) == "header"


@pytest.mark.req("RR12")
@pytest.mark.parametrize(
    "changed",
    [
        *({"v": version} for version in (2, 0, "1", None, True, 1.0, [1], "x" * 9_999)),
        *({"kind": kind} for kind in ("rename", "Append", None, ["append"], {"a": 1}, "x" * 9_999)),
    ],
    ids=lambda changed: repr(changed)[:40],
)
def test_an_unknown_version_or_kind_is_no_bad_record(changed: dict[str, Any]) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        decode_header(signed(SAID | changed))
    error = caught.value
    assert (error.code, error.known, error.found) == ("version", 1, changed.get("v", 1))
    assert len(str(error)) < 300
    assert error.hint


@pytest.mark.req("RR12")
def test_another_version_may_have_another_form() -> None:
    with pytest.raises(SchemaMismatch):
        decode_header(signed({"v": 2, "what": "append"}))


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from([*SAID, "to", "life", "if_offset", "at_least"])


@pytest.mark.req("RA12")
@settings(max_examples=examples(200), deadline=None)
@given(ACTIONS, st.dictionaries(FIELDS, JSONS, max_size=3))
def test_a_right_checksum_proves_no_form(action: Action, changed: dict[str, Any]) -> None:
    """Any field may say anything: what comes is an action within its limits, or one of two errors."""
    fields = orjson.loads(encode_header(action)) | changed
    del fields["crc"]
    try:
        found = decode_header(signed(fields))
    except (BadHeader, SchemaMismatch):
        return
    assert decode_header(encode_header(found)) == found
    fold(None, found, Place(0, 1, 1_000), RULES)


def _read(header: bytes) -> object:
    try:
        return decode_header(header)
    except BadHeader as bad:
        return bad.reason
    except SchemaMismatch as error:
        return error.name


@pytest.mark.req("RA12")
@settings(max_examples=examples(200), deadline=None)
@given(APPENDS, st.dictionaries(st.sampled_from(["key", "events", "id", "digest"]), JSONS | TEXT | HEX, max_size=2))
def test_a_plain_append_is_read_as_any_other(action: Append, changed: dict[str, Any]) -> None:
    plain = action._replace(id_given=False, first=None, expected=None, expire_after_us=KEEP_EXPIRY, headers=None)
    fields = orjson.loads(encode_header(plain)) | changed
    del fields["crc"]
    header = signed(fields)
    quick = _read(header)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("strandline.record._PLAIN", lambda data: None)
        assert _read(header) == quick
    if not changed:
        assert quick == plain


@pytest.mark.req("RA12")
@settings(max_examples=examples(200), deadline=None)
@given(st.binary() | st.binary().map(signed) | st.binary().map(b'{"crc":"'.__add__), st.integers(1, 4))
@example(b'{"crc":"', 1)
@example(signed(b"[" * 5_000), 1)
def test_random_bytes_give_no_other_error(data: bytes, count: int) -> None:
    with pytest.raises((BadHeader, SchemaMismatch)):
        decode_header(data)
    try:
        contents = decode_value(data, count)
    except BadValue as bad:
        reason = bad.reason
    else:
        assert len(contents) == count
        reason = "undecodable"
    assert reason == "undecodable"
    with pytest.raises(BadValue):
        read_contents(APPEND, data)


# ---------------------------------------------------------------- value


def recorded(contents: list[Content], **changed: Any) -> tuple[Append, bytes]:
    """An append with these contents, and its value."""
    events = tuple((f"T{n}", ("tag",) * (n % 3)) for n in range(len(contents)))
    value = encode_value(contents)
    action = APPEND._replace(events=events, **changed)
    return action._replace(digest=content_digest(action.events, action.headers, value)), value


@pytest.mark.req("J7")
@settings(max_examples=examples(200), deadline=None)
@given(CONTENTS)
@example([Content(BYTES, b"", None)])
@example([Content(JSON, b"null", b""), Content(BYTES, b"", b"{}")])
def test_a_value_gives_back_its_contents(contents: list[Content]) -> None:
    action, value = recorded(contents)
    assert decode_value(value, len(contents)) == contents
    assert read_contents(action, value) == contents


SOME = [Content(JSON, b'{"price":1.0}', None), Content(BYTES, b"\0\xff", b'{"by":"eve"}'), Content(JSON, b"1", b"{}")]


@pytest.mark.req("RA12")
def test_every_changed_byte_of_a_value_is_found() -> None:
    action, value = recorded(SOME)
    for at in range(len(value)):
        for byte in range(256):
            if byte != value[at]:
                with pytest.raises(BadValue):
                    read_contents(action, value[:at] + bytes([byte]) + value[at + 1 :])


@pytest.mark.req("RA12")
def test_a_value_that_was_cut_or_grew_is_found() -> None:
    action, value = recorded(SOME)
    for end in range(len(value)):
        with pytest.raises(BadValue, match="undecodable"):
            read_contents(action, value[:end])
    with pytest.raises(BadValue, match="undecodable"):
        read_contents(action, value + b"\0")


@pytest.mark.req("RA12")
@pytest.mark.parametrize(
    "changed",
    [
        {"events": (("T0", ()), ("T1", ("tag",)), ("Other", ("tag", "tag")))},
        {"events": (("T0", ("more",)), ("T1", ("tag",)), ("T2", ("tag", "tag")))},
        {"headers": None},
        {"headers": {}},
        {"headers": {"by": "adam"}},
        {"digest": DIGEST},
    ],
)
def test_a_digest_is_over_types_tags_and_headers_too(changed: dict[str, Any]) -> None:
    action, value = recorded(SOME)
    with pytest.raises(BadValue, match="digest"):
        read_contents(action._replace(**changed), value)


@pytest.mark.req("J40")
def test_two_appends_are_the_same_if_events_and_headers_are() -> None:
    events = (("T", ("a", "b")),)
    value = encode_value([Content(JSON, b"1", None)])
    digest = content_digest(events, {"x": "1", "y": "2"}, value)
    assert digest == content_digest(events, {"y": "2", "x": "1"}, value)  # headers have no order
    others = [
        content_digest((("T", ("b", "a")),), {"x": "1", "y": "2"}, value),
        content_digest((("U", ("a", "b")),), {"x": "1", "y": "2"}, value),
        content_digest(events, {"x": "1"}, value),
        content_digest(events, {}, value),
        content_digest(events, None, value),
        content_digest(events, {"x": "1", "y": "2"}, encode_value([Content(JSON, b"1.0", None)])),
        content_digest(events, {"x": "1", "y": "2"}, encode_value([Content(BYTES, b"1", None)])),
        content_digest(events, {"x": "1", "y": "2"}, encode_value([Content(JSON, b"1", b"{}")])),
    ]
    assert len({digest, *others}) == 1 + len(others)


def test_what_stands_in_logs_never_changes() -> None:
    assert encode_header(APPEND)[:17] == b'{"crc":"dca37df8"'
    value = encode_value(SOME)
    assert (
        value
        == bytes.fromhex("0103000000000000000d0000800c000080020000000200008001000080")
        + b'{"price":1.0}{"by":"eve"}\0\xff{}1'
    )
    assert content_digest(APPEND.events, APPEND.headers, value) == "5eaa276de3a2899b6335951911169ded"


@pytest.mark.parametrize("size", [0, 4_000, 4_096, 4_097, 100_000])
def test_a_digest_is_one_hash_over_events_headers_and_value(size: int) -> None:
    events, headers, value = (("T", ("a",)),), {"b": "2", "a": "1"}, b"x" * size
    said = b'[[["T",["a"]]],{"a":"1","b":"2"}]'
    assert content_digest(events, headers, value) == blake2b(said + value, digest_size=16).hexdigest()
    assert content_digest(events, None, value) == blake2b(b'[[["T",["a"]]],null]' + value, digest_size=16).hexdigest()


HUGE = encode_value([Content(BYTES, b"x" * (VALUE_BYTES_MAX - 13), None)])
BAD_VALUES = {
    "nothing": (None, 1),
    "empty": (b"", 1),
    "other version": (b"\x02" + encode_value(SOME)[1:], 3),
    "fewer than the header says": (encode_value(SOME), 4),
    "more than the header says": (encode_value(SOME), 2),
    "many more": (encode_value(SOME), 10**6),
    "lengths beyond the end": (struct.pack("<BIII", 1, 1, 0, 0x7FFFFFFF), 1),
    "metadata beyond the end": (struct.pack("<BIII", 1, 1, 0xFFFFFFFF, 0), 1),
    "metadata without its mark": (struct.pack("<BIII", 1, 1, 2, 0) + b"{}", 1),
    "over 16 MiB": (encode_value([Content(BYTES, b"x" * (VALUE_BYTES_MAX - 12), None)]), 1),
    "text": (b'{"price":1.0}', 1),
}


@pytest.mark.req("J94")
@pytest.mark.parametrize(("value", "count"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_what_is_no_value_cannot_be_decoded(value: bytes | None, count: int) -> None:
    with pytest.raises(BadValue) as caught:
        decode_value(value, count)
    assert caught.value.reason == "undecodable"


def test_16_mib_can_be_decoded() -> None:
    assert len(HUGE) == VALUE_BYTES_MAX == 16 * 2**20
    assert len(decode_value(HUGE, 1)[0].payload) == VALUE_BYTES_MAX - 13


# ---------------------------------------------------------------- timestamps


def _records(steps: list[tuple[int, int | None, bool]]) -> list[Record]:
    """Records of a log that tells its clock's time alone: step of the clock in ms, what a Mark asks for, foreign."""
    records = []
    now_ms = 1_767_225_600_000
    for number, (step_ms, ahead_us, foreign) in enumerate(steps):
        now_ms += step_ms
        action = Mark(None, "m", None if ahead_us is None else now_ms * 1000 + ahead_us)
        header = b'{"at_least":99999999999999999}' if foreign else encode_header(action)
        records.append(Record(0, 3 * number, now_ms * 1000, None, header, None))
    return records


_steps = st.lists(
    st.tuples(st.integers(-3, 3), st.none() | st.none() | st.integers(-5000, 9000), st.booleans()), max_size=30
)


@pytest.mark.req("J26", "RA6")
@given(steps=_steps, start=st.integers(0, 30))
def test_timestamps_come_out_the_same_wherever_one_starts(
    steps: list[tuple[int, int | None, bool]], start: int
) -> None:
    records = _records(steps)
    whole = derived(records, 0)
    assert derived(whole, 0) == whole
    before = 0
    for record, timed in zip(records, whole, strict=True):
        asked = at_least_of(record.header)
        assert timed == record._replace(timestamp=max(record.timestamp, before + 1, asked))
        before = timed.timestamp
    start = min(start, len(records))
    if start:
        assert derived(records[start:], whole[start - 1].timestamp) == whole[start:]
    if start < len(records):
        assert derived(records[start:], whole[start].timestamp - 1) == whole[start:]


@pytest.mark.req("J26")
def test_only_a_mark_of_ours_asks_for_a_time() -> None:
    assert at_least_of(encode_header(Mark("order|1", "m", 7))) == 7
    assert at_least_of(encode_header(Mark("order|1", "m"))) == 0
    assert at_least_of(None) == 0
    assert at_least_of(b'{"at_least":5}') == 0
    append = Append("order|1", (("Placed", ()),), "1" * 32, False, "2" * 32, headers={"at_least": "9"})
    assert at_least_of(encode_header(append)) == 0
    newer = encode_header(Mark("order|1", "m", 7)).replace(b'"v":1', b'"v":2')
    assert at_least_of(newer) == 0


@given(APPENDS)
@example(Append('order|"42\\', (("Placed", ()),), "0" * 32, False, "f" * 32))
@example(Append("order|42", (('Pla"ced', ()), ("Paid", ("t",))), "0" * 32, False, "f" * 32))
@example(Append("order|😀", (("Placed", ("t",)),), "0" * 32, False, "f" * 32))
def test_a_plain_append_is_written_as_any_other(action: Append) -> None:
    """The quick way and the long one give the same bytes."""
    plain = action._replace(id_given=False, first=None, expected=None, expire_after_us=KEEP_EXPIRY, headers=None)
    long = {"v": 1, "kind": "append", "key": plain.key, "events": plain.events, "id": plain.append_id}
    body = orjson.dumps({**long, "digest": plain.digest})
    assert encode_header(plain) == b'{"crc":"%08x",%s' % (zlib.crc32(body), body[1:])
