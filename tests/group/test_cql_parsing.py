"""What a text is, in CQL: the four verbs, what they change, and the statement that is sent."""

from __future__ import annotations

import pytest

from strandline.group.statements import held, parse, plan
from strandline.group.statements.api import Held, Plan, TargetColumn, TargetTable

SEAT = TargetTable(
    "ks.seat",
    (
        TargetColumn("hall", "text", role="partition"), TargetColumn("row", "int", role="clustering"),
        TargetColumn("price", "int", role="static"), TargetColumn("guest", "text"), TargetColumn("tags", "set<text>"),
    ),
    ("hall", "row"),
    gc_grace_s=864_000,
)  # fmt: skip


def planned(text: str, table: TargetTable = SEAT) -> Plan:
    statement = parse(text, "cassandra")
    return plan(statement, dict.fromkeys(statement.tables, table))


@pytest.mark.req("G2", "G3", "G54")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT * FROM seat WHERE hall = 'a'", "query"),
        ("INSERT INTO seat (hall, row) VALUES ('a', 1)", "insert"),
        ("update ks.seat set guest = :g where hall = 'a' and row = 1", "update"),
        ("DELETE guest FROM seat WHERE hall = 'a' AND row = 1", "delete"),
        ("TRUNCATE seat", "any"),
        ("BEGIN BATCH DELETE FROM seat WHERE hall = 'a'; APPLY BATCH", "any"),
        ("CREATE TABLE x (a int PRIMARY KEY)", "any"),
    ],
)
def test_the_verb_says_what_kind_it_is(text: str, kind: str) -> None:
    statement = parse(text, "cassandra")
    assert statement.kind == kind
    assert bool(statement.obstacles) == (kind == "any")
    assert not statement.problems


@pytest.mark.req("G34")
def test_parameters_of_cql_are_found() -> None:
    text = "UPDATE seat SET guest = :g, tags = {'a:b', $$:c$$} WHERE hall = :h // :x\n AND row IN :rows -- :y"
    statement = parse(text, "cassandra")
    assert [(one.name, one.many) for one in statement.parameters] == [("g", ""), ("h", ""), ("rows", "in")]
    assert [one.name for one in parse("SELECT {'k'::v} FROM t", "cassandra").parameters] == ["v"]


@pytest.mark.req("G40", "G51")
@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (
            "INSERT INTO seat (hall, row, guest) VALUES ('a', 1, :g) IF NOT EXISTS USING TTL 60",
            "INSERT INTO seat (hall, row, guest) VALUES ('a', 1, :g) USING TIMESTAMP :$timestamp AND TTL 60",
        ),
        (
            "UPDATE seat USING TTL :t SET guest = :g WHERE hall = 'a' AND row = 1 IF guest = null",
            "UPDATE seat USING TIMESTAMP :$timestamp AND TTL :t SET guest = :g WHERE hall = 'a' AND row = 1",
        ),
        (
            "DELETE guest, tags['x'] FROM seat WHERE hall = :h AND row = 1 IF EXISTS;",
            "DELETE guest, tags['x'] FROM seat USING TIMESTAMP :$timestamp WHERE hall = :h AND row = 1",
        ),
        (
            "DELETE FROM seat WHERE hall = :h AND row > 3",
            "DELETE FROM seat USING TIMESTAMP :$timestamp WHERE hall = :h AND row > 3",
        ),
    ],
)
def test_a_write_is_sent_with_a_timestamp_and_without_its_condition(text: str, sent: str) -> None:
    made = planned(text)
    assert not made.obstacles, made.obstacles
    assert made.statement.shape.write.shown() == sent


@pytest.mark.req("G50", "G51")
def test_the_image_has_what_can_change() -> None:
    update = planned("UPDATE seat SET guest = 'x' WHERE hall = 'a' AND row = 1")
    assert (update.columns, update.changed) == (("hall", "row", "guest"), ("guest",))
    assert update.before is not None
    assert update.before.shown() == (
        'SELECT "hall", "row", "guest", writetime("guest"), ttl("guest") FROM "ks"."seat" '
        "WHERE hall = 'a' AND row = 1"
    )
    insert = planned("INSERT INTO seat (hall, row, guest) VALUES (:h, 1, 'x')")
    assert (insert.columns[2:], insert.changed) == (("price", "guest", "tags"), ("guest",)), "all columns"
    assert insert.before is not None
    assert insert.before.shown().endswith('WHERE "hall" = :h AND "row" = 1')
    assert planned("DELETE FROM seat WHERE hall = 'a'").changed == ("price", "guest", "tags"), "with static columns"
    assert planned("DELETE FROM seat WHERE hall = 'a' AND row > 1").changed == ("guest", "tags")
    assert planned("UPDATE seat SET tags = tags + {'x'} WHERE hall = 'a' AND row = 1").changed == ("tags",)


@pytest.mark.req("G51")
def test_columns_that_are_compared_together_are_told() -> None:
    shape = parse("DELETE FROM t WHERE k = :k AND (a, b) > (:a, :b) AND c IN (1, :c)", "cassandra").shape
    assert [(one.columns, one.sign) for one in shape.relations] == [(("k",), "="), (("a", "b"), ">"), (("c",), "IN")]
    assert shape.relations[2].wanted({"c": 2}) == [1, 2]


@pytest.mark.req("G54", "G56")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("UPDATE seat SET guest = 'x' AND price = 1 WHERE hall = 'a' AND row = 1", "statement_and_in_set"),
        ("UPDATE seat USING TIMESTAMP 1 SET guest = 'x' WHERE hall = 'a' AND row = 1", "value"),
        ("SELECT 1; SELECT 2", "statement_count"),
        ("USE other", "statement_kind"),
        ("SELECT * FROM seat WHERE hall = ?", "value"),
        ("UPDATE strandline_target SET stream = 'x' WHERE place = ''", "table_unsafe"),
    ],
)
def test_what_is_no_step_is_refused(text: str, code: str) -> None:
    assert code in [problem.code for problem in planned(text).problems]


@pytest.mark.req("G54")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO seat (hall, row, guest) VALUES ('a', 1, toTimestamp(now()))",
        "UPDATE seat SET guest = 'x' WHERE hall = f('a') AND row = 1",
        "INSERT INTO seat JSON '{}'",
        "UPDATE seat SET guest = 'x' WHERE hall = 'a' AND row = 1 IF tags['x'] = 1",
        "UPDATE seat SET guest = 'x' WHERE hall = 'a' AND row = 1 IF tags CONTAINS 'x'",
        "TRUNCATE seat",
    ],
)
def test_what_cannot_be_undone_is_said(text: str) -> None:
    assert {problem.code for problem in planned(text).obstacles} == {"not_invertible"}


@pytest.mark.req("G54")
def test_tables_that_are_not_safe_are_refused() -> None:
    text = "UPDATE seat SET guest = 'x' WHERE hall = 'a' AND row = 1"
    for change in ({"what": "counter"}, {"gc_grace_s": 3600}):
        made = plan(parse(text, "cassandra"), {"seat": SEAT._replace(**change)}, barrier_keep_s=7200)
        assert [problem.code for problem in made.problems] == ["table_unsafe"]
    listed = SEAT._replace(columns=(*SEAT.columns, TargetColumn("orders", "list<int>")))
    assert not planned(text, listed).obstacles
    assert planned("UPDATE seat SET orders = [1] WHERE hall = 'a' AND row = 1", listed).obstacles


@pytest.mark.req("G61")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("UPDATE seat SET guest = 'x' WHERE hall = :h AND row = 1", Held(("ks.seat", "a"), True)),
        ("DELETE FROM seat WHERE hall = 'a' AND row > 2", Held(("ks.seat", "a"), True)),
        ("INSERT INTO seat (row, hall) VALUES (1, 'a')", Held(("ks.seat", "a"), True)),
        ("UPDATE seat SET guest = 'x' WHERE hall IN :hs AND row = 1", Held(("ks.seat",), True)),
        ("SELECT * FROM seat WHERE hall = 'a'", Held(("ks.seat", "a"), False)),
        ("SELECT count(*) FROM seat", Held(("ks.seat",), False)),
        ("TRUNCATE seat", Held((), True)),
    ],
)
def test_a_statement_holds_its_partition(text: str, place: Held) -> None:
    assert held(planned(text), {"h": "a"}) == (place,)
