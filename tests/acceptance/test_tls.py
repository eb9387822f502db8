"""TLS to real servers: those that can be trusted are used like any other, the rest is told apart and what to do said.

The servers' certificate is for localhost, so that 127.0.0.1 is a name that it does not have.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.servers.authority import Authority
from tests.servers.fixtures import started
from tests.servers.front import Front

import strandline
from strandline import Event, InvalidInput, Unavailable
from strandline.log import kafka_topic
from strandline.servers.cassandra import CassandraServer
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import HOST, free_port
from strandline.testing import carry

pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
Words = Mapping[str, Any]
"""What the URLs of this module are filled with: files, and ports of servers."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Words:
    ours, others = (started(Authority(tmp_path_factory.mktemp(name))) for name in ("ours", "others"))
    client, stranger = ours.signed("client"), others.signed("stranger")
    return {
        "ca": ours.certificate, "other_ca": others.certificate, "server": ours.signed("server", "DNS:localhost").both,
        "cert": client.certificate, "key": client.key, "strange_cert": stranger.certificate,
        "strange_key": stranger.key,
    }  # fmt: skip


def check_use(**places: Any) -> None:
    """Append, carry, read."""
    with strandline.connect(**places, accept_power_loss=True) as s:
        s.journal.append("order|1", [Event("Placed", 1)])
        carry(s)
        s.journal.append("order|1", [Event("Paid", 2)])
        assert [event.payload for event in s.journal.read("order|1")] == [1, 2]


def check_refused(why: str, hint: str, **places: Any) -> None:
    with pytest.raises(Unavailable) as refused:
        strandline.connect(**places, accept_power_loss=True, append_timeout_s=5)
    assert (refused.value.name, refused.value.applied) == ("Unavailable.away", "no")
    assert why in refused.value.message
    assert hint in refused.value.hint


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture(scope="module")
def postgres_words(files: Words) -> Iterator[Words]:
    """A server that takes nobody by its port, where it speaks no TLS, and everybody behind a front that does."""
    port = free_port()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca"])
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(files["server"])
    with started(PostgresServer(settings={"listen_addresses": HOST, "port": str(port)})) as server:
        (server.folder / "data" / "pg_hba.conf").write_text("local all all trust\n")
        server.restart()
        with Front(server.folder / f".s.PGSQL.{port}", tls) as front:
            yield {**files, "tls": front.port, "plain": port}


POSTGRES = "postgresql://postgres@localhost:{tls}/postgres?sslmode=verify-full&sslrootcert={ca}"
POSTGRES_REFUSED = {
    "another authority": (
        POSTGRES.replace("{ca}", "{other_ca}"), "its certificate cannot be verified", "give ?sslrootcert=FILE"
    ),
    "another name": (
        POSTGRES.replace("localhost", HOST), 'its certificate is for "localhost"', "by a name that its certificate has"
    ),
    "no certificate of ours": (POSTGRES, "nobody without a certificate", "give ?sslcert=FILE&sslkey=FILE"),
    "a strange certificate of ours": (
        POSTGRES + "&sslcert={strange_cert}&sslkey={strange_key}", "nobody without a certificate", "give ?sslcert=FILE"
    ),
    "no TLS there": (POSTGRES.replace("{tls}", "{plain}"), "it does not speak TLS", "switch ssl on"),
    "no TLS here": (
        "postgresql://postgres@localhost:{plain}/postgres", "no encryption", "give ?sslmode=verify-full&sslrootcert="
    ),
    "no such mode": (POSTGRES.replace("verify-full", "yes"), "there is no sslmode yes", "mend ?sslmode= in the URL"),
}  # fmt: skip


def test_postgres(postgres_words: Words) -> None:
    check_use(url=(POSTGRES + "&sslcert={cert}&sslkey={key}").format_map(postgres_words))


@pytest.mark.req("D4")
@pytest.mark.parametrize(("url", "why", "hint"), POSTGRES_REFUSED.values(), ids=POSTGRES_REFUSED)
def test_postgres_refused(postgres_words: Words, url: str, why: str, hint: str) -> None:
    check_refused(why, hint, url=url.format_map(postgres_words))


# ---------------------------------------------------------------- Kafka


@pytest.fixture(scope="module")
def kafka_words(files: Words) -> Iterator[Words]:
    """A broker with four listeners: TLS, TLS that wants to know its clients, TLS under another name, and none."""
    names = {"TLS": "localhost", "MUTUAL": "localhost", "ELSEWHERE": HOST, "PLAINTEXT": HOST}
    ports = {name: free_port() for name in (*names, "CONTROLLER")}
    settings = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{host}:{ports[name]}" for name, host in names.items()),
        "controller.quorum.voters": f"1@{HOST}:{ports['CONTROLLER']}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name in ('PLAINTEXT', 'CONTROLLER') else 'SSL'}" for name in ports
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files["server"]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files["ca"]),
    }
    with started(KafkaServer(settings=settings)) as server:
        yield {**files, **{name.lower(): port for name, port in ports.items()}}
        server.kill()  # in order it would take seconds


KAFKA = "kafka://localhost:{tls}/orders?security_protocol=ssl&ssl_ca_location={ca}"
KAFKA_MUTUAL = KAFKA.replace("{tls}", "{mutual}") + "&ssl_certificate_location={cert}&ssl_key_location={key}"
KAFKA_REFUSED = {
    "another authority": (
        KAFKA.replace("{ca}", "{other_ca}"), "its certificate cannot be verified", "give ?ssl_ca_location=FILE"
    ),
    "another name": (
        KAFKA.replace("localhost", HOST), "its certificate cannot be verified", "each host by a name that it has"
    ),
    "another name of the broker's own": (
        KAFKA.replace("{tls}", "{elsewhere}"), "gives 127.0.0.1:{elsewhere} as its address: its certificate",
        "let its certificate have that name",
    ),
    "no certificate of ours": (
        KAFKA.replace("{tls}", "{mutual}"), "nobody without a certificate", "give ?ssl_certificate_location=FILE"
    ),
    "a strange certificate of ours": (
        KAFKA_MUTUAL.replace("{cert}", "{strange_cert}").replace("{key}", "{strange_key}"),
        "nobody without a certificate", "give ?ssl_certificate_location=FILE",
    ),
    "no TLS there": (
        KAFKA.replace("{tls}", "{plaintext}"), "this listener does not speak TLS", "?security_protocol=plaintext"
    ),
    "no TLS here": ("kafka://localhost:{tls}/orders", "it closes every connection", "?security_protocol=ssl"),
}  # fmt: skip


@pytest.mark.parametrize("log", [KAFKA, KAFKA_MUTUAL.replace("orders", "mutual")], ids=["one-sided", "mutual"])
def test_kafka(kafka_words: Words, log: str, tmp_path: Path) -> None:
    check_use(log=log.format_map(kafka_words), store=f"sqlite:{tmp_path}/store.db")


@pytest.mark.req("D4")
@pytest.mark.parametrize(("log", "why", "hint"), KAFKA_REFUSED.values(), ids=KAFKA_REFUSED)
def test_kafka_refused(
    kafka_words: Words, log: str, why: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topic, "REFUSED_S", 0.3)  # nobody restarts it
    store = f"sqlite:{tmp_path}/store.db"
    check_refused(why.format_map(kafka_words), hint, log=log.format_map(kafka_words), store=store)


# ---------------------------------------------------------------- Cassandra


@pytest.fixture(scope="module")
def cassandra_words(files: Words) -> Iterator[Words]:
    """A node that wants to know its clients."""
    options = {
        "enabled": True,
        "require_client_auth": True,
        "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
        "keystore": str(files["server"]),
        "truststore": str(files["ca"]),
    }
    with started(CassandraServer(settings={"client_encryption_options": options})) as server:
        yield {**files, "tls": server.port}


CASSANDRA = "cassandra://localhost:{tls}/orders?replication=1&tls=on&cafile={ca}"
CASSANDRA_MUTUAL = CASSANDRA + "&certfile={cert}&keyfile={key}"
CASSANDRA_REFUSED = {
    "another authority": (
        CASSANDRA.replace("{ca}", "{other_ca}"), "its certificate cannot be verified", "give ?cafile=FILE"
    ),
    "another name": (
        CASSANDRA.replace("localhost", HOST), "its certificate is not for 127.0.0.1", "a name that its certificate has"
    ),
    "no certificate of ours": (CASSANDRA, "nobody without a certificate", "give ?certfile=FILE&keyfile=FILE"),
    "a strange certificate of ours": (
        CASSANDRA + "&certfile={strange_cert}&keyfile={strange_key}", "nobody without a certificate",
        "give ?certfile=FILE",
    ),
    "no TLS here": ("cassandra://localhost:{tls}/orders", "it closes every connection", "give ?tls=on&cafile=FILE"),
}  # fmt: skip


def test_cassandra(cassandra_words: Words) -> None:
    check_use(log="memory:", store=CASSANDRA_MUTUAL.format_map(cassandra_words))


@pytest.mark.req("D4")
@pytest.mark.parametrize(("store", "why", "hint"), CASSANDRA_REFUSED.values(), ids=CASSANDRA_REFUSED)
def test_cassandra_refused(cassandra_words: Words, store: str, why: str, hint: str) -> None:
    check_refused(why, hint, log="memory:", store=store.format_map(cassandra_words))


# ---------------------------------------------------------------- files


def check_unusable(file: str, parameter: str, **places: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        strandline.connect(**places)
    assert refused.value.code == "url_parameter"
    assert refused.value.message.startswith(f"{parameter}: cannot be used for TLS")
    assert file in refused.value.message
    assert f"give ?{parameter}=FILE" in refused.value.hint


@pytest.mark.parametrize("file", ["/no/such/file", __file__], ids=["missing", "no certificate"])
def test_a_file_that_cannot_be_used(file: str, postgres_words: Words, tmp_path: Path) -> None:
    given = {**postgres_words, "ca": file}
    check_unusable(file, "sslrootcert", url=POSTGRES.format_map(given))
    check_unusable(file, "ssl_ca_location", log=KAFKA.format_map(given), store=f"sqlite:{tmp_path}/store.db")
    check_unusable(file, "cafile", log="memory:", store=CASSANDRA.format_map(given))
