"""Code versions: loaded by an entry of the stream, and served by processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidInput
from strandline.group import mail
from strandline.group.core.parts import Recipe, StartHandler
from strandline.group.definition import Group
from strandline.group.lease import said
from strandline.work.declaration import SHARED, WorkDeclaration
from tests.acceptance.cli_call import COMMAND, call
from tests.group.worlds import Running, SqliteShop, World, serving, update

V1, V2 = "shop@1", "shop@2"
SOURCE = """
import os
from pathlib import Path

def value(message):
    return {"value": VALUE, "pid": os.getpid()}

class Adder:
    def __init__(self, props):
        self.n = props["n"]
    def __call__(self, message):
        return {"value": self.n + VALUE}
    def stop(self):
        Path("stopped").write_text(str(self.n))

HANDLERS = {"value": value, "adder": Adder}
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(SqliteShop(tmp_path / "shop.db"), "sqlite:orders")
    yield made
    made.close()


@contextmanager
def served(world: World, code: str, handlers: Any) -> Iterator[None]:
    box = mail.box_of(code)
    world.s.work(WorkDeclaration(box, key=mail.KEY, data=mail.DATA, tables=SHARED, poll_s=0.05))
    with serving(world, handlers, box):
        yield


def asks(id_: str, handler: str = "shop/value", **more: Any) -> Group:
    g = Group(id_, **more)
    g.empty("a", recipes=[Recipe("r", handler=handler, timeout_s=20)])
    return g


def value(world: World, id_: str) -> Any:
    outcome = world.plain.get(id_)
    assert outcome.state == "committed", outcome
    return outcome.steps["a"].results["r"]["value"]


# ---------------------------------------------------------------- in a stream


@pytest.mark.req("G79", "G80", "S66")
def test_each_group_is_on_the_version_of_its_place(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1")
    groups.submit(asks("one"))
    groups.load_code("shop", "2")
    groups.submit(asks("two"))
    with ExitStack() as all_:
        all_.enter_context(served(world, V1, {"value": lambda message: {"value": 1}}))
        all_.enter_context(served(world, V2, {"value": lambda message: {"value": 2}}))
        groups.processor().run_until_idle()
        assert (value(world, "one"), value(world, "two")) == (1, 2)
        assert said(world.s.journal, "default").code == {"shop": V2}
        assert groups.submit(asks("three"))  # the entries that loaded it are deleted
        groups.processor().run_until_idle()
        assert value(world, "three") == 2
    history = groups.load("one")
    assert history is not None
    assert history.code == {"shop": V1}


@pytest.mark.req("G79", "G72", "S66")
def test_a_group_that_is_resumed_stays_on_its_version(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1")
    box = world.s.work(WorkDeclaration(mail.box_of(V1), key=mail.KEY, data=mail.DATA, tables=SHARED))
    g = asks("one")
    g.empty("b", recipes=[Recipe("r", handler="shop/value")], depends_on=["a"])
    with Running(groups):
        groups.submit(g)
        while box.counts().due == 0:
            time.sleep(0.01)
    groups.load_code("shop", "2")
    assert groups.get("one").state == "running"
    with served(world, V1, {"value": lambda message: {"value": 1}}):
        groups.processor().run_until_idle()
    assert value(world, "one") == 1
    assert groups.get("one").steps["b"].results["r"]["value"] == 1


@pytest.mark.req("G80", "G81", "S66")
def test_a_group_waits_for_code_that_nobody_serves_and_says_so(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1")
    first, behind, other = asks("first"), Group("behind"), Group("other")
    update(first, "x", 1, 1)
    update(behind, "x", 1, 1)
    update(other, "x", 2, 1)
    for g in (first, behind, other, asks("cancelled")):
        groups.submit(g)
    groups.cancel("cancelled")
    assert V1 in str(groups.get("first").waits_for)
    groups.processor().run_until_idle()
    states = [groups.get(id_).state for id_ in ("first", "behind", "other", "cancelled")]
    assert states == ["queued", "queued", "committed", "aborted"]
    waits_for = groups.get("first").waits_for
    assert waits_for is not None
    assert V1 in waits_for
    assert "waits for shop@1" in call("group", "show", "first", "--url", "sqlite:orders").out
    with Running(groups), served(world, V1, {"value": lambda message: {"value": 1}}):
        assert groups.wait("first").state == groups.wait("behind").state == "committed"
    assert groups.get("first").waits_for is None


@pytest.mark.req("G79")
def test_a_version_is_over_for_who_looks_now_and_then(world: World) -> None:
    """Before it is loaded, while a group is on it, and where it came and went between two looks."""
    groups = world.plain
    one, two = groups.code_watch(V1), groups.code_watch(V2)
    assert [one.over(), two.over()] == [False, False]
    groups.load_code("shop", "1")
    groups.submit(asks("one"))
    groups.load_code("shop", "2")
    assert [one.over(), two.over()] == [False, False]
    with served(world, V1, {"value": lambda message: {"value": 1}}):
        groups.processor().run_until_idle()
    assert [one.over(), two.over(), groups.code_watch(V1).over()] == [True, False, True]
    groups.load_code("shop", "1")
    groups.processor().run_until_idle()
    assert [groups.code_watch(V1).over(), two.over(), groups.code_watch(V2).over()] == [False, True, True]


@pytest.mark.req("G69", "G46", "G84")
def test_a_group_is_cancelled_while_its_handler_is_started_elsewhere(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1")
    box = world.s.work(WorkDeclaration(mail.box_of(V1), key=mail.KEY, data=mail.DATA, tables=SHARED))
    g = Group("g", pre_hook=StartHandler("mine", "shop/adder", {"n": 1}))
    g.empty("a", recipes=[Recipe("r", handler="mine")])
    with Running(groups):
        groups.submit(g)
        while box.counts().due == 0:
            time.sleep(0.01)
        waits_for = groups.get("g").waits_for
        assert waits_for is not None
        assert waits_for.startswith("an answer to g/")
        groups.cancel("g")
        outcome = groups.wait("g", 10)
        assert (outcome.state, outcome.reason, outcome.waits_for) == ("aborted", "cancelled", None)
        after = Group("after")
        update(after, "x", 1, 1)
        groups.submit(after)
        assert groups.wait("after").state == "committed"


@pytest.mark.req("G81", "G25")
def test_what_is_missing_is_named(world: World) -> None:
    groups = world.plain
    groups.submit(asks("early"))
    groups.load_code("shop", "1")
    groups.submit(asks("late", "shop/nothing"))
    with served(world, V1, {"value": lambda message: {"value": 1}}):
        groups.processor().run_until_idle()
    early, late = groups.get("early"), groups.get("late")
    assert (early.state, early.reason, late.state, late.reason) == (
        "aborted",
        "recipe_error",
        "aborted",
        "recipe_error",
    )
    assert "nothing before this group in its stream loads" in early.detail
    assert "'shop'" in early.detail
    assert "'nothing'" in late.detail
    assert "known are: value" in late.detail


@pytest.mark.req("G79")
@pytest.mark.parametrize(
    "given", [("a b", "1"), ("shop", ""), ("shop", "1" * 65), ("shop", "a\nb"), ("shop", 1), (1, "1")]
)
def test_what_is_no_version_is_refused(world: World, given: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        world.plain.load_code(*given)
    assert caught.value.code == "option"
    assert world.s.journal.head("group_stream|default") is None


# ---------------------------------------------------------------- processes


def module(folder: Path, number: int) -> None:
    folder.mkdir()
    (folder / "shop_code.py").write_text(f"VALUE = {number}\n{SOURCE}")


@contextmanager
def process(folder: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that serves what is in a folder, as this version."""
    command = [*COMMAND, "group", "handlers", "shop_code:HANDLERS", "--as", code]
    command += ["--url", f"sqlite:{Path.cwd() / 'orders'}", "--json"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ), cwd=folder
    )
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line, running.communicate()
        assert json.loads(line) == {"code": code, "handlers": ["adder", "value"], "stream": "default"}
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        running.communicate(timeout=30)


@pytest.mark.req("G79", "G80", "G69", "S66", "S67")
def test_versions_are_served_by_processes_and_an_old_one_ends_by_itself(world: World, tmp_path: Path) -> None:
    for number in (1, 2):
        module(tmp_path / str(number), number)
    groups, url = world.plain, ("--url", "sqlite:orders")
    with process(tmp_path / "1", V1) as one, process(tmp_path / "2", V2) as two, Running(groups):
        assert call("group", "load-code", "shop", "1", *url).code == 0
        groups.submit(asks("one"))
        started = Group("started", pre_hook=StartHandler("mine", "shop/adder", {"n": 40}))
        started.empty("a", recipes=[Recipe("r", handler="mine", timeout_s=20)])
        groups.submit(started)
        for id_ in ("one", "started"):
            groups.wait(id_)
        assert call("group", "load-code", "shop", "2", *url, "--json").code == 0
        groups.submit(asks("two"))
        groups.wait("two")
        assert (value(world, "one"), value(world, "started"), value(world, "two")) == (1, 41, 2)
        pids = [groups.get(id_).steps["a"].results["r"]["pid"] for id_ in ("one", "two")]
        assert pids == [one.pid, two.pid]
        assert "shop_code" not in sys.modules
        assert one.wait(30) == 0
        assert one.stderr is not None
        first, *_ = one.stderr.read().splitlines()  # it was served before anybody loaded it
        assert first.startswith(f"nobody loaded {V1} in stream default yet; `strandline group load-code shop 1 --url")
        assert two.poll() is None
    assert (tmp_path / "1" / "stopped").read_text() == "40"


@pytest.mark.req("G79", "G80")
@pytest.mark.parametrize("given", ["shop", "@2", "a b@1", "shop@"])
def test_what_is_no_version_is_not_served(world: World, given: str) -> None:
    answer = call("group", "handlers", "shop_code:HANDLERS", "--as", given, "--url", "sqlite:orders", "--json")
    assert (answer.code, answer.name) == (2, "InvalidInput.option")
    assert "--as" in answer.err
    assert "NAME@VERSION" in answer.err
