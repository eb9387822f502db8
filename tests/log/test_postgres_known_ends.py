"""Appends in one round trip: only as long as nobody else writes the partition, and never from what no longer holds."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline.backends.postgres.database import Begun
from strandline.backends.postgres.known_ends import LATER
from strandline.backends.postgres.log import PostgresLog
from strandline.backends.postgres.notifications import Bell
from strandline.backends.postgres.round_trips import Connection
from strandline.errors import Unavailable
from strandline.fold import Duplicate, EventsAppended, RefusedAppend
from strandline.servers.postgres import PostgresServer
from strandline.servers.server import temporary_place
from strandline.testing.log_contract.made import (
    HOUR_US,
    KEY,
    PARTITIONS,
    draft_of,
    everything,
    in_threads,
    keys_in,
    mark_in,
    partition_for,
    purge_of,
)
from tests.log.postgres_logs import in_processes, opened, prepared, start_keys
from tests.servers.proxy import Mischief, Proxy

ID = "9" * 32


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    with closing(opened(url)) as made:
        yield made


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many statements went together, in each round trip of an append."""
    counted: list[int] = []
    exchange = Connection.exchange
    monkeypatch.setattr(Bell, "ring", lambda self: None)

    def counting(self: Connection, statements: Any) -> Any:
        counted.append(len(statements))
        return exchange(self, statements)

    monkeypatch.setattr(Connection, "exchange", counting)
    return counted


def first(log: PostgresLog, draft: Any) -> Any:
    return log.append([draft])[0].effect


def test_who_writes_alone_needs_one_round_trip(log: PostgresLog, trips: list[int]) -> None:
    for number in range(5):
        assert first(log, draft_of(KEY, expected=number)) == EventsAppended(number + 1, number + 1, number, 1)
    assert trips == [3, 2, 1, 1, 1, 1]
    other = keys_in(partition_for(KEY), 2)[1]
    trips.clear()
    for _ in range(2):
        log.append([draft_of(other)])  # a new key
        log.append([draft_of(KEY)])
    assert trips == [1, 1, 1, 1]
    records = everything(log, partition_for(KEY))
    assert [record.offset for record in records] == list(range(9))
    assert [record.timestamp for record in records] == sorted({record.timestamp for record in records})


@pytest.mark.req("J27", "RA5", "RA9")
def test_what_others_wrote_is_seen(url: str, log: PostgresLog, trips: list[int]) -> None:
    with closing(opened(url)) as other:
        for number in range(3):
            first(log, draft_of(KEY, expected=number))
        assert first(other, draft_of(KEY, expected=3)) == EventsAppended(4, 4, 3, 1)
        assert first(log, draft_of(KEY, expected=3)) == RefusedAppend("expected", 4)
        assert first(log, draft_of(KEY, expected=4)) == EventsAppended(5, 5, 4, 1)
        assert first(other, purge_of(KEY)) is not None
        assert first(log, draft_of(KEY)) == EventsAppended(1, 1, 0, 2)
        trips.clear()
        for _ in range(LATER + 2):
            log.append([draft_of(KEY)])
        assert trips[0] > 1, "it asks for a while"
        assert trips[-1] == 1, "and then goes on alone"
    assert [record.offset for record in everything(log, partition_for(KEY))] == list(range(LATER + 9))


def test_a_group_for_several_partitions_needs_one_round_trip(log: PostgresLog, trips: list[int]) -> None:
    keys = [keys_in(partition, 1)[0] for partition in (2, 0, 1)]
    for number in range(4):
        answers = log.append([draft_of(key, expected=number) for key in keys])
        assert [answer.effect for answer in answers] == [EventsAppended(number + 1, number + 1, number, 1)] * 3
    assert trips == [3, 2, 1, 1, 1]
    trips.clear()
    new = keys_in(1, 2)[1]
    log.append([draft_of(key, expected=4) for key in keys] + [draft_of(new)])  # of which nothing is known
    log.append([draft_of(key, expected=5) for key in keys[:2]])
    log.append([draft_of(key, expected=1 if key == new else 5) for key in (new, keys[2])])
    assert trips == [1, 1, 1]
    for partition, count in ((0, 6), (1, 8), (2, 6)):
        records = everything(log, partition)
        assert [record.offset for record in records] == list(range(count))
        assert [record.timestamp for record in records] == sorted({record.timestamp for record in records})


@pytest.mark.req("J27", "RA5", "RA9", "RA10")
@pytest.mark.parametrize("known", [True, False], ids=["keys known", "a key unknown"])
def test_of_a_group_nothing_is_recorded_where_one_partition_moved(
    url: str, log: PostgresLog, trips: list[int], known: bool
) -> None:
    keys = [keys_in(partition, 1)[0] for partition in (0, 1, 2)]
    for number in range(2):
        log.append([draft_of(key, expected=number) for key in keys])
    with closing(opened(url)) as other:
        assert first(other, draft_of(keys[1], expected=2)) == EventsAppended(3, 3, 2, 1)
    trips.clear()
    drafts = [draft_of(key, expected=2) for key in keys]
    if not known:
        drafts.append(draft_of(keys_in(2, 2)[1]))
    answers = log.append(drafts)
    assert [answer.effect for answer in answers[:3]] == [
        EventsAppended(3, 3, 2, 1), RefusedAppend("expected", 3), EventsAppended(3, 3, 2, 1)
    ]  # fmt: skip
    assert trips == ([1, 3, 2] if known else [1, 3, 3, 2])
    assert [len(everything(log, partition)) for partition in range(3)] == [3, 3, 3 if known else 4]


@pytest.mark.req("RA2", "RA8")
def test_a_refusal_in_a_group_rests_on_what_is_there(url: str, log: PostgresLog) -> None:
    one, two = (keys_in(partition, 1)[0] for partition in (0, 1))
    for number in range(2):
        log.append([draft_of(key, expected=number) for key in (one, two)])
    with closing(opened(url)) as other:
        first(other, purge_of(two))
    answers = log.append([draft_of(one, expected=2), draft_of(two, expected=0)])  # refused by what was, not by what is
    assert [answer.effect for answer in answers] == [EventsAppended(3, 3, 2, 1), EventsAppended(1, 1, 0, 2)]


@pytest.mark.req("RA2", "RA8")
def test_refusals_and_duplicates_rest_on_what_is_there(url: str, log: PostgresLog) -> None:
    draft = draft_of(KEY, "once", append_id=ID)
    assert first(log, draft) == EventsAppended(1, 1, 0, 1)
    assert isinstance(first(log, draft), Duplicate)
    answers = log.append([draft, draft_of(KEY, expected=9), draft_of(KEY, expected=1)])
    assert [type(answer.effect) for answer in answers] == [Duplicate, RefusedAppend, EventsAppended]
    assert first(log, draft_of(KEY, expected=0)) == RefusedAppend("expected", 2)
    with closing(opened(url)) as other:
        first(other, purge_of(KEY))
    assert first(log, draft) == EventsAppended(1, 1, 0, 2)


# ---------------------------------------------------------------- keys that are taken for new ones


@pytest.mark.req("J27", "RA9")
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_key_that_is_not_new_is_found_out(url: str, log: PostgresLog, trips: list[int], partitions: int) -> None:
    old, used, purged = (keys_in(1, 3)[number] for number in range(3))
    beside = [draft_of(keys_in(2, 1)[0])] * (partitions - 1)
    log.append([draft_of(old), draft_of(used), draft_of(purged), purge_of(purged)])
    with closing(opened(url)) as later:  # it knows how the partitions end, but only some of their keys
        later.append([draft_of(old), *beside])
        trips.clear()
        assert later.append([draft_of(used), *beside])[0].effect == EventsAppended(2, 2, 1, 1)
        assert trips == [1, 3, 2]
        for _ in range(LATER):
            later.append([draft_of(f"{used}|{len(trips)}")._replace(partition=1)])
        assert trips == [1] + [3, 2] * (LATER + 1), "after that it asks for a while"
        trips.clear()
        assert later.append([draft_of(purged), *beside])[0].effect == EventsAppended(1, 1, 0, 2)
        assert trips == [1, 3, 2]
    assert [record.offset for record in everything(log, 1)] == list(range(7 + LATER))


@pytest.mark.req("RA2", "RA8")
def test_refusals_of_keys_that_seem_new_rest_on_what_is_there(url: str, log: PostgresLog, trips: list[int]) -> None:
    old, used, new = keys_in(1, 3)
    once = draft_of(used, "once", append_id=ID)
    log.append([draft_of(old), once])
    with closing(opened(url)) as later:
        later.append([draft_of(old)])
        answers = later.append([draft_of(old), once, draft_of(used, expected=1), draft_of(new, expected=1)])
        assert [type(answer.effect) for answer in answers] == [EventsAppended, Duplicate, EventsAppended, RefusedAppend]
    with closing(opened(url)) as later:
        later.append([draft_of(old)])
        trips.clear()
        answers = later.append([draft_of(old), draft_of(new, expected=1)])
        assert [answer.effect for answer in answers] == [EventsAppended(5, 5, 4, 1), RefusedAppend("expected", 0)]
        assert trips == [1], "it is new"
        assert first(later, draft_of(new, expected=0)) == EventsAppended(1, 1, 0, 1)


@pytest.mark.req("J27", "RA9")
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "gives up"])
def test_a_key_that_somebody_else_starts_at_the_same_time(
    url: str, log: PostgresLog, monkeypatch: pytest.MonkeyPatch, commits: bool, partitions: int
) -> None:
    """The other one has written its state already, and commits, or not, while we wait for the partition."""
    monkeypatch.setattr(Bell, "ring", lambda self: None)
    (key,), (beside,) = keys_in(1, 1), keys_in(2, 1)
    log.append([mark_in(1), mark_in(2)])
    commit = Begun.commit
    drafts = [draft_of(key, "ours", expected=0), *[draft_of(beside)] * (partitions - 1)]
    answers: list[Any] = []
    ours = threading.Thread(target=lambda: answers.extend(log.append(drafts)))

    def late(self: Begun, *last: Any) -> None:
        monkeypatch.setattr(Begun, "commit", commit)
        self._connection.exchange(last)
        ours.start()
        _until_somebody_waits(url)
        if not commits:
            self.undo()
            raise RuntimeError("gives up")
        commit(self)

    with closing(opened(url)) as other:
        monkeypatch.setattr(Begun, "commit", late)
        if commits:
            assert first(other, draft_of(key, "theirs", expected=0)) == EventsAppended(1, 1, 0, 1)
        else:
            with pytest.raises(RuntimeError):
                other.append([draft_of(key, "theirs", expected=0)])
    ours.join(30)
    assert answers[0].effect == (RefusedAppend("expected", 1) if commits else EventsAppended(1, 1, 0, 1))
    assert [record.key for record in everything(log, 1)] == [None, key]
    assert first(log, draft_of(key, expected=1)) == EventsAppended(2, 2, 1, 1)


def _until_somebody_waits(url: str) -> None:
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        deadline = time.monotonic() + 30
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%moved AS%'"
        while not connection.execute(waits).fetchall():
            assert time.monotonic() < deadline


@pytest.mark.req("J27", "RA9", "J37")
def test_of_processes_that_start_the_same_keys_one_wins_each(url: str, log: PostgresLog) -> None:
    count = 200
    won = in_processes(start_keys, [(url, number, count) for number in range(3)])
    assert sorted(number for numbers in won for number in numbers) == list(range(count))
    for partition in range(PARTITIONS):
        records = everything(log, partition)
        assert [record.offset for record in records] == list(range(len(records)))
        keys = [record.key for record in records if record.key is not None]
        assert len(keys) == len(set(keys))


# ---------------------------------------------------------------- answers that are lost, clocks, threads


@pytest.mark.req("RA3", "RA8")
@pytest.mark.parametrize(("mischief", "there"), [("lose answer", 3), ("lose request", 2)])
def test_a_lost_answer_is_unknown(postgres: PostgresServer, url: str, mischief: Mischief, there: int) -> None:
    with (
        tempfile.TemporaryDirectory(dir=temporary_place()) as folder,
        Proxy(postgres.folder, Path(folder)) as proxy,
        closing(opened(url.replace(str(postgres.folder), folder))) as log,
    ):
        for _ in range(2):
            first(log, draft_of(KEY))
        proxy.trigger = prepared(log, "append_at_once")
        proxy.mischief = mischief
        draft = draft_of(KEY, "once", append_id=ID)
        with pytest.raises(Unavailable) as caught:
            log.append([draft])
        assert (caught.value.name, caught.value.applied) == ("Unavailable.away", "unknown")
        assert proxy.done.wait(10)
        assert len(everything(log, partition_for(KEY))) == there
        assert isinstance(first(log, draft), Duplicate if there == 3 else EventsAppended)
        assert first(log, draft_of(KEY, expected=3)) == EventsAppended(4, 4, 3, 1)


@pytest.mark.req("J28", "RA6")
def test_the_clock_is_still_the_servers(log: PostgresLog, trips: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([mark_in(0)])
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: 0)
        patched.setattr(time, "time", lambda: 0.0)
        (alone,) = log.append([mark_in(0)])
    assert trips == [3, 2, 1]
    log._known_ends._ahead_us += HOUR_US  # the server's clock was set back, or this machine slept
    (asked,) = log.append([mark_in(0)])
    now = time.time_ns() // 1000
    for answer in (alone, asked):
        assert answer.place is not None
        assert abs(answer.place.timestamp - now) < HOUR_US / 2
    assert len(trips) == 6, "one that is refused for its time, then two"


@pytest.mark.req("RA9", "RA5")
def test_threads_never_go_on_from_the_same_end(log: PostgresLog) -> None:
    keys = keys_in(1, 4)

    def write(number: int) -> list[int]:
        return [first(log, draft_of(keys[number], number, count, expected=2 * count)).last for count in range(40)]

    assert in_threads(write, 4) == [list(range(2, 82, 2))] * 4
    assert [record.offset for record in everything(log, 1)] == list(range(160))
