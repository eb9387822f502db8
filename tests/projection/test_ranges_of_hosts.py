"""Hosts, leases and fences, rescale: a slice runs in one place, and nothing is lost or repeated on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from strandline import Key, LeaseHeld, LeaseLost
from strandline.connect import Strandline
from strandline.projection.definition import Projection
from strandline.projection.host import Host
from strandline.projection.layout import cut_anew
from strandline.projection.offset_store import OffsetStore, RangeClaim
from strandline.values.ranges import ranges
from tests.journal.worlds import url_of, world
from tests.projection.sleeper import SETTINGS
from tests.projection.worlds import (
    BACKENDS,
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


def fill(s: Strandline, rounds: int = 2, keys: int = 10) -> None:
    for _ in range(rounds):
        for number in range(keys):
            put(s, Key("order", str(number)))
    carry_all(s)


def owners(s: Strandline) -> list[str | None]:
    return [found.owner for found in s.projections.status("totals").ranges]


@pytest.mark.req("P71", "P68", "P103")
def test_hosts_share_evenly(s: Strandline, table: Table) -> None:
    quick = {**QUICK, "lease_s": 2}
    fill(s)
    with ExitStack() as hosts:
        first = hosts.enter_context(running(s, Projection("totals", ORDERS, table.add, **quick)))
        until(lambda: owners(s) == [first.name] * 3)
        # One that runs another projection takes nothing away.
        hosts.enter_context(running(s, Projection("other", ORDERS, lambda tx, event: None, **quick)))
        second = hosts.enter_context(running(s, Projection("totals", ORDERS, table.add, **quick)))
        until(lambda: {owner for owner in owners(s) if owner} == {first.name, second.name} and None not in owners(s))
        assert sorted(owners(s).count(host.name) for host in (first, second)) == [1, 2]
        fill(s)
        first.stop()
        until(lambda: owners(s) == [second.name] * 3)  # a released one is claimed within a second
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


def claim(store: OffsetStore, name: str, lo: int, owner: str) -> RangeClaim | None:
    with store.database.write() as tx:
        row = store.locked(tx, store.find(name).id)
        found = next(one for one in store.ranges(tx, row) if one.lo == lo)
        taken = store.claim(tx, row, found, owner)
    return None if taken is None else RangeClaim(row, taken)


def claimed(store: OffsetStore, name: str, lo: int, owner: str) -> RangeClaim:
    taken = claim(store, name, lo, owner)
    assert taken is not None
    return taken


@pytest.mark.req("P69", "P70", "RP3", "P81")
def test_fences_only_grow_and_an_older_one_is_refused(s: Strandline) -> None:
    store = s.open_offsets(None).store
    row = store.ensure("totals", 1, ORDERS.text, start=0, partitions=3, history_id=s.store.settings.history_id)
    fences = []
    old = claimed(store, "totals", 0, "a")
    fences.append(old.row.fence)
    new = claimed(store, "totals", 0, "b")  # a take-over
    fences.append(new.row.fence)
    with pytest.raises(LeaseLost), store.database.write() as tx:
        store.save(tx, old, [], 50, "{}")
    with store.database.write() as tx:
        store.save(tx, new, [], 60, "{}")
    with pytest.raises(LeaseLost), store.database.write() as tx:  # the same save, arriving once more
        store.save(tx, new, [], 55, "{}")
    assert store.reload(new).row.position == 60
    with pytest.raises(LeaseLost):
        store.reload(old)
    store.release(old)  # changes nothing
    assert store.reload(new).row.owner == "b"
    store.release(new)
    fences.append(claimed(store, "totals", 0, "c").row.fence)
    store.release(claimed(store, "totals", 0, "c"))
    assert s.projections.rescale("totals", 5)
    fences.append(claimed(store, "totals", 0, "d").row.fence)
    store.release(claimed(store, "totals", 0, "d"))
    s.projections.rename("totals", "sums")
    fences.append(claimed(store, "sums", 0, "e").row.fence)
    store.release(claimed(store, "sums", 0, "e"))
    s.projections.reset("sums")
    fences.append(claimed(store, "sums", 0, "f").row.fence)
    assert fences == sorted(set(fences))
    assert store.find("sums").id == row.id
    store.close()


@pytest.mark.req("P70", "RP3", "P47", "P53")
def test_what_comes_late_is_not_committed(s: Strandline, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped between its handler and its commit, and wakes up after somebody took over.

    Nobody takes over before the server has ended the transaction that it is in: no two handlers write for one range at
    once. In a file nobody writes before it wakes up.
    """
    monkeypatch.setattr(Host, "_watch_handlers", lambda host, run: None)  # it is stopped as well
    key = key_in(0, s.log.partitions)
    put(s, key, 3)
    carry_all(s)
    asleep, free = threading.Event(), threading.Event()

    def handle(tx: Any, event: Any) -> None:
        table.add(tx, event, "sleeper")
        if event.seq_nr == 3:
            asleep.set()
            free.wait(20)

    store = s.open_offsets(None).store
    with running(s, Projection("totals", ORDERS, handle, handler_timeout_s=1, **QUICK)) as host:
        until(asleep.is_set)
        if table.dialect == "postgres":
            range_ = range_of(s, key)
            assert claim(store, "totals", range_.lo, "another") is None
            until(lambda: claim(store, "totals", range_.lo, "another") is not None)
        else:
            free.set()
        host.stop()
        free.set()
    if table.dialect == "postgres":
        assert table.rows() == []
        (row,) = [found for found in s.projections.status("totals").ranges if found.lo == range_.lo]
        assert row.position == 0
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)
    store.close()


@pytest.mark.req("P70", "P71", "RP3")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_host_that_is_stopped_in_a_transaction_for_longer_than_its_lease(backend: str, tmp_path: Path) -> None:
    """A second host takes over once the server has ended the transaction. In a file it waits for the first one."""
    with world(backend, tmp_path, partitions=1) as s:
        table = Table(s)
        put(s, Key("order", "1"), 3)
        carry_all(s)
        command = [
            sys.executable,
            "-m",
            "tests.projection.sleeper",
            url_of(backend, tmp_path),
            table.name,
            table.dialect,
        ]
        sleeper = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        try:
            assert os.WIFSTOPPED(os.waitpid(sleeper.pid, os.WUNTRACED)[1])
            if backend == "sqlite":
                assert table.rows() == []
                sleeper.send_signal(signal.SIGCONT)
            with running(s, Projection("totals", ORDERS, table.add, **SETTINGS)):
                until(lambda: len(table.rows()) == 3, 15)
                sleeper.send_signal(signal.SIGCONT)  # its commit comes late
                put(s, Key("order", "1"), 2)
                carry_all(s)
                until(lambda: len(table.rows()) == 5 and caught_up(s), 15)
            assert sleeper.poll() is None
        finally:
            sleeper.kill()
            sleeper.wait()
        check_exactly_once(s, table)
        table.close()


@pytest.mark.req("P70", "P71", "RP3", "RP1")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_outage_that_is_longer_than_the_leases(backend: str, tmp_path: Path) -> None:
    """For a while nothing can be written: neither of two hosts can say that it lives, or save what it has done."""
    quick = {**QUICK, "lease_s": 1, "save_after": 3}
    with world(backend, tmp_path, partitions=3, append_timeout_s=0.5) as s:
        table = Table(s)
        with (
            running(s, Projection("totals", ORDERS, table.add, **quick)) as first,
            running(s, Projection("totals", ORDERS, table.add, **quick)) as second,
        ):
            until(lambda: set(owners(s)) == {first.name, second.name})
            fill(s, 5)
            with s.open_offsets().store.closed_after() as store, store.database.write() as tx:
                tx.take_long()
                raw: Any = tx.raw
                if backend == "postgresql":
                    database: Any = store.database
                    schema = database.schema.name
                    raw.execute(f"lock table {schema}.projection_host, {schema}.projection_range in exclusive mode")
                    raw.execute("select pg_sleep(2)")
                else:
                    time.sleep(2)
            fill(s)
            until(lambda: caught_up(s), 15)
        check_exactly_once(s, table)
        table.close()


@pytest.mark.req("P72", "P73", "P3", "RP4")
def test_up_and_down_while_writing(s: Strandline, table: Table) -> None:
    fill(s)
    with running(s, Projection("totals", ORDERS, table.add, page_size=5, save_after=3, **QUICK)):
        for n in (4, 8, 2, 1, 16, 3):
            fill(s, 1)
            assert s.projections.rescale("totals", n)
            status = s.projections.status("totals")
            assert [(found.lo, found.hi) for found in status.ranges] == ranges(n)
            fill(s, 1)
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P73", "RP4", "P30")
def test_slices_at_quite_different_places_come_together(s: Strandline, table: Table) -> None:
    """One range is far behind when all become one, and others then are cut out of it."""
    slow = key_in(0, s.log.partitions)
    held = threading.Event()

    def handle(tx: Any, event: Any) -> None:
        if event.key == slow and event.seq_nr > 1 and not held.is_set():
            raise ValueError("not yet")
        table.add(tx, event)

    for _ in range(3):
        put(s, slow)
        fill(s, 1)
    with running(s, Projection("totals", ORDERS, handle, retries=0, **QUICK)):
        until(
            lambda: all(
                found.state == "failed" or not found.behind_store_s for found in s.projections.status("totals").ranges
            )
        )
    for n in (1, 6, 2):
        assert s.projections.rescale("totals", n)
    held.set()
    with running(s, Projection("totals", ORDERS, handle, **QUICK)):
        until(lambda: caught_up(s))
        fill(s, 1)
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P74", "P72", "RP4")
def test_a_rescale_that_its_caller_did_not_end_is_ended_by_a_host(s: Strandline, table: Table) -> None:
    fill(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)) as host:
        until(lambda: caught_up(s))
        assert s.projections.rescale("totals", 5, timeout_s=0) in (True, False)
        until(lambda: len(s.projections.status("totals").ranges) == 5)
        until(lambda: caught_up(s))
        assert owners(s) == [host.name] * 5
    store = s.open_offsets(None).store
    row = store.find("totals")
    with store.database.write() as tx:  # asked for, and the caller dies
        store.change(tx, store.locked(tx, row.id)._replace(target_ranges=7))
    assert s.projections.status("totals").wanted_ranges == 7
    with store.database.write() as tx:  # another one takes its place
        store.change(tx, store.locked(tx, row.id)._replace(target_ranges=2))
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: len(owners(s)) == 2 and caught_up(s))
    check_exactly_once(s, table)
    store.close()


@pytest.mark.req("P74", "RP4")
def test_a_crash_in_a_rescale_leaves_the_old_or_the_new_layout(s: Strandline) -> None:
    store = s.open_offsets(None).store
    row = store.ensure("totals", 1, ORDERS.text, start=0, partitions=3, history_id=s.store.settings.history_id)

    class Killed(Exception):
        pass

    def killed_before_its_commit() -> None:
        with store.database.write() as tx:
            locked = store.locked(tx, row.id)
            store.change(tx, store.cut(tx, locked, cut_anew(store.ranges(tx, locked), {}, 9)))
            raise Killed

    with pytest.raises(Killed):
        killed_before_its_commit()
    assert len(s.projections.status("totals").ranges) == 3
    assert s.projections.rescale("totals", 9)
    assert len(s.projections.status("totals").ranges) == 9
    store.close()


@pytest.mark.req("P77", "P76", "P82")
def test_pause_and_resume(s: Strandline, table: Table) -> None:
    fill(s)
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
        assert s.projections.pause("totals") == []
        assert s.projections.pause("totals") == []
        handled = len(table.rows())
        fill(s)
        assert {found.state for found in s.projections.status("totals").ranges} == {"paused"}
        assert len(table.rows()) == handled
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)) as host:  # it survives a restart
        host.stop()
    assert len(table.rows()) == handled
    s.projections.resume("totals")
    s.projections.resume("totals")
    with running(s, Projection("totals", ORDERS, table.add, **QUICK)):
        until(lambda: caught_up(s))
    check_exactly_once(s, table)


@pytest.mark.req("P77")
def test_pause_says_what_is_not_released(s: Strandline, table: Table) -> None:
    put(s, key_in(0, s.log.partitions))
    carry_all(s)
    busy, free = threading.Event(), threading.Event()

    def handle(event: Any) -> None:
        busy.set()
        free.wait(20)

    with running(s, Projection("totals", ORDERS, handle, delivery="at_least_once", **QUICK)):
        until(busy.is_set)
        assert s.projections.pause("totals", timeout_s=1.5) == [(0, 341)]
        with pytest.raises(LeaseHeld) as refused:
            s.projections.reset("totals")
        assert refused.value.holder
        free.set()
        assert s.projections.pause("totals") == []


def say(s: Strandline, host: str, *, ago_s: float, lease_s: float) -> int:
    """A host said so long ago that it lives, and for how long; the time now."""
    store = s.open_offsets(None).store
    now = store.database.now_us()
    with store.database.write() as tx:
        beat = now - round(ago_s * 1_000_000)
        tx.execute("beat", (store.find("totals").id, host, beat, round(lease_s * 1_000_000)))
    store.close()
    return now


@pytest.mark.req("P103", "P81", "P77")
def test_a_lease_is_as_long_as_its_host_says(s: Strandline, table: Table) -> None:
    """Its last beat is 40 s ago: longer than the default lease, and well within its own of 120 s."""
    fill(s)
    with running(s, Projection("totals", ORDERS, table.add, lease_s=120, **QUICK)) as host:
        until(lambda: caught_up(s))
        now = say(s, host.name, ago_s=40, lease_s=120)
        with pytest.raises(LeaseHeld) as refused:
            s.projections.reset("totals")
        held = refused.value
        assert held.holder == host.name
        assert f"is run by {host.name} since 20" in held.message
        assert now - 10_000_000 < held.since < now
        if table.dialect == "postgres":
            assert held.until == now + 80_000_000
        else:
            assert held.until is None  # it lives as long as its process
        assert s.projections.status("totals").hosts == (host.name,)
        assert s.projections.rescale("totals", 5)  # not before it has released all
        until(lambda: owners(s) == [host.name] * 5)
    check_exactly_once(s, table)


@pytest.mark.req("P103", "P81")
def test_a_short_lease_of_a_dead_host_is_over_soon(s: Strandline) -> None:
    store = s.open_offsets(None).store
    store.ensure("totals", 1, ORDERS.text, start=0, partitions=3, history_id=s.store.settings.history_id)
    claimed(store, "totals", 0, "killed")
    say(s, "killed", ago_s=5, lease_s=2)
    s.projections.set_offset("totals", 0)
    assert s.projections.status("totals").hosts == ()
    store.close()


@pytest.mark.req("P103")
def test_the_rows_of_killed_hosts_go(s: Strandline, table: Table) -> None:
    fill(s)
    store = s.open_offsets(None).store
    row = store.ensure("totals", 1, ORDERS.text, start=0, partitions=3, history_id=s.store.settings.history_id)
    for number in range(5):
        say(s, f"killed {number}", ago_s=5, lease_s=2)

    def hosts() -> set[str]:
        with store.database.read() as tx:
            return set(store.hosts(tx, row.id))

    with running(s, Projection("totals", ORDERS, table.add, **QUICK)) as host:
        until(lambda: hosts() == {host.name})
        if table.dialect == "postgres":  # one that is late, and within its lease
            say(s, "slow", ago_s=40, lease_s=120)
            until(lambda: owners(s).count(host.name) < 3)
            assert hosts() == {host.name, "slow"}
    store.close()


class Stepwise:
    """Writes, and takes a while over it; how often each event came."""

    def __init__(self, table: Table, for_s: float) -> None:
        self.table, self.for_s = table, for_s
        self.calls: Counter[tuple[str, int]] = Counter()

    def handle(self, tx: Any, event: Any) -> None:
        self.calls[str(event.key), event.seq_nr] += 1
        self.table.add(tx, event)
        time.sleep(self.for_s)

    @property
    def repeated(self) -> list[tuple[str, int]]:
        return [event for event, times in self.calls.items() if times > 1]


def many_ranges(s: Strandline, n: int) -> None:
    """A projection that is cut into so many ranges before anybody runs it."""
    with s.open_offsets(None).store.closed_after() as store:
        history = s.store.settings.history_id
        store.ensure("totals", 1, ORDERS.text, start=0, partitions=3, history_id=history)
    assert s.projections.rescale("totals", n)


@pytest.mark.req("P71", "RP3")
def test_more_ranges_than_connections(s: Strandline, table: Table) -> None:
    """Each is in a transaction for longer than a lease: none of them keeps the host from saying that it lives."""
    n = 16 if table.dialect == "postgres" else 3  # in a file they come one after the other
    fill(s, 1, 4 * n)
    many_ranges(s, n)
    slow = Stepwise(table, 1.2 / 4 if n == 16 else 0.05)
    with running(s, Projection("totals", ORDERS, slow, lease_s=1, save_within_s=60, **QUICK)):
        until(lambda: caught_up(s), 20)
        assert {found.fence for found in s.projections.status("totals").ranges} == set(range(2, n + 2))
    assert slow.repeated == []
    check_exactly_once(s, table)


@pytest.mark.req("P47", "P53")
def test_ranges_with_rows_of_their_own_never_refuse_each_other(s: Strandline, table: Table) -> None:
    """Also once the server has looked at its tables, and reads small ones as a whole."""
    fill(s, 5, 24)
    many_ranges(s, 8)
    if table.dialect == "postgres":
        with s.open_offsets(None).store.closed_after() as store, store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute("analyze")
    counting = Stepwise(table, 0.002)
    with running(s, Projection("totals", ORDERS, counting, save_after=4, **QUICK)):
        until(lambda: caught_up(s), 15)
    check_exactly_once(s, table)
    assert counting.repeated == []


@pytest.mark.req("P71", "P103", "RP3")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_hosts_come_and_go(s: Strandline, table: Table, seed: int) -> None:
    """Hosts start and stop, ranges are cut, events are written: at the end every event was handled once."""
    random.seed(seed)
    quick = {**QUICK, "lease_s": 2, "page_size": 7, "save_after": 4}
    fill(s, 1)
    with ExitStack() as stack:
        hosts: list[Any] = []
        for _ in range(8):
            match random.choice(["start", "stop", "rescale", "write"]):
                case "start":
                    hosts.append(stack.enter_context(running(s, Projection("totals", ORDERS, table.add, **quick))))
                case "stop" if hosts:
                    hosts.pop(random.randrange(len(hosts))).stop()
                case "rescale" if hosts:
                    s.projections.rescale("totals", random.randint(1, 9), timeout_s=0.1)
                case _:
                    fill(s, 1)
        hosts.append(stack.enter_context(running(s, Projection("totals", ORDERS, table.add, **quick))))
        until(lambda: s.projections.status("totals").wanted_ranges is None and caught_up(s), 15)
    check_exactly_once(s, table)
