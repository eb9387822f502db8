"""The answers of a Journal's methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from strandline.values.events import RecordedEvent
from strandline.values.keys import Key


class Keep(Enum):
    """The type of KEEP: leave the expiry as it is."""

    KEEP = "keep"


KEEP = Keep.KEEP


class Appended(NamedTuple):
    """The events are durable. first, last and timestamp are None where no verdict was asked for or came in time."""

    key: Key
    first: int | None
    last: int | None
    partition: int
    offset: int
    timestamp: int | None
    duplicate: bool = False


class Deleted(NamedTuple):
    """Events up to `delete_to` are gone for every reader."""

    delete_to: int
    partition: int
    offset: int


class Purged(NamedTuple):
    """The journal is gone for every reader."""

    partition: int
    offset: int
    life: int | None
    """The life of the key that the purge ended; None if there was no journal."""


class Marked(NamedTuple):
    """The place of a Mark in the log, and its timestamp."""

    id: str
    partition: int
    offset: int
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state that the user saved."""

    key: Key
    life: int
    seq_nr: int
    timestamp: int
    state: Any


@dataclass(frozen=True, slots=True)
class Recovery:
    """A snapshot and the events after it, both as of one moment: else asking for the events raises `ReadConflict`."""

    snapshot: Snapshot | None
    events: Iterator[RecordedEvent]
