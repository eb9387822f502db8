"""The unreplicated tail of the log, as one key sees it: folded by headers alone, its events not yet taken apart.

Pure: records in, events out. Searching a tail for a Delete or a Purge decodes no value; touching a payload decodes the
value of its append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from strandline.fold import Effect, EventsAppended, FoldRules, LifePurged, fold
from strandline.log.cursor import PAGE_BYTES
from strandline.points import reached
from strandline.record import BadHeader, BadValue, Content, Record, decode_header, read_contents
from strandline.record_numbers import check_numbers, salvaged_action
from strandline.rows import DAMAGED_FORMS, damaged_contents, event_cells, life_of
from strandline.values.actions import Action, Append, Place
from strandline.values.events import Life, RecordedEvent
from strandline.values.heads import SEQ_NR_MAX, State
from strandline.values.payloads import BYTES, JSON
from strandline.values.tuples import new_tuple

EVENT_OVERHEAD_BYTES: Final = 512
"""About how many bytes an event in the buffer takes beside its value."""
HEADER_REMEMBERED_BYTES_MAX: Final = 1024
_remembered_header = lru_cache(maxsize=4096)(decode_header)


class Piece:
    """An append of the tail that the fold accepted. Its value is read when one of its events is touched."""

    __slots__ = ("_action", "_cells", "_contents", "_place", "_value", "effect")

    def __init__(self, action: Append, place: Place, effect: EventsAppended, value: bytes | None) -> None:
        self._action, self._place, self._value = action, place, value
        self.effect = effect
        self._contents: Sequence[Content] | None = None
        self._cells: list[Any] | None = None

    def contents(self) -> Sequence[Content]:
        """Return the verified contents of each event; without payload where the value cannot be read."""
        if self._contents is None:
            try:
                self._contents = read_contents(self._action, self._value)
            except BadValue as bad:
                self._contents = damaged_contents(len(self._action.events), DAMAGED_FORMS[bad.reason])
        return self._contents

    def cells(self) -> list[Any]:
        """Return the events as the pipeline will write them."""
        if self._cells is None:
            self._cells = event_cells(self._action, self._place, self.effect, self.contents())
        return self._cells


class TailEvent(RecordedEvent):
    """An event that is not in the store yet. It is packed only if more than its numbers and payload is asked for."""

    __slots__ = ("_index", "_piece")

    def __init__(self, life: Life, piece: Piece, index: int) -> None:
        self._life, self._piece, self._index = life, piece, index

    @property
    def _cells(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self._piece.cells()[self._index]  # type: ignore[no-any-return]

    @property
    def seq_nr(self) -> int:
        return self._piece.effect.first + self._index

    @property
    def prev_seq_nr(self) -> int:
        return self.seq_nr - 1 if self._index else self._piece.effect.prev

    @property
    def payload(self) -> Any:
        form, data, _ = self._piece.contents()[self._index]
        if form == BYTES:
            return data
        return self._loaded(data) if form == JSON else super().payload


class KeyTail:
    """Folds the tail of one key, record by record or in pages.

    `state` is the key's state after it; `place` and `effect` are those of its last action. `events` are those that it
    appended to the state's life in from_..to, also deleted ones, as many as the buffer holds; where it overflowed,
    `resume` says after which offset and timestamp, and on which state, to fold them again.
    """

    __slots__ = (
        "_bytes_max", "_free", "_from", "_rules", "_to", "effect", "events", "key", "place", "resume", "state",
    )  # fmt: skip

    def __init__(
        self, key: str, state: State, rules: FoldRules, *, from_: int = 1, to: int = SEQ_NR_MAX, bytes_max: int
    ) -> None:
        self.key, self._rules = key, rules
        self._from, self._to = from_, to
        self._bytes_max = self._free = bytes_max
        self.state = state
        self.place: Place | None = None
        self.effect: Effect = None
        self.events: list[TailEvent] = []
        self.resume: tuple[int, int, State] | None = None

    def add(self, records: Iterable[Record]) -> None:
        """Fold the key's own records. Records of other keys and foreign records are passed over.

        Where a record's header is broken, the fold takes what the log wrote beside it. `SchemaMismatch.version` for a
        record of a newer version: this program cannot say what it means.
        """
        key, state, rules = self.key, self.state, self._rules
        for record in records:
            partition, offset, timestamp, whose, header, value, life, _, _ = record
            if whose != key:
                continue
            try:
                # A tail is read again and again until it is carried: its headers are decoded once.
                small = header is not None and len(header) <= HEADER_REMEMBERED_BYTES_MAX
                action: Action | None = _remembered_header(header) if small else decode_header(header)
            except BadHeader:
                action = None
            if action is None or action.key != key:
                action = salvaged_action(record)
                if action is None:
                    continue
            place = self.place = new_tuple(Place, (partition, offset, timestamp))
            before = state
            state, effect = fold(before, action, place, rules)
            self.effect = effect
            if life is not None:
                check_numbers(record, before, state, effect)
            if type(effect) is EventsAppended and type(action) is Append:
                if self.resume is None and effect.last >= self._from and effect.first <= self._to:
                    self._keep(action, place, effect, value, before)
            elif type(effect) is LifePurged:
                self._forget()
        self.state = state

    def _forget(self) -> None:
        """Drop the events, because their life has ended."""
        reached("tail.life_ended")
        self.events.clear()
        self._free, self.resume = self._bytes_max, None

    def _keep(self, action: Append, place: Place, effect: EventsAppended, value: bytes | None, before: State) -> None:
        self._free -= _size(action, value)
        if self._free < 0:
            reached("tail.buffer_full")
            self.resume = place.offset - 1, place.timestamp - 1, before
            return
        self._hold(action, place, effect, value)

    def _hold(self, action: Append, place: Place, effect: EventsAppended, value: bytes | None) -> None:
        life, piece = life_of(self.key, effect.life), Piece(action, place, effect, value)
        start, stop = max(0, self._from - effect.first), min(len(action.events), self._to - effect.first + 1)
        for index in range(start, stop):
            self.events.append(TailEvent(life, piece, index))


class Stretch(NamedTuple):
    """A part of the tail that is folded again: after which offset and timestamp, on which state, from which number."""

    after: int
    timestamp: int
    state: State
    first: int


class BackwardTail(KeyTail):
    """Folds the tail for a read of the last `most` events: `events` are the last that the buffer holds.

    `stretches` cut the tail into parts that are no larger than the buffer, or than a page of the log. Parts that
    are not held any more are folded again, the last one first, so that each record is read twice at most.
    """

    __slots__ = ("_held", "_most", "_room", "stretches")

    def __init__(
        self, key: str, state: State, rules: FoldRules, *, from_: int, to: int, bytes_max: int, most: int
    ) -> None:
        super().__init__(key, state, rules, from_=from_, to=to, bytes_max=bytes_max)
        self._most = most
        self._held: deque[tuple[int, int]] = deque()  # of each append its size, and how many of its events
        self._room = -1
        self.stretches: list[Stretch] = []

    def _forget(self) -> None:
        super()._forget()
        self._held.clear()
        self.stretches.clear()
        self._room = -1

    def _keep(self, action: Append, place: Place, effect: EventsAppended, value: bytes | None, before: State) -> None:
        size, count = _size(action, value), len(self.events)
        self._room -= size
        if self._room < 0:
            self.stretches.append(Stretch(place.offset - 1, place.timestamp - 1, before, effect.first))
            self._room = max(self._bytes_max, PAGE_BYTES) - size
        self._free -= size
        self._hold(action, place, effect, value)
        self._held.append((size, len(self.events) - count))
        while self._held and (self._free < 0 or len(self.events) - self._held[0][1] >= self._most):
            reached("tail.oldest_let_go")
            size, count = self._held.popleft()
            self._free += size
            del self.events[:count]


def _size(action: Append, value: bytes | None) -> int:
    """Return the size of an append's events in the buffer."""
    return len(value or b"") + EVENT_OVERHEAD_BYTES * len(action.events)
