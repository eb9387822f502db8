"""The heads cache: it keeps what is beyond the pointers, forgets what they have passed, and never changes an answer."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from strandline import Key
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.errors import SchemaMismatch, Unavailable
from strandline.journal.heads_cache import FoldedKey, HeadsCache
from strandline.log.api import RecordPage
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.store.scans import look_at
from strandline.testing import carry, raw_append
from strandline.testing.inexact import InexactMemoryLog, MemoryFollower
from strandline.testing.log_contract import draft_of
from strandline.values.heads import Head
from tests.journal.worlds import KEY, events, inexact, numbered, seq_nrs

OTHER = Key("order", "43")
DEADLINE_S = 30.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


def cache_of(s: Strandline) -> HeadsCache:
    return cast(HeadsCache, s.journal._heads)


def kept(s: Strandline, partition: int = 0) -> dict[str, list[int]]:
    """The offsets that the cache has of each key."""
    following = cache_of(s)._following
    if following is None or following.ended.is_set() or not following._partitions:
        return {}
    part = following._partitions[partition]
    with part.lock:
        return {key: list(actions.offsets) for key, actions in part.keys.items()}


def known(s: Strandline, key: Key, to: int | None = None) -> FoldedKey | None:
    """What the cache says of a key, now."""
    seen = look_at(s.store, str(key), 0)
    return cache_of(s).fold(str(key), *seen, s.log.newest()[0] if to is None else to)


@pytest.fixture
def s() -> Iterator[Strandline]:
    with inexact() as s:
        yield s


class Counted(InexactMemoryLog):
    """Counts what is read from it, by whoever does not follow it."""

    reads = 0
    broken = False

    def read(self, partition: int, **given: Any) -> RecordPage:
        if threading.current_thread().name != "strandline-heads-cache":
            self.reads += 1
        elif self.broken:
            raise Unavailable("away", code="away", hint="come back")
        return super().read(partition, **given)


def counted(**settings: Any) -> tuple[Strandline, Counted]:
    log = Counted(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    return Strandline(log, store, Settings.of(settings)), log


# ---------------------------------------------------------------- what it keeps


@pytest.mark.req("J65")
def test_it_keeps_unreplicated_actions_by_key_and_no_values(s: Strandline) -> None:
    s.journal.append(KEY, events(1))
    s.journal.append(OTHER, events(2))
    s.journal.delete(KEY, to=1)
    s.journal.mark(KEY)
    records = [record for record in s.log.read(0, after=-1).records if record.key]
    until(lambda: len(kept(s).get(str(KEY), ())) == 2)
    following = cache_of(s)._following
    assert following is not None
    part = following._partitions[0]
    actions = part.keys[str(KEY)]
    headers = {record.offset: record.header for record in records}
    assert actions.headers == [headers[offset] for offset in actions.offsets]


@pytest.mark.req("J65")
def test_it_folds_on_the_stores_head_at_read_time(s: Strandline) -> None:
    """Actions, not results: the same actions come to something else on another head."""
    s.journal.append(KEY, events(1, 2))
    s.journal.append(KEY, events(3))
    found = known(s, KEY)
    assert found is not None
    assert cast(Head, found.state).seq_nr == 3
    end = s.log.newest()[0]
    pointer, _ = look_at(s.store, str(KEY), 0)
    ahead = cast(Head, found.state)._replace(offset=-1, seq_nr=7, generated=None, given=())
    on_another = cache_of(s).fold(str(KEY), pointer, ahead, end)
    assert on_another is not None
    assert cast(Head, on_another.state).seq_nr == 10


@pytest.mark.req("J65", "J66")
def test_heads_and_verdicts_come_without_reading_the_log() -> None:
    s, log = counted()
    s.journal.append(KEY, events(1))
    until(lambda: kept(s))
    log.reads = 0
    for number in range(1, 20):
        assert s.journal.append(KEY, events(number), expected=number).first == number + 1
        head = s.journal.head(KEY)
        assert head is not None
        assert head.seq_nr == number + 1
    assert s.journal.head(OTHER) is None
    assert list(s.journal.read(OTHER)) == []
    assert log.reads == 0
    assert len(list(s.journal.read(KEY))) == 20
    assert log.reads == 1
    s.close()


@pytest.mark.req("J65")
def test_what_this_process_recorded_is_known_before_it_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    s, log = counted()
    s.journal.append(KEY, events(1))
    until(lambda: kept(s))
    monkeypatch.setattr(MemoryFollower, "poll", nothing)
    log.reads = 0
    assert s.journal.append(KEY, events(2), expected=1).first == 2
    assert s.journal.append(OTHER, events(1), expected=0).first == 1
    head = s.journal.head(KEY)
    assert head is not None
    assert (head.seq_nr, log.reads) == (2, 0)
    s.close()


@pytest.mark.req("J65", "J66")
def test_what_others_recorded_in_between_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own records above it are taken when it has come, each once."""
    poll, following = MemoryFollower.poll, threading.Lock()

    def held_up(follower: MemoryFollower, timeout_s: float) -> list[tuple[int, RecordPage]]:
        with following:
            return poll(follower, 0.0)

    monkeypatch.setattr(MemoryFollower, "poll", held_up)
    s, log = counted(heads_cache_wait_s=30)
    s.journal.append(KEY, events(1))
    until(lambda: kept(s))
    run = cache_of(s)._following
    assert run is not None
    part = run._partitions[0]
    with following:
        draft = draft_of(str(KEY), "somebody else", partitions=1)
        raw_append(s, 0, key=str(KEY), header=draft.header, value=draft.value)
        first = s.journal.append_future(KEY, events(2))
        second = s.journal.append_future(OTHER, events(1))
        until(lambda: len(part._waiting) == 2)
        assert len(part._own) == 2
        log.reads = 0
    assert (first.result(30).first, second.result(30).first) == (3, 1)
    assert log.reads == 0
    assert part._own == {}
    assert s.journal.append(KEY, events(3), expected=3).first == 4
    offsets = [offset for listed in kept(s).values() for offset in listed]
    assert len(offsets) == len(set(offsets)) == 5
    s.close()


@pytest.mark.req("J67")
def test_it_is_cut_at_the_pointers_but_not_under_who_waits(s: Strandline) -> None:
    for number in range(3):
        s.journal.append(KEY, events(number))
    s.journal.append(OTHER, events("other"))
    until(lambda: len(kept(s)) == 2)
    waits = cache_of(s).hold(str(KEY), 0, lambda: look_at(s.store, str(KEY), 0))
    assert waits is not None
    carry(s)
    following = cache_of(s)._following
    assert following is not None
    following._cut()
    assert set(kept(s)) == {str(KEY), str(OTHER)}
    waits.release()
    following._cut()
    assert kept(s) == {}
    assert s.journal.append(KEY, events(3), expected=3).first == 4
    until(lambda: kept(s))
    assert list(kept(s)) == [str(KEY)]
    assert len(kept(s)[str(KEY)]) == 1


@pytest.mark.req("J67")
def test_a_busy_key_is_cut_too(s: Strandline) -> None:
    """Somebody always waits: each for what comes after a pointer of now, not after the first one."""
    s.journal.append(KEY, events(0))
    until(lambda: kept(s))
    following = cache_of(s)._following
    assert following is not None
    holds = []
    for number in range(1, 20):
        hold = cache_of(s).hold(str(KEY), 0, lambda: look_at(s.store, str(KEY), 0))
        assert hold is not None
        holds.append(hold)
        assert s.journal.append(KEY, events(number), expected=number).first == number + 1
        carry(s)
        following._cut()
        if len(holds) > 2:
            holds.pop(0).release()
    assert len(kept(s)[str(KEY)]) < 6


@pytest.mark.req("J67", "J66")
def test_it_keeps_so_many_keys_and_the_log_answers_for_the_others() -> None:
    with inexact(heads_cache_keys_max=3) as s:
        keys = [Key("order", str(number)) for number in range(10)]
        for turn in range(2):
            for key in keys:
                assert s.journal.append(key, events(turn)).first == turn + 1
        until(lambda: list(kept(s)) == [str(key) for key in keys[-3:]])
        assert known(s, keys[0]) is None
        assert known(s, keys[-1]) is None  # dropped in between: its first action is not here
        for key in keys:
            assert numbered(s.journal.read(key)) == [(1, 0, 0), (2, 1, 1)]
            head = s.journal.head(key)
            assert head is not None
            assert head.seq_nr == 2


@pytest.mark.req("J67")
def test_it_ends_when_nobody_asks_and_starts_when_somebody_does() -> None:
    with inexact(heads_cache_idle_s=1) as s:
        s.journal.append(KEY, events(1))
        first = cache_of(s)._following
        assert first is not None
        first.asked -= 1
        assert first.ended.wait(DEADLINE_S)
        assert s.journal.append(KEY, events(2), expected=1).first == 2
        assert cache_of(s)._following is not first
        assert seq_nrs(s.journal.read(KEY)) == [1, 2]


# ---------------------------------------------------------------- it never changes an answer


@pytest.mark.req("J66")
def test_failing_it_leaves_everything_to_the_log() -> None:
    s, log = counted()
    s.journal.append(KEY, events(1))
    log.broken = True
    for number in range(1, 5):
        assert s.journal.append(KEY, events(number), expected=number).first == number + 1
        assert len(list(s.journal.read(KEY))) == number + 1
    following = cache_of(s)._following
    assert following is None or following.ended.is_set()
    log.broken = False
    cache_of(s)._failed_until = 0.0
    assert s.journal.append(KEY, events(5), expected=5).first == 6
    until(lambda: kept(s))
    s.close()


def nothing(follower: MemoryFollower, timeout_s: float) -> list[tuple[int, RecordPage]]:
    """What a follower gives that is late."""
    time.sleep(min(timeout_s, 0.01))
    return []


@pytest.mark.req("J66")
@pytest.mark.parametrize("wait_s", [0, 0.05])
def test_late_it_is_not_waited_for_longer_than_allowed(wait_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    with inexact(heads_cache_wait_s=wait_s) as s:
        s.journal.append(KEY, events(1))
        monkeypatch.setattr(MemoryFollower, "poll", nothing)
        raw_append(s, 0, key=str(OTHER), header=b"foreign", value=None)
        started = time.monotonic()
        assert s.journal.append(KEY, events(2), expected=1).first == 2
        assert seq_nrs(s.journal.read(KEY)) == [1, 2]
        assert time.monotonic() - started < 5


@pytest.mark.req("J66", "J59")
def test_a_record_of_a_newer_version_stops_who_needs_it(s: Strandline) -> None:
    s.journal.append(KEY, events(1))
    (record,) = s.log.read(0, after=-1).records
    newer = _newer(record.header or b"")
    raw_append(s, 0, key=str(KEY), header=newer, value=record.value)
    with pytest.raises(SchemaMismatch):
        list(s.journal.read(KEY))
    with pytest.raises(SchemaMismatch):
        s.journal.head(KEY)
    assert s.journal.append(KEY, events(2)).first is None  # recorded, and nobody here can say its number
    assert s.journal.append(OTHER, events(1)).first == 1


def _newer(header: bytes) -> bytes:
    body = b"{" + header[18:].replace(b'"v":1', b'"v":2')
    return b'{"crc":"%08x",%s' % (zlib.crc32(body), body[1:])


@pytest.mark.req("J66", "J67")
def test_cache_cut() -> None:
    """cache-cut: fed record by record, or all at once: same answers."""
    answers = []
    for at_once in (True, False):
        with inexact() as s:
            if at_once:
                cache_of(s)._failed_until = time.monotonic() + 3600
            for number in range(4):
                s.journal.append(KEY, events(number), expected=number)
                s.journal.append(OTHER, events(number))
            s.journal.delete(KEY, to=2)
            cache_of(s)._failed_until = 0.0
            deadline = time.monotonic() + DEADLINE_S
            while (found := known(s, KEY)) is None:
                assert time.monotonic() < deadline
            head = cast(Head, found.state)
            answers.append((head.seq_nr, head.delete_to, head.life, numbered(s.journal.read(KEY))))
    assert answers[0] == answers[1]


@pytest.mark.req("J37", "J38", "J66")
@pytest.mark.parametrize("cache", [True, False])
def test_many_threads_are_all_answered(cache: bool) -> None:
    with inexact(partitions=2, heads_cache=cache) as s:
        done: list[list[Any]] = [[] for _ in range(8)]
        stop = threading.Event()

        def work(writer: int) -> None:
            key = Key("order", str(writer % 3))
            done[writer] += [s.journal.append(key, events(writer)).first for _ in range(40)]

        def pipeline() -> None:
            while not stop.is_set():
                carry(s)

        threads = [threading.Thread(target=work, args=(writer,)) for writer in range(8)]
        carrier = threading.Thread(target=pipeline)
        for thread in (*threads, carrier):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        carrier.join()
        for key in range(3):
            given = sorted(number for writer in range(key, 8, 3) for number in done[writer])
            assert given == list(range(1, len(given) + 1))
            assert seq_nrs(s.journal.read(Key("order", str(key)))) == given
