"""Reads a key as the specification's read plan says: store rows up to the stored head, then the tape's tail.

Written from the text, on `look` and `page` alone, so that a store can be judged at any moment of a carry.
"""

from __future__ import annotations

from strandline.carry.range import decode
from strandline.fold import EventsAppended, FoldRules, fold
from strandline.store.api import Store
from strandline.store.scans import look_at
from strandline.testing.tape import Tape
from strandline.values.actions import Place
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import key_partition

Numbers = list[tuple[int, int]]


def read(store: Store, tape: Tape, key: str) -> tuple[State, Numbers]:
    """The state at the end of the tape, and (seq_nr, prev_seq_nr) of each event, found as a reader would."""
    partition = key_partition(key, tape.partitions)
    pointer, stored = look_at(store, key, partition)
    state, tail = _fold(tape, key, stored, pointer.offset, store.settings.segment_size)
    if not isinstance(state, Head):
        return state, []
    found: Numbers = []
    if isinstance(stored, Head) and stored.life == state.life:
        rows = store.page(
            key, state.life, state.segment_size, from_=state.delete_to + 1, to=stored.seq_nr, limit=SEQ_NR_MAX
        ).rows
        found += [(cells[0], cells[1]) for cells in rows]
    last = found[-1][0] if found else state.delete_to
    found += [event for life, event in tail if life == state.life and event[0] > last]
    return state, found


def expected(tape: Tape, key: str, segment_size: int) -> tuple[State, Numbers]:
    """The same, from the tape alone."""
    state, made = _fold(tape, key, None, -1, segment_size)
    if not isinstance(state, Head):
        return state, []
    return state, [event for life, event in made if life == state.life and event[0] > state.delete_to]


def _fold(
    tape: Tape, key: str, state: State, after: int, segment_size: int
) -> tuple[State, list[tuple[int, tuple[int, int]]]]:
    made = []
    past = tape.records[key_partition(key, tape.partitions)]
    decoded, _ = decode([record for record in past if record.key == key and record.offset > after], tape.partitions)
    for record, action, _reason in decoded:
        if action is None:
            continue
        place = Place(record.partition, record.offset, record.timestamp)
        state, effect = fold(state, action, place, FoldRules(segment_size, 32))
        if isinstance(effect, EventsAppended):
            prev = effect.prev
            for seq_nr in range(effect.first, effect.last + 1):
                made.append((effect.life, (seq_nr, prev)))
                prev = seq_nr
    return state, made
