"""A target made anew from the histories of its groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidGroup
from strandline.group.checks import is_true
from strandline.group.core.parts import Dep, Recipe
from strandline.group.definition import Group
from tests.acceptance.cli_call import call
from tests.group.worlds import PostgresShop, SqliteShop, World, transfer, update
from tests.query.filling import carry_all

TABLES = ("account", "customer", "note")
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, text text)"


class EmptyWorld(World):
    """Nothing is in the shop but what groups put there."""

    def __init__(self, shop: Any, journal: str) -> None:
        super().__init__(shop, journal)
        shop.execute("DELETE FROM account")
        shop.execute("DELETE FROM customer")
        shop.execute(NOTE)


def rows(shop: Any) -> Any:
    return {table: shop.execute(f"SELECT * FROM {table} ORDER BY id") for table in TABLES}


def groups_of() -> list[Group]:
    """Committed ones, some that were rolled back, one with an undo and a last word of its own."""
    first = Group("open")
    for n in range(1, 5):
        first.insert(f"a{n}", "INSERT INTO account VALUES (:id, :name, 100)", {"id": n, "name": f"n{n}"}, target="shop")
    each = Group("each")
    each.query("all", "SELECT id, amount FROM account", target="shop")
    each.update(
        "raise", "UPDATE account SET amount = amount + :row.id WHERE id = :row.id", target="shop",
        for_each="all.identity.rows", undo="lower",
    )  # fmt: skip
    each.statement("lower", "UPDATE account SET amount = 0", target="shop", is_rollback=True)
    bound = Group("bound")
    twice = Recipe("twice", expression="amount * 2")
    bound.query("sum", "SELECT amount FROM account WHERE id = 2", target="shop", recipes=[twice])
    bound.update(
        "set", "UPDATE account SET amount = :twice.value WHERE id = 3", target="shop", depends_on=[Dep("sum", "twice")]
    )
    gone = Group("gone")
    gone.delete("gone", "DELETE FROM account WHERE amount > 150", target="shop")
    failed = Group("failed")
    update(failed, "x", 1, 1000)
    failed.insert("mark", "INSERT INTO note VALUES (1, 'failed')", target="shop", is_rollback=True)
    failed.empty("last", depends_on=["x"], checks=[is_true("1 = 2")], execute_on_failure=["mark"])
    last = Group("last")
    update(last, "x", 4, 1)
    last.statement(
        "final", "INSERT INTO note VALUES (2, 'final')", target="shop", depends_on=["x"], irreversible=True
    )  # fmt: skip
    return [first, transfer("t1", 1, 2, 30), each, transfer("too-much", 2, 1, 10**6), bound, gone, failed, last]


@pytest.mark.req("G78", "S54")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_groups_left_is_there_again(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    live: Any = SqliteShop(tmp_path / "shop.db") if kind == "sqlite" else PostgresShop(request.getfixturevalue("shop"))
    world = EmptyWorld(live, f"sqlite:{tmp_path / 'orders'}")
    made = groups_of()
    world.run(*made)
    ends = {group.id: world.plain.get(group.id).state for group in made}
    assert ends == dict.fromkeys(ends, "committed") | {"failed": "rolled_back", "too-much": "rolled_back"}
    carry_all(world.s)
    copy: Any = SqliteShop(tmp_path / "copy.db")
    if kind == "postgres":
        from strandline.servers.postgres import PostgresServer

        server: PostgresServer = request.getfixturevalue("postgres")
        copy.close()
        copy = PostgresShop(server.database())
    EmptyWorld(copy, "memory:").s.close()
    shown = world.plain.rebuild("shop", copy.url, dry_run=True)
    assert len(shown.shown) == shown.steps == 12
    assert rows(copy) == {table: [] for table in TABLES}
    for _ in range(2):  # it may be repeated
        for table in TABLES:
            copy.execute(f"DELETE FROM {table}")
        done = world.plain.rebuild("shop", copy.url)
        assert (done.groups, done.steps, done.shown) == (shown.groups, shown.steps, ())
        assert rows(copy) == rows(live)
    with pytest.raises(InvalidGroup, match="belongs to stream"):
        world.plain.rebuild("shop", live.url)
    copy.close()
    world.close()


@pytest.mark.req("G78", "G86")
def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = EmptyWorld(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'orders'}")
    world.run(*groups_of()[:2])
    carry_all(world.s)
    copy = SqliteShop(tmp_path / "copy.db")
    EmptyWorld(copy, "memory:").s.close()
    answer = call("group", "rebuild", "shop", "sqlite:copy.db", "--dry-run", "--url", "sqlite:orders")
    assert answer.out.splitlines()[0].startswith("1 open.a")
    answer = call("group", "rebuild", "shop", "sqlite:copy.db", "--url", "sqlite:orders")
    assert (answer.code, answer.out.startswith("2 groups, 6 steps")) == (0, True)
    assert rows(copy) == rows(world.shop)
    copy.close()
    world.close()
