"""The offsets of a range: its position, those of its slices, and the last event done of each key.

A position p says that everything at or below it is done. It never stands at a time that has an event not done: a save
in the middle of time t saves t - 1, and key rows remember the events of t that are done. Memory has the rows of recent
keys (`KeyMemory`). It keeps all rows that are not saved yet, or that the current page needs. The line says up to which
time rows may be missing: it is read with the rows, in one moment, for one page, and never remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.query.acceptance import Acceptance, Candidate, Last, Place, StoreFacts, Way, end_of, judge
from strandline.query.key_memory import KeyMemory
from strandline.query.query_row import QueryRow
from strandline.values.keys import slice_of


class KeyRow(NamedTuple):
    """The last event done of a key. `parked` is the time of the event that waits, if one does."""

    slice: int
    key: str
    life: int
    seq_nr: int
    timestamp: int
    parked: int | None = None

    @property
    def last(self) -> Last:
        return Last(self.life, self.seq_nr, self.parked is not None)


class KeyRows(NamedTuple):
    """The rows of some keys in the offset store, and the line, of one moment."""

    rows: dict[str, KeyRow]
    line: int


class RangeOffsets:
    """The offsets of one range, in memory."""

    def __init__(self, position: int, slices: Mapping[int, int], keys_in_memory_max: int) -> None:
        self.position = position
        self._slices = dict(slices)
        self._memory: KeyMemory[KeyRow] = KeyMemory(keys_in_memory_max)
        self._unsaved: dict[str, KeyRow] = {}
        self._lines: dict[str, int] = {}

    def position_of(self, slice_: int) -> int:
        """Return the position of a slice: the greater of its own and its range's."""
        return max(self.position, self._slices.get(slice_, -1)) if self._slices else self.position

    # ------------------------------------------------------------ keys

    def hold(self, keys: Iterable[str]) -> list[str]:
        """Keep the rows of a page's keys in memory until the next page; return the keys that have none there."""
        self._lines = {}
        return [key for key in self._memory.hold(keys) if key not in self._unsaved]

    def load(self, asked: Iterable[str], found: KeyRows) -> None:
        """Add the rows from the offset store of the page's keys that were not in memory."""
        self._lines = dict.fromkeys(asked, found.line)
        for key, row in found.rows.items():
            self._memory[key] = row

    def row(self, key: str) -> KeyRow | None:
        """Return the newest row of a key: unsaved, else remembered."""
        return self._unsaved.get(key) or self._memory.get(key)

    def is_next(self, row: QueryRow) -> bool:
        """Return whether a row, read in order, is surely accepted, as most are. `judge` decides about the others."""
        timestamp, seq_nr, key, life, prev, _, _ = row
        if timestamp <= self.position or self._slices:
            return False
        known = self._unsaved.get(key) or self._memory.young.get(key)
        if known is None:
            return prev == 0 and timestamp > self._lines.get(key, -1)
        return prev <= known.seq_nr < seq_nr and known.life == life and known.parked is None

    def judge(
        self,
        event: Candidate,
        key: str,
        *,
        way: Way = Way.ORDERED,
        strandline: bool = True,
        facts: StoreFacts | None = None,
    ) -> Acceptance:
        """Return whether an event is the next of its key. The key's row must have been loaded before."""
        row = self.row(key)
        return judge(
            event,
            None if row is None else row.last,
            way=way,
            position=self.position_of(slice_of(key)),
            line=self.line(key),
            strandline=strandline,
            facts=facts,
        )

    def line(self, key: str) -> Place:
        """Return the line for a key without a row, as it was when its row was looked for."""
        return end_of(self._lines.get(key, -1))

    def done(self, row: KeyRow) -> None:
        """Note that an event was handled, skipped or parked: not saved yet."""
        self._unsaved[row.key] = row

    # ------------------------------------------------------------ saving

    @property
    def unsaved(self) -> list[KeyRow]:
        """The rows that the next save writes: the last one of each key."""
        return list(self._unsaved.values())

    def saved(self, position: int) -> None:
        """Note that the unsaved rows are saved."""
        for key, row in self._unsaved.items():
            self._memory[key] = row
        self._unsaved.clear()
        self.position = max(self.position, position)

    def undone(self, rows: Iterable[KeyRow] = ()) -> None:
        """Note that the transaction was undone: unsaved rows count as not done, except these."""
        self._unsaved = {row.key: row for row in rows}

    def forget(self, key: str) -> None:
        """Forget the row of a key, because somebody else changed it."""
        self._memory.forget(key)
        self._unsaved.pop(key, None)
