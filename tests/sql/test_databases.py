"""The contract of a part's database, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from strandline.errors import StrandlineError
from strandline.sql.api import Database
from tests.sql.places import NOTES, STAMPS, Place, sqlite_place

NOTE = ("a", 1, True, 0.5, b"\0\xff")
OTHER = ("b", None, False, 2.0, None)


def names(database: Database) -> list[str]:
    return [row[0] for row in database.rows("all")]


def test_values_come_back_as_they_went(place: Place) -> None:
    database = place.open()
    with database.write() as tx:
        assert tx.execute("add", NOTE) == 1
        tx.each("add", [OTHER, ("ü|\0"[:2], -(2**63), True, 1e300, b"")])
        assert tx.rows("all") == [NOTE, OTHER, ("ü|", -(2**63), True, 1e300, b"")]
        assert tx.execute("finish", (1, False)) == 2
    assert database.rows("all", often=True)[0] == ("a", 1, False, 0.5, b"\0\xff")
    assert database.dialect == tx.dialect


@pytest.mark.parametrize("often", [False, True])
def test_a_list_is_an_array(place: Place, often: bool) -> None:
    database = place.open()
    with database.write() as tx:
        tx.each("add", [(str(number), number, True, 0.0, None) for number in range(5)])
        assert tx.rows("numbered", ([0, 3, 99],)) == [("0",), ("3",)]
    assert database.rows("numbered", ([4],), often=often) == [("4",)]
    assert database.rows("numbered", ([],), often=often) == []


def test_many_rows_at_once(place: Place) -> None:
    database = place.open()
    rows = [
        (f"{number:05}", number if number % 3 else None, number % 2 == 0, 1.5, b"x" * number)
        for number in range(14, 2500)
    ]
    with database.write() as tx:
        given = tx.many("add_many", rows, 2.0)
        assert sorted(given) == [(row[0],) for row in rows]
        assert tx.many("add_many", [], 2.0) == []
    assert database.rows("all") == [(*row[:3], 3.0, row[4]) for row in rows]


def test_a_statement_with_each_of_many_values(place: Place) -> None:
    database = place.open()
    with database.write() as tx:
        tx.many("add_many", [(f"{number:05}", number, True, 1.5, b"x" * 50) for number in range(14, 1200)], 2.0)
    asked = [[], [17, 15], list(range(14, 1000)), [5000], list(range(100, 201))]
    expected = [[(f"{number:05}",) for number in sorted(some) if number < 1200] for some in asked]
    assert database.rows_each("numbered", [(some,) for some in asked]) == expected
    assert database.rows_each("numbered", []) == []


def test_an_exception_undoes_all(place: Place) -> None:
    database = place.open()

    def add(*notes: tuple[Any, ...], raising: type[Exception] | None = None) -> None:
        with database.write() as tx:
            for note in notes:
                tx.execute("add", note)
            if raising is not None:
                raise raising

    with pytest.raises(KeyError):
        add(NOTE, raising=KeyError)
    with pytest.raises(StrandlineError):
        add(NOTE, NOTE)
    assert names(database) == []
    with database.write() as tx:
        tx.execute("add", NOTE)
    assert names(database) == ["a"]


def test_a_read_sees_one_moment(place: Place) -> None:
    database, other = place.open(), place.open()
    with database.read() as tx:
        assert tx.rows("all") == []
        with other.write() as writing:
            writing.execute("add", NOTE)
        assert tx.rows("all") == []
    assert names(database) == ["a"]


def test_nothing_is_written_in_a_read(place: Place) -> None:
    database = place.open()
    with pytest.raises(Exception, match=r"(?i)read"), database.read() as tx:
        tx.execute("add", NOTE)
    assert names(database) == []


def test_parts_share_a_place_and_keep_their_own_steps_and_settings(place: Place) -> None:
    notes = place.open(fixed={"colour": "red"})
    stamps = place.open(STAMPS, fixed={"colour": "blue"})
    again = place.open(fixed={"colour": "green"}, schema="check")
    assert (notes.fixed["colour"], stamps.fixed["colour"], again.fixed["colour"]) == ("red", "blue", "red")
    assert notes.fixed["database_id"] == again.fixed["database_id"] != stamps.fixed["database_id"]
    with again.write() as tx:
        tx.execute("add", NOTE)
    assert names(notes) == ["a"]
    assert stamps.rows("stamps") == []


def test_a_part_that_is_not_there_is_said_to_be_missing(place: Place) -> None:
    place.open(STAMPS)
    with pytest.raises(StrandlineError) as caught:
        place.open(schema="check")
    assert caught.value.name == "SchemaMismatch.no_schema"
    assert "note" in caught.value.message


def test_a_step_that_is_missing_is_refused_until_it_is_done(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.backends import backend_of
    from strandline.backends.postgres import schema as of_databases
    from strandline.backends.sqlite import schema as of_files
    from strandline.settings import Settings
    from strandline.sql.steps import steps_of

    with monkeypatch.context() as older:
        for module in (of_databases, of_files):
            older.setattr(module, "steps_of", lambda *given: steps_of(*given)[:1])
        of_files.schema_of.cache_clear()
        place.open()
    of_files.schema_of.cache_clear()
    with pytest.raises(StrandlineError) as caught:
        place.open()
    assert (caught.value.name, caught.value.hint) == ("SchemaMismatch.version", "strandline schema upgrade")
    assert "002_by_number" in caught.value.message
    backend = backend_of(place.url)
    assert backend.upgrade(place.url, NOTES, Settings()) == ["002_by_number"]
    assert backend.describe(place.url, NOTES, Settings()).done == ["001_note", "002_by_number"]
    assert names(place.open()) == []


def test_who_watches_is_woken_by_another(place: Place) -> None:
    database, other = place.open(), place.open()

    def work() -> None:
        with other.write() as tx:
            tx.execute("add", NOTE)
            tx.notify("noted")

    with database.watch("noted") as watch:
        seen, began = watch.seen(), time.monotonic()
        thread = threading.Timer(0.05, work)
        thread.start()
        while not names(database):
            watch.wait(seen, 30.0)
            seen = watch.seen()
        thread.join()
        assert time.monotonic() - began < 20, "it was the end of its patience that woke it"
        seen = watch.seen()
        while watch.wait(seen, 0.2):  # what is told twice
            seen = watch.seen()
    watch.close()


def test_a_commit_between_look_and_wait_is_not_missed(place: Place) -> None:
    database, other = place.open(), place.open()
    with database.watch("noted", interval_s=30.0) as watch:
        seen = watch.seen()
        with other.write() as tx:
            tx.execute("add", NOTE)
            tx.notify("noted")
        assert watch.wait(seen, 20.0)


def test_a_closed_database_is_refused(place: Place) -> None:
    database = place.open()
    watch = database.watch("noted")
    database.close()
    database.close()

    def calls() -> list[Any]:
        return [
            lambda: database.rows("all"),
            lambda: database.read().__enter__(),
            lambda: database.write().__enter__(),
            lambda: database.watch("noted"),
            database.check,
        ]

    for call in calls():
        with pytest.raises(StrandlineError) as caught:
            call()
        assert caught.value.name == "InvalidInput.closed"
    watch.close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_has_what_its_part_asks_for(tmp_path: Path, shared: bool) -> None:
    with ExitStack() as held:
        place = sqlite_place(tmp_path, held)
        if shared:
            place.open(STAMPS)
        database = place.open(NOTES._replace(pragmas={"auto_vacuum": "incremental"}))
        with database.read() as tx:
            assert isinstance(tx.raw, apsw.Connection)
            assert (tx.raw.pragma("auto_vacuum"), tx.raw.pragma("journal_mode")) == (2, "wal")
        assert names(database) == []


@pytest.mark.parametrize("call", [names, lambda database: database.write().__enter__()], ids=["read", "write"])
def test_closed_by_another_thread_between_check_and_use(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: Callable[[Database], object]
) -> None:
    """A call that was let in is answered, or told that it is closed; never in the words of a driver."""
    database = place.open()
    assert names(database) == []  # a connection is idle now
    held, check = (database, "_check_open") if place.url.path else (database._pool, "check")  # type: ignore[attr-defined]
    before = getattr(held, check)

    def closed_after() -> None:
        before()
        monkeypatch.undo()
        database.close()

    monkeypatch.setattr(held, check, closed_after)
    code = None
    try:
        call(database)
    except StrandlineError as error:
        code = error.code
    assert code in (None, "closed")
