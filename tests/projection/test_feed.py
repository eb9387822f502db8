"""The live feed: events come straight from the writer, before the pipeline has carried them, and each still once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext as nothing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from strandline import Event, InvalidInput, Key, Unavailable
from strandline.connect import Strandline
from strandline.projection import live_feed
from strandline.projection.definition import ByTag, Projection
from strandline.projection.live_feed import LogFeed
from strandline.query.query_row import QueryRow
from strandline.query.slices import Slices
from strandline.testing.rare import counting
from strandline.values.ranges import Range
from tests.journal.worlds import inexact
from tests.projection.worlds import (
    ORDERS,
    QUICK,
    Table,
    caught_up,
    check_exactly_once,
    range_of,
    running,
    until,
)
from tests.query.filling import carry_all, key_in, put

FED: dict[str, Any] = {**QUICK, "refresh_interval_s": 60, "feed": True}
"""Looks at the pointers once a minute: what comes sooner comes by the feed."""


def positions(s: Strandline) -> list[int]:
    return [found.position for found in s.projections.status("totals").ranges]


@pytest.mark.req("P40", "P41", "P42", "P43", "P44")
def test_events_are_handled_before_the_store_has_them(s: Strandline, table: Table) -> None:
    key, other = key_in(0, s.log.partitions), key_in(1, s.log.partitions)
    put(s, key, 2)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **FED)):
        until(lambda: table.of(key) == [1, 2])
        before = positions(s)
        for _ in range(3):
            put(s, key, 2)
            put(s, other)
            put(s, Key("user", "1"))  # another type
        until(lambda: table.of(key) == [1, 2, 3, 4, 5, 6, 7, 8] and table.of(other) == [1, 2, 3])
        assert positions(s) == before  # key rows have moved, no position has
        assert len(table.rows()) == 11
    carry_all(s)  # the store brings all of it again
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P44", "P43", "P42")
def test_while_the_pipeline_is_stopped_restarts_and_rescales_go_on_and_repeat_nothing(
    s: Strandline, table: Table
) -> None:
    keys = [key_in(number % 3, s.log.partitions, nth=number) for number in range(6)]

    def wrote() -> int:
        for key in keys:
            put(s, key)
        return sum(1 for key in keys for _ in s.journal.read(key))

    for n in (2, 1):
        count = wrote()
        with running(s, Projection("totals", ORDERS, table.add, **FED)):
            until(lambda: len(table.rows()) == count)  # noqa: B023
            assert s.projections.rescale("totals", n)
            count = wrote()
            until(lambda: len(table.rows()) == count)  # noqa: B023
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P43", "P44", "P61", "P60")
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("on_failure", ["park", "skip"])
def test_a_failure_at_an_event_of_the_feed_moves_no_position(
    s: Strandline, table: Table, on_failure: str, delivery: str
) -> None:
    """An older event of another key is in the store only when the feed's own was given up: it must not be passed."""
    bad, good = (key_in(0, s.log.partitions, nth=nth) for nth in range(2))
    handled: list[tuple[str, int]] = []

    def handle(*what: Any) -> None:
        event = what[-1]
        if event.key == bad and event.seq_nr == 2:
            raise ValueError("no")
        if delivery == "exactly_once":
            table.add(what[0], event)
        handled.append((str(event.key), event.seq_nr))

    settings = {**FED, "on_failure": on_failure, "delivery": delivery, "retries": 0}
    put(s, bad)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, handle, **settings)):
        until(lambda: handled == [(str(bad), 1)] and caught_up(s))
        before = positions(s)
        put(s, bad)
        put(s, good)
        put(s, bad)
        until(lambda: (str(good), 1) in handled)
        until(lambda: s.projections.dead_letters("totals"))
        if on_failure == "skip":
            until(lambda: (str(bad), 3) in handled)
        assert positions(s) == before
    carry_all(s)
    with running(s, Projection("totals", ORDERS, handle, **{**settings, "feed": False, "refresh_interval_s": 0.01})):
        until(lambda: caught_up(s))
    kept = [(str(bad), 1), (str(good), 1), *([(str(bad), 3)] if on_failure == "skip" else [])]
    assert sorted(handled) == sorted(kept)
    (letter,) = s.projections.dead_letters("totals")
    assert (letter.key, letter.seq_nr) == (str(bad), 2)


@pytest.mark.req("P42", "P50")
def test_lists_of_fed_events_have_their_size(s: Strandline, table: Table) -> None:
    sizes: list[int] = []

    def handle(tx: Any, events: Any) -> None:
        sizes.append(len(events))
        for event in events:
            table.add(tx, event)

    carry_all(s)
    with running(s, Projection("totals", ORDERS, handle, group_size=4, group_within_s=0.05, **FED)):
        for number in range(30):
            put(s, Key("order", str(number % 7)))
        until(lambda: len(table.rows()) == 30)
    assert max(sizes) <= 4
    carry_all(s)
    check_exactly_once(s, table)


@pytest.mark.req("P43", "P40")
def test_a_feed_that_fails_in_a_burst_begins_again(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "BACK_OFF_S", 0.01)
    broken = [False]
    read = s.log.read

    def failing(*args: Any, **how: Any) -> Any:
        if threading.current_thread().name == "strandline-feed" and not broken[0] and how["after"] > 50:
            broken[0] = True
            raise Unavailable("away", code="away")
        return read(*args, **how)

    monkeypatch.setattr(s.log, "read", failing)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **FED)):
        for _ in range(20):
            s.journal.append_many([(Key("order", str(number)), [Event("Placed", {})]) for number in range(30)])
        until(lambda: len(table.rows()) == 600, 20)
    assert broken[0]
    carry_all(s)
    check_exactly_once(s, table)


def rows_of(s: Strandline, partition: int) -> dict[tuple[str, int, int], QueryRow]:
    rows = Slices(s.store, "order", Range(0, 1023)).rows((0, 0, ""), 2**62, 1000)
    return {(row.key, row.life, row.seq_nr): row for row in rows}


class Fed:
    """Who is fed, and keeps it all."""

    def __init__(self, s: Strandline, keys_max: int = 100_000) -> None:
        self.rows: list[QueryRow] = []
        self.feed = LogFeed(s.log, s.store, s.pointer_watch, keys_max)
        self.subscription = self.feed.join(Slices(s.store, "order", Range(0, 1023)), self.rows.extend)


@pytest.fixture(params=["sqlite", "inexact"])
def folded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    """A log that folds, and one that does not: what it holds may be refused or repeated."""
    from tests.journal.worlds import world

    opened = inexact(partitions=2) if request.param == "inexact" else None
    if opened is not None:
        with opened as s:
            yield s
        return
    with world("sqlite", tmp_path, partitions=2) as s:
        yield s


@pytest.mark.req("P41")
def test_what_is_fed_is_what_the_store_will_have(folded: Strandline) -> None:
    """Refused and repeated appends, deletes and purges are in the tail; it is carried now and then meanwhile."""
    s = folded
    fed = Fed(s)
    try:
        last = 0
        for step in range(60):
            key = Key("order", str(step % 5))
            head = s.journal.head(key)
            seq_nr = 0 if head is None else head.seq_nr
            with pytest.raises(Exception, match="expect") if step % 7 == 3 else nothing():
                wrong = 5 if step % 7 == 3 else 0
                s.journal.append(key, [Event("Placed", {"n": step})], expected=seq_nr + wrong, append_id=f"{step:032x}")
            if step % 7 == 4:
                s.journal.append(key, [Event("Placed", {"n": step})], expected=seq_nr, append_id=f"{step:032x}")
            if step % 20 == 13:
                s.journal.delete(key, to=seq_nr)
            if step == 37:
                s.journal.purge(key)
            if step % 11 == 10:
                carry_all(s)
            last = max(last, *s.log.newest())
        put(s, Key("order", "last"))
        until(lambda: fed.rows and fed.rows[-1].key == "order|last")
    finally:
        fed.feed.close()
    carry_all(s)
    stored = rows_of(s, 0)
    seen = {(row.key, row.life, row.seq_nr): row for row in fed.rows}
    assert {place: seen[place] for place in stored if place in seen} == {
        place: row for place, row in stored.items() if place in seen
    }
    assert len(seen) > 30
    gone = seen.keys() - stored.keys()  # deleted or purged since
    for written, life, number in gone:
        head = s.journal.head(written)
        assert head is None or life < head.life or number <= head.delete_to


@pytest.mark.req("P43")
def test_a_feed_with_too_many_keys_waits_until_the_pointers_have_moved(
    folded: Strandline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "CUT_EVERY_S", 0.01)
    s = folded
    fed = Fed(s, keys_max=10)
    try:
        with counting() as reached:
            for number in range(40):
                put(s, Key("order", str(number)))
                if number < 5:
                    until(lambda: fed.rows and fed.rows[-1].key == f"order|{number}")  # noqa: B023
            more = count(40)

            def both_have_too_many() -> bool:  # a feed that has read all at once notices at its next page
                put(s, Key("order", str(next(more))))
                return reached["projection.feed_has_too_many_keys"] == s.log.partitions

            until(both_have_too_many)
        assert len(fed.rows) < next(more)
        carry_all(s)
        put(s, Key("order", "after"))
        until(lambda: any(row.key == "order|after" for row in fed.rows))
        assert len(fed.rows) == len(set(fed.rows))
    finally:
        fed.feed.close()


@pytest.mark.req("P42")
def test_what_does_not_follow_is_left_to_the_store_and_asked_for_again(s: Strandline, table: Table) -> None:
    """A range is behind when the feed brings an event: that is rejected, and comes again once it has caught up."""
    key = key_in(0, s.log.partitions)
    put(s, key, 2)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **{**FED, "refresh_interval_s": 0.05})):
        until(lambda: table.of(key) == [1, 2])
    put(s, key, 2)
    s.projections.set_offset("totals", 0)
    carry_all(s)
    put(s, key)
    with running(s, Projection("totals", ORDERS, table.add, **{**FED, "refresh_interval_s": 0.05})):
        until(lambda: table.of(key) == [1, 2, 1, 2, 3, 4, 5])
        assert range_of(s, key).position < s.journal.head(key).updated  # type: ignore[union-attr]


@pytest.mark.req("P94")
def test_feed_is_true_or_false() -> None:
    for source, settings in (
        (ORDERS, {"feed": "yes"}), (ByTag("blue"), {"feed": True}), (ORDERS, {"feed": True, "use_strandline": False}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as refused:
            Projection("totals", source, print, **settings)
        assert refused.value.code == "setting"
