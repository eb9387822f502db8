"""Values of every type come back as they were, and rows go to JSON and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest

from strandline.group.core.encoding import Opaque, decoded, encoded
from strandline.group.cql_steps import serialized
from strandline.group.statements.binding import Unbound
from strandline.group.target import Done, Failed, Limits, Rows, Undone
from tests.group.target_rooms import PostgresRoom, Stage

POSTGRES = {
    "numeric": ["'NaN'", "1.10", "123456789012345678901234567890.5", "'Infinity'"],
    "double precision": ["'NaN'", "0.1", "'-Infinity'", "-0.0"],
    "real": ["0.1", "1e-40"],
    "timestamptz": ["'infinity'", "'2024-02-29 12:00:00.000001+02'", "'20000-01-01'", "'0044-03-15 BC'"],
    "timestamp": ["'-infinity'", "'1999-12-31 23:59:59.999999'"],
    "date": ["'infinity'", "'9999-12-31'", "'10000-01-01'"],
    "time": ["'24:00'", "'00:00:00.000001'"],
    "timetz": ["'12:00+05:30'"],
    "interval": ["'1 mon -2 days 03:04:05.6'", "'-1 year'"],
    "jsonb": ['\'{"a": [1.10, null, "x"]}\''],
    "json": ['\'{"a":  1.0,"a": 2}\''],
    "integer[]": ["'{1,NULL,3}'", "'[0:1]={5,6}'"],
    "text[]": ["ARRAY['a\"b', 'c,d', NULL, '']"],
    "bytea": ["'\\x00ff'", "''"],
    "uuid": ["'00000000-0000-0000-0000-00000000000a'"],
    "inet": ["'10.0.0.1/24'"],
    "int4range": ["'[1,5)'", "'empty'"],
    "bit varying": ["B'0101'"],
    "char(5)": ["'ab'"],
    "mood": ["'happy'"],
    "pair": ["ROW(1, 'x y')"],
    "tsvector": ["'a:1 b:2'"],
    "point": ["'(1,2.5)'"],
    "boolean": ["true"],
}


@pytest.mark.req("G51", "G53", "G82", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_values_of_every_type_of_postgres_come_back(room: Any) -> None:
    room.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    room.execute("CREATE TYPE pair AS (a integer, b text)")
    columns = [f"c{n} {kind}" for n, kind in enumerate(POSTGRES)]
    room.execute(f"CREATE TABLE odd (id integer PRIMARY KEY, {', '.join(columns)})")
    most = max(map(len, POSTGRES.values()))
    for row in range(most):
        values = [given[row] if row < len(given) else "NULL" for given in POSTGRES.values()]
        room.execute(f"INSERT INTO odd VALUES ({row}, {', '.join(values)})")
    look = "SELECT odd::text FROM odd ORDER BY id"
    before = room.execute(look)
    stage = Stage(room)
    sets = ", ".join(f"c{n} = NULL" for n in range(len(columns)))
    for text in (f"UPDATE odd SET {sets}", "DELETE FROM odd WHERE id < 3", "INSERT INTO odd (id) VALUES (1)"):
        stage.done(text)
    stage.undo_all()
    assert room.execute(look) == before
    stage.works.clear()
    found = stage.rows("SELECT * FROM odd ORDER BY id")
    assert any(isinstance(value, Opaque) for row in found.rows for value in row), "what Python cannot hold"
    for row in found.rows:
        made = orjson.loads(orjson.dumps(encoded(list(row))))
        assert repr(encoded(decoded(made))) == repr(made)
    infinite = next(n for n, kind in enumerate(POSTGRES) if kind == "timestamptz")
    moment = found.rows[0][infinite + 1]
    assert moment == Opaque("timestamptz", "infinity")
    stage.done(f"UPDATE odd SET c{infinite} = :moment WHERE id = 1", {"moment": moment}, step="bound")
    assert room.execute(f"SELECT c{infinite} = 'infinity' FROM odd WHERE id = 1") == [(True,)]


@pytest.mark.req("G51", "G53", "G82", "RG2")
@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
def test_values_of_every_class_of_sqlite_come_back(room: Any) -> None:
    room.execute("CREATE TABLE odd (id integer PRIMARY KEY, v, t text, n numeric)")
    values = ["1", "1.0", "'1'", "x'31'", "NULL", "9e999", "-9223372036854775808", "'a\U0001f600'", "x''", "0.1"]
    for number, value in enumerate(values):
        room.execute(f"INSERT INTO odd VALUES ({number}, {value}, {value}, {value})")
    look = "SELECT id, typeof(v), quote(v), typeof(t), quote(t), typeof(n), quote(n) FROM odd ORDER BY id"
    before = room.execute(look)
    stage = Stage(room)
    for text in ("UPDATE odd SET v = 2, t = 'x', n = NULL", "DELETE FROM odd WHERE id > 3"):
        stage.done(text)
    stage.undo_all()
    assert room.execute(look) == before


@pytest.mark.req("G53")
def test_one_is_not_one_point_zero(room: Any) -> None:
    room.execute("CREATE TABLE num (id integer PRIMARY KEY, v numeric, w text)")
    if room.dialect == "sqlite":
        room.execute("DROP TABLE num")
        room.execute("CREATE TABLE num (id integer PRIMARY KEY, v, w text)")
    room.execute("INSERT INTO num VALUES (1, 5, 'a')")
    stage = Stage(room)
    stage.done("UPDATE num SET v = 1 WHERE id = 1")
    room.execute("UPDATE num SET v = 1.0 WHERE id = 1")
    assert not isinstance(stage.undo(), Undone), "somebody else wrote it"


STAMP = "UPDATE account SET name = 'stamped' WHERE id = new.id"
TRIGGERS = {
    "sqlite": [f"CREATE TRIGGER stamp AFTER UPDATE OF amount ON account BEGIN {STAMP}; END"],
    "postgres": [
        f"CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {STAMP}; RETURN NULL; END $$",
        "CREATE TRIGGER stamp AFTER UPDATE OF amount ON account FOR EACH ROW EXECUTE FUNCTION stamp()",
    ],
}


@pytest.mark.req("G55", "G56")
def test_what_a_trigger_does_to_its_own_row_is_undone_with_it(stage: Stage) -> None:
    before = stage.room.execute("SELECT * FROM account ORDER BY id")
    for text in TRIGGERS[stage.room.dialect]:
        stage.room.execute(text)
    text = "UPDATE account SET amount = 1 WHERE id = 1"
    assert not stage.plan(text).invertible
    stage.done(text, own_row_triggers=True)
    assert stage.room.execute("SELECT * FROM account WHERE id = 1") == [(1, "stamped", 1)]
    assert isinstance(stage.undo(), Undone)
    after = stage.room.execute("SELECT id, amount FROM account ORDER BY id")
    assert after == [(row[0], row[2]) for row in before]


@pytest.mark.req("G85", "G54", "G55")
def test_keys_indexes_and_foreign_keys_are_read(stage: Stage) -> None:
    stage.room.execute(
        "CREATE TABLE entry (a integer, b text, d integer UNIQUE, PRIMARY KEY (b, a), "
        "c integer REFERENCES account (id) ON DELETE SET NULL)"
        if stage.room.dialect == "postgres"
        else "CREATE TABLE entry (a integer, b text, c integer REFERENCES account (id) ON DELETE SET NULL, "
        "d integer UNIQUE, PRIMARY KEY (b, a))"
    )
    stage.room.execute("CREATE VIEW rich AS SELECT * FROM account")
    stage.room.execute("CREATE TABLE bare (a integer)")
    found = stage.target.tables(["entry", "account", "rich", "bare"])
    entry, account = found["entry"], found["account"]
    assert (entry.key, entry.unique) == (("b", "a"), (("d",),))
    (key,) = entry.foreign
    assert (key.columns, key.parent_columns, key.carries_on) == (("c",), ("id",), ("delete",))
    assert account.children == entry.foreign
    assert found["rich"].what == "view"
    assert found["bare"].key == ()
    for text in ("DELETE FROM account WHERE id = 1", "UPDATE rich SET amount = 1", "UPDATE bare SET a = 1"):
        assert not stage.plan(text).invertible, text


@pytest.mark.req("G35")
def test_a_text_that_is_no_uuid_cannot_be_bound_to_one() -> None:
    kind = pytest.importorskip("cassandra.cqltypes").UUIDType
    with pytest.raises(Unbound, match="'x' is no uuid"):
        serialized(kind, "x")


ODD = [
    {1, 2}, frozenset({"a"}), (1, 2), {"a": b"x"}, {1: 2}, 2**80, "a\0b", "\ud800", Decimal("sNaN"),
    Opaque("point", "?"),
    [None, {}], [[1], [2, 3]], memoryview(b"x"), dt.timedelta(days=10**6), float("nan"), UUID(int=1), b"",
    [b"\xff", "\ud800"],
]  # fmt: skip


@pytest.mark.req("G5", "G35")
@pytest.mark.parametrize("column", ["name", "amount", "id"])
def test_whatever_is_bound_is_done_or_refused(stage: Stage, column: str) -> None:
    """Nothing that a definition can have as a value is an error of the driver's, which would end the processor."""
    for value in ODD:
        encoded(value)
        found = [stage.run(f"UPDATE account SET amount = 1 WHERE {column} = :v", {"v": value})]
        found.append(stage.rows(f"SELECT name FROM account WHERE {column} IN :v", {"v": [value, value]}))
        found.append(stage.rows("SELECT name FROM account WHERE CAST(:v AS text) IS NOT NULL", {"v": value}))
        if column != "id":
            found.append(stage.run(f"UPDATE account SET {column} = :v WHERE id = 1", {"v": value}))
        assert all(isinstance(one, (Done, Rows, Failed)) for one in found), value
        assert not any(isinstance(one, Failed) and one.retry for one in found), value


@pytest.mark.req("G17", "G72")
@pytest.mark.parametrize("known", [False, True])
def test_one_connection_gives_rows_one_by_one_and_then_all_at_once(shop: str, known: bool) -> None:
    """A query of any rows, then one of a row by its key, then a step: on the same connection."""
    room = PostgresRoom(shop)
    room.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer)")
    room.execute("INSERT INTO account VALUES (1, 1), (2, 2)")
    room.target, other = room.again(connections=1), room.target
    stage = Stage(room)
    many, one = "SELECT id FROM account WHERE amount > 0 ORDER BY id", "SELECT id FROM account WHERE id = 1"
    plans = {text: stage.plan(text) for text in (many, one)}
    if not known:
        room.target.close()  # type: ignore[attr-defined]
        stage.target = room.target = room.again(connections=1)
    for _ in range(3):
        for text in (many, one):
            found = stage.target.query(plans[text], {}, Limits())
            assert found.rows == (((1,), (2,)) if text == many else ((1,),))
        stage.done("UPDATE account SET amount = amount + 1 WHERE id = 1")
    other.close()  # type: ignore[attr-defined]
    room.close()
