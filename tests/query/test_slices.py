"""Events by slices: complete, in order, each once, on every back-end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Event, InvalidInput, Key, MissingEvent, RichOffset
from strandline.connect import Strandline
from strandline.rows import Pointer
from strandline.store.api import RowPage
from strandline.testing import FakeClock, carry
from strandline.values.events import RecordedEvent
from tests.journal.worlds import BACKENDS, world
from tests.query.filling import carry_all, key_in, order_of, put, told

PARTITIONS = 3
NOON = 1_800_000_000_000_000


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=PARTITIONS) as opened:
        yield opened


@pytest.fixture
def here() -> Iterator[Strandline]:
    """In memory, for what does not depend on a back-end."""
    with strandline.connect("memory:", partitions=PARTITIONS) as opened:
        yield opened


def all_of(s: Strandline, lo: int = 0, hi: int = 1023, **how: Any) -> list[RecordedEvent]:
    with s.by_slices("order", lo, hi, **how) as events:
        return list(events)


def scattered(s: Strandline, keys: int = 12, rounds: int = 4) -> None:
    for _ in range(rounds):
        for number in range(keys):
            put(s, Key("order", str(number)), 1 + number % 3)
        put(s, Key("user", "1"))


@pytest.mark.req("P4", "P8", "P9")
def test_all_of_a_range_in_order(s: Strandline) -> None:
    scattered(s)
    assert all_of(s) == []  # nothing is in the store
    carry_all(s)
    found = all_of(s)
    assert len(found) == 4 * sum(1 + number % 3 for number in range(12))
    assert [order_of(event) for event in found] == sorted(order_of(event) for event in found)
    assert {event.key.entity_type for event in found} == {"order"}
    for number in range(12):
        key = Key("order", str(number))
        assert [event for event in found if event.key == key] == list(s.journal.read(key))


@pytest.mark.req("T52")
def test_what_carry_brings_is_below_the_strandline(s: Strandline) -> None:
    """All of it is seen, as after `pipeline run --once`; and a log that is still does not grow."""
    scattered(s, rounds=1)
    done = carry(s)
    assert len(all_of(s)) == sum(1 + number % 3 for number in range(12)) == done.events - 1
    newest = s.log.newest()
    assert carry(s) == (0, 0)
    assert s.log.newest() == newest
    put(s, key_in(0, PARTITIONS))
    before = len(all_of(s))
    carry(s, partition=0)  # a part of it: no Marks
    assert len(all_of(s)) == before


@pytest.mark.req("P2", "P3", "P4")
@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_any_cut_gives_all_slices_once(s: Strandline, n: int) -> None:
    scattered(s)
    carry_all(s)
    whole = all_of(s)
    parts = [event for lo, hi in strandline.ranges(n) for event in all_of(s, lo, hi)]
    assert sorted(map(told, parts)) == sorted(map(told, whole))
    for lo, hi in strandline.ranges(n):
        assert all_of(s, lo, hi) == [event for event in whole if lo <= event.slice <= hi]


@pytest.mark.req("P10", "P6", "RP6")
@pytest.mark.parametrize("page_size", [1, 7, 1000])
@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgresql"])
def test_many_events_share_a_time(backend: str, page_size: int, tmp_path: Path) -> None:
    """One Append of many events, and other keys in other partitions at the very same time."""
    with world(backend, tmp_path, partitions=8, clock=FakeClock(NOON)) as s:
        for partition in range(8):
            put(s, key_in(partition, 8), 60 if partition == 3 else 3)
        carry(s)
        found = all_of(s, page_size=page_size)
        assert {event.timestamp for event in found} == {NOON}
        assert len(found) == 60 + 21
        assert [order_of(event) for event in found] == sorted(order_of(event) for event in found)
        for at in (0, 1, 22, 40, 79, 80):  # resumed in the middle
            offset = RichOffset.parse(str(found[at].offset))
            assert all_of(s, page_size=page_size, after=offset) == found[at + 1 :]


@pytest.mark.req("P6", "P10")
def test_keys_at_quite_different_numbers_share_a_time(here: Strandline, tmp_path: Path) -> None:
    with world("sqlite", tmp_path, partitions=2, clock=FakeClock(NOON)) as s:
        put(s, key_in(0, 2), 3)
        put(s, key_in(1, 2), 4, first=900)
        carry(s)
        found = all_of(s)
        assert [event.seq_nr for event in found] == [1, 2, 3, 900, 901, 902, 903]
        assert [event.seq_nr for event in all_of(s, after=found[1].offset)] == [3, 900, 901, 902, 903]
        assert [event.seq_nr for event in all_of(s, after=found[4].offset)] == [902, 903]


@pytest.mark.req("P7")
def test_a_current_query_ends_though_the_writer_never_does(s: Strandline) -> None:
    scattered(s)
    carry_all(s)
    before = len(all_of(s))
    found = []
    with s.by_slices("order", 0, 1023, page_size=1) as events:
        for event in events:
            found.append(event)
            put(s, Key("order", "1"))
            if len(found) % 10 == 0:
                carry_all(s)
    assert len(found) == before
    carry_all(s)
    later = all_of(s, after=found[-1].offset)
    assert sorted(map(told, found + later)) == sorted(map(told, all_of(s)))
    assert len(later) == before  # one was written for each that was shown


@pytest.mark.req("P8", "P9", "P19")
def test_the_bound_is_that_of_the_own_partitions(s: Strandline) -> None:
    """A partition that was never replicated counts as "nothing has arrived", for ranges that it is part of."""
    first, second = key_in(0, PARTITIONS), key_in(1, PARTITIONS)
    put(s, first)
    carry(s, partition=0)
    lo, hi = strandline.ranges(PARTITIONS)[0]
    assert [event.key for event in all_of(s, lo, hi)] == [first]
    assert all_of(s) == []
    put(s, second)
    carry_all(s)
    assert {event.key for event in all_of(s)} == {first, second}


class _PointerRace:
    """A store that the pipeline moves between the look at the pointers and the look at the rows."""

    def __init__(self, store: Any, between: Callable[[], None]) -> None:
        self._store, self._between = store, between

    def pointers(self) -> list[Pointer]:
        found: list[Pointer] = self._store.pointers()
        self._between()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.req("P9")
def test_what_is_carried_between_pointers_and_rows_is_not_skipped(here: Strandline) -> None:
    from strandline.query.pointer_watch import PointerWatch
    from strandline.query.slice_queries import by_slices

    keys = [key_in(partition, PARTITIONS) for partition in range(PARTITIONS)]
    for key in keys:
        put(here, key)
    carry_all(here)

    def between() -> None:
        put(here, keys[2])
        carry(here, partition=2)
        put(here, keys[0])
        carry(here, partition=0)

    store: Any = _PointerRace(here.store, between)
    with by_slices(store, PointerWatch(store), "order", 0, 1023) as events:
        first = list(events)
    assert len(first) == 3
    carry_all(here)
    assert len(first) + len(all_of(here, after=events.resume_offset)) == 5


@pytest.mark.req("P8", "P19", "RP7")
def test_a_live_query_goes_on(s: Strandline) -> None:
    put(s, Key("order", "1"))
    carry_all(s)
    with s.by_slices("order", 0, 1023, live=True, refresh_interval_s=0.01) as events:
        assert next(events).seq_nr == 1
        for seq_nr in range(2, 6):
            put(s, Key("order", "1"))
            carry_all(s)
            assert next(events).seq_nr == seq_nr


@pytest.mark.req("RP7", "P8")
def test_a_clock_that_was_ahead_delays_nothing(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    with world("sqlite", tmp_path, partitions=PARTITIONS, clock=clock) as s:
        clock.advance(3600.0)
        put(s, Key("order", "1"))
        carry_all(s)
        clock.advance(-3600.0)
        with s.by_slices("order", 0, 1023, live=True, refresh_interval_s=0.01) as events:
            assert next(events).seq_nr == 1
            put(s, Key("order", "1"))
            carry_all(s)
            assert next(events).seq_nr == 2


@pytest.mark.req("P4")
def test_a_live_query_with_an_end_ends_there(s: Strandline) -> None:
    put(s, Key("order", "1"))
    put(s, Key("order", "1"))
    carry_all(s)
    first, second = all_of(s)
    with s.by_slices("order", 0, 1023, live=True, to=first.timestamp) as events:
        assert list(events) == [first]
    assert all_of(s, to=first.timestamp) == [first]
    assert all_of(s, from_=second.timestamp) == [second]
    assert all_of(s, from_=datetime.fromtimestamp(0, UTC)) == [first, second]


@pytest.mark.req("P4")
def test_a_query_that_waits_can_be_closed(here: Strandline) -> None:
    events = here.by_slices("order", 0, 1023, live=True, refresh_interval_s=60)
    ended = threading.Event()

    def consume() -> None:
        for _ in events:
            pass
        ended.set()

    thread = threading.Thread(target=consume)
    thread.start()
    events.close()
    assert ended.wait(10)
    thread.join()


@pytest.mark.req("P16")
def test_what_is_deleted_or_purged_is_not_shown(s: Strandline) -> None:
    gone, cut, kept = Key("order", "gone"), Key("order", "cut"), Key("order", "kept")
    for key in (gone, cut, kept):
        put(s, key, 3)
    carry_all(s)
    s.journal.purge(gone)
    s.journal.delete(cut, to=2)
    put(s, gone)
    carry_all(s)
    assert sorted(map(told, all_of(s))) == [
        ("order|cut", 1, 3),
        ("order|gone", 2, 1),
        *((str(kept), 1, n) for n in (1, 2, 3)),
    ]


@pytest.mark.req("P36", "P18")
def test_a_delete_and_a_purge_race_with_a_query(s: Strandline) -> None:
    """What the query has not read yet goes; the events after it follow on nothing that was shown."""
    cut, gone = key_in(0, PARTITIONS), key_in(1, PARTITIONS)
    put(s, cut, 6)
    put(s, gone, 6)
    carry_all(s)
    with s.by_slices("order", 0, 1023, page_size=3) as events:  # one row of each partition at a time
        shown = [told(next(events))]
        s.journal.delete(cut, to=4)
        s.journal.purge(gone)
        carry_all(s)
        shown += map(told, events)
    of_cut = [seq_nr for key, _, seq_nr in shown if key == str(cut)]
    assert of_cut == sorted(set(of_cut))
    assert of_cut[-2:] == [5, 6]
    assert [seq_nr for key, _, seq_nr in shown if key == str(gone)] in ([], [1], [1, 2])


@pytest.mark.req("P18", "P10")
def test_an_intended_gap_is_no_hole(s: Strandline) -> None:
    key = Key("order", "1")
    put(s, key, 3)
    put(s, key, 1, first=9)
    put(s, Key("order", "2"), 2, first=100)
    carry_all(s)
    found = all_of(s, gap_timeout_s=0)
    assert [event.seq_nr for event in found if event.key == key] == [1, 2, 3, 9]
    nine = next(event for event in found if event.seq_nr == 9)
    later = all_of(s, from_=nine.timestamp, gap_timeout_s=0)
    assert [event.seq_nr for event in later if event.key == key][-1] == 9


class _Missing:
    """A store in which a row is not there, until it is put back."""

    def __init__(self, store: Any, key: Key, seq_nr: int) -> None:
        self._store, self._key, self._seq_nr = store, str(key), seq_nr
        self.lost = self.late = True
        """Nowhere to be found; found by key, but not where a query by slices would meet it."""
        self.looks = 0

    def scan(self, *what: Any, **how: Any) -> RowPage:
        rows, more = self._store.scan(*what, **how)
        return RowPage([row for row in rows if not self.late or (row[2], row[1]) != (self._key, self._seq_nr)], more)

    def page(self, key: str, life: int, segment_size: int, **how: Any) -> RowPage:
        self.looks += 1
        cells, more = self._store.page(key, life, segment_size, **how)
        return RowPage([cell for cell in cells if not self.lost or (key, cell[0]) != (self._key, self._seq_nr)], more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.req("P18", "RP5", "P35")
@pytest.mark.parametrize("missing", [1, 3, 5])
def test_a_missing_row_stops_the_query_and_nothing_is_lost(s: Strandline, missing: int) -> None:
    key, other = key_in(0, PARTITIONS), key_in(1, PARTITIONS)
    for _ in range(6):
        put(s, key)
        put(s, other)
    carry_all(s)
    whole = all_of(s)
    s.store = store = _Missing(s.store, key, missing)
    shown: list[RecordedEvent] = []
    with pytest.raises(MissingEvent) as stopped, s.by_slices("order", 0, 1023, gap_timeout_s=0) as events:
        shown += events
    assert stopped.value.code == "slice_hole"
    assert stopped.value.missing == {str(key): (1, missing, missing)}
    assert [event.seq_nr for event in shown if event.key == key] == list(range(1, missing))
    store.lost = store.late = False
    again = all_of(s, after=str(stopped.value.last_known_offset))
    of_key = [event.seq_nr for event in shown + again if event.key == key]
    assert of_key == [1, 2, 3, 4, 5, 6]
    assert {told(event) for event in shown + again} == {told(event) for event in whole}


@pytest.mark.req("P18", "P28", "RP5")
def test_a_hole_is_filled_by_looking_back(s: Strandline, caplog: pytest.LogCaptureFixture) -> None:
    key = key_in(0, PARTITIONS)
    for _ in range(6):
        put(s, key)
    carry_all(s)
    s.store = store = _Missing(s.store, key, 3)
    store.lost = False
    with s.by_slices("order", 0, 1023) as events:
        assert [event.seq_nr for event in events] == [1, 2, 3, 4, 5, 6]
    assert events.strandline_violations == 1
    assert "stood in the store behind the place" in caplog.text


@pytest.mark.req("P17")
def test_filters_let_pass_what_they_name_and_move_on(s: Strandline) -> None:
    key = Key("order", "1")
    s.journal.append(key, [Event("Placed", 1, tags=["blue", "big"])])
    s.journal.append(key, [Event("Paid", 2, tags=["blue"]), Event("Sent", 3)])
    s.journal.append(key, [Event("Placed", 4)])
    carry_all(s)

    def passing(**chosen: Any) -> list[Any]:
        return [event.payload for event in all_of(s, filter=chosen)]

    assert passing(types=["Placed"]) == [1, 4]
    assert passing(tags=["blue"]) == [1, 2]
    assert passing(types=["Placed", "Sent"], tags=["blue", "red"]) == [1]
    with s.by_slices("order", 0, 1023, filter={"types": "Placed"}) as events:
        next(events)
        first = events.resume_offset
        next(events)
        assert next(events, None) is None
    assert first.timestamp < events.resume_offset.timestamp
    assert all_of(s, after=events.resume_offset) == []
    with s.by_slices("order", 0, 1023, filter={"types": "Never"}) as none:
        assert list(none) == []
    assert none.resume_offset == events.resume_offset


@pytest.mark.req("P17")
def test_a_filter_decodes_no_payload(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s, Key("order", "1"), 3)
    carry_all(s)
    touched: list[int] = []
    monkeypatch.setattr(RecordedEvent, "payload", property(lambda event: touched.append(event.seq_nr)))
    assert all_of(s, filter={"types": "Other"}) == []
    assert touched == []


@pytest.mark.req("P11")
def test_no_more_than_two_pages_are_held(here: Strandline) -> None:
    for partition in range(PARTITIONS):
        for _ in range(20):
            put(here, key_in(partition, PARTITIONS))
    carry_all(here)
    asked: list[int] = []
    scan = here.store.scan

    def counted(*what: Any, **how: Any) -> RowPage:
        asked.append(how["limit"])
        return scan(*what, **how)

    here.store.scan = counted  # type: ignore[method-assign]
    with here.by_slices("order", 0, 1023, page_size=9) as events:
        next(events)
        assert sum(asked) <= 2 * 9
        list(events)
    assert max(asked) == 6


class _Together:
    """A store that is asked for pages of several partitions at once, and counts."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: list[list[int]] = []

    def scan_each(self, scan: Any, asked: Any, to: int) -> list[RowPage]:
        self.asked.append([each.limit for each in asked])
        return [
            self._store.scan(scan, each.equal, after=each.after, to=to, limit=each.limit, slices=each.slices)
            for each in asked
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.req("P11", "P12")
def test_partitions_that_have_little_left_read_on_together(here: Strandline) -> None:
    """Each of three reads its share of 6 rows; then all of them read on when one must, and hold no more than that."""
    for _ in range(60):
        for partition in range(PARTITIONS):
            put(here, key_in(partition, PARTITIONS))
    carry_all(here)
    whole = all_of(here)
    here.store = together = _Together(here.store)
    assert all_of(here, page_size=9) == whole
    assert together.asked[0] == [6, 6, 6]
    assert max(map(max, together.asked)) == 6
    assert [len(limits) for limits in together.asked[:5]] == [PARTITIONS] * 5
    assert len(together.asked) <= 60 * PARTITIONS / 9 + 2


@pytest.mark.req("P11")
@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgresql"])
def test_a_page_of_large_events_is_bounded_by_bytes(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, partitions=1) as s:
        for _ in range(24):
            s.journal.append(Key("order", "1"), [Event("Large", b"x" * 900_000)])
        carry_all(s)
        pages: list[int] = []
        scan = s.store.scan

        def counted(*what: Any, **how: Any) -> RowPage:
            page = scan(*what, **how)
            pages.append(sum(len(row[5] or b"") for row in page.rows))
            return page

        s.store.scan = counted  # type: ignore[method-assign]
        assert [event.seq_nr for event in all_of(s)] == list(range(1, 25))
        assert max(pages) <= 10 * 2**20


@pytest.mark.req("P11", "P38")
def test_a_key_that_was_forgotten_goes_on(here: Strandline) -> None:
    """More keys than are kept in memory: one that comes back is judged by its head and predecessor."""
    from strandline.query.by_slices import StrandlineSliceFeed
    from strandline.query.pointer_watch import PointerWatch
    from strandline.query.settings import SliceSettings
    from strandline.query.slices import Slices
    from strandline.values.ranges import Range

    for _ in range(3):
        for number in range(40):
            put(here, Key("order", str(number)))
    carry_all(here)
    settings = SliceSettings(keys_in_memory_max=4)
    start = RichOffset("order", here.store.settings.history_id, 0)
    slices = Slices(here.store, "order", Range(0, 1023))
    query = StrandlineSliceFeed(slices, PointerWatch(here.store), start, settings=settings)
    assert list(query) == all_of(here)
    assert query.strandline_violations == 0


@pytest.mark.req("P20")
def test_one_look_at_the_pointers_for_all_queries(here: Strandline) -> None:
    put(here, Key("order", "1"))
    carry_all(here)
    queries = [here.by_slices("order", *range_, live=True, refresh_interval_s=0.2) for range_ in strandline.ranges(16)]
    threads = [threading.Thread(target=list, args=(query,)) for query in queries]
    ranges_read = []
    scan = here.store.scan
    try:
        for thread in threads:
            thread.start()
        before = here.pointer_watch.looks
        idle = threading.Event()
        here.store.scan = lambda *a, **k: ranges_read.append(a) or scan(*a, **k)  # type: ignore[method-assign,func-returns-value]
        idle.wait(1.0)
        assert here.pointer_watch.looks - before <= 6 + 16  # 16 begin with a look of their own
        settled = here.pointer_watch.looks
        ranges_read.clear()
        idle.wait(0.9)
        assert 2 <= here.pointer_watch.looks - settled <= 5
        assert ranges_read == []  # no bound has moved
    finally:
        for query in queries:
            query.close()
        for thread in threads:
            thread.join()


@pytest.mark.req("P39")
def test_an_offset_has_a_text_form(here: Strandline) -> None:
    put(here, Key("order", "Zo\u00eb|1"), 2)
    carry_all(here)
    first, second = all_of(here)
    for offset in (first.offset, second.offset, RichOffset("order", "h", 0)):
        again = RichOffset.parse(str(offset))
        assert again == offset
        assert again.seen == offset.seen
    assert first.offset != second.offset
    assert second.offset.seen == {"order|Zo\u00eb|1": (1, 2)}
    assert (first.offset.entity_type, first.offset.history) == ("order", here.store.settings.history_id)
    for entity_type, offset in (("user", first.offset), ("order", RichOffset("order", "h", 0))):
        for given in (offset, str(offset)):
            with pytest.raises(InvalidInput) as refused:
                here.by_slices(entity_type, 0, 1023, after=given)
            assert refused.value.code == "offset_foreign"


BAD = [
    ({"after": "x"}, "offset_format"),
    ({"after": 5}, "offset_format"),
    ({"after": '["slices1","order","h",-1,{}]'}, "offset_format"),
    ({"after": '["slices1","order","h",1,{"a":[1]}]'}, "offset_format"),
    ({"after": '["tag1","order","h",1,{}]'}, "offset_format"),
    ({"after": '["slices1","user","h",1,{}]'}, "offset_foreign"),
    ({"after": '["slices1","order","h",1,{}]'}, "offset_foreign"),
    ({"after": '["slices1","order","h",1,{}]', "from_": 5}, "offset_ambiguous"),
    ({"from_": 5, "to": 4}, "empty_range"),
    ({"from_": datetime(2026, 1, 1)}, "time_without_zone"),  # noqa: DTZ001
    ({"from_": "yesterday"}, "time_format"),
    ({"to": -1}, "time_range"),
    ({"live": 1}, "setting"),
    ({"filter": {}}, "setting"),
    ({"filter": "Placed"}, "setting"),
    ({"filter": {"type": ["Placed"]}}, "setting"),
    ({"filter": {"tags": []}}, "setting"),
    ({"filter": {"tags": [1]}}, "setting"),
    ({"page_size": 0}, "setting"),
    ({"page_size": 1001}, "setting"),
    ({"refresh_interval_s": 0}, "setting"),
    ({"gap_timeout_s": 601}, "setting"),
    ({"keys_in_memory_max": 999}, "setting"),
    ({"pagesize": 5}, "setting"),
]


@pytest.mark.req("P93")
@pytest.mark.parametrize(("how", "code"), BAD)
def test_bad_input(here: Strandline, how: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        here.by_slices("order", 0, 1023, **how)
    assert refused.value.code == code


@pytest.mark.req("P93")
@pytest.mark.parametrize(("wrong", "near"), [("aftr", "after"), ("filtr", "filter"), ("pagesize", "page_size")])
def test_a_typing_error_is_told_with_what_was_meant(here: Strandline, wrong: str, near: str) -> None:
    given: dict[str, Any] = {wrong: 5}
    with pytest.raises(InvalidInput) as refused:
        here.by_slices("order", 0, 1023, **given)
    assert str(refused.value) == f"{wrong}: unknown setting; allowed {near}; got 5"
    assert refused.value.hint == f"did you mean {near}?"


@pytest.mark.req("P93")
def test_bad_places(here: Strandline) -> None:
    for entity_type, lo, hi, code in (
        ("order", 5, 4, "slice_range"),
        ("order", -1, 4, "slice_range"),
        ("order", 0, 1024, "slice_range"),
        ("", 0, 4, "invalid_key"),
        ("a|b", 0, 4, "invalid_key"),
    ):
        with pytest.raises(InvalidInput) as refused:
            here.by_slices(entity_type, lo, hi)
        assert refused.value.code == code
