"""Appends of many keys in one call: each for itself, in few commits; or none at all, where one is bad input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from strandline import Appended, Corrupt, Event, InvalidInput, SeqNrConflict, StrandlineError, Unavailable
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.settings import Settings
from strandline.store.api import KeyStates, StoreSettings
from strandline.testing import carry
from strandline.testing.faults import Faults, fail
from strandline.testing.log_contract.committing import Gate
from tests.journal.worlds import BACKENDS, KEY, digest, events, inexact, numbered, world

pytestmark = pytest.mark.req("J129")


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=4) as opened:
        yield opened


def gated(**settings: Any) -> tuple[Strandline, Gate]:
    """A journal in memory, and the gate before its log, which notes what was committed together."""
    log = MemoryLog(partitions=4)
    gate = Gate(log)
    store = MemoryStore(StoreSettings(log.log_id, 4, 10_000))
    return Strandline(gate, store, Settings.of(settings)), gate


def told(answers: list[Appended | StrandlineError]) -> list[Any]:
    """First and last of those that were appended, the names of the others' errors."""
    return [(one.first, one.last) if isinstance(one, Appended) else one.name for one in answers]


def test_each_gets_its_answer_or_its_error_in_order(s: Strandline) -> None:
    s.journal.append(KEY, events("old"))
    append_id = uuid4()
    answers = s.journal.append_many(
        [
            ("order|1", events(1, 2)),
            (KEY, events(2), {"expected": 1}),
            (KEY, events("no"), {"expected": 1}),
            ["order|1", events(3), {"append_id": append_id, "headers": {"a": "b"}}],
            ("order|1", events(3), {"append_id": append_id, "headers": {"a": "b"}}),
            ("order|1", events("other"), {"append_id": append_id}),
            ("order|2", (Event("Placed", 1),), {"first": 7, "expected": 0}),
            (KEY, events(3), {}),
        ]
    )
    assert told(answers) == [
        (1, 2), (2, 2), "SeqNrConflict.expected", (3, 3), (3, 3), "InvalidInput.append_id_reused", (7, 7), (3, 3),
    ]  # fmt: skip
    assert [getattr(one, "duplicate", None) for one in answers[3:5]] == [False, True]
    conflict = answers[2]
    assert isinstance(conflict, SeqNrConflict)
    assert (conflict.expected, conflict.actual, conflict.applied) == (1, 2, "no")
    for _ in range(2):
        assert numbered(s.journal.read(KEY)) == [(1, 0, "old"), (2, 1, 2), (3, 2, 3)]
        assert numbered(s.journal.read("order|1")) == [(1, 0, 1), (2, 1, 2), (3, 2, 3)]
        assert numbered(s.journal.read("order|2")) == [(7, 6, 1)]
        carry(s)


@pytest.mark.req("J40")
@pytest.mark.parametrize("id_", ["request 7", UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479"), "1ca84abc" * 4])
def test_an_id_that_was_used_for_something_else_is_told_as_the_caller_gave_it(s: Strandline, id_: Any) -> None:
    s.journal.append(KEY, events(1), append_id=id_)
    other: list[Callable[[], Any]] = [
        lambda: s.journal.append(KEY, events(2), append_id=id_),
        lambda: s.journal.append_future(KEY, events(2), append_id=id_).result(5),
        lambda: s.journal.append_many([(KEY, events(2), {"append_id": id_})])[0],
    ]
    for call in other:
        try:
            error = call()
        except InvalidInput as raised:
            error = raised
        assert (error.name, error.append_id) == ("InvalidInput.append_id_reused", str(id_))
        assert error.message.endswith(f"got {id_}")


def test_none_at_all(s: Strandline) -> None:
    before = digest(s)
    assert s.journal.append_many([]) == []
    assert digest(s) == before


def test_as_few_commits_as_sizes_allow() -> None:
    s, gate = gated(group_actions_max=100)
    answers = s.journal.append_many([(f"order|{number % 7}", events(number)) for number in range(250)])
    assert [len(group) for group in gate.groups] == [100, 100, 50]
    assert all(isinstance(one, Appended) for one in answers)
    s, gate = gated(group_bytes_max=50_000)
    s.journal.append_many((f"order|{number}", events(b"x" * 9_000)) for number in range(12))
    assert [len(group) for group in gate.groups] == [5, 5, 2]
    s, gate = gated(append_queue_max=3)
    assert len(s.journal.append_many([(KEY, events(number)) for number in range(10)])) == 10
    assert [event.payload for event in s.journal.read(KEY)] == list(range(10))


def test_calls_of_one_thread_keep_their_order(s: Strandline) -> None:
    before = s.journal.append_future(KEY, events(1))
    answers = s.journal.append_many([(KEY, events(number)) for number in (2, 3)])
    after = s.journal.append_future(KEY, events(4))
    assert [before.result(5).first, *(first for first, _ in told(answers)), after.result(5).first] == [1, 2, 3, 4]


BAD: list[tuple[str, str, Any]] = [
    ("events_type", "appends[1]", KEY),
    ("events_type", "appends[1]", "order|1"),
    ("events_type", "appends[1]", (KEY,)),
    ("events_type", "appends[1]", (KEY, events(1), {}, 1)),
    ("events_type", "appends[1]", None),
    ("option", "appends[1]", (KEY, events(1), ["expected", 1])),
    ("option", "appends[1].expcted", (KEY, events(1), {"expcted": 1})),
    ("option", "appends[1].1", (KEY, events(1), {1: 1})),
    ("seq_nr_range", "appends[1].expected", (KEY, events(1), {"expected": True})),
    ("seq_nr_range", "appends[1].first", (KEY, events(1), {"first": 0})),
    ("append_id", "appends[1].append_id", (KEY, events(1), {"append_id": ""})),
    ("empty_append", "appends[1].events", (KEY, [])),
    ("events_type", "appends[1].events", (KEY, Event("Placed", 1))),
    ("payload_type", "appends[1].events[1].payload", (KEY, events(1, {1, 2}))),
    ("key_type", "appends[1].key", ("order", events(1))),
    ("reserved_entity_type", "appends[1].key.entity_type", ("group|1", events(1))),
]


@pytest.mark.parametrize(("code", "field", "bad"), BAD)
def test_bad_input_in_one_refuses_them_all(code: str, field: str, bad: Any) -> None:
    s, gate = gated()
    with pytest.raises(InvalidInput) as caught:
        s.journal.append_many([(KEY, events("good")), bad, (KEY, events("good"))])
    error = caught.value
    assert (error.code, error.field, error.index, error.applied) == (code, field, 1, "no")
    assert error.message.startswith(f"{field}: ")
    assert error.hint
    assert gate.groups == []


@pytest.mark.parametrize("bad", [None, 5, "order|1", {"order|1": []}, b"x", Event("Placed", 1)])
def test_what_is_no_list(s: Strandline, bad: Any) -> None:
    before = digest(s)
    with pytest.raises(InvalidInput) as caught:
        s.journal.append_many(bad)
    assert (caught.value.name, caught.value.field) == ("InvalidInput.events_type", "appends")
    assert digest(s) == before


# ---------------------------------------------------------------- a log that does not answer


def test_a_commit_that_fails_fails_its_members_and_the_rest_is_not_tried() -> None:
    s, gate = gated(group_actions_max=2)
    gate.error = Unavailable("gone", code="away", hint="wait", applied="unknown")
    answers = s.journal.append_many([(KEY, events(number)) for number in range(5)])
    assert [(one.name, one.applied) for one in answers if isinstance(one, Unavailable)] == [
        *[("Unavailable.away", "unknown")] * 2,
        *[("Unavailable.away", "no")] * 3,
    ]
    assert len({id(one) for one in answers}) == 5
    assert len(gate.groups) == 1
    gate.error = None
    assert told(s.journal.append_many([(KEY, events(1))])) == [(1, 1)]


def test_a_log_that_hangs_holds_up_nobody_longer_than_the_time_out() -> None:
    s, gate = gated(append_timeout_s=0.2, group_actions_max=100, commit_in_thread=True)
    gate.open.clear()
    began = time.monotonic()
    answers = s.journal.append_many([(KEY, events(number)) for number in range(150)])
    assert time.monotonic() - began < 5
    gate.open.set()
    assert [one.applied for one in answers if isinstance(one, Unavailable)] == ["unknown"] * 100 + ["no"] * 50
    s.close()


def test_a_full_queue() -> None:
    s, gate = gated(append_queue_max=2, append_timeout_s=5)
    gate.open.clear()
    first = [s.journal.append_future(KEY, events(1))]
    assert gate.entered.acquire(timeout=5)
    first += [s.journal.append_future(KEY, events(number)) for number in (2, 3)]
    answers = s.journal.append_many([(KEY, events(4)), (KEY, events(5))])
    assert [(one.name, one.applied) for one in answers if isinstance(one, Unavailable)] == [
        ("Unavailable.overloaded", "no")
    ] * 2
    gate.open.set()
    assert [future.result(5).first for future in first] == [1, 2, 3]
    assert seq_nr_of(s) == 3


def seq_nr_of(s: Strandline) -> int:
    head = s.journal.head(KEY)
    return 0 if head is None else head.seq_nr


def test_where_the_log_does_not_fold_one_that_is_away_fails_alone() -> None:
    with inexact() as s:
        faults = Faults()
        away = Unavailable("gone", code="away", hint="wait")
        reader = Strandline(faults.around("log", s.log), s.store, s.settings)
        faults.at("before log.send", fail(away), nth=2)
        answers = reader.journal.append_many([(KEY, events(number), {"numbers": number != 3}) for number in (1, 2, 3)])
        assert told(answers) == [(1, 1), "Unavailable.away", (None, None)]
        reader.journal.close()


@pytest.mark.parametrize("backend", ["memory", "inexact"])
def test_what_follows_a_future_may_append_many(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path) as s:
        done = threading.Event()
        found: list[Any] = []

        def follow(_: Future[Appended]) -> None:
            found.extend(told(s.journal.append_many([(KEY, events(2)), (KEY, events(3))])))
            done.set()

        s.journal.append_future(KEY, events(1)).add_done_callback(follow)
        assert done.wait(5)
        assert found == [(2, 2), (3, 3)]


@pytest.mark.req("J38")
@pytest.mark.parametrize("cache", [True, False], ids=["", "no-cache"])
def test_where_the_log_does_not_fold_all_new_keys_are_looked_up_at_once(
    cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand keys in 8 partitions, some of them carried before; then the same ones again."""
    with inexact(partitions=8, heads_cache=cache) as s:
        keys = [f"order|{number}" for number in range(1000)]
        s.journal.append_many([(key, events(0)) for key in keys[:50]])
        carry(s)
        asked: list[int] = []
        look = s.store.look

        def noted_look(partition: int, many: Collection[str], *more: Any) -> KeyStates:
            asked.append(len(many))
            return look(partition, many, *more)

        monkeypatch.setattr(s.store, "look", noted_look)
        answers = s.journal.append_many([(key, events(1, 2), {"expected": int(key in keys[:50])}) for key in keys])
        assert told(answers) == [(2, 3)] * 50 + [(1, 2)] * 950
        assert len(asked) == 1
        answers = s.journal.append_many([(key, events(3), {"expected": 3}) for key in keys for _ in range(2)])
        assert told(answers[:101:2]) == [(4, 4)] * 50 + ["SeqNrConflict.expected"]
        assert told(answers[1::2]) == ["SeqNrConflict.expected"] * 1000
        assert len(asked) <= 3


@pytest.mark.req("J38", "J129")
def test_a_store_that_is_away_is_asked_once_and_fails_those_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with inexact(partitions=4) as s:
        asked: list[int] = []

        def away(partition: int, many: Collection[str], *_: Any) -> KeyStates:
            asked.append(partition)
            raise Unavailable("gone", code="away", hint="wait")

        monkeypatch.setattr(s.store, "look", away)
        many = [(f"order|{number}", events(1), {"expected": 0} if number % 2 else {}) for number in range(20)]
        answers = s.journal.append_many(many)
        assert told(answers) == [(None, None), "Unavailable.away"] * 10
        assert len({id(one) for one in answers}) == 20
        assert len(asked) == 1


@pytest.mark.req("J129", "RA12")
def test_a_head_that_cannot_be_looked_up_fails_its_own_append_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with inexact(partitions=4) as s:
        look = s.store.look

        def damaged(partition: int, many: Collection[str], *more: Any) -> KeyStates:
            if "order|3" in many:
                raise Corrupt("a row of metajournal", code="digest", hint="see")
            return look(partition, many, *more)

        monkeypatch.setattr(s.store, "look", damaged)
        answers = s.journal.append_many([(f"order|{number}", events(1)) for number in range(6)])
        assert told(answers) == [(1, 1)] * 3 + ["Corrupt.digest"] + [(1, 1)] * 2


def test_a_closed_journal() -> None:
    s, _ = gated()
    s.close()
    with pytest.raises(InvalidInput) as caught:
        s.journal.append_many([(KEY, events(1))])
    assert caught.value.code == "closed"


def test_a_journal_that_is_closed_meanwhile_answers_what_was_recorded_and_what_was_not() -> None:
    s, gate = gated(group_actions_max=1)
    gate.open.clear()
    answers: list[list[Appended | StrandlineError]] = []
    many = threading.Thread(
        target=lambda: answers.append(s.journal.append_many([(f"order|{n}", events(1)) for n in range(3)]))
    )
    many.start()
    gate.entered.acquire(timeout=30)
    closing = threading.Thread(target=s.journal.close)
    closing.start()
    while not s.journal._committer._closed:
        time.sleep(0.001)
    gate.open.set()
    for thread in (many, closing):
        thread.join(30)
    (told_,) = answers
    assert told(told_) == [(1, 1), "InvalidInput.closed", "InvalidInput.closed"]
    assert [one.applied for one in told_[1:] if isinstance(one, StrandlineError)] == ["no", "no"]
    s.close()


def test_a_close_that_is_interrupted_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    s = inexact()
    committer = s.journal._committer

    def close() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(committer, "close", close)
    with pytest.raises(KeyboardInterrupt):
        s.close()
    monkeypatch.undo()
    committer.close()
    calls: list[Callable[[], object]] = [s.log.newest, s.store.pointers]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.code == "closed"
