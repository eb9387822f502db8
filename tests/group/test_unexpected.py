"""Errors that nobody expected: they are one group's own, others go on, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidGroup
from strandline.group.core.parts import Recipe, StartHandler
from strandline.group.decide import Course
from strandline.group.definition import Group
from strandline.group.listing import streams_of
from tests.group.worlds import ACCOUNTS, Running, SqliteShop, World, transfer, update
from tests.query.filling import carry_all


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'j'}")
    yield made
    made.close()


def two(world: World, id_: str, **more: Any) -> Group:
    g = Group(id_)
    update(g, "x", 1, 1)
    update(g, "y", 2, 1, depends_on=["x"], **more)
    return g


def broken(world: World, call: str, group: str, step: str) -> Any:
    """A driver that raises what no driver should, for one step of one group."""
    target: Any = world.plain.targets.target("shop")
    real = getattr(target, call)

    def calling(owner: Any, work: Any, *given: Any, **more: Any) -> Any:
        if (work.id.group, work.id.step) == (group, step):
            raise RecursionError("nobody expected this")
        return real(owner, work, *given, **more)

    setattr(target, call, calling)
    return lambda: setattr(target, call, real)


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G5", "G72", "RG2")
def test_a_driver_that_raises_fails_one_group_alone(world: World) -> None:
    broken(world, "run_segment", "g", "y")
    world.run(two(world, "g"), transfer("behind", 1, 2, 10))
    outcome = world.plain.get("g")
    assert (outcome.state, outcome.failed_step, outcome.reason) == ("rolled_back", "y", "internal")
    assert "nobody expected this" in outcome.detail
    assert world.plain.get("behind").state == "committed"
    assert [row[2] for row in world.accounts()[:2]] == [90, 60]


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.req("G47", "G72")
def test_a_driver_that_raises_in_an_undo_leaves_it_to_an_operator(world: World) -> None:
    mend = broken(world, "undo_segment", "g", "x")
    other = Group("other")
    update(other, "x", 3, 0)
    g = two(world, "g")
    g.empty("last", depends_on=["y"], success="1 = 2")
    world.run(g, other, transfer("behind", 1, 2, 1))
    states = [world.plain.get(id_).state for id_ in ("g", "other", "behind")]
    assert states == ["rollback_failed", "committed", "queued"]
    assert "internal" in world.plain.get("g").steps["x"].detail
    mend()
    world.plain.resolve("g", "x", "retry")
    world.plain.processor().run_until_idle()
    assert [world.plain.get(id_).state for id_ in ("g", "behind")] == ["rolled_back", "committed"]


@pytest.mark.req("G71", "G72", "G84", "G61")
def test_an_error_of_ours_keeps_a_group_where_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its rows; it says why, and the next processor tries it again."""
    real: Callable[[Course, int], Any] = Course.decide

    def decide(course: Course, now: int) -> Any:
        if course.history.id == "g" and course.history.step("x").data is not None:
            raise ZeroDivisionError("a bug")
        return real(course, now)

    monkeypatch.setattr(Course, "decide", decide)
    other = Group("other")
    update(other, "x", 3, 0)
    world.run(two(world, "g"), other, transfer("behind", 1, 2, 1))
    outcome = world.plain.get("g")
    assert (outcome.state, outcome.reason) == ("running", "internal")
    assert "a bug" in outcome.detail
    assert [world.plain.get(id_).state for id_ in ("other", "behind")] == ["committed", "queued"]
    assert world.accounts()[0][2] == 101
    carry_all(world.s)
    (stream,) = streams_of(world.s.journal, world.plain.load)
    assert stream.rollback_failed == 1
    monkeypatch.undo()
    world.plain.processor().run_until_idle()
    assert [world.plain.get(id_).state for id_ in ("g", "behind")] == ["committed", "committed"]
    assert world.plain.get("g").reason is None
    assert [row[2] for row in world.accounts()[:2]] == [100, 52]


@pytest.mark.req("G5", "G22")
@pytest.mark.parametrize("kind", ["deep", "circular", "long"])
def test_a_handler_whose_result_nobody_can_keep(world: World, kind: str) -> None:
    def strange(message: Any) -> dict[str, Any]:
        made: list[Any] = []
        if kind == "circular":
            made.append(made)
        elif kind == "deep":
            for _ in range(100_000):
                made = [made]
        else:
            made.append(10**5000)
        return {"value": made}

    world.handlers["strange"] = strange
    g = two(world, "g")
    g.empty("asks", depends_on=["y"], recipes=[Recipe("r", handler="strange")])
    with Running(world.plain):
        world.plain.submit(g)
        outcome = world.plain.wait("g")
        assert world.plain.submit(transfer("behind", 1, 2, 0)).wait().state == "committed"
    assert (outcome.state, outcome.reason) == ("rolled_back", "recipe_error")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G7", "RG10")
@pytest.mark.parametrize("where", ["values", "props"])
def test_a_definition_that_is_nested_too_deep(world: World, where: str) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    world.handlers["made"] = lambda props: None
    g = Group("g", pre_hook=StartHandler("mine", "made", {"a": deep}) if where == "props" else None)
    text = "UPDATE account SET amount = :n WHERE id = 1"
    g.update("x", text, {"n": deep if where == "values" else 1}, target="shop")
    with pytest.raises(InvalidGroup) as caught:
        world.plain.submit(g)
    assert "deeper than" in str(caught.value)
    assert world.plain.load("g") is None
