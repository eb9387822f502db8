"""Events as a Spark format: a batch equals what `read` gives, a stream gives each event once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from tests.journal.damage import rot

import strandline.pipeline
from strandline import Event
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.errors import InvalidInput
from strandline.log.api import ActionDraft
from strandline.pipeline.columns import record_batch
from strandline.pipeline.event_ranges import KeyRange, TimeRange, edges_by_offset
from strandline.pipeline.events import EventsReader
from strandline.pipeline.push_down import narrowed
from strandline.pipeline.selection import BATCH_OPTIONS, STREAM_OPTIONS, Selection
from strandline.record import Content, content_digest, encode_header, encode_value
from strandline.testing import carry, raw_append
from strandline.values.actions import Append, Mark


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/shop"


@pytest.fixture
def s(url: str) -> Iterator[Strandline]:
    with strandline.connect(url, partitions=2) as connected:
        yield connected


def shop(s: Strandline) -> list[str]:
    """Keys with deletes, purges and new lives, some of it carried and some of it not."""
    keys = [f"order|{number}" for number in range(30)] + [f"user|{number}" for number in range(5)]
    for number, key in enumerate(keys):
        s.journal.append(key, [Event("Placed", {"n": number}, tags=["blue", "new"], metadata={"by": "web"})])
        s.journal.append(key, [Event("Paid", b"\x00\x01")] * (number % 4 + 1), headers={"trace": str(number)})
    carry(s)
    for key in keys[::3]:
        s.journal.append(key, [Event("Shipped", 1)])
    for key in keys[::5]:
        s.journal.delete(key, to=1)
    for key in keys[::7]:
        s.journal.purge(key)
    for key in keys[::14]:
        s.journal.append(key, [Event("Placed", "again")])
    s.journal.append("order|new", [Event("Placed", "not carried")])
    return [*keys, "order|new"]


def read_all(s: Strandline, keys: list[str]) -> list[tuple[Any, ...]]:
    return sorted(
        (str(e.key), e.life, e.seq_nr, e.prev_seq_nr, e.slice, e.partition, e.log_offset, e.timestamp, str(e.append_id),
         e.type, e.tags, tuple(e.headers.items()))
        for key in keys
        for e in s.journal.read(key)
    )  # fmt: skip


def from_spark(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (r.key, r.life, r.seq_nr, r.prev_seq_nr, r.slice, r.partition, r.log_offset, _us(r.timestamp), r.append_id,
         r.type, tuple(r.tags), tuple(r.headers.items()))
        for r in rows
    )  # fmt: skip


def _us(time: datetime) -> int:
    delta = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


@pytest.mark.req("J113", "J114", "J9")
def test_a_batch_equals_what_read_gives_however_many_tasks(url: str, s: Strandline, spark: Any) -> None:
    keys = shop(s)
    wanted = read_all(s, keys)
    for tasks in (1, 2, 16):  # for each of two partitions
        rows = spark.read.format("strandline").option("url", url).option("tasks", tasks).load().collect()
        assert from_spark(rows) == wanted
    assert from_spark(strandline.pipeline.replay(spark, url, from_="2020-01-01T00:00:00Z").collect()) == wanted
    by_key = {(r.key, r.seq_nr): r for r in rows}
    row = by_key["order|1", 1]
    assert (bytes(row.payload), row.json, row.metadata, row.damaged) == (b'{"n":1}', True, '{"by":"web"}', False)
    assert (bytes(by_key["order|1", 2].payload), by_key["order|1", 2].json) == (b"\x00\x01", False)


@pytest.mark.req("J87", "J132")
def test_filters_are_taken_over_where_spark_hands_them_over(
    url: str, s: Strandline, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leave out the same where it does not: as in sessions of others, where its switch is off."""
    shop(s)
    format_ = spark.read.format("strandline").option("url", url)
    where = (
        "entity_type = 'order' and slice >= 100 and timestamp >= '2020-01-01' and type in ('Placed', 'Paid') "
        "and seq_nr < 3"
    )
    switch = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(switch)
    found = {}
    try:
        for on in ("true", "false"):
            spark.conf.set(switch, on)
            frame = format_.load().where(where)
            found[on] = from_spark(frame.collect())
            frame.explain(True)
            plan = capsys.readouterr().out
            pushed = plan[plan.index("== Physical Plan ==") :]
            spark_judges = pushed[pushed.index("Filter ") : pushed.index("BatchScan")]
            left = [
                name for name in ("entity_type", "slice", "timestamp", "type", "seq_nr") if f"{name}#" in spark_judges
            ]
            assert left == (["seq_nr"] if on == "true" else ["entity_type", "slice", "timestamp", "type", "seq_nr"])
    finally:
        spark.conf.set(switch, before)
    assert found["true"] == found["false"] != []


@pytest.mark.req("J113", "J114")
def test_a_batch_by_entity_type_slices_time_and_without_tail(url: str, s: Strandline, spark: Any) -> None:
    keys = shop(s)

    def load(**options: str) -> list[Any]:
        return list(spark.read.format("strandline").options(url=url, **options).load().collect())

    wanted = read_all(s, keys)
    assert from_spark(load(entity_type="user")) == [row for row in wanted if row[0].startswith("user|")]
    assert from_spark(load(slices="100-700")) == [row for row in wanted if 100 <= row[4] <= 700]
    middle = sorted(row[7] for row in wanted)[len(wanted) // 2]
    time = datetime.fromtimestamp(0, UTC).replace(microsecond=0)
    time = datetime.fromisoformat(
        f"{datetime.fromtimestamp(middle // 10**6, UTC):%Y-%m-%dT%H:%M:%S}.{middle % 10**6:06d}Z"
    )
    assert from_spark(load(**{"from": time.isoformat()})) == [row for row in wanted if row[7] >= middle]
    assert from_spark(load(to=time.isoformat())) == [row for row in wanted if row[7] < middle]
    stored = load(tail="false")
    assert {row.type for row in stored} == {"Placed", "Paid"}, "what was appended after the carry is not in the store"
    assert "order|new" not in {row.key for row in stored}


@pytest.mark.req("J115")
def test_a_stream_gives_each_stored_event_once_and_goes_on_after_a_restart(
    url: str, s: Strandline, spark: Any, tmp_path: Path
) -> None:
    keys = shop(s)
    got: list[list[Any]] = []

    def drain(**options: str) -> list[Any]:
        got.clear()
        stream = spark.readStream.format("strandline").options(url=url, **options).load()
        query = (
            stream.writeStream.foreachBatch(lambda frame, _: got.append(frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [row for batch in got for row in batch]

    stored = spark.read.format("strandline").options(url=url, tail="false").load().collect()
    first = drain(rows_max="40")
    assert len(got) > 1, "cut by the limit"
    assert from_spark(first) == from_spark(stored)
    for partition in range(2):
        times = [_us(row.timestamp) for batch in got for row in batch if row.partition == partition]
        assert times == sorted(times)
    assert drain() == []
    before = {(row.key, row.life, row.seq_nr) for row in stored}
    carry(s)
    later = [(row.key, row.life, row.seq_nr) for row in drain()]
    now = {row[:3] for row in read_all(s, keys)}
    assert sorted(later) == sorted(now - before)


@pytest.mark.req("J115")
def test_a_stream_from_latest_leaves_out_what_is_there(url: str, s: Strandline, spark: Any, tmp_path: Path) -> None:
    shop(s)
    stream = spark.readStream.format("strandline").options(url=url, start="latest").load()
    got: list[Any] = []
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: got.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert got == []


@pytest.mark.req("J97", "J95")
def test_damaged_events_come_without_payload_and_say_so(url: str, s: Strandline, spark: Any) -> None:
    events = (("Placed", ()),)
    value = encode_value([Content(1, b"1", b'{"a":1}')])
    header = encode_header(Append("order|42", events, "a" * 32, False, content_digest(events, None, value)))
    raw_append(s, 1, key="order|42", header=header, value=value[:-1])
    appended = s.journal.append("user|1", [Event("Joined", 1, tags=["new"])])
    rot(s, appended.offset, partition=appended.partition)
    row, headless = sorted(spark.read.format("strandline").option("url", url).load().collect(), key=lambda r: r.key)
    assert (row.key, row.seq_nr, row.damaged, row.payload, row.metadata) == ("order|42", 1, True, None, None)
    assert (headless.key, headless.seq_nr, headless.damaged) == ("user|1", 1, True)
    assert (headless.type, list(headless.tags), headless.payload, headless.metadata) == ("", [], None, None)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"colour": "blue"}, "option"),
        ({"tasks": "0"}, "option"),
        ({"tasks": "many"}, "option"),
        ({"tail": "maybe"}, "option"),
        ({"slices": "9-3"}, "slice_range"),
        ({"slices": "0-1024"}, "slice_range"),
        ({"slices": "a"}, "slice_range"),
        ({"from": "2026-01-01T00:00:00"}, "time_without_zone"),
        ({"from": "yesterday"}, "time_format"),
        ({"to": "1969-12-31T00:00:00Z"}, "time_range"),
        ({"start": "earliest"}, "option"),
    ],
)
@pytest.mark.req("J122")
def test_bad_options_are_refused(options: dict[str, str], code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Selection.of({"url": "sqlite:x", **options}, BATCH_OPTIONS)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.req("D6")
def test_text_in_an_option_is_data(s: Strandline, url: str, spark: Any) -> None:
    nasty = "reflect('java.lang.System','getenv','HOME')`\"';--"
    s.journal.append(strandline.Key(nasty, "1"), [Event("Placed", 1)])
    rows = spark.read.format("strandline").options(url=url, entity_type=nasty).load().collect()
    assert [row.entity_type for row in rows] == [nasty]


@pytest.mark.req("D6")
@pytest.mark.parametrize("way", ["read", "readStream"])
def test_a_password_is_no_option(spark: Any, way: str) -> None:
    """Spark prints options with its plans, in whoever's session that is."""
    places = {"log": "kafka://me:hunter22@there/topic", "store": "cassandra://me:hunter22@there/keyspace"}
    with pytest.raises(Exception, match="has a password") as caught:
        getattr(spark, way).format("strandline").options(**places).load()
    assert "file:" in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.req("D6")
def test_a_plan_names_the_file_that_has_it(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "place").write_text("postgresql://me:hunter22@there/shop")
    place = f"file:{tmp_path}/place"
    spark.readStream.format("strandline").options(log=place, store=place).load().explain(True)
    plan = capsys.readouterr().out
    assert f"store={place}" in plan
    assert "hunter22" not in plan


@pytest.mark.req("J132")
def test_a_schema_of_some_columns_reads_these_alone(url: str, s: Strandline, spark: Any) -> None:
    s.journal.append("order|1", [Event("Placed", 1, metadata={"by": "web"})])
    reader = spark.read.format("strandline").option("url", url)
    rows = reader.schema("type string, key string, metadata string").load().collect()
    assert [tuple(row) for row in rows] == [("Placed", "order|1", '{"by":"web"}')]
    with pytest.raises(Exception, match="not that of strandline events"):
        reader.schema("key string, colour string").load().collect()
    whole = spark.read.format("strandline").option("url", url).load()
    comments = {each.name: each.metadata["comment"] for each in whole.schema}
    assert comments["seq_nr"].startswith("the place of the event")
    with pytest.raises(InvalidInput, match="unknown column"):
        strandline.pipeline.replay(spark, url, columns=["colour"])
    assert set(STREAM_OPTIONS) - set(BATCH_OPTIONS) == {"start", "rows_max"}


def listed(s: Strandline, url: str, filters: Sequence[Filter] = (), **options: str) -> list[tuple[Any, ...]]:
    """What tasks would give Spark, read in this process."""
    chosen = Selection.of({"url": url, **options}, BATCH_OPTIONS)
    chosen, left = narrowed(chosen, filters)
    assert left == []
    reader = EventsReader(chosen)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    chosen.target.drop()
    names = ("key", "life", "seq_nr", "type", "tags", "slice", "timestamp", "entity_type")
    return sorted(
        tuple(_us(row[name]) if name == "timestamp" else row[name] for name in names)
        for batch in batches
        for row in batch.to_pylist()
    )


@pytest.mark.req("J132")
@pytest.mark.parametrize("tasks", ["1", "5"])
def test_each_filter_leaves_out_what_spark_would(s: Strandline, url: str, tasks: str) -> None:
    keys = shop(s)
    wanted = sorted(
        (str(e.key), e.life, e.seq_nr, e.type, list(e.tags), e.slice, e.timestamp, e.key.entity_type)
        for key in keys
        for e in s.journal.read(key)
    )
    times = sorted(row[6] for row in wanted)
    middle = times[len(times) // 2]
    at = datetime.fromtimestamp(middle // 10**6, UTC).replace(microsecond=middle % 10**6)
    slices = (wanted[0][5], wanted[-1][5])
    cases: list[tuple[list[Filter], Callable[[Any], bool]]] = [
        ([], bool),
        ([EqualTo(("entity_type",), "user")], lambda row: row[7] == "user"),
        ([In(("entity_type",), ("user", "order"))], lambda _: True),
        ([EqualTo(("key",), "order|1")], lambda row: row[0] == "order|1"),
        ([In(("key",), ("order|1", "user|2", "order|none", "no key"))], lambda row: row[0] in ("order|1", "user|2")),
        ([EqualTo(("key",), "user|1"), EqualTo(("entity_type",), "order")], lambda _: False),
        ([In(("slice",), slices)], lambda row: row[5] in slices),
        ([EqualTo(("slice",), slices[0])], lambda row: row[5] == slices[0]),
        ([GreaterThan(("slice",), slices[0])], lambda row: row[5] > slices[0]),
        ([LessThanOrEqual(("slice",), slices[0])], lambda row: row[5] <= slices[0]),
        ([GreaterThanOrEqual(("slice",), 0), LessThan(("slice",), 700)], lambda row: row[5] < 700),
        ([GreaterThan(("timestamp",), at)], lambda row: row[6] > middle),
        ([GreaterThanOrEqual(("timestamp",), at)], lambda row: row[6] >= middle),
        ([LessThan(("timestamp",), at)], lambda row: row[6] < middle),
        ([LessThanOrEqual(("timestamp",), at)], lambda row: row[6] <= middle),
        ([EqualTo(("timestamp",), at)], lambda row: row[6] == middle),
        ([EqualTo(("type",), "Paid"), IsNotNull(("type",))], lambda row: row[3] == "Paid"),
        ([In(("type",), ("Paid", "Shipped"))], lambda row: row[3] in ("Paid", "Shipped")),
        ([EqualTo(("type",), "Paid"), EqualTo(("type",), "Shipped")], lambda _: False),
    ]
    for filters, passes in cases:
        assert listed(s, url, filters, tasks=tasks) == [row for row in wanted if passes(row)], filters
    by_option = {
        "types": ('["Paid", "Placed"]', lambda row: row[3] in ("Paid", "Placed")),
        "tags": ("blue", lambda row: "blue" in row[4]),
        "keys": ('["order|3", "user|1"]', lambda row: row[0] in ("order|3", "user|1")),
    }
    for name, (text, passes) in by_option.items():
        assert listed(s, url, tasks=tasks, **{name: text}) == list(filter(passes, wanted)), name
    both = listed(s, url, tags='["new", "other"]', types="Placed")
    assert both == [row for row in wanted if "new" in row[4] and row[3] == "Placed"] != []
    carried = {row[:3] for row in listed(s, url, tail="false", keys="order|new")}
    assert carried == set(), "what is in the tail alone"


@pytest.mark.req("J132")
def test_what_cannot_be_taken_over_is_left_to_spark(url: str) -> None:
    chosen = Selection.of({"url": url}, BATCH_OPTIONS)
    left = [
        EqualTo(("seq_nr",), 1), IsNotNull(("payload",)), Not(EqualTo(("key",), "order|1")),
        StringStartsWith(("key",), "order|"), EqualTo(("headers", "a"), "b"), EqualTo(("timestamp",), "2026"),
        GreaterThan(("slice",), "7"),
    ]  # fmt: skip
    assert narrowed(chosen, left) == (chosen, left)


@pytest.mark.req("J132")
def test_a_key_is_read_by_itself_and_its_partition_alone(s: Strandline, url: str) -> None:
    shop(s)
    chosen, _ = narrowed(Selection.of({"url": url}, BATCH_OPTIONS), [EqualTo(("key",), "order|1")])
    (part,) = EventsReader(chosen).partitions()
    assert isinstance(part, KeyRange)
    assert part.keys == ("order|1",)
    assert EventsReader(replace(chosen, keys=frozenset())).partitions() == []


@pytest.mark.req("J132")
def test_parts_have_as_many_rows_each_wherever_these_are_in_time() -> None:
    """Bursts of appends after pauses: cut by time, nearly all would be in one part."""
    times = sorted(
        at * 10**12 + step * 1000 for at, count in ((1, 5), (2, 9000), (900, 40), (901, 990)) for step in range(count)
    )
    looks = 0

    def append_after(time: int) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        at = bisect_right(times, time)
        return (times[at], at) if at < len(times) else (times[-1], len(times))

    for parts in (2, 8, 100):
        looks = 0
        edges = edges_by_offset(append_after, (times[0], 0), (times[-1], len(times)), parts)
        assert edges == sorted(edges)
        counts = [
            bisect_right(times, to) - bisect_right(times, after)
            for after, to in pairwise([-1, *edges, times[-1]])
        ]  # fmt: skip
        assert max(counts) <= 1.3 * len(times) / parts
        assert looks <= 30 * parts
    assert edges_by_offset(append_after, (5, 0), (5, 0), 4) == sorted(edges_by_offset(append_after, (5, 0), (5, 0), 4))


@pytest.mark.req("J132")
def test_parts_of_a_store_have_as_many_appends_each(url: str) -> None:
    """After ten days in which nothing happened, which the log's clock knows by a Mark."""
    with strandline.connect(url, partitions=1) as s:
        for n in range(400):
            if n == 40:
                s.log.append([_mark_ahead(10 * 86_400)])
            s.journal.append(f"order|{n}", [Event("Placed", n)])
        carry(s)
        reader = EventsReader(Selection.of({"url": url, "tasks": "4"}, BATCH_OPTIONS))
        parts = [part for part in reader.partitions() if isinstance(part, TimeRange)]
        counts = [sum(batch.num_rows for batch in reader.read(part)) for part in parts]
        assert sum(counts) == 400
        assert len(counts) == 4
        assert max(counts) <= 130


def _mark_ahead(seconds: int) -> ActionDraft:
    mark = Mark("order|1", "ahead", now_us() + seconds * 1_000_000)
    return ActionDraft(0, mark, encode_header(mark))


@pytest.mark.req("J113", "J9", "J97")
def test_a_page_as_columns_is_what_its_events_say(s: Strandline) -> None:
    """By columns where all are well, one by one where one is not; the same either way."""
    keys = shop(s)
    s.journal.append("user|é", [Event("Ünïted", {"a": 1}, tags=["ä"]), Event("x", b"")], headers={"ß": "1", "b": ""})
    rows = [event.row(10) for key in [*keys, "user|é"] for event in s.journal.read(key)]
    last: Any = rows[-1]
    for other in (last, last._replace(digest=last.digest ^ 1), last._replace(body="x")):
        page = [*rows[:-1], other]
        found = record_batch(page).to_pylist()
        for row, values in zip(page, found, strict=True):
            e = row.event
            wanted = (str(e.key), e.slice, e.seq_nr, e.prev_seq_nr, e.life, e.partition, e.log_offset, str(e.append_id))
            names = ("key", "slice", "seq_nr", "prev_seq_nr", "life", "partition", "log_offset", "append_id")
            assert tuple(values[name] for name in names) == wanted
            assert _us(values["timestamp"]) == e.timestamp
            assert (values["type"], tuple(values["tags"]), dict(values["headers"])) == (e.type, e.tags, e.headers)
            packed = (None, None, False) if e.damaged else e.packed()
            assert (values["metadata"], values["payload"], values["json"], values["damaged"]) == (*packed, e.damaged)
        assert [values["damaged"] for values in found] == [False] * (len(page) - 1) + [other != last]
