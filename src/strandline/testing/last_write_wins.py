"""A journal store with Cassandra's order and ties, in memory: no transaction, each write on its own.

It proves the order in which a store without transactions must be written: whatever write was the last before a crash,
readers get right answers, and the same actions again end in the same rows. `before_write` is called with the table's
name before every single write; a test raises there.

    batch     quarantine → cuts → pointer. A damaged append that its head has passed is not met again, so it is
              listed before any head moves.
    appends   events → slice view → head
    delete    hide (`delete_to` alone) → slice view, events → head
    purge     `ended`, which hides all → slice view, events, snapshots, quarantine, removed for always → head row
              The head of the appends before it is always written first: hiding 6 while the head is at 5 would number
              the next event 7, and a purge that was killed half-way is known by its head row.
    amend     rows anew → head → rows out, the last first → off the list → the pointer's revision

Every cell is written with its action's timestamp. A correction is written above that of the last action, and above an
earlier correction: at equal timestamps the greater value would stay. Below the actions to come it stays because a Mark
is carried before it, whose timestamp leaves room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from strandline.backends.memory.store import expired_heads
from strandline.clock import now_us
from strandline.fold import LifePurged, segment_of
from strandline.rows import Batch, Cut, Pointer, QuarantineRow, head_columns, head_of
from strandline.store.api import CarryMark, Coming, SnapshotRow, StoreSettings, snapshot_digest
from strandline.store.pages import up_to
from strandline.store.refusals import (
    bad_row,
    check_correcting,
    check_fence,
    check_pointer,
    closed,
    lease_held,
    life_ended,
)
from strandline.testing.cells import ALWAYS, Table
from strandline.values.events import Cells, EventRow
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import SLICES, key_digest, slice_of

_HEAD_CELLS = (*Head._fields[:13], "remembered")
CORRECTION_ROOM_US = 1000
BUCKET_US = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
TABLES = ("journal", "slice_view", "metajournal", "ended", "pointer", "quarantine", "snapshot", "lease")


def _nothing(table: str) -> None:
    """The hook where nobody wants one."""


class LastWriteWinsStore:
    """All protocols of `store.api`, written as `reliability.md` 3.2 says."""

    def __init__(self, settings: StoreSettings, *, before_write: Callable[[str], None] = _nothing) -> None:
        self.settings = settings
        self.before_write = before_write
        self.tables = {name: Table() for name in TABLES}
        self._closed = False
        self._clock_us = 0
        self._correcting: int | None = None
        for partition in range(settings.partitions):
            self._put("pointer", partition, 0, Pointer(partition)._asdict(), 0)

    # ------------------------------------------------------------ single writes

    def _put(self, table: str, partition: Any, place: Any, cells: dict[str, Any], timestamp: int) -> None:
        self._check_open()
        self.before_write(table)
        self.tables[table].put(partition, place, cells, timestamp)

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

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        return [self._pointer(partition) for partition in range(self.settings.partitions)]

    def _pointer(self, partition: int) -> Pointer:
        return Pointer(**self._row("pointer", partition, 0))

    def look(self, key: str, partition: int) -> tuple[Pointer, State]:
        pointer = self._pointer(partition)  # first: the other way round loses actions
        ended, head = self._ended(key), self._head(key)
        return pointer, ended if ended and (head is None or head.life <= ended.life) else head

    def _head(self, key: str) -> Head | None:
        cells = self._row("metajournal", key, 0)
        # A hidden `delete_to` may be all there is of a row that has no head yet.
        return head_of([cells.get(name) for name in _HEAD_CELLS]) if "offset" in cells else None

    def _ended(self, key: str) -> Ended | None:
        cells = self._row("ended", key_digest(key), 0)
        return Ended(**cells) if cells else None

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
        coming: Coming | None = None,  # they come at once
        backwards: bool = False,
    ) -> list[Cells]:
        self._check_open()
        rows = [row.cells for row in self._events(key, life) if from_ <= row.seq_nr <= to]
        return up_to(islice(reversed(rows) if backwards else rows, limit), bytes_max)

    def _events(self, key: str, life: int) -> Iterator[EventRow]:
        journal = self.tables["journal"]
        for place in journal.partitions():
            if place[:2] == (key, life):
                for _, cells in journal.rows(place):
                    yield _event(cells)

    def range(
        self, partition: int, *, after: tuple[int, int], to: int, limit: int, entity_type: str | None = None
    ) -> list[EventRow]:
        to = min(to, self._pointer(partition).timestamp)  # above it a killed attempt may have left some of its rows
        view = self.tables["slice_view"]
        found = []
        for place in view.partitions():
            if place[1] == partition and entity_type in (None, place[0]):
                found += [_event(cells) for moment, cells in view.rows(place) if after < moment[:2] and moment[0] <= to]
        found.sort(key=lambda row: (row.timestamp, row.seq_nr))
        return list(islice((row for row in found if self._shows(row)), limit))

    def _shows(self, row: EventRow) -> bool:
        _, state = self.look(row.key, row.partition)
        return isinstance(state, Head) and state.life == row.life and row.seq_nr > state.delete_to

    def entity_types(self) -> list[str]:
        return sorted({key.partition("|")[0] for key in self._living()}, key=str.encode)

    def keys(
        self, entity_type: str, *, after: str | None, limit: int, slices: tuple[int, int] | None = None
    ) -> list[str]:
        lo, hi = slices or (0, SLICES - 1)
        places = sorted((slice_of(k), k.encode()) for k in self._living() if k.partition("|")[0] == entity_type)
        start = (-1, b"") if after is None else (slice_of(after), after.encode())
        return [key.decode() for slice_, key in places if (slice_, key) > start and lo <= slice_ <= hi][:limit]

    def _living(self) -> dict[str, Head]:
        self._check_open()
        states = {key: self.look(key, 0)[1] for key in self.tables["metajournal"].partitions()}
        return {key: state for key, state in states.items() if isinstance(state, Head)}

    def expired(self, *, at: int, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str, int]]:
        heads = [(head.expire_at, key, head.offset) for key, head in self._living().items()]
        return expired_heads(heads, at, after, limit)

    def close(self) -> None:
        self._closed = True

    # ------------------------------------------------------------ carry

    def states(self, partition: int, keys: Iterable[str]) -> tuple[Pointer, dict[str, State]]:
        """As the contract says; but a head row that an unfinished purge left is given as it is.

        Folded on it, the same purge comes again and removes what is left, the head row last.
        """
        pointer = self._pointer(partition)
        found: dict[str, State] = {}
        for key in keys:
            state = self._head(key) or self._ended(key)
            if state is not None:
                found[key] = state
        return pointer, found

    def write(self, batch: Batch, seen: Pointer) -> None:
        new = batch.pointer
        found = self._pointer(new.partition)
        check_fence(found.fence, new.fence)
        check_pointer(found, seen)
        if new.offset <= found.offset:
            return
        for row in batch.quarantine:
            self._put("quarantine", row.partition, row.offset, row._asdict(), row.timestamp)
        for cut in batch.cuts:
            self._write_events(cut.events)
            if cut.ended_by is None:
                self._write_head(cut.key, cut.state, cut.timestamp)
                continue
            if cut.events and isinstance(cut.before, Head):
                self._write_head(cut.key, cut.before, cut.before.updated)
            if isinstance(cut.ended_by, LifePurged):
                self._purge(cut, cut.ended_by.life, cut.ended_by.to)
            else:
                self._delete(cut, cut.ended_by.life, cut.ended_by.from_, cut.ended_by.to)
        self._move_pointer(new._replace(revision=found.revision + 1))

    def _write_events(self, rows: Sequence[EventRow]) -> None:
        for row in rows:
            self._put_event("journal", row, row.timestamp)
        for row in rows:
            self._put_event("slice_view", row, row.timestamp)

    def _put_event(self, table: str, row: EventRow, timestamp: int) -> None:
        self._put(table, *self._place(table, row), row._asdict(), timestamp)

    def _remove_event(self, table: str, row: EventRow, timestamp: int) -> None:
        partition, place = self._place(table, row)
        self._remove(table, partition, timestamp, first=place, last=place)

    def _place(self, table: str, row: EventRow) -> tuple[Any, Any]:
        if table == "journal":
            return (row.key, row.life, row.segment), row.seq_nr
        bucket = row.timestamp // BUCKET_US[self.settings.bucket_size]
        return (row.entity_type, row.partition, bucket), (row.timestamp, row.seq_nr, row.key)

    def _write_head(self, key: str, state: State, timestamp: int) -> None:
        if isinstance(state, Head):
            cells = dict(zip(_HEAD_CELLS, head_columns(state), strict=True))
            self._put("metajournal", key, 0, cells, timestamp)

    def _delete(self, cut: Cut, life: int, from_: int, to: int) -> None:
        head = cut.state
        if not isinstance(head, Head):
            return
        self._put("metajournal", cut.key, 0, {"delete_to": head.delete_to}, cut.timestamp)
        self._remove_slices(cut.key, life, to, cut.timestamp)
        for segment in range(segment_of(from_, head.segment_size), segment_of(max(to, 1), head.segment_size) + 1):
            self._remove("journal", (cut.key, life, segment), cut.timestamp, first=from_, last=to)
        self._write_head(cut.key, head, cut.timestamp)

    def _remove_slices(self, key: str, life: int, to: int, timestamp: int) -> None:
        for row in [row for row in self._events(key, life) if row.seq_nr <= to]:
            self._remove_event("slice_view", row, timestamp)

    def _purge(self, cut: Cut, life: int, to: int) -> None:
        if not isinstance(cut.state, Ended):
            return
        key, head = cut.key, self._head(cut.key)
        segment_size = head.segment_size if head and head.life == life else self.settings.segment_size
        self._put("ended", key_digest(key), 0, cut.state._asdict(), cut.timestamp)
        self._remove_slices(key, life, to, ALWAYS)
        for segment in range(segment_of(max(to, 1), segment_size) + 1):
            self._remove("journal", (key, life, segment), ALWAYS)
        self._remove("snapshot", (key, life), ALWAYS)
        for row in self._quarantine():
            if (row.key, row.life) == (key, life):
                self._remove("quarantine", row.partition, ALWAYS, first=row.offset, last=row.offset)
        self._remove("metajournal", key, cut.timestamp)

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

    def take_lease(self, holder: str) -> LastWriteWinsLease:
        if (held := self.lease_holder()) is not None:
            raise lease_held(*held)
        now = self._now_us()
        fence = self._row("lease", "pipeline", 0).get("fence", 0) + 1
        self._put("lease", "pipeline", 0, {"fence": fence, "holder": holder, "since": now, "errors": None}, now)
        for pointer in self.pointers():
            self.before_write("pointer")
            self._set_pointer(pointer._replace(fence=fence))
        return LastWriteWinsLease(self, fence)

    def lease_holder(self) -> tuple[str, int] | None:
        row = self._row("lease", "pipeline", 0)
        return (row["holder"], row["since"]) if "holder" in row else None

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        if self._row("lease", "pipeline", 0).get("fence") == fence:
            self._put("lease", "pipeline", 0, {"errors": dict(errors) or None}, self._now_us())

    def reported(self) -> dict[int, str]:
        return dict(self._row("lease", "pipeline", 0).get("errors", {}))

    def check_lease(self, fence: int) -> None:
        """`LeaseLost` if another fence is in force."""
        check_fence(self._row("lease", "pipeline", 0).get("fence", 0), fence)

    def release_lease(self, fence: int) -> None:
        """The lease's row loses its holder; its fence stays."""
        if not self._closed and self._row("lease", "pipeline", 0).get("fence") == fence:
            self._put("lease", "pipeline", 0, {"holder": None, "since": None}, self._now_us())

    # ------------------------------------------------------------ quarantine

    def quarantined(self, *, limit: int = 1000) -> list[QuarantineRow]:
        self._check_open()
        return list(islice(self._quarantine(), limit))

    def _quarantine(self) -> Iterator[QuarantineRow]:
        table = self.tables["quarantine"]
        for partition in table.partitions():
            for _, cells in list(table.rows(partition)):
                yield QuarantineRow._make([cells.get(name) for name in QuarantineRow._fields])

    def quarantined_at(self, partition: int, offset: int) -> QuarantineRow | None:
        return next((row for row in self._quarantine() if (row.partition, row.offset) == (partition, offset)), None)

    @contextmanager
    def correcting(self, partition: int, holder: str, carry_mark: CarryMark) -> Iterator[None]:
        lease = self.take_lease(holder)
        try:
            carry_mark(self._pointer(partition).timestamp + CORRECTION_ROOM_US, lease.fence)
            self._correcting = lease.fence
            yield
        finally:
            self._correcting = None
            lease.release()

    def amend(
        self,
        seen: Pointer,
        *,
        resolved: int,
        remove: Sequence[EventRow] = (),
        replace: Sequence[EventRow] = (),
        head: tuple[str, Head] | None = None,
    ) -> None:
        found = self._pointer(seen.partition)
        check_correcting(found.fence, self._correcting)
        check_pointer(found, seen)
        timestamp = self._after(found, replace, head)
        for row in replace:
            for table in ("slice_view", "journal"):
                self._put(table, *self._place(table, row), row._asdict(), timestamp)
        if head is not None:
            self._write_head(*head, timestamp)
        for row in sorted(remove, key=lambda row: -row.seq_nr):
            for table in ("slice_view", "journal"):
                self._remove_event(table, row, timestamp)
        self._remove("quarantine", seen.partition, ALWAYS, first=resolved, last=resolved)
        self.before_write("pointer")
        self._set_pointer(found._replace(revision=found.revision + 1))

    def _after(self, pointer: Pointer, rows: Sequence[EventRow], head: tuple[str, Head] | None) -> int:
        """Above the last action's timestamp, and above that of a correction before."""
        written = [self.tables["journal"].written(*self._place("journal", row)) for row in rows]
        if head is not None:
            written.append(self.tables["metajournal"].written(head[0], 0))
        return max([pointer.moved, *written]) + 1

    # ------------------------------------------------------------ snapshots

    def save_snapshot(self, row: SnapshotRow, partition: int) -> None:
        ended, head = self._ended(row.key), self._head(row.key)
        if (ended and ended.life >= row.life) or (head and head.life > row.life):
            raise life_ended(row.key, row.life)
        cells = row._replace(digest=snapshot_digest(row))._asdict()
        self._put("snapshot", (row.key, row.life), row.seq_nr, cells, self._now_us())

    def load_snapshot(self, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
        rows = [row for row in self._snapshots(key, life) if from_ <= row.seq_nr <= to]
        if rows and snapshot_digest(rows[-1]) != rows[-1].digest:
            raise bad_row("snapshot", f"{key}, life {life}, seq_nr {rows[-1].seq_nr}")
        return rows[-1] if rows else None

    def snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        return [row._replace(state=None) for row in self._snapshots(key, life)]

    def _snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        self._check_open()
        rows = self.tables["snapshot"].rows((key, life))
        return [SnapshotRow(**{"state": None, **cells}) for _, cells in rows]

    def delete_snapshots(self, key: str, life: int, *, to: int) -> int:
        count = sum(row.seq_nr <= to for row in self._snapshots(key, life))
        self._remove("snapshot", (key, life), self._now_us(), last=to)
        return count


class LastWriteWinsLease:
    """The right to carry a `LastWriteWinsStore`."""

    def __init__(self, store: LastWriteWinsStore, fence: int) -> None:
        self._store = store
        self.fence = fence

    def check(self) -> None:
        self._store.check_lease(self.fence)

    def release(self) -> None:
        self._store.release_lease(self.fence)


def _event(cells: dict[str, Any]) -> EventRow:
    return EventRow._make([cells.get(name) for name in EventRow._fields])
