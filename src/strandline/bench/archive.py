"""archive: events per second that are written as Parquet, beside Spark writing the same rows from its memory.

Ours is `pipeline.archive` on `local[2]`, from a SQLite store to files that were read back and compared. Spark's own is
the same rows, read from these files into its memory before its clock starts, written once more in the same folders.

`read` is the journal read with format `strandline` into Spark's memory after all events but the last left the store for
an archive, beside Spark reading the archive's files there.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from strandline.bench.cases import Case, CaseSettings, RoundFigure
from strandline.bench.child import in_child
from strandline.bench.reconcile import EVENTS, KEYS, QUICK_EVENTS, prepare
from strandline.bench.replicate import MASTER


def archive_in_child(url: str, folder: str) -> dict[str, Any]:
    """Archive everything, twice into new folders; how long the second time took."""
    import strandline
    from strandline.pipeline import archive, session

    with strandline.connect(url) as s:
        line = s.strandline()
    spark = session.start(MASTER)
    try:
        for name in ("first", "second"):
            from_s = time.perf_counter()
            report = archive(url, Path(folder) / name, line, spark=spark)
            seconds = time.perf_counter() - from_s
    finally:
        session.end()
    return {"events": report.events, "seconds": seconds, "bytes": report.bytes}


def rewrite_in_child(url: str, folder: str) -> dict[str, Any]:
    """Let Spark write the rows of an archive from its memory, twice; how long the second time took."""
    import strandline
    from strandline.pipeline import archive, session

    with strandline.connect(url) as s:
        line = s.strandline()
    spark = session.start(MASTER)
    try:
        archive(url, Path(folder) / "archive", line, spark=spark)
        rows = spark.read.parquet(f"{folder}/archive/events").cache()
        events = rows.count()
        for name in ("first", "second"):
            from_s = time.perf_counter()
            written = rows.write.option("compression", "zstd").partitionBy("entity", "month", "slices")
            written.parquet(f"{folder}/{name}")
            seconds = time.perf_counter() - from_s
    finally:
        session.end()
    return {"events": events, "seconds": seconds}


def read_in_child(url: str, folder: str) -> dict[str, Any]:
    """Read a copy of the journal, whose events left for an archive, into memory; how long the second time took."""
    return _read(url, folder, files=False)


def read_files_in_child(url: str, folder: str) -> dict[str, Any]:
    """Let Spark read the files of that archive into its memory; how long the second time took."""
    return _read(url, folder, files=True)


def _read(url: str, folder: str, *, files: bool) -> dict[str, Any]:
    import strandline
    from strandline.pipeline import archive, session

    shutil.copytree(url.removeprefix("sqlite:"), f"{folder}/journal")
    url = f"sqlite:{folder}/journal"
    with strandline.connect(url) as s:
        line = s.strandline()
    spark = session.start(MASTER)
    try:
        archive(url, f"{folder}/archive", line, remove=True, spark=spark)
        for _ in range(2):
            from_s = time.perf_counter()
            ours = spark.read.format("strandline").option("url", url)
            rows = (spark.read.parquet(f"{folder}/archive/events") if files else ours.load()).cache()
            events = rows.count()
            seconds = time.perf_counter() - from_s
            rows.unpersist(blocking=True)
    finally:
        session.end()
    return {"events": events, "seconds": seconds}


def _side(function: str, plan: CaseSettings) -> RoundFigure:
    folder = plan.folder / "files"
    folder.mkdir()
    answer = in_child(f"archive:{function}", url=f"sqlite:{plan.shared}/journal", folder=str(folder))
    shutil.rmtree(folder)
    least = (QUICK_EVENTS if plan.quick else EVENTS) // 2
    if answer["events"] < least:
        raise RuntimeError(f"{answer['events']} events were written or read")
    return RoundFigure(answer["events"] / answer["seconds"], answer)


WRITE = Case(
    "archive/write", "spark-from-memory", "events/s", 0.5, partial(_side, "archive_in_child"),
    partial(_side, "rewrite_in_child"), prepare=prepare, settings={"events": EVENTS, "keys": KEYS, "master": MASTER},
)  # fmt: skip
READ = Case(
    "archive/read", "spark-into-memory", "events/s", 0.5, partial(_side, "read_in_child"),
    partial(_side, "read_files_in_child"), prepare=prepare, settings={"events": EVENTS, "keys": KEYS, "master": MASTER},
)  # fmt: skip
CASES = [WRITE, READ]
