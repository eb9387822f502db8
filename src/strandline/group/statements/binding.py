"""Binds a statement to its values: text for the driver, and the value for each place in it.

Values are never text. `IN :list` becomes the dialect's form for a list of any length, including an empty one. Every
other parameter is one place.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import orjson

from strandline.group.core.encoding import Opaque
from strandline.group.points import reached
from strandline.group.statements.api import Dialect, Parameter, Template

LISTS: Final = (list, tuple, set, frozenset)


class Bound(NamedTuple):
    text: str
    values: tuple[Any, ...]


class Unbound(Exception):
    """A value is missing, or is not what its place takes: reason `binding`."""


def bound(template: Template, values: Mapping[str, Any], dialect: Dialect, rows_max: int, suffix: str = "") -> Bound:
    """Return a template with its values; `Unbound` says what is wrong."""
    parts: list[str] = []
    given: list[Any] = []
    for part in template.parts:
        if isinstance(part, str):
            parts.append(part)
            continue
        if part.name not in values:
            raise Unbound(f":{part.name} has no value")
        value = values[part.name]
        if isinstance(value, LISTS) and not part.many and (part.compared or dialect == "sqlite"):
            raise Unbound(f":{part.name} is a list, and stands where one value is wanted: write IN :{part.name}")
        try:
            if part.many:
                parts.append(_list(part, value, given, dialect, rows_max))
            else:
                given.append(plain(value, dialect))
                parts.append(place(len(given), dialect))
        except (TypeError, ValueError) as error:  # half a character; a key that JSON does not have
            raise Unbound(f":{part.name} cannot be sent: {error}") from None
    return Bound("".join(parts) + suffix, tuple(given))


def place(number: int, dialect: Dialect) -> str:
    """Return the text for which the driver puts the value of this number, from 1."""
    return f"${number}" if dialect == "postgres" else f"?{number}" if dialect == "sqlite" else "?"


def _list(part: Parameter, value: Any, given: list[Any], dialect: Dialect, rows_max: int) -> str:
    if not isinstance(value, LISTS):
        raise Unbound(f":{part.name} is one value, and stands where a list is wanted")
    items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)
    if any(item is None for item in items):
        raise Unbound(f":{part.name} has a null in it, which no row is equal to")
    if len(items) > rows_max:
        raise Unbound(f":{part.name} has {len(items):,} values, over rows_max, {rows_max:,}")
    if not items and part.many == "not in":
        raise Unbound(f":{part.name} is empty, so NOT IN would take every row")
    if not items:
        reached("group.list_is_empty")
    if dialect == "postgres":
        given.append(_encodable(array_text(items)))
        return f"= ANY(${len(given)})" if part.many == "in" else f"<> ALL(${len(given)})"
    words = part.many.upper()
    if dialect == "cassandra":
        given.append([plain(item, dialect) for item in items])
        return f"{words} ?"
    if dialect == "sqlite" and items and all(_is_json(item) for item in items):
        given.append(orjson.dumps(items).decode())
        return f"{words} (SELECT value FROM json_each(?{len(given)}))"  # noqa: S608 (a number)
    places = []
    for item in items:
        given.append(plain(item, dialect))
        places.append(place(len(given), dialect))
    return f"{words} ({', '.join(places)})"


def _is_json(item: Any) -> bool:
    """Return whether SQLite's JSON gives a value back as it was."""
    return (type(item) is int and -(2**63) <= item < 2**63) or (type(item) is str and "\0" not in item)


def plain(value: Any, dialect: Dialect) -> Any:
    """Return a value as the driver takes it."""
    if isinstance(value, Opaque):
        return value if dialect == "cassandra" else value.text
    if isinstance(value, str):
        return _encodable(value)
    if dialect == "sqlite":
        return _for_sqlite(value)
    if dialect == "postgres" and isinstance(value, dict):
        return _json(value)
    return sorted(value, key=repr) if dialect == "postgres" and isinstance(value, (set, frozenset)) else value


def _encodable(text: str) -> str:
    """Return a text that can be encoded; `ValueError` for any other."""
    text.encode()
    return text


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _for_sqlite(value: Any) -> Any:
    """Return a value as an integer, real, text or blob: SQLite has no others, and its columns convert these."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Unbound(f"{value} does not fit into 64 bits")
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat(" ") if isinstance(value, dt.datetime) else value.isoformat()
    if isinstance(value, Mapping):
        return _json(value)
    return str(value)


def array_text(items: Sequence[Any]) -> str:
    """Return an array as PostgreSQL reads it from text: it takes the type of the column that it is compared with."""
    return "{" + ",".join(_element(item) for item in items) + "}"


def _element(item: Any) -> str:
    if isinstance(item, bool):
        return "t" if item else "f"
    if isinstance(item, (int, float, Decimal)):
        return str(item)
    if isinstance(item, (bytes, bytearray, memoryview)):
        return '"\\\\x' + bytes(item).hex() + '"'
    text = item.text if isinstance(item, Opaque) else str(item)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
