"""The wall clock, as timestamps count it."""

from __future__ import annotations

import time


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
