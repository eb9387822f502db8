"""The core: steps, dependencies, recipes and binding, run without checks, undo, history or database."""

import ast
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.group.core.binding import Offer, Source, UnboundParameter, bound, resolve
from strandline.group.core.parts import SUCCESS, Data, Recipe
from strandline.group.core.schedule import Schedule, Want
from strandline.group.core.step import StepFailed, StepState, context, evaluated, given, scope_of


@dataclass
class Plain:
    """A step of the core."""

    name: str
    wants: list[Want] = field(default_factory=list)
    recipes: list[Recipe] = field(default_factory=list)
    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    data_from: str | None = None


class Host:
    """Executes by a function, keeps what comes, and knows no check."""

    def __init__(self, steps: list[Plain], execute: Callable[[str, Mapping[str, Any]], Data]) -> None:
        self.steps = {step.name: step for step in steps}
        self.states = {step.name: StepState() for step in steps}
        self._execute = execute
        self.log: list[str] = []
        self.handlers: dict[str, Callable[[Data], Mapping[str, Any]]] = {}
        self.schedule = Schedule({step.name: step.wants for step in steps})
        self._changed = threading.Condition()
        self._running = 0
        self._ends: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        with ThreadPoolExecutor(16) as pool, self._changed:
            while True:
                while (name := self.schedule.take()) is not None:
                    self._running += 1
                    self.log.append(f"start {name}")
                    pool.submit(self._perform, self.steps[name], pool)
                if not self._running:
                    return {name: self._ends.get(name, "skipped") for name in self.steps}
                assert self._changed.wait(20)

    def _perform(self, step: Plain, pool: ThreadPoolExecutor) -> None:
        reason = None
        try:
            self._made(step, pool)
        except StepFailed as failed:
            reason = self.states[step.name].reason = failed.reason
        with self._changed:
            self.log.append(f"end {step.name}")
            self._ends[step.name] = "succeeded" if reason is None else "failed"
            if reason is None:
                self.schedule.decided(step.name)
            self._running -= 1
            self._changed.notify_all()

    def _made(self, step: Plain, pool: ThreadPoolExecutor) -> None:
        state = self.states[step.name]
        state.data = self._execute(step.name, context(step, self.states))
        data = given(step, self.states)
        asked = [
            (recipe, pool.submit(self.handlers[recipe.handler], data)) for recipe in step.recipes if recipe.handler
        ]
        for recipe in step.recipes:
            if recipe.expression is not None:
                try:
                    self._save(step, recipe, evaluated(recipe, scope_of(step, self.states)))
                except StepFailed:
                    if not recipe.optional:
                        raise
        if asked:
            with self._changed:
                self.schedule.decided(step.name)
                self._changed.notify_all()
        for recipe, answer in asked:
            self._save(step, recipe, answer.result())

    def _save(self, step: Plain, recipe: Recipe, results: Mapping[str, Any]) -> None:
        with self._changed:
            self.states[step.name].results[recipe.name] = dict(results)
            self.schedule.saved(step.name, recipe.name)
            self._changed.notify_all()


def after(*steps: str) -> list[Want]:
    return [(step, SUCCESS) for step in steps]


def nothing(name: str, values: Mapping[str, Any]) -> Data:
    return Data()


@pytest.mark.req("G1", "G9", "S1")
def test_a_chain_runs_in_its_order() -> None:
    host = Host([Plain("a", after("c")), Plain("b"), Plain("c", after("b")), Plain("d", after("a"))], nothing)
    assert set(host.run().values()) == {"succeeded"}
    assert [line for line in host.log if line.startswith("start")] == ["start b", "start c", "start a", "start d"]


@pytest.mark.req("G9", "G10", "S2")
def test_the_middle_of_a_diamond_overlaps() -> None:
    together = threading.Barrier(2, timeout=10)

    def execute(name: str, values: Mapping[str, Any]) -> Data:
        if name in "bc":
            together.wait()
        return Data()

    host = Host([Plain("a"), Plain("b", after("a")), Plain("c", after("a")), Plain("d", after("b", "c"))], execute)
    assert set(host.run().values()) == {"succeeded"}
    assert host.log[-2:] == ["start d", "end d"]


@pytest.mark.req("G10", "S3")
def test_a_step_does_not_wait_for_others_of_its_depth() -> None:
    d_started = threading.Event()

    def execute(name: str, values: Mapping[str, Any]) -> Data:
        if name == "d":
            d_started.set()
        if name == "c":
            assert d_started.wait(10)
        return Data()

    host = Host([Plain("b"), Plain("a", after("b")), Plain("c", after("b")), Plain("d", after("a"))], execute)
    assert set(host.run().values()) == {"succeeded"}
    assert host.log.index("start d") < host.log.index("end c")


@pytest.mark.req("G9", "S4")
def test_one_of_three_fails_and_what_is_behind_is_skipped() -> None:
    def execute(name: str, values: Mapping[str, Any]) -> Data:
        if name == "b":
            raise StepFailed("statement")
        return Data()

    steps = [Plain("a"), Plain("b"), Plain("c"), Plain("d", after("a", "b", "c")), Plain("e", after("d"))]
    host = Host(steps, execute)
    found = host.run()
    assert (found["b"], found["d"], found["e"]) == ("failed", "skipped", "skipped")
    assert "start d" not in host.log


@pytest.mark.req("G10", "G17")
def test_a_result_is_handed_on_as_soon_as_it_is_there() -> None:
    """`b` needs the quick recipe of `a`, and starts while the slow one is still being made."""
    b_started = threading.Event()

    def execute(name: str, values: Mapping[str, Any]) -> Data:
        if name == "b":
            assert values == {"quick.value": 7}
            b_started.set()
        return Data(("n",), ((7,),))

    def slow(data: Data) -> Mapping[str, Any]:
        assert b_started.wait(10)
        return {"value": data.rows[0][0]}

    sources = {"quick.value": Source("result", "a", "quick", "value")}
    recipes = [Recipe("slow", handler="slow"), Recipe("quick", expression="n")]
    host = Host([Plain("a", recipes=recipes), Plain("b", [("a", "quick")], sources=sources)], execute)
    host.handlers["slow"] = slow
    assert set(host.run().values()) == {"succeeded"}
    assert host.states["a"].results == {"quick": {"value": 7}, "slow": {"value": 7}}


@pytest.mark.req("G15", "G16", "S13")
def test_a_handler_is_called_also_when_there_are_no_rows() -> None:
    """And may make several results up; an expression gives one, `value`."""
    seen: list[Any] = []

    def execute(name: str, values: Mapping[str, Any]) -> Data:
        seen.append(dict(values))
        return Data()

    sources = {
        "made.x": Source("result", "a", "made", "x"), "made.y": Source("result", "a", "made", "y"),
        "count.value": Source("result", "a", "count", "value"),
    }  # fmt: skip
    recipes = [Recipe("made", handler="make"), Recipe("count", expression="row_count")]
    host = Host([Plain("a", recipes=recipes), Plain("b", [("a", "made"), ("a", "count")], sources=sources)], execute)
    host.handlers["make"] = lambda data: {"x": len(data.rows), "y": "made up"}
    assert set(host.run().values()) == {"succeeded"}
    assert seen[-1] == {"made.x": 0, "made.y": "made up", "count.value": 0}


@pytest.mark.req("G22")
@pytest.mark.parametrize(("optional", "end"), [(False, "failed"), (True, "succeeded")])
def test_a_failed_recipe_fails_its_step_unless_it_is_optional(optional: bool, end: str) -> None:
    host = Host([Plain("a", recipes=[Recipe("r", expression="nowhere", optional=optional)])], nothing)
    assert host.run()["a"] == end
    assert host.states["a"].reason == (None if optional else "recipe_error")


@pytest.mark.req("G33", "S7")
def test_parameters_and_where_they_come_from() -> None:
    offers = [
        Offer("a", "calculatedValue", ("calculatedValue", "c")),
        Offer("b", "sum", ("sum",)),
        Offer("d", "sum", ("sum",)),
    ]
    wanted = ["id", "calculatedValue.value", "c.value", "a.calculatedValue.value", "b.sum.value", "row.k"]
    sources, problems = resolve("x", [(name, 0) for name in wanted], {"id"}, offers, row=True)
    assert problems == []
    results = {"a": {"calculatedValue": {"value": 1234}}, "b": {"sum": {"value": 5}}}
    made = bound(sources, {"id": 7}, results, {"k": 9})
    assert list(made.values()) == [7, 1234, 1234, 1234, 5, 9]
    with pytest.raises(UnboundParameter, match=r":b\.sum\.value"):
        bound(sources, {"id": 7}, {"a": results["a"]}, {"k": 9})


@pytest.mark.req("G33")
@pytest.mark.parametrize("name", ["y", "sum.value", "nobody.value", "c.calculatedValue.value", "a.b.c.d", "row.x"])
def test_parameters_that_nobody_or_more_than_one_provides(name: str) -> None:
    offers = [Offer("b", "sum", ("sum",)), Offer("d", "sum", ("sum",))]
    sources, (problem,) = resolve("x", [(name, 12)], {"id"}, offers)
    assert sources == {}
    assert (problem.code, problem.step, problem.position) == ("parameter_missing", "x", 12)


@pytest.mark.req("G14", "S6")
def test_scheduling_is_linear_and_does_not_recurse() -> None:
    def chain(size: int) -> float:
        began = time.process_time()
        host = Host([Plain(f"s{n}", after(f"s{n - 1}") if n else []) for n in range(size)], nothing)
        assert set(host.run().values()) == {"succeeded"}
        return time.process_time() - began

    assert chain(10_000) < max(10 * chain(2_000), 2)
    wide = Host([Plain(f"s{n}") for n in range(1_000)], nothing)
    assert set(wide.run().values()) == {"succeeded"}


@pytest.mark.req("G9", "G10")
@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_run_each_step_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    steps = [
        Plain(f"s{n}", after(*{f"s{rng.randrange(n)}" for _ in range(rng.randrange(4))} if n else ()))
        for n in range(200)
    ]
    rng.shuffle(steps)
    host = Host(steps, nothing)
    assert set(host.run().values()) == {"succeeded"}
    assert len(host.log) == 400
    place = {line: n for n, line in enumerate(host.log)}
    assert all(place[f"end {need}"] < place[f"start {step.name}"] for step in steps for need, _ in step.wants)


@pytest.mark.req("G1")
def test_the_core_imports_nothing_of_the_second_layer() -> None:
    folder = Path(strandline.__file__).parent / "group/core"
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strandline.group"):
                assert (node.module or "").startswith("strandline.group.core"), file
