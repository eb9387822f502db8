"""Rows that a repair or rebuild put back: what a range had passed without them becomes a dead letter.

    list of `repaired` ──the pointers tell of new numbers──▶ entries of this range ──its position has passed──▶ judged

Each partition has its list, which grows at its end. A range judges its entries in their order, each once it has passed
the entry's place: what the key row does not show as done was missed, and leaves a dead letter, in the transaction that
saves the number. A parked key gets its events by `unpark`. Where the key row may have been forgotten nobody can tell:
the letter says so. While no number is new, nothing is asked of the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from strandline.projection.definition import ByTag
from strandline.projection.delivery import Delivery
from strandline.projection.offsets import KeyRows
from strandline.projection.range_reader import RangeReader
from strandline.projection.range_state import RangeState
from strandline.query.pointer_watch import PointerWatch
from strandline.rows import Pointer
from strandline.store.scans import put_back
from strandline.store.tables import RepairedRow
from strandline.values.keys import slice_of

AT_ONCE: Final = 500
MISSED: Final = "put back after its place was passed: redeliver hands it over, discard forgets it"
PERHAPS_DONE: Final = (
    "perhaps done: put back where nothing is remembered of its key; redeliver may repeat it, discard forgets it"
)


class RepairedEvent(NamedTuple):
    """An event that was put back, under the number that the source counts by."""

    number: int
    key: str
    life: int
    seq_nr: int
    timestamp: int


class RepairedEntries:
    """What a range has to judge, partition by partition."""

    def __init__(self, state: RangeState, delivery: Delivery, reader: RangeReader, watch: PointerWatch) -> None:
        self._state, self._delivery, self._slices, self._watch = state, delivery, reader.slices, watch
        self._pointers: Sequence[Pointer] = ()
        self._judged: dict[int, int] | None = None
        self.heard: dict[int, int] = {}
        """Up to which number the list of each partition was read."""
        self._waiting: dict[int, deque[RepairedEvent]] = {}

    def judge(self) -> None:
        """Judge all that the range has passed."""
        state = self._state
        pointers = self._watch.within(state.settings.refresh_interval_s)
        if state.judged is not self._judged:  # loaded anew
            self._judged, self.heard, self._waiting = state.judged, dict(state.judged), {}
        elif pointers is self._pointers and not self._waiting:
            return
        self._pointers = pointers
        for partition in self._slices.partitions:
            newest = pointers[partition].repaired
            while not state.interrupted and self._next(partition, newest):
                pass

    def _next(self, partition: int, newest: int) -> bool:
        """Read or judge the next entries of a partition; False if there is nothing to do now."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            if newest <= self.heard.get(partition, 0):
                return False
            waiting = self._waiting[partition] = self._read(partition, newest)
        passed = self._passed(waiting)
        if passed:
            self._judge(partition, passed)
        elif waiting:
            return False
        if not waiting:
            del self._waiting[partition]
        return True

    def _read(self, partition: int, newest: int) -> deque[RepairedEvent]:
        """The next page of a partition's list: those that concern this range."""
        rows = put_back(self._slices.store, partition, after=self.heard.get(partition, 0), to=newest, limit=AT_ONCE)
        self.heard[partition] = rows[-1].number if len(rows) == AT_ONCE else newest
        mine = deque(entry for row in rows if (entry := self._mine(row)) is not None)
        if not mine:
            self._state.judged[partition] = self.heard[partition]
        return mine

    def _mine(self, row: RepairedRow) -> RepairedEvent | None:
        projection, source = self._state.claim.projection, self._state.projection.source
        if row.timestamp <= projection.start:
            return None
        if isinstance(source, ByTag):
            if row.tag != source.tag or row.tag_seq_nr is None:
                return None
            return RepairedEvent(row.number, row.key, row.life, row.tag_seq_nr, row.timestamp)
        if row.tag is not None or slice_of(row.key) not in self._slices.range:
            return None
        if row.key.partition("|")[0] != source.entity_type:
            return None
        return RepairedEvent(row.number, row.key, row.life, row.seq_nr, row.timestamp)

    def _passed(self, waiting: deque[RepairedEvent]) -> list[RepairedEvent]:
        """Those at the front whose places the range has passed."""
        reached, passed = self._state.reached, []
        for entry in waiting:
            if entry.timestamp > reached:
                break
            passed.append(entry)
        return passed

    def _judge(self, partition: int, passed: Sequence[RepairedEvent]) -> None:
        state, waiting = self._state, self._waiting[partition]
        reached = state.reached
        self._delivery.deliver(reached)  # what is in hand may be one of them
        found = state.store.key_rows(state.claim.projection, list({entry.key for entry in passed}))
        now, id_ = state.store.database.now_us(), state.claim.projection.id
        letters: list[tuple[Any, ...]] = []
        for entry in passed:
            said = _said(entry, found)
            if said is not None:
                place = (id_, entry.key, entry.life, entry.seq_nr, slice_of(entry.key), entry.timestamp)
                letters.append((*place, now, said))
        rest = waiting[len(passed)].number - 1 if len(waiting) > len(passed) else self.heard[partition]
        state.judged[partition] = rest
        if letters:
            state.counts["repaired"] += len(letters)
            state.save((), reached, also=lambda tx: tx.each("add_repaired_letter", letters))
        for _ in passed:
            waiting.popleft()


def _said(entry: RepairedEvent, found: KeyRows) -> str | None:
    """What its dead letter says; None if it needs none."""
    row = found.rows.get(entry.key)
    if row is None:
        return PERHAPS_DONE if entry.timestamp <= found.line else MISSED
    if (row.life, row.seq_nr) >= (entry.life, entry.seq_nr):
        return None
    return None if row.parked is not None and row.life == entry.life else MISSED
