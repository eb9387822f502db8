"""What an operator reads in the log of a program: by `logging`, without secrets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from tests.journal.worlds import KEY, url_of

import strandline
from strandline import Event
from strandline.errors import Unavailable
from strandline.log import committer
from strandline.log.api import ActionDraft, Recorded
from strandline.servers.postgres import PostgresServer
from strandline.store.beating_lease import BeatingLease

SECRET = "s3cret-w0rd"


def told(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("strandline.") and record.levelno >= level
    ]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_what_is_opened_and_closed_is_told(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline")
    for _ in range(2):
        with strandline.connect(url_of(backend, tmp_path), partitions=3) as s:
            s.journal.append(KEY, [Event("Placed")])
        s.close()
    made, closed, again, closed_again = told(caplog)
    assert made.startswith("created: log ")
    assert again.startswith("opened: log ")
    assert made.endswith(", 3 partitions")
    assert again.endswith(", 3 partitions")
    assert closed == closed_again == made.replace("created", "closed").removesuffix(", 3 partitions")
    assert not told(caplog, logging.WARNING)


def test_no_password_is_told(postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unavailable):
        strandline.connect(f"postgresql://ann:{SECRET}@127.0.0.1:1/none", append_timeout_s=1)
    url = postgres.database()
    with strandline.connect(url.replace("@", f":{SECRET}@", 1)) as s:
        s.journal.append(KEY, [Event("Placed", SECRET)])
        interrupt(url)
        for _ in range(100):
            with suppress(Unavailable):
                s.journal.append(KEY, [Event("Placed", SECRET)])
                break
    assert len(told(caplog)) >= 3
    assert SECRET not in caplog.text
    assert any("a connection was lost" in line for line in told(caplog))
    assert any("connected again" in line for line in told(caplog))


def interrupt(url: str) -> None:
    """End all other connections to a database."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {others}")


def test_a_slow_commit_and_one_that_fails_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "strandline.log")
    monkeypatch.setattr(committer, "SLOW_S", 0.02)
    with strandline.connect(url_of("sqlite", tmp_path)) as s:
        plain = s.log.append
        s.journal.append(KEY, [Event("Placed")])
        assert told(caplog) == []

        def slow(drafts: Sequence[ActionDraft]) -> list[Recorded]:
            time.sleep(0.03)
            return plain(drafts)

        monkeypatch.setattr(s.log, "append", slow)
        s.journal.append(KEY, [Event("Paid")])

        def failing(drafts: object) -> None:
            raise Unavailable("the disk is gone", code="away", hint="put it back")

        monkeypatch.setattr(s.log, "append", failing)
        with pytest.raises(Unavailable):
            s.journal.append(KEY, [Event("Sent")])
        monkeypatch.undo()
    (took,) = told(caplog, logging.WARNING)
    assert took.startswith("a commit of 1 appends took 0.")
    assert [line for line in told(caplog) if line != took] == [
        "a commit of 1 appends failed after 0.0 s: the disk is gone"
    ]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_lease_that_is_taken_is_told(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline.store")
    with strandline.connect(url_of(backend, tmp_path)) as s:
        s.store.lease().take("ann on host").release()
    (taken,) = told(caplog)
    assert taken.startswith("lease pipeline of ")
    assert taken.endswith("taken by ann on host, fence 1")


def test_a_lease_that_is_lost_is_told(caplog: pytest.LogCaptureFixture) -> None:
    lost = threading.Event()

    def beat(fence: int) -> bool:
        lost.set()
        return False

    lease = BeatingLease(7, 0.03, beat=beat, in_force=lambda: 8, ended=lambda fence: None)
    assert lost.wait(10)
    lease.release()
    assert told(caplog, logging.WARNING) == ["the lease with fence 7 is lost: somebody else has taken it"]
