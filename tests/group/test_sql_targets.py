"""Steps on SQL targets: done in one commit, undone by their images, whatever others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import InvalidGroup, LeaseLost
from strandline.group.target import Done, Failed, Limits, NotUndone, Owner, SqlTarget, StepId, Undone
from strandline.group.targets.changes import Changes, Row
from tests.group.conftest import ACCOUNTS
from tests.group.target_rooms import Stage


def accounts(stage: Stage) -> list[Any]:
    return stage.room.execute("SELECT id, name, amount FROM account ORDER BY id")


def test_it_is_a_target(room: Any) -> None:
    assert isinstance(room.target, SqlTarget)


# ---------------------------------------------------------------- done and undone


UPSERT = """
INSERT INTO account VALUES (1, 'new', 1), (4, 'd', 4), (2, 'new', 2) ON CONFLICT (id) DO UPDATE SET name = excluded.name
"""
CHANGES = [
    ("INSERT INTO account VALUES (4, 'dora', 40)", 1),
    ("INSERT INTO account (name) VALUES ('dora'), ('emil')", 2),
    ("INSERT INTO account (id, name) SELECT id + 10, name FROM account", 3),
    ("INSERT INTO account VALUES (1, 'x', 1) ON CONFLICT DO NOTHING", 0),
    (UPSERT, 3),
    ("UPDATE account SET amount = amount + 1 WHERE id = 1", 1),
    ("UPDATE account SET amount = 99", 3),
    ("UPDATE account SET amount = 5 WHERE id IN (2, 7)", 1),
    ("UPDATE account SET amount = 0, name = NULL WHERE amount >= 10", 2),
    ("UPDATE account SET amount = 7 WHERE id = 99", 0),
    ("UPDATE account AS a SET name = 'z' WHERE a.amount IS NULL", 1),
    ("DELETE FROM account WHERE id = 2", 1),
    ("DELETE FROM account WHERE id > 1 AND id < 9", 2),
    ("DELETE FROM account", 3),
    (
        "WITH rich AS (SELECT id FROM account WHERE amount > 15) DELETE FROM account WHERE id IN (SELECT id FROM rich)",
        1,
    ),
]


@pytest.mark.req("G39", "G43", "G49", "G50", "G51", "S26", "S27", "S28", "RG2")
@pytest.mark.parametrize(("text", "affected"), CHANGES)
def test_a_change_is_undone_as_if_it_had_never_been(stage: Stage, text: str, affected: int) -> None:
    done = stage.done(text)
    assert done.affected == affected
    after = accounts(stage)
    assert (after != ACCOUNTS) == bool(affected)
    assert isinstance(stage.undo(), Undone)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G42", "G46", "S41", "RG6")
def test_an_undo_may_be_repeated_and_a_late_statement_has_no_effect(stage: Stage) -> None:
    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id = 1")
    stage.ran(work)
    assert stage.undo() == Undone(restored=1)
    stage.room.execute("UPDATE account SET amount = 500 WHERE id = 1")
    assert stage.undo() == Undone()
    with pytest.raises(LeaseLost):
        stage.ran(work)
    assert accounts(stage)[0] == (1, "anna", 500)


@pytest.mark.req("G72", "RG3")
def test_a_step_takes_effect_once_however_often_it_is_run(stage: Stage) -> None:
    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id = 1 RETURNING id, amount")
    first = stage.ran(work)
    again = stage.ran(work)
    assert isinstance(first, Done)
    assert again == first
    assert stage.again
    assert first.rows.rows == ((1, 11),)
    assert accounts(stage)[0] == (1, "anna", 11)


@pytest.mark.req("G6", "RG5")
def test_what_never_ran_is_voided_and_can_never_run(stage: Stage) -> None:
    work = stage.segment("DELETE FROM account")
    assert stage.target.void(stage.owner, work.id, 1)
    assert stage.target.void(stage.owner, work.id, 1), "again"
    with pytest.raises(LeaseLost):
        stage.ran(work)
    assert stage.undo() == Undone(ran=False)
    assert accounts(stage) == ACCOUNTS
    other = stage.segment("DELETE FROM account WHERE id = 1")
    stage.ran(other)
    assert not stage.target.void(stage.owner, other.id, 1), "it ran"


@pytest.mark.req("G42", "S41", "RG6")
def test_undoing_what_never_ran_changes_nothing_and_keeps_it_from_running(stage: Stage) -> None:
    work = stage.segment("DELETE FROM account")
    assert stage.undo() == Undone(ran=False)
    with pytest.raises(LeaseLost):
        stage.ran(work)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G43", "S31", "RG2")
def test_a_row_changed_again_and_again_has_its_first_state_back(stage: Stage) -> None:
    stage.done("INSERT INTO account VALUES (4, 'd', 1)")
    stage.done("UPDATE account SET amount = 2 WHERE id = 4")
    stage.done("UPDATE account SET amount = amount * 3, name = 'e' WHERE id IN (1, 4)")
    stage.done("DELETE FROM account WHERE id IN (1, 4)")
    stage.done("INSERT INTO account VALUES (1, 'other', 0)")
    stage.undo_all()
    assert accounts(stage) == ACCOUNTS


# ---------------------------------------------------------------- others write, too


@pytest.mark.req("G52", "S34", "RG2")
def test_columns_that_the_step_did_not_change_are_their_writers(stage: Stage) -> None:
    stage.done("UPDATE account SET amount = 99 WHERE id = 1")
    stage.room.execute("UPDATE account SET name = 'theirs' WHERE id = 1")
    stage.room.execute("UPDATE account SET amount = 77 WHERE id = 2")
    assert isinstance(stage.undo(), Undone)
    assert accounts(stage) == [(1, "theirs", 10), (2, "bert", 77), ACCOUNTS[2]]


@pytest.mark.req("G53", "S34")
@pytest.mark.parametrize(("on_conflict", "left"), [("fail", 50), ("keep_current", 50), ("overwrite", 10)], ids=str)
def test_who_wrote_the_same_column_meanwhile(stage: Stage, on_conflict: Any, left: int) -> None:
    stage.done("UPDATE account SET amount = 99 WHERE id < 3")
    stage.room.execute("UPDATE account SET amount = 50 WHERE id = 1")
    found = stage.undo(on_conflict=on_conflict)
    if on_conflict == "fail":
        assert isinstance(found, NotUndone)
        (conflict,) = found.conflicts
        assert [None if row is None else str(row[1]) for row in conflict[1:]] == ["10", "99", "50"]
        assert accounts(stage)[:2] == [(1, "anna", 50), (2, "bert", 99)], "nothing was put back"
        assert isinstance(stage.undo(told="force"), Undone)
        assert accounts(stage) == ACCOUNTS
    else:
        assert isinstance(found, Undone)
        assert len(found.kept) == (on_conflict == "keep_current")
        assert accounts(stage)[:2] == [(1, "anna", left), (2, "bert", 20)]


@pytest.mark.req("G53", "S34")
def test_a_row_that_is_as_before_needs_nothing(stage: Stage) -> None:
    stage.done("UPDATE account SET amount = 99 WHERE id = 1")
    stage.room.execute("UPDATE account SET amount = 10 WHERE id = 1")
    assert stage.undo() == Undone(restored=0)


@pytest.mark.req("G47", "G53")
def test_an_operator_may_accept_what_is_there(stage: Stage) -> None:
    stage.done("UPDATE account SET amount = 99 WHERE id = 1")
    stage.room.execute("UPDATE account SET amount = 50 WHERE id = 1")
    assert isinstance(stage.undo(), NotUndone)
    assert stage.undo(told="accept_current") == Undone()
    assert accounts(stage)[0] == (1, "anna", 50)


@pytest.mark.req("G52")
def test_an_inserted_row_is_compared_whole(stage: Stage) -> None:
    stage.done("INSERT INTO account (id) VALUES (4)")
    stage.room.execute("UPDATE account SET name = 'theirs' WHERE id = 4")
    assert isinstance(stage.undo(), NotUndone)
    assert len(accounts(stage)) == 4


@pytest.mark.req("G53")
def test_a_deleted_row_that_somebody_put_back_differently_is_a_conflict(stage: Stage) -> None:
    stage.done("DELETE FROM account WHERE id = 1")
    stage.room.execute("INSERT INTO account VALUES (1, 'theirs', 0)")
    assert isinstance(stage.undo(), NotUndone)
    assert isinstance(stage.undo(on_conflict="overwrite"), Undone)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G55")
def test_undoing_an_insert_takes_no_rows_of_others_along(stage: Stage) -> None:
    stage.room.execute(
        "CREATE TABLE entry (id integer PRIMARY KEY, a integer REFERENCES account (id) ON DELETE CASCADE)"
    )
    assert stage.plan("DELETE FROM account WHERE id = 1").obstacles
    stage.done("INSERT INTO account VALUES (4, 'd', 4)")
    stage.room.execute("INSERT INTO entry VALUES (1, 4)")
    assert isinstance(stage.undo(), NotUndone)
    assert stage.room.execute("SELECT count(*) FROM entry") == [(1,)]
    stage.room.execute("DELETE FROM entry")
    assert isinstance(stage.undo(), Undone)
    assert accounts(stage) == ACCOUNTS


# ---------------------------------------------------------------- fences


@pytest.mark.req("G75", "G76", "RG7")
def test_an_older_fence_cannot_do_anything(stage: Stage) -> None:
    done = stage.segment("UPDATE account SET amount = 1 WHERE id = 1")
    stage.ran(done)
    stage.target.raise_fence(stage.owner, 2)
    late = stage.segment("DELETE FROM account")
    calls: list[Callable[[], object]] = [
        lambda: stage.ran(late),
        lambda: stage.ran(done),
        lambda: stage.target.undo_segment(stage.owner, done, "fail"),
        lambda: stage.target.void(stage.owner, late.id, 1),
        lambda: stage.target.raise_fence(stage.owner, 1),
    ]
    for call in calls:
        with pytest.raises(LeaseLost):
            call()
    assert accounts(stage)[0] == (1, "anna", 1)
    stage.fence = 2
    assert isinstance(stage.undo("s0"), Undone)
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G89")
def test_a_target_belongs_to_one_stream_of_one_history(stage: Stage) -> None:
    assert stage.target.own("history", "default", shared=False).fence == 1
    with pytest.raises(InvalidGroup) as caught:
        stage.target.own("history", "other", shared=False)
    assert caught.value.name == "InvalidGroup.target_taken"
    assert stage.target.own("history", "other", shared=True).identity == stage.owner.identity


@pytest.mark.req("G89")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize("shared", [True, False])
def test_of_two_streams_that_come_at_once_one_is_first(
    stage: Stage, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one looked before the first had its row, in tables that were there before both."""
    stage.room.execute("DELETE FROM strandline.strandline_target")
    other, found, first = stage.room.again(), stage.target._owners, list[Owner]()

    def raced(changes: Changes) -> list[Row]:
        rows = found(changes)
        if not first:
            first.append(other.own("history", "first", shared=True))
        return rows

    monkeypatch.setattr(stage.target, "_owners", raced)
    if shared:
        assert stage.target.own("history", "second", shared=True).identity == first[0].identity
    else:
        with pytest.raises(InvalidGroup) as caught:
            stage.target.own("history", "second", shared=False)
        assert caught.value.name == "InvalidGroup.target_taken"
    assert len(stage.room.execute("SELECT owner FROM strandline.strandline_target")) == 1 + shared
    other.close()


@pytest.mark.req("G89")
def test_what_was_done_for_another_history_is_not_done_again_by_who_takes_over(stage: Stage) -> None:
    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id = 1")
    stage.ran(work)
    with pytest.raises(InvalidGroup) as caught:
        stage.target.own("restored", "default", shared=False)
    stage.room.execute(caught.value.hint.partition("to hand it over: ")[2])
    owner = stage.target.own("restored", "default", shared=False)
    found = stage.ran(work, owner)
    assert isinstance(found, Done)
    assert stage.again
    assert accounts(stage)[0] == (1, "anna", 11)


@pytest.mark.req("G76")
def test_another_life_or_definition_has_its_own_barrier_rows(stage: Stage) -> None:
    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id = 1")
    for step in (work.id, work.id._replace(life=2), work.id._replace(definition="other")):
        found = stage.ran(work._replace(id=step))
        assert isinstance(found, Done)
        assert not stage.again
    assert accounts(stage)[0][2] == 13
    rows = [row for life in (1, 2) for row in stage.target.barriers(stage.owner, "g", life)]
    assert {(row.id.life, row.id.definition, row.op, row.void) for row in rows} == {
        (1, "hash", "do", False), (2, "hash", "do", False), (1, "other", "do", False),
    }  # fmt: skip


@pytest.mark.req("G76")
def test_old_barrier_rows_of_groups_that_are_over_are_removed(stage: Stage) -> None:
    work = stage.segment("UPDATE account SET amount = amount + 1 WHERE id = 1")
    for group in ("old", "open", "new"):
        assert isinstance(stage.ran(work._replace(id=work.id._replace(group=group))), Done)

    def left() -> set[str]:
        return {group for group in ("old", "open", "new") if stage.target.barriers(stage.owner, group, 1)}

    assert stage.target.forget(stage.owner, 1, 3600, {"open"}, 10) == 0
    schema, ago = ("main", "at - 4000") if stage.room.dialect == "sqlite" else ("strandline", "at - interval '4000 s'")
    stage.room.execute(f"UPDATE {schema}.strandline_barrier SET at = {ago} WHERE group_id <> 'new'")
    with pytest.raises(LeaseLost):
        stage.target.forget(stage.owner, 0, 3600, {"open"}, 10)
    assert left() == {"old", "open", "new"}
    assert stage.target.forget(stage.owner, 1, 3600, {"open"}, 1) == 1
    assert left() == {"open", "new"}
    assert stage.target.forget(stage.owner, 1, 3600, {"open"}, 1) == 0


# ---------------------------------------------------------------- what a statement may say


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO account VALUES (1, 'again', 0)",
        "INSERT INTO account (id, name) VALUES (5, 'a'), (5, 'b')",
    ],
)
def test_a_refused_statement_changes_nothing_and_leaves_no_barrier(stage: Stage, text: str) -> None:
    found = stage.run(text)
    assert isinstance(found, Failed)
    assert found.reason == "statement"
    assert accounts(stage) == ACCOUNTS
    assert stage.target.barriers(stage.owner, "g", 1) == []


@pytest.mark.req("G56", "S32")
def test_too_large_an_image_is_found_before_the_write(stage: Stage) -> None:
    limits = Limits(rows_max=2)
    assert stage.run("UPDATE account SET amount = 0", limits=limits) == Failed(
        "too_large", "more than rows_max rows, 2"
    )
    small = stage.run("UPDATE account SET name = 'x' WHERE id = 1", limits=Limits(image_bytes_max=5))
    assert isinstance(small, Failed)
    assert small.reason == "too_large"
    assert accounts(stage) == ACCOUNTS
    assert isinstance(stage.run("UPDATE account SET amount = 0 WHERE id < 3", limits=limits), Done)


@pytest.mark.req("G34", "S9")
def test_values_arrive_as_they_are(stage: Stage) -> None:
    text = "it's; DROP TABLE account; -- :x % ? \U0001f600 $1 \\"
    stage.done("UPDATE account SET name = :text WHERE id = :id AND name <> ':text ?'", {"text": text, "id": 1})
    assert accounts(stage)[0] == (1, text, 10)
    stage.undo()
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G35", "S11")
@pytest.mark.parametrize("ids", [[], [2], [1, 2, 3], list(range(2, 10_002))])
def test_a_list_binds_to_in(stage: Stage, ids: list[int]) -> None:
    done = stage.done("DELETE FROM account WHERE id IN :old.ids", {"old.ids": ids})
    left = [row for row in ACCOUNTS if row[0] not in ids]
    assert accounts(stage) == left
    assert done.affected == 3 - len(left)
    stage.undo()
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G35")
def test_lists_that_have_no_meaning_are_refused(stage: Stage) -> None:
    def asked(text: str, value: Any) -> Any:
        return stage.rows(text, {"x": value}, Limits(rows_max=3))

    some = "SELECT id FROM account WHERE id IN :x OR id = 1"
    assert asked(some, []).rows == ((1,),)
    assert asked("SELECT id FROM account WHERE name IN :x", ["anna", 'b"e\\rt']).rows == ((1,),)
    assert sorted(asked("SELECT id FROM account WHERE id NOT IN :x", [1]).rows) == [(2,), (3,)]
    for text, value in [
        ("SELECT id FROM account WHERE id NOT IN :x", []),
        (some, [1, None]),
        (some, [1, 2, 3, 4]),
        (some, 1),
        ("SELECT id FROM account WHERE id = :x", [1]),
    ]:
        found = asked(text, value)
        assert isinstance(found, Failed), text
        assert found.reason == "binding"


@pytest.mark.req("G35")
def test_for_each_is_one_step(stage: Stage) -> None:
    text = "UPDATE account SET amount = :row.amount, name = :name WHERE id = :row.id"
    each = ({"row.id": 1, "row.amount": 100}, {"row.id": 2, "row.amount": 200}, {"row.id": 1, "row.amount": 300})
    done = stage.done(text, {"name": "n"}, each=each)
    assert done.affected == 3
    assert accounts(stage)[:2] == [(1, "n", 300), (2, "n", 200)]
    stage.undo()
    assert accounts(stage) == ACCOUNTS
    insert = "INSERT INTO account VALUES (:row.id, 'x', 0)"
    assert isinstance(stage.run(insert, each=({"row.id": 8}, {"row.id": 1})), Failed)
    assert accounts(stage) == ACCOUNTS, "all or nothing"
    upsert = "INSERT INTO account VALUES (:row.id, 'x', 0) ON CONFLICT (id) DO UPDATE SET amount = 5"
    stage.done(upsert, each=({"row.id": 8}, {"row.id": 8}, {"row.id": 1}))
    assert accounts(stage)[-1] == (8, "x", 5)
    stage.undo()
    assert accounts(stage) == ACCOUNTS
    stage.done("DELETE FROM account WHERE id = :row.id", each=({"row.id": 1}, {"row.id": 3}))
    stage.undo()
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G30", "G17")
def test_a_query_gives_rows_with_names(stage: Stage) -> None:
    found = stage.rows("SELECT ID, Name FROM account WHERE id < :n ORDER BY id", {"n": 3})
    assert found.columns == ("id", "name")
    assert found.rows == ((1, "anna"), (2, "bert"))
    assert stage.rows("SELECT COUNT(*) FROM account").columns == ("count",)
    assert stage.rows("SELECT name FROM account WHERE id = 99")[:1] == (("name",),), "also where there are no rows"
    stage.room.execute("CREATE TABLE flag (id integer PRIMARY KEY, is_active boolean)")
    stage.room.execute("INSERT INTO flag VALUES (1, true), (2, false), (3, NULL)")
    assert stage.rows("SELECT is_active FROM flag ORDER BY id").rows == ((True,), (False,), (None,))
    assert stage.rows("SELECT id FROM account", limits=Limits(rows_max=2)) == Failed(
        "too_large", "more than rows_max rows, 2"
    )
    wrong = stage.rows("SELECT id FROM account WHERE nothing = 1")
    assert isinstance(wrong, Failed)
    assert wrong.reason == "statement"


@pytest.mark.req("G17", "G49")
def test_a_returning_of_the_user_is_kept_apart_from_the_image(stage: Stage) -> None:
    done = stage.done("INSERT INTO account (name) VALUES ('x') RETURNING name, amount")
    assert (done.rows.columns, done.rows.rows) == (("name", "amount"), (("x", None),))
    done = stage.done("DELETE FROM account WHERE id = 1 RETURNING amount")
    assert done.rows.rows == ((10,),)
    stage.undo_all()
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G45")
def test_a_step_that_is_not_undone_has_no_images(stage: Stage) -> None:
    done = stage.done("UPDATE account SET id = id + 100", undo=False)
    assert (done.affected, done.before.rows) == (3, ())
    again = stage.ran(stage.segments["s0"])
    assert isinstance(again, Done)
    assert stage.again


@pytest.mark.req("G85")
def test_what_a_plan_rests_on_is_read_from_the_schema(stage: Stage) -> None:
    found = stage.target.tables(["account", "nobody"])
    assert list(found) == ["account"]
    assert (found["account"].key, found["account"].names) == (("id",), ("id", "name", "amount"))
    assert "there is no table nobody" in str(stage.plan("DELETE FROM nobody").problems)
    assert "no column colour" in str(stage.plan("UPDATE account SET colour = 1").problems)


@pytest.mark.req("G56")
def test_rows_that_collide_are_put_back_last(stage: Stage) -> None:
    stage.room.execute("CREATE TABLE seat (id integer PRIMARY KEY, number integer UNIQUE)")
    stage.room.execute("INSERT INTO seat VALUES (1, 1), (2, 2), (3, 3)")
    stage.done("UPDATE seat SET number = number - 1")
    assert stage.undo() == Undone(restored=3)
    assert stage.room.execute("SELECT id, number FROM seat ORDER BY id") == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.req("G50")
def test_a_key_of_several_columns_and_odd_names(stage: Stage) -> None:
    stage.room.execute('CREATE TABLE "Odd ""One" ("a b" integer, "Sel" text, val text, PRIMARY KEY ("Sel", "a b"))')
    stage.room.execute("""INSERT INTO "Odd ""One" VALUES (1, 'x', 'one'), (2, 'x', 'two'), (1, 'y', 'three')""")
    before = stage.room.execute('SELECT * FROM "Odd ""One" ORDER BY val')
    stage.done("""UPDATE "Odd ""One" SET val = 'new' WHERE "Sel" = 'x'""")
    stage.done("""DELETE FROM "Odd ""One" WHERE "a b" = 1""")
    stage.done("""INSERT INTO "Odd ""One" ("Sel", "a b") VALUES ('z', 9)""")
    stage.undo_all()
    assert stage.room.execute('SELECT * FROM "Odd ""One" ORDER BY val') == before


def test_barrier_rows_of_one_step_are_told_from_anothers(stage: Stage) -> None:
    stage.done("UPDATE account SET amount = 1 WHERE id = 1")
    stage.undo()
    rows = stage.target.barriers(stage.owner, "g", 1)
    assert sorted((row.id, row.op, not row.steps) for row in rows) == [
        (StepId("g", 1, "hash", "s0"), "do", False),
        (StepId("g", 1, "hash", "s0"), "undo", True),
    ]


# ---------------------------------------------------------------- prepared statements


@pytest.mark.req("G85", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize("meanwhile", ["nothing", "deallocated", "other type"])
def test_what_comes_again_is_prepared_and_does_not_hold_longer_than_its_tables(stage: Stage, meanwhile: str) -> None:
    """A pooler gives us another session, or somebody changes what a statement returns."""
    change, look = "UPDATE account SET amount = amount + :n WHERE id = :id RETURNING *", "SELECT * FROM account"
    values = {"id": 1, "n": 1}
    for _ in range(3):
        stage.done(change, values)
        stage.rows(f"{look} WHERE id = :id", {"id": 1})
    (connection,) = stage.target._pool._idle
    assert connection.has_prepared_theirs
    if meanwhile == "deallocated":
        connection.execute("DEALLOCATE ALL")
    elif meanwhile == "other type":
        stage.room.execute("ALTER TABLE account ALTER amount TYPE numeric")
    done = stage.done(change, values)
    assert [str(value) for value in done.rows.rows[0]] == ["1", "anna", "14"]
    assert [str(value) for value in stage.rows(f"{look} WHERE id = :id", {"id": 1}).rows[0]] == ["1", "anna", "14"]
    stage.undo_all()
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G2", "G71", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "text",
    ["SELECT f()", "SELECT * FROM f()", "SELECT * FROM calling", "SELECT f() FROM account WHERE id = 1",
     "WITH a AS (SELECT f() AS n) SELECT n FROM a", "SELECT nextval('counted')"],
)  # fmt: skip
def test_a_query_that_writes_fails(stage: Stage, text: str) -> None:
    stage.room.execute(
        "CREATE FUNCTION f() RETURNS integer LANGUAGE sql AS $$ INSERT INTO account VALUES (9, 'f', 9) RETURNING id $$"
    )
    stage.room.execute("CREATE VIEW calling AS SELECT f()")
    stage.room.execute("CREATE SEQUENCE counted")
    found = stage.rows(text)
    assert isinstance(found, Failed), found
    assert (found.reason, found.retry) == ("statement", False)
    assert "read-only" in found.detail
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G17")
@pytest.mark.parametrize("text", ["SELECT * FROM account", "TABLE account", "VALUES (1), (2), (3)",
                                  "WITH a AS (SELECT id FROM account) SELECT * FROM a",
                                  "SELECT id FROM account UNION ALL SELECT 4 -- the last"])  # fmt: skip
def test_queries_of_any_form_are_bounded(stage: Stage, text: str) -> None:
    if stage.room.dialect == "sqlite" and text.startswith("TABLE"):
        text = text.replace("TABLE", "SELECT * FROM")
    found = stage.rows(text)
    assert len(found.rows) in (3, 4)
    assert len(found.rows[0]) == len(found.columns)
    many = stage.rows(text, limits=Limits(rows_max=2))
    assert isinstance(many, Failed), many
    assert many.reason == "too_large"


@pytest.mark.req("G39")
def test_a_statement_that_changes_no_rows_affects_none(stage: Stage) -> None:
    """Whatever the statement before it changed."""
    stage.done("UPDATE account SET amount = 1")
    assert stage.done("CREATE TABLE new (id integer)", undo=False).affected == 0
    assert stage.done("UPDATE account SET amount = 2 WHERE id > 1").affected == 2
    assert stage.done("DROP TABLE new", undo=False).affected == 0
    assert stage.done("UPDATE account SET amount = 3 WHERE id = 99").affected == 0
