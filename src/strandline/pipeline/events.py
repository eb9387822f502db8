"""Events as a Spark format: `spark.read.format("strandline")` and `spark.readStream.format("strandline")`.

A batch read gives what `Journal.read` would give for every key, store and tail joined, cut at the log's ends of the
moment it was planned. A stream gives what the store has, in timestamp order per partition, up to the pointers; its
offset is a timestamp per partition, so a restart goes on there.

Options: `url`, or `log` and `store`; `entity_type`; `slices` ("0-1023"); `from`, `to` (times with a zone, inclusive and
exclusive); batch: `tail` ("false": the store alone), `tasks` (per partition of the log); stream: `start` ("earliest" or
"latest"), `rows_max` (per batch); `set.NAME`: a setting of `connect`.

Spark prints options with its plans. So a URL with a password is refused: the option is then `file:PATH`, a file with
the URL, or `env:NAME`, a variable that has it, on each machine that runs tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.errors import InvalidInput, invalid, shown
from strandline.journal.replay import replay_partition
from strandline.pipeline import jvm, session
from strandline.pipeline.target import PLACES, Target, has_password
from strandline.rows import life_of
from strandline.settings import SETTING_NAMES, parse_setting
from strandline.urls import masked
from strandline.values.events import RecordedEvent
from strandline.values.keys import SLICES, partition_of

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("entity_type", pa.string()),
        ("slice", pa.int32()),
        ("seq_nr", pa.int64()),
        ("prev_seq_nr", pa.int64()),
        ("life", pa.int64()),
        ("partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("append_id", pa.string()),
        ("type", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("metadata", pa.string()),
        ("payload", pa.binary()),
        ("json", pa.bool_()),
        ("damaged", pa.bool_()),
    ]
)
BATCH_OPTIONS = ("url", "log", "store", "entity_type", "slices", "from", "to", "tail", "tasks")
STREAM_OPTIONS = ("url", "log", "store", "entity_type", "slices", "from", "to", "start", "rows_max")
PAGE = 2000
LAST = 2**63 - 1


class EventsSource(DataSource):
    """Format `strandline`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        for name, place in options.items():
            if name.lower() in PLACES and has_password(place):
                raise _option(name, "has a password, and Spark prints options", "file:PATH, env:NAME", masked(place))

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        return from_arrow_schema(ARROW_SCHEMA)

    def reader(self, schema: StructType) -> EventsReader:
        _check_schema(schema)
        return EventsReader(Selection.of(self.options, BATCH_OPTIONS))

    def streamReader(self, schema: StructType) -> EventsStreamReader:  # noqa: N802 - Spark's name
        _check_schema(schema)
        return EventsStreamReader(Selection.of(self.options, STREAM_OPTIONS))


def replay(spark: SparkSession, url: str | None = None, **options: Any) -> DataFrame:
    """Journals as a DataFrame; options are those of the format, `from` written `from_`, and settings of `connect`.

    A URL with a password is kept in a file that only this user can read, until this process ends.
    """
    given = {"url": url}
    for name, value in options.items():
        given[f"set.{name}" if name in SETTING_NAMES else name.rstrip("_")] = value
    return load(spark, {name: str(value) for name, value in given.items() if value is not None})


def load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """What the format gives for these options, in which passwords may be: Spark is told where they are."""
    if any(has_password(options.get(name, "")) for name in PLACES):
        given = Target(options.get("url"), options.get("log"), options.get("store"))
        target = given.by_reference(jvm.temporary_folder())
        session.send_files(spark, target.files)
        options = {**options, **{name: getattr(target, name) for name in PLACES if name in options}}
    spark.dataSource.register(EventsSource)
    return spark.read.format(EventsSource.name()).options(**options).load()


@dataclass(frozen=True)
class Selection:
    """Which events, from where: the options, checked."""

    target: Target
    entity_type: str | None
    lo: int
    hi: int
    from_: int
    to: int
    tail: bool
    tasks: int
    start: str
    rows_max: int | None

    @classmethod
    def of(cls, options: Mapping[str, str], known: Sequence[str]) -> Selection:
        """Options as Spark hands them over: text, whatever the case of their names."""
        given = {name.lower(): value for name, value in options.items()}
        settings = {}
        for name in sorted(given.keys() - set(known)):
            if not name.startswith("set."):
                raise _option(name, "unknown option", ", ".join(known), given[name])
            settings[name[4:]] = parse_setting(name[4:], given[name])
        lo, hi = _slices(given.get("slices", f"0-{SLICES - 1}"))
        return cls(
            Target(given.get("url"), given.get("log"), given.get("store"), settings),
            given.get("entity_type"),
            lo,
            hi,
            _time(given.get("from"), "from", 0),
            _time(given.get("to"), "to", LAST),
            _one_of(given, "tail", ("true", "false")) == "true",
            _count(given.get("tasks", "1"), "tasks", 1024),
            _one_of(given, "start", ("earliest", "latest")),
            _count(given["rows_max"], "rows_max", LAST) if "rows_max" in given else None,
        )

    def wants(self, event: RecordedEvent) -> bool:
        return (
            self.lo <= event.slice <= self.hi
            and self.from_ <= event.timestamp < self.to
            and (self.entity_type is None or event.key.entity_type == self.entity_type)
        )


@dataclass
class SliceRange(InputPartition):
    """What one task of a batch read gives: slices of one partition of the log, up to an offset."""

    partition: int
    lo: int
    hi: int
    cut: int


@dataclass
class TimeRange(InputPartition):
    """What one task of a stream gives: events of a partition after one timestamp, up to another."""

    partition: int
    after: int
    to: int


class EventsReader(DataSourceReader):
    """A batch read: whole keys up to the cut."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def partitions(self) -> list[SliceRange]:
        s = self.selection.target.open()
        cuts = s.log.newest()
        return [
            SliceRange(partition, lo, hi, cuts[partition])
            for partition in range(len(cuts))
            for lo, hi in _split(partition, len(cuts), self.selection)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SliceRange):
            raise TypeError(partition)
        chosen = self.selection
        s = chosen.target.open()
        events = replay_partition(
            s.log,
            s.store,
            s.settings,
            partition.partition,
            cut=partition.cut,
            slices=(partition.lo, partition.hi),
            entity_type=chosen.entity_type,
            tail=chosen.tail,
        )
        yield from _batches(event for event in events if chosen.wants(event))


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
        ends = [max(end, start[str(partition)]) for partition, end in enumerate(ends)]
        if isinstance(limit, ReadMaxRows):
            share = max(1, limit.max_rows // len(ends))
            ends = [self._limited(p, start[str(p)], end, share) for p, end in enumerate(ends)]
        return _offsets(ends)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return _offsets(self._pointers())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[TimeRange]:
        return [TimeRange(int(p), start[p], end[p]) for p in end if end[p] > start[p]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TimeRange):
            raise TypeError(partition)
        chosen = self.selection
        yield from _batches(event for event in self._events(partition) if chosen.wants(event))

    def stop(self) -> None:
        self.selection.target.drop()

    def _events(self, range_: TimeRange) -> Iterator[RecordedEvent]:
        store = self.selection.target.open().store
        after = (range_.after, LAST)
        while True:
            rows = store.range(
                range_.partition, after=after, to=range_.to, limit=PAGE, entity_type=self.selection.entity_type
            )
            yield from [RecordedEvent(life_of(row.key, row.life), row.cells) for row in rows]
            if len(rows) < PAGE:
                return
            after = rows[-1].timestamp, rows[-1].seq_nr

    def _pointers(self) -> list[int]:
        return [pointer.timestamp for pointer in self.selection.target.open().store.pointers()]

    def _limited(self, partition: int, start: int, end: int, rows_max: int) -> int:
        """The timestamp up to which at most about `rows_max` events come: an append is never cut."""
        store = self.selection.target.open().store
        rows = store.range(
            partition, after=(start, LAST), to=end, limit=rows_max, entity_type=self.selection.entity_type
        )
        return rows[-1].timestamp if len(rows) == rows_max else end


def _batches(events: Iterable[RecordedEvent]) -> Iterator[pa.RecordBatch]:
    page: list[RecordedEvent] = []
    for event in events:
        page.append(event)
        if len(page) == PAGE:
            yield _batch(page)
            page = []
    if page:
        yield _batch(page)


def _batch(events: list[RecordedEvent]) -> pa.RecordBatch:
    columns = zip(*map(_columns, events), strict=True)
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _columns(e: RecordedEvent) -> tuple[Any, ...]:
    metadata, payload, is_json = e.packed() if not e.damaged else (None, None, False)
    return (
        str(e.key), e.key.entity_type, e.slice, e.seq_nr, e.prev_seq_nr, e.life, e.partition, e.log_offset, e.timestamp,
        str(e.append_id), e.type, e.tags, e.headers, metadata, payload, is_json, e.damaged,
    )  # fmt: skip


def _split(partition: int, partitions: int, selection: Selection) -> list[tuple[int, int]]:
    """The slices of a partition that are wanted, in as many runs as there are tasks."""
    own = [s for s in range(selection.lo, selection.hi + 1) if partition_of(s, partitions) == partition]
    if not own:
        return []
    tasks = min(selection.tasks, len(own))
    edges = [len(own) * task // tasks for task in range(tasks + 1)]
    return [(own[a], own[b - 1]) for a, b in pairwise(edges)]


def _offsets(timestamps: Sequence[int]) -> dict[str, int]:
    return {str(partition): timestamp for partition, timestamp in enumerate(timestamps)}


def _check_schema(schema: StructType) -> None:
    allowed = from_arrow_schema(ARROW_SCHEMA)
    if schema != allowed:
        raise InvalidInput(
            f"schema: not that of strandline events; allowed {allowed.simpleString()}; "
            f"got {shown(schema.simpleString())}",
            code="schema",
            hint="leave the schema out, and select columns afterwards",
            field="schema",
        )


def _option(name: str, wrong: str, allowed: str, got: object) -> InvalidInput:
    return invalid("option", f"option {shown(name, 40)}", wrong, allowed=allowed, got=got)


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).lower()
    if value not in allowed:
        raise _option(name, "unknown value", " or ".join(allowed), value)
    return value


def _count(text: str, name: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise _option(name, "not a number in range", f"1..{most}", text)
    return int(text)


def _slices(text: str) -> tuple[int, int]:
    lo, dash, hi = text.partition("-")
    numbers = [part for part in (lo, hi if dash else lo) if part.isascii() and part.isdigit()]
    if len(numbers) != 2 or not 0 <= int(numbers[0]) <= int(numbers[1]) < SLICES:
        raise invalid("slice_range", "slices", "not a run of slices", allowed=f"lo-hi within 0-{SLICES - 1}", got=text)
    return int(numbers[0]), int(numbers[1])


def _time(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise invalid("time_format", name, "not a time", allowed="ISO 8601 with a zone", got=text) from None
    if time.tzinfo is None:
        raise invalid("time_without_zone", name, "no zone", allowed="a time with a zone, such as …Z", got=text)
    if time.year < 1970:
        raise invalid("time_range", name, "before 1970", allowed="1970 to 9999", got=text)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
