"""kill -9 of a broker under load: what was acknowledged is readable, nothing is there twice, all is in order."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Producer, TopicCollection

import strandline
from strandline import Event, Unavailable
from strandline.backends.kafka.log import KafkaLog
from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.servers.kafka import KafkaCluster, KafkaServer
from strandline.testing import carry
from strandline.testing.log_contract.made import mark_in
from tests.log.topics import RELAXED, make, new_name, opened
from tests.repeats import repeats
from tests.servers.fixtures import started
from tests.servers.spares import SpareKafka

pytestmark = [pytest.mark.filterwarnings(RELAXED), pytest.mark.timeout(600)]
BETWEEN = 60
"""Appends acknowledged between two kills."""
DEADLINE_S = 120.0


@pytest.fixture
def broker(spare_kafka: SpareKafka) -> Iterator[KafkaServer]:
    """One that may die."""
    yield spare_kafka
    spare_kafka.start()


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with started(KafkaCluster(short=True)) as three:
        yield three


class Writer(threading.Thread):
    """Appends to a key of its own until it is told to stop, and notes every outcome.

    A careful one gives ids and repeats what it does not know of; a plain one goes on.
    """

    def __init__(self, s: Strandline, name: str, careful: bool) -> None:
        super().__init__(daemon=True)
        self.key, self._journal, self._careful = f"order|{name}", s.journal, careful
        self.outcomes: list[str] = []
        self.stop = threading.Event()

    @property
    def done(self) -> int:
        return self.outcomes.count("ok")

    def run(self) -> None:
        while not self.stop.is_set():
            number = len(self.outcomes)
            append_id = uuid.uuid4() if self._careful else None
            outcome = self._append(number, append_id)
            while self._careful and outcome != "ok":
                outcome = self._append(number, append_id)
            self.outcomes.append(outcome)

    def _append(self, number: int, append_id: uuid.UUID | None) -> str:
        try:
            self._journal.append(
                self.key, [Event("Placed", number)], append_id=append_id, numbers=self._careful or number % 2 == 0
            )
        except Unavailable as error:
            return error.applied
        return "ok"


def until_more(writers: list[Writer], more: int) -> None:
    """Wait until every writer has so many more."""
    wanted = [writer.done + more for writer in writers]
    deadline = time.monotonic() + DEADLINE_S
    while any(writer.done < count for writer, count in zip(writers, wanted, strict=True)):
        assert time.monotonic() < deadline, [writer.outcomes[-5:] for writer in writers]
        time.sleep(0.02)


@pytest.mark.req("RA1", "RA2", "RA3", "RA4", "RA8", "RJ1", "RS8")
@repeats(1, 50)
@pytest.mark.timeout(1800)
def test_broker_killed(broker: KafkaServer, tmp_path: Path, times: int) -> None:
    urls = {"log": f"{broker.url}/{new_name()}", "store": f"sqlite:{tmp_path}/store.db"}
    s = strandline.connect(
        log=urls["log"], store=urls["store"], partitions=2, accept_power_loss=True, append_timeout_s=3
    )
    writers = [Writer(s, str(number), careful=number % 2 == 0) for number in range(4)]
    for writer in writers:
        writer.start()
    make(broker, beside := new_name(), {}, partitions=1)
    for _ in range(times):
        until_more(writers, BETWEEN)
        broker.kill()
        with pytest.raises(StrandlineError) as away:
            list(s.journal.read("order|0"))
        assert isinstance(away.value, Unavailable)
        done = sum(writer.done for writer in writers)
        broker.start()
        with Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0}) as other:
            other.produce(beside, b"it is back, for whoever comes new")
            assert other.flush(60) == 0
        back = time.monotonic()
        while sum(writer.done for writer in writers) == done:
            assert time.monotonic() - back < 5
            time.sleep(0.01)
        until_more(writers, 1)
        carry(s, limit=BETWEEN)
    end_of(writers)
    assert _check(s, writers, least=times * BETWEEN)  # else nothing was tested
    s.close()
    with strandline.connect(log=urls["log"], store=urls["store"], accept_power_loss=True) as again:
        _check(again, writers, least=times * BETWEEN)
        carry(again)
        _check(again, writers, least=times * BETWEEN)


@pytest.mark.req("RS8")
def test_a_broker_that_restarts_has_lost_no_topic(broker: KafkaServer) -> None:
    outcomes: list[str] = []
    stop = threading.Event()
    with closing(opened(broker, partitions=2)) as log:
        log.append([mark_in(0)])

        def read() -> None:
            while not stop.is_set():
                try:
                    log.read(0, after=-1)
                    outcomes.append("read")
                except StrandlineError as error:
                    outcomes.append(error.name)

        readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
        for reader in readers:
            reader.start()
        broker.restart()
        back = time.monotonic() + DEADLINE_S
        seen = len(outcomes)
        while outcomes[seen:].count("read") < 10:
            assert time.monotonic() < back, outcomes[-5:]
            time.sleep(0.02)
        stop.set()
        for reader in readers:
            reader.join(DEADLINE_S)
    assert set(outcomes) <= {"read", "Unavailable.away", "Unavailable.timeout"}


@pytest.mark.soak
@pytest.mark.req("RA1", "RA2", "RA4", "RA8", "RJ1", "RS8", "RS11")
def test_one_of_three_brokers_killed(cluster: KafkaCluster, tmp_path: Path) -> None:
    """As in production: three replicas, nothing accepted. Appends and reads go on without it, and without an error."""
    urls = {"log": f"{cluster.url}/{new_name()}", "store": f"sqlite:{tmp_path}/store.db"}
    with strandline.connect(log=urls["log"], store=urls["store"], partitions=3, append_timeout_s=60) as s:
        assert s.status().durability == "full"
        writers = [Writer(s, str(number), careful=number % 2 == 0) for number in range(4)]
        for writer in writers:
            writer.start()
        first, second, _ = cluster.nodes  # each leads a partition
        until_more(writers, BETWEEN)
        until_in_sync(s)
        first.kill()
        until_more(writers, BETWEEN)
        asked = time.monotonic()
        assert len(list(s.journal.read("order|0"))) >= 2 * BETWEEN
        ends = s.log.newest()
        assert s.log.oldest() == [0, 0, 0]
        assert time.monotonic() - asked < 30  # half of the time-out: none of them waited for the one that is gone
        carry(s)
        assert all(pointer.offset >= end for pointer, end in zip(s.store.pointers(), ends, strict=True))
        until_more(writers, 1)
        end_of(writers)
        first.start()
        until_in_sync(s)
        second.kill()  # what was recorded without the first one is there without the second
        assert not _check(s, writers, least=2 * BETWEEN)
        carry(s)
        assert not _check(s, writers, least=2 * BETWEEN)


def until_in_sync(s: Strandline) -> None:
    """Wait until all replicas of the log are in sync."""
    log = cast(KafkaLog, s.log)
    names = TopicCollection([log._topic])
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (topic,) = log._admin.ask("topic", lambda s: log._admin.client.describe_topics(names, request_timeout=s))
        if all(len(partition.isr) == len(partition.replicas) == 3 for partition in topic.partitions):
            return
        assert time.monotonic() < deadline, topic.partitions
        time.sleep(0.05)


def end_of(writers: list[Writer]) -> None:
    for writer in writers:
        writer.stop.set()
    for writer in writers:
        writer.join(60)


def _check(s: Strandline, writers: list[Writer], *, least: int) -> int:
    """Every journal has what its writer was told; how many outcomes were not known."""
    unknown = 0
    for writer in writers:
        found = [event.payload for event in s.journal.read(writer.key)]
        assert found == sorted(found)
        counts = Counter(found)
        for number, outcome in enumerate(writer.outcomes):
            assert counts[number] in {"ok": {1}, "no": {0}, "unknown": {0, 1}}[outcome], (writer.key, number, outcome)
            unknown += outcome != "ok"
        assert len(found) >= least
        assert found[-1] < len(writer.outcomes)
    return unknown
