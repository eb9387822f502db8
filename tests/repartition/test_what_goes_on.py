"""Projections, groups and live queries over a change of logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline import Event, Group, Projection
from strandline.testing import carry
from tests.backup.conftest import Journals
from tests.group.worlds import Running
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, check_exactly_once, running, until
from tests.repartition.places import Place

KEYS = [f"order|{number}" for number in range(24)]


def record(s: Any, number: int) -> None:
    for key in KEYS:
        s.journal.append(key, [Event("Placed", {"n": number}, tags=["blue"])])


@pytest.mark.req("J124", "P104", "P39", "T43")
def test_a_projection_goes_on(alike: Journals) -> None:
    """Each event once, with hosts before and behind it; the one that has the old log open changes nothing more."""
    place = Place(alike, 8)
    if place.where["store"].startswith("sqlite:"):
        place.settings["projections"] = f"sqlite:{alike.folder}/offsets.db"
    with place.connect() as s:
        table = Table(s)
        totals = Projection("totals", ORDERS, table.add, **QUICK)
        record(s, 1)
        carry(s)
        with running(s, totals):
            until(lambda: caught_up(s), 20)
            record(s, 2)
            carry(s)
        record(s, 3)
        tagged = s.by_tag("blue")
        at = [str(next(tagged).offset) for _ in range(30)][-1]
        sliced = s.by_slices("order", 0, 1023)
        where = [str(next(sliced).offset) for _ in range(30)][-1]
    place.repartition(32)
    with place.connect() as s:
        assert len(list(s.by_tag("blue", after=at))) == 3 * len(KEYS) - 30
        assert len(list(s.by_slices("order", 0, 1023, after=where))) == 3 * len(KEYS) - 30
        record(s, 4)
        with running(s, totals):
            carry(s)
            until(lambda: caught_up(s), 20)
        check_exactly_once(s, table)
    place.repartition(8)
    with place.connect() as s:
        record(s, 5)
        carry(s)
        with running(s, totals):
            until(lambda: caught_up(s), 20)
        check_exactly_once(s, table)
        assert s.projections.status("totals").stale is None
    table.close()


@pytest.mark.req("J124", "P104")
def test_a_host_that_has_the_old_log_open(alike: Journals) -> None:
    """It handles nothing more, says why, and its ranges go to a host beside the new log once it is stopped."""
    place = Place(alike, 8)
    if place.where["store"].startswith("sqlite:"):
        place.settings["projections"] = f"sqlite:{alike.folder}/offsets.db"
    with place.connect() as old:
        table = Table(old)
        totals = Projection("totals", ORDERS, table.add, **QUICK)
        record(old, 1)
        carry(old)
        with running(old, totals):
            until(lambda: len(table.rows()) == len(KEYS), 20)
            place.repartition(32)
            with place.connect() as s:
                until(lambda: any(one.last_error for one in s.projections.status("totals").ranges), 20)
                record(s, 2)
                carry(s)
            assert len(table.rows()) == len(KEYS)
    with place.connect() as s, running(s, totals):
        until(lambda: caught_up(s), 20)
        check_exactly_once(s, table)
    table.close()


@pytest.mark.req("J124", "G89", "G76")
def test_a_stream_of_groups_goes_on(alike: Journals, tmp_path: Path) -> None:
    """A target belongs to the history, not to the log; groups that were submitted before are run behind it."""
    import apsw

    shop = tmp_path / "shop.db"
    apsw.Connection(str(shop)).execute("CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER)")
    place = Place(alike, 8)

    def groups(s: Any) -> Any:
        return s.groups(targets={"shop": f"sqlite:{shop}"})

    def group(number: int) -> Group:
        g = Group(f"g{number}")
        g.insert("made", "INSERT INTO stock (id, n) VALUES (:id, 1)", {"id": number}, target="shop")
        return g

    with place.connect() as s:
        made = groups(s)
        with Running(made):
            assert made.submit(group(1)).wait(20).state == "committed"
        made.submit(group(2))
    place.repartition(32)
    with place.connect() as s:
        made = groups(s)
        waiting = made.submit(group(3))
        with Running(made):
            assert waiting.wait(20).state == "committed"
            assert made.submit(group(2)).wait(20).state == "committed"  # the same group
    assert [row[0] for row in apsw.Connection(str(shop)).execute("SELECT id FROM stock ORDER BY id")] == [1, 2, 3]
