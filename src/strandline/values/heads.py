"""Heads: the state of a key, which the fold updates from action to action."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

SEQ_NR_MAX = 2**63 - 1


class Remembered(NamedTuple):
    """An accepted append that a head remembers, so that a repeat of it gets the same answer."""

    append_id: str
    digest: str
    first: int
    last: int
    offset: int
    timestamp: int


def remembered_values(given: Iterable[Remembered], generated: Remembered | None) -> tuple[Any, Any]:
    """Return the appends that a head remembers, as values for JSON: those with a caller's id, and the last other
    one."""
    return [tuple(answer) for answer in given], generated and tuple(generated)


def remembered_in(given: Iterable[Any], generated: Any) -> tuple[tuple[Remembered, ...], Remembered | None]:
    """Return the appends from the values of `remembered_values`; `TypeError` for any other values."""
    return tuple([Remembered._make(answer) for answer in given]), generated and Remembered._make(generated)


class Head(NamedTuple):
    """A key that lives. `seq_nr` may be below `delete_to`, numbers may have gaps, segment sizes may differ by key."""

    seq_nr: int
    delete_to: int
    life: int
    partition: int
    offset: int
    created: int
    updated: int
    expire_after_us: int | None
    expire_at: int | None
    segment_size: int
    archive_to: int
    prev: int
    """The number of the last event that is there: `seq_nr`, but lower after the last ones were skipped."""
    removed_to: int
    """The number up to which rows were removed from the store; below `delete_to` only after a crash without
    transactions."""
    given: tuple[Remembered, ...]
    """The last appends whose id a caller gave, oldest first."""
    generated: Remembered | None
    """The last append whose id was generated."""

    @property
    def expire_after(self) -> timedelta | None:
        return None if self.expire_after_us is None else timedelta(microseconds=self.expire_after_us)

    def __repr__(self) -> str:
        return f"Head({', '.join(f'{name}={getattr(self, name)!r}' for name in HEAD_FIELDS)})"


HEAD_FIELDS = tuple(
    "seq_nr delete_to life partition offset created updated expire_after expire_at segment_size archive_to".split()
)
"""The fields of a head that users see; the others are for the fold."""


class EndedLife(NamedTuple):
    """A key that was purged: the number of the life that ended, and the place of its purge."""

    life: int
    partition: int
    offset: int


State = Head | EndedLife | None
