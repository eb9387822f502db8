"""When who waits is woken, and when it is not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from strandline import aio
from strandline.backends.postgres.database import Transaction
from strandline.backends.postgres.round_trips import Connection
from strandline.work import waking
from strandline.work.claims import Cursor
from strandline.work.journal import WorkJournal
from tests.work.test_races import child, over, said
from tests.work.worlds import World, declaration, one, pages


class Waiter:
    """A cursor in a thread that waits until it has claimed something."""

    def __init__(self, journal: WorkJournal, cursor: Cursor | None = None) -> None:
        self.found: list[str] = []
        self.looks = 0
        self.at = 0.0
        self.waits = Event()
        self._journal, self._cursor = journal, cursor or journal.cursor("waiter")
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.waits.wait(10)
        self.began = time.monotonic()

    def _run(self) -> None:
        deadline = time.monotonic() + 20
        while not self.found and time.monotonic() < deadline:
            batch = self._cursor.claim(10)
            self.looks += 1
            self.found += pages(batch)
            self.at = time.monotonic()
            if not self.found and not self._journal.wait(0.2):  # what was told before it listened has been looked at
                self.waits.set()
                self._journal.wait(10.0)
        self.waits.set()

    def end(self, within_s: float = 15.0) -> list[str]:
        self._thread.join(25)
        assert time.monotonic() - self.at < 15
        assert self.at - self.began < within_s, "not by polling"
        return self.found


@pytest.mark.req("W57", "W60", "W63", "W61")
def test_an_add_wakes_who_waits(world: World) -> None:
    work, other = world.real(poll_s=600.0), world.real(poll_s=600.0)
    waiter = Waiter(work)
    began = time.monotonic()
    other.add(**one("a"))
    assert waiter.end() == ["a"]
    assert waiter.at - began < 3
    assert waiter.looks < 12, "woken, not polling: some looks are for what was told before the server listened"


@pytest.mark.req("W57", "W60", "W71")
def test_other_things_that_wake(world: World) -> None:
    work, other = world.real(poll_s=600.0, max_timeouts=1), world.real(poll_s=600.0, max_timeouts=1)
    other.add(**one("a"))
    (claim,) = other.cursor("w").claim(1).claims
    for wake in (claim.release, lambda: other.add(**one("b")), other.resume):
        if wake == other.resume:
            other.add(**one("c"))
            other.pause()
        waiter = Waiter(work)
        wake()
        assert waiter.end(5) != []
    for entry in work.entries():
        work.drop(entry.id)
    other.add(**one("d", "1"))
    (claim,) = other.cursor("w").claim(1).claims
    other.add(**one("d", "2"))
    waiter = Waiter(work)
    claim.done()
    assert waiter.end(5) == ["d"], "the end of an entry with one behind it"
    work.add(**one("e", "1"))
    (claim,) = other.cursor("w").claim(1).claims
    other.add(**one("e", "2"))
    waiter = Waiter(work)
    other.drop(claim.entry.id)
    assert waiter.end(5) == ["e"], "so does a drop"


@pytest.mark.req("W59", "W63")
def test_who_awaits_waits_and_opens_nothing_more(world: World) -> None:
    """Each call to await runs in a thread of its own: what a claim found counts for all of them."""

    async def waits() -> list[bool]:
        async with aio.connect("memory:", work=world.place) as s:
            work = await s.work(declaration(poll_s=600))
            cursor = work.cursor()
            for _ in range(50):  # until what was told before it listened has been looked at
                await cursor.claim()
                if not await work.wait(0.2):
                    break
            before = files()
            found = [await work.wait(0.02) for _ in range(10)]
            assert files() <= before
            return found

    def files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    began = time.monotonic()
    assert asyncio.run(waits()) == [False] * 10
    assert time.monotonic() - began > 0.2


@pytest.mark.req("W59", "W63")
def test_one_thread_claims_and_another_waits(world: World) -> None:
    work, other = world.real(poll_s=600.0), world.real(poll_s=600.0)
    cursor, looks, found = work.cursor("w"), list[float](), list[str]()
    again, claimed, ended = Event(), Event(), Event()

    def wait() -> None:
        while not ended.is_set():
            if work.wait(1.0):
                looks.append(time.monotonic())
                again.set()
                claimed.wait(10)
                claimed.clear()

    thread = Thread(target=wait)
    thread.start()
    deadline, added = time.monotonic() + 20, 0.0
    while not found and time.monotonic() < deadline:
        if again.wait(0.5):
            again.clear()
            found = pages(cursor.claim(5))
            claimed.set()
        elif not added:
            added = time.monotonic()
            other.add(**one("a"))
    ended.set()
    claimed.set()
    thread.join(10)
    assert looks[-1] >= added
    assert len(looks) < 12, "it waited until there was something"


@pytest.mark.req("W61", "RW12")
@pytest.mark.parametrize("gone", ["killed", "pooler"])
def test_who_can_hear_nothing_any_more_polls(postgres_world: World, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    """The connection that listens is gone, or was never one to the server itself."""
    if gone == "pooler":
        monkeypatch.setattr(Connection, "is_direct", lambda _: False)
    work = postgres_world.real()
    cursor = work.cursor("v")
    while cursor.claim(1).claims == [] and work.wait(0.5) and gone == "killed":
        pass
    if gone == "killed":
        with psycopg.connect(postgres_world.place.partition("&schema=")[0], autocommit=True) as admin:
            channel = work._database.channel(f"work_{work._known.number}")  # type: ignore[attr-defined]
            ended = admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND query LIKE %s",
                (f"%{channel}%",),
            ).fetchall()
            assert ended == [(True,)]
    looks, until = 0, time.monotonic() + 1.5
    while time.monotonic() < until:
        assert cursor.claim(1).claims == []
        looks += 1
        work.wait(0.5)
    assert looks < 10, "poll_s is 5"


@pytest.mark.req("W57", "W62")
def test_a_process_that_exits_tells_what_it_added(postgres_world: World) -> None:
    work = postgres_world.real(poll_s=600.0)
    process = child(postgres_world, "exit")
    try:
        assert said(process) == "began"
        waiter = Waiter(work)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(20) == 0
        assert waiter.end(5) == ["a"]
    finally:
        over(process)


@pytest.mark.req("W36", "W58", "W60")
def test_the_exact_date_wakes(world: World) -> None:
    work, other = world.real(poll_s=600.0), world.real(poll_s=600.0)
    waiter = Waiter(work)
    date = other._database.now_us() + 700_000
    other.add(**one("later", process_date=date + 60 * 10**6))
    other.add(**one("a", process_date=date))
    assert waiter.end() == ["a"]
    entry = work.get({"page": "a"})
    assert entry is not None
    assert 0 <= entry.claimed_date - date < 500_000


@pytest.mark.req("W59", "W60", "W62")
def test_an_idle_cursor_asks_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = world.real(poll_s=600.0), world.real(poll_s=600.0)
    other.add(**one("a"))
    (claim,) = other.cursor("w").claim(1).claims
    cursor = work.cursor("v")
    settled = (cursor.claim(1).claims == [] and not work.wait(0.5) for _ in range(50))
    assert any(settled), "what was told before it listened has been looked at"
    calls: list[str] = []

    def called(*_: Any) -> Any:
        calls.append("called")
        raise AssertionError

    monkeypatch.setattr(work._database, "write", called)
    monkeypatch.setattr(work._database, "read", called)
    beats = Thread(target=lambda: other.beat([claim]))
    beats.start()
    assert not work.wait(0.6), "heartbeats wake nobody"
    beats.join(5)
    assert calls == []


@pytest.mark.req("W61", "RW12")
def test_who_hears_nothing_polls(world: World) -> None:
    work, other = world.real(poll_s=0.3, wake="poll"), world.real(poll_s=0.3, wake="poll")
    cursor = work.cursor("v")
    assert cursor.claim(1).claims == []
    began = time.monotonic()
    other.add(**one("a"))
    assert work.wait(10.0)
    assert pages(cursor.claim(1)) == ["a"]
    assert time.monotonic() - began < 5
    assert cursor.claim(1).claims == []
    assert work.wait(0.05) is False


@pytest.mark.req("W61", "RW12")
def test_a_lost_notification_costs_a_poll(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = world.real(poll_s=0.5), world.real(poll_s=0.5)
    monkeypatch.setattr(other._waking, "tell", lambda *_, **__: None)
    waiter = Waiter(work)
    began = time.monotonic()
    other.add(**one("a"))
    assert waiter.end() == ["a"]
    assert waiter.at - began < 5


@pytest.mark.req("W47", "W58", "W64")
def test_expiry_wakes_for_the_tick(world: World) -> None:
    """An entry that expires the moment it is due is handed to nobody; who waits removes it, without being told to."""
    work = world.real(poll_s=600.0)
    date = work._database.now_us() + 500_000
    work.add(**one("a", expiration_date=date, process_date=date))
    assert sum(table.entries for table in work.tables()) == 1
    cursor = work.cursor("v")
    began = time.monotonic()
    while sum(table.entries for table in work.tables()):
        assert time.monotonic() - began < 10
        assert cursor.claim(1).claims == []
        work.wait(1.0)
    assert time.monotonic() - began < 10, "woken by the date"


@pytest.mark.req("W57", "W62")
def test_a_storm_of_adds_tells_seldom(postgres_world: World) -> None:
    work, other = postgres_world.real(poll_s=600.0), postgres_world.real(poll_s=600.0)
    told = 0
    with work._database.watch(f"work_{work._known.number}") as watch:
        seen = watch.seen()
        watch.wait(seen, 0.2)
        began = time.monotonic()
        for number in range(100):
            other.add(**one(f"p{number}"))
        spent_s = time.monotonic() - began
        seen = watch.seen()
        while watch.wait(seen, 0.3):
            told += 1
            seen = watch.seen()
    assert 1 <= told <= spent_s / 0.01 + 2


@pytest.mark.req("W62", "RW12")
def test_nothing_is_told_into_a_full_queue(postgres_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's queue is over half full: adds go on, and who waits finds them by looking."""
    work, other = postgres_world.real(poll_s=0.5), postgres_world.real(poll_s=0.5)
    told: list[str] = []
    monkeypatch.setattr(Transaction, "notify", lambda _, channel: told.append(channel))
    with monkeypatch.context() as full:
        full.setattr(waking, "QUEUE_FULL", -1.0)
        waiter = Waiter(work)
        other.add(**one("a"))
        assert (waiter.end(), told) == (["a"], [])
    other.add(**one("b"))
    until = time.monotonic() + 10
    while not told:
        assert time.monotonic() < until
        time.sleep(0.01)
