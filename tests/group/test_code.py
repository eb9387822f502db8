"""Code versions: bundles are packed, loaded by an entry of the stream, and served by processes of their own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidInput, NotFound
from strandline.group import bundle, mail
from strandline.group.core.parts import Recipe, StartHandler
from strandline.group.definition import Group
from strandline.group.lease import said
from strandline.work.declaration import SHARED, WorkDeclaration
from tests.acceptance.cli_call import COMMAND, call
from tests.group.worlds import Running, SqliteShop, World, serving, update

V1, V2 = "1" * 64, "2" * 64
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
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(SqliteShop(tmp_path / "shop.db"), "sqlite:orders")
    yield made
    made.close()


@contextmanager
def served(world: World, sha256: str, handlers: Any) -> Iterator[None]:
    box = mail.box_of(sha256)
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
    groups.load_code("shop", "1", V1)
    groups.submit(asks("one"))
    groups.load_code("shop", "2", V2)
    groups.submit(asks("two"))
    with ExitStack() as all_:
        all_.enter_context(served(world, V1, {"value": lambda message: {"value": 1}}))
        all_.enter_context(served(world, V2, {"value": lambda message: {"value": 2}}))
        groups.processor().run_until_idle()
        assert (value(world, "one"), value(world, "two")) == (1, 2)
        assert said(world.s.journal, "default").code == {"shop": ("2", V2)}
        assert groups.submit(asks("three"))  # the entries that loaded it are deleted
        groups.processor().run_until_idle()
        assert value(world, "three") == 2
    history = groups.load("one")
    assert history is not None
    assert history.code == {"shop": ("1", V1)}


@pytest.mark.req("G79", "G72", "S66")
def test_a_group_that_is_resumed_stays_on_its_version(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1", V1)
    box = world.s.work(WorkDeclaration(mail.box_of(V1), key=mail.KEY, data=mail.DATA, tables=SHARED))
    g = asks("one")
    g.empty("b", recipes=[Recipe("r", handler="shop/value")], depends_on=["a"])
    with Running(groups):
        groups.submit(g)
        while box.counts().due == 0:
            time.sleep(0.01)
    groups.load_code("shop", "2", V2)
    assert groups.get("one").state == "running"
    with served(world, V1, {"value": lambda message: {"value": 1}}):
        groups.processor().run_until_idle()
    assert value(world, "one") == 1
    assert groups.get("one").steps["b"].results["r"]["value"] == 1


@pytest.mark.req("G80", "G81", "S66")
def test_a_group_waits_for_code_that_nobody_serves_and_says_so(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1.0", V1)
    first, behind, other = asks("first"), Group("behind"), Group("other")
    update(first, "x", 1, 1)
    update(behind, "x", 1, 1)
    update(other, "x", 2, 1)
    for g in (first, behind, other, asks("cancelled")):
        groups.submit(g)
    groups.cancel("cancelled")
    assert "shop 1.0" in str(groups.get("first").waits_for)
    groups.processor().run_until_idle()
    states = [groups.get(id_).state for id_ in ("first", "behind", "other", "cancelled")]
    assert states == ["queued", "queued", "committed", "aborted"]
    waits_for = groups.get("first").waits_for
    assert waits_for is not None
    assert V1 in waits_for
    assert "waits for shop 1.0" in call("group", "show", "first", "--url", "sqlite:orders").out
    with Running(groups), served(world, V1, {"value": lambda message: {"value": 1}}):
        assert groups.wait("first").state == groups.wait("behind").state == "committed"
    assert groups.get("first").waits_for is None


@pytest.mark.req("G79")
def test_a_version_is_over_for_who_looks_now_and_then(world: World) -> None:
    """Before it is loaded, while a group is on it, and where it came and went between two looks."""
    groups = world.plain
    one, two = groups.code_watch(V1), groups.code_watch(V2)
    assert [one.over(), two.over()] == [False, False]
    groups.load_code("shop", "1", V1)
    groups.submit(asks("one"))
    groups.load_code("shop", "2", V2)
    assert [one.over(), two.over()] == [False, False]
    with served(world, V1, {"value": lambda message: {"value": 1}}):
        groups.processor().run_until_idle()
    assert [one.over(), two.over(), groups.code_watch(V1).over()] == [True, False, True]
    groups.load_code("shop", "1 again", V1)
    groups.processor().run_until_idle()
    assert [groups.code_watch(V1).over(), two.over(), groups.code_watch(V2).over()] == [False, True, True]


@pytest.mark.req("G69", "G46", "G84")
def test_a_group_is_cancelled_while_its_handler_is_started_elsewhere(world: World) -> None:
    groups = world.plain
    groups.load_code("shop", "1", V1)
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
    groups.load_code("shop", "1", V1)
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
    assert "NotFound.bundle" in early.detail
    assert "'shop'" in early.detail
    assert "'nothing'" in late.detail
    assert "known are: value" in late.detail


@pytest.mark.req("G79")
@pytest.mark.parametrize(
    "given", [("a b", "1", V1), ("shop", "", V1), ("shop", "1", "1" * 63), ("shop", "1", "X" * 64), ("shop", 1, V1)]
)
def test_what_is_no_version_is_refused(world: World, given: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        world.plain.load_code(*given)
    assert caught.value.code == "option"
    assert world.s.journal.head("group_stream|default") is None


# ---------------------------------------------------------------- bundles


def module(folder: Path, number: int, name: str = "shop_code") -> None:
    (folder / f"{name}.py").write_text(f"VALUE = {number}\n{SOURCE}")


HANDLERS = ("--handler", "value=shop_code:value", "--handler", "adder=shop_code:Adder")


def packed(*more: str) -> dict[str, Any]:
    answer = call("group", "pack", *more, "--json")
    assert answer.code == 0, answer.err
    found: dict[str, Any] = answer.lines[0]
    return found


@pytest.mark.req("G90", "G81")
def test_a_bundle_is_the_same_bytes_and_packing_executes_nothing(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('executed')\n")
    (folder / "deep.py").write_text("def f(message): return {}\n")
    made = [packed("mine", "--handler", "f=mine.deep:f", "--out", name) for name in ("a.zip", "b.zip")]
    assert made[0]["sha256"] == made[1]["sha256"] == hashlib.sha256(Path("a.zip").read_bytes()).hexdigest()
    assert set(zipfile.ZipFile("a.zip").namelist()) >= {"mine/__init__.py", "mine/deep.py"}
    with pytest.raises(NotFound, match="executed") as caught, bundle.opened(Path("a.zip")):
        pass
    assert caught.value.code == "handler"
    for given in (
        ("nowhere", "--handler", "f=nowhere:f"), ("mine",), ("mine", "--handler", "f=os:system"),
        ("mine", "--handler", "f=mine.shallow:f"), ("mine", "--handler", "f=mine.deep.er:f"),
        ("mine", "--handler", "f=mine"), ("sys", "--handler", "f=sys:exit"), ("mine", "--handler", "a b=mine:f"),
    ):  # fmt: skip
        answer = call("group", "pack", *given, "--out", "c.zip", "--json")
        assert (answer.code, answer.name) == (2, "InvalidInput.option"), given
    assert not Path("c.zip").exists()


def wheel(folder: Path, name: str, text: str) -> str:
    """A wheel of one module; the line of a lock file that names it."""
    file = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(f"{name}.py", text)
        made.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        made.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{name}-1.0.dist-info/entry_points.txt", f"[strandline.handlers]\n{name} = {name}:handle\n")
        made.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.mark.req("G90")
def test_a_bundle_has_what_a_lock_file_names_with_its_hashes(world: World, tmp_path: Path) -> None:
    line = wheel(tmp_path, "taxes", "def handle(message): return {'value': 19}\n")
    lock = tmp_path / "lock.txt"
    lock.write_text(f"--no-index\n--find-links {tmp_path}\n{line}")
    module(tmp_path, 1, "lock_code")
    given = ("lock_code", "--handler", "value=lock_code:value", "--lock", "lock.txt")
    packed(*given, "--out", "a.zip")
    with bundle.opened(Path("a.zip")) as opened:
        assert sorted(opened.handlers) == ["taxes", "value"]
        assert opened.handlers["taxes"](None) == {"value": 19}
        assert opened.sha256 == hashlib.sha256(Path("a.zip").read_bytes()).hexdigest()
    assert not any("strandline-bundle" in path for path in sys.path)
    lock.write_text(lock.read_text().replace("sha256:", "sha256:0")[:-2] + "\n")
    answer = call("group", "pack", *given, "--out", "b.zip", "--json")
    assert (answer.code, answer.name) == (2, "InvalidInput.option")
    assert "hash" in answer.problem["detail"].lower()
    assert not Path("b.zip").exists()


@pytest.mark.req("G80", "G81", "G90")
def test_what_is_no_bundle_is_not_served(world: World, tmp_path: Path) -> None:
    for name in ("../out.py", "/out.py"):
        with zipfile.ZipFile("evil.zip", "w") as made:
            made.writestr(name, "x = 1\n")
        with pytest.raises(NotFound) as caught, bundle.opened(Path("evil.zip")):
            pass
        assert caught.value.code == "bundle"
    (tmp_path / "text.zip").write_text("no zip")
    with zipfile.ZipFile("empty.zip", "w") as made:
        made.writestr("x.py", "x = 1\n")
    for file, name in (("nowhere.zip", "bundle"), ("text.zip", "bundle"), ("empty.zip", "handler")):
        answer = call("group", "handlers", file, "--url", "sqlite:orders", "--json")
        assert (answer.code, answer.name) == (3, f"NotFound.{name}")
    answer = call("group", "handlers", "empty.zip", "--sha256", V1, "--url", "sqlite:orders", "--json")
    assert (answer.code, answer.name) == (2, "InvalidInput.option")
    assert not (tmp_path.parent / "out.py").exists()


# ---------------------------------------------------------------- processes


@contextmanager
def process(file: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "group", "handlers", file, "--url", "sqlite:orders", "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line, running.communicate()
        assert json.loads(line)["handlers"] == ["adder", "value"]
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        running.communicate(timeout=30)


@pytest.mark.req("G79", "G80", "G90", "G69", "S66", "S67")
def test_versions_are_served_by_processes_and_an_old_one_ends_by_itself(world: World, tmp_path: Path) -> None:
    files = {}
    for number in (1, 2):
        module(tmp_path, number)
        files[number] = packed("shop_code", *HANDLERS, "--out", f"shop-{number}.zip")
    (tmp_path / "shop_code.py").unlink()
    groups, url = world.plain, ("--url", "sqlite:orders")
    assert files[1]["sha256"] != files[2]["sha256"]
    with process("shop-1.zip") as one, process("shop-2.zip") as two, Running(groups):
        assert call("group", "load-code", "shop", "1", files[1]["sha256"], *url).code == 0
        groups.submit(asks("one"))
        started = Group("started", pre_hook=StartHandler("mine", "shop/adder", {"n": 40}))
        started.empty("a", recipes=[Recipe("r", handler="mine", timeout_s=20)])
        groups.submit(started)
        for id_ in ("one", "started"):
            groups.wait(id_)
        assert call("group", "load-code", "shop", "2", files[2]["sha256"], *url, "--json").code == 0
        groups.submit(asks("two"))
        groups.wait("two")
        assert (value(world, "one"), value(world, "started"), value(world, "two")) == (1, 41, 2)
        pids = [groups.get(id_).steps["a"].results["r"]["pid"] for id_ in ("one", "two")]
        assert pids == [one.pid, two.pid]
        assert "shop_code" not in sys.modules
        assert one.wait(30) == 0
        assert two.poll() is None
    assert (tmp_path / "stopped").read_text() == "40"
