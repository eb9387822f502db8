"""Schedules between two statements: threads, processes that stop or die, clocks that lie."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest

from strandline.clock import now_us
from strandline.errors import LeaseLost, Unavailable
from strandline.work import tables
from strandline.work.claims import Claim
from strandline.work.journal import WorkJournal
from tests.work.child import work_until_killed
from tests.work.worlds import World, declaration, one, pages

ROOT = Path(__file__).parents[2]


def child(world: World, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.work.child", world.place, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def over(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@pytest.mark.req("W21", "W34", "RW7")
def test_many_add_one_new_key(world: World) -> None:
    journals = [world.real() for _ in range(4)]
    start = Barrier(20)

    def add(number: int) -> str:
        start.wait()
        return journals[number % 4].add(**one("a", str(number))).outcome

    with ThreadPoolExecutor(20) as pool:
        outcomes = sorted(pool.map(add, range(20)))
    assert outcomes == ["inserted"] + ["merged"] * 19
    assert len(journals[0].entries()) == 1


@pytest.mark.req("W80")
@pytest.mark.parametrize("merge", ["key", "none"])
def test_many_add_under_one_id(world: World, merge: str) -> None:
    """Whatever their keys, and one or many at a time: one of them is stored."""
    journals = [world.real(merge=merge) for _ in range(4)]
    start = Barrier(12)

    def add(number: int) -> list[str]:
        start.wait()
        adds = [one(f"p{number} {n}", id=n) for n in (("x", "y") if number % 2 else ("y", "x"))]
        if number == 5:
            adds += [one(f"q{n}", id=f"q{n}") for n in range(150)]
        return [added.outcome for added in journals[number % 4].add_many(adds)[:2]]

    with ThreadPoolExecutor(12) as pool:
        outcomes = sorted(outcome for found in pool.map(add, range(12)) for outcome in found)
    assert outcomes == ["inserted"] * 2 + ["repeated"] * 22
    assert len(journals[0].entries()) == 152


@pytest.mark.req("W34", "W79")
def test_adders_that_loop_keep_no_process_waiting(sqlite_world: World) -> None:
    """Three processes add without a pause, a fourth claims: each gets its share of the write lock."""
    work = sqlite_world.real()
    cursor, claimed = work.cursor("w"), 0
    adders = [child(sqlite_world, "loop", "1.5") for _ in range(3)]
    try:
        assert [said(adder) for adder in adders] == ["ready"] * 3
        for adder in adders:
            assert adder.stdin is not None
            adder.stdin.write("\n")
            adder.stdin.flush()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            for claim in cursor.claim(1).claims:
                claim.done()
                claimed += 1
        shares = [2 * claimed, *(int(said(adder)) for adder in adders)]
    finally:
        for adder in adders:
            over(adder)
    assert 8 * min(shares) > max(shares)


@pytest.mark.req("W31")
def test_batches_do_not_deadlock(world: World) -> None:
    journals = [world.real() for _ in range(3)]
    keys = [f"p{number}" for number in range(150)]

    def add(number: int) -> None:
        order = random.Random(number).sample(keys, 60 if number % 3 else 150)
        journals[number % 3].add_many([one(key, str(number)) for key in order])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(24)))
    assert len(journals[0].entries()) == 150


@pytest.mark.req("W31", "W73")
@pytest.mark.parametrize("end", ["done", "release", "drop"])
def test_an_add_and_the_end_of_a_claim_lock_in_one_order(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """An add of a key that has one entry running and one behind comes between the two locks that the end takes."""
    work, other = postgres_world.real(), postgres_world.real()
    work.add(**one("a", "1"))
    (claim,) = work.cursor("w").claim(1).claims
    work.add(**one("a", "2"))
    behind, lock_adds = work._tables._behind, other._tables._lock_adds
    tries, outcomes = list[str](), list[str]()

    def add() -> None:
        outcomes.append(other.add(**one("a", "3")).outcome)

    def begun(*given: Any, **more: Any) -> None:
        tries.append("add")
        lock_adds(*given, **more)

    def then(*given: Any) -> Any:
        tries.append("end")
        if len(tries) == 1:
            thread.start()
            deadline = time.monotonic() + 20
            while admin.execute("SELECT FROM pg_locks WHERE NOT granted").fetchone() is None:
                assert time.monotonic() < deadline
        return behind(*given)

    thread = Thread(target=add)
    monkeypatch.setattr(work._tables, "_behind", then)
    monkeypatch.setattr(other._tables, "_lock_adds", begun)
    with psycopg.connect(postgres_world.place.partition("&schema=")[0], autocommit=True) as admin:
        match end:
            case "done":
                claim.done()
            case "release":
                claim.release()
            case "drop":
                work.drop(claim.entry.id)
    thread.join(20)
    assert tries == ["end", "add"], "no deadlock, so nothing is tried again"
    assert outcomes == ["merged"]
    assert [claim.entry.data["url"] for claim in work.cursor("v").claim(9).claims] == ["3"]


@pytest.mark.req("W18", "W34", "RW2", "RW3")
def test_each_is_handed_out_once(world: World) -> None:
    work = world.real(table_rows_max=500)
    work.add_many([one(f"p{number}") for number in range(1000)])

    def drain(number: int) -> list[tuple[int, int]]:
        journal = work if number % 2 else world.real(table_rows_max=500)
        cursor = journal.cursor(f"w{number}")
        found: list[tuple[int, int]] = []
        done: list[Claim] = []
        while claims := cursor.claim(7, done=done).claims:
            found += [(claim.entry.id, claim.fence) for claim in claims]
            done = claims
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [pair for part in pool.map(drain, range(4)) for pair in part]
    assert len(found) == len({id_ for id_, _ in found}) == 1000
    assert len({fence for _, fence in found}) == 1000
    assert work.entries() == []


@pytest.mark.req("W49", "W53", "RW1", "RW2")
def test_adders_while_tables_close(postgres_world: World) -> None:
    """Eight adders and ten closings at the same time: each entry is handed out once."""
    journals = [postgres_world.real(table_rows_max=10**6) for _ in range(4)]

    def add(number: int) -> list[int]:
        work = journals[number % 4]
        return [work.add(**one(f"p{number}-{n}")).id for n in range(15)]

    with ThreadPoolExecutor(9) as pool:
        adding = [pool.submit(add, number) for number in range(8)]
        for _ in range(10):
            journals[0]._upkeep.step(journals[0].settings, close=True)
        ids = [id_ for future in adding for id_ in future.result()]
    assert len(journals[0].tables()) > 3
    found = [claim.entry.id for _ in range(3) for claim in journals[1].cursor("w").claim(100).claims]
    assert sorted(found) == sorted(ids)


@pytest.mark.req("W34")
def test_a_claim_that_is_not_committed_delays_no_other(postgres_world: World) -> None:
    work = postgres_world.real()
    work.add_many([one("a"), one("b")])
    with work._database.write() as tx:
        look = work._tables.look(tx)
        (row,) = work._tables.claim(tx, look, work.settings, "slow", 1, 0, 200)
        began = time.monotonic()
        assert pages(work.cursor("w").claim(5)) == ["b"]
        assert time.monotonic() - began < 2
    assert row.owner == "slow"


@pytest.mark.req("W23", "RW7")
def test_an_add_waits_for_a_claim_of_its_entry(postgres_world: World) -> None:
    """Between the add's look and its merge somebody claims the entry: its data must not be lost."""
    work = postgres_world.real()
    work.add(**one("a", "old"))
    outcomes: list[str] = []
    with work._database.write() as tx:
        look = work._tables.look(tx)
        (row,) = work._tables.claim(tx, look, work.settings, "w", 1, 0, 200)
        thread = Thread(target=lambda: outcomes.append(work.add(**one("a", "new")).outcome))
        thread.start()
        thread.join(0.2)
        assert outcomes == []
    thread.join(5)
    assert outcomes == ["behind"]
    work.claim_of(row.id, row.fence).done()
    (claim,) = work.cursor("w").claim(5).claims
    assert claim.entry.data["url"] == "new"


@pytest.mark.req("W38", "W42", "RW2", "RW3", "RW4")
def test_a_claimer_that_was_stopped_past_its_lease(world: World) -> None:
    work = world.real(lease_s=0.5)
    work.add(**one("a"))
    process = child(world, "claim", "0.5")
    try:
        fence = int(said(process))
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        cursor = work.cursor("w")
        while not (claims := cursor.claim(1).claims):
            assert time.monotonic() - began < 20
            work.wait(5.0)
        (claim,) = claims
        assert claim.fence > fence
        assert claim.entry.timeout_counter == 1
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert [said(process), said(process)] == ["lost", "lost"]
    finally:
        over(process)
    assert [entry.owner for entry in work.entries()] == ["w"], "the new claim is untouched"
    claim.done()


@pytest.mark.req("W35", "W58", "RW4", "RW5")
def test_kill_between_claim_and_done(world: World) -> None:
    work = world.real(lease_s=0.5, poll_s=60.0)
    work.add(**one("a"))
    process = child(world, "claim", "0.5")
    said(process)
    over(process)
    cursor = work.cursor("w")
    batch = cursor.claim(1)
    began = time.monotonic()
    while not batch.claims:
        assert work.wait(20.0), "the end of the lease wakes, not the poll"
        batch = cursor.claim(1)
    assert time.monotonic() - began < 10
    assert batch.claims[0].entry.timeout_counter == 1


@pytest.mark.req("W13", "RW6")
def test_a_clock_that_is_an_hour_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = world.real(), world.real()
    for hours in (-1, 1):
        work.add_many([one("a", priority=1), one("b")])
        with monkeypatch.context() as wrong:
            if hours == 1 or not world.is_sqlite:  # on a file this clock says what is due: an hour ago nothing was
                wrong.setattr(tables, "now_us", lambda hours=hours: now_us() + hours * 3600 * 10**6)
            (claim,) = work.cursor("w").claim(1).claims
            assert [entry.status for entry in work.entries()] == ["P", "W"]
        claim.heartbeat()
        assert pages(other.cursor("v").claim(9)) == ["b"], "no lease has ended"
        with monkeypatch.context() as wrong:
            wrong.setattr(tables, "now_us", lambda hours=hours: now_us() + hours * 3600 * 10**6)
            assert other.cursor("v").claim(9).claims == [], "nor for who has the wrong clock"
            claim.heartbeat()
        claim.done()
        for entry in other.entries():
            other.drop(entry.id)


@pytest.mark.req("W13", "RW6")
def test_another_boot_ends_all_leases(sqlite_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work = sqlite_world.real()
    work.add(**one("a"))
    (claim,) = work.cursor("w").claim(1).claims
    monkeypatch.setattr(tables, "boot_id", lambda: "another")
    monkeypatch.setattr(tables, "boot_us", lambda: 5)
    assert pages(work.cursor("v").claim(5)) == ["a"]
    with pytest.raises(LeaseLost):
        claim.heartbeat()


@pytest.mark.req("W3")
def test_two_create_at_once(world: World) -> None:
    start = Barrier(4)

    def declare(number: int) -> Any:
        start.wait()
        return world.real(declaration("thumbs" if number % 2 else "nails")).add(**one(f"p{number}")).outcome

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(declare, range(4))) == ["inserted"] * 4


@pytest.mark.req("RW1", "RW2", "RW3")
def test_killed_workers_lose_nothing(world: World, tmp_path: Path) -> None:
    """10,000 entries, and 100 workers that are killed at any moment, five at a time.

    Every entry is done, none twice; no claim begins while another is live; every fence is larger than the one before.
    """
    lease_s, count = 0.3, 10_000
    declared = declaration(lease_s=lease_s, max_timeouts=0, table_rows_max=2000)
    work = world.real(declared)
    work.add_many([one(f"p{number}") for number in range(count)])
    processes = multiprocessing.get_context("forkserver")  # each begins with the modules, and with nothing open
    processes.set_forkserver_preload(["tests.work.child"])
    chance = random.Random(1)

    def killed(number: int, after_s: float) -> list[list[str]]:
        told = tmp_path / f"worker-{number}"
        process = processes.Process(target=work_until_killed, args=(world.place, str(told), declared))
        process.start()
        while not told.exists():
            assert process.is_alive()
            time.sleep(0.002)
        time.sleep(after_s)
        assert process.is_alive()
        process.kill()
        process.join()
        return [line.split() for line in told.read_text().splitlines()]

    with ThreadPoolExecutor(5) as pool:
        delays = [chance.uniform(0.0, 0.1) for _ in range(100)]
        lines = [line for part in pool.map(killed, range(100), delays) for line in part]
    cursor = work.cursor("w")
    done: list[Claim] = []
    deadline = time.monotonic() + 60
    while work.counts()[:4] != (0, 0, 0, 0):
        assert time.monotonic() < deadline
        asked = time.monotonic()
        batch = cursor.claim(1000, done=done)
        lines += [["began", str(c.entry.id), str(c.fence), str(asked), str(time.monotonic())] for c in batch.claims]
        lines += [["done", str(c.entry.id), str(c.fence)] for c in batch.claims]
        done = batch.claims
        if not done:
            work.wait(0.2)
    ended = [line[1] for line in lines if line[0] == "done"]
    assert len(ended) == len(set(ended)), "nothing is done twice"
    began: dict[str, list[tuple[int, float, float]]] = {}
    for what, id_, token, *times in lines:
        if what == "began":
            began.setdefault(id_, []).append((int(token), float(times[0]), float(times[1])))
    assert len(began) == count
    again = 0
    for claims in began.values():
        for (fence, asked, _), (later, _, there) in pairwise(sorted(claims, key=itemgetter(2))):
            again += 1
            assert later > fence
            assert there >= asked + lease_s, "the claim before it was live"
    assert again, "some were claimed by workers that were killed before they had ended them"


@pytest.mark.req("W32", "W37")
def test_a_lost_answer_is_not_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is done, its answer is lost: the caller is told so, and decides."""
    work = world.work()
    write, calls = work._database.write, []

    @contextmanager
    def cut(**how: Any) -> Iterator[Any]:
        calls.append("write")
        with write(**how) as tx:
            yield tx
        raise Unavailable("the connection was lost", code="away", hint="look", applied="unknown")

    monkeypatch.setattr(work._database, "write", cut)
    with pytest.raises(Unavailable) as unknown:
        work.add(**one("a"))
    assert (unknown.value.applied, calls) == ("unknown", ["write"])
    with pytest.raises(Unavailable):
        work.cursor("w").claim(5)
    monkeypatch.undo()
    assert [entry.status for entry in work.entries()] == ["P"], "what was taken lapses"
    world.clock.pass_s(31)
    assert work.add(**one("a", "again")).outcome == "merged"
    assert len(work.entries()) == 1


@pytest.mark.req("RW5", "W39", "W18")
def test_many_leases_end_at_once(world: World) -> None:
    work, other = world.work(), world.work()
    work.add_many([one(f"p{number}") for number in range(1500)])
    for _ in range(2):
        work.cursor("gone").claim(1000)
    world.clock.pass_s(31)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda journal: journal.tick(), (work, other)))
    work.tick()
    counters = Counter(entry.timeout_counter for entry in work.entries(limit=1000))
    assert counters == {1: 1000}, "once, whoever has noticed it"
    found = [claim.entry.id for _ in range(2) for claim in work.cursor("w").claim(1000).claims]
    assert len(set(found)) == len(found) == 1500


@contextmanager
def no_space(work: WorkJournal) -> Iterator[None]:
    """A disk that takes nothing more: of a file by its limit of pages, of a server by what it answers."""
    with work._database.write() as tx:
        raw: Any = tx.raw
        if tx.dialect == "sqlite":
            raw.pragma("max_page_count", raw.pragma("page_count") + 1)
        else:
            schema = work._database.schema.name  # type: ignore[attr-defined]
            full = "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END"
            raw.execute(f'CREATE FUNCTION "{schema}".full() RETURNS trigger LANGUAGE plpgsql AS $${full}$$')
            on = f'"{schema}".work_thumbs_entry FOR EACH ROW EXECUTE FUNCTION "{schema}".full()'
            raw.execute(f"CREATE TRIGGER disk BEFORE INSERT ON {on}")
    yield
    with work._database.write() as tx:
        raw = tx.raw
        if tx.dialect == "sqlite":
            raw.pragma("max_page_count", 10**6)
        else:
            raw.execute(f'DROP TRIGGER disk ON "{schema}".work_thumbs_entry')


@pytest.mark.req("W32", "RW1")
def test_a_full_disk(world: World) -> None:
    """What was accepted stays, what is refused is not there, and work goes on when space is back."""
    work = world.real()
    work.add(**one("a"))
    with no_space(work):
        with pytest.raises(Unavailable) as refused:
            work.add_many([one(f"p{number}", "x" * 2000) for number in range(100)])
        assert (refused.value.code, refused.value.applied) == ("no_space", "no")
        assert [entry.key["page"] for entry in work.entries()] == ["a"]
    assert len(work.add_many([one(f"p{number}", "x" * 2000) for number in range(100)])) == 100
    assert len(work.cursor("w").claim(1000).claims) == 101
