"""The worked examples of the document that event groups come from, as they are written there, on every target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import strandline
from strandline.errors import InvalidGroup
from strandline.group.checks import affected_rows_equal, query_check
from strandline.group.core.parts import Dep, Recipe
from strandline.group.definition import Group
from strandline.group.groups import Groups
from strandline.group.outcome import Outcome
from tests.group.cuts import Cuts
from tests.group.worlds import CassandraShop, LwwShop, PostgresShop, SqliteShop
from tests.lanes import needs_servers
from tests.store.keyspaces import RELAXED

pytestmark = RELAXED

USERS = [(9, "bea", True), (10, "anna", False), (11, None, None)]
COUNT = "SELECT COUNT(*) FROM users WHERE user_id = 10 AND is_active = true"


class Seed:
    """A database with users, and groups on it."""

    def __init__(self, shop: Any) -> None:
        self.shop = shop
        self.s = strandline.connect("memory:", accept_power_loss=isinstance(shop, CassandraShop))
        self.cuts = Cuts()
        self.groups: Groups = self.cuts.watch(self.s.groups(targets={"db": shop.url}))
        shop.execute("CREATE TABLE users (user_id int, user_name text, is_active boolean, PRIMARY KEY (user_id))")
        columns = "calculation_id int, calculated_value int, name text"
        shop.execute(f"CREATE TABLE calculations ({columns}, PRIMARY KEY (calculation_id))")

    def fill(self) -> None:
        for id_, name, active in USERS:
            given = [
                str(id_),
                "null" if name is None else f"'{name}'",
                "null" if active is None else str(active).lower(),
            ]
            self.shop.execute(f"INSERT INTO users (user_id, user_name, is_active) VALUES ({', '.join(given)})")
        self.shop.execute("INSERT INTO calculations (calculation_id, calculated_value, name) VALUES (1, 0, 'zero')")

    def users(self) -> list[tuple[Any, ...]]:
        found = self.shop.execute("SELECT user_id, user_name, is_active FROM users")
        return sorted((id_, name, None if active is None else bool(active)) for id_, name, active in found)

    def run(self, group: Group) -> Outcome:
        self.groups.submit(group)
        self.groups.processor().run_until_idle()
        self.cuts.check()
        return self.groups.get(group.id)

    def types(self, id_: str) -> list[str]:
        return [type_ for type_, _, _ in self.groups.history(id_) if type_ not in ("Defined", "Taken")]

    def close(self) -> None:
        self.s.close()
        self.shop.close()


@pytest.fixture(scope="module")
def cassandra_seed(request: pytest.FixtureRequest) -> Iterator[Seed]:
    made = Seed(CassandraShop(request.getfixturevalue("cassandra")))
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres", "lww", pytest.param("cassandra", marks=needs_servers)])
def seed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Seed]:
    if request.param == "cassandra":
        made: Seed = request.getfixturevalue("cassandra_seed")
        made.fill()
        yield made
        return
    shop: Any = LwwShop()
    if request.param != "lww":
        here = request.param == "sqlite"
        shop = SqliteShop(tmp_path / "shop.db") if here else PostgresShop(request.getfixturevalue("shop"))
    made = Seed(shop)
    made.fill()
    yield made
    made.close()


def group() -> Group:
    return Group(uuid4().hex)


@pytest.mark.req("G36", "G38", "S15")
@pytest.mark.parametrize(("expected", "end"), [("count = 1", "committed"), ("count = 2", "rolled_back")])
def test_concrete_example_of_success_checking(seed: Seed, expected: str, end: str) -> None:
    """Set user to be active. Success if 1 row was affected: an update event, and a query event that depends on it."""
    g = group()
    g.update("UpdateEvent", "UPDATE users SET is_active = true WHERE user_id = 10", target="db")
    count = "SELECT COUNT(*) FROM users WHERE is_active = true AND user_id = 10"
    g.query("QueryEvent", count, target="db", depends_on=["UpdateEvent"], success=expected)
    outcome = seed.run(g)
    assert outcome.state == end, outcome
    assert "success" not in outcome.steps["UpdateEvent"].results, "automatic success is not saved"
    active = end == "committed"
    assert seed.users() == [USERS[0], (10, "anna", active), USERS[2]]


@pytest.mark.req("G40", "G28", "S20")
@pytest.mark.parametrize(
    ("query", "precondition"),
    [
        ("SELECT is_active FROM users WHERE user_id = 10", "user.is_active == true"),
        ("SELECT is_active FROM users WHERE user_id = 10", "is_active"),
        ("SELECT is_active FROM users WHERE user_id = 10", "is_active == true"),
        ("SELECT COUNT(*) FROM users WHERE user_id = 10 AND is_active = true", "count = 1"),
    ],
)
def test_event_preconditions(seed: Seed, query: str, precondition: str) -> None:
    """Do an update, but only when user is active."""
    for active in (False, True):
        g = group()
        g.query("QueryEvent", query, target="db", success=precondition)
        text = "UPDATE users SET user_name = 'new' WHERE user_id = 10"
        g.update("UpdateEvent", text, target="db", depends_on=["QueryEvent"])
        outcome = seed.run(g)
        assert outcome.state == ("committed" if active else "aborted"), outcome
        assert outcome.steps["UpdateEvent"].state == ("succeeded" if active else "skipped")
        assert seed.users()[1][1] == ("new" if active else "anna")
        assert "UndoIntent" not in seed.types(g.id)
        seed.shop.execute("UPDATE users SET is_active = true WHERE user_id = 10")


@pytest.mark.req("G41", "G42", "G43", "G49", "S25", "RG2")
def test_rolling_back_in_fifteen_steps(seed: Seed) -> None:
    """Steps 1 and 2 are what the client writes; 3 to 6 what is made of it; 7 to 15 what is executed, in this order."""
    g = group()
    g.update("update1", "UPDATE users SET user_name = 'x', is_active = true WHERE user_id = 10", target="db")
    g.query("query2", "SELECT user_name FROM users WHERE user_id = 10", target="db", depends_on=["update1"],
            success="user_name = 'y'")  # fmt: skip
    explained = {step.name: step for step in seed.groups.explain(g).steps}
    assert list(explained) == ["update1/before", "update1", "update1/undo", "query2"]
    assert (explained["update1/before"].kind, explained["update1/before"].dependents) == ("query", ("update1",))
    assert explained["update1"].needs == ("update1/before",)
    assert (explained["update1/undo"].kind, explained["update1/undo"].rollback) == ("update", True)
    assert explained["update1/undo"].needs == ("update1/before.identity",)
    outcome = seed.run(g)
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "query2", "check_false")
    assert (outcome.steps["update1"].state, outcome.steps["query2"].state) == ("undone", "failed")
    assert seed.users() == USERS
    events = [(type_, payload.get("step")) for type_, payload, _ in seed.groups.history(g.id)]
    shown = [event for event in events if event[0] in ("Result", "Checked", "UndoResult")]
    assert shown == [("Result", "update1"), ("Result", "query2"), ("Checked", "query2"), ("UndoResult", "update1")]
    assert seed.types(g.id)[-1] == "Ended"


@pytest.mark.req("G33", "G16", "S7")
def test_recipes_results_in_a_statement(seed: Seed) -> None:
    """`calculatedValue -> value -> 1234`, beside values that were added when the statement was created."""
    g = group()
    g.empty("EventA", recipes=[Recipe("calculatedValue", expression="1000 + 234")])
    text = (
        "UPDATE calculations SET calculated_value = :calculatedValue.value {} name = :someName WHERE calculation_id = "
    )
    values, needs = {"someName": "some", "calculation_id": 1}, [Dep("EventA", recipe="calculatedValue")]
    slip = group()
    slip.empty("EventA", recipes=[Recipe("calculatedValue", expression="1000 + 234")])
    slip.update("EventB", text.format("AND") + ":calculation_id", values, target="db", depends_on=needs)
    with pytest.raises(InvalidGroup) as caught:
        seed.groups.submit(slip)
    assert [problem.code for problem in caught.value.problems] == ["statement_and_in_set"]
    g.update("EventB", text.format(",") + ":calculation_id", values, target="db", depends_on=needs)
    outcome = seed.run(g)
    assert outcome.state == "committed", outcome
    assert outcome.steps["EventA"].results == {"calculatedValue": {"value": 1234}}
    assert seed.shop.execute("SELECT calculated_value, name FROM calculations") == [(1234, "some")]


CONDITIONS = [
    (COUNT, "count == 1"), (COUNT, "count < 2"), (COUNT, "count <= 1"), (COUNT, "count > 0"), (COUNT, "count >= 1"),
    ("SELECT user_name, is_active FROM users WHERE user_id = 10", "user_name = 'anna' && is_active != null"),
]  # fmt: skip


@pytest.mark.req("G37", "G88", "S15")
@pytest.mark.parametrize(("query", "condition"), CONDITIONS, ids=[condition for _, condition in CONDITIONS])
def test_the_table_of_success_conditions(seed: Seed, query: str, condition: str) -> None:
    """As a step, and as a check; each holds once, and once not."""
    for how in ("step", "check"):
        for wanted in (f"!({condition})", condition):
            g = group()
            text = "UPDATE users SET is_active = true WHERE user_id = 10"
            checks = [query_check(query, {}, wanted)] if how == "check" else []
            g.update("update", text, target="db", checks=checks)
            if how == "step":
                g.query("look", query, target="db", depends_on=["update"], success=wanted)
            outcome = seed.run(g)
            assert outcome.state == ("committed" if wanted is condition else "rolled_back"), (how, outcome)
            assert outcome.failed_step == (None if wanted is condition else "look" if how == "step" else "update/check")
            if wanted is not condition:
                assert seed.users() == USERS, "as before"
        seed.shop.execute("UPDATE users SET is_active = false WHERE user_id = 10")


ROLLBACKS = [
    "INSERT INTO users (user_id, user_name) VALUES (12, 'new')",
    "UPDATE users SET user_name = null, is_active = false WHERE user_id = 9",
    "DELETE FROM users WHERE user_id = 9",
    "DELETE FROM users WHERE user_id IN (9, 10, 11)",
]


@pytest.mark.req("G51", "S26", "S27", "S28", "RG2")
@pytest.mark.parametrize("text", ROLLBACKS)
def test_the_table_of_rollbacks(seed: Seed, text: str) -> None:
    g = group()
    getattr(g, text.partition(" ")[0].lower())("change", text, target="db")
    g.empty("last", depends_on=["change"], success="1 = 2")
    assert seed.run(g).state == "rolled_back"
    assert seed.users() == USERS


@pytest.mark.req("G35", "G70", "S11")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("ids", [[], [9], [9, 10, 11]], ids=len)
def test_delete_many_rows_using_prior_select_query(seed: Seed, ids: list[int], fails: bool) -> None:
    g = group()
    g.query("select", "SELECT user_id FROM users WHERE user_id IN :ids", {"ids": [*ids, 99]}, target="db",
            recipes=[Recipe("old", expression="rows.user_id")])  # fmt: skip
    text = "DELETE FROM users WHERE user_id IN :old.value"
    needs = [Dep("select", recipe="old")]
    g.delete("delete", text, target="db", depends_on=needs, checks=[affected_rows_equal(len(ids))])
    g.empty("last", depends_on=["delete"], success="1 = 2" if fails else "1 = 1")
    outcome = seed.run(g)
    assert outcome.state == ("rolled_back" if fails else "committed"), outcome
    assert seed.users() == (USERS if fails else [row for row in USERS if row[0] not in ids])


@pytest.mark.req("G16", "G15", "S13")
def test_results_out_of_thin_air(seed: Seed) -> None:
    """A recipe is a message to a handler even though there were no results: what it makes up is bound."""
    seen: list[Any] = []

    def make(message: Any) -> dict[str, Any]:
        seen.append(message.data.rows)
        return {"name": "made up"}

    seed.groups.handlers["make"] = make
    g = group()
    g.query(
        "none", "SELECT user_name FROM users WHERE user_id = 77", target="db", recipes=[Recipe("made", handler="make")]
    )
    text = "UPDATE users SET user_name = :made.name WHERE user_id = 10"
    g.update("use", text, target="db", depends_on=[Dep("none", recipe="made")])
    assert seed.run(g).state == "committed"
    assert seen == [()]
    assert seed.users()[1][1] == "made up"


@pytest.mark.req("G40", "S21", "S22")
def test_a_true_update_and_a_true_insert(seed: Seed) -> None:
    """The table of what happens after which statement: each has a precondition, or counts what it changed."""
    texts = {
        "update": "UPDATE users SET user_name = 'x' WHERE user_id = {}",
        "insert": "INSERT INTO users (user_id, user_name) VALUES ({}, 'x')",
    }
    for kind, option, id_, end in (
        ("update", {"must_exist": True}, 77, "aborted"), ("insert", {"must_not_exist": True}, 10, "aborted"),
        ("update", {"checks": [affected_rows_equal(1)]}, 77, "rolled_back"),
        ("update", {"must_exist": True}, 9, "committed"), ("insert", {"must_not_exist": True}, 8, "committed"),
    ):  # fmt: skip
        g = group()
        getattr(g, kind)("x", texts[kind].format(id_), target="db", **option)
        outcome = seed.run(g)
        assert outcome.state == end, (kind, option, outcome)
        if end != "committed":
            assert seed.users() == USERS
    assert seed.users()[:2] == [(8, "x", None), (9, "x", True)]
    seed.shop.execute("DELETE FROM users WHERE user_id = 8")
