"""Tables of every kind: whatever a step may undo leaves them as they were, to the last byte; the rest it refuses."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from strandline.errors import StrandlineError
from strandline.group.statements import held
from strandline.group.target import Done, Failed, Limits, NotUndone, Undone
from tests.group.conftest import ACCOUNTS
from tests.group.target_rooms import Stage
from tests.group.test_sql_schedules import between

CASCADE = "REFERENCES {} ON DELETE CASCADE"
PARTED = [
    "CREATE TABLE t (id integer PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
    "INSERT INTO t VALUES (1, 'a'), (12, 'b')",
]
UPSERT = "INSERT INTO t VALUES ({}, 'z') ON CONFLICT (id) DO UPDATE SET v = excluded.v"
Case = tuple[list[str], list[Any]]

POSTGRES: dict[str, Case] = {
    "a key is rounded": (
        ["CREATE TABLE t (id integer PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"],
        [(UPSERT.format(":k"), {"k": 1.4}), UPSERT.format("2.4"),
         "INSERT INTO t (id) VALUES ((SELECT max(id) + 0.2 FROM t)) ON CONFLICT (id) DO UPDATE SET v = 'y'"],
    ),
    "a key is cut": (
        ["CREATE TABLE t (id varchar(3) PRIMARY KEY, v text)", "INSERT INTO t VALUES ('abc', 'a')"],
        [(UPSERT.format(":k"), {"k": "abc   "}),
         "INSERT INTO t (id) VALUES ('abc ') ON CONFLICT (id) DO UPDATE SET v = 'y'"],
    ),
    "a key is padded": (
        ["CREATE TABLE t (id char(3) PRIMARY KEY, v text)", "INSERT INTO t VALUES ('a', 'a')"],
        [(UPSERT.format(":k"), {"k": "a "}), "DELETE FROM t"],
    ),
    "a key loses its fraction": (
        [
            "CREATE TABLE t (id timestamp(0), n numeric(5, 2), v text, d date, PRIMARY KEY (n, id, d))",
            "INSERT INTO t VALUES ('2020-01-01 00:00:01', 1.01, 'a', '2020-01-01')",
        ],
        [
            ("INSERT INTO t VALUES ('2020-01-01 00:00:01.3', 1.011, 'z', timestamp '2020-01-01 10:00') "
            "ON CONFLICT (id, n, d) DO UPDATE SET v = 'y'")
        ],
    ),
    "the server gives a column always": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, s bigint GENERATED ALWAYS AS IDENTITY, v text)",
            "INSERT INTO t (id, v) VALUES (1, 'a'), (2, 'b')",
        ],
        [
            ("UPDATE t SET s = DEFAULT", "s is given by public.t alone"),
            "UPDATE t SET v = 'c'", "INSERT INTO t (id, v) VALUES (3, 'c')", "DELETE FROM t",
        ],
    ),
    "a child of one partition": (
        [*PARTED, f"CREATE TABLE c (id integer PRIMARY KEY, p integer {CASCADE.format('t1')})",
         "INSERT INTO c VALUES (5, 1)"],
        [("DELETE FROM t WHERE id = 1", "carries the deletion on into public.c"), "UPDATE t SET v = 'c'"],
    ),
    "a trigger of one partition": (
        [*PARTED, "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
         "CREATE TRIGGER x AFTER UPDATE ON t1 FOR EACH ROW EXECUTE FUNCTION f()"],
        [("UPDATE t SET v = 'b'", "has the trigger x"), "DELETE FROM t2"],
    ),
    "partitions": (
        [
            "CREATE TABLE t (id integer, r text, v text, PRIMARY KEY (r, id)) PARTITION BY LIST (r)",
            "CREATE TABLE t1 PARTITION OF t FOR VALUES IN ('a')",
            "CREATE TABLE t2 PARTITION OF t DEFAULT PARTITION BY HASH (id)",
            "CREATE TABLE t3 PARTITION OF t2 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y')",
        ],
        [
            "UPDATE t SET v = 'q'",
            "INSERT INTO t VALUES (1, 'a', 'u'), (9, 'c', 'u') ON CONFLICT (r, id) DO UPDATE SET v = 'r'",
            "DELETE FROM t2 WHERE id < 9", "INSERT INTO t1 VALUES (7, 'a', 't')", "DELETE FROM t",
        ],
    ),
    "types": (
        [
            "CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE DOMAIN pos AS integer CHECK (value > 0)",
            "CREATE TYPE pair AS (a integer, b text)",
            ("CREATE TABLE t (id pos PRIMARY KEY, m mood, ms mood[], f float8, g float4, n numeric, tz timestamptz, "
            "d date, iv interval, a integer[][], p pair, pp pair[], x bytea, j json, jb jsonb, b bit(3), i inet, "
            'r int4multirange, tv tsvector, mo money, ch char(4), qc "char", pt point, rc regclass)'),
            ("INSERT INTO t VALUES (1, 'sad', '{sad,NULL,ok}', 'NaN', '-0', 'NaN', 'infinity', '-infinity', "
            "'1 mon -3 days 04:05:06.789', '{{1,2},{3,NULL}}', '(1,\"a \"\"q\"\" , b\")', '{\"(1,x)\",NULL}', "
            "'\\x00ff', '{\"b\":1, \"a\" :2,\"b\":3}', '{\"a\":[1.00,2]}', '101', '::1/64', '{[1,3),[7,9)}', "
            "'''a b'' c:1A', -12.34, 'ab', '\\377', '(1e-300,-0)', 'pg_class')"),
            ("INSERT INTO t (id, f, g, tz, d, iv, n) VALUES (2, '-0', 1.1754944e-38, '0044-03-15 12:00 BC', "
            "'4714-11-24 BC', '-1 years 2 mons -00:00:00.000001', '-Infinity'), (3, 5e-324, 3.4028235e38, "
            "'1900-01-01 00:00+00', '5874897-12-31', '0', 1.10000)"),
        ],
        [
            ("UPDATE t SET m = 'ok', ms = NULL, f = 1, g = 1, n = 1, tz = now(), d = now(), iv = '1s', a = NULL, "
            "p = NULL, pp = NULL, x = NULL, j = '1', jb = '2', b = '000', i = NULL, r = '{}', tv = '', mo = 1, "
            "ch = '', qc = '', pt = '(0,0)', rc = 'pg_type'"),
            "UPDATE t SET (f, g) = (SELECT 3, 4) WHERE id < 3",
            "UPDATE t SET p.a = 5, a[1][2] = 9, jb = NULL WHERE id = 1", "DELETE FROM t",
        ],
    ),
    "keys of floating point": (
        [
            "CREATE TABLE t (id float8 PRIMARY KEY, v text)",
            "INSERT INTO t VALUES ('-0', 'a'), ('NaN', 'b'), ('infinity', 'c'), (0.1, 'd')",
        ],
        ["UPDATE t SET v = v || 'x'", UPSERT.format("'0'"), UPSERT.format("'NaN'"), "DELETE FROM t"],
    ),
    "rows that refer to rows of their own table": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, up integer REFERENCES t, v text)",
            "INSERT INTO t VALUES (1, NULL, 'a'), (2, 1, 'b'), (3, 2, 'c')",
        ],
        ["INSERT INTO t VALUES (4, 5, 'x'), (5, 4, 'y')", "UPDATE t SET up = 3 WHERE id = 1", "DELETE FROM t"],
    ),
    "a foreign key of a unique column": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, v text UNIQUE, n integer)",
            "CREATE TABLE c (p text REFERENCES t (v) ON UPDATE CASCADE ON DELETE SET DEFAULT)",
            "INSERT INTO t VALUES (1, 'a')", "INSERT INTO c VALUES ('a')",
        ],
        [
            ("UPDATE t SET v = 'z'", "carries the change on into public.c"), ("DELETE FROM t", "carries the deletion"),
            ("INSERT INTO t VALUES (1, 'q') ON CONFLICT (id) DO UPDATE SET v = excluded.v", "carries the change on"),
            "UPDATE t SET n = 1",
        ],
    ),
    "an exclusion constraint that is deferrable": (
        [
            "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, r int4range, EXCLUDE USING gist (r WITH &&) DEFERRABLE)",
            "INSERT INTO t VALUES (1, '[1,3)'), (2, '[3,5)')",
        ],
        ["UPDATE t SET r = int4range(lower(r) + 2, upper(r) + 2)", "DELETE FROM t",
         "INSERT INTO t VALUES (3, '[5,7)')"],
    ),
    "computed columns, odd names": (
        [
            ('CREATE TABLE t ("A b" integer PRIMARY KEY, "q""x" text, "%s" text, Äö text, '
            "g text GENERATED ALWAYS AS (\"%s\" || 'x') STORED)"),
            "INSERT INTO t VALUES (1, 'b', 'c', 'd')",
        ],
        ['UPDATE t SET "q""x" = \'z\', "%s" = \'%\', Äö = \'k\'', "DELETE FROM t"],
    ),
    "rules, views": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')",
            "CREATE VIEW w AS SELECT * FROM t", "CREATE TABLE o (id integer)",
            "CREATE RULE r AS ON UPDATE TO t DO ALSO INSERT INTO o VALUES (1)",
        ],
        [("UPDATE t SET v = 'b'", "has the rule r"), ("UPDATE w SET v = 'b'", "public.w is a view")],
    ),
    "WITH, aliases, RETURNING": (
        ["CREATE TABLE t (id integer PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"],
        [
            ("WITH x AS (SELECT max(id) AS m FROM t) UPDATE t AS q SET v = 'm' WHERE q.id = (SELECT m FROM x) "
            "RETURNING v, *"),
            "WITH x AS (SELECT 1 AS m) DELETE FROM t q WHERE id IN (SELECT m FROM x)",
            "INSERT INTO t AS z SELECT id + 10, v FROM t RETURNING z.id",
        ],
    ),
}  # fmt: skip

SQLITE: dict[str, Case] = {
    "WITHOUT ROWID": (
        [
            "CREATE TABLE t (a text, b integer, v, PRIMARY KEY (b, a)) WITHOUT ROWID",
            "INSERT INTO t VALUES ('x', 1, 1.0), ('y', 2, x'00ff'), ('z', 3, NULL)",
        ],
        ["UPDATE t SET v = 1", "INSERT INTO t VALUES ('x', '1', 5) ON CONFLICT (b, a) DO UPDATE SET v = 7",
         "DELETE FROM t"],
    ),
    "STRICT": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, a ANY, r REAL, n INT, x BLOB) STRICT",
            "INSERT INTO t VALUES (1, '1', 2, 3, x''), (2, 1, -0.0, NULL, NULL), (3, 1.0, 9e999, 1, x'00')",
        ],
        ["UPDATE t SET a = '7', r = r + 1, x = x'01'",
         "INSERT INTO t VALUES ('1', 2, 3, 4, x'') ON CONFLICT (id) DO UPDATE SET a = 1.5", "DELETE FROM t"],
    ),
    "values that a column converts, or does not": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, i INTEGER, tx TEXT, nu NUMERIC, re REAL, bl BLOB)",
            ("INSERT INTO t VALUES (1, '12abc', 1.5, '1e3x', 1, 1), (2, 9.3e18, x'00', '0x10', 'abc', 'x'), "
            "(3, '  7', 'a' || char(0) || 'b', 1e300, 9007199254740993, 1.0)"),
        ],
        ["UPDATE t SET i = 0, tx = '', nu = 0, re = 0, bl = 0", "DELETE FROM t"],
    ),
    "keys that are converted": (
        [
            "CREATE TABLE t (a INT NOT NULL, b TEXT NOT NULL, v, PRIMARY KEY (a, b))",
            "INSERT INTO t VALUES (7, '5', 'a'), (8, '6', 'b')",
        ],
        [
            ("INSERT INTO t VALUES (:k, :l, 'z') ON CONFLICT (a, b) DO UPDATE SET v = 'y'", {"k": "7", "l": 5}),
            "INSERT INTO t VALUES ('8.0', 6, 'z'), (8.5, 6, 'z') ON CONFLICT (b, a) DO UPDATE SET v = 'y'",
        ],
    ),
    "keys of a type that a STRICT table converts": (
        ["CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, v TEXT) STRICT", "INSERT INTO t VALUES ('7', 'a')"],
        [UPSERT.format("7")],
    ),
    "keys in any case": (
        ["CREATE TABLE t (id text COLLATE NOCASE PRIMARY KEY NOT NULL, v)", "INSERT INTO t VALUES ('Abc', 'a')"],
        ["UPDATE t SET v = 2 WHERE id = 'aBC'", UPSERT.format("'ABC'"), "DELETE FROM t"],
    ),
    "other rows go or stay": (
        ["CREATE TABLE t (id integer PRIMARY KEY, v UNIQUE)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"],
        [
            ("UPDATE OR REPLACE t SET v = 'a' WHERE id = 2", "does not know this statement"),
            ("UPDATE OR IGNORE t SET v = 'a'", "does not know this statement"),
            ("INSERT OR REPLACE INTO t VALUES (3, 'a')", "INSERT OR REPLACE"),
            ("INSERT OR FAIL INTO t VALUES (3, 'q'), (4, 'a')", "INSERT OR FAIL"),
            ("REPLACE INTO t VALUES (3, 'a')", "does not know this statement"),
            ("INSERT INTO t VALUES (1, 'z') ON CONFLICT (id) DO NOTHING ON CONFLICT (v) DO UPDATE SET v = 'k'", "know"),
            ("INSERT INTO t VALUES (9, 'a') ON CONFLICT DO UPDATE SET v = 'k'", "on anything but the key"),
            ("DELETE FROM t ORDER BY id LIMIT 1", "ORDER BY or LIMIT"), ("UPDATE t SET (v, id) = (1, 9)", "the key"),
            "INSERT OR IGNORE INTO t VALUES (3, 'a'), (4, 'd')", "INSERT OR ABORT INTO t VALUES (3, 'q')",
            "DELETE FROM t WHERE id IN (SELECT id FROM t LIMIT 1)",
        ],
    ),
    "computed columns": (
        [
            "CREATE TABLE t (id integer PRIMARY KEY, a, b AS (a || 'x') STORED, c AS (a || 'y') VIRTUAL UNIQUE)",
            "INSERT INTO t VALUES (1, 'a')",
        ],
        ["UPDATE t SET a = 'q'", "INSERT INTO t VALUES (2, 'z')",
         "INSERT INTO t (id, a) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET a = 'k'", "DELETE FROM t"],
    ),
    "keys of every class": (
        [
            "CREATE TABLE t (id BLOB PRIMARY KEY NOT NULL, v)",
            "INSERT INTO t VALUES (x'00', 1), (1, 2), (1.5, 3), ('1', 4), ('a' || char(0), 5), (9e999, 6)",
        ],
        ["UPDATE t SET v = v + 1", "INSERT INTO t VALUES (x'00', 8), ('1', 8) ON CONFLICT (id) DO UPDATE SET v = 9",
         "DELETE FROM t"],
    ),
    "keys that the file gives": (
        ["CREATE TABLE t (id integer PRIMARY KEY AUTOINCREMENT, v)", "INSERT INTO t (v) VALUES (1), (2)"],
        ["INSERT INTO t (v) SELECT v FROM t", UPSERT.format("NULL"), "DELETE FROM t WHERE id = 2"],
    ),
}  # fmt: skip


def everything(stage: Stage) -> dict[str, list[Any]]:
    """Return all rows of the user's tables: values with their types."""
    execute, found = stage.room.execute, {}
    if stage.room.dialect == "postgres":
        for (name,) in execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            found[name] = sorted(
                execute(f'SELECT tableoid::regclass::text, all_of_it::text FROM "{name}" AS all_of_it'), key=repr
            )
        return found
    for (name,) in execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 's*'"):
        columns = execute("SELECT name FROM pragma_table_xinfo($1)", (name,))
        shown = ", ".join(f"typeof({column}), quote({column})" for (column,) in columns)
        found[name] = sorted(execute(f"SELECT {shown} FROM {name}"), key=repr)
    return found


@pytest.mark.req("G50", "G51", "G54", "G55", "G56", "RG2")
@pytest.mark.parametrize(
    ("room", "case"), [*(("postgres", name) for name in POSTGRES), *(("sqlite", name) for name in SQLITE)],
    indirect=["room"],
)  # fmt: skip
def test_what_is_undone_leaves_no_trace(room: Any, case: str) -> None:
    made, steps = (POSTGRES if room.dialect == "postgres" else SQLITE)[case]
    for text in made:
        room.execute(text)
    stage = Stage(room)
    ran: list[str] = []
    first = everything(stage)
    for step in steps:
        text, more = (step, {}) if isinstance(step, str) else step
        if isinstance(more, str):
            assert more in str(stage.plan(text).obstacles), text
            continue
        before = everything(stage)
        done = stage.run(text, more)
        assert isinstance(done, Done), (text, done)
        assert everything(stage) != before, text
        assert isinstance(stage.undo(), Undone), text
        assert everything(stage) == before, text
        ran.append(f"again {len(ran)}")
        assert isinstance(stage.run(text, more, step=ran[-1]), Done), text
    for name in reversed(ran):
        assert isinstance(stage.undo(name), Undone), name
    assert everything(stage) == first


@pytest.mark.req("G51", "G56")
def test_many_rows_that_refer_to_each_other_come_back(room: Any) -> None:
    """On PostgreSQL as many as one statement has, which checks its foreign keys at its end."""
    count = 100 if room.dialect == "postgres" else 1000
    room.execute("CREATE TABLE t (id integer PRIMARY KEY, next integer REFERENCES t)")
    room.execute(
        f"INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}) "
        f"SELECT i, (i + 37) % {count} FROM n"
    )
    stage = Stage(room)
    before = everything(stage)
    assert stage.done("DELETE FROM t").affected == count
    assert stage.undo() == Undone(restored=count)
    assert everything(stage) == before


STAMP = {
    "sqlite": [("CREATE TRIGGER x AFTER UPDATE OF amount ON account WHEN new.amount <> 7 BEGIN UPDATE account SET "
               "amount = 7 WHERE id = new.id; END")],
    "postgres": ["CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$",
                 "CREATE TRIGGER x BEFORE UPDATE OR INSERT ON account FOR EACH ROW EXECUTE FUNCTION f()"],
}  # fmt: skip


@pytest.mark.req("G52", "G53", "RG2")
@pytest.mark.parametrize(
    ("room", "body"),
    [("sqlite", ""), ("postgres", "new.amount = 7; RETURN new;"), ("postgres", "RETURN NULL;")],
    indirect=["room"],
)
def test_what_a_trigger_makes_of_an_undo_is_no_undo(stage: Stage, body: str) -> None:
    """It came after the step: rows that are put back are looked at."""
    stage.done("UPDATE account SET amount = 5 WHERE id < 3", step="one")
    for text in STAMP[stage.room.dialect]:
        stage.room.execute(text.format(body))
    before = everything(stage)
    for how in ("", "force"):
        found = stage.undo("one", told=how)
        assert isinstance(found, NotUndone), found
        assert "not as it was after it was put back" in found.detail
        assert everything(stage) == before
    stage.room.execute("DROP TRIGGER x" + " ON account" * (stage.room.dialect == "postgres"))
    assert stage.undo("one") == Undone(restored=2)
    assert stage.room.execute("SELECT id, name, amount FROM account ORDER BY id") == ACCOUNTS


# ---------------------------------------------------------------- the same rows under two names


MADE = "CREATE TABLE made (id int PRIMARY KEY, a text, u text GENERATED ALWAYS AS (lower(a)) STORED UNIQUE)"
KIN = {
    "postgres": [
        "CREATE TABLE b (id integer PRIMARY KEY, v text)", "CREATE TABLE o (id integer PRIMARY KEY, v text)",
        "CREATE VIEW w AS SELECT * FROM b", *PARTED, "CREATE UNIQUE INDEX ON t2 (v)", MADE,
        "CREATE TABLE old (id integer PRIMARY KEY, v text)", "CREATE TABLE young (PRIMARY KEY (id)) INHERITS (old)",
        "CREATE TABLE cut (id varchar(3) PRIMARY KEY, v text)",
        "CREATE DOMAIN text_of_ours AS text", "CREATE TABLE ours (id text_of_ours PRIMARY KEY, v text)",
    ],
    "sqlite": [
        "CREATE TABLE b (id integer PRIMARY KEY, v text)", "CREATE TABLE o (id integer PRIMARY KEY, v text)",
        "CREATE VIEW w AS SELECT * FROM b", MADE,
    ],
}  # fmt: skip
MEET = {
    "both": [
        ("UPDATE made SET a = 'x' WHERE id = 1", "UPDATE made SET a = 'X' WHERE id = 2", True),
        ("UPDATE w SET v = 'a'", "UPDATE b SET v = 'b' WHERE id = 1", True),
        ("INSERT INTO o SELECT * FROM w", "UPDATE b SET v = 'b' WHERE id = 1", True),
        ("DELETE FROM o WHERE id IN (SELECT id FROM w)", "DELETE FROM b", True),
        ("SELECT * FROM w WHERE id = 1", "UPDATE b SET v = 'b' WHERE id = 1", True),
        ("INSERT INTO o SELECT * FROM b", "UPDATE b SET v = 'b' WHERE id = 1", True),
        ("DELETE FROM o", "DELETE FROM b", False),
    ],
    "postgres": [
        ("UPDATE t SET v = 'b' WHERE id = 1", "UPDATE t1 SET v = 'b' WHERE id = 1", True),
        ("UPDATE t SET v = 'b' WHERE id = 12", "UPDATE t2 SET v = 'b' WHERE id = 13", True),
        ("SELECT * FROM t1 WHERE id = 1", "UPDATE t1 SET v = 'b' WHERE id = 2", False),
        ("SELECT * FROM old WHERE id = 1", "UPDATE young SET v = 'b' WHERE id = 1", True),
        ("SELECT * FROM old", "INSERT INTO young VALUES (1, 'a')", True),
        ("INSERT INTO cut VALUES ('abc  ')", "DELETE FROM cut WHERE id = 'abc'", True),
        ("DELETE FROM cut WHERE id = 'ab'", "DELETE FROM cut WHERE id = 'abc'", False),
        ("DELETE FROM ours WHERE id = 'a'", "DELETE FROM ours WHERE id = 'A'", True),
    ],
    "sqlite": [],
}  # fmt: skip


@pytest.mark.req("G61", "G62")
def test_rows_that_two_names_lead_to_are_the_same_rows(room: Any) -> None:
    for text in KIN[room.dialect]:
        room.execute(text)
    stage = Stage(room)
    for one, other, meet in MEET["both"] + MEET[room.dialect]:
        places = [held(stage.plan(text), {}) for text in (one, other)]
        assert any(a.meets(b) for a in places[0] for b in places[1]) == meet, (one, other, places)


@pytest.mark.req("G85", "G55", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_who_alters_a_partition_waits_for_the_step(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in POSTGRES["a trigger of one partition"][0][:-1]:
        room.execute(text)
    stage = Stage(room)
    work = stage.segment("UPDATE t SET v = 'z'")
    trigger = POSTGRES["a trigger of one partition"][0][-1]
    other = threading.Thread(target=room.another(), args=(trigger,))

    def alter() -> None:
        other.start()
        other.join(0.2)
        assert other.is_alive()

    between(stage, monkeypatch, "change", alter)
    assert isinstance(stage.ran(work), Done)
    other.join(20)


# ---------------------------------------------------------------- what a server says


ERRORS = ["55000", "2BP01", "3F000", "58P01", "XX000", "08006", "57P01", "28000", "3D000", "HV000", "F0000", "72000",
          "99999", "20000"]  # fmt: skip


@pytest.mark.req("G5")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_whatever_the_server_says_of_a_statement_fails_its_step_alone(stage: Stage) -> None:
    """A function may raise what it likes: its target is not away, and the program has no fault."""
    stage.room.execute(
        "CREATE FUNCTION fail(state text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING "
        "ERRCODE = state; END $$"
    )
    change, query = stage.plan("UPDATE account SET amount = fail(:state)"), stage.plan("SELECT fail(:state)")
    for state in (*ERRORS, "40001", "55P03", "57014"):
        limits, retry = Limits(timeout_s=0.2), state not in ERRORS
        for found in (stage.run("", {"state": state}, plan=change, undo=False, limits=limits),
                      stage.target.query(query, {"state": state}, limits)):  # fmt: skip
            assert isinstance(found, Failed), (state, found)
            assert (found.reason, found.retry) == ("statement", retry), (state, found)
            assert state in found.detail
    for state in ("53100", "58030", "53200", "40003"):
        with pytest.raises(StrandlineError) as caught:
            stage.target.query(query, {"state": state}, Limits())
        assert caught.value.retryable, state
    stage.room.execute("CREATE VIEW rich AS SELECT count(*) FROM account")
    for text in ("INSERT INTO rich VALUES (1)", "DROP TABLE account", "CREATE TABLE nowhere.t (a integer)"):
        assert isinstance(stage.run("", plan=stage.plan(text), undo=False), Failed), text
