"""Settings: each at its bounds and one over, those of the specification and no others."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import aio
from strandline.connect import connect
from strandline.errors import InvalidInput
from strandline.settings import MIB, GivenSettings, Settings, cores, parse_setting

ROOT = Path(__file__).parents[2]
KIB, GIB = 2**10, 2**30

# name: default, least, most
WHOLE = {
    "partitions": (None, 1, 1024),
    "segment_size": (None, 2, 1_000_000),
    "append_ids_kept": (None, 1, 256),
    "group_actions_max": (1000, 1, 10_000),
    "group_bytes_max": (16 * MIB, 1, 64 * MIB),
    "read_page": (2000, 1, 10_000),
    "tail_buffer_bytes": (16 * MIB, 0, GIB),
    "consumers_max": (min(10 * cores(), 1000), 1, 1000),
    "heads_cache_keys_max": (10_000, 1, 1_000_000),
    "batch_actions_max": (40_000, 1, 1_000_000),
    "batch_bytes_max": (64 * MIB, MIB, GIB),
    "append_queue_max": (10_000, 1, 1_000_000),
    "wal_bytes_max": (64 * MIB, 4 * MIB, 4 * GIB),
    "event_bytes_max": (MIB, 1, 8 * MIB),
    "append_events_max": (1000, 1, 10_000),
    "append_bytes_max": (8 * MIB, 1, 16 * MIB),
    "metadata_bytes_max": (64 * KIB, 1, 8 * MIB),
    "tag_batch_rows_max": (150, 1, 10_000),
    "tag_batch_bytes_max": (40_960, 1024, 50_000),
}
SECONDS = {
    "tag_flush_interval_s": (0.0, 0, 60),
    "append_timeout_s": (10.0, 0.1, 600),
    "heads_cache_wait_s": (1.0, 0, 60),
    "heads_cache_idle_s": (600.0, 1, 86_400),
    "lease_s": (30.0, 1, 3600),
    "mark_idle_s": (1.0, 0.1, 60),
    "shutdown_grace_s": (10.0, 0, 600),
    "log_retention_s": (86_400.0, 86_400, 9_000_000_000_000),  # no more microseconds fit into 64 bits
}
CHOICES = {"bucket_size": (None, ("minute", "hour", "day")), "schema": ("create", ("create", "check"))}
SWITCHES = {"accept_power_loss": False, "allow_adhoc_groups": False, "commit_in_thread": False, "heads_cache": True}
PATHS = {"archive": None}
KNOWN = {**WHOLE, **SECONDS, **CHOICES, **SWITCHES, **PATHS}
LATER = set(
    """
    handler_timeout_s
    """.split()
)


def refused(**given_: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        Settings.of(given_)
    error = caught.value
    assert error.code == "setting"
    assert error.setting == next(iter(given_))
    assert error.given is next(iter(given_.values()))
    assert error.allowed
    assert error.hint
    return error


# ---------------------------------------------------------------- as specified


def specified() -> dict[str, str]:
    """The settings of `connect` and their defaults, from the table of the specification."""
    text = (ROOT / "docs/spec/README.md").read_text(encoding="utf-8")
    section = text.split("\n## Settings\n")[1].split("\n## ")[0]
    found: dict[str, str] = {}
    given_to = ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 2:
            given_to = cells[0] or given_to
            if given_to.startswith("`connect`"):
                found |= {name: default.strip() for name, default in re.findall(r"`(\w+)` ([^,`(]+)", cells[1])}
    return found


def number(text: str) -> float:
    """A number as the specification writes it: 16 MiB, 10^6."""
    amount, _, unit = text.strip().partition(" ")
    amount = amount.replace("10^6", "1000000")
    return float(amount) * {"": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "per core": cores()}[unit]


@pytest.mark.req("J112")
def test_the_settings_are_those_of_the_specification() -> None:
    assert {field.name for field in fields(Settings)} == set(KNOWN) == set(specified()) - LATER
    assert set(specified()) >= LATER


@pytest.mark.req("J112")
def test_the_defaults_are_those_of_the_specification() -> None:
    defaults = Settings()
    for name, written in specified().items():
        if name in WHOLE or name in SECONDS:
            default = getattr(defaults, name)
            assert default == KNOWN[name][0]  # type: ignore[index]
            assert default is None or default == number(written)
    fixed = [specified()[name] for name in ("partitions", "segment_size", "append_ids_kept", "bucket_size")]
    assert fixed == ["8", "10000", "32", "hour"]
    assert (defaults.schema, defaults.accept_power_loss) == ("create", False)
    assert Settings.of({}) == defaults


@pytest.mark.req("J112")
def test_the_bounds_are_those_of_the_specification() -> None:
    text = (ROOT / "docs/spec/journal.md").read_text(encoding="utf-8")
    size = r"(\d+(?: [KMG]iB)?)"
    listed = re.findall(rf"`(\w+)`[^|]*\|[^|]*\| {size}\.\.{size} \|", text)
    bounds = {name: (number(least), number(most)) for name, least, most in listed if name not in LATER}
    of_journal = [*list(WHOLE)[:11], "heads_cache_wait_s", "heads_cache_idle_s"]
    assert bounds == {name: {**WHOLE, **SECONDS}[name][1:] for name in of_journal}


# ---------------------------------------------------------------- bounds


@pytest.mark.req("J112")
@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_at_their_bounds_and_one_over(name: str) -> None:
    _, least, most = WHOLE[name]
    for value in (least, most):
        assert getattr(Settings.of({name: value}), name) == value
    for value in (least - 1, most + 1, -(10**30), 10**30):
        error = refused(**{name: value})
        assert str(error) == f"{name}: out of range; allowed {least}..{most}; got {value}"
        assert error.hint == f"give {least}..{most}"
    bad: Any
    for bad in (float(least), "8", True, [8], timedelta(seconds=least + 1), math.nan, b"8"):
        assert str(refused(**{name: bad})).startswith(f"{name}: not a whole number; allowed {least}..{most}; got ")


@pytest.mark.req("J112")
@pytest.mark.parametrize("name", SECONDS)
def test_durations_at_their_bounds_and_just_over(name: str) -> None:
    _, least, most = SECONDS[name]
    for value in (least, most):
        found = getattr(Settings.of({name: value}), name)
        assert (found, type(found)) == (value, float)
        assert getattr(Settings.of({name: timedelta(seconds=float(value))}), name) == value
    bad: Any
    for bad in (math.nextafter(least, -math.inf), math.nextafter(most, math.inf), -1, timedelta(seconds=-1)):
        assert str(refused(**{name: bad})) == f"{name}: out of range; allowed {least}..{most}; got {bad!r}"
    for bad in (math.inf, -math.inf, math.nan, 10**400, 10**5000, timedelta.max, timedelta.min):
        assert str(refused(**{name: bad})).startswith(f"{name}: out of range; allowed {least}..{most}; got ")
    for bad in ("10", True, None, [10], b"10"):
        assert str(refused(**{name: bad})).startswith(f"{name}: not a number; allowed {least}..{most}; got ")


@pytest.mark.req("J112")
def test_a_path_is_text() -> None:
    assert Settings.of({"archive": "/mnt/events"}).archive == "/mnt/events"
    assert Settings.of({"archive": None}).archive is Settings().archive is None
    for wrong in ("", 1, b"/mnt", True):
        refused(archive=wrong)
    assert parse_setting("archive", "2026") == "2026"


@pytest.mark.req("J112")
@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str) -> None:
    _, allowed = CHOICES[name]
    for value in allowed:
        assert getattr(Settings.of({name: value}), name) == value
    bad: Any
    for bad in ("", allowed[0].upper(), f" {allowed[0]}", 1, True, ["hour"], {}):
        assert str(refused(**{name: bad})).startswith(f"{name}: unknown value; allowed {' or '.join(allowed)}; got ")


@pytest.mark.req("J112")
def test_switches() -> None:
    assert Settings.of({"accept_power_loss": True}).accept_power_loss is True
    bad: Any
    for bad in (1, 0, "true", None, []):
        error = refused(accept_power_loss=bad)
        assert str(error).startswith("accept_power_loss: not true or false; allowed true or false; got ")


def test_what_creation_fixes_may_be_left_open() -> None:
    left = Settings.of({"partitions": None, "segment_size": None, "bucket_size": None})
    assert (left.partitions, left.segment_size, left.bucket_size) == (None, None, None)
    refused(schema=None)
    refused(read_page=None)


# ---------------------------------------------------------------- unknown


@pytest.mark.req("J112")
@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("partition", "partitions"),
        ("append_timeout", "append_timeout_s"),
        ("read_pages", "read_page"),
        ("Schema", "schema"),
        ("accept_power_lost", "accept_power_loss"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(name: str, near: str) -> None:
    error = refused(**{name: 1})
    assert str(error) == f"{name}: unknown setting; allowed {near}; got 1"
    assert error.hint == f"did you mean {near}?"


@pytest.mark.req("J112")
def test_an_unknown_setting_without_a_near_one_is_refused_with_all() -> None:
    for name in ("qqqq", "", "fsync"):
        error = refused(**{name: 1})
        assert error.hint == "known settings: " + " ".join(sorted(KNOWN))
        assert str(error) == f"{name}: unknown setting; allowed one of the {len(KNOWN)} that the hint names; got 1"


def test_the_first_wrong_one_is_named_and_nothing_is_long() -> None:
    assert refused(read_page=0, unknown=1).setting == "read_page"
    assert len(str(refused(**{"x" * 10_000: "y" * 10_000}))) < 300
    assert len(str(refused(schema="y" * 10_000))) < 300
    with pytest.raises(InvalidInput) as caught:
        Settings.of({7: 1})  # type: ignore[dict-item]
    assert (caught.value.code, caught.value.setting) == ("setting", 7)


@pytest.mark.req("J122")
def test_a_text_is_seen_to_be_one() -> None:
    assert str(refused(read_page="5")) == "read_page: not a whole number; allowed 1..10000; got '5'"
    assert str(refused(read_page="")) == "read_page: not a whole number; allowed 1..10000; got ''"
    assert str(refused(lease_s="soon")) == "lease_s: not a number; allowed 1..3600; got soon"


@given(
    st.sampled_from([*KNOWN, "x"]), st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.timedeltas()
)
def test_any_value_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        settings = Settings.of({name: value})
    except InvalidInput:
        return
    assert Settings.of({name: getattr(settings, name)}) == settings


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Settings().read_page = 5  # type: ignore[misc]


# ---------------------------------------------------------------- from a command line


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("read_page", "500", 500),
        ("partitions", "8", 8),
        ("lease_s", "2.5", 2.5),
        ("lease_s", "2", 2.0),
        ("accept_power_loss", "true", True),
        ("accept_power_loss", "False", False),
        ("schema", "check", "check"),
        ("bucket_size", "day", "day"),
    ],
)
def test_text_becomes_what_the_setting_wants(name: str, text: str, value: Any) -> None:
    assert getattr(Settings.of({name: parse_setting(name, text)}), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("read_page", "many"),
        ("read_page", "1.5"),
        ("read_page", ""),
        ("read_page", "9" * 5_000),
        ("lease_s", "nan"),
        ("lease_s", "inf"),
        ("log_retention_s", "inf"),
        ("log_retention_s", "1e999"),
        ("accept_power_loss", "1"),
        ("accept_power_loss", "yes"),
        ("schema", "1"),
        ("unknown", "1"),
    ],
)
def test_text_of_the_wrong_kind_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Settings.of({name: parse_setting(name, text)})
    assert (caught.value.code, caught.value.setting) == ("setting", name)


def test_cores() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


def told_to_checkers(name: str, kind: Any) -> Any:
    """What a type checker is to accept for a setting of this type."""
    if name in CHOICES:
        default, allowed = CHOICES[name]
        return Literal[allowed] if default is not None else Literal[allowed] | None
    return float | timedelta if kind is float else kind


@pytest.mark.req("J112")
def test_type_checkers_are_told_the_same_settings() -> None:
    known = {name: told_to_checkers(name, kind) for name, kind in get_type_hints(Settings).items()}
    assert get_type_hints(GivenSettings) == known
    assert not GivenSettings.__required_keys__


def test_type_checkers_refuse_what_is_refused() -> None:
    """mypy, which reads these tests, complains of each `ignore` that nothing needs."""
    refusals: list[Callable[[], object]] = [
        lambda: connect("memory:", partition=4),  # type: ignore[call-arg]
        lambda: connect("memory:", partitions="4"),  # type: ignore[arg-type]
        lambda: connect("memory:", append_timeout_s="2"),  # type: ignore[arg-type]
        lambda: connect("memory:", bucket_size="week"),  # type: ignore[arg-type]
        lambda: connect("memory:", heads_cache="on"),  # type: ignore[arg-type]
    ]
    for refused in refusals:
        with pytest.raises(InvalidInput) as raised:
            refused()
        assert raised.value.code == "setting"
    aio.connect("memory:", partition=4)  # type: ignore[call-arg]
    aio.connect("memory:", partitions="4")  # type: ignore[arg-type]
    connect("memory:", append_timeout_s=timedelta(seconds=2), partitions=4, schema="create").close()
