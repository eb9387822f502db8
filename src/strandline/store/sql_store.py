"""A journal store in SQLite or PostgreSQL. What a task commits, the pointer included, is one transaction.

Whoever writes a partition's rows holds its pointer's row until the commit (SQLite: the file's write lock), and proves
its fence there. Events are added as if nothing stood at their places; where something does, which is rare, the
transaction is undone and done again, with a look at each of them. Every read is one statement, and so of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import merge
from itertools import islice, repeat, takewhile
from operator import itemgetter
from typing import Any, Final, Protocol

from strandline.errors import Corrupt
from strandline.fold import segment_of
from strandline.rows import Batch, Pointer, QuarantineRow
from strandline.settings import Settings
from strandline.sql.api import Database, Part, Transaction
from strandline.store.api import CarryMark, Coming, Lease, SnapshotRow, StoreSettings, snapshot_digest
from strandline.store.creation import fixed_in
from strandline.store.end_state import Change, change_of
from strandline.store.pages import BODY, bytes_of, large_bytes, up_to
from strandline.store.refusals import check_fence, check_pointer, life_ended, other_event
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

PART: Final = Part("store", "strandline.store")
_POINTER_COLUMNS: Final = 7
_moment: Final = itemgetter(8, 3)  # timestamp, seq_nr


class Leases(Protocol):
    """Who carries: what tells that a holder died is not the same on files and servers."""

    def take(self, holder: str, raise_fence: Callable[[Transaction, int], None]) -> Lease:
        """Become the pipeline; `LeaseHeld` with holder, since. `raise_fence` is called in the transaction of it."""

    def holder(self) -> tuple[str, int] | None:
        """Who carries, and since when (µs)."""

    def close(self) -> None:
        """Give back all that are held here."""


class SqlStore:
    """All protocols of `store.api`. Safe to share between threads; not across a fork."""

    def __init__(self, database: Database, settings: StoreSettings, leases: Leases) -> None:
        self.settings = settings
        self._database = database
        self._leases = leases

    @classmethod
    def of(
        cls, database: Database, settings: Settings, log_id: str | None, partitions: int | None, leases: Leases
    ) -> SqlStore:
        """The store in an open database; `SchemaMismatch` for another log, other fixed settings, another fold."""
        try:
            found = fixed_in(database.fixed, settings, log_id, partitions)
        except BaseException:
            database.close()
            raise
        return cls(database, found, leases)

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        return self._pointers(self._database.rows("pointers"))

    def _pointers(self, rows: Iterable[Sequence[Any]]) -> list[Pointer]:
        found = {row[0]: row for row in rows}
        return [pointer_of(found.get(partition), partition) for partition in range(self.settings.partitions)]

    def look(self, key: str, partition: int) -> tuple[Pointer, State]:
        (row,) = self._database.rows("look", (partition, *key_place(key), key_digest(key)), often=True)
        return pointer_of(row[:_POINTER_COLUMNS], partition), state_of(row[_POINTER_COLUMNS:])

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
        coming: Coming | None = None,  # making events meanwhile takes as long as making them then
        backwards: bool = False,
    ) -> list[Any]:
        name = "page_backwards" if backwards else "page"
        bounds = (segment_of(from_, segment_size), from_, segment_of(to, segment_size), to)
        rows = self._database.rows(name, (key, life, *bounds, limit, large_bytes(bytes_max)), often=True)
        if None not in map(BODY, rows):
            return rows
        rows = up_to(rows, bytes_max, lambda row: row[3] if row[2] is None else bytes_of(row))
        large = [(key, life, segment_of(row[0], segment_size), row[0]) for row in rows if row[2] is None]
        found = {row[3]: (*row[3:5], *row[9:]) for row in self._database.many("standing_events", large)}
        # One that was deleted meanwhile ends the page.
        return list(takewhile(bool, (found.get(row[0]) if row[2] is None else row for row in rows)))

    def range(
        self, partition: int, *, after: tuple[int, int], to: int, limit: int, entity_type: str | None = None
    ) -> list[EventRow]:
        bounds = (partition, *after, to, limit)
        if entity_type is not None:
            return _events(self._database.rows("range", (entity_type, *bounds)))
        if self._database.dialect == "postgres":
            return _events(self._database.rows("range_of_all", bounds))
        with self._database.read() as tx:
            rows: list[Any] = []
            for (type_,) in tx.rows("event_types"):
                more = tx.rows("range", (type_, partition, *after, to, limit))
                rows = list(islice(merge(rows, more, key=_moment), limit))
                if len(rows) == limit:
                    to = rows[-1][8]  # what comes later is not among the first
        return _events(rows)

    def entity_types(self) -> list[str]:
        return [type_ for (type_,) in self._database.rows("entity_types")]

    def keys(
        self, entity_type: str, *, after: str | None, limit: int, slices: tuple[int, int] | None = None
    ) -> list[str]:
        lo, hi = slices or (0, SLICES - 1)
        start = (lo, "")
        if after is not None and (place := key_place(after))[1] >= lo:
            start = place[1:]
        return [key for (key,) in self._database.rows("keys", (entity_type, *start, hi + 1, "", limit))]

    def expired(self, *, at: int, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str, int]]:
        return self._database.rows("expired", (*(after or (-1, "")), at, limit))

    def close(self) -> None:
        self._leases.close()
        self._database.close()

    # ------------------------------------------------------------ carry

    def states(self, partition: int, keys: Iterable[str]) -> tuple[Pointer, dict[str, State]]:
        places = [(*key_place(key), key_digest(key)) for key in keys]
        if not places:
            return self.pointers()[partition], {}
        if self._database.dialect == "postgres":  # one statement is one round trip
            rows = self._database.many("states", places, partition)
            pointer = pointer_of(rows[0][:_POINTER_COLUMNS], partition)
            rows = [row[_POINTER_COLUMNS:] for row in rows]
        else:
            with self._database.read() as tx:
                pointer, rows = self._pointers(tx.rows("pointers"))[partition], tx.many("states", places)
        return pointer, {row[0]: state for row in rows if row[0] and (state := state_of(row)) is not None}

    def write(self, batch: Batch, seen: Pointer) -> None:
        change = change_of(batch)
        try:
            self._write(batch.pointer, change, seen, carefully=False)
        except Corrupt as error:
            if error.code != "conflict":
                raise
            self._write(batch.pointer, change, seen, carefully=True)

    def _write(self, new: Pointer, change: Change, seen: Pointer, *, carefully: bool) -> None:
        heads = [head_row(key, head) for key, head in change.heads]
        with self._database.write() as tx:
            found = _locked(tx, new.partition)
            check_fence(found.fence, new.fence)
            check_pointer(found, seen)
            if new.offset <= found.offset:  # all of it is there
                return
            tx.take_long()
            _remove(tx, change)
            tx.many("insert_events", _absent(tx, change.events) if carefully else change.events)
            tx.many("set_heads", heads)
            tx.each("list_record", map(listed_row, change.quarantine))
            tx.execute("set_pointer", pointer_row(new._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ lease

    def take_lease(self, holder: str) -> Lease:
        return self._leases.take(holder, self._raise_fence)

    def _raise_fence(self, tx: Transaction, fence: int) -> None:
        pointers = self._pointers(tx.rows("lock_pointers"))
        tx.each("set_pointer", [pointer_row(pointer._replace(fence=fence)) for pointer in pointers])

    def lease_holder(self) -> tuple[str, int] | None:
        return self._leases.holder()

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        with self._database.write() as tx:
            tx.execute("report", (report_text(errors), fence))

    def reported(self) -> dict[int, str]:
        rows = self._database.rows("reported")
        return report_in(rows[0][0] if rows else None)

    # ------------------------------------------------------------ quarantine

    def quarantined(self, *, limit: int = 1000) -> list[QuarantineRow]:
        return [listed_of(row) for row in self._database.rows("quarantined", (limit,))]

    def quarantined_at(self, partition: int, offset: int) -> QuarantineRow | None:
        rows = self._database.rows("quarantined_at", (partition, offset))
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
        with self._database.write() as tx:
            found = _locked(tx, seen.partition)
            check_pointer(found, seen)
            tx.each("delete_event", [row[:4] for row in remove])
            tx.each("replace_event", replace)
            tx.many("set_heads", [head_row(*head)] if head is not None else [])
            tx.execute("unlist_record", (seen.partition, resolved))
            tx.execute("set_pointer", pointer_row(found._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ snapshots

    def save_snapshot(self, row: SnapshotRow, partition: int) -> None:
        with self._database.write() as tx:
            _locked(tx, partition)  # no purge comes in between
            (found,) = tx.rows("look", (partition, *key_place(row.key), key_digest(row.key)))
            state = state_of(found[_POINTER_COLUMNS:])
            if state is not None and row.life < state.life + isinstance(state, Ended):
                raise life_ended(row.key, row.life)
            tx.execute("save_snapshot", row._replace(digest=snapshot_digest(row)))

    def load_snapshot(self, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
        rows = self._database.rows("load_snapshot", (key, life, from_, to))
        return snapshot_of(rows[0]) if rows else None

    def snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        return [SnapshotRow._make(row) for row in self._database.rows("snapshots", (key, life))]

    def delete_snapshots(self, key: str, life: int, *, to: int) -> int:
        with self._database.write() as tx:
            return tx.execute("delete_snapshots", (key, life, to))


# ---------------------------------------------------------------- rows


def _events(rows: list[Any]) -> list[EventRow]:
    # A third of the time of EventRow._make, which asks each row for its length.
    return list(map(make, repeat(EventRow), rows))


def _locked(tx: Transaction, partition: int) -> Pointer:
    rows = tx.rows("lock_pointer", (partition,))
    return pointer_of(rows[0] if rows else None, partition)


def _remove(tx: Transaction, change: Change) -> None:
    tx.each(
        "delete_events",
        [
            (key, life, segment_of(from_, size), from_, segment_of(max(to, 1), size), to)
            for key, life, from_, to, size in change.deletes
        ],
    )
    lives = [(key, ended.life) for key, ended in change.purges]
    tx.each("end_life", [ended_row(key, ended) for key, ended in change.purges])
    for name in ("purge_events", "purge_snapshots", "purge_quarantine"):
        tx.each(name, lives)
    tx.each("purge_head", [key_place(key) for key, _ in change.purges])


def _absent(tx: Transaction, events: Sequence[EventRow]) -> list[EventRow]:
    """Those that are not there yet; another one at the place of one of them is `Corrupt.conflict`."""
    standing = {(key, life, seq_nr): same for key, life, seq_nr, same in tx.many("standing", events)}
    for row in events:
        if not standing.get((row.key, row.life, row.seq_nr), True):
            raise other_event(row.key, row.life, row.seq_nr)
    return [row for row in events if (row.key, row.life, row.seq_nr) not in standing]
