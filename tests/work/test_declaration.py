"""Declarations, their settings, and the values of keys and data."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidInput
from strandline.work.declaration import Codec, Columns, WorkDeclaration, settings_of, settings_text
from strandline.work.entries import Priority

KEY = {"page": "text"}
DATA = {"url": "text", "width": "int?"}


@pytest.mark.req("W1")
def test_a_file_declares_the_same(tmp_path: Path) -> None:
    file = tmp_path / "thumbs.toml"
    file.write_text('name = "thumbs"\nlease_s = 30\n[key]\npage = "text"\n[data]\nurl = "text"\nwidth = "int?"\n')
    assert WorkDeclaration.load(file) == WorkDeclaration("thumbs", key=KEY, data=DATA, lease_s=30)
    file.write_text('name = "thumbs"\n[key]\npage = "text"\n')
    with pytest.raises(InvalidInput, match="no data"):
        WorkDeclaration.load(file)


@pytest.mark.req("W1")
def test_declarations_are_equal_if_all_of_them_is() -> None:
    declared = WorkDeclaration("thumbs", key=KEY, data=DATA, lease_s=31)
    assert declared == WorkDeclaration("thumbs", key=dict(KEY), data=dict(reversed(DATA.items())), lease_s=31)
    for other in (
        WorkDeclaration("nails", key=KEY, data=DATA, lease_s=31),
        WorkDeclaration("thumbs", key={"page": "int"}, data=DATA, lease_s=31),
        WorkDeclaration("thumbs", key=KEY, data={"url": "text", "width": "int"}, lease_s=31),
        WorkDeclaration("thumbs", key=KEY, data=DATA, lease_s=32),
    ):
        assert declared != other


@pytest.mark.req("W1")
def test_keys_and_data_are_stored_as_json_with_the_names_of_columns() -> None:
    codec = Codec(Columns({"page": "text", "site": "int"}, DATA))
    assert codec.key({"site": 7, "page": "é"}) == '{"page":"é","site":7}'.encode()
    assert codec.data({"url": "u"}, 100) == b'{"url":"u","width":null}'


OTHER_THAN_BY_DEFAULT: dict[str, Any] = {
    "merge": "none", "merge_process_date": "smallest", "max_delay_s": 7.5, "default_priority": 21, "slow_from": 180,
    "slow_limit": 3, "slow_pause_s": 2.5, "lease_s": 45.0, "max_timeouts": 5, "retry_delay_s": 2.0,
    "retry_delay_max_s": 60.0, "data_bytes_max": 1000, "table_period": "day", "table_rows_max": 500,
    "table_bytes_max": 100_000, "table_empty": "delete", "tables": "shared", "wake": "poll", "poll_s": 1.5,
    "standbys_min": 1, "dead_keep_s": 60.0, "ids_keep_s": 3600.0,
}  # fmt: skip


@pytest.mark.req("W1", "W6")
def test_every_setting_of_a_file_counts(tmp_path: Path) -> None:
    """None is left at its default, which is another value than the file's."""
    defaults = WorkDeclaration("thumbs", key=KEY, data=DATA).settings
    assert set(OTHER_THAN_BY_DEFAULT) == {field.name for field in fields(defaults)}
    assert all(getattr(defaults, name) != value for name, value in OTHER_THAN_BY_DEFAULT.items())
    lines = [f"{name} = {json.dumps(value)}" for name, value in OTHER_THAN_BY_DEFAULT.items()]
    file = tmp_path / "thumbs.toml"
    file.write_text("\n".join(['name = "thumbs"', *lines, "[key]", 'page = "text"', "[data]", 'url = "text"']))
    loaded = WorkDeclaration.load(file)
    assert {name: getattr(loaded.settings, name) for name in OTHER_THAN_BY_DEFAULT} == OTHER_THAN_BY_DEFAULT
    assert settings_of(settings_text(loaded.settings)) == loaded.settings


@pytest.mark.req("W1", "W3", "W6")
@pytest.mark.parametrize(
    ("name", "key", "data", "settings", "code"),
    [
        ("Thumbs", KEY, DATA, {}, "setting"),
        ("shared", KEY, DATA, {}, "setting"),
        ("template", KEY, DATA, {}, "setting"),
        ("1a", KEY, DATA, {}, "setting"),
        ("a" * 41, KEY, DATA, {}, "setting"),
        ("t", {}, DATA, {}, "column"),
        ("t", KEY, {}, {}, "column"),
        ("t", {"a": "float"}, DATA, {}, "column_type"),
        ("t", {"a": "json"}, DATA, {}, "column_type"),
        ("t", {"a": "text?"}, DATA, {}, "column_type"),
        ("t", KEY, {"a": "varchar"}, {}, "column_type"),
        ("t", KEY, {"priority": "int"}, {}, "column_reserved"),
        ("t", KEY, DATA, {"lease": 3}, "setting"),
        ("t", KEY, DATA, {"lease_s": 0.01}, "setting"),
        ("t", KEY, DATA, {"merge": "all"}, "setting"),
        ("t", KEY, DATA, {"tables": "other"}, "setting"),
        ("t", KEY, DATA, {"slow_from": 0}, "setting"),
    ],
)
def test_what_is_refused(name: str, key: Any, data: Any, settings: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        WorkDeclaration(name, key=key, data=data, **settings)
    assert refused.value.code == code


@pytest.mark.req("W6")
def test_defaults() -> None:
    settings = WorkDeclaration("t", key=KEY, data=DATA).settings
    assert (settings.merge, settings.default_priority, settings.slow_from, settings.lease_s) == ("key", 20, 200, 30)
    assert (settings.max_timeouts, settings.table_period, settings.table_rows_max) == (3, "hour", 10_000)
    assert (settings.table_empty, settings.tables, settings.wake, settings.poll_s) == ("truncate", "t", "notify", 5)
    assert settings_of(settings_text(settings)) == settings


@pytest.mark.req("W16")
def test_priorities_have_names() -> None:
    assert [(member.name, member.value) for member in Priority] == [
        ("NOW", 0), ("IMPORTANT", 10), ("NEW", 20), ("RESET", 50), ("UPDATES", 180), ("SLOW", 200), ("REVIEW", 230),
        ("TIME_ALLOWS", 255),
    ]  # fmt: skip


ALL = Columns(
    {"a": "text", "b": "int", "c": "bool", "d": "bytes", "e": "timestamp"},
    {"t": "text", "f": "float", "j": "json", "x": "bytes?", "n": "int?"},
)


@pytest.mark.req("W4")
def test_values_come_back_exactly() -> None:
    codec = Codec(ALL)
    key = {"a": "e\u0301 é 🌊", "b": -(2**63), "c": False, "d": b"\0\xff", "e": 5}
    assert codec.decode(codec.key(key)) == key
    data = {"t": "", "f": 0.1, "j": {"z": [1, 1.0, None, {"é": "ü"}], "a": 2}, "x": b"", "n": None}
    found = codec.decode(codec.data(data, 10**6))
    assert found == data
    assert list(found["j"]) == ["z", "a"]
    assert type(found["j"]["z"][1]) is float
    assert codec.decode(codec.data({"t": "x", "f": 1, "j": None}, 10**6))["n"] is None
    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert codec.decode(codec.key({**key, "e": when}))["e"] == round(when.timestamp() * 10**6)


@pytest.mark.req("W4", "W22", "W67")
def test_keys_are_told_apart() -> None:
    codec = Codec(ALL)
    key = {"a": "é", "b": 1, "c": True, "d": b"x", "e": 0}
    other = {**key, "a": "e\u0301"}
    assert codec.key(key) == codec.key(dict(reversed(key.items())))
    assert codec.hash(codec.key(key)) != codec.hash(codec.key(other))
    assert len(codec.hash(codec.key(key))) == 16
    number, moment = Codec(Columns({"k": "int"}, DATA)), Codec(Columns({"k": "timestamp"}, DATA))
    assert number.hash(number.key({"k": 1})) != moment.hash(moment.key({"k": 1}))
