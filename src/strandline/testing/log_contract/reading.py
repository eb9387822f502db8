"""What a log shows, how it is waited for, and what it forgets."""

# ruff: noqa: S101
from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from strandline.errors import InvalidInput, NotFound, Unsupported
from strandline.log.api import ExactLog, Log
from strandline.record import decode_header, decode_value
from strandline.testing.clock import FakeClock
from strandline.testing.log_contract.made import (
    HOUR_US,
    KEY,
    PARTITIONS,
    Opened,
    draft_of,
    everything,
    in_threads,
    keys_in,
    mark_in,
)
from strandline.values.actions import Append

CALLS: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log.append([draft_of(KEY)]),
    "read": lambda log: log.read(0, after=-1),
    "newest": lambda log: log.newest(),
    "oldest": lambda log: log.oldest(),
    "wait": lambda log: log.wait({0: 5}, 0.01),
    "trim": lambda log: log.trim(0, to=0, pointer=0, keep_after=0),
}


class ReadingContract:
    """Pages, bounds, waiting, trimming, closing."""

    durable = True

    @pytest.fixture
    def filled(self, opened: Opened) -> Log:
        """Ten records of two keys, in turn, in partition 1, the values of 100 bytes and more."""
        log = opened(partitions=PARTITIONS)
        one, two = keys_in(1, 2)
        log.append([draft_of(key, bytes(100)) for key in (one, two) * 5])
        return log

    # ------------------------------------------------------------ pages

    def test_an_empty_log_has_nothing(self, opened: Opened) -> None:
        log = opened(partitions=3)
        assert (log.partitions, log.newest(), log.oldest()) == (3, [-1] * 3, [0] * 3)
        assert log.read(2, after=-1) == ([], 0)
        assert log.read(2, after=7) == ([], 8)
        assert log.log_id

    @pytest.mark.req("J31", "RA5")
    @pytest.mark.parametrize("size", [1, 3, 10, 1000])
    def test_pages_join_without_holes(self, filled: Log, size: int) -> None:
        records = everything(filled, 1, page=size)
        assert [record.offset for record in records] == sorted({record.offset for record in records})
        assert len(records) == 10
        assert filled.newest()[1] == records[-1].offset
        assert [filled.newest()[p] for p in (0, 2, 3)] == [-1] * 3

    @pytest.mark.req("J31")
    def test_bounds_are_after_and_to(self, filled: Log) -> None:
        offsets = [record.offset for record in everything(filled, 1)]
        page = filled.read(1, after=offsets[2], to=offsets[5])
        assert [record.offset for record in page.records] == offsets[3:6]
        assert page.position == offsets[5] + 1
        assert filled.read(1, after=offsets[5], to=offsets[5]) == ([], offsets[5] + 1)
        beyond = filled.read(1, after=offsets[8], to=offsets[9] + 100)
        assert (len(beyond.records), beyond.position) == (1, offsets[9] + 1)

    def test_a_page_ends_at_its_bytes_but_one_passes(self, filled: Log) -> None:
        size = len(filled.read(1, after=-1, limit=1).records[0].value or b"")
        assert len(filled.read(1, after=-1, bytes_max=3 * size).records) == 3
        assert len(filled.read(1, after=-1, bytes_max=4 * size - 1).records) == 3
        page = filled.read(1, after=-1, bytes_max=1)
        assert (len(page.records), page.position) == (1, page.records[0].offset + 1)
        assert len(filled.read(1, after=-1, bytes_max=100 * size, limit=4).records) == 4

    @pytest.mark.req("J31")
    @pytest.mark.parametrize("bytes_max", [1, 150, 250, 1000])
    def test_pages_of_bytes_join_without_holes(self, opened: Opened, bytes_max: int) -> None:
        log = opened(partitions=PARTITIONS)
        one, two = keys_in(1, 2)
        sizes = [300, 0, 20, 150, 20, 20, 500]
        log.append([draft_of(key, bytes(size)) for size in sizes for key in (one, two)] + [mark_in(1), mark_in(1)])
        log.append([draft_of(one, bytes(200))])
        records = everything(log, 1)
        for key in (None, one, two):
            found, at = [], 0
            while at <= records[-1].offset:
                page = log.read(1, after=at - 1, bytes_max=bytes_max, key=key)
                sized = [len(record.value) for record in page.records if record.value]
                assert page.position > at
                assert sum(sized) <= bytes_max or len(sized) == 1
                found += [record for record in page.records if key in (None, record.key)]
                at = page.position
            assert found == [record for record in records if key in (None, record.key)]

    def test_values_may_be_left_out(self, filled: Log) -> None:
        with_values, without = filled.read(1, after=-1).records, filled.read(1, after=-1, values=False).records
        assert [record[:5] for record in without] == [record[:5] for record in with_values]
        assert [record[6:] for record in without] == [record[6:] for record in with_values]

    @pytest.mark.req("J31")
    def test_of_one_key_the_others_count_as_looked_at(self, filled: Log) -> None:
        one, two = keys_in(1, 2)
        offsets = [record.offset for record in everything(filled, 1)]

        def mine(key: str, **given: Any) -> tuple[list[int], int]:
            page = filled.read(1, key=key, **given)
            return [record.offset for record in page.records if record.key == key], page.position

        assert mine(one, after=-1) == (offsets[::2], offsets[9] + 1)
        assert mine(two, after=offsets[1], to=offsets[6]) == (offsets[3:7:2], offsets[6] + 1)
        assert mine("order|unknown", after=-1) == ([], offsets[9] + 1)
        assert mine(one, after=offsets[9]) == ([], offsets[9] + 1)
        if filled.exact:  # else the others are given too: timestamps are counted over all of them
            found, position = mine(one, after=-1, limit=2)
            assert found == offsets[:3:2]
            assert offsets[2] < position <= offsets[4]
        gathered, after = [], -1
        while True:
            found, position = mine(two, after=after, limit=1)
            gathered += found
            if position == after + 1:
                break
            after = position - 1
        assert gathered == offsets[1::2]

    @pytest.mark.req("RA5", "RA7")
    def test_a_reader_that_follows_sees_every_append_whole_and_once(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        writers, appends = 4, 40
        done = threading.Event()
        seen: list[list[int]] = [[] for _ in range(PARTITIONS)]

        def follow() -> None:
            positions = [-1] * PARTITIONS
            finished = False
            while not finished:
                finished = done.is_set()
                newest = log.newest()
                for partition in range(PARTITIONS):
                    page = log.read(partition, after=positions[partition], limit=7)
                    while page.records:
                        for record in page.records:
                            action = decode_header(record.header)
                            assert isinstance(action, Append)
                            assert len(decode_value(record.value, len(action.events))) == len(action.events) == 3
                        seen[partition] += [record.offset for record in page.records]
                        positions[partition] = page.position - 1
                        page = log.read(partition, after=positions[partition], limit=7)
                    assert positions[partition] >= newest[partition]

        def work(number: int) -> None:
            if number == writers:
                follow()
                return
            for count in range(appends):
                # Two partitions in one commit, in an order that differs by writer.
                keys = (keys_in(1, 1)[0], keys_in(3, 1)[0])
                log.append([draft_of(key, number, count, 0) for key in (keys if number % 2 else keys[::-1])])
            finished.append(number)
            if len(finished) == writers:
                done.set()

        finished: list[int] = []
        in_threads(work, writers + 1)
        for partition in range(PARTITIONS):
            assert seen[partition] == [record.offset for record in everything(log, partition)]
        assert sum(map(len, seen)) == 2 * writers * appends

    # ------------------------------------------------------------ waiting

    def test_waiting_ends_when_something_comes_or_the_time_is_over(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        started = time.monotonic()
        assert not log.wait({0: -1, 1: -1}, 0.05)
        assert time.monotonic() - started >= 0.05
        log.append([mark_in(2)])
        assert not log.wait({0: -1, 1: -1}, 0.01)
        assert log.wait({0: -1, 2: -1}, 60)
        writer = threading.Timer(0.05, lambda: log.append([mark_in(0)]))
        writer.start()
        assert log.wait({0: -1}, 60)
        writer.join()
        assert time.monotonic() - started < 30

    # ------------------------------------------------------------ trimming

    @pytest.mark.req("RA14", "J33")
    def test_trim_forgets_what_is_carried_and_nothing_else(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        for _ in range(10):
            log.append([mark_in(1), mark_in(2)])
        before = [everything(log, partition) for partition in range(PARTITIONS)]
        offsets = [record.offset for record in before[1]]
        with pytest.raises(InvalidInput) as refused:
            log.trim(1, to=offsets[4], pointer=offsets[3], keep_after=2**62)
        assert (refused.value.code, refused.value.pointer) == ("trim_range", offsets[3])
        assert log.trim(1, to=offsets[9], pointer=offsets[9], keep_after=1) == 0
        assert log.trim(1, to=offsets[4], pointer=offsets[7], keep_after=2**62) == 5
        assert log.trim(1, to=offsets[4], pointer=offsets[7], keep_after=2**62) == 0
        assert [everything(log, partition) for partition in range(PARTITIONS)] == [
            before[0], before[1][5:], before[2], before[3],
        ]  # fmt: skip
        assert log.oldest()[1] == offsets[4] + 1
        assert log.newest()[1:3] == [offsets[9], before[2][-1].offset]

    @pytest.mark.req("RA14", "J33")
    def test_reading_what_was_trimmed_says_where_the_log_begins(self, filled: Log) -> None:
        offsets = [record.offset for record in everything(filled, 1)]
        filled.trim(1, to=offsets[3], pointer=offsets[9], keep_after=2**62)
        for key in (None, KEY):
            with pytest.raises(NotFound) as missing:
                filled.read(1, after=offsets[2], key=key)
            assert (missing.value.code, missing.value.earliest) == ("trimmed", offsets[3] + 1)
        assert len(filled.read(1, after=offsets[3]).records) == 6
        filled.trim(1, to=offsets[9], pointer=offsets[9], keep_after=2**62)
        assert (filled.newest()[1], filled.oldest()[1]) == (offsets[9], offsets[9] + 1)
        assert filled.read(1, after=offsets[9]) == ([], offsets[9] + 1)
        with pytest.raises(NotFound):
            filled.read(1, after=offsets[8])

    def test_trimming_leaves_heads_alone(self, filled: Log) -> None:
        (one, _), newest = keys_in(1, 2), filled.newest()[1]
        filled.trim(1, to=newest, pointer=newest, keep_after=2**62)
        assert filled.append([draft_of(one, expected=5)])[0].place is not None

    # ------------------------------------------------------------ the end

    def test_a_closed_log_refuses_every_call(self, opened: Opened) -> None:
        log = opened(partitions=PARTITIONS)
        log.close()
        log.close()
        for call in CALLS.values():
            with pytest.raises(InvalidInput) as refused:
                call(log)
            assert refused.value.code == "closed"

    @pytest.mark.req("RA15")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    @pytest.mark.parametrize("name", CALLS)
    def test_a_forked_child_is_refused_at_once_and_the_parent_goes_on(self, filled: Log, name: str) -> None:
        child = os.fork()
        if child == 0:
            gc.disable()  # whatever other tests have left is the parent's
            code = 1
            try:
                started = time.monotonic()
                CALLS[name](filled)
            except Unsupported as error:
                code = 0 if error.code == "used_after_fork" and time.monotonic() - started < 1 else 2
            finally:
                filled.close()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert filled.append([draft_of(KEY)])[0].place is not None
        assert len(everything(filled, 1)) >= 10


class ExactContract:
    """The promises of an exact log alone: it says where it ends, and asks the clock which it was given."""

    @pytest.mark.req("J51")
    def test_it_says_where_a_partition_ends(self, opened: Opened) -> None:
        log = cast(ExactLog, opened(partitions=PARTITIONS))
        for _ in range(2):
            for partition, newest in enumerate(log.newest()):
                with log.ask_newest(partition) as ended_at:
                    assert ended_at() == newest
            log.append([mark_in(1), mark_in(1), mark_in(2)])
        log.close()
        with pytest.raises(InvalidInput) as refused, log.ask_newest(0):
            pass
        assert refused.value.code == "closed"

    @pytest.mark.req("J92")
    def test_it_says_at_which_time_its_partitions_end(self, opened: Opened) -> None:
        clock = FakeClock()
        log = cast(ExactLog, opened(partitions=PARTITIONS, clock=clock))
        assert log.ends() == [(partition, -1, 0) for partition in range(PARTITIONS)]
        first, last = log.append([mark_in(1), mark_in(2, at_least=clock.now + HOUR_US)])
        clock.advance(-60)
        for trim in (False, True):
            if trim:
                log.trim(2, to=0, pointer=0, keep_after=2**62)
            assert log.ends() == [(0, -1, 0), first.place, last.place, (3, -1, 0)]
        log.close()
        with pytest.raises(InvalidInput) as refused:
            log.ends()
        assert refused.value.code == "closed"

    @pytest.mark.req("J33", "RA14")
    def test_it_tells_the_time_of_its_own_clock(self, opened: Opened) -> None:
        clock = FakeClock()
        log = cast(ExactLog, opened(partitions=PARTITIONS, clock=clock))
        for _ in range(2):
            assert log.now() == clock.now
            clock.advance(60)
        log.close()
        with pytest.raises(InvalidInput) as refused:
            log.now()
        assert refused.value.code == "closed"

    @pytest.mark.req("RA14", "J33")
    def test_trim_forgets_what_is_carried_and_old_and_nothing_else(self, opened: Opened) -> None:
        clock = FakeClock()
        log = opened(partitions=PARTITIONS, clock=clock)
        timestamps = []
        for _ in range(10):
            log.append([mark_in(1), mark_in(2)])
            timestamps.append(clock.now)
            clock.advance(60)
        before = [everything(log, partition) for partition in range(PARTITIONS)]
        offsets = [record.offset for record in before[1]]
        with pytest.raises(InvalidInput) as refused:
            log.trim(1, to=offsets[4], pointer=offsets[3], keep_after=2**62)
        assert (refused.value.code, refused.value.pointer) == ("trim_range", offsets[3])
        assert log.trim(1, to=offsets[6], pointer=offsets[7], keep_after=timestamps[3]) == 3
        assert log.trim(1, to=offsets[6], pointer=offsets[7], keep_after=timestamps[3]) == 0
        assert log.trim(1, to=offsets[4], pointer=offsets[7], keep_after=2**62) == 2
        assert [everything(log, partition) for partition in range(PARTITIONS)] == [
            before[0], before[1][5:], before[2], before[3],
        ]  # fmt: skip
        assert log.oldest()[1] == offsets[4] + 1
        assert log.newest()[1:3] == [offsets[9], before[2][-1].offset]
