"""The memory of keys: what a page needs stays; what was used longest ago is forgotten, between pages alone."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest

import strandline
from strandline import Event, Key, MissingEvent, RichOffset
from strandline.query.by_slices import StrandlineSliceFeed
from strandline.query.by_tag import StrandlineTagFeed
from strandline.query.key_memory import KeyMemory
from strandline.query.known_keys import KnownKey, KnownKeys
from strandline.query.pointer_watch import PointerWatch
from strandline.query.settings import SliceSettings
from strandline.query.slices import Slices
from strandline.query.tag_settings import TagSettings
from strandline.values.events import Life
from strandline.values.ranges import Range
from strandline.values.tag_rows import TagRow
from tests.projection.test_holes import Hiding
from tests.query.filling import carry_all, told
from tests.query.playing import SECOND, T0, PlayedView, feed, from_time, linked, offset_of, row_of


@pytest.mark.req("T77", "P32")
@pytest.mark.parametrize("seed", range(20))
def test_a_page_keeps_what_it_needs_and_the_memory_its_bound(seed: int) -> None:
    """Against a plain record of when each key was used last: nothing is made up, and what was used lately is there."""
    dice = random.Random(seed)
    most = dice.choice([1, 2, 8, 24])
    largest = max(1, dice.choice([most // 4, most // 2, 2 * most]))
    memory: KeyMemory[int] = KeyMemory(most)
    used: dict[str, int] = {}
    for _ in range(300):
        page = [str(dice.randrange(60)) for _ in range(dice.randint(0, largest))]
        missing = [key for key in dict.fromkeys(page) if memory.get(key) is None]
        assert memory.hold(page) == missing
        for key in page:
            assert memory.get(key) is memory.young.get(key)
            assert memory.get(key) == (None if key in missing else used[key])
        for key in dict.fromkeys(page):
            used[key] = used.pop(key, 0) + 1
            memory[key] = used[key]
        assert len(memory) <= max(most, len(set(page)))
        lately = list(used)[-max(len(set(page)), most // 2 - largest) :] if page else []
        assert all(memory.get(key) == used[key] for key in lately)
        assert memory.forgot or all(memory.get(key) == used[key] for key in used)


@pytest.mark.req("T45", "T77")
def test_keys_that_the_caller_named_are_always_known() -> None:
    named = KnownKey(Life("k|A", 1), 5)
    memory = KnownKeys(2, {"k|A": named})
    for number in range(9):
        assert memory.hold([f"k|{number}", "k|A"]) == [f"k|{number}"]
        memory[f"k|{number}"] = KnownKey(Life(f"k|{number}", 1), 1)
        assert memory.young["k|A"] is memory.get("k|A") is named
    later = KnownKey(Life("k|A", 2), 1)
    memory["k|A"] = later
    memory.hold(["k|1", "k|2", "k|3"])
    assert memory.get("k|A") is later
    assert memory.hold(["k|A"]) == []


def sequence(keys: int) -> list[TagRow]:
    """A1 to A5, so many other keys, then A6."""
    others = [row_of(f"k|{number}", 1, T0 + 10 + number) for number in range(keys)]
    return linked(
        [*(row_of("k|A", number, T0 + number) for number in range(1, 6)), *others, row_of("k|A", 6, T0 + SECOND)]
    )


@pytest.mark.req("T46", "T64", "T77")
@pytest.mark.parametrize("keys", [990, 995, 1201, 1600, 2000])
def test_a_key_that_is_forgotten_comes_back_once(keys: int) -> None:
    """The fewest keys that may be asked for, and the largest page: A 1, 2, 3, 4, 5, 6."""
    view = PlayedView(sequence(keys))
    events = feed(view, keys_in_memory_max=1000)
    assert [event.tag_seq_nr for event in events if event.key.entity_id == "A"] == [1, 2, 3, 4, 5, 6]
    assert (events.searches, events.repeats, view.looks) == (0, 0, 0)
    assert view.looked_there <= view.pages


@pytest.mark.req("T46", "T58", "T64", "T77")
@pytest.mark.parametrize("seed", range(30))
def test_a_tag_of_many_keys_with_few_in_memory(seed: int) -> None:
    """Any size of page and of memory: every event once, in its place; no hole is seen that is not there."""
    dice = random.Random(seed)
    numbers: dict[str, int] = {}
    rows, timestamp = [], T0
    for _ in range(400):
        timestamp += dice.choice([0, 0, 1, SECOND])
        key = f"k|{min(dice.randrange(80), dice.randrange(80))}"
        numbers[key] = numbers.get(key, 0) + 1
        rows.append(row_of(key, numbers[key], timestamp))
    rows = linked(rows)
    view = PlayedView(rows)
    settings = TagSettings(page_size=dice.choice([1, 7, 40, 150]), keys_in_memory_max=dice.choice([1, 6, 30]))
    start = offset_of(rows[dice.randrange(300)]) if seed % 2 else None
    events = StrandlineTagFeed(view, settings, start=start, pace=view.play)
    wanted = [row.place for row in rows if start is None or row.place > start.place]
    assert [(event.timestamp, str(event.key), event.seq_nr) for event in events] == wanted
    assert (events.searches, events.repeats) == (0, 0)


@pytest.mark.req("T59", "T61", "T64", "RJ9")
@pytest.mark.parametrize("lost", [2, 4, 5])
@pytest.mark.parametrize("keys", [5, 1201, 2400])
def test_a_hole_of_a_forgotten_key_repeats_nothing(keys: int, lost: int) -> None:
    """A row is lost behind the query, and the key's last ones come: the query stops, and has shown nothing twice."""
    rows = sequence(keys)
    (hole,) = (row for row in rows if (row.key, row.tag_seq_nr) == ("k|A", lost))
    view = PlayedView(rows)
    events = feed(view, keys_in_memory_max=1000, page_size=100)
    got = [next(events).tag_seq_nr for _ in range(5)]
    view.take(hole)
    with pytest.raises(MissingEvent) if lost == 5 and keys > 5 else nullcontext() as stopped:
        got.extend(event.tag_seq_nr for event in events if event.key.entity_id == "A")
    assert got == [1, 2, 3, 4, 5] + ([6] if stopped is None else [])
    if stopped is not None:
        assert stopped.value.missing == {"k|A": (1, 5, 5, 1)}
        (before,) = (row for row in rows if (row.key, row.tag_seq_nr) == ("k|A", 4))
        assert stopped.value.last_known_offset == offset_of(before)
        view.add(hole)
        again = [event.tag_seq_nr for event in feed(view, start=offset_of(before)) if event.key.entity_id == "A"]
        assert again == [5, 6]


@pytest.mark.req("T58", "T64", "T73")
def test_what_comes_late_of_a_forgotten_key_is_shown_once() -> None:
    """5 is lost, not shown, and put back while the query waits for it: 5 and 6, and nothing of what was shown."""
    rows = sequence(2400)
    (hole,) = (row for row in rows if (row.key, row.tag_seq_nr) == ("k|A", 5))
    view = PlayedView(rows)
    view.take(hole)
    view.play.at(3, lambda: view.add(hole))
    events = feed(view, keys_in_memory_max=1000, page_size=100)
    assert [event.tag_seq_nr for event in events if event.key.entity_id == "A"] == [1, 2, 3, 4, 5, 6]
    assert events.strandline_violations == 1


@pytest.mark.req("T62", "T64")
def test_a_new_life_of_a_key_whose_past_lies_before_the_start() -> None:
    """What the caller has seen is of an earlier life; the new one began before the start: it goes on there."""
    rows = linked([row_of("k|A", number, T0 + number, life=2) for number in range(1, 6)])
    events = feed(PlayedView(rows), start=from_time(T0 + 4), seen={"k|A": (1, 9)})
    assert [event.tag_seq_nr for event in events] == [4, 5]


@pytest.mark.req("P4", "P11", "P38")
@pytest.mark.parametrize("seed", range(6))
def test_slices_of_many_keys_with_few_in_memory(seed: int) -> None:
    dice = random.Random(seed)
    with strandline.connect("memory:", partitions=3) as s:
        for _ in range(400):
            s.journal.append(f"order|{min(dice.randrange(80), dice.randrange(80))}", [Event("Placed", 1)])
        carry_all(s)
        wanted = [told(event) for event in s.by_slices("order", 0, 1023)]
        settings = SliceSettings(page_size=dice.choice([1, 7, 40, 150]), keys_in_memory_max=dice.choice([1, 6, 30]))
        start = RichOffset("order", s.store.settings.history_id, 0)
        slices = Slices(s.store, "order", Range(0, 1023))
        query = StrandlineSliceFeed(slices, PointerWatch(s.store), start, settings=settings)
        assert [told(event) for event in query] == wanted
        assert query.strandline_violations == 0


@pytest.mark.req("P11", "P18", "RP5")
@pytest.mark.parametrize("most", [4, 1000])
def test_a_hole_of_a_forgotten_key_repeats_nothing_by_slices(most: int) -> None:
    """A row is lost behind the query, and the key's next one comes: where the key was forgotten, the query stops, with
    the offset of the key's last event that is there; it has shown nothing twice."""
    with strandline.connect("memory:", partitions=1) as s:
        for number in range(5):
            s.journal.append("order|A", [Event("Placed", number)])
        for number in range(40):
            s.journal.append(f"order|{number}", [Event("Placed", 1)])
        s.journal.append("order|A", [Event("Placed", 6)])
        carry_all(s)
        whole = [told(event) for event in s.by_slices("order", 0, 1023)]
        start = RichOffset("order", s.store.settings.history_id, 0)
        hiding = Hiding(s.store, Key("order", "A"), 5)
        hiding.from_slices = hiding.from_all = False
        store: Any = hiding
        slices = Slices(store, "order", Range(0, 1023))
        settings = SliceSettings(page_size=5, keys_in_memory_max=most, gap_timeout_s=0)
        query = StrandlineSliceFeed(slices, PointerWatch(s.store), start, settings=settings)
        got = [told(next(query)) for _ in range(10)]
        hiding.from_slices = hiding.from_all = True
        if most == 1000:
            assert got + [told(event) for event in query] == whole
            return
        with pytest.raises(MissingEvent) as stopped:
            got.extend(told(event) for event in query)
        assert got == whole[:-1]
        assert stopped.value.missing == {"order|A": (1, 5, 5)}
        assert stopped.value.last_known_offset.seen == {"order|A": (1, 4)}
        again = [told(event) for event in s.by_slices("order", 0, 1023, after=str(stopped.value.last_known_offset))]
        assert [event for event in again if event[0] == "order|A"] == [("order|A", 1, 5), ("order|A", 1, 6)]


@pytest.mark.req("P18", "P28")
def test_what_came_late_of_a_key_that_was_never_met_is_shown() -> None:
    """The query has passed the place of a key's first event, which was not there. While no key was forgotten, it knows
    that it never showed it."""
    with strandline.connect("memory:", partitions=1) as s:
        for key in ("order|A", *(f"order|{number}" for number in range(20)), "order|A"):
            s.journal.append(key, [Event("Placed", 1)])
        carry_all(s)
        hiding = Hiding(s.store, Key("order", "A"), 1)
        hiding.from_all = False
        store: Any = hiding
        start = RichOffset("order", s.store.settings.history_id, 0)
        query = StrandlineSliceFeed(
            Slices(store, "order", Range(0, 1023)), PointerWatch(s.store), start, settings=SliceSettings(page_size=5)
        )
        got = [told(event) for event in query]
        assert got[-2:] == [("order|A", 1, 1), ("order|A", 1, 2)]
        assert (len(got), query.strandline_violations) == (22, 1)
