"""TLS to real servers: those that can be trusted are used like any other, others are told apart, with what to do."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.servers.fixtures import started
from tests.servers.front import Front
from tests.servers.spares import SpareCassandra, SpareKafka

import strandline
from strandline import Event, InvalidInput, Unavailable
from strandline.backends.kafka import topic as kafka_topic
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import HOST, free_port
from strandline.testing import carry

pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
Words = Mapping[str, Any]
"""What the URLs of this module are filled with: files, and ports of servers."""


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
def postgres_words(certificates: Words) -> Iterator[Words]:
    """A server that takes nobody by its port, where it speaks no TLS, and everybody behind a front that does."""
    port = free_port()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates["ca"])
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(certificates["server"])
    with started(PostgresServer(settings={"listen_addresses": HOST, "port": str(port)})) as server:
        (server.folder / "data" / "pg_hba.conf").write_text("local all all trust\n")
        server.restart()
        with Front(server.folder / f".s.PGSQL.{port}", tls) as front:
            yield {**certificates, "tls": front.port, "plain": port}


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
        "postgresql://postgres@localhost:{plain}/postgres", "from here without TLS",
        "give ?sslmode=verify-full&sslrootcert=",
    ),
    "no such mode": (POSTGRES.replace("verify-full", "yes"), "there is no sslmode yes", "mend ?sslmode= in the URL"),
}  # fmt: skip


def test_postgres(postgres_words: Words) -> None:
    check_use(url=(POSTGRES + "&sslcert={cert}&sslkey={key}").format_map(postgres_words))


@pytest.mark.req("D4")
@pytest.mark.parametrize(("url", "why", "hint"), POSTGRES_REFUSED.values(), ids=POSTGRES_REFUSED)
def test_postgres_refused(postgres_words: Words, url: str, why: str, hint: str) -> None:
    check_refused(why, hint, url=url.format_map(postgres_words))


@pytest.mark.req("D4")
def test_postgres_elsewhere_is_checked_unasked(postgres_words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host elsewhere, for which the environment of libpq gives an address here."""
    monkeypatch.setenv("PGHOSTADDR", HOST)
    url = "postgresql://postgres@db.example:{tls}/postgres?sslrootcert={ca}&sslcert={cert}&sslkey={key}"
    check_refused('its certificate is for "localhost", not for "db.example"', "", url=url.format_map(postgres_words))


# ---------------------------------------------------------------- Kafka


@pytest.fixture(scope="module")
def kafka_words(certificates: Words, spare_kafka: SpareKafka) -> Words:
    return {**certificates, **{name.lower(): port for name, port in spare_kafka.ports.items()}}


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


CASSANDRA = "cassandra://cassandra:cassandra@localhost:{port}/orders?replication=1&tls=on&cafile={ca}"
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
    "no TLS here": ("cassandra://localhost:{port}/orders", "it closes every connection", "give ?tls=on&cafile=FILE"),
}  # fmt: skip


def test_cassandra(spare_cassandra: SpareCassandra) -> None:
    check_use(log="memory:", store=CASSANDRA_MUTUAL.format_map(spare_cassandra.words))


@pytest.mark.req("D4")
@pytest.mark.parametrize(("store", "why", "hint"), CASSANDRA_REFUSED.values(), ids=CASSANDRA_REFUSED)
def test_cassandra_refused(spare_cassandra: SpareCassandra, store: str, why: str, hint: str) -> None:
    check_refused(why, hint, log="memory:", store=store.format_map(spare_cassandra.words))


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
    given = {**postgres_words, "ca": file, "port": 1}
    check_unusable(file, "sslrootcert", url=POSTGRES.format_map(given))
    check_unusable(file, "ssl_ca_location", log=KAFKA.format_map(given), store=f"sqlite:{tmp_path}/store.db")
    check_unusable(file, "cafile", log="memory:", store=CASSANDRA.format_map(given))
