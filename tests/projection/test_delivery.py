"""Delivery: exactly once, at least once, in lists."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline import Event, InvalidInput, Key
from strandline.connect import Strandline
from strandline.projection import range_reader
from strandline.projection.definition import BySlices, Projection
from strandline.projection.delivery import Delivery
from strandline.projection.offset_store import OffsetStore
from strandline.projection.range_runner import RangeRunner
from strandline.projection.recovery import CAREFUL_AFTER_CLAIMS
from strandline.testing import carry
from tests.projection.worlds import ORDERS, QUICK, Table, caught_up, check_exactly_once, running, until
from tests.query.filling import carry_all, key_in, put


def fill(s: Strandline, rounds: int = 3, keys: int = 12) -> None:
    for _ in range(rounds):
        for number in range(keys):
            put(s, Key("order", str(number)), 1 + number % 3)
        put(s, Key("user", "1"))
    carry_all(s)


@pytest.mark.req("P45", "P47", "RP1", "P29", "P68", "P100", "P101")
def test_each_event_once_while_more_come(s: Strandline, table: Table) -> None:
    fill(s)
    projection = Projection("totals", ORDERS, table.add, **QUICK)
    with running(s, projection):
        until(lambda: caught_up(s))
        check_exactly_once(s, table)
        fill(s)
        until(lambda: caught_up(s))
        check_exactly_once(s, table)
    fill(s)
    with running(s, projection):  # goes on where it was
        until(lambda: caught_up(s))
    check_exactly_once(s, table)
    counts = [found.counts for found in s.projections.status("totals").ranges]
    assert sum(count.get("duplicate", 0) for count in counts) == 0


@pytest.mark.req("P29")
def test_a_save_writes_the_last_row_of_a_key_only(s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[list[tuple[str, int]]] = []
    save = OffsetStore.save

    def noted(self: OffsetStore, tx: Any, claim: Any, rows: Any, *more: Any) -> None:
        saved.append([(row.key, row.seq_nr) for row in rows])
        save(self, tx, claim, rows, *more)

    monkeypatch.setattr(OffsetStore, "save", noted)
    put(s, Key("order", "a"), 7)
    put(s, Key("order", "a"), 7)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
    assert [("order|a", 14)] in saved
    assert all(len({key for key, _ in rows}) == len(rows) for rows in saved)
    check_exactly_once(s, table)


@pytest.mark.req("P31")
def test_the_position_of_an_idle_range_is_saved_now_and_then(
    s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but Marks: no event is behind it, and it comes up to the bound all the same."""
    monkeypatch.setattr(range_reader, "IDLE_SAVE_S", 0.05)
    put(s, Key("order", "a"))
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        marks = [s.journal.mark(key_in(partition, s.log.partitions)) for partition in range(s.log.partitions)]
        carry(s)
        to = min(int(mark.timestamp or 0) for mark in marks)
        until(lambda: all(found.position >= to for found in s.projections.status("totals").ranges))


@pytest.mark.req("P49", "P10", "P30", "RP6")
@pytest.mark.parametrize("save_after", [7, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 1000))])
def test_a_cut_timestamp(s: Strandline, table: Table, save_after: int) -> None:
    """Many events on one timestamp, and a stop after some of them were saved."""
    put(s, key_in(0, s.log.partitions), 60)
    hosts: list[Any] = []

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event)
        if event.seq_nr == 20:
            hosts[0].stop()

    small = {**QUICK, "page_size": 10, "save_after": save_after}
    with running(s, Projection("totals", ORDERS, handle, **small)) as host:
        hosts.append(host)
        carry_all(s)
        until(lambda: host._stop.is_set() and table.rows())
    assert len(table.rows()) >= 20
    with running(s, Projection("totals", ORDERS, table.add, **small)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P49", "P54")
def test_a_transaction_lasts_no_longer_than_it_may(s: Strandline, table: Table) -> None:
    """With all defaults but one: events that take their time are not saved all at once at the end."""
    put(s, key_in(0, s.log.partitions), 4)
    carry_all(s)
    saved: list[int] = []

    def handle(tx: Any, event: Any) -> None:
        saved.append(len(table.rows()))  # as others see it
        table.add(tx, event)
        time.sleep(0.3)

    with running(s, Projection("totals", ORDERS, handle, refresh_interval_s=0.01)):
        until(lambda: caught_up(s))
    assert [number for number, done in enumerate(saved) if number - done > 1] == [], "two of them take longer"
    check_exactly_once(s, table)


@pytest.mark.req("P77", "P91", "P49")
def test_a_pause_takes_hold_after_the_event_in_hand(s: Strandline, table: Table) -> None:
    put(s, key_in(0, s.log.partitions), 5)
    carry_all(s)
    busy, free = threading.Event(), threading.Event()

    def handle(tx: Any, event: Any) -> None:
        busy.set()
        free.wait(20)
        table.add(tx, event)

    with running(s, Projection("totals", ORDERS, handle, **QUICK)):
        until(busy.is_set)
        if table.dialect == "postgres":  # in a file the pause is not written before the event is done
            assert s.projections.pause("totals", timeout_s=0.5)
            free.set()
            assert s.projections.pause("totals") == []
            assert len(table.rows()) == 1
            s.projections.resume("totals")
        free.set()
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P91")
def test_ranges_are_given_back_however_often_a_host_stops(
    s: Strandline, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """No stop in order counts as the death of a process, after some of which a range would go carefully."""
    for number in range(CAREFUL_AFTER_CLAIMS + 2):
        with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
            until(lambda: caught_up(s))
        with s.open_offsets().store.closed_after() as store, store.database.read() as tx:
            ranges = store.ranges(tx, store.find("totals"))
            assert store.hosts(tx, store.find("totals").id) == {}, "nobody waits for its lease to end"
        assert {(found.owner, found.unclean_claims) for found in ranges} == {(None, 0)}, number
    assert "goes carefully" not in caplog.text


@pytest.mark.req("P51")
def test_a_percent_sign_in_a_statement(s: Strandline, table: Table) -> None:
    """It stands for itself where no values are given, and is doubled beside those of PostgreSQL's driver."""
    put(s, Key("order", "1"))
    carry_all(s)
    found: list[Any] = []
    beside, mark = ("%", "?") if table.dialect == "sqlite" else ("%%", "%s")

    def handle(tx: Any, event: Any) -> None:
        found.append(tx.execute("select 1 where 'abc' like 'a%'"))
        found.append(tx.execute(f"select 2 where 'abc' like 'a{beside}' and 3 = {mark}", (3,)))
        table.add(tx, event)

    with running(s, Projection("totals", ORDERS, handle, **QUICK)):
        until(lambda: caught_up(s))
    assert found == [[(1,)], [(2,)]]


@pytest.mark.req("P50")
def test_lists(s: Strandline, table: Table) -> None:
    lists: list[list[int]] = []

    def handle(tx: Any, events: list[Any]) -> None:
        lists.append([event.seq_nr for event in events])
        for event in events:
            table.add(tx, event)

    put(s, key_in(0, s.log.partitions), 50)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, handle, group_size=20, group_within_s=0.1, **QUICK)):
        until(lambda: len(table.rows()) == 50)
        assert [len(found) for found in lists] == [20, 20, 10]
        for _ in range(7):  # they come one by one, within the time
            put(s, key_in(0, s.log.partitions))
        carry_all(s)
        until(lambda: len(table.rows()) == 57)
    assert len(lists[3]) == 7
    check_exactly_once(s, table)


@pytest.mark.req("P48", "P54", "RP2")
def test_at_least_once(s: Strandline) -> None:
    fill(s)
    handled: list[tuple[str, int]] = []

    other = s.open_offsets(None).store

    def handle(event: Any) -> None:
        with other.database.write():  # no transaction is open in here: nobody waits
            handled.append((str(event.key), event.seq_nr))

    with running(s, Projection("totals", ORDERS, handle, delivery="at_least_once", **QUICK)):
        until(lambda: caught_up(s))
    assert len(handled) == len(set(handled)) == 72
    with running(s, Projection("totals", ORDERS, handle, delivery="at_least_once", **QUICK)):
        until(lambda: caught_up(s))
    assert len(handled) == 72
    other.close()


class Watched:
    """A database that knows how many of its transactions each thread has open."""

    def __init__(self, database: Any, opened: threading.local) -> None:
        self._database, self._opened = database, opened

    @contextmanager
    def _watched(self, transaction: Any) -> Iterator[Any]:
        self._opened.count = open_here(self._opened) + 1
        try:
            with transaction as tx:
                yield tx
        finally:
            self._opened.count -= 1

    def read(self, **how: Any) -> Any:
        return self._watched(self._database.read(**how))

    def write(self, **how: Any) -> Any:
        return self._watched(self._database.write(**how))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def open_here(opened: threading.local) -> int:
    return getattr(opened, "count", 0)


@pytest.mark.req("P54")
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_no_transaction_is_open_while_a_range_waits(
    s: Strandline, monkeypatch: pytest.MonkeyPatch, delivery: Any
) -> None:
    """Neither between tries, nor during back-off, nor while nothing comes, nor in a handler that gets none."""
    put(s, Key("order", "a"))
    carry_all(s)
    opened = threading.local()
    seen: dict[str, set[int]] = {"handler": set(), "try": set(), "idle": set(), "back-off": set()}
    made, delayed, paused, failed = OffsetStore.__init__, Delivery._delay, RangeRunner._pause, RangeRunner._fail

    def watched(store: OffsetStore, database: Any) -> None:
        made(store, Watched(database, opened))

    def delay(self: Delivery, decision: Any) -> None:
        seen["try"].add(open_here(opened))
        delayed(self, decision)

    def pause(self: RangeRunner) -> None:
        seen["idle"].add(open_here(opened))
        paused(self)

    def fail(self: RangeRunner, why: Any) -> None:
        seen["back-off"].add(open_here(opened))
        failed(self, why)

    monkeypatch.setattr(OffsetStore, "__init__", watched)
    monkeypatch.setattr(Delivery, "_delay", delay)
    monkeypatch.setattr(RangeRunner, "_pause", pause)
    monkeypatch.setattr(RangeRunner, "_fail", fail)
    tries: list[int] = []

    def handle(*_: Any) -> None:
        seen["handler"].add(open_here(opened))
        tries.append(len(tries))
        if len(tries) < 5:
            raise ValueError("not yet")

    with running(s, Projection("totals", ORDERS, handle, delivery=delivery, **{**QUICK, "retries": 1})):
        until(lambda: len(tries) == 5 and caught_up(s) and seen["idle"])
    once = delivery == "exactly_once"
    assert seen == {"handler": {int(once)}, "try": {0}, "idle": {0}, "back-off": {0}}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.req("P48", "RP2")
def test_at_least_once_repeats_what_was_not_saved_and_skips_none(s: Strandline) -> None:
    key = key_in(0, s.log.partitions)
    put(s, key, 30)
    carry_all(s)
    handled: list[int] = []
    fatal = [25]

    def handle(event: Any) -> None:
        handled.append(event.seq_nr)
        if event.seq_nr in fatal:
            fatal.clear()
            raise SystemExit  # this thread of the host is gone, nothing is saved of what was in hand

    settings = {**QUICK, "delivery": "at_least_once", "save_after": 10, "lease_s": 1}
    with running(s, Projection("totals", ORDERS, handle, **settings)):
        until(lambda: handled and handled[-1] == 30)
    assert handled[:25] == list(range(1, 26))
    assert handled[25:] == list(range(21, 31))  # the saves were after 10 and 20


@pytest.mark.req("P17", "P57")
def test_a_filter_is_part_of_the_source(s: Strandline, table: Table) -> None:
    key = Key("order", "1")
    s.journal.append(key, [Event("Placed", 1), Event("Paid", 2, tags=["blue"]), Event("Placed", 3)])
    carry_all(s)
    paid = BySlices("order", filter={"types": ["Paid"]})
    with running(s, Projection("totals", paid, table.add, **QUICK)):
        until(lambda: caught_up(s))
    assert table.of(key) == [2]
    counts = [found.counts for found in s.projections.status("totals").ranges]
    assert sum(count.get("filtered", 0) for count in counts) == 2
    with pytest.raises(InvalidInput) as refused, running(s, Projection("totals", ORDERS, table.add)):
        pass
    assert refused.value.code == "projection_changed"


@pytest.mark.req("P46")
def test_start_now_and_at_a_time(s: Strandline, table: Table) -> None:
    key = Key("order", "1")
    put(s, key, 3)
    carry_all(s)
    middle = s.strandline()
    put(s, key, 2)
    carry_all(s)
    with running(s, Projection("now", ORDERS, lambda tx, event: table.add(tx, event, "now"), start="now", **QUICK)):
        put(s, key)
        carry_all(s)
        until(lambda: table.of(key) == [6])  # nothing old, though the key goes on at 6
    with running(s, Projection("later", ORDERS, table.add, start=middle, **QUICK)):
        until(lambda: table.of(key) == [6, 4, 5, 6])
    assert s.projections.status("later").line == middle


@pytest.mark.req("P55")
def test_start_and_stop_once_per_claim(s: Strandline, table: Table) -> None:
    calls: list[tuple[str, int]] = []

    class Handler:
        def start(self, context: Any) -> None:
            calls.append(("start", context.lo))

        def handle(self, tx: Any, event: Any) -> None:
            assert ("start", next(lo for _, lo in calls if lo <= event.slice)) in calls
            if event.seq_nr == 3 and ("failed", 0) not in calls:
                calls.append(("failed", 0))
                raise ValueError("once")
            table.add(tx, event)

        def stop(self, context: Any) -> None:
            calls.append(("stop", context.lo))

    key = key_in(1, s.log.partitions)
    put(s, key, 4)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, Handler(), retries=0, **QUICK)):
        until(lambda: table.of(key) == [1, 2, 3, 4])
    lo = 342
    assert [call for call in calls if call[1] == lo] == [("start", lo), ("stop", lo), ("start", lo), ("stop", lo)]
    assert calls.count(("start", 0)) == calls.count(("stop", 0)) == 1


@pytest.mark.req("P55")
def test_one_thread_per_range(s: Strandline, table: Table) -> None:
    threads: dict[int, set[int]] = {}

    def handle(tx: Any, event: Any) -> None:
        threads.setdefault(event.partition, set()).add(threading.get_ident())
        table.add(tx, event)

    fill(s)
    with running(s, Projection("totals", ORDERS, handle, **QUICK)):
        until(lambda: caught_up(s))
    assert all(len(found) == 1 for found in threads.values())
    assert len(set.union(*threads.values())) == len(threads) > 1


@pytest.mark.req("P56")
def test_a_derived_id_is_the_same_at_every_delivery(s: Strandline, table: Table) -> None:
    put(s, Key("order", "1"), 2)
    carry_all(s)
    ids: dict[str, list[Any]] = {}

    def handler(name: str) -> Any:
        def handle(tx: Any, event: Any) -> None:
            ids.setdefault(name, []).append((event.seq_nr, event.derived_id(), event.derived_id(1)))
            s.journal.append(
                Key("mail", event.key.entity_id), [Event("Sent", event.seq_nr)], append_id=event.derived_id()
            )
            if len(ids[name]) <= 2:
                raise ValueError("once more")

        return handle

    with running(s, *(Projection(name, ORDERS, handler(name), save_after=1, **QUICK) for name in ("one", "two"))):
        until(lambda: all(len(ids.get(name, ())) >= 4 for name in ("one", "two")))
    for found in ids.values():
        by_event: dict[int, set[Any]] = {}
        for seq_nr, *both in found:
            by_event.setdefault(seq_nr, set()).add(tuple(both))
        assert all(len(same) == 1 for same in by_event.values())
    every = {one for found in ids.values() for _, *both in found for one in both}
    assert len(every) == 8
    carry_all(s)
    assert [event.payload for event in s.journal.read(Key("mail", "1"))].count(1) == 2  # one of each projection


@pytest.mark.req("P16", "P37", "P36")
def test_deletes_and_purges_before_it_came_there(s: Strandline, table: Table) -> None:
    cut, gone = Key("order", "cut"), Key("order", "gone")
    put(s, cut, 3)
    put(s, gone, 3)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s) and len(table.rows()) == 6)
    put(s, cut, 3)
    put(s, gone, 3)
    carry_all(s)
    s.journal.delete(cut, to=5)
    s.journal.purge(gone)
    put(s, gone, 2)
    carry_all(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: len(table.rows()) >= 9)
        counts = [found.counts for found in s.projections.status("totals").ranges]
    assert table.of(cut) == [1, 2, 3, 6]
    assert table.of(gone) == [1, 2, 3, 1, 2]
    assert sum(count.get("unseen", 0) for count in counts) == 2
