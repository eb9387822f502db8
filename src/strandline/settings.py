"""The settings of `connect`: defaults, what is allowed, and which are fixed when a store is created."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Literal, Self, TypedDict

from strandline.errors import InvalidInput, Unsupported, received, shown

MIB = 2**20
# The values that creation fixes where nothing is given.
PARTITIONS_DEFAULT, SEGMENT_SIZE_DEFAULT, APPEND_IDS_KEPT_DEFAULT, BUCKET_SIZE_DEFAULT = 8, 10_000, 32, "hour"
BATCH_ACTIONS_DEFAULT = 40_000
CLOCK_LEAST_US, CLOCK_MOST_US = 1_577_836_800 * 10**6, 4_102_444_800 * 10**6  # 2020, 2100
SECONDS_MAX = 9_000_000_000_000
"""More microseconds would not fit into 64 bits."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def within(default: Any, least: float, most: float, **more: Any) -> Any:
    """Declare a number with its bounds."""
    return field(default=default, metadata={"least": least, "most": most, **more})


def one_of(default: str | None, *allowed: str) -> Any:
    """Declare a word, and the words that it may be."""
    return field(default=default, metadata={"allowed": allowed})


def judged(default: Any, check: Callable[[str, Any], Any]) -> Any:
    """Declare a value that a function of its name and value checks and returns."""
    return field(default=default, metadata={"check": check})


class CheckedSettings:
    """The base of each class of settings, whose fields say what is allowed (`within`, `one_of`, `judged`)."""

    __slots__ = ()

    @classmethod
    def of(cls, given: Mapping[str, Any], beside: Sequence[str] = ()) -> Self:
        """Return settings from names and values; `InvalidInput.setting` for the first that is unknown or out of range.

        `beside` are names of other arguments, which the error may suggest.
        """
        made = cls(**checked_settings(cls, given, beside))
        made._complete(given)
        return made

    def _complete(self, given: Mapping[str, Any]) -> None:
        """Refuse values that contradict each other, and set values that follow from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CheckedSettings):
    """One value per setting. Durations are seconds, sizes are bytes."""

    partitions: int | None = within(None, 1, 1024, kind=int)
    """Fixed at creation; 8 where nothing is given."""
    segment_size: int | None = within(None, 2, 1_000_000, kind=int)
    """Fixed at creation; 10000 where nothing is given."""
    append_ids_kept: int | None = within(None, 1, 256, kind=int)
    """How many of a key's last appends with an id a head remembers. Fixed at creation; 32 where nothing is given."""
    bucket_size: str | None = one_of(None, "minute", "hour", "day")
    """Fixed at creation; hour where nothing is given."""
    schema: str = one_of("create", "create", "check")
    group_actions_max: int = within(1000, 1, 10_000)
    group_bytes_max: int = within(16 * MIB, 1, 64 * MIB)
    read_page: int = within(2000, 1, 10_000)
    tail_buffer_bytes: int = within(16 * MIB, 0, 1024 * MIB)
    consumers_max: int = within(min(10 * cores(), 1000), 1, 1000)
    """Kafka: how many reads of this process may be under way at once."""
    heads_cache: bool = True
    """Kafka: whether to keep the headers of actions that are not replicated yet, by key, in memory."""
    heads_cache_wait_s: float = within(1.0, 0, 60)
    heads_cache_keys_max: int = within(10_000, 1, 1_000_000)
    heads_cache_idle_s: float = within(600.0, 1, 86_400)
    batch_actions_max: int = within(BATCH_ACTIONS_DEFAULT, 1, 1_000_000)
    """If nothing is given, the default is 10000 for a store on Cassandra."""
    batch_bytes_max: int = within(64 * MIB, MIB, 1024 * MIB)
    tag_batch_rows_max: int = within(150, 1, 10_000)
    """Cassandra: how many rows a batch into the view of a tag has at most."""
    tag_batch_bytes_max: int = within(40_960, 1024, 50_000)
    """Cassandra: how many bytes such a batch has at most. The server refuses batches of more than 50 kB."""
    tag_flush_interval_s: float = within(0.0, 0, 60)
    """How long an idle pipeline lets actions gather before it carries them; 0: not at all."""
    accept_power_loss: bool = False
    allow_adhoc_groups: bool = False
    """Whether the HTTP server takes whole event groups, with statements of the caller's; else it takes registered ones
    by name."""
    append_timeout_s: float = within(10.0, 0.1, 600)
    append_queue_max: int = within(10_000, 1, 1_000_000)
    commit_in_thread: bool = False
    """Whether the committer's thread commits for a lone caller, too, so that a disk that hangs holds up no caller."""
    lease_s: float = within(30.0, 1, 3600)
    """How long the pipeline's lease lasts without a beat. Projections, work and groups have their own `lease_s`."""
    log_retention_s: float = within(86_400.0, 86_400, SECONDS_MAX)
    mark_idle_s: float = within(1.0, 0.1, 60)
    shutdown_grace_s: float = within(10.0, 0, 600)
    wal_bytes_max: int = within(64 * MIB, 4 * MIB, 4096 * MIB)
    event_bytes_max: int = within(MIB, 1, 8 * MIB)
    append_events_max: int = within(1000, 1, 10_000)
    append_bytes_max: int = within(8 * MIB, 1, 16 * MIB)
    metadata_bytes_max: int = within(64 * 1024, 1, 8 * MIB)
    archive: str | None = field(default=None, metadata={"kind": str})
    """The folder of the archive on this machine, if it is not the one that the store names."""


class GivenSettings(TypedDict, total=False):
    """The settings as `connect` takes them, for type checkers; a test compares both. Seconds may be a timedelta."""

    partitions: int | None
    segment_size: int | None
    append_ids_kept: int | None
    bucket_size: Literal["minute", "hour", "day"] | None
    schema: Literal["create", "check"]
    group_actions_max: int
    group_bytes_max: int
    read_page: int
    tail_buffer_bytes: int
    consumers_max: int
    heads_cache: bool
    heads_cache_wait_s: float | timedelta
    heads_cache_keys_max: int
    heads_cache_idle_s: float | timedelta
    batch_actions_max: int
    batch_bytes_max: int
    tag_batch_rows_max: int
    tag_batch_bytes_max: int
    tag_flush_interval_s: float | timedelta
    accept_power_loss: bool
    allow_adhoc_groups: bool
    append_timeout_s: float | timedelta
    append_queue_max: int
    commit_in_thread: bool
    lease_s: float | timedelta
    log_retention_s: float | timedelta
    mark_idle_s: float | timedelta
    shutdown_grace_s: float | timedelta
    wal_bytes_max: int
    event_bytes_max: int
    append_events_max: int
    append_bytes_max: int
    metadata_bytes_max: int
    archive: str | None


def checked_settings(kind: Any, given: Mapping[str, Any], beside: Sequence[str] = ()) -> dict[str, Any]:
    """Return values for the fields of a class of settings, as `CheckedSettings.of` checks them."""
    known = {f.name: f for f in fields(kind) if f.init}
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise unknown_setting(name, value, (*known, *beside))
        checked[name] = _check(known[name].metadata, name, value, known[name].default)
    return checked


def unknown_setting(name: str, given: object, known: Sequence[str]) -> InvalidInput:
    """Return the error for an unknown name of a setting."""
    if near := difflib.get_close_matches(shown(name), known, n=1):
        return _refused(name, "unknown setting", near[0], given, f"did you mean {near[0]}?")
    hint = "known settings: " + " ".join(sorted(known))
    return _refused(name, "unknown setting", f"one of the {len(known)} that the hint names", given, hint)


SETTING_NAMES = frozenset(known.name for known in fields(Settings))


def _check(rules: Mapping[str, Any], name: str, given: Any, default: Any) -> Any:
    value = given
    if value is None and default is None:
        return None
    if "check" in rules:
        return rules["check"](name, value)
    if "allowed" in rules:
        if value not in rules["allowed"]:
            raise _refused(name, "unknown value", " or ".join(rules["allowed"]), value)
        return value
    if rules.get("kind") is str:
        if not isinstance(value, str) or not value:
            raise _refused(name, "not a path", "the path of a folder, as text", given)
        return value
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise _refused(name, "not true or false", "true or false", value)
        return value
    least, most, word = rules["least"], rules["most"], rules.get("word")
    if word is not None and value == word:
        return value
    allowed = f"{least}..{most}" + (f" or {word}" if word else "")
    whole = rules.get("kind") is int or isinstance(default, int)
    if isinstance(value, timedelta) and not whole:
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise _refused(name, "not a number" if not whole else "not a whole number", allowed, given)
    if not least <= value <= most:
        raise _refused(name, "out of range", allowed, given)
    return value if whole else float(value)


def _refused(name: str, wrong: str, allowed: str, got: object, hint: str = "") -> InvalidInput:
    message = f"{shown(name)}: {wrong}; allowed {allowed}; got {received(got)}"
    return InvalidInput(
        message, code="setting", hint=hint or f"give {allowed}", setting=name, allowed=allowed, given=got
    )


def parse_setting(name: str, text: str) -> Any:
    """Return a setting as a command line gives it: text becomes a number or a truth value where the setting wants
    one."""
    known = {f.name: f for f in fields(Settings)}
    if name not in known or "allowed" in known[name].metadata or known[name].metadata.get("kind") is str:
        return text
    if isinstance(known[name].default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    return number_in(text)


def number_in(text: str) -> Any:
    """Return the number that a text stands for, else the text itself, which the setting then refuses."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_clock(clock: Callable[[], int]) -> None:
    """Raise `Unsupported.clock` for a clock that cannot be right."""
    now = clock()
    if not CLOCK_LEAST_US <= now < CLOCK_MOST_US:
        raise Unsupported(
            f"the clock says {now} µs since 1970, which is not in 2020..2099",
            code="clock",
            hint="set the machine's clock; timestamps never go back, so a wrong one would stay",
            found=now,
        )
