"""The clock of leases on SQLite: it never jumps, whatever is done to the machine's wall clock, and starts with it."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_us() -> int:
    """Microseconds since the machine was started; those of its sleep count."""
    return time.clock_gettime_ns(_CLOCK) // 1000


@cache
def boot_id() -> str:
    """What tells one start of the machine from all others; where it has no such thing, when that was, to 10 s."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str((time.time_ns() // 1000 - boot_us()) // 10_000_000)
