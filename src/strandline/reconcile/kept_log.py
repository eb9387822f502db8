"""The kept log, and what it proves about events and heads.

A log that folds has written numbers beside its records, so every append that it keeps proves its events. A log that
does not fold proves them only if it still has its beginning: then it is folded from there. If the event before another
was trimmed, the log does not say its number; the next lower number is assumed, and the store's own chain is judged by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strandline.carry.range import Decoded, decode
from strandline.errors import NotFound
from strandline.fold import EventsAppended, FoldRules, fold
from strandline.log.api import Log
from strandline.log.cursor import PAGE_BYTES, PartitionCursor
from strandline.record import BadValue, is_append, read_contents
from strandline.rows import DAMAGED_FORMS, damaged_contents, event_rows
from strandline.settings import Settings
from strandline.values.actions import Append, Place
from strandline.values.events import EventRow
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import is_key, slice_of

PAGE = 2000


class LoggedEvent(NamedTuple):
    """An event as the log has it."""

    row: EventRow
    offset: int
    damaged: bool


@dataclass(slots=True)
class LoggedKey:
    """The events and actions of a key in the kept log."""

    events: list[LoggedEvent] = field(default_factory=list)
    """The events that no later action of the kept log removes, by life and number."""
    actions: list[Decoded] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    """The last number of each life."""
    state: State = None
    """The state after the fold, if the log was folded from its beginning."""


class KeptLog:
    """The kept part of the log of one partition."""

    def __init__(self, log: Log, partition: int, oldest: int, settings: Settings, rules: FoldRules) -> None:
        self._log, self._partition, self._settings, self._rules = log, partition, settings, rules
        self.oldest = oldest
        self.complete = oldest == 0

    @property
    def proves(self) -> bool:
        """Whether its records prove events."""
        return self._log.exact or self.complete

    def start(self) -> PartitionCursor:
        """Return the cursor at which the kept log begins."""
        return PartitionCursor(self._log, self._partition, self.oldest - 1, 0)

    def decoded(
        self,
        cursor: PartitionCursor,
        to: int,
        wanted: Callable[[str], bool] | None = None,
        *,
        values: bool = True,
    ) -> Iterator[Decoded]:
        """Yield records of wanted keys with their actions, from a cursor on, up to an offset; skip trimmed records."""
        while (after := cursor.offset) < to:
            try:
                records = cursor.read(to=to, limit=PAGE, bytes_max=PAGE_BYTES, values=values)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                self.oldest, self.complete = error.earliest, False
                if not self.proves:
                    return
                cursor.offset = error.earliest - 1
                continue
            if cursor.offset <= after:
                return
            some = [record for record in records if record.key is not None and (wanted is None or wanted(record.key))]
            yield from decode(some, self._log.partitions)[0]

    def removed_from(self, to: int, wanted: Callable[[str], bool] | None) -> set[str]:
        """Return the keys that have a Delete or Purge in the kept log, which may have removed events."""
        if not self._log.exact:
            return set()
        found = set()
        for record, action, _ in self.decoded(self.start(), to, wanted, values=False):
            if not (isinstance(action, Append) or is_append(record.header)) and record.key is not None:
                found.add(record.key)
        return found

    def events(self, to: int, slices: Collection[int] | None = None) -> Iterator[LoggedEvent]:
        """Yield all events that the log proves, up to an offset, of keys of these slices, in no order."""
        wanted = None if slices is None else lambda key: is_key(key) and slice_of(key) in slices
        held = self.removed_from(to, wanted)
        told: dict[str, LoggedKey] = {}
        for item in self.decoded(self.start(), to, wanted):
            key = item.record.key or ""
            known = told.setdefault(key, LoggedKey())
            self.take(known, item)
            if self._log.exact and key not in held:
                yield from known.events
                known.events.clear()
        for known in told.values():
            yield from known.events

    def take(self, known: LoggedKey, item: Decoded) -> None:
        """Add the facts of a record to its key's."""
        record, action, _ = item
        if action is None:
            return
        place = Place(record.partition, record.offset, record.timestamp)
        if not self._log.exact:
            known.state, effect = fold(known.state, action, place, self._rules)
            if isinstance(effect, EventsAppended) and isinstance(action, Append):
                self._append(known, item, action, place, effect)
            self._drop(known, known.state)
            return
        life, first, last = record.life, record.first, record.last
        if life is None:
            return
        if first is None:
            keep_above = SEQ_NR_MAX if last is None else last
            known.events = [
                each for each in known.events if each.row.life > life or
                (each.row.life == life and each.row.seq_nr > keep_above)
            ]  # fmt: skip
        elif isinstance(action, Append) and last is not None:
            effect = EventsAppended(first, last, known.last.get(life, first - 1), life)
            self._append(known, item, action, place, effect)

    def _drop(self, known: LoggedKey, state: State) -> None:
        if not isinstance(state, Head):
            known.events.clear()
        elif known.events and (known.events[0].row.life != state.life or known.events[0].row.seq_nr <= state.delete_to):
            known.events = [
                each for each in known.events if each.row.life == state.life and each.row.seq_nr > state.delete_to
            ]

    def _append(self, known: LoggedKey, item: Decoded, action: Append, place: Place, effect: EventsAppended) -> None:
        try:
            contents: Sequence[Any] = read_contents(action, item.record.value)
            damaged = False
        except BadValue as bad:
            contents, damaged = damaged_contents(len(action.events), DAMAGED_FORMS[bad.reason]), True
        rows = event_rows(action, place, effect, self._rules.segment_size, contents)
        known.events += [LoggedEvent(row, place.offset, damaged) for row in rows]
        known.last[effect.life] = effect.last


class LoggedKeys:
    """The events and actions of some keys in the kept log. Each call of `read` goes on where the last one ended."""

    def __init__(self, kept: KeptLog, keys: Collection[str]) -> None:
        self.kept = kept
        self._keys = {key: LoggedKey() for key in keys}
        self._cursor = kept.start()

    @property
    def to(self) -> int:
        """The offset up to which the log was read."""
        return self._cursor.offset

    def read(self, to: int) -> None:
        """Read on, up to an offset."""
        if not self.kept.proves or to <= self._cursor.offset:
            return
        for item in self.kept.decoded(self._cursor, to, self._keys.__contains__):
            known = self._keys[item.record.key or ""]
            known.actions.append(item)
            self.kept.take(known, item)

    def get(self, key: str) -> LoggedKey | None:
        """Return the log's events and actions of a key; None where the log proves nothing."""
        return self._keys.get(key) if self.kept.proves else None
