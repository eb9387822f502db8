"""What is Kafka's own: how a record stands in a topic, foreign records, holes, consumers, and brokers that go away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from strandline.backends.kafka.consumers import PartitionReader, text_of
from strandline.backends.kafka.log import KafkaLog
from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.log.api import RecordPage
from strandline.log.cursor import PartitionCursor
from strandline.record import Record
from strandline.servers.kafka import KafkaServer
from strandline.settings import Settings
from strandline.testing.log_contract import draft_of, everything, timed
from strandline.testing.log_contract.made import KEY, delete_of, mark_in, partition_for, purge_of
from tests.log.topics import RELAXED, new_name, opened
from tests.servers.kafka_proxy import KafkaProxy

pytestmark = pytest.mark.filterwarnings(RELAXED)
P = partition_for(KEY)


@pytest.fixture
def topic() -> str:
    return new_name()


@pytest.fixture
def log(kafka: KafkaServer, topic: str) -> Iterator[KafkaLog]:
    log = opened(kafka, topic, partitions=4)
    yield log
    log.close()


def messages(kafka: KafkaServer, topic: str, partition: int, count: int) -> list[Any]:
    """What another client sees."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "other", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = consumer.consume(count, 30)
    consumer.close()
    return found


@pytest.mark.req("J29", "J25")
def test_how_a_record_stands_in_the_topic(kafka: KafkaServer, topic: str, log: KafkaLog) -> None:
    drafts = [draft_of(KEY, "a"), mark_in(P, key=KEY), mark_in(P), delete_of(KEY, 1), purge_of(KEY)]
    log.append(drafts)
    found = messages(kafka, topic, P, 5)
    assert [message.key() for message in found] == [b"order|42", b"order|42", None, b"order|42", b"order|42"]
    assert [message.headers() for message in found] == [[("strandline", draft.header)] for draft in drafts]
    assert [message.value() for message in found] == [drafts[0].value, None, None, None, None]
    assert {message.timestamp()[0] for message in found} == {2}  # the broker's time


@pytest.mark.req("J29")
def test_the_slice_says_the_partition_not_the_clients_hash(kafka: KafkaServer, log: KafkaLog) -> None:
    """The same keys go where J4 says, and partitions of other clients' choice are not what is used."""
    drafts = [draft_of(key, partitions=4) for key in ("order|42", "order|43", "user|a|b", "order|😀")]
    answers = log.append(drafts)
    assert [answer.place and answer.place.partition for answer in answers] == [2, 2, 3, 2]


@pytest.mark.req("J29", "RA3")
def test_an_append_whose_answer_is_lost_is_there_once(kafka: KafkaServer, topic: str) -> None:
    """The client sends it again, by itself: the brokers know it by its producer and number."""
    with KafkaProxy(kafka) as proxy:
        log = KafkaLog(proxy.bootstrap, topic, settings=Settings(accept_power_loss=True, partitions=4))
        log.append([draft_of(KEY, "before")])
        proxy.lose_answers, sent = 1, len(proxy.acks)
        (answer,) = log.append([draft_of(KEY, "lost")])
        assert len(proxy.acks) >= sent + 2, "it was sent again"
        log.append([draft_of(KEY, "after")])
        records = everything(log, P)
        log.close()
    assert set(proxy.acks) == {-1}, "all replicas in sync"
    assert len(records) == 3
    assert answer.place is not None
    assert answer.place.offset == 1


@pytest.mark.req("J95", "RR5")
def test_foreign_records_come_as_they_are(kafka: KafkaServer, topic: str, log: KafkaLog) -> None:
    other = Producer({"bootstrap.servers": kafka.bootstrap})
    header = draft_of(KEY).header
    other.produce(topic, b"no header", b"who", P)
    other.produce(topic, b"another's", b"who", P, headers=[("trace", b"1")])
    other.produce(topic, None, b"\xff\x00key", P, headers=[("strandline", b"not ours")])
    other.produce(topic, b"twice", b"who", P, headers=[("strandline", header), ("strandline", header)])
    other.produce(topic, b"traced", KEY.encode(), P, headers=[("trace", b"1"), ("strandline", header)])
    assert other.flush(30) == 0
    other.close()
    assert [record[3:6] for record in everything(log, P)] == [
        ("who", None, b"no header"),
        ("who", None, b"another's"),
        (r"\xff\x00key", b"not ours", None),
        ("who", None, b"twice"),
        (KEY, header, b"traced"),
    ]


def test_a_foreign_key_becomes_text_that_a_store_can_hold() -> None:
    for key in (b"\xff", b"\x00", "order|😀".encode(), b"\xed\xa0\x80"):
        text = text_of(key)
        assert "\0" not in text
        text.encode()
    assert text_of("order|😀".encode()) == "order|😀"


@pytest.mark.req("J31")
def test_holes_that_transactions_leave(kafka: KafkaServer, topic: str, log: KafkaLog) -> None:
    """A reader stops by position: markers take offsets, and the last one stands at the very end."""
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    writer.init_transactions(30)
    for number in range(3):
        writer.begin_transaction()
        writer.produce(topic, b"%d" % number, b"who", P)
        writer.commit_transaction(30)
    writer.close()
    deadline = time.monotonic() + 30
    while log.newest()[P] != 5:  # the last marker comes after the answer to the commit
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [record.offset for record in everything(log, P)] == [0, 2, 4]
    assert log.read(P, after=-1, to=5) == log.read(P, after=-1)
    assert log.read(P, after=-1).position == 6
    assert log.read(P, after=4, to=5) == RecordPage([], 6)
    assert log.read(P, after=4) == RecordPage([], 6)
    assert log.read(P, after=0, to=1).position == 2
    (answer,) = log.append([draft_of(KEY)])
    assert answer.place is not None
    assert answer.place.offset == 6
    assert [record.offset for record in log.read(P, after=4).records] == [6]


@pytest.mark.req("J31")
def test_an_open_transaction_of_another_holds_up_nobody(kafka: KafkaServer, topic: str, log: KafkaLog) -> None:
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, b"open", b"who", P)
    assert writer.flush(30) == 0
    log.append([draft_of(KEY)])
    assert [record.key for record in log.read(P, after=-1).records] == ["who", KEY]
    writer.abort_transaction(30)
    writer.close()
    assert [record.key for record in log.read(P, after=-1).records] == ["who", KEY]


@pytest.mark.req("J26", "RA6")
def test_timestamps_are_the_same_from_every_start(log: KafkaLog) -> None:
    """A burst has many records of one millisecond; marks ask for more than the broker's clock says."""
    for start in range(0, 300, 100):
        ahead = max((record.timestamp for record in timed(log, P)), default=0) + 5000
        log.append([draft_of(KEY, number) for number in range(start, start + 100)])
        log.append([mark_in(P, at_least=ahead)])
    records = timed(log, P)
    raw = [record.timestamp for record in everything(log, P)]
    assert len(set(raw)) < len(raw)
    assert len({record.timestamp for record in records}) == len(records)
    for start in (0, 1, 57, 100, 101, 250, 301):
        cursor = PartitionCursor(log, P, records[start].offset, records[start].timestamp)
        found: list[Record] = []
        while got := cursor.read(to=records[-1].offset, limit=31):
            found += got
        assert found == records[start + 1 :]


# ---------------------------------------------------------------- consumers


@pytest.mark.req("J34")
def test_no_consumer_free(kafka: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(kafka, topic, partitions=4, consumers_max=2, append_timeout_s=3)
    log.append([draft_of(KEY)])
    inside, leave = threading.Semaphore(0), threading.Event()
    bounds = PartitionReader.bounds

    def slow(self: PartitionReader, partition: int, timeout_s: float) -> tuple[int, int]:
        inside.release()
        leave.wait(60)
        return bounds(self, partition, timeout_s)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionReader, "bounds", slow)
        threads = [threading.Thread(target=lambda: log.read(P, after=-1)) for _ in range(2)]
        for thread in threads:
            thread.start()
            assert inside.acquire(timeout=30)
        started = time.monotonic()
        with pytest.raises(Unavailable) as none_free:
            log.read(P, after=-1)
        assert 2.9 < time.monotonic() - started < 30
        leave.set()
        for thread in threads:
            thread.join()
    assert (none_free.value.code, none_free.value.applied) == ("consumer_pool", "no")
    assert "consumers_max" in none_free.value.hint
    assert len(log.read(P, after=-1).records) == 1
    assert log._consumers._count == 2
    log.close()


@pytest.mark.req("J34")
def test_no_group_is_joined_and_nothing_is_committed(kafka: KafkaServer, topic: str, log: KafkaLog) -> None:
    log.append([draft_of(KEY, number) for number in range(10)])
    assert len(log.read(P, after=-1).records) == 10
    follower = log.follow([-1] * 4, lambda _: None)
    while not follower.poll(1):
        pass
    client = log._admin.client
    groups = client.list_consumer_groups().result(30)
    assert "strandline" not in [group.group_id for group in groups.valid]
    asked = [ConsumerGroupTopicPartitions("strandline", [TopicPartition(topic, P)])]
    for answer in client.list_consumer_group_offsets(asked).values():
        assert [place.offset for place in answer.result(30).topic_partitions] == [-1001]  # none
    follower.close()


@pytest.mark.req("J31", "J34")
def test_a_consumer_goes_on_where_it_stands(log: KafkaLog) -> None:
    log.append([draft_of(KEY, number) for number in range(100)])
    after, found = -1, 0
    while (page := log.read(P, after=after, limit=7)).records:
        found, after = found + len(page.records), page.position - 1
    assert (found, log._consumers._count) == (100, 1)
    log._consumers._free[0].idle_since = 0.0
    log._consumers.rest()
    assert log._consumers._free[0].partition == -1


# ---------------------------------------------------------------- limits, and brokers that are away


@pytest.mark.req("J122")
def test_a_record_that_is_too_large_is_refused_before_it_is_written(kafka: KafkaServer, topic: str) -> None:
    log = opened(kafka, topic, partitions=4, append_bytes_max=1_000_000)
    with pytest.raises(InvalidInput) as refused:
        log.append([draft_of(KEY, bytes(1_100_000))])
    assert (refused.value.code, refused.value.applied) == ("append_too_large", "no")
    assert log.newest() == [-1] * 4
    log.append([draft_of(KEY, bytes(999_000))])
    assert len(log.read(P, after=-1).records) == 1
    log.close()


@pytest.mark.req("J42")
def test_a_full_queue_refuses(kafka: KafkaServer, topic: str) -> None:
    log = opened(kafka, topic, partitions=4, append_queue_max=3, append_timeout_s=10)
    told: list[Any] = []

    def send_many() -> None:
        for _ in range(1000):
            log.send(draft_of(KEY), lambda recorded, error: told.append(recorded or error))

    with pytest.raises(Unavailable) as refused:
        send_many()
    assert (refused.value.code, refused.value.applied) == ("overloaded", "no")
    log.close()
    assert len(everything_of(kafka, topic)) == len(told)


def everything_of(kafka: KafkaServer, topic: str) -> list[Record]:
    log = opened(kafka, topic)
    found = everything(log, P)
    log.close()
    return found


def test_who_calls_a_log_while_it_is_closed_is_told_so(kafka: KafkaServer) -> None:
    log = opened(kafka, partitions=2)
    calls: list[Callable[[], object]] = [
        log.newest, log.oldest, lambda: log.read(0, after=-1), lambda: log.wait({0: 10**9}, 0.05),
        lambda: log.raw_append(0, key="k", header=None, value=b"x"),
    ]  # fmt: skip

    def until_it_fails(call: Callable[[], object]) -> str:
        while True:
            try:
                call()
                called.release()
            except StrandlineError as error:
                return error.code

    called = threading.Semaphore(0)
    with ThreadPoolExecutor(len(calls)) as pool:
        ends = [pool.submit(until_it_fails, call) for call in calls]
        for _ in range(30):
            assert called.acquire(timeout=30)
        log.close()
        assert [end.result(30) for end in ends] == ["closed"] * len(calls)
