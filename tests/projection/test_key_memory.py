"""Few keys in memory, many in a page: nothing is handed over twice, and nothing is left out, whatever is read again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from strandline import Event
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from tests.journal.worlds import url_of, world
from tests.projection.killed_host import SOURCES, remembering
from tests.projection.worlds import BACKENDS, QUICK, Table, caught_up, running, until
from tests.query.filling import carry_all

LEAST: dict[str, Any] = {**QUICK, "keys_in_memory_max": 1000, "page_size": 1000}
"""The fewest keys that may be asked for, and the largest page."""
PARKING: dict[str, Any] = {"on_failure": "park", "retries": 0}
KEYS, ROUNDS = 1300, 2
Row = tuple[str, int, int]


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=1) as opened:
        yield opened


def fill(s: Strandline) -> None:
    """Events of more keys than may be in memory, each round in another order."""
    numbers, dice = list(range(KEYS)), random.Random(1)
    for _ in range(ROUNDS):
        dice.shuffle(numbers)
        for answer in s.journal.append_many([(f"order|{n}", [Event("Placed", n, tags=["blue"])]) for n in numbers]):
            assert not isinstance(answer, Exception)
    carry_all(s)


def all_but(sick: set[str]) -> list[Row]:
    """The events of all keys but these."""
    rows = [(f"order|{n}", 1, seq_nr) for n, seq_nr in product(range(KEYS), range(1, ROUNDS + 1))]
    return sorted(row for row in rows if row[0] not in sick)


class Remembering:
    """Keeps in memory what it handled; it fails at keys that are sick."""

    def __init__(self, sick: set[str]) -> None:
        self._sick = sick
        self.rows: list[Row] = []

    def __call__(self, event: Any) -> None:
        if str(event.key) in self._sick:
            raise ValueError("no")
        self.rows.append((str(event.key), event.life, event.seq_nr))


@pytest.mark.req("P32", "P47", "P48", "P61", "RP4")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("how", ["singly", "in lists", "at least once"])
def test_what_is_read_again_as_keys_park_is_known(s: Strandline, table: Table, source: str, how: str) -> None:
    """What fails makes the range read again from its position: what is done above it is known, of however many keys."""
    fill(s)
    sick = {"order|5", "order|600", "order|1250"}
    at_least_once = Remembering(sick)

    def exactly_once(tx: Any, what: Any) -> None:
        for event in what if isinstance(what, list) else [what]:
            table.add(tx, event)
            if str(event.key) in sick:
                raise ValueError("no")

    handle: Any = at_least_once if how == "at least once" else exactly_once
    ways: dict[str, dict[str, Any]] = {"in lists": {"group_size": 50}, "at least once": {"delivery": "at_least_once"}}
    more = {**LEAST, **PARKING, **ways.get(how, {})}
    with running(s, Projection("totals", SOURCES[source], handle, **more)):
        until(lambda: caught_up(s), 60)
        assert set(s.projections.parked("totals")) == sick
    assert sorted(at_least_once.rows or table.rows()) == all_but(sick)


@pytest.mark.req("P32", "P47", "P86", "RP4")
@pytest.mark.parametrize(
    ("backend", "source", "group_size"),
    [
        ("sqlite", "slices", 0), ("sqlite", "tag", 50),
        *(pytest.param(*how, marks=pytest.mark.soak) for how in product(BACKENDS, SOURCES, (0, 7, 900))),
    ],
)  # fmt: skip
def test_hosts_are_killed_while_few_keys_are_in_memory(
    tmp_path: Path, backend: str, source: str, group_size: int
) -> None:
    """Three times with -9, in the middle of a page: what was committed is not handed over again."""
    with world(backend, tmp_path, partitions=1) as s, closing(Table(s)) as table:
        fill(s)
        words = [url_of(backend, tmp_path), table.name, table.dialect, source, str(group_size)]
        for least in (300, 900, 1500):
            host = subprocess.Popen([sys.executable, "-m", "tests.projection.killed_host", *words])
            try:
                until(lambda: len(table.rows()) >= least or host.poll() is not None, 60)  # noqa: B023
            finally:
                host.send_signal(signal.SIGKILL)
                assert host.wait(10) == -signal.SIGKILL
        with running(s, remembering(table.name, table.dialect, source, group_size)):
            until(lambda: caught_up(s), 60)
            assert s.projections.parked("totals") == ["order|600"]
        assert sorted(table.rows()) == all_but({"order|600"})


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.req("T46", "T64", "T77", "P4", "P32", "P48")
def test_more_keys_than_are_remembered_by_default(tmp_path: Path) -> None:
    """330,000 events of 130,000 keys, met at random, with all defaults: each once by tag, by slices and projected."""
    dice, last = random.Random(7), Counter[str]()
    with world("sqlite", tmp_path, partitions=1) as s:
        for _ in range(33):
            keys = [f"order|{dice.randrange(130_000)}" for _ in range(10_000)]
            s.journal.append_many([(key, [Event("Placed", 1, tags=["blue"])]) for key in keys])
            carry_all(s)
            last.update(keys)
        for feed in (s.by_tag("blue"), s.by_slices("order", 0, 1023)):
            shown = Counter[str]()
            for event in feed:
                shown[str(event.key)] += 1
                assert event.seq_nr == shown[str(event.key)]
            assert shown == last
        sick = dice.choice(list(last))
        wanted = sorted((key, 1, n) for key, count in last.items() if key != sick for n in range(1, count + 1))
        for name, source in SOURCES.items():
            handle = Remembering({sick})
            with running(s, Projection(name, source, handle, delivery="at_least_once", **PARKING)):
                until(lambda: caught_up(s, name), 600)  # noqa: B023
            assert sorted(handle.rows) == wanted
