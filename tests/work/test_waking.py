"""When who waits is woken, and when it is not."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Any

import pytest

from strandline.backends.postgres.database import Transaction
from strandline.work import waking
from strandline.work.journal import Cursor, WorkJournal
from tests.work.worlds import World, one, pages


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

    def _run(self) -> None:
        deadline = time.monotonic() + 20
        while not self.found and time.monotonic() < deadline:
            batch = self._cursor.claim(10)
            self.looks += 1
            self.found += pages(batch)
            self.at = time.monotonic()
            if not self.found:
                if self.looks == 2:  # the first wait only begins to listen
                    self.waits.set()
                self._journal.wait(10.0)
        self.waits.set()

    def end(self) -> list[str]:
        self._thread.join(25)
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
        assert waiter.end() != []
    for entry in work.entries():
        work.drop(entry.id)
    other.add(**one("d", "1"))
    (claim,) = other.cursor("w").claim(1).claims
    other.add(**one("d", "2"))
    waiter = Waiter(work)
    claim.done()
    assert waiter.end() == ["d"], "the end of an entry with one behind it"


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
