"""Archive: Spark writes events up to a time as Parquet, for readers that know nothing of Strandline.

    store ──mapInArrow──▶ events as columns ──by entity type, month and slices, sorted──▶ new files
    new files ──read back, each event made anew from its columns──▶ counts and digests, compared with the store's
    files moved in and synced ──▶ manifest, last

An archive grows: each run writes the events that were recorded since the last one. If a run is killed, the old manifest
stays valid, and the next run writes these events again. `remove=True` then takes the events out of the store
(`pipeline.removing`), and `register=` names the files in an Iceberg table (`pipeline.registering`).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from strandline.connect import Strandline
from strandline.errors import Corrupt, StrandlineError, Unavailable, invalid
from strandline.journal.replay import Wanted, replay_partition
from strandline.pipeline import jvm, session
from strandline.pipeline.columns import ARROW_SCHEMA, record_batch, sum_of_digests
from strandline.pipeline.failures import CROSSING, to_text
from strandline.pipeline.registering import Registered, TableOfArchive
from strandline.pipeline.removing import RemovalReport, remove_archived
from strandline.pipeline.supervisor import check_shared, interrupted_in_order, of_spark, open_session
from strandline.pipeline.target import JournalRef
from strandline.pipeline.task import uncollected
from strandline.points import reached
from strandline.query.times import time_us
from strandline.reconcile.event_columns import EventColumns, archive_digest
from strandline.reconcile.tallies import DAY_US, signed
from strandline.rows import life_of
from strandline.store.archive_files import NEW, ArchivedFile, Manifest, move_in, opened, write_manifest
from strandline.store.archived_events import event_rows
from strandline.values.events import EPOCH, EventRow
from strandline.values.keys import SLICES
from strandline.values.payloads import JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES: Final = 256 * 2**20
"""The bytes of events, before compression, that go into one file, about."""
WRITTEN: Final = {
    "compression": "zstd",
    "parquet.block.size": str(8 * 2**20),
    "parquet.bloom.filter.enabled#key": "true",
    "parquet.bloom.filter.expected.ndv#key": "65536",
}
"""Small row groups, because a read of a key reads a whole one."""
ATTEMPTS_MAX: Final = 3
NAME: Final = "strandline archive"
SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("entity_type", pa.string()),
        ("slice", pa.int32()),
        ("life", pa.int64()),
        ("seq_nr", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("type", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("metadata", pa.string()),
        ("payload", pa.string()),
        ("payload_bytes", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("append_id", pa.string()),
        ("prev_seq_nr", pa.int64()),
        ("partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("digest", pa.int64()),
        ("month", pa.string()),
    ]
)
FILE_SCHEMA: Final = pa.schema([field for field in SCHEMA if field.name != "month"])
"""The columns of a file: the month is its folder."""
_TALLY: Final = pa.schema(
    [
        ("group_name", pa.string()),
        ("month", pa.string()),
        ("events", pa.int64()),
        ("size", pa.int64()),
        ("digest", pa.int64()),
        ("damaged", pa.int64()),
    ]
)
TIMESTAMP_TYPE: Final = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """The rows and files that a run wrote, and those that the archive has now."""

    written: int
    files: int
    events: int
    bytes: int
    damaged: int
    """Events that are damaged in the store, and were left out."""
    to: int
    removed: int = 0
    """Events that this run took out of the store."""
    kept_keys: int = 0
    """The number of keys with archived events that stayed in the store, because they follow a damaged one."""
    registered: int = 0
    """The number of files that this run added to the Iceberg table."""
    unregistered: int = 0
    """The number of files that this run took out of the Iceberg table, because the archive has them no longer."""


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """Events of a partition, recorded from one time up to before another."""

    partition: int
    from_: int
    before: int


FileGroup = tuple[str, str]
"""Entity type and month."""


@dataclass(frozen=True, slots=True)
class GroupSum:
    """The count, bytes and digest of a group's events."""

    events: int
    size: int
    digest: int
    damaged: int = 0


def archive(
    url: str | None,
    path: str | Path,
    before: Any,
    *,
    remove: bool = False,
    register: str | None = None,
    log: str | None = None,
    store: str | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> ArchiveReport:
    """Write the events recorded before a time (aware datetime or µs) into the archive at `path`, or add them to it.

    Spark's tasks must see the same folder. `InvalidInput.time_ahead` if the time is above the strandline: the store
    does not have all events up to it yet. Events that a Delete or Purge removed before are not written; those removed
    later stay in the files (`sweep` takes purged lives out).

    With `remove` the archived events from before that time leave the store, once their files were read back: reads of
    keys and replays show them from the files, and queries by slices from before them are refused.

    With `register="iceberg:CATALOG/NAMESPACE.TABLE"` an Iceberg table, in a catalog of pyiceberg's configuration, then
    names the archive's files, and no others. It is made if there is none.
    """
    to, folder = time_us(before, "before"), Path(path).absolute()
    table = TableOfArchive(register) if register is not None else None
    target = JournalRef(url, log, store, {"schema": "check", **settings})
    stop = stop or threading.Event()
    with target.connect() as s:
        check_shared(s, spark.sparkContext.master if spark else master)
        line = s.strandline()
        if to > line:
            raise invalid("time_ahead", "before", "above the strandline", allowed=f"up to {line} µs", got=to)
        if table is not None:
            table.check(folder, s.store.settings.history_id, FILE_SCHEMA)
        with opened(folder, s.store) as manifest:
            done: Manifest | None = manifest if to <= manifest.to else None
            removed, registered = RemovalReport(0, 0), Registered(0, 0)
            with interrupted_in_order(stop):
                if done is None:
                    with suppress(jvm.JvmUnwanted), open_session(spark, master, stop) as running:
                        run = ArchiveRun(s, target.by_reference(jvm.temporary_folder()), running, folder, manifest, to)
                        done = run.run(stop)
                if done is None:
                    raise _stopped()
                if table is not None:
                    registered = table.register(folder, done, FILE_SCHEMA)
                if remove:
                    removed = remove_archived(s.store, folder, done, to, stop.is_set)
            return ArchiveReport(
                done.events - manifest.events, len(done.files), done.events, done.bytes, done.damaged, done.to,
                removed.removed, removed.kept_keys, registered.added, registered.removed,
            )  # fmt: skip


def _stopped() -> Unavailable:
    return Unavailable(
        "the archive was stopped before its end", code="away", hint="start it again; what it had is as before",
        applied="no",
    )  # fmt: skip


class ArchiveRun:
    """One run: the events since the last one."""

    def __init__(
        self, s: Strandline, target: JournalRef, spark: SparkSession, folder: Path, manifest: Manifest, to: int
    ) -> None:
        session.send_files(spark, target.files)
        self._target, self._spark, self._folder = target, spark, folder
        self._manifest, self._to = manifest, to
        partitions = range(s.store.settings.partitions)
        self._parts = [ArchivePart(partition, manifest.to, to) for partition in partitions]

    def run(self, stop: threading.Event) -> Manifest:
        """Write the files, read them back, compare them with the store, move them in, and list them in the manifest."""
        context = self._spark.sparkContext
        try:
            context.setJobDescription(NAME)
            for _ in range(ATTEMPTS_MAX):
                expected = self._in_store()
                if stop.is_set():
                    raise _stopped()
                new = self._folder / f"new-{uuid4().hex}"
                self._write(new, expected)
                reached("archive.files_are_written")
                files = self._read_back(new)
                if stop.is_set():
                    raise _stopped()
                if _sums(files) == {group: (one.events, one.digest) for group, one in expected.items() if one.events}:
                    return self._name(new, files, sum(one.damaged for one in expected.values()))
        except StrandlineError:
            raise
        except Exception as error:
            if isinstance(error, session.spark_errors()):
                found = of_spark(error)
                raise (
                    found if isinstance(found, StrandlineError)
                    else Unavailable(f"Spark gave up: {found}", code="away", hint="see `strandline doctor`")
                ) from error  # fmt: skip
            raise
        finally:
            context.setJobDescription(None)
        raise Unavailable("events were deleted whenever they were archived", code="serialization", hint="run it again")

    def _name(self, new: Path, files: list[ArchivedFile], damaged: int) -> Manifest:
        moved = move_in(self._folder, new, files)
        reached("archive.files_are_moved")
        manifest = replace(
            self._manifest, to=self._to, damaged=self._manifest.damaged + damaged,
            files=(*self._manifest.files, *moved),
        )  # fmt: skip
        write_manifest(self._folder, manifest)
        reached("archive.manifest_is_written")
        for left in self._folder.glob(f"{NEW}*"):
            shutil.rmtree(left, ignore_errors=True)
        return manifest

    def _in_store(self) -> dict[FileGroup, GroupSum]:
        """Return the counts, bytes and digests of each group in the store."""
        rows = self._mapped(partial(_tallied, self._target, self._parts), _TALLY).groupBy("group_name", "month")
        return {(row["group_name"], row["month"]): _sum_of(row) for row in rows.agg(*_sums_of()).collect()}

    def _write(self, new: Path, expected: Mapping[FileGroup, GroupSum]) -> None:
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

        widths = {group: _width(one.size) for group, one in expected.items()}
        files = max(1, sum(-(-SLICES // width) for width in widths.values()))
        events = self._mapped(partial(_events, self._target, self._parts, widths), _written_schema())
        # One task writes a whole file, so the task's sort alone decides the order in the file.
        ordered = events.repartition(files, "entity", "month", "slices").sortWithinPartitions(
            "entity", "month", "slices", F.encode("key", "utf-8"), "life", "seq_nr"
        )
        with _timestamps_with_statistics(self._spark):
            ordered.write.options(**WRITTEN).partitionBy("entity", "month", "slices").parquet(str(new))

    def _mapped(self, function: Any, schema: pa.Schema) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        count = len(self._parts)
        return self._spark.range(0, count, 1, count).mapInArrow(function, from_arrow_schema(schema))

    def _read_back(self, new: Path) -> list[ArchivedFile]:
        """Return what each new file has. Each event is read back and made anew from its columns."""
        found = sorted(new.rglob("*.parquet"))
        if not found:
            return []
        paths = [str(path.relative_to(new)) for path in found]
        count = len(paths)
        read = partial(_checked, str(new), paths)
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = pa.schema([("file", pa.int64()), ("events", pa.int64()), ("digest", pa.int64()), *_PLACE])
        rows = self._spark.range(0, count, 1, min(count, 64)).mapInArrow(read, from_arrow_schema(schema)).collect()
        return [
            ArchivedFile(
                paths[row["file"]], row["entity_type"], row["month"], row["first_slice"], row["last_slice"],
                row["events"], found[row["file"]].stat().st_size, row["digest"],
            )
            for row in sorted(rows, key=lambda row: row["file"])
        ]  # fmt: skip


_PLACE: Final = [
    ("entity_type", pa.string()),
    ("month", pa.string()),
    ("first_slice", pa.int32()),
    ("last_slice", pa.int32()),
]


def _sums_of() -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    return [
        F.sum("events").alias("events"),
        F.sum("size").alias("size"),
        sum_of_digests("digest").alias("digest"),
        F.sum("damaged").alias("damaged"),
    ]


def _sum_of(row: Any) -> GroupSum:
    return GroupSum(row["events"], row["size"], signed(int(row["digest"])), row["damaged"])


def _sums(files: list[ArchivedFile]) -> dict[FileGroup, tuple[int, int]]:
    sums: dict[FileGroup, tuple[int, int]] = {}
    for file in files:
        events, digest = sums.get((file.entity_type, file.month), (0, 0))
        sums[file.entity_type, file.month] = events + file.events, signed(digest + file.digest)
    return sums


def _width(size: int) -> int:
    """Return how many slices go into one file: a power of two, so that a file has about `FILE_BYTES`."""
    width = SLICES
    while width > 1 and size * width > FILE_BYTES * SLICES:
        width //= 2
    return width


def _written_schema() -> pa.Schema:
    return pa.schema([*SCHEMA, ("entity", pa.string()), ("slices", pa.string())])


@contextmanager
def _timestamps_with_statistics(spark: SparkSession) -> Iterator[None]:
    """Let Spark write times as 64-bit integers: Spark's default, an older form, has no zone and no statistics."""
    before = spark.conf.get(TIMESTAMP_TYPE)
    spark.conf.set(TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(TIMESTAMP_TYPE, str(before))


# ---------------------------------------------------------------- in tasks


def _pages(target: JournalRef, part: ArchivePart) -> Iterator[list[EventRow]]:
    s = target.open()
    wanted = Wanted(part.partition, 2**63 - 1, part.from_, part.before - 1)
    with uncollected():
        yield from replay_partition(s.log, s.store, s.settings, wanted, archive=False)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _crossing(make: Any) -> Iterator[pa.RecordBatch]:
    """Yield the items of an iterator; an error that it raises travels as text that `failures.crossed` finds."""
    try:
        yield from make()
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver decides
        raise RuntimeError(CROSSING + to_text(error)) from None


def _tallied(
    target: JournalRef, parts: list[ArchivePart], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return the counts, bytes and digests of a part, by entity type and month."""

    def made() -> Iterator[pa.RecordBatch]:
        partitions = target.open().store.settings.partitions
        sums: dict[FileGroup, list[int]] = {}
        for number in _numbers(batches):
            for page in _pages(target, parts[number]):
                whole, damaged = _divided(page, partitions)
                for group, some in _by_group(whole):
                    into = sums.setdefault(group, [0, 0, 0, 0])
                    into[0] += len(some)
                    into[1] += sum([len(row.body) for row in some])
                    into[2] += archive_digest(some)
                for group, some in _by_group(damaged):
                    sums.setdefault(group, [0, 0, 0, 0])[3] += len(some)
        rows = [
            (*group, events, size, signed(digest), damaged) for group, (events, size, digest, damaged) in sums.items()
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(_TALLY)
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(column), field.type) for column, field in zip(columns, _TALLY, strict=True)], schema=_TALLY
        )

    return _crossing(made)


def _divided(page: list[EventRow], partitions: int) -> tuple[list[EventRow], list[EventRow]]:
    """Return the events that can be read, and those that are damaged."""
    columns = EventColumns.of(page, partitions)
    if columns is not None and bool((columns.fixed["form"] <= JSON).all()):
        return page, []
    whole, damaged = list[EventRow](), list[EventRow]()
    for row in page:
        (damaged if row.event_of(life_of(row.key, row.life)).damaged else whole).append(row)
    return whole, damaged


def _by_group(page: list[EventRow]) -> Iterator[tuple[FileGroup, list[EventRow]]]:
    """Yield the events, grouped by entity type and month; usually there is one group."""
    groups: dict[FileGroup, list[EventRow]] = {}
    if page and len({(row.entity_type, row.timestamp // DAY_US) for row in page}) == 1:
        groups[page[0].entity_type, month_of(page[0].timestamp)] = page
    else:
        for row in page:
            groups.setdefault((row.entity_type, month_of(row.timestamp)), []).append(row)
    return iter(groups.items())


def month_of(timestamp: int) -> str:
    """Return the month of a time, as the names of folders have it."""
    return _month_of_day(timestamp // DAY_US)


@lru_cache(maxsize=4096)
def _month_of_day(day: int) -> str:
    return (EPOCH + timedelta(days=day)).strftime("%Y-%m")


def _events(
    target: JournalRef, parts: list[ArchivePart], widths: Mapping[FileGroup, int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a part as columns, with the folder that each belongs to."""

    def made() -> Iterator[pa.RecordBatch]:
        partitions = target.open().store.settings.partitions
        for number in _numbers(batches):
            for page in _pages(target, parts[number]):
                rows, _ = _divided(page, partitions)
                if rows:
                    yield event_columns(rows, widths)

    return _crossing(made)


def event_columns(rows: list[EventRow], widths: Mapping[FileGroup, int]) -> pa.RecordBatch:
    given = record_batch(rows)
    named = dict(zip(ARROW_SCHEMA.names, given.columns, strict=True))
    is_json = named["json"]
    months = [month_of(row.timestamp) for row in rows]
    slices = []
    for row, month in zip(rows, months, strict=True):
        width = widths.get((row.entity_type, month), SLICES)
        first = row.slice // width * width
        slices.append(f"{first}-{first + width - 1}")
    named |= {
        "time": named["timestamp"],
        "payload_bytes": pc.if_else(is_json, pa.scalar(None, pa.binary()), named["payload"]),
        "payload": pc.if_else(is_json, named["payload"], pa.scalar(None, pa.binary())).cast(pa.string()),
        "digest": pa.array([row.digest for row in rows], pa.int64()),
        "month": pa.array(months, pa.string()),
        "entity": named["entity_type"],
        "slices": pa.array(slices, pa.string()),
    }
    schema = _written_schema()
    return pa.RecordBatch.from_arrays(
        [named[name].cast(schema.field(name).type) for name in schema.names], schema=schema
    )


def _checked(folder: str, paths: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read files back. `Corrupt.digest` if an event made anew from its columns is not the one that was archived."""
    from pyarrow.parquet import ParquetFile

    def made() -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            events = digest = 0
            entity_type = month = ""
            first, last = SLICES, -1
            with ParquetFile(Path(folder) / paths[number]) as file:
                for batch in file.iter_batches(batch_size=2000):
                    rows = event_rows(batch)
                    for row, stored in zip(rows, batch.column("digest").to_pylist(), strict=True):
                        if row.digest != stored:
                            raise Corrupt(
                                f"event {row.seq_nr} of {row.key} was not archived as it is", code="digest",
                                hint="see that the disk is well, then run it again", key=row.key,
                            )  # fmt: skip
                    events += len(rows)
                    digest += archive_digest(rows)
                    entity_type, month = rows[-1].entity_type, month_of(rows[-1].timestamp)
                    slices = [row.slice for row in rows]
                    first, last = min(first, *slices), max(last, *slices)
            values = [number, events, signed(digest), entity_type, month, first, last]
            schema = pa.schema([("file", pa.int64()), ("events", pa.int64()), ("digest", pa.int64()), *_PLACE])
            yield pa.RecordBatch.from_arrays(
                [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema
            )

    return _crossing(made)
