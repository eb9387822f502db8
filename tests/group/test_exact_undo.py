"""What a step saves, changes and puts back are the same rows, whole; where they cannot be, nothing is kept."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.group.statements import held
from strandline.group.target import Done, Failed, NotUndone, Undone
from tests.group.conftest import ACCOUNTS
from tests.group.target_rooms import PostgresRoom, Stage


def accounts(stage: Stage) -> list[Any]:
    return stage.room.execute("SELECT id, name, amount FROM account ORDER BY id")


# ---------------------------------------------------------------- image and change


TAKE = """
{} WHERE id = (SELECT id FROM account ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
"""


@pytest.mark.req("G50", "S34")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize("change", ["UPDATE account SET name = 'taken'", "DELETE FROM account"])
def test_a_change_of_other_rows_than_were_saved_is_kept_from_being_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Another session holds the first row while the image is read, and lets it go before the change."""
    import psycopg

    from strandline.group.targets import postgres as module

    other = psycopg.connect(stage.room.place)
    other.execute("SELECT * FROM account WHERE id = 1 FOR UPDATE")
    real = module._PostgresChanges.image

    def image(self: Any, statement: Any) -> Any:
        found = real(self, statement)
        other.rollback()
        return found

    monkeypatch.setattr(module._PostgresChanges, "image", image)
    found = stage.run(TAKE.format(change))
    other.close()
    assert isinstance(found, Failed), found
    assert "changed other rows than were saved" in found.detail
    assert accounts(stage) == ACCOUNTS
    assert stage.undo() == Undone(ran=False)


@pytest.mark.req("G51", "G52")
def test_a_row_that_an_upsert_leaves_alone_is_not_part_of_it(stage: Stage) -> None:
    """`DO UPDATE … WHERE` is false for the first row: what another writer makes of it later is no conflict."""
    text = """
        INSERT INTO account VALUES (1, 'new', 1), (2, 'new', 2), (4, 'new', 4)
        ON CONFLICT (id) DO UPDATE SET amount = excluded.amount WHERE account.id > 1
    """
    done = stage.done(text)
    assert sorted(row[0] for row in done.before.rows) == [2 if stage.room.dialect == "sqlite" else "2"]
    stage.room.execute("UPDATE account SET amount = 99 WHERE id = 1")
    assert stage.undo(on_conflict="overwrite") == Undone(restored=2)
    assert accounts(stage) == [(1, "anna", 99), *ACCOUNTS[1:]]


FROM_FUNCTIONS = {
    "sqlite": [
        "INSERT INTO account (id, name) SELECT value, 'new' FROM json_each('[7, 8]')",
        "UPDATE account SET amount = 0 WHERE id IN account_ids",
    ],
    "postgres": [
        "INSERT INTO account (id, name) SELECT n, 'new' FROM generate_series(7, 8) AS n",
        "UPDATE account SET amount = 0 WHERE id IN (SELECT n FROM generate_series(1, 2) AS n)",
        "DELETE FROM account WHERE id IN (SELECT n FROM generate_series(1, 2) AS n)",
    ],
}


@pytest.mark.req("G43", "G49", "G50", "RG2")
def test_a_change_of_which_not_all_is_known_that_it_reads_is_undone(stage: Stage) -> None:
    stage.room.execute("CREATE TABLE account_ids (id integer PRIMARY KEY)")
    stage.room.execute("INSERT INTO account_ids VALUES (1), (2)")
    for text in FROM_FUNCTIONS[stage.room.dialect]:
        made = stage.plan(text)
        assert [place.place for place in held(made, {})] == [()], "all of the target"
        assert stage.done(text, step=text[:60]).affected == 2
        assert accounts(stage) != ACCOUNTS
        assert isinstance(stage.undo(), Undone)
        assert accounts(stage) == ACCOUNTS


# ---------------------------------------------------------------- keys with NULL, declared conflicts


@pytest.mark.req("G54")
@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "text",
    ["DELETE FROM odd WHERE v < 3", "UPDATE odd SET v = 9 WHERE v < 3", "INSERT INTO odd (v) VALUES (5)",
     "INSERT INTO odd VALUES (NULL, 1) ON CONFLICT (k) DO UPDATE SET v = 2"],
)  # fmt: skip
def test_rows_with_null_in_their_key_are_not_changed_with_an_undo(room: Any, text: str) -> None:
    room.execute("CREATE TABLE odd (k text PRIMARY KEY, v integer)")
    room.execute("INSERT INTO odd VALUES (NULL, 1), (NULL, 2), ('c', 3)")
    stage, look = Stage(room), "SELECT k, v FROM odd ORDER BY rowid"
    before = room.execute(look)
    found = stage.run(text)
    assert isinstance(found, Failed), found
    assert "NULL in its key" in found.detail
    assert room.execute(look) == before
    assert isinstance(stage.run("UPDATE odd SET v = 4 WHERE k = 'c'"), Done), "the others are as any row"
    assert isinstance(stage.run("DELETE FROM odd WHERE k IS NULL", undo=False), Done)


@pytest.mark.req("G54")
@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
@pytest.mark.parametrize("how", ["REPLACE", "IGNORE", "FAIL", "ROLLBACK", "ABORT"])
@pytest.mark.parametrize(
    "column", ["name text UNIQUE /* a comment */ ON CONFLICT {}", "name text, UNIQUE (name) on\nconflict {}"]
)
def test_a_conflict_rule_in_the_declaration_is_no_undo(room: Any, how: str, column: str) -> None:
    room.execute(f"CREATE TABLE odd (id integer PRIMARY KEY, note text DEFAULT 'on conflict', {column.format(how)})")
    stage = Stage(room)
    for text in ("INSERT INTO odd VALUES (1, '', 'a')", "UPDATE odd SET note = 'b'", "DELETE FROM odd"):
        assert bool(stage.plan(text).obstacles) == (how != "ABORT"), text


# ---------------------------------------------------------------- rows that others removed


@pytest.mark.req("G53", "G47")
@pytest.mark.parametrize("how", ["overwrite", "force"])
def test_a_row_that_somebody_removed_comes_back_whole_or_not_at_all(stage: Stage, how: str) -> None:
    stage.done("UPDATE account SET amount = 99 WHERE id = 1", step="part")
    stage.done("UPDATE account SET amount = 99, name = 'x' WHERE id = 2", step="whole")
    stage.room.execute("DELETE FROM account WHERE id < 3")
    more: dict[str, Any] = {"told": "force"} if how == "force" else {"on_conflict": "overwrite"}
    found = stage.undo("part", **more)
    assert isinstance(found, NotUndone), found
    assert "others removed a row" in found.detail
    assert [conflict.current for conflict in found.conflicts] == [None]
    assert accounts(stage) == ACCOUNTS[2:]
    assert stage.undo("whole", **more) == Undone(restored=1)
    assert accounts(stage) == ACCOUNTS[1:]
    stage.room.execute("INSERT INTO account VALUES (1, 'anna', 5)")
    assert stage.undo("part", **more) == Undone(restored=1)
    assert accounts(stage) == ACCOUNTS


# ---------------------------------------------------------------- where images are taken and put back


@pytest.mark.req("G53", "RG2")
def test_a_target_with_another_time_zone_sees_no_conflict(shop: str) -> None:
    room = PostgresRoom(shop)
    room.execute("CREATE TABLE seen (at timestamptz PRIMARY KEY, moments timestamptz[], n integer)")
    row = "'2024-02-29 12:00+00', ARRAY['2024-07-01 00:00+00', 'infinity', '0044-03-15 BC']::timestamptz[], 1"
    room.execute(f"INSERT INTO seen VALUES ({row})")
    before = room.execute("SELECT at::text, moments::text, n FROM seen")
    user = room.execute("SELECT current_user")[0][0]
    try:
        room.execute(f"ALTER ROLE \"{user}\" SET timezone = 'Asia/Kathmandu'")
        stage = Stage(room)
        text = "UPDATE seen SET n = 2, moments = moments || '2024-01-01 00:00'::timestamptz"
        stage.done(text)
        found = room.execute("SELECT moments[4] = '2024-01-01 00:00+05:45'::timestamptz FROM seen")
        assert found == [(True,)], "the user's statement has the time zone of its session"
        stage.done("DELETE FROM seen")
        room.execute(f"ALTER ROLE \"{user}\" SET timezone = 'America/New_York'")
        stage.target = room.again()
        stage.undo_all()
        stage.target.close()
    finally:
        room.execute(f'ALTER ROLE "{user}" RESET timezone')
    assert room.execute("SELECT at::text, moments::text, n FROM seen") == before
    room.close()


@pytest.mark.req("G51", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_swap_within_a_deferrable_constraint_is_undone(stage: Stage) -> None:
    stage.room.execute("ALTER TABLE account ADD CONSTRAINT one UNIQUE (amount) DEFERRABLE INITIALLY IMMEDIATE")
    stage.done("UPDATE account SET amount = 30 - amount WHERE id < 3")
    assert accounts(stage)[:2] == [(1, "anna", 20), (2, "bert", 10)]
    assert stage.undo() == Undone(restored=2)
    assert accounts(stage) == ACCOUNTS
    stage.done("DELETE FROM account WHERE id = 1")
    stage.room.execute("INSERT INTO account VALUES (7, 'theirs', 10)")
    found = stage.undo()
    assert isinstance(found, NotUndone), "what was deferred is found at the commit"
    assert "23505" in found.detail


# ---------------------------------------------------------------- functions of the user's


LONG = "SELECT string_agg(md5(n + {} || ''), '') FROM generate_series(1, 500) AS n"
"""A value that is kept apart from its row."""


@pytest.fixture
def functions(stage: Stage) -> Stage:
    """`f` changes a row of another table, `g` changes nothing; both give their argument."""
    stage.room.execute("CREATE TABLE audit (n integer)")
    body = "INSERT INTO audit VALUES (n); SELECT n"
    stage.room.execute(f"CREATE FUNCTION f(n integer) RETURNS integer LANGUAGE sql AS $$ {body} $$")
    stage.room.execute("CREATE FUNCTION g(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n'")
    stage.room.execute("CREATE FUNCTION public.upper(n integer) RETURNS integer LANGUAGE sql AS 'SELECT f(n)'")
    return stage


@pytest.mark.req("G55", "G62")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE account SET amount = {} WHERE id = 1",
        "INSERT INTO account (id, amount) VALUES (7, {})",
        "INSERT INTO account (id, amount) VALUES (1, 7) ON CONFLICT (id) DO UPDATE SET amount = {}",
        "DELETE FROM account WHERE id = 1 RETURNING {}",
        f"UPDATE account SET name = ({LONG}) WHERE id = 1",
    ],
)
def test_a_function_that_changes_other_rows_fails_a_step_that_may_be_undone(functions: Stage, text: str) -> None:
    for call in ("f(7)", "public.upper(7)"):
        found = functions.run(text.format(call))
        assert isinstance(found, Failed), found
        assert (found.reason, found.retry) == ("statement", False)
        assert "changes other rows" in found.detail
        assert accounts(functions) == ACCOUNTS
    assert functions.room.execute("SELECT n FROM audit") == []
    made = functions.plan(text.format("g(7)"))
    assert [place.place for place in held(made, {}) if place.writes] == [()], "it may read any row"
    told = made._replace(rows=functions.plan("DELETE FROM account WHERE id = 1").rows)  # by `touches`
    for plan in (made, told):
        functions.done("", plan=plan)
        assert functions.undo() == Undone(restored=1)
        assert accounts(functions) == ACCOUNTS
    functions.done(text.format("f(7)"), undo=False)
    assert set(functions.room.execute("SELECT n FROM audit")) == {(7,)}


# ---------------------------------------------------------------- which table


@pytest.mark.req("G49", "G91", "RG2")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_an_undo_goes_to_the_table_that_was_changed(stage: Stage) -> None:
    """By the time of the undo the same name means another table, in a schema that comes first."""
    user = stage.room.execute("SELECT current_user")[0][0]
    stage.done("DELETE FROM account WHERE id = 1")
    stage.room.execute(f'CREATE SCHEMA "{user}"')
    try:
        stage.room.execute(f'CREATE TABLE "{user}".account (LIKE public.account INCLUDING ALL)')
        stage.target = stage.room.again()
        assert stage.undo(on_conflict="overwrite") == Undone(restored=1)
        assert stage.room.execute("SELECT count(*) FROM account") == [(0,)], "the other one is as it was"
        stage.target.close()
    finally:
        stage.room.execute(f'DROP SCHEMA "{user}" CASCADE')
    assert accounts(stage) == ACCOUNTS


@pytest.mark.req("G54", "G62")
def test_a_name_with_a_point_is_no_table_of_a_schema(stage: Stage) -> None:
    schema = "main" if stage.room.dialect == "sqlite" else "public"
    stage.room.execute(f'CREATE TABLE "{schema}.account" (id integer PRIMARY KEY, name text, amount integer)')
    for text in ("UPDATE {} SET amount = 1 WHERE id = 1", "DELETE FROM {}", "INSERT INTO {} (id) VALUES (7)"):
        made = stage.plan(text.format(f'"{schema}.account"'))
        assert made.obstacles, "its undo would change the other table"
        assert [place.place for place in held(made, {})] == [()]
        assert not stage.plan(text.format(f'{schema}."account"')).obstacles
    looked = stage.plan(f'SELECT * FROM "{schema}.account" WHERE id = 1')
    assert [place.place for place in held(looked, {})] == [()]
    assert stage.rows(f'SELECT * FROM "{schema}.account"').rows == ()
