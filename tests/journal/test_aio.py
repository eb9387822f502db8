"""The same calls, to await."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event, SeqNrConflict, aio
from strandline.errors import InvalidInput, Unavailable
from strandline.testing import carry
from tests.journal.worlds import KEY, url_of
from tests.projection.worlds import until

WORLDS = ("memory", "sqlite", "postgresql")
Test = Callable[[aio.Strandline], Awaitable[None]]


def run(backend: str, folder: Path, test: Test, **settings: Any) -> None:
    async def connected() -> None:
        async with aio.connect(url_of(backend, folder), **settings) as s:
            await asyncio.wait_for(test(s), 60)

    asyncio.run(connected())


@pytest.mark.parametrize("backend", WORLDS)
def test_calls_are_those_of_the_plain_journal(backend: str, tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        answer = await s.journal.append(KEY, [Event("Placed", {"total": 1}), Event("Paid", None)], expected=0)
        assert (answer.first, answer.last) == (1, 2)
        assert [event.type async for event in s.journal.read(KEY)] == ["Placed", "Paid"]
        assert [event.type async for event in s.journal.read(KEY, backwards=True, limit=1)] == ["Paid"]
        head = await s.journal.head(KEY)
        assert head is not None
        assert head.seq_nr == 2
        with pytest.raises(SeqNrConflict):
            await s.journal.append(KEY, [Event("Late", None)], expected=0)
        await s.journal.purge(KEY)
        assert [event async for event in s.journal.read(KEY)] == []
        assert (await s.status()).partitions

    run(backend, tmp_path, test)


@pytest.mark.parametrize("backend", WORLDS)
def test_of_many_at_once_one_wins_and_no_thread_waits_for_an_append(backend: str, tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        before = threading.active_count()
        tasks = [s.journal.append(KEY, [Event("Taken", number)], expected=0) for number in range(200)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(answer, SeqNrConflict) for answer in answers) == 199
        assert len([event async for event in s.journal.read(KEY)]) == 1
        assert threading.active_count() <= before + 4  # the group commit's, and a stream's

    run(backend, tmp_path, test)


def test_a_long_journal_is_read_with_few_events_ahead(tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        for _ in range(10):
            await s.journal.append(KEY, [Event("Counted", number) for number in range(1000)])
        stream = s.journal.read(KEY)
        first = await anext(stream)
        assert first.seq_nr == 1
        seen = [event.seq_nr async for event in stream]
        assert seen == list(range(2, 10_001))
        assert max_ahead(stream) == 0

    run("sqlite", tmp_path, test)


def max_ahead(stream: aio.Stream[Any]) -> int:
    return len(stream._came)


def test_who_does_not_take_events_is_not_overrun(tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        for _ in range(5):
            await s.journal.append(KEY, [Event("Counted", number) for number in range(1000)])
        async with s.journal.read(KEY) as stream:
            await anext(stream)
            while max_ahead(stream) < aio.AHEAD - 1:  # noqa: ASYNC110 (a thread fills it, which sets no event)
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)  # it could go on now, if nothing held it
            assert max_ahead(stream) <= aio.AHEAD
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run("sqlite", tmp_path, test)


def test_a_live_query_gives_what_comes_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)

    async def test(s: aio.Strandline) -> None:
        seen = []
        async with s.by_slices("order", 0, 1023, live=True, refresh_interval_s=0.01) as live:
            for number in range(3):
                await s.journal.append(KEY, [Event("Moved", number)])
                await asyncio.to_thread(carried, url)
                seen.append((await anext(live)).payload)
            waiting = asyncio.ensure_future(anext(live))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await live.aclose()
            with pytest.raises(StopAsyncIteration):
                await waiting
        assert seen == [0, 1, 2]

    run("sqlite", tmp_path, test, partitions=1)


@pytest.mark.req("P6", "P17", "T42")
@pytest.mark.parametrize("how", ["tag", "slices", "tag, searching", "slices, searching"])
def test_a_stream_resumes_behind_the_last_event_that_its_reader_got(tmp_path: Path, how: str) -> None:
    """However far the thread has read ahead: 10 of 50 taken, resumed there, the other 40 come."""
    url = url_of("sqlite", tmp_path)
    kind, _, searching = how.partition(", ")
    more: dict[str, Any] = {"use_strandline": False, "eventual_consistency_delay_s": 0} if searching else {}

    async def test(s: aio.Strandline) -> None:
        def asked(**given: Any) -> Any:
            tagged = kind == "tag"
            return s.by_tag("blue", **more, **given) if tagged else s.by_slices("order", 0, 1023, **more, **given)

        for number in range(50):
            await s.journal.append(KEY, [Event("Moved", number, tags=["blue"])])
        await asyncio.to_thread(carried, url)
        async with asked() as stream:
            got = [(await anext(stream)).payload for _ in range(10)]
            await asyncio.to_thread(until, lambda: len(stream._came) == 40)  # its thread has read all of it
            saved = stream.resume_offset
        assert str(stream.resume_offset) == str(saved)  # closed: what was read ahead was never handed out
        async with asked(after=str(saved)) as stream:
            came = [event.payload async for event in stream]
            assert list(dict.fromkeys(got + came)) == list(range(50))
            assert searching or not set(got) & set(came)
        assert [event async for event in asked(after=str(stream.resume_offset))] == []

    run("sqlite", tmp_path, test, partitions=1)


@pytest.mark.req("P17")
def test_at_its_end_a_stream_resumes_behind_all_that_was_filtered(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)

    async def test(s: aio.Strandline) -> None:
        for kind in ("Placed", "Moved", "Moved"):
            await s.journal.append(KEY, [Event(kind, None)])
        await asyncio.to_thread(carried, url)
        stream = s.by_slices("order", 0, 1023, filter={"types": ["Placed"]})
        assert str(stream.resume_offset) == "None"  # nothing was asked for
        (placed,) = [event async for event in stream]
        assert stream.resume_offset.timestamp > placed.timestamp

    run("sqlite", tmp_path, test, partitions=1)


def carried(url: str) -> None:
    with strandline.connect(url) as s:
        carry(s)


def test_bad_input_is_told_as_the_plain_call_tells_it(tmp_path: Path) -> None:
    async def test(s: aio.Strandline) -> None:
        with pytest.raises(InvalidInput) as refused:
            await s.journal.append(KEY, [])
        assert refused.value.code == "empty_append"
        with pytest.raises(InvalidInput) as refused:
            await anext(s.journal.read(KEY, from_=0))
        assert refused.value.code == "seq_nr_range"

    run("memory", tmp_path, test)


def test_what_is_not_there_is_refused_when_it_is_awaited() -> None:
    async def connected() -> None:
        with pytest.raises(Unavailable):
            await aio.connect("postgresql://127.0.0.1:1/none", append_timeout_s=1)

    asyncio.run(connected())


def test_a_connection_that_is_awaited_is_closed_by_hand(tmp_path: Path) -> None:
    async def connected() -> None:
        s = await aio.connect(url_of("sqlite", tmp_path))
        await s.journal.append(KEY, [Event("Placed", None)])
        await s.close()
        await s.close()
        for late in (s.journal.append(KEY, [Event("Late", None)]), s.journal.head(KEY), s.journal.keys("order")):
            with pytest.raises(InvalidInput) as refused:
                await late
            assert refused.value.code == "closed"

    asyncio.run(connected())


def test_one_that_nobody_awaited_says_how(tmp_path: Path) -> None:
    connecting = aio.connect(url_of("sqlite", tmp_path))
    calls: list[Callable[[], object]] = [
        lambda: connecting.journal,
        lambda: connecting.work("mails"),
        lambda: connecting.by_tag("blue"),
        lambda: connecting.projections,
        lambda: connecting.groups("a"),
        lambda: connecting.close(),  # noqa: PLW0108 (where it is looked for, too)
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="not open yet") as refused:
            call()
        assert (refused.value.code, "async with aio.connect" in refused.value.hint) == ("closed", True)
    assert not hasattr(connecting, "nothing_of_the_kind")


def test_it_takes_the_places_that_the_plain_one_takes(tmp_path: Path) -> None:
    plain, to_await = (inspect.signature(one).parameters for one in (strandline.connect, aio.connect))
    assert plain.keys() - to_await.keys() == set()

    async def connected() -> None:
        async with aio.connect("memory:", projections=f"sqlite:{tmp_path}/totals.db") as s:
            assert await s.projections.list() == []

    asyncio.run(connected())


def test_every_call_of_the_journal_is_there() -> None:
    plain = {name for name, _ in inspect.getmembers(strandline.Journal, inspect.isfunction) if name[0] != "_"}
    assert plain - {"append_future", "append_reserved", "delete_reserved", "follower", "record", "close"} == {
        name for name in vars(aio.Journal) if name[0] != "_"
    }
