"""Values in PostgreSQL's binary form: parameters, and arrays for statements that take many rows.

Arrays are made with one call of `struct` where possible: a batch has tens of thousands of values, and psycopg's own
dumpers, which look at each of them, take five times as long.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_ARRAY: Final = struct.Struct("!iiIii")
_LENGTH: Final = struct.Struct("!i")
_NULL: Final = _LENGTH.pack(-1)
_SIZED_BIGINT: Final = struct.Struct("!iq")


class Binary(bytes):
    """A parameter that is in its binary form already."""

    oid: ClassVar[int]
    """The type of the parameter."""
    element: ClassVar[int]
    __slots__ = ()


class _Passed(Dumper):
    """Hands a `Binary` on as it is."""

    format = Format.BINARY

    def dump(self, obj: Binary) -> Buffer | None:
        return obj


_DUMPERS: Final[dict[type[Binary], type[_Passed]]] = {}
"""psycopg chooses a dumper, and with it the type of a parameter, by the class of a value: so each type has a class."""


def _kind(oid: int, element: int = 0) -> type[Binary]:
    kind = type("BinaryOfOneType", (Binary,), {"oid": oid, "element": element, "__slots__": ()})
    _DUMPERS[kind] = type("DumperOfOneType", (_Passed,), {"oid": oid})
    return kind


_BOOLEAN, _BOOLEANS = _kind(16), _kind(1000, 16)
_BYTEA, _BYTEAS = _kind(17), _kind(1001, 17)
_BIGINT, _BIGINTS = _kind(20), _kind(1016, 20)
_INTEGER, _INTEGERS = _kind(23), _kind(1007, 23)
_TEXT, _TEXTS = _kind(25), _kind(1009, 25)
_DOUBLE, _DOUBLES = _kind(701), _kind(1022, 701)


def bigints(values: Sequence[int | None]) -> Binary:
    """Return a parameter of type bigint[]."""
    count = len(values)
    if None in values:
        parts = [_NULL if value is None else _SIZED_BIGINT.pack(8, value) for value in values]
        return _BIGINTS(_head(_BIGINTS, count, nulls=True) + b"".join(parts))
    sized: list[int | None] = [8] * (2 * count)
    sized[1::2] = values
    return _BIGINTS(_head(_BIGINTS, count) + struct.pack("!" + "iq" * count, *sized))


def integers(values: Sequence[int | None]) -> Binary:
    """Return a parameter of type integer[]."""
    count = len(values)
    if None in values:
        return _INTEGERS(_of_bytes(_INTEGERS, [None if value is None else integer(value) for value in values]))
    sized: list[int | None] = [4] * (2 * count)
    sized[1::2] = values
    return _INTEGERS(_head(_INTEGERS, count) + struct.pack("!" + "ii" * count, *sized))


def booleans(values: Sequence[bool | None]) -> Binary:
    """Return a parameter of type boolean[]."""
    return _BOOLEANS(_of_bytes(_BOOLEANS, [None if value is None else boolean(value) for value in values]))


def doubles(values: Sequence[float | None]) -> Binary:
    """Return a parameter of type double precision[]."""
    return _DOUBLES(_of_bytes(_DOUBLES, [None if value is None else double(value) for value in values]))


def texts(values: Sequence[str | None]) -> Binary:
    """Return a parameter of type text[]."""
    encoded = [None if value is None else value.encode() for value in values]
    return _TEXTS(_of_bytes(_TEXTS, encoded))


def blobs(values: Sequence[bytes | None]) -> Binary:
    """Return a parameter of type bytea[]."""
    return _BYTEAS(_of_bytes(_BYTEAS, values))


def bigint(value: int) -> Binary:
    """Return a parameter of type bigint."""
    return _BIGINT(value.to_bytes(8, "big", signed=True))


def integer(value: int) -> Binary:
    """Return a parameter of type integer."""
    return _INTEGER(value.to_bytes(4, "big", signed=True))


def text(value: str) -> Binary:
    """Return a parameter of type text."""
    return _TEXT(value.encode())


def blob(value: bytes) -> Binary:
    """Return a parameter of type bytea."""
    return _BYTEA(value)


def double(value: float) -> Binary:
    """Return a parameter of type double precision."""
    return _DOUBLE(struct.pack("!d", value))


def boolean(value: bool) -> Binary:
    """Return a parameter of type boolean."""
    return _BOOLEAN(b"\1" if value else b"\0")


def typed(value: object) -> Binary | None:
    """Return a number, a text, bytes or None as a parameter. A value that is a parameter already is returned as it
    is."""
    if value is None or isinstance(value, Binary):
        return value
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return bigint(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return blob(value)
    if isinstance(value, float):
        return double(value)
    raise TypeError(type(value))


_Dump = Callable[[Any], Binary]
_TYPES: Final[Mapping[str, _Dump]] = {
    "bigint": bigint, "integer": integer, "text": text, "bytea": blob, "boolean": boolean, "double precision": double,
    "jsonb": text, "bigint[]": bigints, "integer[]": integers, "text[]": texts, "bytea[]": blobs,
    "boolean[]": booleans, "double precision[]": doubles,
}  # fmt: skip
_DECLARED: Final = re.compile(r"\$(\d+)::([a-z]+(?: precision)?(?:\[\])?)")


Dumps = Mapping[int, _Dump]


def declared(statement: str) -> Dumps:
    """Return how a statement's values are sent, by index from 0, for those whose type the statement says
    (`$1::bigint`)."""
    return {int(number) - 1: _TYPES[kind] for number, kind in _DECLARED.findall(statement) if kind in _TYPES}


def parameters(types: Dumps, values: Sequence[Any]) -> list[Binary | None]:
    """Return the values of a statement as parameters of the types that it says, or of their Python types."""
    return [
        value if value is None or isinstance(value, Binary) else types.get(number, typed)(value)
        for number, value in enumerate(values)
    ]


def _of_bytes(kind: type[Binary], values: Sequence[bytes | None]) -> bytes:
    nulls = None in values
    given = [value or b"" for value in values] if nulls else cast(Sequence[bytes], values)
    parts = [b""] * (2 * len(values) + 1)
    parts[0] = _head(kind, len(values), nulls=nulls)
    parts[1::2] = map(_LENGTH.pack, map(len, given))
    parts[2::2] = given
    if nulls:
        parts[1::2] = [_NULL if value is None else size for value, size in zip(values, parts[1::2], strict=True)]
    return b"".join(parts)


def _head(kind: type[Binary], count: int, *, nulls: bool = False) -> bytes:
    if not count:
        return struct.pack("!iiI", 0, 0, kind.element)
    return _ARRAY.pack(1, nulls, kind.element, count, 1)


def register(context: AdaptContext) -> None:
    """Make a connection or a cursor accept `Binary` parameters."""
    for kind, dumper in _DUMPERS.items():
        context.adapters.register_dumper(kind, dumper)
