"""What is left of trouble once it is over: outages while a range is given back, take-overs, old failures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from strandline.connect import Strandline
from strandline.errors import Unavailable
from strandline.projection import range_reader
from strandline.projection.definition import Projection
from strandline.projection.offset_store import OffsetStore, RangeClaim
from strandline.projection.range_reader import RangeReader
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, check_exactly_once, range_of, running, until
from tests.query.filling import carry_all, key_in, put


def away(*_: object, **__: object) -> Any:
    raise Unavailable("the database is away", code="away", hint="wait", applied="no")


@pytest.mark.req("P77", "P72")
@pytest.mark.parametrize("verb", ["pause", "rescale"])
def test_what_could_not_be_given_back_in_an_outage_is_given_back_behind_it(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    put(s, key_in(0, s.log.partitions))
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        release, failed = OffsetStore.release, []

        def fails_once(store: OffsetStore, claim: RangeClaim) -> None:
            if claim.row.lo not in failed:
                failed.append(claim.row.lo)
                away()
            release(store, claim)

        monkeypatch.setattr(OffsetStore, "release", fails_once)
        assert (s.projections.pause("totals") == []) if verb == "pause" else s.projections.rescale("totals", 2)
        assert failed
        s.projections.resume("totals")
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P69", "P72")
def test_a_share_that_could_not_be_given_back_in_an_outage_goes_to_the_host_that_came(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner lives, so nobody else may take it from there: it is given back behind the outage."""
    key = key_in(0, s.log.partitions)
    put(s, key)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)) as first:
        until(lambda: caught_up(s))
        release, failed = OffsetStore.release, []

        def fails_once(store: OffsetStore, claim: RangeClaim) -> None:
            if claim.row.lo not in failed:
                failed.append(claim.row.lo)
                away()
            release(store, claim)

        monkeypatch.setattr(OffsetStore, "release", fails_once)
        with running(s, Projection("totals", ORDERS, table.add, **QUICK)) as second:
            until(lambda: failed)

            def owners() -> dict[str | None, int]:
                return Counter(one.owner for one in s.projections.status("totals").ranges)

            until(lambda: owners() == {first.name: 2, second.name: 1}, 10)
    check_exactly_once(s, table)


@pytest.mark.req("P59", "P82")
def test_an_old_failure_is_not_shown_of_a_range_that_runs(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away for a moment, and there is nothing new to save."""
    monkeypatch.setattr(range_reader, "IDLE_SAVE_S", 0.05)
    key = key_in(0, s.log.partitions)
    put(s, key)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        read = RangeReader.read
        monkeypatch.setattr(RangeReader, "read", away)
        until(lambda: range_of(s, key).state == "failed")
        assert range_of(s, key).last_error["error"] == "Unavailable"
        monkeypatch.setattr(RangeReader, "read", read)
        until(lambda: caught_up(s))
        assert range_of(s, key).last_error is None


@pytest.mark.req("P70", "P48")
def test_a_host_hands_over_nothing_of_a_range_that_somebody_else_has(s: Strandline) -> None:
    """A list waits for more when another host takes the range over: that one hands it over."""
    key = key_in(0, s.log.partitions)
    handed: list[int] = []

    def handle(events: Any) -> None:
        handed.extend(event.seq_nr for event in events)

    settings = {**QUICK, "delivery": "at_least_once", "group_size": 10, "group_within_s": 60}
    offsets = s.open_offsets(None)
    store = offsets.store
    with store.closed_after(), running(s, Projection("totals", ORDERS, handle, **settings)) as host:
        until(lambda: caught_up(s))
        put(s, key)
        carry_all(s)

        def waiting() -> Any:
            """The runner of the range, once it has a list that waits for more."""
            runners: list[Any] = [one for run in host._runs for lo, one in run.runners.items() if lo == 0]
            return next((one for one in runners if one._state.batch), None)

        until(waiting)
        runner = waiting()
        with store.database.write() as tx:
            row = store.locked(tx, store.find("totals").id)
            tx.execute("beat", (row.id, "another", store.database.now_us(), 60_000_000))
            other = offsets.alive("another")
            taken = store.claim(tx, row, store.ranges(tx, row)[0], "another")
            assert taken is not None
        until(runner.ended.is_set)
        assert handed == []
        store.release(RangeClaim(row, taken))
        other.close()
        with store.database.write() as tx:
            tx.execute("leave", (row.id, "another"))
        until(lambda: waiting() not in (None, runner), 10)
    assert handed == [1]
