"""Entries as callers see them (`Entry`), as an add gives them (`EntryDraft`), as tables store them (`EntryRow`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

Status = Literal["W", "P"]
Outcome = Literal["inserted", "merged", "behind", "stale", "repeated"]
"""What an add did. `repeated`: it did nothing, because an add with the same id was stored before."""

WAITING: Final = "W"
PROCESSING: Final = "P"
LAPSED: Final = "L"
"""Only in the tables: the entry waits again because its lease ended; its last holder may still end it with `done`."""

# Places of an entry in the order. Each number is a value in the second column of the order's key.
READY: Final = 0
"""Entries that may be claimed, ordered by priority, then date."""
SOON: Final = 1
"""Entries that will be ready at their date, ordered by it."""
BEHIND: Final = 2
"""Entries, unordered, that wait because another entry of their key is being processed."""
NOWHERE: Final = -1
"""The entry is being processed, so it has no place in the order."""


class Priority(IntEnum):
    """Names for some of the priorities 0..255. The smallest is worked on first."""

    NOW = 0
    IMPORTANT = 10
    NEW = 20
    RESET = 50
    UPDATES = 180
    SLOW = 200
    REVIEW = 230
    TIME_ALLOWS = 255


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a work journal. Dates are microseconds since 1970; 0 means never, or not yet.

    In an answer of `get` or `entries` a key or data that cannot be decoded is empty; a claim has no such entry.
    """

    id: int
    key: dict[str, Any]
    data: dict[str, Any]
    version: int
    priority: int
    insertion_date: int
    revised_date: int
    process_date: int
    expiration_date: int
    status: Status
    start_date: int
    claimed_date: int
    retry_date: int
    timeout_counter: int
    fence: int
    owner: str


class EntryDraft(NamedTuple):
    """An add, checked except for what needs the database's clock. Dates: None is now, 0 is never."""

    key: bytes
    hash: bytes
    data: bytes
    version: int
    priority: int
    insertion_date: int | None
    process_date: int | None
    expiration_date: int
    number: int = 0
    """The number of its data if that data is stored already, else 0."""
    delay: int = 0
    """Microseconds from now until its process date. Used if no process date is given."""
    add_id: bytes | None = None
    """The id of the add, 16 bytes. Adds with the same id are stored once."""


class EntryRow(NamedTuple):
    """An entry as the tables have it: what is written once, what claims change, and where it stands in the order."""

    slot: int
    id: int
    number: int
    """The number of its data: drawn whenever data is stored."""
    hash: bytes
    key: bytes
    version: int
    priority: int
    process_date: int
    insertion_date: int
    revised_date: int
    expiration_date: int
    first_start: int
    """The start date of the last claim before this row was written. Merges keep it."""
    size: int
    """Bytes of its data."""
    # What claims change; nothing of it is stored before the first claim (fence 0).
    status: str = WAITING
    fence: int = 0
    owner: str = ""
    start_date: int = 0
    claimed_date: int = 0
    beat: int = 0
    """Claim or last heartbeat, by the clock of leases."""
    lease: int = 0
    counter: int = 0
    retry_date: int = 0
    data: bytes | None = None
    """The encoded data; None if the query did not ask for data."""
    place: int = READY

    @property
    def date(self) -> int:
        """The date from which on the entry is due."""
        return self.retry_date or self.process_date

    @property
    def started(self) -> int:
        return self.start_date or self.first_start

    @property
    def mark(self) -> int:
        """64 bits of the key's hash, by which entries that wait behind this one are found."""
        return mark_of(self.hash)

    @property
    def position(self) -> tuple[int, int, int]:
        """Its key in the order: place, priority, date."""
        if self.place == READY:
            return READY, self.priority, self.retry_date or self.process_date
        return (SOON, 0, self.date) if self.place == SOON else (BEHIND, 0, self.mark)


def mark_of(hash_: bytes) -> int:
    """64 bits of a key's hash, as a number that databases can hold."""
    return int.from_bytes(hash_[:8], "big", signed=True)


class Added(NamedTuple):
    """The outcome of an add."""

    outcome: Outcome
    id: int
    """The id of the entry that holds the add; for `repeated`, of the entry that got the first add with the same id."""


class DeadLetter(NamedTuple):
    """An entry that failed too often or cannot be decoded. If it cannot be decoded, `key` and `data` are None."""

    dead_id: int
    id: int
    key: dict[str, Any] | None
    data: dict[str, Any] | None
    version: int
    priority: int
    insertion_date: int
    revised_date: int
    expiration_date: int
    timeout_counter: int
    reason: str
    owner: str
    date: int
    acknowledged: bool


class EntryCounts(NamedTuple):
    """Numbers of entries. `oldest_due_s` is the age of the entry that has been due for longest."""

    due: int
    later: int
    behind: int
    running: int
    dead: int
    unacknowledged: int
    oldest_due_s: float
    paused: str | None = None
    """The reason for the pause; None if the journal is not paused."""


class EntryTable(NamedTuple):
    """A short-lived table of entries."""

    name: str
    state: str
    opened_date: int
    closed_date: int
    entries: int
    bytes: int
