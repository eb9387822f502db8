"""`strandline doctor`: what it finds, what it says to do, and when it exits with 7."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.acceptance.cli_call import appended, call

import strandline
from strandline import extras
from strandline.cli import doctor
from strandline.errors import Unsupported
from strandline.servers.kafka import KafkaServer
from strandline.servers.postgres import PostgresServer


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java, so that a machine without one passes; one test looks for the real one."""
    monkeypatch.setattr(doctor, "_java", lambda: "Java 21")


def findings(*argv: str, code: int) -> dict[str, dict[str, Any]]:
    answer = call("doctor", "--json", *argv)
    assert answer.code == code, answer.out
    found = {line["name"]: line for line in answer.lines}
    assert all(finding["remedy"] for finding in found.values() if finding["state"] != "ok")
    return found


def test_all_is_well(url: str) -> None:
    appended(url)
    found = findings("--url", url, code=0)
    needed = {"strandline", "python", "sqlite", "orjson", "typer", "rich", "clock", "cores", "memory", "free disk"}
    assert needed < set(found)
    assert all(found[name]["state"] in ("ok", "warning") for name in needed)
    assert found["journal"]["found"] == "sqlite:orders: opens; 8 partitions, lag 1 action, 0 quarantined"
    assert "recording and reading work here" in call("doctor", "--url", url).out


def test_missing_extras_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    core = {"orjson", "typer", "rich"}
    monkeypatch.setattr(extras, "installed", lambda package: "1.0" if package in core else None)
    found = findings(code=0)
    assert (found["spark"]["state"], found["spark"]["remedy"]) == ("missing", extras.install("spark"))
    for extra in extras.EXTRAS:
        assert found[f"extra {extra}"]["remedy"] == extras.install(extra)
    assert "not installed: spark" in call("doctor").out


def test_spark_of_another_version_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = extras.installed
    monkeypatch.setattr(extras, "installed", lambda package: "3.5.9" if package == "pyspark" else installed(package))
    assert findings(code=7)["spark"]["state"] == "wrong"


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("backends.sqlite.checks.check_library", "sqlite"),
        ("cli.doctor.check_clock", "clock"),
        ("backends.sqlite.checks.check_file_system", "file system"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_refusals_come_with_their_remedy(check: str, name: str, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        if strict:
            raise Unsupported("cannot be used", code="clock", hint="use another")
        warnings.warn("take care", RuntimeWarning, stacklevel=2)

    monkeypatch.setattr(f"strandline.{check}", refuse)
    found = findings(code=7 if strict else 0)[name]
    assert (found["state"], found["remedy"]) == (("wrong", "use another") if strict else ("warning", "take care"))


def test_journal_that_does_not_open(url: str) -> None:
    found = findings("--url", url, code=7)["journal"]
    assert (found["state"], "append" in found["remedy"]) == ("wrong", True)
    assert not Path("orders").exists()
    appended(url)
    Path("orders/store.db").write_bytes(b"something else" * 1000)
    assert "is no SQLite database" in findings("--url", url, code=7)["journal"]["found"]
    assert "wrong: journal" in call("doctor", "--url", url).out
    assert "--url: unknown scheme" in findings("--url", "mongo:orders", code=7)["journal"]["found"]


# ------------------------------------------------------------ servers


def test_a_server_that_is_well(postgres: PostgresServer) -> None:
    url = postgres.database()
    appended(url)
    found = findings("--url", url, code=0)
    assert found["journal"]["found"] == f"{url}: opens; 8 partitions, lag 1 action, 0 quarantined"
    assert found["psycopg"]["found"] == extras.installed("psycopg")
    assert not {"log", "store", "confluent-kafka", "cassandra-driver"} & set(found)


@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
def test_log_and_store_have_a_row_each(kafka: KafkaServer, unused_keyspace: Callable[[], str]) -> None:
    log, store = f"{kafka.url}/{uuid4().hex}", unused_keyspace()
    strandline.connect(log=log, store=store, accept_power_loss=True).close()
    words = ("--log", log, "--store", store)
    found = findings(*words, code=7)
    assert found["log"] == {
        "name": "log",
        "state": "wrong",
        "found": f"{log}: topic {log.rpartition('/')[2]}: 1 replica; needed 3",
        "remedy": found["log"]["remedy"],
    }
    assert "--set accept_power_loss=true" in found["log"]["remedy"]
    assert found["store"]["state"] == "wrong"
    assert found["store"]["found"].startswith(f"{store}: 1 replica in this data centre")
    found = findings(*words, "--set", "accept_power_loss=true", code=0)
    for name, said, warned in (
        ("log", f"{log}: opens; 8 partitions", "power cut"),
        ("store", f"{store}: opens; lag 0 actions, 0 quarantined", "1 replica in this data centre"),
    ):
        assert (found[name]["state"], found[name]["found"]) == ("warning", said)
        assert found[name]["remedy"].count("accept_power_loss is on") == 1
        assert warned in found[name]["remedy"]
    assert {found[name]["state"] for name in ("confluent-kafka", "cassandra-driver")} == {"ok"}


def test_all_warnings_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> None:
        for message in ("take care", "and of this", "take care"):
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    monkeypatch.setattr("strandline.backends.sqlite.checks.check_library", warn)
    assert findings(code=0)["sqlite"]["remedy"] == "take care; and of this"


def test_a_client_library_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = extras.installed
    monkeypatch.setattr(extras, "installed", lambda name: None if name == "confluent-kafka" else installed(name))
    words = ("--log", "kafka://127.0.0.1:1/orders", "--store", f"sqlite:{tmp_path}/s.db")
    found = findings(*words, "--set", "append_timeout_s=1", code=7)["confluent-kafka"]
    assert (found["state"], found["remedy"]) == ("wrong", extras.install("kafka"))


def test_a_server_that_is_away_is_told_once_and_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://user:hunter22@127.0.0.1:1/orders"
    shown = "postgresql://user:***@127.0.0.1:1/orders"
    answer = call("doctor", "--url", url, "--set", "append_timeout_s=1")
    assert (answer.code, answer.out.count("127.0.0.1")) == (7, 1)
    assert "hunter22" not in answer.out
    found = findings("--log", f"sqlite:{tmp_path}/log", "--store", url, "--set", "append_timeout_s=1", code=7)
    assert found["store"]["found"] == f"{shown}: PostgreSQL cannot be reached: the connection is refused"
    assert found["log"]["state"] == "wrong"  # it is not there
