"""Reading a topic: a pool of consumers, each told where to read, and those that follow all partitions.

A consumer is in no group and commits nothing. It stops by position, never by counting records, as offsets may have
holes. One that may be asked for the next page stays where it is for a moment; else it lets go of its partition, because
a fetch that is under way would hold up the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Condition, RLock
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from strandline.backends.kafka.client import (
    ATTEMPT_S,
    AWAY,
    HEADER,
    RETRY_S,
    TIMEOUT,
    BrokerReport,
    Config,
    refresh,
    translated,
)
from strandline.errors import NotFound, Unavailable
from strandline.log.api import RecordPage
from strandline.record import Record
from strandline.values.tuples import new_tuple

TAKEN_AT_ONCE: Final = 1000
POLL_S: Final = 0.05
IDLE_S: Final = 1.0
"""How long a consumer stays at its place for a next page."""


class OutOfRange(NotFound):
    """The partition has no such offset: it was trimmed, or never was."""

    def __init__(self, partition: int) -> None:
        super().__init__(
            f"partition {partition} has no such offset", code="trimmed", hint="read on from the pointer",
            partition=partition, earliest=-1,
        )  # fmt: skip


class PartitionReader:
    """A consumer, and its position. Used by one thread at a time."""

    def __init__(self, config: Config, topic: str, report: BrokerReport, starts: int) -> None:
        """`starts` is the offset of the topic's first record for everybody else; here alone Kafka's own are used."""
        self._topic, self._report, self._starts = topic, report, starts
        self._consumer = Consumer(config)
        self._ahead: list[Message] = []  # taken from the library, not yet given, in reverse
        self.partition = -1
        self.position = -1
        self.more = False
        """Whether the last page ended because it was full."""
        self.idle_since = 0.0

    def bounds(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """Return the first offset, and the one after the newest; asked again while brokers are busy with themselves."""
        deadline = time.monotonic() + timeout_s
        place = TopicPartition(self._topic, partition)
        patience_s = ATTEMPT_S
        while True:
            attempt_s = min(patience_s, max(0.1, deadline - time.monotonic()))
            patience_s *= 2
            try:
                first, end = self._consumer.get_watermark_offsets(place, attempt_s)
            except KafkaException as exception:
                error = exception.args[0]
                if error.code() == KafkaError._UNKNOWN_PARTITION:  # so the library says while it looks for the leader
                    error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
                if not (error.code() in AWAY or error.code() in TIMEOUT) or time.monotonic() >= deadline:
                    raise translated(error, "look at the log", topic=self._topic, report=self._report) from exception
                refresh(self._consumer, self._topic)
                time.sleep(RETRY_S)
            else:
                return first + self._starts, end + self._starts

    def read(
        self,
        partition: int,
        *,
        after: int,
        to: int,
        limit: int,
        bytes_max: int | None,
        key: bytes | None,
        values: bool,
        deadline: float,
    ) -> RecordPage:
        """Return records with `after` < offset <= `to`. `OutOfRange` if the log does not have what comes after
        `after`."""
        self._seek(partition, after + 1)
        records: list[Record] = []
        size = 0
        while self.position <= to:
            message = self._next(min(limit - len(records), TAKEN_AT_ONCE))
            if message is None or message.error() is not None:
                # The end is told once, and may have moved since.
                if message is not None:
                    self.position = max(self.position, _offset(message) + self._starts)
                if self.position >= self.bounds(partition, max(0.1, deadline - time.monotonic()))[1]:
                    break
                self._check_time(deadline)
                continue
            record = record_of(message, values and (key is None or message.key() == key), self._starts)
            size += len(record.value or b"")
            full = bytes_max is not None and size > bytes_max
            if record.offset > to or (records and full):
                self._ahead.append(message)
                self.position = to + 1 if record.offset > to else self.position
                break
            records.append(record)
            self.position = record.offset + 1
            if len(records) == limit:
                break
        self.more = self.position <= to
        return RecordPage(records, min(self.position, to + 1))

    def _seek(self, partition: int, position: int) -> None:
        if (partition, position) == (self.partition, self.position):
            return
        if position < self._starts:
            raise OutOfRange(partition)
        self._ahead.clear()
        self._consumer.assign([TopicPartition(self._topic, partition, position - self._starts)])
        self.partition, self.position = partition, position

    def _next(self, wanted: int) -> Message | None:
        """Return the next record, or the end of the partition (with an error); None if there is neither for a
        moment."""
        if not self._ahead:
            taken = self._consumer.consume(max(1, wanted), 0)
            if not taken:
                message = self._consumer.poll(POLL_S)
                if message is None:
                    return None
                taken = [message]
            for message in taken:
                _check(message, self._topic, self._report)
            self._ahead = taken[::-1]
        return self._ahead.pop()

    def _check_time(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"partition {self.partition}: Kafka gave nothing after offset {self.position - 1}",
                code="timeout",
                hint="is the broker running? call again",
                topic=self._topic,
                partition=self.partition,
            )

    def let_go(self) -> None:
        """Stop fetching."""
        if self.partition >= 0:
            self._ahead.clear()
            self._consumer.unassign()
            self.partition = self.position = -1

    def close(self) -> None:
        self._consumer.close()


class Consumers:
    """At most `most` readers at work at once. A caller that finds none free waits."""

    def __init__(self, config: Config, topic: str, report: BrokerReport, *, most: int, timeout_s: float) -> None:
        self._config, self._report = config, report
        self.starts = 0
        self._topic, self._most, self._timeout_s = topic, most, timeout_s
        self._lock = RLock()  # Condition's own way in is Python, and could be interrupted half-way
        self._changed = Condition(self._lock)
        self._free: list[PartitionReader] = []
        self._count = 0
        self._closed = False

    def use(self, partition: int, position: int, work: Callable[[PartitionReader], RecordPage]) -> RecordPage:
        """Let a reader do this work: one that stands there already, if there is one."""
        reader = self._take(partition, position)
        reader.more = False
        try:
            return work(reader)
        except KafkaException as exception:
            raise translated(exception.args[0], "read the log", topic=self._topic, report=self._report) from exception
        finally:
            self._give_back(reader)

    def _take(self, partition: int, position: int) -> PartitionReader:
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            while True:
                for reader in self._free:
                    if (reader.partition, reader.position) == (partition, position):
                        self._free.remove(reader)
                        return reader
                if self._free:
                    # One that let go can start at once; else the one that is longest at its place.
                    reader = min(self._free, key=lambda free: (free.partition >= 0, free.idle_since))
                    self._free.remove(reader)
                    return reader
                if self._count < self._most:
                    self._count += 1
                    break
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    raise Unavailable(
                        f"all {self._most} consumers are at work since {self._timeout_s:g} s",
                        code="consumer_pool",
                        hint="read less at a time, or raise consumers_max",
                        consumers_max=self._most,
                    )
        try:
            return PartitionReader(self._config, self._topic, self._report, self.starts)
        except BaseException:
            with self._lock:
                self._count -= 1
            raise

    def _give_back(self, reader: PartitionReader) -> None:
        if not reader.more:
            reader.let_go()
        reader.idle_since = time.monotonic()
        with self._lock:
            if not self._closed:
                self._free.append(reader)
                self._changed.notify()
                return
        reader.close()

    def rest(self) -> None:
        """Let those go that nobody asked for a next page for a while."""
        now = time.monotonic()
        with self._lock:
            for reader in self._free:
                if reader.partition >= 0 and now - reader.idle_since > IDLE_S:
                    reader.let_go()

    def close(self) -> None:
        """Close those that are free; the others are closed when they come back."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for reader in free:
            reader.close()


class TopicFollower:
    """Follows partitions with one consumer, each after its offset, which may be moved on. Values are left out."""

    def __init__(
        self,
        config: Config,
        topic: str,
        report: BrokerReport,
        partitions: Iterable[int],
        after: Mapping[int, int] | Sequence[int],
        ended: Callable[[], None] | None = None,
        *,
        starts: int,
    ) -> None:
        self._topic, self._report, self._after, self._ended, self._starts = topic, report, after, ended, starts
        self._consumer = Consumer(config)
        self._closed = False
        places = [TopicPartition(topic, number, max(0, after[number] + 1 - starts)) for number in partitions]
        self._consumer.assign(places)

    def poll(self, timeout_s: float) -> list[tuple[int, RecordPage]]:
        """Return the records that came, by partition. `OutOfRange` if some were trimmed before they could be given."""
        try:
            first = self._consumer.poll(timeout_s)
            messages = [] if first is None else [first, *self._consumer.consume(TAKEN_AT_ONCE, 0)]
        except KafkaException as exception:
            raise translated(exception.args[0], "read the log", topic=self._topic, report=self._report) from exception
        records: dict[int, list[Record]] = {}
        positions: dict[int, int] = {}
        for message in messages:
            _check(message, self._topic, self._report)
            partition, offset = message.partition(), _offset(message) + self._starts
            if message.error() is not None:
                positions[partition] = max(positions.get(partition, 0), offset)
                continue
            if offset > self._after[partition]:
                records.setdefault(partition, []).append(record_of(message, False, self._starts))
                positions[partition] = offset + 1
        return [(partition, RecordPage(records.get(partition, []), end)) for partition, end in positions.items()]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._ended is not None:
                self._ended()
            self._consumer.close()


def _check(message: Message, topic: str, report: BrokerReport) -> None:
    """Raise what is an error; the end of a partition is none."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise OutOfRange(message.partition())
    raise translated(error, "read the log", topic=topic, report=report)


def _offset(message: Message) -> int:
    return int(message.offset())


def record_of(message: Message, values: bool, starts: int) -> Record:
    """Return a record as it stands in the log, whose first offset is `starts`. One that is not ours comes as it is."""
    header: bytes | None = None
    headers: Sequence[tuple[str, Any]] | None = message.headers()
    if headers is not None:
        found = [value for name, value in headers if name == HEADER]
        header = found[0] if len(found) == 1 else None
    key: bytes | None = message.key()
    return new_tuple(
        Record,
        (
            message.partition(), _offset(message) + starts, message.timestamp()[1] * 1000,
            None if key is None else text_of(key), header, message.value() if values else None, None, None, None,
        ),
    )  # fmt: skip


def text_of(key: bytes) -> str:
    """Return a record's key as text that every store can hold; a foreign one may be anything."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = key.decode(errors="backslashreplace")
    return text.replace("\0", "\\x00") if "\0" in text else text
