"""What a topic must be, who makes it, and what happens when it changes under a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

import strandline
from strandline.backends.kafka.client import client_of
from strandline.backends.kafka.topic import Topic, check
from strandline.errors import InvalidInput, SchemaMismatch, StrandlineError, Unavailable, Unsupported
from strandline.servers.kafka import KafkaServer
from strandline.servers.server import free_port
from strandline.settings import Settings
from strandline.testing.log_contract import draft_of
from strandline.urls import urls_of
from tests.log.topics import GOOD, RELAXED, admin, make, new_name, opened

pytestmark = pytest.mark.filterwarnings(RELAXED)
DEADLINE_S = 30.0


def soon(call: Callable[[], object]) -> StrandlineError:
    """The error that a call ends with before long; until the log has noticed, its brokers may be away."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            call()
        except Unavailable:
            pass
        except StrandlineError as error:
            return error
        time.sleep(0.02)
    raise TimeoutError("it never failed")


# ---------------------------------------------------------------- checks


@pytest.mark.req("J30", "U9")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "CreateTime"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "86399999"),
        ("retention.bytes", "1000000"),
        ("max.message.bytes", str(8 * 2**20 + 64 * 1024 - 1)),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_an_unsafe_topic_is_refused_with_its_remedy(kafka: KafkaServer, name: str, value: str) -> None:
    topic = new_name()
    make(kafka, topic, {**GOOD, name: value})
    with pytest.raises(Unsupported) as refused:
        opened(kafka, topic)
    error = refused.value
    assert (error.code, error.setting, error.topic) == ("kafka_topic", name, topic)
    assert sorted(error.found.split(",")) == sorted(value.split(","))
    assert name in error.hint
    assert error.needed.split()[0] in error.hint


@pytest.mark.req("U9")
def test_other_partitions_are_refused(kafka: KafkaServer) -> None:
    topic = new_name()
    make(kafka, topic, GOOD, partitions=3)
    with pytest.raises(Unsupported) as refused:
        opened(kafka, topic, partitions=4)
    assert (refused.value.code, refused.value.found, refused.value.needed) == ("kafka_topic", 3, 4)
    log = opened(kafka, topic)
    assert log.partitions == 3
    log.close()


@pytest.mark.req("U9")
def test_replicas_are_needed_unless_a_power_cut_is_accepted(kafka: KafkaServer) -> None:
    topic = new_name()
    make(kafka, topic, GOOD)
    with pytest.raises(Unsupported) as refused:
        opened(kafka, topic, accept_power_loss=False)
    assert (refused.value.setting, refused.value.found, refused.value.needed) == ("replicas", 1, 3)
    assert "accept_power_loss" in refused.value.hint
    safe = Topic("t", "id", 8, 3, {**GOOD, "cleanup.policy": "delete", "min.insync.replicas": "2"})
    check(safe, Settings())
    for unsafe in (safe._replace(config={**safe.config, "min.insync.replicas": "1"}), safe._replace(replicas=2)):
        with pytest.raises(Unsupported):
            check(unsafe, Settings())
        check(unsafe, Settings(accept_power_loss=True))
    check(safe._replace(config={**safe.config, "retention.ms": "-1"}), Settings())
    with pytest.raises(Unsupported):
        check(safe, replace(Settings(), log_retention_s=86_401.0))


@pytest.mark.filterwarnings("default:topic .* accept_power_loss is on:RuntimeWarning")
@pytest.mark.req("RS11")
def test_a_relaxed_log_says_what_can_be_lost(kafka: KafkaServer) -> None:
    with pytest.warns(RuntimeWarning, match="power cut"):
        opened(kafka).close()


@pytest.mark.req("U8")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.idempotence", False),
        ("acks", "1"),
        ("enable.auto.commit", True),
        ("enable.auto.offset.store", True),
        ("check.crcs", False),
    ],
)
def test_a_client_that_could_lose_or_repeat_is_refused(kafka: KafkaServer, name: str, value: Any) -> None:
    topic = new_name()
    with pytest.raises(Unsupported) as refused:
        opened(kafka, topic, client={name: value})
    assert (refused.value.code, refused.value.setting) == ("kafka_client", name)
    assert name in refused.value.hint
    assert topic not in admin(kafka).list_topics(timeout=10).topics


# ---------------------------------------------------------------- made


@pytest.mark.req("J29", "J30", "J109")
def test_a_missing_topic_is_made_as_it_should_be(kafka: KafkaServer) -> None:
    topic = new_name()
    with pytest.raises(SchemaMismatch) as refused:
        opened(kafka, topic, schema="check")
    assert refused.value.code == "no_schema"
    assert topic not in admin(kafka).list_topics(timeout=10).topics
    with pytest.raises(Unsupported) as unsafe:
        opened(kafka, topic, accept_power_loss=False)
    assert (unsafe.value.code, unsafe.value.brokers) == ("kafka_topic", 1)
    assert topic not in admin(kafka).list_topics(timeout=10).topics
    log = opened(kafka, topic)
    again = opened(kafka, topic, schema="check")
    assert (log.partitions, again.partitions, again.log_id) == (8, 8, log.log_id)
    found = log._admin.describe()
    assert found is not None
    wanted = {**GOOD, "cleanup.policy": "delete", "unclean.leader.election.enable": "false", "retention.bytes": "-1"}
    assert {name: found.config[name] for name in wanted} == wanted
    log.close()
    again.close()


@pytest.mark.parametrize("name", ["with space", "x" * 250, ".."])
def test_a_name_that_kafka_refuses(kafka: KafkaServer, name: str) -> None:
    with pytest.raises(Unsupported) as refused:
        opened(kafka, name, append_timeout_s=2)
    assert refused.value.code == "kafka_topic"


# ---------------------------------------------------------------- changed under us


@pytest.mark.req("J30")
def test_grown_topic(kafka: KafkaServer, tmp_path: Path) -> None:
    """grown-topic: noticed while running, and refused by the next start, with both values."""
    topic = new_name()
    urls: dict[str, Any] = {"log": f"{kafka.url}/{topic}", "store": f"sqlite:{tmp_path}/store.db"}
    with strandline.connect(**urls, partitions=2, accept_power_loss=True) as s:
        s.journal.append("order|1", [strandline.Event("Placed", 1)])
        log = opened(kafka, topic, watch_every_s=0.05)
        with admin(kafka) as client:
            for grown in client.create_partitions([NewPartitions(topic, 3)]).values():
                grown.result(30)
        error = soon(lambda: log.append([draft_of("order|1", partitions=2)]))
        assert (type(error), error.code) == (Unsupported, "kafka_topic")
        assert (error.facts["needed"], error.facts["found"]) == (2, 3)
        for call in (lambda: log.read(0, after=-1), log.newest, lambda: log.wait({0: 0}, 0.01)):
            with pytest.raises(Unsupported):
                call()
        log.close()
    with pytest.raises(SchemaMismatch) as refused:
        strandline.connect(**urls, accept_power_loss=True)
    assert (refused.value.setting, refused.value.stored, refused.value.given) == ("partitions", 2, 3)


@pytest.mark.req("J32", "RR6")
def test_a_replaced_topic_is_refused(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = new_name()
    urls: dict[str, Any] = {"log": f"{kafka.url}/{topic}", "store": f"sqlite:{tmp_path}/store.db"}
    with strandline.connect(**urls, partitions=2, accept_power_loss=True) as s:
        log_id = s.log.log_id
    log = opened(kafka, topic, watch_every_s=0.05)
    with admin(kafka) as client:
        for deleted in client.delete_topics([topic]).values():
            deleted.result(30)
    error = soon(log.newest)
    assert (type(error), error.code) == (SchemaMismatch, "log_replaced")
    log.close()
    with pytest.raises(SchemaMismatch) as missing:
        strandline.connect(**urls, accept_power_loss=True)
    assert (missing.value.code, missing.value.stored) == ("log_replaced", log_id)
    _make_again(kafka, topic)
    with pytest.raises(SchemaMismatch) as replaced:
        strandline.connect(**urls, accept_power_loss=True)
    assert replaced.value.code == "log_replaced"
    assert replaced.value.stored == log_id != replaced.value.given


def _make_again(kafka: KafkaServer, topic: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return make(kafka, topic, GOOD, partitions=2)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# ---------------------------------------------------------------- away, and URLs


@pytest.mark.req("RS8")
def test_a_broker_that_is_away(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(Unavailable) as away:
        strandline.connect(
            log=f"kafka://127.0.0.1:{free_port()}/orders", store=f"sqlite:{tmp_path}/store.db", append_timeout_s=1
        )
    assert (away.value.code, away.value.applied) == ("away", "no")
    assert time.monotonic() - started < 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kafka://127.0.0.1:9/t", {"security.protocol": "plaintext"}),
        ("kafka://[::1]/t", {"security.protocol": "plaintext"}),
        ("kafka://broker/t", {"security.protocol": "ssl"}),
        ("kafka://broker,127.0.0.1/t", {"security.protocol": "ssl"}),
        (
            "kafka://me:p%40ss@broker/t?sasl_mechanism=plain&ssl_ca_location=/ca.pem",
            {
                "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "me",
                "sasl.password": "p@ss", "ssl.ca.location": "/ca.pem",
            },
        ),
        (
            "kafka://me:x@localhost/t?security_protocol=SASL_PLAINTEXT",
            {
                "security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me",
                "sasl.password": "x",
            },
        ),
    ],
)  # fmt: skip
@pytest.mark.req("D4")
def test_what_a_url_says_of_security(url: str, expected: dict[str, str]) -> None:
    assert client_of(urls_of(log=url, store="memory:").log) == expected


@pytest.mark.parametrize(
    "url",
    [
        "kafka://broker/t?security_protocol=plaintext",
        "kafka://me:secret@broker/t?security_protocol=sasl_plaintext",
        "kafka://me:secret@127.0.0.1/t?security_protocol=plaintext",
        "kafka://127.0.0.1/t?security_protocol=tls",
        "kafka://me:secret@broker/t?sasl_mechanism=guess",
    ],
)
@pytest.mark.req("D4")
def test_a_url_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        client_of(urls_of(log=url, store="memory:").log)
    assert refused.value.code == "url_parameter"
    assert "secret" not in str(refused.value) + refused.value.hint
