"""Which steps of a group are one transaction, and what that comes to where a group is on several databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import NotInvertible
from strandline.group import turn
from strandline.group.checks import affected_rows_equal, ask
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.segments import Segments
from strandline.group.touched import TouchedRows
from tests.group.test_decide import plan_of, random_group
from tests.group.test_decide import update as change
from tests.group.test_one_transaction import told
from tests.group.test_phases import until
from tests.group.worlds import ACCOUNTS, PostgresShop, SqliteShop, World, update
from tests.repeats import repeats


def segments(group: Group) -> list[tuple[str, ...]]:
    return [names for names in plan_of(group).segments.steps.values() if len(names) > 1]


@pytest.mark.req("G92")
def test_steps_side_by_side_and_behind_each_other_are_together() -> None:
    g = Group("g")
    change(g, "a", 1)
    g.query("b", "SELECT amount FROM account WHERE id = 2", target="shop", depends_on=["a"])
    g.empty("c", depends_on=["b"], recipes=[Recipe("r", expression="1 + 1")])
    change(g, "d", 3)
    change(g, "e", 4, "bank", depends_on=["a"])
    change(g, "f", 5, depends_on=["e"])
    change(g, "g", 6, depends_on=["a", "e"])
    plan = plan_of(g)
    assert segments(g) == [("a", "b", "c", "d")], "f and g wait for the bank"
    assert plan.segments.last is None, "two ends"


@pytest.mark.req("G92")
@pytest.mark.parametrize(
    "more", [{"checks": [ask("h")]}, {"post_hook": Hook("h")}, {"pre_hook": Hook("h")}, {"undo": Handler("h")},
             {"recipes": [Recipe("r", handler="h")]}],
)  # fmt: skip
def test_what_asks_or_tells_is_by_itself(more: dict[str, Any]) -> None:
    g = Group("g")
    change(g, "a", 1)
    change(g, "b", 2, depends_on=["a"], **more)
    change(g, "c", 3, depends_on=["b"])
    change(g, "d", 4, depends_on=["c"])
    assert segments(g) == [("c", "d")]


@pytest.mark.req("G92", "G10")
def test_the_last_one_saves_no_images_if_all_else_is_decided_before_it() -> None:
    g = Group("g")
    change(g, "debit", 1, "bank")
    change(g, "credit", 1, depends_on=["debit"])
    change(g, "note", 2, depends_on=["debit"])
    assert plan_of(g).segments.last == "credit"
    g.empty("quote", recipes=[Recipe("price", handler="h")])
    assert plan_of(g).segments.last is None, "the quote may fail"
    change(g, "fee", 3, depends_on=["credit", Dep("quote", "price")])
    assert plan_of(g).segments.last is None, "so may the note"
    change(g, "end", 4, depends_on=["fee", "note"])
    assert plan_of(g).segments.last == "end"
    change(g, "early", 5, "bank", checks=[ask("h", optimistic=True)])
    change(g, "last", 6, depends_on=["early", "end"])
    assert plan_of(g).segments.last is None, "it begins before early is decided"


@pytest.mark.req("G92", "G10", "G14")
def test_segments_may_run_in_their_order_and_no_step_waits_for_more() -> None:
    for seed in range(300):
        group, _ = random_group(random.Random(seed))
        plan = plan_of(group)
        of, done = plan.segments.of, set[str]()
        for name, steps in plan.segments.steps.items():
            inside = set(steps)
            outside = {need for need, _ in plan.wants()[steps[0]]}
            assert name == steps[0]
            for step in steps:
                needs = {need for need, _ in plan.wants()[step]}
                assert of[step] == name
                assert needs - inside <= outside <= done, (seed, step)
            done |= inside
        assert done == set(plan.steps)


# ---------------------------------------------------------------- on two databases


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """The shop, and another one beside it in a file."""
    shop: Any = SqliteShop(tmp_path / "shop.db")
    if request.param == "postgres":
        shop = PostgresShop(request.getfixturevalue("shop"))
    made = World(shop)
    made.bank = SqliteShop(tmp_path / "bank.db")  # type: ignore[attr-defined]
    yield made
    made.bank.close()  # type: ignore[attr-defined]
    made.close()


def groups_on_two(world: World, **more: Any) -> Groups:
    bank: Any = world.bank  # type: ignore[attr-defined]
    bank.execute("DROP TABLE IF EXISTS account")
    bank.execute("CREATE TABLE account (id integer PRIMARY KEY, name text, amount integer)")
    world.shop.execute("DELETE FROM account")
    for shop in (world.shop, bank):
        for row in ACCOUNTS:
            shop.execute("INSERT INTO account VALUES ($1, $2, $3)", row)
    return world.groups(targets={"shop": world.shop.url, "bank": bank.url}, parallel_groups=1, **more)


def accounts_of(world: World) -> list[Any]:
    bank: Any = world.bank  # type: ignore[attr-defined]
    return [world.accounts(), bank.execute("SELECT id, name, amount FROM account ORDER BY id")]


@pytest.mark.req("G92", "G49", "G43", "G83")
def test_a_segment_of_several_steps_is_undone_where_another_database_says_no(world: World) -> None:
    groups = groups_on_two(world)
    g = Group("g")
    update(g, "x", 1, 5)
    update(g, "y", 2, 5, depends_on=["x"])
    text = "UPDATE account SET amount = 0 WHERE id = 77"
    g.update("z", text, target="bank", depends_on=["y"], checks=[affected_rows_equal(1)])
    assert "one transaction: x, y" in groups.explain(g).text()
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "z", "check_false")
    assert [outcome.steps[name].state for name in "xyz"] == ["undone"] * 3
    assert accounts_of(world) == [ACCOUNTS, ACCOUNTS]
    history = groups.load("g")
    assert history is not None
    assert set(history.images) == {"x", "y"}, "z came last: it was rolled back"


@pytest.mark.req("G47", "G43", "S42")
def test_in_a_segment_a_failed_undo_holds_back_only_those_before_it(world: World) -> None:
    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 7 WHERE id = 2")
        return {"value": False}

    world.handlers["meddle"] = meddle
    groups = groups_on_two(world)
    g = Group("g")
    update(g, "a", 1, 5)
    update(g, "b", 2, 5, depends_on=["a"])
    update(g, "c", 3, 0)
    g.empty("e", depends_on=["b", "c"], checks=[ask("meddle")])
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert outcome.state == "rollback_failed"
    assert [outcome.steps[name].state for name in "abc"] == ["undoing", "undo_failed", "undone"]
    assert world.accounts()[0] == (1, "anna", 105)
    groups.resolve("g", "b", "force")
    groups.processor().run_until_idle()
    assert groups.get("g").state == "rolled_back"
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G46", "S43", "G92")
def test_after_a_cancel_no_other_step_of_a_segment_starts(world: World) -> None:
    groups = groups_on_two(world)
    target: Any = groups.targets.target("shop")
    real, ran = target.run_segment, list[str]()

    def cancelled(owner: Any, segment: Any, run: Any) -> Any:
        did = run.did

        def doing(step: str, done: Any) -> None:
            ran.append(step)
            if step == "y":
                groups.cancel("g")
                until(lambda: run._real.failure is not None)
            did(step, done)

        run.did = doing
        return real(owner, segment, run)

    target.run_segment = cancelled
    g = Group("g")
    for name in "xyz":
        update(g, name, 1, 5)
    g.query("q", "SELECT amount FROM account WHERE id = 1", target="bank")
    groups.submit(g)
    groups.processor().run_until_idle()
    outcome = groups.get("g")
    assert (outcome.state, outcome.reason, ran) == ("rolled_back", "cancelled", ["x", "y"])
    assert [outcome.steps[name].state for name in "xyz"] == ["undone", "undone", "skipped"]
    assert accounts_of(world) == [ACCOUNTS, ACCOUNTS]


def randomly(rng: random.Random, id_: str) -> Group:
    """One order of steps, so that step by step the same one fails."""
    g = Group(id_, on_conflict="overwrite")
    for n in range(rng.randrange(2, 8)):
        name, account, kind = f"s{n}", rng.randrange(1, 6), rng.random()
        more: dict[str, Any] = {
            "depends_on": [f"s{n - 1}"] if n else [],
            "target": rng.choice(["shop", "shop", "bank"]),
        }
        if rng.random() < 0.15:
            more["checks"] = [affected_rows_equal(1)]
        if kind < 0.5:
            values = {"n": rng.randrange(-60, 60), "id": account}
            g.update(name, "UPDATE account SET amount = amount + :n WHERE id = :id", values, **more)
        elif kind < 0.65:
            text = "INSERT INTO account (id, name, amount) VALUES (:id, :name, 5)"
            g.insert(name, text, {"id": account, "name": name}, **more)
        elif kind < 0.75:
            g.delete(name, "DELETE FROM account WHERE id = :id", {"id": account}, **more)
        elif kind < 0.9:
            more.pop("checks", None)
            half = [Recipe("half", expression="amount / 2", optional=True)]
            success = rng.choice([None, "amount >= 0", "row_count < 2"])
            text = "SELECT amount FROM account WHERE id = :id"
            g.query(name, text, {"id": account}, recipes=half, success=success, **more)
        else:
            g.empty(name, depends_on=more["depends_on"], success=rng.choice(["1 = 1", "1 = 1", "1 = 2"]))
    return g


@pytest.mark.req("G92", "G62", "G71", "S58")
@repeats(40, 10_000)
def test_segments_are_the_same_as_step_by_step(world: World, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    found: list[list[Any]] = []
    for together in (True, False):
        monkeypatch.setattr(turn, "SEGMENTS", together)
        groups, rng = groups_on_two(world), random.Random(11)
        for n in range(times):
            groups.submit(randomly(rng, f"{together}{n}"))
        groups.processor().run_until_idle()
        found.append([*(told(groups.get(f"{together}{n}")) for n in range(times)), accounts_of(world)])
    for n, (one, other) in enumerate(zip(*found, strict=True)):
        assert one == other, (n, one, other)
    assert {state[0] for state in found[0][:-1]} >= {"committed", "aborted", "rolled_back"}


@pytest.mark.req("G92", "G73", "G72")
def test_what_is_together_is_what_it_was_when_the_group_was_submitted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may put steps together by other rules; barrier rows have the names of those that were."""
    groups = groups_on_two(world)
    g = Group("g")
    update(g, "x", 1, 5)
    update(g, "y", 1, 7, depends_on=["x"])
    update(g, "z", 1, 9)
    groups.submit(g)
    monkeypatch.setattr("strandline.group.plan.segments_of", lambda steps, sequence: Segments.alone(sequence))
    monkeypatch.setattr(TouchedRows, "before", lambda *given: [])
    assert groups.explain(g).transaction is None
    history = groups.load("g")
    assert history is not None
    plan = groups.plan_of(history)
    assert (plan.segments.steps, plan.segments.last) == ({"x": ("x", "y", "z")}, "x")
    assert plan.steps["z"].order == ["y"]
    long = Group("long")
    for n in range(1500):
        update(long, f"s{n}", 1, 1)
    monkeypatch.undo()
    groups.submit(long)
    history = groups.load("long")
    assert history is not None
    assert len(groups.plan_of(history).segments.steps["s0"]) == 1500, "also where it is in pages"


# ---------------------------------------------------------------- what needs no undo


TOLD = "INSERT INTO bare VALUES (new.id)"
TRIGGERS = {
    "sqlite": [f"CREATE TRIGGER told AFTER UPDATE ON account BEGIN {TOLD}; END"],
    "postgres": [
        f"CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {TOLD}; RETURN NULL; END $$",
        "CREATE TRIGGER told AFTER UPDATE ON account FOR EACH ROW EXECUTE FUNCTION told()",
    ],
}


@pytest.mark.req("G45", "G54", "G55", "G92")
@pytest.mark.parametrize("fine", [True, False])
def test_triggers_and_tables_without_a_key_are_fine_where_nothing_is_undone(world: World, fine: bool) -> None:
    groups = groups_on_two(world)
    world.shop.execute("CREATE TABLE bare (n integer)")
    for text in TRIGGERS["sqlite" if isinstance(world.shop, SqliteShop) else "postgres"]:
        world.shop.execute(text)
    g = Group("g")
    update(g, "x", 1, 5)
    g.insert("y", "INSERT INTO bare VALUES (7), (7)", target="shop", depends_on=["x"])
    g.query("q", "SELECT n FROM bare", target="shop", depends_on=["y"], success=f"row_count = {3 if fine else 4}")
    groups.submit(g)
    groups.processor().run_until_idle()
    assert groups.get("g").state == ("committed" if fine else "rolled_back"), groups.get("g")
    assert sorted(world.shop.execute("SELECT n FROM bare")) == ([(1,), (7,), (7,)] if fine else [])
    assert world.accounts()[0][2] == (105 if fine else 100)
    elsewhere = Group("elsewhere")
    update(elsewhere, "x", 1, 5)
    elsewhere.update("y", "UPDATE account SET amount = 0", target="bank", depends_on=["x"])
    with pytest.raises(NotInvertible):
        groups.submit(elsewhere)


@pytest.mark.req("G62", "G55", "S57")
def test_a_table_with_a_trigger_holds_all_of_its_target(world: World) -> None:
    groups_on_two(world)
    world.shop.execute("CREATE TABLE bare (n integer)")
    for text in TRIGGERS["sqlite" if isinstance(world.shop, SqliteShop) else "postgres"]:
        world.shop.execute(text)
    g = Group("g")
    update(g, "x", 1, 5)
    assert [step.rows for step in world.plain.explain(g).steps if step.name == "x"] == [("writes all of shop",)]


@pytest.mark.req("G2", "G92")
@pytest.mark.parametrize("world", ["postgres"], indirect=True)
@pytest.mark.parametrize("where", ["id > 0", "id = 1"])
def test_rows_are_locked_by_a_query_in_a_transaction(world: World, where: str) -> None:
    groups_on_two(world)
    locks = world.shop.execute
    held: list[Any] = []
    target: Any = world.plain.targets.target("shop")
    real = target.run_segment

    def between(owner: Any, segment: Any, run: Any) -> Any:
        did = run.did

        def looked(step: str, done: Any) -> None:
            if step == "q":
                held.extend(locks("SELECT id FROM account WHERE id = 1 FOR UPDATE SKIP LOCKED"))
                held.append("looked")
            did(step, done)

        run.did = looked
        return real(owner, segment, run)

    target.run_segment = between
    g = Group("g")
    g.query("q", f"SELECT id, amount FROM account WHERE {where} FOR UPDATE", target="shop", success="row_count > 0")
    update(g, "x", 1, 5, depends_on=["q"])
    outcome = world.run(g)
    assert (outcome.state, held) == ("committed", ["looked"]), outcome


@pytest.mark.req("G2", "G92")
@pytest.mark.parametrize("world", ["postgres"], indirect=True)
def test_a_query_that_locks_rows_changes_none(world: World) -> None:
    world.shop.execute(
        "CREATE FUNCTION f() RETURNS integer LANGUAGE sql AS $$ INSERT INTO account VALUES (9, 'f', 9) RETURNING id $$"
    )
    g = Group("g")
    g.query("q", "SELECT id, f() FROM account WHERE id = 1 FOR UPDATE", target="shop")
    update(g, "x", 1, 5, depends_on=["q"])
    outcome = world.run(g)
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("aborted", "q", "statement")
    assert "must not change rows" in outcome.detail
    assert world.accounts() == ACCOUNTS
