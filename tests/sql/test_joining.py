"""A caller's own transaction, joined: on SQLite and PostgreSQL alike."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from psycopg.types.numeric import IntDumper
from psycopg.types.string import TextBinaryLoader

from strandline.errors import StrandlineError
from strandline.sql.api import Database
from tests.sql.places import STAMPS, Place, commit, postgres_place, sqlite_place, undo

NOTE = ("a", 1, True, 0.5, b"\0\xff")


def names(database: Database) -> list[str]:
    return [row[0] for row in database.rows("all")]


def add(database: Database, tx: object, *notes: tuple[Any, ...], raising: type[Exception] | None = None) -> None:
    with database.join(tx) as joined:
        for note in notes:
            joined.execute("add", note)
        if raising is not None:
            raise raising


def refusal(database: Database, tx: object) -> str:
    with pytest.raises(StrandlineError) as caught, database.join(tx):
        pass
    assert caught.value.hint
    return caught.value.name


@pytest.mark.parametrize("what", ["connection", "cursor", "wrapped"])
def test_it_is_done_when_the_caller_commits(place: Place, what: str) -> None:
    database = place.open()
    with place.caller() as connection:
        tx: object = connection.cursor() if what == "cursor" else connection
        if what == "wrapped":
            tx = type("Handed", (), {"raw": connection})()
        with database.join(tx) as joined:
            assert joined.execute("add", NOTE) == 1
            joined.many("add_many", [("b", 2, False, 1.0, None)], 1.0)
            joined.notify("noted")
            assert joined.rows("all") == [NOTE, ("b", 2, False, 1.0, None)]
            assert joined.dialect == database.dialect
        assert names(database) == []
        commit(connection)
        assert names(database) == ["a", "b"]


def test_it_is_undone_with_the_caller(place: Place) -> None:
    database = place.open()
    with place.caller() as connection:
        with database.join(connection) as joined:
            joined.execute("add", NOTE)
        undo(connection)
    assert names(database) == []


def test_an_exception_undoes_what_was_done_here_alone(place: Place) -> None:
    database = place.open()
    with place.caller() as connection:
        add(database, connection, NOTE)
        with pytest.raises(KeyError):
            add(database, connection, ("b", *NOTE[1:]), raising=KeyError)
        with pytest.raises(StrandlineError):
            add(database, connection, ("c", *NOTE[1:]), NOTE)
        add(database, connection, ("d", *NOTE[1:]))
        commit(connection)
    assert names(database) == ["a", "d"]


def test_a_transaction_of_another_part_is_joined(place: Place) -> None:
    """As a projection's handler adds work: two parts, one commit."""
    database, stamps = place.open(), place.open(STAMPS)
    with pytest.raises(KeyError), stamps.write() as tx:
        add(database, tx, NOTE, raising=KeyError)
    assert names(database) == []
    with stamps.write() as tx:
        tx.execute("add_stamp", ("x",))
        with database.join(tx) as joined:
            joined.execute("add", NOTE)
        assert tx.rows("stamps") == [("x",)]
        assert names(database) == []
    assert names(database) == ["a"]
    with stamps.write(isolation="serializable") as tx:
        if tx.dialect == "sqlite":
            add(database, tx, ("b", *NOTE[1:]))
        else:
            assert refusal(database, tx) == "InvalidInput.tx_foreign"


def test_another_database_is_refused_and_its_transaction_goes_on(places: tuple[Place, Place]) -> None:
    ours, theirs = places
    database, other = ours.open(), theirs.open()
    with theirs.caller() as connection:
        # A server has both in one database: there what is refused is a transaction that cannot reach ours.
        if database.dialect == "sqlite":
            assert refusal(database, connection) == "InvalidInput.tx_foreign"
        with other.join(connection) as joined:
            joined.execute("add", NOTE)
        commit(connection)
    assert (names(database), names(other)) == ([], ["a"])


def test_another_database_of_a_server_is_refused(postgres: Any) -> None:
    with ExitStack() as held:
        database = postgres_place(postgres, held).open()
        with psycopg.connect(postgres.database()) as connection:
            connection.execute("CREATE TABLE theirs (x integer)")
            assert refusal(database, connection) == "InvalidInput.tx_foreign"
            schema = database.schema.name  # type: ignore[attr-defined]
            connection.execute(f"CREATE SCHEMA {schema}")
            connection.execute(f"CREATE TABLE {schema}.note_setting (name text, value text)")
            connection.execute(f"INSERT INTO {schema}.note_setting VALUES ('database_id', 'another')")
            assert refusal(database, connection) == "InvalidInput.tx_foreign"
            connection.execute("INSERT INTO theirs VALUES (1)")  # it was not spoilt
            connection.commit()


def test_what_cannot_be_joined(place: Place) -> None:
    database = place.open()
    for tx in (None, 1, "tx", database, object()):
        assert refusal(database, tx) == "InvalidInput.tx_foreign"
    with place.caller() as connection:
        pass
    assert refusal(database, connection) == "InvalidInput.tx_foreign"  # closed
    with place.caller() as connection:
        database.close()
        assert refusal(database, connection) == "InvalidInput.closed"


@pytest.mark.req("W72")
def test_in_autocommit_it_is_refused_until_a_transaction_is_open(place: Place) -> None:
    """What is done there would be committed at once, whatever the caller does next."""
    database = place.open()
    with place.caller() as connection:
        undo(connection)
        if database.dialect == "postgres":
            connection.autocommit = True
        assert refusal(database, connection) == "InvalidInput.tx_idle"
        assert names(database) == []
        connection.execute("BEGIN")
        add(database, connection, NOTE)
        assert names(database) == []
        connection.execute("COMMIT")
        assert names(database) == ["a"]


def test_a_failed_transaction_of_a_server_is_refused(postgres: Any) -> None:
    with ExitStack() as held:
        place = postgres_place(postgres, held)
        database = place.open()
        with place.caller() as connection:
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT 1 / 0")
            assert refusal(database, connection) == "InvalidInput.tx_foreign"
            connection.rollback()
            with connection.pipeline():
                assert refusal(database, connection) == "InvalidInput.tx_foreign"
            with connection.transaction(), database.join(connection) as joined:
                joined.execute("add", NOTE)
        assert names(database) == ["a"]


def test_whatever_a_caller_makes_of_rows(place: Place) -> None:
    database = place.open()
    with place.caller() as connection:
        if isinstance(connection, apsw.Connection):
            connection.row_trace = lambda _, row: {"row": row}
            connection.exec_trace = lambda *_: True
        else:
            connection.adapters.register_loader("int8", TextBinaryLoader)
            connection.adapters.register_dumper(str, IntDumper)
            connection.row_factory = psycopg.rows.scalar_row
        with database.join(connection) as joined:
            joined.execute("add", NOTE)
            assert joined.rows("all") == [NOTE]
        commit(connection)
    assert database.rows("all") == [NOTE]


def test_an_attached_file_is_not_joined(tmp_path: Path) -> None:
    """Commits of two files are not one commit in WAL mode."""
    with ExitStack() as held:
        database = sqlite_place(tmp_path, held).open()
        connection = apsw.Connection(":memory:")
        held.callback(connection.close)
        connection.execute("ATTACH ? AS ours", (database.where,))
        connection.execute("BEGIN")
        assert refusal(database, connection) == "InvalidInput.tx_foreign"
