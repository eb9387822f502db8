"""Values as a person writes them on a command line or in a query string: counts, slices, times.

The callee that takes the value checks its range. A text that is too long is refused as wrong input, because Python
itself fails on very long numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from strandline.errors import invalid

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}")
_SLICES: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([dhms])")
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def whole_number(text: str, field: str, *, code: str, allowed: str) -> int:
    """Return a whole number of up to 30 digits."""
    if not _WHOLE.fullmatch(text):
        raise invalid(code, field, "not a whole number", allowed=allowed, got=text)
    return int(text)


def seconds_of(text: str, field: str) -> float:
    """Return a number of seconds."""
    try:
        return float(text)
    except ValueError:
        raise invalid("option", field, "not a number", allowed="seconds, such as 0.5", got=text) from None


def slices_of(text: str, field: str) -> tuple[int, int]:
    """Return the first and the last slice of a range, as `LO-HI`."""
    match = _SLICES.fullmatch(text)
    if match is None:
        raise invalid("slice_range", field, "no slices", allowed="LO-HI in 0..1023, such as 0-255", got=text)
    return int(match[1]), int(match[2])


def duration_of(text: str) -> timedelta | None:
    """Return a duration such as `30d`, `12h`, `15m`, `45s`; None if the text is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        return timedelta.max


def time_of(text: str, field: str, clock: Callable[[], int] | None = None) -> datetime | int:
    """Return a time: microseconds since 1970, or as RFC 3339 writes it; with a clock also `+10m` from now."""
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    if clock is not None and text.startswith("+") and (after := duration_of(text[1:])) is not None:
        return clock() + after // timedelta(microseconds=1)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        allowed = "a time with a zone such as 2026-11-15T07:30:00Z, or microseconds since 1970"
        if clock is not None:
            allowed += ", or +10m (d, h, m, s)"
        raise invalid("time_format", field, "not a time", allowed=allowed, got=text) from None
