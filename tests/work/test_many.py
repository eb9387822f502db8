"""What holds for a few entries and one kill holds for very many: the full counts are for `make soak`."""

from __future__ import annotations

import time
from collections import Counter
from threading import Event, Lock, Thread
from typing import Any

import pytest

from strandline.errors import StrandlineError, Unavailable
from strandline.servers.postgres import PostgresServer
from strandline.work.journal import WorkJournal
from tests.repeats import repeats
from tests.servers.fixtures import started
from tests.work.test_races import child, over, said
from tests.work.test_tables import drain, sql
from tests.work.worlds import World, one, postgres_place

PAGES = 10_000


def fill(work: WorkJournal, count: int) -> None:
    for first in range(0, count, PAGES):
        work.add_many([one(f"p{number}") for number in range(first, min(first + PAGES, count))])


@repeats(1, 50)
@pytest.mark.req("RW2", "RW3", "W34")
def test_once_each(world: World, times: int) -> None:
    """2000 entries and 2 processes with 2 cursors each; in the soak 100000, and 4 with 5."""
    count, processes, cursors = (2000 * times, *((4, 5) if times > 1 else (2, 2)))
    work = world.real()
    fill(work, count)
    children = [child(world, "each", str(cursors)) for _ in range(processes)]
    try:
        assert [said(process) for process in children] == ["ready"] * processes
        for process in children:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        told = [process.communicate()[0].split() for process in children]
    finally:
        for process in children:
            over(process)
    found = Counter(id_ for part in told for id_ in part)
    assert len(found) == count
    assert set(found.values()) == {1}
    assert work.counts()[:4] == (0, 0, 0, 0)


def bytes_of(world: World, work: WorkJournal) -> int:
    """All that the journal takes, indexes and what is dead in it included."""
    if world.is_sqlite:
        return sum(table.bytes for table in work.tables())
    ((size,),) = sql(
        world,
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c "
        "WHERE c.relnamespace = current_schema::regnamespace AND c.relkind = 'r'",
    )
    return int(size)


@repeats(1, 250)
@pytest.mark.req("W51", "W52")
def test_a_burst_leaves_nothing(world: World, times: int) -> None:
    """4000 entries in and out, in the soak a million: the size is back at its floor, without VACUUM."""
    work = world.real(table_rows_max=500 if times == 1 else 10_000)

    def settle() -> int:
        for _ in range(4):
            work._upkeep.step(work.settings, close=not world.is_sqlite)
        return bytes_of(world, work)

    fill(work, 20)
    drain(work)
    floor = settle()
    fill(work, 4000 * times)
    full = bytes_of(world, work)
    assert drain(work) == 4000 * times
    after = settle()
    assert full > 2 * after
    assert after <= 2 * floor + (0 if world.is_sqlite else 16 * 3 * 5 * 8192), "16 tables of the ring, a page per index"


class Load:
    """Threads that add and work while the server goes away, and what each of them was told."""

    def __init__(self, world: World) -> None:
        self.accepted: set[str] = set()
        self.unknown: set[str] = set()
        self.done: Counter[str] = Counter()
        self.done_unknown: set[str] = set()
        self._world, self._stop, self._lock = world, Event(), Lock()
        work = [self._adding] * 2 + [self._working] * 2
        self._threads = [Thread(target=what, args=(number,), daemon=True) for number, what in enumerate(work)]
        for thread in self._threads:
            thread.start()

    def _adding(self, number: int) -> None:
        work, count = self._world.real(lease_s=2), 0
        while not self._stop.is_set():
            page, count = f"{number}-{count}", count + 1
            try:
                work.add(**one(page))
                self.accepted.add(page)
            except Unavailable as error:
                if error.applied == "unknown":
                    self.unknown.add(page)
                self._stop.wait(0.02)

    def _working(self, number: int) -> None:
        work = self._world.real(lease_s=2)
        cursor = work.cursor(f"w{number}")
        while not self._stop.is_set():
            try:
                batch = cursor.claim(5)
            except StrandlineError:
                self._stop.wait(0.02)
                continue
            for claim in batch.claims:
                self._end(work, claim)
            if not batch.claims:
                self._stop.wait(0.01)

    def _end(self, work: WorkJournal, claim: Any) -> None:
        page = claim.entry.key["page"]
        try:
            (outcome,) = work.done_many([claim])
        except Unavailable as error:
            if error.applied == "unknown":
                self.done_unknown.add(page)
            return
        if outcome == "done":
            with self._lock:
                self.done[page] += 1

    def go_on(self, more: int) -> None:
        """Until so many more were accepted, and done."""
        accepted, done = len(self.accepted) + more, len(self.done) + more
        deadline = time.monotonic() + 60
        while len(self.accepted) < accepted or len(self.done) < done:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@repeats(1, 100)
@pytest.mark.timeout(3600)
@pytest.mark.req("RW1", "RW2", "W32")
def test_the_server_is_killed(times: int) -> None:
    """What was accepted is done, or still there, however often the server is killed; nothing is done twice."""
    with started(PostgresServer()) as server:
        world = World(postgres_place(server.url))
        world.real(lease_s=2, max_timeouts=0)
        load = Load(world)
        try:
            for _ in range(times):
                load.go_on(20)
                server.kill()
                server.start()
            load.go_on(5)
        finally:
            load.end()
        work = world.real(lease_s=2, max_timeouts=0)
        waiting = {entry.key["page"] for entry in work.entries()}
        assert load.accepted <= load.done.keys() | load.done_unknown | waiting, "none is lost"
        assert not load.done.keys() & waiting, "none comes back"
        assert set(load.done.values()) <= {1}
        assert load.done.keys() | load.done_unknown | waiting <= load.accepted | load.unknown
        world.close()
