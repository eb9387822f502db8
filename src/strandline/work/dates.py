"""Dates of entries: microseconds since 1970, UTC. Arguments may be datetimes with a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from strandline.errors import invalid

US: Final = 10**6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DATE_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""
Date = int | datetime
"""A date as callers give it: microseconds since 1970, or a datetime with a zone."""
ALLOWED: Final = "microseconds since 1970, or a datetime with a zone, to the year 9999"


def date_us(field: str, value: object) -> int:
    """Return a date in microseconds."""
    given = value
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise invalid("time_without_zone", field, "no zone", allowed="a datetime with a zone", got=value)
        value = (value - _EPOCH) // timedelta(microseconds=1)
    if type(value) is not int:
        raise invalid("time_range", field, "not a date", allowed=ALLOWED, got=given)
    if value < 0:
        raise invalid("time_range", field, "is before 1970", allowed=ALLOWED, got=given)
    if value > DATE_MAX:
        raise invalid("time_range", field, "is after 9999", allowed=ALLOWED, got=given)
    return value


def delay_us(field: str, delay: timedelta) -> int:
    """Return a time from now in microseconds."""
    if delay < timedelta(0):
        raise invalid("delay_range", field, "is before now", allowed="a timedelta of 0 or more", got=str(delay))
    return min(delay // timedelta(microseconds=1), DATE_MAX)


def us(seconds: float) -> int:
    """Return a duration in microseconds."""
    return round(seconds * US)


def period_end(date: int, period: str) -> int | None:
    """Return the end of the period that a date is in, in UTC; None if it has none."""
    if period == "none":
        return None
    moment = _EPOCH + timedelta(microseconds=date)
    if period == "month":
        later = moment.replace(day=28) + timedelta(days=4)
        end = later.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    else:
        start = moment.replace(minute=0, second=0, microsecond=0)
        end = start + timedelta(hours=1) if period == "hour" else start.replace(hour=0) + timedelta(days=1)
    return (end - _EPOCH) // timedelta(microseconds=1)
