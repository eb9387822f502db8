"""A journal store in a Cassandra keyspace.

There are no transactions: `store.phases` fixes the order of writes, every write is idempotent, and the pointer moves
last, by a conditional write under the fence of the pipeline's lease. Reads and writes are LOCAL_QUORUM, conditional
ones SERIAL. A batch never spans two partition keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final

from strandline.backends.cassandra import Session, open_keyspace
from strandline.backends.cassandra.heads import find, find_ended, find_heads
from strandline.backends.cassandra.session import BATCH_BYTES_MAX, BATCH_ROWS_MAX, CqlRequest
from strandline.backends.cassandra.writing import Writing, package_of, put_requests, values_in
from strandline.clock import now_us
from strandline.errors import Unavailable
from strandline.fold import segment_of
from strandline.rows import PartitionBatch, Pointer, QuarantineRow
from strandline.settings import Settings
from strandline.store.api import PIPELINE, CarryMark, KeyStates, RowPage, StoreSettings
from strandline.store.archive import Archive, ArchivedPlace, ArchivedTo
from strandline.store.beating_lease import FREE, BeatingLease, LeaseRow, told_taken, wait_until_free
from strandline.store.correction import Amend, Correction
from strandline.store.creation import fixed_in, to_fix
from strandline.store.heads import key_place, state_of
from strandline.store.pages import FIRST_ROWS, GrowingPage
from strandline.store.phases import Put, Remove, amended, run, taken_out, written
from strandline.store.refusals import check_correcting, check_fence, check_pointer, lease_held, life_ended
from strandline.store.reports import report_in, report_text
from strandline.store.scans import (
    ALL_EVENTS,
    ENTITY_TYPES,
    EVENTS,
    EXPIRED,
    HEADS,
    KEYS,
    LAST_KEY,
    QUARANTINED,
    SLICE_PLACES,
    SLICE_ROWS,
    Scan,
    bytes_in,
    grown,
    page_of,
)
from strandline.store.tables import (
    POINTER,
    QUARANTINE,
    SNAPSHOT,
    SnapshotRow,
    Table,
)
from strandline.store.tag_scans import IN_BUCKET
from strandline.store.tag_view import TAG_VIEW
from strandline.store.view_list import packages, views_of
from strandline.store.views import MINUTE_US, Row, Span, View, kept
from strandline.urls import Url
from strandline.values.buckets import LENGTHS_US
from strandline.values.events import EventRow
from strandline.values.heads import Head, State
from strandline.values.keys import SLICES, slice_of

SEGMENTS_A_ROUND: Final = 32
BUCKETS_A_ROUND: Final = 32
EVENTS_A_QUERY: Final = 1000
LISTED_A_QUERY: Final = 16
SLICES_A_ROUND: Final = 64
FENCE_ATTEMPTS_MAX: Final = 100
LEASE_ATTEMPTS_MAX: Final = 5
LARGEST_KEPT: Final = 1000
TOKEN_LEAST: Final = -(2**63)


class CassandraStore:
    """A `store.api.Store`. Safe to share between threads; not across a fork."""

    def __init__(
        self,
        session: Session,
        settings: StoreSettings,
        lease_s: float,
        clock: Callable[[], int] = now_us,
        views: Sequence[View] | None = None,
        tag_batch: tuple[int, int] = (BATCH_ROWS_MAX, BATCH_BYTES_MAX),
    ) -> None:
        """`tag_batch`: rows and bytes of a batch into a tag's view, at most."""
        self.settings = settings
        self._limits = {TAG_VIEW.name: tag_batch}
        self.views = kept(views_of(settings) if views is None else views, partitioned=True)
        self._session = session
        self._lease_s = lease_s
        self._clock = clock
        self._leases: list[BeatingLease] = []
        self._correcting: int | None = None
        """The fence of the lease under which a correction may be made."""
        self._last_us = 0
        self._lock = Lock()
        self._largest: dict[tuple[Any, ...], int] = {}
        """By scan, the bytes of the largest row in its last page."""
        self.archive = Archive(self)

    @classmethod
    def open(
        cls,
        url: Url,
        settings: Settings,
        log_id: str | None,
        partitions: int | None,
        *,
        clock: Callable[[], int] = now_us,
        views: Sequence[View] | None = None,
    ) -> CassandraStore:
        """Open a store, or create it for this log. None stands for what creation fixed.

        `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
        `Unsupported.cassandra_unsafe` for a cluster that may lose what it acknowledged.
        """
        session = Session(url, settings.append_timeout_s, packages(views))
        try:
            create = log_id is not None and settings.schema == "create"
            texts = open_keyspace(session, settings, to_fix(settings, log_id, partitions), create=create)
            found = fixed_in(texts, settings, log_id, partitions)
        except BaseException:
            session.close()
            raise
        tag_batch = settings.tag_batch_rows_max, settings.tag_batch_bytes_max
        return cls(session, found, settings.lease_s, clock, views, tag_batch=tag_batch)

    def now_us(self) -> int:
        if self._clock is not now_us:
            return self._clock()
        ((milliseconds,),) = self._session.rows("now", ())
        return int(milliseconds) * 1000

    def close(self) -> None:
        for lease in self._leases:
            lease.release()
        self._leases.clear()
        self._session.close()

    # ------------------------------------------------------------ read

    def pointers(self) -> list[Pointer]:
        found = self._session.each(("pointer", (partition,)) for partition in range(self.settings.partitions))
        return [_pointer_in(rows, partition) for partition, rows in enumerate(found)]

    def _pointer(self, partition: int) -> Pointer:
        return _pointer_in(self._session.rows("pointer", (partition,)), partition)

    def look(self, partition: int, keys: Collection[str], followed: Collection[str] = ()) -> KeyStates:
        pointer = self._pointer(partition)  # The pointer is read first: the other order would lose actions.
        if len(keys) == 1:
            (key,) = keys
            head, life = find(self._session, key)
            heads, ended = {key: head} if head else {}, {key: life} if life else {}
        else:
            heads, ended = find_heads(self._session, keys), find_ended(self._session, keys)
        found = {key: state_of(heads.get(key), ended.get(key)) for key in keys}
        states: dict[str, State] = {key: state for key, state in found.items() if state is not None}
        unfinished = {key: head for key, head in heads.items() if states[key] is not head}
        return KeyStates(pointer, states, unfinished, self._looked_up(heads, followed))

    def _looked_up(self, heads: Mapping[str, Head], followed: Collection[str]) -> dict[str, dict[Table, Sequence[Row]]]:
        tables = [table for view in self.views for table in view.tables if table.looked_up]
        spans = [Span(table, (key, heads[key].life)) for key in followed if key in heads for table in tables]
        rows: dict[str, dict[Table, Sequence[Row]]] = {}
        for span, found in self._writing.read(spans).items():
            rows.setdefault(span.partition[0], {})[span.table] = found
        return rows

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
        page = GrowingPage(limit, bytes_max)
        first, last = segment_of(from_, segment_size), segment_of(to, segment_size)
        nearest = last if backwards else first
        while page.asks:
            asked = page.asks
            found = self._session.rows(name, (key, life, nearest, from_, to, asked))
            page.add(found)
            if len(found) < asked:
                break
            from_, to = _beyond(found[-1][0], from_, to, backwards)
        if not page.asks or first == last:
            return RowPage(page.rows, not page.asks)
        # The remaining rows may be far away, since a journal may start at any number. The head says where they can be.
        head = find(self._session, key).head
        if head is None or head.life != life:
            return RowPage(page.rows, False)
        first = max(first + (not backwards), segment_of(head.removed_to + 1, head.segment_size))
        last = min(last - backwards, segment_of(max(head.seq_nr, 1), head.segment_size))
        left = range(first, last + 1)[:: -1 if backwards else 1]
        while left and page.asks:
            asked = page.asks
            some = left[: self._segments_for(asked, segment_size)]
            queries = [(name, (key, life, segment, from_, to, asked)) for segment in some]
            left = left[len(some) :]
            for segment, found in zip(some, self._session.each(queries), strict=True):
                page.add(found)
                if len(found) == asked:  # there may be more in this one
                    left = range(segment, last + 1) if not backwards else range(segment, first - 1, -1)
                    from_, to = _beyond(found[-1][0], from_, to, backwards)
                    break
        return RowPage(page.rows, not page.asks)

    def _segments_for(self, events: int, segment_size: int) -> int:
        return min(max(1, -(-events // segment_size)), SEGMENTS_A_ROUND)

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
        start, end = scan.start if after is None else after, scan.end if to is None else to
        if scan is SLICE_ROWS or scan is SLICE_PLACES:
            name = "range" if scan is SLICE_ROWS else scan.name
            type_, partition = equal
            shown = self._shown(name, type_, partition, tuple(start), end, min(limit, EVENTS_A_QUERY))
            within = (row for row, _ in shown if slices is None or slices[0] <= slice_of(row[2]) <= slices[1])
            return page_of(within, limit, bytes_max, bytes_in(scan))
        if scan is ALL_EVENTS or scan is EVENTS:
            types = self._types_of(equal[0]) if scan is ALL_EVENTS else [equal[0]]
            rows = self._events(types, equal[-1], (start[0], start[1], LAST_KEY), end, limit, slices)
            return page_of(rows, limit, bytes_max, bytes_in(scan))
        if scan is KEYS:
            return RowPage(keys := self._keys(equal[0], start[1], limit, (start[0], end)), len(keys) == limit)
        if scan is HEADS:
            places = self._keys(equal[0], start[1], limit, (start[0], end))
            heads = find_heads(self._session, [key for _, key in places])
            return RowPage(
                [(slice_, key, heads[key].delete_to, heads[key].life) for slice_, key in places if key in heads],
                len(places) == limit,
            )
        if scan is EXPIRED:
            return RowPage(found := self._expired(end, (start[0], start[1]), limit), len(found) == limit)
        if scan is ENTITY_TYPES:
            living = (type_ for type_ in self._all_types() if type_ > start[0] and self._keys(type_, "", 1))
            return page_of(((type_,) for type_ in living), limit, None, bytes_in(scan))
        if scan is QUARANTINED:
            return page_of(self._listed(start, end, limit), limit, bytes_max, bytes_in(scan))

        def found_by(after: Sequence[Any], to: Any, limit: int) -> list[Any]:
            query = scan.name, scan.values(equal, slices, after, to, limit)
            found = self._session.rows(*query, package=package_of(scan.table))
            return found if scan.columns else [scan.table.read(values_in(scan.table, row)) for row in found]

        def ask(after: Sequence[Any] | None, limit: int) -> list[Any]:
            start = scan.start if after is None else tuple(after)
            try:
                return found_by(start, to, limit)
            except Unavailable as refused:
                if scan is not IN_BUCKET or not refused.facts.get("tombstones"):
                    raise
            first, last = span_of(equal[1], self.settings.bucket_size)
            return halved(found_by, max(start, (first, "", 0)), min(end, last), limit)

        if bytes_max is None or not scan.order:
            return grown(scan, ask, after, limit, None)
        # Rows are mostly as large as those before them, so a page of small rows takes one request.
        whose = (scan.name, *equal[:1])
        first = bytes_max // self._largest.get(whose, bytes_max // FIRST_ROWS or 1)
        page = grown(scan, ask, after, limit, bytes_max, max(1, first))
        if page.rows:
            if len(self._largest) >= LARGEST_KEPT:
                self._largest.clear()
            self._largest[whose] = max(1, *map(bytes_in(scan), page.rows))
        return page

    def raw_rows(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        """Return rows as they lie in a part of the ring (`store.raw_rows`)."""
        return self._session.walk(f"walk_{table.name}", tokens_of(part, parts), package=package_of(table))

    def raw_partitions(self, table: Table, part: int, parts: int) -> Iterator[Any]:
        """Return partition keys as they lie in a part of the ring (`store.raw_rows`)."""
        return self._session.walk(f"list_{table.name}", tokens_of(part, parts), package=package_of(table))

    def raw_row(self, table: Table, place: Sequence[Any]) -> Any:
        """Return the row at a place (`store.raw_rows`)."""
        rows = self._session.rows(f"pick_{table.name}", place, package=package_of(table))
        return rows[0] if rows else None

    def _events(
        self,
        types: Sequence[str],
        partition: int,
        after: tuple[int, int, str],
        to: int,
        limit: int,
        slices: tuple[int, int] | None,
    ) -> Iterator[EventRow]:
        to = min(to, self._pointer(partition).timestamp)  # above it a killed attempt may have left some of its rows
        # Each type is read only as far as its events are among the first of the page.
        ways = [self._event_rows(type_, partition, after, to, min(limit, EVENTS_A_QUERY)) for type_ in types]
        rows = heapq.merge(*ways, key=lambda row: (row.timestamp, row.seq_nr))
        return (row for row in rows if slices is None or slices[0] <= row.slice <= slices[1])

    def _event_rows(
        self, type_: str, partition: int, after: tuple[int, int, str], to: int, limit: int
    ) -> Iterator[EventRow]:
        for row, head in self._shown("range", type_, partition, after, to, limit):
            timestamp, seq_nr, key, life, prev, body, digest = row
            segment = segment_of(seq_nr, head.segment_size)
            yield EventRow(key, life, segment, seq_nr, prev, type_, slice_of(key), partition, timestamp, body, digest)

    def _shown(
        self, name: str, type_: str, partition: int, after: tuple[Any, ...], to: int, limit: int
    ) -> Iterator[tuple[Any, Head]]:
        """Yield rows of the slice view of a type by time, as a statement gives them, with the heads of their keys. Rows
        that a delete or purge has hidden are left out."""
        bucket, last = after[0] // MINUTE_US, to // MINUTE_US
        count = 1
        while True:
            # No more buckets are listed than are read. Where buckets have few rows, more of them are listed at a time.
            listed = [nr for (nr,) in self._session.rows("buckets", (type_, partition, bucket, last, count))]
            found = self._in_buckets(name, type_, partition, listed, after, to, limit)
            some = 0
            for nr, rows in zip(listed, found, strict=True):
                yield from self._living(rows)
                some += len(rows)
                more = rows
                while len(more) == limit:  # there may be more in this one
                    more = self._session.rows(name, (type_, partition, nr, *more[-1][:3], to, limit))
                    yield from self._living(more)
            if len(listed) < count:
                return
            bucket = listed[-1] + 1
            count = min(2 * count, BUCKETS_A_ROUND) if 2 * some < limit else 1

    def _in_buckets(
        self, name: str, type_: str, partition: int, buckets: Sequence[int], after: tuple[Any, ...], to: int, limit: int
    ) -> list[list[Any]]:
        """Return the first rows of each bucket. A bucket whose read is refused is read in smaller spans."""
        try:
            return list(self._session.each((name, (type_, partition, nr, *after, to, limit)) for nr in buckets))
        except Unavailable as refused:
            if not refused.facts.get("tombstones"):
                raise

        def rows(nr: int, after: Sequence[Any], to: int, limit: int) -> list[Any]:
            return self._session.rows(name, (type_, partition, nr, *after, to, limit))

        spans = [(nr, max(after, (nr * MINUTE_US, 0, "")), min(to, (nr + 1) * MINUTE_US - 1)) for nr in buckets]
        return [halved(partial(rows, nr), start, end, limit) for nr, start, end in spans]

    def _living(self, rows: list[Any]) -> Iterator[tuple[Any, Head]]:
        keys = {row[2] for row in rows}
        heads, ended = find_heads(self._session, keys), find_ended(self._session, keys)
        for row in rows:
            _, seq_nr, key, life, *_ = row
            head = heads.get(key)
            if head is None or head.life != life or seq_nr <= head.delete_to:
                continue
            if key in ended and ended[key].life >= life:
                continue
            yield tuple(row), head

    def _types_of(self, partition: int) -> list[str]:
        return [type_ for (type_,) in self._session.rows("entity_types", (partition,))]

    def _all_types(self) -> list[str]:
        partitions = range(self.settings.partitions)
        found = self._session.each(("entity_types", (partition,)) for partition in partitions)
        return sorted({type_ for rows in found for (type_,) in rows}, key=str.encode)

    def _keys(
        self, entity_type: str, start: str, limit: int, slices: tuple[int, int] = (0, SLICES - 1)
    ) -> list[tuple[int, str]]:
        """Return slice and key of each key, after a place in the first slice."""
        lo, hi = slices
        found: list[str] = []
        count = 1
        while lo <= hi and len(found) < limit:
            some = range(lo, min(lo + count, hi + 1))
            found += self._keys_of(entity_type, some, start, limit - len(found))
            lo, start, count = lo + len(some), "", min(2 * count, SLICES_A_ROUND)
        return [(slice_of(key), key) for key in found[:limit]]

    def _keys_of(self, entity_type: str, slices: Iterable[int], start: str, limit: int) -> list[str]:
        """Return the first keys of each slice; `start` is a place in the first of them."""
        found: list[str] = []
        asked = {slice_: start if not index else "" for index, slice_ in enumerate(slices)}
        while asked:
            rows = self._session.each([("keys", (entity_type, slice_, at, limit)) for slice_, at in asked.items()])
            pages = dict(zip(asked, rows, strict=True))
            living = self._with_head([row for page in pages.values() for row in page])
            found += [row[0] for page in pages.values() for row in page if row[0] in living]
            # A slice whose page was full of purged keys is asked for more.
            short = len(found) < limit
            asked = {slice_: page[-1][0] for slice_, page in pages.items() if short and len(page) >= limit}
        return sorted(found, key=lambda key: (slice_of(key), key.encode()))

    def _with_head(self, rows: Sequence[Any]) -> set[str]:
        """Return the keys whose head no ended life covers, from rows of key, offset and life."""
        ended = find_ended(self._session, [row[0] for row in rows])
        return {row[0] for row in rows if row[1] is not None and not (row[0] in ended and ended[row[0]].life >= row[2])}

    def _expired(self, at: int, after: tuple[int, str], limit: int) -> list[tuple[int, str, int]]:
        """Return expired keys. It reads every slice of every type, because expiry has no table of its own."""
        start = after[0], after[1].encode()
        queries = (("expired", (type_, slice_, at)) for type_ in self._all_types() for slice_ in range(SLICES))
        rows = (row for rows in self._session.each(queries) for row in rows)
        due = ((row[3], row[0].encode(), row) for row in rows if (row[3], row[0].encode()) > start)
        first = heapq.nsmallest(limit, due, key=lambda item: item[:2])
        living = self._with_head([row for *_, row in first])
        found = [(when, key.decode(), row[1]) for when, key, row in first if row[0] in living]
        if found or len(first) < limit:
            return found
        return self._expired(at, (first[-1][0], first[-1][1].decode()), limit)  # unfinished purges, all

    # ------------------------------------------------------------ carry

    def write(self, batch: PartitionBatch, seen: Pointer) -> None:
        new = batch.pointer
        found = self._pointer(new.partition)
        check_fence(found.fence, new.fence)
        check_pointer(found, seen)
        if new.offset <= found.offset:  # the whole batch is in the store already
            return
        run(written(batch, self.views), self._writing.write, self._writing.find)
        self._move(found, new._replace(revision=found.revision + 1))

    @property
    def _writing(self) -> Writing:
        return Writing(self._session, self._limits)

    def _move(self, found: Pointer, new: Pointer) -> None:
        """Replace the pointer that was found with a new one, or raise the error that says why not."""
        now = self._set_pointer(found, new)
        if now != new:
            check_fence(now.fence, new.fence)
            check_pointer(now, found)

    def _set_pointer(self, found: Pointer, new: Pointer) -> Pointer:
        """Set the pointer if it is still `found`; return the pointer after that. If the write's answer was lost, read
        it again."""
        absent = found == Pointer(found.partition)
        seen = (None, None, None) if absent else (found.offset, found.fence, found.revision)
        _, *values = POINTER.stored(new)
        lost: Unavailable | None = None
        try:
            if self._session.conditional("set_pointer", (*values, new.partition, *seen)):
                return new
        except Unavailable as error:
            lost = error
        now = _pointer_in(self._session.serial_rows("pointer", (new.partition,)), new.partition)
        if now == found and lost is not None:
            raise lost
        return now

    # ------------------------------------------------------------ lease

    def lease(self) -> CassandraLeases:
        return CassandraLeases(self)

    def _raise_fence(self, pointer: Pointer, fence: int) -> None:
        """Raise a pointer's fence."""
        for _ in range(FENCE_ATTEMPTS_MAX):
            now = self._set_pointer(pointer, pointer._replace(fence=fence))
            if now.fence == fence:
                return
            if now.fence > fence:
                check_fence(now.fence, fence)
            pointer = now
        raise Unavailable(
            f"other processes keep moving the pointer of partition {pointer.partition}",
            code="serialization",
            hint="try again",
        )

    # ------------------------------------------------------------ quarantine

    def _listed(self, after: Sequence[Any], to: int, limit: int) -> Iterator[QuarantineRow]:
        for partition in range(max(after[0], 0), min(self.settings.partitions, to + 1)):
            place = after[1] if partition == after[0] else -1
            while True:
                rows = self._session.rows("quarantined", (partition, place, min(limit, LISTED_A_QUERY)))
                yield from map(QUARANTINE.read, rows)
                if len(rows) < min(limit, LISTED_A_QUERY):
                    break
                place = rows[-1][1]

    @contextmanager
    def correct(
        self, partition: int, holder: str, carry_mark: CarryMark, *, fence: int | None = None
    ) -> Iterator[Amend]:
        """Amend under the lease, since there are no locks, with the Mark's timestamp, which is below that of all later
        actions."""
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
        run(amended(self.views, found, correction), self._writing.write, self._writing.find)
        self._move(found, found._replace(revision=found.revision + 1))

    # ------------------------------------------------------------ the archive

    def kept(self, name: str) -> str | None:
        rows = self._session.rows("kept", (name,))
        return rows[0][0] if rows else None

    def keep(self, name: str, text: str) -> None:
        self._session.write([CqlRequest("keep", [(name, text)], len(text.encode()))])

    def mark_archived(self, partition: int, ends: Sequence[ArchivedTo], at: int) -> None:
        self._session.write(
            CqlRequest("mark_archived", [(at, life, archive_to, *key_place(key))]) for key, life, archive_to in ends
        )

    def remove_archived(self, partition: int, rows: Sequence[ArchivedPlace]) -> None:
        run(taken_out(partition, rows), self._writing.write, self._writing.find)

    # ------------------------------------------------------------ snapshots

    def save(self, row: SnapshotRow, partition: int) -> None:
        found = find(self._session, row.key)
        if (found.ended and found.ended.life >= row.life) or (found.head and found.head.life > row.life):
            raise life_ended(row.key, row.life)
        # A purge that comes meanwhile removes rows for always: a row that is written after it stays hidden.
        self._session.write(put_requests(Put(SNAPSHOT, [row], self._write_us())))

    def remove(self, key: str, life: int, *, to: int) -> int:
        span = Span(SNAPSHOT, (key, life), (1,), (to,))
        count = len(self._writing.find([span])[span])
        if count:
            self._writing.write([Remove(span, self._write_us())])
        return count

    def _write_us(self) -> int:
        """Return a write timestamp for data of users, such as snapshots: this machine's clock, never the same twice."""
        with self._lock:
            self._last_us = max(self._last_us + 1, now_us())
            return self._last_us


def halved(ask: Callable[[Sequence[Any], Any, int], list[Any]], after: Sequence[Any], to: int, limit: int) -> list[Any]:
    """Return rows by time, after a place and up to a time. A span that is refused for its tombstones is read in halves.

    `Unavailable.away` if one timestamp alone has too many.
    """
    try:
        return ask(after, to, limit)
    except Unavailable as refused:
        if not refused.facts.get("tombstones") or after[0] >= to:
            raise
    middle = (after[0] + to) // 2
    rows = halved(ask, after, middle, limit)
    if len(rows) < limit:
        beginning = (middle + 1, *["" if isinstance(part, str) else 0 for part in after[1:]])
        rows += halved(ask, beginning, to, limit - len(rows))
    return rows


def tokens_of(part: int, parts: int) -> tuple[int, int]:
    """Return the tokens of a part of the ring: above the first, up to the last. No row has the least token."""
    return tuple([TOKEN_LEAST + 2**64 * at // parts - (at == parts) for at in (part, part + 1)])  # type: ignore[return-value]


def span_of(bucket: int, size: str) -> tuple[int, int]:
    """Return the first and the last time of a bucket."""
    return bucket * LENGTHS_US[size], (bucket + 1) * LENGTHS_US[size] - 1


def _pointer_in(rows: Sequence[Any], partition: int) -> Pointer:
    """Return the pointer in its row; one that was never written is before every record."""
    return POINTER.read(rows[0]) if rows else Pointer(partition)


def _beyond(seq_nr: int, from_: int, to: int, backwards: bool) -> tuple[int, int]:
    """Return the bounds of the numbers that remain after a page that ends at this number."""
    return (from_, seq_nr - 1) if backwards else (seq_nr + 1, to)


class CassandraLeases:
    """The lease. Its row is written only by conditional writes."""

    def __init__(self, store: CassandraStore) -> None:
        self._store, self._session = store, store._session
        self._lease_s = store._lease_s

    def take(self, holder: str) -> BeatingLease:
        store = self._store
        for _ in range(LEASE_ATTEMPTS_MAX):
            row = self._free_row()
            seen = (None, None) if row.fence == 0 else (row.fence, row.beat)
            values = (row.fence + 1, store._write_us(), holder, store._clock(), PIPELINE, *seen)
            if self._session.conditional("take_lease", values):
                break
        else:
            raise Unavailable("other processes keep taking the lease", code="serialization", hint="call again")
        fence = row.fence + 1
        lease = BeatingLease(fence, self._lease_s, beat=self._beat, in_force=lambda: self._row().fence, ended=self._end)
        try:
            for pointer in store.pointers():
                store._raise_fence(pointer, fence)
        except BaseException:
            lease.release()
            raise
        told_taken(self._session.url, holder, fence)
        store._leases = [held for held in store._leases if not held.over] + [lease]
        return lease

    def _free_row(self) -> LeaseRow:
        """Return the lease's row, once no process holds it. The nodes' clocks may differ, so the beat is watched, not
        its age."""
        if any(not lease.over for lease in self._store._leases):
            holder = self.holder()  # this process's own lease needs no watching
            if holder is not None:
                raise lease_held(*holder)
        return wait_until_free(lambda: self._row()._replace(still_s=0.0), self._lease_s)

    def holder(self) -> tuple[str, int] | None:
        return self._row().held(self._lease_s)

    def _row(self) -> LeaseRow:
        rows = self._session.serial_rows("lease", (PIPELINE,))
        if not rows:
            return FREE
        fence, holder, since, beat, beaten_us, now_ms = rows[0]
        return LeaseRow(fence, holder, since, beat, now_ms / 1e3 - beaten_us / 1e6)

    def _beat(self, fence: int) -> bool:
        return self._session.conditional("beat", (self._store._write_us(), PIPELINE, fence))

    def _end(self, fence: int) -> None:
        self._session.conditional("release_lease", (PIPELINE, fence))

    def report(self, fence: int, errors: Mapping[int, str]) -> None:
        self._session.conditional("report", (report_text(errors), PIPELINE, fence))

    def reported(self) -> dict[int, str]:
        rows = self._session.rows("reported", (PIPELINE,))
        return report_in(rows[0][0] if rows else None)
