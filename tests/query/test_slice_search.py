"""Events by slices of a store that something else writes: events come late, stamped by clocks that differ."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import InvalidInput, Key, MissingEvent, RichOffset
from strandline.connect import Strandline
from strandline.store.api import RowPage
from strandline.store.heads import head_row
from strandline.store.tables import METAJOURNAL
from strandline.testing import FakeClock
from tests.journal.worlds import world
from tests.query.another_writer import head_after, write, written
from tests.query.filling import key_in, told

NOON = 1_800_000_000_000_000
SECOND = 1_000_000
PARTITIONS = 3
SEARCHING: dict[str, Any] = {"use_strandline": False, "refresh_interval_s": 0.01}
KEYS = [key_in(number % PARTITIONS, PARTITIONS, nth=number // PARTITIONS) for number in range(12)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def s(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=PARTITIONS, clock=clock) as opened:
        yield opened


def current(s: Strandline, **how: Any) -> list[tuple[str, int]]:
    with s.by_slices("order", 0, 1023, **SEARCHING, **how) as events:
        return [(str(event.key), event.seq_nr) for event in events]


class Scans:
    """A store that notes which scans are made of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.names: list[str] = []

    def scan(self, scan: Any, *what: Any, **how: Any) -> RowPage:
        self.names.append(scan.name)
        found: RowPage = self._store.scan(scan, *what, **how)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.req("P23")
def test_the_bound_is_the_clock_of_the_store_minus_a_delay(s: Strandline, clock: FakeClock) -> None:
    bound = NOON - 200_000
    for number, timestamp in enumerate((bound - SECOND, bound - 1, bound, bound + 1)):
        write(s, KEYS[number], 1, timestamp)
    assert s.by_slices("order", 0, 1023).resume_offset.timestamp == 0
    assert list(s.by_slices("order", 0, 1023)) == []  # the strandline says nothing of them
    assert current(s) == [(str(KEYS[0]), 1), (str(KEYS[1]), 1)]
    assert len(current(s, eventual_consistency_delay_s=0)) == 4
    assert len(current(s, eventual_consistency_delay_s=1)) == 1
    clock.advance(0.000_001)
    assert len(current(s)) == 3


@pytest.mark.req("P23")
def test_the_clock_is_that_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world("postgresql", tmp_path, partitions=1) as s:
        began = s.store.now_us()
        assert abs(began - time.time_ns() // 1000) < 60 * SECOND
        write(s, Key("order", "1"), 1, began - SECOND)
        write(s, Key("order", "2"), 1, began + 1800 * SECOND)
        hour_ahead = time.time_ns() + 3600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: hour_ahead)
        assert current(s) == [("order|1", 1)]


@pytest.mark.req("P24")
def test_what_comes_late_is_shown_once_and_is_looked_for_without_bodies(s: Strandline, clock: FakeClock) -> None:
    early, late = KEYS[:2]
    write(s, early, 1, NOON - 2 * SECOND)
    s.store = scans = Scans(s.store)
    with s.by_slices("order", 0, 1023, live=True, back_track_interval_s=0.02, **SEARCHING) as events:
        assert told(next(events)) == (str(early), 1, 1)
        write(s, late, 1, NOON - 3 * SECOND)
        scans.names.clear()
        event = next(events)
        assert told(event) == (str(late), 1, 1)
        assert event.payload == {"n": 1}
        assert "slice_places" in scans.names
        write(s, early, 2, NOON - SECOND)  # nothing is shown again in between
        assert told(next(events)) == (str(early), 1, 2)
        assert events.strandline_violations == 0


@pytest.mark.req("P24")
def test_a_transaction_that_commits_after_a_later_one(tmp_path: Path) -> None:
    """Both are stamped when they start, as a database's own timestamp is."""
    with world("postgresql", tmp_path, partitions=1) as s:
        store: Any = s.store
        database = store._database
        a, b = (written(s, Key("order", name), 1, s.store.now_us() - SECOND + at) for at, name in enumerate("ab"))

        def put(tx: Any, row: Any) -> None:
            tx.many("put_journal", [row])
            tx.many("put_metajournal", [METAJOURNAL.stored(head_row(row.key, head_after(s, row)))])

        with s.by_slices("order", 0, 1023, live=True, back_track_interval_s=0.02, **SEARCHING) as events:
            with database.write() as slow:
                put(slow, a)
                with database.write() as quick:
                    put(quick, b)
                assert str(next(events).key) == "order|b"
            assert str(next(events).key) == "order|a"


@pytest.mark.req("P25", "P24")
@pytest.mark.parametrize("page_size", [1, 10])
def test_a_start_reads_the_period_again_and_repeats_nothing(s: Strandline, page_size: int) -> None:
    """Groups of one to seven events share a time. A page of events that are all known ends nothing."""
    numbers: Counter[Key] = Counter()
    for moment in range(20):
        for key in KEYS[: 1 + moment % 7]:
            numbers[key] += 1
            write(s, key, numbers[key], NOON - 60 * SECOND + moment)
    expected = [(str(key), seq_nr + 1) for key, count in numbers.items() for seq_nr in range(count)]
    shown = []
    with s.by_slices("order", 0, 1023, page_size=page_size, **SEARCHING) as events:
        shown += [(str(event.key), event.seq_nr) for event in events]
        offset = str(events.resume_offset)
    assert sorted(shown) == sorted(expected)
    assert current(s, after=offset) == []
    late = KEYS[8:11]
    for number, key in enumerate(late):
        write(s, key, 1, NOON - 60 * SECOND - 10 + 11 * number)  # before, among and after the others
    with s.by_slices("order", 0, 1023, after=offset, page_size=page_size, **SEARCHING) as events:
        assert [event.key for event in events] == late
        offset = str(events.resume_offset)
    assert current(s, after=offset) == []


@pytest.mark.req("P25")
def test_far_behind_nothing_is_read_again(s: Strandline) -> None:
    """What lies further back than period and delay has arrived: nothing new would be found."""
    for number in range(1, 41):
        write(s, KEYS[0], number, NOON - 3600 * SECOND + number)
    how: dict[str, Any] = {**SEARCHING, "page_size": 3, "back_track_interval_s": 0.01, "back_track_period_s": 60}
    with s.by_slices("order", 0, 1023, live=True, **how) as events:
        for seq_nr in range(1, 41):
            assert next(events).seq_nr == seq_nr
            time.sleep(0.001)
        assert events.back_tracks == 0
        write(s, KEYS[1], 1, NOON - SECOND)
        write(s, KEYS[2], 1, NOON - 2 * SECOND)
        assert {next(events).key for _ in range(2)} == {KEYS[1], KEYS[2]}
        write(s, KEYS[3], 1, NOON - 3 * SECOND)
        assert next(events).key == KEYS[3]
        assert events.back_tracks > 0


@pytest.mark.req("P24", "P25")
def test_it_can_be_off(s: Strandline) -> None:
    write(s, KEYS[0], 1, NOON - 2 * SECOND)
    with s.by_slices("order", 0, 1023, live=True, back_track_interval_s="off", **SEARCHING) as events:
        assert next(events).key == KEYS[0]
        write(s, KEYS[1], 1, NOON - 3 * SECOND)
        write(s, KEYS[2], 1, NOON - SECOND)
        assert next(events).key == KEYS[2]
        assert events.back_tracks == 0


@pytest.mark.req("P26")
def test_a_clock_that_is_behind_stamps_6_before_5(s: Strandline) -> None:
    key = KEYS[0]
    for seq_nr in range(1, 5):
        write(s, key, seq_nr, NOON - 20 * SECOND + seq_nr)
    write(s, key, 6, NOON - 15 * SECOND)
    write(s, key, 5, NOON - 10 * SECOND)
    write(s, key, 7, NOON - 9 * SECOND)
    found = current(s)
    assert [seq_nr for _, seq_nr in found] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.req("P26")
def test_an_event_later_than_the_period_is_found_by_the_next_of_its_key(s: Strandline) -> None:
    key, other = KEYS[:2]
    how: dict[str, Any] = {**SEARCHING, "back_track_interval_s": 0.01, "back_track_period_s": 1}
    write(s, key, 1, NOON - 8 * SECOND)
    write(s, other, 1, NOON - 3 * SECOND)
    with s.by_slices("order", 0, 1023, live=True, **how) as events:
        assert [told(next(events)) for _ in range(2)] == [(str(key), 1, 1), (str(other), 1, 1)]
        write(s, key, 2, NOON - 7 * SECOND)
        write(s, key, 3, NOON - SECOND)
        assert [told(next(events)) for _ in range(2)] == [(str(key), 1, 2), (str(key), 1, 3)]


@pytest.mark.req("P26", "P18")
def test_a_hole_that_stays_stops_the_query(s: Strandline) -> None:
    key = KEYS[0]
    write(s, key, 1, NOON - 9 * SECOND)
    write(s, key, 3, NOON - 8 * SECOND)
    with pytest.raises(MissingEvent) as stopped:
        current(s, gap_timeout_s=0.05)
    assert stopped.value.missing == {str(key): (1, 2, 2)}
    write(s, key, 2, NOON - 7 * SECOND)
    again = current(s, after=str(stopped.value.last_known_offset))
    assert again == [(str(key), 2), (str(key), 3)]


@pytest.mark.req("P24", "P11")
def test_large_events_are_loaded_when_they_are_due(s: Strandline) -> None:
    text = b'"' + b"x" * 50_000 + b'"'
    for number in range(4):
        write(s, KEYS[number], 1, NOON - 9 * SECOND, payload=text)
    with s.by_slices("order", 0, 1023, **SEARCHING) as events:
        assert [len(event.payload) for event in events] == [50_000] * 4


@pytest.mark.req("P6", "P24")
def test_nothing_before_a_time_that_was_given(s: Strandline) -> None:
    for seq_nr in range(1, 6):
        write(s, KEYS[0], seq_nr, NOON - 10 * SECOND + seq_nr)
    assert current(s, from_=NOON - 10 * SECOND + 3) == [(str(KEYS[0]), seq_nr) for seq_nr in (3, 4, 5)]
    assert current(s, from_=NOON - 10 * SECOND + 2, to=NOON - 10 * SECOND + 3) == [(str(KEYS[0]), 2), (str(KEYS[0]), 3)]


@pytest.mark.req("P24", "P25", "P26")
@pytest.mark.parametrize("seed", range(3))
def test_events_that_come_in_any_order_are_shown_once_in_the_order_of_their_keys(tmp_path: Path, seed: int) -> None:
    """Live and resumed queries take turns; every event is up to a minute late, within its key or among keys."""
    dice = random.Random(seed)
    with world("memory", tmp_path, partitions=PARTITIONS, clock=FakeClock(NOON)) as s:
        waiting = {key: list(range(1, dice.randint(2, 9))) for key in KEYS}
        total = sum(map(len, waiting.values()))
        shown: list[tuple[str, int, int]] = []
        offset = None
        while len(shown) < total:
            for _ in range(dice.randint(0, 9)):
                left = [key for key, numbers in waiting.items() if numbers]
                if left:
                    key = dice.choice(left)
                    write(s, key, waiting[key].pop(0), NOON - dice.randint(1, 60) * SECOND)
            with s.by_slices("order", 0, 1023, after=offset, page_size=dice.choice((1, 3, 50)), **SEARCHING) as events:
                for event in events:
                    shown.append(told(event))
                    if dice.random() < 0.1:
                        break
                offset = RichOffset.parse(str(events.resume_offset))
    assert len(set(shown)) == len(shown) == total
    for key in KEYS:
        numbers = [seq_nr for found, _, seq_nr in shown if found == str(key)]
        assert numbers == sorted(numbers)


@pytest.mark.req("P23", "P24", "P93")
@pytest.mark.parametrize(
    "how",
    [
        {"eventual_consistency_delay_s": 1},
        {"back_track_interval_s": 1},
        {"back_track_period_s": 5},
        {"use_strandline": 1},
        {"use_strandline": False, "eventual_consistency_delay_s": -1},
        {"use_strandline": False, "back_track_interval_s": 0},
        {"use_strandline": False, "back_track_interval_s": "never"},
        {"use_strandline": False, "back_track_period_s": 0.5},
    ],
)
def test_settings(how: dict[str, Any], tmp_path: Path) -> None:
    with world("memory", tmp_path) as s, pytest.raises(InvalidInput) as refused:
        s.by_slices("order", 0, 1023, **how)
    assert refused.value.code == "setting"
