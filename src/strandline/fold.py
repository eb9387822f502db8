"""The fold: state + action -> new state + effect. The only place that knows what an action means.

Pure: no clock, no input or output, no payload. Log, reader, replicator and replay use no other, so all of them decide
alike. Rows are tried from the top:

    action  when                                          new state                 effect
    any     at or below the state's offset                as it was                 PASSED_OVER
    Mark                                                  as it was                 None
    Append  id remembered, same content                   as it was                 Duplicate
            id remembered, other content                  as it was                 Refused append_id_reused
            `expected` is not the seq_nr (0: no head)     as it was                 Refused expected
            head, and `first` not above the last number   as it was                 Refused first
            past 2^63-1, or a gap of over 100 segments    as it was                 Refused seq_nr_range
            no head                                       a new life from `first`   EventsAppended
            head                                          seq_nr moves              EventsAppended
    Delete  for another life                              as it was                 None
            no head                                       stands at `to`            None
            head                                          delete_to moves           EventsDeleted
    Purge   no head, or not at `if_offset`                as it was                 None
            head                                          Ended                     LifePurged
"""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.values.actions import KEEP_EXPIRY, NO_EXPIRY, Action, Append, Delete, Mark, Place, Purge
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head, Remembered, State
from strandline.values.tuples import new_tuple

FOLD_VERSION: Final = 1
EMPTY_SEGMENTS_MAX: Final = 100


class FoldRules(NamedTuple):
    """The rules that creation fixed: every fold of a log's actions uses the same."""

    segment_size: int
    """The segment size of new heads; existing heads keep their own."""
    append_ids_kept: int
    """How many ids that callers gave a head remembers."""


class PassedOver(NamedTuple):
    """The state already has this action in it."""


class EventsAppended(NamedTuple):
    """These numbers were given. `prev` is the number of the event before `first`."""

    first: int
    last: int
    prev: int
    life: int


class Duplicate(NamedTuple):
    """An append that was accepted before."""

    answer: Remembered
    life: int


class RefusedAppend(NamedTuple):
    """The append is not accepted; `actual` is the seq_nr found (0: no head)."""

    code: str
    actual: int


class EventsDeleted(NamedTuple):
    """Events `from_`..`to` of this life are gone (an empty range if nothing more was)."""

    life: int
    from_: int
    to: int


class LifePurged(NamedTuple):
    """Everything of this life is gone, its events up to `to`."""

    life: int
    to: int


PASSED_OVER: Final = PassedOver()
Effect = PassedOver | EventsAppended | Duplicate | RefusedAppend | EventsDeleted | LifePurged | None


def fold(state: State, action: Action, place: Place, rules: FoldRules) -> tuple[State, Effect]:
    """Apply one action."""
    if state is not None and place.offset <= state.offset:
        return state, PASSED_OVER
    if isinstance(action, Append):
        return _append(state, action, place, rules)
    if isinstance(action, Mark):
        return state, None
    if isinstance(action, Delete):
        return _delete(state, action, place, rules)
    return _purge(state, action, place)


def _append(state: State, action: Append, place: Place, rules: FoldRules) -> tuple[State, Effect]:
    # Taken apart at once: asking a named tuple for each of its fields takes longer than all the rest.
    _, events, append_id, id_given, digest, first, expected, new_expiry_us, _ = action
    partition, offset, timestamp = place
    if type(state) is Head:
        (seq_nr, delete_to, life, _, _, created, _, expire_after_us, _, segment_size, archive_to, prev, _, given,
         generated) = state  # fmt: skip
        if answer := remembered(given, generated, append_id):
            same = answer.digest == digest
            return state, Duplicate(answer, life) if same else RefusedAppend("append_id_reused", seq_nr)
    else:
        life, segment_size = state.life + 1 if state else 1, rules.segment_size
        seq_nr, delete_to, prev, created, archive_to, given, generated = 0, 0, 0, timestamp, 0, (), None
        expire_after_us = None
    if expected is not None and expected != seq_nr:
        return state, RefusedAppend("expected", seq_nr)
    last = max(seq_nr, delete_to)
    if first is None:
        first = last + 1
    elif type(state) is not Head:
        prev = delete_to = first - 1
    elif first <= last:
        return state, RefusedAppend("first", seq_nr)
    elif segment_of(first, segment_size) - segment_of(last, segment_size) - 1 > EMPTY_SEGMENTS_MAX:
        return state, RefusedAppend("seq_nr_range", seq_nr)
    end = first + len(events) - 1
    if end > SEQ_NR_MAX:
        return state, RefusedAppend("seq_nr_range", seq_nr)
    accepted = new_tuple(Remembered, (append_id, digest, first, end, offset, timestamp))
    if id_given:
        given = (*given, accepted)[-rules.append_ids_kept :]
    else:
        generated = accepted
    if new_expiry_us != KEEP_EXPIRY:
        expire_after_us = None if new_expiry_us == NO_EXPIRY else new_expiry_us
    head = new_tuple(Head, (
        end, delete_to, life, partition, offset, created, timestamp, expire_after_us,
        None if expire_after_us is None else timestamp + expire_after_us, segment_size, archive_to, end, delete_to,
        given, generated,
    ))  # fmt: skip
    return head, new_tuple(EventsAppended, (first, end, prev, life))


def extended(head: Head, ids: tuple[bytes, ...], digest: str, place: Place) -> Head | None:
    """Return the head after more plain appends: as `fold` leaves it when they come one after the other.

    Plain: one event, a generated id, and nothing else said. `ids` begin with that of the append that `head` comes from;
    `digest` and `place` are the last one's. None if one of them may be a repeat or has no number left: ask `fold`.
    """
    seq_nr = head.seq_nr + len(ids) - 1
    if head.given or len(set(ids)) < len(ids) or seq_nr > SEQ_NR_MAX:
        return None
    (_, delete_to, life, partition, _, created, _, expire_after_us, _, segment_size, archive_to, _, removed_to, given,
     _) = head  # fmt: skip
    _, offset, timestamp = place
    return new_tuple(Head, (
        seq_nr, delete_to, life, partition, offset, created, timestamp, expire_after_us,
        None if expire_after_us is None else timestamp + expire_after_us, segment_size, archive_to, seq_nr, removed_to,
        given, new_tuple(Remembered, (ids[-1].hex(), digest, seq_nr, seq_nr, offset, timestamp)),
    ))  # fmt: skip


def _delete(state: State, action: Delete, place: Place, rules: FoldRules) -> tuple[State, Effect]:
    head = state if isinstance(state, Head) else None
    if action.life is not None and (head is None or head.life != action.life):
        return state, None
    if head is None:
        life = state.life + 1 if state else 1
        new = _new_head(place, life=life, seq_nr=action.to, delete_to=action.to, segment_size=rules.segment_size)
        return new, None
    delete_to = max(head.delete_to, min(action.to, head.seq_nr))
    moved = head._replace(
        delete_to=delete_to, removed_to=delete_to, partition=place.partition, offset=place.offset,
        updated=place.timestamp,
    )  # fmt: skip
    return moved, EventsDeleted(head.life, head.removed_to + 1, delete_to)


def _purge(state: State, action: Purge, place: Place) -> tuple[State, Effect]:
    if not isinstance(state, Head) or (action.if_offset is not None and action.if_offset != state.offset):
        return state, None
    return EndedLife(state.life, place.partition, place.offset), LifePurged(
        state.life, max(state.seq_nr, state.delete_to)
    )


def _new_head(place: Place, *, life: int, seq_nr: int, delete_to: int, segment_size: int) -> Head:
    partition, offset, timestamp = place
    return new_tuple(Head, (
        seq_nr, delete_to, life, partition, offset, timestamp, timestamp, None, None, segment_size, 0, seq_nr,
        delete_to, (), None,
    ))  # fmt: skip


def remembered(given: tuple[Remembered, ...], generated: Remembered | None, append_id: str) -> Remembered | None:
    """Return the append of this id, if it is one of those that a head remembers."""
    if generated is not None and generated[0] == append_id:
        return generated
    for answer in given:
        if answer[0] == append_id:
            return answer
    return None


def segment_of(seq_nr: int, segment_size: int) -> int:
    """Return the segment of an event, from 0."""
    return (seq_nr - 1) // segment_size
