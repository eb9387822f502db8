"""Converts values of users' queries to Python. A value that Python cannot hold stays text, and
goes back as that text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cassandra.util import Date, Duration, SortedSet, Time

from strandline.group.core.encoding import Opaque, hashable

_DURATION: Final = re.compile(r"(-?)(\d+)mo(\d+)d(\d+)ns")
MICROSECOND_NS: Final = 1000


def held(value: Any) -> Any:
    """Return a value of the driver's as a plain one: sets, dates of any year, times to the nanosecond, durations."""
    if isinstance(value, SortedSet):
        items = [held(one) for one in value]
        try:
            return set(items)
        except TypeError:  # of lists, or of maps
            return items
    if isinstance(value, Mapping):
        return {hashable(held(key)): held(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(held, value)) if type(value) in (list, tuple) else tuple(map(held, value))
    if isinstance(value, Date):
        try:
            return value.date()
        except ValueError:
            return Opaque("date", str(value.days_from_epoch))
    if isinstance(value, Time):
        return value.time() if value.nanosecond_time % MICROSECOND_NS == 0 else Opaque("time", str(value))
    return Opaque("duration", str(value)) if isinstance(value, Duration) else value


def given(value: Any) -> Any:
    """Return what `held` gave as text in the form that the driver takes."""
    if not isinstance(value, Opaque):
        return value
    if value.type == "date":
        return Date(int(value.text))
    if value.type == "duration" and (found := _DURATION.fullmatch(value.text)):
        sign = -1 if found[1] else 1
        return Duration(*(sign * int(part) for part in found.groups()[1:]))
    return value.text
