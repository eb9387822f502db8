"""The pipeline from a Kafka log: Spark carries it, marks move the strandline, and expiry goes by the brokers' clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.journal.worlds import fields
from tests.log.topics import RELAXED, new_name

import strandline
from strandline import Event, Key
from strandline.connect import Strandline
from strandline.pipeline.expiry import purge_expired
from strandline.pipeline.progress import Progress
from strandline.pipeline.replicate import run
from strandline.servers.kafka import KafkaServer
from strandline.store.scans import quarantined
from strandline.testing import carry, raw_append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings(RELAXED)
KEYS = [f"order|{number}" for number in range(20)]
DEADLINE_S = 120.0


@pytest.fixture
def target(kafka: KafkaServer, tmp_path: Path) -> dict[str, Any]:
    return {
        "log": f"{kafka.url}/{new_name()}", "store": f"sqlite:{tmp_path}/store.db", "accept_power_loss": True,
    }  # fmt: skip


@pytest.fixture
def s(target: dict[str, Any]) -> Iterator[Strandline]:
    with strandline.connect(**target) as connected:
        yield connected


def shown(s: Strandline) -> dict[str, list[dict[str, Any]]]:
    return {key: [fields(event) for event in s.journal.read(key)] for key in KEYS}


@pytest.mark.spark
@pytest.mark.req("J79", "J87", "J93", "RR1", "J26")
def test_once(s: Strandline, target: dict[str, Any], spark: SparkSession) -> None:
    for turn in range(5):
        sent = [s.journal.append_future(key, [Event("Placed", turn), Event("Paid", turn)]) for key in KEYS]
        for future in sent:
            future.result(60)
    s.journal.delete(KEYS[0], to=3)
    s.journal.purge(KEYS[1])
    raw_append(s, 3, key="who|knows", header=None, value=b"foreign")
    newest = s.log.newest()
    before = shown(s)
    run(**target, spark=spark, once=True)
    assert all(pointer.offset >= end for pointer, end in zip(s.store.pointers(), newest, strict=True))
    assert shown(s) == before
    assert [row.reason for row in quarantined(s.store)] == ["foreign"]
    assert s.strandline() >= max(event["timestamp"] for events in before.values() for event in events)
    s.journal.append(KEYS[1], [Event("Placed", "new life")], expected=0)
    run(**target, spark=spark, once=True)
    assert [event.life for event in s.journal.read(KEYS[1])] == [2]


@pytest.mark.spark
@pytest.mark.req("J79", "J92", "RR4", "J49")
def test_continuous(s: Strandline, target: dict[str, Any], spark: SparkSession) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []
    told: list[Progress] = []

    def pipeline() -> None:
        try:
            run(**target, spark=spark, stop=stop, mark_idle_s=0.2, progress=told.append)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=pipeline, daemon=True)
    thread.start()
    try:
        for number in range(10):
            done = s.journal.append(KEYS[0], [Event("Placed", number)], expected=number)
            s.journal.wait_replicated(done, timeout_s=DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while not told or told[-1].strandline < (done.timestamp or 0):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join(60)
    assert errors == []
    carried = next(n for n, progress in enumerate(told) if progress.partitions[done.partition].pointer >= done.offset)
    assert max(progress.strandline for progress in told[carried : carried + 2]) >= (done.timestamp or 0)
    assert [event.payload for event in s.journal.read(KEYS[0])] == list(range(10))


@pytest.mark.req("J101", "J102", "J103")
def test_expiry(s: Strandline, target: dict[str, Any]) -> None:
    s.journal.append("order|1", [Event("Placed", 1)], expire_after=timedelta(milliseconds=1))
    s.journal.append("order|2", [Event("Placed", 1)], expire_after=timedelta(hours=1))
    s.journal.append("order|3", [Event("Placed", 1)], expire_after=timedelta(milliseconds=1))
    carry(s)
    s.journal.append("order|3", [Event("Placed", 2)])  # revived, not carried
    time.sleep(0.01)  # the time that is to pass, on the brokers' clock
    assert sorted(map(str, purge_expired(**target, dry_run=True))) == ["order|1", "order|3"]
    assert purge_expired(**target) == [Key("order", "1")]
    assert s.journal.head("order|1") is None
    assert [event.payload for event in s.journal.read("order|3")] == [1, 2]
    carry(s)
    assert purge_expired(**target, dry_run=True) == [Key("order", "3")]
