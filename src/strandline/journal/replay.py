"""Replay: the events of a partition by time, up to a cut. Store and tail are joined by the rule of a read.

    p, cut        the partition's pointer; the newest offset when the replay was planned
    (p, cut] the tail: read once, and set aside by slices, in memory or in files where it is large
    q             the pointer once the store was asked for the states of the tail's keys: the pipeline may have moved
    up to q       rows of the store by time, less those that a Delete or Purge of the tail takes away
    above q       what the tail appended, folded on those states

A tail in several portions is folded one after the other, so that not all keys are held at once. Each has a q of its
own, up to which it takes the rows of its keys from the store. A store without transactions may have a head that is
ahead of the pointer: what lies between the two is read key by key, like any other journal.

A key comes in the order of its numbers, and is whole up to the cut, less what a Delete or a Purge removed while the
replay ran. That nothing is missing in the store is for `reconcile` to say.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from struct import Struct
from tempfile import SpooledTemporaryFile
from typing import Any, Final, NamedTuple

from strandline.errors import NotFound, ReadConflict
from strandline.journal.plan import plan
from strandline.journal.read import STORE_PAGE_BYTES, JournalReader, Reading, log_ended, log_offset_of
from strandline.journal.tail import KeyTail
from strandline.log.api import Log
from strandline.log.cursor import PAGE_BYTES, PartitionCursor
from strandline.log.refusals import trimmed_away
from strandline.points import reached
from strandline.record import Record, is_append
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.scans import events_of
from strandline.values.events import EventRow, RecordedEvent
from strandline.values.heads import SEQ_NR_MAX, Head, State
from strandline.values.keys import SLICES, is_key, slice_of
from strandline.values.ranges import Range, first_slice
from strandline.values.tuples import new_tuple

PAGE: Final = 2000
FIRST_PAGE: Final = 100
LAST: Final = 2**63 - 1
PORTION_RECORDS: Final = 20_000
PORTIONS_MAX: Final = 64
_LENGTH: Final = Struct("<q")


class Wanted(NamedTuple):
    """The wanted events of a partition: up to offset `cut`, from timestamp `from_` up to and with `to`."""

    partition: int
    cut: int
    from_: int = 0
    to: int = LAST
    slices: tuple[int, int] = (0, SLICES - 1)
    entity_type: str | None = None

    def key(self, key: str) -> bool:
        """Return whether events of this key are wanted."""
        whole = self.entity_type is None or key.partition("|")[0] == self.entity_type
        return whole and self.slices[0] <= slice_of(key) <= self.slices[1]


def replay_partition(
    log: Log, store: Store, settings: Settings, wanted: Wanted, *, tail: bool = True, archive: bool = True
) -> Iterator[list[EventRow]]:
    """Return pages of events by time. Without `tail` only events of the store and its archive, without `archive` only
    events of the store itself."""
    replay = Replay(JournalReader(log, store, settings), store, wanted)
    if not archive:
        return replay.of_store((max(0, wanted.from_ - 1), LAST), wanted.to)
    return replay.pages() if tail else replay.stored(0, LAST)


class Replay:
    """A replay that is under way."""

    def __init__(self, reader: JournalReader, store: Store, wanted: Wanted) -> None:
        self._reader, self._store, self._wanted = reader, store, wanted
        self._kept: dict[tuple[str, int], int] = {}
        """For lives with events in files and in the store alone: the number up to which the files were read."""

    def pages(self) -> Iterator[list[EventRow]]:
        """Store, then tail."""
        with SpilledTail(self._reader, self._wanted) as aside:
            aside.read(self._pointer())
            hiding: dict[str, State] = {}
            for portion in aside.portions if aside.removing else ():
                hiding |= self._after(portion, self._before(portion, aside.removing))
            bound = min(self._pointer().timestamp, aside.end)
            shown = (lambda row: row.key not in hiding or remains(row, hiding[row.key])) if hiding else None
            yield from self.stored(0, bound, shown)
            for portion in aside.portions:
                yield from self._added(portion, bound, aside.end)

    def stored(self, after: int, to: int, shown: Callable[[EventRow], bool] | None = None) -> Iterator[list[EventRow]]:
        """Yield events of store and archive after one timestamp, up to another.

        Below the archive's time the events in files come first, then rows that are in no file, which are later events
        of their keys. The archive's time is read again after each page of the store. Once it has moved, rows that this
        page needs may be gone: the page is dropped, and its events are read from the files.
        """
        place, to = (max(after, self._wanted.from_ - 1), LAST), min(to, self._wanted.to)
        done = 0
        while place < (to, LAST):
            line = self._archive_line()
            end = min(to, line - 1)
            if line > done and place < (end, LAST):
                yield from self._of_archive(place, end, shown)
                for rows in self.of_store(place, end):
                    self._check_line(line)
                    yield list(filter(shown, self._not_archived(rows)))
                self._check_line(line)
                place, done = (end, LAST), line
                continue
            for rows in self.of_store(place, to):
                if self._archive_line() != line:
                    reached("replay.archived_meanwhile")
                    break
                if rows:
                    place = rows[-1].timestamp, rows[-1].seq_nr
                yield rows if shown is None else list(filter(shown, rows))
            if self._archive_line() == line:
                return

    def of_store(self, place: tuple[int, int], to: int) -> Iterator[list[EventRow]]:
        """Yield pages of the rows that the store itself has behind a place, by time, up to the cut."""
        partition, cut, _, _, slices, entity_type = self._wanted
        more, limit = place < (to, LAST), min(PAGE, FIRST_PAGE)
        while more:
            rows, more = events_of(
                self._store, partition, after=place, to=to, limit=limit, entity_type=entity_type, slices=slices
            )
            if not rows:
                return
            # As many rows as may fit, if the next ones are as large as these.
            size = sum([len(row.body) for row in rows if isinstance(row.body, bytes)])
            limit = max(1, min(PAGE, STORE_PAGE_BYTES * len(rows) // max(1, size)))
            place = rows[-1].timestamp, rows[-1].seq_nr
            if log_offset_of(rows[-1].body) > cut:
                reached("replay.carried_past_the_cut")
                rows, more = [row for row in rows if log_offset_of(row.body) <= cut], False
            yield rows

    # ------------------------------------------------------------ the archive

    def _archive_line(self) -> int:
        """Return the archive's time: below it all heads know which of their events are in the files."""
        note = self._store.archive.note()
        return 0 if note is None else note.before

    def _check_line(self, line: int) -> None:
        """`ReadConflict` if the archive's time has moved: a key whose events were in the store alone may have lost
        some of them, and it is not known which were shown."""
        if self._archive_line() != line:
            raise ReadConflict(
                f"more of partition {self._wanted.partition} went into the archive while it was replayed",
                code="journal_changed",
                hint="replay again",
            )

    def _of_archive(
        self, place: tuple[int, int], to: int, shown: Callable[[EventRow], bool] | None
    ) -> Iterator[list[EventRow]]:
        """Yield pages of the events behind a place that are in the files, whether or not the store has them, too."""
        partition, _, _, _, (lo, hi), entity_type = self._wanted
        mine = Range(first_slice(partition, self._partitions), first_slice(partition + 1, self._partitions) - 1)
        slices = max(lo, mine.lo), min(hi, mine.hi)
        if slices[0] > slices[1]:
            return
        for rows in self._store.archive.pages(slices=slices, after=place[0] - 1, to=to, entity_type=entity_type):
            found = []
            states = self._states_of(rows)
            for row in rows:
                state = states.get(row.key)
                if not isinstance(state, Head) or not remains(row, state) or (row.timestamp, row.seq_nr) <= place:
                    continue
                if row.seq_nr > self._kept.get((row.key, row.life), state.archive_to):
                    self._kept.setdefault((row.key, row.life), state.archive_to)
                elif log_offset_of(row.body) <= self._wanted.cut and (shown is None or shown(row)):
                    found.append(row)
            yield found

    def _not_archived(self, rows: list[EventRow]) -> list[EventRow]:
        """Return the rows that this replay did not read from a file, even if the head says by now that a file has
        them."""
        states, found = self._states_of(rows), []
        for row in rows:
            state = states.get(row.key)
            archived = state.archive_to if isinstance(state, Head) and state.life == row.life else 0
            if row.seq_nr > self._kept.get((row.key, row.life), archived):
                found.append(row)
        return found

    def _states_of(self, rows: list[EventRow]) -> dict[str, State]:
        return self._store.look(self._wanted.partition, {row.key for row in rows}).states

    @property
    def _partitions(self) -> int:
        return self._store.settings.partitions

    def _added(self, portion: TailShard, bound: int, end: int) -> Iterator[list[EventRow]]:
        """Yield the events that a part of the tail adds above the time up to which the store was read."""
        before = self._before(portion)
        after = self._after(portion, before)
        pointer = self._pointer()
        stored_to = min(pointer.timestamp, end)
        yield from self.stored(bound, stored_to, lambda row: row.key in after and remains(row, after[row.key]))

        def rows(key: str, events: Iterable[RecordedEvent]) -> Iterator[EventRow]:
            from_, to, state = max(stored_to + 1, self._wanted.from_), self._wanted.to, after[key]
            if isinstance(state, Head):
                made = (event.row(state.segment_size) for event in events)
                yield from (row for row in made if from_ <= row.timestamp <= to and remains(row, state))

        for key, state in before.items():
            if isinstance(state, Head) and state.offset > pointer.offset:
                reached("replay.head_ahead_of_the_pointer")
                yield list(rows(key, self._ahead(key, state)))
        tails = self._tails(before)
        found: list[EventRow] = []
        size = 0
        for key, record in portion:
            tails[key].add((record,))
            events, tails[key].events = tails[key].events, []
            found += rows(key, events)
            size += len(record.value or b"")
            if len(found) >= PAGE or size >= PAGE_BYTES:
                yield found
                found, size = [], 0
        yield found

    def _ahead(self, key: str, head: Head) -> Iterator[RecordedEvent]:
        """Yield the stored events of a key whose head is ahead of the pointer."""
        made = plan(key, self._wanted.partition, self._wanted.cut, head, None)
        events = Reading(self._reader, made, 1, head.seq_nr, cut=self._wanted.cut).events()
        return (event for event in events if event.life == head.life)

    def _before(self, portion: TailShard, among: Container[str] | None = None) -> dict[str, State]:
        """Return the states that the store had of a portion's keys, or of some of these keys."""
        keys = {key for key, _ in portion if among is None or key in among}
        states = self._store.look(self._wanted.partition, keys).states
        return {key: states.get(key) for key in keys}

    def _after(self, portion: TailShard, states: dict[str, State]) -> dict[str, State]:
        """Return the states of these keys after a portion."""
        tails = self._tails(states, to=0)
        for key, record in portion:
            if key in tails:
                tails[key].add((record,))
        return {key: tail.state for key, tail in tails.items()}

    def _tails(self, states: dict[str, State], to: int = SEQ_NR_MAX) -> dict[str, KeyTail]:
        rules = self._reader.rules
        return {key: KeyTail(key, state, rules, to=to, bytes_max=SEQ_NR_MAX) for key, state in states.items()}

    def _pointer(self) -> Pointer:
        return self._store.pointers()[self._wanted.partition]


def remains(row: EventRow, state: State) -> bool:
    """Return whether an event is still there under this state of its key."""
    return isinstance(state, Head) and row.life == state.life and row.seq_nr > state.delete_to


class TailShard:
    """A part of the tail: all records of some keys, in a file that stays in memory while it is small."""

    def __init__(self, bytes_max: int) -> None:
        self.file = SpooledTemporaryFile(max(1, bytes_max), prefix="strandline-")  # noqa: SIM115 - closed by SpilledTail

    def put(self, records: list[tuple[Any, ...]]) -> None:
        packed = marshal.dumps(records)
        self.file.write(_LENGTH.pack(len(packed)) + packed)

    def __iter__(self) -> Iterator[tuple[str, Record]]:
        self.file.seek(0)
        while length := self.file.read(_LENGTH.size):
            for values in marshal.loads(self.file.read(*_LENGTH.unpack(length))):  # noqa: S302 - we wrote it ourselves
                yield values[3], new_tuple(Record, values)


class SpilledTail(ExitStack):
    """The tail of a partition up to a cut, in portions: all records of a key are in one.

    `removing`: the keys that may have lost something in it. `end`: the timestamp of the cut, or above it where the
    pointer has passed it.
    """

    def __init__(self, reader: JournalReader, wanted: Wanted) -> None:
        super().__init__()
        self._reader, self._wanted = reader, wanted
        self.removing: set[str] = set()
        self.end = LAST
        self.portions: list[TailShard] = []

    def read(self, pointer: Pointer) -> None:
        """Read the tail from a pointer on."""
        partition, cut, _, to, *_ = self._wanted
        settings, log = self._reader.settings, self._reader.log
        # The size of the tail is not known before it is read; the greatest number of records that it can have is
        # enough.
        count = max(1, min(PORTIONS_MAX, (cut - pointer.offset) // PORTION_RECORDS))
        self.portions = [TailShard(settings.tail_buffer_bytes // count) for _ in range(count)]
        for portion in self.portions:
            self.enter_context(portion.file)
        cursor = PartitionCursor(log, partition, pointer.offset, pointer.timestamp)
        values = to > pointer.timestamp  # else the tail only removes events
        while (after := cursor.offset) < cut:
            try:
                records = cursor.read(to=cut, limit=settings.read_page, bytes_max=PAGE_BYTES, values=values)
            except NotFound as error:
                if error.code != "trimmed":
                    raise
                # The pipeline carried this part, and the log trimmed it, while it was read: go on at the present
                # pointer.
                pointer = self._reader.store.pointers()[partition]
                if pointer.offset + 1 < error.earliest:
                    raise trimmed_away(partition, pointer.offset + 1, error.earliest - 1) from None
                cursor = PartitionCursor(log, partition, pointer.offset, pointer.timestamp)
                continue
            if cursor.offset <= after:
                raise log_ended(partition, after, cut)
            self._put(records)
        if cursor.offset == cut:
            self.end = cursor.timestamp

    def _put(self, records: list[Record]) -> None:
        """Set aside the wanted records of a page, by portion."""
        pages: dict[int, list[tuple[Any, ...]]] = {}
        for record in records:
            key = record.key
            if key is None or not is_key(key) or not self._wanted.key(key):
                continue
            if not is_append(record.header) or (record.life is not None and record.first is None):
                self.removing.add(key)
            pages.setdefault(slice_of(key) % len(self.portions), []).append(tuple(record))
        for number, page in pages.items():
            self.portions[number].put(page)
