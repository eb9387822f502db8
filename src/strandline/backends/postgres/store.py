"""A journal store in a PostgreSQL database. What a task commits, the pointer included, is one transaction.

Whoever writes a partition's rows holds its pointer's row until the commit, and proves its fence there. Events come as
arrays of columns: nothing stands at their places, but for a conflict, which is then looked into. COPY would take the
same time, and who is stopped in it keeps its locks (`round_trips`). Every read is one statement, and so of one
moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat, takewhile
from typing import Any, Final

from strandline.backends.postgres import Database, Transaction, open_database
from strandline.backends.postgres.binary import bigint, bigints, blob, blobs, integer, integers, text, texts
from strandline.errors import Corrupt, Unavailable
from strandline.fold import segment_of
from strandline.rows import Batch, Pointer, QuarantineRow
from strandline.settings import Settings
from strandline.sql.api import Part
from strandline.store.api import CarryMark, Coming, SnapshotRow, StoreSettings, snapshot_digest
from strandline.store.beating_lease import FREE, BeatingLease, LeaseRow, wait_until_free
from strandline.store.creation import fixed_in, to_fix
from strandline.store.end_state import Change, change_of
from strandline.store.pages import BODY, bytes_of, large_bytes, up_to
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
from strandline.urls import Url
from strandline.values.events import EventRow
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import SLICES, key_digest
from strandline.values.tuples import make

PACKAGE: Final = "strandline.store"
TAKE_TRIES: Final = 10
_POINTER_COLUMNS: Final = 7
ROWS_AT_ONCE: Final = 1000
"""So many rows are sent with a statement, if their bodies are no larger than that."""
BYTES_AT_ONCE: Final = 2**20


class PostgresStore:
    """All protocols of `store.api`. Safe to share between threads; not across a fork."""

    def __init__(
        self, database: Database, settings: StoreSettings, lease_s: float, clock: Callable[[], int] | None = None
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._database = database
        self._lease_s = lease_s
        self._leases: list[BeatingLease] = []

    @classmethod
    def open(
        cls,
        url: Url,
        settings: Settings,
        log_id: str | None,
        partitions: int | None,
        *,
        clock: Callable[[], int] | None = None,
        advisory: bool = True,
    ) -> PostgresStore:
        """Open a store, or create it for this log. None stands for what creation fixed, and for the server's clock.

        `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
        """
        fixed = to_fix(settings, log_id, partitions)
        pointers = [("set_pointer", pointer_row(Pointer(number))) for number in range(int(fixed["partitions"]))]
        database = open_database(
            url, Part("store", PACKAGE), settings=settings, fixed=fixed, filling=pointers, advisory=advisory,
            create=None if log_id is not None else False,
        )  # fmt: skip
        try:
            found = fixed_in(database.fixed, settings, log_id, partitions)
        except BaseException:
            database.close()
            raise
        return cls(database, found, settings.lease_s, clock)

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        return self._pointers(self._database.rows("pointers"))

    def _pointers(self, rows: Iterable[Sequence[Any]]) -> list[Pointer]:
        found = {row[0]: row for row in rows}
        return [pointer_of(found.get(partition), partition) for partition in range(self.settings.partitions)]

    def look(self, key: str, partition: int) -> tuple[Pointer, State]:
        entity_type, slice_, _ = key_place(key)
        place = (integer(partition), text(entity_type), integer(slice_), text(key), blob(key_digest(key)))
        (row,) = self._database.ask("look", *place)
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
        coming: Coming | None = None,
        backwards: bool = False,
    ) -> list[Any]:
        name = "page_backwards" if backwards else "page"
        numbers = (life, segment_of(from_, segment_size), from_, segment_of(to, segment_size), to, limit)
        whole = True

        def come(rows: list[Any]) -> None:
            nonlocal whole
            whole = whole and None not in map(BODY, rows)
            if whole and coming is not None:
                coming(rows)

        place = (text(key), *map(bigint, (*numbers, large_bytes(bytes_max))))
        rows = self._database.ask(name, *place, coming=come)
        if whole:
            return rows
        rows = up_to(rows, bytes_max, lambda row: row[3] if row[2] is None else bytes_of(row))
        large = [row[0] for row in rows if row[2] is None]
        count, segments = len(large), [segment_of(seq_nr, segment_size) for seq_nr in large]
        places = _event_places([key] * count, [life] * count, segments, large)
        found = {row[3]: (*row[3:5], *row[9:]) for row in self._database.rows("standing_events", places)}
        # One that was deleted meanwhile ends the page.
        return list(takewhile(bool, (found.get(row[0]) if row[2] is None else row for row in rows)))

    def range(
        self, partition: int, *, after: tuple[int, int], to: int, limit: int, entity_type: str | None = None
    ) -> list[EventRow]:
        bounds = (partition, *after, to, limit)
        if entity_type is None:
            return _events(self._database.rows("range_of_all", bounds))
        return _events(self._database.rows("range", (entity_type, *bounds)))

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
        for lease in self._leases:
            lease.release()
        self._leases.clear()
        self._database.close()

    # ------------------------------------------------------------ carry

    def states(self, partition: int, keys: Iterable[str]) -> tuple[Pointer, dict[str, State]]:
        rows = self._database.rows("states", (partition, *_places(keys)))
        pointer = pointer_of(rows[0][:_POINTER_COLUMNS], partition)
        found = [row[_POINTER_COLUMNS:] for row in rows]
        return pointer, {row[0]: state for row in found if row[0] and (state := state_of(row)) is not None}

    def write(self, batch: Batch, seen: Pointer) -> None:
        change = change_of(batch)
        try:
            self._write(batch.pointer, change, seen, carefully=False)
        except Corrupt as error:
            if error.facts.get("sqlstate") != "23505":
                raise
            self._write(batch.pointer, change, seen, carefully=True)

    def _write(self, new: Pointer, change: Change, seen: Pointer, *, carefully: bool) -> None:
        with self._database.write() as transaction:
            found = _locked(transaction, new.partition)
            check_fence(found.fence, new.fence)
            check_pointer(found, seen)
            if new.offset <= found.offset:  # all of it is there
                return
            transaction.take_long()
            _remove(transaction, change)
            events = _absent(transaction, change.events) if carefully else change.events
            insert_events(transaction, events)
            set_heads(transaction, change.heads)
            if change.quarantine:
                transaction.each("list_record", map(listed_row, change.quarantine))
            transaction.execute("set_pointer", pointer_row(new._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ lease

    def take_lease(self, holder: str) -> BeatingLease:
        for _ in range(TAKE_TRIES):
            row = self._free_row()
            since = None if self._clock is None else self._clock()
            with self._database.write() as transaction:
                taken = transaction.rows("take_lease", (holder, row.fence, row.beat, since))
                if taken:
                    ((fence,),) = taken
                    pointers = self._pointers(transaction.rows("lock_pointers"))
                    raised = [pointer_row(pointer._replace(fence=fence)) for pointer in pointers]
                    transaction.each("set_pointer", raised)
            if taken:
                break
        else:
            raise Unavailable("others take the lease all the time", code="serialization", hint="call again")
        lease = BeatingLease(
            fence, self._lease_s, beat=self._beat, in_force=lambda: self._lease_row().fence, ended=self._end_lease
        )
        self._leases = [held for held in self._leases if not held.over] + [lease]
        return lease

    def _free_row(self) -> LeaseRow:
        if any(not lease.over for lease in self._leases):  # our own needs no watching
            holder = self._lease_row().held(self._lease_s)
            if holder is not None:
                raise lease_held(*holder)
        return wait_until_free(self._lease_row, self._lease_s)

    def lease_holder(self) -> tuple[str, int] | None:
        return self._lease_row().held(self._lease_s)

    def _lease_row(self) -> LeaseRow:
        rows = self._database.rows("lease")
        if not rows:
            return FREE
        fence, holder, since, beat, still_us = rows[0]
        return LeaseRow(fence, holder, since, beat, still_us / 10**6)

    def _beat(self, fence: int) -> bool:
        with self._database.write() as transaction:
            return transaction.execute("beat", (fence,)) > 0

    def _end_lease(self, fence: int) -> None:
        with self._database.write() as transaction:
            transaction.execute("release_lease", (fence,))

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        with self._database.write() as transaction:
            transaction.execute("report", (report_text(errors), fence))

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
        with self._database.write() as transaction:
            found = _locked(transaction, seen.partition)
            check_pointer(found, seen)
            transaction.each("delete_event", [row[:4] for row in remove])
            transaction.each("replace_event", replace)
            set_heads(transaction, [head] if head is not None else [])
            transaction.execute("unlist_record", (seen.partition, resolved))
            transaction.execute("set_pointer", pointer_row(found._replace(revision=found.revision + 1)))

    # ------------------------------------------------------------ snapshots

    def save_snapshot(self, row: SnapshotRow, partition: int) -> None:
        with self._database.write() as transaction:
            _locked(transaction, partition)  # no purge comes in between
            (found,) = transaction.rows("look", (partition, *key_place(row.key), key_digest(row.key)))
            state = state_of(found[_POINTER_COLUMNS:])
            if state is not None and row.life < state.life + isinstance(state, Ended):
                raise life_ended(row.key, row.life)
            transaction.execute("save_snapshot", row._replace(digest=snapshot_digest(row)))

    def load_snapshot(self, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
        rows = self._database.rows("load_snapshot", (key, life, from_, to))
        return snapshot_of(rows[0]) if rows else None

    def snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        return [SnapshotRow._make(row) for row in self._database.rows("snapshots", (key, life))]

    def delete_snapshots(self, key: str, life: int, *, to: int) -> int:
        with self._database.write() as transaction:
            return transaction.execute("delete_snapshots", (key, life, to))


# ---------------------------------------------------------------- rows


def _events(rows: list[Any]) -> list[EventRow]:
    # A third of the time of EventRow._make, which asks each row for its length.
    return list(map(make, repeat(EventRow), rows))


def _locked(transaction: Transaction, partition: int) -> Pointer:
    rows = transaction.rows("lock_pointer", (partition,))
    return pointer_of(rows[0] if rows else None, partition)


def _event_places(
    keys: Sequence[str], lives: Sequence[int], segments: Sequence[int], seq_nrs: Sequence[int]
) -> tuple[Any, ...]:
    """Where events are: four arrays."""
    return texts(keys), bigints(lives), bigints(segments), bigints(seq_nrs)


def _places(keys: Iterable[str]) -> tuple[Any, ...]:
    """Where the states of keys are: four arrays."""
    found = [(*key_place(key), key_digest(key)) for key in keys]
    types, slices, written, digests = zip(*found, strict=True) if found else ((), (), (), ())
    return texts(types), integers(slices), texts(written), blobs(digests)


def insert_events(transaction: Transaction, events: Sequence[EventRow]) -> None:
    """Add events; another one at the place of one of them is a unique violation."""
    for part in _parts(events):
        transaction.execute("insert_events", _event_columns(part))


def set_heads(transaction: Transaction, heads: Sequence[tuple[str, Head]]) -> None:
    """Write heads."""
    for at in range(0, len(heads), ROWS_AT_ONCE):
        rows = [head_row(*head) for head in heads[at : at + ROWS_AT_ONCE]]
        types, slices, keys, *numbers, remembered, digests = zip(*rows, strict=True)
        seq_nrs, delete_tos, lives, partitions, *rest = numbers
        transaction.execute(
            "set_heads",
            (
                texts(types), integers(slices), texts(keys), bigints(seq_nrs), bigints(delete_tos), bigints(lives),
                integers(partitions), *map(bigints, rest), texts(remembered), bigints(digests),
            ),
        )  # fmt: skip


def _remove(transaction: Transaction, change: Change) -> None:
    if change.deletes:
        transaction.each(
            "delete_events",
            [
                (key, life, segment_of(from_, size), from_, segment_of(max(to, 1), size), to)
                for key, life, from_, to, size in change.deletes
            ],
        )
    if change.purges:
        lives = [(key, ended.life) for key, ended in change.purges]
        transaction.each("end_life", [ended_row(key, ended) for key, ended in change.purges])
        for name in ("purge_events", "purge_snapshots", "purge_quarantine"):
            transaction.each(name, lives)
        transaction.each("purge_head", [key_place(key) for key, _ in change.purges])


def _absent(transaction: Transaction, events: Sequence[EventRow]) -> list[EventRow]:
    """Those that are not there yet; another one at the place of one of them is `Corrupt.conflict`."""
    absent: list[EventRow] = []
    for part in _parts(events):
        standing = dict(transaction.rows("standing", _event_columns(part)))
        for number, row in enumerate(part, 1):
            if number not in standing:
                absent.append(row)
            elif not standing[number]:
                raise other_event(row.key, row.life, row.seq_nr)
    return absent


def _parts(events: Sequence[EventRow]) -> Iterator[list[EventRow]]:
    """Events as they are sent, many at a time."""
    for at in range(0, len(events), ROWS_AT_ONCE):
        rows = list(events[at : at + ROWS_AT_ONCE])
        while rows:
            part = up_to(rows, BYTES_AT_ONCE, lambda row: len(row.body))
            yield part
            rows = rows[len(part) :]


def _event_columns(events: Sequence[EventRow]) -> tuple[Any, ...]:
    """Events as arrays, one for each column."""
    keys, lives, segments, seq_nrs, prevs, types, slices, partitions, timestamps, bodies, digests = zip(
        *events, strict=True
    )
    return (
        texts(keys), bigints(lives), bigints(segments), bigints(seq_nrs), bigints(prevs), texts(types),
        integers(slices), integers(partitions), bigints(timestamps), blobs(bodies), bigints(digests),
    )  # fmt: skip
