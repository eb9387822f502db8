"""Crashes: a process that ends at any named point leaves a group that the next one brings to the same end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.testing.points import POINTS
from tests.group.crash_child import group, groups_of
from tests.group.worlds import PostgresShop, SqliteShop

ROOT = Path(__file__).parents[2]
ENDS = {"g-false-false": "committed", "g-false-true": "committed"}
ENDS |= {"g-true-false": "rolled_back", "g-true-true": "rolled_back"}
SKIPPED = {
    "inbox.copied",
    "message.sent",
    "void.done",
    "intent.recorded",
    "step.written",
}  # of others than these groups
CHOSEN = {"group.defined", "group.taken", "step.done", "asked.recorded", "hook.queued", "decided", "undo.done", "ended"}
TIMES = {
    "step.before": 5,
    "step.done": 4,
    "step.recorded": 6,
    "undo.before": 2,
    "undo.done": 3,
    "undo.recorded": 2,
    "decided": 1,
}


def prepared(shop: Any) -> None:
    shop.execute("CREATE TABLE account (id integer PRIMARY KEY, name text, amount integer)")
    shop.execute("CREATE TABLE note (id text PRIMARY KEY)")
    shop.execute("INSERT INTO account VALUES (1, 'a', 100), (2, 'b', 100), (3, 'c', 0)")


def crash(journal: str, shop: str, point: str, time: int) -> int:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.group.crash_child", journal, shop, point, str(time)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=60, check=False).returncode


def check_ended(journal: str, shop: Any) -> None:
    """Whatever was submitted ends as it would have without a crash, each once; what was not is submitted again."""
    with strandline.connect(journal) as s:
        groups = groups_of(s, shop.url)
        for id_ in ENDS:
            _, fails, asks = id_.split("-")
            groups.submit(group(id_, fails=fails == "true", asks=asks == "true"))
        groups.processor().run_until_idle()
        for id_, end in ENDS.items():
            outcome = groups.get(id_)
            assert outcome.state == end, outcome
            history = groups.load(id_)
            assert history is not None
            assert history.over
            counted = Counter(type_ for type_, _, _ in groups.history(id_))
            assert counted["Decided"] == counted["Ended"] == 1
    assert shop.execute("SELECT * FROM account ORDER BY id") == [(1, "a", 90), (2, "b", 110), (3, "undone", 0)]
    assert sorted(shop.execute("SELECT id FROM note")) == [("g-false-false",), ("g-false-true",)]


@pytest.mark.req("G72", "G87", "G71", "S48", "RG3", "RG4")
@pytest.mark.parametrize(
    "point",
    [
        point if point in CHOSEN else pytest.param(point, marks=pytest.mark.soak)
        for point in POINTS
        if point not in SKIPPED
    ],
)
def test_a_process_ends_at_each_point(tmp_path: Path, point: str) -> None:
    shop = SqliteShop(tmp_path / "shop.db")
    prepared(shop)
    journal = f"sqlite:{tmp_path / 'journal'}"
    assert crash(journal, shop.url, point, TIMES.get(point, 1)) == -9, point
    check_ended(journal, shop)
    shop.close()


@pytest.mark.req("G72", "S48", "RG3", "RG4")
@pytest.mark.parametrize("point", ["step.done", "undo.done"])
def test_a_process_ends_on_postgresql(tmp_path: Path, shop: str, point: str) -> None:
    made = PostgresShop(shop)
    prepared(made)
    journal = f"sqlite:{tmp_path / 'journal'}"
    assert crash(journal, made.url, point, TIMES.get(point, 1)) == -9, point
    check_ended(journal, made)
    made.close()


@pytest.mark.req("G72", "G46", "S48", "RG3", "RG6")
def test_recovery_is_killed_again_and_again(tmp_path: Path) -> None:
    shop = SqliteShop(tmp_path / "shop.db")
    prepared(shop)
    journal = f"sqlite:{tmp_path / 'journal'}"
    for point, time in [
        ("step.done", 2),
        ("group.taken", 1),
        ("step.recorded", 2),
        ("undo.done", 1),
        ("undo.done", 1),
        ("ended", 1),
    ]:
        assert crash(journal, shop.url, point, time) == -9
    check_ended(journal, shop)
    shop.close()
