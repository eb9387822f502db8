"""Reading a key's journal: the plan's input and output, page by page.

A read is right whether the pipeline is ahead, behind or off: it joins the store and the unreplicated tail of the log up
to the place where the log ended when the read began. No transaction stays open between pages, so the store may change
under a slow reader. Events form a chain by prev_seq_nr; where it breaks the store is looked at again, and the read goes
on, starts anew or ends with an error. It never ends early.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat
from threading import Event
from typing import Final, cast

from strandline.errors import MissingEvent, NotFound, ReadConflict, SchemaMismatch, StrandlineError, Unavailable
from strandline.journal.checks import new_id
from strandline.journal.heads_cache import HeadsCache
from strandline.journal.plan import ReadPlan, chained, chained_down, plan
from strandline.journal.tail import BackwardTail, KeyTail, Stretch, TailEvent
from strandline.log.api import ActionDraft, ExactLog, Log, Recorded, UnfoldedLog
from strandline.log.cursor import PAGE_BYTES, PartitionCursor
from strandline.log.refusals import trimmed_away
from strandline.points import reached
from strandline.record import encode_header
from strandline.rows import Pointer, life_of
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.archive import page_of_life
from strandline.store.scans import look_at
from strandline.values.actions import Mark
from strandline.values.events import RecordedEvent, parts_of
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import key_partition

STORE_PAGE_BYTES: Final = 8 * 2**20
"""About how many bytes of bodies a page of large events has."""
PLANS_MAX: Final = 100
"""How often a read starts anew or goes on elsewhere because the journal changed under it."""
UNEXPLAINED_MAX: Final = 3
"""How often the head may move, without saying why an event is not there, before the event counts as missing."""


class Marking:
    """A Mark that was sent to find the end of a log that cannot say where it ends."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._offset: int | None = None
        self._error: StrandlineError | None = None
        self._told = Event()

    def answered(self, recorded: Recorded | None, error: StrandlineError | None) -> None:
        """Take the log's answer to the Mark."""
        if recorded is not None and recorded.place is not None:
            self._offset = recorded.place.offset
        if error is not None:
            error.applied = "no"  # whether the Mark was recorded does not matter: it changes nothing
        self._error = error
        self._told.set()

    def offset(self) -> int:
        """Wait for the Mark's offset; `Unavailable` if it gets none."""
        self._told.wait(self._timeout_s)
        if self._offset is None:
            late = f"the log did not take a Mark within {self._timeout_s:g} s"
            raise self._error or Unavailable(late, code="timeout", hint="call again")
        return self._offset


class JournalReader:
    """A log and a store for reads, heads, snapshots and replay, and how much of them to hold in memory."""

    def __init__(self, log: Log, store: Store, settings: Settings, heads: HeadsCache | None = None) -> None:
        self.log, self.store, self.settings = log, store, settings
        self.rules = store.settings.rules
        self._heads = heads

    def _ask_newest(self, key: str, partition: int) -> AbstractContextManager[Callable[[], int]]:
        """Ask where the log ends now, exactly: its newest offset, or a Mark where the log cannot say that."""
        if self.log.exact:
            return cast(ExactLog, self.log).ask_newest(partition)
        marking = Marking(self.settings.append_timeout_s)
        action = Mark(key, new_id())
        cast(UnfoldedLog, self.log).send(ActionDraft(partition, action, encode_header(action)), marking.answered)
        return nullcontext(marking.offset)

    def end_of(self, key: str, partition: int) -> int:
        """Wait for the end of a key's partition, and return it."""
        with self._ask_newest(key, partition) as ended_at:
            return ended_at()

    def _looked(self, key: str, partition: int, mark: int | None) -> tuple[int, Pointer, State]:
        """Return the mark, and what the store has of the key. Log and store are asked at the same time."""
        if mark is not None:
            return mark, *look_at(self.store, key, partition)
        with self._ask_newest(key, partition) as ended_at:
            pointer, state = look_at(self.store, key, partition)
            return ended_at(), pointer, state

    def plan(
        self,
        key: str,
        *,
        from_: int = 1,
        to: int = SEQ_NR_MAX,
        mark: int | None = None,
        values: bool = True,
        last: int = 0,
    ) -> ReadPlan:
        """Search the tail and say where the events are. Without `values` only the head of the plan is of use. `last`:
        the plan is for a backwards read of at most this many events.
        """
        partition = key_partition(key, self.log.partitions)
        earliest = -1
        for _ in range(PLANS_MAX):
            mark, pointer, state = self._looked(key, partition, mark)
            if pointer.offset >= mark:
                return plan(key, partition, mark, state, None, from_=from_, to=to)
            if pointer.offset + 1 < earliest:
                raise trimmed_away(partition, pointer.offset + 1, earliest - 1)
            start, end = PartitionCursor(self.log, partition, pointer.offset, pointer.timestamp), mark
            known = None if self._heads is None else self._heads.fold(key, pointer, state, mark)
            if known is not None:
                if known.first is None or known.last is None:
                    return plan(key, partition, mark, state, None, from_=from_, to=to)
                if not values:
                    return plan(key, partition, mark, state, self._tail(key, known.state, 1, 0, 0), from_=from_, to=to)
                # Records before the key's first action do not matter. Its timestamp is known, so the search begins just
                # before it.
                start = PartitionCursor(self.log, partition, known.first.offset - 1, known.first.timestamp - 1)
                end = known.last.offset
            try:
                tail = self._tail(key, state, from_, to if values else 0, last)
                self.search(tail, start, end, values=values)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                reached("read.trimmed_meanwhile")
                earliest = error.earliest  # the pointer may have passed it meanwhile: look again
                continue
            return plan(key, partition, mark, state, tail, from_=from_, to=to)
        raise journal_changed(key)

    def _tail(self, key: str, state: State, from_: int, to: int, last: int) -> KeyTail:
        bytes_max = self.settings.tail_buffer_bytes
        if last:
            return BackwardTail(key, state, self.rules, from_=from_, to=to, bytes_max=bytes_max, most=last)
        return KeyTail(key, state, self.rules, from_=from_, to=to, bytes_max=bytes_max)

    def search(self, tail: KeyTail, cursor: PartitionCursor, mark: int, *, values: bool = True) -> None:
        """Add the records up to `mark` to a tail."""
        limit, key = self.settings.read_page, tail.key
        while (after := cursor.offset) < mark:
            tail.add(cursor.read(to=mark, limit=limit, bytes_max=PAGE_BYTES, key=key, values=values))
            if cursor.offset <= after:
                raise log_ended(cursor.partition, after, mark)

    def head(self, key: str) -> Head | None:
        """Return a key's head as a read would see it."""
        return self.plan(key, values=False).head

    def state(self, key: str) -> State:
        """Return a key's state as a log would have folded it: a head, or the ended life of a purged key."""
        return self.plan(key, values=False).state

    def read(
        self, key: str, from_: int, to: int, *, limit: int = SEQ_NR_MAX, backwards: bool = False
    ) -> Iterator[RecordedEvent]:
        """Yield events of a key, at most `limit`. The plan is made when the first one is asked for."""

        def pages() -> Iterator[Iterable[RecordedEvent]]:
            made = self.plan(key, from_=from_, to=to, last=limit if backwards else 0)
            reading = (BackwardReading if backwards else Reading)(self, made, from_, to, limit=limit)
            yield from reading.pages()

        return chain.from_iterable(pages())

    def events_after(self, made: ReadPlan, seq_nr: int) -> Iterator[RecordedEvent]:
        """Return the events of a plan after a number, for a caller that has the state up to that number.

        They are of the plan's life and nothing is missing, however late they are asked for: `ReadConflict` if not.
        """
        return Reading(self, made.narrowed(seq_nr + 1), seq_nr + 1, SEQ_NR_MAX, given=True).events()


class Reading:
    """A read that is under way: its plan, the number it wants next, how many it still wants, whether any was handed
    out.

    With `cut` it is a replay: the journal up to that offset and no further, less what was removed meanwhile. `given`:
    the caller has used part of this plan already, so that no new plan may replace it.
    """

    def __init__(
        self,
        reader: JournalReader,
        made: ReadPlan,
        from_: int,
        to: int,
        *,
        limit: int = SEQ_NR_MAX,
        cut: int | None = None,
        given: bool = False,
    ) -> None:
        self._reader, self._plan, self._from, self._to = reader, made, from_, to
        self._wanted = self._first_of(made)
        self._left = limit
        self._given = given
        self._cut = cut
        self._plans = self._broken_at = self._unexplained = 0

    def events(self) -> Iterator[RecordedEvent]:
        """Return the events, in order."""
        return chain.from_iterable(self.pages())

    def pages(self) -> Iterator[Iterable[RecordedEvent]]:
        """Yield the events by pages: to yield each event would cost half as much again as making it."""
        while self._left and self._wanted <= self._plan.end:
            made = self._plan
            yield from self._from_store()
            if made is self._plan:
                yield from self._from_tail()
            if made is self._plan:
                return

    def _from_store(self) -> Iterator[Iterable[RecordedEvent]]:
        key, _, _, _, stored, _, _, end, _ = self._plan
        while stored is not None and self._left and self._wanted <= min(end, stored.seq_nr):
            # In a gap, or where an event is missing, the page goes beyond the end: the event there tells which of the
            # two it is.
            limit = min(self._reader.settings.read_page, end - self._wanted + 1, self._left)
            life = life_of(key, stored.life)
            rows, more = page_of_life(
                self._reader.store, key, stored, from_=self._wanted, to=stored.seq_nr, limit=limit,
                bytes_max=STORE_PAGE_BYTES,
            )  # fmt: skip
            wanted, missing = chained(rows, self._wanted)
            if not more and not missing and wanted <= stored.prev:
                missing = stored.prev
            if missing:
                reached("read.event_not_there")
                self._look_again(missing)
                return
            if self._cut is not None and rows and log_offset_of(rows[-1][2]) > self._cut:
                rows = [row for row in rows if log_offset_of(row[2]) <= self._cut]
                wanted = end + 1
            while rows and rows[-1][0] > end:
                reached("read.page_beyond_its_end")
                rows.pop()
            self._count(rows, wanted)
            yield map(RecordedEvent, repeat(life), rows)
            if not more:
                return

    def _count(self, handed_out: Sized, wanted: int) -> None:
        """Count these events as handed out, and set the next number that is wanted."""
        self._wanted, self._left = wanted, self._left - len(handed_out)
        self._given = self._given or len(handed_out) > 0

    def _from_tail(self) -> Iterator[list[TailEvent]]:
        tail = self._plan.tail
        if tail is None:
            return
        yield self._wanted_of(tail)
        if tail.resume is not None and self._left and self._wanted <= self._plan.end:
            yield from self._from_log(*tail.resume)

    def _wanted_of(self, tail: KeyTail) -> list[TailEvent]:
        """Return the events of a tail that are still wanted, and count them as handed out."""
        events, tail.events = tail.events, []
        if events and events[0].seq_nr < self._wanted:
            events = [event for event in events if event.seq_nr >= self._wanted]
        if len(events) > self._left:
            del events[self._left :]
        if events:
            self._count(events, events[-1].seq_nr + 1)
        return events

    def _from_log(self, after: int, timestamp: int, state: State) -> Iterator[list[TailEvent]]:
        """Yield the events that the buffer did not hold: from the log again, or from the store if they are there."""
        key, partition, mark, head, _, _, _, end, _ = self._plan
        reader = self._reader
        pointer, _ = look_at(reader.store, key, partition)
        cursor = PartitionCursor(reader.log, partition, after, timestamp)
        while head is not None and pointer.offset < mark and cursor.offset < mark:
            try:
                records = cursor.read(to=mark, limit=reader.settings.read_page, bytes_max=PAGE_BYTES, key=key)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                reached("read.trimmed_past_the_buffer")
                break
            tail = KeyTail(key, state, reader.rules, from_=self._wanted, to=end, bytes_max=SEQ_NR_MAX)
            tail.add(records)
            state = tail.state
            yield self._wanted_of(tail)
            if self._wanted > end or not self._left:
                return
        reached("read.tail_read_twice")
        if state != head:  # else no event is missing, and the end asked for is in a gap
            self._look_again()

    def _look_again(self, missing: int = 0) -> None:
        """Make a new plan to go on with, or raise the error that says why there is none."""
        old, wanted = self._plan, self._wanted
        reached("read.planned_again")
        self._plans += 1
        if self._plans > PLANS_MAX:
            raise journal_changed(old.key)
        new = self._plan_again()
        life = old.head.life if old.head is not None else 0
        changed = new.head is None or new.head.life != life or new.head.delete_to >= self._least_wanted()
        if changed and self._given and self._cut is None:
            reached("read.journal_changed")
            raise journal_changed(old.key)
        if changed and self._given and (new.head is None or new.head.life != life):
            new = new._replace(end=0)  # a replay goes on with the next key
        if missing and not changed:
            self._unexplained = self._unexplained + 1 if wanted == self._broken_at else 1
            self._broken_at = wanted
            if new.stored == old.stored or self._unexplained >= UNEXPLAINED_MAX:
                raise _missing(old.key, missing)
        self._plan, self._wanted = new, self._first_of(new)

    def _plan_again(self) -> ReadPlan:
        """Return a plan for what is still to come. Once something was handed out, later appends have no part in this
        read."""
        made = self._plan
        from_, to = (self._wanted, min(self._to, made.end)) if self._given else (self._from, self._to)
        return self._reader.plan(made.key, from_=from_, to=to, mark=made.mark)

    def _first_of(self, made: ReadPlan) -> int:
        """Return the number that a plan's first event has."""
        return made.start

    def _least_wanted(self) -> int:
        """Return the least number that is still to come: a delete up to it removes an event that this read wants."""
        return self._wanted


class BackwardReading(Reading):
    """Reads from the last event to the first: the tail, then the store.

    Each event names the one before it, so the chain says exactly which comes next. The event above is looked at only
    where `to` may be in a gap, or where an operator skipped the named event.
    """

    def pages(self) -> Iterator[Iterable[RecordedEvent]]:
        stored = self._plan.stored
        archived = 0 if stored is None else stored.archive_to
        if self._plan.start <= min(archived, self._wanted) and self._wanted - archived < self._left:
            self._reader.store.archive.check()  # before anything is shown
        while self._left and self._wanted >= self._plan.start:
            made = self._plan
            yield from self._from_tail()
            if made is self._plan:
                yield from self._from_store()
            if made is self._plan:
                return

    def _from_tail(self) -> Iterator[list[TailEvent]]:
        tail = self._plan.tail
        if not isinstance(tail, BackwardTail):
            return
        yield self._wanted_of(tail)
        if tail.stretches and self._left and self._wanted >= max(self._plan.start, tail.stretches[0].first):
            yield from self._from_stretches(tail.stretches)

    def _wanted_of(self, tail: KeyTail) -> list[TailEvent]:
        start, wanted = self._plan.start, self._wanted
        events = [event for event in reversed(tail.events) if start <= event.seq_nr <= wanted][: self._left]
        tail.events = []
        if events:
            self._count(events, events[-1].prev_seq_nr)
        return events

    def _from_stretches(self, stretches: list[Stretch]) -> Iterator[list[TailEvent]]:
        """Read what the buffer did not hold: from the log, or the store if the pipeline has got there meanwhile."""
        key, partition, mark, _, _, _, start, _, _ = self._plan
        reader = self._reader
        pointer, _ = look_at(reader.store, key, partition)
        if pointer.offset >= mark:
            reached("read.backwards_carried_meanwhile")
            self._look_again()
            return
        reached("read.backwards_past_the_buffer")
        ends = [mark, *(stretch.after for stretch in reversed(stretches))]
        for (after, timestamp, state, first), end in zip(reversed(stretches), ends, strict=False):
            if first > self._wanted:
                continue
            tail = KeyTail(key, state, reader.rules, from_=start, to=self._wanted, bytes_max=SEQ_NR_MAX)
            try:
                reader.search(tail, PartitionCursor(reader.log, partition, after, timestamp), end)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                self._look_again()
                return
            yield self._wanted_of(tail)
            if not self._left or self._wanted < start:
                return

    def _from_store(self) -> Iterator[Iterable[RecordedEvent]]:
        key, _, _, _, stored, _, start, _, _ = self._plan
        if stored is None:
            return
        self._wanted = min(self._wanted, stored.prev)
        while self._left and self._wanted >= start:
            limit = min(self._reader.settings.read_page, self._wanted - start + 1, self._left)
            life = life_of(key, stored.life)
            rows = page_of_life(
                self._reader.store, key, stored, from_=start, to=self._wanted, limit=limit,
                bytes_max=STORE_PAGE_BYTES, backwards=True,
            ).rows  # fmt: skip
            count, wanted = chained_down(rows, self._wanted)
            if not count:
                named = self._named(key, stored)
                if named >= self._wanted:
                    self._look_again(self._wanted)
                    return
                self._wanted = named
                count, wanted = chained_down(rows, named)
            if count:
                self._count(rows := rows[:count], wanted)
                yield map(RecordedEvent, repeat(life), rows)

    def _named(self, key: str, stored: Head) -> int:
        """Return the number of the last event up to the wanted number, as the event above or the head names it."""
        wanted = self._wanted
        reached("read.backwards_in_a_gap")
        if wanted < stored.prev:
            above = page_of_life(self._reader.store, key, stored, from_=wanted, to=stored.seq_nr, limit=1).rows
            if above:
                return wanted if above[0][0] == wanted else int(above[0][1])
        return stored.prev

    def _plan_again(self) -> ReadPlan:
        made, to = self._plan, self._wanted if self._given else self._to
        return self._reader.plan(made.key, from_=self._from, to=to, mark=made.mark, last=self._left)

    def _first_of(self, made: ReadPlan) -> int:
        return made.end

    def _least_wanted(self) -> int:
        return self._plan.start


def log_offset_of(body: bytes) -> int:
    """Return the log offset of an event; -1 if its body cannot say."""
    try:
        return parts_of(body).log_offset
    except (TypeError, struct.error):  # a damaged row: its offset is lost, and it is shown as damaged
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
    """Return the error for a read whose journal was purged and begun again meanwhile."""
    return ReadConflict(
        f"{key} was deleted or purged while it was read", code="journal_changed", hint="read it again", key=key
    )


def log_ended(partition: int, after: int, mark: int) -> SchemaMismatch:
    """Return the error for a read whose log has less than it had."""
    return SchemaMismatch(
        f"partition {partition} of the log ends after offset {after}, it had {mark} before",
        code="log_replaced",
        hint="the log was replaced or put back from an older copy; restore log and store from one backup",
        partition=partition,
        newest=after,
        expected=mark,
    )
