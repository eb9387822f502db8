"""Pages of events by columns come to the same tallies as their rows one by one."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import Event
from strandline.connect import Strandline
from strandline.reconcile.event_columns import EventColumns
from strandline.reconcile.findings import FrozenEnds
from strandline.reconcile.rounds import read_side
from strandline.reconcile.sides import SidePart
from strandline.testing import carry
from tests.reconcile.planting import Hand, history, plants_of


def tallied(s: Strandline) -> Any:
    frozen = FrozenEnds(s.store.pointers(), s.log.oldest())
    parts = [read_side(s.log, s.store, s.settings, frozen, SidePart("events", part)) for part in range(8)]
    return [(sorted(part.tallies), part.odd, part.suspects, part.counts.get("events", 0)) for part in parts]


@pytest.mark.req("J116", "J117")
@pytest.mark.parametrize("planted", [False, True])
def test_they_come_to_the_same(sqlite: Strandline, monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    monkeypatch.setattr("strandline.store.raw_rows.PAGE", 50)
    for number in range(500):  # more than a page in each partition
        tags = ["new", f"t{number % 3}"][: number % 3]
        events = [Event("Placed", number, tags=tags), Event("Paid", b"\x00", metadata={"a": 1})]
        sqlite.journal.append(f"plain|{number % 90}", events)
    sqlite.journal.append("plain|first", [Event("Placed", 1)], first=10**12)
    carry(sqlite)
    if planted:
        history(sqlite)
        for _, key, plant in plants_of(sqlite).values():
            plant(Hand(sqlite), key)
    sqlite.journal.append("plain|0", [Event("Later", 1)])
    taken: list[bool] = []
    real = EventColumns.of

    def of(rows: Any, partitions: int) -> EventColumns | None:
        found = real(rows, partitions)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(EventColumns, "of", of)
    by_columns = tallied(sqlite)
    assert any(taken)
    monkeypatch.setattr(EventColumns, "of", lambda rows, partitions: None)
    assert tallied(sqlite) == by_columns
