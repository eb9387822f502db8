"""Definition: a group in Python and as JSON, its graph, and all that is wrong with one told at once."""

import datetime as dt
import time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from strandline.errors import CycleFound, InvalidExpression, InvalidGroup, InvalidInput
from strandline.group.checks import affected_rows_equal, ask, is_true, query_check
from strandline.group.core.encoding import Opaque, decoded, encoded
from strandline.group.core.graph import Graph
from strandline.group.core.parts import Dep, Handler, Hook, Need, Recipe, StartHandler
from strandline.group.definition import Group

NO: Any = "no"


def codes(group: Group) -> list[str]:
    return [problem.code for problem in group.problems()]


def bonus() -> Group:
    g = Group("bonus-42", deadline_s=600, on_conflict="fail", pre_hook=StartHandler("p", "f", {"a": 1}), post_hook="h")
    g.query("customer", "SELECT is_active FROM customer WHERE id = :id", {"id": 42}, target="shop", success="is_active")
    g.empty("quote", recipes=[Recipe("price", handler="price", timeout_s=5)])
    g.update(
        "grant",
        "UPDATE account SET bonus = :price.value WHERE id = :id",
        {"id": 42, "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "sum": Decimal("1.10"), "raw": b"\0"},
        target="shop",
        depends_on=["customer", Dep("quote", recipe="price", alias="p")],
        checks=[affected_rows_equal(1), ask("auditor", ack=True), query_check("SELECT 1", {"x": 1}, "row_count = 1")],
        needs=[Need("rate", "rates", step="customer")],
        undo=Handler("undo_grant", timeout_s=2),
        touches=[("shop", "orders", {"id": 42})],
        pre_hook=Hook("pre", ack=True),
        retries=2,
    )
    return g


@pytest.mark.req("G7")
def test_json_is_exact() -> None:
    group = bonus()
    again = Group.from_json(group.to_json())
    assert again.steps == group.steps
    assert again.to_json() == group.to_json()
    assert again.hash == group.hash
    assert (again.id, again.deadline_s, again.pre_hook, again.post_hook) == (
        group.id, group.deadline_s, group.pre_hook, group.post_hook,
    )  # fmt: skip
    other = bonus()
    other.empty("more")
    assert other.hash != group.hash


@pytest.mark.parametrize("values", [[7], (7,), "id=7", 7])
def test_values_without_names_are_told_with_the_rest(values: Any) -> None:
    g = Group("g")
    g.update("a", "UPDATE account SET bonus = 1 WHERE id = :id", values, target="shop")
    (problem,) = [problem for problem in g.problems() if problem.code == "setting"]
    assert (problem.step, "is no mapping; give {'id': 7} for :id" in problem.text) == ("a", True)


@pytest.mark.req("G82")
@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, 2**63 - 1, 2**80, -(2**63), 1.0, 1, float("inf"), "a😀", b"\x00\xff", Decimal("1.10"),
        Decimal("NaN"),
        dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.date(9999, 12, 31),  # noqa: DTZ001
        dt.time(1, 2, 3, 4), dt.timedelta(days=-1, microseconds=1), UUID(int=7), [1, [2, None]], {"a": {"b": b"x"}},
        {1: "a", 2: "b"}, {"$": "bytes"}, {1, 2}, {(1, (2, 3))}, {(1, 2): "a"},
        Opaque("timestamp", "infinity"), [Opaque("geometry", "POINT(1 2)")],
    ],
    ids=repr,
)  # fmt: skip
def test_values_go_to_json_and_back(value: Any) -> None:
    found = decoded(encoded(value))
    assert repr(found) == repr(value)
    assert type(found) is type(value)


@pytest.mark.req("G82")
def test_what_no_target_can_hold_is_refused() -> None:
    with pytest.raises(InvalidInput):
        encoded(object())


@pytest.mark.req("G2", "G3")
def test_kinds() -> None:
    g = Group("g")
    g.query("a", "SELECT 1", target="t")
    g.insert("b", "INSERT INTO x VALUES (1)", target="t")
    g.update("c", "UPDATE x SET a = 1", target="t")
    g.delete("d", "DELETE FROM x", target="t")
    g.statement("e", "VACUUM", target="t")
    g.empty("f", depends_on=["a", "e"])
    assert [step.kind for step in g.steps.values()] == ["query", "insert", "update", "delete", "statement", "empty"]
    assert g.problems() == []
    g.query("a", "SELECT 2", target="t")
    assert [(problem.code, problem.text) for problem in g.problems()] == [("name_taken", "'a' is defined twice")]
    assert codes(Group("g")) == ["steps"]
    empty = Group("g")
    empty._add("empty", "x", "SELECT 1", {"a": 1}, {})
    assert codes(empty) == ["value"]


@pytest.mark.req("G4")
@pytest.mark.parametrize("name", ["", "1a", "a b", "a/b", "é", "a" * 65, "a.b", None, 7])
def test_bad_names(name: Any) -> None:
    g = Group("g")
    g.empty(name)
    g.empty("ok", recipes=[Recipe(name, expression="1")])
    assert [problem.code for problem in g.problems()] == ["name", "name"]


@pytest.mark.req("G4")
def test_names_and_ids_that_are_allowed() -> None:
    g = Group("A-z0.9_:~-" + "x" * 190)
    g.empty("_a" + "9" * 62)
    g.empty("A")
    g.empty("a")
    assert g.problems() == []
    for bad in ("", "a b", "x" * 201, "a/b", "é"):
        assert "name" in codes(Group(bad))
    reserved = Group("g")
    reserved.empty("a", recipes=[Recipe("success", expression="1"), Recipe("identity", expression="1")])
    assert codes(reserved) == ["name", "name"]


@pytest.mark.req("G8")
def test_dependencies_may_name_what_comes_later() -> None:
    g = Group("g")
    g.empty("b", depends_on=[Dep("a", recipe="x"), Dep("a", recipe="y"), "a"])
    assert codes(g) == ["unknown_step"] * 3
    g.empty("a", recipes=[Recipe("x", expression="1"), Recipe("y", expression="2")])
    assert g.problems() == []
    g.empty("c", depends_on=[Dep("a", recipe="price")])
    (problem,) = g.problems()
    assert (problem.code, problem.text) == ("unknown_step", "needs 'a.price', 'a' has: x, y")


@pytest.mark.req("G11")
def test_the_graph_is_kept_as_dependents() -> None:
    g = Group("g")
    g.empty("a", depends_on=["c"])
    g.empty("b", depends_on=["c"])
    g.empty("c")
    assert g.graph.dependents("c") == ("a", "b")
    assert g.graph.order() == ["c", "a", "b"]


@pytest.mark.req("G12", "S5", "RG10")
def test_a_cycle_is_refused_by_the_call_that_closes_it() -> None:
    g = Group("g")
    with pytest.raises(CycleFound, match="a → a"):
        g.empty("a", depends_on=["a"])
    g.empty("a", depends_on=["b"])
    g.empty("b", depends_on=["c"])
    before = g.made()
    with pytest.raises(CycleFound) as caught:
        g.empty("c", depends_on=["a"])
    assert caught.value.names == ("c", "b", "a", "c")
    assert caught.value.name == "CycleFound.cycle"
    assert g.made() == before
    g.empty("c")
    assert g.problems() == []


@pytest.mark.req("G12", "S5")
@pytest.mark.parametrize("how", ["undo", "execute_on_failure"])
def test_a_cycle_through_a_rollback_step(how: str) -> None:
    g = Group("g")
    g.empty("a", is_rollback=True, depends_on=["c"])
    g.empty("b")
    before = g.graph.order()
    with pytest.raises(CycleFound):
        g.empty("c", depends_on=["d"], **{how: "d"})
    assert g.graph.order() == before
    with pytest.raises(CycleFound):
        g.empty("c", depends_on=["a"], **{how: "a"})
    g.empty("c", **{how: "a"})
    assert g.problems() == []


@pytest.mark.req("G12", "S5")
@pytest.mark.parametrize("how", ["undo", "execute_on_failure"])
def test_a_step_that_was_refused_for_a_cycle_leaves_none_of_its_edges(how: str) -> None:
    """What the refused step waited for may wait for a step of this name that is added afterwards."""
    g = Group("g")
    with pytest.raises(CycleFound):
        g.empty("x", depends_on=["back", "b", "a"], **{how: "back"})
    assert [g.graph.dependents(name) for name in ("back", "a", "b", "x")] == [(), (), (), ()]
    g.empty("x")
    g.empty("a", depends_on=["x"])
    g.empty("b", depends_on=["a"])
    g.empty("back", is_rollback=True, depends_on=["b"])
    assert g.graph.order() == ["x", "a", "b", "back"]
    assert g.problems() == []


@pytest.mark.req("G12", "S5")
def test_a_step_that_was_refused_for_a_cycle_takes_no_edge_of_others_along() -> None:
    """What an earlier step declared stays, though the refused one declared it, too."""
    g = Group("g")
    g.empty("a", depends_on=["b"], undo="back")
    with pytest.raises(CycleFound):
        g.empty("back", is_rollback=True, depends_on=["a"], undo="a")
    assert g.graph.dependents("a") == ("back",)
    with pytest.raises(CycleFound):
        g.empty("b", depends_on=["back"])
    h = Group("h")
    h.empty("back", is_rollback=True)
    with pytest.raises(CycleFound):
        h.empty("x", depends_on=["back"], undo="back")
    with pytest.raises(CycleFound):
        h.empty("x", depends_on=["y"], execute_on_failure=["back", "y"])
    assert h.graph.order() == ["back"]


@pytest.mark.req("G2")
@pytest.mark.parametrize("kind", ["query", "insert", "update", "delete", "statement"])
def test_each_kind_names_its_target(kind: str) -> None:
    text = {"query": "SELECT 1", "insert": "INSERT INTO x VALUES (1)", "delete": "DELETE FROM x"}
    g = Group("g")
    getattr(g, kind)("a", text.get(kind, "UPDATE x SET a = 1"))
    assert [(problem.code, problem.step) for problem in g.problems()] == [("unknown_target", "a")]
    g = Group("g")
    g.empty("a", target="t")
    assert codes(g) == ["value"]


@pytest.mark.req("G12", "RG10")
def test_all_problems_come_together() -> None:
    text = """{"form": 1, "id": "bad id", "colour": 1, "steps": [
        {"kind": "query", "name": "a", "statement": "SELECT 1", "depends_on": ["b"], "success": "x ="},
        {"kind": "empty", "name": "b", "depends_on": ["a"], "recipes": [{"name": "r"}], "frobnicate": 1},
        {"kind": "wrong"}, {"kind": "empty", "name": "e", "depends_on": ["nowhere"], "timeout_s": -1}]}"""
    with pytest.raises(InvalidGroup) as caught:
        Group.from_json(text)
    found = {problem.code for problem in caught.value.problems}
    assert found >= {"name", "setting", "expression_syntax", "recipe", "value", "unknown_step"}
    assert caught.value.code == "setting"
    places = {(problem.step, problem.code) for problem in caught.value.problems}
    assert {("a", "expression_syntax"), ("b", "recipe"), ("e", "unknown_step"), ("e", "setting")} <= places


@pytest.mark.req("G7")
@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        ("{", "value", "invalid_json"), ("[" * 70 + "]" * 70, "value", "too_deep"), ("[]", "value", "value"),
        ('{"form": 2}', "value", "value"), ('{"id": "g", "steps": []}', "steps", "steps"),
        ('{"id": "g", "steps": [{"kind": "empty", "name": "a", "success": "1 +"}]}', "value", "expression_syntax"),
        ('{"id": "g", "steps": [{"kind": "empty", "name": "a", "depends_on": ["a"]}, {"kind": "empty", "name": "b"}]}',
         "cycle", "cycle"),
    ],
)  # fmt: skip
def test_the_code_of_a_refusal_is_the_first_problems(text: str, code: str, problem: str) -> None:
    with pytest.raises(InvalidGroup) as caught:
        Group.from_json(text)
    assert caught.value.code == code
    assert caught.value.problems[0].code == problem


@pytest.mark.req("G7")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("undo", 5), ("undo", {"name": 5}), ("undo", {"name": []}), ("for_each", []), ("depends_on", [{"step": {}}]),
        ("depends_on", [{"step": "a", "recipe": []}]), ("needs", [{"name": "n", "handler": 7}]),
        ("checks", [{"kind": []}]),
        ("recipes", [{"name": {}, "expression": "1"}]), ("touches", [[1, "t", {}]]), ("execute_on_failure", [{}]),
        ("checks", [{"kind": "affected_rows_equal", "n": 10**30}]), ("pre_hook", {"handler": 5}), ("target", []),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_a_problem(field: str, value: Any) -> None:
    steps = [{"kind": "empty", "name": "a"}, {"kind": "query", "name": "x", "statement": "SELECT 1", field: value}]
    for made in ({"id": "g", "steps": steps}, {"id": "g", "steps": steps[:1], "post_hook": {"handler": []}}):
        with pytest.raises(InvalidGroup) as caught:
            Group.of(made)
        assert {problem.code for problem in caught.value.problems} & {"value", "name", "unknown_step"}


@pytest.mark.req("G7", "G27")
def test_an_expression_that_cannot_be_read_is_refused_by_its_call() -> None:
    g = Group("g")
    for options in ({"success": "a ="}, {"recipes": [Recipe("r", expression="(")]}):
        with pytest.raises(InvalidExpression):
            g.empty("a", **options)
    with pytest.raises(InvalidExpression):
        is_true("a b")


@pytest.mark.req("G7", "G15")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"recipes": [Recipe("r")]}, "recipe"),
        ({"recipes": [Recipe("r", expression="1", handler="h")]}, "recipe"),
        ({"recipes": [Recipe("r", expression="1"), Recipe("r", expression="2")]}, "name_taken"),
        ({"depends_on": [Dep("o", alias="x"), Dep("o", alias="x")]}, "name_taken"),
        ({"timeout_s": 0}, "setting"), ({"retries": 101}, "setting"), ({"retries": True}, "setting"),
        ({"is_rollback": NO}, "setting"), ({"must_exist": 1}, "setting"), ({"post_hook": Hook("h", ack=NO)}, "setting"),
        ({"undo": Handler("h", timeout_s=0)}, "setting"),
        ({"recipes": [Recipe("r", expression="1", optional=NO)]}, "setting"),
        ({"triggers": "all"}, "setting"), ({"colour": 1}, "setting"), ({"undo": "o"}, "rollback_step"),
        ({"execute_on_failure": ["o"]}, "rollback_step"), ({"depends_on": ["r"]}, "rollback_step"),
        ({"undo": "nowhere"}, "unknown_step"), ({"for_each": "o.rows"}, "value"),
        ({"must_exist": True, "must_not_exist": True}, "value"),
        ({"irreversible": True, "success": "true"}, "irreversible"),
        ({"checks": [affected_rows_equal(-1)]}, "value"),
    ],
)  # fmt: skip
def test_bad_options_of_a_step(options: dict[str, Any], code: str) -> None:
    g = Group("g")
    g.empty("o")
    g.empty("r", is_rollback=True)
    g.empty("x", **options)
    assert codes(g) == [code]


@pytest.mark.req("G45")
def test_one_irreversible_step_and_it_is_last() -> None:
    g = Group("g")
    g.statement("ship", "CALL ship()", target="t", irreversible=True)
    assert g.problems() == []
    g.statement("again", "CALL ship()", target="t", irreversible=True)
    assert codes(g) == ["irreversible"]
    h = Group("h")
    h.statement("ship", "CALL ship()", target="t", irreversible=True)
    h.empty("after", depends_on=["ship"])
    assert codes(h) == ["irreversible"]


@pytest.mark.req("G14")
@pytest.mark.parametrize("backwards", [False, True])
def test_defining_is_linear_and_does_not_recurse(backwards: bool) -> None:
    def chain(size: int) -> float:
        names = [f"s{n}" for n in range(size)]
        steps = [(name, names[n - 1 : n] if n else []) for n, name in enumerate(names)]
        began = time.process_time()
        graph = Graph()
        for name, needs in reversed(steps) if backwards else steps:
            assert graph.add(name, needs) is None
        assert graph.order() == names
        assert graph.add("s0", [names[-1]]) is not None
        return time.process_time() - began

    assert chain(20_000) < max(8 * chain(5_000), 0.5)


@pytest.mark.req("G7")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depends_on": [5]}, "depends_on: 5 is of another kind; give a step's name, or Dep(…)"),
        ({"depends_on": 5}, "depends_on: 5 is of another kind"),
        ({"depends_on": {"b": 1}}, "depends_on: {'b': 1} is of another kind"),
        ({"recipes": ["price"]}, "recipes: price is of another kind; give Recipe(…)"),
        ({"recipes": [Recipe("p", handler=print)]}, "Recipe: handler: <built-in function print> is of another kind"),  # type: ignore[arg-type]
        ({"checks": [affected_rows_equal]}, "give affected_rows_equal(…)"),
        ({"checks": lambda rows: True}, "given to s.groups(handlers={NAME: function})"),
        ({"needs": ["rate"]}, "needs: rate is of another kind; give Need(…)"),
        ({"touches": [("shop", "orders")]}, "touches: ('shop', 'orders') is of another kind; give (TARGET, TABLE,"),
        ({"undo": 5}, "undo: 5 is of another kind; give a step's name, or Handler(…)"),
        ({"pre_hook": print}, "pre_hook: <built-in function print> is of another kind"),
        ({"for_each": 5}, "for_each: 5 is of another kind; give STEP.identity.rows"),
        ({"must_exist": "yes"}, "must_exist: not true or false"),
        ({"execute_on_failure": [None]}, "execute_on_failure: None is of another kind"),
        ({"timeout_s": "5"}, "timeout_s: not a number; allowed 0.001..86400; got '5'"),
        ({"tager": "shop"}, "unknown field 'tager'; did you mean target?"),
    ],
)
def test_what_is_of_another_kind_is_told_and_not_stumbled_over(options: dict[str, Any], said: str) -> None:
    g = Group("g", post_hook=5)  # type: ignore[arg-type]
    g.update("a", "UPDATE a SET b = 1 WHERE id = 1", **{"target": "shop", **options})
    with pytest.raises(InvalidGroup) as caught:
        g.check()
    assert said in caught.value.message
    assert "post_hook: 5 is of another kind" in caught.value.message


@pytest.mark.req("G9")
def test_a_step_can_be_given_where_its_name_can() -> None:
    g = Group("g")
    first = g.empty("first")
    g.empty("second", depends_on=[first])
    assert g.steps["second"].depends_on == (Dep("first"),)
    assert Group.from_json(g.to_json()).hash == g.hash
