"""Projections of a store that something else writes, too: what comes late is handed over once, in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import InvalidInput, Key
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from strandline.testing import FakeClock
from tests.journal.worlds import world
from tests.projection.worlds import BACKENDS, ORDERS, QUICK, Table, running, until
from tests.query.another_writer import write
from tests.query.filling import key_in

NOON = 1_800_000_000_000_000
SECOND = 1_000_000
PARTITIONS = 3
SEARCHING: dict[str, Any] = {**QUICK, "use_strandline": False, "back_track_interval_s": 0.05}
KEYS = [key_in(number % PARTITIONS, PARTITIONS, nth=number // PARTITIONS) for number in range(6)]


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=PARTITIONS, clock=FakeClock(NOON)) as opened:
        yield opened


@pytest.mark.req("P23", "P24", "P25", "P26")
def test_what_comes_late_is_handed_over_once(s: Strandline, table: Table) -> None:
    projection = Projection("totals", ORDERS, table.add, **SEARCHING)
    first, second, third = KEYS[:3]
    write(s, first, 1, NOON - 30 * SECOND)
    with running(s, projection):
        until(lambda: table.of(first) == [1])
        write(s, second, 1, NOON - 40 * SECOND)  # late: others of its time were passed
        until(lambda: table.of(second) == [1])
        write(s, first, 3, NOON - 20 * SECOND)  # stamped before its predecessor
        write(s, first, 2, NOON - 10 * SECOND)
        until(lambda: table.of(first) == [1, 2, 3])
    write(s, third, 1, NOON - 50 * SECOND)  # while nobody runs
    write(s, second, 2, NOON - 45 * SECOND)
    with running(s, projection):
        until(lambda: table.of(third) == [1] and table.of(second) == [1, 2])
        write(s, third, 2, NOON - 15 * SECOND)
        until(lambda: table.of(third) == [1, 2])
        counts = [found.counts for found in s.projections.status("totals").ranges]
    assert len(table.rows()) == 7
    assert not any("violations" in each for each in counts)


@pytest.mark.req("P23")
def test_nothing_is_handed_over_before_its_time(s: Strandline, table: Table) -> None:
    write(s, KEYS[0], 1, NOON - SECOND)
    write(s, KEYS[1], 1, NOON - 200_000)
    with running(s, Projection("totals", ORDERS, table.add, **SEARCHING)):
        until(table.rows)
        assert table.rows() == [(str(KEYS[0]), 1, 1)]


@pytest.mark.req("P24", "P25", "P26", "P33")
@pytest.mark.parametrize("seed", range(2))
def test_any_order_and_any_restart(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with world("sqlite", tmp_path, partitions=PARTITIONS, clock=FakeClock(NOON)) as s:
        table = Table(s)
        waiting: dict[Key, list[int]] = {key: list(range(1, dice.randint(3, 9))) for key in KEYS}
        total = sum(map(len, waiting.values()))
        settings = {**SEARCHING, "save_after": dice.choice((1, 3, 100)), "page_size": dice.choice((1, 4, 500))}
        while any(waiting.values()):
            with running(s, Projection("totals", ORDERS, table.add, **settings)):
                for _ in range(dice.randint(1, 8)):
                    left = [key for key, numbers in waiting.items() if numbers]
                    if left:
                        key = dice.choice(left)
                        write(s, key, waiting[key].pop(0), NOON - dice.randint(1, 60) * SECOND)
        with running(s, Projection("totals", ORDERS, table.add, **settings)):
            until(lambda: len(table.rows()) >= total)
        for key in KEYS:
            assert table.of(key) == list(range(1, len(table.of(key)) + 1))
        assert len(table.rows()) == total
        table.close()


@pytest.mark.req("P90", "P93")
def test_on_spark_it_is_refused() -> None:
    """A round there begins when a pointer has moved: nothing would tell of what something else wrote."""
    with pytest.raises(InvalidInput) as refused:
        strandline.pipeline.project("sqlite:nowhere", [Projection("totals", ORDERS, print, use_strandline=False)])
    assert refused.value.code == "setting"


@pytest.mark.req("P93", "P33")
@pytest.mark.parametrize(
    "settings",
    [
        {"back_track_period_s": 5},
        {"use_strandline": False, "back_track_period_s": 120, "delete_after_s": 60},
        {"use_strandline": False, "back_track_interval_s": "never"},
    ],
)
def test_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        Projection("totals", ORDERS, print, **settings)
    assert refused.value.code == "setting"
