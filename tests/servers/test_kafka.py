"""Kafka as tests have it: a record that was acknowledged survives a kill. The tests of the log kill it, too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from strandline.servers.kafka import KafkaServer
from tests.servers.spares import SpareKafka

QUIET = {"log_level": 0}


@pytest.fixture
def own(spare_kafka: SpareKafka) -> Iterator[KafkaServer]:
    """One that may die."""
    yield spare_kafka
    spare_kafka.start()


def make_topic(server: KafkaServer, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, **QUIET})
    (made,) = admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)]).values()
    made.result(30)


def produce(server: KafkaServer, topic: str, value: bytes) -> None:
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "enable.idempotence": True, **QUIET})
    producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(30) == 0
    assert refused == []


def consume(server: KafkaServer, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "test", **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(count, timeout=1) if message.error() is None]
    consumer.close()
    return found


@pytest.mark.soak
def test_a_record_survives_kill_and_stop(own: KafkaServer) -> None:
    address = own.bootstrap
    make_topic(own, "kept")
    produce(own, "kept", b"before")
    own.kill()
    assert not own.alive
    own.restart()
    assert own.bootstrap == address
    produce(own, "kept", b"after")
    own.restart()
    assert consume(own, "kept", 2) == [b"before", b"after"]


def test_a_topic_is_not_made_by_asking_for_it(kafka: KafkaServer) -> None:
    assert kafka.url == f"kafka://{kafka.bootstrap}"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test", **QUIET})
    with pytest.raises(KafkaException, match="UNKNOWN"):
        consumer.get_watermark_offsets(TopicPartition("never_made", 0), timeout=10)
    consumer.close()
