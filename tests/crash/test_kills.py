"""kill -9 of writers and of the pipeline, again and again, under load: what was acknowledged is there, once, in order.

Writers, ledgers and checker are those of `testing.shop`. The checker shares nothing with the code it checks.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.lanes import needs_servers
from tests.pairings import pairing_of
from tests.repeats import repeats

from strandline.connect import Strandline
from strandline.demo.place import on_files, words_of
from strandline.errors import Unavailable
from strandline.pipeline.target import JournalRef
from strandline.testing import carry
from strandline.testing.shop.checker import Report, ShownEvent, check
from strandline.testing.shop.children import Child, Children
from strandline.testing.shop.ledger import Entry, by_key, load, path_of
from strandline.testing.shop.shelf import stored_events

WRITERS = 3
SHOPS = 2
REST_S = 0.5
"""Who has begun no call for so long has heard that it should not."""
SEED = int(os.environ.get("STRANDLINE_SEED", random.SystemRandom().randrange(10**6)))


def until(condition: Callable[[], object], what: str, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: it did not come to that in time (seed {SEED})"
        time.sleep(0.02)


class Shop:
    """Writers at work on one folder."""

    def __init__(
        self, folder: Path, children: Children, orders: int, rate_per_s: int, target: JournalRef | None = None
    ) -> None:
        self.folder, self.children, self.orders, self.rate_per_s = folder, children, orders, rate_per_s
        self.target = target or on_files(folder)
        self.target.connect().close()
        self.writers = [self.start(number) for number in range(WRITERS)]

    def start(self, number: int) -> Child:
        arguments = (self.folder, self.target.to_json(), SEED, number, self.orders, self.rate_per_s)
        writer = self.children.module(f"writer {number}", "strandline.testing.shop.writer", *arguments)
        writer.tell("1")
        return writer

    def ledgers(self) -> list[list[Entry]]:
        return [load(path_of(self.folder, number), number) for number in range(WRITERS)]

    def calls(self, number: int) -> int:
        return len(load(path_of(self.folder, number), number))

    def stop(self) -> None:
        """End the writers between two calls: nobody would repeat a delete or purge that a kill cut off here."""
        for writer in self.writers:
            writer.tell("0")
        until(self._rest, "the writers rest")
        for writer in self.writers:
            writer.kill()

    def _rest(self) -> bool:
        before = self.ledgers()
        time.sleep(REST_S)
        return self.ledgers() == before and all(not calls or calls[-1].answer is not None for calls in before)


def read_all(s: Strandline) -> Callable[[str], list[ShownEvent]]:
    return lambda key: [ShownEvent(e.seq_nr, e.type, e.payload, e.life) for e in s.journal.read(key)]


def assert_sound(report: Report) -> None:
    assert report.findings == [], f"seed {SEED}"
    assert report.events > 100, "it looked at something"


@pytest.mark.req("RA1", "RA2", "RA3", "RA4", "RA8", "RJ1", "RJ2")
@repeats(8, 330)
@pytest.mark.timeout(3600)
def test_writers_are_killed_again_and_again_and_nothing_is_lost(tmp_path: Path, times: int) -> None:
    chosen = random.Random(SEED)
    with Children(tmp_path) as children:
        shop = Shop(
            tmp_path, children, orders=150 * times, rate_per_s=30
        )  # so many that nobody is done before its kills
        for _ in range(times):
            for number in range(WRITERS):
                before = shop.calls(number)
                wanted = before + chosen.randrange(1, 4)
                until(lambda n=number, w=wanted: shop.calls(n) >= w, "a writer writes")  # type: ignore[misc]
                shop.writers[number].kill()
                shop.writers[number] = shop.start(number)
        shop.stop()
        entries = by_key(shop.ledgers())
        with shop.target.connect() as s:
            assert_sound(check(entries, read_all(s)))
            carry(s)
            assert_sound(check(entries, read_all(s)))
            stored = stored_events(shop.target)
            assert_sound(check(entries, lambda key: stored.get(key, [])))
    assert sum(entry.unknown for calls in entries.values() for entry in calls) > 0, "some calls were cut off"


def _offsets(s: Strandline) -> list[int]:
    return [pointer.offset for pointer in s.store.pointers()]


def _moves(s: Strandline) -> Callable[[], bool]:
    """Whether the pointers have moved since the first time that they could be seen."""
    seen: list[list[int]] = []

    def moved() -> bool:
        try:
            seen.append(_offsets(s))
        except Unavailable:  # the server is back, and this connection has not found it yet
            return False
        return seen[-1] != seen[0]

    return moved


@pytest.mark.req("RR1", "RR2", "RJ5", "RJ7", "RJ8", "RA1", "J83")
@repeats(1, 60)
@pytest.mark.timeout(1800)
def test_the_pipeline_is_killed_and_the_store_ends_as_the_log_says(tmp_path: Path, times: int) -> None:
    """Killed while it starts, while it carries, and while it is idle; each successor goes on from the pointers.

    Many are those of two shops side by side, because most of the time a JVM starts.
    """
    folders = [tmp_path / str(shop) for shop in range(min(times, SHOPS))]
    with ThreadPoolExecutor(SHOPS) as pool:
        for killed in [pool.submit(_kill_pipelines, folder, times // len(folders)) for folder in folders]:
            killed.result()


def _kill_pipelines(folder: Path, kills: int) -> None:
    folder.mkdir()
    chosen = random.Random(SEED)
    lines: list[int] = []
    with Children(folder) as children:
        shop = Shop(folder, children, orders=1000 * kills, rate_per_s=60)
        with shop.target.connect() as s:
            for kill in range(kills):
                pipeline = children.command(f"pipeline {kill}", "pipeline", "run", *words_of(shop.target))
                before = _offsets(s)
                if kill % 2:  # while it starts: no progress is waited for
                    until(lambda: s.store.lease().holder() is not None, "the pipeline takes the lease")
                else:
                    until(lambda b=before: _offsets(s) != b, "the pipeline carries")  # type: ignore[misc]
                    time.sleep(chosen.random() * 0.3)
                assert pipeline.alive
                pipeline.kill()
                lines.append(s.strandline())
            shop.stop()
            entries = by_key(shop.ledgers())
            assert_sound(check(entries, read_all(s)))
            last = children.command("pipeline last", "pipeline", "run", "--once", *words_of(shop.target))
            last.join(120)
            lines.append(s.strandline())
            assert_sound(check(entries, read_all(s)))
            assert _offsets(s) == s.log.newest()
        stored = stored_events(shop.target)
        assert_sound(check(entries, lambda key: stored.get(key, [])))
    assert lines == sorted(lines), "the strandline never goes back"
    assert lines[-1] > 0


@pytest.mark.req("RA1", "RA2", "RA3", "RA8", "RR1", "RJ1", "RJ5", "RJ7", "J62")
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("postgres-postgres", 1),
        pytest.param("postgres-postgres", 10, marks=pytest.mark.soak),
        pytest.param("kafka-cassandra", 4, marks=[pytest.mark.soak, needs_servers]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
@pytest.mark.timeout(900)
def test_servers_are_killed_under_writers_and_pipeline(
    name: str, kills: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Writers ask again, the pipeline waits, and when everything is back nothing is lost, doubled or out of order.

    Each server is killed more often by the tests of its log or store.
    """
    pairing = pairing_of(name, request, tmp_path)
    servers = [request.getfixturevalue(server) for server in dict.fromkeys(name.split("-"))]
    target = JournalRef(log=pairing.log, store=pairing.store, settings=pairing.settings)
    chosen = random.Random(SEED)
    with Children(tmp_path) as children:
        shop = Shop(tmp_path, children, orders=4000, rate_per_s=15, target=target)
        with target.connect() as s:
            pipeline = children.command("pipeline", "pipeline", "run", *words_of(target))
            for kill in range(kills + 1):
                until(_moves(s), "the pipeline carries", 180)
                if kill < kills:
                    time.sleep(chosen.random() * 0.3)
                    servers[kill % len(servers)].kill()
                    servers[kill % len(servers)].restart()
            assert pipeline.alive, "it waited"
            shop.stop()
            entries = by_key(shop.ledgers())
            assert_sound(check(entries, read_all(s)))
            until(lambda: _offsets(s) == s.log.newest(), "the pipeline carries all")
            pipeline.end()
            assert_sound(check(entries, read_all(s)))
        stored = stored_events(target)
        assert_sound(check(entries, lambda key: stored.get(key, [])))
