"""Values as JSON and back, exactly: what JSON lacks is an object with one `$` that names its type.

    b"\\x00"  ->  {"$": "bytes", "v": "AA=="}          Decimal("1.10")  ->  {"$": "decimal", "v": "1.10"}

A value that Python cannot hold stays in its target's text form, with its type there (`Opaque`).
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from strandline.errors import invalid


class Opaque(NamedTuple):
    """A value in its target's own text form."""

    type: str
    text: str


_INT_MAX: Final = 2**63 - 1
_PLAIN: Final = (bool, type(None))
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DEEP: Final = 32
"""Values below this many levels are written as text, because the log refuses values that are too deep."""
DEPTH_MAX: Final = 128


def encoded(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON that the log takes. `InvalidInput` for what no target can hold, `too_deep` for a cycle."""
    if isinstance(value, str):
        return value if _is_plain(value) else {"$": "text", "v": value.encode("utf-8", "surrogatepass").hex()}
    if isinstance(value, _PLAIN):
        return value
    kind = type(value)
    if kind is int and -_INT_MAX - 1 <= value <= _INT_MAX:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": str(value)}
    if kind is Opaque:
        return {"$": "opaque", "t": value.type, "v": value.text}
    if isinstance(value, (list, tuple, Mapping)):
        if depth == DEPTH_MAX:
            raise invalid(
                "too_deep",
                "value",
                f"deeper than {DEPTH_MAX}, or a cycle",
                allowed=f"{DEPTH_MAX} levels",
                got=kind.__name__,
            )
        made = _members(value, depth + 1)
        return made if depth == 0 or depth % _DEEP else {"$": "deep", "v": orjson.dumps(made).decode()}
    if isinstance(value, (set, frozenset)):
        return {"$": "set", "v": sorted((encoded(one, depth + 1) for one in value), key=repr)}
    try:
        for name, known, write, _ in _TYPES:
            if isinstance(value, known):
                return {"$": name, "v": write(value)}
        got: Any = value
    except ValueError:  # an integer of thousands of digits, which Python does not write down
        got = f"{value.bit_length()} bits"
    raise invalid(
        "payload_type", "value", f"such a {kind.__name__} cannot be kept", allowed="values that databases hold", got=got
    )


def _members(value: list[Any] | tuple[Any, ...] | Mapping[Any, Any], depth: int) -> Any:
    if not isinstance(value, Mapping):
        return [encoded(one, depth) for one in value]
    if all(type(key) is str and _is_plain(key) for key in value) and "$" not in value:
        return {key: encoded(one, depth) for key, one in value.items()}
    return {"$": "map", "v": [[encoded(key, depth), encoded(one, depth)] for key, one in value.items()]}


def _is_plain(text: str) -> bool:
    """Return whether the log takes a text as it is: it has no U+0000 and no half of a surrogate pair."""
    if "\0" in text:
        return False
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def readable(text: str) -> str:
    """Return a text for people in a form that the log takes."""
    return text if _is_plain(text) else text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def hashable(value: Any) -> Any:
    """Return a value as a member of a set or a key of a map: lists are tuples there, sets are frozen."""
    if isinstance(value, (list, tuple)):
        return tuple(map(hashable, value))
    return frozenset(value) if isinstance(value, set) else value


def decoded(made: Any) -> Any:
    """Return the value that `encoded` was given. Tuples have become lists, but for those in sets and keys."""
    if isinstance(made, list):
        return [decoded(one) for one in made]
    if not isinstance(made, dict):
        return made
    name = made.get("$")
    if name is None:
        return {key: decoded(one) for key, one in made.items()}
    if name == "opaque":
        return Opaque(made["t"], made["v"])
    read = _READ.get(name)
    if read is None:
        raise invalid("payload_type", "value", "unknown type", allowed=" ".join(_READ), got=name)
    return read(made["v"])


# Subclasses stand first: a datetime is a date, an interface is an address.
_TYPES: Final[tuple[tuple[str, Any, Callable[[Any], Any], Callable[[Any], Any]], ...]] = (
    ("int", int, lambda value: str(int(value)), int),
    ("float", float, lambda value: str(float(value)), float),
    (
        "bytes",
        (bytes, bytearray, memoryview),
        lambda value: base64.b64encode(bytes(value)).decode(),
        partial(base64.b64decode, validate=True),
    ),
    ("decimal", Decimal, str, Decimal),
    ("datetime", dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    ("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    ("time", dt.time, dt.time.isoformat, dt.time.fromisoformat),
    ("interval", dt.timedelta, lambda value: value // _MICROSECOND, lambda made: made * _MICROSECOND),
    ("uuid", UUID, str, UUID),
    ("interface", (ipaddress.IPv4Interface, ipaddress.IPv6Interface), str, ipaddress.ip_interface),
    ("address", (ipaddress.IPv4Address, ipaddress.IPv6Address), str, ipaddress.ip_address),
    ("network", (ipaddress.IPv4Network, ipaddress.IPv6Network), str, ipaddress.ip_network),
)
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "text": lambda made: bytes.fromhex(made).decode("utf-8", "surrogatepass"),
    "deep": lambda made: decoded(orjson.loads(made)),
    "map": lambda made: {hashable(decoded(key)): decoded(one) for key, one in made},
    "set": lambda made: {hashable(decoded(one)) for one in made},
    **{name: read for name, _, _, read in _TYPES},
}
