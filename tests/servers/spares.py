"""A second Kafka and a second Cassandra, for all tests that need another one: guarded in every way, and to be killed.

Their certificate is for localhost, so that 127.0.0.1 is a name that it does not have.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path

import pytest

from strandline.backends.cassandra import Session
from strandline.errors import Unavailable
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.server import HOST, free_port
from strandline.urls import urls_of
from tests.servers.authority import Authority
from tests.servers.fixtures import started

Certificates = Mapping[str, Path]
KAFKA_USER, KAFKA_PASSWORD = "shop", "p@ss/w:rd"
KAFKA_LISTENERS = {
    "TLS": "localhost",
    "MUTUAL": "localhost",  # wants to know its clients
    "ELSEWHERE": HOST,  # a name that the certificate does not have
    "NOWHERE": HOST,  # gives an address where nobody listens
    "USERS": HOST,
    "PLAINTEXT": HOST,
}
"""All listeners, by the host that each gives as its address; the last one is the server's `url`."""
_PROTOCOLS = {"USERS": "SASL_PLAINTEXT", "NOWHERE": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
CASSANDRA = (
    "cassandra://cassandra:cassandra@localhost:{port}/{name}"
    "?replication=1&tls=on&cafile={ca}&certfile={cert}&keyfile={key}"
)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Files for TLS, of an authority that the servers know and of one that they do not."""
    ours, others = (started(Authority(tmp_path_factory.mktemp(name))) for name in ("ours", "others"))
    client, stranger = ours.signed("client"), others.signed("stranger")
    return {
        "ca": ours.certificate, "other_ca": others.certificate, "server": ours.signed("server", "DNS:localhost").both,
        "cert": client.certificate, "key": client.key, "strange_cert": stranger.certificate,
        "strange_key": stranger.key,
    }  # fmt: skip


class SpareKafka(KafkaServer):
    """A broker with a listener of each kind."""

    def __init__(self, certificates: Certificates) -> None:
        names = (*KAFKA_LISTENERS, "CONTROLLER")
        self.ports = {name: free_port() for name in names}
        self.nowhere = free_port()
        given = {**self.ports, "NOWHERE": self.nowhere}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        super().__init__(
            short=True,
            settings={
                "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items()),
                "advertised.listeners": ",".join(f"{n}://{host}:{given[n]}" for n, host in KAFKA_LISTENERS.items()),
                "controller.quorum.voters": f"1@{HOST}:{self.ports['CONTROLLER']}",
                "listener.security.protocol.map": ",".join(f"{name}:{_PROTOCOLS.get(name, 'SSL')}" for name in names),
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.name.mutual.ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(certificates["server"]),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(certificates["ca"]),
                "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.users.plain.sasl.jaas.config": f'{module} user_{KAFKA_USER}="{KAFKA_PASSWORD}";',
            },
        )


class SpareCassandra(CassandraServer):
    """A node that wants to know its clients, asks for a password, and acknowledges before the disk has anything."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        super().__init__(
            short=True,
            settings={
                "commitlog_sync": "periodic",
                "commitlog_sync_period": "10s",
                "authenticator": "PasswordAuthenticator",
                "authorizer": "CassandraAuthorizer",
                "client_encryption_options": {
                    "enabled": True,
                    "require_client_auth": True,
                    "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
                    "keystore": str(certificates["server"]),
                    "truststore": str(certificates["ca"]),
                },
            },
        )

    @cached_property
    def words(self) -> dict[str, object]:
        """What `CASSANDRA` is filled with, and more files."""
        return {**self._certificates, "port": self.port, "name": "spare"}

    def wait_for_users(self) -> None:
        """Its first user is made a moment after it is up."""
        store = urls_of(log="memory:", store=CASSANDRA.format_map(self.words)).store
        deadline = time.monotonic() + 60
        while True:
            try:
                with closing(Session(store, 10)) as session:
                    session._open()
                return
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.2)


@pytest.fixture(scope="session")
def spare_kafka(certificates: Certificates) -> Iterator[SpareKafka]:
    """A second Kafka. A test that kills it starts it again."""
    with started(SpareKafka(certificates)) as server:
        yield server
        server.kill()  # in order it would take seconds


@pytest.fixture(scope="session")
def spare_cassandra(certificates: Certificates) -> Iterator[SpareCassandra]:
    """A second Cassandra."""
    with started(SpareCassandra(certificates)) as server:
        server.wait_for_users()
        yield server
        server.kill()  # in order it would take seconds
