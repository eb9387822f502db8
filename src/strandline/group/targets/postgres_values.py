"""Converts values of users' queries to Python. A value that Python cannot hold stays in the server's text form."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.types.datetime import (
    DateLoader,
    IntervalLoader,
    TimeLoader,
    TimestampLoader,
    TimestamptzLoader,
    TimetzLoader,
)

from strandline.group.core.encoding import Opaque

JSON_DEPTH_MAX: Final = 64


def _kept(base: type[Any], name: str) -> type[Any]:
    """Return a loader that gives the text of what another one cannot load: infinite dates, years past 9999."""

    class Kept(base):  # type: ignore[misc]
        def load(self, data: Buffer) -> Any:
            try:
                return super().load(data)
            except (psycopg.DataError, ValueError, OverflowError):
                return Opaque(name, bytes(data).decode())

    return Kept


_LOADERS = {
    "date": _kept(DateLoader, "date"),
    "time": _kept(TimeLoader, "time"),
    "timetz": _kept(TimetzLoader, "timetz"),
    "timestamp": _kept(TimestampLoader, "timestamp"),
    "timestamptz": _kept(TimestamptzLoader, "timestamptz"),
    "interval": _kept(IntervalLoader, "interval"),
}


def _opaque(name: str) -> type[Loader]:
    """Return a loader that leaves all values as they are written."""

    class AsText(Loader):
        def load(self, data: Buffer) -> Any:
            return Opaque(name, bytes(data).decode())

    return AsText


def _json(name: str) -> type[Loader]:
    """Return a loader that leaves text what is too deep, or too long an integer, for Python and for the log."""

    class AsJson(Loader):
        def load(self, data: Buffer) -> Any:
            text = bytes(data).decode()
            try:
                found = json.loads(text, parse_float=Decimal)
            except (RecursionError, ValueError):
                return Opaque(name, text)
            return found if text.count("[") + text.count("{") < JSON_DEPTH_MAX or is_flat(found) else Opaque(name, text)

    return AsJson


_LOADERS |= {name: _json(name) for name in ("json", "jsonb")}
_RANGES = ["int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"]
_LOADERS |= {name: _opaque(name) for name in (*_RANGES, *(name.replace("range", "multirange") for name in _RANGES))}


def register(context: AdaptContext) -> None:
    """Register these loaders on a connection."""
    if context.adapters is None:
        return
    for name, loader in _LOADERS.items():
        context.adapters.register_loader(name, loader)


def is_flat(value: Any) -> bool:
    """Return whether a value has no more levels than the log accepts. Works without recursion."""
    level = [value]
    for _ in range(JSON_DEPTH_MAX):
        nested = [outer for outer in level if isinstance(outer, (dict, list))]
        level = [one for outer in nested for one in (outer.values() if isinstance(outer, dict) else outer)]
    return not level
