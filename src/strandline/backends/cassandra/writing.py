"""How a batch is written without transactions. The order is the whole of it; `reliability.md` 3.2 says why.

    batch     quarantine → rounds → pointer (the caller's)
    round     the next cut of every key; a key's cuts are finished one after the other, keys do not wait for each other
    appends   journal → slice view → heads
    deletes   heads of the appends before → hide → slice view → journal → heads
    purges    heads of the appends before → `ended` → slice view → journal, snapshots, quarantine → head rows

Each arrow waits until all before it is acknowledged. Every cell has its action's timestamp, so a repeat is the same
write, and what comes late from somebody who lost the lease undoes nothing. What a purge removes, it removes for always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from strandline.backends.cassandra import Request, Session
from strandline.backends.cassandra.heads import ended_values, head_values
from strandline.backends.cassandra.session import BATCH_BYTES_MAX, BATCH_ROWS_MAX
from strandline.fold import EventsDeleted, LifePurged, segment_of
from strandline.rows import Cut, QuarantineRow
from strandline.store.sql_rows import key_place, listed_row
from strandline.values.events import EventRow
from strandline.values.heads import Ended, Head

ALWAYS: Final = 2**62
"""A write timestamp above any clock's: what is removed with it does not come back."""
BUCKET_US: Final = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
_Heads = Iterable[tuple[str, Head, int]]


class Writing:
    """Writes cuts through a session."""

    def __init__(self, session: Session, bucket_size: str) -> None:
        self._session = session
        self._bucket_us = BUCKET_US[bucket_size]

    # ------------------------------------------------------------ batch

    def list_records(self, rows: Sequence[QuarantineRow]) -> None:
        """Into the quarantine: before any head moves, because a damaged append is not met again after that."""
        self._session.write(
            Request("list_record", [(*listed_row(row), row.timestamp)], len(row.value or b"")) for row in rows
        )

    def write_cuts(self, cuts: Sequence[Cut], partition: int) -> None:
        """All cuts, in rounds; all keys are in this partition."""
        types = {key_place(cut.key)[0] for cut in cuts if isinstance(cut.state, Head)}
        known: Iterable[Request] = [Request("add_entity_type", [(partition, type_)]) for type_ in types]
        for round_ in _rounds(cuts):
            self.write_events([row for cut in round_ for row in cut.events], known=known)
            known = ()
            self.write_heads(
                (cut.key, cut.state, cut.timestamp)
                for cut in round_
                if cut.ended_by is None and isinstance(cut.state, Head)
            )
            removals = [cut for cut in round_ if cut.ended_by is not None]
            if removals:
                self._remove(removals, partition)

    # ------------------------------------------------------------ events and heads

    def write_events(
        self, rows: Sequence[EventRow], timestamp: int | None = None, *, known: Iterable[Request] = ()
    ) -> None:
        """Events, then their rows in the slice view; with their own timestamps unless one is given.

        What is to be `known` before any head goes with the events.
        """
        if not rows:
            self._session.write(known)
            return
        by_bucket: defaultdict[tuple[str, int, int], list[EventRow]] = defaultdict(list)
        bucket_us = self._bucket_us
        for row in rows:
            by_bucket[row[5], row[7], row[8] // bucket_us].append(row)
        buckets = (Request("add_bucket", [place]) for place in by_bucket)
        self._session.write(chain(known, _event_requests(rows, timestamp), buckets))
        self._session.write(_slice_requests(by_bucket, timestamp))

    def write_heads(self, heads: _Heads) -> None:
        """Heads, those of one slice together."""
        places: defaultdict[tuple[str, int], list[list[Any]]] = defaultdict(list)
        for key, head, timestamp in heads:
            values = head_values(key, head)
            values.append(timestamp)
            places[values[0], values[1]].append(values)
        self._session.write(
            Request("set_head", rows[start : start + BATCH_ROWS_MAX])
            for rows in places.values()
            for start in range(0, len(rows), BATCH_ROWS_MAX)
        )

    # ------------------------------------------------------------ removals

    def _remove(self, cuts: list[Cut], partition: int) -> None:
        self.write_heads(
            (cut.key, cut.before, cut.before.updated) for cut in cuts if cut.events and isinstance(cut.before, Head)
        )
        self._session.write(_hiding(cuts))
        self._remove_slice_rows(cuts, partition)
        self._session.write(self._removals(cuts, partition))
        self.write_heads(
            (cut.key, cut.state, cut.timestamp)
            for cut in cuts
            if isinstance(cut.ended_by, EventsDeleted) and isinstance(cut.state, Head)
        )
        self._session.write(
            Request("purge_head", [(cut.timestamp, *key_place(cut.key))])
            for cut in cuts
            if isinstance(cut.ended_by, LifePurged)
        )

    def _remove_slice_rows(self, cuts: list[Cut], partition: int) -> None:
        """The journal's rows tell where they stand."""
        spans = [(cut, span) for cut in cuts for span in _spans(cut)]
        found = self._session.each(("places", span) for _, span in spans)
        by_bucket: defaultdict[tuple[str, int, int], list[tuple[Any, ...]]] = defaultdict(list)
        for (cut, _), rows in zip(spans, found, strict=True):
            at = ALWAYS if isinstance(cut.ended_by, LifePurged) else cut.timestamp
            for seq_nr, timestamp in rows:
                place = key_place(cut.key)[0], partition, timestamp // self._bucket_us
                by_bucket[place].append((at, *place, timestamp, seq_nr, cut.key))
        self._session.write(
            Request("delete_slice_row", rows[start : start + BATCH_ROWS_MAX])
            for rows in by_bucket.values()
            for start in range(0, len(rows), BATCH_ROWS_MAX)
        )

    def _removals(self, cuts: list[Cut], partition: int) -> Iterator[Request]:
        purged = {(cut.key, cut.ended_by.life) for cut in cuts if isinstance(cut.ended_by, LifePurged)}
        for cut in cuts:
            for span in _spans(cut):
                if isinstance(cut.ended_by, LifePurged):
                    yield Request("purge_events", [(ALWAYS, *span[:3])])
                else:
                    yield Request("delete_events", [(cut.timestamp, *span)])
        for life in purged:
            yield Request("purge_snapshots", [(ALWAYS, *life)])
        if purged:
            for offset, key, life in self._session.rows("damaged", (partition,)):
                if (key, life) in purged:
                    yield Request("unlist_record", [(ALWAYS, partition, offset)])

    def remove_events(self, rows: Sequence[EventRow], timestamp: int) -> None:
        """Single events, the last first, and each with its row in the slice view before it: a correction's."""
        for row in sorted(rows, key=lambda row: -row.seq_nr):
            bucket = row.timestamp // self._bucket_us
            place = (row.entity_type, row.partition, bucket, row.timestamp, row.seq_nr, row.key)
            self._session.write([Request("delete_slice_row", [(timestamp, *place)])])
            self._session.write([Request("delete_events", [(timestamp, *row[:3], row.seq_nr, row.seq_nr)])])

    def unlist(self, partition: int, offset: int) -> None:
        """Off the list, for always."""
        self._session.write([Request("unlist_record", [(ALWAYS, partition, offset)])])


def _rounds(cuts: Sequence[Cut]) -> list[list[Cut]]:
    rounds: list[list[Cut]] = []
    met: defaultdict[str, int] = defaultdict(int)
    for cut in cuts:
        nr = met[cut.key]
        met[cut.key] += 1
        if nr == len(rounds):
            rounds.append([])
        rounds[nr].append(cut)
    return rounds


def _event_requests(rows: Sequence[EventRow], timestamp: int | None) -> Iterator[Request]:
    """Rows of one key come together; those of one segment go into one batch."""
    batch: list[tuple[Any, ...]] = []
    size = 0
    before: tuple[Any, ...] = ()
    for row in rows:
        key, life, segment, seq_nr, prev, _, _, _, written, body, digest = row
        place = key, life, segment
        if batch and (place != before or len(batch) == BATCH_ROWS_MAX or size + len(body) > BATCH_BYTES_MAX):
            yield Request("insert_event", batch, size)
            batch, size = [], 0
        before = place
        at = written if timestamp is None else timestamp
        batch.append((key, life, segment, seq_nr, prev, written, body, digest, at))
        size += len(body)
    yield Request("insert_event", batch, size)


def _slice_requests(by_bucket: dict[tuple[str, int, int], list[EventRow]], timestamp: int | None) -> Iterator[Request]:
    for place, rows in by_bucket.items():
        batch: list[tuple[Any, ...]] = []
        size = 0
        for key, life, _, seq_nr, prev, _, _, _, written, body, digest in rows:
            if batch and (len(batch) == BATCH_ROWS_MAX or size + len(body) > BATCH_BYTES_MAX):
                yield Request("insert_slice_row", batch, size)
                batch, size = [], 0
            at = written if timestamp is None else timestamp
            batch.append((*place, written, seq_nr, key, life, prev, body, digest, at))
            size += len(body)
        yield Request("insert_slice_row", batch, size)


def _hiding(cuts: list[Cut]) -> Iterator[Request]:
    for cut in cuts:
        if isinstance(cut.ended_by, LifePurged) and isinstance(cut.state, Ended):
            yield Request("end_life", [(*ended_values(cut.key, cut.state), cut.timestamp)])
        elif isinstance(cut.state, Head):
            yield Request("hide", [(cut.timestamp, cut.state.delete_to, *key_place(cut.key))])


def _spans(cut: Cut) -> Iterator[tuple[str, int, int, int, int]]:
    """What goes, by segment: key, life, segment, first, last. Below the head's `removed_to` there is nothing left."""
    if cut.ended_by is None or not isinstance(cut.before, Head):
        return
    size, first, last = cut.before.segment_size, cut.before.removed_to + 1, cut.ended_by.to
    if first <= last:
        for segment in range(segment_of(first, size), segment_of(last, size) + 1):
            yield cut.key, cut.ended_by.life, segment, first, last
