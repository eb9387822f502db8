"""Payloads: a JSON value or bytes, encoded once at append and never reinterpreted by a back-end.

What goes in comes out: key order, 1 and 1.0, -0.0, four-byte characters. What cannot be kept exactly is refused with
its path.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import orjson

from strandline.errors import InvalidInput, invalid, shown

BYTES: Final = 0
JSON: Final = 1
DEPTH_MAX: Final = 64
NUMBER_CHARACTERS_MAX: Final = 400
PATH_CHARACTERS_MAX: Final = 100
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class _Bad(Exception):
    """A value that cannot be kept; the path grows while the stack unwinds.

    The parser of JSON text puts it in the value's place, so that the check finds it there and knows the path.
    """

    def __init__(self, code: str, wrong: str, allowed: str, got: object) -> None:
        super().__init__(code)
        self.code, self.wrong, self.allowed, self.got = code, wrong, allowed, got
        self.path: list[str] = []

    def error(self, field: str) -> InvalidInput:
        path = "$" + "".join(reversed(self.path))
        end = path if len(path) <= PATH_CHARACTERS_MAX else f"$…{path[2 - PATH_CHARACTERS_MAX :]}"
        message = f"{field} {end}: {self.wrong}; allowed {self.allowed}; got {shown(self.got)}"
        return InvalidInput(message, code=self.code, hint=f"give {self.allowed}", field=field, path=path)


def encode(payload: object, field: str = "payload") -> tuple[int, bytes]:
    """Return the form and the bytes of a payload; `InvalidInput` with its path if it cannot be kept exactly."""
    if type(payload) is bytes:
        return BYTES, payload
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return BYTES, bytes(payload)
    return JSON, encode_json(payload, field)


def encode_json(value: object, field: str) -> bytes:
    """Return JSON text of a value, as UTF-8."""
    try:
        _check(value, 0)
        return orjson.dumps(value)
    except _Bad as bad:
        raise bad.error(field) from None
    except orjson.JSONEncodeError:
        raise _unencodable(value).error(field) from None


def decode_json(data: bytes) -> Any:
    """Return the value that `encode_json` was given (tuples have become lists)."""
    return orjson.loads(data)


def parse_json(text: str | bytes, field: str = "input") -> Any:
    """Return JSON text from outside, as strict as a payload: no key twice, no number that would change."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = json.loads(
            text, object_pairs_hook=_pairs, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_constant
        )
        _check(value, 0)
    except _Bad as bad:
        raise bad.error(field) from None
    except UnicodeDecodeError as error:
        raise invalid("invalid_unicode", field, f"not UTF-8 at byte {error.start}", allowed="UTF-8", got=text) from None
    except RecursionError:
        raise _too_deep(text).error(field) from None
    except ValueError as error:
        raise invalid("invalid_json", field, str(error), allowed="one JSON value", got=text) from None
    return value


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if "\0" in value:
            raise _Bad("nul_character", "text has U+0000", "text without U+0000", value)
        if not value.isascii():
            _check_unicode(value)
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise _Bad("integer_out_of_range", "integer is out of range", "signed 64 bits", value)
    elif kind is float:
        if not math.isfinite(value):
            raise _Bad("number_not_finite", "number is not finite", "finite numbers", value)
    elif kind is bool or value is None:
        return
    elif isinstance(value, dict):
        _check_object(value, depth + 1)
    elif isinstance(value, list) or kind is tuple:
        _check_array(value, depth + 1)
    elif kind is _Bad:
        raise value
    else:
        raise _Bad(
            "payload_type", f"{kind.__name__} is no JSON type", "JSON values, or bytes as a whole payload", value
        )


def _check_object(value: dict[Any, Any], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise _too_deep(value)
    for key, member in value.items():
        if type(key) is not str:
            raise _Bad("key_not_text", "key is not text", "text keys", key)
        try:
            _check(key, depth)
            _check(member, depth)
        except _Bad as bad:
            bad.path.append(f".{shown(key, 40)}")
            raise


def _check_array(value: list[Any] | tuple[Any, ...], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise _too_deep(value)
    for index, member in enumerate(value):
        try:
            _check(member, depth)
        except _Bad as bad:
            bad.path.append(f"[{index}]")
            raise


def _check_unicode(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Bad("invalid_unicode", "text has a lone surrogate", "text that UTF-8 can carry", value) from None


def _too_deep(value: object) -> _Bad:
    return _Bad("too_deep", f"deeper than {DEPTH_MAX}, or a cycle", f"at most {DEPTH_MAX} levels", type(value).__name__)


def _unencodable(value: object) -> _Bad:
    return _Bad("payload_type", "cannot be written as JSON", "JSON values, or bytes as a whole payload", value)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Bad:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return _Bad("duplicate_key", f"key {shown(twice, 40)} twice", "each key once", twice)
    return found


def _parse_int(text: str) -> int | _Bad:
    return int(text) if len(text) <= NUMBER_CHARACTERS_MAX else _too_long(text)


def _parse_float(text: str) -> float | _Bad:
    if len(text) > NUMBER_CHARACTERS_MAX:
        return _too_long(text)
    value = float(text)
    if math.isinf(value):
        return _Bad("number_out_of_range", "number is out of range", "numbers that a double can carry", text)
    return value


def _too_long(text: str) -> _Bad:
    return _Bad("number_too_long", f"{len(text)} characters", f"at most {NUMBER_CHARACTERS_MAX} characters", text)


def _constant(text: str) -> _Bad:
    return _Bad("number_not_finite", "number is not finite", "finite numbers", text)
