"""The numbers that a log which folds by itself writes beside each record, and the checks and repairs that use them.

    life, first, last    an append, and the numbers that its events got
    life, -, last        a delete, and the key's `delete_to` after it
    life, -, -           a purge, and the life that it ended
    -, -, -              what changed nothing; and every record of a log that does not fold

A later fold of the record must come to the same numbers. If the header can no longer be read, they salvage the action:
events of an append are there, but damaged; deleted or purged events are gone.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from strandline.errors import Corrupt
from strandline.fold import Effect, EventsAppended, LifePurged, PassedOver
from strandline.record import Record
from strandline.values.actions import NO_EXPIRY, Append, Delete, Purge
from strandline.values.heads import Head, State
from strandline.values.keys import is_key

EVENTS_MAX: Final = 10_000
"""The greatest number of events that an append can have."""
NO_DIGEST: Final = "0" * 32
"""A digest that no value has, so that no value is taken for what was appended."""

Numbers = tuple[int | None, int | None, int | None]


def numbers_of(before: State, after: State, effect: Effect) -> Numbers:
    """Return life, first and last, as they stand beside a record that had this effect."""
    if type(effect) is EventsAppended:
        first, last, _, life = effect
        return life, first, last
    if type(effect) is LifePurged:
        return effect.life, None, None
    if type(after) is Head and after is not before:
        return after.life, None, after.delete_to
    return None, None, None


def check_numbers(record: Record, before: State, after: State, effect: Effect) -> None:
    """Raise `Corrupt.fold` if a fold comes to other numbers than those beside the record."""
    if record[6:] == numbers_of(before, after, effect) or type(effect) is PassedOver:
        return
    partition, offset, _, key, _, _, life, first, last = record
    raise Corrupt(
        f"partition {partition}, offset {offset}: the log numbered {key} {first}..{last} in life {life}, "
        f"the fold on the store's head says {effect}",
        code="fold",
        hint="log and store do not belong together, or one was changed by hand; restore both from one backup",
        partition=partition,
        offset=offset,
        key=key,
    )


def salvaged_action(record: Record) -> Append | Delete | Purge | None:
    """Return the action of a record whose header cannot be read; None if no numbers stand beside it."""
    partition, offset, _, key, _, _, life, first, last = record
    if life is None or key is None or not is_key(key):
        return None
    if first is not None:
        return None if last is None or last < first else salvaged_append(key, partition, offset, first, last)
    return Purge(key) if last is None else Delete(key, last)


def salvaged_append(key: str, partition: int, offset: int, first: int, last: int) -> Append | None:
    """Return an append of which only the numbers are known: events without type, tags and readable value.

    Its id is unknown, so it gets a made one, the same for every reader. It may have lifted the key's expiry, so the key
    has none after it: a journal that stays too long can be purged, one that was purged too early is gone.
    """
    if not 0 < first <= last < first + EVENTS_MAX:
        return None
    append_id = blake2b(b"%d %d" % (partition, offset), digest_size=16, person=b"no header").hexdigest()
    return Append(key, (("", ()),) * (last - first + 1), append_id, False, NO_DIGEST, first, None, NO_EXPIRY)
