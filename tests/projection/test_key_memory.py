"""Few keys in memory, many in a page: nothing is handed over twice, and nothing is left out, whatever is read again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from strandline import ByTag, Event
from strandline.connect import Strandline
from strandline.projection.definition import BySlices, Projection
from tests.journal.worlds import world
from tests.projection.worlds import BACKENDS, QUICK, Table, caught_up, running, until
from tests.query.filling import carry_all

SOURCES: dict[str, BySlices | ByTag] = {"slices": BySlices("order"), "tag": ByTag("blue")}
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


@pytest.mark.req("P32", "P47", "P48", "P61", "RP4")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("how", ["singly", "in lists", "at least once"])
def test_what_is_read_again_as_keys_park_is_known(s: Strandline, table: Table, source: str, how: str) -> None:
    """What fails makes the range read again from its position: what is done above it is known, of however many keys."""
    fill(s)
    sick, handled = {"order|5", "order|600", "order|1250"}, list[Row]()

    def at_least_once(event: Any) -> None:
        if str(event.key) in sick:
            raise ValueError("no")
        handled.append((str(event.key), event.life, event.seq_nr))

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
    assert sorted(handled or table.rows()) == all_but(sick)
