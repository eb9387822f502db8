"""Brings a range of a switching generation to exactly where the serving generation stopped. It goes slice by slice, up
to the position of each, and key by key where the other's key rows are above that (`generations`).
"""

from __future__ import annotations

from itertools import islice

from strandline.points import reached
from strandline.projection.delivery import Delivery
from strandline.projection.generations import BoundedSlices, covers
from strandline.projection.offset_store import SWITCHING
from strandline.projection.offsets import KeyRow
from strandline.projection.range_reader import RangeReader
from strandline.projection.range_state import RangeFailed, RangeState
from strandline.query.acceptance import end_of
from strandline.query.slices import missing_event
from strandline.store.scans import look_at
from strandline.values.heads import SEQ_NR_MAX, EndedLife
from strandline.values.keys import key_partition


class HandOver:
    """Brings a range level with the generation whose place it takes, once that one is stopped."""

    def __init__(self, state: RangeState, delivery: Delivery, reader: RangeReader) -> None:
        self._state, self._delivery, self._reader, self._slices = state, delivery, reader, reader.slices
        self.done = False
        """Whether it has done all that the other has."""

    def level(self) -> bool:
        """If the generation switches, hand over what the other has done; return whether there was anything to do."""
        state, slices = self._state, self._slices
        if self.done or state.claim.projection.state != SWITCHING or not isinstance(slices, BoundedSlices):
            return False
        goal = slices.goal()
        if goal is None:
            return False
        position, range_, size = state.offsets.position, slices.range, state.settings.page_size
        rows = slices.rows(end_of(position), max(goal.done[range_.lo : range_.hi + 1]), size)
        while page := list(islice(rows, size)):
            self._reader.hand_over_alone([row for row in page if row.timestamp <= goal.done[row.slice]])
            if state.stop.is_set():
                return True
        if [theirs for theirs in goal.keys if not self._level_key(theirs)]:
            return False  # the pipeline has not carried all of it yet
        reached("projection.levelled")
        further = [slice_ for slice_ in range(range_.lo, range_.hi + 1) if goal.done[slice_] > position]
        state.save((), position, rows=[KeyRow(slice_, "", 0, 0, goal.done[slice_]) for slice_ in further])
        state.load()
        self.done = True
        return True

    def _level_key(self, theirs: KeyRow) -> bool:
        """Hand over a key's events up to one; False if it is not in the store yet."""
        state, store, key = self._state, self._slices.store, theirs.key
        mine = state.saved_key_row(key)
        if covers(mine, theirs):
            return True
        _, found = look_at(store, key, key_partition(key, store.settings.partitions))
        if (
            found is None
            or (found.life, SEQ_NR_MAX if isinstance(found, EndedLife) else found.seq_nr) < theirs.last[:2]
        ):
            return False
        first = mine.seq_nr + 1 if mine is not None and mine.life == theirs.life else 1
        rows = list(self._slices.of_key(key, theirs.life, first, theirs.seq_nr))
        if rows:
            reached("projection.levelled_key_by_key")
            state.offsets.forget(key)
            state.load_key_rows(rows[-1:])
            known = state.offsets.row(key)
            looked = self._slices.look_back(rows[-1], None if known is None else known.last, state.offsets.line(key))
            if looked.missing is not None:
                raise RangeFailed(rows[-1], missing_event(key, looked.missing, None))
            for each in looked.rows:
                self._reader.accept(each, out_of_order=True)
            self._delivery.deliver()
        if not covers(state.saved_key_row(key), theirs):  # events that were deleted since need not be handed over
            state.save((), state.offsets.position, rows=[theirs._replace(parked=None)])
            state.offsets.forget(key)
        return True
