"""Verify: every planted damage is named with its place and extent; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from strandline import Corrupt, Event
from strandline.backup import backup, verify, verify_backup
from strandline.store.tables import DECLARED
from strandline.testing import carry
from tests.acceptance.cli_call import call
from tests.backup.conftest import Journals, opened, words

KEY = "order|1"


def filled(place: dict[str, Any]) -> None:
    with opened(place) as s:
        for number in range(6):
            s.journal.append(f"order|{number % 3}", [Event("Placed", {"n": number}, tags=["blue"])])
        carry(s)
        s.journal.append(KEY, [Event("Placed", {"n": 6})])


# What is done to a file or a schema, and what is then said of it.
PLANTED: list[tuple[str, str, str, str]] = [
    ("store", "UPDATE {}metajournal SET seq_nr = 9 WHERE key = 'order|1'", "table metajournal", "order|1"),
    ("store", "UPDATE {}pointer SET log_offset = -5 WHERE partition = 0", "table pointer", "partition 0"),
    ("store", "DELETE FROM {}journal WHERE key = 'order|1' AND seq_nr = 2", "store", "order|1, life 1, events 2"),
    ("store", "UPDATE {}journal SET digest = digest + 1 WHERE key = 'order|1' AND seq_nr = 1", "store", "order|1"),
    ("store", "DELETE FROM {}tag_view WHERE key = 'order|2'", "view of tag blue", "order|2"),
    ("store", "UPDATE {}tag_progress SET seq_nr = 7 WHERE key = 'order|0'", "table tag_progress", "order|0"),
    ("log", "DELETE FROM {}ACTION WHERE key = 'order|1' AND first = 1", "of the log", "offset"),
    ("log", "UPDATE {}ACTION SET header = value WHERE key = 'order|1' AND first = 2", "of the log", "offset"),
    ("log", "UPDATE {}ACTION SET value = header WHERE key = 'order|1' AND first = 3", "of the log", "offset"),
    ("log", "UPDATE {}ACTION SET first = 4, last = 4 WHERE key = 'order|1' AND first = 3", "of the log", "offset"),
    ("log", "UPDATE {}ACTION SET timestamp = 5 WHERE key = 'order|1' AND first = 3", "of the log", "offset"),
    ("log", "HEAD", "heads of the log", "order|"),
]
HEADS = {
    "sqlite": "UPDATE latest SET digest = digest + 1",
    "postgres": "UPDATE {}log_head SET digest = digest + 1",
}


def planter(journals: Journals, place: dict[str, Any]) -> Callable[[str, str], None]:
    def plant(part: str, statement: str) -> None:
        statement = HEADS[journals.name] if statement == "HEAD" else statement
        if journals.name == "sqlite":
            connection = apsw.Connection(str(journals.folder / "here" / f"{part}.db"))
            connection.execute(statement.format("").replace("ACTION", "action"))
            connection.close()
            return
        with psycopg.connect(place["url"]) as server:
            server.execute(statement.format("strandline.").replace("ACTION", "log_action").encode())

    return plant


CASES = [
    *[("sqlite", *one) for one in PLANTED],
    *[("postgres", *one) for one in (PLANTED[0], PLANTED[2], PLANTED[7], PLANTED[11])],
]


@pytest.mark.req("RS6", "RA12")
@pytest.mark.parametrize(("alike", "part", "statement", "where", "extent"), CASES, indirect=["alike"])
def test_each_damage_is_named(
    alike: Journals, tmp_path: Path, part: str, statement: str, where: str, extent: str
) -> None:
    here = alike.place("here")
    filled(here)
    planter(alike, here)(part, statement)
    said = verify(**here).damages
    assert any(where in one.place and extent in one.extent for one in said), said
    assert "order|0" not in str([one for one in said if part == "store" and "order|1" in statement])
    if part == "log" and alike.name == "sqlite" and "DELETE" in statement:
        return  # its copy has no such record either, and SQLite's own check finds nothing
    if where == "table pointer":
        with pytest.raises(Corrupt, match="pointer 0"):
            backup(tmp_path / "copy", **here)
        return
    backup(tmp_path / "copy", **here)
    said = verify_backup(tmp_path / "copy").damages
    assert any(where in one.place and extent in one.extent for one in said), said


@pytest.mark.req("RS6")
def test_a_whole_journal_stays_as_it_is(alike: Journals, tmp_path: Path) -> None:
    here = alike.place("here")
    filled(here)

    def digests() -> dict[str, Any]:
        if alike.name == "sqlite":
            return {path.name: sha256(path.read_bytes()).hexdigest() for path in (alike.folder / "here").glob("*.db")}
        with psycopg.connect(here["url"]) as server:
            tables = server.execute("SELECT relname FROM pg_stat_user_tables").fetchall()
            return {
                name: sorted(map(str, server.execute(f"SELECT * FROM strandline.{name}".encode()).fetchall()))
                for (name,) in tables
            }

    before = digests()
    report = verify(**here)
    assert report.to_dict()["damages"] == []
    assert (report.events, report.keys, report.tag_rows, report.heads) == (6, 3, 6, 3)
    assert report.records >= 7
    assert report.rows > 6
    assert digests() == before


@pytest.mark.req("RS6")
def test_damaged_bytes_of_a_file(tmp_path: Path) -> None:
    here: dict[str, Any] = {"url": f"sqlite:{tmp_path}/here"}
    filled(here)
    path = tmp_path / "here" / "store.db"
    data = bytearray(path.read_bytes())
    at = data.rindex(b"order|1")
    page = at // 4096
    data[page * 4096 : page * 4096 + 12] = b"\xff" * 12
    path.write_bytes(data)
    (damage, *_) = verify(**here).damages
    assert damage.place == str(path)
    assert damage.extent


@pytest.mark.req("RS6")
def test_damaged_files_of_a_backup(alike: Journals, tmp_path: Path) -> None:
    here = alike.place("here")
    filled(here)
    found = backup(tmp_path / "copy", **here)
    names = [file.name for database in found.databases for file in database.files if file.bytes > 100]
    first, second = (tmp_path / "copy" / names[0]), (tmp_path / "copy" / names[-1])
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    damages = verify_backup(tmp_path / "copy").damages
    assert [damage.place for damage in damages] == [first.name, second.name]
    assert "bytes" in damages[0].wrong
    assert "cannot be read" in damages[1].wrong


def test_tables_that_this_store_does_not_keep_are_no_matter(tmp_path: Path) -> None:
    """A table of another store's view is declared in the same process."""
    from tests.store.made_up import MADE_UP

    assert {table.name for table in MADE_UP.tables} <= set(DECLARED)
    here: dict[str, Any] = {"url": f"sqlite:{tmp_path}/here"}
    filled(here)
    assert verify(**here).damages == []


@pytest.mark.req("RS6")
def test_a_changed_manifest(tmp_path: Path) -> None:
    here: dict[str, Any] = {"url": f"sqlite:{tmp_path}/here"}
    filled(here)
    found = backup(tmp_path / "copy", **here)
    path = tmp_path / "copy" / "manifest.json"
    pointer = next(offset for offset in found.pointers if offset > 0)
    at = path.read_text().index('"pointers"')
    text = path.read_text()
    path.write_text(text[:at] + text[at:].replace(str(pointer), "0", 1))
    (damage,) = verify_backup(tmp_path / "copy").damages
    assert damage.place == "manifest.json"


@pytest.mark.req("RS4", "RS6")
def test_on_the_command_line(alike: Journals, tmp_path: Path) -> None:
    here, there = words(alike.place("here")), words(alike.place("there"))
    assert call("append", KEY, *here, stdin=b'{"type": "Placed", "payload": 1}\n').code == 0
    copy = str(tmp_path / "copy")
    taken = call("backup", copy, *here, "--json")
    assert taken.code == 0, taken.err
    (facts,) = taken.lines
    assert {"moment", "strandline", "ends", "pointers", "parts", "bytes"} <= facts.keys()
    assert "all that was acknowledged before 20" in call("backup", f"{copy}2", *here).out
    again = call("backup", copy, *here, "--json")
    assert (again.code, again.name) == (2, "InvalidInput.not_empty")
    proved = call("verify", copy, "--json")
    assert (proved.code, proved.lines[0]["damaged"]) == (0, 0), proved
    restored = call("restore", copy, *there, "--json")
    assert restored.code == 0, restored.err
    assert restored.lines[0]["moment"] == facts["moment"]
    assert restored.lines[0]["log_id"] != facts["copied_log_id"]
    assert call("read", KEY, *there, "--json").lines[0]["payload"] == 1
    assert call("verify", *there).out.endswith("no damage\n")
    manifest = tmp_path / "copy" / "manifest.json"
    manifest.rename(tmp_path / "taken-away")
    assert (call("verify", copy, "--json").code, call("restore", copy, *there).code) == (5, 5)
    (tmp_path / "taken-away").rename(manifest)
    data = [path for path in (tmp_path / "copy").iterdir() if path != manifest]
    max(data, key=lambda path: path.stat().st_size).write_bytes(b"")
    broken = call("verify", copy)
    assert broken.code == 5
    assert broken.out.endswith("1 damage\n")
    assert call("verify", copy, *there).code == 2


@pytest.mark.req("RS6")
def test_a_folder_that_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="no whole backup"):
        verify_backup(tmp_path)
    with pytest.raises(Corrupt, match="no whole backup"):
        verify_backup(tmp_path / "nothing")
