"""Removal: events that are in an archive leave the store. Plain Python on the archive's files; no Spark, no lease.

    every file read back, each event made anew, counts and digests as the manifest says
    per key (life, archive_to): up to the first event that is not the same in file and store     reads turn to the files
    the last events that go, by slice; then the archive's time          queries by slices and replays turn to the files
    rows out of the store

Each step waits for the one above it. If the run is killed between two steps, every event is in the files, in the store
or in both, and the heads say where to look; a repeated run goes on. Meanwhile a pipeline may carry, and users may
append, delete and purge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from strandline.errors import Corrupt, Unavailable
from strandline.fold import segment_of
from strandline.points import reached
from strandline.reconcile.event_columns import archive_digest
from strandline.reconcile.tallies import signed
from strandline.store.api import Store
from strandline.store.archive import (
    ArchivedPlace,
    ArchivedTo,
    ArchiveNote,
    ArchivingStore,
    archived_to,
)
from strandline.store.archive_files import ArchivedFile, Manifest
from strandline.store.archived_events import event_rows, rows_of, time_in_us
from strandline.store.pages import bytes_of
from strandline.values.events import EventRow
from strandline.values.heads import Head
from strandline.values.keys import key_partition

ROWS_AT_ONCE: Final = 2000
PAGE_BYTES: Final = 8 * 2**20
PLACES: Final = ["key", "slice", "life", "seq_nr", "time", "digest"]


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """The number of events that left the store, and of keys that still have some from before the archive's time."""

    removed: int
    kept_keys: int


def remove_archived(
    store: Store, folder: Path, manifest: Manifest, before: int, stopped: Callable[[], bool]
) -> RemovalReport:
    """Take the archived events recorded before a time out of the store."""
    return ArchivedRemoval(store, folder, manifest, before, stopped).run()


class ArchivedRemoval:
    """One removal under way."""

    def __init__(
        self, store: Store, folder: Path, manifest: Manifest, before: int, stopped: Callable[[], bool]
    ) -> None:
        self._store, self._folder, self._manifest, self._before = store, folder, manifest, before
        self._stopped = stopped
        self._archiving: ArchivingStore = store  # type: ignore[assignment]
        self._partitions = store.settings.partitions
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}
        self._kept: set[str] = set()
        self._removed = 0

    def run(self) -> RemovalReport:
        archive = self._store.archive
        note = archive.note() or ArchiveNote(str(self._folder), self._manifest.history_id)
        note = replace(note, path=str(self._folder), history_id=self._manifest.history_id)
        archive.keep(note)
        reached("removal.the_place_is_kept")
        if self._before <= note.removed:
            return RemovalReport(0, 0)
        files = [file for file in self._manifest.files if self._has_some(file, note.removed)]
        for file in files:
            self._mark(file)
        archive.keep_ends(self._ends)
        reached("removal.the_ends_are_kept")
        archive.keep(note := replace(note, before=max(note.before, self._before)))
        reached("removal.the_time_is_kept")
        for file in files:
            self._take_out(file)
        archive.keep(replace(note, removed=max(note.removed, self._before)))
        return RemovalReport(self._removed, len(self._kept))

    def _has_some(self, file: ArchivedFile, after: int) -> bool:
        """Return whether a file may have events to remove now: from one time on, before another."""
        with self._opened(file) as opened:
            footer = opened.metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        found = [group.column(_time_of(group)).statistics for group in groups]
        if any(each is None or not each.has_min_max for each in found):
            return True
        return any(time_in_us(each.max) >= after and time_in_us(each.min) < self._before for each in found)

    def _opened(self, file: ArchivedFile) -> Any:
        from pyarrow.parquet import ParquetFile

        return ParquetFile(self._folder / file.path)

    # ------------------------------------------------------------ read back, and heads marked

    def _mark(self, file: ArchivedFile) -> None:
        """Read a file back, and note in the heads of its keys which events are in it."""
        events = digest = 0
        with self._opened(file) as opened:
            for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE):
                self._check_stopped()
                rows = event_rows(batch)
                if [row.digest for row in rows] != batch.column("digest").to_pylist():
                    raise _damaged(file)
                events += len(rows)
                digest += archive_digest(rows)
                self._mark_rows([row for row in rows if row.timestamp < self._before])
        if (events, signed(digest)) != (file.events, file.digest):
            raise _damaged(file)

    def _mark_rows(self, rows: list[EventRow]) -> None:
        for partition, mine in self._by_partition(rows, lambda row: row.key):
            states = self._store.look(partition, {row.key for row in mine}).states
            ends = []
            for (key, life), some in groupby(mine, key=lambda row: (row.key, row.life)):
                head = states.get(key)
                if not isinstance(head, Head) or head.life != life:
                    continue
                events = list(some)
                last = self._archived_to(key, head, events)
                if last > head.archive_to:
                    ends.append(ArchivedTo(key, life, last))
                    states[key] = head._replace(archive_to=last)
                self._note_ends(events, head.delete_to, last)
                if events[-1].seq_nr > last:
                    self._kept.add(key)
            if ends:
                self._archiving.mark_archived(partition, ends, self._before)
                reached("removal.some_keys_are_marked")

    def _archived_to(self, key: str, head: Head, events: list[EventRow]) -> int:
        """Return the seq_nr up to which the events of a life are in the files, counting these events."""
        known = max(head.archive_to, head.delete_to)
        if events[-1].seq_nr <= known:
            return head.archive_to
        standing: dict[int, int] = {}
        from_, to, more = known + 1, events[-1].seq_nr, True
        while more and from_ <= to:
            page = self._store.page(
                key, head.life, head.segment_size, from_=from_, to=to, limit=ROWS_AT_ONCE, bytes_max=PAGE_BYTES
            )
            standing.update({row[0]: row[3] for row in page.rows if bytes_of(row)})
            more = page.more and bool(page.rows)
            from_ = page.rows[-1][0] + 1 if page.rows else from_
        return archived_to(known, [(row.seq_nr, row.prev_seq_nr, row.digest) for row in events], standing)

    def _note_ends(self, events: list[EventRow], delete_to: int, last: int) -> None:
        for row in events:
            if delete_to < row.seq_nr <= last:
                into = self._ends.setdefault(row.entity_type, {})
                into[row.slice] = max(into.get(row.slice, (0, 0)), (row.timestamp, row.seq_nr))

    # ------------------------------------------------------------ rows out

    def _take_out(self, file: ArchivedFile) -> None:
        with self._opened(file) as opened:
            for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=PLACES):
                self._check_stopped()
                rows = [row for row in rows_of(batch) if row["time"] < self._before]
                for partition, mine in self._by_partition(rows, lambda row: row["key"]):
                    self._take_out_rows(partition, mine)

    def _take_out_rows(self, partition: int, rows: list[dict[str, Any]]) -> None:
        states = self._store.look(partition, {row["key"] for row in rows}).states
        gone = []
        for row in rows:
            head, number = states.get(row["key"]), row["seq_nr"]
            if isinstance(head, Head) and head.life == row["life"] and head.delete_to < number <= head.archive_to:
                segment = segment_of(number, head.segment_size)
                gone.append(ArchivedPlace(row["key"], head.life, segment, number, row["time"], row["digest"]))
        if gone:
            self._archiving.remove_archived(partition, gone)
            self._removed += len(gone)
            reached("removal.some_rows_are_out")

    def _by_partition(self, rows: list[Any], key_of: Callable[[Any], str]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows of each partition, in their order."""
        found: dict[int, list[Any]] = {}
        for row in rows:
            found.setdefault(key_partition(key_of(row), self._partitions), []).append(row)
        return iter(found.items())

    def _check_stopped(self) -> None:
        if self._stopped():
            raise Unavailable(
                "the removal was stopped before its end", code="away", hint="start it again: it goes on",
                applied="unknown",
            )  # fmt: skip


def _time_of(group: Any) -> int:
    return next(at for at in range(group.num_columns) if group.column(at).path_in_schema == "time")


def _damaged(file: ArchivedFile) -> Corrupt:
    return Corrupt(
        f"the archive's file {file.path} is not what was written", code="digest",
        hint="put it back from a backup; nothing of it was taken out of the store", path=file.path,
    )  # fmt: skip
