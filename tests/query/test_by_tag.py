"""Events by tag under the strandline: order, holes, first encounters, demand. The view is in memory."""

from __future__ import annotations

import logging
import random
from itertools import pairwise, product
from typing import Any

import pytest

from strandline.errors import Corrupt, InvalidInput, MissingEvent, Unavailable
from strandline.query.rich_offset import RichOffset
from strandline.query.tag_offset import TagOffset, TagView
from strandline.query.tag_settings import TagSettings
from strandline.values.tag_rows import TagRow, fillers
from tests.query.playing import (
    MINUTE,
    SECOND,
    T0,
    VIEW,
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


def rows_of(text: str, start: int = T0, step: int = SECOND) -> list[TagRow]:
    """`A1 B1 A2`: a row each, a second apart."""
    return linked([row_of(f"k|{word[0]}", int(word[1:]), start + at * step) for at, word in enumerate(text.split())])


@pytest.mark.req("T42", "T46", "T47", "RJ9")
def test_two_keys() -> None:
    """A1 B1 A2 by time come in this order, with growing offsets; a resumed query gives exactly the rest."""
    view = PlayedView(rows_of("A1 B1 A2 C1 B2"))
    events = list(feed(view, page_size=2))
    assert shown(events) == ["A1", "B1", "A2", "C1", "B2"]
    assert all(one.offset < other.offset for one, other in pairwise(events))
    for at, event in enumerate(events):
        assert shown(feed(view, start=TagOffset.parse(str(event.offset)))) == shown(events)[at + 1 :]
    assert shown(feed(view, start=from_time(T0 + SECOND))) == ["B1", "A2", "C1", "B2"]
    assert shown(feed(view, start=from_time(T0 + SECOND + 1))) == ["A2", "C1", "B2"]
    assert shown(feed(view, to=T0 + 2 * SECOND)) == ["A1", "B1", "A2"]


@pytest.mark.req("T43")
def test_offsets_know_what_they_are_of() -> None:
    row = row_of("k|Zoë|x", 3, T0, life=2, seq_nr=7)
    offset = TagOffset.parse(str(offset_of(row)))
    assert offset == offset_of(row)
    assert (offset.timestamp, offset.key, offset.seq_nr, offset.life, offset.tag_seq_nr) == (T0, "k|Zoë|x", 7, 2, 3)
    assert (offset.tag, offset.history_id) == VIEW
    assert from_time(T0) < offset < from_time(T0 + 1)
    # By the bytes of keys: in UTF-16, or by a locale, these would stand the other way round.
    assert offset_of(row_of("k|\ufffd", 1, T0)) < offset_of(row_of("k|\U00010000", 1, T0))
    assert offset_of(row_of("k|Z", 1, T0)) < offset_of(row_of("k|a", 1, T0))
    for other in (TagView("red", VIEW.history_id), TagView(VIEW.tag, "another")):
        with pytest.raises(InvalidInput) as caught:
            offset.check(other)
        assert caught.value.code == "offset_foreign"
    for text, code in (
        ("", "offset_format"), ("t1.", "offset_format"), (str(offset)[:-4], "offset_format"),
        (str(offset)[:20] + "AAAA" + str(offset)[24:], "offset_format"),
        (str(RichOffset("order", "h", 1)), "offset_foreign"),
        ("nonsense", "offset_format"), ("t1.ééé", "offset_format"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            TagOffset.parse(text)
        assert caught.value.code == code, text


@pytest.mark.req("T47", "T49", "T50", "T53")
def test_current_live() -> None:
    """What is carried after a current query began is not shown; a live one shows it. No clock decides."""
    rows = rows_of("A1 B1 A2 B2")
    view = PlayedView(rows[:2])
    view.bound = rows[1].timestamp
    events = feed(view, page_size=1)
    assert shown([next(events)]) == ["A1"]
    view.add(*rows[2:])
    view.bound = rows[3].timestamp
    assert shown(events) == ["B1"]

    view = PlayedView(rows, Play(end_s=20))
    view.bound = rows[0].timestamp
    view.play.at(1, lambda: setattr(view, "bound", rows[2].timestamp))
    view.play.at(2, lambda: setattr(view, "bound", rows[0].timestamp))  # put back from a backup: waited for
    view.play.at(3, lambda: setattr(view, "bound", rows[1].timestamp))
    view.play.at(4, lambda: setattr(view, "bound", rows[3].timestamp))
    assert shown(feed(view, live=True)) == ["A1", "B1", "A2", "B2"]
    assert view.play.time_s > 20, "a live query does not end by itself"
    assert view.pages < 10, "rows are read only when the strandline has moved"


@pytest.mark.req("T47")
def test_an_empty_tag_ends_or_waits() -> None:
    assert list(feed(PlayedView())) == []
    view = PlayedView(play=Play(end_s=5))
    view.play.at(2, lambda: view.add(row_of("k|A", 1, T0 + SECOND)))
    view.bound = T0
    view.play.at(2, lambda: setattr(view, "bound", T0 + SECOND))
    assert shown(feed(view, live=True)) == ["A1"]


@pytest.mark.req("T42")
def test_a_live_query_ends_when_its_bound_is_there() -> None:
    view = PlayedView(rows_of("A1 A2 A3"))
    view.bound = T0
    view.play.at(1, lambda: setattr(view, "bound", T0 + 5 * SECOND))
    assert shown(feed(view, live=True, to=T0 + SECOND)) == ["A1", "A2"]
    assert view.play.time_s < 2


@pytest.mark.req("T56", "T59", "T60", "T61", "RJ9")
def test_planted_hole() -> None:
    """A1 B1 A2 B2 A3 without the row of A2: A1 B1 B2, then the error, with the offset of A1."""
    rows = rows_of("A1 B1 A2 B2 A3")
    view = PlayedView(rows)
    view.take(rows[2])
    got, error = until_error(feed(view))
    assert got == ["A1", "B1", "B2"]
    assert error.name == "MissingEvent.tag_hole"
    assert not error.retryable
    assert (error.tag, error.missing) == ("blue", {"k|A": (1, 2, 2, 1)})
    assert error.last_known_offset == offset_of(rows[0])
    assert error.held_offset == offset_of(rows[4])
    assert error.searched == (2, 2)
    assert str(error) == (
        "tag 'blue': 2 of k|A (life 1) is missing; rebuild, then resume after " + str(offset_of(rows[0]))
    )
    assert 10 <= view.play.time_s < 11
    # Resumed there it finds the same hole; mended, it gives all that came after it.
    with pytest.raises(MissingEvent) as again:
        list(feed(view, start=error.last_known_offset))
    assert again.value.missing == error.missing
    view.add(rows[2])
    assert shown(feed(view, start=error.last_known_offset)) == ["B1", "A2", "B2", "A3"]


@pytest.mark.req("T44")
def test_a_query_resumed_after_a_row_that_is_gone_finds_the_hole_behind_it() -> None:
    rows = rows_of("A1 A2 A3 A4")
    view = PlayedView(rows)
    view.take(rows[1])
    view.take(rows[2])
    with pytest.raises(MissingEvent) as caught:
        list(feed(view, start=offset_of(rows[1])))
    assert caught.value.missing == {"k|A": (1, 3, 3, 1)}
    assert caught.value.last_known_offset == offset_of(rows[1])


@pytest.mark.req("T57", "T58", "T73")
def test_mended(caplog: pytest.LogCaptureFixture) -> None:
    """The row comes back within the time: each once, in order; a violation is counted and logged."""
    rows = rows_of("A1 B1 A2 B2 A3 A4")
    view = PlayedView(rows)
    view.take(rows[2])
    view.play.at(3, lambda: view.add(rows[2]))
    events = feed(view)
    with caplog.at_level(logging.ERROR):
        assert shown(events) == ["A1", "B1", "B2", "A2", "A3", "A4"]
    assert events.strandline_violations == 1
    assert "k|A" in caplog.text
    assert events.resume_offset == offset_of(rows[5])


@pytest.mark.req("T58")
def test_a_gap_that_closes_piece_by_piece_is_delivered_so() -> None:
    rows = rows_of("A1 A2 A3 A4 A5 A6")
    view = PlayedView([rows[0], rows[5]])
    for at, row in enumerate(rows[1:5]):
        view.play.at(8.0 * (at + 1), lambda row=row: view.add(row))  # type: ignore[misc]
    got = [(event.tag_seq_nr, view.play.time_s >= min(32, 8.0 * (event.tag_seq_nr - 1))) for event in feed(view)]
    assert got == [(number, True) for number in range(1, 7)]


@pytest.mark.req("T46", "T58")
def test_what_is_found_behind_another_hole_waits_for_it() -> None:
    """3 of a gap comes before 2, and the last one before 4: nothing is handed out before its turn."""
    rows = rows_of("A1 A2 A3 A4 A5 A6")
    view = PlayedView([rows[0], rows[5]])
    for time_s, number in ((1, 3), (2, 5), (3, 2), (4, 4)):
        view.play.at(time_s, lambda row=rows[number - 1]: view.add(row))  # type: ignore[misc]
    got = [(event.tag_seq_nr, int(view.play.time_s)) for event in feed(view)]
    assert got == [(1, 0), (2, 3), (3, 3), (4, 4), (5, 4), (6, 4)]


@pytest.mark.req("T58", "T77")
def test_wide_gap() -> None:
    """10,000 rows come late: all in order, never more than a page of them in memory."""
    rows = linked([row_of("k|A", number, T0 + number * 1000) for number in range(1, 2003)])
    view = PlayedView([rows[0], rows[-1]])
    view.play.at(1, lambda: view.add(*rows))
    events = feed(view, page_size=100)
    assert [event.tag_seq_nr for event in events] == list(range(1, 2003))
    assert events.strandline_violations == 2000


@pytest.mark.req("T62")
def test_lives() -> None:
    first = rows_of("A1 A2")
    second = [
        row_of("k|A", 1, T0 + 9 * SECOND, life=2),
        row_of("k|A", 2, T0 + 10 * SECOND, life=2, link=(T0 + 9 * SECOND, 10)),
    ]
    view = PlayedView([*first, *second])
    assert [(e.life, e.tag_seq_nr) for e in feed(view)] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    view.take(second[0])
    with pytest.raises(MissingEvent) as caught:
        list(feed(view))
    assert caught.value.missing == {"k|A": (2, 1, 1, 1)}
    # Rows of a life that has ended were purged: what is still met of it is dropped, at once.
    third = [row_of("k|A", 1, T0 + 20 * SECOND, life=3)]
    view.add(*third)
    view.ended_lives.add(("k|A", 2))
    now_s = view.play.time_s
    assert [(e.life, e.tag_seq_nr) for e in feed(view)] == [(1, 1), (1, 2), (3, 1)]
    assert view.play.time_s == now_s


@pytest.mark.req("T62")
def test_a_lower_life_is_dropped() -> None:
    view = PlayedView([row_of("k|A", 1, T0, life=2), row_of("k|A", 4, T0 + SECOND, life=1)])
    assert [(e.life, e.tag_seq_nr) for e in feed(view)] == [(2, 1)]


@pytest.mark.req("T63")
def test_mid_life() -> None:
    """1,000 keys whose first row after the start has number 5: no delay and no search, wherever the start is."""
    rows = linked(
        [row_of(f"k|{key}", number, T0 + number * SECOND + key) for key, number in product(range(1000), range(1, 7))]
    )
    view = PlayedView(rows)
    start = T0 + 5 * SECOND
    events = feed(view, start=from_time(start))
    assert len(list(events)) == 2000
    assert (view.play.pauses, view.looks, events.searches) == (0, 0, 0)


@pytest.mark.req("T63")
def test_a_new_key_whose_link_lies_after_the_start_is_a_gap() -> None:
    rows = rows_of("A1 B1 A2 A3 A4")
    view = PlayedView(rows)
    view.take(rows[3])
    start = from_time(rows[1].timestamp)
    with pytest.raises(MissingEvent) as caught:
        list(feed(view, start=start))
    assert caught.value.missing == {"k|A": (1, 3, 3, 1)}
    view.take(rows[2])
    with pytest.raises(MissingEvent) as caught:
        list(feed(view, start=start))
    assert caught.value.missing == {"k|A": (1, 2, 3, 2)}
    assert caught.value.last_known_offset == start
    at_the_start = PlayedView(rows)
    at_the_start.take(rows[2])
    with pytest.raises(MissingEvent) as caught:
        list(feed(at_the_start, start=from_time(rows[2].timestamp)))
    assert caught.value.missing == {"k|A": (1, 2, 2, 1)}, "the place of its link is the first of the query"
    with pytest.raises(MissingEvent) as caught:
        list(feed(PlayedView(rows[4:])))
    assert caught.value.last_known_offset is None
    assert "from the start" in str(caught.value)


@pytest.mark.req("T64", "T77")
def test_many_keys() -> None:
    """Many times more keys than are remembered, met again and again: all once, one look-up a page at most."""
    keys, rounds = 5000, 3
    every = product(range(keys), range(1, rounds + 1))
    rows = linked([row_of(f"k|{key}", number, T0 + number * MINUTE + key) for key, number in every])
    view = PlayedView(rows)
    events = feed(view, keys_in_memory_max=1000)
    assert [(e.tag_seq_nr, int(e.key.entity_id)) for e in events] == [
        (number, key) for number in range(1, rounds + 1) for key in range(keys)
    ]
    assert len(events._keys) <= 1000
    assert 0 < view.looked_there <= view.pages
    assert (events.searches, view.play.pauses) == (0, 0)
    # A forgotten key with a hole is still found out.
    view.take(rows[-1 - keys])
    with pytest.raises(MissingEvent) as caught:
        list(feed(view, keys_in_memory_max=1000))
    assert caught.value.missing == {f"k|{keys - 1}": (1, 2, 2, 1)}


@pytest.mark.req("T45")
def test_seen_keys_are_known_from_the_start() -> None:
    rows = rows_of("A1 B1 A2 B2 A3")
    view = PlayedView(rows)
    events = feed(view, seen={"k|A": (1, 2), "k|B": (1, 1)})
    assert shown(events) == ["B2", "A3"]
    assert events.repeats == 3
    view.take(rows[2])
    with pytest.raises(MissingEvent) as caught:
        list(feed(view, seen={"k|A": (1, 1)}))
    assert caught.value.missing == {"k|A": (1, 2, 2, 1)}
    assert shown(feed(view, seen={"k|A": (1, 2)})) == ["B1", "B2", "A3"]


@pytest.mark.req("T45")
def test_seen_keys_are_not_forgotten() -> None:
    many = linked([row_of(f"k|{key}", 1, T0 + key) for key in range(3000)])
    view = PlayedView([*many, row_of("k|A", 7, T0 + SECOND)])
    assert shown(feed(view, keys_in_memory_max=1000, seen={"k|A": (1, 6)}))[-1] == "A7"


@pytest.mark.req("T76")
def test_demand() -> None:
    """Page 50, 30 taken: one page was read, when its first row was asked for."""
    view = PlayedView(linked([row_of("k|A", number, T0) for number in range(1, 201)]))
    events = feed(view, page_size=50)
    assert view.pages == 0
    for _ in range(30):
        next(events)
    assert view.pages == 1
    assert [event.tag_seq_nr for event in events] == list(range(31, 201)), "rows may share a timestamp"


@pytest.mark.req("T78")
def test_store_away() -> None:
    rows = rows_of("A1 A2 A3")
    view = PlayedView(rows, Play(end_s=60))
    events = feed(view, page_size=1, live=True)
    next(events)
    view.away = 8
    assert shown(events) == ["A2", "A3"]
    assert events.retries == 8
    view = PlayedView(rows)
    events = feed(view, page_size=1)
    next(events)
    view.away = 1
    with pytest.raises(Unavailable) as caught:
        next(events)
    assert caught.value.resume_offset == offset_of(rows[0])
    assert shown(feed(view, start=caught.value.resume_offset)) == ["A2", "A3"]


@pytest.mark.req("T78")
def test_a_live_query_asks_again_ever_more_slowly() -> None:
    view = PlayedView(rows_of("A1"), Play(end_s=60))
    view.away = 8
    events = feed(view, live=True)
    next(events)
    assert view.play.time_s == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 5 + 5)


@pytest.mark.req("T80")
@pytest.mark.parametrize("state", ["new", "in a page", "waiting", "searching", "away"])
def test_close(state: str) -> None:
    rows = rows_of("A1 A2 A3")
    view = PlayedView(rows)
    events = feed(view, live=True)
    if state == "searching":
        view.take(rows[1])
    if state == "away":
        view.away = 10**6
    if state == "in a page":
        next(events)
        events.close()
    elif state == "new":
        events.close()
    else:
        view.play.at(3, events.close)
    got = shown(events)
    assert got == {"new": [], "in a page": [], "waiting": ["A1", "A2", "A3"], "searching": ["A1"], "away": []}[state]
    assert view.play.time_s < 4
    assert list(events) == []
    events.close()


@pytest.mark.req("T79")
def test_wrong_number() -> None:
    """A row whose number or link was changed by hand stops the query; what came before it is delivered. Where it
    belongs is not sure: the query is to be resumed behind the last event of its key."""
    rows = rows_of("A1 B1 A2 A3")
    for change in ({"tag_seq_nr": 7}, {"previous_seq_nr": 0}, {"life": 2}, {"bucket": 1}, {"row_digest": 0}):
        view = PlayedView(rows)
        view.rows[rows[2].place] = rows[2]._replace(**change)  # type: ignore[arg-type]
        got, error = until_error(feed(view))
        assert got == ["A1", "B1"], change
        assert error.name == "Corrupt.tag_row"
        assert (error.tag, error.key, error.seq_nr) == ("blue", "k|A", 20)
        assert error.last_known_offset == offset_of(rows[0])
        view.add(rows[2])
        assert shown(feed(view, start=error.last_known_offset)) == ["B1", "A2", "A3"]


@pytest.mark.req("T61", "T79")
@pytest.mark.parametrize("text", ["A1 A2 A3 B1 A4 B2 A5", "A1 A2 A3 B1 B2", "B1 A1 A2 A3 A4 B2", "A1 B1 B2 A2 A3 A4"])
@pytest.mark.parametrize("page_size", [1, 2, 1000])
@pytest.mark.parametrize("searching", [False, True])
def test_a_row_that_moved(text: str, page_size: int, searching: bool) -> None:
    """A3 stands at a wrong time, whether it is met there or looked up: resumed at the offset, once it is mended, it
    comes, and so does all that was not shown."""
    rows = rows_of(text)
    (moved,) = (row for row in rows if (row.key, row.tag_seq_nr) == ("k|A", 3))
    how: dict[str, Any] = {"page_size": page_size}
    if searching:
        how |= {"use_strandline": False, "eventual_consistency_delay_s": 0}
    for second in (len(rows), 3.5, 0.5):
        view = PlayedView(rows)
        view.clock_starts = T0 + MINUTE
        view.take(moved)
        view.add(moved._replace(timestamp=T0 + round(second * SECOND)))
        got, error = until_error(feed(view, **how))
        assert error.name == "Corrupt.tag_row" or (searching and error.name == "MissingEvent.tag_hole")
        assert "A3" not in got
        view.rows = PlayedView(rows).rows
        again = shown(feed(view, start=error.last_known_offset, **how))
        assert set(got + again) == set(shown(feed(view, **how)))
        of_a = [one for one in dict.fromkeys(got + again) if one.startswith("A")]
        assert of_a == sorted(of_a)


@pytest.mark.req("T79")
def test_decode_error() -> None:
    """The third of five rows has a damaged body: five come, and only its payload is `Corrupt`."""
    rows = rows_of("A1 A2 A3 A4 A5")
    view = PlayedView(rows)
    view.add(rows[2]._replace(body=rows[2].body[:-1] + b"?"))
    events = list(feed(view))
    assert shown(events) == ["A1", "A2", "A3", "A4", "A5"]
    assert [event.damaged for event in events] == [False, False, True, False, False]
    with pytest.raises(Corrupt):
        _ = events[2].payload
    assert events[3].payload == 4


@pytest.mark.req("T86")
def test_fillers_fill_the_hole_move_the_offset_and_are_not_delivered() -> None:
    rows = rows_of("A1 A2 A3 A4")
    view = PlayedView(rows)
    view.add(*fillers(rows[1:2]), *fillers(rows[3:]))
    events = feed(view)
    assert shown(events) == ["A1", "A3"]
    assert events.resume_offset == offset_of(rows[3])


@pytest.mark.req("T46", "T55")
def test_a_row_that_was_delivered_before_is_dropped_and_counted() -> None:
    """Once more at another place, as after a clock that went back: of a number that is done, and of the last one."""
    rows = rows_of("A1 A2 B1")
    later = [row_of("k|A", number, T0 + 10 * SECOND + number) for number in (1, 2, 3)]
    view = PlayedView([*rows, later[1], linked([*rows[:2], later[2]])[2]])
    events = feed(view)
    assert (shown(events), events.repeats) == (["A1", "A2", "B1", "A3"], 1)


@pytest.mark.req("T46", "T55", "RJ9")
@pytest.mark.parametrize("seed", range(20))
def test_random_histories_are_delivered_once_and_in_order(seed: int) -> None:
    """Any page size, any way of cutting it into queries that resume, few keys remembered: the same events."""
    dice = random.Random(seed)
    numbers: dict[str, int] = {}
    rows = []
    timestamp = T0
    for _ in range(300):
        timestamp += dice.choice([0, 0, 1, SECOND, MINUTE, 5 * MINUTE])
        key = f"k|{dice.choice('ABCDEFéß日')}"
        numbers[key] = numbers.get(key, 0) + 1
        rows.append(row_of(key, numbers[key], timestamp))
    rows = linked(rows)
    view = PlayedView(rows)
    wanted = [row.place for row in rows]
    got, start = [], None
    while True:
        events = feed(view, start=start, page_size=dice.randint(1, 50))
        for event, _ in zip(events, range(dice.randint(1, 80)), strict=False):
            got.append((event.timestamp, str(event.key), event.seq_nr))
            start = event.offset
        if start is not None and start.place == wanted[-1]:
            break
    assert got == wanted


@pytest.mark.req("T73")
@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"eventual_consistency_delay_s": 5}, "eventual_consistency_delay_s"),
        ({"back_track_interval_s": 1}, "back_track_interval_s"),
        ({"back_track_period_s": "max"}, "back_track_period_s"),
        ({"new_key_scan_timeout_s": 0}, "new_key_scan_timeout_s"),
        ({"page_size": 0}, "page_size"),
        ({"page_size": 1.0}, "page_size"),
        ({"page_size": 1001}, "page_size"),
        ({"refresh_interval_s": "1"}, "refresh_interval_s"),
        ({"gap_timeout_s": 601}, "gap_timeout_s"),
        ({"keys_in_memory_max": 999}, "keys_in_memory_max"),
        ({"use_strandline": "no"}, "use_strandline"),
        ({"use_strandline": False, "back_track_period_s": "off"}, "back_track_period_s"),
        ({"use_strandline": False, "back_track_interval_s": 0}, "back_track_interval_s"),
        ({"pagesize": 5}, "pagesize"),
    ],
)
def test_settings_are_refused(given: dict[str, object], wrong: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TagSettings.of(given)
    assert (caught.value.code, caught.value.setting) == ("setting", wrong)
