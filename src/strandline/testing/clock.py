"""A clock that says what a test tells it."""

from __future__ import annotations

from datetime import timedelta

START_US = 1_767_225_600 * 10**6  # 2026-01-01


class FakeClock:
    """Microseconds since 1970, as `connect(clock=…)` wants them. It stands still until it is moved."""

    blurred_us = 0
    """By so much others may see another time."""

    def __init__(self, now: int = START_US) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def tick(self) -> None:
        """Let whatever comes next be later."""
        self.advance(1)

    def advance(self, by: timedelta | float) -> int:
        """Move by seconds, also back; the time then."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        self.now += round(seconds * 1_000_000)
        return self.now
