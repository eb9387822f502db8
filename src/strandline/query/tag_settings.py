"""The settings of a query: defaults, what is allowed, and which are only there without the strandline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, TypedDict

from strandline.errors import InvalidInput, received, shown
from strandline.settings import unknown_setting

MAX: Final = "max"
OFF: Final = "off"
KEYS_LEAST, KEYS_MOST = 1000, 2**31


class Allowed(NamedTuple):
    """What a setting may be: a range of numbers, and a word beside it."""

    least: float
    most: float
    whole: bool = False
    word: str | None = None
    searching: bool = False
    """Only there without the strandline."""

    @property
    def text(self) -> str:
        """As an error says it."""
        return f"{self.least:g}..{self.most:g}" + (f" or {self.word}" if self.word else "")


ALLOWED: Final = {
    "refresh_interval_s": Allowed(0.01, 60),
    "page_size": Allowed(1, 1000, whole=True),
    "keys_in_memory_max": Allowed(KEYS_LEAST, KEYS_MOST, whole=True),
    "gap_timeout_s": Allowed(0, 600),
    "eventual_consistency_delay_s": Allowed(0, 3600, searching=True),
    "new_key_scan_timeout_s": Allowed(0, 60, searching=True),
    "back_track_interval_s": Allowed(0.01, 3600, word=OFF, searching=True),
    "back_track_period_s": Allowed(0.001, 10**9, word=MAX, searching=True),
}
OTHERS: Final = ("first_time_bucket", "use_strandline")


@dataclass(frozen=True, slots=True)
class TagSettings:
    """One value per setting of a query. Durations are seconds."""

    first_time_bucket: str = "auto"
    refresh_interval_s: float = 0.25
    page_size: int = 1000
    keys_in_memory_max: int = 100_000
    use_strandline: bool = True
    gap_timeout_s: float = 10
    eventual_consistency_delay_s: float = 5
    new_key_scan_timeout_s: float = 0.1
    back_track_interval_s: float | str = 1
    back_track_period_s: float | str = 5

    @classmethod
    def of(cls, given: Mapping[str, Any], beside: Sequence[str] = ()) -> TagSettings:
        """Settings from names and values, else `InvalidInput.setting`; `beside` are names of other arguments."""
        strandline = given.get("use_strandline", True)
        if not isinstance(strandline, bool):
            raise refused("use_strandline", "not true or false", "true or false", strandline)
        return cls(**{name: _check(name, value, strandline, beside) for name, value in given.items()})


class GivenTagSettings(TypedDict, total=False):
    """The settings as callers give them, for type checkers; a test compares both."""

    first_time_bucket: str
    refresh_interval_s: float | timedelta
    page_size: int
    keys_in_memory_max: int
    use_strandline: bool
    gap_timeout_s: float | timedelta
    eventual_consistency_delay_s: float | timedelta
    new_key_scan_timeout_s: float | timedelta
    back_track_interval_s: float | timedelta | Literal["off"]
    back_track_period_s: float | timedelta | Literal["max"]


def _check(name: str, given: Any, strandline: bool, beside: Sequence[str]) -> Any:
    if name in OTHERS:
        return given
    allowed = ALLOWED.get(name)
    if allowed is None:
        raise unknown_setting(name, given, (*OTHERS, *ALLOWED, *beside))
    if allowed.searching and strandline:
        raise refused(
            name, "there is none with the strandline", "use_strandline=False", given, "give use_strandline=False too"
        )
    if allowed.word is not None and given == allowed.word:
        return given
    value = given.total_seconds() if isinstance(given, timedelta) and not allowed.whole else given
    if isinstance(value, bool) or not isinstance(value, int if allowed.whole else (int, float)):
        raise refused(name, "not a whole number" if allowed.whole else "not a number", allowed.text, given)
    if not allowed.least <= value <= allowed.most:
        raise refused(name, "out of range", allowed.text, given)
    return value


def refused(name: str, wrong: str, allowed: str, got: object, hint: str = "") -> InvalidInput:
    """The error for a setting."""
    message = f"{shown(name)}: {wrong}; allowed {allowed}; got {received(got)}"
    hint = hint or f"give {allowed}"
    return InvalidInput(message, code="setting", hint=hint, setting=name, allowed=allowed, given=got)
