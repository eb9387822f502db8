"""`strandline group`: each verb is the call of its name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import Unavailable
from strandline.group.checks import ask, is_true
from strandline.group.core.parts import Recipe
from strandline.group.definition import Group
from strandline.group.lease import said
from tests.acceptance.cli_call import call
from tests.group.worlds import SqliteShop, World, transfer, update


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    made = World(SqliteShop(tmp_path / "shop.db"), f"sqlite:{tmp_path / 'orders'}")
    yield made
    made.close()


def lines(*arguments: str) -> list[Any]:
    answer = call("group", *arguments, "--url", "sqlite:orders", "--json")
    assert answer.code == 0, answer
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.mark.req("G86", "G83", "G84")
def test_every_verb(world: World, tmp_path: Path) -> None:
    (tmp_path / "move.json").write_text(transfer("move", 1, 2, 10).to_json())
    (tmp_path / "handlers_of_shop.py").write_text("HANDLERS = {'price': lambda message: {'value': 1}}\n")
    shop = ("--target", "shop=sqlite:shop.db")
    (explained,) = lines("explain", "move.json", *shop)
    assert next(step["name"] for step in explained["steps"]) == "take/before"
    assert lines("submit", "move.json", *shop)[0]["group"] == "move"
    assert lines("show", "move")[0]["state"] == "queued"
    assert "--state open lists" in call("group", "list", "--url", "sqlite:orders").err
    assert lines("run", "--until-idle", *shop, "--handlers", "handlers_of_shop:HANDLERS") == []
    (shown,) = lines("show", "move")
    assert (shown["state"], shown["steps"]["take"]["state"]) == ("committed", "succeeded")
    assert [row["type"] for row in lines("history", "move")][-1] == "Ended"
    assert lines("playback", "move") == [{"group": "move", "steps": 3, "equal": True, "difference": None}]
    assert lines("cancel", "move") == [{"group": "move", "state": "committed"}]
    assert (
        "move: has ended, committed: nothing is undone" in call("group", "cancel", "move", "--url", "sqlite:orders").out
    )
    assert world.accounts()[:2] == [(1, "anna", 90), (2, "bert", 60)]
    answer = call("group", "resolve", "move", "take", "force", "--url", "sqlite:orders")
    assert (answer.code, "step_state" in answer.err) == (2, True)
    assert call("group", "show", "nowhere", "--url", "sqlite:orders").code == 3
    for verb in ("show", "history", "playback"):
        assert "move" in call("group", verb, "move", "--url", "sqlite:orders").out or verb == "history"


@pytest.mark.req("G86")
def test_where_targets_and_settings_come_from(world: World, tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text(transfer("move", 1, 2, 10).to_json())
    config = tmp_path / "strandline.toml"
    config.write_text(
        'url = "sqlite:orders"\n[group]\nstream = "s1"\nlease_s = 2\n[group.targets]\nshop = "sqlite:shop.db"\n'
    )
    answer = call("group", "submit", "group.json", "--config", str(config), "--json")
    assert json.loads(answer.out)["stream"] == "s1"
    assert call("group", "run", "--until-idle", "--config", str(config)).code == 0
    assert lines("show", "move")[0]["state"] == "committed"
    answer = call("group", "run", "--until-idle", "--config", str(config), "--set", "group.lease_s=0")
    assert (answer.code, "lease_s" in answer.err) == (2, True)
    answer = call("group", "run", "--url", "sqlite:orders", "--set", "group.colour=1")
    assert (answer.code, "colour" in answer.err) == (2, True)


@pytest.mark.req("G86", "G7", "RG10")
def test_a_definition_comes_from_standard_input_and_says_all_that_is_wrong(world: World) -> None:
    text = json.dumps({"id": "g", "steps": [{"kind": "empty", "name": "a", "depends_on": ["b"]}, {"kind": "odd"}]})
    answer = call("group", "submit", "-", "--url", "sqlite:orders", stdin=text.encode())
    assert answer.code == 2
    assert "unknown_step" in answer.err or "needs 'b'" in answer.err
    assert "not a step" in answer.err


@pytest.mark.req("G78", "S53")
def test_a_saved_value_that_was_changed_is_named(world: World) -> None:
    from strandline.group.playback import verified

    g = Group("g")
    recipe = Recipe("r", expression="amount + 1")
    g.query("a", "SELECT amount FROM account WHERE id = 1", target="shop", recipes=[recipe], success="amount = 100")
    update(g, "x", 1, 1)
    assert world.run(g).state == "committed"
    history = world.plain.load("g")
    assert history is not None
    plan = world.plain.plan_of(history)
    assert verified(history, plan).equal
    history.step("a").results["r"]["value"] = 102
    assert verified(history, plan).difference == "a.r: 102 is saved, 101 is what it comes to"
    history.step("a").results["r"]["value"] = 101
    history.step("a").verdicts[0]["value"] = False
    assert str(verified(history, plan).difference).startswith("a, check 1")


# ---------------------------------------------------------------- what somebody meets who uses it for the first time


def quoted(id_: str) -> Group:
    g = Group(id_)
    g.empty("quote", recipes=[Recipe("price", handler="price")])
    update(g, "x", 1, 1, depends_on=["quote"])
    return g


@pytest.mark.req("G25", "G86")
def test_a_processor_without_a_handler_leaves_the_groups_that_need_it(world: World, tmp_path: Path) -> None:
    world.handlers["price"] = lambda message: {"value": 1}
    world.plain.submit(quoted("priced"))
    shop = ("--url", "sqlite:orders", "--target", "shop=sqlite:shop.db")
    answer = call("group", "run", "--until-idle", *shop)
    assert (answer.code, "unknown_handler" in answer.err, "--handlers" in answer.err) == (2, True, True)
    answer = call("group", "run", "--until-idle", "--url", "sqlite:orders")
    assert (answer.code, "unknown_target" in answer.err, "--target" in answer.err) == (2, True, True)
    assert world.plain.get("priced").state == "queued"
    (tmp_path / "handlers_here.py").write_text("HANDLERS = {'price': lambda message: {'value': 1}}\n")
    assert call("group", "run", "--until-idle", *shop, "--handlers", "handlers_here:HANDLERS").code == 0
    assert world.plain.get("priced").state == "committed"


@pytest.mark.req("G74", "G86")
def test_a_processor_gives_its_lease_back_at_sigterm(world: World) -> None:
    program = [sys.executable, "-c", "from strandline_command import main; main()", "group", "run"]
    place = ["--url", "sqlite:orders", "--target", "shop=sqlite:shop.db", "--set", "group.lease_s=60"]
    process = subprocess.Popen([*program, *place], env=dict(os.environ), stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while said(world.s.journal, "default").holder is None:
            assert process.poll() is None, process.stderr
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    assert said(world.s.journal, "default").holder is None
    assert world.run(transfer("next", 1, 2, 10)).state == "committed"


@pytest.mark.req("G7", "RG10")
def test_each_problem_is_a_line(world: World) -> None:
    text = json.dumps({"id": "g", "steps": [{"kind": "empty", "name": "a", "depends_on": ["b"]}, {"kind": "odd"}]})
    answer = call("group", "submit", "-", "--url", "sqlite:orders", stdin=text.encode())
    assert "\\n" not in answer.err
    first, *more = answer.err.splitlines()
    assert first.startswith("error: group 'g' cannot be accepted:")
    assert sum(line.startswith("  ") for line in more) == 2
    assert more[-1].startswith("hint: ")


@pytest.mark.req("G47", "G84")
def test_why_an_undo_failed_is_shown_and_what_to_do(world: World) -> None:
    g = transfer("stuck", 1, 2, 10)
    g.empty("last", depends_on=["give"], checks=[ask("meddle")])

    def meddle(message: Any) -> dict[str, Any]:
        world.shop.execute("UPDATE account SET amount = 7 WHERE id = 1")
        return {"value": False}

    world.handlers["meddle"] = meddle
    assert world.run(g).state == "rollback_failed"
    answer = call("group", "show", "stuck", "--url", "sqlite:orders")
    (take,) = (line for line in answer.out.splitlines() if line.startswith("  take "))
    assert "rows were changed by others since" in take
    assert "current" in answer.out
    assert "group resolve stuck STEP HOW --url sqlite:orders`; STEP: take" in answer.out
    with pytest.raises(Unavailable, match="rollback_failed") as caught:
        world.plain.wait("stuck", 0.01)
    assert "group resolve" in caught.value.hint


@pytest.mark.req("G86", "G83")
def test_what_a_person_reads_of_a_group(world: World, tmp_path: Path) -> None:
    """Checks with what they check, events as names and JSON values, and what a run came to."""
    g = transfer("move", 1, 2, 10)
    g.empty("last", depends_on=["give"], checks=[is_true("1 = 2")])
    (tmp_path / "move.json").write_text(g.to_json())
    (tmp_path / "good.json").write_text(transfer("good", 1, 2, 10).to_json())
    where, shop = ("--url", "sqlite:orders"), ("--target", "shop=sqlite:shop.db")
    assert "is_true(1 = 2)" in call("group", "explain", "move.json", *where, *shop).out
    for file in ("move.json", "good.json"):
        assert call("group", "submit", file, *where, *shop).code == 0
    answer = call("group", "run", "--until-idle", *where, *shop)
    assert answer.err.splitlines()[-1] == "stream default: 2 groups ended: 1 committed, 1 rolled_back"
    assert call("group", "run", "--until-idle", *where, *shop).err.splitlines()[-1] == "stream default: 0 groups ended"
    shown = call("group", "history", "move", *where).out
    assert ' step="take"' in shown
    assert "{'" not in shown


@pytest.mark.req("G86")
def test_verbs_take_what_their_calls_take(world: World) -> None:
    """A stream where the call is about one; nothing that a call does not take; ways and numbers that are none."""
    where = ("--url", "sqlite:orders")
    assert call("group", "load-code", "shop", "1", *where, "--stream", "s").out == (
        "shop: version 1 from here on in stream s\n"
    )
    assert call("group", "show", "x", *where, "--stream", "s").code == 2
    refused = call("group", "resolve", "x", "take", "fource", *where)
    assert (refused.code, "force" in refused.err) == (2, True)
    for limit in ("0", "1001", "x"):
        assert "limit" in call("group", "list", "--limit", limit, *where).err
