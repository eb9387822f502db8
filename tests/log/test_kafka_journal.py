"""A Journal over Kafka: verdicts across processes, late verdicts, records that came twice or from elsewhere."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

import strandline
from strandline import Event, Key, SeqNrConflict, Unavailable
from strandline.backends.kafka.log import KafkaLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.log.api import ActionDraft, Answered
from strandline.record import decode_header
from strandline.servers.kafka import KafkaServer
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.store.scans import quarantined
from strandline.testing import carry, raw_append
from strandline.values.actions import Append, Mark
from tests.journal.test_lags import STORIES, Story
from tests.journal.worlds import fields, numbered
from tests.log.topics import RELAXED, new_name
from tests.servers.stopped import wait_until_stopped

pytestmark = pytest.mark.filterwarnings(RELAXED)
KEY = Key("order", "42")
DEADLINE_S = 120
Urls = dict[str, Any]


@pytest.fixture
def urls(kafka: KafkaServer, tmp_path: Path) -> Urls:
    return {"log": f"{kafka.url}/{new_name()}", "store": f"sqlite:{tmp_path}/store.db"}


@pytest.fixture
def connected(urls: Urls) -> Iterator[Callable[..., Strandline]]:
    with ExitStack() as opened:

        def connected(**settings: Any) -> Strandline:
            return opened.enter_context(strandline.connect(**urls, **{"accept_power_loss": True, **settings}))

        yield connected


def started(urls: Urls, command: str, *given: object) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.log.kafka_child", command, urls["log"], urls["store"], *map(str, given)]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def printed(process: subprocess.Popen[str]) -> list[list[str]]:
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return [line.split() for line in out.splitlines()]


# ---------------------------------------------------------------- many processes


@pytest.mark.timeout(300)
@pytest.mark.req("J37", "RA9", "J36")
def test_ten_writers(connected: Callable[..., Strandline], urls: Urls) -> None:
    """ten-writers: 10 processes, one `expected`, 100 rounds: one winner a round, 9 conflicts with actual."""
    s = connected()
    rounds = 100
    processes = [started(urls, "expected", rounds) for _ in range(10)]
    while any(process.poll() is None for process in processes):
        carry(s)
        time.sleep(0.2)
    outcomes = [printed(process) for process in processes]
    for number in range(rounds):
        words = Counter(lines[number][1] for lines in outcomes)
        assert words == {"won": 1, "lost": 9}
        assert all(int(lines[number][2]) > number for lines in outcomes)
    assert [event.payload for event in s.journal.read(KEY)] == list(range(rounds))


@pytest.mark.timeout(300)
@pytest.mark.req("J38", "J14", "RJ1")
def test_plain_writers(connected: Callable[..., Strandline], urls: Urls) -> None:
    """plain-writers: two processes, 1000 plain appends each on one key: all succeed, each number once."""
    s = connected()
    outcomes = [printed(process) for process in [started(urls, "plain", name, 1000) for name in "ab"]]
    given = [[int(word) for (word,) in lines] for lines in outcomes]
    assert sorted(given[0] + given[1]) == list(range(1, 2001))
    assert all(numbers == sorted(numbers) for numbers in given)
    found = {event.seq_nr: event.payload for event in s.journal.read(KEY)}
    for name, numbers in zip("ab", given, strict=True):
        assert [found[number] for number in numbers] == [f"{name}-{number}" for number in range(1000)]


# ---------------------------------------------------------------- verdicts


class Late(KafkaLog):
    """Lets something happen between the brokers' answer and its being heard."""

    meanwhile: Callable[[], object] | None = None

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None

        def told(recorded: Any, error: Any) -> None:
            if meanwhile is not None:
                meanwhile()
            answered(recorded, error)

        super().send(draft, told)


@pytest.mark.req("J37", "J38", "J39")
@pytest.mark.parametrize("cache", [True, False], ids=["cache", "log"])
@pytest.mark.parametrize("behind", ["delete", "purge", "append"])
def test_late_verdict(kafka: KafkaServer, cache: bool, behind: str) -> None:
    """late-verdict: it, and a Delete or Purge behind it, are carried before the Journal looks."""
    settings = Settings.of({"accept_power_loss": True, "partitions": 1, "heads_cache": cache})
    topic = new_name()
    log = Late(kafka.bootstrap, topic, settings=settings)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    other = Strandline(KafkaLog(kafka.bootstrap, topic, settings=settings), store, settings)
    s = Strandline(log, store, settings)
    s.journal.append(KEY, [Event("Placed", 1)])

    def meanwhile() -> None:
        if behind == "delete":
            other.journal.delete(KEY, to=2)
        elif behind == "purge":
            other.journal.purge(KEY)
        else:
            other.journal.append(KEY, [Event("Placed", "other")])
        carry(other)

    calls: list[tuple[dict[str, Any], Any]] = [
        ({}, (2, 2)), ({"expected": 1}, (2, 2)), ({"expected": 7}, 1), ({"first": 1}, 1),
    ]  # fmt: skip
    for arguments, expected in calls:
        other.journal.purge(KEY)
        other.journal.append(KEY, [Event("Placed", 1)])
        log.meanwhile = meanwhile
        if isinstance(expected, tuple):
            done = s.journal.append(KEY, [Event("Placed", 2)], **arguments)
            assert (done.first, done.last, done.duplicate) == (*expected, False)
        else:
            with pytest.raises(SeqNrConflict) as conflict:
                s.journal.append(KEY, [Event("Placed", 2)], **arguments)
            assert conflict.value.actual == expected
    s.close()
    other.close()


@pytest.mark.req("J42")
def test_brokers_that_stand_still_keep_nobody_longer_than_the_time_out(
    kafka: KafkaServer, connected: Callable[..., Strandline]
) -> None:
    connected()  # makes the topic, which may take longer
    s = connected(append_timeout_s=1)
    _until_answered(s)
    kafka.process.send(signal.SIGSTOP)
    try:
        wait_until_stopped(kafka.process.pid)
        started = time.monotonic()
        future = s.journal.append_future(KEY, [Event("Placed", 2)])
        with pytest.raises(Unavailable) as late:
            s.journal.append(KEY, [Event("Placed", 3)])
        for error in (late.value, future.exception(5)):
            assert isinstance(error, Unavailable)
            assert (error.code, error.applied) == ("timeout", "unknown")
        assert time.monotonic() - started < 5
    finally:
        kafka.process.send(signal.SIGCONT)


def _until_answered(s: Strandline) -> None:
    """The first append connects, which on a busy machine may take longer than the time-out."""
    deadline = time.monotonic() + 60
    while True:
        try:
            s.journal.append(KEY, [Event("Placed", 1)], numbers=False)
            return
        except Unavailable:
            assert time.monotonic() < deadline


@pytest.mark.req("J38", "J42")
def test_no_verdict_in_time(kafka: KafkaServer) -> None:
    """A plain append succeeds without numbers; of anything else nobody can say."""
    settings = Settings.of(
        {"accept_power_loss": True, "partitions": 1, "heads_cache": False, "append_timeout_s": 3, "consumers_max": 1}
    )
    log = KafkaLog(kafka.bootstrap, new_name(), settings=settings)
    s = Strandline(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)), settings)
    s.journal.append(KEY, [Event("Placed", 1)])
    reader = log._consumers._take(0, 0)  # nobody can read now
    done = s.journal.append(KEY, [Event("Placed", 2)])
    assert (done.first, done.last, done.timestamp, done.offset) == (None, None, None, 1)
    with pytest.raises(Unavailable) as unknown:
        s.journal.append(KEY, [Event("Placed", 3)], expected=2)
    assert (unknown.value.code, unknown.value.applied) == ("timeout", "unknown")
    log._consumers._give_back(reader)
    assert [event.payload for event in s.journal.read(KEY)] == [1, 2, 3]
    quick = s.journal.append(KEY, [Event("Placed", 5)], numbers=False)
    assert (quick.first, quick.last, quick.timestamp, quick.offset) == (None, None, None, 4)
    s.close()


@pytest.mark.req("J40", "J57", "J22")
def test_twice_in_log(connected: Callable[..., Strandline]) -> None:
    """A record twice in Kafka counts once, carried or not."""
    s = connected(partitions=1)
    s.journal.append(KEY, [Event("Placed", "a"), Event("Placed", "b")])
    (record,) = s.log.read(0, after=-1).records
    raw_append(s, 0, key=record.key, header=record.header, value=record.value)
    for _ in range(3):
        assert numbered(s.journal.read(KEY)) == [(1, 0, "a"), (2, 1, "b")]
        carry(s, limit=1)
    assert s.journal.append(KEY, [Event("Placed", "c")], expected=2).first == 3


# ---------------------------------------------------------------- reads


@pytest.mark.req("J51", "J49")
def test_a_read_writes_a_mark(connected: Callable[..., Strandline]) -> None:
    s = connected(partitions=1)
    marked = s.journal.mark(KEY)
    assert (marked.offset, marked.timestamp) == (0, None)
    assert list(s.journal.read(KEY)) == []
    assert s.journal.head(KEY) is None
    records = s.log.read(0, after=-1).records
    assert [type(decode_header(record.header)) for record in records] == [Mark] * 3
    carry(s)
    assert s.store.pointers()[0].offset == 2


@pytest.mark.parametrize("name", ["long-mix", "purge-append", "reset", "gap", "delete-append"])
@pytest.mark.parametrize("cache", [True, False], ids=["cache", "log"])
@pytest.mark.req("J50", "J63", "J65", "J66", "J128", "RJ1", "RJ2", "RJ3")
def test_the_same_answers_at_some_lags(connected: Callable[..., Strandline], name: str, cache: bool) -> None:
    s = connected(partitions=1, segment_size=3, heads_cache=cache)
    story = Story(s)
    for number, step in enumerate(STORIES[name]):
        step(story)
        if number % 3 == 1:
            story.check()
            carry(s, limit=2)
    story.check()
    assert numbered(s.journal.read(KEY, backwards=True)) == story.model.read(backwards=True)
    assert numbered(s.journal.read(KEY, limit=2)) == story.model.read(limit=2)
    carry(s)
    story.check()
    assert numbered(s.journal.read(KEY, backwards=True, limit=2)) == story.model.read(backwards=True, limit=2)


@pytest.mark.req("J129")
def test_append_many(connected: Callable[..., Strandline]) -> None:
    s = connected(group_actions_max=100)
    many = [(f"order|{number % 3}", [Event("Placed", number)], {"expected": number // 3}) for number in range(240)]
    answers = s.journal.append_many([*many, many[0], ("order|3", [Event("Placed", 0)], {"numbers": False})])
    assert [getattr(one, "last", None) for one in answers[:240]] == [number // 3 + 1 for number in range(240)]
    assert isinstance(answers[240], SeqNrConflict)
    for key in range(3):
        assert [event.payload for event in s.journal.read(f"order|{key}")] == list(range(key, 240, 3))
    assert len(list(s.journal.read("order|3"))) == 1


@pytest.mark.req("J9", "J26", "RA6", "RJ4")
def test_events_are_the_same_from_log_and_store(connected: Callable[..., Strandline]) -> None:
    s = connected(partitions=1)
    for number in range(50):
        s.journal.append_future(KEY, [Event("Placed", number, tags=("t",))], headers={"by": "me"})
    done = s.journal.append(KEY, [Event("Placed", 50)])
    from_log = [fields(event) for event in s.journal.read(KEY)]
    assert from_log[-1]["timestamp"] == done.timestamp
    for limit in (7, 11, None):
        carry(s, limit=limit)
        assert [fields(event) for event in s.journal.read(KEY)] == from_log
    assert len({event["timestamp"] for event in from_log}) == 51


@pytest.mark.req("J95", "RR5", "J54")
def test_foreign_records_are_listed_and_nobody_stumbles(connected: Callable[..., Strandline]) -> None:
    s = connected(partitions=1)
    s.journal.append(KEY, [Event("Placed", 1)])
    raw_append(s, 0, key="who|knows", header=None, value=b"\x00foreign")
    raw_append(s, 0, key=str(KEY), header=b"not ours", value=b"x")
    s.journal.append(KEY, [Event("Placed", 2)])
    for _ in range(2):
        assert numbered(s.journal.read(KEY)) == [(1, 0, 1), (2, 1, 2)]
        carry(s)
    assert [(row.offset, row.key, row.reason) for row in quarantined(s.store)] == [
        (1, "who|knows", "foreign"),
        (2, str(KEY), "foreign"),
    ]


@pytest.mark.req("J127")
def test_plain_appends_need_the_log_alone(kafka: KafkaServer) -> None:
    settings = Settings.of({"accept_power_loss": True, "partitions": 1, "heads_cache": False})
    log = KafkaLog(kafka.bootstrap, new_name(), settings=settings)

    class Away(MemoryStore):
        def look(self, partition: int, keys: Any, followed: Any = ()) -> Any:
            raise Unavailable("away", code="away", hint="come back")

    s = Strandline(log, Away(StoreSettings(log.log_id, 1, 10_000)), settings)
    assert s.journal.append(KEY, [Event("Placed", 1)]).first is None
    with pytest.raises(Unavailable) as away:
        s.journal.append(KEY, [Event("Placed", 1)], expected=1)
    assert (away.value.code, away.value.applied) == ("away", "no")
    actions = [decode_header(record.header) for record in log.read(0, after=-1).records]
    assert [cast(Append, action).expected for action in actions] == [None]
    s.close()
