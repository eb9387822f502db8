"""Appending, deleting, purging, marking: what is answered, and when."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import RFC_4122, UUID, uuid4, uuid5

import pytest

import strandline
from strandline import (
    KEEP,
    Appended,
    Event,
    InvalidInput,
    Key,
    Marked,
    SchemaMismatch,
    SeqNrConflict,
    Unavailable,
    Unsupported,
)
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.backends.postgres.log import PostgresLog
from strandline.backends.sqlite import database
from strandline.backends.sqlite.log import SqliteLog
from strandline.connect import Strandline
from strandline.journal import checks, verdict
from strandline.journal.checks import append_draft
from strandline.log.api import ActionDraft, Log, Recorded
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.store.scans import look_at
from strandline.testing import carry
from strandline.testing.faults import Faults, fail
from strandline.values.actions import Place
from strandline.values.heads import Head
from tests.journal.damage import rot
from tests.journal.worlds import BACKENDS, KEY, events, needs_exact, numbered, paired, seq_nrs, world

spawned = multiprocessing.get_context("spawn")


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path) as opened:
        yield opened


# ---------------------------------------------------------------- answers


@pytest.mark.req("J1", "J35", "J38")
def test_an_append_is_answered_with_its_numbers_and_place(s: Strandline) -> None:
    needs_exact(s, "without a verdict it says no numbers; see test_inexact")
    first = s.journal.append(KEY, events("a", "b"))
    second = s.journal.append("order|42", tuple(events("c")), numbers=False)
    assert (first.key, first.first, first.last, first.duplicate) == (KEY, 1, 2, False)
    assert (second.first, second.last) == (3, 3)
    assert first.partition == second.partition == KEY.partition(s.log.partitions)
    assert (first.offset, second.offset) == (0, 1)
    assert first.timestamp is not None
    assert second.timestamp is not None
    assert second.timestamp > first.timestamp
    assert [(event.log_offset, event.timestamp) for event in s.journal.read(KEY)] == [
        (0, first.timestamp),
        (0, first.timestamp),
        (1, second.timestamp),
    ]


@pytest.mark.req("J36")
def test_expected(s: Strandline) -> None:
    with pytest.raises(SeqNrConflict) as caught:
        s.journal.append(KEY, events(1), expected=3)
    assert caught.value.name == "SeqNrConflict.expected"
    assert (caught.value.key, caught.value.expected, caught.value.actual) == (str(KEY), 3, 0)
    assert caught.value.applied == "no"
    s.journal.append(KEY, events(1, 2), expected=0)
    s.journal.delete(KEY, to=2)
    with pytest.raises(SeqNrConflict) as caught:
        s.journal.append(KEY, events(3), expected=0)
    assert caught.value.actual == 2
    assert s.journal.append(KEY, events(3), expected=2).first == 3


@pytest.mark.req("J45")
def test_first(s: Strandline) -> None:
    assert s.journal.append(KEY, events(1), first=11).first == 11
    with pytest.raises(SeqNrConflict) as caught:
        s.journal.append(KEY, events(1), first=11)
    assert caught.value.name == "SeqNrConflict.first"
    assert (caught.value.key, caught.value.first, caught.value.actual) == (str(KEY), 11, 11)
    with pytest.raises(SeqNrConflict):
        s.journal.append(KEY, events(1), first=20, expected=10)
    assert s.journal.append(KEY, events(1), first=20, expected=11).last == 20
    with pytest.raises(InvalidInput) as refused:
        s.journal.append(KEY, events(1), first=20 + 102 * 10_000)
    assert refused.value.name == "InvalidInput.seq_nr_range"
    assert s.journal.append("order|late", events(1), first=2**63 - 1).last == 2**63 - 1
    with pytest.raises(InvalidInput) as refused:
        s.journal.append("order|late", events(2))
    assert refused.value.name == "InvalidInput.seq_nr_range"
    assert seq_nrs(s.journal.read(KEY)) == [11, 20]


@pytest.mark.req("J39", "RA8")
def test_retry_after_win(s: Strandline) -> None:
    s.journal.append(KEY, events(1, 2, 3, 4, 5))
    append_id = uuid4()
    won = s.journal.append(KEY, events(6), expected=5, append_id=append_id)
    for carried in (False, True):
        if carried:
            carry(s)
        again = s.journal.append(KEY, events(6), expected=5, append_id=str(append_id))
        assert again.duplicate
        assert (again.first, again.last, again.partition, again.offset, again.timestamp) == (
            won.first, won.last, won.partition, won.offset, won.timestamp,
        )  # fmt: skip
    assert seq_nrs(s.journal.read(KEY)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.req("J39")
def test_ids_are_per_key_forgotten_with_a_life_and_not_kept_of_refused_appends(s: Strandline) -> None:
    append_id = uuid4()
    with pytest.raises(SeqNrConflict):
        s.journal.append(KEY, events(1), append_id=append_id, expected=9)
    assert not s.journal.append(KEY, events(1), append_id=append_id).duplicate
    assert not s.journal.append("order|43", events(1), append_id=append_id).duplicate
    s.journal.purge(KEY)
    assert not s.journal.append(KEY, events(2), append_id=append_id).duplicate
    for _ in range(32):
        s.journal.append(KEY, events(0), append_id=uuid4())
    assert not s.journal.append(KEY, events(2), append_id=append_id).duplicate


@pytest.mark.req("J40")
def test_an_id_with_other_content_is_refused(s: Strandline) -> None:
    append_id = uuid4()
    s.journal.append(KEY, [Event("Placed", 1, tags=["a"])], append_id=append_id, headers={"by": "eve", "at": "9"})
    others: list[tuple[Event, dict[str, str]]] = [
        (Event("Placed", 2, tags=["a"]), {"by": "eve", "at": "9"}),
        (Event("Placed", 1, tags=["b"]), {"by": "eve", "at": "9"}),
        (Event("Packed", 1, tags=["a"]), {"by": "eve", "at": "9"}),
        (Event("Placed", 1, tags=["a"], metadata={}), {"by": "eve", "at": "9"}),
        (Event("Placed", 1, tags=["a"]), {"by": "bob", "at": "9"}),
    ]
    for event, headers in others:
        with pytest.raises(InvalidInput) as caught:
            s.journal.append(KEY, [event], append_id=append_id, headers=headers)
        assert caught.value.name == "InvalidInput.append_id_reused"
    same = s.journal.append(
        KEY, [Event("Placed", 1, tags={"a"})], append_id=append_id, headers={"at": "9", "by": "eve"}
    )
    assert same.duplicate
    assert len(list(s.journal.read(KEY))) == 1


@pytest.mark.req("J101")
def test_expire_after_is_set_kept_changed_and_removed(s: Strandline) -> None:
    def expiry() -> tuple[timedelta | None, int | None]:
        head = s.journal.head(KEY)
        assert head is not None
        return head.expire_after, head.expire_at

    day = timedelta(days=1)
    for given, expected in ((KEEP, None), (day, day), (KEEP, day), (2 * day, 2 * day), (None, None), (KEEP, None)):
        done = s.journal.append(KEY, events(1), expire_after=given)
        assert done.timestamp is not None
        after, at = expiry()
        assert after == expected
        assert at == (None if expected is None else done.timestamp + expected // timedelta(microseconds=1))
        carry(s)
        assert expiry() == (after, at)


@pytest.mark.req("J47")
def test_delete_answers_with_the_delete_to_in_force(s: Strandline) -> None:
    needs_exact(s, "looking up the head leaves a Mark behind")
    assert s.journal.delete(KEY, to=3) is None
    assert s.log.newest()[KEY.partition(8)] == -1
    s.journal.append(KEY, events(1, 2, 3, 4))
    done = s.journal.delete(KEY, to=3)
    assert done is not None
    assert (done.delete_to, done.partition, done.offset) == (3, KEY.partition(8), 1)
    lower = s.journal.delete(KEY, to=2)
    assert lower is not None
    assert lower.delete_to == 3
    beyond = s.journal.delete(KEY, to=2**63 - 1)
    assert beyond is not None
    assert beyond.delete_to == 4
    reset = s.journal.delete("order|43", to=5, reset=True)
    assert reset is not None
    assert reset.delete_to == 5
    assert s.journal.append("order|43", events(6)).first == 6


@pytest.mark.req("J20", "J47")
def test_a_delete_behind_a_purge_is_void() -> None:
    """The purge lands between the delete's look at the head and its write."""
    faults = Faults()
    log = MemoryLog(partitions=1)
    s = paired(faults.around("log", log), MemoryStore(StoreSettings(log.log_id, 1, 10_000)))
    s.journal.append(KEY, events(1, 2, 3))
    other = paired(log, s.store)

    def purge() -> None:
        other.journal.purge(KEY)

    faults.at("before log.append", purge)
    assert s.journal.delete(KEY, to=2) is None
    assert s.journal.head(KEY) is None
    assert s.journal.append(KEY, events("new")).first == 1


@pytest.mark.req("J47", "J16")
def test_a_delete_beyond_the_end_takes_nothing_that_comes_meanwhile() -> None:
    """An append lands between the delete's look at the head and its write: it was not meant."""
    faults = Faults()
    log = MemoryLog(partitions=1)
    s = paired(faults.around("log", log), MemoryStore(StoreSettings(log.log_id, 1, 10_000)))
    s.journal.append(KEY, events(1, 2, 3))
    other = paired(log, s.store)

    def append() -> None:
        other.journal.append(KEY, events(4))

    faults.at("before log.append", append)
    done = s.journal.delete(KEY, to=100)
    assert done is not None
    assert (done.delete_to, seq_nrs(s.journal.read(KEY))) == (3, [4])


@pytest.mark.req("J48", "J11", "J77", "J106", "T40")
def test_a_purge_leaves_one_row_that_does_not_tell_the_key(tmp_path: Path) -> None:
    """Of everything that a store has of a key: events, head, snapshots, rows of tags, the quarantine."""
    with strandline.connect(f"sqlite:{tmp_path}/orders", partitions=1) as s:
        database = s.store._database  # type: ignore[attr-defined]

        def counted() -> dict[str, int]:
            with database.connection() as connection:
                tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                return {name: connection.execute(f'SELECT count(*) FROM "{name}"').get for (name,) in tables}

        carry(s)
        empty = counted()
        s.journal.append(KEY, [Event("Placed", number, tags=["red", "blue"]) for number in range(5)])
        rot(s, s.journal.append(KEY, events(6)).offset)
        carry(s)
        s.journal.delete(KEY, to=2)
        s.journal.save_snapshot(KEY, 3, {"state": 1})
        s.journal.save_snapshot(KEY, 5, {"state": 2})
        carry(s)
        full = counted()
        assert {name for name, rows in full.items() if rows > empty.get(name, 0)} >= {
            "journal", "metajournal", "snapshot", "tag_view", "tag_progress", "quarantine"
        }  # fmt: skip
        s.journal.purge(KEY)
        carry(s)
        left = {name: rows for name, rows in counted().items() if rows > empty.get(name, 0) and name != "pointer"}
        assert left == {"ended": 1}
        with database.connection() as connection:
            (row,) = connection.execute("SELECT * FROM ended").fetchall()
        assert not any(str(KEY).encode() in (value if type(value) is bytes else str(value).encode()) for value in row)


@pytest.mark.req("J48")
def test_purge_twice_is_harmless(s: Strandline) -> None:
    s.journal.append(KEY, events(1))
    first, second = s.journal.purge(KEY), s.journal.purge(KEY)
    assert second.offset > first.offset
    assert (first.life, second.life) == (1, None)
    assert s.journal.append(KEY, events(1)).first == 1
    carry(s)
    head = s.journal.head(KEY)
    assert head is not None
    assert head.life == 2


@pytest.mark.req("J49")
def test_mark_and_wait_replicated(s: Strandline) -> None:
    marked = s.journal.mark(KEY, id="deploy 7")
    assert marked.id == "deploy 7"
    assert s.journal.head(KEY) is None
    assert s.journal.mark(KEY).id != s.journal.mark(KEY).id
    appended = s.journal.append(KEY, events(1))
    for place in (marked, appended):
        with pytest.raises(Unavailable) as caught:
            s.journal.wait_replicated(place, timeout_s=0)
        assert caught.value.name == "Unavailable.not_replicated"
    waiting = threading.Thread(target=s.journal.wait_replicated, args=(appended,))
    waiting.start()
    carry(s)
    waiting.join(10)
    assert not waiting.is_alive()
    s.journal.wait_replicated(marked, timeout_s=timedelta(0))
    purged, deleted = s.journal.purge(KEY), s.journal.delete("order|43", to=1, reset=True)
    assert deleted is not None
    carry(s)
    s.journal.wait_replicated(purged, timeout_s=0)
    s.journal.wait_replicated(deleted, timeout_s=0)
    for foreign in (Marked("x", 8, 0, None), Appended(KEY, 1, 1, 4, 10**6, 0), "3"):
        with pytest.raises(InvalidInput) as refused:
            s.journal.wait_replicated(foreign, timeout_s=0)  # type: ignore[arg-type]
        assert refused.value.name == "InvalidInput.offset_foreign"


@pytest.mark.req("J22", "J39", "J36")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kept", [1, 3, 40])
def test_so_many_append_ids_are_remembered(backend: str, kept: int, tmp_path: Path) -> None:
    """Before and after they are carried; an older one is judged anew, and `expected` guards it."""
    with world(backend, tmp_path, partitions=1, append_ids_kept=kept) as s:
        ids = [uuid4() for _ in range(kept + 1)]
        for number, append_id in enumerate(ids, 1):
            assert s.journal.append(KEY, events(number), append_id=append_id).first == number
            s.journal.append("order|7", events(number))
        for _ in range(2):
            for number, append_id in [*enumerate(ids, 1)][1:]:
                again = s.journal.append(KEY, events(number), append_id=append_id, expected=0)
                assert (again.duplicate, again.first) == (True, number)
            with pytest.raises(SeqNrConflict):
                s.journal.append(KEY, events(1), append_id=ids[0], expected=0)
            carry(s)
        forgotten = s.journal.append(KEY, events(1), append_id=ids[0])
        assert (forgotten.duplicate, forgotten.first) == (False, kept + 2)
        carry(s)
        _, state = look_at(s.store, str(KEY), 0)
        assert isinstance(state, Head)
        assert [answer.append_id for answer in state.given] == [given.hex for given in [*ids[2:], ids[0]]]
        assert seq_nrs(s.journal.read(KEY)) == [*range(1, kept + 3)]


@pytest.mark.req("J111", "J22", "U5")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_how_many_append_ids_are_remembered_is_fixed_at_creation(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, append_ids_kept=2) as s:
        first = s.journal.append(KEY, events(1), append_id=uuid4())
    with pytest.raises(SchemaMismatch) as refused, world(backend, tmp_path, append_ids_kept=3):
        pass
    assert refused.value.name == "SchemaMismatch.setting"
    assert (refused.value.setting, refused.value.stored, refused.value.given) == ("append_ids_kept", 2, 3)
    with world(backend, tmp_path) as s:
        assert s.store.settings.append_ids_kept == 2
        assert s.journal.append(KEY, events(2), expected=first.last).first == 2


@pytest.mark.req("J111", "J27")
def test_a_log_and_a_store_that_fold_by_other_rules_are_no_pair() -> None:
    log = MemoryLog(partitions=1, append_ids_kept=5)
    with pytest.raises(SchemaMismatch) as refused:
        paired(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000, append_ids_kept=6)))
    assert refused.value.name == "SchemaMismatch.setting"
    assert (refused.value.setting, refused.value.stored, refused.value.given) == ("append_ids_kept", 6, 5)


# ---------------------------------------------------------------- the group commit


class Slow:
    """A log whose commits wait at a gate; it counts them."""

    def __init__(self) -> None:
        self.inner = MemoryLog(partitions=4)
        self.gate = threading.Event()
        self.sizes: list[int] = []

    def append(self, drafts: list[ActionDraft]) -> list[Recorded]:
        self.sizes.append(len(drafts))
        self.gate.wait(30)
        return self.inner.append(drafts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def slow() -> tuple[Strandline, Slow]:
    log = Slow()
    store = MemoryStore(StoreSettings(log.inner.log_id, 4, 10_000))
    typed: Log = log  # type: ignore[assignment]
    return Strandline(typed, store, Settings()), log


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.req("J41")
def test_group_of_many() -> None:
    s, log = slow()
    with ThreadPoolExecutor(65) as pool:
        leader = pool.submit(s.journal.append, KEY, events(0))
        wait_until(lambda: log.sizes)
        others = [pool.submit(s.journal.append, f"order|{number}", events(number)) for number in range(64)]
        wait_until(lambda: len(s.journal._committer._queue) == 64)
        log.gate.set()
        assert leader.result().first == 1
        answers = [other.result() for other in others]
    assert log.sizes == [1, 64]
    for number, answer in enumerate(answers):
        found = list(s.journal.read(f"order|{number}"))
        assert [(event.payload, event.log_offset) for event in found if event.log_offset == answer.offset] == [
            (number, answer.offset)
        ]


@pytest.mark.req("J37", "J41", "RA9", "RA10")
def test_refused_member() -> None:
    s, log = slow()
    with ThreadPoolExecutor(8) as pool:
        pool.submit(s.journal.append, "order|1", events(0))
        wait_until(lambda: log.sizes)
        pool.submit(s.journal.append, KEY, events("bad"), expected=7)
        wait_until(lambda: len(s.journal._committer._queue) == 1)
        good = [pool.submit(s.journal.append, KEY, events("good"), expected=0) for _ in range(3)]
        wait_until(lambda: len(s.journal._committer._queue) == 4)
        log.gate.set()
        outcomes = [future.exception() for future in good]
    assert sum(outcome is None for outcome in outcomes) == 1
    assert all(isinstance(outcome, SeqNrConflict | None) for outcome in outcomes)
    assert numbered(s.journal.read(KEY)) == [(1, 0, "good")]


@pytest.mark.req("J41")
def test_futures_keep_the_order_of_their_thread(s: Strandline) -> None:
    futures = [s.journal.append_future(KEY, events(number)) for number in range(200)]
    assert [future.result().first for future in futures] == list(range(1, 201))
    refused = s.journal.append_future(KEY, events(0), expected=3)
    assert isinstance(refused.exception(), SeqNrConflict)
    with pytest.raises(InvalidInput):
        s.journal.append_future(KEY, [])

    async def awaited() -> Appended:
        return await asyncio.wrap_future(s.journal.append_future(KEY, events("last")))

    assert asyncio.run(awaited()).first == 201
    assert [event.payload for event in s.journal.read(KEY, to=200)] == list(range(200))


@pytest.mark.req("J41")
def test_what_follows_a_future_may_append_and_wait() -> None:
    s, log = slow()
    first = s.journal.append_future(KEY, events(1))
    wait_until(lambda: log.sizes)
    third: list[int | None] = []
    first.add_done_callback(lambda _: third.append(s.journal.append(KEY, events(3)).first))
    second = s.journal.append_future(KEY, events(2))
    log.gate.set()
    assert second.result(timeout=5).first == 2
    wait_until(lambda: third)
    assert third == [3]
    assert s.journal.append_future(KEY, events(4)).result(timeout=5).first == 4
    s.close()
    assert not any(thread.name == "strandline-committer" for thread in threading.enumerate())


@pytest.mark.req("RA3")
def test_an_append_that_failed_is_told_as_it_was() -> None:
    faults = Faults()
    log = MemoryLog(partitions=1)
    s = paired(faults.around("log", log), MemoryStore(StoreSettings(log.log_id, 1, 10_000)))
    lost = Unavailable("the answer was lost", code="away", applied="unknown")
    faults.at("after log.append", fail(lost))
    append_id = uuid4()
    with pytest.raises(Unavailable) as caught:
        s.journal.append(KEY, events(1), append_id=append_id)
    assert caught.value.applied == "unknown"
    again = s.journal.append(KEY, events(1), append_id=append_id)
    assert (again.first, again.duplicate) == (1, True)
    assert seq_nrs(s.journal.read(KEY)) == [1]


@pytest.mark.req("J127")
def test_appends_need_the_log_alone() -> None:
    faults = Faults()
    log = MemoryLog(partitions=1)
    s = paired(log, faults.around("store", MemoryStore(StoreSettings(log.log_id, 1, 10_000))))
    for name in ("look", "page", "pointers", "states"):
        faults.at(f"before store.{name}", fail(Unavailable("gone", code="away")), times=10**9)
    assert s.journal.append(KEY, events(1), expected=0).first == 1
    with pytest.raises(Unavailable):
        list(s.journal.read(KEY))
    with pytest.raises(Unavailable):
        s.journal.head(KEY)


@pytest.mark.req("J38")
def test_without_a_verdict_a_plain_append_has_no_numbers_and_others_are_unknown() -> None:
    """What a log that does not fold leaves to say, until somebody folds up to the action."""
    recorded = Recorded(Place(0, 7, 1000))
    key, plain = append_draft(Settings(), 1, KEY, events(1))
    assert verdict.appended(key, plain, recorded) == Appended(KEY, None, None, 0, 7, None)
    for more in ({"expected": 0}, {"first": 3}, {"append_id": uuid4()}):
        _, draft = append_draft(Settings(), 1, KEY, events(1), **more)
        with pytest.raises(Unavailable) as caught:
            verdict.appended(key, draft, recorded)
        assert (caught.value.name, caught.value.applied) == ("Unavailable.timeout", "unknown")


# ---------------------------------------------------------------- processes


def _race(url: str, rounds: int, start: Any, answers: Any) -> None:
    won, lost = [], []
    with strandline.connect(url) as s:
        for number in range(rounds):
            start.wait()
            try:
                s.journal.append(KEY, [Event("Placed", os.getpid())], expected=number)
                won.append(number)
            except SeqNrConflict as conflict:
                lost.append((number, conflict.actual))
            start.wait()
    answers.put((won, lost))


@pytest.mark.req("J37", "RA9")
def test_ten_writers(tmp_path: Path) -> None:
    writers, rounds = 10, 100
    url = f"sqlite:{tmp_path}/orders"
    strandline.connect(url).close()
    start, answers = spawned.Barrier(writers), spawned.Queue()
    processes = [spawned.Process(target=_race, args=(url, rounds, start, answers)) for _ in range(writers)]
    for process in processes:
        process.start()
    outcomes = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(30)
    assert sorted(number for won, _ in outcomes for number in won) == list(range(rounds))
    lost = [pair for _, losses in outcomes for pair in losses]
    assert len(lost) == rounds * (writers - 1)
    assert all(actual == number + 1 for number, actual in lost)
    with strandline.connect(url) as s:
        assert seq_nrs(s.journal.read(KEY)) == list(range(1, rounds + 1))


def _retry(url: str, append_id: str, answers: Any) -> None:
    with strandline.connect(url) as s:
        answers.put(s.journal.append(KEY, [Event("Placed", 1)], append_id=append_id))


@pytest.mark.req("J39", "RA8")
def test_ack_lost(tmp_path: Path) -> None:
    """The answer never arrives; another process retries with the id."""
    url, append_id = f"sqlite:{tmp_path}/orders", uuid4().hex
    with strandline.connect(url) as s:
        s.journal.append(KEY, [Event("Placed", 1)], append_id=append_id)
    answers = spawned.Queue()
    process = spawned.Process(target=_retry, args=(url, append_id, answers))
    process.start()
    again = answers.get(timeout=60)
    process.join(30)
    assert (again.first, again.duplicate) == (1, True)
    with strandline.connect(url) as s:
        assert seq_nrs(s.journal.read(KEY)) == [1]


@pytest.mark.req("RA15")
@pytest.mark.parametrize("backend", BACKENDS)
def test_used_after_fork(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path) as s:
        s.journal.append(KEY, events(1))
        reading = s.journal.read(KEY)
        child = os.fork()
        if child == 0:
            os._exit(_in_child(s, reading))
        deadline = time.monotonic() + 10
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert os.waitstatus_to_exitcode(ended[1]) == 0
        assert s.journal.append(KEY, events(2)).first == 2


def _in_child(s: Strandline, reading: Iterator[Any]) -> int:
    calls: list[Callable[[], object]] = [
        lambda: s.journal.append(KEY, events(1)),
        lambda: s.journal.append_future(KEY, events(1)),
        lambda: s.journal.read(KEY),
        lambda: next(reading),
        lambda: s.journal.head(KEY),
        lambda: s.store.lease().take("child"),
    ]
    for number, call in enumerate(calls, 1):
        try:
            call()
        except Unsupported as error:
            if error.code != "used_after_fork":
                return 100 + number
        except BaseException:
            return 50 + number
        else:
            return number
    s.close()
    return 0


def in_child(call: Callable[[], object]) -> int:
    """How a forked child ends that makes a call: 0 if that came back in time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + 10
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


@pytest.mark.req("RA15")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_may_close_what_another_thread_was_using() -> None:
    s = strandline.connect("memory:")
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with s.log._lock, s.store._lock:  # type: ignore[attr-defined]
            held.set()
            go_on.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    assert in_child(s.close) == 0
    go_on.set()
    thread.join()
    s.close()


@pytest.mark.req("RA15")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("backend", ["memory", "postgresql", "sqlite"])
def test_a_forked_child_may_connect_for_itself(backend: str, tmp_path: Path) -> None:
    """To the same, but for a SQLite file; while a thread of the parent's opens something, too."""

    def append() -> None:
        with world(backend, tmp_path / ("other" if backend == "sqlite" else "same")) as own:
            own.journal.append(KEY, events(2))

    with world(backend, tmp_path / "same") as s, database._turns.opening:
        s.journal.append(KEY, events(1))
        assert in_child(append) == 0
        if backend == "postgresql":
            assert seq_nrs(s.journal.read(KEY)) == [1, 2]


# ---------------------------------------------------------------- the end


@pytest.mark.req("J49")
def test_close_finishes_what_is_queued_and_then_refuses(s: Strandline) -> None:
    futures = [s.journal.append_future(KEY, events(number)) for number in range(100)]
    reading = s.journal.read(KEY)
    with s.journal as journal:
        pass
    assert [future.result(timeout=10).first for future in futures] == list(range(1, 101))
    journal.close()
    s.close()
    s.close()
    calls: list[Callable[[], object]] = [
        lambda: journal.append(KEY, events(1)),
        lambda: journal.append_future(KEY, events(1)),
        lambda: journal.read(KEY),
        lambda: list(reading),
        lambda: journal.head(KEY),
        lambda: journal.delete(KEY, to=1),
        lambda: journal.purge(KEY),
        lambda: journal.mark(KEY),
        lambda: journal.keys("order"),
        journal.entity_types,
        lambda: journal.recover(KEY),
        lambda: journal.snapshots(KEY),
        s.strandline,
        s.status,
    ]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.name == "InvalidInput.closed"


def test_keys_are_taken_as_they_are(s: Strandline) -> None:
    for written in ("order|a|b", "order|../x", "order|%2F", "Order|😀", "order|a", "order|A"):
        assert s.journal.append(written, events(written)).key == Key.of(written)
    assert [event.payload for event in s.journal.read("order|a|b")] == ["order|a|b"]


# ---------------------------------------------------------------- time


@pytest.mark.req("J42", "RA2")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_somebody_else_who_holds_the_log_keeps_nobody_longer_than_the_time_out(backend: str, tmp_path: Path) -> None:
    """Who commits, who waits behind it, a future: none is recorded later."""
    with world(backend, tmp_path) as holder, world(backend, tmp_path, append_timeout_s=0.3) as s:
        partition = KEY.partition(s.log.partitions)
        holder.journal.append(KEY, events("before"))
        with ExitStack() as held:
            if isinstance(holder.log, SqliteLog):
                held.enter_context(holder.log._database.write())
            else:
                held.callback(cast(PostgresLog, holder.log)._begin([partition], []).undo)
            started = time.monotonic()
            futures = [s.journal.append_future(KEY, events("future"))]
            with pytest.raises(Unavailable) as late:
                s.journal.append(KEY, events("waits"))
            futures += [s.journal.append_future(KEY, events("another"))]
            errors: list[Any] = [late.value, *[future.exception(5) for future in futures]]
            assert time.monotonic() - started < 3
            assert {(error.code, error.applied) for error in errors} == {("timeout", "no")}
        assert s.journal.append(KEY, events("after")).first == 2


@pytest.mark.req("J39")
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_text_is_an_append_id(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path) as s:
        first = s.journal.append(KEY, [Event("Placed")], append_id="order 42, attempt")
        again = s.journal.append(KEY, [Event("Placed")], append_id="order 42, attempt")
        other = s.journal.append(KEY, [Event("Placed")], append_id="order 42, attempts")
        assert (again.duplicate, again.first, other.duplicate) == (True, first.first, False)
        (event, _) = s.journal.read(KEY)
        assert event.append_id == uuid5(UUID("4f6b1e0c-6c0e-5d0a-9d53-7b1f8f6a2c11"), "order 42, attempt")
        written = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
        assert not s.journal.append(KEY, [Event("Paid")], append_id=written).duplicate
        assert s.journal.append(KEY, [Event("Paid")], append_id=UUID(written)).duplicate


def test_ids_that_are_made_are_uuids_and_a_forked_child_has_its_own() -> None:
    made = [checks.new_id() for _ in range(3 * checks.IDS_AT_ONCE)]
    assert len(set(made)) == len(made)
    assert all((UUID(id_).version, UUID(id_).variant, UUID(id_).hex) == (4, RFC_4122, id_) for id_ in made)
    with ThreadPoolExecutor(8) as pool:
        many = [id_ for some in pool.map(lambda _: [checks.new_id() for _ in range(1000)], range(16)) for id_ in some]
    assert len(set(many)) == 16_000
    ends, begins = os.pipe()
    if not (child := os.fork()):
        os.write(begins, "".join(checks.new_id() for _ in range(checks.IDS_AT_ONCE)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(ends, 10**6).decode()
    os.close(ends)
    os.close(begins)
    childs = {told[at : at + 32] for at in range(0, len(told), 32)}
    assert len(childs) == checks.IDS_AT_ONCE
    assert not childs & {checks.new_id() for _ in range(2 * checks.IDS_AT_ONCE)}


@pytest.mark.req("J41", "RA1", "RA3")
@pytest.mark.parametrize("exact", ["memory", "sqlite"])
def test_a_lone_caller_that_a_signal_interrupts_anywhere_leaves_a_log_that_works(tmp_path: Path, exact: str) -> None:
    """A thousand appends in the main thread, each with a signal within three milliseconds that raises."""
    inside: list[int] = []
    chance = random.Random(7)
    acknowledged, perhaps = [], []

    def interrupt(*_: object) -> None:
        if inside:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with world(exact, tmp_path) as s:
            for number in range(1, 1001):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.003))
                try:
                    inside.append(number)
                    if number % 3:
                        s.journal.append(KEY, events(number))
                    else:
                        s.journal.append_many([(KEY, events(number)), ("order|7", events(number))])
                    inside.clear()
                    acknowledged.append(number)
                except KeyboardInterrupt:
                    inside.clear()
                    perhaps.append(number)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert s.journal.append(KEY, events("last")).first is not None
            found = [event.payload for event in s.journal.read(KEY)][:-1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == sorted(set(found))
    assert set(acknowledged) <= set(found) <= {*acknowledged, *perhaps}
