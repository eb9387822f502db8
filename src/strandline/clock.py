"""The wall clock in microseconds, and times as people read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_us() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def time_text(timestamp: int | None, *, digits: int = 6) -> str:
    """Return microseconds as a date and time, UTC, with so many digits of a second."""
    if not timestamp:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp // 10**6, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp} µs"
    fraction = f".{timestamp % 10**6:06d}"[: digits + 1] if digits else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}Z"


def seconds_text(seconds: float) -> str:
    """Return a duration as text, with the precision that a reader needs."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"
