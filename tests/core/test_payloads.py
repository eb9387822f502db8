"""Payloads: what goes in comes out, and what cannot be kept exactly is refused with its place."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import struct
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.values.payloads import BYTES, DEPTH_MAX, JSON, decode_json, encode, encode_json, parse_json
from tests.repeats import examples

LARGEST, SMALLEST = 2**63 - 1, -(2**63)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCALARS = (
    st.none() | st.booleans() | st.integers(SMALLEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8)


def exactly(value: Any) -> Any:
    """A form in which 1, 1.0 and True, 0.0 and -0.0, and the orders of keys all differ."""
    if isinstance(value, dict):
        return "object", [(key, exactly(member)) for key, member in value.items()]
    if isinstance(value, (list, tuple)):
        return "array", [exactly(member) for member in value]
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    return type(value).__name__, value


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


# ---------------------------------------------------------------- kept


@pytest.mark.req("J7")
@settings(max_examples=examples(150), deadline=None)
@given(VALUES)
@example({"b": 1, "a": 1.0, "é😀": [-0.0, 0.0, 5e-324, 1.7976931348623157e308, 1e16, 1e15, 123456789012345680.0]})
@example([LARGEST, SMALLEST, 2**53 + 1, 0.1, 1e22, 1e23, -1e-7, True, False, None, "", "\x7f\u2028\ufeff"])
def test_json_comes_out_as_it_went_in(value: Any) -> None:
    form, data = encode(value)
    assert form == JSON
    assert exactly(decode_json(data)) == exactly(value)
    assert exactly(parse_json(data)) == exactly(value)
    assert exactly(json.loads(data)) == exactly(value)  # and any other reader of JSON sees the same
    assert encode(decode_json(data)) == (form, data)


@pytest.mark.req("J6", "J7")
@given(st.binary())
def test_bytes_are_kept(data: bytes) -> None:
    for given_ in (data, bytearray(data), memoryview(data)):
        form, kept = encode(given_)
        assert (form, kept, type(kept)) == (BYTES, data, bytes)


def test_kinds_of_bytes_are_bytes() -> None:
    class Blob(bytes): ...

    form, kept = encode(Blob(b"abc"))
    assert (form, kept, type(kept)) == (BYTES, b"abc", bytes)


@pytest.mark.req("J7")
def test_numbers_keep_their_kind_and_keys_their_order() -> None:
    assert encode({"z": 1, "a": 1.0, "m": -0.0})[1] == b'{"z":1,"a":1.0,"m":-0.0}'
    assert encode({"a": 1, "b": 2})[1] != encode({"b": 2, "a": 1})[1]


@pytest.mark.req("J7")
def test_tuples_become_lists() -> None:
    assert decode_json(encode(({"a": (1, (2,))}, ()))[1]) == [{"a": [1, [2]]}, []]


def test_kinds_of_dict_and_list_are_objects_and_arrays() -> None:
    class Names(list[str]): ...

    ordered = collections.OrderedDict(b=Names(["x"]), a=collections.Counter("yy"))
    assert encode(ordered)[1] == b'{"b":["x"],"a":{"y":2}}'


@pytest.mark.parametrize("value", [nested(DEPTH_MAX), nested(DEPTH_MAX - 1, {"a": 1}), nested(DEPTH_MAX - 1, {})])
def test_64_levels_are_kept(value: Any) -> None:
    data = encode(value)[1]
    assert decode_json(data) == value
    assert parse_json(data) == value


# ---------------------------------------------------------------- refused


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Word(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int = 1


Pair = collections.namedtuple("Pair", "a b")


def cyclic_list() -> list[Any]:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    return cycle


def cyclic_dict() -> dict[str, Any]:
    cycle: dict[str, Any] = {}
    cycle["again"] = {"deeper": cycle}
    return cycle


NO_JSON = "JSON values, or bytes as a whole payload"
DEEP = ("too_deep", "deeper than 64, or a cycle", "at most 64 levels")
NOT_FINITE = ("number_not_finite", "number is not finite", "finite numbers")
OUT_OF_RANGE = ("integer_out_of_range", "integer is out of range", "signed 64 bits")
SURROGATE = ("invalid_unicode", "text has a lone surrogate", "text that UTF-8 can carry")
NUL = ("nul_character", "text has U+0000", "text without U+0000")
KEY = ("key_not_text", "key is not text", "text keys")


def no_json(name: str) -> tuple[str, str, str]:
    return ("payload_type", f"{name} is no JSON type", NO_JSON)


# value, (code, what is wrong, what is allowed), the path, what is shown of it
BAD = {
    "nan": ({"price": math.nan}, NOT_FINITE, "$.price", "nan"),
    "infinity": ([1, math.inf], NOT_FINITE, "$[1]", "inf"),
    "minus infinity": (-math.inf, NOT_FINITE, "$", "-inf"),
    "too large": ({"a": [{"b": 2**63}]}, OUT_OF_RANGE, "$.a[0].b", "9223372036854775808"),
    "too small": (SMALLEST - 1, OUT_OF_RANGE, "$", "-9223372036854775809"),
    "much too large": ([10**300], OUT_OF_RANGE, "$[0]", "1" + "0" * 98 + "…"),
    "too large to be shown": ([10**5000], OUT_OF_RANGE, "$[0]", "<int>"),
    "nul": ({"a": "x\0"}, NUL, "$.a", r"x\x00"),
    "nul in a key": ({"x\0": 1}, NUL, r"$.x\x00", r"x\x00"),
    "surrogate": (["\udc80"], SURROGATE, "$[0]", r"\udc80"),
    "surrogate pair kept apart": (["\ud83d\ude00"], SURROGATE, "$[0]", r"\ud83d\ude00"),
    "surrogate in a key": ({"\ud800": 1}, SURROGATE, r"$.\ud800", r"\ud800"),
    "deep list": (nested(DEPTH_MAX + 1), DEEP, "$" + "[0]" * 64, "list"),
    "deep dict": (nested(DEPTH_MAX, {}), DEEP, "$" + "[0]" * 64, "dict"),
    "cyclic list": (cyclic_list(), DEEP, "$" + "[1]" * 64, "list"),
    "cyclic dict": (cyclic_dict(), DEEP, "$" + ".again.deeper" * 32, "dict"),
    "number as key": ({"a": {1: "x"}}, KEY, "$.a", "1"),
    "nothing as key": ({None: "x"}, KEY, "$", "None"),
    "truth as key": ([{True: "x"}], KEY, "$[0]", "True"),
    "kind of text as key": ({Word("a"): 1}, KEY, "$", "a"),
    "set": ({"a": {1}}, no_json("set"), "$.a", "{1}"),
    "decimal": ([decimal.Decimal("1.5")], no_json("Decimal"), "$[0]", "Decimal('1.5')"),
    "datetime": (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), no_json("datetime"), "$",
                 "datetime.datetime(2024, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)"),
    "date": ([datetime.date(2024, 1, 2)], no_json("date"), "$[0]", "datetime.date(2024, 1, 2)"),
    "uuid": ([uuid.UUID(int=1)], no_json("UUID"), "$[0]", "UUID('00000000-0000-0000-0000-000000000001')"),
    "bytes inside": ({"a": b"x"}, no_json("bytes"), "$.a", "b'x'"),
    "bytearray inside": ([bytearray(b"x")], no_json("bytearray"), "$[0]", "bytearray(b'x')"),
    "enumeration": ([Colour.RED], no_json("Colour"), "$[0]", "<Colour.RED: 'red'>"),
    "number from an enumeration": ([Size.SMALL], no_json("Size"), "$[0]", "<Size.SMALL: 1>"),
    "kind of text": ([Word("a")], no_json("Word"), "$[0]", "a"),
    "data class": ([Point()], no_json("Point"), "$[0]", "Point(x=1)"),
    "named tuple": ([Pair(1, 2)], no_json("Pair"), "$[0]", "Pair(a=1, b=2)"),
    "complex": (1j, no_json("complex"), "$", "1j"),
    "type": ([int], no_json("type"), "$[0]", "<class 'int'>"),
}  # fmt: skip


@pytest.mark.parametrize("row", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_kept_is_refused(row: tuple[Any, ...]) -> None:
    value, (code, wrong, allowed), path, got = row
    with pytest.raises(InvalidInput) as caught:
        encode(value, "events[3].payload")
    error = caught.value
    assert (error.code, error.field, error.path) == (code, "events[3].payload", path)
    shown = path if len(path) <= 100 else "$…" + path[-98:]
    assert str(error) == f"events[3].payload {shown}: {wrong}; allowed {allowed}; got {got}"
    assert error.hint == f"give {allowed}"
    assert error.applied == "no"
    with pytest.raises(InvalidInput) as caught:  # metadata and states are judged alike
        encode_json(value, "metadata")
    assert caught.value.code == code


def test_the_text_of_an_error_stays_short() -> None:
    long = "x" * 10_000
    value: Any = math.nan
    for _ in range(60):
        value = {long: value}
    for bad in (value, [long + "\0"], {long: {1}}, [{long}], [decimal.Decimal("1" * 10_000)]):
        with pytest.raises(InvalidInput) as caught:
            encode(bad)
        assert len(str(caught.value)) < 400


def test_a_value_that_cannot_be_shown_is_refused_all_the_same() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(InvalidInput) as caught:
        encode([Broken()])
    assert str(caught.value).endswith("got <Broken>")


def keepable(value: Any, depth: int = 0) -> bool:
    """Whether a value is JSON that can be kept exactly, by a second, naive look at it."""
    if isinstance(value, dict):
        return depth < DEPTH_MAX and all(
            type(key) is str and keepable(key) and keepable(member, depth + 1) for key, member in value.items()
        )
    if isinstance(value, (list, tuple)):
        return depth < DEPTH_MAX and all(keepable(member, depth + 1) for member in value)
    if type(value) is str:
        return "\0" not in value and not any(0xD800 <= ord(character) < 0xE000 for character in value)
    if type(value) is int:
        return SMALLEST <= value <= LARGEST
    return math.isfinite(value) if type(value) is float else value is None or type(value) is bool


@settings(max_examples=examples(150), deadline=None)
@given(
    st.recursive(
        SCALARS | st.floats() | st.integers() | st.text() | st.sets(st.integers()) | st.binary() | st.decimals(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
        max_leaves=8,
    )
)
def test_a_value_is_refused_only_if_it_cannot_be_kept(value: Any) -> None:
    if type(value) is bytes:
        assert encode(value) == (BYTES, value)
    elif keepable(value):
        form, data = encode(value)
        assert form == JSON
        assert exactly(decode_json(data)) == exactly(value)
    else:
        with pytest.raises(InvalidInput):
            encode(value)


# ---------------------------------------------------------------- text from outside

ONE = "; allowed one JSON value; got "
BAD_TEXT = {
    "key twice": ('{"a":1,"a":2}', "duplicate_key", "$: key a twice; allowed each key once; got a"),
    "second key twice": ('{"b":0,"a":1,"c":2,"a":3}', "duplicate_key",
                         "$: key a twice; allowed each key once; got a"),
    "key twice inside": ('[{"b":{"a":1,"c":0,"a":1}}]', "duplicate_key",
                         "$[0].b: key a twice; allowed each key once; got a"),
    "key twice, escaped": ('{"a":1,"\\u0061":2}', "duplicate_key", "$: key a twice; allowed each key once; got a"),
    "number over 400": ('{"n":' + "1" * 401 + "}", "number_too_long",
                        "$.n: 401 characters; allowed at most 400 characters; got " + "1" * 99 + "…"),
    "fraction over 400": ("[0." + "1" * 399 + "]", "number_too_long",
                          "$[0]: 401 characters; allowed at most 400 characters; got 0." + "1" * 97 + "…"),
    "number of 100,000": ("9" * 100_000, "number_too_long",
                          "$: 100000 characters; allowed at most 400 characters; got " + "9" * 99 + "…"),
    "1e999": ('{"a":[1e999]}', "number_out_of_range",
              "$.a[0]: number is out of range; allowed numbers that a double can carry; got 1e999"),
    "-1e999": ("-1e999", "number_out_of_range",
               "$: number is out of range; allowed numbers that a double can carry; got -1e999"),
    "NaN": ('{"price":NaN}', "number_not_finite", "$.price: number is not finite; allowed finite numbers; got NaN"),
    "Infinity": ("[Infinity]", "number_not_finite", "$[0]: number is not finite; allowed finite numbers; got Infinity"),
    "-Infinity": ("-Infinity", "number_not_finite", "$: number is not finite; allowed finite numbers; got -Infinity"),
    "2^63": ('{"n":9223372036854775808}', "integer_out_of_range",
             "$.n: integer is out of range; allowed signed 64 bits; got 9223372036854775808"),
    "-2^63-1": ("-9223372036854775809", "integer_out_of_range",
                "$: integer is out of range; allowed signed 64 bits; got -9223372036854775809"),
    "400 digits": ("1" * 400, "integer_out_of_range",
                   "$: integer is out of range; allowed signed 64 bits; got " + "1" * 99 + "…"),
    "nul": ('["\\u0000"]', "nul_character", r"$[0]: text has U+0000; allowed text without U+0000; got \x00"),
    "surrogate": ('{"\\ud800":1}', "invalid_unicode",
                  r"$.\ud800: text has a lone surrogate; allowed text that UTF-8 can carry; got \ud800"),
    "argument that is not UTF-8": ('["\udcff"]', "invalid_unicode",
                                   r"$[0]: text has a lone surrogate; allowed text that UTF-8 can carry; got \udcff"),
    "65 levels": ("[" * 65 + "]" * 65, "too_deep",
                  "$…0]" + "[0]" * 32 + ": deeper than 64, or a cycle; allowed at most 64 levels; got list"),
    "100,000 levels": ("[" * 100_000, "too_deep", "$: deeper than 64, or a cycle; allowed at most 64 levels; got str"),
    "100,000 objects": ('{"a":' * 100_000, "too_deep",
                        "$: deeper than 64, or a cycle; allowed at most 64 levels; got str"),
    "not UTF-8": (b'["\xff"]', "invalid_unicode", ": not UTF-8 at byte 2; allowed UTF-8; got b'[\"\\xff\"]'"),
    "cut UTF-8": ("é".encode()[:1], "invalid_unicode", r": not UTF-8 at byte 0; allowed UTF-8; got b'\xc3'"),
    "nothing": ("", "invalid_json", ": Expecting value: line 1 column 1 (char 0); allowed one JSON value; got ''"),
    "only space": (" ", "invalid_json", ": Expecting value: line 1 column 2 (char 1); allowed one JSON value; got ' '"),
    "cut": ('{"a":', "invalid_json", ': Expecting value: line 1 column 6 (char 5); allowed one JSON value; got {"a":'),
    "two values": ("1 2", "invalid_json", ": Extra data: line 1 column 3 (char 2); allowed one JSON value; got 1 2"),
    "quotes": ("{'a':1}", "invalid_json",
               ": Expecting property name enclosed in double quotes: line 1 column 2 (char 1)" + ONE + "{'a':1}"),
    "leading zero": ("01", "invalid_json", ": Extra data: line 1 column 2 (char 1); allowed one JSON value; got '01'"),
    "control character": ('"\n"', "invalid_json",
                          ": Invalid control character at: line 1 column 2 (char 1)" + ONE + r'"\n"'),
    "byte order mark": (b"\xef\xbb\xbf1", "invalid_json",
                        ": Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)" + ONE + r"\ufeff1"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "code", "message"), BAD_TEXT.values(), ids=BAD_TEXT.keys())
def test_bad_text_is_refused(text: str | bytes, code: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json(text, "--data")
    error = caught.value
    assert error.code == code
    assert str(error) == ("--data" if message.startswith(":") else "--data ") + message
    assert error.field == "--data"
    assert error.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", LARGEST),
        ("-9223372036854775808", SMALLEST),
        ("1.0", 1.0),
        ("1", 1),
        ("-0.0", -0.0),
        ("1E3", 1000.0),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("0." + "1" * 398, float("0." + "1" * 398)),
        ("[" * 64 + "]" * 64, nested(63, [])),
        ('"\\ud83d\\ude00"', "😀"),
        (' {"b" : 1, "a" : [ ] } \n', {"b": 1, "a": []}),
    ],
)
def test_good_text_is_read_exactly(text: str, value: Any) -> None:
    assert exactly(parse_json(text)) == exactly(value)
    assert exactly(parse_json(text.encode())) == exactly(value)


def read_naively(text: str | bytes) -> Any:
    """What the standard library makes of a text that is one JSON value, and can be kept; else `ValueError`."""

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(members)) < len(members):
            raise ValueError("a key twice")
        return dict(members)

    def number(made: Callable[[str], Any], written: str) -> Any:
        if len(written) > 400:
            raise ValueError("a long number")
        return made(written)

    def constant(written: str) -> Any:
        raise ValueError(written)

    value = json.loads(
        text.decode() if isinstance(text, bytes) else text,
        object_pairs_hook=pairs,
        parse_int=partial(number, int),
        parse_float=partial(number, float),
        parse_constant=constant,
    )
    if not keepable(value):
        raise ValueError("cannot be kept")
    return value


@settings(max_examples=examples(150), deadline=None)
@given(
    st.text()
    | st.binary()
    | st.text(st.sampled_from('{}[]",:0123456789.eE+-tfnaul\\ \ud800\0é'))
    | (VALUES | st.floats() | st.integers() | st.text()).map(json.dumps)
)
def test_a_text_is_refused_only_if_it_is_no_json_that_can_be_kept(text: str | bytes) -> None:
    try:
        wanted = read_naively(text)
    except ValueError:
        with pytest.raises(InvalidInput):
            parse_json(text)
    else:
        assert exactly(parse_json(text)) == exactly(wanted)
        assert exactly(decode_json(encode_json(wanted, "payload"))) == exactly(wanted)
