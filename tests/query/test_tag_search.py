"""Events by tag without the strandline: delay, search, first encounters, back-tracking. Time is played."""

from __future__ import annotations

import random
from typing import Any

import pytest

from strandline.errors import MissingEvent
from strandline.values.tag_rows import TagRow
from tests.query.playing import (
    MINUTE,
    SECOND,
    T0,
    Play,
    PlayedView,
    feed,
    from_time,
    linked,
    offset_of,
    row_of,
    shown,
    until_error,
)

NOW = T0 + 30 * SECOND
"""When a play begins: in the middle of a minute."""


def searching(view: PlayedView, **given: Any) -> Any:
    view.clock_starts = NOW
    return feed(view, use_strandline=False, **given)


def at(second: float) -> int:
    """So many seconds after the play began."""
    return NOW + round(second * SECOND)


def live(view: PlayedView, **given: Any) -> list[str]:
    return shown(searching(view, live=True, **given))


@pytest.mark.req("T54")
def test_the_bound_stays_behind_the_stores_clock() -> None:
    view = PlayedView([row_of("k|A", 1, at(0)), row_of("k|B", 1, at(3600))], Play(end_s=60))
    got = [view.play.time_s for _ in searching(view, live=True)]
    assert got == pytest.approx([5], abs=0.3)
    view = PlayedView([row_of("k|A", 1, at(0))], Play(end_s=60))
    assert shown(searching(view, eventual_consistency_delay_s=0)) == ["A1"]
    assert shown(searching(view)) == [], "a current query takes its bound at its first read"


class Ticking(Play):
    """A play in which each look at the time takes some."""

    def now_s(self) -> float:
        self.time_s += 0.03
        return self.time_s


@pytest.mark.req("T67", "T59")
@pytest.mark.parametrize("seed", range(20))
def test_a_first_encounter_never_fails_however_slow_the_looks_are(seed: int) -> None:
    """The time to search for what comes before a new key's row runs out between two looks at the time."""
    dice = random.Random(seed)
    view = PlayedView([row_of("k|A", 4, at(-20))], Ticking(end_s=60))
    events = searching(view, new_key_scan_timeout_s=dice.uniform(0.01, 0.2), refresh_interval_s=0.01)
    assert shown(events) == ["A4"]


@pytest.mark.req("T56", "T57", "T58", "T59", "T61")
def test_late_then_next() -> None:
    """A1, A3, then A2: A1, a pause, A2, A3. If A2 is too late the query stops; two buckets back it is not found."""
    a1, a2, a3, b1 = linked(
        [row_of("k|A", 1, at(-25)), row_of("k|A", 2, at(-24)), row_of("k|A", 3, at(-23)), row_of("k|B", 1, at(-22))]
    )
    view = PlayedView([a1, a3, b1], Play(end_s=30))
    view.play.at(4, lambda: view.add(a2))
    events = searching(view)
    got = [(event.tag_seq_nr, view.play.time_s) for event in events]
    assert [number for number, _ in got] == [1, 2, 3, 1]
    assert got[1][1] >= 4
    assert events.searches > 1
    assert events.repeats == 0, "it reads again from the key's last row on"

    view = PlayedView([a1, a3, b1], Play(end_s=30))
    view.play.at(11, lambda: view.add(a2))
    shown_before, error = until_error(searching(view))
    assert shown_before == ["A1"]
    assert error.missing == {"k|A": (1, 2, 2, 1)}
    assert error.last_known_offset == offset_of(a1)
    assert error.held_offset == offset_of(a3)


@pytest.mark.req("T57", "T61")
def test_the_search_reaches_the_bucket_before_and_no_further() -> None:
    for back, found in ((1, True), (2, False)):
        a1, a2, a3 = linked([
            row_of("k|A", 1, at(-600)), row_of("k|A", 2, at(-20) - back * MINUTE), row_of("k|A", 3, at(-10))
        ])  # fmt: skip
        view = PlayedView([a1, a3], Play(end_s=60))
        view.play.at(2, lambda a2=a2, view=view: view.add(a2))  # type: ignore[misc]
        if found:
            assert shown(searching(view)) == ["A1", "A2", "A3"]
            continue
        with pytest.raises(MissingEvent) as caught:
            list(searching(view))
        assert shown(searching(view, start=caught.value.last_known_offset)) == ["A2", "A3"]


@pytest.mark.req("T69", "T71", "T72")
def test_late_idle() -> None:
    """The last row of A comes late, nothing of it follows: back-tracking finds it; the offset does not go back."""
    rows = linked([row_of("k|A", 1, at(-20)), row_of("k|A", 2, at(-19.5)), row_of("k|B", 1, at(-19))])
    view = PlayedView([rows[0], rows[2]], Play(end_s=30))
    view.play.at(6, lambda: view.add(rows[1]))
    events = searching(view, live=True)
    assert shown(events) == ["A1", "B1", "A2"]
    assert events.resume_offset == offset_of(rows[2])
    assert events.repeats > 0
    view = PlayedView([rows[0], rows[2]], Play(end_s=30))
    view.play.at(6, lambda: view.add(rows[1]))
    assert live(view, back_track_interval_s="off") == ["A1", "B1"]


@pytest.mark.req("T71")
def test_late_many() -> None:
    """Late rows of many keys, some not met before, come in the order of offsets; then delivery goes on as before."""
    first = [row_of(f"k|{key}", 1, at(-20) + n) for n, key in enumerate("ABCDE")]
    late = [
        row_of(f"k|{key}", number, at(-19) + 1000 * number + n)
        for n, key in enumerate("ABCDEFGHIJ")
        for number in range(1 + (key < "F"), 6 + (key < "F"))
    ]
    last = row_of("k|Z", 1, at(-18))
    rows = linked([*first, *late, last, row_of("k|Z", 2, at(2))])
    late_places = {row.place for row in late}
    view = PlayedView([row for row in rows if row.place not in late_places], Play(end_s=40))
    view.play.at(3, lambda: view.add(*[row for row in rows if row.place in late_places]))
    got = live(view)
    assert got[:6] == ["A1", "B1", "C1", "D1", "E1", "Z1"]
    wanted = sorted([row for row in rows if row.place in late_places], key=lambda row: row.place)
    assert got[6:-1] == [f"{row.key[2:]}{row.tag_seq_nr}" for row in wanted]
    assert got[-1] == "Z2"


@pytest.mark.req("T69", "T70")
@pytest.mark.parametrize(
    ("late_s", "period", "found"),
    [
        (4, 5, True), (6, 5, False), (40, "max", True), (85, "max", True), (110, "max", False), (85, 10**6, True),
        (110, 10**6, False),
    ],
)  # fmt: skip
def test_period(late_s: float, period: float | str, found: bool) -> None:
    """By more than the period it is not found; `max` reaches the start of the bucket before; longer is cut to it."""
    old = row_of("k|B", 1, at(-5))  # in the minute that began 30 s ago: the one before it began 90 s ago
    view = PlayedView([row_of("k|C", 1, at(-1000)), old], Play(end_s=60))
    view.play.at(10, lambda: view.add(row_of("k|A", 1, at(-5 - late_s))))
    assert live(view, back_track_period_s=period) == ["C1", "B1"] + ["A1"] * found


@pytest.mark.req("T70")
def test_nothing_before_the_start_is_found() -> None:
    view = PlayedView([row_of("k|B", 1, at(-5))], Play(end_s=60))
    view.play.at(10, lambda: view.add(row_of("k|A", 1, at(-7))))
    assert live(view, start=from_time(at(-6)), back_track_period_s="max") == ["B1"]


@pytest.mark.req("T66")
def test_scan_first() -> None:
    """A start in this bucket, A8 arrives before A7: A7, A8, after the scan, which looks at this bucket alone."""
    a7, a8 = row_of("k|A", 7, at(-10)), row_of("k|A", 8, at(-9), link=(at(-10), 70))
    view = PlayedView([a7, a8], Play(end_s=30))
    events = searching(view, start=from_time(at(-20)))
    assert shown(events) == ["A7", "A8"]
    assert (events.searches, view.play.pauses) == (0, 0)
    # What stands in this bucket before the start is no business of the query, and may have gone meanwhile.
    a6 = row_of("k|A", 6, at(-25))
    view = PlayedView([a6, row_of("k|A", 7, at(-10), link=(at(-25), 60)), a8], Play(end_s=30))
    events = searching(view, start=from_time(at(-20)))
    assert shown(events) == ["A7", "A8"]
    assert (events.searches, view.play.pauses) == (0, 0)
    # What the scan saw tells what to expect: A7 is gone when the query gets there.
    view = PlayedView([a7, a8], Play(end_s=30))
    events = searching(view, start=from_time(at(-20)), eventual_consistency_delay_s=12, live=True)
    view.play.at(0.3, lambda: view.take(a7))
    view.play.at(5, lambda: view.add(a7))
    assert shown(events) == ["A7", "A8"]
    assert events.searches > 1


@pytest.mark.req("T65")
def test_a_start_in_a_past_bucket_takes_the_first_row_for_the_first() -> None:
    view = PlayedView([row_of("k|A", 10, at(-115)), row_of("k|A", 11, at(-10))], Play(end_s=30))
    events = searching(view, start=from_time(at(-120)))
    assert shown(events) == ["A10", "A11"]
    assert (events.searches, view.play.pauses) == (0, 0)


@pytest.mark.req("T67", "T68")
def test_new_key() -> None:
    """Number 4 of an unknown key, 3 comes 50 ms later: 3, 4; with timeout 0: 4, then `out_of_order`."""
    three, four = row_of("k|A", 3, at(-9)), row_of("k|A", 4, at(-8), link=(at(-9), 30))
    view = PlayedView([four], Play(end_s=30))
    view.play.at(0.05, lambda: view.add(three))
    assert shown(searching(view, refresh_interval_s=0.01)) == ["A3", "A4"]
    view = PlayedView([four], Play(end_s=30))
    events = searching(view)
    assert shown(events) == ["A4"], "it does not fail"
    assert 0.1 <= view.play.time_s < 0.2

    view = PlayedView([four, row_of("k|B", 1, at(-7.5))], Play(end_s=30))
    view.play.at(3, lambda: view.add(three))
    got, error = until_error(searching(view, live=True, new_key_scan_timeout_s=0))
    assert got == ["A4", "B1"]
    assert error.name == "MissingEvent.out_of_order"
    assert error.missing == {"k|A": (1, 3, 3, 1)}


@pytest.mark.req("T67")
def test_a_number_one_never_waits() -> None:
    view = PlayedView(linked([row_of(f"k|{n}", 1, at(-20) + n) for n in range(100)]))
    assert len(list(searching(view))) == 100
    assert view.play.pauses == 0


@pytest.mark.req("T67")
def test_a_new_key_is_not_searched_for_before_the_start() -> None:
    view = PlayedView([row_of("k|A", 3, at(-12)), row_of("k|B", 1, at(-9))], Play(end_s=30))
    events = searching(view, start=from_time(at(-10)), live=True)
    view.play.at(1, lambda: view.add(row_of("k|A", 4, at(-6))))
    assert shown(events) == ["B1", "A4"]


@pytest.mark.req("T61")
def test_of_several_keys_the_least_offset_is_known() -> None:
    """While B's hole is searched for, A's opens: both are named."""
    rows = linked([
        row_of("k|A", 1, at(-25)), row_of("k|B", 1, at(-24)), row_of("k|B", 2, at(-23)), row_of("k|A", 2, at(-22)),
        row_of("k|A", 3, at(-21)), row_of("k|B", 3, at(-20)),
    ])  # fmt: skip
    view = PlayedView([rows[0], rows[1], rows[5]], Play(end_s=60))
    view.play.at(5, lambda: view.add(rows[4]))
    with pytest.raises(MissingEvent) as caught:
        list(searching(view, gap_timeout_s=8))
    assert caught.value.missing == {"k|A": (1, 2, 2, 1), "k|B": (1, 2, 2, 1)}
    assert caught.value.last_known_offset == offset_of(rows[0])


@pytest.mark.req("T77")
def test_keys_unseen_for_two_buckets_are_forgotten() -> None:
    rows = linked([row_of(f"k|{n}", 1, at(-3600) + n * 20 * SECOND) for n in range(180)])
    view = PlayedView(rows, Play(end_s=30))
    events = searching(view, live=True)
    assert len(list(events)) == 180
    assert len(events._keys) < 10


@pytest.mark.req("T46", "T57", "T70", "T77")
@pytest.mark.parametrize("number", [1, 2])
def test_what_a_search_may_read_again_is_not_forgotten(number: int) -> None:
    """A late row of a new key in the bucket before this one: the search for what comes before it reads one bucket
    more, where a key had its last row."""
    old = [row_of("k|X", each, at(-80 + each)) for each in range(1, number + 1)]
    view = PlayedView([*old, row_of("k|R", 1, at(0)), row_of("k|R", 2, at(40))], Play(end_s=90))
    view.play.at(60, lambda: view.add(row_of("k|N", 2, at(10))))
    got = live(view, back_track_period_s="max", back_track_interval_s=5)
    assert got == [*(f"X{each}" for each in range(1, number + 1)), "R1", "R2", "N2"]


@pytest.mark.req("T46", "T54", "RJ9")
@pytest.mark.parametrize("delay_s", [5, 0])
@pytest.mark.parametrize("seed", range(10))
def test_skew(seed: int, delay_s: float) -> None:
    """Writers whose clocks are up to 3 s apart, rows that arrive late: each event once, per key in order.

    With a delay of 5 s the order of offsets is right and nothing is searched for; without one nothing is lost either.
    """
    dice = random.Random(seed)
    writers = [(f"k|{key}", dice.uniform(-3, 0)) for key in "ABCDE"]
    numbers: dict[str, int] = {}
    rows: list[TagRow] = []
    arrivals = []
    for step in range(100):
        key, skew = dice.choice(writers)
        numbers[key] = numbers.get(key, 0) + 1
        row = row_of(key, numbers[key], at(step * 0.1 + skew) + step)
        rows.append(row)
        arrivals.append((step * 0.1 + dice.uniform(0, 1.5), row))
    view = PlayedView((), Play(end_s=60))
    for time_s, row in arrivals:
        view.play.at(time_s, lambda row=row: view.add(row))  # type: ignore[misc]
    given = {"eventual_consistency_delay_s": delay_s, "back_track_interval_s": 0.5, "new_key_scan_timeout_s": 3}
    events = searching(view, live=True, **given)
    got = list(events)
    places = [(event.timestamp, str(event.key), event.seq_nr) for event in got]
    assert sorted(places) == sorted(row.place for row in rows)
    for key, last in numbers.items():
        assert [e.tag_seq_nr for e in got if str(e.key) == key] == list(range(1, last + 1))
    if delay_s:
        assert places == sorted(places)
        assert events.searches == 0
