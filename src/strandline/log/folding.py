"""Folds drafts one after the other: into the answer of each, and the records to write."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping, Sequence
from typing import Final, NamedTuple

from strandline.fold import Duplicate, FoldRules, RefusedAppend, fold
from strandline.log.api import ActionDraft, Recorded
from strandline.record import Record
from strandline.record_numbers import numbers_of
from strandline.values.actions import Mark, Place
from strandline.values.heads import State
from strandline.values.tuples import new_tuple

HEAD_DAMAGED: Final = Recorded(None)


class PartitionEnd(NamedTuple):
    """The end of a partition: its newest offset, and that record's timestamp."""

    offset: int
    timestamp: int


class Folded(NamedTuple):
    """The fold of some drafts. Refused ones, duplicates and those with a damaged head are answered, not recorded."""

    answers: list[Recorded]
    records: list[Record]
    changed: dict[str, State]
    """The new states of the keys that have one."""


def known_states(drafts: Sequence[ActionDraft], damaged: Collection[str]) -> dict[str, State]:
    """Return the states of keys with a damaged head that the writers of these drafts know from the store and the
    tail."""
    return {
        key: draft.known.state
        for draft in drafts
        if draft.known is not None and (key := draft.action.key) is not None and key in damaged
    }


def fold_drafts(
    drafts: Sequence[ActionDraft],
    state_of: Callable[[str], State],
    ends: MutableMapping[int, PartitionEnd],
    clock: Callable[[], int],
    rules: FoldRules,
    damaged: Collection[str] = (),
) -> Folded:
    """Fold drafts in their order. The ends of their partitions move on in `ends`.

    `damaged` are keys whose state is unknown: of their actions only Marks are recorded.
    """
    answers: list[Recorded] = []
    records: list[Record] = []
    changed: dict[str, State] = {}
    for partition, action, header, value, _ in drafts:
        if damaged and action.key in damaged and type(action) is not Mark:
            answers.append(HEAD_DAMAGED)
            continue
        offset, timestamp = ends[partition]
        offset, timestamp = offset + 1, max(clock(), timestamp + 1)
        if type(action) is Mark and action.at_least is not None:
            timestamp = max(timestamp, action.at_least)
        place = new_tuple(Place, (partition, offset, timestamp))
        key = action.key
        effect, state = None, None
        life = first = last = None
        if key is not None:
            before = changed[key] if key in changed else state_of(key)
            state, effect = fold(before, action, place, rules)
            if isinstance(effect, (RefusedAppend, Duplicate)):
                answers.append(Recorded(None, True, effect, state))
                continue
            life, first, last = numbers_of(before, state, effect)
            if state is not before:
                changed[key] = state
        records.append(new_tuple(Record, (partition, offset, timestamp, key, header, value, life, first, last)))
        ends[partition] = new_tuple(PartitionEnd, (offset, timestamp))
        answers.append(new_tuple(Recorded, (place, True, effect, state)))
    return Folded(answers, records, changed)
