"""A journal store in memory: for tests and trials. It is thread-safe and transactional, and ends with its process."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from threading import RLock
from typing import Any

from strandline.clock import now_us
from strandline.rows import PartitionBatch, Pointer
from strandline.store.api import CarryMark, KeyStates, RowPage, StoreSettings
from strandline.store.archive import Archive, ArchivedPlace, ArchivedTo
from strandline.store.correction import Amend, Correction
from strandline.store.end_state import Change, change_of
from strandline.store.heads import head_row
from strandline.store.pages import up_to
from strandline.store.refusals import (
    check_fence,
    check_pointer,
    closed,
    lease_held,
    life_ended,
    other_event,
    used_after_fork,
)
from strandline.store.scans import LAST_KEY, Scan, bytes_in, page_of, scanned
from strandline.store.tables import JOURNAL, METAJOURNAL, QUARANTINE, SNAPSHOT, SnapshotRow, Table
from strandline.store.view_list import views_of
from strandline.store.views import Row, View, kept, mirrored
from strandline.values.events import EventRow
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head, State
from strandline.values.keys import key_digest

_Life = tuple[str, int]


def _seq_nr(row: EventRow) -> int:
    return row.seq_nr


def _moment(row: EventRow) -> tuple[int, int, str]:
    return row.timestamp, row.seq_nr, row.key


class MemoryStore:
    """A `store.api.Store`. `clock` tells µs; it is asked only when a lease is taken."""

    def __init__(
        self, settings: StoreSettings, *, clock: Callable[[], int] = now_us, views: Sequence[View] | None = None
    ) -> None:
        self.settings = settings
        self.views = kept(views_of(settings) if views is None else views, partitioned=False)
        self._clock = clock
        self._lock = RLock()
        self._process = os.getpid()
        self._closed = False
        self._pointers = [Pointer(partition) for partition in range(settings.partitions)]
        self._journal: dict[_Life, list[EventRow]] = {}
        self._moments: list[list[EventRow]] = [[] for _ in range(settings.partitions)]
        self._heads: dict[str, Head] = {}
        self._ended: dict[bytes, EndedLife] = {}
        tables = [QUARANTINE, SNAPSHOT, *[table for view in self.views for table in view.tables]]
        self._tables: dict[Table, dict[tuple[Any, ...], Row]] = {table: {} for table in tables}
        self._lease = MemoryLeases(self)
        self._kept: dict[str, str] = {}
        self._archived: dict[str, tuple[int, int]] = {}
        """By key, the life and the number up to which it is archived. Kept beside the heads, which the pipeline
        replaces."""
        self.archive = Archive(self)

    @contextmanager
    def _moment_of(self) -> Iterator[None]:
        """Hold the lock, so that all that is done inside happens at one moment."""
        if os.getpid() != self._process:  # checked before locking: a fork may have copied a locked lock
            raise used_after_fork()
        with self._lock:
            if self._closed:
                raise closed()
            yield

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        with self._moment_of():
            return list(self._pointers)

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates:
        with self._moment_of():
            states: dict[str, State] = {key: state for key in keys if (state := self._state(key)) is not None}
            rows = {key: self._looked_up(key, states.get(key)) for key in followed}
            return KeyStates(self._pointers[partition], states, {}, rows)

    def _state(self, key: str) -> State:
        head = self._heads.get(key)
        if head is not None and key in self._archived:
            life, archive_to = self._archived[key]
            return head._replace(archive_to=archive_to if life == head.life else 0)
        return head or self._ended.get(key_digest(key))

    def _looked_up(self, key: str, state: State) -> dict[Table, list[Row]]:
        if not isinstance(state, Head):
            return {}
        life = key, state.life
        looked_up = [table for table in self._tables if table.looked_up]
        return {t: [t.read(row) for row in self._tables[t].values() if tuple(row[:2]) == life] for t in looked_up}

    def page(
        self,
        key: str,
        life: int,
        segment_size: int,
        *,
        from_: int,
        to: int,
        limit: int,
        bytes_max: int | None = None,
        backwards: bool = False,
    ) -> RowPage:
        with self._moment_of():
            rows = self._journal.get((key, life), [])
            start = bisect_left(rows, from_, key=_seq_nr)
            end = bisect_right(rows, to, key=_seq_nr)
            chosen = rows[max(start, end - limit) : end][::-1] if backwards else rows[start : min(end, start + limit)]
            found = up_to([row.cells for row in chosen], bytes_max)
            return RowPage(found, len(found) < end - start)

    def scan(
        self,
        scan: Scan,
        equal: Sequence[Any] = (),
        *,
        after: Sequence[Any] | None = None,
        to: Any = None,
        limit: int,
        slices: tuple[int, int] | None = None,
        bytes_max: int | None = None,
    ) -> RowPage:
        with self._moment_of():
            if scan.table is JOURNAL:
                events: Iterator[Any] = self._between(equal, (*(after or (0, 0)), LAST_KEY)[:3], to, slices)
                if scan.columns:
                    events = map(itemgetter(*map(scan.table.at, scan.columns)), events)
                return page_of(events, limit, bytes_max, bytes_in(scan))
            rows = self._tables[scan.table].values() if scan.table is not METAJOURNAL else self._head_rows()
            found = page_of(scanned(scan, rows, equal, slices, after, to), limit, bytes_max, bytes_in(scan))
            return found if scan.columns else RowPage([scan.table.read(row) for row in found.rows], found.more)

    def _between(
        self, equal: Sequence[Any], after: tuple[Any, ...], to: int | None, slices: tuple[int, int] | None
    ) -> Iterator[EventRow]:
        """Yield events of a partition, of one type or all, in the order of time."""
        *types, partition = equal
        rows = self._moments[partition]
        for index in range(bisect_right(rows, after, key=_moment), len(rows)):
            row = rows[index]
            if to is not None and row.timestamp > to:
                return
            if row.entity_type in (types or (row.entity_type,)) and (not slices or slices[0] <= row.slice <= slices[1]):
                yield row

    def _head_rows(self) -> list[Row]:
        return [head_row(key, head) for key, head in self._heads.items()]

    def now_us(self) -> int:
        with self._moment_of():
            return self._clock()

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True

    # ------------------------------------------------------------ carry

    def write(self, batch: PartitionBatch, seen: Pointer) -> None:
        new = batch.pointer
        with self._moment_of():
            found = self._pointers[new.partition]
            check_fence(found.fence, new.fence)
            check_pointer(found, seen)
            if new.offset <= found.offset:  # the whole batch is in the store already
                return
            change = change_of(batch)
            self._apply(change._replace(events=self._new_rows(change)))
            self._pointers[new.partition] = new._replace(revision=found.revision + 1)

    def _new_rows(self, change: Change) -> list[EventRow]:
        """Return the rows that are not stored yet. It is called before anything changes, so that a refusal changes
        nothing."""
        new = []
        for row in change.events:
            stands = self._row_at(row)
            if stands is None:
                new.append(row)
            elif stands != row:
                raise other_event(row.key, row.life, row.seq_nr)
        return new

    def _row_at(self, row: EventRow) -> EventRow | None:
        rows = self._journal.get((row.key, row.life), [])
        index = bisect_left(rows, row.seq_nr, key=_seq_nr)
        return rows[index] if index < len(rows) and rows[index].seq_nr == row.seq_nr else None

    def _apply(self, change: Change) -> None:
        for key, life, from_, to, _ in change.deletes:
            for row in [row for row in self._journal.get((key, life), []) if from_ <= row.seq_nr <= to]:
                self._remove(row)
            self._take(key, life, lambda table: table.taken_by == "delete", from_, to)
        for key, ended in change.purges:
            self._purge(key, ended)
        for row in change.events:
            insort(self._journal.setdefault((row.key, row.life), []), row, key=_seq_nr)
            insort(self._moments[row.partition], row, key=_moment)
        self._heads.update(change.heads)
        for table, rows in change.rows.items():
            self._tables[table].update({table.place_of(row): table.stored(row) for row in rows})

    def _purge(self, key: str, ended: EndedLife) -> None:
        self._ended[key_digest(key)] = ended
        for row in list(self._journal.get((key, ended.life), [])):
            self._remove(row)
        self._take(key, ended.life, lambda table: table.taken_by != "never")
        self._heads.pop(key, None)

    def _take(self, key: str, life: int, taken: Callable[[Table], bool], from_: int = 0, to: int = SEQ_NR_MAX) -> None:
        """Remove rows of a life from the tables that declare it; only rows between two numbers if they are given."""
        for table, rows in self._tables.items():
            if not taken(table):
                continue
            whose, number = table.at("key"), table.at("life")
            nr = table.at("seq_nr") if to < SEQ_NR_MAX else number
            for place in [
                place
                for place, row in rows.items()
                if (row[whose], row[number]) == (key, life) and (to == SEQ_NR_MAX or from_ <= row[nr] <= to)
            ]:
                del rows[place]

    def _remove(self, row: EventRow) -> None:
        life = row.key, row.life
        rows = self._journal.get(life, [])
        index = bisect_left(rows, row.seq_nr, key=_seq_nr)
        if index == len(rows) or rows[index].seq_nr != row.seq_nr:
            return
        stood = rows.pop(index)
        if not rows:
            del self._journal[life]
        moments = self._moments[stood.partition]
        del moments[bisect_left(moments, _moment(stood), key=_moment)]

    # ------------------------------------------------------------ lease

    def lease(self) -> MemoryLeases:
        with self._moment_of():
            return self._lease

    # ------------------------------------------------------------ corrections

    @contextmanager
    def correct(
        self, partition: int, holder: str, carry_mark: CarryMark, *, fence: int | None = None
    ) -> Iterator[Amend]:
        yield partial(self._amend, fence)

    def _amend(self, fence: int | None, seen: Pointer, correction: Correction) -> None:
        resolved, remove, replace, head, anew, gone = correction
        with self._moment_of():
            found = self._pointers[seen.partition]
            check_fence(found.fence, found.fence if fence is None else fence)
            check_pointer(found, seen)
            for row in (*remove, *replace):
                self._remove(row)
            self._tables[QUARANTINE].pop((seen.partition, resolved), None)
            for out in (mirrored(self.views, remove), gone):
                for table, rows in out.items():
                    for each in rows:
                        self._tables[table].pop(table.place_of(each), None)
            self._apply(
                Change(
                    [],
                    [],
                    replace,
                    [head] if head else [],
                    {**mirrored(self.views, replace), **{table: [*rows] for table, rows in anew.items()}},
                )
            )
            self._pointers[seen.partition] = found._replace(revision=found.revision + 1)

    # ------------------------------------------------------------ the archive

    def kept(self, name: str) -> str | None:
        with self._moment_of():
            return self._kept.get(name)

    def keep(self, name: str, text: str) -> None:
        with self._moment_of():
            self._kept[name] = text

    def mark_archived(self, partition: int, ends: Sequence[ArchivedTo], at: int) -> None:
        with self._moment_of():
            self._archived |= {key: (life, archive_to) for key, life, archive_to in ends}

    def remove_archived(self, partition: int, rows: Sequence[ArchivedPlace]) -> None:
        with self._moment_of():
            for place in rows:
                stood = [row for row in self._journal.get(place[:2], []) if row.seq_nr == place.seq_nr]
                for row in stood:
                    if row.digest == place.digest:
                        self._remove(row)

    # ------------------------------------------------------------ snapshots

    def save(self, row: SnapshotRow, partition: int) -> None:
        with self._moment_of():
            state = self._state(row.key)
            if state is not None and row.life < state.life + isinstance(state, EndedLife):
                raise life_ended(row.key, row.life)
            self._tables[SNAPSHOT][SNAPSHOT.place_of(row)] = SNAPSHOT.stored(row)

    def remove(self, key: str, life: int, *, to: int) -> int:
        with self._moment_of():
            saved = self._tables[SNAPSHOT]
            gone = [place for place in saved if place[:2] == (key, life) and place[2] <= to]
            for place in gone:
                del saved[place]
            return len(gone)


class MemoryLeases:
    """The lease of a memory store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._fence = 0
        self._errors: dict[int, str] = {}
        self._holder: tuple[str, int] | None = None

    def take(self, holder: str) -> MemoryLease:
        with self._store._moment_of():
            if self._holder is not None:
                raise lease_held(*self._holder)
            self._holder = holder, self._store._clock()
            self._fence += 1
            self._errors = {}
            self._store._pointers = [pointer._replace(fence=self._fence) for pointer in self._store._pointers]
            return MemoryLease(self, self._fence)

    def holder(self) -> tuple[str, int] | None:
        with self._store._moment_of():
            return self._holder

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        with self._store._moment_of():
            if fence == self._fence:
                self._errors = dict(errors)

    def reported(self) -> dict[int, str]:
        with self._store._moment_of():
            return dict(self._errors)

    def check(self, fence: int) -> None:
        """Raise `LeaseLost` if another fence is in force."""
        with self._store._moment_of():
            check_fence(self._fence, fence)

    def release(self, fence: int) -> None:
        """Release the lease."""
        with self._store._lock:
            if self._fence == fence:
                self._holder = None


class MemoryLease:
    """A lease of a memory store."""

    def __init__(self, leases: MemoryLeases, fence: int) -> None:
        self._leases = leases
        self.fence = fence

    def check(self) -> None:
        self._leases.check(self.fence)

    def release(self) -> None:
        self._leases.release(self.fence)
