"""What a text is, in SQL: verb, tables, parameters, and what is wrong with it."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from strandline.group.statements import held, parse, plan
from strandline.group.statements.api import Dialect, ForeignKey, Held, TargetColumn, TargetTable

SQL: list[Dialect] = ["sqlite", "postgres"]
DIALECTS: list[Dialect] = [*SQL, "cassandra"]
ACCOUNT = TargetTable(
    "account",
    (TargetColumn("id", "integer"), TargetColumn("name", "text"), TargetColumn("amount", "integer")),
    ("id",),
)
TABLES = {"account": ACCOUNT}


def names(text: str, dialect: Dialect = "sqlite") -> list[str]:
    return [parameter.name for parameter in parse(text, dialect).parameters]


@pytest.mark.req("G61", "G62")
@pytest.mark.parametrize(
    ("dialect", "text", "tables"),
    [
        ("sqlite", "WITH x AS (SELECT 1 AS a) SELECT a FROM x", ()),
        ("postgres", "WITH x AS (SELECT 1 AS a) SELECT a FROM x", ()),
        ("postgres", "WITH account AS (SELECT * FROM account) SELECT * FROM account", ("account",)),
        ("postgres", "WITH a AS (SELECT * FROM account), account AS (SELECT 1) SELECT * FROM a", ("account",)),
        ("postgres", "WITH RECURSIVE account AS (SELECT 1 UNION SELECT * FROM account) SELECT * FROM account", ()),
        ("sqlite", "WITH x AS (SELECT * FROM account) SELECT * FROM x", ("account",)),
    ],
)
def test_a_query_of_its_own_with_reads_what_that_reads(dialect: Dialect, text: str, tables: tuple[str, ...]) -> None:
    statement = parse(text, dialect)
    assert statement.reads == tables
    assert held(plan(statement, TABLES), {}) == tuple(Held((name,), False) for name in tables)


WORDS = (
    "SELECT * FROM t q WHERE id = :x :y.z 1 'a' ( ) , UPDATE SET a n INSERT INTO VALUES DELETE IN NOT :l AND OR WITH "
    "w AS RETURNING ON CONFLICT DO NOTHING LIMIT ORDER BY count(*) now() random() JOIN USING t.id IF EXISTS TTL "
    "TIMESTAMP tags['x'] token(id) + - { } [ ] null CONTAINS BEGIN BATCH APPLY ; EXPLAIN TABLE ' \" /* */ $$ ::int ? $1"
).split()
STARTS = ("SELECT * FROM t WHERE", "UPDATE t SET", "INSERT INTO t", "DELETE FROM t WHERE", "WITH w AS (", "")


@pytest.mark.req("G7", "G54")
def test_whatever_is_written_has_a_plan_or_problems() -> None:
    """Random words behind the beginning of a statement: nothing is raised."""
    rng = random.Random(5)
    texts = ["(SELECT a FROM t)", "DELETE FROM t WHERE ( ] a", "INSERT INTO t VALUES (?)", "FROM t"]
    texts += [" ".join([rng.choice(STARTS), *rng.choices(WORDS, k=rng.randint(0, 9))]) for _ in range(1500)]
    for text in texts:
        for dialect in DIALECTS:
            statement = parse(text, dialect)
            tables = {name: ACCOUNT._replace(name=name, gc_grace_s=10**7) for name in statement.tables}
            assert held(plan(statement, tables), {"x": 1, "l": [1]}) or not statement.tables, text


@pytest.mark.req("G34")
@pytest.mark.parametrize(
    ("dialect", "text", "found"),
    [
        ("sqlite", "SELECT ':x', \":y\", `:z`, [:w] FROM t WHERE a = :a -- :c\n AND b /* :d */ = :b.c", ["a", "b.c"]),
        ("postgres", "SELECT 'it''s :x', E'\\':y', $$ :z $$, $q$ :w $$ $q$, a::int, :p::text FROM t", ["p"]),
        ("postgres", "SELECT /* a /* :n */ :m */ :o, \"a:b\" FROM t WHERE j ? 'k' AND x % 2 = :s.r.v", ["o", "s.r.v"]),
        ("sqlite", "SELECT 10 % 3, '%s', '?' FROM t WHERE a=:a", ["a"]),
    ],
)
def test_parameters_are_found_where_they_are_and_nowhere_else(dialect: Dialect, text: str, found: list[str]) -> None:
    assert names(text, dialect) == found
    assert parse(text, dialect).template.shown().rstrip().endswith(text.rstrip()[-5:])


@pytest.mark.req("G35")
@pytest.mark.parametrize("dialect", SQL)
def test_a_list_is_wanted_behind_in(dialect: Dialect) -> None:
    found = parse("DELETE FROM t WHERE id IN :r.value OR x NOT IN :n AND y = :y", dialect).parameters
    assert [(one.name, one.many, one.compared) for one in found] == [
        ("r.value", "in", False), ("n", "not in", False), ("y", "", True),
    ]  # fmt: skip


@pytest.mark.req("G2", "G3")
@pytest.mark.parametrize("dialect", SQL)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1", "query"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", "query"),
        ("insert into t (a) values (1)", "insert"),
        ("UPDATE t SET a = 1", "update"),
        ("WITH a AS (SELECT 1 AS x) DELETE FROM t WHERE a IN (SELECT x FROM a)", "delete"),
        ("CREATE TABLE t (a int)", "any"),
        ("VALUES (1)", "query"),
        ("(SELECT a FROM t) UNION (SELECT 2)", "query"),
    ],
)
def test_the_verb_says_what_kind_it_is(dialect: Dialect, text: str, kind: str) -> None:
    assert parse(text, dialect).kind == kind


@pytest.mark.req("G3")
@pytest.mark.parametrize("dialect", SQL)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT 1; SELECT 2", "statement_count"),
        ("  -- nothing\n", "statement_count"),
        ("SELECT 'open", "value"),
        ("SELECT (1", "value"),
        ("BEGIN", "statement_kind"),
        ("COMMIT", "statement_kind"),
        ("VACUUM", "statement_kind"),
        ("SELECT " + "1," * 40_000 + "1", "statement_too_long"),
    ],
)
def test_what_is_no_step_is_refused(dialect: Dialect, text: str, code: str) -> None:
    assert [problem.code for problem in parse(text, dialect).problems] == [code]


@pytest.mark.req("G3")
@pytest.mark.parametrize(
    ("dialect", "text", "refused"),
    [
        ("sqlite", "CREATE TEMP TABLE account (id integer)", True),
        ("sqlite", "CREATE TEMPORARY TRIGGER x AFTER UPDATE ON account BEGIN DELETE FROM b; END", True),
        ("sqlite", "CREATE TABLE temp.account (id integer)", True),
        ("sqlite", "INSERT INTO temp (id) VALUES (1)", False),
        ("postgres", "CREATE TEMP TABLE account (id integer)", True),
        ("postgres", "CREATE OR REPLACE TEMPORARY VIEW account AS SELECT 1", True),
        ("postgres", "CREATE LOCAL TEMP TABLE account (id integer)", True),
        ("postgres", "CREATE TABLE pg_temp.account (id integer)", True),
        ("postgres", "SELECT 1 AS id INTO TEMP account", True),
        ("postgres", "SELECT set_config('search_path', 'x', false)", True),
        ("postgres", "SELECT set_config('app.who', (SELECT 'true'), :temp)", True),
        ("postgres", "SELECT pg_catalog.pg_advisory_lock(1)", True),
        ("postgres", "SELECT set_config('app.who', concat('a', 'b'), true)", False),
        ("postgres", "SELECT pg_advisory_xact_lock(1)", False),
        ("postgres", "CREATE TABLE temp (temporary integer)", False),
    ],
)
def test_what_would_stay_with_the_connection_is_refused(dialect: Dialect, text: str, refused: bool) -> None:
    """Another group's statement would meet another table, or wait for a lock that nobody gives back."""
    problems = parse(text, dialect).problems
    assert [one.code for one in problems] == ["statement_kind"] * refused, problems


@pytest.mark.req("G3", "G34")
def test_only_named_parameters_are_known() -> None:
    assert parse("SELECT * FROM t WHERE a = ?", "sqlite").problems
    assert parse("SELECT * FROM t WHERE a = $1", "postgres").problems
    assert not parse("SELECT * FROM t WHERE a ? 'k'", "postgres").problems
    assert not parse("SELECT 1;", "sqlite").problems


@pytest.mark.req("G3")
@pytest.mark.parametrize("words", ["INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR ABORT"])
def test_words_of_another_dialect_are_told_at_submit(words: str) -> None:
    text = f"{words} INTO account (id) VALUES (1)"
    assert [problem.code for problem in parse(text, "postgres").problems] == ["value"]
    assert not parse(text, "sqlite").problems


@pytest.mark.req("G56")
@pytest.mark.parametrize("dialect", SQL)
def test_and_between_assignments_is_a_slip(dialect: Dialect) -> None:
    text = "UPDATE account SET amount = :x AND name = :y WHERE id = :id"
    (problem,) = parse(text, dialect).problems
    assert (problem.code, problem.position) == ("statement_and_in_set", text.index("AND"))
    assert not parse("UPDATE account SET amount = (:x AND name = :y) WHERE id = 1", dialect).problems
    assert not parse("UPDATE account SET amount = 1 WHERE id = 1 AND name = 'x'", dialect).problems


@pytest.mark.req("G30")
def test_names_of_columns_are_folded() -> None:
    statement = parse('SELECT Id, Name AS N, "Odd", a AS "Kept", COUNT(*), max(x) FROM t', "sqlite")
    assert statement.columns == ("id", "n", "Odd", "Kept", "count", "max")
    assert parse("SELECT * FROM t", "sqlite").columns is None


@pytest.mark.req("G54")
@pytest.mark.parametrize("dialect", SQL)
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE account SET id = 2 WHERE id = 1",
        "UPDATE account SET amount = other.x FROM other WHERE other.id = account.id",
        "WITH gone AS (DELETE FROM account RETURNING id) UPDATE account SET amount = 1",
        "INSERT INTO account (id, name) VALUES (1, 'x') ON CONFLICT (name) DO UPDATE SET amount = 1",
        "DELETE FROM account WHERE amount > random()",
        "DELETE FROM account WHERE mine(amount)",
        "CREATE TABLE x (a int)",
        "ALTER TABLE account ADD COLUMN x int",
        "DROP TABLE account",
        "TRUNCATE account",
    ],
)
def test_what_cannot_be_undone_is_said(dialect: Dialect, text: str) -> None:
    tables = {**TABLES, "other": ACCOUNT._replace(name="other")}
    made = plan(parse(text, dialect), tables)
    assert not made.problems
    assert {problem.code for problem in made.obstacles} == {"not_invertible"}


@pytest.mark.req("G54")
@pytest.mark.parametrize(
    ("dialect", "text", "why"),
    [
        ("postgres", "DELETE FROM account USING other WHERE other.id = account.id", "USING"),
        ("sqlite", "INSERT INTO account (name) VALUES ('x') ON CONFLICT (id) DO UPDATE SET amount = 1", "keys"),
        ("postgres", "INSERT INTO account (name) VALUES ('x') ON CONFLICT (id) DO UPDATE SET amount = 1", "keys"),
        ("postgres", "INSERT INTO account (id) VALUES (DEFAULT) ON CONFLICT (id) DO UPDATE SET amount = 1", "keys"),
        ("sqlite", "INSERT INTO account (id) SELECT id FROM other ON CONFLICT (id) DO UPDATE SET amount = 1", "keys"),
        ("postgres", "INSERT INTO account (id) SELECT id FROM other ON CONFLICT (id) DO UPDATE SET amount = 1", "keys"),
        ("sqlite", "UPDATE account SET amount = 1 FROM other WHERE other.id = account.id", "FROM"),
        ("sqlite", "DELETE FROM account ORDER BY id LIMIT 1", "LIMIT"),
    ],
)
def test_each_cause_alone_is_enough_and_is_told(dialect: Dialect, text: str, why: str) -> None:
    statement = parse(text, dialect)
    made = plan(statement, {name: ACCOUNT._replace(name=name) for name in statement.tables})
    (obstacle,) = made.obstacles
    assert why in obstacle.text
    assert obstacle.code == "not_invertible"


@pytest.mark.req("G54")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT OR REPLACE INTO account VALUES (1, 'x', 2)",
        "REPLACE INTO account VALUES (1, 'x', 2)",
        "DELETE FROM account WHERE amount > 1 ORDER BY id LIMIT 1",
        "UPDATE account SET amount = 1 WHERE name < datetime('now')",
        "UPDATE OR REPLACE account SET name = 'x'",
    ],
)
def test_what_sqlite_alone_has_is_not_undone_either(text: str) -> None:
    assert plan(parse(text, "sqlite"), TABLES).obstacles


@pytest.mark.req("G54", "G55")
@pytest.mark.parametrize("dialect", SQL)
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"key": ()}, "UPDATE account SET amount = 1"),
        ({"what": "view"}, "DELETE FROM account"),
        ({"unsafe": ("has the trigger audit",)}, "INSERT INTO account (id) VALUES (1)"),
        ({"children": (ForeignKey("entry", ("a",), "account", ("id",), ("delete",)),)}, "DELETE FROM account"),
        (
            {"children": (ForeignKey("entry", ("n",), "account", ("name",), ("update",)),)},
            "UPDATE account SET name = 'x'",
        ),
    ],
)
def test_a_table_may_stand_in_the_way(dialect: Dialect, change: dict[str, object], text: str) -> None:
    statement = parse(text, dialect)
    assert not plan(statement, TABLES).obstacles
    assert plan(statement, {"account": ACCOUNT._replace(**change)}).obstacles  # type: ignore[arg-type]


@pytest.mark.req("G91")
@pytest.mark.parametrize("dialect", SQL)
@pytest.mark.parametrize(
    "text", ["DELETE FROM strandline_barrier", "SELECT * FROM strandline_target", "DROP TABLE strandline_barrier"]
)
def test_tables_of_ours_are_not_the_users(dialect: Dialect, text: str) -> None:
    made = plan(parse(text, dialect), dict.fromkeys(("strandline_barrier", "strandline_target"), ACCOUNT))
    assert [problem.code for problem in made.problems] == ["table_unsafe"]


@pytest.mark.req("G50", "G52")
@pytest.mark.parametrize("dialect", SQL)
def test_the_image_has_the_key_and_what_can_change(dialect: Dialect) -> None:
    made = plan(parse("UPDATE account AS a SET amount = amount + :n WHERE a.name = :who", dialect), TABLES)
    assert made.columns == ("id", "amount")
    assert made.before is not None
    cast = "::text" if dialect == "postgres" else ""
    assert made.before.shown() == f'SELECT "a"."id"{cast}, "a"."amount"{cast} FROM account AS a WHERE (a.name = :who)'
    assert [one.name for one in made.before.parameters] == ["who"], "its own WHERE, with its own values"
    assert plan(parse("DELETE FROM account", dialect), TABLES).columns == ("id", "name", "amount")


CASES = [
    ("UPDATE account SET amount = 1 WHERE id = :id", {"id": 7}, [Held(("account", 7), True)]),
    ("UPDATE account SET amount = 1 WHERE id = 7 AND amount > 3", {}, [Held(("account", 7), True)]),
    ("UPDATE account SET amount = 1 WHERE id = '7'", {}, [Held(("account", 7), True)]),
    ("UPDATE account SET amount = 1 WHERE id = :q.value", {"id": 7}, [Held(("account",), True)]),
    ("UPDATE account SET amount = 1 WHERE id = 7 OR id = 8", {}, [Held(("account",), True)]),
    ("UPDATE account SET amount = 1 WHERE name = 'x'", {}, [Held(("account",), True)]),
    (
        "INSERT INTO account (name, id) VALUES ('a', 1), ('b', :n)", {"n": 2},
        [Held(("account", 1), True), Held(("account", 2), True)],
    ),
    ("INSERT INTO account (name) VALUES ('a')", {}, [Held(("account",), True)]),
    ("SELECT * FROM account WHERE id = 3", {}, [Held(("account", 3), False)]),
    ("SELECT count(*) FROM account", {}, [Held(("account",), False)]),
    (
        "SELECT * FROM account a JOIN other o ON a.id = o.id WHERE a.id = 1", {},
        [Held(("account",), False), Held(("other",), False)],
    ),
    (
        "DELETE FROM account WHERE id = 1 AND amount IN (SELECT amount FROM other)", {},
        [Held(("account", 1), True), Held(("other",), False)],
    ),
    ("SELECT * FROM account WHERE id = :n", {"n": float("inf")}, [Held(("account",), False)]),
    (
        "UPDATE account SET amount = 1 FROM other WHERE other.id = 5", {},
        [Held(("account",), True), Held(("other",), False)],
    ),
    ("CREATE INDEX x ON account (name)", {}, [Held((), True)]),
    ("SELECT * FROM mystery(1)", {}, [Held((), False)]),
]  # fmt: skip


@pytest.mark.req("G61")
@pytest.mark.parametrize("dialect", SQL)
@pytest.mark.parametrize(("text", "values", "places"), CASES)
def test_which_rows_a_statement_holds(
    dialect: Dialect, text: str, values: dict[str, object], places: list[Held]
) -> None:
    statement = parse(text, dialect)
    made = plan(statement, {name: ACCOUNT._replace(name=name) for name in statement.tables})
    assert list(held(made, values)) == places


@pytest.mark.req("G62")
def test_rows_that_are_coupled_are_the_same_rows() -> None:
    text = parse("UPDATE account SET name = :n WHERE id = 1", "postgres")
    other = parse("UPDATE account SET amount = 1 WHERE id = 1", "postgres")
    unique = {"account": ACCOUNT._replace(unique=(("name",),))}
    assert held(plan(text, unique), {}) == (Held(("account",), True),)
    assert held(plan(other, unique), {}) == (Held(("account", 1), True),)
    child = ACCOUNT._replace(name="entry", foreign=(ForeignKey("entry", ("amount",), "account", ("id",)),))
    made = plan(parse("INSERT INTO entry (id, amount) VALUES (1, 2)", "postgres"), {"entry": child})
    assert held(made, {}) == (Held(("entry", 1), True), Held(("account",), False))
    folded = ACCOUNT._replace(columns=(TargetColumn("id", "text", collation="NOCASE"), *ACCOUNT.columns[1:]))
    assert held(plan(parse("DELETE FROM account WHERE id = 'a'", "sqlite"), {"account": folded}), {}) == (
        Held(("account",), True),
    )


def test_places_meet_where_one_is_within_the_other() -> None:
    row, other, table, whole = Held(("a", 1), True), Held(("a", 2), True), Held(("a",), False), Held((), False)
    assert row.meets(table)
    assert table.meets(row)
    assert whole.meets(row)
    assert not row.meets(other)
    assert not table.meets(whole), "readers share"


@pytest.mark.req("G62")
@pytest.mark.parametrize("dialect", SQL)
def test_a_number_that_no_key_can_be_is_any_row(dialect: Dialect) -> None:
    """Written out it would not fit into memory."""
    made = plan(parse("DELETE FROM account WHERE id = :id", dialect), TABLES)
    for value in (
        "1e999999999",
        "-1e999999999",
        "1e40",
        2**70,
        "inf",
        "nan",
        "snan",
        float("inf"),
        Decimal("1e9999999"),
    ):
        assert held(made, {"id": value}) == (Held(("account",), True),), value
    assert held(made, {"id": "1e2"}) == held(made, {"id": 100})
