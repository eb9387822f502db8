"""A journal store in SQLite or PostgreSQL. A task commits its batch and the pointer in one transaction.

A writer of a partition's rows holds its pointer's row until the commit (SQLite: the file's write lock), and proves
its fence there. Events are inserted as if their places were free. In the rare case that a place is taken, the
transaction is rolled back and repeated, and each place is looked at first. Every read is one statement, and so of one
moment. Tables of views are written, looked up and taken away as they are declared (`store.tables`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat, takewhile
from operator import itemgetter
from typing import Any, Final

from strandline.errors import Corrupt
from strandline.fold import segment_of
from strandline.points import reached
from strandline.rows import PartitionBatch, Pointer
from strandline.settings import Settings
from strandline.sql.api import Database, Part, Transaction
from strandline.store.api import PIPELINE, CarryMark, KeyStates, Lease, RowPage, StoreSettings
from strandline.store.archive import Archive, ArchivedPlace, ArchivedTo
from strandline.store.beating_lease import told_taken
from strandline.store.correction import Amend, Correction
from strandline.store.creation import fixed_in
from strandline.store.end_state import Change, change_of
from strandline.store.heads import ended_in, ended_place, ended_row, head_in, head_row, key_place, state_of
from strandline.store.next_log import OVER, NextLog, check_at_end, log_is_over, pair, row_number
from strandline.store.pages import ANY_BYTES, BODY, bytes_of, large_bytes, up_to
from strandline.store.refusals import check_fence, check_pointer, life_ended, other_event
from strandline.store.reports import report_in, report_text
from strandline.store.scans import ALL_EVENTS, Asked, Scan, grown
from strandline.store.table_statements import declared
from strandline.store.tables import (
    ENDED,
    JOURNAL,
    METAJOURNAL,
    PACKAGE,
    POINTER,
    QUARANTINE,
    SNAPSHOT,
    SnapshotRow,
    Table,
)
from strandline.store.view_list import packages, views_of
from strandline.store.views import View, ViewRows, kept, mirrored
from strandline.values.events import EventRow
from strandline.values.heads import EndedLife, Head, State
from strandline.values.keys import key_digest
from strandline.values.tuples import new_tuple

PART: Final = Part("store", PACKAGE, declared=declared)
ROWS_AT_ONCE: Final = 5000
_moment: Final = itemgetter(8, 3)  # timestamp, seq_nr
_HEAD_AT: Final = len(POINTER.columns) + 1
"""The index of the head's first column in a row of `look` and `states`: after the pointer and its digest."""
_DIGEST_AT: Final = _HEAD_AT + len(METAJOURNAL.columns)
_ENDED_AT: Final = _DIGEST_AT + 3
_SEQ_NR_AT, _LIFE_AT = _HEAD_AT + METAJOURNAL.at("seq_nr"), _ENDED_AT + ENDED.at("life")
_KEY_AT: Final = _HEAD_AT + METAJOURNAL.at("key")


def part_of(views: Sequence[View] | None = None) -> Part:
    """Return the part whose steps make the store's tables, and the tables of these views, or of all views."""
    return PART._replace(also=packages(views))


class SqlStore:
    """A `store.api.Store`. Safe to share between threads; not across a fork."""

    def __init__(
        self, database: Database, settings: StoreSettings, leases: LeasesOf, views: Sequence[View] | None = None
    ) -> None:
        self.settings = settings
        self.views = kept(views_of(settings) if views is None else views, partitioned=False)
        self._database = database
        self._lease = leases(self._raise_fence)
        self._first = row_number(settings.log_nr, 0)
        self._tables = [QUARANTINE, *[table for view in self.views for table in view.tables]]
        self._looked_up = [table for table in self._tables if table.looked_up]
        self.archive = Archive(self)

    @classmethod
    def of(
        cls,
        database: Database,
        settings: Settings,
        log_id: str | None,
        partitions: int | None,
        leases: LeasesOf,
        views: Sequence[View] | None = None,
    ) -> SqlStore:
        """Return the store in an open database; `SchemaMismatch` for another log, other fixed settings, another
        fold."""
        try:
            found = fixed_in(database.fixed, settings, log_id, partitions)
        except BaseException:
            database.close()
            raise
        return cls(database, found, leases, views)

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        return self._pointers(self._database.rows("pointers"))

    def _pointers(self, rows: Iterable[Sequence[Any]]) -> list[Pointer]:
        found = {row[0] - self._first: row for row in rows}
        return [self._pointer(found.get(partition), partition) for partition in range(self.settings.partitions)]

    def _pointer(self, row: Sequence[Any] | None, partition: int) -> Pointer:
        """Return the pointer in a row; one that was never written is before every record.

        `SchemaMismatch.log_replaced` if another log has taken over.
        """
        if row is None or row[0] is None:
            return Pointer(partition)
        found: Pointer = POINTER.read(row)
        if found.offset == OVER:
            raise log_is_over(self.settings.log_id)
        return found._replace(partition=partition) if self._first else found

    def _stored(self, pointer: Pointer) -> Sequence[Any]:
        """The row of a pointer."""
        return POINTER.stored(pointer._replace(partition=self._first + pointer.partition) if self._first else pointer)

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates:
        if len(keys) == 1 and not followed:
            (key,) = keys
            place = (self._first + partition, *key_place(key), *ended_place(key))
            (row,) = self._database.rows("look", place, often=True)
            state = _state(row)
            return KeyStates(self._pointer(row, partition), {} if state is None else {key: state})
        if not keys:
            return KeyStates(self.pointers()[partition], {})
        places = [(*key_place(key), *ended_place(key)) for key in keys]
        if self._database.dialect == "postgres" and not (followed and self._looked_up):
            rows_ = self._database.many("states", places, self._first + partition)  # one round trip
            return KeyStates(self._pointer(rows_[0], partition), _states(rows_))
        with self._database.read() as tx:
            if self._database.dialect == "postgres":
                rows_ = tx.many("states", places, self._first + partition)
                look = KeyStates(self._pointer(rows_[0], partition), _states(rows_))
            else:
                states = _states(tx.many("states", places))
                look = KeyStates(self._pointers(tx.rows("pointers"))[partition], states)
            rows: dict[str, dict[Table, list[Any]]] = {key: {} for key in followed}
            for table in self._looked_up:
                for values in tx.many(_named(table, f"look_{table.name}"), [(key,) for key in followed]):
                    row = table.read(values)
                    state = look.states.get(row[0])
                    if isinstance(state, Head) and state.life == row[1]:
                        rows[row[0]].setdefault(table, []).append(row)
        found: Mapping[str, ViewRows] = rows
        return look._replace(rows=found)

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
        name = "page_backwards" if backwards else "page"
        bounds = (segment_of(from_, segment_size), from_, segment_of(to, segment_size), to)
        rows = self._database.rows(name, (key, life, *bounds, limit, large_bytes(bytes_max)), often=True)
        if None not in map(BODY, rows):
            return RowPage(rows, len(rows) == limit)
        reached("store.large_bodies_apart")
        some = up_to(rows, bytes_max, lambda row: row[3] if row[2] is None else bytes_of(row))
        large = [(key, life, segment_of(row[0], segment_size), row[0]) for row in some if row[2] is None]
        found = {row[3]: (*row[3:5], *row[9:]) for row in self._database.many("standing_events", large)}
        # An event that was deleted meanwhile ends the page.
        whole = list(takewhile(bool, (found.get(row[0]) if row[2] is None else row for row in some)))
        return RowPage(whole, len(rows) == limit or len(whole) < len(rows))

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
        if scan.large_apart and bytes_max is not None:
            values = (*scan.values(equal, slices, after, to, limit), bytes_max // limit)
            rows = self._database.rows(_named(scan.table, scan.name), values, often=True)
            blob = scan.columns.index("body")
            if None not in map(itemgetter(blob), rows):
                return RowPage(rows, len(rows) == limit)
            reached("store.page_cut_by_bytes")

        def ask(after: Sequence[Any] | None, limit: int) -> list[Any]:
            if scan is ALL_EVENTS and self._database.dialect == "sqlite":
                return self._all_events(scan, equal, slices, after, to, limit)
            values = scan.values(equal, slices, after, to, limit)
            if scan.large_apart:
                values = (*values, ANY_BYTES)
            rows = self._database.rows(_named(scan.table, scan.name), values, often=scan.light or scan.large_apart)
            if scan.columns:
                return rows
            if scan.table is JOURNAL:  # a third of the time of EventRow._make, which asks each row for its length
                return list(map(new_tuple, repeat(EventRow), rows))
            return list(map(scan.table.read, rows))

        return grown(scan, ask, after, limit, None if scan.light else bytes_max)

    def scan_each(self, scan: Scan, asked: Sequence[Asked], to: Any) -> list[RowPage]:
        """Return a page of each of these (`scans.scan_each`)."""
        if not scan.light:
            return [self.scan(scan, equal, after=after, to=to, limit=limit, slices=slices, bytes_max=bytes_max)
                    for equal, after, limit, slices, bytes_max in asked]  # fmt: skip
        values = [scan.values(each.equal, each.slices, each.after, to, each.limit) for each in asked]
        found = self._database.rows_each(_named(scan.table, scan.name), values)
        return [RowPage(rows, len(rows) == each.limit) for rows, each in zip(found, asked, strict=True)]

    def _all_events(
        self,
        scan: Scan,
        equal: Sequence[Any],
        slices: tuple[int, int] | None,
        after: Sequence[Any] | None,
        to: Any,
        limit: int,
    ) -> list[EventRow]:
        with self._database.read() as tx:
            rows: list[Any] = []
            for (type_,) in tx.rows("event_types"):
                more = tx.rows("range", (type_, *scan.values(equal, slices, after, to, limit)))
                rows = sorted([*rows, *more], key=_moment)[:limit] if rows else more
                if len(rows) == limit:
                    to = rows[-1][8]  # what comes later is not among the first
        return list(map(new_tuple, repeat(EventRow), rows))

    def now_us(self) -> int:
        return self._database.now_us()

    def close(self) -> None:
        self._lease.close()
        self._database.close()

    # ------------------------------------------------------------ carry

    def write(self, batch: PartitionBatch, seen: Pointer) -> None:
        change = change_of(batch)
        putting: list[Table] = []
        try:
            self._write(batch.pointer, change, seen, putting, carefully=False)
        except Corrupt as error:
            if error.code != "conflict":
                raise
            if putting and putting[-1].conflict != "conflict":
                raise Corrupt(error.message, code=putting[-1].conflict, hint=error.hint, **error.facts) from error
            self._write(batch.pointer, change, seen, putting, carefully=True)

    def _write(self, new: Pointer, change: Change, seen: Pointer, putting: list[Table], *, carefully: bool) -> None:
        """Write a batch. `putting` gets the table of a view before rows are put into it."""
        heads = [METAJOURNAL.stored(head_row(key, head)) for key, head in change.heads]
        rows = {table: list(map(table.stored, some)) for table, some in change.rows.items()}
        with self._database.write() as tx:
            found = self._locked(tx, new.partition)
            check_fence(found.fence, new.fence)
            check_pointer(found, seen)
            if new.offset <= found.offset:  # the whole batch is in the store already
                return
            tx.take_long()
            self._remove(tx, change)
            tx.many("put_journal", _absent(tx, change.events) if carefully else change.events)
            for table, some in rows.items():
                putting.append(table)
                tx.many(_named(table, f"put_{table.name}"), some)
            putting.clear()
            tx.many("put_metajournal", heads)
            tx.execute("set_pointer", self._stored(new._replace(revision=found.revision + 1)))

    def _remove(self, tx: Transaction, change: Change) -> None:
        segments = [
            (key, life, from_, to, segment_of(from_, size), segment_of(max(to, 1), size))
            for key, life, from_, to, size in change.deletes
        ]
        lives = [(key, ended.life) for key, ended in change.purges]
        tx.each("delete_journal", segments)
        for table in (JOURNAL, SNAPSHOT, *self._tables):
            if table.taken_by == "delete" and table is not JOURNAL:
                tx.each(_named(table, f"delete_{table.name}"), [place[:4] for place in segments])
            if table.taken_by != "never":
                tx.each(_named(table, f"purge_{table.name}"), lives)
        tx.each("put_ended", [ENDED.stored(ended_row(key, ended)) for key, ended in change.purges])
        tx.each("purge_metajournal", [key_place(key) for key, _ in change.purges])

    # ------------------------------------------------------------ lease

    def lease(self) -> SqlLeases:
        return self._lease

    def _raise_fence(self, tx: Transaction, fence: int) -> None:
        pointers = self._pointers(tx.rows("lock_pointers"))
        tx.each("set_pointer", [self._stored(pointer._replace(fence=fence)) for pointer in pointers])

    # ------------------------------------------------------------ another log

    def go_on_from(self, new: NextLog, newest: Sequence[int], fence: int) -> None:
        """Pair the store with another log, under the pipeline's lease, if all of the old log is in the store. This
        object stays with the old log: open the store anew.
        """
        with self._database.write() as tx:
            found = self._pointers(tx.rows("lock_pointers"))
            for pointer in found:
                check_fence(pointer.fence, fence)
            check_at_end(found, newest)
            tx.take_long()
            pair(tx, self.settings, found, new)

    def log_now(self) -> str:
        """Return the id of the log that the store is filled from at this moment."""
        ((log_id,),) = self._database.rows("log_now")
        return str(log_id)

    def known_keys(self) -> Iterator[tuple[bytes, str | None, Head | EndedLife]]:
        """Yield digest, name and state of each key. Purged keys, whose names are not kept, come before those that live.

        The store must stand still meanwhile.
        """
        for row in self._each(ENDED):
            ended = ENDED.read(row)
            yield ended.key_digest, None, ended_in(ended)
        for row in self._each(METAJOURNAL):
            head = METAJOURNAL.read(row)
            yield key_digest(head.key), head.key, head_in(head)

    def _each(self, table: Table) -> Iterator[Sequence[Any]]:
        """All rows of a table, with their digests, by their places."""
        rows = self._database.rows(f"first_{table.name}", (ROWS_AT_ONCE,))
        while rows:
            yield from rows
            rows = self._database.rows(f"next_{table.name}", (ROWS_AT_ONCE, *table.place_of(rows[-1])))

    # ------------------------------------------------------------ corrections

    def _locked(self, tx: Transaction, partition: int) -> Pointer:
        rows = tx.rows("lock_pointer", (self._first + partition,))
        return self._pointer(rows[0] if rows else None, partition)

    @contextmanager
    def correct(
        self, partition: int, holder: str, carry_mark: CarryMark, *, fence: int | None = None
    ) -> Iterator[Amend]:
        yield partial(self._amend, fence)

    def _amend(self, fence: int | None, seen: Pointer, correction: Correction) -> None:
        resolved, remove, replace, head, anew, gone = correction
        with self._database.write() as tx:
            found = self._locked(tx, seen.partition)
            check_fence(found.fence, found.fence if fence is None else fence)
            check_pointer(found, seen)
            tx.each("remove_journal_row", map(JOURNAL.place_of, [*remove, *replace]))
            tx.many("put_journal", replace)
            for out in (mirrored(self.views, [*remove, *replace]), gone, anew):
                for table, rows in out.items():
                    tx.each(_named(table, f"remove_{table.name}_row"), map(table.place_of, rows))
            for put in (mirrored(self.views, replace), anew):
                for table, rows in put.items():
                    tx.many(_named(table, f"put_{table.name}"), list(map(table.stored, rows)))
            tx.many("put_metajournal", [METAJOURNAL.stored(head_row(*head))] if head is not None else [])
            if resolved is not None:
                tx.execute("remove_quarantine_row", (seen.partition, resolved))
            tx.execute("set_pointer", self._stored(found._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ the archive

    def kept(self, name: str) -> str | None:
        rows = self._database.rows("kept", (name,), often=True)
        return rows[0][0] if rows else None

    def keep(self, name: str, text: str) -> None:
        with self._database.write() as tx:
            tx.execute("keep", (name, text))

    def mark_archived(self, partition: int, ends: Sequence[ArchivedTo], at: int) -> None:
        with self._database.write() as tx:
            self._locked(tx, partition)
            tx.many("mark_archived", [(*key_place(key), life, archive_to) for key, life, archive_to in ends])

    def remove_archived(self, partition: int, rows: Sequence[ArchivedPlace]) -> None:
        with self._database.write() as tx:
            self._locked(tx, partition)
            tx.many("remove_archived", [(*row[:4], row.digest) for row in rows])

    # ------------------------------------------------------------ snapshots

    def save(self, row: SnapshotRow, partition: int) -> None:
        with self._database.write() as tx:
            self._locked(tx, partition)  # no purge comes in between
            (found,) = tx.rows("look", (self._first + partition, *key_place(row.key), *ended_place(row.key)))
            state = _state(found)
            if state is not None and row.life < state.life + isinstance(state, EndedLife):
                raise life_ended(row.key, row.life)
            tx.execute("put_snapshot", SNAPSHOT.stored(row))

    def remove(self, key: str, life: int, *, to: int) -> int:
        with self._database.write() as tx:
            return tx.execute("remove_snapshots", (key, life, to))


RaiseFence = Callable[[Transaction, int], None]
"""Raises the fence of what a lease protects, in the transaction that takes the lease."""


class SqlLeases(ABC):
    """The lease (`store.api.Leases`). Files and servers tell in different ways that a holder died."""

    def __init__(self, database: Database, raise_fence: RaiseFence) -> None:
        self._database, self._raise_fence = database, raise_fence

    def take(self, holder: str) -> Lease:
        """Take the lease; `LeaseHeld` if somebody has it."""
        lease = self._take(holder)
        told_taken(self._database.where, holder, lease.fence)
        return lease

    @abstractmethod
    def _take(self, holder: str) -> Lease: ...

    @abstractmethod
    def holder(self) -> tuple[str, int] | None:
        """Return its holder, and since when (µs)."""

    @abstractmethod
    def close(self) -> None:
        """Give the lease back if it is held here."""

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        with self._database.write() as tx:
            tx.execute("report", (report_text(errors), PIPELINE, fence))

    def reported(self) -> dict[int, str]:
        rows = self._database.rows("reported", (PIPELINE,))
        return report_in(rows[0][0] if rows else None)


LeasesOf = Callable[[RaiseFence], SqlLeases]
"""Makes the lease of a store."""


# ---------------------------------------------------------------- rows


def _named(table: Table, name: str) -> str:
    """Return a statement of the package that declares a table."""
    return name if table.package == PACKAGE else f"{table.package}/{name}"


def _states(rows: Sequence[Any]) -> dict[str, State]:
    """Return the states in rows of `states`, by key."""
    return {row[_KEY_AT]: state for row in rows if row[_KEY_AT] is not None and (state := _state(row)) is not None}


def _state(row: Sequence[Any]) -> State:
    """Return the state in a row of pointer, head and ended life; what is absent is None."""
    ended = None if row[_LIFE_AT] is None else ended_in(ENDED.read(row[_ENDED_AT:]))
    head = None
    if row[_SEQ_NR_AT] is not None:
        head = head_in(METAJOURNAL.read(row[_HEAD_AT : _DIGEST_AT + 1]), *row[_DIGEST_AT + 1 : _ENDED_AT])
    return state_of(head, ended)


def _absent(tx: Transaction, events: Sequence[EventRow]) -> list[EventRow]:
    """Return the events that are not stored yet. `Corrupt.conflict` if another event has the place of one of them."""
    standing = {(key, life, seq_nr): same for key, life, seq_nr, same in tx.many("standing", events)}
    for row in events:
        if not standing.get((row.key, row.life, row.seq_nr), True):
            raise other_event(row.key, row.life, row.seq_nr)
    return [row for row in events if (row.key, row.life, row.seq_nr) not in standing]
