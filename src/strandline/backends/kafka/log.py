"""The log in a Kafka topic.

One action is one record: its key is the written key, its partition that of the key's slice, and all that the fold
needs is in one Kafka header. An idempotent producer writes, and is answered when all replicas in sync have it; its own
batching is the group commit. The log does not fold, and its broker's clock has milliseconds and may repeat: verdicts
and timestamps are found by those who read (`journal.judge`, `log.cursor`).

Topics are made and checked in `kafka_topic`, read by the consumers of `kafka_consumers`. A thread of the log's own
gives the answers to appends, and looks now and then whether the topic is still the one that was opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Condition, Event, Lock, RLock, Thread
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from strandline import forks
from strandline.backends.kafka.client import (
    ENVELOPE_BYTES,
    HEADER,
    BrokerReport,
    admin_client,
    common_config,
    consumer_config,
    overloaded,
    producer_config,
    translated,
)
from strandline.backends.kafka.consumers import Consumers, OutOfRange, PartitionReader, TopicFollower
from strandline.backends.kafka.topic import CLOSED_BYTES, Admin, Topic, check, check_name, grown
from strandline.caller_warnings import caution
from strandline.errors import NO_JOURNAL, SchemaMismatch, StrandlineError, Unavailable, closed, used_after_fork
from strandline.log.api import ActionDraft, Answered, KnownKey, Recorded, RecordPage
from strandline.log.refusals import check_trim, replaced, trimmed
from strandline.record import Record, encode_header
from strandline.settings import PARTITIONS_DEFAULT, Settings
from strandline.values.actions import Mark, Place
from strandline.values.tuples import new_tuple

OFFSET_MAX: Final = 2**63 - 2
POLL_S: Final = 0.1
WATCH_EVERY_S: Final = 5.0
WAIT_S: Final = 0.05
FOLLOWER: Final = {
    "fetch.wait.max.ms": 500,
    "enable.partition.eof": False,
    "queued.min.messages": 1,  # nothing is fetched ahead of who takes it: brokers would answer for each append
    "fetch.queue.backoff.ms": 1,
}
_logger: Final = logging.getLogger(__name__)
_abandoned: list[object] = []
"""What a forked child was left with. The library's threads are not there, so its objects must never be taken apart."""


class KafkaLog:
    """A partitioned log of actions in a topic. Any number of threads and processes may use it."""

    exact = False
    rules = None

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        settings: Settings | None = None,
        client: Mapping[str, Any] | None = None,
        create: bool | None = None,
        watch_every_s: float = WATCH_EVERY_S,
    ) -> None:
        """`client` has settings of the client library, such as those of its security."""
        check_name(topic)
        self._settings = settings or Settings()
        self._topic = topic
        self._generation = forks.generation
        self._closed = False
        self._report = BrokerReport(f"kafka://{bootstrap}/{topic}")
        self._broken = False
        self._refusal: Callable[[], StrandlineError] | None = None
        client = client or {}
        timeout_s = self._settings.append_timeout_s
        heard = {"error_cb": self._report.hear}
        self._consumer_config = {**consumer_config(bootstrap, client, self._settings), **heard}
        produced = {**producer_config(bootstrap, client, self._settings), **heard}
        self._admin = Admin(admin_client({**common_config(bootstrap, client), **heard}), topic, timeout_s, self._report)
        try:
            found = self._open_topic(self._settings.schema == "create" if create is None else create)
            check(found, self._settings)
            if self._settings.accept_power_loss:
                _warn_power_loss(topic, found.replicas)
            self._producer: Producer | None = Producer(produced)
        except BaseException:
            Thread(target=self._admin.close, daemon=True).start()  # which waits for a host's name to be looked up
            raise
        self.log_id, self.partitions, self._replicas = found.id, found.partitions, found.replicas
        self._starts = 0
        self._newest = [-1] * self.partitions
        self._own_listeners: tuple[Callable[[Record], None], ...] = ()
        self._consumers = Consumers(
            self._consumer_config, topic, self._report, most=self._settings.consumers_max, timeout_s=timeout_s
        )
        self._waiting = Lock()
        self._waiter: tuple[Mapping[int, int], TopicFollower] | None = None
        self._produced = produced
        self._lock = Lock()
        self._stop = Event()
        self._watch_every_s = watch_every_s
        self._poller = Thread(target=self._poll, name="strandline-kafka", daemon=True)
        self._poller.start()

    def _open_topic(self, create: bool) -> Topic:
        found = self._admin.describe()
        if found is not None:
            return found
        if not create:
            raise SchemaMismatch(
                f"there is no topic {self._topic}",
                code="no_schema",
                hint=NO_JOURNAL,
                topic=self._topic,
            )
        self._admin.create(self._settings.partitions or PARTITIONS_DEFAULT, self._settings)
        deadline = time.monotonic() + self._settings.append_timeout_s
        while (found := self._admin.describe()) is None:
            if time.monotonic() > deadline:
                raise Unavailable(f"topic {self._topic} was made and cannot be seen", code="timeout", hint="call again")
            time.sleep(WAIT_S)
        return found

    # ------------------------------------------------------------ writing

    def append(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        group = _SentDrafts(len(drafts))
        failed: StrandlineError | None = None
        for index, draft in enumerate(drafts):
            try:
                self.send(draft, partial(group.answered, index))
            except StrandlineError as error:
                failed = error
                group.answered(index, None, None)
        group.wait(self._settings.append_timeout_s)
        answers = [answer for answer in group.answers if answer is not None]
        failed = failed or group.error
        if failed is None:
            if len(answers) == len(drafts):
                return answers
            failed = _late(self._settings.append_timeout_s)
        if answers:  # some of them are there
            failed.applied = "unknown"
        raise failed

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        partition, action, header, value, _ = draft
        self._send(partition, action.key, header, value, answered)

    def raw_append(self, partition: int, *, key: str | None, header: bytes | None, value: bytes | None) -> Place:
        """Put any bytes into a partition: what a foreign or broken writer would leave behind."""
        group = _SentDrafts(1)
        self._send(partition, key, header, value, partial(group.answered, 0))
        group.wait(self._settings.append_timeout_s)
        (answer,) = group.answers
        if answer is None or answer.place is None:
            raise group.error or _late(self._settings.append_timeout_s)
        return answer.place

    def _send(
        self, partition: int, key: str | None, header: bytes | None, value: bytes | None, answered: Answered
    ) -> None:
        self._check()
        headers = None if header is None else [(HEADER, header)]
        told = partial(self._delivered, answered, key, header)
        written = None if key is None else key.encode()
        try:
            self._writer.produce(self._topic, value, written, partition, on_delivery=told, headers=headers)
        except BufferError:
            raise overloaded() from None
        except KafkaException as exception:
            raise self._translated(exception.args[0], "append") from exception

    @property
    def _writer(self) -> Producer:
        """The producer; to be asked, not to be kept: an error would hold it."""
        producer = self._producer
        if producer is None:
            raise closed("this log")
        return producer

    def _delivered(
        self, answered: Answered, key: str | None, header: bytes | None, error: KafkaError | None, message: Message
    ) -> None:
        """Pass on the answer of the brokers, which the poller tells."""
        if error is None:
            self._report.forget()
            partition, offset = message.partition(), message.offset()
            if offset is None or offset < 0:  # a repeat that a restarted broker has already, and knows no more where
                answered(None, _unplaced())
                return
            offset += self._starts
            if self._own_listeners:
                kind, time_ms = message.timestamp()
                if kind == TIMESTAMP_LOG_APPEND_TIME:  # the broker's: what readers will see, too
                    record = new_tuple(Record, (partition, offset, time_ms * 1000, key, header, None, None, None, None))
                    for own in self._own_listeners:
                        own(record)
            answered(new_tuple(Recorded, (Place(partition, offset, 0), False, None, None)), None)
        else:
            self._broken = self._broken or error.fatal()
            size = len(message) + len(header or b"")
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and size < ENVELOPE_BYTES:  # which every open topic takes
                answered(None, replaced(f"topic {self._topic}", self.log_id, applied="unknown"))
                return
            answered(None, self._translated(error, "append", wrote=True))

    # ------------------------------------------------------------ another log instead

    @property
    def follows(self) -> None:
        """A topic does not say what it follows: its store does."""
        return None

    def count_from(self, offset: int) -> None:
        """Give the first record of each partition this offset. Nothing was read, sent or asked before."""
        self._starts = self._consumers.starts = offset

    def begin_after(self, log_id: str, offset: int, timestamp: int, keys: Iterable[KnownKey]) -> None:
        """Nothing is written: `count_from` is told by the store, and timestamps are counted from its pointers."""

    def end_appends(self) -> None:
        """Brokers refuse whatever is larger than a byte. Each partition's leader must have heard of it.

        A record that a leader took before may still be on its way to the replicas: who waits for it gives up after
        `append_timeout_s`, so that is waited for.
        """
        self._admin.limit_records(CLOSED_BYTES)
        deadline = time.monotonic() + self._settings.append_timeout_s
        for partition in range(self.partitions):
            while not self._refuses(partition):
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"topic {self._topic}: partition {partition} still takes records", code="timeout",
                        hint="start it again", partition=partition,
                    )  # fmt: skip
        if self._replicas > 1:
            time.sleep(self._settings.append_timeout_s)

    def resume_appends(self) -> None:
        self._admin.limit_records(self._settings.append_bytes_max + ENVELOPE_BYTES)

    def _refuses(self, partition: int) -> bool:
        mark = Mark(None, uuid4().hex)
        try:
            self.append([ActionDraft(partition, mark, encode_header(mark))])
        except SchemaMismatch as error:
            if error.code != "log_replaced":
                raise
            return True
        return False

    # ------------------------------------------------------------ reading

    def read(
        self,
        partition: int,
        *,
        after: int,
        to: int | None = None,
        limit: int = 1000,
        bytes_max: int | None = None,
        key: str | None = None,
        values: bool = True,
    ) -> RecordPage:
        """Return records. Those of other keys come too, without their values: timestamps are counted over all of
        them."""
        self._check()
        deadline = time.monotonic() + self._settings.append_timeout_s

        def work(reader: PartitionReader) -> RecordPage:
            last = OFFSET_MAX if to is None else to
            if to is None:
                first, end = reader.bounds(partition, self._settings.append_timeout_s)
                if after + 1 < first:
                    raise trimmed(partition, after, first)
                last = end - 1
            if last <= after:
                return RecordPage([], after + 1)
            try:
                return reader.read(
                    partition,
                    after=after,
                    to=last,
                    limit=limit,
                    bytes_max=bytes_max,
                    key=None if key is None else key.encode(),
                    values=values,
                    deadline=deadline,
                )
            except OutOfRange:
                first, end = reader.bounds(partition, self._settings.append_timeout_s)
                if after + 1 < first:
                    raise trimmed(partition, after, first) from None
                return RecordPage([], after + 1)

        return self._consumers.use(partition, after + 1, work)

    def follow(self, after: Sequence[int], own: Callable[[Record], None]) -> TopicFollower:
        self._check()

        def ended() -> None:
            with self._lock:
                self._own_listeners = tuple(listener for listener in self._own_listeners if listener is not own)

        config = {**self._consumer_config, **FOLLOWER}
        partitions = range(self.partitions)
        follower = TopicFollower(config, self._topic, self._report, partitions, after, ended, starts=self._starts)
        with self._lock:
            self._own_listeners = (*self._own_listeners, own)
        return follower

    def newest(self) -> list[int]:
        self._check()
        ends = self._offsets(OffsetSpec.latest())
        with self._lock:
            self._newest = [max(seen, end - 1) for seen, end in zip(self._newest, ends, strict=True)]
            return list(self._newest)

    def oldest(self) -> list[int]:
        self._check()
        return self._offsets(OffsetSpec.earliest())

    def _offsets(self, spec: OffsetSpec) -> list[int]:
        wanted = {TopicPartition(self._topic, partition): spec for partition in range(self.partitions)}
        return [offset + self._starts for offset in self._admin.offsets("look at the log", wanted)]

    def wait(self, after: Mapping[int, int], timeout_s: float) -> bool:
        """Wait for a fetch that the broker answers when something comes. A second caller looks every few
        milliseconds."""
        self._check()
        deadline = time.monotonic() + timeout_s
        if self._waiting.acquire(blocking=False):
            try:
                return self._waited(dict(after), deadline)
            except OutOfRange:
                self._end_waiter()
            finally:
                self._waiting.release()
        while True:
            newest = self.newest()
            if any(newest[partition] > offset for partition, offset in after.items()):
                return True
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(WAIT_S, left_s))

    def _waited(self, after: Mapping[int, int], deadline: float) -> bool:
        if self._waiter is None or self._waiter[0] != after:
            self._end_waiter()
            config = {**self._consumer_config, **FOLLOWER}
            follower = TopicFollower(config, self._topic, self._report, after, after, starts=self._starts)
            self._waiter = after, follower
        while (left_s := deadline - time.monotonic()) > 0:
            if self._waiter[1].poll(min(left_s, POLL_S)):
                self._end_waiter()  # the caller that waited reads again what it took
                return True
            self._check()
        return False

    def _end_waiter(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter[1].close()

    # ------------------------------------------------------------ keeping

    def trim(self, partition: int, *, to: int, pointer: int, keep_after: int) -> int:
        """Trim as the topic's own retention would, at once. Times are those of the broker's clock."""
        self._check()
        check_trim(to, pointer)
        place = TopicPartition(self._topic, partition)
        spec = OffsetSpec.for_timestamp(keep_after // 1000)
        (young,) = self._admin.offsets("trim", {place: spec})
        last = to if young < 0 else min(to, young + self._starts - 1)
        first = self.oldest()[partition]
        if last < first:
            return 0
        cut = TopicPartition(self._topic, partition, last + 1 - self._starts)
        self._admin.ask(
            "trim", lambda s: self._admin.client.delete_records([cut], request_timeout=s, operation_timeout=s)
        )
        return last + 1 - first

    def close(self) -> None:
        if forks.generation != self._generation:
            _abandoned.append(self)
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop.set()
        self._poller.join()
        producer, self._producer = self._producer, None  # from here on nothing more is sent
        if producer is not None:
            producer.flush(self._settings.append_timeout_s)
        del producer  # its threads end here; a garbage collection would end them at any time, in any thread
        self._admin.close()
        self._consumers.close()
        with self._waiting:
            self._end_waiter()

    # ------------------------------------------------------------ the poller

    def _poll(self) -> None:
        """Hand out answers; look after idle consumers, and whether the topic is still the same."""
        looked = time.monotonic()
        asked: Future[Any] | None = None
        while not self._stop.is_set() and self._producer is not None:
            self._producer.poll(POLL_S)
            if self._broken:
                self._renew(self._producer)
            now = time.monotonic()
            if asked is not None and asked.done():
                self._look(asked)
                asked = None
            if now - looked < self._watch_every_s:
                continue
            looked = now
            self._consumers.rest()
            if asked is None:
                names = TopicCollection([self._topic])
                asked = self._admin.client.describe_topics(names, request_timeout=self._watch_every_s)[self._topic]

    def _renew(self, old: Producer) -> None:
        """Go on with another producer after an error that ends one; what it had not sent gets its error."""
        _logger.warning("topic %s: the producer ended with an error, another one goes on", self._topic)
        self._producer = Producer(self._produced)
        self._broken = False
        old.purge()
        old.flush(POLL_S)

    def _look(self, asked: Future[Any]) -> None:
        try:
            found = asked.result(0)
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._refusal = lambda: self._translated(error, "watch")
            return
        if str(found.topic_id) != self.log_id:
            self._refusal = partial(_replaced, self._topic, self.log_id, str(found.topic_id))
        elif len(found.partitions) != self.partitions:
            self._refusal = partial(grown, self._topic, self.partitions, len(found.partitions))

    def _translated(self, error: KafkaError, doing: str, *, wrote: bool = False) -> StrandlineError:
        return translated(error, doing, topic=self._topic, wrote=wrote, report=self._report)

    def _check(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork("this log")
        if self._closed:
            raise closed("this log")
        if self._refusal is not None:
            raise self._refusal()


class _SentDrafts:
    """Drafts that were sent together, and the answers to them."""

    def __init__(self, size: int) -> None:
        self.answers: list[Recorded | None] = [None] * size
        self.error: StrandlineError | None = None
        self._left = size
        self._lock = RLock()  # Condition's own way in is Python, and could be interrupted half-way
        self._changed = Condition(self._lock)

    def answered(self, index: int, recorded: Recorded | None, error: StrandlineError | None) -> None:
        with self._lock:
            self.answers[index] = recorded
            self.error = self.error or error
            self._left -= 1
            if not self._left:
                self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        with self._lock:
            self._changed.wait_for(lambda: not self._left, timeout_s + 1)


def _late(timeout_s: float) -> Unavailable:
    return Unavailable(
        f"Kafka did not answer within {timeout_s:g} s",
        code="timeout",
        hint="retry with an append id, or read the head",
        applied="unknown",
    )


def _unplaced() -> Unavailable:
    return Unavailable(
        "recorded, but Kafka does not say where",
        code="timeout",
        hint="repeat it with its append id, or read the head",
        applied="unknown",
    )


def _replaced(topic: str, stored: str, given: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"topic {topic} is not the one that was opened",
        code="log_replaced",
        hint="it was deleted and made anew under us; restore log and store from one backup",
        stored=stored,
        given=given,
    )


def _warn_power_loss(topic: str, replicas: int) -> None:
    lost = "its one replica" if replicas == 1 else f"one of {replicas} replicas"
    caution(
        f"topic {topic}: accept_power_loss is on; a power cut, or the loss of {lost}, can lose acknowledged appends"
    )
