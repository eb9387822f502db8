"""Whatever happens to the hosts of a projection, plain ones and Spark: each event once, in order, in one place."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.journal.worlds import url_of
from tests.projection.chaos import LOOK_S, unsteady
from tests.projection.worlds import Table, caught_up, check_exactly_once, running, until
from tests.query.filling import carry_all, put

import strandline
from strandline import Key, NotFound
from strandline.connect import Strandline
from strandline.pipeline import project
from strandline.projection import host
from strandline.values.keys import slice_of

KEYS = [Key("order", str(number)) for number in range(40)]


class Chaos:
    """One run: every step is chosen by a seed."""

    def __init__(self, s: Strandline, url: str, table: Table, spark: Any, seed: int) -> None:
        self.s, self.url, self.table, self.spark = s, url, table, spark
        self.random = random.Random(seed)
        self.inside: list[ExitStack] = []
        self.outside: list[subprocess.Popen[bytes]] = []
        self.on_spark: tuple[threading.Thread, threading.Event] | None = None
        self.counts = dict.fromkeys(("kills", "rescales", "stops"), 0)
        self.ending = False

    def projection(self, fails: float = 0.02) -> Any:
        return unsteady(self.table.name, self.table.dialect, fails)

    # ------------------------------------------------------------ steps

    def write(self) -> None:
        put(self.s, self.random.choice(KEYS), self.random.choice((1, 1, 1, 3)))

    def carry(self) -> None:
        carry_all(self.s)

    def rescale(self) -> None:
        self.s.projections.rescale("totals", self.random.choice((1, 2, 3, 5, 8)), timeout_s=0)
        self.counts["rescales"] += 1

    def pause(self) -> None:
        self.s.projections.pause("totals", timeout_s=0)

    def resume(self) -> None:
        self.s.projections.resume("totals")

    def start_inside(self) -> None:
        if len(self.inside) < 2:
            stack = ExitStack()
            stack.enter_context(running(self.s, self.projection()))
            self.inside.append(stack)

    def stop_inside(self) -> None:
        if self.inside:
            self.inside.pop(self.random.randrange(len(self.inside))).close()
            self.counts["stops"] += 1

    def start_outside(self) -> None:
        if len(self.outside) < 2:
            words = [sys.executable, "-m", "tests.projection.chaos", self.url, self.table.name, self.table.dialect]
            self.outside.append(subprocess.Popen(words))

    def kill_outside(self) -> None:
        if self.outside:
            killed = self.outside.pop(self.random.randrange(len(self.outside)))
            self.busy_with(f":{killed.pid}:")
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            self.counts["kills"] += 1

    def busy_with(self, host_name: str) -> None:
        """Wait until a host owns something, and give it something to do."""
        if not self.ending:
            self.resume()
            self.s.projections.rescale("totals", 8, timeout_s=0)  # there is enough for all
            until(lambda: any(host_name in (each.owner or "") for each in self.ranges()), 30)
            for _ in range(20):
                self.write()
            self.carry()

    def ranges(self) -> Any:
        return self.s.projections.status("totals").ranges

    def start_on_spark(self) -> None:
        if self.on_spark is None:
            stop = threading.Event()
            how = {"stop": stop, "spark": self.spark}
            thread = threading.Thread(target=project, args=(self.url, [self.projection()]), kwargs=how)
            thread.start()
            self.on_spark = thread, stop

    def stop_on_spark(self) -> None:
        if self.on_spark is not None:
            thread, stop = self.on_spark
            if not self.ending:
                until(self.handled_on_spark, 30)
            stop.set()
            thread.join(60)
            assert not thread.is_alive()
            self.on_spark = None
            self.counts["stops"] += 1

    def handled_on_spark(self) -> bool:
        """Whether a task has written something."""
        self.resume()
        if len(self.ranges()) < 5:
            self.s.projections.rescale("totals", 5, timeout_s=0)
        self.write()
        self.carry()
        with self.table._offsets.store.database.read() as tx:
            raw: Any = tx.raw
            return bool(list(raw.execute(f"select 1 from {self.table.name} where by_whom like 'task%' limit 1")))

    def unpark(self) -> None:
        for key in self.s.projections.parked("totals")[:3]:
            with suppress(NotFound):  # somebody else was quicker
                self.s.projections.unpark("totals", key)

    def look(self) -> None:
        """The ranges of every moment cover all slices once, each with a fence of its own."""
        assert [slice_ for each in self.ranges() for slice_ in range(each.lo, each.hi + 1)] == list(range(1024))

    # ------------------------------------------------------------ a run

    def run(self, steps: int) -> None:
        rare: dict[int, Callable[[], None]] = {
            30: self.start_outside, 60: self.start_on_spark, 200: self.kill_outside, 260: self.stop_on_spark,
            280: self.start_outside, 400: self.kill_outside,
        }  # fmt: skip
        often = [self.write] * 60 + [self.carry] * 12 + [self.look] * 4 + [self.rescale] * 3 + [self.unpark] * 4
        often += [self.pause, self.resume, self.resume, self.start_inside, self.start_inside, self.stop_inside]
        self.start_inside()
        for number in range(steps):
            rare.get(number % 500, self.random.choice(often))()

    def stop(self) -> None:
        """Nothing runs any more."""
        self.ending = True
        self.stop_on_spark()
        while self.inside:
            self.stop_inside()
        while self.outside:
            self.kill_outside()

    def end(self) -> None:
        """Everything is stopped or killed but one host that does not fail: it brings all to its end."""
        self.stop()
        self.carry()
        self.resume()
        with running(self.s, self.projection(fails=0)):

            def done() -> bool:
                self.unpark()
                return not self.s.projections.parked("totals") and caught_up(self.s)

            until(done, 40)


def check_one_place(table: Table) -> None:
    """In the order of commits, the events of a slice come claim by claim: none goes on after another has begun."""
    with table._offsets.store.database.read() as tx:
        raw: Any = tx.raw
        rows = list(raw.execute(f"select key, by_whom from {table.name} order by n"))
    by_slice: dict[int, list[str]] = {}
    for key, claim in rows:
        by_slice.setdefault(slice_of(key), []).append(claim)
    for slice_, claims in by_slice.items():
        runs = [claim for claim, _ in itertools.groupby(claims)]
        assert len(runs) == len(set(runs)), slice_


def chaos(backend: str, tmp_path: Path, spark: Any, seed: int, steps: int) -> None:
    url = url_of(backend, tmp_path)
    print(f"seed {seed}")
    with strandline.connect(url, partitions=3) as s:
        table = Table(s)
        run = Chaos(s, url, table, spark, seed)
        try:
            run.run(steps)
            run.end()
        finally:
            run.stop()
        check_exactly_once(s, table)
        check_one_place(table)
        assert min(run.counts.values()) >= 2, run.counts
        table.close()


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOK_S", LOOK_S)


@pytest.mark.req("P47", "P68", "P71", "P73", "P86", "P90", "RP4")
def test_chaos(tmp_path: Path, spark: Any) -> None:
    chaos("sqlite", tmp_path, spark, random.randrange(10**6), 500)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.req("P47", "P68", "P71", "P73", "P86", "P90", "RP4")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_chaos_for_long(tmp_path: Path, spark: Any, backend: str) -> None:
    chaos(backend, tmp_path, spark, random.randrange(10**6), 5000)
