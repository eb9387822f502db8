"""Events from a DataFrame: each row once, in the order of its key, and what cannot be recorded is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.journal.worlds import url_of

import strandline
from strandline import InvalidInput
from strandline.connect import Strandline
from strandline.journal.importing import ImportCounts, RefusedEvent
from strandline.pipeline import append_frame, event_writing
from strandline.pipeline.event_writing import EventsWriter, WrittenRows, check_columns, parts_of
from strandline.pipeline.failures import TaskFailed
from strandline.pipeline.target import JournalRef

pytestmark = pytest.mark.req("J131")
SCHEMA = "key string, type string, payload string, append_id string"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/shop"


@pytest.fixture
def s(url: str) -> Iterator[Strandline]:
    with strandline.connect(url, partitions=4) as connected:
        yield connected


def payloads(s: Strandline, key: str) -> list[Any]:
    return [event.payload for event in s.journal.read(key)]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_frame_is_recorded_once_in_order(backend: str, tmp_path: Path, spark: Any) -> None:
    """As `df.write` and as `append_frame`; both again change nothing, and a copy of a journal is one."""
    url = url_of(backend, tmp_path)
    with strandline.connect(url, partitions=4) as s:
        frame = spark.range(2000, numPartitions=2).selectExpr(
            "concat('order|', id % 20) key", "'Placed' type", "to_json(struct(id as n)) payload",
            "cast(id as string) append_id", "array('blue', concat('t', id % 3)) tags", "'{\"by\":\"web\"}' metadata",
            "id as n",
        )  # fmt: skip
        for _ in range(2):
            append_frame(frame.orderBy("payload"), url, order_by=["n"])
        for key in range(20):
            found = list(s.journal.read(f"order|{key}"))
            assert [event.payload["n"] for event in found] == list(range(key, 2000, 20))
            assert {event.metadata["by"] for event in found if event.metadata} == {"web"}
            assert found[1].tags == ("blue", f"t{(key + 20) % 3}")
        if backend == "sqlite":
            options = {"url": url, "set.append_timeout_s": "20"}
            frame.drop("n").write.format("strandline").options(**options).mode("append").save()
            read = spark.read.format("strandline").option("url", url).load()
            copy = f"sqlite:{tmp_path}/copy"
            with strandline.connect(copy) as other:
                columns = ("key", "type", "payload", "json", "tags", "metadata", "headers", "append_id", "seq_nr")
                append_frame(read.select(*columns), copy, order_by=["seq_nr"])
                for key in range(20):
                    copied, given = (list(each.journal.read(f"order|{key}")) for each in (other, s))
                    assert [(e.type, e.tags, e.packed()) for e in copied] == [
                        (e.type, e.tags, e.packed()) for e in given
                    ]


def test_refused_rows_are_told_or_listed_and_all_others_recorded(
    s: Strandline, url: str, spark: Any, tmp_path: Path
) -> None:
    rows = [(f"order|{n}", "Placed", "1", f"id-{n}") for n in range(60)]
    bad = [("order|bad", "", "1", "b1"), ("order|bad", "Placed", "{", "b2"), ("order|bad", "Placed", "1", None),
           (None, "Placed", "1", "b4")]  # fmt: skip
    frame = spark.createDataFrame(rows + bad, SCHEMA).repartition(3)
    with pytest.raises(InvalidInput) as caught:
        append_frame(frame, url)
    error = caught.value
    assert (error.code, error.facts["count"], len(error.facts["rows"])) == ("rows_refused", 4, 4)
    assert {row["append_id"]: row["code"] for row in error.facts["rows"]} == {
        "b1": "events_type", "b2": "invalid_json", "None": "append_id", "b4": "key_type",
    }  # fmt: skip
    assert [payloads(s, key) for key, *_ in rows] == [[1]] * 60
    listed = tmp_path / "refused"
    append_frame(frame, url, refused=str(listed))
    told = [json.loads(line) for file in listed.iterdir() for line in file.read_text().splitlines()]
    assert sorted(row["append_id"] for row in told) == ["None", "b1", "b2", "b4"]
    assert payloads(s, "order|bad") == []


@pytest.mark.usefixtures("s")
@pytest.mark.parametrize("count", [0, 1, 30])
def test_a_write_ends_with_the_rows_that_were_refused(url: str, count: int) -> None:
    """However few, and in whichever task they were."""
    columns = StructType([StructField(name, StringType()) for name in ("key", "type", "payload", "append_id")])
    writer = EventsWriter(JournalRef(url, None, None, {}), columns, None)
    rows = [RefusedEvent("order|1", f"a{n}", "append_id", "no") for n in range(count)]
    tasks = [WrittenRows(ImportCounts(recorded=5, refused=len(part)), part, None) for part in ([], rows)]
    if not count:
        writer.commit([*tasks, None])
        return
    with pytest.raises(TaskFailed) as caught:
        writer.commit([*tasks, None])
    told = json.loads(str(caught.value).partition(":")[2])
    assert (told["code"], told["facts"]["count"]) == ("rows_refused", count)
    assert [row["append_id"] for row in told["facts"]["rows"]] == [f"a{n}" for n in range(min(count, 20))]


TEXTS = StructType([StructField(name, StringType()) for name in ("key", "type", "payload")])
COLUMNS = StructType([*TEXTS, StructField("append_id", StringType())])


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        (TEXTS, "no column append_id"),
        (StructType([*COLUMNS, StructField("colour", StringType())]), "unknown column colour"),
        (StructType([*COLUMNS, StructField("key", StringType())]), "a column twice"),
        (StructType([*COLUMNS, StructField("tags", StringType())]), "tags is string, not array<string>"),
        (StructType([StructField(each.name, LongType()) for each in COLUMNS]), "payload is bigint, not string or bin"),
    ],
)
def test_other_columns_are_refused(columns: StructType, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong) as caught:
        check_columns(columns)
    assert caught.value.code == "schema"


def test_what_is_wrong_with_the_write_is_told_before_a_row_is_looked_at(
    s: Strandline, url: str, spark: Any, tmp_path: Path
) -> None:
    fails = spark.range(1).selectExpr(
        "'order|1' key", "'Placed' type", "cast(raise_error('a row was looked at') as string) payload", "'1' append_id"
    )
    nowhere = f"sqlite:{tmp_path}/nowhere"
    for frame, options, mode, said in (
        (fails.withColumn("more", fails.key), {"url": url}, "append", "unknown column more"),
        (fails, {"url": url, "colour": "blue"}, "append", "unknown option"),
        (fails, {"url": url}, "overwrite", "not overwritten"),
        (fails, {"url": nowhere}, "append", "no journal|no_schema|not there"),
    ):
        with pytest.raises(Exception, match=said) as caught:
            frame.write.format("strandline").options(**options).mode(mode).save()
        assert "a row was looked at" not in str(caught.value)
    assert payloads(s, "order|1") == []


def batches(rows: list[tuple[str, Any]]) -> Iterator[pa.RecordBatch]:
    columns = {
        "key": [key for key, _ in rows], "type": ["Placed"] * len(rows), "payload": [str(n) for _, n in rows],
        "append_id": [f"{key} {n}" for key, n in rows],
    }  # fmt: skip
    yield pa.RecordBatch.from_pydict(columns)


def test_a_task_that_was_killed_and_begins_again_doubles_nothing(s: Strandline, url: str, tmp_path: Path) -> None:
    """Attempts of a task are calls of `write`: one ends in the middle, two run to the end, one's list counts."""
    listed = tmp_path / "refused"
    writer = EventsWriter(JournalRef(url), COLUMNS, str(listed))
    rows: list[tuple[str, Any]] = [(f"order|{n % 3}", n) for n in range(300)]

    def killed() -> Iterator[pa.RecordBatch]:
        yield from batches(rows[:140])
        raise KeyboardInterrupt

    before, event_writing.ROWS_AT_ONCE = event_writing.ROWS_AT_ONCE, 50  # type: ignore[misc]
    try:
        with pytest.raises(KeyboardInterrupt):
            writer.write(killed())
        messages = [writer.write(batches([*rows, ("no key", 1)])) for _ in range(2)]
    finally:
        event_writing.ROWS_AT_ONCE = before  # type: ignore[misc]
    assert [message.counts.recorded + message.counts.duplicates for message in messages] == [300, 300]
    writer.commit(list(messages[1:]))
    assert [path.name for path in listed.iterdir()] == [messages[1].file]
    for key in range(3):
        assert payloads(s, f"order|{key}") == list(range(key, 300, 3))


def test_parts_are_bounded_by_rows_and_bytes() -> None:
    large = pa.RecordBatch.from_pydict({"payload": ["x" * 2**20] * 40})
    many = pa.RecordBatch.from_pydict({"payload": [""] * 50_001})
    for batch in (large, many):
        parts = list(parts_of([batch, batch]))
        assert sum(piece.num_rows for part in parts for piece in part) == 2 * batch.num_rows
        assert max(sum(piece.num_rows for piece in part) for part in parts) <= 2 * event_writing.ROWS_AT_ONCE
        assert len(parts) >= 3
