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
_BIGINT: Final = struct.Struct("!iq")


class Binary(bytes):
    """A parameter that is in its binary form already."""

    oid: ClassVar[int]
    """The type of the parameter."""
    element: ClassVar[int]
    __slots__ = ()


class Bigints(Binary):
    oid, element = 1016, 20
    __slots__ = ()


class Integers(Binary):
    oid, element = 1007, 23
    __slots__ = ()


class Texts(Binary):
    oid, element = 1009, 25
    __slots__ = ()


class Blobs(Binary):
    oid, element = 1001, 17
    __slots__ = ()


class Booleans(Binary):
    oid, element = 1000, 16
    __slots__ = ()


class Doubles(Binary):
    oid, element = 1022, 701
    __slots__ = ()


class Double(Binary):
    oid = 701
    __slots__ = ()


class Bigint(Binary):
    oid = 20
    __slots__ = ()


class Integer(Binary):
    oid = 23
    __slots__ = ()


class Text(Binary):
    oid = 25
    __slots__ = ()


class Blob(Binary):
    oid = 17
    __slots__ = ()


class Boolean(Binary):
    oid = 16
    __slots__ = ()


def bigints(values: Sequence[int | None]) -> Bigints:
    """bigint[]."""
    count = len(values)
    if None in values:
        parts = [_NULL if value is None else _BIGINT.pack(8, value) for value in values]
        return Bigints(_head(Bigints, count, nulls=True) + b"".join(parts))
    sized: list[int | None] = [8] * (2 * count)
    sized[1::2] = values
    return Bigints(_head(Bigints, count) + struct.pack("!" + "iq" * count, *sized))


def integers(values: Sequence[int | None]) -> Integers:
    """integer[]."""
    count = len(values)
    if None in values:
        return Integers(_of_bytes(Integers, [None if value is None else integer(value) for value in values]))
    sized: list[int | None] = [4] * (2 * count)
    sized[1::2] = values
    return Integers(_head(Integers, count) + struct.pack("!" + "ii" * count, *sized))


def booleans(values: Sequence[bool | None]) -> Booleans:
    """boolean[]."""
    return Booleans(_of_bytes(Booleans, [None if value is None else boolean(value) for value in values]))


def doubles(values: Sequence[float | None]) -> Doubles:
    """double precision[]."""
    return Doubles(_of_bytes(Doubles, [None if value is None else double(value) for value in values]))


def texts(values: Sequence[str | None]) -> Texts:
    """text[]."""
    encoded = [None if value is None else value.encode() for value in values]
    return Texts(_of_bytes(Texts, encoded))


def blobs(values: Sequence[bytes | None]) -> Blobs:
    """bytea[]."""
    return Blobs(_of_bytes(Blobs, values))


def bigint(value: int) -> Bigint:
    """bigint."""
    return Bigint(value.to_bytes(8, "big", signed=True))


def integer(value: int) -> Integer:
    """integer."""
    return Integer(value.to_bytes(4, "big", signed=True))


def text(value: str) -> Text:
    """text."""
    return Text(value.encode())


def blob(value: bytes) -> Blob:
    """bytea."""
    return Blob(value)


def double(value: float) -> Double:
    """double precision."""
    return Double(struct.pack("!d", value))


def boolean(value: bool) -> Boolean:
    """boolean."""
    return Boolean(b"\1" if value else b"\0")


def typed(value: object) -> Binary | None:
    """Return a number, a text, bytes or nothing as a parameter; what is one already stays so."""
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
    """Return how the values of a statement are sent, by their numbers from 0, where it says their types
    (`$1::bigint`)."""
    return {int(number) - 1: _TYPES[kind] for number, kind in _DECLARED.findall(statement) if kind in _TYPES}


def parameters(types: Dumps, values: Sequence[Any]) -> list[Binary | None]:
    """Return the values of a statement as it says their types, or as what they are."""
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


class _Passed(Dumper):
    """Hands a `Binary` on as it is."""

    format = Format.BINARY

    def dump(self, obj: Binary) -> Buffer | None:
        return obj


_DUMPERS: Final = {
    kind: type(f"_{kind.__name__}", (_Passed,), {"oid": kind.oid})
    for kind in (
        Bigints, Integers, Texts, Blobs, Booleans, Doubles, Bigint, Integer, Text, Blob, Boolean, Double,
    )
}  # fmt: skip


def register(context: AdaptContext) -> None:
    """Let a connection or a cursor take these as parameters."""
    for kind, dumper in _DUMPERS.items():
        context.adapters.register_dumper(kind, dumper)
