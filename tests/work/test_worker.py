"""Workers: handlers by journal, heartbeats, graceful stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any

import psycopg
import pytest

import strandline
from strandline.errors import InvalidInput, Unavailable
from strandline.work.claims import Claim
from strandline.work.journal import WorkJournal
from strandline.work.worker import Worker
from tests.acceptance.cli_call import COMMAND
from tests.work.test_races import child, over, said
from tests.work.worlds import World, declaration, one

ROOT = Path(__file__).parents[2]


@contextmanager
def connected(world: World, **settings: Any) -> Iterator[strandline.Strandline]:
    """A connection whose work journals are in the world."""
    with strandline.connect("memory:", work=world.place, **settings) as s:
        yield s


@contextmanager
def running(worker: Worker) -> Iterator[Thread]:
    thread = Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()


def until(condition: Any, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.req("W75")
def test_a_worker_does_all_and_tries_again(world: World) -> None:
    with connected(world) as s:
        work = s.work(declaration(retry_delay_s=0.01))
        seen: list[str] = []

        def handle(claim: Claim) -> None:
            page = claim.entry.key["page"]
            seen.append(page)
            if (page in ("p3", "bad") and seen.count(page) < 2) or page == "bad":
                raise ValueError(f"cannot do {page}")

        work.add_many([one(f"p{number}") for number in range(50)] + [one("bad")])
        with running(Worker(s, {"thumbs": handle}, concurrency=4)):
            until(lambda: work.counts()[:5] == (0, 0, 0, 0, 1))
            work.add(**one("late"))
            until(lambda: "late" in seen and work.counts().running == 0)
        (letter,) = work.dead()
        assert letter.reason == "failed: ValueError: cannot do bad"
        assert (seen.count("bad"), seen.count("p3"), len(set(seen))) == (3, 2, 52)


@pytest.mark.req("W75")
def test_heartbeats_keep_what_takes_long_and_not_what_hangs(world: World) -> None:
    with connected(world) as s:
        work = s.work(declaration(lease_s=0.4))
        other = world.real(lease_s=0.4)
        go, lost = Event(), Event()

        def handle(claim: Claim) -> None:
            if claim.entry.key["page"] == "hangs":
                if claim.lost.wait(10):
                    lost.set()
            else:
                go.wait(10)

        work.add(**one("long"))
        with running(Worker(s, {"thumbs": handle}, concurrency=2, max_run_s=0.8)):
            until(lambda: work.counts().running == 1)
            until(lambda: (held := other.entries()[0]).start_date > held.claimed_date + 500_000)
            assert other.cursor("v").claim(5).claims == []
            assert other.entries()[0].timeout_counter == 0
            go.set()
            until(lambda: work.counts()[:4] == (0, 0, 0, 0))
            work.add(**one("hangs"))
            assert lost.wait(10)


@pytest.mark.req("W75")
@pytest.mark.parametrize("call", ["claim", "done_many"])
def test_done_is_said_again_after_an_error(world: World, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The database is away for a moment when the worker says done: nothing is handed out a second time."""
    with connected(world) as s:
        work = s.work(declaration(poll_s=0.2))
        seen: list[str] = []
        worker = Worker(s, {"thumbs": lambda claim: seen.append(claim.entry.key["page"])})
        journal = worker._lanes[0].journal
        asked, failures = getattr(journal, call), [1]

        def failing(*given: Any, **more: Any) -> Any:
            if failures and (given[2] if call == "claim" else given[0]):
                failures.pop()
                raise Unavailable("the server is away", code="away", hint="wait")
            return asked(*given, **more)

        monkeypatch.setattr(journal, call, failing)
        with running(worker):
            number = 0
            while failures:  # which call says done depends on who is quicker
                work.add_many([one(f"p{number}-{n}") for n in range(5)])
                number += 1
                time.sleep(0.02)
            until(lambda: work.counts()[:4] == (0, 0, 0, 0))
        assert len(seen) == len(set(seen)) == 5 * number


@pytest.mark.req("W19", "W75")
def test_how_far_a_worker_claims_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(world) as s:
        work = s.work(declaration())
        work.add_many([one(f"p{number}") for number in range(20)] + [one("slow", priority=200)])
        go = Event()
        worker = Worker(s, {"thumbs": lambda _: go.wait(10)}, concurrency=2)
        journal = worker._lanes[0].journal
        claim, held = journal.claim, list[tuple[int, bool]]()

        def noted(*given: Any, **more: Any) -> Any:
            """What it holds after each claim, and whether a slow entry is among it."""
            batch = claim(*given, **more)
            running = work.entries(status="P")
            held.append((len(running), any(entry.priority == 200 for entry in running)))
            return batch

        monkeypatch.setattr(journal, "claim", noted)
        with running(worker):
            until(lambda: work.counts().running >= 4)
            go.set()
            until(lambda: work.counts()[:4] == (0, 0, 0, 0))
        assert max(count for count, _ in held) == 4
        assert max(count for count, slow in held if slow) <= 2, "a slow one only where a handler has nothing to do"


@pytest.mark.req("W75")
def test_a_claim_that_is_lost_in_the_queue_gives_its_place_back(world: World) -> None:
    """A claim that waits for a handler is lost, as by a drop or an outage: slow entries and other journals go on."""
    with connected(world) as s:
        work, other = s.work(declaration(lease_s=0.4)), s.work(declaration("nails"))
        began, go = Event(), Event()
        seen: list[str] = []

        def handle(claim: Claim) -> None:
            seen.append(claim.entry.key["page"])
            began.set()
            go.wait(20)

        worker = Worker(s, {"thumbs": handle, "nails": handle})
        work.add_many([one("a"), one("b")])
        with running(worker):
            assert began.wait(20)
            until(lambda: work.counts().running == 2)
            work.drop(next(entry.id for entry in work.entries() if entry.key["page"] != seen[0]))
            until(lambda: any(claim.is_lost for lane in worker._lanes for claim in lane.held))
            go.set()
            work.add(**one("slow", priority=200))
            other.add_many([one("c"), one("d", priority=200)])
            until(lambda: len(seen) == 4)
        assert sorted(seen[1:]) == ["c", "d", "slow"]


def stop_between_transactions(world: World, work: WorkJournal, process: subprocess.Popen[str]) -> None:
    """SIGSTOP a process that holds no lock of the database then."""
    if world.is_sqlite:
        with work._database.write():
            process.send_signal(signal.SIGSTOP)
            until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        return
    others = "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state "
    with psycopg.connect(world.place.partition("&schema=")[0], autocommit=True) as admin:
        for _ in range(100):
            process.send_signal(signal.SIGSTOP)
            until(lambda: admin.execute(others + "= 'active'").fetchone() is None)
            if admin.execute(others + "LIKE 'idle in%'").fetchone() is None:
                return
            process.send_signal(signal.SIGCONT)
    raise AssertionError("it is always in a transaction")


@pytest.mark.req("W75", "RW4")
def test_a_worker_that_was_stopped_past_its_leases_goes_on_with_all(world: World) -> None:
    """One entry runs, one is queued, and SIGSTOP outlasts their leases: slow entries are handed out all the same."""
    work = world.real(declaration(lease_s=0.4))
    process = child(world, "worker")
    try:
        work.add_many([one("first", priority=1), one("queued")])
        assert said(process) == "first"
        until(lambda: work.counts().running == 2)
        stop_between_transactions(world, work, process)
        cursor, done = work.cursor("v"), 0
        while done < 2:
            for claim in cursor.claim(2).claims:
                claim.done()
                done += 1
            work.wait(1.0)
        process.send_signal(signal.SIGCONT)
        work.add(**one("slow", priority=200))
        assert said(process) == "slow"
    finally:
        over(process)


@pytest.mark.req("W75")
def test_a_worker_holds_no_more_over_all_its_journals(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both journals have work at the same moment, and each would fill the worker alone."""
    with connected(world) as s:
        journals = [s.work(declaration(name)) for name in ("thumbs", "nails")]
        for journal in journals:
            journal.add_many([one(f"p{number}") for number in range(10)])
        go, together = Event(), Barrier(2)
        worker = Worker(s, dict.fromkeys(("thumbs", "nails"), lambda _: go.wait(20)), concurrency=2)

        def claim(asked: Any, *given: Any, **more: Any) -> Any:
            with suppress(BrokenBarrierError):
                together.wait(0.2)
            return asked(*given, **more)

        for lane in worker._lanes:
            monkeypatch.setattr(lane.journal, "claim", partial(claim, lane.journal.claim))

        def held() -> int:
            return sum(journal.counts().running for journal in journals)

        with running(worker):
            until(lambda: held() >= 4)
            until_s = time.monotonic() + 0.4
            while time.monotonic() < until_s:
                assert held() == 4
            go.set()
            until(lambda: sum(sum(journal.counts()[:4]) for journal in journals) == 0)


@pytest.mark.req("W5", "W75")
def test_a_longer_lease_is_declared_while_a_handler_runs(world: World) -> None:
    """A running claim keeps its lease, so its heartbeats go on as that asks for."""
    with connected(world) as s:
        work = s.work(declaration(lease_s=0.6))
        began, go = Event(), Event()

        def handle(_: Claim) -> None:
            began.set()
            go.wait(20)

        work.add(**one("a"))
        with running(Worker(s, {"thumbs": handle})):
            assert began.wait(20)
            world.real(declaration(lease_s=600))
            until_s = time.monotonic() + 1.5
            while time.monotonic() < until_s:
                assert [entry.timeout_counter for entry in work.entries()] == [0], "its lease ended"
                time.sleep(0.05)
            go.set()
            until(lambda: work.counts()[:4] == (0, 0, 0, 0))


@pytest.mark.req("W76")
def test_stopping_releases_what_nobody_began(world: World) -> None:
    with connected(world, shutdown_grace_s=0.3) as s:
        work = s.work(declaration())
        work.add_many([one(f"p{number}") for number in range(10)])
        lost: list[bool] = []
        began = Event()

        def handle(claim: Claim) -> None:
            began.set()
            lost.append(claim.lost.wait(10))

        with running(Worker(s, {"thumbs": handle}, concurrency=1)):
            assert began.wait(10)
        until(lambda: lost)
        assert lost[0]
        counts = work.counts()
        assert (counts.due, counts.running) == (10, 0)
        assert {entry.timeout_counter for entry in work.entries()} == {0}


@pytest.mark.req("W76", "W78")
def test_sigterm_ends_a_worker_in_order(world: World, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import pathlib, time\n"
        "def thumb(claim):\n"
        "    print('began', flush=True)\n"
        "    time.sleep(0.5)\n"
        "    pathlib.Path('done').touch()\n"
        "handlers = {'thumbs': thumb}\n"
    )
    work = world.real()
    work.add(**one("a"))
    log = f"sqlite:{tmp_path / 'log.db'}"
    strandline.connect(log=log, store=f"sqlite:{tmp_path / 'store.db'}").close()
    place = ["--log", log, "--store", f"sqlite:{tmp_path / 'store.db'}", "--work", world.place]
    process = subprocess.Popen(
        [*COMMAND, "work", "run", "shop:handlers", *place],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert "working on thumbs" in process.stdout.readline()
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert (tmp_path / "done").exists()
    assert work.entries() == []


@pytest.mark.req("W75")
def test_what_a_worker_refuses(world: World) -> None:
    async def later(claim: Claim) -> None: ...

    def steps(claim: Claim) -> Iterator[int]:
        yield 1

    with connected(world) as s:
        s.work(declaration())
        cases: list[tuple[Any, dict[str, Any], str]] = [
            ({}, {}, "handlers: not a mapping, or empty"),
            ([print], {}, "handlers: not a mapping, or empty"),
            ({"thumbs": 5}, {}, "handlers['thumbs']: cannot be called"),
            ({"thumbs": lambda: None}, {}, "handlers['thumbs']: takes ()"),
            ({"thumbs": lambda claim, more: None}, {}, "handlers['thumbs']: takes (claim, more)"),
            ({"thumbs": later}, {}, "handlers['thumbs']: is async"),
            ({"thumbs": partial(later)}, {}, "handlers['thumbs']: is async; allowed a plain function: it is called in"),
            ({"thumbs": steps}, {}, "handlers['thumbs']: has a yield"),
            ({"thumbs": print}, {"concurrency": 0}, "concurrency: out of range"),
        ]
        for handlers, more, text in cases:
            with pytest.raises(InvalidInput) as refused:
                Worker(s, handlers, **more)
            assert refused.value.message.startswith(text)
        with pytest.raises(strandline.NotFound):
            Worker(s, {"nails": print})
    with pytest.raises(InvalidInput, match="no connection"):
        Worker("sqlite:orders", {"thumbs": print})  # type: ignore[arg-type]


@pytest.mark.req("W75")
def test_a_handler_that_ends_its_thread_or_did_not_run_has_failed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """`sys.exit` in a handler keeps no entry running for ever; one that returns something to run has done nothing."""

    async def later() -> None: ...

    def handle(claim: Claim) -> Any:
        match claim.entry.key["page"]:
            case "exits":
                sys.exit(3)
            case "awaits":
                return later()
            case "yields":
                return (n for n in [1])
        return None

    with connected(world) as s:
        work = s.work(declaration(retry_delay_s=0.01, lease_s=30))
        work.add_many([one("exits"), one("awaits"), one("yields"), one("good")])
        with running(Worker(s, {"thumbs": handle})):
            until(lambda: work.counts()[:5] == (0, 0, 0, 0, 3))
        assert any(f"failed: SystemExit: 3 at {__file__}:" in record.getMessage() for record in caplog.records)
        assert {(letter.key or {})["page"]: letter.reason for letter in work.dead()} == {
            "exits": "failed: SystemExit: 3",
            "awaits": "failed: TypeError: the handler returned a coroutine, which nobody runs: nothing was done",
            "yields": "failed: TypeError: the handler returned a generator, which nobody runs: nothing was done",
        }


@pytest.mark.req("W3", "W75", "W76")
@pytest.mark.parametrize("when", ["before", "asleep", "busy"])
def test_a_worker_ends_with_its_connection(world: World, when: str) -> None:
    """Somebody closes the connection while the worker sleeps, or while a handler runs: `run` says so, and ends."""
    began, go, errors = Event(), Event(), list[str]()

    def handle(claim: Claim) -> None:
        began.set()
        go.wait(10)

    def run() -> None:
        try:
            worker.run()
        except InvalidInput as error:
            errors.append(error.code)

    with connected(world, shutdown_grace_s=0.2) as s:
        work = s.work(declaration())
        worker = Worker(s, {"thumbs": handle})
        if when == "before":
            s.close()
        thread = Thread(target=run, daemon=True)
        thread.start()
        if when == "busy":
            work.add(**one("a"))
            assert began.wait(10)
        elif when == "asleep":
            until(lambda: any(lane.asleep for lane in worker._lanes))
    thread.join(10)
    go.set()
    assert not thread.is_alive()
    assert errors == ["closed"]


def test_a_bug_ends_the_worker_and_is_raised(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a dispatching thread ends with, `run` does not wait for it."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with connected(world) as s:
        s.work(declaration())
        worker = Worker(s, {"thumbs": lambda claim: None})
        monkeypatch.setattr(worker._lanes[0].journal, "claim", broken)
        with pytest.raises(ZeroDivisionError):
            worker.run()
