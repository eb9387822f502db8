"""Reading on PostgreSQL: log and store are asked at the same time, and whatever comes of it, no connection is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import strandline
from strandline import Strandline
from strandline.backends.postgres.pool import CONNECTIONS_MAX
from strandline.errors import Unavailable
from strandline.journal.retention import trim
from strandline.servers.postgres import PostgresServer
from strandline.store.api import KeyStates
from strandline.testing import carry
from tests.journal.worlds import events, seq_nrs
from tests.log.postgres_logs import new_url, parsed

KEY = "order|1"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return new_url(postgres)


@pytest.fixture
def s(url: str) -> Iterator[Strandline]:
    with strandline.connect(url, append_timeout_s=2) as made:
        made.journal.append(KEY, events(1, 2))
        yield made


@pytest.mark.req("J52")
def test_the_store_answers_while_the_log_does_not(url: str, s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    look = s.store.look
    with psycopg.connect(url.partition("&schema")[0]) as holder:
        holder.execute(f'LOCK TABLE "{parsed(url).parameters["schema"]}".log_partition')

        def look_then_unlock(partition: int, keys: Any) -> KeyStates:
            found = look(partition, keys)
            holder.rollback()
            return found

        monkeypatch.setattr(s.store, "look", look_then_unlock)
        assert seq_nrs(s.journal.read(KEY)) == [1, 2]


def test_a_store_that_fails_keeps_no_connection_of_the_log(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(partition: int, keys: Any) -> KeyStates:
        raise Unavailable("the store is away", code="away", hint="call again")

    with monkeypatch.context() as patched:
        patched.setattr(s.store, "look", fail)
        for _ in range(CONNECTIONS_MAX + 1):
            with pytest.raises(Unavailable, match="the store is away"):
                s.journal.head(KEY)
    assert s.journal.append(KEY, events(3), expected=2).first == 3
    assert seq_nrs(s.journal.read(KEY)) == [1, 2, 3]


@pytest.mark.req("J33", "RA14")
def test_trimming_goes_by_the_servers_clock(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    s.journal.append("order|1", events(1))
    carry(s)
    told = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: told() + 2 * 86_400 * 10**9)  # this machine is two days ahead
    assert trim(s.log, s.store, s.settings) == 0
    assert max(s.log.oldest()) == 0
