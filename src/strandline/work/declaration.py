"""The declaration of a work journal: its name, the columns of its keys and data, and its settings.

Declared columns exist in the declaration alone. A key and its data are stored as one JSON text each, columns by name in
their alphabetical order, so that equal keys are equal bytes and a person can read them.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from strandline.errors import InvalidInput, invalid, shown, unusable
from strandline.settings import MIB, SECONDS_MAX, CheckedSettings, one_of, within
from strandline.sql.api import TEMPLATE
from strandline.values import payloads
from strandline.work.dates import date_us

TYPES: Final = ("text", "int", "float", "bool", "bytes", "timestamp", "json")
KEY_TYPES: Final = ("text", "int", "bool", "bytes", "timestamp")
SHARED: Final = "shared"
KEY_BYTES_MAX: Final = 512
COLUMNS_OF_THE_SYSTEM: Final = (
    "insertion_date expiration_date priority process_date status start_date timeout_counter "
    "id revised_date retry_date claimed_date fence owner version"
).split()
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TABLE_SETTINGS: Final = "table_"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings(CheckedSettings):
    """One value per setting of a work journal. Durations are seconds, sizes are bytes."""

    merge: str = one_of("key", "key", "none")
    merge_process_date: str = one_of("largest", "largest", "smallest")
    max_delay_s: float | None = within(None, 0, SECONDS_MAX)
    default_priority: int = within(20, 0, 255)
    slow_from: int = within(200, 1, 256)
    slow_limit: int = within(1, 1, 1000)
    slow_pause_s: float = within(1.0, 0, 3600)
    lease_s: float = within(30.0, 0.1, 2_592_000)
    max_timeouts: int = within(3, 0, 255)
    retry_delay_s: float = within(1.0, 0, 86_400)
    retry_delay_max_s: float = within(3600.0, 0, 86_400)
    data_bytes_max: int = within(256 * 1024, 1, 16 * MIB)
    table_period: str = one_of("hour", "hour", "day", "month", "none")
    table_rows_max: int = within(10_000, 1, 2**62)
    table_bytes_max: int = within(256 * MIB, 65_536, 2**62)
    table_empty: str = one_of("truncate", "delete", "reset", "truncate")
    tables: str | None = None
    wake: str = one_of("notify", "notify", "poll")
    poll_s: float = within(5.0, 0.05, 3600)
    standbys_min: int = within(0, 0, 9)
    dead_keep_s: float | None = within(None, 1, SECONDS_MAX)
    ids_keep_s: float = within(7 * 86_400.0, 1, SECONDS_MAX)


class Columns(NamedTuple):
    """The declared columns of one version: by name, their types."""

    key: Mapping[str, str]
    data: Mapping[str, str]

    def text(self) -> str:
        """Return the columns as they are stored. Equal columns are equal texts."""
        return orjson.dumps({"data": self.data, "key": self.key}, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def of(cls, text: str) -> Columns:
        """Return the columns that `text` wrote."""
        found = orjson.loads(text)
        return cls(found["key"], found["data"])


class WorkDeclaration:
    """A work journal, declared: `WorkDeclaration("thumbs", key={"page": "text"}, data={"url": "text"}, lease_s=30)`."""

    def __init__(self, name: str, *, key: Mapping[str, str], data: Mapping[str, str], **settings: Any) -> None:
        self.name = journal_name(name)
        self.columns = Columns(_columns("key", key), _columns("data", data))
        if "tables" in settings and settings["tables"] not in (None, name, SHARED):
            allowed = f"{name} or {SHARED}"
            raise invalid("setting", "tables", "unknown value", allowed=allowed, got=settings["tables"])
        given = {known: value for known, value in settings.items() if known != "tables"}
        self.settings = replace(WorkSettings.of(given), tables=settings.get("tables") or name)
        self.given = frozenset(settings)
        """The names of the settings that were given. Only these change in a set of tables that is shared."""

    @classmethod
    def load(cls, path: str | Path) -> WorkDeclaration:
        """Read a declaration from a TOML file: `name`, tables `key` and `data`, and any setting."""
        import tomllib

        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise unusable(path, error.strerror) from None
        except ValueError as error:
            raise invalid("setting", "declaration", str(error), allowed="a TOML file", got=str(path)) from None
        missing = [part for part in ("name", "key", "data") if part not in found]
        if missing:
            allowed = "name, [key] and [data]"
            raise invalid("setting", "declaration", f"no {missing[0]}", allowed=allowed, got=str(path))
        return cls(found.pop("name"), key=found.pop("key"), data=found.pop("data"), **found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkDeclaration) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash((self.name, self.columns.text()))

    def __repr__(self) -> str:
        return f"<WorkDeclaration {self.name}>"

    def _all(self) -> tuple[Any, ...]:
        return self.name, self.columns, self.settings


def settings_text(settings: WorkSettings) -> str:
    """Return settings as they are stored."""
    return orjson.dumps(asdict(settings), option=orjson.OPT_SORT_KEYS).decode()


def settings_of(text: str) -> WorkSettings:
    """Return the settings that `settings_text` wrote. Settings that only a newer program knows are ignored."""
    known = {field.name for field in fields(WorkSettings)}
    return WorkSettings(**{name: value for name, value in orjson.loads(text).items() if name in known})


def is_table_setting(name: str) -> bool:
    """Return whether a setting belongs to the set of tables instead of the journal."""
    return name.startswith(_TABLE_SETTINGS)


def journal_name(name: object) -> str:
    """Return a name that a work journal may have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (SHARED, TEMPLATE):
        allowed = f"a name like order_mails: [a-z][a-z0-9_]{{0,39}}, not {SHARED} or {TEMPLATE}"
        raise invalid("setting", "journal", "not a name", allowed=allowed, got=name)
    return name


def _columns(part: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping) or not given:
        raise invalid("column", part, "no column", allowed="one column or more, by name", got=given)
    found = {}
    for name, kind in sorted(given.items(), key=lambda item: str(item[0])):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise invalid("column", part, "not a name", allowed="[a-z][a-z0-9_]{0,39}", got=name)
        if name in COLUMNS_OF_THE_SYSTEM:
            raise reserved(name, given)
        known, may_be_none = (kind.removesuffix("?"), kind.endswith("?")) if isinstance(kind, str) else ("", False)
        types = KEY_TYPES if part == "key" else TYPES
        if known not in types or (may_be_none and part == "key"):
            allowed = " ".join(types) + ("" if part == "key" else ", with ? where it may be None")
            raise invalid("column_type", f"{part} {name}", "unknown type", allowed=allowed, got=kind)
        found[name] = kind
    return found


def reserved(name: str, declared: Mapping[str, str]) -> InvalidInput:
    """Return the error for a declared column whose name the journal uses for a column of its own."""
    allowed = f"columns of your own: {' '.join(sorted(declared))}"
    return invalid("column_reserved", name, "is set by the work journal", allowed=allowed, got=name)


# ---------------------------------------------------------------- values


class Codec:
    """Keys and data of one version, encoded and decoded."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        salt = orjson.dumps(columns.key, option=orjson.OPT_SORT_KEYS)
        self._salt = blake2b(salt, digest_size=16).digest()
        self._needed = frozenset(name for name, kind in columns.data.items() if not kind.endswith("?"))
        self._key = [(name, _ENCODERS[kind]) for name, kind in sorted(columns.key.items())]
        self._data = [
            (name, _ENCODERS[kind.removesuffix("?")], kind.endswith("?")) for name, kind in sorted(columns.data.items())
        ]
        kinds = {**columns.key, **columns.data}
        self._bytes = [name for name, kind in kinds.items() if kind.startswith("bytes")]

    def key(self, given: object) -> bytes:
        """Return a key's encoded form. `InvalidInput` names the first column that does not fit."""
        values: Any = given
        if type(given) is not dict or given.keys() != self.columns.key.keys():
            values = _mapping("key", given, self.columns.key)
        found = orjson.dumps({name: encode(f"key {name}", values[name], True) for name, encode in self._key})
        if len(found) > KEY_BYTES_MAX:
            raise invalid("key_too_long", "key", f"{len(found)} bytes", allowed=f"at most {KEY_BYTES_MAX}", got=given)
        return found

    def data(self, given: object, most: int) -> bytes:
        """Return the encoded form of data. A column that may be None may be left out."""
        values: Any = given
        if type(given) is not dict or not self._needed <= given.keys() <= self.columns.data.keys():
            values = _mapping("data", given, self.columns.data)
        encoded = {}
        for name, encode, may_be_none in self._data:
            value = values.get(name)
            encoded[name] = None if value is None and may_be_none else encode(f"data {name}", value, False)
        found = orjson.dumps(encoded)
        if len(found) > most:
            raise invalid("data_too_large", "data", f"{len(found)} bytes", allowed=f"at most {most}", got=len(found))
        return found

    def hash(self, key: bytes) -> bytes:
        """Return 128 bits of a key for the index. Keys with other columns are other keys."""
        return blake2b(key, digest_size=16, salt=self._salt).digest()

    def decode(self, text: bytes) -> dict[str, Any]:
        """Return the values of a key or of data, by column. ValueError if the text is not what was written."""
        found = orjson.loads(text)
        if type(found) is not dict:
            raise ValueError("not columns by name")
        for name in self._bytes:
            if found.get(name) is not None:
                found[name] = base64.b64decode(found[name], validate=True)
        return found


def _mapping(part: str, given: object, declared: Mapping[str, str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise invalid("column", part, "not columns by name", allowed=" ".join(sorted(declared)), got=given)
    for name in given:
        if name not in declared:
            if name in COLUMNS_OF_THE_SYSTEM:
                raise reserved(name, declared)
            allowed = " ".join(sorted(declared))
            raise invalid("column", part, f"unknown column {shown(name, 40)}", allowed=allowed, got=given[name])
    for name, kind in declared.items():
        if name not in given and not kind.endswith("?"):
            raise invalid("column", part, f"no column {name}", allowed=" ".join(sorted(declared)), got=sorted(given))
    return given


def _wrong(field: str, value: object, allowed: str) -> InvalidInput:
    code = "column" if value is None else "column_type"
    wrong = "None in a column that must have a value" if value is None else f"{type(value).__name__} does not fit"
    return invalid(code, field, wrong, allowed=allowed, got=value)


def _text(field: str, value: object, in_key: bool) -> str:
    if type(value) is not str:
        raise _wrong(field, value, "text")
    if in_key and not value:
        raise invalid("column", field, "empty text", allowed="text of one character or more", got=value)
    if "\0" in value:
        wrong = f"U+0000 at position {value.index(chr(0))}"
        raise invalid("nul_character", field, wrong, allowed="text without U+0000", got=value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            wrong = f"a lone surrogate at position {error.start}"
            raise invalid("invalid_unicode", field, wrong, allowed="text that UTF-8 can carry", got=value) from None
    return value


def _int(field: str, value: object, _: bool) -> int:
    if type(value) is not int:
        raise _wrong(field, value, "a whole number")
    if not -(2**63) <= value < 2**63:
        raise invalid("integer_out_of_range", field, "out of range", allowed="signed 64 bits", got=value)
    return value


def _float(field: str, value: object, _: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(field, value, "a number")
    number = float(value) if isinstance(value, float) or abs(value) <= 2**53 else math.nan
    if not math.isfinite(number):
        raise invalid("number_not_finite", field, "cannot be kept exactly", allowed="finite doubles", got=value)
    return number


def _bool(field: str, value: object, _: bool) -> bool:
    if type(value) is not bool:
        raise _wrong(field, value, "true or false")
    return value


def _bytes(field: str, value: object, in_key: bool) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong(field, value, "bytes")
    if in_key and not len(value):
        raise invalid("column", field, "empty", allowed="one byte or more", got=value)
    return base64.b64encode(value).decode()


def from_base64(field: str, value: object) -> object:
    """Decode base64 text into bytes. Any other value is returned unchanged, and the column's check refuses it."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise invalid("column_type", field, "not base64", allowed="bytes as base64", got=value) from None


def _timestamp(field: str, value: object, _: bool) -> int:
    if value is None:
        raise _wrong(field, value, "a time")
    return date_us(field, value)


def _json(field: str, value: object, _: bool) -> Any:
    payloads.encode_json(value, field)
    return value


_ENCODERS: Final[Mapping[str, Callable[[str, Any, bool], Any]]] = {
    "text": _text, "int": _int, "float": _float, "bool": _bool, "bytes": _bytes, "timestamp": _timestamp, "json": _json,
}  # fmt: skip
