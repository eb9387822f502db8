"""What a journal and its queries should say, from `docs/spec`: each key is the list of what was ever accepted for it.

Every question (what does a read show, which ids are remembered, what has the store) is answered by going through that
list from its beginning, up to some place of the log. Slow and plain, and it shares no code with the product.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

EVERYTHING = 2**62


def partition_of(key: str, partitions: int) -> int:
    """J4."""
    return crc32(key.encode()) % 1024 * partitions // 1024


class Event(NamedTuple):
    """An event as a reader sees it."""

    key: str
    life: int
    seq_nr: int
    prev: int
    payload: Any
    type: str
    tags: tuple[str, ...]
    offset: int
    timestamp: int

    @property
    def slice_place(self) -> tuple[int, int, bytes]:
        """P4: the order of a query by slices."""
        return self.timestamp, self.seq_nr, self.key.encode()

    @property
    def tag_place(self) -> tuple[int, bytes, int]:
        """T43: the order of a query by tag."""
        return self.timestamp, self.key.encode(), self.seq_nr


class Action(NamedTuple):
    """Something that the log took and that changed a key."""

    what: str  # append, delete, reset, purge
    offset: int
    timestamp: int
    to: int = 0
    first: int | None = None
    events: tuple[tuple[Any, str, tuple[str, ...]], ...] = ()  # payload, type, tags
    append_id: str | None = None


@dataclass
class Life:
    """A key from its first append, or reset, to its purge."""

    number: int
    seq_nr: int
    delete_to: int
    events: list[Event] = field(default_factory=list)
    """Those that are still there."""
    all: list[Event] = field(default_factory=list)
    """Deleted ones too."""
    ids: list[tuple[str, Any, int, int, int]] = field(default_factory=list)
    """Of appends with an id: id, content, first, last, offset."""

    def copy(self) -> Life:
        return Life(self.number, self.seq_nr, self.delete_to, [*self.events], [*self.all], [*self.ids])


@dataclass
class KeyModel:
    """One key. Each call says what the journal should answer, and notes what the log took."""

    key: str
    segment_size: int
    ids_kept: int
    actions: list[Action] = field(default_factory=list)
    _known: dict[int, tuple[Life | None, int]] = field(default_factory=dict)
    """What the first so many actions come to: what was accepted never changes."""

    # ------------------------------------------------------------ questions

    def life(self, up_to: int = EVERYTHING) -> Life | None:
        """The life that goes on, as the log said up to an offset."""
        return self._lives(up_to)[0]

    def lives_ended(self, up_to: int = EVERYTHING) -> int:
        return self._lives(up_to)[1]

    def _lives(self, up_to: int) -> tuple[Life | None, int]:
        count = bisect_right(self.actions, up_to, key=attrgetter("offset"))
        if count not in self._known:
            self._known[count] = self._after(self.actions[:count])
        return self._known[count]

    def _after(self, actions: list[Action]) -> tuple[Life | None, int]:
        life: Life | None = None
        ended = 0
        for action in actions:
            if action.what == "purge":
                life, ended = None, ended + 1
            elif action.what == "reset":
                life = Life(ended + 1, action.to, action.to)
            elif action.what == "delete" and life is not None:
                life.delete_to = max(life.delete_to, min(action.to, life.seq_nr))
                life.events = [event for event in life.events if event.seq_nr > life.delete_to]
            elif action.what == "append":
                life = self._appended(life, ended, action)
        return life, ended

    def _appended(self, life: Life | None, ended: int, action: Action) -> Life:
        begin = action.first or (life.seq_nr + 1 if life else 1)
        life = life or Life(ended + 1, begin - 1, begin - 1)
        prev = life.seq_nr
        for number, (payload, type_, tags) in enumerate(action.events, begin):
            event = Event(self.key, life.number, number, prev, payload, type_, tags, action.offset, action.timestamp)
            life.events.append(event)
            life.all.append(event)
            prev = number
        life.seq_nr = prev
        if action.append_id is not None:
            life.ids = [*life.ids, (action.append_id, action.events, begin, prev, action.offset)][-self.ids_kept :]
        return life

    def read(
        self, from_: int = 1, to: int | None = None, *, limit: int | None = None, backwards: bool = False
    ) -> list[Event]:
        life = self.life()
        found = [e for e in (life.events if life else []) if from_ <= e.seq_nr and (to is None or e.seq_nr <= to)]
        return (found[::-1] if backwards else found)[:limit]

    # ------------------------------------------------------------ calls

    def append_answer(
        self,
        events: tuple[tuple[Any, str, tuple[str, ...]], ...],
        expected: int | None = None,
        first: int | None = None,
        append_id: str | None = None,
    ) -> tuple[Any, ...]:
        """`docs/spec/journal.md` 3.1, the rows of Append from the top."""
        life = self.life()
        at = life.seq_nr if life else 0
        for known, content, begin, last, offset in life.ids if life else []:
            if known == append_id:
                return ("duplicate", begin, last, offset) if content == events else ("reused",)
        if expected is not None and expected != at:
            return ("expected", at)
        if life and first is not None and first <= at:
            return ("first", at)
        begin = first or at + 1
        if life and -(-begin // self.segment_size) - -(-at // self.segment_size) - 1 > 100:
            return ("range",)
        return ("appended", begin, begin + len(events) - 1)

    def delete_answer(self, to: int, *, reset: bool) -> int | None:
        """Return what `delete` returns; None if it does nothing."""
        life = self.life()
        if life is None:
            return to if reset else None
        return max(life.delete_to, min(to, life.seq_nr))

    def took(self, action: Action) -> None:
        """The log has it, at its place."""
        self.actions.append(action)


class TagRow(NamedTuple):
    """An event under one of its tags."""

    event: Event
    number: int


def tag_rows(keys: list[KeyModel], tag: str, pointers: list[int], partitions: int) -> list[TagRow]:
    """T1, T15, T39, T40: the rows of a tag in a store that has come to these offsets, in order."""
    found = []
    for key in keys:
        life = key.life(pointers[partition_of(key.key, partitions)])
        tagged = [event for event in life.all if tag in event.tags] if life else []
        found += [TagRow(event, number) for number, event in enumerate(tagged, 1)]
    return sorted(found, key=lambda row: row.event.tag_place)


def slice_rows(keys: list[KeyModel], pointers: list[int], partitions: int) -> list[Event]:
    """P4, P16: the events of a store that has come to these offsets, in order."""
    found = []
    for key in keys:
        life = key.life(pointers[partition_of(key.key, partitions)])
        found += life.events if life else []
    return sorted(found, key=lambda event: event.slice_place)
