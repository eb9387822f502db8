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

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
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
from strandline.journal.replay import LAST, Wanted, replay_partition
from strandline.pipeline import jvm, session
from strandline.pipeline.columns import ARROW_SCHEMA, record_batch
from strandline.pipeline.target import PLACES, JournalRef, has_password
from strandline.pipeline.task import uncollected
from strandline.settings import SETTING_NAMES, parse_setting
from strandline.store.scans import events_of
from strandline.urls import masked
from strandline.values.keys import SLICES, partition_of

BATCH_OPTIONS = ("url", "log", "store", "entity_type", "slices", "from", "to", "tail", "tasks")
STREAM_OPTIONS = ("url", "log", "store", "entity_type", "slices", "from", "to", "start", "rows_max")


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
    """Load the format with these options. Passwords may be in them: Spark is only told where they are."""
    if any(has_password(options.get(name, "")) for name in PLACES):
        given = JournalRef(options.get("url"), options.get("log"), options.get("store"))
        target = given.by_reference(jvm.temporary_folder())
        session.send_files(spark, target.files)
        options = {**options, **{name: getattr(target, name) for name in PLACES if name in options}}
    session.check_python(spark)
    spark.dataSource.register(EventsSource)
    return spark.read.format(EventsSource.name()).options(**options).load()


@dataclass(frozen=True)
class Selection:
    """Which events, from where: the options, checked."""

    target: JournalRef
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
            JournalRef(given.get("url"), given.get("log"), given.get("store"), settings),
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

    def partitions(self, partitions: int) -> list[int]:
        """The partitions of a log that have slices of these."""
        return list(range(partition_of(self.lo, partitions), partition_of(self.hi, partitions) + 1))

    def batches(self, range_: InputPartition, *, tail: bool) -> Iterator[pa.RecordBatch]:
        """The events of a range of time."""
        if not isinstance(range_, TimeRange):
            raise TypeError(range_)
        s = self.target.open()
        from_, to = max(range_.after + 1, self.from_), min(range_.to, self.to - 1)
        wanted = Wanted(range_.partition, range_.cut, from_, to, (self.lo, self.hi), self.entity_type)
        with uncollected():
            for rows in replay_partition(s.log, s.store, s.settings, wanted, tail=tail):
                if rows:
                    yield record_batch(rows)


@dataclass
class TimeRange(InputPartition):
    """The events that one task gives: of a partition, after one timestamp, up to another, and up to an offset."""

    partition: int
    after: int
    to: int
    cut: int = LAST


class EventsReader(DataSourceReader):
    """A batch read: whole keys up to the cut."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def partitions(self) -> list[TimeRange]:
        s = self.selection.target.open()
        cuts, pointers = s.log.newest(), s.store.pointers()
        return [
            TimeRange(partition, after, to, cuts[partition])
            for partition in self.selection.partitions(len(cuts))
            for after, to in self._split(partition, pointers[partition].timestamp)
        ]

    def _split(self, partition: int, newest: int) -> list[tuple[int, int]]:
        """Ranges of time for as many tasks as are wanted: equal ones, from the first event of the store to its last.

        The last one goes on with what is not in the store yet.
        """
        chosen = self.selection
        if chosen.tasks == 1:
            return [(-1, LAST)]
        store = chosen.target.open().store
        rows = events_of(store, partition, after=(-1, LAST), to=newest, limit=1, entity_type=chosen.entity_type).rows
        first = max(rows[0].timestamp if rows else newest, chosen.from_) - 1
        span = max(0, min(newest, chosen.to) - first)
        edges = [first + span * task // chosen.tasks for task in range(1, chosen.tasks)]
        return list(pairwise([-1, *edges, LAST]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.selection.batches(partition, tail=self.selection.tail)


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
        wanted = map(str, self.selection.partitions(len(end)))
        return [TimeRange(int(p), start[p], end[p]) for p in wanted if end[p] > start[p]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.selection.batches(partition, tail=False)

    def stop(self) -> None:
        self.selection.target.drop()

    def _pointers(self) -> list[int]:
        return [pointer.timestamp for pointer in self.selection.target.open().store.pointers()]

    def _limited(self, partition: int, start: int, end: int, rows_max: int) -> int:
        """The timestamp up to which at most about `rows_max` events come: an append is never cut."""
        store = self.selection.target.open().store
        rows = events_of(
            store, partition, after=(start, LAST), to=end, limit=rows_max, entity_type=self.selection.entity_type
        ).rows
        return rows[-1].timestamp if len(rows) == rows_max else end


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
