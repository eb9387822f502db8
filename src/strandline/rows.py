"""What a batch of actions writes.

The fold says what an action means. This module says which events result, as *cuts*: per key, a run of appends that a
delete or purge may end. Views (`store/views.py`) say which other rows a cut makes: beside the fold, not in it. A store
without transactions finishes a cut before the next of the same key; one with transactions writes them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import crc32

from strandline.fold import EventsAppended, EventsDeleted, LifePurged
from strandline.record import Content
from strandline.values.actions import Append, Place
from strandline.values.events import DAMAGED_DIGEST, DAMAGED_UNDECODABLE, EventRow, Life, bodies, plain_body
from strandline.values.heads import State
from strandline.values.tuples import new_tuple


class Pointer(NamedTuple):
    """The place up to which a partition is in the store. `offset` -1, `timestamp` 0: nothing yet."""

    partition: int
    offset: int = -1
    timestamp: int = 0
    last_action_at: int = 0
    """The timestamp of the last action that was not a Mark."""
    fence: int = 0
    revision: int = 0
    """Grows with every change of the partition's rows, so that a writer which prepared rows outside the lock can check
    them."""


class QuarantineRow(NamedTuple):
    """A record that is not ours, or whose header or value is damaged, with the reason and its bytes."""

    partition: int
    offset: int
    timestamp: int
    key: str | None
    reason: str
    header: bytes | None
    value: bytes | None
    life: int | None = None
    """Life, first and last number of damaged events; None for records without events."""
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class KeyRun:
    """A run of one key: events, then perhaps their removal. `state` is the key's state after it."""

    key: str
    state: State
    timestamp: int = 0
    """The timestamp of the run's last action, with which a store without transactions writes."""
    events: list[EventRow] = field(default_factory=list)
    ended_by: EventsDeleted | LifePurged | None = None
    before: State = None
    """The state before `ended_by`. Without transactions the run's head is written first: a removal that was killed
    half-way is known by it."""
    tags: Sequence[Sequence[str]] = ()
    """The tags of each event; empty where none has any."""
    view_rows: Mapping[Any, Sequence[Any]] = field(default_factory=dict)
    """The rows that views looked up for the key, by table, as the cuts before this one left them."""
    rows: dict[Any, list[Any]] = field(default_factory=dict)
    """The rows that views make of this run, by table."""


@dataclass(slots=True)
class PartitionBatch:
    """All that one task commits for one partition: in the order of the log, the pointer last."""

    pointer: Pointer
    cuts: list[KeyRun] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)
    """The states of the keys that changed, after the whole batch."""
    quarantine: list[QuarantineRow] = field(default_factory=list)
    actions: int = 0
    events: int = 0


def event_cells(action: Append, place: Place, effect: EventsAppended, contents: Sequence[Content]) -> list[Any]:
    """Return the events of an accepted append, as a reader gets them (`EventCells`, as plain tuples).

    Damaged ones have contents without payload and their own form.
    """
    key, events, append_id, _, _, _, _, _, headers = action
    first, _, prev, life = effect
    id_, seed = bytes.fromhex(append_id), life_of(key, life).seed
    if headers is None and len(events) == 1 and contents[0][2] is None:  # most appends
        ((form, payload, _),) = contents
        body = plain_body(first, prev, place, id_, events[0], form, payload)
        return [(first, prev, body, crc32(body, seed))]
    return bodies(first, prev, place, id_, headers, zip(events, contents, strict=True), seed)


def event_rows(
    action: Append, place: Place, effect: EventsAppended, segment_size: int, contents: Sequence[Content]
) -> list[EventRow]:
    """Return the events of an append as rows of table `journal`."""
    key, number = action.key, effect.life
    partition, _, timestamp = place
    life = life_of(key, number)
    entity_type, slice_ = life.entity_type, life.slice
    rows = []
    for seq_nr, prev, body, digest in event_cells(action, place, effect, contents):
        segment = (seq_nr - 1) // segment_size
        row = (key, number, segment, seq_nr, prev, entity_type, slice_, partition, timestamp, body, digest)
        rows.append(new_tuple(EventRow, row))
    return rows


@lru_cache(maxsize=8192)
def life_of(key: str, number: int) -> Life:
    """Return a life, made once for many events."""
    return Life(key, number)


DAMAGED_FORMS: Final = {"undecodable": DAMAGED_UNDECODABLE, "digest": DAMAGED_DIGEST}
"""The form of events whose value cannot be read, by the reason."""


def damaged_contents(count: int, form: int) -> Sequence[Content]:
    """Contents that stand in for a value that cannot be read."""
    return [Content(form, b"", None)] * count
