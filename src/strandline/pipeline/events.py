"""Events as a Spark format: `spark.read.format("strandline")`, `readStream` and `write`.

A batch read returns what `Journal.read` would return for every key, store and tail joined, up to the log's ends at the
moment of planning. A stream returns what the store has, in timestamp order per partition, up to the pointers; its
offset is a timestamp per partition, so a restart goes on there. What a write does is in `event_writing.py`.

Options of reads: `url`, or `log` and `store`; `entity_type`; `slices` ("0-1023"); `from`, `to` (times with a zone,
inclusive and exclusive); `types`, `tags`: events of any of these (one text, or a JSON list of texts); batch: `keys`
(the same), `tail` ("false": the store alone), `tasks` (per partition of the log, of about as many appends each);
stream: `start` ("earliest" or "latest"), `rows_max` (per batch); `set.NAME`: a setting of `connect`.

Filters on entity_type, key, slice, timestamp and type are taken over where Spark hands them to sources written in
Python: `spark.sql.python.filterPushdown.enabled`, which sessions of `strandline.pipeline.session` have on. Spark does
not tell such sources which columns a query needs: give the format a schema with only these columns, and payloads that
the query does not need are neither decoded nor sent to Spark.

Spark prints options with its plans. So a URL with a password is refused: the option is then `file:PATH`, a file with
the URL, or `env:NAME`, a variable that has it, on each machine that runs tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from strandline.errors import InvalidInput, StrandlineError, shown
from strandline.journal.replay import LAST
from strandline.pipeline import jvm, push_down, session
from strandline.pipeline.columns import ARROW_SCHEMA
from strandline.pipeline.event_ranges import KeyRange, TimeRange, parts_of_partition, ranges_between, read_range
from strandline.pipeline.event_writing import COLUMNS, EventsWriter
from strandline.pipeline.selection import (
    ALL_COLUMNS,
    BATCH_OPTIONS,
    STREAM_OPTIONS,
    Selection,
    bad_option,
    known_options,
)
from strandline.pipeline.target import PLACES, JournalRef, has_password
from strandline.settings import SETTING_NAMES
from strandline.store.scans import events_of
from strandline.urls import masked
from strandline.values.keys import is_key, key_partition

WRITE_OPTIONS = ("url", "log", "store", "refused")
COMMENTS: Final[Mapping[str, str]] = {
    "key": "whose journal, written order|42",
    "entity_type": "the key up to its first |",
    "slice": "0 to 1023, of the key",
    "seq_nr": "the place of the event in its journal, from 1",
    "prev_seq_nr": "the number of the event before it; 0 for the first",
    "life": "the number of the journal's life: one more after each purge",
    "partition": "the partition of the log that it was recorded in",
    "log_offset": "its append's place there",
    "timestamp": "when it was recorded, by the log's clock, growing within a partition",
    "append_id": "the id of its append, a UUID",
    "type": "the type that its writer gave it",
    "tags": "the tags that its writer gave it",
    "headers": "the headers of its append",
    "metadata": "a JSON object, or null",
    "payload": "its content: JSON text where json is true, else bytes",
    "json": "whether the payload is JSON",
    "damaged": "whether what was appended cannot be read any more; payload and metadata are then null",
}
"""The meaning of each column; Spark shows it as the column's comment."""


class EventsSource(DataSource):
    """Format `strandline`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        for name, place in options.items():
            if name.lower() in PLACES and has_password(place):
                raise bad_option(name, "has a password, and Spark prints options", "file:PATH, env:NAME", masked(place))

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        return StructType(
            [
                StructField(each.name, each.dataType, each.nullable, {"comment": COMMENTS[each.name]})
                for each in from_arrow_schema(ARROW_SCHEMA)
            ]
        )

    def reader(self, schema: StructType) -> EventsReader:
        chosen = Selection.of(self.options, BATCH_OPTIONS, _columns_of(schema))
        return FilteredReader(chosen) if push_down.is_asked_for() else EventsReader(chosen)

    def writer(self, schema: StructType, overwrite: bool) -> EventsWriter:
        given, target = known_options(self.options, WRITE_OPTIONS)
        if overwrite:
            raise bad_option("mode", "a journal is not overwritten", 'mode("append")', "overwrite")
        return EventsWriter(target, schema, given.get("refused"))

    def streamReader(self, schema: StructType) -> EventsStreamReader:  # noqa: N802 - Spark's name
        return EventsStreamReader(Selection.of(self.options, STREAM_OPTIONS, _columns_of(schema)))


def replay(
    spark: SparkSession, url: str | None = None, *, columns: Sequence[str] | None = None, **options: Any
) -> DataFrame:
    """Return journals as a DataFrame. Options are those of the format, `from` written `from_`, and settings of
    `connect`.

    Only `columns` are read and sent to Spark, by default all. `keys`, `types` and `tags` may be lists. A URL
    with a password is kept in a file that only this user can read, until this process ends.
    """
    given: dict[str, Any] = {"url": url}
    for name, value in options.items():
        written = orjson.dumps(list(value)).decode() if isinstance(value, (list, tuple, set, frozenset)) else value
        given[f"set.{name}" if name in SETTING_NAMES else name.rstrip("_")] = written
    return load(spark, {name: str(value) for name, value in given.items() if value is not None}, columns)


def append_frame(
    frame: DataFrame,
    url: str | None = None,
    *,
    order_by: Sequence[str] = (),
    refused: str | None = None,
    **options: Any,
) -> None:
    """Record the rows of a DataFrame as events, those of a key in the order of the columns `order_by`.

    Columns are those of `event_writing`, and those of `order_by`, which are not recorded. With `order_by` all rows of a
    key go to one task; without it rows stay in their partitions. Each row is recorded once, however often this is
    called with it. Rows that cannot be recorded are `InvalidInput.rows_refused`; with a folder `refused` they are
    listed there. Other options are `log`, `store`, and settings of `connect`.
    """
    from strandline.pipeline import supervisor

    spark = frame.sparkSession
    given = {"url": url, "refused": refused}
    for name, value in options.items():
        given[f"set.{name}" if name in SETTING_NAMES else name] = value
    named = _with_references(spark, {name: str(value) for name, value in given.items() if value is not None})
    _, target = known_options(named, WRITE_OPTIONS)
    with target.connect(schema="check") as s:
        supervisor.check_shared(s, spark.sparkContext.master)
    columns = [name for name in frame.columns if name in COLUMNS or name not in order_by]
    if order_by:
        frame = frame.repartition("key").sortWithinPartitions("key", *order_by)
    try:
        frame.select(columns).write.format(EventsSource.name()).options(**named).mode("append").save()
    except session.spark_errors() as error:
        found = supervisor.of_spark(error)
        raise (found if isinstance(found, StrandlineError) else error) from None


def load(spark: SparkSession, options: Mapping[str, str], columns: Sequence[str] | None = None) -> DataFrame:
    """Load the format with these options. Where one has a password, Spark gets a reference to it only."""
    reader = spark.read.format(EventsSource.name()).options(**_with_references(spark, options))
    if columns is not None:
        wrong = sorted(set(columns) - set(ALL_COLUMNS)) or ([] if columns else ["no column"])
        if wrong:
            raise bad_option("columns", "unknown column", ", ".join(ALL_COLUMNS), wrong[0])
        reader = reader.schema(from_arrow_schema(pa.schema([ARROW_SCHEMA.field(name) for name in columns])))
    return reader.load()


def _with_references(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """Register the format with the session and return the options; a URL with a password becomes a
    reference to a file.
    """
    if any(has_password(options.get(name, "")) for name in PLACES):
        given = JournalRef(options.get("url"), options.get("log"), options.get("store"))
        target = given.by_reference(jvm.temporary_folder())
        session.send_files(spark, target.files)
        options = {**options, **{name: getattr(target, name) for name in PLACES if name in options}}
    session.check_python(spark)
    spark.dataSource.register(EventsSource)
    return dict(options)


class EventsReader(DataSourceReader):
    """A batch read: whole keys up to the cut."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def partitions(self) -> list[InputPartition]:
        chosen = self.selection
        s = chosen.target.open()
        cuts, pointers = s.log.newest(), s.store.pointers()
        partitions = chosen.partitions(len(cuts))
        if chosen.by_key:
            keys: dict[int, list[str]] = {partition: [] for partition in partitions}
            for key in sorted(filter(is_key, chosen.keys or ())):
                keys.setdefault(key_partition(key, len(cuts)), []).append(key)
            return [
                KeyRange(partition, tuple(keys[partition]), cuts[partition])
                for partition in partitions
                if keys[partition]
            ]
        return [
            TimeRange(partition, after, to, cuts[partition])
            for partition in partitions
            for after, to in parts_of_partition(s.store, chosen, partition, -1, pointers[partition].timestamp, LAST)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self.selection, partition, tail=self.selection.tail)


class FilteredReader(EventsReader):
    """A reader to which Spark hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.selection, left = push_down.narrowed(self.selection, filters)
        return left


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: what the store has, by time. Its offsets are the timestamps of the pointers."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.frozen: list[int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        pointers = self._pointers()
        if self.selection.start == "latest":
            return _offsets(pointers)
        return _offsets([max(0, self.selection.from_ - 1)] * len(pointers))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.frozen = self._pointers()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self.selection.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        ends = self.frozen or self._pointers()
        # another log has taken over: its pointers began above all timestamps of the old one
        if len(start) != len(ends):
            return _offsets(ends)
        ends = [max(end, start[str(partition)]) for partition, end in enumerate(ends)]
        if isinstance(limit, ReadMaxRows):
            share = max(1, limit.max_rows // len(ends))
            ends = [self._limited(p, start[str(p)], end, share) for p, end in enumerate(ends)]
        return _offsets(ends)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return _offsets(self._pointers())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[TimeRange]:
        partitions = self.selection.target.open().store.settings.partitions
        wanted = set(self.selection.partitions(partitions))
        return [
            range_
            for range_ in ranges_between(_timestamps(start), _timestamps(end), partitions)
            if range_.partition in wanted and range_.to > range_.after
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self.selection, partition, tail=False, archive=False)

    def stop(self) -> None:
        self.selection.target.drop()

    def _pointers(self) -> list[int]:
        return [pointer.timestamp for pointer in self.selection.target.open().store.pointers()]

    def _limited(self, partition: int, start: int, end: int, rows_max: int) -> int:
        """Return the timestamp up to which there are at most about `rows_max` events; it never cuts an append."""
        store = self.selection.target.open().store
        rows = events_of(
            store, partition, after=(start, LAST), to=end, limit=rows_max, entity_type=self.selection.entity_type
        ).rows
        return rows[-1].timestamp if len(rows) == rows_max else end


def _timestamps(offsets: Mapping[str, int]) -> list[int]:
    return [offsets[str(partition)] for partition in range(len(offsets))]


def _offsets(timestamps: Sequence[int]) -> dict[str, int]:
    return {str(partition): timestamp for partition, timestamp in enumerate(timestamps)}


def _columns_of(schema: StructType) -> list[str]:
    """Return the columns of a schema, which are all of the format's or some of them."""
    allowed = {each.name: each.dataType for each in from_arrow_schema(ARROW_SCHEMA)}
    names = [each.name for each in schema]
    if len(set(names)) < len(names) or any(allowed.get(each.name) != each.dataType for each in schema):
        raise InvalidInput(
            f"schema: not that of strandline events; allowed some of {from_arrow_schema(ARROW_SCHEMA).simpleString()}; "
            f"got {shown(schema.simpleString())}",
            code="schema",
            hint="leave the schema out, or name some of these columns with these types",
            field="schema",
        )
    return names
