"""The read plan: what a key's journal is, and where its events are to be had. Pure: values in, values out.

    mark m        where the log ended when the read began
    pointer p     how far the store is;  h  the store's state of the key, taken after p
    (p, m]        the unreplicated tail, folded on h by headers alone:  H, and the appends accepted in H's life

    H none            nothing to read
    start             max(from_, H.delete_to + 1)
    end               min(to, H.seq_nr)
    from the store    start..h.seq_nr, if H is of h's life
    from the tail     what the tail appended above that

The store may be ahead of p, key by key; the fold passes over what its state already has. Nothing may be shown before
the tail was searched: its last action may be a Delete or a Purge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from strandline.errors import Corrupt
from strandline.fold import Effect, EventsAppended, EventsDeleted, LifePurged, fold
from strandline.record import BadHeader, BadValue, Content, Record, decode_header, read_contents
from strandline.rows import DAMAGED_FORMS, damaged_contents, event_cells
from strandline.values.actions import Append, Place
from strandline.values.heads import SEQ_NR_MAX, Head, State

_new: Final = tuple.__new__  # makes a named tuple in a third of the time that its own constructor takes
EVENT_OVERHEAD_BYTES: Final = 256
"""What an event in the buffer takes beside its value, roughly."""


class Piece(NamedTuple):
    """An append of the tail that the fold accepted."""

    action: Append
    place: Place
    effect: EventsAppended
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.value or b"") + EVENT_OVERHEAD_BYTES * len(self.action.events)

    def cells(self) -> list[Any]:
        """Its events as the carry writes them: damaged ones where the value cannot be read."""
        try:
            contents: Iterable[Content] = read_contents(self.action, self.value)
        except BadValue as bad:
            contents = damaged_contents(len(self.action.events), DAMAGED_FORMS[bad.reason])
        return event_cells(self.action, self.place, self.effect, contents)


class Tail:
    """What the tail of the log does to one key, fed record by record or in pages.

    `state` is the key's state after it. `pieces` are its accepted appends that reach into from_..to, as many as the
    buffer holds; where it overflowed, `resume` says after which offset and on which state to fold them again.
    """

    __slots__ = ("_bytes_max", "_free", "_from", "_key", "_segment_size", "_to", "pieces", "resume", "state")

    def __init__(
        self, key: str, state: State, segment_size: int, *, from_: int = 1, to: int = SEQ_NR_MAX, bytes_max: int
    ) -> None:
        self._key, self._segment_size = key, segment_size
        self._from, self._to = from_, to
        self._bytes_max = self._free = bytes_max
        self.state = state
        self.pieces: deque[Piece] = deque()
        self.resume: tuple[int, State] | None = None

    def add(self, records: Iterable[Record]) -> None:
        """Fold the key's own records. Those of other keys, foreign and broken ones are passed over.

        `SchemaMismatch.version` for one of a newer version: nobody here can say what it means.
        """
        key, state, segment_size = self._key, self.state, self._segment_size
        for record in records:
            partition, offset, timestamp, whose, header, value, life, first, _ = record
            if whose != key:
                continue
            try:
                action = decode_header(header)
            except BadHeader:
                continue
            if action.key != key:
                continue
            place = _new(Place, (partition, offset, timestamp))
            before = state
            state, effect = fold(before, action, place, segment_size)
            if type(effect) is EventsAppended:
                if life is not None and (first != effect.first or life != effect.life):
                    raise _disagreement(record, effect)
                self._keep(_new(Piece, (action, place, effect, value)), before)
            elif type(effect) is EventsDeleted or type(effect) is LifePurged:
                self._drop(effect)
        self.state = state

    def _keep(self, piece: Piece, before: State) -> None:
        first, last, _, _ = piece.effect
        if last < self._from or first > self._to or self.resume is not None:
            return
        self._free -= len(piece.value or b"") + EVENT_OVERHEAD_BYTES * (last - first + 1)
        if self._free >= 0:
            self.pieces.append(piece)
        else:
            self.resume = piece.place.offset - 1, before

    def _drop(self, effect: EventsDeleted | LifePurged) -> None:
        if type(effect) is LifePurged:
            self.pieces.clear()
            self._free, self.resume = self._bytes_max, None
            return
        while self.pieces and self.pieces[0].effect.last <= effect.to:
            gone = self.pieces.popleft()
            if self.resume is None:  # past an overflow nothing is kept, so that what is kept has no holes
                self._free += gone.size


class Plan(NamedTuple):
    """What to read: `start`..`end` of `head`'s life, first what the store has of it (`stored`), then the tail."""

    key: str
    partition: int
    mark: int
    head: Head | None
    stored: Head | None
    """The store's head, if it is of the same life."""
    tail: Tail | None
    start: int
    end: int

    def narrowed(self, from_: int) -> Plan:
        """The same plan for a part of it."""
        return self._replace(start=max(self.start, from_))


def plan(
    key: str, partition: int, mark: int, state: State, tail: Tail | None, *, from_: int = 1, to: int = SEQ_NR_MAX
) -> Plan:
    """The plan from the store's state and the tail folded on it: none where the pointer has passed the mark."""
    final = tail.state if tail is not None else state
    head = final if isinstance(final, Head) else None
    if head is None:
        return Plan(key, partition, mark, None, None, None, from_, 0)
    stored = state if isinstance(state, Head) and state.life == head.life else None
    return Plan(key, partition, mark, head, stored, tail, max(from_, head.delete_to + 1), min(to, head.seq_nr))


def _disagreement(record: Record, effect: Effect) -> Corrupt:
    """A log that folds by itself wrote down the numbers that it gave: they must be the same here."""
    return Corrupt(
        f"partition {record.partition}, offset {record.offset}: the log numbered {record.key} from {record.first} in "
        f"life {record.life}, the fold on the store's head says {effect}",
        code="fold",
        hint="log and store do not belong together, or one was changed by hand; restore both from one backup",
        partition=record.partition,
        offset=record.offset,
        key=record.key,
    )


def chained(rows: Iterable[tuple[Any, ...]], wanted: int) -> tuple[int, int]:
    """The number wanted after these rows, and that of an event which the chain names and which is not here, or 0."""
    for seq_nr, prev, _, _ in rows:
        if not prev < wanted <= seq_nr:
            return wanted, prev
        wanted = seq_nr + 1
    return wanted, 0
