"""A journal store in memory: for tests and trials. Real, thread-safe, transactional; it ends with its process."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from threading import RLock

from strandline.clock import now_us
from strandline.rows import Batch, Pointer, QuarantineRow
from strandline.store.api import CarryMark, Coming, SnapshotRow, StoreSettings, snapshot_digest
from strandline.store.end_state import Change, change_of
from strandline.store.pages import up_to
from strandline.store.refusals import (
    bad_row,
    check_fence,
    check_pointer,
    closed,
    lease_held,
    life_ended,
    other_event,
    used_after_fork,
)
from strandline.values.events import Cells, EventRow
from strandline.values.heads import Ended, Head, State
from strandline.values.keys import SLICES, key_digest, slice_of

_Life = tuple[str, int]


def _seq_nr(row: EventRow) -> int:
    return row.seq_nr


def _moment(row: EventRow) -> tuple[int, int]:
    return row.timestamp, row.seq_nr


class MemoryStore:
    """All protocols of `store.api`. `clock` tells µs; it is asked only when a lease is taken."""

    def __init__(self, settings: StoreSettings, *, clock: Callable[[], int] = now_us) -> None:
        self.settings = settings
        self._clock = clock
        self._lock = RLock()
        self._process = os.getpid()
        self._closed = False
        self._pointers = [Pointer(partition) for partition in range(settings.partitions)]
        self._journal: dict[_Life, list[EventRow]] = {}
        self._moments: list[list[EventRow]] = [[] for _ in range(settings.partitions)]
        self._heads: dict[str, Head] = {}
        self._ended: dict[bytes, Ended] = {}
        self._quarantine: dict[tuple[int, int], QuarantineRow] = {}
        self._snapshots: dict[_Life, dict[int, SnapshotRow]] = {}
        self._fence = 0
        self._errors: dict[int, str] = {}
        self._holder: tuple[str, int] | None = None

    @contextmanager
    def _moment_of(self) -> Iterator[None]:
        """One transaction: what is inside happens at one moment."""
        if os.getpid() != self._process:  # before the lock: a fork may have copied it taken
            raise used_after_fork()
        with self._lock:
            if self._closed:
                raise closed()
            yield

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        with self._moment_of():
            return list(self._pointers)

    def look(self, key: str, partition: int) -> tuple[Pointer, State]:
        with self._moment_of():
            return self._pointers[partition], self._state(key)

    def _state(self, key: str) -> State:
        return self._heads.get(key) or self._ended.get(key_digest(key))

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
        with self._moment_of():
            rows = self._journal.get((key, life), [])
            start = bisect_left(rows, from_, key=_seq_nr)
            end = bisect_right(rows, to, key=_seq_nr)
            chosen = rows[max(start, end - limit) : end][::-1] if backwards else rows[start : min(end, start + limit)]
            return up_to([row.cells for row in chosen], bytes_max)

    def range(
        self, partition: int, *, after: tuple[int, int], to: int, limit: int, entity_type: str | None = None
    ) -> list[EventRow]:
        with self._moment_of():
            rows = self._moments[partition]
            found: list[EventRow] = []
            for row in islice(rows, bisect_right(rows, after, key=_moment), None):
                if row.timestamp > to or len(found) == limit:
                    break
                if entity_type is None or row.entity_type == entity_type:
                    found.append(row)
            return found

    def entity_types(self) -> list[str]:
        with self._moment_of():
            return sorted({key.partition("|")[0] for key in self._heads}, key=str.encode)

    def keys(
        self, entity_type: str, *, after: str | None, limit: int, slices: tuple[int, int] | None = None
    ) -> list[str]:
        lo, hi = slices or (0, SLICES - 1)
        with self._moment_of():
            places = [_place(key) for key in self._heads if key.partition("|")[0] == entity_type]
        places = sorted(place for place in places if lo <= place[0] <= hi)
        start = 0 if after is None else bisect_right(places, _place(after))
        return [written.decode() for _, written in places[start : start + limit]]

    def expired(self, *, at: int, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str, int]]:
        with self._moment_of():
            heads = [(head.expire_at, key, head.offset) for key, head in self._heads.items()]
        return expired_heads(heads, at, after, limit)

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True

    # ------------------------------------------------------------ carry

    def states(self, partition: int, keys: Iterable[str]) -> tuple[Pointer, dict[str, State]]:
        with self._moment_of():
            states: dict[str, State] = {key: state for key in keys if (state := self._state(key)) is not None}
            return self._pointers[partition], states

    def write(self, batch: Batch, seen: Pointer) -> None:
        new = batch.pointer
        with self._moment_of():
            found = self._pointers[new.partition]
            check_fence(found.fence, new.fence)
            check_pointer(found, seen)
            if new.offset <= found.offset:  # all of it is there
                return
            change = change_of(batch)
            self._apply(change._replace(events=self._new_rows(change)))
            self._pointers[new.partition] = new._replace(revision=found.revision + 1)

    def _new_rows(self, change: Change) -> list[EventRow]:
        """The rows that are not there yet; looked at before anything changes, so that a refusal changes nothing."""
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
        for key, ended in change.purges:
            self._purge(key, ended)
        for row in change.events:
            insort(self._journal.setdefault((row.key, row.life), []), row, key=_seq_nr)
            insort(self._moments[row.partition], row, key=_moment)
        self._heads.update(change.heads)
        self._quarantine.update({(row.partition, row.offset): row for row in change.quarantine})

    def _purge(self, key: str, ended: Ended) -> None:
        self._ended[key_digest(key)] = ended
        for row in list(self._journal.get((key, ended.life), [])):
            self._remove(row)
        self._snapshots.pop((key, ended.life), None)
        for place in [p for p, row in self._quarantine.items() if (row.key, row.life) == (key, ended.life)]:
            del self._quarantine[place]
        self._heads.pop(key, None)

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

    def take_lease(self, holder: str) -> MemoryLease:
        with self._moment_of():
            if self._holder is not None:
                raise lease_held(*self._holder)
            self._holder = holder, self._clock()
            self._fence += 1
            self._errors = {}
            self._pointers = [pointer._replace(fence=self._fence) for pointer in self._pointers]
            return MemoryLease(self, self._fence)

    def lease_holder(self) -> tuple[str, int] | None:
        with self._moment_of():
            return self._holder

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        with self._moment_of():
            if fence == self._fence:
                self._errors = dict(errors)

    def reported(self) -> dict[int, str]:
        with self._moment_of():
            return dict(self._errors)

    def _check_lease(self, fence: int) -> None:
        with self._moment_of():
            check_fence(self._fence, fence)

    def _release(self, fence: int) -> None:
        with self._lock:
            if self._fence == fence:
                self._holder = None

    # ------------------------------------------------------------ quarantine

    def quarantined(self, *, limit: int = 1000) -> list[QuarantineRow]:
        with self._moment_of():
            return [self._quarantine[place] for place in sorted(self._quarantine)[:limit]]

    def quarantined_at(self, partition: int, offset: int) -> QuarantineRow | None:
        with self._moment_of():
            return self._quarantine.get((partition, offset))

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
        with self._moment_of():
            found = self._pointers[seen.partition]
            check_pointer(found, seen)
            for row in (*remove, *replace):
                self._remove(row)
            self._quarantine.pop((seen.partition, resolved), None)
            self._apply(Change([], [], replace, [head] if head else [], []))
            self._pointers[seen.partition] = found._replace(revision=found.revision + 1)

    # ------------------------------------------------------------ snapshots

    def save_snapshot(self, row: SnapshotRow, partition: int) -> None:
        with self._moment_of():
            state = self._state(row.key)
            if state is not None and row.life < state.life + isinstance(state, Ended):
                raise life_ended(row.key, row.life)
            saved = row._replace(digest=snapshot_digest(row))
            self._snapshots.setdefault((row.key, row.life), {})[row.seq_nr] = saved

    def load_snapshot(self, key: str, life: int, *, from_: int, to: int) -> SnapshotRow | None:
        with self._moment_of():
            saved = self._snapshots.get((key, life), {})
            newest = max((seq_nr for seq_nr in saved if from_ <= seq_nr <= to), default=None)
            row = None if newest is None else saved[newest]
        if row is not None and snapshot_digest(row) != row.digest:
            raise bad_row("snapshot", f"{key}, life {life}, seq_nr {row.seq_nr}")
        return row

    def snapshots(self, key: str, life: int) -> list[SnapshotRow]:
        with self._moment_of():
            saved = self._snapshots.get((key, life), {})
            return [saved[seq_nr]._replace(state=None) for seq_nr in sorted(saved)]

    def delete_snapshots(self, key: str, life: int, *, to: int) -> int:
        with self._moment_of():
            saved = self._snapshots.get((key, life), {})
            gone = [seq_nr for seq_nr in saved if seq_nr <= to]
            for seq_nr in gone:
                del saved[seq_nr]
            return len(gone)


def expired_heads(
    heads: Iterable[tuple[int | None, str, int]], at: int, after: tuple[int, str] | None, limit: int
) -> list[tuple[int, str, int]]:
    """Of heads given as (expire_at, key, offset) those that expired, in this order, after a place."""
    places = sorted((when, key.encode(), offset) for when, key, offset in heads if when is not None and when <= at)
    start = (-1, b"") if after is None else (after[0], after[1].encode())
    return [(when, key.decode(), offset) for when, key, offset in places if (when, key) > start][:limit]


class MemoryLease:
    """The right to carry a memory store."""

    def __init__(self, store: MemoryStore, fence: int) -> None:
        self._store = store
        self.fence = fence

    def check(self) -> None:
        self._store._check_lease(self.fence)

    def release(self) -> None:
        self._store._release(self.fence)


def _place(key: str) -> tuple[int, bytes]:
    return slice_of(key), key.encode()
