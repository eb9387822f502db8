"""The topic that holds a log: what is there, whether it is safe, and how one is made.

A topic may lose its beginning only after `log_retention_s`, and nothing in between; its brokers give the time, and what
they acknowledged they keep, though one of them dies. Else it is `Unsupported.kafka_topic`, with the remedy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from strandline.backends.kafka.client import (
    ATTEMPT_S,
    AWAY,
    ENVELOPE_BYTES,
    RETRY_S,
    TIMEOUT,
    BrokerReport,
    refresh,
    translated,
)
from strandline.errors import Unsupported, closed, counted, shown
from strandline.settings import Settings

REPLICAS_LEAST, IN_SYNC_LEAST = 3, 2
SETTLE_S: Final = 5.0
LOOK_S: Final = 0.05
CLOSED_BYTES: Final = 1
"""The largest record of a topic that takes none any more."""
REFUSED_S: Final = 2.0
"""How long all brokers must have refused us before a first call gives up: one of them may be starting again."""


class Topic(NamedTuple):
    """A topic as Kafka describes it. `replicas`: of the partition that has the fewest."""

    name: str
    id: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


class Admin:
    """Asks Kafka about one topic, and waits for the answers. Any number of threads may use it.

    The library answers in a thread of its own, and ends the process if its client is freed there. So `close` ends the
    client, whatever still refers to it; a garbage collection would do it in any thread.
    """

    def __init__(self, client: AdminClient, topic: str, timeout_s: float, report: BrokerReport) -> None:
        self._client: AdminClient | None = client
        self.topic, self.timeout_s = topic, timeout_s
        self._library = report
        self._reached = False
        self._settled = 0.0

    @property
    def client(self) -> AdminClient:
        """The library's; to be asked, not to be kept."""
        client = self._client
        if client is None:
            raise closed("this log")
        return client

    def close(self) -> None:
        """End the client, once the calls of it have returned. What it was asked and has not answered fails."""
        client, self._client = self._client, None
        if client is not None:
            client.__exit__(None, None, None)  # it has no `close`

    def _report(self) -> BrokerReport:
        self.client.poll(0)
        return self._library

    def _heard(self) -> None:
        """Kafka answered: what was said before holds no more."""
        self._reached = True
        if self._library.text:
            self._report().forget()

    def _answers(self, futures: Iterable[Future[Any]], attempt_s: float) -> list[Any]:
        """Return the results of futures. Until Kafka has answered once, brokers that refuse us all are not waited
        for."""
        waited = list(futures)
        deadline = time.monotonic() + attempt_s + 1
        while not self._reached and time.monotonic() < deadline and not all(future.done() for future in waited):
            self.client.poll(LOOK_S)
            since = self._library.down_since
            if since is not None and time.monotonic() - since > REFUSED_S:
                raise self._library.unreachable(self.timeout_s)
        return [future.result(max(0.0, deadline - time.monotonic())) for future in waited]

    def ask(self, doing: str, call: Callable[[float], Mapping[Any, Future[Any]]]) -> list[Any]:
        """Return the answers to a call that gives futures; asked again while brokers are busy with themselves."""
        deadline = time.monotonic() + self.timeout_s
        patience_s = ATTEMPT_S
        while True:
            attempt_s = min(patience_s, max(0.1, deadline - time.monotonic()))
            patience_s *= 2
            try:
                answers = self._answers(call(attempt_s).values(), attempt_s)
                self._heard()
                return answers
            except KafkaException as exception:
                error, cause = exception.args[0], exception
            except FutureTimeoutError:
                error, cause = KafkaError(KafkaError._TIMED_OUT), None
            except RuntimeError:
                if self._client is None:  # another thread has closed it meanwhile
                    raise closed("this log") from None
                raise
            code = error.code()
            self._reached = self._reached or code > 0  # a broker's own answer; the library's are below 0
            again = code in AWAY or code in TIMEOUT or (error.retriable() and code not in _ANSWERS)
            again = again or (code == KafkaError.UNKNOWN_TOPIC_OR_PART and time.monotonic() < self._settled)
            if again and time.monotonic() >= deadline and not self._reached:
                raise self._report().unreachable(self.timeout_s) from cause
            if not again or time.monotonic() >= deadline:
                raise translated(error, doing, topic=self.topic, report=self._report()) from cause
            refresh(self.client, self.topic)
            time.sleep(RETRY_S)

    def offsets(self, doing: str, wanted: Mapping[TopicPartition, OffsetSpec]) -> list[int]:
        """Return offsets of partitions. For one whose leader is away the library has an answer that is none: asked
        again."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            answers = self.ask(doing, lambda s: self.client.list_offsets(wanted, request_timeout=s))
            offsets = [answer.offset for answer in answers]
            if OFFSET_INVALID not in offsets:
                return offsets
            if time.monotonic() >= deadline:
                raise translated(
                    KafkaError(KafkaError.LEADER_NOT_AVAILABLE), doing, topic=self.topic, report=self._report()
                )
            refresh(self.client, self.topic)
            time.sleep(RETRY_S)

    def describe(self) -> Topic | None:
        """Return the topic, or None if there is none, or not every broker has heard of it yet."""
        names = TopicCollection([self.topic])
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            (found,) = self.ask("topic", lambda s: self.client.describe_topics(names, request_timeout=s))
            (config,) = self.ask("topic", lambda s: self.client.describe_configs([resource], request_timeout=s))
        except Exception as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        replicas = min(len(partition.replicas) for partition in found.partitions)
        values = {name: str(entry.value) for name, entry in config.items()}
        return Topic(self.topic, str(found.topic_id), len(found.partitions), replicas, values)

    def limit_records(self, bytes_max: int) -> None:
        """Let brokers refuse larger records than this."""
        entry = ConfigEntry("max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.ask("limit records", lambda s: self.client.incremental_alter_configs([resource], request_timeout=s))

    def create(self, partitions: int, settings: Settings) -> None:
        """Make a topic as it should be; one that somebody else makes at the same moment is as good.

        For a while after that a broker that does not know it has only not heard of it yet.
        """
        self._settled = time.monotonic() + SETTLE_S
        (cluster,) = self.ask("brokers", lambda s: {0: self.client.describe_cluster(request_timeout=s)})
        brokers = len(cluster.nodes)
        replicas = min(REPLICAS_LEAST, brokers) if settings.accept_power_loss else REPLICAS_LEAST
        if brokers < replicas:
            raise _unsafe(
                self.topic,
                f"{counted(brokers, 'broker')}, and {REPLICAS_LEAST} replicas are needed",
                "add brokers, or accept that a power cut loses what was acknowledged: accept_power_loss=true",
                brokers=brokers,
            )
        config = {
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(int(settings.log_retention_s * 1000)),
            "retention.bytes": "-1",
            "max.message.bytes": str(settings.append_bytes_max + ENVELOPE_BYTES),
            "min.insync.replicas": str(min(IN_SYNC_LEAST, replicas)),
            "unclean.leader.election.enable": "false",
        }
        new = NewTopic(self.topic, partitions, replicas, config=config)
        try:
            self.ask(
                "create the topic",
                lambda s: self.client.create_topics([new], operation_timeout=s, request_timeout=s),
            )
        except Exception as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException):
                code = cause.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                if code in _BAD_TOPIC:
                    raise _unsafe(self.topic, f"cannot be made: {cause.args[0].str()}", "give another name") from cause
            raise


_NAME: Final = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")
_BAD_TOPIC: Final = {KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION}
_ANSWERS: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_ALREADY_EXISTS}
"""Errors that are answers: the library would have us ask again."""


def check_name(topic: str) -> None:
    """Raise `Unsupported.kafka_topic` for a name that Kafka would refuse."""
    if not _NAME.fullmatch(topic):
        raise _unsafe(shown(topic, 40), "no name for a topic", "take letters, digits, . _ and -, at most 249 of them")


def check(topic: Topic, settings: Settings) -> None:
    """Raise `Unsupported.kafka_topic` if this topic could lose something, or does not fit."""
    config = topic.config
    retention_ms = int(settings.log_retention_s * 1000)
    bytes_least = settings.append_bytes_max + ENVELOPE_BYTES
    _check(topic, "cleanup.policy", config.get("cleanup.policy") == "delete", "delete")
    _check(topic, "message.timestamp.type", config.get("message.timestamp.type") == "LogAppendTime", "LogAppendTime")
    kept_ms = int(config.get("retention.ms", "0"))
    _check(topic, "retention.ms", kept_ms == -1 or kept_ms >= retention_ms, f"{retention_ms} or more")
    _check(topic, "retention.bytes", int(config.get("retention.bytes", "-1")) < 0, "-1")
    bytes_most = int(config.get("max.message.bytes", "0"))
    if bytes_most > CLOSED_BYTES:  # it takes no records else, while another log takes over
        _check(topic, "max.message.bytes", bytes_most >= bytes_least, f"{bytes_least}")
    unclean = config.get("unclean.leader.election.enable", "false")
    _check(topic, "unclean.leader.election.enable", unclean == "false", "false")
    if settings.partitions is not None and settings.partitions != topic.partitions:
        raise _unsafe(
            topic.name,
            f"{counted(topic.partitions, 'partition')}; needed {settings.partitions}",
            "leave the setting partitions out, or give a new topic",
            setting="partitions",
            found=topic.partitions,
            needed=settings.partitions,
        )
    if settings.accept_power_loss:
        return
    if topic.replicas < REPLICAS_LEAST:
        raise _unsafe(
            topic.name,
            f"{counted(topic.replicas, 'replica')}; needed {REPLICAS_LEAST}",
            "reassign its partitions to more brokers, or accept that a power cut loses what was acknowledged: "
            "accept_power_loss=true",
            setting="replicas",
            found=topic.replicas,
            needed=REPLICAS_LEAST,
        )
    in_sync = int(config.get("min.insync.replicas", "1"))
    _check(topic, "min.insync.replicas", in_sync >= IN_SYNC_LEAST, f"{IN_SYNC_LEAST}")


def grown(topic: str, before: int, now: int) -> Unsupported:
    """Return the error for a topic that got more partitions under us: keys would be looked for elsewhere."""
    return _unsafe(
        topic,
        f"{counted(now, 'partition')}, and it had {before}",
        "another number of partitions is another log: give a new topic",
        setting="partitions",
        found=now,
        needed=before,
    )


def _check(topic: Topic, name: str, good: bool, needed: str) -> None:
    if not good:
        found = topic.config.get(name)
        raise _unsafe(
            topic.name,
            f"{name}={found}; needed {needed}",
            f"kafka-configs.sh --alter --topic {topic.name} --add-config {name}={needed.removesuffix(' or more')}",
            setting=name,
            found=found,
            needed=needed,
        )


def _unsafe(topic: str, wrong: str, hint: str, **facts: Any) -> Unsupported:
    return Unsupported(f"topic {topic}: {wrong}", code="kafka_topic", hint=hint, topic=topic, **facts)
