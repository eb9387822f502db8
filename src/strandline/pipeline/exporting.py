"""Export: a copy of events for analysts, in a folder that grows with each run.

    PATH/increment=000001/…          files of any format that Spark writes into folders, partitioned as was asked
        _strandline.json             the note: by partition of the log, the times of the events
    PATH/increment=000002/…
    PATH/_new-…                      what is being written, or what is left of a run that was killed; nobody reads it

A run writes the events that came into the store since the last increment, up to the pointers of its start. It describes
them in a note beside the files, and then one rename moves both into place. So a run that is killed at any step leaves
either no increment or a whole one, and the next run begins where the last increment ended. Of two runs at once one ends
with `Conflict`. Events that are deleted or purged afterwards stay in the copy. An `archive` is no copy: it follows
deletes, and is read back.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import orjson
import pyarrow as pa

from strandline.connect import Strandline
from strandline.errors import Conflict, StrandlineError, Unavailable, counted, invalid
from strandline.pipeline import jvm, session
from strandline.pipeline.columns import ARROW_SCHEMA
from strandline.pipeline.event_ranges import TimeRange, parts_of_partition, ranges_between, read_range
from strandline.pipeline.failures import crossing
from strandline.pipeline.selection import Selection
from strandline.pipeline.supervisor import check_shared, interrupted_in_order, of_spark, open_session
from strandline.pipeline.target import JournalRef
from strandline.points import reached

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME: Final = "strandline export"
NOTE: Final = "_strandline.json"
NEW: Final = re.compile(r"_new-(\d{6,})-.*")
INCREMENT: Final = re.compile(r"increment=(\d{6,})")
FLAT_FORMATS: Final = ("csv",)
"""Formats that have no lists and maps; for them, lists and maps are written as JSON."""
COLUMNS: Final = (
    "key", "entity_type", "slice", "seq_nr", "prev_seq_nr", "life", "timestamp", "day", "type", "tags", "headers",
    "metadata", "append_id", "damaged",
)  # fmt: skip
PAYLOAD: Final = ("payload", "payload_bytes")
UNREAD: Final = "_unread"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of a run."""

    events: int
    increment: int | None
    """The number of the increment that was added; None if there was nothing new."""
    path: str


@dataclass(frozen=True, slots=True)
class ExportNote:
    """The note of one increment, a file beside its data. Runs keep no other state."""

    history_id: str
    after: tuple[int, ...]
    to: tuple[int, ...]
    """Timestamps, per partition of the log."""
    events: int
    chosen: dict[str, Any]
    """The options of the export, which are the same for all increments."""
    run: str
    """The id of the run that wrote the increment."""

    def to_json(self) -> bytes:
        return orjson.dumps(
            {
                "version": 1, "history_id": self.history_id, "after": self.after, "to": self.to, "events": self.events,
                "chosen": self.chosen, "run": self.run,
            },
            option=orjson.OPT_INDENT_2,
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> ExportNote:
        said = orjson.loads(text)
        after, to = tuple(said["after"]), tuple(said["to"])
        return cls(said["history_id"], after, to, said["events"], said["chosen"], said["run"])


def export(
    url: str | None,
    path: str,
    *,
    format: str = "parquet",  # noqa: A002 - Spark's name
    partition_by: Sequence[str] = (),
    payload_schema: str | None = None,
    entity_type: str | None = None,
    types: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    writer_options: Mapping[str, str] | None = None,
    log: str | None = None,
    store: str | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    **settings: Any,
) -> ExportReport:
    """Add the events that came into the store since the last run to the copy at `path`; the first run begins it.

    `path` may be in any file system that Spark's tasks see and that renames a folder in one step. `payload_schema`, as
    Spark writes one ("total DOUBLE, lines ARRAY<STRING>"), makes columns of JSON payloads; column `payload` then has
    only the payloads that do not fit it. The options must be the same for all runs: else `InvalidInput.option`.
    """
    chosen: dict[str, Any] = {
        "format": format, "partition_by": list(partition_by), "payload_schema": payload_schema,
        "entity_type": entity_type, "types": sorted(types) if types else None, "tags": sorted(tags) if tags else None,
    }  # fmt: skip
    for name in partition_by:
        if name not in COLUMNS:
            raise invalid("option", "partition_by", "unknown column", allowed=", ".join(COLUMNS), got=name)
    target = JournalRef(url, log, store, {"schema": "check", **settings})
    stop = stop or threading.Event()
    with target.connect() as s:
        check_shared(s, spark.sparkContext.master if spark else master)
        with suppress(jvm.JvmUnwanted), interrupted_in_order(stop), open_session(spark, master, stop) as running:
            referred = target.by_reference(jvm.temporary_folder())
            session.send_files(running, referred.files)
            run = ExportRun(s, referred, running, ExportFolder(running, path), chosen, dict(writer_options or {}))
            return _translated(run.run)
    raise Unavailable("the export was stopped before its end", code="away", hint="start it again", applied="no")


def _translated(call: Any) -> Any:
    try:
        return call()
    except session.spark_errors() as error:
        found = of_spark(error)
        if isinstance(found, StrandlineError):
            raise found from error
        raise Unavailable(f"Spark gave up: {found}", code="away", hint="see `strandline doctor`") from error


class ExportRun:
    """The run of an export: the events since the last one."""

    def __init__(
        self,
        s: Strandline,
        target: JournalRef,
        spark: SparkSession,
        folder: ExportFolder,
        chosen: dict[str, Any],
        options: dict[str, str],
    ) -> None:
        self._s, self._target, self._spark, self._folder = s, target, spark, folder
        self._chosen, self._options = chosen, options

    def run(self) -> ExportReport:
        folder, store = self._folder, self._s.store
        number, last = folder.last()
        to = tuple(pointer.timestamp for pointer in store.pointers())
        after = (-1,) * len(to)
        if last is not None:
            self._check_same(last)
            after = last.to
        folder.remove_left_overs(number)
        if to == after:
            return ExportReport(0, None, folder.path)
        number += 1
        name = uuid4().hex
        new = f"_new-{number:06d}-{name}"
        events = self._write(folder.inside(new), after, to)
        if not events:
            folder.remove(new)
            return ExportReport(0, None, folder.path)
        reached("export.files_are_written")
        note = ExportNote(store.settings.history_id, after, to, events, self._chosen, name)
        folder.write(f"{new}/{NOTE}", note.to_json())
        reached("export.is_noted")
        folder.give_place(new, number, note)
        reached("export.has_its_place")
        folder.remove_left_overs(number)
        return ExportReport(events, number, folder.path)

    def _check_same(self, last: ExportNote) -> None:
        if last.history_id != self._s.store.settings.history_id:
            raise invalid(
                "option", "path", "has the events of another journal", allowed="a folder of this journal, or a new one",
                got=self._folder.path,
            )  # fmt: skip
        for name, value in self._chosen.items():
            if last.chosen.get(name) != value:
                allowed = f"{last.chosen.get(name)}, as in what is there"
                raise invalid("option", name, "is another than before", allowed=allowed, got=value,
                              hint="export into a new folder, or with what the last run was given")  # fmt: skip

    def _write(self, new: str, after: tuple[int, ...], to: tuple[int, ...]) -> int:
        """Write the files of an increment, and return the number of their events."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

        observed = Observation(NAME)
        context = self._spark.sparkContext
        frame = self._columns(self._events(after, to)).observe(observed, F.count(F.lit(1)).alias("events"))
        writer = frame.write.format(self._chosen["format"]).options(**self._options).mode("error")
        if self._chosen["partition_by"]:
            writer = writer.partitionBy(*self._chosen["partition_by"])
        context.setJobDescription(f"{NAME}: {self._folder.path}")
        try:
            writer.save(new)
        finally:
            context.setJobDescription(None)
        return int(observed.get["events"])

    def _events(self, after: tuple[int, ...], to: tuple[int, ...]) -> DataFrame:
        """Return the events of the store between these times, as the format `strandline` gives them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        given = self._chosen
        types, tags = (None if given[name] is None else frozenset(given[name]) for name in ("types", "tags"))
        chosen = Selection(self._target, given["entity_type"], tail=False, types=types, tags=tags)
        slots = self._spark.sparkContext.defaultParallelism
        chosen = replace(chosen, tasks=max(1, 2 * slots // len(to)))
        parts = [
            replace(range_, after=low, to=high)
            for range_ in ranges_between(after, to, len(to))
            for low, high in parts_of_partition(self._s.store, chosen, range_.partition, range_.after, range_.to)
        ]
        count = len(parts)
        numbers = self._spark.range(0, count, 1, count)
        return numbers.mapInArrow(partial(_pages, chosen, parts), from_arrow_schema(ARROW_SCHEMA))

    def _columns(self, events: DataFrame) -> DataFrame:
        """Return the columns of the copy."""
        from pyspark.sql import functions as F  # noqa: N812

        text = F.when(F.col("json"), F.col("payload").cast("string"))
        frame = events.withColumn("day", F.to_date("timestamp"))
        shown: list[Column] = [F.col(name) for name in COLUMNS]
        payload, extra = text, list[Any]()
        schema = self._chosen["payload_schema"]
        if schema is not None:
            names = self._payload_columns(schema)
            options = {"columnNameOfCorruptRecord": UNREAD}
            frame = frame.withColumn("_read", F.from_json(text, f"{schema}, {UNREAD} STRING", options))
            extra = [F.col(f"_read.`{name}`").alias(name) for name in names]
            payload = F.when(F.col("_read").isNull(), text).otherwise(F.col(f"_read.{UNREAD}"))
        raw = F.when(~F.col("json"), F.col("payload"))
        if self._chosen["format"] in FLAT_FORMATS:
            listed = {"tags", "headers"}
            shown = [F.to_json(name).alias(name) if name in listed else F.col(name) for name in COLUMNS]
            raw = F.base64(raw)
            extra = [
                F.to_json(column).alias(name) if _is_nested(schema, name) else column
                for column, name in zip(extra, self._payload_columns(schema) if schema else (), strict=True)
            ]
        return frame.select(*shown, *extra, payload.alias(PAYLOAD[0]), raw.alias(PAYLOAD[1]))

    def _payload_columns(self, schema: str) -> list[str]:
        names = _parsed(schema).fieldNames()
        taken = sorted({*names} & {*COLUMNS, *PAYLOAD, "increment", UNREAD})
        if taken:
            raise invalid(
                "option", "payload_schema", f"{taken[0]} is a column of every event", allowed="other names",
                got=schema, hint="leave it out: the payload's own is then not a column",
            )  # fmt: skip
        return list(names)


def _parsed(schema: str) -> Any:
    from pyspark.sql.types import StructType

    try:
        return StructType.fromDDL(schema)
    except session.spark_errors():
        allowed = 'columns as Spark writes them, such as "total DOUBLE, paid BOOLEAN"'
        raise invalid("option", "payload_schema", "cannot be read", allowed=allowed, got=schema) from None


def _is_nested(schema: str, name: str) -> bool:
    return _parsed(schema)[name].dataType.typeName() in ("array", "map", "struct", "binary")


def _pages(
    chosen: Selection, parts: Sequence[TimeRange], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the parts whose numbers a task was given."""

    def made() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_range(chosen, parts[number], tail=False)

    return _crossing(made())


def _crossing(pages: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    step = crossing(next)
    while True:
        page = step(pages, None)
        if page is None:
            return
        yield page


class ExportFolder:
    """The folder of a copy, in any file system that the Hadoop classes of Spark's JVM can open."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm = spark.sparkContext._jvm
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        given = self._jvm.org.apache.hadoop.fs.Path(path)
        self._files = given.getFileSystem(conf)
        if self._files.getScheme() == "file" and not given.isAbsolute():  # the JVM may have another working directory
            given = self._jvm.org.apache.hadoop.fs.Path(str(Path(path).absolute()))
        self._root = self._files.makeQualified(given)
        self.path = str(self._root.toString())

    def inside(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.inside(name))

    def names(self) -> list[str]:
        """Return the names in the folder; none if there is no folder."""
        if not self._files.exists(self._root):
            return []
        return [str(each.getPath().getName()) for each in self._files.listStatus(self._root)]

    def last(self) -> tuple[int, ExportNote | None]:
        """Return the number of the last increment, and its note; 0 if there is none."""
        names = self.names()
        numbers = [int(found[1]) for name in names if (found := INCREMENT.fullmatch(name))]
        if not numbers:
            foreign = [name for name in names if not name.startswith(".") and not NEW.fullmatch(name)]
            if foreign:
                raise invalid(
                    "option", "path", f"has {counted(len(foreign), 'other file')}, such as {foreign[0]}",
                    allowed="a new folder, or one of an export", got=self.path,
                )  # fmt: skip
            return 0, None
        last = max(numbers)
        return last, self.note(last)

    def note(self, number: int) -> ExportNote:
        return ExportNote.from_json(self._read(f"increment={number:06d}/{NOTE}"))

    def _read(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write a file, and let it reach the disk."""
        stream = self._files.create(self._path(name))
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()

    def give_place(self, name: str, number: int, note: ExportNote) -> None:
        """Rename a folder to the increment with this number; `Conflict` if another run has taken the number.

        Of two renames at the same moment one may end up inside the other's folder, where no reader looks.
        """
        place = self._path(f"increment={number:06d}")
        moved = not self._files.exists(place) and self._files.rename(self._path(name), place)
        if not moved or self.note(number).run != note.run:
            self.remove(name)
            raise Conflict(
                f"{self.path}: another export has added increment {number} meanwhile", code="switch",
                hint="one export into a folder at a time; run it again",
            )  # fmt: skip

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def remove_left_overs(self, number: int) -> None:
        """Remove the folders of ended runs whose number is taken. A run for the next number may still be at work."""
        for name in self.names():
            found = NEW.fullmatch(name)
            if found and int(found[1]) <= number:
                self.remove(name)
