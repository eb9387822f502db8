"""What an error of Kafka's client library means, as a table, and what the library leaves behind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from strandline.backends.kafka.client import BrokerReport, translated
from strandline.errors import InvalidInput, SchemaMismatch, StrandlineError, Unavailable
from strandline.servers.kafka import KafkaServer

TABLE: list[tuple[int, type[StrandlineError], str, str]] = [
    (KafkaError._MSG_TIMED_OUT, Unavailable, "timeout", "unknown"),
    (KafkaError._TIMED_OUT, Unavailable, "timeout", "unknown"),
    (KafkaError.REQUEST_TIMED_OUT, Unavailable, "timeout", "unknown"),
    (KafkaError._ALL_BROKERS_DOWN, Unavailable, "away", "unknown"),
    (KafkaError._TRANSPORT, Unavailable, "away", "unknown"),
    (KafkaError.NOT_LEADER_FOR_PARTITION, Unavailable, "away", "unknown"),
    (KafkaError.FENCED_LEADER_EPOCH, Unavailable, "away", "unknown"),
    (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable, "away", "unknown"),
    (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Unavailable, "away", "unknown"),
    (KafkaError.KAFKA_STORAGE_ERROR, Unavailable, "away", "unknown"),
    (KafkaError._PURGE_INFLIGHT, Unavailable, "log_failed", "unknown"),
    (KafkaError._PURGE_QUEUE, Unavailable, "log_failed", "unknown"),
    (KafkaError._FATAL, Unavailable, "log_failed", "unknown"),
    (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, Unavailable, "log_failed", "unknown"),
    (KafkaError._QUEUE_FULL, Unavailable, "overloaded", "no"),
    (KafkaError._AUTHENTICATION, Unavailable, "away", "unknown"),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, Unavailable, "away", "unknown"),
    (KafkaError.SASL_AUTHENTICATION_FAILED, Unavailable, "away", "unknown"),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, SchemaMismatch, "log_replaced", "unknown"),
    (KafkaError._UNKNOWN_TOPIC, SchemaMismatch, "log_replaced", "unknown"),
    (KafkaError.MSG_SIZE_TOO_LARGE, InvalidInput, "append_too_large", "no"),
    (KafkaError.INVALID_RECORD, Unavailable, "log_failed", "no"),
]


@pytest.mark.req("RA2", "RA3", "RS8")
@pytest.mark.parametrize(("code", "kind", "name", "applied"), TABLE)
def test_what_an_answer_to_a_write_means(code: int, kind: type[StrandlineError], name: str, applied: str) -> None:
    error = translated(KafkaError(code), "append", topic="orders", wrote=True)
    assert (type(error), error.code, error.applied) == (kind, name, applied)
    assert error.hint
    if applied == "unknown" and kind is Unavailable and "access" not in error.hint:
        assert "append id" in error.hint
    assert translated(KafkaError(code), "read", topic="orders").applied == "no"


def test_what_was_said_of_the_brokers_explains_why_they_are_late() -> None:
    said = BrokerReport()
    late = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert translated(late, "append", topic="t", wrote=True, report=said).code == "timeout"
    said.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 are down"))
    down = translated(late, "append", topic="t", wrote=True, report=said)
    assert (down.code, down.applied) == ("away", "unknown")
    assert "no broker can be reached" in str(down)
    said.hear(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    said.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 are down"))
    assert "access rights" in translated(late, "append", topic="t", report=said).hint
    said.forget()
    assert translated(late, "append", topic="t", wrote=True, report=said).code == "timeout"


@pytest.mark.parametrize(
    ("said", "why", "hint"),
    [
        ("b:9/bootstrap: Connect to ipv4#1.2.3.4:9 failed: Connection refused (after 0ms in state CONNECT)",
         "Kafka cannot be reached: the connection is refused", "mend host and port"),
        ("ssl://b:9/bootstrap: SSL handshake failed: SSL routines::certificate verify failed: broker (after 1ms)",
         "certificate cannot be verified", "?ssl_ca_location="),
        ("b:9/bootstrap: SASL mechanism handshake failed: broker's supported mechanisms: GSSAPI,PLAIN (after",
         "another SASL mechanism", "?sasl_mechanism=PLAIN"),
        ("b:9/bootstrap: SASL mechanism handshake failed: broker's supported mechanisms: GSSAPI (after 1ms",
         "it takes GSSAPI alone", "SCRAM"),
        ("c:9/2: Failed to resolve 'c:9'", "gives c:9 as its address: no such host", "advertised"),
        ("", "no answer within 3 s", "start Kafka"),
    ],
)  # fmt: skip
def test_why_a_cluster_cannot_be_reached(said: str, why: str, hint: str) -> None:
    heard = BrokerReport("kafka://b:9/t")
    heard.hear(KafkaError(KafkaError._TRANSPORT, said))
    error = heard.unreachable(3)
    assert (error.code, error.message.startswith("kafka://b:9/t: ")) == ("away", True)
    assert error.message.endswith(why)
    assert hint in error.hint


# ---------------------------------------------------------------- what is left behind

LEFT = """
import gc, sys, time, warnings
from contextlib import suppress
from pathlib import Path
from strandline.errors import StrandlineError
from strandline.backends.kafka.log import KafkaLog
from strandline.settings import Settings

kept = []

def go(bootstrap, **settings):
    log = None
    try:
        log = KafkaLog(bootstrap, "left-behind", settings=Settings(**settings))
        log.raw_append(0, key="k", header=None, value=None)
        log.read(0, after=-1)
        log.raw_append(0, key="k", header=None, value=bytes(10**7))
    except StrandlineError as error:
        print(error.name)
        kept.append(error)
    if log is not None:
        log.close()
        kept.append(log)

def left():
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            if (thread / "comm").read_text().startswith("rdk:"):
                return True

gc.disable()
warnings.simplefilter("ignore")
go(sys.argv[1], accept_power_loss=True)
go(sys.argv[1])
go("127.0.0.1:1")
deadline = time.monotonic() + 20
while left() and time.monotonic() < deadline:
    time.sleep(0.1)
print("left" if left() else "none left")
"""
"""The library's threads must end with the log, whoever still holds it or its error: they would look for brokers on and
on, and if one came to free its own client, in a garbage collection, the library would end the process."""


def test_a_log_that_is_closed_or_was_not_opened_leaves_no_thread_of_the_library(kafka: KafkaServer) -> None:
    words = [sys.executable, "-c", LEFT, kafka.bootstrap]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    said = ["InvalidInput.append_too_large", "Unsupported.kafka_topic", "Unavailable.away", "none left"]
    assert done.stdout.splitlines() == said


def test_the_library_frees_nothing_that_is_ours() -> None:
    """Before 2.15.1 it gave back references to the list that it never took."""
    cut = [TopicPartition("t", 0, 1)]
    before = sys.getrefcount(cut)
    with AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as client:
        client.delete_records(cut, request_timeout=0.1, operation_timeout=0.1)
        assert sys.getrefcount(cut) == before
