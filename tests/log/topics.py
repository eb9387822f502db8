"""Topics for tests: one each, and logs on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic

from strandline.backends.kafka.log import KafkaLog
from strandline.servers.kafka import KafkaServer
from strandline.settings import Settings

RELAXED = "ignore:topic .* accept_power_loss is on:RuntimeWarning"
GOOD = {
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(8 * 2**20 + 64 * 1024),
    "retention.ms": str(86_400_000),
}


def new_name() -> str:
    return f"test-{uuid4().hex}"


def opened(
    kafka: KafkaServer,
    topic: str | None = None,
    *,
    client: Mapping[str, Any] | None = None,
    create: bool | None = None,
    watch_every_s: float = 5.0,
    **settings: Any,
) -> KafkaLog:
    """A log on a topic, which is made if it is not there. One broker is all that there is."""
    given = Settings.of({"accept_power_loss": True, **settings})
    return KafkaLog(
        kafka.bootstrap, topic or new_name(), settings=given, client=client, create=create, watch_every_s=watch_every_s
    )


def admin(kafka: KafkaServer) -> AdminClient:
    """A client of its own, to be closed: the library would end the process if its thread came to free it."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


def make(kafka: KafkaServer, topic: str, config: Mapping[str, str], partitions: int = 2) -> None:
    """A topic, made by somebody else."""
    new = NewTopic(topic, partitions, 1, config=dict(config))
    with admin(kafka) as client:
        for made in client.create_topics([new], operation_timeout=30).values():
            made.result(30)
