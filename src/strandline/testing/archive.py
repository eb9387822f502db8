"""Writes archives without Spark: the files that `pipeline.archive` writes, one for each type and month. For tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from strandline.connect import Strandline
from strandline.journal.replay import Wanted, replay_partition
from strandline.pipeline.archiving import FILE_SCHEMA, event_columns, month_of
from strandline.pipeline.removing import RemovalReport, remove_archived
from strandline.reconcile.tallies import item_of, signed, text_number
from strandline.rows import life_of
from strandline.store.archive_files import NEW, ArchivedFile, Manifest, move_in, opened, write_manifest
from strandline.values.events import EventRow


def archive_here(
    s: Strandline,
    folder: Path,
    before: int,
    *,
    remove: bool = True,
    rows_a_group: int = 50,
    stopped: Callable[[], bool] = lambda: False,
) -> RemovalReport:
    """Archive the events recorded before a time, in this process, and take them out of the store."""
    with opened(folder, s.store) as manifest:
        whole = _written(s, folder, manifest, before, rows_a_group) if before > manifest.to else manifest
        return remove_archived(s.store, folder, whole, before, stopped) if remove else RemovalReport(0, 0)


def _written(s: Strandline, folder: Path, manifest: Manifest, before: int, rows_a_group: int) -> Manifest:
    groups: dict[tuple[str, str], list[EventRow]] = {}
    for partition in range(s.store.settings.partitions):
        wanted = Wanted(partition, 2**63 - 1, manifest.to, before - 1)
        for page in replay_partition(s.log, s.store, s.settings, wanted, archive=False):
            for row in page:
                if not row.event_of(life_of(row.key, row.life)).damaged:
                    groups.setdefault((row.entity_type, month_of(row.timestamp)), []).append(row)
    new = folder / f"{NEW}{uuid4().hex}"
    files = [_file(new, *group, rows, rows_a_group) for group, rows in sorted(groups.items())]
    moved = move_in(folder, new, files)
    manifest = replace(manifest, to=before, files=(*manifest.files, *moved))
    write_manifest(folder, manifest)
    return manifest


def _file(new: Path, entity_type: str, month: str, rows: list[EventRow], rows_a_group: int) -> ArchivedFile:
    rows.sort(key=lambda row: (row.key.encode(), row.life, row.seq_nr))
    batch = event_columns(rows, {})
    name = f"entity={entity_type}/month={month}/slices=0-1023/part-{uuid4().hex}.zstd.parquet"
    (new / name).parent.mkdir(parents=True, exist_ok=True)
    with ParquetWriter(new / name, FILE_SCHEMA, compression="zstd") as writer:
        table = pa.Table.from_batches([batch.select(FILE_SCHEMA.names)], schema=FILE_SCHEMA)
        writer.write_table(table, row_group_size=rows_a_group)
    digest = sum(item_of(text_number(row.key), row.life, row.seq_nr, row.digest) for row in rows)
    slices = [row.slice for row in rows]
    size = (new / name).stat().st_size
    return ArchivedFile(name, entity_type, month, min(slices), max(slices), len(rows), size, signed(digest))
