"""The Journal over a log that does not fold, as Kafka is one: verdicts, timestamps, marks, and the heads cache."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, cast

import pytest

from strandline import InvalidInput, MissingEvent, SeqNrConflict, StrandlineError, Unavailable
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.journal.judge import Judge
from strandline.log.api import ActionDraft, Answered, Recorded
from strandline.record import encode_header
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.testing import FakeClock, carry
from strandline.testing.inexact import InexactMemoryLog
from strandline.testing.log_contract import draft_of
from strandline.values.actions import Mark
from tests.journal.test_lags import STORIES, Step, Story
from tests.journal.worlds import KEY, events, inexact, numbered, replayed


def check_at_every_lag(
    s: Strandline, steps: list[Step], carried: int, check: Callable[[Story], None] = Story.check
) -> None:
    """As on exact logs; but a read leaves a Mark behind, so the end is that of before the first one."""
    story = Story(s)
    for step in steps[:carried]:
        step(story)
    carry(s)
    check(story)
    for step in steps[carried:]:
        step(story)
    end = s.log.newest()[0]
    check(story)
    while s.store.pointers()[0].offset < end:
        carry(s, limit=1)
        check(story)


CACHES = {
    "on": {},
    "off": {"heads_cache": False},
    "tight": {"heads_cache_keys_max": 1, "read_page": 1, "tail_buffer_bytes": 0},
}


@pytest.mark.req("J36", "J45", "J46", "J47", "J50", "J63", "J65", "J66", "RJ1", "RJ2", "RJ3")
@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("settings", CACHES.values(), ids=CACHES)
def test_every_lag(name: str, settings: dict[str, Any]) -> None:
    for carried in range(len(STORIES[name]) + 1):
        with inexact(segment_size=3, **settings) as s:
            check_at_every_lag(s, STORIES[name], carried)


@pytest.mark.req("J128")
@pytest.mark.parametrize("name", ["long-mix", "gap", "late-start"])
@pytest.mark.parametrize("settings", CACHES.values(), ids=CACHES)
def test_limited_and_backwards_at_every_lag(name: str, settings: dict[str, Any]) -> None:
    with inexact(segment_size=3, **settings) as s:
        check_at_every_lag(s, STORIES[name], len(STORIES[name]) // 2, check_some_parts)


def check_some_parts(story: Story) -> None:
    """Few of them: each read leaves a Mark behind that the next one has to read."""
    for limit, backwards in ((None, True), (2, True), (2, False)):
        found = numbered(story.s.journal.read(KEY, limit=limit, backwards=backwards))
        assert found == story.model.read(limit=limit, backwards=backwards)


# ---------------------------------------------------------------- verdicts


class Meanwhile(InexactMemoryLog):
    """Lets something happen between the recording of a draft and its answer."""

    meanwhile: Callable[[], object] | None = None
    lost = False

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None

        def told(recorded: Recorded | None, error: StrandlineError | None) -> None:
            if meanwhile is not None:
                meanwhile()
            if not self.lost:
                answered(recorded, error)

        super().send(draft, told)


@pytest.fixture(params=[True, False], ids=["cache", "log"])
def late(request: pytest.FixtureRequest) -> Iterator[tuple[Strandline, Meanwhile]]:
    log = Meanwhile(partitions=1)
    settings = Settings.of({"heads_cache": request.param, "append_timeout_s": 1})
    with Strandline(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)), settings) as s:
        yield s, log


@pytest.mark.req("J37", "J38")
@pytest.mark.parametrize("behind", ["delete", "purge", "purge-append"])
def test_late_verdict(late: tuple[Strandline, Meanwhile], behind: str) -> None:
    """late-verdict: it, and a Delete or Purge behind it, are carried before the Journal looks."""
    s, log = late
    for number in range(3):
        s.journal.append(KEY, events(number))

    def meanwhile() -> None:
        if behind == "delete":
            s.journal.delete(KEY, to=4)
        else:
            s.journal.purge(KEY)
        if behind == "purge-append":
            s.journal.append(KEY, events("new"))
        carry(s)

    log.meanwhile = meanwhile
    done = s.journal.append(KEY, events(3), expected=3)
    assert (done.first, done.last, done.duplicate) == (4, 4, False)


@pytest.mark.req("J38", "J42")
def test_an_answer_that_never_comes_is_unknown(late: tuple[Strandline, Meanwhile]) -> None:
    s, log = late
    s.journal.append(KEY, events(1))
    log.lost = True
    for arguments in ({}, {"expected": 1}, {"numbers": False}):
        with pytest.raises(Unavailable) as unknown:
            s.journal.append(KEY, events(2), **cast(dict[str, Any], arguments))
        assert (unknown.value.code, unknown.value.applied) == ("timeout", "unknown")
        assert "append id" in unknown.value.hint
    log.lost = False
    assert len(list(s.journal.read(KEY))) == 3


@pytest.mark.req("J38")
def test_numbers_are_left_out_where_nobody_asks(late: tuple[Strandline, Meanwhile]) -> None:
    s, _ = late
    quick = s.journal.append(KEY, events(1), numbers=False)
    assert (quick.first, quick.last, quick.timestamp, quick.offset) == (None, None, None, 0)
    future = s.journal.append_future(KEY, events(2), numbers=False).result(30)
    assert (future.first, future.offset) == (None, 1)
    judged = s.journal.append(KEY, events(3), numbers=False, expected=2)
    assert (judged.first, judged.last) == (3, 3)
    with pytest.raises(SeqNrConflict):
        s.journal.append(KEY, events(3), numbers=False, expected=2)


@pytest.mark.req("J39", "J40", "RA8")
def test_the_same_append_again(late: tuple[Strandline, Meanwhile]) -> None:
    s, _ = late
    append_id = "5" * 32
    first = s.journal.append(KEY, events(1), append_id=append_id, expected=0)
    for _ in range(2):
        again = s.journal.append(KEY, events(1), append_id=append_id, expected=0)
        assert again == first._replace(duplicate=True)
        carry(s)
    with pytest.raises(InvalidInput) as reused:
        s.journal.append(KEY, events("other"), append_id=append_id)
    assert reused.value.code == "append_id_reused"
    assert len(list(s.journal.read(KEY))) == 1


@pytest.mark.req("J41", "J49")
def test_futures_keep_their_order_and_close_waits_for_them() -> None:
    s = inexact()
    futures = [s.journal.append_future(KEY, events(number)) for number in range(200)]
    s.journal.close()
    assert [future.result(0).first for future in futures] == list(range(1, 201))
    s.close()


@pytest.mark.req("J32", "RR7", "J66")
def test_a_log_trimmed_past_the_pointer() -> None:
    for cache in (False, True):
        with inexact(heads_cache=cache) as s:
            for number in range(6):
                s.journal.append(KEY, events(number))
            carry(s, limit=2)
            s.log.trim(0, to=3, pointer=3, keep_after=2**62)
            told = _told(s)
            deadline = time.monotonic() + 30
            while told is None and cache and time.monotonic() < deadline:
                time.sleep(0.02)
                told = _told(s)
            assert told is not None
            assert (told.code, told.facts["first"], told.facts["last"]) == ("log_trimmed", 2, 3)


def _told(s: Strandline) -> MissingEvent | None:
    try:
        s.journal.head(KEY)
    except MissingEvent as error:
        return error
    return None


@pytest.mark.req("J26", "RA6", "J9")
def test_timestamps_are_counted_alike_by_writer_reader_and_pipeline() -> None:
    """A clock that stands still and steps back; marks that ask for more than it says."""
    clock = FakeClock()
    with inexact(clock=clock) as s:
        told = []
        for number in range(30):
            clock.advance((-5, 0, 0.0004, 3)[number % 4])
            if number % 7 == 3:
                ahead = Mark(None, "ahead", clock.now + 20_000_000)
                s.log.append([ActionDraft(0, ahead, encode_header(ahead))])
            told.append(s.journal.append(KEY, events(number)).timestamp)
        assert [event.timestamp for event in s.journal.read(KEY)] == told
        assert all(later > earlier for earlier, later in pairwise(cast(list[int], told)))
        for limit in (3, 7, None):
            carry(s, limit=limit)
            assert [event.timestamp for event in s.journal.read(KEY)] == told
            assert s.store.pointers()[0].timestamp >= (told[0] or 0)
        rows = replayed(s, 0, cut=s.log.newest()[0])
        assert [event.timestamp for event in rows] == told


class Slow(InexactMemoryLog):
    """Answers later, from a thread of its own."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._pool = ThreadPoolExecutor(2)

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        def later(recorded: Recorded | None, error: StrandlineError | None) -> None:
            self._pool.submit(answered, recorded, error)

        super().send(draft, later)


@pytest.mark.req("J42", "RA3", "RS3")
@pytest.mark.parametrize("numbers", [False, True])
def test_giving_up_at_any_moment_holds_up_nobody(numbers: bool) -> None:
    """Callers wake each other: one that gave up, before or while it was woken, must not break the row."""
    log = Slow(partitions=1)
    settings = Settings.of({"append_timeout_s": 30, "heads_cache": numbers, "heads_cache_wait_s": 0})
    s = Strandline(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)), settings)
    judge = cast(Judge, s.journal._judge)
    outcomes: Counter[str] = Counter()

    def work(writer: int) -> None:
        chance = random.Random(writer)
        for _ in range(150):
            draft = draft_of("order|42", writer, partitions=1)
            call = judge._call(draft, numbers)
            call.row = judge._row
            call.deadline = time.monotonic() + chance.choice([0.0, 0.0001, 0.001, 30.0, 30.0])
            log.send(draft, call.answered)
            try:
                judge._acknowledged(call)
                outcomes["ok"] += 1
            except Unavailable:
                outcomes["late"] += 1
            finally:
                call.release()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    started = time.monotonic()
    assert s.journal.append(KEY, events(1), numbers=False).offset > 0
    assert time.monotonic() - started < 20
    assert outcomes["late"]
    assert outcomes["ok"]
    assert not judge._row._busy
    log._pool.shutdown()
    s.close()
