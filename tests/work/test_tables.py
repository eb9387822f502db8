"""Short-lived tables: closed, drained, moved, emptied as a whole."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from strandline.backends.postgres.database import Transaction
from strandline.testing.faults import Crash
from strandline.work import upkeep
from strandline.work.claims import Claim
from strandline.work.journal import WorkJournal
from tests.work.test_transactions import caller
from tests.work.worlds import S, World, one


def drain(work: WorkJournal, most: int = 10**6) -> int:
    cursor, count = work.cursor("drain"), 0
    done: list[Claim] = []
    while count < most and (claims := cursor.claim(min(100, most - count), done=done).claims):
        done, count = claims, count + len(claims)
    work.done_many(done)
    return count


def states(work: WorkJournal) -> list[str]:
    return [table.state for table in work.tables()]


def slots(work: WorkJournal, *ids: int) -> set[int]:
    with work._database.read() as tx:
        return {row.slot for row in work._tables.rows(tx, ids)}


def sql(world: World, text: str) -> list[Any]:
    url, _, schema = world.place.partition("&schema=")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"'.encode())
        return connection.execute(text.encode()).fetchall()


@pytest.mark.req("W49", "W51", "W52", "W53", "RW9")
def test_closed_by_rows_drained_and_emptied(postgres_world: World) -> None:
    work = postgres_world.work(table_rows_max=100)
    for batch in range(4):
        work.add_many([one(f"p{batch}-{number}") for number in range(100)])
        work.tick()
    assert states(work).count("closed") >= 3
    full = max(table.bytes for table in work.tables())
    assert drain(work, 200) == 200
    work.tick()
    assert "empty" in states(work)
    assert drain(work) == 200
    for _ in range(3):
        work.tick()
    left = work.tables()
    assert {table.state for table in left} == {"empty", "current"}
    assert all(table.bytes < full for table in left if table.state == "empty")
    assert all(table.entries == 0 for table in left)


@pytest.mark.req("W51")
@pytest.mark.parametrize("how", ["delete", "reset", "truncate"])
def test_three_ways_to_empty(postgres_world: World, how: str) -> None:
    work = postgres_world.work(table_rows_max=50, table_empty=how)
    work.add_many([one(f"p{number}") for number in range(60)])
    work.tick()
    drain(work)
    work.tick()
    assert set(states(work)) == ({"current"} if how == "delete" else {"empty", "current"})
    work.add_many([one(f"q{number}") for number in range(60)])
    work.tick()
    assert drain(work) == 60


@pytest.mark.req("W50", "RW1", "RW3")
def test_what_is_left_is_moved_with_its_claims(postgres_world: World) -> None:
    work = postgres_world.work(table_rows_max=100)
    later = work.add(**one("retry"))
    work.add_many([one(f"p{number}") for number in range(99)])
    (retry,) = work.cursor("r").claim(1).claims
    retry.fail("later", delay_s=600)
    (held,) = work.cursor("h").claim(1).claims
    behind = work.add(**one(held.entry.key["page"], "behind"))
    work.tick()
    assert slots(work, later.id, held.entry.id) == {1}
    assert drain(work, 95) == 95
    for _ in range(3):
        work.tick()
    assert slots(work, later.id) == {0}, "not due for a while"
    (slot,) = slots(work, held.entry.id, behind.id)
    assert (slot, work.tables()[0].entries) != (1, 3)
    held.heartbeat()
    assert work.claim_of(held.entry.id, held.fence).entry.owner == "h"
    held.done()
    found = {claim.entry.id: claim for claim in work.cursor("w").claim(100).claims}
    assert (found[behind.id].entry.data["url"], len(found)) == ("behind", 4)
    postgres_world.clock.pass_s(601)
    again = {claim.entry.id: claim.entry.timeout_counter for claim in work.cursor("w").claim(100).claims}
    assert again[later.id] == 1


@pytest.mark.req("W50")
def test_the_ring_ends(postgres_world: World) -> None:
    work = postgres_world.work(table_rows_max=10)
    for batch in range(20):
        work.add_many([one(f"p{batch}-{number}") for number in range(12)])
        work.tick()
    assert (len(states(work)), states(work).count("current")) == (16, 1)
    assert drain(work) == 240
    for _ in range(4):
        work.tick()
    assert sorted(set(states(work))) == ["current", "empty"]


@pytest.mark.req("W53", "RW9")
def test_a_table_with_an_uncommitted_entry_is_not_emptied(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look that finds it empty and the lock an add commits into it."""
    work = postgres_world.work(table_rows_max=10)
    with caller(postgres_world) as tx:
        work.add(**one("open"), tx=tx)
        work._upkeep.step(work.settings, close=True)
        assert states(work) == ["closed", "current"]
        began = time.monotonic()
        work.tick()
        assert time.monotonic() - began < 2, "the lock is not waited for"
        assert states(work) == ["closed", "current"]
        tx.commit()
    work._upkeep._again.clear()
    with work._database.read() as reading:
        (first, *_) = work._upkeep._ledger(reading)
    work._upkeep._empty(first, work.settings)
    # The same behind a look that was made before the add: under the lock it is looked at again.
    found, before = work._database.rows, work._tables.named("left")
    monkeypatch.setattr(work._database, "rows", lambda name, *how: [(0,)] if name == before else found(name, *how))
    work._upkeep._empty(first, work.settings)
    monkeypatch.undo()
    assert [claim.entry.key["page"] for claim in work.cursor("w").claim(5).claims] == ["open"]


@pytest.mark.req("W53")
def test_a_reader_of_a_table_delays_its_emptying_alone(postgres_world: World) -> None:
    work = postgres_world.work(table_rows_max=10)
    work.add_many([one(f"p{number}") for number in range(10)])
    work._upkeep.step(work.settings, close=True)
    with caller(postgres_world) as reader:
        schema = postgres_world.place.partition("&schema=")[2]
        reader.execute(f'SELECT count(*) FROM "{schema}".work_thumbs_entry_1'.encode())
        drain(work)
        slowest = 0.0
        for number in range(5):
            thread = Thread(target=work.tick)
            thread.start()
            began = time.monotonic()
            work.add(**one(f"q{number}"))
            slowest = max(slowest, time.monotonic() - began)
            thread.join()
        assert slowest < 1
        assert states(work)[0] == "closed"
    work._upkeep._again.clear()
    work.tick()
    assert states(work)[0] == "empty"


@pytest.mark.req("W52")
def test_a_held_snapshot_lets_nothing_grow(postgres_world: World) -> None:
    work = postgres_world.work(table_rows_max=100)
    with caller(postgres_world) as held:
        held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        held.execute("SELECT txid_current()")
        sizes = []
        for batch in range(8):
            work.add_many([one(f"p{batch}-{number}") for number in range(100)])
            drain(work)
            work.tick()
            sizes.append(sum(table.bytes for table in work.tables()))
    assert max(sizes[4:]) <= 2 * max(sizes[:4])


@pytest.mark.req("W54", "W55")
def test_what_is_due_later_pins_no_table(postgres_world: World) -> None:
    work = postgres_world.work(table_rows_max=20)
    date = postgres_world.clock.now + 3600 * S
    work.add_many([one(f"p{number}", process_date=date) for number in range(30)])
    work.tick()
    work.tick()
    assert [table.entries for table in work.tables()] == [0] * len(work.tables())
    before = sql(postgres_world, "SELECT count(*) FROM work_thumbs_entry_0")
    assert before == [(30,)]
    work.add(**one("p1", "merged", process_date=date))
    postgres_world.clock.now = date
    assert drain(work) == 30
    assert sql(postgres_world, "SELECT count(*) FROM work_thumbs_entry") == [(0,)]


SHARED = ("work_set", "work_table", "work_journal", "work_version")
"""What is there once for a journal, not for each entry."""


def versions(world: World, *tables: str) -> list[Any]:
    """Which version of each row there is: any UPDATE, also one that changes nothing, makes another."""
    return [sql(world, f"SELECT ctid::text, xmin::text FROM {table} ORDER BY 1") for table in tables]


@pytest.mark.req("W55", "W49")
def test_an_idle_journal_writes_nothing(world: World) -> None:
    work = world.work()
    work.add(**one("a"))
    drain(work)
    for _ in range(2):
        world.clock.pass_s(3700)
        work.tick()

    def written() -> list[Any]:
        if world.is_sqlite:
            return [Path(world.place.removeprefix("sqlite:") + "-wal").read_bytes()]
        parts = [f"work_thumbs_{part}" for part in ("entry", "order", "state")]
        return versions(world, *SHARED, *parts) + sql(world, "SELECT last_value FROM work_thumbs_number")

    before, tables = written(), work.tables()
    world.clock.pass_s(7300)
    work.cursor("w").claim(5)
    work.tick()
    work.counts()
    assert (written(), work.tables()) == (before, tables)
    work.add(**one("b"))
    assert written() != before, "what is looked at shows what is written"


@pytest.mark.req("W55")
def test_no_shared_row_is_written_for_an_entry(postgres_world: World) -> None:
    work = postgres_world.work(max_timeouts=2)
    before = versions(postgres_world, *SHARED)
    work.add_many([one("a"), one("b"), one("c", process_date=postgres_world.clock.now + 60 * S)])
    work.add(**one("a", "merged"))
    first, second = work.cursor("w").claim(5).claims
    work.add(**one("a", "behind"))
    first.heartbeat()
    first.done()
    second.fail("again", delay_s=0)
    work.cursor("w").claim(5, done=work.cursor("v").claim(1).claims)
    postgres_world.clock.pass_s(31)
    work.tick()
    assert versions(postgres_world, *SHARED) == before
    work.pause()
    assert versions(postgres_world, *SHARED) != before, "what is looked at shows what is written"


@pytest.mark.req("W56")
def test_the_indexes_of_a_table(postgres_world: World) -> None:
    postgres_world.work()
    found = sql(
        postgres_world,
        "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema AND tablename LIKE 'work_thumbs_%_1'",
    )
    texts = sorted(text.partition("USING btree ")[2] for (text,) in found)
    assert texts == [
        "(id, slot)",
        "(id, slot)",
        "(journal, expiration_date) WHERE (expiration_date > 0)",
        "(journal, hash)",
        "(journal, look_at) WHERE (status = 'P'::text)",
        "(journal, place, priority, date, id, slot)",
    ]


@pytest.mark.req("W51", "W52")
def test_a_file_gives_its_space_back(sqlite_world: World) -> None:
    work = sqlite_world.work(table_rows_max=100)
    floor = work.tables()[0].bytes
    work.add_many([one(f"p{number}", "x" * 2000) for number in range(1000)])
    assert work.tables()[0].bytes > 20 * floor
    drain(work)
    work.tick()
    assert work.tables()[0].bytes <= 2 * floor
    database = work._database
    assert database.rows("free_pages") == [(0,)]


@pytest.mark.req("W50", "W53", "RW1", "RW2", "RW9")
def test_a_kill_before_every_statement_of_upkeep(postgres_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing, moving and emptying die before each of their statements in turn: nothing is lost, no claim ends."""
    monkeypatch.setattr(upkeep, "TABLES_MAX", 2)
    work = postgres_world.work(table_rows_max=20)
    work._ticked = time.monotonic() + 3600  # no upkeep but what is called for here
    left: set[int] = set()
    seen: set[str] = set()
    done, point, moved = False, 0, 0
    while not done:
        drained = work.add_many([one(f"p{point}-{number}") for number in range(40)])
        left |= {added.id for added in drained}
        claims = work.cursor("w").claim(39).claims
        left -= {claim.entry.id for claim in claims}
        work.done_many(claims)
        (held,) = work.cursor("h").claim(1).claims
        behind = work.add(**one(held.entry.key["page"], "behind"))
        left |= {work.add(**one(f"l{point}", process_date=postgres_world.clock.now + 3600 * S)).id, behind.id}
        before = slots(work, *left)
        calls = [0]

        def dying(real: Any, calls: list[int] = calls, point: int = point) -> Any:
            def call(tx: Any, *given: Any) -> Any:
                calls[0] += 1
                if calls[0] > point:
                    raise Crash
                return real(tx, *given)

            return call

        with monkeypatch.context() as killed:
            for name in ("rows", "execute"):
                killed.setattr(Transaction, name, dying(getattr(Transaction, name)))
            try:
                work._upkeep.step(work.settings)
                done = True
            except Crash:
                point += 1
        moved += slots(work, *left) != before
        seen |= set(states(work))
        assert {entry.id for entry in work.entries()} == left
        assert [entry.id for entry in work.entries(status="P")] == [held.entry.id]
        held.heartbeat()
        held.done()
        left.remove(held.entry.id)
    assert (point > 15, moved > 1, seen) == (True, True, {"current", "closed", "empty"})
    postgres_world.clock.pass_s(3601)
    found = [claim.entry.id for _ in range(10) for claim in work.cursor("w").claim(100).claims]
    assert sorted(found) == sorted(left)
