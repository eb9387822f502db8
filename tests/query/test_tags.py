"""Events by tag through `connect`: what is asked, refused and shown; live queries in threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest

import strandline
from strandline import Event, aio
from strandline.connect import Strandline
from strandline.errors import Corrupt, InvalidInput, SchemaMismatch
from strandline.query.tag_offset import TagOffset
from strandline.servers.postgres import PostgresServer
from strandline.store.tag_scans import tag_row_at
from strandline.testing import FakeClock, carry
from strandline.values.answers import Appended
from tests.query.filling import carry_all, key_in
from tests.query.playing import until_error

BACKENDS = ["memory", "sqlite", "postgres"]
START = 1_800_000_000_000_000


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal on each back-end."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.database()
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/journal"


@pytest.fixture
def here(url: str) -> Iterator[Strandline]:
    """A journal of three partitions."""
    with strandline.connect(url, partitions=3) as s:
        yield s


def put(s: Strandline, key: str, *tags: str, count: int = 1) -> Any:
    return s.journal.append(key, [Event("Placed", {"n": n}, tags=tags) for n in range(count)])


def shown(events: Any) -> list[tuple[str, int]]:
    return [(str(event.key), event.tag_seq_nr) for event in events]


@pytest.mark.req("T1", "T2", "T15")
def test_own_counters(here: Strandline, caplog: pytest.LogCaptureFixture) -> None:
    """Events tagged {x}, {x, y}, {y}: x 1, 2 and y 1, 2. 12 tags: shown once by 12 queries, one warning."""
    for tags in (("x",), ("x", "y"), ("y",)):
        put(here, "order|1", *tags)
    many, twelve = [f"t{number}" for number in range(12)], uuid4().hex
    with caplog.at_level(logging.WARNING):
        put(here, f"{twelve}|0", *many[:9])
        assert "is advised" not in caplog.text
        put(here, f"{twelve}|1", *many)
        put(here, f"{twelve}|2", *many)
        assert caplog.text.count("fewer than 10 is advised") == 1
        put(here, f"{uuid4().hex}|1", *many[:10])  # another entity type
    assert caplog.text.count("fewer than 10 is advised") == 2
    carry_all(here)
    for tag in ("x", "y"):
        assert shown(here.by_tag(tag)) == [("order|1", 1), ("order|1", 2)]
    for tag in many[10:]:
        assert shown(here.by_tag(tag)) == [(f"{twelve}|1", 1), (f"{twelve}|2", 1)]
    for tag in many[:10]:
        assert len(shown(here.by_tag(tag))) == (4 if tag in many[:9] else 3)


@pytest.mark.req("T21", "T48")
def test_own_write(here: Strandline) -> None:
    """An append is answered before its tag rows are there; once the strandline is past it, every query shows it."""
    done = put(here, "order|1", "x")
    assert shown(here.by_tag("x")) == []
    assert not here.wait_for_strandline(done, timeout_s=0)
    carrying = threading.Timer(0.2, carry_all, (here,))
    carrying.start()
    assert here.wait_for_strandline(done, timeout_s=20)
    assert shown(here.by_tag("x")) == [("order|1", 1)]
    carrying.join()
    assert done.timestamp is not None
    assert here.wait_for_strandline(done.timestamp)
    without = Appended(done.key, 1, 1, done.partition, done.offset, None)
    assert here.wait_for_strandline(without)
    with pytest.raises(InvalidInput):
        here.wait_for_strandline("now")  # type: ignore[arg-type]


@pytest.mark.req("T49", "T51")
def test_the_bound_is_the_strandline_and_no_clock(here: Strandline) -> None:
    """A partition never replicated keeps it at 0, and status says so; a current query is empty then."""
    put(here, str(key_in(0, 3)), "x")
    carry(here, partition=0)
    assert here.status().strandline == 0
    assert shown(here.by_tag("x")) == []
    carry_all(here)
    assert len(shown(here.by_tag("x"))) == 1


@pytest.mark.req("T49", "T11", "T46")
def test_a_clock_an_hour_ahead_hides_nothing(url: str) -> None:
    """Two partitions whose clocks are an hour apart: order by time, all shown, buckets by the timestamp."""
    clock = FakeClock(START)
    with strandline.connect(url, partitions=2, clock=clock) as s:
        ahead, behind = str(key_in(0, 2)), str(key_in(1, 2))
        clock.advance(3600)
        put(s, ahead, "x")
        clock.advance(-3600)
        put(s, behind, "x")
        put(s, behind, "x")
        carry_all(s)
        assert shown(s.by_tag("x")) == [(behind, 1), (behind, 2), (ahead, 1)]


@pytest.mark.req("T54")
@pytest.mark.parametrize("off_s", [-3600, 3600])
def test_the_readers_clock_hides_and_shows_nothing(
    here: Strandline, off_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the strandline the bound is by the clock of the store: one of the reader's process may be wrong."""
    put(here, "order|1", "x")
    carry_all(here)
    monkeypatch.setattr(here, "_clock", lambda: here.store.now_us() + off_s * 1_000_000)
    assert shown(here.by_tag("x", use_strandline=False, eventual_consistency_delay_s=0)) == [("order|1", 1)]
    assert shown(here.by_tag("x", use_strandline=False, eventual_consistency_delay_s=600)) == []


@pytest.mark.req("T47", "T75", "T80")
def test_live_queries_share_one_look_and_end_at_once(here: Strandline) -> None:
    """100 idle live queries look at the pointers as often as one; closed, each ends within a second."""
    put(here, "order|1", "x")
    carry_all(here)
    feeds = [here.by_tag("x", live=True, refresh_interval_s=0.1) for _ in range(100)]
    got: list[list[Any]] = [[] for _ in feeds]
    threads = [threading.Thread(target=into.extend, args=(feed,)) for feed, into in zip(feeds, got, strict=True)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while not all(got) and time.monotonic() < deadline:
        time.sleep(0.01)
    before, from_s = here.pointer_watch.looks, time.monotonic()
    while (looks := here.pointer_watch.looks - before) < 10:
        assert time.monotonic() < deadline + 10, "nobody looks"
        time.sleep(0.01)
    assert looks <= 2 * (time.monotonic() - from_s) / 0.1
    put(here, "order|2", "x")
    carry_all(here)
    while not all(len(events) == 2 for events in got) and time.monotonic() < deadline + 20:
        time.sleep(0.01)
    closing = time.monotonic()
    for feed in feeds:
        feed.close()
    for thread in threads:
        thread.join()
    assert time.monotonic() - closing < 1
    assert all(shown(events) == [("order|1", 1), ("order|2", 1)] for events in got)


@pytest.mark.req("T46", "T55", "T76", "RJ9")
def test_load(here: Strandline) -> None:
    """Writers, a pipeline and live readers at once: every tag whole, once, per key in order."""
    writers, events, tags = 4, 60, ("a", "b", "c")
    stop = threading.Event()

    def carrying() -> None:
        while not stop.is_set():
            carry_all(here)

    def writing(number: int) -> None:
        for at in range(events):
            put(here, f"order|{(number + at) % 7}", *tags[: 1 + at % 3])

    feeds = [here.by_tag(tag, live=True, refresh_interval_s=0.01, page_size=7) for tag in tags for _ in range(2)]
    wanted = {"a": writers * events, "b": writers * events * 2 // 3, "c": writers * events // 3}
    got: list[list[Any]] = [[] for _ in feeds]
    threads = [threading.Thread(target=into.extend, args=(feed,)) for feed, into in zip(feeds, got, strict=True)]
    pipeline = threading.Thread(target=carrying)
    for thread in (*threads, pipeline):
        thread.start()
    writing_threads = [threading.Thread(target=writing, args=(number,)) for number in range(writers)]
    for thread in writing_threads:
        thread.start()
    for thread in writing_threads:
        thread.join()
    deadline = time.monotonic() + 60
    while any(len(into) < wanted[tags[at // 2]] for at, into in enumerate(got)) and time.monotonic() < deadline:
        time.sleep(0.02)
    stop.set()
    pipeline.join()
    for feed in feeds:
        feed.close()
    for thread in threads:
        thread.join()
    for at, into in enumerate(got):
        assert len(into) == wanted[tags[at // 2]]
        places = [event.offset for event in into]
        assert places == sorted(set(places))
        assert shown(into) == shown(here.by_tag(tags[at // 2]))


@pytest.mark.req("T3", "T5", "T14", "T42", "T43")
def test_refused(here: Strandline) -> None:
    """Every row of the table of bad input: the named answer."""
    put(here, "order|1", "x")
    put(here, "order|1", "y")
    carry_all(here)
    (event,) = here.by_tag("x")
    late = datetime(2500, 1, 1, tzinfo=UTC)
    (slice_event, _) = here.by_slices("order", 0, 1023)
    foreign = TagOffset.parse(str(event.offset))
    for tag, how, code in (
        ("", {}, "invalid_tag"), ("a\n", {}, "invalid_tag"), (" a", {}, "invalid_tag"), (1, {}, "invalid_tag"),
        ("ä" * 129, {}, "invalid_tag"), ("\ud800", {}, "invalid_tag"), (["x"], {}, "invalid_tag"),
        ("x", {"after": event.offset, "from_": 5}, "offset_ambiguous"),
        ("x", {"after": "garbage"}, "offset_format"), ("x", {"after": 5}, "offset_format"),
        ("y", {"after": foreign}, "offset_foreign"), ("x", {"after": slice_event.offset}, "offset_foreign"),
        ("x", {"after": str(slice_event.offset)}, "offset_foreign"),
        ("x", {"from_": datetime(2026, 1, 1)}, "time_without_zone"),  # noqa: DTZ001
        ("x", {"from_": -1}, "time_range"), ("x", {"to": 253_402_300_800_000_000}, "time_range"),
        ("x", {"from_": "today"}, "time_format"), ("x", {"from_": 10, "to": 9}, "empty_range"),
        ("x", {"after": event.offset, "to": event.timestamp - 1}, "empty_range"),
        ("x", {"first_time_bucket": "yesterday"}, "time_format"),
        ("x", {"first_time_bucket": "1969-01-01"}, "time_range"),
        ("x", {"page_size": 0}, "setting"), ("x", {"live": 1}, "setting"), ("x", {"unknown": 1}, "setting"),
        ("x", {"back_track_period_s": 1}, "setting"), ("x", {"seen": {"order|1": 3}}, "setting"),
        ("x", {"seen": {"order": (1, 1)}}, "key_type"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            here.by_tag(tag, **how)  # type: ignore[arg-type]
        assert caught.value.code == code, (tag, how)
    for wrong, near in (("aftr", "after"), ("form_", "from_"), ("page_sise", "page_size")):
        with pytest.raises(InvalidInput) as caught:
            here.by_tag("x", **{wrong: 5})  # type: ignore[arg-type]
        assert (str(caught.value), caught.value.hint) == (
            f"{wrong}: unknown setting; allowed {near}; got 5",
            f"did you mean {near}?",
        )
    assert list(here.by_tag("x", from_=late)) == []
    assert shown(here.by_tag("x", from_=event.time)) == [("order|1", 1)]
    assert list(here.by_tag("strandline.groups")) == []


@pytest.mark.req("T3", "T5")
def test_tags_at_their_limits_are_told_apart_by_their_bytes(here: Strandline) -> None:
    """What an append takes and refuses; no folding of case, no normalising of what looks alike."""
    longest = "ä" * 128  # 256 bytes
    alike = ("é", "e\u0301", "E\u0301", "É", "ﬁ", "fi", "a b", "a\u00a0b")
    put(here, "order|1", longest, *alike)
    put(here, "order|1", alike[0], alike[3])
    carry_all(here)
    assert [set(event.tags) for event in here.journal.read("order|1")] == [{longest, *alike}, {alike[0], alike[3]}]
    assert shown(here.by_tag(longest)) == [("order|1", 1)]
    for tag in alike:
        assert len(shown(here.by_tag(tag))) == (2 if tag in {"é", "É"} else 1), tag
    wrong: tuple[tuple[Any, str | None], ...] = (
        (longest + "a", "257 bytes"), ("", "empty"), (" a", None), ("a ", None), ("a\u3000", None), ("a\x00", None),
        ("a\x1fb", None), ("a\x7f", None), ("\ud800", "lone surrogate"), ("strandline.", None), ("strandline.x", None),
        (1, "not text"), (None, "not text"), (b"x", "not text"),
    )  # fmt: skip
    for bad, rule in wrong:
        with pytest.raises(InvalidInput) as caught:
            here.journal.append("order|1", [Event("Placed", 1, tags=["x"]), Event("Placed", 1, tags=["x", bad])])
        assert (caught.value.code, caught.value.field) == ("invalid_tag", "events[1].tags"), bad
        assert caught.value.tag == bad
        assert rule is None or caught.value.rule == rule
    put(here, "order|1", "strandline")  # only what follows the dot is reserved
    head = here.journal.head("order|1")
    assert head is not None
    assert head.seq_nr == 3


@pytest.mark.req("T10", "T11")
@pytest.mark.parametrize("size", ["minute", "hour", "day"])
def test_each_bucket_size_can_be_chosen_and_is_kept(url: str, size: Literal["minute", "hour", "day"]) -> None:
    length_us = {"minute": 60, "hour": 3600, "day": 86_400}[size] * 1_000_000
    clock = FakeClock(START)
    with strandline.connect(url, bucket_size=size, clock=clock) as s:
        for _ in range(4):
            put(s, "order|1", "x")
            clock.advance(3599)
        carry_all(s)
        events = list(s.by_tag("x"))
        assert len(events) == 4
        rows = [tag_row_at(s.store, "x", (event.timestamp, "order|1", event.seq_nr)) for event in events]
        assert [row.bucket for row in rows if row] == [event.timestamp // length_us for event in events]


@pytest.mark.req("T10")
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_bucket_size(url: str) -> None:
    """Made with hour, started with day: refused with both words; hour works. `Hour` is no size."""
    with strandline.connect(url, bucket_size="hour") as s:
        put(s, "order|1", "x")
        carry_all(s)
    with pytest.raises(SchemaMismatch) as caught:
        strandline.connect(url, bucket_size="day")
    assert caught.value.name == "SchemaMismatch.setting"
    assert (caught.value.setting, caught.value.stored, caught.value.given) == ("bucket_size", "hour", "day")
    with pytest.raises(InvalidInput):
        strandline.connect(url, bucket_size="Hour")  # type: ignore[arg-type]
    with strandline.connect(url, bucket_size="hour") as s:
        assert shown(s.by_tag("x")) == [("order|1", 1)]


@pytest.mark.req("T20")
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_row_that_says_something_else_stops_its_partition(url: str) -> None:
    """The number of a row was changed by hand: the next event would get one that is taken."""
    with strandline.connect(url, partitions=1) as s:
        put(s, "order|1", "x", count=2)
        carry_all(s)
        with s.store._database.write() as tx:  # type: ignore[attr-defined]
            _by_hand(tx, "UPDATE {}tag_view SET tag_seq_nr = 3 WHERE tag_seq_nr = 2")
        put(s, "order|1", "x")
        before = s.store.pointers()[0].offset
        with pytest.raises(Corrupt) as caught:
            carry(s)
        assert caught.value.name == "Corrupt.tag_row"
        assert s.store.pointers()[0].offset == before


def _by_hand(tx: Any, text: str) -> None:
    tx.raw.execute(text.format("" if tx.dialect == "sqlite" else "strandline."))


@pytest.mark.req("T56", "T59", "T60", "T61", "T79")
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_planted_hole(url: str) -> None:
    """A row is taken away, then one is changed: the query says what is missing or broken, and where to go on."""
    with strandline.connect(url, partitions=1) as s:
        for key in ("order|1", "order|2", "order|1", "order|2", "order|1"):
            put(s, key, "x")
        carry_all(s)
        events = list(s.by_tag("x"))
        with s.store._database.write() as tx:  # type: ignore[attr-defined]
            _by_hand(tx, "DELETE FROM {}tag_view WHERE key = 'order|1' AND tag_seq_nr = 2")
        got, error = until_error(s.by_tag("x", gap_timeout_s=0.05))
        assert got == ["11", "21", "22"]
        assert error.name == "MissingEvent.tag_hole"
        assert error.missing == {"order|1": (1, 2, 2, 1)}
        assert error.last_known_offset == events[0].offset
        with s.store._database.write() as tx:  # type: ignore[attr-defined]
            _by_hand(tx, "UPDATE {}tag_view SET previous_seq_nr = 9 WHERE key = 'order|2' AND tag_seq_nr = 2")
        got, error = until_error(s.by_tag("x", after=events[1].offset))
        assert (got, error.name) == ([], "Corrupt.tag_row")


@pytest.mark.req("T6", "T39")
def test_tags_are_part_of_the_event(here: Strandline) -> None:
    put(here, "order|1", "b", "a")
    carry_all(here)
    (recorded,) = here.journal.read("order|1")
    assert recorded.tags == ("b", "a")
    for tag in "ab":
        (event,) = here.by_tag(tag)
        assert event == recorded
        assert event.tags == ("b", "a")  # all of them, not the one that was asked for
        assert event.to_dict()["tags"] == recorded.to_dict()["tags"]
        assert event.to_dict()["tag"] == tag
        assert TagOffset.parse(event.to_dict()["offset"]) == event.offset


@pytest.mark.req("T6")
def test_tags_are_not_changed_by_appending_once_more(here: Strandline) -> None:
    given = uuid4()
    here.journal.append("order|1", [Event("Placed", 1, tags=["a"])], append_id=given)
    for tags in (["a", "b"], ["b"], []):
        with pytest.raises(InvalidInput) as refused:
            here.journal.append("order|1", [Event("Placed", 1, tags=tags)], append_id=given)
        assert refused.value.code == "append_id_reused"
    carry_all(here)
    assert [event.tags for event in here.journal.read("order|1")] == [("a",)]
    assert shown(here.by_tag("a")) == [("order|1", 1)]
    assert shown(here.by_tag("b")) == []


@pytest.mark.req("T4")
def test_tags_are_sets_and_repeats_count_once(here: Strandline) -> None:
    for tags in (["x", "x"], {"x"}, frozenset({"x"}), ("x", "y", "x")):
        here.journal.append("order|1", [Event("Placed", 1, tags=tags)])
    with pytest.raises(InvalidInput):
        here.journal.append("order|1", [Event("Placed", 1, tags="x")])
    assert [event.tags for event in here.journal.read("order|1")] == [("x",), ("x",), ("x",), ("x", "y")]
    carry_all(here)
    assert [event.tags for event in here.journal.read("order|1")] == [("x",), ("x",), ("x",), ("x", "y")]
    assert shown(here.by_tag("x")) == [("order|1", number) for number in (1, 2, 3, 4)]


@pytest.mark.req("T54", "T65", "T67")
def test_without_the_strandline(url: str) -> None:
    """The bound is the clock's, less the delay; rows are shown though a partition was never replicated."""
    clock = FakeClock(START)
    with strandline.connect(url, partitions=2, clock=clock) as s:
        put(s, str(key_in(0, 2)), "x", count=3)
        carry(s, partition=0)
        given: dict[str, Any] = {"use_strandline": False}
        assert shown(s.by_tag("x")) == []
        assert shown(s.by_tag("x", **given)) == []
        clock.advance(5)
        assert len(shown(s.by_tag("x", **given))) == 3
        assert len(shown(s.by_tag("x", from_=START, **given))) == 3


@pytest.mark.req("T42")
def test_from_asyncio(tmp_path: Path) -> None:
    async def main() -> list[tuple[str, int]]:
        async with aio.connect(f"sqlite:{tmp_path}/journal") as s:
            await s.journal.append("order|1", [Event("Placed", 1, tags=["x"])])
            await asyncio.to_thread(carry_all, s._plain)
            return [(str(event.key), event.tag_seq_nr) async for event in s.by_tag("x")]

    assert asyncio.run(main()) == [("order|1", 1)]
