"""Archives on a real Spark: what their files have, how they grow, what a kill leaves, and what a sweep takes out."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog import Catalog
from tests.acceptance.cli_call import call
from tests.pairings import paired, pairing
from tests.pipeline.test_archive_as_table import TABLE, catalog
from tests.pipeline.test_pairings import KEYS, draft_of, some_history, stored

import strandline
from strandline import Event, MissingEvent, points
from strandline.connect import Strandline
from strandline.errors import InvalidInput, Unavailable
from strandline.pipeline.archiving import SCHEMA, archive
from strandline.pipeline.sweeping import sweep
from strandline.reconcile.rounds import HereRunner, reconcile_rounds
from strandline.reconcile.tallies import item_of, signed, text_number
from strandline.store.archive_files import LOCK, Manifest, read_manifest
from strandline.store.archived_events import event_row
from strandline.testing import carry
from strandline.testing.archive import archive_here

__all__ = ["catalog", "paired", "pairing"]
pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")


class Killed(Exception):
    """Stands for the end of the process at a named point."""


@pytest.fixture
def dying() -> Iterator[Callable[[str], None]]:
    """Lets this process die at a point, the next time that it gets there."""

    def at(point: str) -> None:
        def told(name: str) -> None:
            if name == point:
                points.told = None
                raise Killed(name)

        points.told = told

    yield at
    points.told = None


def files_of(folder: Path) -> list[Path]:
    """The files that the manifest names, and no others may be there."""
    manifest = read_manifest(folder)
    assert manifest is not None
    named = sorted(folder / file.path for file in manifest.files)
    assert named == sorted(folder.rglob("*.parquet"))
    return named


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for file in files_of(folder) for row in ParquetFile(file).read().to_pylist()]


def events_of(s: Strandline, before: int) -> set[Any]:
    """What readers are told of all events recorded before a time."""
    keys = [str(key) for type_ in s.journal.entity_types() for key in s.journal.keys(type_)]
    return {event for key in keys for event in s.journal.read(key) if event.timestamp < before}


def archived(folder: Path) -> set[Any]:
    return {event_row(row).event for row in rows_of(folder)}


@pytest.mark.req("J119")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "pairing", ["sqlite-sqlite", pytest.param("kafka-cassandra", marks=pytest.mark.lane("servers"))], indirect=True
)
def test_an_archive_has_every_event_as_it_was_read(
    pairing: Any, paired: Strandline, spark: Any, tmp_path: Path
) -> None:
    some_history(paired)
    carry(paired)
    line = paired.strandline()
    folder = tmp_path / "archive"
    where = dict(pairing.where)
    report = archive(None, folder, line, spark=spark, **where)
    expected = events_of(paired, line)
    assert archived(folder) == expected != set()
    assert (report.written, report.events, report.damaged, report.to) == (len(expected), len(expected), 0, line)
    again = archive(None, folder, line, spark=spark, **where)
    assert (again.written, again.events, again.files) == (0, report.events, report.files)
    for key in KEYS[1:4]:
        paired.journal.append(key, [Event("More", [key], tags=["new"])])
    carry(paired)
    later = paired.strandline()
    more = archive(None, folder, later, spark=spark, **where)
    assert more.events == report.events + more.written
    assert archived(folder) == events_of(paired, later)
    check_files(folder)


@pytest.mark.req("J120", "T85", "RR10", "P105")
@pytest.mark.timeout(300)
def test_archived_events_leave_the_store(tmp_path: Path, spark: Any) -> None:
    """By the command; then the files are the only place, and Spark, too, reads all of it as before."""
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"

    def by_spark(**options: Any) -> list[Any]:
        frame = spark.read.format("strandline").options(url=url, **options).load()
        return sorted(map(tuple, frame.select("key", "life", "seq_nr", "timestamp", "type", "payload").collect()))

    with strandline.connect(url) as s:
        some_history(s)
        carry(s)
        line = s.strandline()
        s.journal.append(KEYS[1], [Event("Later", 1, tags=["new"])])
        ways: tuple[dict[str, str], ...] = ({}, {"tail": "false"}, {"keys": KEYS[1]}, {"tasks": "3"})
        before = everything(s), [by_spark(**options) for options in ways]
        with s.by_tag("new") as feed:
            tagged = [(event, event.offset) for event in feed]
        told = call("pipeline", "archive", str(folder), "--before", str(line), "--remove", "--url", url, "--json")
        assert told.code == 0, told.err
        assert told.lines[0]["removed"] == told.lines[0]["events"] > 0
        assert stored(s, KEYS[1]) == []
        assert (everything(s), [by_spark(**options) for options in ways]) == before
        with s.by_tag("new") as feed:
            assert [(event, event.offset) for event in feed] == tagged
        with pytest.raises(MissingEvent), s.by_slices("order", 0, 1023) as query:
            list(query)
        carry(s)
        later = s.strandline()
        again = call("pipeline", "archive", str(folder), "--before", str(later), "--remove", "--url", url)
        assert again.code == 0
        assert "taken out of the store" in again.out
        assert everything(s) == before[0]


def everything(s: Strandline) -> list[Any]:
    """All events that readers are told of."""
    keys = [str(key) for type_ in s.journal.entity_types() for key in s.journal.keys(type_)]
    return [event for key in keys for event in s.journal.read(key)]


@pytest.mark.req("J120", "J121", "T85")
@pytest.mark.parametrize("pairing", [pytest.param("kafka-cassandra", marks=pytest.mark.lane("servers"))], indirect=True)
def test_rows_leave_a_store_without_transactions(pairing: Any, paired: Strandline, tmp_path: Path) -> None:
    some_history(paired)
    carry(paired)
    before = everything(paired)
    with paired.by_tag("new") as feed:
        tagged = [(event, event.offset) for event in feed]
    folder = tmp_path / "archive"
    removed = archive_here(paired, folder, paired.strandline() + 1)
    assert removed.removed > 0
    assert stored(paired, KEYS[1]) == []
    assert everything(paired) == before
    with paired.by_tag("new") as feed:
        assert [(event, event.offset) for event in feed] == tagged
    with pytest.raises(MissingEvent), paired.by_slices("order", 0, 1023) as query:
        list(query)
    paired.journal.append(KEYS[1], [Event("Later", 1)])
    paired.journal.delete(KEYS[2], to=1)
    paired.journal.purge(KEYS[3])
    carry(paired)
    expected = [
        event for event in before if str(event.key) != KEYS[3] and (str(event.key) != KEYS[2] or event.seq_nr > 1)
    ]
    assert [event for event in everything(paired) if event.type != "Later"] == expected
    found = reconcile_rounds(paired.log, paired.store, HereRunner(paired.log, paired.store, paired.settings))
    assert found.findings == []


def check_files(folder: Path) -> None:
    """Sorted, of one type and month and of the slices that the name says, compressed, with statistics and digests."""
    manifest = read_manifest(folder)
    assert manifest is not None
    for file in manifest.files:
        found = ParquetFile(folder / file.path)
        assert found.schema_arrow.names == [name for name in SCHEMA.names if name != "month"]
        rows = found.read().to_pylist()
        places = [(row["key"].encode(), row["life"], row["seq_nr"]) for row in rows]
        assert places == sorted(places)
        assert {row["entity_type"] for row in rows} == {file.entity_type}
        assert {row["time"].astimezone(UTC).strftime("%Y-%m") for row in rows} == {file.month}
        assert (min(row["slice"] for row in rows), max(row["slice"] for row in rows)) == (
            file.first_slice, file.last_slice
        )  # fmt: skip
        digest = sum(item_of(text_number(r["key"]), r["life"], r["seq_nr"], r["digest"]) for r in rows)
        assert (len(rows), signed(digest)) == (file.events, file.digest)
        assert (folder / file.path).stat().st_size == file.bytes
        group = found.metadata.row_group(0)
        for at in range(group.num_columns):
            column = group.column(at)
            assert column.compression == "ZSTD"
            if column.path_in_schema in ("key", "slice", "life", "seq_nr", "time", "type"):
                assert column.statistics.has_min_max


@pytest.mark.req("J119")
def test_other_programs_read_it(tmp_path: Path, spark: Any, catalog: Catalog) -> None:
    """DuckDB, plain Spark and pyiceberg, by the names of columns: JSON payloads as text, times as times."""
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"
    with strandline.connect(url) as s:
        recorded = s.journal.append(
            "order|1", [Event("Placed", {"total": 99, "ø": "é"}, tags=["blue", "red"], metadata={"by": "web"})]
        )
        s.journal.append("order|1", [Event("Scanned", b"\x00\xff"), Event("Nothing", None)])
        s.journal.append("visit|1", [Event("Came", "early")])
        carry(s)
        archive(url, folder, s.strandline(), spark=spark, register=TABLE)
    files = f"{folder}/events/**/*.parquet"
    ask = duckdb.connect()
    ask.execute("SET TimeZone='UTC'")
    told = ask.execute(
        "SELECT key, seq_nr, type, tags, metadata, payload, payload_bytes, payload ->> '$.total' "
        f"FROM read_parquet('{files}') WHERE entity_type = 'order' ORDER BY seq_nr"
    ).fetchall()
    assert told == [
        ("order|1", 1, "Placed", ["blue", "red"], '{"by":"web"}', '{"total":99,"ø":"é"}', None, "99"),
        ("order|1", 2, "Scanned", [], None, None, b"\x00\xff", None),
        ("order|1", 3, "Nothing", [], None, "null", None, None),
    ]
    (at,) = ask.execute(f"SELECT time FROM read_parquet('{files}') WHERE type = 'Placed'").fetchone() or (None,)
    assert isinstance(at, datetime)
    assert int(at.timestamp() * 10**6) == recorded.timestamp
    frame = spark.read.parquet(str(folder / "events"))
    assert frame.where("entity = 'order'").count() == 3
    assert [row["payload"] for row in frame.where("type = 'Came'").collect()] in ([], ['"early"'])
    named = catalog.load_table("sales.events").scan(row_filter="type = 'Placed'")
    (placed,) = named.select("key", "tags", "payload", "time", "headers").to_arrow().to_pylist()
    assert placed == {
        "key": "order|1", "tags": ["blue", "red"], "payload": '{"total":99,"ø":"é"}', "time": at, "headers": []
    }  # fmt: skip


@pytest.mark.req("J119")
def test_killed_at_any_point_the_old_manifest_answers(tmp_path: Path, spark: Any, dying: Callable[[str], None]) -> None:
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"
    with strandline.connect(url) as s:
        some_history(s)
        carry(s)
        archive(url, folder, s.strandline(), spark=spark)
        before: Manifest | None = read_manifest(folder)
        had = archived(folder)
        s.journal.append(KEYS[1], [Event("More", 1)])
        s.journal.append(KEYS[2], [Event("More", 2)])
        carry(s)
        line = s.strandline()
        for point in ("archive.files_are_written", "archive.files_are_moved"):
            dying(point)
            with pytest.raises(Killed):
                archive(url, folder, line, spark=spark)
            assert read_manifest(folder) == before
            assert len(list(folder.rglob("*.parquet"))) > len(before.files if before else ())
        archive(url, folder, line, spark=spark)
        assert archived(folder) == events_of(s, line)
        assert archived(folder) > had
        assert list(folder.glob("new-*")) == []
        dying("archive.manifest_is_written")
        s.journal.append(KEYS[3], [Event("More", 3)])
        carry(s)
        with pytest.raises(Killed):
            archive(url, folder, s.strandline(), spark=spark)
        assert archive(url, folder, s.strandline(), spark=spark).written == 0, "it was done"
        files_of(folder)
        check_files(folder)


@pytest.mark.req("J119", "J122")
def test_what_is_refused(tmp_path: Path, spark: Any) -> None:
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"
    with strandline.connect(url) as s, strandline.connect(f"sqlite:{tmp_path}/other") as other:
        key = KEYS[0]
        partition = s.journal.append(key, [Event("Placed", 1)]).partition
        s.log.append([draft_of(key, partition, b"no value")])
        s.journal.append("order|later", [Event("Placed", 1)])
        other.journal.append(key, [Event("Placed", 1)])
        carry(s)
        carry(other)
        line = s.strandline()
        with pytest.raises(InvalidInput) as ahead:
            archive(url, folder, line + 1, spark=spark)
        assert ahead.value.code == "time_ahead"
        assert not folder.exists()
        report = archive(url, folder, line, spark=spark)
        assert (report.events, report.damaged) == (1, 2)
        foreign = tmp_path / "mine"
        foreign.mkdir()
        (foreign / "notes.txt").write_text("mine")
        for place in (foreign, foreign / "notes.txt"):
            with pytest.raises(InvalidInput) as refused:
                archive(url, place, line, spark=spark)
            assert refused.value.code == "archive_path"
        with pytest.raises(InvalidInput) as another:
            archive(f"sqlite:{tmp_path}/other", folder, other.strandline(), spark=spark)
        assert another.value.code == "archive_path"
        assert sorted(path.name for path in foreign.iterdir()) == ["notes.txt"]
        with (folder / LOCK).open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(Unavailable):
                archive(url, folder, line, spark=spark)
            with pytest.raises(Unavailable):
                sweep(url, folder)
    for words in (["--before", "yesterday"], ["--before", "2026-11-01"], []):
        assert call("pipeline", "archive", str(folder), *words, "--url", url).code == 2


@pytest.mark.req("J121")
def test_a_sweep_takes_purged_lives_out(tmp_path: Path, spark: Any, dying: Callable[[str], None]) -> None:
    url, folder = f"sqlite:{tmp_path}/shop", tmp_path / "archive"
    with strandline.connect(url) as s:
        some_history(s)
        s.journal.append("alone|1", [Event("Placed", "secret")])
        s.journal.append("zebra|1", [Event("Placed", 1)])
        carry(s)
        line = s.strandline()
        told = call("pipeline", "archive", str(folder), "--before", str(line), "--url", url, "--json")
        assert (told.code, told.lines[0]["to"]) == (0, line)
        assert sweep(url, folder).events == 0
        had, before = archived(folder), read_manifest(folder)
        s.journal.purge(KEYS[1])
        s.journal.append(KEYS[1], [Event("Placed", "again")])
        s.journal.purge("alone|1")
        s.journal.delete(KEYS[2], to=2)
        carry(s)
        dying("sweep.files_are_moved")
        with pytest.raises(Killed):
            sweep(url, folder)
        assert read_manifest(folder) == before
        told = call("pipeline", "sweep", str(folder), "--url", url, "--yes")
        assert (told.code, told.out) == (0, "4 events taken out of 2 files\n")
        left = archived(folder)
        assert had - left == {event for event in had if str(event.key) in (KEYS[1], "alone|1")}
        assert not any(b"secret" in file.read_bytes() for file in folder.rglob("*") if file.is_file())
        check_files(folder)
        assert sweep(url, folder).events == 0
        more = archive(url, folder, s.strandline(), spark=spark)
        assert archived(folder) > left
        assert more.written > 0
