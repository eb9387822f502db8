"""Values of users' queries as Python has them; what it cannot hold stays in the server's own text form."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.types.datetime import DateLoader, IntervalLoader, TimeLoader, TimestampLoader, TimestamptzLoader
from psycopg.types.json import set_json_loads

from strandline.group.core.encoding import Opaque


def _kept(base: type[Any], name: str) -> type[Any]:
    """A loader that gives the text of what another one cannot load: infinite dates, years past 9999."""

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
    "timestamp": _kept(TimestampLoader, "timestamp"),
    "timestamptz": _kept(TimestamptzLoader, "timestamptz"),
    "interval": _kept(IntervalLoader, "interval"),
}


def _opaque(name: str) -> type[Loader]:
    """A loader that leaves all values as they are written."""

    class AsText(Loader):
        def load(self, data: Buffer) -> Any:
            return Opaque(name, bytes(data).decode())

    return AsText


_RANGES = ["int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"]
_LOADERS |= {name: _opaque(name) for name in (*_RANGES, *(name.replace("range", "multirange") for name in _RANGES))}


def register(context: AdaptContext) -> None:
    """Let a connection load values so."""
    if context.adapters is None:
        return
    for name, loader in _LOADERS.items():
        context.adapters.register_loader(name, loader)
    set_json_loads(_loads, context)


def _loads(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)
