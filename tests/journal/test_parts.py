"""Reads that are limited or go backwards: what they cost, and what may happen under them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import MissingEvent, ReadConflict
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.carry.resolve import resolve
from strandline.connect import Strandline
from strandline.store.api import StoreSettings
from strandline.store.scans import quarantined
from strandline.testing import FakeClock, carry
from strandline.testing.faults import fail
from tests.journal.test_read import away, damaged, faulty, pages_of, taken
from tests.journal.worlds import BACKENDS, KEY, events, numbered, paired, seq_nrs, world

pytestmark = pytest.mark.req("J128")
POINTS = ("log.ask_newest", "store.look", "log.read", "store.page")


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=1) as opened:
        yield opened


# ---------------------------------------------------------------- what they cost


@pytest.mark.parametrize("backwards", [False, True])
def test_no_more_pages_than_they_need(backwards: bool) -> None:
    s, faults = faulty(read_page=10)
    s.journal.append(KEY, events(*range(1, 101)))
    carry(s)
    numbers = list(range(100, 0, -1) if backwards else range(1, 101))
    for limit, pages in ((1, 1), (3, 1), (10, 1), (11, 2), (25, 3), (100, 10), (101, 10), (None, 10)):
        before = faults.seen["before store.page"]
        assert seq_nrs(s.journal.read(KEY, limit=limit, backwards=backwards)) == numbers[:limit]
        assert faults.seen["before store.page"] == before + pages, limit


def test_what_the_tail_has_is_not_asked_of_the_store() -> None:
    s, faults = faulty()
    s.journal.append(KEY, events(1, 2, 3))
    carry(s)
    s.journal.append(KEY, events(4, 5))
    before = faults.seen.copy()
    assert seq_nrs(s.journal.read(KEY, backwards=True, limit=2)) == [5, 4]
    assert faults.seen["before store.page"] == before["before store.page"]
    assert faults.seen["before log.read"] == before["before log.read"] + 1
    assert seq_nrs(s.journal.read(KEY, backwards=True, limit=3)) == [5, 4, 3]
    assert faults.seen["before store.page"] == before["before store.page"] + 1


def test_a_tail_past_the_buffer_is_read_twice_and_no_more() -> None:
    s, faults = faulty(read_page=10, tail_buffer_bytes=600 * 20)
    large = b"x" * 100_000
    for _ in range(100):
        s.journal.append(KEY, events(large))
    for number in range(1, 21):
        s.journal.append(KEY, events(number))
    before = faults.seen["before log.read"]
    # The last ones are held, whatever else is in the tail.
    assert seq_nrs(s.journal.read(KEY, backwards=True, limit=15)) == list(range(120, 105, -1))
    searched = faults.seen["before log.read"] - before
    before = faults.seen["before log.read"]
    assert seq_nrs(s.journal.read(KEY, backwards=True)) == list(range(120, 0, -1))
    assert faults.seen["before log.read"] - before <= 2 * searched + 12


# ---------------------------------------------------------------- what may happen under them


def test_moving_under_who_goes_backwards() -> None:
    """The pipeline moves between any two calls that a read makes."""
    for point in [f"{when} {name}" for name in POINTS for when in ("before", "after")]:
        for buffer in (0, 10_000):
            s, faults = faulty(read_page=1, tail_buffer_bytes=buffer)
            for number in range(1, 6):
                s.journal.append(KEY, events(number))
            carry(s, limit=2)
            before = faults.seen[point]
            faults.at(point, lambda: carry(s) and None)  # noqa: B023 (called within this turn)
            assert seq_nrs(s.journal.read(KEY, backwards=True)) == [5, 4, 3, 2, 1], point
            assert faults.seen[point] > before, point


def test_away_while_going_backwards() -> None:
    for point in POINTS:
        for nth in (1, 2, 3):
            s, faults = faulty(read_page=2, tail_buffer_bytes=600)
            for number in range(1, 9):
                s.journal.append(KEY, events(number))
            carry(s, limit=4)
            before = faults.seen[f"before {point}"]
            faults.at(f"before {point}", fail(away()), nth=nth)
            given, failed = taken(s.journal.read(KEY, backwards=True))
            assert failed == (faults.seen[f"before {point}"] >= before + nth)
            assert given == list(range(8, 8 - len(given) if failed else 0, -1))


def test_a_tail_trimmed_under_who_goes_backwards() -> None:
    clock = FakeClock()
    log = MemoryLog(partitions=1, clock=clock)
    s = paired(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)), tail_buffer_bytes=2000, read_page=2)
    for number in range(20):
        s.journal.append(KEY, events(number))
    reading = s.journal.read(KEY, backwards=True)
    given = [next(reading).seq_nr for _ in range(3)]
    carry(s)
    log.trim(0, to=19, pointer=19, keep_after=clock.advance(1))
    assert given + seq_nrs(reading) == list(range(20, 0, -1))


@pytest.mark.parametrize("gone", [1, 3, 5])
@pytest.mark.parametrize("page", [1, 2, 10])
def test_a_row_that_is_not_there(gone: int, page: int) -> None:
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, store, read_page=page)
    s.journal.append(KEY, events(1, 2, 3, 4, 5))
    carry(s)
    store._remove(store._journal[str(KEY), 1][gone - 1])
    for from_, to in ((1, None), (gone, gone), (1, gone), (gone, None)):
        for limit, backwards in ((None, True), (6 - gone, True), (gone, False)):
            with pytest.raises(MissingEvent) as caught:
                list(s.journal.read(KEY, from_=from_, to=to, limit=limit, backwards=backwards))
            assert (caught.value.name, caught.value.seq_nr) == ("MissingEvent.store", gone)
    s.journal.append(KEY, events(6))
    assert seq_nrs(s.journal.read(KEY, backwards=True, limit=6 - gone)) == list(range(6, gone, -1))
    with pytest.raises(MissingEvent):
        list(s.journal.read(KEY, backwards=True))


def test_a_delete_or_purge_under_who_goes_backwards(s: Strandline) -> None:
    journal = s.journal
    for change in (lambda: journal.delete(KEY, to=8), lambda: journal.delete(KEY, to=1), lambda: journal.purge(KEY)):
        journal.append(KEY, events(*range(10)))
        carry(s)
        with pages_of(s, 2):
            reading = journal.read(KEY, backwards=True)
            next(reading)
            change()
            carry(s)
            with pytest.raises(ReadConflict) as caught:
                list(reading)
            assert caught.value.name == "ReadConflict.journal_changed"
        journal.purge(KEY)


@pytest.mark.parametrize(
    ("change", "to", "expected"),
    [("delete", None, [11]), ("delete", 9, []), ("purge", None, []), ("purge-append", None, [2, 1])],
)
def test_a_change_before_anything_was_handed_out(change: str, to: int | None, expected: list[int]) -> None:
    s, faults = faulty(read_page=10)
    s.journal.append(KEY, events(*range(10)))
    s.journal.delete(KEY, to=3)
    carry(s)

    def act() -> None:
        if change == "delete":
            s.journal.delete(KEY, to=10)
            s.journal.append(KEY, events("k"))
        else:
            s.journal.purge(KEY)
        if change == "purge-append":
            s.journal.append(KEY, events("a", "b"))
        carry(s)

    faults.at("before store.page", act)
    assert seq_nrs(s.journal.read(KEY, to=to, backwards=True)) == expected


@pytest.mark.parametrize("read_page", [1, 10])
@pytest.mark.parametrize("nth", [1, 2])
def test_events_are_skipped_under_who_goes_backwards(read_page: int, nth: int) -> None:
    """The last ones, which the head names, and one in the middle, which an event names that was given already."""
    for more in ([], [5]):
        s, faults = faulty(read_page=read_page)
        s.journal.append(KEY, events(1, 2))
        damaged(s, count=2)
        if more:
            s.journal.append(KEY, events(*more))
        carry(s)
        (listed,) = quarantined(s.store)
        faults.at("before store.page", lambda: resolve(s.log, s.store, 0, listed.offset, "skip", s.settings), nth=nth)  # noqa: B023
        found = seq_nrs(s.journal.read(KEY, backwards=True))
        assert [number for number in found if number not in (3, 4)] == [*more, 2, 1]
        assert found == sorted(found, reverse=True)
        if nth == 1:
            assert found == [*more, 2, 1]


def test_damaged_events_are_shown(s: Strandline) -> None:
    s.journal.append(KEY, events(1))
    damaged(s, count=2)
    s.journal.append(KEY, events(4))
    for _ in range(2):
        found = [(event.seq_nr, event.damaged) for event in s.journal.read(KEY, backwards=True)]
        assert found == [(4, False), (3, True), (2, True), (1, False)]
        assert seq_nrs(s.journal.read(KEY, from_=2, limit=2)) == [2, 3]
        carry(s)


def test_a_gap_at_the_bounds(s: Strandline) -> None:
    s.journal.append(KEY, events(1, 2, 3))
    s.journal.append(KEY, events(20), first=20)
    for _ in range(2):
        assert numbered(s.journal.read(KEY, backwards=True, limit=2)) == [(20, 3, 20), (3, 2, 3)]
        assert seq_nrs(s.journal.read(KEY, to=19, backwards=True, limit=1)) == [3]
        assert seq_nrs(s.journal.read(KEY, from_=4, to=19, backwards=True)) == []
        assert seq_nrs(s.journal.read(KEY, from_=4, backwards=True)) == [20]
        assert seq_nrs(s.journal.read(KEY, from_=4, limit=1)) == [20]
        carry(s)
