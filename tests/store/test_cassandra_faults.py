"""A Cassandra store whose node is killed under load, and whose lease holder dies."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Event, Thread
from typing import Any

import pytest

from strandline.backends.cassandra.store import CassandraStore, halved
from strandline.backends.memory.store import MemoryStore
from strandline.errors import LeaseHeld, LeaseLost, Unavailable
from strandline.rows import PartitionBatch
from strandline.servers.cassandra import CassandraServer
from strandline.store.phases import run, written
from strandline.store.scans import look_at
from strandline.testing.store_contract import contents, random_tape, settings_of
from strandline.testing.store_contract.made import batch_of
from strandline.testing.tape import Tape
from tests.servers.stopped import wait_until_stopped
from tests.store.keyspaces import RELAXED, open_store, url_of
from tests.store.reading import expected, read

pytestmark = RELAXED
PARTITIONS = 2
HOLDER_LEASE_S = 2.0


@pytest.fixture
def own(cassandra: CassandraServer) -> Iterator[CassandraServer]:
    """The node of all tests, which may be killed: who uses it finds it again."""
    yield cassandra
    cassandra.start()


class Load:
    """Carries a tape in small batches, over and over, whatever becomes of the node, and reads a key after each."""

    def __init__(self, store: CassandraStore, tape: Tape) -> None:
        self.store, self.tape = store, tape
        self.batches = self.failures = self.reads = 0
        self.wrong: BaseException | None = None
        self.stop = Event()
        self._chance = random.Random(1)
        self._keys = tape.all_keys()
        self._wanted = {key: expected(tape, key, store.settings.segment_size) for key in self._keys}
        self._thread = Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.wrong is not None:
            raise self.wrong

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    self._step()
                except Unavailable as error:
                    if error.code not in ("away", "timeout", "overloaded"):
                        raise
                    self.failures += 1
                    time.sleep(0.05)
        except BaseException as error:
            self.wrong = error

    def _step(self) -> None:
        part = Tape(PARTITIONS)
        for pointer in self.store.pointers():
            left = [record for record in self.tape.records[pointer.partition] if record.offset > pointer.offset]
            part.records[pointer.partition] = left[:5]
        part.carry(self.store)
        self.batches += 1
        key = self._chance.choice(self._keys)
        assert read(self.store, self.tape, key) == self._wanted[key], key
        self.reads += 1


@pytest.mark.req("RR1", "RJ3", "RJ5", "RS8")
@pytest.mark.soak
@pytest.mark.parametrize("times", [20])
@pytest.mark.timeout(1800)
def test_the_node_is_killed_under_load(own: CassandraServer, times: int) -> None:
    """Each time work resumes by itself; no acknowledged batch is lost, none is there twice."""
    tape = random_tape(7, actions=3_000 * times, keys=60, partitions=PARTITIONS)
    store = open_store(url_of(own, "killed"), partitions=PARTITIONS, append_timeout_s=5)
    load = Load(store, tape)
    try:
        for kill in range(times):
            _until(lambda: load.batches >= 10 * (kill + 1) or not load._thread.is_alive(), 120)  # noqa: B023
            failures, batches = load.failures, load.batches
            own.kill()
            _until(lambda: load.failures > failures or not load._thread.is_alive(), 120)  # noqa: B023
            own.restart()
            with closing(open_store(url_of(own, "killed"), partitions=PARTITIONS, append_timeout_s=60)) as other:
                other.pointers()  # it is back, for whoever comes new
            _until(lambda: load.batches > batches or not load._thread.is_alive(), 5)  # noqa: B023
    finally:
        load.stop.set()
        load.join()
    reached = store.pointers()
    for pointer in reached:
        assert 0 < pointer.offset < tape.records[pointer.partition][-1].offset
        past = tape.records[pointer.partition]
        tape.records[pointer.partition] = [record for record in past if record.offset <= pointer.offset]
    whole = MemoryStore(settings_of(PARTITIONS))
    tape.carry(whole)
    found, wanted = contents(store, tape.all_keys(), lives=3), contents(whole, tape.all_keys(), lives=3)
    for shown in (found, wanted):
        shown["pointers"] = [pointer._replace(revision=0) for pointer in shown["pointers"]]
    assert found == wanted
    assert load.reads >= times, "it read, too"
    store.close()


@pytest.mark.req("RS8", "RR1")
@pytest.mark.timeout(600)
def test_a_node_that_is_stopped_makes_nobody_wait_for_ever(own: CassandraServer) -> None:
    """Neither a look nor a batch of many writes; when it goes on, so do they."""
    store = open_store(url_of(own, "stopped"), append_timeout_s=2)
    tape = random_tape(3, actions=200, keys=40)
    tape.carry(store, size=100)
    for _ in range(50):
        tape.append("order|late", ["x"] * 20)
    batch, seen = batch_of(tape, store)
    own.process.send(signal.SIGSTOP)
    try:
        wait_until_stopped(own.process.pid)
        for call in (store.pointers, lambda: look_at(store, "order|late", 0), lambda: Writing(store).write(batch)):
            begun = time.monotonic()
            with pytest.raises(Unavailable) as refused:
                call()
            assert refused.value.code in ("away", "timeout")
            assert time.monotonic() - begun < 60
    finally:
        own.process.send(signal.SIGCONT)
    deadline = time.monotonic() + 60
    while True:
        try:
            store.write(batch, seen)
            break
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert store.pointers()[0].offset == batch.pointer.offset
    store.close()


class Writing:
    """The writes of a batch without the look before them."""

    def __init__(self, store: CassandraStore) -> None:
        self._store = store

    def write(self, batch: PartitionBatch) -> None:
        writing, views = self._store._writing, self._store.views
        run(written(batch, views), writing.write, writing.find)


def _until(what: object, timeout_s: float) -> None:
    assert callable(what)
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.req("J83", "RR3", "U12")
@pytest.mark.timeout(120)
def test_a_dead_holders_lease_is_taken_over(cassandra: CassandraServer) -> None:
    """While it lives everybody else is refused; after kill -9 the next one works within the lease and 5 seconds."""
    url = url_of(cassandra, "leased")
    store = open_store(url, lease_s=HOLDER_LEASE_S)
    command = [sys.executable, "-m", "tests.store.holding", url.text, str(HOLDER_LEASE_S)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        fence = store.pointers()[0].fence
        for _ in range(2):
            with pytest.raises(LeaseHeld) as refused:
                store.lease().take("second")
            assert refused.value.holder == "the one that is killed"
        assert store.lease().holder() is not None
        assert store.pointers()[0].fence == fence
    finally:
        holder.kill()
        holder.communicate()
    killed = time.monotonic()
    lease = store.lease().take("second")
    assert time.monotonic() - killed < HOLDER_LEASE_S + 5
    assert lease.fence > fence
    assert [pointer.fence for pointer in store.pointers()] == [lease.fence]
    held = store.lease().holder()
    assert held is not None
    assert held[0] == "second"
    lease.release()
    store.close()


@pytest.mark.req("J83", "RR3")
@pytest.mark.timeout(120)
def test_a_holder_that_was_stopped_for_long_is_told(cassandra: CassandraServer) -> None:
    """Its beat stands still, another takes over; when it wakes up it knows, and can move no pointer."""
    url = url_of(cassandra, "leased")
    first, second = open_store(url, lease_s=1), open_store(url, lease_s=1)
    stopped = first.lease().take("stopped")
    stopped._over.set()  # its thread ends, as if the process got no time any more
    _until(lambda: second.lease().holder() is None, 20)
    taken = second.lease().take("second")
    with pytest.raises(LeaseLost):
        stopped.check()
    stopped.release()
    taken.check()
    taken.release()
    tape = Tape()
    tape.append("order|1", ["a"])
    with pytest.raises(LeaseLost):
        tape.carry(first, fence=stopped.fence)
    first.close()
    second.close()


def refusing(rows: list[tuple[int, str, int]], removed: list[int], most: int) -> Any:
    """Answers like a node that refuses to read past more than so many tombstones, at these times."""

    def ask(after: Sequence[Any], to: int, limit: int) -> list[Any]:
        asked.append((after[0], to))
        met = [at for at in removed if after[0] <= at <= to]
        if len(met) > most:
            raise Unavailable("refused", code="away", tombstones=True)
        return [row for row in rows if row > tuple(after) and row[0] <= to][:limit]

    asked: list[tuple[int, int]] = []
    ask.asked = asked  # type: ignore[attr-defined]
    return ask


@pytest.mark.req("T87")
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_page_that_is_refused_is_read_in_halves(limit: int) -> None:
    rows = [(at, "k|1", 1) for at in range(0, 1000, 50)]
    ask = refusing(rows, list(range(1000)), 100)
    found: list[Any] = []
    place: tuple[Any, ...] = (0, "", 0)
    while page := halved(ask, place, 999, limit):
        found += page
        place = page[-1]
    assert found == rows
    assert all(first <= last for first, last in ask.asked)
    with pytest.raises(Unavailable) as refused:
        halved(refusing(rows, [500] * 200, 100), (0, "", 0), 999, 100)
    assert refused.value.name == "Unavailable.away"
    with pytest.raises(Unavailable):
        halved(lambda *_: raising(Unavailable("gone", code="away")), (0, "", 0), 999, 100)


def raising(error: Exception) -> list[Any]:
    raise error
