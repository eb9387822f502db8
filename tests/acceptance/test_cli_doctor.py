"""`strandline doctor`: what it finds, what it says to do, and when it exits with 7."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli_call import appended, call

import strandline
from strandline.cli import doctor, extras
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
    assert "lag 1 actions" in found[url]["found"]
    assert "recording and reading work here" in call("doctor", "--url", url).out


def test_missing_extras_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    core = {"orjson", "typer", "rich"}
    monkeypatch.setattr(extras, "installed", lambda package: "1.0" if package in core else None)
    found = findings(code=0)
    assert (found["spark"]["state"], found["spark"]["remedy"]) == ("missing", "pip install 'strandline[spark]'")
    for extra in extras.EXTRAS:
        assert found[f"extra {extra}"]["remedy"] == f"pip install 'strandline[{extra}]'"
    assert "not installed: spark" in call("doctor").out


def test_spark_of_another_version_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = extras.installed
    monkeypatch.setattr(extras, "installed", lambda package: "3.5.9" if package == "pyspark" else installed(package))
    assert findings(code=7)["spark"]["state"] == "wrong"


@pytest.mark.parametrize(
    ("check", "name"),
    [("check_library", "sqlite"), ("check_clock", "clock"), ("check_file_system", "file system")],
)
@pytest.mark.parametrize("strict", [True, False])
def test_refusals_come_with_their_remedy(check: str, name: str, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        if strict:
            raise Unsupported("cannot be used", code="clock", hint="use another")
        warnings.warn("take care", RuntimeWarning, stacklevel=2)

    monkeypatch.setattr(f"strandline.sqlite.checks.{check}", refuse)
    found = findings(code=7 if strict else 0)[name]
    assert (found["state"], found["remedy"]) == (("wrong", "use another") if strict else ("warning", "take care"))


def test_journal_that_does_not_open(url: str) -> None:
    found = findings("--url", url, code=7)[url]
    assert (found["state"], "append" in found["remedy"]) == ("wrong", True)
    assert not Path("orders").exists()
    appended(url)
    Path("orders/store.db").write_bytes(b"something else" * 1000)
    assert "foreign" in findings("--url", url, code=7)[url]["found"] or findings("--url", url, code=7)[url]["remedy"]
    assert "wrong: sqlite:orders" in call("doctor", "--url", url).out


# ------------------------------------------------------------ servers


def _of(scheme: str, *words: str, code: int) -> dict[str, Any]:
    """What is said of the journal on such a server."""
    found = findings(*words, code=code)
    assert "hunter22" not in str(found)
    (name,) = [name for name in found if name.startswith(scheme)]
    return found[name]


def test_a_server_that_is_well(postgres: PostgresServer) -> None:
    url = postgres.database()
    appended(url)
    assert "opens; 8 partitions, lag 1 actions" in _of("postgresql:", "--url", url, code=0)["found"]


@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
def test_a_topic_that_could_lose_something_is_told_with_its_remedy(kafka: KafkaServer, tmp_path: Path) -> None:
    log, store = f"{kafka.url}/doctor", f"sqlite:{tmp_path}/store.db"
    strandline.connect(log=log, store=store, accept_power_loss=True).close()
    words = ("--log", log, "--store", store)
    refused = _of("kafka:", *words, code=7)
    assert refused["state"] == "wrong"
    assert "1 replica; needed 3" in refused["found"] + refused["remedy"]
    accepted = _of("kafka:", *words, "--set", "accept_power_loss=true", code=0)
    assert (accepted["state"], "power cut" in accepted["remedy"]) == ("warning", True)


def test_a_server_that_is_away_is_told_without_its_password() -> None:
    url = "postgresql://user:hunter22@127.0.0.1:1/orders"
    assert _of("postgresql:", "--url", url, "--set", "append_timeout_s=1", code=7)["remedy"]
