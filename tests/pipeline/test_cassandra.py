"""The pipeline from SQLite to Cassandra, on a real Spark; and what an operator corrects there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from tests.acceptance.cli_call import call
from tests.store.keyspaces import RELAXED

import strandline
from strandline import Event
from strandline.pipeline.replicate import run
from strandline.store.scans import quarantined
from strandline.testing import FakeClock, carry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = RELAXED
KEYS = [f"order|{number}" for number in range(40)]  # over all 8 partitions


@pytest.fixture
def places(unused_keyspace: Callable[[], str], tmp_path: Path) -> dict[str, Any]:
    """Where log and store are, and how they are opened."""
    return {"log": f"sqlite:{tmp_path}/log.db", "store": unused_keyspace(), "accept_power_loss": True, "lease_s": 5}


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.req("J79", "J80", "J85", "J88", "RR1")
def test_once(places: dict[str, Any], spark: SparkSession) -> None:
    with strandline.connect(**places) as s:
        for number in range(3):
            for key in KEYS:
                s.journal.append(key, [Event("Placed", {"n": number}), Event("Paid", b"\x00\xff")])
        s.journal.delete(KEYS[1], to=3)
        s.journal.purge(KEYS[0])
        done = run(**places, once=True, spark=spark)
        assert done.events == 6 * len(KEYS)
        assert s.strandline() == done.strandline > 0
        assert [pointer.offset for pointer in s.store.pointers()] == s.log.newest()
        for key in KEYS[2:]:
            assert len(s.store.page(key, 1, 10_000, from_=1, to=6, limit=10).rows) == 6
            assert [event.seq_nr for event in s.journal.read(key)] == list(range(1, 7))
        assert [event.seq_nr for event in s.journal.read(KEYS[1])] == [4, 5, 6]
        assert list(s.journal.read(KEYS[0])) == []
        assert s.status().lease_holder is None


def skip(places: dict[str, Any], offset: int) -> None:
    """As an operator types it: the list, then the record."""
    where = ["--log", places["log"], "--store", places["store"], "--set", "accept_power_loss=true"]
    where += ["--set", "lease_s=5", "--json"]
    listed = call("pipeline", "quarantine", *where)
    assert offset in [line["offset"] for line in listed.lines]
    answer = call("pipeline", "resolve", "0", str(offset), "skip", "--yes", *where)
    assert answer.code == 0, answer.err


@pytest.mark.req("J98")
@pytest.mark.timeout(300)
def test_what_follows_a_correction_wins_although_the_clock_stands_still(places: dict[str, Any]) -> None:
    """Without room between the two the head of the next append would lose to a corrected one."""
    clock = FakeClock(4_000_000_000 * 10**6)  # so far ahead that every timestamp is the last one + 1
    with strandline.connect(**places, partitions=1, clock=clock) as s:
        for number in (1, 2, 3):
            s.journal.append("order|1", [Event("Placed", number)])
        file = apsw.Connection(places["log"].removeprefix("sqlite:"))
        file.execute("UPDATE action SET value = x'00' WHERE first > 1")
        file.close()
        carry(s)
        for listed in reversed(quarantined(s.store)):
            skip(places, listed.offset)
        s.journal.append("order|1", [Event("Placed", 4)])
        carry(s)
        assert [(e.seq_nr, e.prev_seq_nr) for e in s.journal.read("order|1")] == [(1, 0), (4, 1)]
        s.journal.delete("order|1", to=4)
        carry(s)
        assert s.store.page("order|1", 1, 10_000, from_=1, to=4, limit=9).rows == []
        head = s.journal.head("order|1")
        assert head is not None
        assert (head.seq_nr, head.delete_to) == (4, 4)
