"""Values of every type come back as they were, and rows go to JSON and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest

from strandline.errors import InvalidInput
from strandline.group.core.encoding import Opaque, decoded, encoded
from strandline.group.statements import held
from strandline.group.statements.binding import Unbound
from strandline.group.target import Done, Failed, Limits, Rows, Undone
from strandline.group.targets.cql import serialized
from tests.group.target_rooms import PostgresRoom, Stage

POSTGRES = {
    "numeric": ["'NaN'", "1.10", "123456789012345678901234567890.5", "'Infinity'"],
    "double precision": ["'NaN'", "0.1", "'-Infinity'", "-0.0"],
    "real": ["0.1", "1e-40"],
    "timestamptz": ["'infinity'", "'2024-02-29 12:00:00.000001+02'", "'20000-01-01'", "'0044-03-15 BC'"],
    "timestamp": ["'-infinity'", "'1999-12-31 23:59:59.999999'"],
    "date": ["'infinity'", "'9999-12-31'", "'10000-01-01'"],
    "time": ["'24:00'", "'00:00:00.000001'"],
    "timetz": ["'12:00+05:30'", "'24:00:00+15:59'"],
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
    stage.segments.clear()
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


@pytest.mark.req("G55")
def test_a_table_with_a_trigger_needs_a_given_undo(stage: Stage) -> None:
    for text in TRIGGERS[stage.room.dialect]:
        stage.room.execute(text)
    made = stage.plan("UPDATE account SET amount = 1 WHERE id = 1")
    assert [obstacle.text.rpartition(".")[2] for obstacle in made.obstacles] == ["account has the trigger stamp"]
    stage.done("UPDATE account SET amount = 1 WHERE id = 1", undo=False)
    assert stage.room.execute("SELECT * FROM account WHERE id = 1") == [(1, "stamped", 1)]


@pytest.mark.req("G54")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_table_that_others_inherit_from_is_no_view(stage: Stage) -> None:
    stage.room.execute("CREATE TABLE special (more text) INHERITS (account)")
    (obstacle,) = stage.plan("DELETE FROM account").obstacles
    assert obstacle.text == "public.account has tables that inherit from it"


INDEXES = {
    "CREATE UNIQUE INDEX one ON account (name) WHERE amount > 0": {"name", "amount"},
    "CREATE UNIQUE INDEX one ON account (lower(name))": {"name"},
    "CREATE UNIQUE INDEX one ON account (name)": {"name"},
    "ALTER TABLE account ADD EXCLUDE USING btree (amount WITH =)": {"amount"},
    "ALTER TABLE account ADD EXCLUDE USING btree (amount WITH =) WHERE (name IS NOT NULL)": {"name", "amount"},
}


@pytest.mark.req("G62")
@pytest.mark.parametrize(
    ("room", "index"),
    [
        (room, index)
        for index in INDEXES
        for room in ("sqlite", "postgres")
        if room == "postgres" or "EXCLUDE" not in index
    ],
    indirect=["room"],
)
def test_rows_that_an_index_couples_are_the_same_rows(stage: Stage, index: str) -> None:
    stage.room.execute("ALTER TABLE account ADD COLUMN note text")
    stage.room.execute(index)
    coupled = set()
    for column in ("name", "amount", "note"):
        made = stage.plan(f"UPDATE account SET {column} = NULL WHERE id = 1")
        if len(held(made, {})[0].place) == 1:
            coupled.add(column)
    assert coupled == INDEXES[index]


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
        assert stage.plan(text).obstacles, text


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
def test_one_connection_serves_queries_of_any_rows_of_one_row_and_steps(shop: str, known: bool) -> None:
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


# ---------------------------------------------------------------- values that nobody can hold


DEEP = "[" * 5000 + "]" * 5000
LONG = "9" * 5000


@pytest.mark.req("G82", "G5")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_json_that_python_cannot_hold_stays_text(room: Any) -> None:
    room.execute("CREATE TABLE odd (id integer PRIMARY KEY, j jsonb, at timetz)")
    room.execute("INSERT INTO odd VALUES (1, $1, '24:00:00+15:59'), (2, $2, '24:00'), (3, $3, NULL)", (DEEP, LONG, "1"))
    stage = Stage(room)
    found = stage.rows("SELECT j, at FROM odd ORDER BY id")
    assert isinstance(found, Rows), found
    assert [row[0] for row in found.rows] == [Opaque("jsonb", DEEP), Opaque("jsonb", LONG), 1]
    assert [row[1] for row in found.rows[:2]] == [Opaque("timetz", f"24:00:00+{zone}") for zone in ("15:59", "00")]
    for row in found.rows:
        assert decoded(orjson.loads(orjson.dumps(encoded(list(row))))) == list(row)
    done = stage.done("UPDATE odd SET j = '0', at = NULL RETURNING j, at")
    assert done.affected == 3
    stage.done("DELETE FROM odd RETURNING j")
    stage.done("INSERT INTO odd VALUES (4, :deep, :at)", {"deep": found.rows[0][0], "at": found.rows[0][1]})
    stage.undo_all()
    assert stage.rows("SELECT j, at FROM odd ORDER BY id") == found


@pytest.mark.req("G5", "G82")
@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "text",
    ["SELECT name FROM account", "UPDATE account SET name = 'x'", "DELETE FROM account",
     "UPDATE account SET amount = 1 RETURNING name"],
)  # fmt: skip
def test_a_text_that_is_not_utf_8_fails_its_step_alone(stage: Stage, text: str) -> None:
    stage.room.execute("UPDATE account SET name = CAST(x'ff' AS text) WHERE id = 2")
    look = "SELECT id, hex(name), amount FROM account ORDER BY id"
    before = stage.room.execute(look)
    found = stage.rows(text) if text.startswith("SELECT") else stage.run(text)
    assert isinstance(found, Failed), found
    assert (found.reason, found.retry) == ("statement", False)
    assert "UTF-8" in found.detail
    assert stage.room.execute(look) == before
    assert stage.done("UPDATE account SET amount = 5 WHERE id = 1").affected == 1


@pytest.mark.req("G5")
@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
def test_a_statement_that_fails_among_its_rows_is_in_nobodys_way(stage: Stage) -> None:
    """Its error is still held by somebody: a cursor that stays open with it would fail the next step's commit."""
    work = stage.segment(
        "INSERT INTO account VALUES (7, 'a', 1), (8, 'b', 2) RETURNING CAST(x'ff' AS text)", undo=False
    )
    with pytest.raises(Exception, match=r"(?i)utf-8") as held:
        stage.target.changing(work.steps[0].limits, lambda changes: stage.target._do(changes, work.steps[0]))
    assert stage.done("UPDATE account SET amount = amount + 1 WHERE id = 1").affected == 1
    assert held.tb is not None


@pytest.mark.req("G7", "G82")
def test_values_that_are_too_deep_or_too_long_are_refused_as_input() -> None:
    round_: list[Any] = []
    round_.append(round_)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (round_, deep, {"a": {"b": round_}}, 10**5000, {1: deep}, {(1,): [10**5000]}):
        with pytest.raises(InvalidInput) as caught:
            encoded(value)
        assert caught.value.code in {"payload_type", "too_deep"}
    fine: Any = 1
    for _ in range(100):
        fine = [fine]
    assert decoded(orjson.loads(orjson.dumps(encoded(fine)))) == fine
