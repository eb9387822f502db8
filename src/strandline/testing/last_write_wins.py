"""A journal store with Cassandra's order and ties, in memory: no transaction, each write on its own.

It proves the order in which a store without transactions must be written: whatever write was the last before a crash,
readers get right answers, and the same actions again end in the same rows. `before_write` is called with the table's
name before every single write; a test raises there.

The order is that of `store.phases`, which is what the Cassandra store runs.

Every cell is written with its action's timestamp. A correction is written with that of the Mark that is carried before
it: above all that is there, below all that will come. At equal timestamps the greater value would stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any
from zlib import crc32

from strandline.clock import now_us
from strandline.fold import segment_of
from strandline.rows import PartitionBatch, Pointer
from strandline.store.api import PIPELINE, CarryMark, KeyStates, RowPage, StoreSettings
from strandline.store.archive import Archive, ArchivedPlace, ArchivedTo
from strandline.store.correction import Amend, Correction
from strandline.store.heads import ended_in, ended_place, head_in, head_row, key_place, state_of
from strandline.store.pages import up_to
from strandline.store.phases import Hide, Put, Write, amended, run, taken_out, written
from strandline.store.refusals import (
    check_correcting,
    check_fence,
    check_pointer,
    closed,
    lease_held,
    life_ended,
)
from strandline.store.scans import Scan, bytes_in, page_of, scanned
from strandline.store.tables import (
    ENDED,
    JOURNAL,
    METAJOURNAL,
    QUARANTINE,
    SLICE_VIEW,
    SNAPSHOT,
    SliceRow,
    SnapshotRow,
    Table,
)
from strandline.store.view_list import views_of
from strandline.store.views import Row, Span, View, kept
from strandline.testing import cells
from strandline.values.events import EventRow
from strandline.values.heads import EndedLife, Head, State
from strandline.values.keys import slice_of


def _nothing(table: str) -> None:
    """The hook where nobody wants one."""


class LastWriteWinsStore:
    """A `store.api.Store`, written as `reliability.md` 3.2 says."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        before_write: Callable[[str], None] = _nothing,
        views: Sequence[View] | None = None,
    ) -> None:
        self.settings = settings
        self.before_write = before_write
        self.views = kept(views_of(settings) if views is None else views, partitioned=True)
        declared = [JOURNAL, METAJOURNAL, ENDED, QUARANTINE, SNAPSHOT, *[t for view in self.views for t in view.tables]]
        self.tables = {name: cells.CellTable() for name in ("pointer", "lease", *[table.name for table in declared])}
        self._closed = False
        self._clock_us = 0
        self._correcting: int | None = None
        self._kept: dict[str, str] = {}
        self.archive = Archive(self)
        for partition in range(settings.partitions):
            self._put("pointer", partition, 0, Pointer(partition)._asdict(), 0)

    # ------------------------------------------------------------ single writes

    def _write(self, writes: Sequence[Write]) -> None:
        """The writes of a step, row by row."""
        for write in writes:
            if isinstance(write, Put):
                for row in write.rows:
                    self._put_row(write.table, row, write.timestamp)
            elif isinstance(write, Hide):
                place = key_place(write.key)
                self._put(METAJOURNAL.name, place[:2], place[2:], {"hidden_to": write.to}, write.timestamp)
            else:
                (table, partition, first, last), timestamp = write
                self._remove(table.name, partition, timestamp, first=first or None, last=last or None)

    def _put_row(self, table: Table, row: Row, timestamp: int | None = None) -> None:
        if table.time is None:
            timestamp = 1
        elif timestamp is None:
            timestamp = row[table.at(table.time)]
        named = dict(zip([column.name for column in table.columns], row, strict=True))
        self._put(table.name, table.partition_of(row), table.within(row), named, timestamp)

    def _find(self, spans: Sequence[Span]) -> dict[Span, list[Row]]:
        return {span: self._found(*span) for span in spans}

    def _found(self, table: Table, partition: Row, first: Row = (), last: Row = ()) -> list[Row]:
        """The rows of a stretch of a partition."""
        self._check_open()
        rows = self.tables[table.name].rows(partition)
        within = [row for place, row in rows if (not first or first <= place) and (not last or place <= last)]
        return [tuple([row.get(column.name) for column in table.columns]) for row in within]

    def _put(self, table: str, partition: Any, place: Any, named: dict[str, Any], timestamp: int) -> None:
        self._check_open()
        self.before_write(table)
        self.tables[table].put(partition, place, named, timestamp)

    def _remove(self, table: str, partition: Any, timestamp: int, *, first: Any = None, last: Any = None) -> None:
        self._check_open()
        self.before_write(table)
        self.tables[table].remove(partition, timestamp, first=first, last=last)

    def _row(self, table: str, partition: Any, place: Any) -> dict[str, Any]:
        self._check_open()
        return self.tables[table].row(partition, place)

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _now_us(self) -> int:
        """A writer's clock, for what users own: never the same twice."""
        self._clock_us = max(self._clock_us + 1, now_us())
        return self._clock_us

    # ------------------------------------------------------------ the archive

    def kept(self, name: str) -> str | None:
        self._check_open()
        return self._kept.get(name)

    def keep(self, name: str, text: str) -> None:
        self.before_write("setting")
        self._kept[name] = text

    def mark_archived(self, partition: int, ends: Sequence[ArchivedTo], at: int) -> None:
        for key, life, archive_to in ends:
            place = key_place(key)
            self._put(METAJOURNAL.name, place[:2], place[2:], {"archive_life": life, "archive_to": archive_to}, at)

    def remove_archived(self, partition: int, rows: Sequence[ArchivedPlace]) -> None:
        run(taken_out(partition, rows), self._write, self._find)

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        return [self._pointer(partition) for partition in range(self.settings.partitions)]

    def _pointer(self, partition: int) -> Pointer:
        return Pointer(**self._row("pointer", partition, 0))

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates:
        pointer = self._pointer(partition)  # first: the other way round loses actions
        states: dict[str, State] = {}
        unfinished: dict[str, Head] = {}
        rows = {}
        for key in keys:
            head = self._head(key)
            state = state_of(head, self._ended(key))
            if state is not None:
                states[key] = state
            if head is not None and state is not head:
                unfinished[key] = head
            if head is not None and key in followed:
                tables = [table for view in self.views for table in view.tables if table.looked_up]
                rows[key] = {table: self._found(table, (key, head.life)) for table in tables}
        return KeyStates(pointer, states, unfinished, rows)

    def _state(self, key: str) -> State:
        return state_of(self._head(key), self._ended(key))

    def _head(self, key: str) -> Head | None:
        place = key_place(key)
        named = self._row(METAJOURNAL.name, place[:2], place[2:])
        if "log_offset" not in named:  # `hidden_to` may be all there is of a row that has no head yet
            return None
        row = [named.get(column.name) for column in METAJOURNAL.columns]
        head = head_in(row, named.get("archive_life"), named.get("archive_to"))
        return head._replace(delete_to=max(head.delete_to, named.get("hidden_to", 0)))

    def _ended(self, key: str) -> EndedLife | None:
        slice_, digest = ended_place(key)
        rows = self._found(ENDED, (slice_,), (digest,), (digest,))
        return ended_in(rows[0]) if rows else None

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
        self._check_open()
        rows = [row.cells for row in self._events(key, life) if from_ <= row.seq_nr <= to]
        found = up_to(islice(reversed(rows) if backwards else rows, limit), bytes_max)
        return RowPage(found, len(found) < len(rows))

    def _events(self, key: str, life: int) -> Iterator[EventRow]:
        for place in self.tables[JOURNAL.name].partitions():
            if place[:2] == (key, life):
                yield from map(EventRow._make, self._found(JOURNAL, place))

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
        self._check_open()
        rows = scanned(scan, self._rows_of(scan, equal), equal, slices, after, to)
        return page_of(rows, limit, bytes_max, bytes_in(scan))

    def _rows_of(self, scan: Scan, equal: Sequence[Any]) -> Iterator[Any]:
        """The rows that a scan looks at: of events and heads those that are not hidden."""
        if scan.table is JOURNAL:
            bound = self._pointer(equal[-1]).timestamp  # above it a killed attempt may have left some of its rows
            for row in self._all(SLICE_VIEW):
                if row.partition == equal[-1] and row.timestamp <= bound and (event := self._shown(row)):
                    yield event
        elif scan.table is METAJOURNAL:
            for row in self._all(METAJOURNAL):
                if isinstance(state := self._state(row[2]), Head):
                    yield head_row(row[2], state)
        else:
            yield from self._all(scan.table)

    def _all(self, table: Table) -> Iterator[Any]:
        for partition in self.tables[table.name].partitions():
            yield from map(table.row, self._found(table, partition))

    def raw_rows(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        """Rows as they lie (`store.raw_rows`)."""
        stored = [at for at, column in enumerate(table.columns) if not column.sql_only]
        for partition in self._partitions(table, part, parts):
            for row in self._found(table, partition):
                yield tuple([row[at] for at in stored])

    def raw_partitions(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        """Partition keys as they lie (`store.raw_rows`)."""
        return (place for place in self._partitions(table, part, parts) if self._found(table, place))

    def raw_row(self, table: Table, place: Sequence[Any]) -> Any:
        """The row at a place (`store.raw_rows`)."""
        key, within = tuple(place[: table.partitioned_by]), tuple(place[table.partitioned_by :])
        rows = self._found(table, key, within, within)
        stored = [at for at, column in enumerate(table.columns) if not column.sql_only]
        return tuple([rows[0][at] for at in stored]) if rows else None

    def _partitions(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        places = self.tables[table.name].partitions()
        return (place for place in places if crc32(repr(place).encode()) % parts == part)

    def _shown(self, row: SliceRow) -> EventRow | None:
        state = self._state(row.key)
        if not isinstance(state, Head) or state.life != row.life or row.seq_nr <= state.delete_to:
            return None
        segment = segment_of(row.seq_nr, state.segment_size)
        return EventRow(
            row.key, row.life, segment, row.seq_nr, row.prev_seq_nr, row.entity_type, slice_of(row.key), row.partition,
            row.timestamp, row.body, row.digest,
        )  # fmt: skip

    def now_us(self) -> int:
        return now_us()

    def close(self) -> None:
        self._closed = True

    # ------------------------------------------------------------ carry

    def write(self, batch: PartitionBatch, seen: Pointer) -> None:
        new = batch.pointer
        found = self._pointer(new.partition)
        check_fence(found.fence, new.fence)
        check_pointer(found, seen)
        if new.offset <= found.offset:
            return
        run(written(batch, self.views), self._write, self._find)
        self._move_pointer(new._replace(revision=found.revision + 1))

    def _move_pointer(self, new: Pointer) -> None:
        """A conditional write: only under the fence in force, and never back."""
        self.before_write("pointer")
        found = self._pointer(new.partition)
        check_fence(found.fence, new.fence)
        if new.offset > found.offset:
            self._set_pointer(new)

    def _set_pointer(self, pointer: Pointer) -> None:
        self.tables["pointer"].put(pointer.partition, 0, pointer._asdict(), self._now_us())

    # ------------------------------------------------------------ lease

    def lease(self) -> LastWriteWinsLeases:
        return LastWriteWinsLeases(self)

    # ------------------------------------------------------------ corrections

    @contextmanager
    def correct(
        self, partition: int, holder: str, carry_mark: CarryMark, *, fence: int | None = None
    ) -> Iterator[Amend]:
        lease = self.lease().take(holder) if fence is None else None
        try:
            self._correcting = fence if lease is None else lease.fence
            carry_mark(self._correcting or 0)
            yield self._amend
        finally:
            self._correcting = None
            if lease is not None:
                lease.release()

    def _amend(self, seen: Pointer, correction: Correction) -> None:
        found = self._pointer(seen.partition)
        check_correcting(found, self._correcting)
        check_pointer(found, seen)
        run(amended(self.views, found, correction), self._write, self._find)
        self.before_write("pointer")
        self._set_pointer(found._replace(revision=found.revision + 1))

    # ------------------------------------------------------------ snapshots

    def save(self, row: SnapshotRow, partition: int) -> None:
        ended, head = self._ended(row.key), self._head(row.key)
        if (ended and ended.life >= row.life) or (head and head.life > row.life):
            raise life_ended(row.key, row.life)
        self._put_row(SNAPSHOT, row, self._now_us())

    def remove(self, key: str, life: int, *, to: int) -> int:
        gone = self._found(SNAPSHOT, (key, life), (1,), (to,))
        self._remove(SNAPSHOT.name, (key, life), self._now_us(), last=(to,))
        return len(gone)


class LastWriteWinsLeases:
    """The lease."""

    def __init__(self, store: LastWriteWinsStore) -> None:
        self._store = store

    def take(self, holder: str) -> LastWriteWinsLease:
        if (held := self.holder()) is not None:
            raise lease_held(*held)
        store, now = self._store, self._store._now_us()
        fence = self._row().get("fence", 0) + 1
        self._put({"fence": fence, "holder": holder, "since": now, "errors": None}, now)
        for pointer in store.pointers():
            store.before_write("pointer")
            store._set_pointer(pointer._replace(fence=fence))
        return LastWriteWinsLease(self, fence)

    def holder(self) -> tuple[str, int] | None:
        row = self._row()
        return (row["holder"], row["since"]) if "holder" in row else None

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        if self._row().get("fence") == fence:
            self._put({"errors": dict(errors) or None}, self._store._now_us())

    def reported(self) -> dict[int, str]:
        return dict(self._row().get("errors", {}))

    def check(self, fence: int) -> None:
        """`LeaseLost` if another fence is in force."""
        check_fence(self._row().get("fence", 0), fence)

    def release(self, fence: int) -> None:
        """The lease's row loses its holder; its fence stays."""
        if not self._store._closed and self._row().get("fence") == fence:
            self._put({"holder": None, "since": None}, self._store._now_us())

    def _row(self) -> dict[str, Any]:
        return self._store._row("lease", PIPELINE, 0)

    def _put(self, named: dict[str, Any], timestamp: int) -> None:
        self._store._put("lease", PIPELINE, 0, named, timestamp)


class LastWriteWinsLease:
    """A right that one process has."""

    def __init__(self, leases: LastWriteWinsLeases, fence: int) -> None:
        self._leases = leases
        self.fence = fence

    def check(self) -> None:
        self._leases.check(self.fence)

    def release(self) -> None:
        self._leases.release(self.fence)
