"""An archive as an Iceberg table: a real catalog, in a SQLite file, names the archive's files, which stay in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import catalog as pyiceberg_catalog
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config
from tests.acceptance.cli_call import call

import strandline
from strandline import Event, points
from strandline.connect import Strandline
from strandline.errors import InvalidInput, Unavailable, Unsupported
from strandline.extras import install
from strandline.pipeline.archiving import FILE_SCHEMA, ArchiveReport, archive
from strandline.pipeline.registering import OWNER
from strandline.pipeline.sweeping import sweep
from strandline.store.archive_files import read_manifest
from strandline.testing import carry
from strandline.testing.archive import archive_here

TABLE = "iceberg:shop/sales.events"
pytestmark = [
    pytest.mark.req("J119", "J121"),
    pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning"),
]


class Killed(BaseException):
    """Stands for the end of the process at a named point."""


@contextmanager
def watched(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Let a function be called at a named point."""

    def told(name: str) -> None:
        if name == point:
            act()

    points.told = told
    try:
        yield
    finally:
        points.told = None


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """The catalog `shop`, with the namespace `sales`, configured as pyiceberg's users do it."""
    (tmp_path / "warehouse").mkdir()
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())
    with load_catalog("shop") as made:
        made.create_namespace("sales")
        yield made


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Strandline]:
    """A journal with an archive of five events, of two entity types."""
    with strandline.connect(f"sqlite:{tmp_path}/shop", partitions=1) as made:
        made.journal.append("order|1", [Event("Placed", {"total": 99}, tags=["blue"], metadata={"by": "web"})])
        made.journal.append("order|1", [Event("Scanned", b"\x00\xff")], headers={"x": "y"})
        made.journal.append("order|2", [Event("Placed", None), Event("Paid", 1)])
        made.journal.append("visit|1", [Event("Came", "early")])
        grown(made, tmp_path)
        yield made


def grown(s: Strandline, tmp_path: Path) -> None:
    """Archive what there is; nobody registers it."""
    s.journal.mark("order|2")  # a later time than that of the last event, up to which can be archived
    carry(s)
    archive_here(s, tmp_path / "archive", s.strandline(), remove=False)


def registered(tmp_path: Path, table: str = TABLE) -> ArchiveReport:
    """Archive up to the time of the last run: there is nothing to write, and Spark does not start."""
    manifest = read_manifest(tmp_path / "archive")
    assert manifest is not None
    return archive(f"sqlite:{tmp_path}/shop", tmp_path / "archive", manifest.to, register=table)


def rows(catalog: Catalog, where: str = "seq_nr > 0") -> list[dict[str, Any]]:
    """What a scan of the table shows."""
    found: list[dict[str, Any]] = catalog.load_table("sales.events").scan(row_filter=where).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["key"], row["seq_nr"]))


def numbers(catalog: Catalog) -> list[tuple[str, int]]:
    return [(row["key"], row["seq_nr"]) for row in rows(catalog)]


FIVE = [("order|1", 1), ("order|1", 2), ("order|2", 1), ("order|2", 2), ("visit|1", 1)]


def test_a_table_names_the_files_and_follows_the_archive(s: Strandline, catalog: Catalog, tmp_path: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "archive").rglob("*.parquet")}
    report = registered(tmp_path)
    assert (report.registered, report.unregistered, report.files) == (2, 0, 2)
    table = catalog.load_table("sales.events")
    assert {Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()} == files.keys()
    assert table.scan().count() == 5
    assert numbers(catalog) == FIVE
    (placed,) = rows(catalog, "type = 'Placed' AND key = 'order|1'")
    assert (placed["payload"], placed["tags"], placed["metadata"]) == ('{"total":99}', ["blue"], '{"by":"web"}')
    assert rows(catalog, "type = 'Scanned'")[0]["headers"] == [("x", "y")]
    bounded = {
        table.schema().find_column_name(at) for task in table.scan().plan_files() for at in task.file.lower_bounds
    }
    assert bounded == {"key", "entity_type", "slice", "life", "seq_nr", "time", "type"}, "no text of payloads"
    first = table.metadata_location
    again = registered(tmp_path)
    assert (again.registered, again.unregistered) == (0, 0)
    assert catalog.load_table("sales.events").metadata_location == first, "nothing new, no snapshot"
    s.journal.append("order|2", [Event("Sent", 1)])
    grown(s, tmp_path)
    assert registered(tmp_path).registered == 1
    assert numbers(catalog) == sorted([*FIVE, ("order|2", 3)])
    s.journal.purge("order|1")
    s.journal.purge("visit|1")
    carry(s)
    assert sweep(f"sqlite:{tmp_path}/shop", tmp_path / "archive").files == 2
    words = ("--before", str(report.to), "--register", TABLE, "--url", f"sqlite:{tmp_path}/shop")
    told = call("pipeline", "archive", str(tmp_path / "archive"), *words)
    assert told.code == 0, told.err
    assert "; 1 file added to the table, 2 taken out of it, up to " in told.out
    assert numbers(catalog) == [("order|2", 1), ("order|2", 2), ("order|2", 3)]
    assert {path: path.stat().st_mtime_ns for path in files if path.exists()}.items() <= files.items()
    assert not list((tmp_path / "warehouse").rglob("*.parquet")), "metadata alone"
    assert catalog.load_table("sales.events").properties["gc.enabled"] == "false"


def test_a_sweep_registers_before_it_removes(s: Strandline, catalog: Catalog, tmp_path: Path) -> None:
    words = ("pipeline", "sweep", str(tmp_path / "archive"), "--yes", "--url", f"sqlite:{tmp_path}/shop")
    s.journal.purge("order|1")
    carry(s)
    seen = []
    with watched("register.table_is_made", lambda: seen.append(len(list(tmp_path.glob("archive/**/*.parquet"))))):
        assert call(*words, "--register", TABLE).code == 0
    assert seen == [3]
    assert numbers(catalog) == [("order|2", 1), ("order|2", 2), ("visit|1", 1)]
    s.journal.purge("visit|1")
    carry(s)
    assert call(*words, "--register", TABLE).code == 0
    assert numbers(catalog) == [("order|2", 1), ("order|2", 2)]


def test_a_folder_that_moved_is_named_anew(s: Strandline, catalog: Catalog, tmp_path: Path) -> None:
    registered(tmp_path)
    (tmp_path / "archive").rename(tmp_path / "moved")
    manifest = read_manifest(tmp_path / "moved")
    assert manifest is not None
    report = archive(f"sqlite:{tmp_path}/shop", tmp_path / "moved", manifest.to, register=TABLE)
    assert (report.registered, report.unregistered) == (2, 2)
    assert numbers(catalog) == FIVE


def test_killed_before_the_table_knows_the_next_run_registers(s: Strandline, catalog: Catalog, tmp_path: Path) -> None:
    def dies() -> None:
        raise Killed

    with pytest.raises(Killed), watched("register.table_is_made", dies):
        registered(tmp_path)
    assert numbers(catalog) == []
    assert registered(tmp_path).registered == 2
    assert numbers(catalog) == FIVE


def test_what_is_refused(s: Strandline, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written: the folder is not even made."""
    line, url = s.strandline(), f"sqlite:{tmp_path}/shop"

    def refused(table: str, folder: str = "new") -> InvalidInput:
        with pytest.raises(InvalidInput) as caught:
            archive(url, tmp_path / folder, line, register=table)
        assert caught.value.code == "option"
        assert not (tmp_path / folder).exists()
        return caught.value

    for table in ("sales.events", "delta:a/b.c", "iceberg:shop/events", "iceberg:/a.b", "iceberg:a/b.c.", ""):
        assert "iceberg:CATALOG/NAMESPACE.TABLE" in refused(table).message
    assert "PYICEBERG_CATALOG__NOPE__URI" in refused("iceberg:nope/sales.events").hint
    assert "no such namespace" in refused("iceberg:shop/nope.events").message
    refused(TABLE, "what#is")
    catalog.create_table("sales.foreign", pa.schema([("key", pa.int64()), ("mine", pa.string())]))
    assert "other columns (digest, " not in refused("iceberg:shop/sales.foreign").message
    assert "mine" in refused("iceberg:shop/sales.foreign").message
    others = catalog.create_table("sales.others", FILE_SCHEMA)
    others.append(pa.Table.from_pylist([{"key": "order|1"}], schema=FILE_SCHEMA))
    assert "other rows" in refused("iceberg:shop/sales.others").message
    assert OWNER not in catalog.load_table("sales.others").properties
    told = call("pipeline", "archive", str(tmp_path / "new"), "--before", str(line), "--register", "x", "--url", url)
    assert (told.code, "iceberg:CATALOG/NAMESPACE.TABLE" in told.err) == (2, True)
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", f"sqlite:///{tmp_path}/no/such/folder.db")
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())
    with pytest.raises(Unavailable) as away:
        archive(url, tmp_path / "new", line, register="iceberg:gone/sales.events")
    assert away.value.code == "away"
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(Unsupported) as missing:
        archive(url, tmp_path / "new", line, register=TABLE)
    assert (missing.value.code, missing.value.hint) == ("not_installed", install("iceberg"))
    assert not (tmp_path / "new").exists()
