"""A journal larger than memory can be read: what a reader holds does not grow with the journal, nor with its pauses."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Event
from strandline.connect import Strandline
from strandline.testing import carry
from tests.journal.worlds import KEY, replayed, world
from tests.repeats import SOAK

EVENTS = 50_000
PAYLOAD = b"x" * 200
LIMIT = 6 * 2**20
"""Far below the 10 MB that the payloads alone take, let alone their events."""


@pytest.fixture(
    params=["in the store", "in the log", "half in each"] if SOAK in os.environ else ["half in each"], scope="module"
)
def s(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strandline]:
    folder: Path = tmp_path_factory.mktemp("long")
    with world("sqlite", folder, partitions=1, read_page=500, tail_buffer_bytes=2**20) as opened:
        batch = [Event("Placed", PAYLOAD)] * 1000
        for _ in range(EVENTS // 1000):
            opened.journal.append(KEY, batch)
        if request.param != "in the log":
            carry(opened, limit=None if request.param == "in the store" else EVENTS // 2000)
        yield opened


def peak_of(rows: Iterator[object]) -> tuple[int, int]:
    """How many there were, and how much memory was held at most while they were taken."""
    gc.collect()
    tracemalloc.start()
    try:
        count = sum(1 for _ in rows)
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.req("J56", "RJ11")
def test_a_read_is_flat(s: Strandline) -> None:
    list(s.journal.read(KEY, to=10))
    count, peak = peak_of(s.journal.read(KEY))
    assert count == EVENTS
    assert peak < LIMIT


@pytest.mark.req("J128")
def test_a_read_backwards_is_flat(s: Strandline) -> None:
    list(s.journal.read(KEY, limit=10, backwards=True))
    count, peak = peak_of(s.journal.read(KEY, backwards=True))
    assert count == EVENTS
    assert peak < LIMIT


@pytest.mark.req("RJ11")
def test_a_replay_is_flat(s: Strandline) -> None:
    cut = s.log.newest()[0]
    count, peak = peak_of(replayed(s, 0, cut=cut))
    assert count == EVENTS
    assert peak < LIMIT


@pytest.mark.req("RJ11")
@pytest.mark.parametrize("where", ["in the store", "in the log"])
def test_large_events_come_few_at_a_time(where: str, tmp_path: Path) -> None:
    large = b"x" * 2**20
    with world("sqlite", tmp_path, partitions=1) as s:
        for _ in range(10):
            s.journal.append(KEY, [Event("Placed", large)] * 6)
        if where == "in the store":
            carry(s)
        count, peak = peak_of(s.journal.read(KEY))
        assert count == 60
        assert peak < 30 * 2**20


@pytest.mark.req("J50", "RJ11")
def test_stopped(tmp_path: Path) -> None:
    """No pipeline; many keys in one tail. Every read is right, and holds its own key's events alone."""
    with world("memory", tmp_path, partitions=1) as s:
        for number in range(20_000):
            s.journal.append(f"order|{number % 500}", [Event("Placed", number)])
        for key in range(0, 500, 50):
            count, peak = peak_of(s.journal.read(f"order|{key}"))
            assert count == 40
            assert peak < 2**20
            assert [event.payload for event in s.journal.read(f"order|{key}")] == list(range(key, 20_000, 500))
