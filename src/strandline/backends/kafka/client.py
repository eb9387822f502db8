"""Kafka's client library: how producers and consumers are configured, and what its errors mean.

A client that could lose or repeat records is refused, whatever else it was given (`Unsupported.kafka_client`). Readers
read what is there, committed by somebody's transaction or not: an open transaction of a foreign writer holds up nobody,
and all readers see the same.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from strandline.errors import (
    Applied,
    InvalidInput,
    SchemaMismatch,
    StrandlineError,
    Unavailable,
    Unsupported,
    invalid,
    meaning,
    no_answer,
    unreachable,
    unusable_files,
)
from strandline.settings import Settings
from strandline.urls import PORTS, Url, is_loopback

GROUP: Final = "strandline"
"""The library wants a name; no group is ever joined, and nothing is committed."""
HEADER: Final = "strandline"
ENVELOPE_BYTES: Final = 64 * 1024
"""What a record may have beside header and value of an append: its key, and what Kafka writes around it."""
FETCH_WAIT_MS: Final = 5
"""How long a broker keeps a fetch that finds nothing: a consumer that is sent elsewhere waits for it."""
SASL_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
RECONNECT_MS, RECONNECT_MAX_MS = 50, 1000
RETRY_S: Final = 0.05
ATTEMPT_S: Final = 1.0
"""How long to wait for a first answer, where one may ask again, twice as long each time: the library goes on asking a
broker that has died, until it is told to look who leads a partition now."""

Config = dict[str, Any]

_SAFE_PRODUCER: Final = {"enable.idempotence": True, "acks": "all"}
_SAFE_CONSUMER: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "check.crcs": True,
}


def bootstrap_of(url: Url) -> str:
    """Return the brokers that a URL names, as the library takes them."""
    named = ((f"[{host.name}]" if ":" in host.name else host.name, host.port) for host in url.hosts)
    return ",".join(f"{name}:{port or PORTS[url.scheme]}" for name, port in named)


def client_of(url: Url) -> Config:
    """Return the security of a URL as settings of the library. Away from this machine TLS is needed."""
    here = all(is_loopback(host.name) for host in url.hosts)
    protocol = f"{'sasl_' if url.user is not None else ''}{'plaintext' if here else 'ssl'}"
    given = url.parameters.get("security_protocol", protocol).lower()
    protocols = ("plaintext", "sasl_plaintext") * here + ("ssl", "sasl_ssl")
    protocols = tuple(name for name in protocols if name.startswith("sasl_") == (url.user is not None))
    if given not in protocols:
        allowed = " or ".join(protocols)
        wrong = "not for these brokers" if url.user is None else "not for these brokers and a user"
        raise invalid("url_parameter", "security_protocol", wrong, allowed=allowed, got=given)
    config: Config = {"security.protocol": given}
    for name in ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location"):
        if name in url.parameters:
            config[name.replace("_", ".")] = url.parameters[name]
    if url.user is not None:
        mechanism = url.parameters.get("sasl_mechanism", SASL_MECHANISMS[0]).upper()
        if mechanism not in SASL_MECHANISMS:
            raise invalid(
                "url_parameter", "sasl_mechanism", "unknown", allowed=" or ".join(SASL_MECHANISMS), got=mechanism
            )
        config |= {"sasl.mechanism": mechanism, "sasl.username": url.user, "sasl.password": url.password or ""}
    return config


def common_config(bootstrap: str, client: Mapping[str, Any]) -> Config:
    """Return the settings that producers, consumers and administrators share. `client` adds security and more."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "strandline",
        "log_level": 0,  # what matters comes as an error
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": RECONNECT_MS,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "allow.auto.create.topics": False,
        **client,
    }


def producer_config(bootstrap: str, client: Mapping[str, Any], settings: Settings) -> Config:
    """Return the settings of a producer that loses and repeats nothing; its own batching is the group commit."""
    config = {
        **common_config(bootstrap, {}),
        **_SAFE_PRODUCER,
        "linger.ms": 0,
        "message.timeout.ms": int(settings.append_timeout_s * 1000),
        "message.max.bytes": settings.append_bytes_max + ENVELOPE_BYTES,
        "queue.buffering.max.messages": settings.append_queue_max,
        "queue.buffering.max.kbytes": 2**20,
        **client,
    }
    del config["allow.auto.create.topics"]
    _check("producer", config, _SAFE_PRODUCER)
    return config


def consumer_config(bootstrap: str, client: Mapping[str, Any], settings: Settings) -> Config:
    """Return the settings of a consumer that is told where to read, belongs to no group and remembers nothing."""
    config = {
        **common_config(bootstrap, {}),
        **_SAFE_CONSUMER,
        "group.id": GROUP,
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 100,
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 8 * 1024,
        "fetch.message.max.bytes": settings.append_bytes_max + ENVELOPE_BYTES,
        **client,
    }
    _check("consumer", config, _SAFE_CONSUMER)
    return config


def _check(kind: str, config: Config, safe: Mapping[str, Any]) -> None:
    """Check that the settings in effect are the safe ones."""
    for name, needed in safe.items():
        found = _plain(config.get(name))
        aliases = {"all", "-1"} if name == "acks" else {_plain(needed)}
        if found not in aliases:
            raise Unsupported(
                f"the {kind} has {name}={found}; needed {_plain(needed)}",
                code="kafka_client",
                hint=f"leave {name} out",
                setting=name,
                found=found,
                needed=_plain(needed),
            )


def _plain(value: object) -> str:
    return str(value).lower()


def admin_client(config: Config) -> AdminClient:
    """Return the first client of a log; `InvalidInput` if a file of TLS cannot be used, which is the same for all
    clients."""
    try:
        return AdminClient(config)
    except KafkaException as error:
        found = re.search(r"(ssl\.\w+\.location) failed: (?:error:\w+:)?(.*)", error.args[0].str())
        if found is None:
            raise
        path = config[found[1]]
        why = found[2] if Path(path).exists() else "no such file"
        raise unusable_files({found[1].replace(".", "_"): path}, why) from None


def refresh(client: AdminClient | Consumer, topic: str) -> None:
    """Have a client look who leads the partitions now; by itself it may not do so for minutes."""
    with suppress(KafkaException):
        client.list_topics(topic, timeout=ATTEMPT_S)


# ---------------------------------------------------------------- errors


_logger: Final = logging.getLogger(__name__)


class BrokerReport:
    """Keeps the library's last messages about its brokers, to explain the next error."""

    text = ""
    code = 0
    down_since: float | None = None
    """Since when none of the brokers can be used."""

    def __init__(self, where: str = "") -> None:
        self.where = where
        """The cluster and its topic, as people name them."""

    def hear(self, error: KafkaError) -> None:
        """Told by the library. That all are down says less than why one of them is."""
        down = error.code() == KafkaError._ALL_BROKERS_DOWN
        if down and self.down_since is None:
            self.down_since = time.monotonic()
            _logger.info("%s: no broker can be reached: %s", self.where, self.text or error.str())
        if not (self.text and down):
            self.text, self.code = error.str(), error.code()

    def forget(self) -> None:
        """Forget what was said: a broker has answered."""
        if self.text:
            if self.down_since is not None:
                _logger.info("%s: answers again", self.where)
            self.text, self.code, self.down_since = "", 0, None

    @property
    def why(self) -> str:
        """Return the reason in plain words; empty if there was no message."""
        return "no broker can be reached" if self.code == KafkaError._ALL_BROKERS_DOWN else _reason(self.text)[0]

    def unreachable(self, timeout_s: float) -> Unavailable:
        """Return the error for a cluster that never answered."""
        why, hint = _reason(self.text)
        named = re.match(r"(?:\w+://)?([^/\s]+)/\d+: ", self.text)  # with a broker's number: a host that the URL lacks
        if named and hint in _ADVERTISED:
            why, hint = f"its broker gives {named[1]} as its address: {why}", _ADVERTISED[hint]
        denied = {"denied": True} if hint == _USER else {}
        return unreachable("Kafka", self.where, why or no_answer(timeout_s), hint, **denied)


_KNOWN: Final = "|".join(SASL_MECHANISMS)
_HERE: Final = ""  # start it there, or mend host and port
_USER: Final = "check user and password in the URL"
_CERTIFICATE: Final = (
    "give ?ssl_ca_location=FILE with the authority that signed it, and each host by a name that it has"
)
_ADVERTISED: Final = {
    _HERE: "mend advertised.listeners of the broker",
    _CERTIFICATE: "mend advertised.listeners of the broker, or let its certificate have that name too",
}
"""What to do instead, where the address is not one of the URL's."""
_REASONS: Final = [
    (r"Connection refused", "the connection is refused", _HERE),
    (r"Failed to resolve", "no such host", _HERE),
    (r"Invalid response size", "what answers there is not Kafka", _HERE),
    (r"supported mechanisms: +\(", "this listener asks for no user", "leave user and password out of the URL"),
    (rf"supported mechanisms: \S*?({_KNOWN})", "it has another SASL mechanism", r"give ?sasl_mechanism=\1 in the URL"),
    (
        r"supported mechanisms: (\S+)",
        r"it takes \1 alone",
        "let the broker take SCRAM-SHA-512 too",
    ),
    (r"(?i)authentication (failed|error)", "it refuses this user", _USER),
    (r"certificate verify failed", "its certificate cannot be verified", _CERTIFICATE),
    (
        r"alert .*(certificate|unknown ca)",
        "it takes nobody without a certificate that it trusts",
        "give ?ssl_certificate_location=FILE&ssl_key_location=FILE, signed by an authority that the brokers trust",
    ),
    (
        r"SSL_HANDSHAKE",
        "this listener does not speak TLS",
        "give the port of a listener with TLS; on this machine ?security_protocol=plaintext needs none",
    ),
    (
        r"brokers are down",
        "it closes every connection",
        "does it ask for a user, or TLS? give kafka://USER:PASSWORD@HOST…, or ?security_protocol=ssl, or sasl_ssl",
    ),
]
"""What the library says, what that means, and what to do."""


def _reason(text: str) -> tuple[str, str]:
    return meaning(text, _REASONS) or (text, "")


AWAY: Final = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._NOENT,  # no partition has a leader
    KafkaError._DESTROY_BROKER,  # one that left the cluster while it was asked
    KafkaError._RESOLVE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
}
TIMEOUT: Final = {KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}
_REFUSED_ENTRY: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}
_NO_TOPIC: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
}
_NOT_RECORDED: Final = {KafkaError._QUEUE_FULL, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD}
"""After these a record is certainly not in the log. After any other nobody can say: it answers the last try, and an
earlier one, whose answer was lost, may have been recorded before rights were taken away, or a queue was emptied."""


def translated(
    error: KafkaError, doing: str, *, topic: str, wrote: bool = False, report: BrokerReport | None = None
) -> StrandlineError:
    """Translate an error of the library. `wrote`: it is the answer to a write.

    `report` is what the library last said of its brokers: what was not answered in time then was not for want of time.
    """
    code = error.code()
    heard = report or BrokerReport()
    doing = f"{heard.where}: {doing}" if heard.where else doing
    told = heard.why or error.str()
    unknown = wrote and code not in _NOT_RECORDED
    applied: Applied = "unknown" if unknown else "no"
    retry = "retry with an append id, or read the head" if unknown else "call again"
    if code == KafkaError._QUEUE_FULL:
        return overloaded()
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return InvalidInput(
            f"{doing}: the record is larger than topic {topic} takes",
            code="append_too_large",
            hint="append less at a time, or raise max.message.bytes of the topic",
        )
    if code in _REFUSED_ENTRY or (code in TIMEOUT and heard.code in _REFUSED_ENTRY):
        hint = "check user, password, certificates and access rights"
        denied = {} if KafkaError._SSL in (code, heard.code) else {"denied": True}
        message = f"{doing}: Kafka refused us: {told}"
        return Unavailable(message, code="away", hint=hint, applied=applied, topic=topic, **denied)
    if code in _NO_TOPIC:
        return SchemaMismatch(
            f"{doing}: topic {topic} is gone",
            code="log_replaced",
            hint="the topic was deleted or replaced under us; restore log and store from one backup",
            applied=applied,
            topic=topic,
        )
    if code in TIMEOUT and not heard.text:
        return Unavailable(
            f"{doing}: Kafka did not answer in time", code="timeout", hint=retry, applied=applied, topic=topic
        )
    if code in AWAY or code in TIMEOUT or error.retriable():
        hint = f"is the broker running? {retry}"
        return Unavailable(f"{doing}: Kafka is away: {told}", code="away", hint=hint, applied=applied, topic=topic)
    return Unavailable(f"{doing}: Kafka failed: {told}", code="log_failed", hint=retry, applied=applied, topic=topic)


def overloaded() -> Unavailable:
    """Return the error for a full queue."""
    return Unavailable(
        "too many appends wait for Kafka already",
        code="overloaded",
        hint="append less at a time, or raise append_queue_max; call again later",
    )
