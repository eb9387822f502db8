"""Crashes: a process that ends at any named point leaves groups that the next one brings to the same end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import points as said
from strandline.testing.points import POINTS, clear
from tests.group.crash_child import CELLS_ALONE, ENDS, SQL_ALONE, TABLES, points_of, run_all
from tests.group.worlds import CassandraShop, PostgresShop, SqliteShop
from tests.lanes import needs_servers
from tests.store.keyspaces import RELAXED

pytestmark = RELAXED

ROOT = Path(__file__).parents[2]
CHOSEN = {
    "sqlite": {"group.defined", "group.taken", "step.done", "asked.recorded", "hook.queued", "decided", "undo.done",
               "inbox.copied"},
    "postgres": {"step.done", "undo.done"},
    "cassandra": {"intent.recorded", "step.written", "undo.sent"},
}  # fmt: skip
"""Those at which every run of the tests ends a process; the soak ends one wherever it comes to any of them."""
TIMES = {
    "step.before": 5,
    "step.done": 8,
    "step.recorded": 6,
    "undo.before": 2,
    "undo.done": 2,
    "undo.recorded": 2,
    "step.written": 3,
    "undo.sent": 2,
}
ALONE = {"sqlite": CELLS_ALONE, "postgres": CELLS_ALONE, "cassandra": SQL_ALONE}
KINDS = [pytest.param(kind, marks=needs_servers if kind == "cassandra" else ()) for kind in CHOSEN]


def prepared(shop: Any) -> None:
    for id_, name, amount in ((1, "a", 100), (2, "b", 100), (3, "c", 0)):
        shop.execute(f"INSERT INTO account (id, name, amount) VALUES ({id_}, '{name}', {amount})")
    shop.execute("INSERT INTO note (id) VALUES ('there')")


@pytest.fixture(scope="module")
def keyspace(request: pytest.FixtureRequest) -> Iterator[CassandraShop]:
    made = CassandraShop(request.getfixturevalue("cassandra"), tables=("account", "note"))
    for table in TABLES:
        made.execute(table)
    yield made
    made.close()


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    kind = request.param
    if kind == "cassandra":
        made: Any = request.getfixturevalue("keyspace")
        for table in ("account", "note"):
            made.execute(f"TRUNCATE {table}")
        prepared(made)
        yield made
        return
    made = (
        SqliteShop(tmp_path / "shop.db") if kind == "sqlite" else PostgresShop(request.getfixturevalue("postgres_shop"))
    )
    for table in TABLES:
        made.execute(table)
    prepared(made)
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres_shop(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres").database()
    return found


def child(journal: str, shop: str, point: str, time_: int, go: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.group.crash_child", journal, shop, point, str(time_), go]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def crash(journal: str, shop: str, point: str, time_: int) -> int:
    process = child(journal, shop, point, time_)
    try:
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (0, -9), told.decode()[-2000:]
    return process.returncode


def check_ended(journal: str, shop: Any) -> None:
    """Whatever was submitted ends as it would have without a crash, each once; what was not is submitted again."""
    with strandline.connect(journal, accept_power_loss=isinstance(shop, CassandraShop)) as s:
        began = time.monotonic()
        groups = run_all(s, shop.url)
        assert time.monotonic() - began < 30
        for id_, end in ENDS.items():
            outcome = groups.get(id_)
            assert outcome.state == end, outcome
            history = groups.load(id_)
            assert history is not None
            assert history.over
            counted = Counter(type_ for type_, _, _ in groups.history(id_))
            assert counted["Decided"] == counted["Ended"] == 1
    look(shop)


def look(shop: Any) -> None:
    good = [id_ for id_, end in ENDS.items() if end == "committed"]
    amount = 5 * len(good)
    assert sorted(shop.execute("SELECT id, name, amount FROM account")) == [
        (1, "a", 100 - amount), (2, "b", 100 + amount), (3, "undone", 0),
    ]  # fmt: skip
    assert sorted(id_ for (id_,) in shop.execute("SELECT id FROM note")) == sorted([*good, "there"])


@pytest.mark.req("G87", "S48")
@pytest.mark.parametrize("shop", KINDS, indirect=True)
def test_the_groups_that_are_killed_come_to_every_point(tmp_path: Path, shop: Any) -> None:
    """So that the kill at each of them is one; on each target all points that there are on it."""
    reached: Counter[str] = Counter()

    def told(point: str) -> None:
        reached[point] += 1

    said.told = told
    try:
        check_ended(f"sqlite:{tmp_path / 'journal'}", shop)
    finally:
        clear()
    assert set(reached) & set(POINTS) == points_of(shop.url), "there are rare paths beside them"
    assert all(reached[point] >= TIMES.get(point, 1) for point in reached)


PLACES = [
    pytest.param(
        kind, point, TIMES.get(point, 1),
        marks=[needs_servers] * (kind == "cassandra") + [pytest.mark.soak] * (point not in chosen),
    )
    for kind, chosen in CHOSEN.items() for point in POINTS if point not in ALONE[kind]
]  # fmt: skip


@pytest.mark.req("G72", "G87", "G71", "S48", "RG3", "RG4", "RG5")
@pytest.mark.parametrize(("shop", "point", "time_"), PLACES, indirect=["shop"])
def test_a_process_ends_at_each_point(tmp_path: Path, shop: Any, point: str, time_: int) -> None:
    journal = f"sqlite:{tmp_path / 'journal'}"
    assert crash(journal, shop.url, point, time_) == -9
    check_ended(journal, shop)


@pytest.mark.soak
@pytest.mark.req("G72", "S48", "RG3", "RG4")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("shop", "point"),
    [(kind, point) for kind in CHOSEN for point in POINTS if point not in ALONE[kind]],
    indirect=["shop"],
)
def test_a_process_ends_each_time_that_it_comes_to_a_point(tmp_path: Path, shop: Any, point: str) -> None:
    """Recovery is killed there, too: it comes to the same points."""
    for time_ in range(1, 1000):
        journal = f"sqlite:{tmp_path / f'journal{time_}'}"
        for table in ("account", "note", "strandline_barrier", "strandline_target"):
            _empty(shop, table)
        prepared(shop)
        if crash(journal, shop.url, point, time_) == 0:
            assert time_ > TIMES.get(point, 1)
            look(shop)
            return
        crash(journal, shop.url, point, 1)
        check_ended(journal, shop)


def _empty(shop: Any, table: str) -> None:
    if isinstance(shop, CassandraShop):
        if not table.startswith("strandline"):
            shop.execute(f"TRUNCATE {table}")
        return
    where = "strandline." if table.startswith("strandline") and isinstance(shop, PostgresShop) else ""
    try:
        shop.execute(f"DELETE FROM {where}{table}")
    except Exception as error:  # the first time ours are not there
        if not table.startswith("strandline") or "strandline" not in str(error):
            raise


@pytest.mark.req("G72", "G46", "S48", "RG3", "RG6")
@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_recovery_is_killed_again_and_again(tmp_path: Path, shop: Any) -> None:
    journal = f"sqlite:{tmp_path / 'journal'}"
    for point, time_ in [("step.done", 2), ("group.taken", 1), ("step.recorded", 2), ("undo.done", 1), ("undo.done", 1),
                         ("ended", 1)]:  # fmt: skip
        assert crash(journal, shop.url, point, time_) == -9
    check_ended(journal, shop)


STOPS = [("sqlite", "step.before", 12), ("postgres", "undo.before", 2)]
STOPS_CELLS = [
    pytest.param("cassandra", point, 3, marks=needs_servers) for point in ("intent.recorded", "step.written")
]


@pytest.mark.req("G75", "G76", "S52", "RG6", "RG7")
@pytest.mark.parametrize(("shop", "point", "time_"), [*STOPS, *STOPS_CELLS], indirect=["shop"])
def test_a_process_that_is_stopped_and_goes_on_after_another_took_over(
    tmp_path: Path, shop: Any, point: str, time_: int
) -> None:
    """What it still sends has no effect, and it ends by itself."""
    journal, go = f"sqlite:{tmp_path / 'journal'}", tmp_path / "go"
    process = child(journal, shop.url, point, time_, str(go))
    try:
        until = time.monotonic() + 60
        while not Path(f"{go}.there").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)
        check_ended(journal, shop)
        go.touch()
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert b"LeaseLost" in told
    look(shop)
