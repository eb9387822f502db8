"""Export: a copy that grows, with nothing twice and nothing lost, wherever a run was killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.acceptance.cli_call import call

import strandline
from strandline import Conflict, Event, InvalidInput, points
from strandline.connect import Strandline
from strandline.pipeline import export, exporting
from strandline.pipeline.exporting import ExportFolder, ExportNote
from strandline.testing import carry

pytestmark = pytest.mark.req("J133")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/shop"


@pytest.fixture
def s(url: str) -> Iterator[Strandline]:
    with strandline.connect(url, partitions=2) as connected:
        yield connected


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    yield
    points.told = None


def fill(s: Strandline, first: int, count: int = 20) -> None:
    for n in range(first, first + count):
        s.journal.append(f"order|{n % 7}", [Event("Placed", {"n": n, "by": {"name": "Zoë"}}, tags=["blue"])])
    carry(s)


def found(spark: Any, path: Path) -> Counter[tuple[str, int]]:
    return Counter((row.key, row.seq_nr) for row in spark.read.parquet(str(path)).collect())


def recorded(s: Strandline) -> Counter[tuple[str, int]]:
    return Counter((f"order|{n}", e.seq_nr) for n in range(7) for e in s.journal.read(f"order|{n}"))


def test_runs_add_what_is_new_wherever_one_was_killed(
    s: Strandline, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders are told from the one that this process has gone to, and Spark has not."""
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "copy"
    steps = ("export.files_are_written", "export.is_noted", "export.has_its_place")
    for number, step in enumerate(steps):
        fill(s, 100 * number)

        def kill(point: str, due: str = step) -> None:
            if point == due:
                raise KeyboardInterrupt

        points.told = kill
        with suppress(KeyboardInterrupt):
            export("sqlite:shop", "copy", spark=spark, partition_by=["entity_type"])
            pytest.fail("it was not killed")
        points.told = None
        if number:
            assert set(found(spark, copy).values()) == {1}
        done = export("sqlite:shop", "copy", spark=spark, partition_by=["entity_type"])
        assert done.events == (0 if step == steps[-1] else 20)
        assert found(spark, copy) == recorded(s)
    assert done.increment is None
    assert sorted(each.name for each in copy.iterdir()) == [f"increment={n:06d}" for n in (1, 2, 3)]


def test_what_is_chosen_stays_and_the_folder_is_its_own(s: Strandline, url: str, spark: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    fill(s, 0)
    s.journal.append("order|1", [Event("Paid", b"\0\1"), Event("Placed", {"n": "x"}), Event("Placed", [1])])
    carry(s)
    schema = "n INT, by STRUCT<name: STRING>"
    assert export(url, str(copy), format="csv", payload_schema=schema, spark=spark,
                  writer_options={"header": "true"}).events == 23  # fmt: skip
    rows = spark.read.option("header", "true").csv(str(copy)).collect()
    assert sorted(int(row.n) for row in rows if row.n is not None) == list(range(20))
    assert {row.by for row in rows if row.n is not None} == {'{"name":"Zoë"}'}
    assert {row.payload for row in rows} == {None, '{"n":"x"}', "[1]"}
    assert [row.payload_bytes for row in rows if row.payload_bytes] == ["AAE="]
    assert {row.tags for row in rows if row.n is not None} == {'["blue"]'}
    fill(s, 100)
    with pytest.raises(InvalidInput, match="is another than before"):
        export(url, str(copy), format="csv", spark=spark)
    with strandline.connect(f"sqlite:{tmp_path}/other", partitions=2), pytest.raises(InvalidInput, match="of another"):
        export(f"sqlite:{tmp_path}/other", str(copy), spark=spark)
    with pytest.raises(InvalidInput, match="other file"):
        export(url, str(tmp_path), spark=spark)
    for wrong in ({"partition_by": ["colour"]}, {"payload_schema": "type INT"}, {"payload_schema": "n COLOUR"}):
        with pytest.raises(InvalidInput):
            export(url, str(tmp_path / "new"), spark=spark, **wrong)


def test_of_two_runs_at_once_one_has_the_place(s: Strandline, url: str, spark: Any, tmp_path: Path) -> None:
    """And neither removes what the other is at work on; what is left of a killed one goes with the next increment."""
    copy = tmp_path / "copy"
    fill(s, 0)
    folder = ExportFolder(spark, str(copy))
    note = ExportNote(s.store.settings.history_id, (-1, -1), (1, 1), 1, {}, "first")
    folder.write(f"_new-000001-a/{exporting.NOTE}", note.to_json())
    folder.remove_left_overs(0)
    folder.give_place("_new-000001-a", 1, note)
    folder.write(f"_new-000001-b/{exporting.NOTE}", note.to_json())
    with pytest.raises(Conflict):
        folder.give_place("_new-000001-b", 1, note)
    (copy / "_new-000001-c").mkdir()
    (copy / "_new-000002-d").mkdir()
    folder.remove_left_overs(1)
    assert sorted(each.name for each in copy.iterdir()) == ["_new-000002-d", "increment=000001"]
    kept = orjson.loads((copy / "increment=000001" / exporting.NOTE).read_bytes())
    assert ExportNote.from_json(orjson.dumps(kept).decode()) == note


def test_the_command_says_what_it_wrote(
    s: Strandline, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(s, 0)
    words = ("pipeline", "export", "copy", "--partition-by", "day", "--url", "sqlite:shop")
    assert [call(*words).out for _ in range(2)] == [
        f"20 events in file:{tmp_path}/copy/increment=000001\n",
        f"nothing new for file:{tmp_path}/copy\n",
    ]
    assert found(spark, tmp_path / "copy") == recorded(s)
