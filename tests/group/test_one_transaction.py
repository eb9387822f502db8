"""Groups on one SQL target that ask nobody are one transaction: the same as step by step, as far as anybody can see.

with the same groups step by step     states, results, reasons and rows are equal
killed, or its answer is lost         done once, or not at all; what is committed there is committed
cancelled, past its deadline          before COMMIT nothing is there; after it, it is committed
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import Unavailable
from strandline.group import turn
from strandline.group.checks import affected_rows_equal, ask, is_true
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.group.outcome import Outcome
from strandline.testing import points
from tests.group.worlds import ACCOUNTS, PostgresShop, SqliteShop, World, transfer, update
from tests.repeats import repeats


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "sqlite":
        shop: Any = SqliteShop(tmp_path / "shop.db")
    else:
        shop = PostgresShop(request.getfixturevalue("shop"))
    made = World(shop)
    yield made
    points.clear()
    made.close()


class _Crash(BaseException):
    pass


def crash() -> None:
    raise _Crash


def runs(world: World, call: str = "run_segment") -> list[str]:
    """What is run as one transaction."""
    target: Any = world.plain.targets.target("shop")
    real, found = getattr(target, call), list[str]()

    def counted(owner: Any, segment: Any, *more: Any) -> Any:
        found.append(segment.id.step)
        return real(owner, segment, *more)

    setattr(target, call, counted)
    return found


def randomly(rng: random.Random, id_: str) -> Group:
    g = Group(id_, on_conflict="overwrite")
    for n in range(rng.randrange(1, 6)):
        name, account = f"s{n}", rng.randrange(1, 6)
        needs: list[Any] = [f"s{rng.randrange(n)}"] if n and rng.random() < 0.7 else []
        kind = rng.random()
        more: dict[str, Any] = {"depends_on": needs}
        if rng.random() < 0.2:
            more["checks"] = [affected_rows_equal(1)]
        if kind < 0.4:
            update(g, name, account, rng.randrange(-60, 60), **more)
        elif kind < 0.55:
            text = "INSERT INTO account (id, name, amount) VALUES (:id, :name, 5)"
            g.insert(name, text, {"id": account, "name": name}, target="shop", **more)
        elif kind < 0.65:
            g.delete(name, "DELETE FROM account WHERE id = :id", {"id": account}, target="shop", **more)
        elif kind < 0.9:
            rest = {key: value for key, value in more.items() if key != "checks"}
            text = "SELECT amount FROM account WHERE id = :id"
            recipes = [Recipe("half", expression="amount / 2", optional=rng.random() < 0.5)]
            success = rng.choice([None, "amount >= 0", "row_count < 2"])
            g.query(name, text, {"id": account}, target="shop", recipes=recipes, success=success, **rest)
        else:
            rest = {key: value for key, value in more.items() if key != "checks"}
            g.empty(name, success=rng.choice(["1 = 1", "1 = 1", "1 = 2"]), **rest)
    return g


def told(outcome: Outcome) -> Any:
    """What a user sees."""
    steps = {
        name: (step.state, step.results, step.affected, step.reason, step.rows, [v["value"] for v in step.verdicts])
        for name, step in outcome.steps.items()
    }
    return outcome.state, outcome.failed_step, outcome.reason, steps


@pytest.mark.req("G92", "G62", "G71", "S58")
@repeats(60, 10_000)
def test_one_transaction_is_the_same_as_step_by_step(world: World, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """In one order of steps: where branches run side by side, step by step another one may fail first."""
    found: list[list[Any]] = []
    for segments in (True, False):
        monkeypatch.setattr(turn, "SEGMENTS", segments)
        world.shop.execute("DELETE FROM account")
        for row in ACCOUNTS:
            world.shop.execute("INSERT INTO account VALUES ($1, $2, $3)", row)
        groups, rng, seen = world.groups(parallel_groups=1), random.Random(7), list[Any]()
        for n in range(times):
            g = randomly(rng, f"{segments}{n}")
            made = g.made()
            for before, step in zip([None, *g.steps], made["steps"], strict=False):
                step["depends_on"] = [{"step": before}] if before is not None else []
            groups.submit(Group.of(made))
        groups.processor().run_until_idle()
        for n in range(times):
            seen.append(told(groups.get(f"{segments}{n}")))
        seen.append(world.accounts())
        found.append(seen)
    together, apart = found
    for n, (one, other) in enumerate(zip(together, apart, strict=True)):
        assert one == other, (n, one, other)
    assert {state[0] for state in together[:-1]} >= {"committed", "aborted", "rolled_back"}


@pytest.mark.req("G92", "G73", "G83")
def test_it_is_one_transaction_without_images(world: World) -> None:
    found = runs(world)
    assert world.run(transfer("good", 1, 2, 10)).state == "committed"
    assert world.run(transfer("bad", 1, 2, 1000)).state == "rolled_back"
    assert found == ["take", "take"]
    assert world.accounts()[:2] == [(1, "anna", 90), (2, "bert", 60)]
    history = world.plain.load("bad")
    assert history is not None
    assert not history.images
    assert world.plain.get("bad").steps["take"].state == "undone"
    assert "one transaction on shop" in world.plain.explain(transfer("x", 1, 2, 1)).text()


def handled(g: Group) -> None:
    g.empty("h", recipes=[Recipe("r", handler="h")])


def asked(g: Group) -> None:
    update(g, "h", 3, 0, checks=[ask("h")])


def hooked(g: Group) -> None:
    update(g, "h", 3, 0, post_hook=Hook("h"))


def given_an_undo(g: Group) -> None:
    update(g, "h", 3, 0, undo=Handler("h"))


def elsewhere(g: Group) -> None:
    g.query("h", "SELECT amount FROM account WHERE id = 3", target="other")


@pytest.mark.req("G92")
@pytest.mark.parametrize("more", [handled, asked, hooked, given_an_undo, elsewhere])
def test_what_comes_between_makes_its_steps_transactions_of_their_own(
    world: World, more: Callable[[Group], None], tmp_path: Path
) -> None:
    world.handlers["h"] = lambda message: {"value": True}
    other = SqliteShop(tmp_path / "other.db")
    other.execute("CREATE TABLE account (id integer PRIMARY KEY, amount integer)")
    g = transfer("g", 1, 2, 10)
    more(g)
    groups = world.groups(targets={"shop": world.shop.url, "other": other.url})
    assert groups.explain(g).transaction is None
    groups.submit(g)
    groups.processor().run_until_idle()
    assert groups.get("g").state == "committed"
    history = groups.load("g")
    assert history is not None
    assert "take" in history.images
    other.close()


@pytest.mark.req("G72", "G84", "S48", "RG3")
@pytest.mark.parametrize("point", ["step.before", "step.done", "step.recorded"])
@pytest.mark.parametrize("amount", [10, 1000])
def test_a_process_that_ends_in_it(world: World, point: str, amount: int) -> None:
    points.at(point, crash)
    world.plain.submit(transfer("g", 1, 2, amount))
    try:
        world.plain.processor().run_until_idle()
    except _Crash:
        pass
    else:
        assert (point, amount) == ("step.done", 1000), "it was rolled back"
    points.clear()
    if (point, amount) == ("step.done", 10):
        seen = world.plain.get("g")
        assert (seen.state, seen.place, seen.steps["give"].affected) == ("running", 1, 1)
    world.plain.processor().run_until_idle()
    outcome = world.plain.get("g")
    assert outcome.state == ("committed" if amount == 10 else "rolled_back")
    assert outcome.steps["enough"].verdicts[0]["value"] == (amount == 10)
    assert [row[2] for row in world.accounts()[:2]] == ([90, 60] if amount == 10 else [100, 50])
    assert world.types("g").count("Decided") == 1


@pytest.mark.req("G6", "G46", "S40", "S43", "RG5")
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("cancelled", [True, False])
def test_its_answer_is_lost(world: World, done: bool, cancelled: bool) -> None:
    """What became of it is found out; a cancel counts if nothing is there."""
    target: Any = world.plain.targets.target("shop")
    real = target.run_segment

    def lost(owner: Any, segment: Any, host: Any) -> Any:
        target.run_segment = real
        if done:
            real(owner, segment, host)
        if cancelled:
            world.plain.cancel("g")
        raise Unavailable("the connection is gone", code="away", hint="", applied="unknown")

    target.run_segment = lost
    outcome = world.run(transfer("g", 1, 2, 10))
    if done or not cancelled:
        assert (outcome.state, outcome.reason) == ("committed", None)
        assert [row[2] for row in world.accounts()[:2]] == [90, 60]
    else:
        assert (outcome.state, outcome.reason) == ("aborted", "cancelled")
        assert world.accounts() == ACCOUNTS


@pytest.mark.req("G46", "S44", "RG8")
def test_a_deadline_passes_in_it(world: World) -> None:
    target: Any = world.plain.targets.target("shop")
    real = target.run_segment

    def slowly(owner: Any, segment: Any, host: Any) -> Any:
        host._stops = lambda: True
        return real(owner, segment, host)

    g = transfer("g", 1, 2, 10)
    g.deadline_s = 0.3
    target.run_segment = slowly
    outcome = world.run(g)
    assert (outcome.state, outcome.reason) == ("aborted", "deadline")
    assert world.accounts() == ACCOUNTS


@pytest.mark.req("G5", "G72")
@pytest.mark.parametrize("there", [True, False])
def test_a_driver_that_raises_fails_it_alone(world: World, there: bool) -> None:
    """Whether it was committed before is asked."""
    target: Any = world.plain.targets.target("shop")
    real = target.run_segment

    def broken(owner: Any, segment: Any, host: Any) -> Any:
        if segment.id.group != "g":
            return real(owner, segment, host)
        if there:
            target.run_segment = real
            real(owner, segment, host)
        raise RecursionError("nobody expected this")

    target.run_segment = broken
    world.run(transfer("g", 1, 2, 10), transfer("behind", 1, 2, 1))
    outcome = world.plain.get("g")
    assert outcome.state == ("committed" if there else "aborted"), outcome
    assert outcome.reason == (None if there else "internal")
    assert world.plain.get("behind").state == "committed"
    assert [row[2] for row in world.accounts()[:2]] == ([89, 61] if there else [99, 51])


@pytest.mark.req("G33", "G35", "S11")
def test_data_goes_from_step_to_step(world: World) -> None:
    g = Group("g")
    look = "SELECT id, amount FROM account WHERE amount > 10"
    g.query("look", look, target="shop", recipes=[Recipe("n", expression="row_count")])
    text = "UPDATE account SET amount = :n.value WHERE id = :row.id"
    g.update(
        "each", text, target="shop", depends_on=[Dep("look", "n")], for_each="look.identity.rows",
        checks=[is_true("1 = 1"), affected_rows_equal(2)],
    )  # fmt: skip
    outcome = world.run(g)
    assert (outcome.state, outcome.steps["each"].affected) == ("committed", 2), outcome
    assert outcome.steps["look"].results["n"] == {"value": 2}
    assert [row[2] for row in world.accounts()] == [2, 2, None]
