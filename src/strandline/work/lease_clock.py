"""The clock of leases on SQLite. It starts with the machine, and does not jump when the wall clock is set."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_us() -> int:
    """Return the microseconds since the machine was started; time asleep counts."""
    return time.clock_gettime_ns(_CLOCK) // 1000


@cache
def boot_id() -> str:
    """Return what tells one start of the machine from all others: its boot id, else the time of the start, to 10 s."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str((time.time_ns() // 1000 - boot_us()) // 10_000_000)
