"""Random histories, followed by tag: every event once and in order, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from strandline.backends.postgres.store import open_store as open_postgres
from strandline.servers.postgres import PostgresServer
from strandline.settings import Settings
from strandline.store.api import Store, StoreSettings
from strandline.testing.faults import Crash
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.testing.tape import Tape
from strandline.urls import urls_of
from tests.query.tag_histories import PARTITIONS, REFRESH_S, late_rows, run, tape_of
from tests.repeats import repeats
from tests.store.stores import open_store
from tests.store.test_last_write_wins import DiesAt

KINDS = ("sqlite", "postgres", "last write wins")
Opened = Callable[[int, str], Store]


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Makes empty stores of so many partitions, with buckets of this size."""
    made: list[Store] = []

    def make(partitions: int, bucket_size: str) -> Store:
        given = Settings.of({"segment_size": 3, "bucket_size": bucket_size})
        if request.param == "sqlite":
            made.append(open_store(tmp_path / f"{len(made)}.db", partitions=partitions, bucket_size=bucket_size))
        elif request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            url = urls_of(f"{server.url}&schema=s{uuid4().hex}").store
            made.append(open_postgres(url, given, "tape", partitions))
        else:
            made.append(LastWriteWinsStore(StoreSettings("tape", partitions, 3, bucket_size=bucket_size)))
        return made[-1]

    yield make
    for store in made:
        store.close()


def stages(tape: Tape, store: Store, chance: random.Random) -> Iterator[Callable[[], None]]:
    """Pieces of any size of any partition are carried; without transactions, some carriers die on the way."""

    def carry(partition: int, size: int) -> None:
        pointer = store.pointers()[partition]
        part = Tape(PARTITIONS)
        left = [record for record in tape.records[partition] if record.offset > pointer.offset]
        part.records[partition] = left[:size]
        if isinstance(store, LastWriteWinsStore):
            store.before_write = DiesAt(chance.randint(0, 200))
        with contextlib.suppress(Crash):
            part.carry(store, size=chance.randint(1, size))
        if isinstance(store, LastWriteWinsStore):
            store.before_write = lambda table: None

    ends = [records[-1].offset for records in tape.records]
    while behind := [p.partition for p in store.pointers() if p.offset < ends[p.partition]]:
        partition, size = chance.choice(behind), chance.randint(1, 30)
        yield lambda partition=partition, size=size: carry(partition, size)  # type: ignore[misc]
    for _ in range(1000):
        yield lambda: time.sleep(REFRESH_S)  # pointers that are younger are not asked for again


@repeats(4, 100)
@pytest.mark.req("T15", "T39", "T40", "T46", "T47", "T50", "T55", "T61", "RJ9")
def test_histories(opened: Opened, times: int) -> None:
    """Each event once and in order: live, current, resumed; with the strandline, and without it at the end."""
    for seed in range(times):
        chance = random.Random(seed)
        tape = tape_of(seed)
        store = opened(PARTITIONS, chance.choice(("minute", "hour", "day")))
        run(tape, store, seed, stages(tape, store, chance))


@repeats(2, 100)
@pytest.mark.req("T46", "T54", "T56", "T69", "RJ9")
def test_late_rows_of_others(opened: Opened, times: int) -> None:
    """Clocks that differ, rows that arrive late, in a real store: with a delay in order, without one none is lost."""
    for seed in range(times):
        tape = Tape()
        tape.mark()
        store = opened(1, "minute")
        tape.carry(store)
        late_rows(store, tape, seed, delay_s=5 if seed % 2 else 0)


@repeats(3, 100)
@pytest.mark.req("T32", "T33", "T38", "T46", "RJ9")
def test_carriers_that_are_killed(tmp_path: Path, times: int) -> None:
    """SQLite, kill -9 at random moments: the next carrier goes on from the pointers, and queries show all, once."""
    program = [sys.executable, "-m", "tests.query.tag_histories", str(tmp_path), "1", str(times)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, f"{times} histories\n"), done.stderr
