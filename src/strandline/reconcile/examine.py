"""Examine: one key read afresh, judged, and corrected. These findings are final: digests only say where to look.

A key is read while nobody writes it: its state is the same before and after, and on a store without transactions no
action of it waits in the log beyond the pointer, because a batch under way may have written some of its rows. A key
that is written all the time is left out, and reported as busy.

A correction is made under the pipeline's lease. Rows that are put back are first listed in `repaired`. The only rows
that are removed are those of ended lives and deleted events, rows that were never recorded, as the kept log proves, and
rows of views that no event accounts for.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from zlib import crc32

from strandline.carry.resolve import mark_carrier
from strandline.errors import Unavailable
from strandline.fold import fold, segment_of
from strandline.log.api import Log
from strandline.reconcile.examine_tags import TagExaminer
from strandline.reconcile.findings import Difference
from strandline.reconcile.judge import EventFault, ProvedEvent, StoredEvent, judge_events, judge_head
from strandline.reconcile.kept_log import KeptLog, LoggedKey, LoggedKeys
from strandline.reconcile.key_reader import ROWS_AT_ONCE, KeyReader
from strandline.reconcile.sides import OddRow
from strandline.rows import Pointer, life_of
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.correction import Amend, Correction
from strandline.store.raw_rows import raw_row
from strandline.store.scans import EVENTS, snapshots_of
from strandline.store.tables import (
    ENTITY_TYPE,
    JOURNAL,
    REPAIRED,
    SLICE_BUCKET,
    SLICE_VIEW,
    SNAPSHOT,
    RepairedRow,
    SliceRow,
    SnapshotRow,
    repaired_number,
)
from strandline.store.tag_scans import is_partitioned
from strandline.store.views import MINUTE_US
from strandline.values.actions import Place
from strandline.values.events import EventRow, Life, parts_of, with_prev
from strandline.values.heads import EndedLife, Head, State

ATTEMPTS_MAX: Final = 4
WAIT_S: Final = 0.25
LOG_RECORDS: Final = 2000
AMEND_AT_ONCE: Final = 1000
PREV_AT, PREV_END = 9, 17
"""The bytes of a body that hold the number of the event before."""


@dataclass(slots=True)
class KeyCorrection:
    """The differences of a key, and the rows that correct it."""

    seen: Pointer
    findings: list[Difference] = field(default_factory=list)
    remove: list[EventRow] = field(default_factory=list)
    replace: list[EventRow] = field(default_factory=list)
    head: Head | None = None
    anew: dict[Any, list[Any]] = field(default_factory=dict)
    gone: dict[Any, list[Any]] = field(default_factory=dict)
    listed: list[tuple[int, int, int]] = field(default_factory=list)
    """Life, number and timestamp of rows that are put back."""

    @property
    def changes(self) -> bool:
        return bool(self.remove or self.replace or self.head is not None or self.anew or self.gone)


class KeyExaminer:
    """Examines keys of one partition."""

    def __init__(self, log: Log, store: Store, settings: Settings, partition: int, fence: int | None = None) -> None:
        """`fence` is the fence of the pipeline's lease, which the caller holds; without it no key can be corrected."""
        self._log, self._store, self._settings = log, store, settings
        self._partition, self._fence = partition, fence
        self._partitioned = is_partitioned(store)
        self._keys = KeyReader(store, partition)
        carry_mark = partial(mark_carrier, log, store, settings=settings)
        self._tags = TagExaminer(store, self._keys, partition, fence or 0, carry_mark)
        self._logged = self._read_log({})

    # ------------------------------------------------------------ many keys

    def examine(self, odd: Mapping[str, Sequence[OddRow]]) -> Iterator[tuple[list[Difference], str | None]]:
        """Yield the findings of each key, and the key itself if it was busy. `odd` has the keys, each with its odd
        rows.
        """
        self._logged = self._read_log(odd)
        pending = dict(odd)
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                time.sleep(WAIT_S)
            end = self._log.newest()[self._partition]
            moving = self._written_after(self._store.pointers()[self._partition].offset, end, pending)
            looked = {key: self._look_once(key, rows) for key, rows in pending.items() if key not in moving}
            moving |= self._written_after(end, self._log.newest()[self._partition], looked)
            for key, found in looked.items():
                if found is not None and key not in moving:
                    del pending[key]
                    yield found, None
            if not pending:
                return
        for key in pending:
            yield [], key

    def repair(self, odd: Mapping[str, Sequence[OddRow]]) -> Iterator[tuple[list[Difference], str | None]]:
        """Correct what can be proved, and yield as `examine` does; each finding says whether it was repaired."""
        if self._fence is None:
            raise TypeError("a repair needs the fence of the pipeline's lease")
        marking = mark_carrier(self._log, self._store, self._partition, self._settings)
        with self._store.correct(self._partition, "", marking, fence=self._fence) as amend:
            self._logged = self._read_log(odd)
            for key, rows in odd.items():
                before = self._look_until_still(key, rows)
                left: dict[Any, Difference] = {}
                if before:
                    self._correct(key, rows, amend)
                    left = {finding.identity: finding for finding in self._look_until_still(key, rows) or ()}
                if before is None:
                    yield [], key
                    continue
                told = [finding._replace(repaired=left.pop(finding.identity, None) is None) for finding in before]
                yield [*told, *left.values()], None

    def _look_until_still(self, key: str, odd: Sequence[OddRow]) -> list[Difference] | None:
        """Return the differences of a key, read again while other corrections come in between. The caller's lease keeps
        a pipeline away.
        """
        for _ in range(ATTEMPTS_MAX):
            if (found := self._look_once(key, odd)) is not None:
                return found
        return None

    def _read_log(self, keys: Mapping[str, Any]) -> LoggedKeys:
        oldest = self._log.oldest()[self._partition]
        kept = KeptLog(self._log, self._partition, oldest, self._settings, self._store.settings.rules)
        return LoggedKeys(kept, list(keys))

    def _correct(self, key: str, odd: Sequence[OddRow], amend: Amend) -> None:
        """Correct events, head and slice rows, then the views of tags, which follow from these."""
        for _ in range(ATTEMPTS_MAX):
            try:
                found = self._journal_of(key, odd)
                if not found.changes:
                    break
                self._amend(key, found, amend)
            except Unavailable as error:
                if error.code != "serialization":
                    raise
            else:
                break
        self._tags.correct(key, odd, amend)

    def _amend(self, key: str, found: KeyCorrection, amend: Amend) -> None:
        """Write a correction in pieces; the head goes with the last one."""
        seen = found.seen
        rows = found.replace
        pieces = [rows[at : at + AMEND_AT_ONCE] for at in range(0, len(rows), AMEND_AT_ONCE)] or [[]]
        listed = set(found.listed)
        for at, piece in enumerate(pieces):
            last = at == len(pieces) - 1
            put_back = [(row.life, row.seq_nr, row.timestamp) for row in piece]
            put_back = [place for place in put_back if place in listed]
            if last:
                put_back += [
                    place for place in found.listed if place not in {(r.life, r.seq_nr, r.timestamp) for r in rows}
                ]
            anew = dict(found.anew) if last else {}
            if put_back:
                anew = {REPAIRED: listed_rows(seen, key, put_back), **anew}
            head = (key, found.head) if last and found.head is not None else None
            remove, gone = (found.remove, found.gone) if last else ((), {})
            amend(seen, Correction(remove=remove, replace=piece, head=head, anew=anew, gone=gone))
            seen = seen._replace(revision=seen.revision + 1)

    # ------------------------------------------------------------ one key

    def _look_once(self, key: str, odd: Sequence[OddRow], *, again: bool = False) -> list[Difference] | None:
        """Return the differences of a key; None if it changed meanwhile."""
        try:
            before = self._keys.state(key)
            found = self._journal_of(key, odd).findings
            found += self._tags.differences(key, odd, {finding.kind for finding in found})
            after = self._keys.state(key)
        except Unavailable as error:
            if error.code != "serialization":
                raise
            return None
        if before[1] != after[1]:
            return None
        if found and before[0].revision != after[0].revision and not again:
            # Most likely other keys were written. But an operator's correction may have come in between, which leaves
            # the head as it is: only differences that show again are real.
            second = self._look_once(key, odd, again=True)
            told = {finding.identity for finding in second or ()}
            return None if second is None else [finding for finding in found if finding.identity in told]
        return found

    def _written_after(self, after: int, end: int, keys: Collection[str]) -> set[str]:
        """Return the keys that have actions in the log after an offset, up to another.

        A batch under way may have written some of their rows. On SQL a batch is seen whole or not at all.
        """
        found: set[str] = set()
        while self._partitioned and keys and after < end:
            page = self._log.read(self._partition, after=after, to=end, limit=LOG_RECORDS, values=False)
            found.update(record.key for record in page.records if record.key is not None and record.key in keys)
            if page.position - 1 <= after:
                break
            after = page.position - 1
        return found

    def _journal_of(self, key: str, odd: Sequence[OddRow]) -> KeyCorrection:
        """Return the differences of events, head, slice rows and snapshots, and the rows that correct them."""
        pointer, state, readable = self._keys.state(key)
        self._logged.read(pointer.offset)
        found = KeyCorrection(pointer)
        self._ended_rows(key, state, odd, found, readable=readable)
        logged = self._logged.get(key)
        proved_head = self._proved_head(key, state, logged, pointer)
        if not isinstance(state, Head):
            rows_left = any(row.table == "journal" for row in odd) and not isinstance(state, EndedLife)
            if not readable or rows_left or proved_head is not None:
                self._head_fault(key, None, proved_head, 0, found)
            if proved_head is None:
                return found
            state = proved_head
        life = life_of(key, state.life)
        mine = [row for row in odd if row.life == state.life]
        rows = self._keys.rows(life, state, [int(row.place[0]) for row in mine if row.table == "outside"])
        columns = {row.place[0] for row in mine if row.table == "columns" and self._has_other_columns(row)}
        stored = [self._stored(life, row, state, in_columns=row[0] not in columns) for row in rows]
        events = logged.events if logged is not None else []
        logged_rows = {each.row.seq_nr: each for each in events if each.row.life == state.life}
        proved = {
            number: ProvedEvent(number, each.row.timestamp, content_of(each.row.body), each.damaged)
            for number, each in sorted(logged_rows.items())
        }
        proofs = {number: each.row for number, each in logged_rows.items()}
        log = None if logged is None else (self._logged.kept.oldest, self._logged.to)
        faults = judge_events(stored, list(proved.values()), state, log=log)
        if any(fault.kind in ("event_missing", "event_different") and not fault.mend for fault in faults):
            named = {state.prev, *(row.prev_seq_nr for row in proofs.values())}
            archived = linked_events(self._archived(life, state, log), stored, named)
            proofs = archived | proofs
            proved = {number: archived_proof(row) for number, row in archived.items()} | proved
            faults = judge_events(stored, [each for _, each in sorted(proved.items())], state, log=log)
        self._event_faults(life, state, faults, {row[0]: row for row in rows}, proofs, found)
        extra = {number for fault in faults if fault.kind == "event_extra" for number in fault.seq_nrs}
        missing = [number for fault in faults if fault.mend == "put" for number in fault.seq_nrs]
        last = max([*[event.seq_nr for event in stored if event.seq_nr not in extra], *missing, 0])
        if found.head is None:
            self._head_fault(key, state, proved_head, last, found)
        if self._partitioned:
            self._slice_faults(life, state, found, rows, odd)
        return found

    def _archived(self, life: Life, head: Head, log: tuple[int, int] | None) -> dict[int, EventRow]:
        """Return the events that the archive proves, without those that the kept log proves."""
        found = (
            self._row(life, head, cells)
            for cells in self._store.archive.proofs(life.key, head, self._store.settings.history_id)
        )
        return {
            row.seq_nr: row for row in found if log is None or not log[0] <= parts_of(row.body).log_offset <= log[1]
        }

    def _ended_rows(
        self, key: str, state: State, odd: Sequence[OddRow], found: KeyCorrection, *, readable: bool
    ) -> None:
        """Look for rows of lives that have ended."""
        if not readable or state is None:
            return
        number = state.life + isinstance(state, EndedLife)
        lives: dict[int, list[int]] = {}
        for row in odd:
            if row.table == "journal" and row.life < number:
                lives.setdefault(row.life, []).append(int(row.place[1]))
        for life, seq_nrs in lives.items():
            rows = [
                EventRow.of(Life(key, life), self._keys.size(state), cells)
                for at in sorted(seq_nrs)
                for cells in self._store.page(key, life, self._keys.size(state), from_=at, to=at, limit=1).rows
            ]
            if rows:
                found.remove += rows
                found.findings.append(
                    self._keys.difference("ended_life", key, life, tuple(row.seq_nr for row in rows), "no row", "rows")
                )
        later = [row for row in odd if row.table == "journal" and row.life >= number and row.life != state.life]
        if later:
            numbers = tuple(sorted(int(row.place[1]) for row in later))
            found.findings.append(
                self._keys.difference(
                    "event_extra", key, later[0].life, numbers, f"life {state.life}", "rows of a later life"
                )
            )
        for row in odd:
            if row.table != "snapshot" or row.life >= number:
                continue
            snapshots = snapshots_of(self._store, key, row.life)
            if snapshots:
                gone = [SnapshotRow(key, row.life, at, when, form, b"") for at, when, form in snapshots]
                found.gone.setdefault(SNAPSHOT, []).extend(gone)
                numbers = tuple(at for at, _, _ in snapshots)
                found.findings.append(
                    self._keys.difference("snapshot_orphaned", key, row.life, numbers, "none", "snapshots")
                )

    def _proved_head(self, key: str, state: State, logged: LoggedKey | None, pointer: Pointer) -> Head | None:
        """Return the head that the log proves: the folded one if the log is whole, else the present head with the log's
        actions applied.
        """
        complete = self._logged.kept.complete
        if logged is None or not (complete or isinstance(state, Head)):
            return None
        folded: State = None if complete else state
        for record, action, _ in logged.actions:
            if action is not None and record.offset <= pointer.offset:
                place = Place(record.partition, record.offset, record.timestamp)
                folded, _ = fold(folded, action, place, self._store.settings.rules)
        if not isinstance(folded, Head):
            return None
        if isinstance(state, Head):
            folded = folded._replace(archive_to=state.archive_to, removed_to=max(state.removed_to, folded.removed_to))
        return folded

    def _head_fault(self, key: str, state: Head | None, proved: Head | None, last: int, found: KeyCorrection) -> None:
        fault = judge_head(state, proved, last)
        if fault is None:
            return
        expected, was, right = fault
        if right is not None and last:
            right = right._replace(prev=min(right.prev, last))
        found.head = right
        life = state.life if state is not None else proved.life if proved is not None else None
        found.findings.append(self._keys.difference("head_wrong", key, life, (), expected, was))

    def _has_other_columns(self, row: OddRow) -> bool:
        """Return whether an event still has a row at another time than its body's (partitioned stores)."""
        _, state, _ = self._keys.state(row.key)
        seq_nr = int(row.place[0])
        there = raw_row(self._store, JOURNAL, (row.key, row.life, segment_of(seq_nr, self._keys.size(state)), seq_nr))
        try:
            return there is not None and parts_of(there[6]).timestamp != there[5]
        except (TypeError, struct.error):
            return False

    def _stored(self, life: Life, row: tuple[Any, ...], head: Head, *, in_columns: bool) -> StoredEvent:
        seq_nr, prev, body, digest = row
        try:
            parts = parts_of(body)
        except (TypeError, struct.error):
            return StoredEvent(seq_nr, prev, 0, -1, 0, whole=False)
        whole = crc32(body, life.seed) == digest and parts.seq_nr == seq_nr
        if whole and parts.prev_seq_nr != prev:
            in_columns = False
            prev = parts.prev_seq_nr
        if whole and in_columns and not self._partitioned and seq_nr > max(head.delete_to, head.archive_to):
            in_columns = self._found_by_time(life, seq_nr, parts.timestamp) is not None
        return StoredEvent(seq_nr, prev, parts.timestamp, parts.log_offset, content_of(body), whole, in_columns)

    def _found_by_time(self, life: Life, seq_nr: int, timestamp: int) -> EventRow | None:
        """Return the row of an event, found as queries by slices find it."""
        after: tuple[int, int] = (timestamp, seq_nr - 1)
        rows = self._store.scan(
            EVENTS, (life.entity_type, self._partition), after=after, to=timestamp, limit=ROWS_AT_ONCE,
            slices=(life.slice, life.slice),
        ).rows  # fmt: skip
        return next((row for row in rows if (row[0], row[1], row[3]) == (life.key, life.number, seq_nr)), None)

    def _event_faults(
        self,
        life: Life,
        head: Head,
        faults: Sequence[EventFault],
        rows: Mapping[int, tuple[Any, ...]],
        proofs: Mapping[int, EventRow],
        found: KeyCorrection,
    ) -> None:
        extra = {number for fault in faults if fault.kind == "event_extra" for number in fault.seq_nrs}
        run = sorted({*rows, *(number for fault in faults if fault.mend == "put" for number in fault.seq_nrs)} - extra)
        before = dict(zip(run[1:], run, strict=False))
        for fault in faults:
            found.findings.append(
                self._keys.difference(
                    fault.kind, life.key, life.number, fault.seq_nrs, fault.expected, fault.found, fault.timestamp
                )
            )
            number = fault.seq_nrs[-1]
            if fault.mend == "remove":
                found.remove.append(self._row(life, head, rows[number]))
            elif fault.mend == "put":
                row = proofs[number]
                cells = with_prev(life, row.cells, before.get(number, row.prev_seq_nr))
                found.replace.append(self._row(life, head, cells))
                if number not in rows:
                    found.listed.append((life.number, number, row.timestamp))
            elif fault.mend == "columns":
                seq_nr, _, body, digest = rows[number]
                found.replace.append(self._row(life, head, (seq_nr, parts_of(body).prev_seq_nr, body, digest)))
            elif fault.mend == "prev":
                found.replace.append(self._row(life, head, with_prev(life, rows[number], fault.prev)))

    def _row(self, life: Life, head: Head, cells: tuple[Any, ...]) -> EventRow:
        """Return the row of an event, in this partition. Its body may name another one, which it was recorded in."""
        return EventRow.of(life, head.segment_size, cells)._replace(partition=self._partition)

    def _slice_faults(
        self,
        life: Life,
        head: Head,
        found: KeyCorrection,
        rows: Sequence[tuple[Any, ...]],
        odd: Sequence[OddRow],
    ) -> None:
        """Find the faults of the slice view: each whole event must have one row, at the place in its body."""
        replaced = {row.seq_nr for row in found.replace} | {row.seq_nr for row in found.remove}
        for seq_nr, prev, body, digest in rows:
            if seq_nr <= max(head.delete_to, head.archive_to) or seq_nr in replaced or crc32(body, life.seed) != digest:
                continue
            at = parts_of(body).timestamp
            bucket = at // MINUTE_US
            right = SliceRow(
                life.entity_type, self._partition, bucket, at, seq_nr, life.key, life.number, prev, body, digest
            )
            there = self._found_by_time(life, seq_nr, at)
            if there is not None and (there.prev_seq_nr, there.body, there.digest) == (prev, body, digest):
                continue
            kind = "slice_missing" if there is None else "slice_wrong"
            was = "none" if there is None else "another row"
            found.findings.append(self._keys.difference(kind, life.key, life.number, (seq_nr,), "a row", was, at))
            found.anew.setdefault(SLICE_VIEW, []).append(right)
            bucket_row = (life.entity_type, self._partition, bucket)
            if bucket_row not in found.anew.setdefault(SLICE_BUCKET, []):
                found.anew[SLICE_BUCKET].append(bucket_row)
            found.anew[ENTITY_TYPE] = [(self._partition, life.entity_type)]
            if there is None:
                found.listed.append((life.number, seq_nr, at))
        wanted = {(row[0], parts_of(row[2]).timestamp) for row in rows if crc32(row[2], life.seed) == row[3]}
        for row in odd:
            if row.table == "slice_view" and (row.life != head.life or (row.place[4], row.place[3]) not in wanted):
                if raw_row(self._store, SLICE_VIEW, row.place) is None:
                    continue
                gone = SliceRow._make([*row.place, row.life, 0, b"", 0])
                found.gone.setdefault(SLICE_VIEW, []).append(gone)
                numbers = (int(row.place[4]),)
                found.findings.append(
                    self._keys.difference(
                        "slice_extra", life.key, row.life, numbers, "none", "a row", int(row.place[3])
                    )
                )


def listed_rows(seen: Pointer, key: str, places: Sequence[tuple[int, int, int]]) -> list[RepairedRow]:
    """Return the rows of table `repaired` for events that are put back: life, number and timestamp of each."""
    return [
        RepairedRow(seen.partition, repaired_number(seen.revision, at), key, life, seq_nr, timestamp, None, None)
        for at, (life, seq_nr, timestamp) in enumerate(places)
    ]


def linked_events(
    archived: Mapping[int, EventRow], stored: Sequence[StoredEvent], named: Collection[int]
) -> dict[int, EventRow]:
    """Return the archived events that have a row, that the next event names, or whose number is in `named`. Pure."""
    standing = {event.seq_nr: event for event in stored}
    all_named = {*named, *(event.prev_seq_nr for event in stored if event.whole)}
    found = {}
    for number in sorted(archived, reverse=True):
        if number in standing or number in all_named:
            found[number] = archived[number]
            all_named.add(archived[number].prev_seq_nr)
    return found


def archived_proof(row: EventRow) -> ProvedEvent:
    """Return the proof that an archived event is."""
    return ProvedEvent(row.seq_nr, row.timestamp, content_of(row.body), False, "the archive")


def content_of(body: bytes) -> int:
    """Return a checksum of a body without the number of the event before, because a repair may change that number."""
    return crc32(body[PREV_END:], crc32(body[:PREV_AT]))
