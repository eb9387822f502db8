"""Reading a key's journal: the plan's input and output, page by page.

A read is right whether the pipeline is ahead, behind or off: it joins the store and the unreplicated tail of the log up
to the place where the log ended when the read began. No transaction stays open between pages, so the store may change
under a slow reader. Events form a chain by prev_seq_nr; where it breaks the store is looked at again, and the read goes
on, starts anew or ends with an error. It never ends early.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat
from operator import is_
from threading import Event
from typing import Any, Final, cast

from strandline.errors import MissingEvent, NotFound, ReadConflict, SchemaMismatch, StrandlineError, Unavailable
from strandline.journal.checks import new_id
from strandline.journal.heads_cache import HeadsCache
from strandline.journal.plan import Plan, chained, plan
from strandline.journal.tail import Tail, TailEvent
from strandline.log.api import Draft, ExactLog, InexactLog, Log, Recorded
from strandline.log.cursor import PAGE_BYTES, Cursor
from strandline.log.refusals import trimmed_away
from strandline.record import encode_header
from strandline.rows import Pointer, life_of
from strandline.settings import Settings
from strandline.store.api import Readable
from strandline.store.pages import bytes_of
from strandline.values.actions import Mark
from strandline.values.events import Life, RecordedEvent, parts_of
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import key_partition

STORE_PAGE_BYTES: Final = 8 * 2**20
"""A page of large events ends here."""
PLANS_MAX: Final = 100
"""How often a read starts anew or goes on elsewhere because the journal changed under it."""
UNEXPLAINED_MAX: Final = 3
"""How often the head may move, without saying why an event is not there, before the event counts as missing."""


class Marking:
    """A Mark on its way to the end of a log that cannot say where it ends."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._offset: int | None = None
        self._error: StrandlineError | None = None
        self._told = Event()

    def answered(self, recorded: Recorded | None, error: StrandlineError | None) -> None:
        """What the log says of the Mark."""
        if recorded is not None and recorded.place is not None:
            self._offset = recorded.place.offset
        if error is not None:
            error.applied = "no"  # a Mark that may be there changes nothing
        self._error = error
        self._told.set()

    def offset(self) -> int:
        """Wait for its place; `Unavailable` if it gets none."""
        self._told.wait(self._timeout_s)
        if self._offset is None:
            late = f"the log did not take a Mark within {self._timeout_s:g} s"
            raise self._error or Unavailable(late, code="timeout", hint="call again")
        return self._offset


class Making:
    """Events that are made while their rows come."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._rows: list[Any] = []
        self._made: list[RecordedEvent] = []

    def add(self, rows: list[Any]) -> None:
        """Rows that came."""
        self._rows += rows
        self._made += map(RecordedEvent, repeat(self._life), rows)

    def of(self, rows: list[Any]) -> Iterable[RecordedEvent]:
        """The events of a page: those that were made, if they are the same."""
        same = len(rows) == len(self._rows) and all(map(is_, rows, self._rows))
        return self._made if same else map(RecordedEvent, repeat(self._life), rows)


class Reader:
    """What reads, heads, snapshots and replay share: a log, a store, and how much of them to hold in memory."""

    def __init__(self, log: Log, store: Readable, settings: Settings, heads: HeadsCache | None = None) -> None:
        self.log, self.store, self.settings = log, store, settings
        self.rules = store.settings.rules
        self._heads = heads

    def _ending(self, key: str, partition: int) -> AbstractContextManager[Callable[[], int]]:
        """Where the log ends now, exactly: its newest offset, or a Mark where the log cannot say that."""
        if self.log.exact:
            return cast(ExactLog, self.log).ending(partition)
        marking = Marking(self.settings.append_timeout_s)
        action = Mark(key, new_id())
        cast(InexactLog, self.log).send(Draft(partition, action, encode_header(action)), marking.answered)
        return nullcontext(marking.offset)

    def _looked(self, key: str, partition: int, mark: int | None) -> tuple[int, Pointer, State]:
        """The mark, and what the store has of the key. The log is asked for the one while the store says the other."""
        if mark is not None:
            return mark, *self.store.look(key, partition)
        with self._ending(key, partition) as ended_at:
            pointer, state = self.store.look(key, partition)
            return ended_at(), pointer, state

    def plan(
        self, key: str, *, from_: int = 1, to: int = SEQ_NR_MAX, mark: int | None = None, values: bool = True
    ) -> Plan:
        """Search the tail and say where the events are. Without `values` the plan is good for its head alone."""
        partition = key_partition(key, self.log.partitions)
        earliest = -1
        for _ in range(PLANS_MAX):
            mark, pointer, state = self._looked(key, partition, mark)
            if pointer.offset >= mark:
                return plan(key, partition, mark, state, None, from_=from_, to=to)
            if pointer.offset + 1 < earliest:
                raise trimmed_away(partition, pointer.offset + 1, earliest - 1)
            start, end = Cursor(self.log, partition, pointer.offset, pointer.timestamp), mark
            known = None if self._heads is None else self._heads.fold(key, pointer, state, mark)
            if known is not None:
                if known.first is None or known.last is None:
                    return plan(key, partition, mark, state, None, from_=from_, to=to)
                if not values:
                    return plan(key, partition, mark, state, self._tail(key, known.state, 1, 0), from_=from_, to=to)
                # What lies before the key's first action is of no interest; its timestamp follows from its own.
                start = Cursor(self.log, partition, known.first.offset - 1, known.first.timestamp - 1)
                end = known.last.offset
            try:
                tail = self._search(key, state, start, end, from_, to if values else 0)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                earliest = error.earliest  # the pointer may have passed it meanwhile: look again
                continue
            return plan(key, partition, mark, state, tail, from_=from_, to=to)
        raise journal_changed(key)

    def _tail(self, key: str, state: State, from_: int, to: int) -> Tail:
        return Tail(key, state, self.rules, from_=from_, to=to, bytes_max=self.settings.tail_buffer_bytes)

    def _search(self, key: str, state: State, cursor: Cursor, mark: int, from_: int, to: int) -> Tail:
        tail = self._tail(key, state, from_, to)
        while (after := cursor.offset) < mark:
            tail.add(cursor.read(to=mark, limit=self.settings.read_page, bytes_max=PAGE_BYTES, key=key, values=to > 0))
            if cursor.offset <= after:
                raise _ended(cursor.partition, after, mark)
        return tail

    def head(self, key: str) -> Head | None:
        """The same view as a read, without its events."""
        return self.plan(key, values=False).head

    def read(self, key: str, from_: int, to: int) -> Iterator[RecordedEvent]:
        """Events of a key. The plan is made when the first one is asked for."""

        def pages() -> Iterator[Iterable[RecordedEvent]]:
            yield from Reading(self, self.plan(key, from_=from_, to=to), from_, to).pages()

        return chain.from_iterable(pages())

    def events_after(self, made: Plan, seq_nr: int) -> Iterator[RecordedEvent]:
        """The events of a plan after that number, to go with a state that the caller has.

        They are of the plan's life and nothing is missing, however late they are asked for: `ReadConflict` if not.
        """
        return Reading(self, made.narrowed(seq_nr + 1), seq_nr + 1, SEQ_NR_MAX, given=True).events()


class Reading:
    """One read under way: its plan, the number it wants next, and whether anything was handed out.

    With `cut` it is a replay: the journal up to that offset and no further, less what was removed meanwhile. `given`:
    the caller has something of this plan already, so that no other may take its place.
    """

    def __init__(
        self, reader: Reader, made: Plan, from_: int, to: int, *, cut: int | None = None, given: bool = False
    ) -> None:
        self._reader, self._plan, self._from, self._to = reader, made, from_, to
        self._wanted = made.start
        self._given = given
        self._cut = cut
        self._plans = self._broken_at = self._unexplained = 0

    def events(self) -> Iterator[RecordedEvent]:
        """The events, in order."""
        return chain.from_iterable(self.pages())

    def pages(self) -> Iterator[Iterable[RecordedEvent]]:
        """The same by pages: to go through a generator one by one takes events half as long as to be made."""
        while self._wanted <= self._plan.end:
            made = self._plan
            yield from self._from_store()
            if made is self._plan:
                yield from self._from_tail()
            if made is self._plan:
                return

    def _from_store(self) -> Iterator[Iterable[RecordedEvent]]:
        key, _, _, _, stored, _, _, end = self._plan
        while stored is not None and self._wanted <= min(end, stored.seq_nr):
            # In a gap, or where one is missing, the page goes beyond the end: what stands there tells which it is.
            limit = min(self._reader.settings.read_page, end - self._wanted + 1)
            events = Making(life_of(key, stored.life))
            rows = self._reader.store.page(
                key, stored.life, stored.segment_size, from_=self._wanted, to=stored.seq_nr, limit=limit,
                bytes_max=STORE_PAGE_BYTES, coming=events.add,
            )  # fmt: skip
            wanted, missing = chained(rows, self._wanted)
            short = len(rows) < limit and sum(map(bytes_of, rows)) < STORE_PAGE_BYTES
            if short and not missing and wanted <= stored.prev:
                missing = stored.prev
            if missing:
                self._look_again(missing)
                return
            if self._cut is not None and rows and _offset(rows[-1]) > self._cut:
                rows = [row for row in rows if _offset(row) <= self._cut]
                wanted = end + 1
            while rows and rows[-1][0] > end:
                rows.pop()
            self._wanted, self._given = wanted, self._given or bool(rows)
            yield events.of(rows)
            if short:
                return

    def _from_tail(self) -> Iterator[list[TailEvent]]:
        tail = self._plan.tail
        if tail is None:
            return
        yield self._wanted_of(tail)
        if tail.resume is not None and self._wanted <= self._plan.end:
            yield from self._from_log(*tail.resume)

    def _wanted_of(self, tail: Tail) -> list[TailEvent]:
        """The events of a tail that are still wanted; they count as handed out then."""
        events, tail.events = tail.events, []
        if events and events[0].seq_nr < self._wanted:
            events = [event for event in events if event.seq_nr >= self._wanted]
        if events:
            self._wanted, self._given = events[-1].seq_nr + 1, True
        return events

    def _from_log(self, after: int, timestamp: int, state: State) -> Iterator[list[TailEvent]]:
        """What the buffer did not hold: from the log again, or the store, if the pipeline has got there meanwhile."""
        key, partition, mark, head, _, _, _, end = self._plan
        reader = self._reader
        pointer, _ = reader.store.look(key, partition)
        cursor = Cursor(reader.log, partition, after, timestamp)
        while head is not None and pointer.offset < mark and cursor.offset < mark:
            try:
                records = cursor.read(to=mark, limit=reader.settings.read_page, bytes_max=PAGE_BYTES, key=key)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                break
            tail = Tail(key, state, reader.rules, from_=self._wanted, to=end, bytes_max=SEQ_NR_MAX)
            tail.add(records)
            state = tail.state
            yield self._wanted_of(tail)
            if self._wanted > end:
                return
        if state != head:  # else all was there, and the end asked for is in a gap
            self._look_again()

    def _look_again(self, missing: int = 0) -> None:
        """A new plan to go on with, or the error that says why there is none."""
        old, wanted = self._plan, self._wanted
        self._plans += 1
        if self._plans > PLANS_MAX:
            raise journal_changed(old.key)
        from_ = wanted if self._given else self._from
        new = self._reader.plan(old.key, from_=from_, to=self._to, mark=old.mark)
        life = old.head.life if old.head is not None else 0
        changed = new.head is None or new.head.life != life or new.head.delete_to >= wanted
        if changed and self._given and self._cut is None:
            raise journal_changed(old.key)
        if changed and self._given and (new.head is None or new.head.life != life):
            new = new._replace(end=0)  # a replay goes on with the next key
        if missing and not changed:
            self._unexplained = self._unexplained + 1 if wanted == self._broken_at else 1
            self._broken_at = wanted
            if new.stored == old.stored or self._unexplained >= UNEXPLAINED_MAX:
                raise _missing(old.key, missing)
        self._plan, self._wanted = new, new.start


def _offset(cells: tuple[Any, ...]) -> int:
    try:
        return parts_of(cells[2]).log_offset
    except (TypeError, struct.error):  # a damaged row: nobody can say any more, and it is shown as damaged
        return -1


def _missing(key: str, seq_nr: int) -> MissingEvent:
    return MissingEvent(
        f"event {seq_nr} of {key} must be in the store and is not",
        code="store",
        hint="restore log and store from one backup",
        key=key,
        seq_nr=seq_nr,
    )


def journal_changed(key: str) -> ReadConflict:
    """What a reader is told whose journal is another one now."""
    return ReadConflict(
        f"{key} was deleted or purged while it was read", code="journal_changed", hint="read it again", key=key
    )


def _ended(partition: int, after: int, mark: int) -> SchemaMismatch:
    return SchemaMismatch(
        f"partition {partition} of the log ends after offset {after}, it had {mark} before",
        code="log_replaced",
        hint="the log was replaced or put back from an older copy; restore log and store from one backup",
        partition=partition,
        newest=after,
        expected=mark,
    )
