"""What is PostgreSQL's own in a store: the lease that beats, poolers, conflicts, many stores on one server."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import psycopg
import pytest

import strandline
from strandline import Event, Key, LeaseHeld, LeaseLost, SchemaMismatch, Unavailable, Unsupported
from strandline.backends.postgres import Begun, Database
from strandline.backends.postgres.round_trips import Connection
from strandline.backends.postgres.store import BeatingLeases
from strandline.backends.postgres.store import open_store as open_postgres_store
from strandline.servers.postgres import PostgresServer
from strandline.settings import Settings
from strandline.store.api import Store, StoreSettings
from strandline.store.correction import Correction
from strandline.store.scans import entity_types_of, keys_of, look_at
from strandline.store.sql_store import SqlStore
from strandline.testing import carry
from strandline.testing.faults import Faults
from strandline.testing.store_contract import Make, StoreContract
from strandline.testing.store_contract.made import KEY, batch_of, events, numbers, snapshot
from strandline.testing.tape import Tape
from strandline.urls import urls_of
from strandline.values.keys import slice_of
from tests.log.postgres_logs import new_url, parsed
from tests.log.test_postgres_commits import pooled

__all__ = ["pooled"]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return new_url(postgres)


def opened(url: str, partitions: int = 1, **settings: Any) -> SqlStore:
    return open_postgres_store(parsed(url), Settings.of({"segment_size": 3, **settings}), "tape", partitions)


@pytest.mark.usefixtures("pooled")
class TestPooledPostgresStore(StoreContract):
    """The whole contract, without session state."""

    @pytest.fixture
    def make(self, postgres: PostgresServer) -> Iterator[Make]:
        made: list[Store] = []

        def make(settings: StoreSettings) -> Store:
            given = Settings(segment_size=settings.segment_size)
            url = urls_of(new_url(postgres)).store
            made.append(open_postgres_store(url, given, settings.log_id, settings.partitions))
            return made[-1]

        yield make
        for store in made:
            store.close()


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_a_batch_of_several_pieces(url: str, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """However many rows are sent together."""
    monkeypatch.setattr("strandline.backends.postgres.database.ROWS_AT_ONCE", at_once)
    tape = Tape()
    for count in (1, 2, 4):
        tape.append(KEY, ["a"] * count)
    with closing(opened(url)) as store:
        batch, seen = batch_of(tape, store)
        store.write(batch, seen)
        assert events(store, KEY) == [row for cut in batch.cuts for row in cut.events]
        assert numbers(events(store, KEY)) == [1, 2, 3, 4, 5, 6, 7]


def test_what_a_batch_writes_is_prepared_once(url: str) -> None:
    """A batch has a statement for every thousand rows: to parse and plan each of them anew is no work to do."""
    tape = Tape()
    with closing(opened(url)) as store:
        for _ in range(2):
            tape.append(KEY, ["a"])
            store.write(*batch_of(tape, store))
        found = cast(Database, store._database)._read(
            lambda connection: connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
        )
        texts = [text.split("(")[0].split() for (text,) in found]
        for table in ("journal", "metajournal"):
            assert texts.count(["INSERT", "INTO", f'"{opened_schema(store)}".{table}']) == 1


def opened_schema(store: SqlStore) -> str:
    return cast(Database, store._database).schema.name


@pytest.mark.req("RJ11", "J59")
def test_large_events_that_are_deleted_while_they_are_fetched(url: str) -> None:
    """The page ends before them, and the read begins anew: nothing was given yet."""
    faults = Faults()
    with strandline.connect(url, partitions=1) as s:
        for size in (1, 20_000, 20_000, 1):
            s.journal.append(KEY, [Event("Placed", bytes(size))])
        carry(s)

        def delete(to: int) -> None:
            s.journal.delete(KEY, to=to)
            carry(s)

        store = cast(SqlStore, s.store)
        store._database = faults.around("database", store._database)
        faults.at("before database.many", lambda: delete(2))
        page = store.page(KEY, 1, 10_000, from_=1, to=4, limit=4, bytes_max=10**9).rows
        assert [row[0] for row in page] == [1]
        s.journal.append(KEY, [Event("Placed", bytes(20_000))])
        carry(s)
        faults.at("before database.many", lambda: delete(3))
        assert [(event.seq_nr, len(event.payload)) for event in s.journal.read(KEY)] == [(4, 1), (5, 20_000)]
        assert faults.seen["before database.many"] > 1


# ---------------------------------------------------------------- the lease


@pytest.mark.req("RR3", "J83", "U12")
def test_a_second_pipeline_is_refused_as_soon_as_the_first_beats(url: str) -> None:
    with closing(opened(url)) as first, closing(opened(url)) as second:
        lease = first.lease().take("first")
        started = time.monotonic()
        with pytest.raises(LeaseHeld) as caught:
            second.lease().take("second")
        assert caught.value.holder == "first"
        assert time.monotonic() - started < 10
        assert second.lease().holder() == first.lease().holder() == ("first", caught.value.since)
        lease.release()
        assert second.lease().take("second").fence == lease.fence + 1


def _hold(url: str, told: Any) -> None:
    store = opened(url, lease_s=1)
    told.put(store.lease().take("the one that dies").fence)
    signal.pause()


@pytest.mark.req("RR3", "J83")
def test_a_dead_holders_lease_ends_within_its_time(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    holder = context.Process(target=_hold, args=(url, told))
    holder.start()
    fence = told.get(timeout=60)
    with closing(opened(url, lease_s=1)) as store:
        with pytest.raises(LeaseHeld):
            store.lease().take("too early")
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()
        started = time.monotonic()
        lease = store.lease().take("the next")
        assert time.monotonic() - started < 10
        assert lease.fence == fence + 1
        assert [pointer.fence for pointer in store.pointers()] == [lease.fence]


@pytest.mark.req("RR3", "J83")
def test_a_holder_that_slept_through_its_lease_cannot_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape()
    tape.append(KEY, ["a"])
    with closing(opened(url, lease_s=1)) as sleeper, closing(opened(url, lease_s=1)) as other:
        monkeypatch.setattr(sleeper.lease(), "_beat", lambda fence: True)  # as if it were stopped
        old = sleeper.lease().take("sleeper")
        batch, seen = batch_of(tape, sleeper)
        new = other.lease().take("other")
        with pytest.raises(LeaseLost):
            old.check()
        with pytest.raises(LeaseLost):
            sleeper.write(batch, seen)
        old.release()
        assert other.lease().holder() is not None
        tape.carry(other, fence=new.fence)
        assert numbers(events(other, KEY)) == [1]


def _write_asleep(url: str, told: Any, in_message: bool) -> None:
    """A pipeline that is stopped while it writes a batch: by others, or in the middle of sending it."""
    tape = Tape()
    tape.append(KEY, ["x" * 2**20] * 7)  # more than a server takes while it is sent
    store = opened(url, lease_s=1)
    store.lease().take("sleeper")
    batch, seen = batch_of(tape, store)
    wait = Connection._until

    def stop(connection: Connection, poll: Any, deadline: float) -> None:
        if connection.pgconn.flush():  # half of a message is sent
            Connection._until = wait  # type: ignore[method-assign]
            os.kill(os.getpid(), signal.SIGSTOP)
        wait(connection, poll, deadline)

    if in_message:
        Connection._until = stop  # type: ignore[method-assign,assignment]
    told.put("ready")
    try:
        store.write(batch, seen)
    except strandline.StrandlineError as error:
        told.put(error.name)
    else:
        told.put("written")
    store.close()


@pytest.mark.req("RR3", "J83")
@pytest.mark.parametrize("in_message", [False, True], ids=["at the server", "on the way"])
def test_a_pipeline_that_is_stopped_while_it_writes_keeps_no_locks(url: str, in_message: bool) -> None:
    """Wherever its batch is at that moment: another takes over, and snapshots are saved, within the lease."""
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    with closing(opened(url, lease_s=1)) as store, psycopg.connect(url.partition("&schema")[0]) as admin:
        sleeper = context.Process(target=_write_asleep, args=(url, told, in_message))
        if not in_message:
            admin.execute(f"LOCK TABLE {url.rpartition('=')[2]}.journal IN SHARE MODE")
        sleeper.start()
        assert sleeper.pid is not None
        assert told.get(timeout=60) == "ready"
        if not in_message:
            _until_waiting(admin)
            os.kill(sleeper.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        admin.rollback()
        started = time.monotonic()
        store.save(snapshot(1), 0)
        lease = store.lease().take("the next")
        assert time.monotonic() - started < 10
        os.kill(sleeper.pid, signal.SIGCONT)
        assert told.get(timeout=60) in ("Unavailable.timeout", "Unavailable.away")
        sleeper.join(60)
        assert [(pointer.offset, pointer.fence) for pointer in store.pointers()] == [(-1, lease.fence)]
        assert events(store, KEY) == []


def _until_waiting(admin: psycopg.Connection[Any]) -> None:
    """Until somebody waits for a lock that `admin` has."""
    deadline = time.monotonic() + 60
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while not admin.execute(waiting).fetchone():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_lease_outlasts_a_server_that_comes_back() -> None:
    with PostgresServer() as server, closing(opened(new_url(server), lease_s=30)) as store:
        lease = store.lease().take("holder")
        beat = cast(BeatingLeases, store.lease()).row().beat
        server.kill()
        with pytest.raises(Unavailable) as caught:
            lease.check()
        assert caught.value.name == "Unavailable.away"
        server.restart()
        lease.check()
        deadline = time.monotonic() + 30
        while cast(BeatingLeases, store.lease()).row().beat <= beat + 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert store.lease().holder() is not None


@pytest.mark.req("RR3")
def test_of_many_who_want_it_one_gets_it(url: str) -> None:
    opened(url).close()
    taken: list[int] = []
    held: list[str] = []
    start = threading.Barrier(5)

    def want(number: int) -> None:
        with closing(opened(url, lease_s=5)) as store:
            start.wait()
            try:
                taken.append(store.lease().take(f"pipeline {number}").fence)
                done.wait(60)
            except LeaseHeld as error:
                held.append(error.holder)
                if len(held) == 4:
                    done.set()

    done = threading.Event()
    threads = [threading.Thread(target=want, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert len(set(held)) == 1


@pytest.mark.req("RA15")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_neither_store_nor_lease(url: str) -> None:
    with closing(opened(url)) as store:
        lease = store.lease().take("parent")
        child = os.fork()
        if child == 0:
            codes = []
            for call in (store.pointers, lease.check):
                try:
                    call()
                except Unsupported as error:
                    codes.append(error.code)
            lease.release()
            store.close()
            os._exit(0 if codes == ["used_after_fork"] * 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.check()
        assert store.lease().holder() is not None


# ---------------------------------------------------------------- writing


@pytest.mark.req("J74")
def test_a_batch_is_there_whole_or_not_at_all(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape()
    tape.append(KEY, ["a", "b"])
    tape.purge("order|gone")
    with closing(opened(url)) as store:
        execute = Begun.execute

        def failing(self: Begun, name: str, *given: Any) -> int:
            if name == "set_pointer":
                raise psycopg.errors.DiskFull("no space left")
            return execute(self, name, *given)

        batch, seen = batch_of(tape, store)
        monkeypatch.setattr(Begun, "execute", failing)
        with pytest.raises(Unavailable) as caught:
            store.write(batch, seen)
        assert (caught.value.name, caught.value.applied) == ("Unavailable.no_space", "no")
        monkeypatch.setattr(Begun, "execute", execute)
        assert events(store, KEY) == []
        assert look_at(store, KEY, 0)[1] is None
        store.write(batch, seen)
        assert numbers(events(store, KEY)) == [1, 2]


def test_events_that_are_there_already_are_passed_over(url: str) -> None:
    tape = Tape()
    tape.append(KEY, ["a", "b", "c"])
    with closing(opened(url)) as store:
        batch, seen = batch_of(tape, store)
        rows = [row for cut in batch.cuts for row in cut.events]
        with tape.correcting(store) as amend:
            amend(seen, Correction(resolved=-1, replace=rows[:2]))
        batch, seen = batch_of(tape, store)
        store.write(batch, seen)
        assert events(store, KEY) == rows


def test_two_writers_of_one_partition_take_turns(url: str) -> None:
    tape = Tape()
    for number in range(40):
        tape.append(f"order|{number % 5}", [number])
    outcomes: list[str] = []
    with closing(opened(url)) as first, closing(opened(url)) as second:
        prepared = [batch_of(tape, store) for store in (first, second)]

        def write(store: Store, batch: Any) -> None:
            try:
                store.write(*batch)
                outcomes.append("ok")
            except Unavailable as error:
                outcomes.append(error.name)

        pairs = zip((first, second), prepared, strict=True)
        threads = [threading.Thread(target=write, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["Unavailable.serialization", "ok"]
        assert sum(len(events(first, f"order|{number}")) for number in range(5)) == 40


def test_a_batch_may_take_longer_than_an_append(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge of a long journal is no reason to try the same again and again."""
    tape = Tape()
    tape.append(KEY, ["a"])
    with closing(opened(url, append_timeout_s=0.3)) as store:
        execute = Begun.execute

        def slow(self: Begun, name: str, parameters: Any) -> int:
            if name == "insert_events":
                self._connection.execute("SELECT pg_sleep(1)")
            return execute(self, name, parameters)

        monkeypatch.setattr(Begun, "execute", slow)
        batch, seen = batch_of(tape, store)
        store.write(batch, seen)
        assert numbers(events(store, KEY)) == [1]
        pool = cast(Database, store._database)._pool
        connection, _ = pool.take()
        assert connection.timeout_s == 0.3
        pool.give_back(connection)


@pytest.mark.req("J105")
def test_a_snapshot_waits_for_a_purge_that_is_under_way(url: str) -> None:
    """It holds the pointer's row, as the purge does."""
    with closing(opened(url, append_timeout_s=0.5)) as store, psycopg.connect(url.partition("&schema")[0]) as other:
        other.execute(f'SELECT * FROM "{parsed(url).parameters["schema"]}".pointer FOR UPDATE')
        with pytest.raises(Unavailable) as caught:
            store.save(snapshot(1), 0)
        assert caught.value.name == "Unavailable.timeout"
        other.rollback()
        store.save(snapshot(1), 0)


@pytest.mark.req("J68")
def test_keys_sort_by_their_bytes(url: str) -> None:
    names = ["order|" + name for name in ("b", "B", "ä", "a", "Z", "z", "é", "~", " ", "😀", "ﬀ")]
    tape = Tape()
    for name in names:
        tape.append(name, ["x"])
    with closing(opened(url)) as store:
        tape.carry(store)
        assert keys_of(store, "order", after=None, limit=100) == sorted(
            names, key=lambda key: (slice_of(key), key.encode())
        )


# ---------------------------------------------------------------- many on one server


@pytest.mark.req("J125")
def test_two_tenants(postgres: PostgresServer) -> None:
    """One server, one database, two schemas: nothing of one is read, changed or delayed by the other."""
    one, two = f"{postgres.database()}&schema=one", ""
    two = one.replace("schema=one", "schema=two%20%22quoted%22")
    key = Key("order", "42")
    with strandline.connect(one, partitions=2, segment_size=5) as a, strandline.connect(two, partitions=3) as b:
        assert a.log.log_id != b.log.log_id
        assert (a.log.partitions, b.log.partitions) == (2, 3)
        leases = a.store.lease().take("a"), b.store.lease().take("b")
        a.journal.append(key, [Event("Placed", "a")])
        assert [event.payload for event in b.journal.read(key)] == []
        b.journal.append(key, [Event("Placed", "b"), Event("Placed", "b")])
        carry(b, lease=leases[1])
        assert entity_types_of(a.store) == []
        carry(a, lease=leases[0])
        a.journal.purge(key)
        carry(a, lease=leases[0])
        assert [event.payload for event in b.journal.read(key)] == ["b", "b"]
        assert [event.payload for event in a.journal.read(key)] == []
        leases[0].release()
        assert b.store.lease().holder() is not None
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(log=one, store=two)
    assert caught.value.name == "SchemaMismatch.log_replaced"


def test_a_name_of_a_schema_has_its_limits(postgres: PostgresServer) -> None:
    for name in ("", "x" * 64, "é" * 32):
        with pytest.raises(strandline.InvalidInput) as caught:
            strandline.connect(f"{postgres.url}&schema={name}")
        assert caught.value.name == "InvalidInput.url_parameter"
    strandline.connect(f"{postgres.database()}&schema={'x' * 63}").close()


def sessions(url: str) -> int:
    """How many connections of ours a database has."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'strandline' AND datname = %s",
            (connection.info.dbname,),
        ).fetchone()
    assert found is not None
    return int(found[0])


def test_connections_are_few_and_gone_after_close(postgres: PostgresServer) -> None:
    url = postgres.database()
    with strandline.connect(url) as s:
        s.journal.append(Key("order", "1"), [Event("Placed", 1)])
        carry(s)
        assert 1 <= sessions(url) <= 4
    deadline = time.monotonic() + 10
    while sessions(url):
        assert time.monotonic() < deadline
        time.sleep(0.01)
