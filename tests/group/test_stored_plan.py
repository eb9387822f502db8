"""The plan of a group in its history: the same plan for whoever reads it, and nothing is parsed to run it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidGroup, SchemaMismatch
from strandline.group import planning, stored_plan
from strandline.group.definition import Group
from strandline.group.plan import GroupPlan
from strandline.group.planning import planned
from strandline.group.statements.api import Dialect, TargetTable
from strandline.group.stored_plan import planned_again, stored
from tests.group.test_cql_parsing import SEAT
from tests.group.test_decide import ACCOUNT, plan_of, random_group
from tests.group.test_statement_parsing import STARTS, WORDS
from tests.group.worlds import ACCOUNTS, SqliteShop, World, update


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(SqliteShop(tmp_path / "shop.db"))
    yield made
    made.close()


def every(table: TargetTable, _: str, names: Iterable[str]) -> dict[str, TargetTable]:
    return dict.fromkeys(names, table)


def same(plan: GroupPlan) -> None:
    made = json.loads(json.dumps({**stored(plan), **plan.made_order()}))
    again = planned_again(json.loads(json.dumps(plan.group.made())), made)
    for mine, theirs in ((again.steps, plan.steps), (again.rollback, plan.rollback)):
        assert list(mine) == list(theirs)
        for name, one in mine.items():
            assert replace(one, step=theirs[name].step) == theirs[name]
            assert replace(one.step, values={}) == replace(theirs[name].step, values={}), "its own values are in `one`"
    assert (again.segments, again.sequence, again.handlers) == (plan.segments, plan.sequence, plan.handlers)


@pytest.mark.req("G85")
def test_plans_of_random_groups_come_back_as_they_were() -> None:
    for seed in range(200):
        same(plan_of(random_group(random.Random(seed))[0]))


@pytest.mark.req("G85")
def test_plans_of_whatever_statement_is_accepted_come_back_as_they_were() -> None:
    """Random words behind the beginning of a statement, in all dialects; most are refused."""
    rng = random.Random(7)
    dialects: dict[str, Dialect] = {"a": "sqlite", "b": "postgres", "c": "cassandra"}
    texts = [
        "INSERT INTO t (id, amount) VALUES (:l, 0.5) ON CONFLICT (id) DO UPDATE SET amount = excluded.amount + -1",
        "WITH w AS (SELECT 1) UPDATE t AS q SET amount = :x WHERE id IN :y AND amount NOT IN :z RETURNING id",
        "SELECT id FROM t WHERE id = 'x' FOR UPDATE", "DELETE FROM t", "VACUUM",
        "UPDATE t USING TTL 5 SET tags['x'] = 'y' WHERE hall = 'a' AND row IN (1, 2) IF guest = :x",
        "INSERT INTO t (hall, row, guest) VALUES ('a', 1, :x) IF NOT EXISTS", "DELETE guest FROM t WHERE hall = :x",
        "SELECT count(*) AS n, token(hall) FROM t WHERE hall = 'a' LIMIT 5",
    ]  # fmt: skip
    texts += [" ".join([rng.choice(STARTS), *rng.choices(WORDS, k=rng.randint(0, 9))]) for _ in range(600)]
    found = 0
    for text in texts:
        for target in dialects:
            g = Group("g")
            g.statement("a", text, {"l": 1, "x": "x", "y": [1], "z": [2]}, target=target, irreversible=True)
            table = SEAT if target == "c" else ACCOUNT
            with suppress(InvalidGroup):
                same(planned(g, dialects, partial(every, table), lambda _: None))
                found += 1
    assert found > 100


@pytest.mark.req("G85", "G77")
def test_a_plan_of_many_unlike_statements_is_short_enough_for_an_append() -> None:
    g = Group("g")
    for n in range(500):
        g.update(f"s{n}", f"UPDATE account SET amount = amount + {n} WHERE id = {n} AND amount > {n}", target="shop")
    plan = plan_of(g)
    same(plan)
    assert len(json.dumps(stored(plan))) < 500 * 200, "of 10,000, two megabytes"


@pytest.mark.req("G85")
def test_nothing_is_parsed_to_run_what_was_submitted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer program may read the text another way: the group runs as it was when it was submitted."""
    g = Group("g")
    update(g, "x", 1, 5)
    update(g, "y", 2, 5, depends_on=["x"], success="row_count = 0")
    g.query("z", "SELECT amount FROM account WHERE id = 1", target="shop", depends_on=["y"], success="amount = 105")
    world.plain.submit(g)

    def parse(*_: Any) -> Any:
        raise AssertionError("parsed")

    for name in ("parse", "_parsed", "plan", "_planned"):
        monkeypatch.setattr(planning, name, parse)
    stored_plan._of_shape.cache_clear()
    fresh = world.groups()
    fresh.processor().run_until_idle()
    assert fresh.get("g").state == "committed", fresh.get("g")
    assert world.accounts() == [(1, "anna", 105), (2, "bert", 55), ACCOUNTS[2]]
    assert fresh.playback("g").equal


@pytest.mark.req("G85")
def test_a_plan_of_another_version_stops_who_does_not_know_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are not known, so nothing behind it may run; the program that knows it goes on."""
    g = Group("g")
    update(g, "x", 1, 5)
    with monkeypatch.context() as newer:
        newer.setattr(stored_plan, "VERSION", 2)
        world.plain.submit(g)
    with pytest.raises(SchemaMismatch, match="plan of version 2, this program knows 1"):
        world.plain.processor().run_until_idle()
    assert world.plain.get("g").state == "queued"
    monkeypatch.setattr(stored_plan, "VERSION", 2)
    world.plain.processor().run_until_idle()
    assert world.plain.get("g").state == "committed"
