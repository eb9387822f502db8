"""Buckets of time: the UTC minute, hour or day of a timestamp, as a number and as people write it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from strandline.errors import invalid

LENGTHS_US: Final = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
"""How long a bucket of each size is."""
TIMESTAMP_END: Final = 253_402_300_800_000_000
"""The first microsecond after the year 9999."""
_FORMS: Final = {"minute": "%Y-%m-%dT%H:%M", "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d"}
_WRITTEN: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d)(?::(\d\d))?)?", re.ASCII)


def bucket_text(bucket: int, size: str) -> str:
    """Return `2026-11-15T07:30`, `2026-11-15T07` or `2026-11-15`."""
    return datetime.fromtimestamp(bucket * LENGTHS_US[size] // 10**6, UTC).strftime(_FORMS[size])


def bucket_start(text: object, size: str) -> int:
    """Return the first microsecond of the bucket that a time in one of these forms lies in."""
    allowed = "auto, or a UTC time such as 2026-11-15, 2026-11-15T07 or 2026-11-15T07:30"
    found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise invalid("time_format", "first_time_bucket", "not a time", allowed=allowed, got=text)
    year, month, day, hour, minute = (int(part or 0) for part in found.groups())
    if year < 1970:
        raise invalid("time_range", "first_time_bucket", "before 1970", allowed="1970 to 9999", got=text)
    try:
        start = datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        raise invalid("time_format", "first_time_bucket", "not a time", allowed=allowed, got=text) from None
    length = LENGTHS_US[size]
    return int(start.timestamp()) * 10**6 // length * length
