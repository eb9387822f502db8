"""What tests of queries and projections fill a journal with, and how it gets into the store."""

from __future__ import annotations

from functools import cache
from typing import Any

from strandline import Event, Key
from strandline.connect import Strandline
from strandline.testing import carry
from strandline.values.events import RecordedEvent
from strandline.values.keys import partition_of, slice_of

Told = tuple[str, int, int]


@cache
def key_in(partition: int, partitions: int, entity_type: str = "order", nth: int = 0) -> Key:
    """The n-th of some keys that live in a partition."""
    found = (
        Key(entity_type, str(number))
        for number in range(100_000)
        if partition_of(slice_of(f"{entity_type}|{number}"), partitions) == partition
    )
    for _ in range(nth):
        next(found)
    return next(found)


def put(s: Strandline, key: Key | str, count: int = 1, **how: Any) -> None:
    """Append so many events at once."""
    s.journal.append(key, [Event("Placed", {"n": n}) for n in range(count)], **how)


def carry_all(s: Strandline) -> None:
    """Bring all that is recorded below the strandline."""
    carry(s)


def told(event: RecordedEvent) -> Told:
    """Which event it is."""
    return str(event.key), event.life, event.seq_nr


def order_of(event: RecordedEvent) -> tuple[int, int, bytes]:
    """Its place in the order of a query by slices."""
    return event.timestamp, event.seq_nr, str(event.key).encode()
