"""Sweep: take the events of purged lives out of an archive's files.

A file that has such events is written anew without them; the manifest names the new file, then the old one is removed.
If a sweep is killed before that, the old manifest names the old file, and the next sweep does it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from strandline.pipeline.archiving import FILE_SCHEMA
from strandline.pipeline.registering import TableOfArchive
from strandline.pipeline.target import JournalRef
from strandline.points import reached
from strandline.reconcile.tallies import item_of, signed, text_number
from strandline.store.api import Store
from strandline.store.archive_files import (
    EVENTS,
    NEW,
    SWEPT,
    ArchivedFile,
    Manifest,
    move_in,
    opened,
    origin_of,
    remove_leftovers,
    write_manifest,
)
from strandline.values.heads import Head
from strandline.values.keys import key_partition

KEYS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The number of events that a sweep took out, and of files that it changed."""

    events: int
    files: int
    """Files that were written anew, or removed."""


def sweep(
    url: str | None,
    path: str | Path,
    *,
    register: str | None = None,
    log: str | None = None,
    store: str | None = None,
    **settings: Any,
) -> SweepReport:
    """Take the events of purged lives out of an archive's files. Lives whose Purge is not carried yet stay.

    With `register`, as `archive` has it, an Iceberg table then names the new files. It does so before the old ones go.
    """
    folder = Path(path).absolute()
    table = TableOfArchive(register) if register is not None else None
    target = JournalRef(url, log, store, {"schema": "check", **settings})
    with target.connect() as s:
        if table is not None:
            table.check(folder, s.store.settings.history_id, FILE_SCHEMA)
        with opened(folder, s.store) as manifest:
            swept, report = _without_ended(s.store, folder, manifest)
            if table is not None:
                table.register(folder, swept, FILE_SCHEMA)
            if report.files:
                remove_leftovers(folder, swept)
            return report


def _without_ended(store: Store, folder: Path, manifest: Manifest) -> tuple[Manifest, SweepReport]:
    """Write the files that have purged lives anew and list them in the manifest; the old files are still there."""
    kept: list[ArchivedFile] = []
    new = folder / f"{NEW}{uuid4().hex}"
    taken = touched = 0
    for file in manifest.files:
        swept = _swept(store, folder, new, file)
        kept += [swept] if swept is not None and swept.events else []
        if swept is not file:
            taken += file.events - (swept.events if swept is not None else 0)
            touched += 1
    if not touched:
        return manifest, SweepReport(0, 0)
    moved = {file.path: file for file in move_in(folder, new, [file for file in kept if file not in manifest.files])}
    reached("sweep.files_are_moved")
    files = [file if file in manifest.files else moved[f"{EVENTS}/{file.path}"] for file in kept]
    swept_manifest = replace(manifest, files=tuple(files))
    write_manifest(folder, swept_manifest)
    reached("sweep.manifest_is_written")
    return swept_manifest, SweepReport(taken, touched)


def _swept(store: Store, folder: Path, new: Path, file: ArchivedFile) -> ArchivedFile | None:
    """Return the file without purged lives: itself if it has none, None if nothing is left, else a new one."""
    from pyarrow.parquet import ParquetFile, ParquetWriter

    with ParquetFile(folder / file.path) as found:
        lives = {
            (key, life)
            for batch in found.iter_batches(columns=["key", "life"])
            for key, life in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        }
        ended = _ended(store, lives)
        if not ended:
            return file
        name = Path(f"{origin_of(file.path)}{SWEPT}{uuid4().hex}.parquet").relative_to(EVENTS)
        target = new / name
        target.parent.mkdir(parents=True, exist_ok=True)
        events = digest = 0
        slices: set[int] = set()
        with ParquetWriter(target, found.schema_arrow, compression="zstd") as writer:
            for batch in found.iter_batches():
                keys, numbers = batch.column("key").to_pylist(), batch.column("life").to_pylist()
                left = batch.filter(pa.array([place not in ended for place in zip(keys, numbers, strict=True)]))
                for row in left.select(["key", "slice", "life", "seq_nr", "digest"]).to_pylist():
                    events += 1
                    slices.add(row["slice"])
                    digest += item_of(text_number(row["key"]), row["life"], row["seq_nr"], row["digest"])
                writer.write_batch(left)
    if not events:
        target.unlink()
        return None
    return replace(
        file, path=str(name), events=events, bytes=target.stat().st_size, digest=signed(digest),
        first_slice=min(slices), last_slice=max(slices),
    )  # fmt: skip


def _ended(store: Store, lives: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the lives that are over, out of `lives`."""
    by_partition: dict[int, set[str]] = {}
    for key, _ in lives:
        by_partition.setdefault(key_partition(key, store.settings.partitions), set()).add(key)
    states: dict[str, Any] = {}
    for partition, keys in by_partition.items():
        ordered = sorted(keys)
        for at in range(0, len(ordered), KEYS_AT_ONCE):
            states |= store.look(partition, ordered[at : at + KEYS_AT_ONCE]).states
    ended = set()
    for key, life in lives:
        state = states.get(key)
        if state is not None and life < state.life + (not isinstance(state, Head)):
            ended.add((key, life))
    return ended
