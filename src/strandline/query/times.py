"""Times as callers give them: an aware datetime, or a timestamp in microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from strandline.errors import invalid

TIMESTAMP_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALLOWED: Final = "a datetime with a zone, or microseconds since 1970"


def time_us(value: object, field: str) -> int:
    """Return microseconds since 1970."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise invalid("time_without_zone", field, "no zone", allowed=_ALLOWED, got=value)
        value = (value - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(value, bool) or not isinstance(value, int):
        raise invalid("time_format", field, "no time", allowed=_ALLOWED, got=value)
    if not 0 <= value <= TIMESTAMP_MAX:
        raise invalid("time_range", field, "out of range", allowed="1970 or later, in 64 bits", got=value)
    return value
