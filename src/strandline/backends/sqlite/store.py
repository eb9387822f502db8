"""A journal store in a SQLite file. What a task commits, the pointer included, is one transaction under its fence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from heapq import merge
from itertools import islice, repeat, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

import apsw

from strandline.backends.sqlite import Database, open_database
from strandline.backends.sqlite.file_lease import FileLease, FileLock, lock_path
from strandline.clock import now_us
from strandline.errors import StrandlineError
from strandline.fold import segment_of
from strandline.rows import Batch, Pointer, QuarantineRow
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.sql.statements import statement
from strandline.store.api import CarryMark, Coming, SnapshotRow, StoreSettings, snapshot_digest
from strandline.store.creation import fixed_in, to_fix
from strandline.store.end_state import Change, change_of
from strandline.store.pages import BODY, large_bytes, up_to
from strandline.store.refusals import check_fence, check_pointer, lease_held, life_ended, other_event
from strandline.store.sql_rows import (
    ended_row,
    head_row,
    key_place,
    listed_of,
    listed_row,
    pointer_of,
    pointer_row,
    report_in,
    report_text,
    snapshot_of,
    state_of,
)
from strandline.values.events import EventRow
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import SLICES, key_digest
from strandline.values.tuples import make

# Who has taken the lock writes its name within a moment; who asks for the holder waits that long for it.
_NAMELESS_S = 0.5

_sql = partial(statement, "strandline.store", dialect="sqlite")
_moment = itemgetter(8, 3)  # timestamp, seq_nr


class SqliteStore:
    """All protocols of `store.api`. Safe to share between threads; not across a fork."""

    def __init__(self, database: Database, settings: StoreSettings, clock: Callable[[], int]) -> None:
        self.settings = settings
        self._database = database
        self._clock = clock
        self._lock_path = lock_path(database.path)
        self._leases: list[FileLease] = []

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: Settings,
        log_id: str | None,
        partitions: int | None,
        *,
        clock: Callable[[], int] = now_us,
        vfs: str | None = None,
    ) -> SqliteStore:
        """Open a store, or create it for this log. None stands for what creation fixed.

        `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
        """
        database = open_database(
            path, Part("store", "strandline.store"), settings=settings, clock=clock, vfs=vfs,
            fixed=to_fix(settings, log_id, partitions),
            create=None if log_id is not None else False,
        )  # fmt: skip
        try:
            found = fixed_in(database.fixed, settings, log_id, partitions)
        except BaseException:
            database.close()
            raise
        return cls(database, found, clock)

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        with self._database.connection() as connection:
            return self._pointers(connection)

    def _pointers(self, connection: apsw.Connection) -> list[Pointer]:
        found = {row[0]: row for row in _rows(connection, "pointers")}
        return [pointer_of(found.get(partition), partition) for partition in range(self.settings.partitions)]

    def look(self, key: str, partition: int) -> tuple[Pointer, State]:
        place = (partition, *key_place(key), key_digest(key))
        with self._database.connection() as connection:
            row = _rows(connection, "look", place)[0]
        return pointer_of(row[:7], partition), state_of(row[7:])

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
    ) -> list[Any]:
        name = "page_backwards" if backwards else "page"
        bounds = (segment_of(from_, segment_size), from_, segment_of(to, segment_size), to)
        with self._database.connection() as connection:
            rows = _rows(connection, name, (large_bytes(bytes_max), key, life, *bounds, limit))
            if None not in map(BODY, rows):
                return rows
            cells = partial(_cells, connection, key, life, segment_size)
            whole = (cells(row[0]) if row[2] is None else row for row in rows)
            return up_to(takewhile(bool, whole), bytes_max)  # one that was deleted meanwhile ends the page

    def range(
        self, partition: int, *, after: tuple[int, int], to: int, limit: int, entity_type: str | None = None
    ) -> list[EventRow]:
        bounds = (partition, *after, to, limit)
        if entity_type is not None:
            with self._database.connection() as connection:
                return _events(_rows(connection, "range", (entity_type, *bounds)))
        with self._database.read() as tx, nullcontext(tx.raw) as connection:
            # Each type is read only as far as its events are among the first.
            types = _rows(connection, "event_types")
            cursors = [connection.cursor().execute(_sql("range"), (type_, *bounds)) for (type_,) in types]
            try:
                rows = list(islice(merge(*cursors, key=_moment), limit))
            finally:
                for cursor in cursors:
                    cursor.close(True)
        return _events(rows)

    def entity_types(self) -> list[str]:
        with self._database.connection() as connection:
            return [type_ for (type_,) in _rows(connection, "entity_types")]

    def keys(
        self, entity_type: str, *, after: str | None, limit: int, slices: tuple[int, int] | None = None
    ) -> list[str]:
        lo, hi = slices or (0, SLICES - 1)
        start = (lo, "")
        if after is not None and (place := key_place(after))[1] >= lo:
            start = place[1:]
        with self._database.connection() as connection:
            return [key for (key,) in _rows(connection, "keys", (entity_type, *start, hi + 1, "", limit))]

    def expired(self, *, at: int, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str, int]]:
        with self._database.connection() as connection:
            return _rows(connection, "expired", (*(after or (-1, "")), at, limit))

    def close(self) -> None:
        for lease in self._leases:
            lease.release()
        self._leases.clear()
        self._database.close()

    # ------------------------------------------------------------ carry

    def states(self, partition: int, keys: Iterable[str]) -> tuple[Pointer, dict[str, State]]:
        places = [(*key_place(key), key_digest(key)) for key in keys]
        with self._database.read() as tx, nullcontext(tx.raw) as connection:
            pointer = self._pointer(connection, partition)
            rows: list[Any] = connection.executemany(_sql("states"), places).fetchall()
        return pointer, {row[0]: state for row in rows if (state := state_of(row)) is not None}

    def _pointer(self, connection: apsw.Connection, partition: int) -> Pointer:
        rows = _rows(connection, "pointer", (partition,))
        return pointer_of(rows[0] if rows else None, partition)

    def write(self, batch: Batch, seen: Pointer) -> None:
        new, change = batch.pointer, change_of(batch)
        heads = [head_row(key, head) for key, head in change.heads]
        with self._database.write() as tx, nullcontext(tx.raw) as connection:
            found = self._pointer(connection, new.partition)
            check_fence(found.fence, new.fence)
            check_pointer(found, seen)
            if new.offset <= found.offset:  # all of it is there
                return
            _remove(connection, change)
            _insert(connection, change.events)
            connection.executemany(_sql("set_head"), heads)
            connection.executemany(_sql("list_record"), map(listed_row, change.quarantine))
            connection.execute(_sql("set_pointer"), pointer_row(new._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ lease

    def take_lease(self, holder: str) -> FileLease:
        self._database.check()
        lock = FileLock(self._lock_path)
        if not lock.take():
            raise lease_held(*self._holder())
        try:
            lock.name(holder)
            with self._database.write() as tx, nullcontext(tx.raw) as connection:
                ((fence,),) = _rows(connection, "take_lease", (holder, self._clock()))
                raised = [pointer_row(pointer._replace(fence=fence)) for pointer in self._pointers(connection)]
                connection.executemany(_sql("set_pointer"), raised)
        except BaseException:
            lock.free()
            raise
        lease = FileLease(lock, fence, self._fence, self._end_lease)
        self._leases.append(lease)
        return lease

    def lease_holder(self) -> tuple[str, int] | None:
        self._database.check()
        return self._holder() if FileLock(self._lock_path).taken() else None

    def _lease_row(self) -> tuple[int, str | None, int | None]:
        with self._database.connection() as connection:
            rows = _rows(connection, "lease")
        return rows[0] if rows else (0, None, None)

    def _holder(self) -> tuple[str, int]:
        """Who holds the lock, and since when. Who has just taken it writes that down in a moment."""
        deadline = time.monotonic() + _NAMELESS_S
        while True:
            _, holder, since = self._lease_row()
            if holder is not None and since is not None:
                return holder, since
            if time.monotonic() > deadline:
                return "another process", 0
            time.sleep(0.002)

    def _fence(self) -> int:
        return self._lease_row()[0]

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        with self._database.write() as tx, nullcontext(tx.raw) as connection:
            connection.execute(_sql("report"), (report_text(errors), fence))

    def reported(self) -> dict[int, str]:
        with self._database.connection() as connection:
            rows = _rows(connection, "reported")
        return report_in(rows[0][0] if rows else None)

    def _end_lease(self, fence: int) -> None:
        try:
            with self._database.write() as tx, nullcontext(tx.raw) as connection:
                connection.execute(_sql("release_lease"), (fence,))
        except StrandlineError:
            pass  # the lock tells who holds the lease; the row only names the holder

    # ------------------------------------------------------------ quarantine

    def quarantined(self, *, limit: int = 1000) -> list[QuarantineRow]:
        with self._database.connection() as connection:
            return [listed_of(row) for row in _rows(connection, "quarantined", (limit,))]

    def quarantined_at(self, partition: int, offset: int) -> QuarantineRow | None:
        with self._database.connection() as connection:
            rows = _rows(connection, "quarantined_at", (partition, offset))
        return listed_of(rows[0]) if rows else None

    def correcting(self, partition: int, holder: str, carry_mark: CarryMark) -> AbstractContextManager[None]:
        return nullcontext()

    def amend(
        self,
        seen: Pointer,
        *,
        resolved: int,
        remove: Sequence[EventRow] = (),
        replace: Sequence[EventRow] = (),
        head: tuple[str, Head] | None = None,
    ) -> None:
        with self._database.write() as tx, nullcontext(tx.raw) as connection:
            found = self._pointer(connection, seen.partition)
            check_pointer(found, seen)
            connection.executemany(_sql("delete_event"), [row[:4] for row in remove])
            connection.executemany(_sql("replace_event"), replace)
            if head is not None:
                connection.execute(_sql("set_head"), head_row(*head))
            connection.execute(_sql("unlist_record"), (seen.partition, resolved))
            connection.execute(_sql("set_pointer"), pointer_row(found._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ snapshots

    def save_snapshot(self, row: SnapshotRow, partition: int) -> None:
        place = (*key_place(row.key), key_digest(row.key))
        with (
            self._database.write() as tx,
            nullcontext(tx.raw) as connection,
        ):  # holds the pointer row: no purge comes in between
            state = state_of(_rows(connection, "states", place)[0])
            if state is not None and row.life < state.life + isinstance(state, Ended):
                raise life_ended(row.key, row.life)
            connection.execute(_sql("save_snapshot"), row._replace(digest=snapshot_digest(row)))

    def load_snapshot(self, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
        with self._database.connection() as connection:
            rows = _rows(connection, "load_snapshot", (key, life, from_, to))
        return snapshot_of(rows[0]) if rows else None

    def snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        with self._database.connection() as connection:
            return [SnapshotRow._make(row) for row in _rows(connection, "snapshots", (key, life))]

    def delete_snapshots(self, key: str, life: int, *, to: int) -> int:
        with self._database.write() as tx, nullcontext(tx.raw) as connection:
            connection.execute(_sql("delete_snapshots"), (key, life, to))
            return connection.changes()


# ---------------------------------------------------------------- rows


def _rows(connection: apsw.Connection, name: str, values: Sequence[Any] = ()) -> list[Any]:
    return connection.execute(_sql(name), values).fetchall()


def _cells(connection: apsw.Connection, key: str, life: int, segment_size: int, seq_nr: int) -> tuple[Any, ...]:
    """An event as a page has it; nothing if it is gone."""
    rows = _rows(connection, "event", (key, life, segment_of(seq_nr, segment_size), seq_nr))
    return (*rows[0][3:5], *rows[0][9:]) if rows else ()


def _events(rows: list[Any]) -> list[EventRow]:
    # A third of the time of EventRow._make, which asks each row for its length.
    return list(map(make, repeat(EventRow), rows))


def _remove(connection: apsw.Connection, change: Change) -> None:
    if change.deletes:
        connection.executemany(
            _sql("delete_events"),
            [
                (key, life, segment_of(from_, size), from_, segment_of(max(to, 1), size), to)
                for key, life, from_, to, size in change.deletes
            ],
        )
    if change.purges:
        lives = [(key, ended.life) for key, ended in change.purges]
        connection.executemany(_sql("end_life"), [ended_row(key, ended) for key, ended in change.purges])
        connection.executemany(_sql("purge_events"), lives)
        connection.executemany(_sql("purge_snapshots"), lives)
        connection.executemany(_sql("purge_quarantine"), lives)
        connection.executemany(_sql("purge_head"), [key_place(key) for key, _ in change.purges])


def _insert(connection: apsw.Connection, events: Sequence[EventRow]) -> None:
    """Insert events. One that is there already is passed over; another one at its place is `Corrupt.conflict`."""
    try:
        connection.executemany(_sql("insert_event"), events)
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_CONSTRAINT_PRIMARYKEY:
            raise
        # Rows before the one that failed are in; they are found to be the same now, like any that was there before.
        for row in events:
            stands = _rows(connection, "event", row[:4])
            if not stands:
                connection.execute(_sql("insert_event"), row)
            elif stands[0] != tuple(row):
                raise other_event(row.key, row.life, row.seq_nr) from None
