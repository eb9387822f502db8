"""Tables that are altered while groups wait or run: a step looks at its table when it changes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.errors import InvalidGroup
from strandline.group.checks import ask
from strandline.group.definition import Group
from strandline.group.target import Failed, Undone
from strandline.testing import points
from tests.group.conftest import ACCOUNTS as ROWS
from tests.group.target_rooms import Stage
from tests.group.test_sql_schedules import between
from tests.group.worlds import ACCOUNTS, LwwShop, PostgresShop, SqliteShop, World, update

AUDIT = "INSERT INTO audit VALUES (1)"
TRIGGER = {
    "sqlite": [f"CREATE TRIGGER told AFTER UPDATE ON account BEGIN {AUDIT}; END",
               f"CREATE TRIGGER told_too AFTER DELETE ON account BEGIN {AUDIT}; END"],
    "postgres": [f"CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {AUDIT}; RETURN NULL; END $$",
                 "CREATE TRIGGER told AFTER UPDATE OR DELETE ON account FOR EACH ROW EXECUTE FUNCTION told()"],
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    shop: Any = SqliteShop(tmp_path / "shop.db")
    if request.param == "postgres":
        shop.close()
        shop = PostgresShop(request.getfixturevalue("shop"))
    made = World(shop)
    shop.execute("CREATE TABLE audit (n integer)")
    shop.execute("CREATE TABLE entry (id integer PRIMARY KEY, account integer)")
    shop.execute("INSERT INTO entry VALUES (1, 1)")
    yield made
    made.close()


def dialect(world: World) -> str:
    return "sqlite" if isinstance(world.shop, SqliteShop) else "postgres"


def child(action: str) -> list[str]:
    return [
        f"CREATE TABLE child (id integer PRIMARY KEY, account integer REFERENCES account (id) {action})",
        "INSERT INTO child VALUES (1, 1)",
    ]


CHANGES = {
    "UPDATE account SET amount = 1 WHERE id = 1": "update",
    "DELETE FROM account WHERE id = 1": "delete",
    "INSERT INTO account (id, name) VALUES (7, 'g')": "insert",
}


def fails_afterwards(text: str) -> Group:
    g = Group("g")
    getattr(g, CHANGES[text])("x", text, target="shop")
    g.empty("e", depends_on=["x"], success="1 = 2")
    return g


# ---------------------------------------------------------------- between submit and start, with default settings


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G85", "G55", "RG2")
@pytest.mark.parametrize("change", ["cascade", "trigger"])
def test_what_would_carry_a_change_on_fails_the_step(world: World, change: str) -> None:
    text = "DELETE FROM account WHERE id = 1" if change == "cascade" else "UPDATE account SET amount = 1 WHERE id = 1"
    world.plain.submit(fails_afterwards(text))
    for statement in child("ON DELETE CASCADE") if change == "cascade" else TRIGGER[dialect(world)]:
        world.shop.execute(statement)
    world.plain.processor().run_until_idle()
    outcome = world.plain.get("g")
    assert (outcome.state, outcome.reason) == ("aborted", "schema_changed"), outcome
    assert ("child" if change == "cascade" else "told") in str(outcome.detail)
    assert world.accounts() == ACCOUNTS
    assert world.shop.execute("SELECT * FROM audit") == []
    if change == "cascade":
        assert world.shop.execute("SELECT * FROM child") == [(1, 1)]


@pytest.mark.req("G85", "RG2")
@pytest.mark.parametrize("text", CHANGES)
def test_a_column_that_is_new_comes_back_with_its_row(world: World, text: str) -> None:
    world.plain.submit(fails_afterwards(text))
    world.shop.execute("ALTER TABLE account ADD COLUMN more text")
    world.shop.execute("UPDATE account SET more = 'kept'")
    before = world.shop.execute("SELECT * FROM account ORDER BY id")
    world.plain.processor().run_until_idle()
    assert world.plain.get("g").state == "rolled_back"
    assert world.shop.execute("SELECT * FROM account ORDER BY id") == before


UNRELATED = [
    "ALTER TABLE account ADD COLUMN more text",
    "ALTER TABLE account DROP COLUMN note",
    "ALTER TABLE account RENAME COLUMN note TO remark",
    "CREATE INDEX by_name ON account (name)",
    "CREATE UNIQUE INDEX one ON account (note)",
    "CREATE TABLE child (id integer PRIMARY KEY, account integer REFERENCES account (id))",
    "DROP TABLE entry",
]


@pytest.mark.usefixtures("step_by_step")  # in the last segment no step looks at its table
@pytest.mark.req("G85")
@pytest.mark.parametrize("change", UNRELATED)
def test_a_change_that_has_nothing_to_do_with_it_lets_a_group_run(world: World, change: str) -> None:
    world.shop.execute("ALTER TABLE account ADD COLUMN note text")
    for n, text in enumerate(CHANGES):
        g = Group(f"g{n}")
        getattr(g, CHANGES[text])("x", text, target="shop")
        world.plain.submit(g)
    world.shop.execute(change)
    world.plain.processor().run_until_idle()
    found = [world.plain.get(f"g{n}") for n in range(len(CHANGES))]
    assert [one.state for one in found] == ["committed"] * 3, found


@pytest.mark.req("G85")
@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("change", ["ALTER TABLE account RENAME COLUMN amount TO money", "DROP TABLE account"])
def test_a_column_that_it_uses_or_its_table_is_another_one(world: World, change: str, undo: bool) -> None:
    g = Group("g")
    update(g, "x", 1, 1, irreversible=not undo)
    world.plain.submit(g)
    world.shop.execute(change)
    world.plain.processor().run_until_idle()
    assert (world.plain.get("g").state, world.plain.get("g").reason) == ("aborted", "schema_changed")


@pytest.mark.req("G85")
def test_a_table_is_seen_as_it_is_by_who_submits(world: World) -> None:
    g = Group("g")
    update(g, "x", 1, 1)
    assert world.run(g).state == "committed"
    world.shop.execute("ALTER TABLE account RENAME COLUMN amount TO money")
    h = Group("h")
    h.update("x", "UPDATE account SET money = 5 WHERE id = 1", target="shop")
    assert world.run(h).state == "committed"


@pytest.mark.req("G85")
def test_a_target_without_transactions_looks_before_its_image() -> None:
    shop = LwwShop()
    shop.execute("CREATE TABLE account (id int PRIMARY KEY, name text, amount int)")
    with strandline.connect("memory:") as s:
        groups = s.groups(targets={"shop": shop.url})
        groups.submit(fails_afterwards("DELETE FROM account WHERE id = 1"))
        tables = shop._target.keyspace.tables
        tables["account"] = tables["account"]._replace(unsafe=("has the trigger told",))
        groups.processor().run_until_idle()
        assert (groups.get("g").state, groups.get("g").reason) == ("aborted", "schema_changed")


# ---------------------------------------------------------------- while a step runs, and before it is undone


@pytest.mark.req("G85", "G55", "RG2")
@pytest.mark.parametrize("point", ["image", "change", "add_barrier"])
def test_who_alters_a_table_waits_for_the_step(stage: Stage, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    stage.room.execute("CREATE TABLE audit (n integer)")
    if stage.room.dialect == "postgres":
        stage.room.execute(TRIGGER["postgres"][0])
    work = stage.segment("UPDATE account SET amount = 0 WHERE id < 3")
    other = threading.Thread(target=stage.room.another(), args=(TRIGGER[stage.room.dialect][-1],))

    def alter() -> None:
        other.start()
        other.join(0.2)
        assert other.is_alive()

    between(stage, monkeypatch, point, alter)
    assert not isinstance(stage.ran(work), Failed)
    other.join(20)
    assert stage.room.execute("SELECT * FROM audit") == []


@pytest.mark.req("G52", "G85", "RG2")
def test_an_undo_takes_no_rows_along_that_refer_to_its_own_by_now(stage: Stage) -> None:
    stage.done("INSERT INTO account VALUES (7, 'g', 1)")
    for statement in child("ON DELETE CASCADE"):
        stage.room.execute(statement.replace("(1, 1)", "(1, 7)"))
    found = stage.undo()
    assert not isinstance(found, Undone), found
    assert stage.room.execute("SELECT * FROM child") == [(1, 7)]
    assert stage.room.execute("SELECT * FROM account ORDER BY id")[:3] == ROWS


@pytest.mark.req("G85", "G91")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_user_who_may_change_one_column_alone_is_served(stage: Stage) -> None:
    """Such a user may not lock the table; the look at it is as good as it can be."""
    role, execute = "clerk_of_" + stage.owner.row[:8], stage.room.execute
    user = execute("SELECT current_user")[0][0]
    execute(f"CREATE ROLE {role}")
    try:
        execute(f"GRANT USAGE ON SCHEMA public, strandline TO {role}")
        execute(f"GRANT SELECT, UPDATE (amount) ON account TO {role}")
        execute(f"GRANT ALL ON strandline.strandline_target, strandline.strandline_barrier TO {role}")
        execute(f'ALTER ROLE "{user}" SET role = {role}')
        stage.target = stage.room.again()
        stage.done("UPDATE account SET amount = 5 WHERE id = 1")
        assert isinstance(stage.run("DELETE FROM account WHERE id = 1"), Failed), "it may not"
        assert isinstance(stage.undo("s0"), Undone)
        stage.target.close()
    finally:
        execute(f'ALTER ROLE "{user}" RESET role')
        execute(f"DROP OWNED BY {role}")
        execute(f"DROP ROLE {role}")


@pytest.mark.req("G85", "RG8")
@pytest.mark.parametrize("room", ["postgres"], indirect=True)
def test_a_step_needs_no_second_connection_to_look_at_its_table(stage: Stage) -> None:
    """After a restart nothing is known of it; as many steps as there are connections would wait for each other."""
    work = stage.segment("UPDATE account SET amount = 5 WHERE id = 1")
    stage.target = stage.room.again(connections=1)
    assert not isinstance(stage.ran(work), Failed)
    stage.room.execute("ALTER TABLE account ADD COLUMN more text")
    assert not isinstance(stage.run("UPDATE account SET amount = 6 WHERE id = 1"), Failed)
    stage.room.execute("ALTER TABLE account DROP COLUMN more")
    stage.undo_all()
    stage.target.close()
    assert stage.room.execute("SELECT * FROM account ORDER BY id") == ROWS


@pytest.mark.req("G59")
@pytest.mark.parametrize("runs", [True, False], ids=["ended", "queued"])
def test_a_group_that_was_submitted_stays_so_when_its_table_has_changed(world: World, runs: bool) -> None:
    """Submitted again it is the same group, though as a new one it would be refused now."""
    world.handlers["yes"] = lambda message: {"value": True}
    g = update_and_ask("g")
    world.plain.submit(g)
    if runs:
        world.plain.processor().run_until_idle()
    for text in TRIGGER[dialect(world)]:
        world.shop.execute(text)
    for groups in (world.plain, world.groups()):
        handle = groups.submit(g)
        assert groups.get(handle.id).state == ("committed" if runs else "queued")
        with pytest.raises(InvalidGroup):
            groups.submit(update_and_ask("another"))
    assert [type_ for type_, _, _ in world.plain.history("g")].count("Defined") == 1


@pytest.mark.req("G59")
def test_who_died_between_the_two_appends_is_told_that_its_table_has_changed(world: World) -> None:
    """The group is in no stream: to say that it was submitted would be wrong."""
    world.handlers["yes"] = lambda message: {"value": True}

    def die() -> None:
        raise KeyboardInterrupt

    points.at("group.defined", die)
    try:
        with pytest.raises(KeyboardInterrupt):
            world.plain.submit(update_and_ask("g"))
    finally:
        points.clear()
    for text in TRIGGER[dialect(world)]:
        world.shop.execute(text)
    with pytest.raises(InvalidGroup):
        world.plain.submit(update_and_ask("g"))
    assert world.plain.get("g").state == "defined"


def update_and_ask(id_: str) -> Group:
    g = Group(id_)
    update(g, "x", 1, 5)
    g.empty("asks", depends_on=["x"], checks=[ask("yes")])
    return g
