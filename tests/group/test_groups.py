"""Groups from submit to end, on databases: what the seed asks for, and what happens when something fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

import strandline
from strandline.errors import GroupIdTaken, InvalidGroup, InvalidInput, NotFound, NotInvertible, Unavailable
from strandline.group.checks import (
    affected_rows_at_least,
    affected_rows_equal,
    affected_rows_less_than,
    ask,
    is_true,
    no_exception,
    query_check,
    row_absent,
    row_exists,
)
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.parts import (
    Data,
    Dep,
    Handler,
    Hook,
    Need,
    Produce,
    Produced,
    Recipe,
    Refused,
    StartHandler,
    Undo,
)
from strandline.group.definition import Group
from strandline.group.history import HistoryEvent, folded, paged
from strandline.group.open_targets import Target
from strandline.testing import points
from strandline.values.payloads import encode_json
from tests.group.worlds import ACCOUNTS, PostgresShop, Running, SqliteShop, World, transfer, update


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    shop: Any
    if request.param == "sqlite":
        shop = SqliteShop(tmp_path / "shop.db")
    else:
        shop = PostgresShop(request.getfixturevalue("shop"))
    made = World(shop)
    yield made
    made.close()


# ---------------------------------------------------------------- the seed's examples


@pytest.mark.req("G2", "G16", "G40", "G70", "S20")
def test_the_example_of_the_specification(world: World) -> None:
    world.handlers["price"] = lambda message: {"value": 7}
    g = Group("bonus-42", deadline_s=600, on_conflict="fail")
    g.query("customer", "SELECT is_active FROM customer WHERE id = :id", {"id": 42}, target="shop", success="is_active")
    g.empty("quote", recipes=[Recipe("price", handler="price", timeout_s=5)])
    g.update(
        "grant", "UPDATE account SET amount = :price.value WHERE id = :id", {"id": 1}, target="shop",
        depends_on=["customer", Dep("quote", recipe="price")], checks=[affected_rows_equal(1)],
    )  # fmt: skip
    handle = world.plain.submit(g)
    assert world.accounts() == ACCOUNTS
    world.plain.processor().run_until_idle()
    outcome = handle.wait(timeout_s=10)
    assert (outcome.id, outcome.state, outcome.failed_step, outcome.reason) == ("bonus-42", "committed", None, None)
    assert outcome.steps["quote"].results["price"]["value"] == 7
    assert {step.state for step in outcome.steps.values()} == {"succeeded"}
    assert world.accounts()[0] == (1, "anna", 7)


@pytest.mark.req("G38", "S15")
@pytest.mark.parametrize(("count", "end"), [(1, "committed"), (2, "rolled_back")])
def test_an_update_and_the_count_that_checks_it(world: World, count: int, end: str) -> None:
    g = Group("active")
    g.update("update", "UPDATE customer SET is_active = false WHERE id = 42", target="shop")
    g.query(
        "check", "SELECT COUNT(*) FROM customer WHERE is_active = false AND id = 42", target="shop",
        depends_on=["update"], success=f"count = {count}",
    )  # fmt: skip
    assert world.run(g).state == end
    assert world.shop.execute("SELECT is_active FROM customer")[0][0] in ((0, False) if count == 1 else (1, True))


@pytest.mark.req("G41", "G43", "G49", "S25", "RG2")
def test_the_fifteen_steps_of_the_seed(world: World) -> None:
    """Q1 saves, U1 updates, Q2 says false, U2 puts back: the table is as before, the history in this order."""
    g = Group("undo")
    g.update("U1", "UPDATE account SET amount = 5, name = 'x' WHERE id = 1", target="shop")
    g.query("Q2", "SELECT amount FROM account WHERE id = 1", target="shop", depends_on=["U1"], success="amount = 6")
    explained = {step.name: step for step in world.plain.explain(g).steps}
    assert explained["U1/before"].dependents == ("U1",)
    assert explained["U1"].needs == ("U1/before",)
    assert explained["U1/undo"].needs == ("U1/before.identity",)
    outcome = world.run(g)
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "Q2", "check_false")
    assert world.accounts() == ACCOUNTS
    kinds = [type_ for type_ in world.types("undo") if type_ not in ("Defined", "Taken")]
    assert kinds == ["Started", "Result", "Result", "Checked", "Decided", "UndoIntent", "UndoResult", "Ended"]
    assert outcome.steps["U1"].state == "undone"


@pytest.mark.req("S1")
def test_a_chain_is_executed_in_its_order(world: World) -> None:
    """Whatever the order in which its steps were defined."""
    g = Group("chain")
    for step, before in {"a": ["c"], "b": [], "c": ["b"], "d": ["a"]}.items():
        text = "UPDATE account SET name = name || :own WHERE id = 1"
        g.update(step, text, {"own": step}, target="shop", depends_on=before)
    assert world.run(g).state == "committed"
    assert world.accounts()[0][1] == "annabcad"


@pytest.mark.req("G35", "G70", "S11")
@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3]])
@pytest.mark.parametrize("fails", [False, True])
def test_delete_many_rows_by_a_prior_select(world: World, ids: list[int], fails: bool) -> None:
    g = Group("purge")
    chosen = ", ".join(map(str, [0, *ids]))
    g.query(
        "old",
        f"SELECT id FROM account WHERE id IN ({chosen})",
        target="shop",
        recipes=[Recipe("old", expression="rows.id")],
    )
    g.delete(
        "remove", "DELETE FROM account WHERE id IN :old.value", target="shop", depends_on=[Dep("old", "old")],
        checks=[affected_rows_equal(len(ids))],
    )  # fmt: skip
    g.empty("last", depends_on=["remove"], checks=[is_true("false")] if fails else [])
    outcome = world.run(g)
    assert outcome.state == ("rolled_back" if fails else "committed"), outcome
    assert world.accounts() == (ACCOUNTS if fails else [row for row in ACCOUNTS if row[0] not in ids])


@pytest.mark.req("G35")
@pytest.mark.parametrize("fails", [False, True])
def test_a_statement_for_each_row_of_a_step(world: World, fails: bool) -> None:
    g = Group("each")
    g.query("all", "SELECT id, amount FROM account WHERE amount IS NOT NULL", target="shop")
    g.update(
        "double", "UPDATE account SET amount = amount + :row.amount WHERE id = :row.id", target="shop",
        for_each="all.identity.rows", checks=[affected_rows_equal(3 if fails else 2)],
    )  # fmt: skip
    assert world.run(g).state == ("rolled_back" if fails else "committed")
    assert [row[2] for row in world.accounts()] == ([100, 50, None] if fails else [200, 100, None])


# ---------------------------------------------------------------- checks and preconditions


CHECKS = [
    (no_exception(), True), (affected_rows_equal(1), True), (affected_rows_equal(2), False),
    (affected_rows_less_than(2), True), (affected_rows_less_than(1), False), (affected_rows_at_least(1), True),
    (affected_rows_at_least(2), False), (row_exists(), False), (row_absent(), True), (is_true("row_count = 0"), True),
    (query_check("SELECT COUNT(*) FROM account WHERE amount = 101", {}, "count == 1"), True),
    (query_check("SELECT COUNT(*) FROM account WHERE amount = :n", {"n": 101}, "count < 1"), False),
    (query_check("SELECT COUNT(*) FROM account", {}, "count <= 3"), True),
    (query_check("SELECT COUNT(*) FROM account", {}, "count > 3"), False),
    (query_check("SELECT COUNT(*) FROM account", {}, "count >= 3"), True),
    (query_check("SELECT name, amount FROM account WHERE id = 1", {}, "name != null && amount = 101"), True),
]  # fmt: skip


@pytest.mark.req("G37", "G39", "G88", "S15", "S33")
@pytest.mark.parametrize(("check", "holds"), CHECKS, ids=[f"{n}-{check.kind}" for n, (check, _) in enumerate(CHECKS)])
def test_each_check(world: World, check: Any, holds: bool) -> None:
    g = Group("checked")
    update(g, "x", 1, 1, checks=[check])
    g.update("behind", "UPDATE account SET amount = 0 WHERE id = 2", target="shop", depends_on=["x"])
    outcome = world.run(g)
    assert outcome.state == ("committed" if holds else "rolled_back"), outcome
    if holds:
        assert world.accounts()[:2] == [(1, "anna", 101), (2, "bert", 0)]
    else:
        assert world.accounts() == ACCOUNTS
        assert outcome.steps["behind"].state == "skipped"


@pytest.mark.req("G37", "S16")
def test_every_verdict_is_recorded(world: World) -> None:
    g = Group("five")
    checks = [is_true("true"), is_true("1 = 1"), is_true("1 = 2"), no_exception(), affected_rows_equal(1)]
    update(g, "x", 1, 1, checks=checks)
    outcome = world.run(g)
    assert (outcome.state, outcome.reason) == ("rolled_back", "check_false")
    assert [verdict["value"] for verdict in outcome.steps["x"].verdicts] == [True, True, False, True, True]


@pytest.mark.req("G36", "S17")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, None), ("true", None), (False, "check_false"), (1, "check_error"), ("yes", "check_error"),
        ([True], "check_error"),
    ],
)  # fmt: skip
def test_only_true_is_success(world: World, value: Any, reason: str | None) -> None:
    world.handlers["judge"] = lambda message: {"value": value}
    g = Group("asked")
    update(g, "x", 1, 1, checks=[ask("judge")])
    outcome = world.run(g)
    assert (outcome.state, outcome.reason) == ("committed" if reason is None else "rolled_back", reason)


@pytest.mark.req("G36", "G38", "S18", "S19")
@pytest.mark.parametrize("answers", [True, False])
def test_an_optimistic_check_says_no_after_others_wrote(world: World, answers: bool) -> None:
    wrote = threading.Event()

    def written(message: Any) -> dict[str, Any]:
        wrote.set()
        return {"value": 1}

    world.handlers["wrote"] = written
    world.handlers["judge"] = lambda message: {"value": not wrote.wait(20)} if answers else time.sleep(3)
    g = Group("late")
    update(g, "x", 1, 1, checks=[ask("judge", optimistic=True, timeout_s=20 if answers else 0.2)])
    update(g, "y", 2, 1, depends_on=["x"], recipes=[Recipe("r", handler="wrote")])
    outcome = world.run(g)
    assert (outcome.state, outcome.failed_step) == ("rolled_back", "x")
    assert outcome.reason == ("check_false" if answers else "check_timeout")
    assert wrote.is_set()
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G40", "G48", "S20")
@pytest.mark.parametrize("wrong", ["active", "items"])
def test_the_bonus_with_two_preconditions_each_false_once(world: World, wrong: str) -> None:
    g = Group("bonus")
    g.query(
        "active",
        "SELECT is_active FROM customer WHERE id = 42",
        target="shop",
        success="customer.is_active == true" if wrong != "active" else "!is_active",
    )
    g.query(
        "items",
        "SELECT items FROM customer WHERE id = 42",
        target="shop",
        success="items >= 10" if wrong != "items" else "items > 10",
    )
    update(g, "grant", 1, 5, depends_on=["active", "items"])
    outcome = world.run(g)
    assert (outcome.state, outcome.failed_step) == ("aborted", wrong)
    assert outcome.steps["grant"].state == "skipped"
    assert world.accounts() == ACCOUNTS
    assert "UndoIntent" not in world.types("bonus")


@pytest.mark.req("G48")
@pytest.mark.parametrize(
    ("write", "clean_up", "end"),
    [(False, False, "aborted"), (True, False, "rolled_back"), (False, True, "rolled_back")],
)
def test_a_group_is_aborted_if_nothing_was_undone_and_no_rollback_step_ran(
    world: World, write: bool, clean_up: bool, end: str
) -> None:
    world.shop.execute("CREATE TABLE note (id integer PRIMARY KEY)")
    g = Group("failed")
    if write:
        update(g, "x", 1, 1)
    g.insert("told", "INSERT INTO note VALUES (1)", target="shop", is_rollback=True)
    g.empty(
        "last", depends_on=["x"] if write else [], checks=[is_true("false")],
        execute_on_failure=["told"] if clean_up else [],
    )  # fmt: skip
    outcome = world.run(g)
    assert (outcome.state, outcome.failed_step, outcome.reason) == (end, "last", "check_false")
    assert world.shop.execute("SELECT id FROM note") == [(1,)] * clean_up
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G40", "S21")
def test_must_exist(world: World) -> None:
    there, absent = Group("there"), Group("absent")
    update(there, "x", 1, 1, must_exist=True)
    update(absent, "x", 99, 1, must_exist=True)
    assert world.run(there).state == "committed"
    outcome = world.run(absent)
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("aborted", "x", "not_applied")


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G40", "S21", "RG2")
@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize(
    ("kind", "text", "meanwhile"),
    [
        ("update", "UPDATE account SET amount = 5 WHERE id = 3", "DELETE FROM account WHERE id = 3"),
        ("delete", "DELETE FROM account WHERE id = 3", "DELETE FROM account WHERE id = 3"),
        ("insert", "INSERT INTO account VALUES (7, 'g', 7) ON CONFLICT (id) DO UPDATE SET amount = 1",
         "INSERT INTO account VALUES (7, 'theirs', 70)"),
        ("insert", "INSERT INTO account VALUES (7, 'g', 7) ON CONFLICT DO NOTHING",
         "INSERT INTO account VALUES (7, 'theirs', 70)"),
    ],
)  # fmt: skip
def test_what_must_exist_is_told_by_the_change_itself(
    world: World, kind: str, text: str, meanwhile: str, undo: bool
) -> None:
    """Another program is faster, right before the step's transaction."""
    groups, target = world.groups(), None
    target = groups.targets.target("shop")
    real = target.run_segment  # type: ignore[attr-defined]

    def run(*given: Any) -> Any:
        world.shop.execute(meanwhile)
        return real(*given)

    target.run_segment = run  # type: ignore[attr-defined]
    g = Group("g")
    option = {"must_not_exist": True} if kind == "insert" else {"must_exist": True}
    getattr(g, kind)("x", text, target="shop", irreversible=not undo, **option)
    groups.submit(g)
    groups.processor().run_until_idle()
    assert (groups.get("g").state, groups.get("g").reason) == ("aborted", "not_applied")
    assert world.accounts() == ([*ACCOUNTS, (7, "theirs", 70)] if kind == "insert" else ACCOUNTS[:2])


TEXTS = {
    "query": "SELECT id, amount FROM account WHERE id = 1",
    "insert": "INSERT INTO account VALUES (9, 'new', 100) RETURNING id, amount",
    "update": "UPDATE account SET name = 'new' WHERE id = 1 RETURNING id, amount",
    "delete": "DELETE FROM account WHERE id = 1 RETURNING id, amount",
    "statement": "UPDATE account SET name = 'new' WHERE id = 1 RETURNING id, amount",
    "empty": "",
}


@pytest.mark.req("G2")
@pytest.mark.parametrize("kind", TEXTS)
def test_steps_of_each_kind_have_dependencies_recipes_checks_and_hooks(world: World, kind: str) -> None:
    """Step by step, where a handler is asked, and in one transaction."""
    told, seen, answers = list[Any](), list[Any](), [True]

    def asked(message: Any) -> dict[str, Any]:
        seen.append(message.step)
        return {"value": answers[0]}

    world.handlers |= {"asked": asked, "hook": lambda message: told.append(message[1:3] + message[5:6])}
    for n, (asks, good) in enumerate([(True, False), (False, False), (True, True)]):
        answers[0] = good
        g = Group(f"g{n}")
        update(g, "first", 2, 7)
        more: dict[str, Any] = {"depends_on": ["first"]}
        more["recipes"] = [Recipe("r", expression="row_count" if kind == "empty" else "amount")]
        more["checks"] = [ask("asked")] if asks else [is_true("1 = 1" if good else "row_count > 5")]
        more |= {"pre_hook": "hook", "post_hook": "hook"} if asks else {}
        if kind == "empty":
            g.empty("x", **more)
        else:
            getattr(g, kind)("x", TEXTS[kind], target="shop", **more)
        wanted = "UPDATE account SET amount = :x.r.value WHERE id = 3"
        g.update("last", wanted, target="shop", depends_on=["x", Dep("x", "r")])
        outcome = world.run(g)
        assert seen == (["x"] if asks else [])
        assert sorted(told, key=str) == ([("x", "post", good), ("x", "pre", None)] if asks else [])
        told.clear()
        seen.clear()
        if not good:
            assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "x", "check_false")
            assert outcome.steps["last"].state == "skipped"
            assert world.accounts() == ACCOUNTS
    assert outcome.state == "committed", outcome
    assert outcome.steps["x"].results["r"]["value"] == (0 if kind == "empty" else 100)
    amounts = {id_: amount for id_, _, amount in world.accounts()}
    assert (amounts[2], amounts[3]) == (57, 0 if kind == "empty" else 100)


@pytest.mark.req("G40", "S21")
@pytest.mark.parametrize("text", ["", " ON CONFLICT (id) DO UPDATE SET amount = 1", " ON CONFLICT DO NOTHING"])
@pytest.mark.parametrize("alone", [True, False])
def test_must_not_exist(world: World, text: str, alone: bool) -> None:
    new, old = Group("new"), Group("old")
    more: dict[str, Any] = {"target": "shop", "must_not_exist": True, "post_hook": None if alone else Hook("told")}
    world.handlers["told"] = lambda message: None
    new.insert("x", f"INSERT INTO account VALUES (7, 'new', 7){text}", **more)
    old.insert("x", f"INSERT INTO account VALUES (1, 'new', 7){text}", **more)
    assert world.run(new).state == "committed"
    told = world.run(old)
    assert (told.state, told.reason) == ("aborted", "not_applied")
    assert world.accounts() == [*ACCOUNTS, (7, "new", 7)]


@pytest.mark.req("G40", "S21")
def test_must_not_exist_of_a_row_that_nothing_saves(world: World) -> None:
    """A change that cannot be undone by rewriting is still looked at; one whose rows nobody can name is refused."""
    key = " ON CONFLICT (id) DO UPDATE SET id = excluded.id, amount = 1 WHERE account.amount > 0"
    more: dict[str, Any] = {"target": "shop", "must_not_exist": True, "irreversible": True}
    for number, state in ((7, "committed"), (1, "aborted")):
        g = Group(f"g{number}")
        g.insert("x", f"INSERT INTO account VALUES ({number}, 'new', 7){key}", **more)
        assert world.run(g).state == state
    assert world.accounts() == [*ACCOUNTS, (7, "new", 7)]
    world.shop.execute("CREATE UNIQUE INDEX names ON account (name)")
    odd = Group("odd")
    odd.insert("x", "INSERT INTO account VALUES (8, 'new', 8) ON CONFLICT (name) DO UPDATE SET amount = 1", **more)
    with pytest.raises(InvalidInput, match="it is not known which rows this statement names"):
        world.groups().submit(odd)


# ---------------------------------------------------------------- values and data


@pytest.mark.req("G33", "G34", "S9", "S10")
def test_values_travel_as_they_are(world: World) -> None:
    nasty = "O'Hara\"; DROP TABLE account; -- 😀 :id % ?"
    g = Group("nasty")
    g.update(
        "x",
        "UPDATE account SET name = :name /* :nobody */ WHERE id = :id AND ':x' <> 'a'",
        {"name": nasty, "id": 1},
        target="shop",
    )
    assert world.run(g).state == "committed"
    assert world.accounts()[0][1] == nasty


@pytest.mark.req("G33", "S8")
def test_data_of_two_steps_with_the_same_recipe_needs_an_alias(world: World) -> None:
    def group(first: Dep, text: str) -> Group:
        g = Group("two")
        for name, id_ in (("a", 1), ("b", 2)):
            g.query(
                name,
                f"SELECT amount FROM account WHERE id = {id_}",
                target="shop",
                recipes=[Recipe("sum", expression="amount")],
            )
        g.update("x", text, target="shop", depends_on=[first, Dep("b", "sum")])
        return g

    text = "UPDATE account SET amount = :sum.value WHERE id = 3"
    with pytest.raises(InvalidGroup) as caught:
        world.plain.submit(group(Dep("a", "sum"), text))
    assert [problem.code for problem in caught.value.problems] == ["parameter_missing"]
    assert (
        world.run(
            group(
                Dep("a", "sum", alias="first"), text.replace(":sum.value", ":first.value + :sum.value + :b.sum.value")
            )
        ).state
        == "committed"
    )
    assert world.accounts()[2][2] == 200


@pytest.mark.req("G33")
def test_a_value_that_is_missing_when_it_is_needed(world: World) -> None:
    world.handlers["make"] = lambda message: {"other": 1}
    g = Group("missing")
    g.empty("a", recipes=[Recipe("made", handler="make")])
    g.update("x", "UPDATE account SET amount = :made.value WHERE id = 1", target="shop", depends_on=[Dep("a", "made")])
    outcome = world.run(g)
    assert (outcome.state, outcome.reason, outcome.failed_step) == ("aborted", "binding", "x")


@pytest.mark.req("G23", "S14")
def test_needs_are_asked_for_by_who_needs_them(world: World) -> None:
    seen: list[Produce] = []

    def rates(message: Produce) -> Produced:
        seen.append(message)
        return Produced({"rate": 2 + len(message.data.rows)})

    world.handlers["rates"] = rates
    g = Group("needs")
    g.query("source", "SELECT id FROM account WHERE amount IS NOT NULL", target="shop")
    g.update(
        "x", "UPDATE account SET amount = :plain.rate * 100 + :of_source.rate WHERE id = 1", target="shop",
        needs=[Need("plain", "rates"), Need("of_source", "rates", step="source")],
    )  # fmt: skip
    assert world.run(g).state == "committed"
    assert world.accounts()[0][2] == 204
    assert {len(message.data.rows) for message in seen} == {0, 2}


@pytest.mark.req("G23")
def test_a_need_that_is_not_answered_in_its_time(world: World) -> None:
    late = threading.Event()

    def rates(_: Produce) -> Produced:
        late.wait(5)
        return Produced({"rate": 1})

    world.handlers["rates"] = rates
    g = Group("late")
    text = "UPDATE account SET amount = :rate.rate WHERE id = 1"
    g.update("x", text, target="shop", needs=[Need("rate", "rates", timeout_s=0.1)])
    outcome = world.run(g)
    late.set()
    assert (outcome.state, outcome.reason) == ("aborted", "recipe_timeout")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G18")
def test_identity_saves_rows_and_columns(world: World) -> None:
    g = Group("identity")
    g.query("a", "SELECT id, name FROM account WHERE id = 1", target="shop")
    g.empty("b", depends_on=[Dep("a", "identity")], recipes=[Recipe("r", expression=":a.identity.rows.size")])
    outcome = world.run(g)
    assert outcome.steps["a"].results["identity"] == {"rows": [{"id": 1, "name": "anna"}], "columns": ["id", "name"]}


# ---------------------------------------------------------------- handlers


@pytest.mark.req("G19", "S12")
def test_a_handler_gets_the_data_and_one_message_id(world: World) -> None:
    seen: list[Produce] = []

    def moody(message: Produce) -> Any:
        seen.append(message)
        return Refused("not yet", retryable=True) if len(seen) < 3 else {"value": message.data.rows[0][0]}

    world.handlers["moody"] = moody
    g = Group("moody")
    g.query("a", "SELECT amount FROM account WHERE id = 1", target="shop", recipes=[Recipe("r", handler="moody")])
    outcome = world.run(g)
    assert outcome.state == "committed"
    assert outcome.steps["a"].results == {"r": {"value": 100}}
    assert [message.attempt for message in seen] == [1, 2, 3]
    assert len({message.message_id for message in seen}) == 1
    assert (seen[0].group, seen[0].step, seen[0].recipe, seen[0].data) == (
        "moody",
        "a",
        "r",
        Data(("amount",), ((100,),)),
    )


@pytest.mark.req("G5", "G20", "G22", "S12")
@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (lambda message: 1 / 0, "recipe_error"), (lambda message: Refused("no"), "recipe_error"),
        (lambda message: time.sleep(1), "recipe_timeout"), (lambda message: ["a"], "recipe_error"),
        (lambda message: {"value": object()}, "recipe_error"),
        (lambda message: {"value": "x" * 600_000}, "recipe_error"),
    ],
    ids=["raises", "refuses", "hangs", "no results", "no value", "too long"],
)  # fmt: skip
def test_a_handler_that_fails_fails_its_step(world: World, handler: Any, reason: str) -> None:
    world.handlers["h"] = handler
    g = Group("fails")
    update(g, "x", 1, 1, recipes=[Recipe("r", handler="h", timeout_s=0.3)])
    outcome = world.run(g)
    assert (outcome.state, outcome.reason) == ("rolled_back", reason)
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G25", "RG11")
@pytest.mark.parametrize("name", ["os:system", "os.system", "nowhere", "a/b/c", "/handler", "../x"])
def test_a_handler_is_looked_up_in_the_registry_alone(world: World, name: str) -> None:
    g = Group("bad")
    g.empty("a", recipes=[Recipe("r", handler=name)])
    with pytest.raises(InvalidGroup) as caught:
        world.plain.submit(g)
    assert caught.value.code == "unknown_handler"
    with pytest.raises(NotFound):
        world.plain.get("bad")


@pytest.mark.req("G65", "S65")
def test_a_handler_may_submit_and_not_wait(world: World) -> None:
    said: list[Any] = []

    def nested(message: Any) -> dict[str, Any]:
        inner = Group("inner")
        update(inner, "x", 1, 5)
        handle = world.plain.submit(inner)
        try:
            handle.wait(1)
        except InvalidInput as error:
            said.append(error.code)
        return {}

    world.handlers["nested"] = nested
    g = Group("outer")
    update(g, "x", 1, 10, recipes=[Recipe("r", handler="nested")])
    assert world.run(g).state == "committed"
    assert said == ["wait_in_handler"]
    assert world.plain.get("inner").state == "committed"
    assert world.accounts()[0][2] == 115


# ---------------------------------------------------------------- rollback


@pytest.mark.req("G41", "G42", "G44", "S37")
def test_rollback_steps_undo_and_clean_up(world: World) -> None:
    world.shop.execute("CREATE TABLE note (id integer PRIMARY KEY, text text)")
    g = Group("own")
    g.query(
        "old", "SELECT amount FROM account WHERE id = 1", target="shop", recipes=[Recipe("amount", expression="amount")]
    )
    g.update("x", "UPDATE account SET amount = 1 WHERE id = 1", target="shop", depends_on=["old"], undo="back")
    g.update(
        "back",
        "UPDATE account SET amount = :amount.value + 1 WHERE id = 1",
        target="shop",
        is_rollback=True,
        depends_on=[Dep("old", "amount")],
    )
    g.insert("n1", "INSERT INTO note VALUES (1, 'failed')", target="shop", is_rollback=True)
    g.insert("n2", "INSERT INTO note VALUES (2, 'again')", target="shop", is_rollback=True)
    g.empty("last", depends_on=["x"], checks=[is_true("false")], execute_on_failure=["back", "n1", "n2"])
    outcome = world.run(g)
    assert outcome.state == "rolled_back", outcome
    assert world.accounts()[0] == (1, "anna", 101)
    assert world.shop.execute("SELECT id FROM note ORDER BY id") == [(1,), (2,)]
    again = Group("good")
    again.update("x", "UPDATE account SET amount = 1 WHERE id = 1", target="shop", undo="back")
    again.update("back", "UPDATE account SET amount = 0 WHERE id = 1", target="shop", is_rollback=True)
    assert world.run(again).state == "committed"
    assert world.accounts()[0] == (1, "anna", 1)


@pytest.mark.req("G44", "RG6")
def test_an_undo_handler_is_told_what_is_known(world: World) -> None:
    told: list[Undo] = []
    world.handlers["undo"] = told.append
    world.handlers["side"] = lambda message: {"value": 1}
    g = Group("handled")
    g.update("x", "UPDATE account SET amount = 1 WHERE id = 1", target="shop", undo=Handler("undo"))
    g.empty("e", recipes=[Recipe("r", handler="side")], undo=Handler("undo"))
    g.update(
        "never", "UPDATE account SET amount = 1 WHERE id = 2", target="shop", undo=Handler("undo"), depends_on=["f"]
    )
    g.empty("f", depends_on=["x", "e"], checks=[is_true("false")])
    assert world.run(g).state == "rolled_back"
    assert sorted((undo.step, undo.outcome) for undo in told) == [("e", "done"), ("x", "done")]


@pytest.mark.req("G42")
@pytest.mark.parametrize("called_for", [False, True])
def test_a_rollback_step_whose_check_says_no_has_failed(world: World, called_for: bool) -> None:
    """As the undo of a step, and as one that a failed step calls for."""
    g = Group("own")
    more: dict[str, Any] = {} if called_for else {"undo": "back"}
    g.update("x", "UPDATE account SET amount = 1 WHERE id = 1", target="shop", **more)
    text = "UPDATE account SET amount = 100 WHERE id = 2"
    g.update("back", text, target="shop", is_rollback=True, checks=[affected_rows_equal(2)])
    called = ["back"] if called_for else []
    g.empty("last", depends_on=["x"], checks=[is_true("false")], execute_on_failure=called)
    outcome = world.run(g)
    assert outcome.state == "rollback_failed"
    assert outcome.steps["back" if called_for else "x"].state == "undo_failed"


@pytest.mark.req("G43", "G46", "S31", "S38", "RG1", "RG2")
def test_steps_are_undone_in_reverse_order(world: World) -> None:
    g = Group("thrice")
    g.insert("a", "INSERT INTO account VALUES (9, 'new', 1)", target="shop")
    update(g, "b", 9, 5, depends_on=["a"])
    update(g, "c", 9, 5, depends_on=["b"])
    g.delete("d", "DELETE FROM account WHERE id = 9", target="shop", depends_on=["c"])
    update(g, "e", 1, 1)

    g.empty("f", depends_on=["d", "e"], checks=[is_true("1 = 2")])
    assert world.run(g).state == "rolled_back"
    assert world.accounts() == ACCOUNTS
    undone = [payload["step"] for type_, payload, _ in world.plain.history("thrice") if type_ == "UndoResult"]
    assert [step for step in undone if step != "e"] == ["d", "c", "b", "a"]


@pytest.mark.req("G45", "S46")
def test_an_irreversible_step_is_last(world: World) -> None:
    g = Group("ship")
    g.statement("ship", "UPDATE account SET amount = 0 WHERE id = 3", target="shop", irreversible=True)
    update(g, "x", 1, 1)
    update(g, "y", 1, 1, depends_on=["x"])
    outcome = world.run(g)
    assert outcome.state == "committed"
    places = [payload["step"] for type_, payload, _ in world.plain.history("ship") if type_ == "Result"]
    assert places == ["x", "y", "ship"]
    bad = Group("no")
    bad.statement("ship", "UPDATE account SET amount = 9 WHERE id = 3", target="shop", irreversible=True)
    update(bad, "x", 1, 1, checks=[affected_rows_equal(2)])
    assert world.run(bad).state == "rolled_back"
    assert world.accounts()[2] == (3, None, 0)


@pytest.mark.req("G47", "S42", "S60", "RG1", "RG8")
@pytest.mark.parametrize(("how", "amount"), [("retry", 101), ("force", 101), ("accept_current", 778)])
def test_an_undo_that_fails_waits_for_an_operator(world: World, how: str, amount: int) -> None:
    meddled = threading.Event()

    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 777 WHERE id = 1")
        meddled.set()
        return {"value": False}

    world.handlers["meddle"] = meddle
    g = Group("stuck")
    update(g, "x", 1, 1)
    update(g, "y", 2, 1)
    g.empty("z", depends_on=["x", "y"], checks=[ask("meddle")])
    outcome = world.run(g)
    assert (outcome.state, outcome.steps["x"].state, outcome.steps["y"].state) == (
        "rollback_failed",
        "undo_failed",
        "undone",
    )
    (conflict,) = outcome.steps["x"].conflicts
    assert [str(conflict[name][-1]) for name in ("before", "after", "current")] == ["100", "101", "777"]
    same, other = Group("same"), Group("other")
    update(same, "x", 1, 1)
    update(other, "x", 2, 1)
    groups = world.plain
    groups.submit(same)
    groups.submit(other)
    with pytest.raises(InvalidInput) as caught:
        groups.resolve("stuck", "y", "retry")
    assert caught.value.code == "step_state"
    with Running(groups):
        assert groups.wait("other", 20).state == "committed"
        assert groups.get("same").state == "queued"
        if how == "retry":
            world.shop.execute("UPDATE account SET amount = 101 WHERE id = 1")
        groups.resolve("stuck", "x", how)
        assert groups.wait("stuck", 20).state == "rolled_back"
        assert groups.wait("same", 20).state == "committed"
    assert world.accounts()[0][2] == amount, "what is left of the first one, and one more"


@pytest.mark.req("G47", "RG8")
@pytest.mark.parametrize("running", [False, True])
def test_each_resolve_counts_whoever_runs_and_however_soon_the_next_one_comes(world: World, running: bool) -> None:
    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 777 WHERE id IN (1, 2)")
        return {"value": False}

    world.handlers["meddle"] = meddle
    g = Group("stuck")
    update(g, "x", 1, 1)
    update(g, "y", 2, 1)
    g.empty("z", depends_on=["x", "y"], checks=[ask("meddle")])
    outcome = world.run(g)
    assert (outcome.state, outcome.steps["x"].state) == ("rollback_failed", "undo_failed")
    groups = world.plain
    if running:
        with Running(groups):
            for step in ("x", "y"):
                groups.resolve("stuck", step, "force")
            assert groups.wait("stuck", 20).state == "rolled_back"
    else:  # nobody runs when they are asked for; the next processor finds them
        for step in ("x", "y"):
            groups.resolve("stuck", step, "force")
        groups.processor().run_until_idle()
        assert groups.get("stuck").state == "rolled_back"
    assert [row[2] for row in world.accounts()[:2]] == [100, 50], "as before the group"


@pytest.mark.req("G46", "S43")
def test_cancel(world: World) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow(message: Any) -> None:
        inside.set()
        go.wait(20)

    world.handlers["slow"] = slow
    groups = world.groups(parallel_groups=1)
    running, waiting, ended = Group("running"), Group("waiting"), Group("ended")
    update(ended, "x", 3, 0)
    update(running, "x", 1, 1)
    running.empty("slow", depends_on=["x"], recipes=[Recipe("r", handler="slow")])
    update(running, "y", 2, 1, depends_on=["slow"])
    update(waiting, "x", 1, 1)
    for group in (ended, running, waiting):
        groups.submit(group)
    with Running(groups):
        assert inside.wait(20)
        assert groups.cancel("ended").state == "committed"
        groups.cancel("waiting")
        groups.cancel("running")
        while not (loaded := groups.load("running")) or not loaded.cancelled:
            groups.log.wait({}, 0.01)
        go.set()
        assert (groups.wait("running", 20).state, groups.get("running").reason) == ("rolled_back", "cancelled")
        assert (groups.wait("waiting", 20).state, groups.get("waiting").reason) == ("aborted", "cancelled")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G46", "S44", "RG8")
def test_a_deadline_undoes(world: World) -> None:
    world.handlers["slow"] = lambda message: time.sleep(0.6)
    g = Group("slow", deadline_s=0.3)
    update(g, "x", 1, 1)
    g.empty("s", depends_on=["x"], recipes=[Recipe("r", handler="slow")])
    update(g, "y", 2, 1, depends_on=["s"])
    outcome = world.run(g)
    assert (outcome.state, outcome.reason) == ("rolled_back", "deadline")
    assert world.accounts() == ACCOUNTS


# ---------------------------------------------------------------- hooks


@pytest.mark.req("G72", "G71", "S48")
@pytest.mark.parametrize("what", ["recipe", "check", "need"])
def test_a_handler_whose_answer_is_saved_is_not_called_again(world: World, what: str) -> None:
    """Whoever goes on takes what is in the history: the answer to a question that was asked before the last one."""
    calls: list[str] = []

    def asked(message: Any) -> dict[str, Any]:
        calls.append(message.step)
        return {"value": what == "check" or 5}

    world.handlers["asked"] = asked
    g = Group("g")
    if what == "need":
        g.update(
            "first", "UPDATE account SET amount = :price.value WHERE id = 1", target="shop",
            needs=[Need("price", "asked")],
        )  # fmt: skip
    elif what == "recipe":
        g.empty("first", recipes=[Recipe("price", handler="asked")])
    else:
        update(g, "first", 1, 5, checks=[ask("asked")])
    g.empty("second", depends_on=[Dep("first", "price") if what == "recipe" else "first"],
            recipes=[Recipe("r", handler="asked")])  # fmt: skip
    update(g, "last", 2, 1, depends_on=[Dep("second", "r")])
    world.plain.submit(g)

    def die() -> None:
        raise KeyboardInterrupt

    points.at("asked.recorded", die, 2)
    try:
        with pytest.raises(KeyboardInterrupt):
            world.plain.processor().run_until_idle()
    finally:
        points.clear()
    recorded = [type_ for type_, _, _ in world.plain.history("g")]
    assert recorded.count("Answered") == 1
    for _ in range(2):
        world.groups().processor().run_until_idle()
    assert world.plain.get("g").state == "committed"
    assert len(calls) == 2
    assert calls[-1] == "second"


@pytest.mark.req("G66")
@pytest.mark.parametrize("optional", [True, False])
def test_the_post_hook_of_a_step_that_ends_after_the_group_has_failed(world: World, optional: bool) -> None:
    failed, told = threading.Event(), list[Any]()

    def no(message: Any) -> dict[str, Any]:
        failed.set()
        return {"value": False}

    def slow(message: Any) -> dict[str, Any]:
        assert failed.wait(10)
        time.sleep(0.1)
        if optional:
            raise RuntimeError("no answer")
        return {"value": 1}

    def hook(message: Any) -> None:
        told.append((message.step, message.when, message.succeeded))

    world.handlers |= {"no": no, "slow": slow, "hook": hook}
    g = Group("g")
    g.empty("slow", recipes=[Recipe("r", handler="slow", optional=optional)], pre_hook="hook", post_hook="hook")
    g.empty("wrong", checks=[ask("no")], post_hook="hook")
    g.empty("behind", depends_on=["wrong"], pre_hook="hook", post_hook="hook")
    assert world.run(g).state == "aborted"
    assert sorted(told) == [("slow", "post", True), ("slow", "pre", None), ("wrong", "post", False)]


@pytest.mark.req("G66", "G67", "G68", "S62", "S64", "RG9")
@pytest.mark.parametrize("fails", [False, True])
def test_hooks_are_told_before_and_after(world: World, fails: bool) -> None:
    told: list[Any] = []
    world.handlers["hook"] = told.append
    world.handlers["raises"] = lambda message: 1 / 0
    g = Group("hooked", pre_hook="hook", post_hook=Hook("hook", ack=True))
    update(g, "x", 1, 1, pre_hook="hook", post_hook="hook", checks=[affected_rows_equal(2)] if fails else [])
    update(g, "y", 2, 1, depends_on=["x"], pre_hook="raises", post_hook="hook")
    outcome = world.run(g)
    assert outcome.state == ("rolled_back" if fails else "committed")
    heard = {(message.step, message.when): message for message in told}
    expected = {("group/pre", "pre"), ("x", "pre"), ("x", "post"), ("group/post", "post")}
    assert set(heard) == (expected if fails else expected | {("y", "post")})
    assert heard["x", "post"].succeeded is not fails
    assert heard["group/post", "post"].end == outcome.state
    assert heard["group/pre", "pre"].n < heard["x", "pre"].n < heard["x", "post"].n < heard["group/post", "post"].n
    assert len({message.message_id for message in told}) == len(told)


@pytest.mark.req("G67", "S62", "RG9")
def test_a_hook_that_hangs_changes_nothing(world: World) -> None:
    go = threading.Event()
    world.handlers["hangs"] = lambda message: go.wait(20) and None
    g = Group("hung")
    update(g, "x", 1, 1, pre_hook=Hook("hangs", timeout_s=0.1))
    began = time.monotonic()
    assert world.run(g).state == "committed"
    assert time.monotonic() - began < 10
    go.set()


@pytest.mark.req("G69", "S67")
def test_a_group_may_start_a_handler(world: World) -> None:
    stopped = threading.Event()

    class Adder:
        def __init__(self, props: Any) -> None:
            self.n = props["n"]

        def __call__(self, message: Any) -> dict[str, Any]:
            return {"value": self.n}

        def stop(self) -> None:
            stopped.set()

    world.handlers["adder"] = Adder
    world.handlers["broken"] = lambda props: 1 / 0
    g = Group("starts", pre_hook=StartHandler("mine", "adder", {"n": 7}))
    g.empty("a", recipes=[Recipe("r", handler="mine")])
    assert world.run(g).steps["a"].results == {"r": {"value": 7}}
    assert stopped.wait(10)
    bad = Group("bad", pre_hook=StartHandler("mine", "broken", {}))
    update(bad, "x", 1, 1)
    assert world.run(bad).state == "aborted"
    assert world.accounts() == ACCOUNTS


# ---------------------------------------------------------------- submit


@pytest.mark.req("G58", "G59", "S51")
def test_an_id_is_executed_once(world: World) -> None:
    g = Group("once")
    update(g, "x", 1, 1)
    groups = world.plain
    groups.submit(g)
    groups.submit(g)
    world.groups(stream="default").submit(Group.from_json(g.to_json()))
    groups.processor().run_until_idle()
    assert groups.submit(g).wait(5).state == "committed"
    groups.processor().run_until_idle()
    assert world.accounts()[0][2] == 101
    other = Group("once")
    update(other, "x", 1, 2)
    with pytest.raises(GroupIdTaken) as caught:
        groups.submit(other)
    assert caught.value.state == "committed"
    assert {caught.value.stored, caught.value.given} == {g.hash, other.hash}


@pytest.mark.req("G58")
def test_named_groups(world: World) -> None:
    def bonus(account: int) -> Group:
        g = Group(f"bonus-{account}")
        update(g, "x", account, 5)
        return g

    groups = world.groups(named={"bonus": bonus})
    assert groups.submit("bonus", {"account": 1}).id == "bonus-1"
    with pytest.raises(InvalidGroup) as caught:
        groups.submit("bonus", {"nobody": 1})
    assert caught.value.code == "parameter_type"
    with pytest.raises(NotFound):
        groups.submit("nowhere")


@pytest.mark.req("G7", "G85", "RG10")
def test_everything_that_is_wrong_is_told_together_and_nothing_recorded(world: World) -> None:
    g = Group("wrong")
    g.query("a", "UPDATE account SET amount = 1", target="shop")
    g.update("b", "UPDATE nowhere SET amount = 1", target="shop")
    g.update("c", "UPDATE account SET amount = 1 WHERE id = :id", target="elsewhere")
    g.empty("d", recipes=[Recipe("r", handler="nobody")])
    with pytest.raises(InvalidGroup) as caught:
        world.plain.submit(g)
    found = {(problem.step, problem.code) for problem in caught.value.problems}
    assert found == {("a", "statement_kind"), ("b", "value"), ("c", "unknown_target"), ("d", "unknown_handler")}
    assert "there is no target 'elsewhere': give targets={'elsewhere': URL}, or --target elsewhere=URL" in str(
        caught.value
    )
    assert "known are: none; give handlers={NAME: function}, or --handlers MODULE:NAME" in str(caught.value)
    with pytest.raises(NotFound):
        world.plain.get("wrong")
    bad = Group("bad")
    bad.update("x", "UPDATE account SET id = 5 WHERE id = 1", target="shop")
    bad.empty("may_fail", depends_on=["x"], recipes=[Recipe("r", handler="late")])
    world.handlers["late"] = lambda message: {}
    with pytest.raises(NotInvertible):
        world.groups().submit(bad)


@pytest.mark.req("G85")
def test_a_table_that_changed_meanwhile(world: World) -> None:
    g = Group("changed")
    update(g, "x", 1, 1)
    world.plain.submit(g)
    world.shop.execute("ALTER TABLE account RENAME COLUMN amount TO money")
    world.plain.processor().run_until_idle()
    outcome = world.plain.get("changed")
    assert (outcome.state, outcome.reason) == ("aborted", "schema_changed")


@pytest.mark.req("G26")
def test_waiting_has_an_end(world: World) -> None:
    g = Group("alone")
    update(g, "x", 1, 1)
    handle = world.plain.submit(g)
    with pytest.raises(Unavailable) as caught:
        handle.wait(0.05)
    assert (caught.value.code, caught.value.state) == ("timeout", "queued")
    with Running(world.plain):
        assert handle.wait(10).state == "committed"


@pytest.mark.req("G73")
def test_a_group_of_sql_steps_costs_one_append_after_submit(world: World) -> None:
    groups = world.plain
    with Running(groups):
        first = Group("first")
        update(first, "x", 3, 0)
        groups.submit(first).wait(10)
        g = transfer("second", 1, 2, 10)
        groups.submit(g).wait(10)
    appends = {event.append_id for event in world.s.journal.read("group|second")}
    assert len(appends) == 2
    assert world.types("second")[0] == "Defined"


@pytest.mark.req("G64")
def test_touches_says_what_a_statement_hides(world: World) -> None:
    g = Group("touches")
    update(g, "x", 1, 1, touches=[("shop", "customer", {"id": 42})])
    rows = {step.name: step.rows for step in world.plain.explain(g).steps}["x"]
    assert any(row.endswith("customer[42]") and row.startswith("writes") for row in rows)


@pytest.mark.req("G83", "G13", "G11")
def test_explain_shows_all_and_does_nothing(world: World) -> None:
    g = transfer("shown", 1, 2, 10)
    g.empty("free", recipes=[Recipe("r", expression="1")])
    g.update("unused", "UPDATE account SET amount = 0 WHERE id = 1", {"nobody": 1}, target="shop")
    explained = world.plain.explain(g)
    steps = {step.name: step for step in explained.steps}
    assert steps["unused"].order == ("take", "enough")
    assert steps["take"].dependents == ("enough",)
    assert steps["give"].undo
    assert explained.warnings == ("unused: values that nothing uses: nobody",)
    assert "take/before" in explained.text()
    with pytest.raises(NotFound):
        world.plain.get("shown")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G89", "G91")
def test_a_target_is_made_ours_once_by_whoever_comes_first(world: World) -> None:
    made = [world.s.groups(targets={"shop": world.shop.url}) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        owners = list(pool.map(lambda groups: groups.targets.owner("shop"), made))
    assert len({owner.identity for owner in owners}) == 1
    other = world.s.groups("other", targets={"shop": world.shop.url})
    g = Group("other")
    update(g, "x", 1, 1)
    with pytest.raises(InvalidGroup) as caught:
        other.submit(g)
    assert caught.value.code == "target_taken"
    shared = world.s.groups("other", targets={"shop": Target(world.shop.url, shared=True)})
    assert shared.submit(g).id == "other"


@pytest.mark.req("G21")
@pytest.mark.parametrize(("ack", "calls"), [(True, 3), (False, 1)])
def test_a_message_is_sent_again_only_where_an_ack_is_asked_for(world: World, ack: bool, calls: int) -> None:
    told: list[Any] = []

    def moody(message: Any) -> None:
        told.append(message)
        if len(told) < 3:
            raise RuntimeError("not now")

    world.handlers["moody"] = moody
    g = Group("acked", post_hook=Hook("moody", ack=ack))
    update(g, "x", 1, 1)
    assert world.run(g).state == "committed"
    assert len(told) == calls
    assert len({message.message_id for message in told}) == 1


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G77")
def test_long_images_and_definitions_go_in_pages(world: World) -> None:
    for n in range(4, 8):
        world.shop.execute("INSERT INTO account VALUES ($1, $2, 0)", (n, "x" * 300_000))
    before = world.accounts()
    g = Group("long")
    g.update("x", "UPDATE account SET name = :name WHERE id >= 4", {"name": "y" * 900_000}, target="shop")
    g.empty("end", depends_on=["x"], checks=[is_true("1 = 2")])
    assert world.run(g).state == "rolled_back"
    assert world.accounts() == before
    pages = [payload["what"] for type_, payload, _ in world.plain.history("long") if type_ == "Page"]
    assert {"definition", "before", "after"} == set(pages)
    assert min(map(pages.count, pages)) > 1
    huge = Group("huge")
    huge.update("x", "UPDATE account SET name = :name WHERE id = 1", {"name": "y" * 9_000_000}, target="shop")
    with pytest.raises(InvalidGroup) as caught:
        world.plain.submit(huge)
    assert [problem.code for problem in caught.value.problems] == ["append_too_large"]
    with pytest.raises(InvalidInput) as refused:
        strandline.connect("memory:", event_bytes_max=1000).groups()
    assert refused.value.code == "setting"


@pytest.mark.req("G5", "G43")
def test_a_statement_that_the_database_refuses(world: World) -> None:
    g = Group("twice")
    update(g, "x", 1, 1)
    g.insert("y", "INSERT INTO account VALUES (2, 'there already', 0)", target="shop", depends_on=["x"])
    update(g, "z", 3, 1, depends_on=["y"])
    outcome = world.run(g)
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "y", "statement")
    assert outcome.detail
    assert outcome.steps["z"].state == "skipped"
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G5", "G6", "G47", "S49", "RG5", "RG6")
@pytest.mark.parametrize("when", ["forward", "back"])
def test_a_target_that_does_not_answer_for_a_while(world: World, when: str) -> None:
    """Another program holds a lock: forward the step fails in the end, back it is waited for."""
    held = world.shop.hold("account")
    released = threading.Timer(1.0, held)

    def lock(message: Any) -> dict[str, Any]:
        world.shop.take_lock()
        if when == "back":
            released.start()
        return {"value": when == "forward"}

    world.handlers |= {"lock": lock, "failed": lambda message: released.start()}
    g = Group("slow")
    update(g, "x", 1, 1)
    g.empty("e", depends_on=["x"], checks=[ask("lock")])
    update(g, "y", 2, 1, depends_on=["e"], post_hook=Hook("failed"))
    outcome = world.run(g, statement_timeout_s=0.2, retries=1)
    released.join()
    assert outcome.state == "rolled_back", outcome
    assert outcome.reason == ("statement" if when == "forward" else "check_false")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G20", "S12")
def test_a_late_answer_is_recorded_and_changes_nothing(world: World) -> None:
    answered = threading.Event()

    def late(message: Any) -> dict[str, Any]:
        time.sleep(0.3)
        return {"value": 7}

    def waits(message: Any) -> dict[str, Any]:
        time.sleep(0.6)
        answered.set()
        return {"value": True}

    world.handlers |= {"late": late, "waits": waits}
    g = Group("late")
    g.empty("a", recipes=[Recipe("r", handler="late", timeout_s=0.1, optional=True)], checks=[ask("waits")])
    outcome = world.run(g)
    assert (outcome.state, outcome.steps["a"].results) == ("committed", {})
    answers = [payload for type_, payload, _ in world.plain.history("late") if type_ == "Answered"]
    assert answered.is_set()
    assert [bool(payload.get("late")) for payload in answers if payload["answer"].get("results") == {"value": 7}] == [
        True
    ]


@pytest.mark.req("G7")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"targets": "sqlite:shop.db"}, "targets: no mapping; allowed {NAME: URL or Target}"),
        ({"targets": {"shop": 1}}, "targets.shop: of another kind"),
        ({"targets": {"a b": "sqlite:shop.db"}}, "targets: no name"),
        ({"handlers": ["price"]}, "handlers: no mapping"),
        ({"handlers": {"price": 5}}, "handlers.price: of another kind; allowed {NAME: callable}; got 5"),
        ({"named": {"bonus": Group("g")}}, "named.bonus: of another kind"),
    ],
)
def test_arguments_of_another_kind_are_refused(given: dict[str, Any], said: str) -> None:
    with strandline.connect("memory:") as s, pytest.raises(InvalidInput) as caught:
        s.groups(**given)
    assert caught.value.code == "setting"
    assert caught.value.message.startswith(said)


@pytest.mark.req("G7")
def test_handlers_that_a_call_would_not_run_are_refused_when_they_are_given() -> None:
    async def later(message: Any) -> dict[str, Any]:
        return {"value": 7}

    def steps(message: Any) -> Iterator[int]:
        yield 1

    class Later:
        async def __call__(self, message: Any) -> None: ...

    with strandline.connect("memory:") as s:
        allowed = "allowed a plain function: it is called in a thread"
        for handler, wrong in ((later, "is async"), (Later(), "is async"), (steps, "has a yield")):
            with pytest.raises(InvalidInput, match=f"handlers.price: {wrong}; {allowed}") as caught:
                s.groups(handlers={"price": handler})
            assert caught.value.code == "handler"
            with pytest.raises(InvalidInput, match=f"handlers: {wrong}; {allowed}"):
                s.groups().answering(handler)
            with pytest.raises(InvalidInput, match=f"handlers.price: {wrong}; {allowed}"):
                s.groups().answering({"price": handler})
        with pytest.raises(InvalidInput, match=f"named.bonus: is async; {allowed}"):
            s.groups(named={"bonus": later})  # type: ignore[dict-item]


@pytest.mark.req("G42")
def test_a_handler_that_returns_something_to_run_has_failed(world: World) -> None:
    async def later() -> dict[str, Any]:
        return {"value": 7}

    group = Group("late")
    group.empty("quote", recipes=[Recipe("price", handler="price")])
    groups = world.s.groups("late", handlers={"price": lambda message: later()})
    groups.submit(group)
    groups.processor().run_until_idle()
    outcome = groups.get("late")
    assert outcome.state == "aborted"
    assert "returned a coroutine, which nobody runs" in outcome.steps["quote"].detail


@pytest.mark.req("G7", "G58")
@pytest.mark.parametrize("given", [{"id": "g", "steps": []}, 5, None, ["a"]])
def test_what_is_no_group_is_refused(given: Any) -> None:
    with strandline.connect("memory:") as s:
        groups = s.groups()
        for call in (groups.submit, groups.explain):
            with pytest.raises(InvalidInput, match="no Group") as caught:
                call(given)
            assert ("Group.of" in caught.value.hint) == isinstance(given, dict)


@pytest.mark.req("G84")
def test_times_of_steps(world: World) -> None:
    """By the clock of who ran them: their events come into the log together."""

    def slow(message: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return {"value": 1}

    world.handlers["slow"] = slow
    g = Group("timed")
    update(g, "first", 1, 1)
    g.empty("asks", recipes=[Recipe("r", handler="slow")], depends_on=["first"])
    g.empty("checks", checks=[is_true("1 = 1")], depends_on=[Dep("asks", "r")])
    g.query("last", "SELECT amount FROM account WHERE id = 1", target="shop", depends_on=["checks"])
    outcome = world.run(g)
    assert outcome.state == "committed"
    steps = [outcome.steps[name] for name in ("first", "asks", "checks", "last")]
    for step in steps:
        assert outcome.started <= step.started <= step.ended <= outcome.ended, outcome
    assert steps[0].ended < steps[3].started
    assert steps[3].ended - steps[0].started >= 50_000


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G6", "S40")
def test_a_step_of_unknown_outcome_says_so(world: World) -> None:
    """It was sent until no try was left, and nobody knows what became of it: unknown, not failed; it is undone."""
    groups = world.groups(retries=0)
    target: Any = groups.targets.target("shop")
    real = target.run_segment

    def away(owner: Any, segment: Any, *more: Any) -> Any:
        real(owner, segment, *more)
        raise Unavailable("the connection is gone", code="away", hint="", applied="unknown")

    target.run_segment = away
    g = Group("lost")
    update(g, "x", 1, 1)
    groups.submit(g)
    groups.processor().run_until_idle()
    assert [payload["unknown"] for type_, payload, _ in groups.history("lost") if type_ == "Result"] == [True]
    assert groups.get("lost").state == "rolled_back"
    assert world.accounts() == ACCOUNTS


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.req("G16", "G71", "G82")
@pytest.mark.parametrize("value", ["a\0b", "half \ud800", {"k\0": ["\0"]}, _deep(100), {"a": {"b": _deep(60)}}])
def test_values_that_json_has_no_place_for_are_kept(value: Any) -> None:
    assert decoded(orjson.loads(encode_json({"rows": [[encoded(value)]]}, "payload")))["rows"] == [[value]]


@pytest.mark.req("G16", "G71", "S9")
def test_what_a_handler_or_a_row_brings_never_stops_a_stream(tmp_path: Path) -> None:
    """The log takes no U+0000 and no half of a pair: a group whose history could not be written would be in the way
    of all others."""
    world = World(SqliteShop(tmp_path / "shop.db"))

    def raises(message: Any) -> Any:
        raise ValueError("no \0 \ud800")

    world.handlers |= {
        "gives": lambda message: {"value": "a\0b"}, "half": lambda message: {"value": "\ud800"}, "raises": raises,
        "refuses": lambda message: Refused("no \0 \ud800", retryable=False), "no": lambda message: {"value": "\0"},
        "deep": lambda message: {"value": _deep(100)},
    }  # fmt: skip
    for name in world.handlers:
        g = Group(name)
        update(g, "x", 1, 1)
        if name == "no":
            g.empty("asks", depends_on=["x"], checks=[ask(name)])
        else:
            g.empty("asks", depends_on=["x"], recipes=[Recipe("r", handler=name)])
        update(g, "y", 2, 1, depends_on=["asks"])
        world.plain.submit(g)
    row = Group("row")
    row.query("some", "SELECT 'a' || char(0) || 'b' AS t FROM account WHERE id = 1", target="shop")
    row.update("x", "UPDATE account SET name = 'n' || char(0) WHERE id = 1", target="shop", depends_on=["some"])
    row.update("y", "UPDATE account SET name = :t WHERE id = 2", {"t": "v\0"}, target="shop", depends_on=["x"])
    assert world.run(row).state == "committed"
    assert world.plain.get("row").steps["some"].rows[0]["t"] == "a\0b"
    assert world.plain.get("gives").steps["asks"].results == {"r": {"value": "a\0b"}}
    assert world.plain.get("half").steps["asks"].results == {"r": {"value": "\ud800"}}
    ends = {name: world.plain.get(name).state for name in world.handlers}
    assert ends == {
        "gives": "committed", "half": "committed", "deep": "committed", "raises": "rolled_back",
        "refuses": "rolled_back", "no": "rolled_back",
    }  # fmt: skip
    assert [row[1] for row in world.accounts()][:2] == ["n\0", "v\0"]
    world.close()


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G77", "G71", "G47")
def test_a_row_that_is_longer_than_an_event_is_kept_in_pieces(tmp_path: Path) -> None:
    """Committed, undone, and in the way of an undo: the history has it, and the stream goes on."""
    world = World(SqliteShop(tmp_path / "shop.db"))
    long = '"é\\' * 120_000
    world.shop.execute("UPDATE account SET name = ? WHERE id = 1", (long,))
    name = "SELECT name FROM account WHERE id = 1"

    def meddle(message: Any) -> None:
        world.shop.execute("UPDATE account SET name = ? WHERE id = 1", (long + "z",))

    world.handlers["meddle"] = meddle
    for id_, end in (("undone", "rolled_back"), ("kept", "committed"), ("stuck", "rollback_failed")):
        g = Group(id_)
        g.query("look", name, target="shop")
        text = "UPDATE account SET name = :t || name WHERE id = 1"
        g.update("x", text, {"t": long}, target="shop", depends_on=["look"])
        g.update("y", "UPDATE account SET name = :t WHERE id = 1", {"t": long}, target="shop", depends_on=["x"])
        if id_ == "stuck":
            g.empty("asks", depends_on=["y"], recipes=[Recipe("r", handler="meddle")])
        g.empty(
            "last",
            depends_on=[Dep("asks", "r") if id_ == "stuck" else "y"],
            success="1 = 1" if id_ == "kept" else "1 = 2",
        )
        outcome = world.run(g)
        assert outcome.state == end, outcome.reason
        assert outcome.steps["look"].rows == ({"name": long},)
        history = world.plain.load(id_)
        assert history is not None
        assert history.images["x"]["after"]["rows"] == [[1, long + long]]
        if id_ != "stuck":
            assert world.shop.execute(name) == [(long,)]
    assert outcome.steps["y"].conflicts
    world.close()


@pytest.mark.req("G77", "G72")
@pytest.mark.parametrize("size", [10, 300_000, 600_000])
def test_pages_that_a_process_left_are_not_taken_twice(size: int) -> None:
    rows = [[n, "x" * size] for n in range(3)]
    payload: dict[str, Any] = {"step": "a", "columns": ["n", "t"], "at": 1}
    pages = [*paged("a", "rows", rows * (4000 if size == 10 else 1), payload)]
    assert len(pages) > 1
    head = ("Defined", {"hash": "h", "stream": "s", "identities": {}, "dialects": {}, "definition": {}, "plan": {}})
    for left in range(len(pages)):
        events = [head, *pages[:left], *pages, ("Result", payload)]
        folded_ = folded("g", ((HistoryEvent(n, *event), 1, n) for n, event in enumerate(events, 1)))
        assert folded_ is not None
        data = folded_.step("a").data
        assert data is not None
        assert [list(row) for row in data.rows] == rows * (4000 if size == 10 else 1)


@pytest.mark.req("G77", "G72")
@pytest.mark.parametrize("rows", [[], [[7, "short"]]])
def test_a_query_that_is_run_again_may_need_no_pages_any_more(rows: list[Any]) -> None:
    """A process ended between the pages of a query and its result; its rows have changed since."""
    long = {"step": "a", "columns": ["n", "t"], "at": 1}
    pages = [*paged("a", "rows", [[n, "x" * 600_000] for n in range(3)], long)]
    assert "rows" not in long
    short: dict[str, Any] = {"step": "a", "columns": ["n", "t"], "at": 1}
    assert [*paged("a", "rows", rows, short)] == []
    head = ("Defined", {"hash": "h", "stream": "s", "identities": {}, "dialects": {}, "definition": {}, "plan": {}})
    events = [head, *pages, ("Result", short)]
    folded_ = folded("g", ((HistoryEvent(n, *event), 1, n) for n, event in enumerate(events, 1)))
    assert folded_ is not None
    data = folded_.step("a").data
    assert data is not None
    assert [list(row) for row in data.rows] == rows


@pytest.mark.req("G83")
def test_what_a_step_hands_on_is_explained(world: World) -> None:
    g = Group("g")
    g.empty("quote", recipes=[Recipe("price", handler="price"), Recipe("twice", expression="2 * 21")])
    g.insert("note", "INSERT INTO account (id, name, amount) VALUES (99, 'x', 0)", target="shop", depends_on=["quote"])
    groups = world.s.groups("explained", targets={"shop": world.shop.url}, handlers={"price": print})
    explained = groups.explain(g)
    assert explained.steps[0].recipes == ("price: price", "twice = 2 * 21")
    assert "    recipes      price: price, twice = 2 * 21" in explained.text().splitlines()


@pytest.mark.req("G84")
def test_a_step_without_a_statement_that_answered_was_not_skipped(world: World) -> None:
    g = Group("g")
    g.empty("quote", recipes=[Recipe("price", expression="7")])
    g.query("no", "SELECT 1 AS one", target="shop", depends_on=[Dep("quote", recipe="price")], success="one = 2")
    g.empty("never", depends_on=["no"], recipes=[Recipe("price", expression="7")])
    outcome = world.run(g)
    assert outcome.state == "aborted"
    assert {name: step.state for name, step in outcome.steps.items()} == {
        "quote": "succeeded", "no": "failed", "never": "skipped",
    }  # fmt: skip
