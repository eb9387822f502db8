"""Actions: the records of the log. The fold reads these and never a payload.

They are named tuples because a replicator makes and folds hundreds of thousands of them a second.
"""

from __future__ import annotations

from typing import NamedTuple

KEEP_EXPIRY = -1
NO_EXPIRY = 0
EXPIRE_AFTER_US_MAX = 36_500 * 86_400 * 1_000_000


EventHeader = tuple[str, tuple[str, ...]]
"""The part of a header for one event: its type and its tags. It is a plain tuple, which JSON writes without
conversion."""


class Append(NamedTuple):
    """Events saved as one; the fold gives their numbers."""

    key: str
    events: tuple[EventHeader, ...]
    append_id: str
    """32 hexadecimal digits."""
    id_given: bool
    """Whether the caller gave the id; generated ones are remembered one at a time."""
    digest: str
    """The digest over events, value and headers: two appends with one id must agree on it."""
    first: int | None = None
    expected: int | None = None
    expire_after_us: int = KEEP_EXPIRY
    """KEEP_EXPIRY, NO_EXPIRY, or a duration."""
    headers: dict[str, str] | None = None


class Mark(NamedTuple):
    """Changes nothing. `at_least` asks the log for a timestamp that is not below it."""

    key: str | None
    id: str
    at_least: int | None = None


class Delete(NamedTuple):
    """Removes existing events up to `to`; void in another life than `life`; without a life it may reset a key."""

    key: str
    to: int
    life: int | None = None


class Purge(NamedTuple):
    """Removes the whole journal; void unless the head is still at `if_offset`, where that is given."""

    key: str
    if_offset: int | None = None


Action = Append | Mark | Delete | Purge


class Place(NamedTuple):
    """The place and the time at which the log recorded an action."""

    partition: int
    offset: int
    timestamp: int
