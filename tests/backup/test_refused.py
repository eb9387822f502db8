"""What is not copied, and where nothing is put back."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Corrupt, Event, InvalidInput, SchemaMismatch, Unavailable, Unsupported
from strandline.backup import backup, manifest, restore
from strandline.backup.manifest import LogEnd
from strandline.backup.taking import check_belongs
from strandline.rows import Pointer
from strandline.testing import carry
from tests.backup.conftest import Journals, opened


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"log": "kafka://broker/topic", "store": "cassandra://node/keyspace"}, "no backup of kafka"),
        ({"log": "sqlite:log.db", "store": "cassandra://node/keyspace"}, "no backup of cassandra"),
        ({"log": "kafka://broker/topic", "store": "sqlite:store.db"}, "no backup of kafka"),
        ({"url": "memory:"}, "no backup of memory"),
    ],
)
def test_systems_with_copies_of_their_own(
    place: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unsupported, match=said) as refused:
        backup(tmp_path / "copy", **place)
    assert refused.value.code == "backup"
    assert len(refused.value.hint) > 40
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        backup(tmp_path / "copy", f"sqlite:{tmp_path}/nothing")
    assert refused.value.code == "no_schema"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("RS4")
def test_a_place_that_is_not_empty(journals: Journals, tmp_path: Path) -> None:
    here, there = journals.place("here"), journals.place("there")
    with opened(here) as s:
        s.journal.append("order|1", [Event("Placed", 1)])
    backup(tmp_path / "copy", **here)
    restore(tmp_path / "copy", **there)
    with opened(there) as s:
        s.journal.append("order|1", [Event("Kept", 1)])
        for place in (here, there):
            with pytest.raises(InvalidInput) as refused:
                restore(tmp_path / "copy", **place)
            assert refused.value.code == "not_empty"
        assert [event.type for event in s.journal.read("order|1")] == ["Placed", "Kept"]


def test_a_file_where_one_is_to_be_put(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/here"):
        pass
    backup(tmp_path / "copy", f"sqlite:{tmp_path}/here")
    (tmp_path / "there").mkdir()
    for name in ("projections.db", "log.db"):
        (tmp_path / "there" / name).write_bytes(b"")
        with pytest.raises(InvalidInput, match="is there"):
            restore(tmp_path / "copy", f"sqlite:{tmp_path}/there")
        (tmp_path / "there" / name).unlink()
    restore(tmp_path / "copy", f"sqlite:{tmp_path}/there")


def test_another_kind_of_database(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/here"):
        pass
    backup(tmp_path / "copy", f"sqlite:{tmp_path}/here")
    with pytest.raises(Unsupported, match="is of sqlite") as refused:
        restore(tmp_path / "copy", "postgresql://nobody@127.0.0.1:1/nothing")
    assert refused.value.code == "backup"


@pytest.mark.req("RS4", "RS6")
def test_a_damaged_file_is_not_put_back(alike: Journals, tmp_path: Path) -> None:
    here, there = alike.place("here"), alike.place("there")
    with opened(here) as s:
        s.journal.append("order|1", [Event("Placed", "x" * 5000)])
    found = backup(tmp_path / "copy", **here)
    file = max((file for database in found.databases for file in database.files), key=lambda file: file.bytes)
    path = tmp_path / "copy" / file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match=file.name):
        restore(tmp_path / "copy", **there)
    with pytest.raises(SchemaMismatch):
        strandline.connect(**there, schema="check")


@pytest.mark.req("D4")
def test_nobody_else_may_read_it(alike: Journals, tmp_path: Path) -> None:
    here, there = alike.place("here"), alike.place("there")
    with opened(here) as s:
        s.journal.append("order|1", [Event("Placed", 1)])
    backup(tmp_path / "copy", **here)
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()} == {0o600}
    restore(tmp_path / "copy", **there)
    for path in tmp_path.glob("there/*.db"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_manifest_of_a_newer_program(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/here"):
        pass
    backup(tmp_path / "copy", f"sqlite:{tmp_path}/here")
    path = tmp_path / "copy" / manifest.NAME
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(SchemaMismatch) as refused:
        restore(tmp_path / "copy", f"sqlite:{tmp_path}/there")
    assert refused.value.code == "version"
    path.write_text("{}")
    with pytest.raises(Corrupt):
        restore(tmp_path / "copy", f"sqlite:{tmp_path}/there")


@pytest.mark.req("RS4", "RR6", "RR7")
@pytest.mark.parametrize(
    ("pointer", "end", "error"),
    [
        (Pointer(0, 5, 50), LogEnd(0, 5, 50), None),
        (Pointer(0, 5, 50), LogEnd(6, 9, 90), None),
        (Pointer(0), LogEnd(0, -1, 0), None),
        (Pointer(0, 6, 60), LogEnd(0, 5, 50), Corrupt),
        (Pointer(0, 5, 50), LogEnd(7, 9, 90), Unavailable),
    ],
)
def test_which_pairs_belong_together(pointer: Pointer, end: LogEnd, error: type[Exception] | None) -> None:
    if error is None:
        check_belongs(pointer, end)
        return
    with pytest.raises(error):
        check_belongs(pointer, end)


@pytest.mark.req("RS4", "RR6")
def test_the_log_of_another_store(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with strandline.connect(f"sqlite:{tmp_path}/{name}") as s:
            s.journal.append("order|1", [Event("Placed", 1)])
            carry(s)
    with pytest.raises(SchemaMismatch) as refused:
        backup(tmp_path / "copy", log=f"sqlite:{tmp_path}/one/log.db", store=f"sqlite:{tmp_path}/two/store.db")
    assert refused.value.code == "log_replaced"
    assert not (tmp_path / "copy").exists()
