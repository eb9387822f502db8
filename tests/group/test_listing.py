"""Lists of groups, and how streams stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.errors import InvalidInput
from strandline.group.checks import ask
from strandline.group.definition import Group
from tests.acceptance.cli_call import call
from tests.group.worlds import Running, SqliteShop, World, transfer, update
from tests.query.filling import carry_all


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'orders'}")
    yield made
    made.close()


def ids(found: Any) -> list[str]:
    return [one.id for one in found.groups]


def stuck(world: World, id_: str) -> Group:
    """Its undo fails: somebody changed the row."""
    g = Group(id_)
    update(g, "x", 1, 1)
    g.empty("last", depends_on=["x"], checks=[ask("meddle")])

    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 7 WHERE id = 1")
        return {"value": False}

    world.handlers["meddle"] = meddle
    return g


@pytest.mark.req("G84")
def test_open_groups_are_listed_without_a_pipeline(world: World) -> None:
    first = stuck(world, "stuck")
    groups = world.plain
    for group in (transfer("a", 1, 2, 1), first, transfer("b", 1, 2, 1), transfer("c", 2, 1, 1)):
        groups.submit(group)
    assert ids(groups.list("open")) == ids(groups.list("queued")) == ["a", "stuck", "b", "c"]
    assert [one.place for one in groups.list("open").groups] == [1, 2, 3, 4]
    groups.processor().run_until_idle()  # b and c wait for the rows of the one that is stuck
    assert [(one.id, one.state, one.reason) for one in groups.list("open").groups] == [
        ("stuck", "rollback_failed", "check_false"), ("b", "queued", None), ("c", "queued", None),
    ]  # fmt: skip
    assert ids(groups.list("rollback_failed")) == ["stuck"]
    assert (groups.list().groups, groups.list().as_of) == ((), 0)
    groups.resolve("stuck", "x", "force")
    groups.processor().run_until_idle()
    assert groups.list("open").groups == ()


@pytest.mark.req("G84")
def test_a_long_list_comes_in_pages(world: World) -> None:
    groups, other = world.plain, world.s.groups("other")
    for n in range(7):
        groups.submit(transfer(f"g{n}", 1, 2, 1 if n % 2 else 1000))
        g = Group(f"o{n}")
        g.empty("nothing")
        other.submit(g)
    expected = [f"g{n}" for n in range(7)]
    assert _paged(groups, "open", 3) == [expected[:3], expected[3:6], expected[6:]]
    with Running(groups), Running(other):
        for n in range(7):
            groups.wait(f"g{n}")
            other.wait(f"o{n}")
    carry_all(world.s)
    assert _paged(groups, None, 3) == [expected[:3], expected[3:6], expected[6:]]
    assert _paged(groups, "committed", 2) == [["g1", "g3"], ["g5"]]  # on the same rows: one after the other
    assert _paged(groups, "rolled_back", 10) == [["g0", "g2", "g4", "g6"]]
    (page,) = _paged(other, "committed", 10)
    assert sorted(page) == [f"o{n}" for n in range(7)]
    assert groups.list().as_of >= max(one.ended for one in groups.list().groups)
    assert groups.list("aborted").groups == ()


def _paged(groups: Any, state: str | None, limit: int) -> list[list[str]]:
    found = groups.list(state, limit=limit)
    pages = [ids(found)]
    while found.after is not None and found.groups:
        found = groups.list(state, found.after, limit)
        pages += [ids(found)] if found.groups else []
    return pages


@pytest.mark.req("G84")
@pytest.mark.parametrize(("given", "code"), [(("odd",), "setting"), (("open", "x"), "offset_format"),
                                             (("open", "9" * 5000), "offset_format"),
                                             (("open", None, 0), "limit_range")])  # fmt: skip
def test_what_cannot_be_listed(given: Any, code: str) -> None:
    with strandline.connect("memory:") as s, pytest.raises(InvalidInput) as caught:
        s.groups().list(*given)
    assert caught.value.code == code


@pytest.mark.req("G84", "G86")
def test_from_the_command_line(world: World) -> None:
    world.run(transfer("a", 1, 2, 1), stuck(world, "stuck"))
    place = ("--url", "sqlite:orders")
    answer = call("group", "list", *place)
    assert (answer.code, answer.out) == (0, "")
    assert "no pipeline has carried" in answer.err
    answer = call("group", "list", "--state", "open", "--json", *place)
    assert [json.loads(line)["id"] for line in answer.out.splitlines()] == ["stuck"]
    (before,) = call("status", "--json", *place).lines
    assert before["streams"] == []
    carry_all(world.s)
    answer = call("group", "list", "--limit", "1", *place)
    assert answer.out.split()[:2] == ["a", "committed"]
    more = answer.err.split("--after ")[1].strip()
    assert call("group", "list", "--after", more, *place).out.split()[:2] == ["stuck", "rollback_failed"]
    (after,) = call("status", "--json", *place).lines
    assert after["streams"] == [
        {"stream": "default", "holder": None, "done_to": 2, "queued": 0, "open": 1, "rollback_failed": 1, "away": []}
    ]
    shown = call("status", *place).out
    assert "rollback failed" in shown
    assert "default" in shown


@pytest.mark.req("G84")
def test_a_group_that_is_open_all_the_time_is_in_every_list(world: World) -> None:
    """While others end, and their entries leave the stream: it moves from the stream to the lease, and is in both."""
    first = stuck(world, "stuck")
    groups = world.groups()
    groups.submit(first)
    for n in range(60):
        g = Group(f"g{n}")
        update(g, "x", 2, 1)
        groups.submit(g)
    with Running(groups):
        while (found := ids(groups.list("open"))) != ["stuck"]:
            assert found[0] == "stuck", found
        groups.wait("g59")
        assert ids(groups.list("rollback_failed")) == ["stuck"]
