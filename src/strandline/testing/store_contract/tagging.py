"""Views of tags: what a batch writes into them, and what queries find there."""

# ruff: noqa: S101
from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from strandline.carry.range import decode
from strandline.errors import Corrupt
from strandline.fold import EventsAppended, FoldRules, LifePurged, fold
from strandline.projection.definition import ByTag
from strandline.projection.tag_events import TagEvents
from strandline.query.by_tag import TagFeed
from strandline.query.pointer_watch import PointerWatch
from strandline.query.stored_tags import StoredTags
from strandline.query.tags import by_tag
from strandline.store.api import RowPage, Store
from strandline.store.tag_scans import BUCKETS, PLACES, PROGRESS, is_partitioned
from strandline.testing.store_contract.made import KEY, MadeStore, Make, settings_of
from strandline.testing.tape import Tape
from strandline.values.actions import Append, Place
from strandline.values.buckets import LENGTHS_US, bucket_text
from strandline.values.heads import State
from strandline.values.ranges import Range

HOUR = LENGTHS_US["hour"]
TAGS = ("red", "blue", "été", "Red")


class Shown(NamedTuple):
    """The columns of a row that a query shows, and that a count over the log gives."""

    timestamp: int
    key: str
    seq_nr: int
    life: int
    tag_seq_nr: int


class Counting:
    """A store that notes which scans are made of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.names: list[str] = []

    def scan(self, scan: Any, *what: Any, **how: Any) -> RowPage:
        self.names.append(scan.name)
        return self._store.scan(scan, *what, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def query(store: Any, tag: str, **given: Any) -> TagFeed:
    """A query by tag."""
    return by_tag(store, PointerWatch(store), tag, **given)


def shown(events: Iterable[Any]) -> list[Shown]:
    """Return the shown columns of events."""
    return [Shown(e.timestamp, str(e.key), e.seq_nr, e.life, e.tag_seq_nr) for e in events]


def counted(tape: Tape, tag: str, segment_size: int = 3) -> list[Shown]:
    """The rows of a tag, counted over the log as the specification says it."""
    found: list[Shown] = []
    for records in tape.records:
        states: dict[str, State] = {}
        decoded, _ = decode(records, tape.partitions)
        for record, action, _ in decoded:
            if action is None or action.key is None:
                continue
            place = Place(record.partition, record.offset, record.timestamp)
            states[action.key], effect = fold(states.get(action.key), action, place, FoldRules(segment_size, 32))
            if isinstance(effect, EventsAppended) and isinstance(action, Append):
                for seq_nr, (_, tags) in enumerate(action.events, effect.first):
                    if tag in tags:
                        number = 1 + sum(row.key == action.key and row.life == effect.life for row in found)
                        found.append(Shown(record.timestamp, action.key, seq_nr, effect.life, number))
            elif isinstance(effect, LifePurged):
                gone = action.key, effect.life
                found = [row for row in found if (row.key, row.life) != gone]
    return sorted(found, key=lambda row: (row.timestamp, row.key.encode(), row.seq_nr))


def tagged_tape(seed: int, *, actions: int = 80, keys: int = 5, partitions: int = 1) -> Tape:
    """Random actions with tags on a few keys, some of them hours apart."""
    chance = random.Random(seed)
    tape = Tape(partitions)
    names = [f"{chance.choice(('order', 'été'))}|{index}" for index in range(keys)]
    for _ in range(actions):
        key, dice = chance.choice(names), chance.random()
        if dice < 0.1:
            tape.later(chance.choice((1, HOUR, 30 * HOUR)))
        if dice < 0.75:
            tags = chance.sample(TAGS, chance.randint(0, len(TAGS)))
            damaged = "digest" if chance.random() < 0.05 else None
            tape.append(key, ["x"] * chance.randint(1, 4), tags=tags, damaged=damaged)
        elif dice < 0.9:
            tape.delete(key, chance.randint(1, 12), chance.randint(1, 3))
        elif dice < 0.97:
            tape.purge(key)
        else:
            tape.mark(chance.randrange(partitions))
    for partition in range(partitions):
        tape.mark(partition)
    return tape


def left_of(store: Store, key: str, life: int, tag: str) -> int:
    """How many rows of progress and places a life has."""
    count = len([row for row in store.scan(PROGRESS, (key, life), limit=100).rows if row[2] == tag])
    if is_partitioned(store):
        for segment in (*range(10), (10**12 - 1) // 3, (10**12 - 1) // 3 + 1, (10**12 - 1) // 3 + 2):
            count += len(store.scan(PLACES, (key, life, segment, tag), limit=100).rows)
    return count


class TaggingContract(MadeStore):
    """Views of tags."""

    @pytest.mark.req(
        "T1", "T7", "T15", "T16", "T17", "T18", "T22", "T27", "T32", "T33", "T39", "T40", "T46", "T51", "RJ9", "RJ10"
    )
    @pytest.mark.parametrize("seed", range(2))
    def test_views_equal_a_count_over_the_log(self, make: Make, seed: int) -> None:
        """Whatever the batches, and how many partitions: each event once, in order, with its number."""
        tape = tagged_tape(seed, partitions=2)
        for size in ((7,), (2, None))[seed]:
            store = make(settings_of(partitions=2))
            assert shown(query(store, "red")) == []
            tape.carry(store, size=size)
            bound = min(pointer.timestamp for pointer in store.pointers())
            for tag in TAGS:
                wanted = [row for row in counted(tape, tag) if row.timestamp <= bound]
                assert shown(query(store, tag, page_size=10)) == wanted
            assert shown(query(store, "RED")) == []

    @pytest.mark.req("T18")
    @pytest.mark.parametrize("size", [1, None])
    def test_what_is_refused_or_repeated_has_no_number(self, make: Make, size: int | None) -> None:
        """With an append id of the caller's or our own; in the batch of the first one, or in a later one."""
        store, tape = make(settings_of()), Tape()
        ours = tape.append(KEY, ["a", "b"], tags=("red",))
        tape.again(ours)
        given = tape.append(KEY, ["c"], tags=("red",), append_id="9" * 32)
        tape.append(KEY, ["d"], tags=("red",), append_id="9" * 32)  # of other events
        tape.append(KEY, ["e"], tags=("red",), expected=1)
        tape.append(KEY, ["f"], tags=("red",), first=2)
        tape.again(given)
        tape.carry(store, size=size)
        tape.again(given)
        last = tape.append(KEY, ["g"], tags=("red",))
        tape.again(last)
        tape.carry(store, size=size)
        found = list(query(store, "red"))
        assert [(event.payload, event.seq_nr, event.tag_seq_nr) for event in found] == [
            ("a", 1, 1), ("b", 2, 2), ("c", 3, 3), ("g", 4, 4),
        ]  # fmt: skip

    @pytest.mark.req("T42", "T43", "T76")
    def test_resume(self, store: Store) -> None:
        """After each offset come exactly those that are left; from a time on those of that time too."""
        tape = Tape()
        for at in range(20):
            tape.append(f"order|{at % 3}", ["a", "b"], tags=("red",))
        tape.carry(store)
        events = list(query(store, "red", page_size=3))
        assert len(events) == 40
        for at, event in enumerate(events):
            assert shown(query(store, "red", after=str(event.offset), page_size=7)) == shown(events[at + 1 :])
        middle = events[20].timestamp
        assert shown(query(store, "red", from_=middle)) == shown(events[20:])
        assert shown(query(store, "red", from_=middle + 1)) == shown(events[22:])
        assert shown(query(store, "red", to=middle)) == shown(events[:22])
        assert [event.payload for event in events] == ["a", "b"] * 20
        assert all(event.tags == ("red",) and event.tag == "red" for event in events)

    @pytest.mark.req("T11", "T13", "T14", "T53", "T74")
    def test_buckets(self, store: Store) -> None:
        """Events on both sides of an hour's edge, then months of silence: all shown, in order."""
        tape = Tape()
        tape.until_before_the_hour()
        first = tape.append(KEY, tags=("red",))
        second = tape.append(KEY, tags=("red",))
        assert first.timestamp // HOUR + 1 == second.timestamp // HOUR
        tape.later(5000 * HOUR)
        third = tape.append(KEY, tags=("red",))
        tape.carry(store)
        assert [row.timestamp for row in shown(query(store, "red", page_size=1))] == [
            first.timestamp, second.timestamp, third.timestamp
        ]  # fmt: skip
        if is_partitioned(store):
            buckets = [bucket for (bucket,) in store.scan(BUCKETS, ("red",), limit=100).rows]
            assert buckets == [record.timestamp // HOUR for record in (first, second, third)]
        later = query(store, "red", first_time_bucket=bucket_text(second.timestamp // HOUR, "hour"))
        assert [row.tag_seq_nr for row in shown(later)] == [2, 3]

    @pytest.mark.req("T76", "T77")
    def test_pages_of_large_events_are_small(self, store: Store) -> None:
        """Bytes bound a page: large events come few at a time, and all of them come."""
        tape = Tape()
        for size in (10, 40_000, 10, 60_000, 40_000, 10):
            tape.append(KEY, ["x" * size], tags=("red",))
        tape.mark()
        tape.carry(store)
        source = StoredTags(store, PointerWatch(store), "red", "h")
        page = source.page((-1, "", 0), 2**62, 500, bytes_max=50_000)
        assert [len(row[11]) > 1000 for row in page.rows] in (
            [False, True],
            [False, True, False],
            [False, True, False, True],
        )
        assert page.more
        assert [len(event.payload) for event in query(store, "red")] == [10, 40_000, 10, 60_000, 40_000, 10]

    @pytest.mark.req("T74", "T76")
    def test_pages_behind_each_other_list_buckets_once(self, store: Store) -> None:
        """40 events in four hours or five, seven a page; also one a page, where a page lists one bucket."""
        tape = Tape()
        for _ in range(40):
            tape.append(KEY, ["x"], tags=("red",))
            tape.later(HOUR // 10)
        tape.mark()
        tape.carry(store)
        for size, lists in ((7, 1), (1, 6)):
            counting = Counting(store)
            assert [event.seq_nr for event in query(counting, "red", page_size=size)] == list(range(1, 41))
            assert counting.names.count(BUCKETS.name) <= (lists if is_partitioned(store) else 0)

    @pytest.mark.req("T39")
    def test_delete_stays(self, store: Store) -> None:
        """5 tagged and carried, deleted to 3: by tag 5; the next event has number 6. In one batch it is the same."""
        for key, size in (("order|1", 1), ("order|2", None)):
            tape = Tape()
            tape.append(KEY if size else "order|9", ["a"] * 5, tags=(key,))
            tape.delete(KEY if size else "order|9", 3, 1)
            tape.append(KEY if size else "order|9", tags=(key,))
            fresh = tape.records[0]
            if store.pointers()[0].offset >= 0:  # the second tape goes on where the first ended
                shift = store.pointers()[0]
                tape.records[0] = [
                    record._replace(offset=shift.offset + 1 + at, timestamp=shift.timestamp + 1 + at)
                    for at, record in enumerate(fresh)
                ]
            tape.carry(store, size=size)
            assert [row.tag_seq_nr for row in shown(query(store, key))] == [1, 2, 3, 4, 5, 6]

    @pytest.mark.req("T19", "T31", "T40", "T41")
    @pytest.mark.parametrize("size", [1, None])
    def test_purge_goes(self, store: Store, size: int | None) -> None:
        """A life begun at 10^12, 5 tagged events over 3 buckets, 2 deleted, purged: nothing is left of it."""
        tape = Tape()
        tape.append(KEY, ["a", "b"], first=10**12, tags=("red", "blue"))
        for _ in range(3):
            tape.later(HOUR)
            tape.append(KEY, tags=("red",))
        tape.append("order|other", tags=("red",))
        tape.delete(KEY, 10**12 + 1, 1)
        if size is not None:
            tape.carry(store, size=size)
            assert len(shown(query(store, "red"))) == 6
            assert left_of(store, KEY, 1, "red") > 0
        tape.purge(KEY)
        tape.append(KEY, ["new"], tags=("red",))
        tape.carry(store, size=size)
        assert [(row.key, row.life, row.tag_seq_nr) for row in shown(query(store, "red"))] == [
            ("order|other", 1, 1), (KEY, 2, 1)
        ]  # fmt: skip
        assert shown(query(store, "blue")) == []
        assert left_of(store, KEY, 1, "red") == left_of(store, KEY, 1, "blue") == 0

    @pytest.mark.req("T19", "T57", "T62", "T64")
    def test_rows_are_found_by_key(self, store: Store) -> None:
        """Place, number and link of every row, whether or not its event was deleted."""
        tape = Tape()
        for at in range(12):
            tape.append(KEY, ["x"], tags=("red",) if at % 2 else ("red", "blue"))
            tape.later(HOUR // 3)
        tape.delete(KEY, 5, 1)
        tape.carry(store)
        source = StoredTags(store, PointerWatch(store), "blue", "h")
        rows = source.numbered(KEY, 1, 2, 5, 100)
        assert [(row[5], row[9]) for row in rows] == [(2, 3), (3, 5), (4, 7), (5, 9)]
        assert [row[7] for row in rows] == [1, 3, 5, 7]
        assert [row[5] for row in source.numbered(KEY, 1, 2, 5, 2)] == [2, 3]
        assert [row[5] for row in source.numbered(KEY, 1, 6, 6, 100)] == [6]
        place = rows[0][2], KEY, rows[0][9]
        assert source.there([place, (place[0], KEY, 4)]) == {place}
        assert not source.ended(KEY, 1)
        tape.purge(KEY)
        tape.carry(store)
        assert source.ended(KEY, 1)
        assert list(source.numbered(KEY, 1, 1, 5, 100)) == []

    @pytest.mark.req("T2", "T19", "T57")
    def test_rows_of_a_life_with_many_tags_are_found_by_key(self, store: Store) -> None:
        """More tags than a page of progress has: the rows of each of them are found, also of the last."""
        tape = Tape()
        tape.append(KEY, ["x"], tags=[f"t{number:04}" for number in range(1100)])
        for _ in range(3):
            tape.append(KEY, ["x"], tags=("zz",))
        tape.carry(store)
        for tag, numbers in (("t0000", [1]), ("t1099", [1]), ("zz", [1, 2, 3]), ("z", []), ("zzz", [])):
            source = StoredTags(store, PointerWatch(store), tag, "h")
            assert [row[5] for row in source.numbered(KEY, 1, 1, 9, 100)] == numbers
            assert TagEvents(store, ByTag(tag), Range(0, 1023)).last_number(KEY, 1) == max(numbers, default=0)

    @pytest.mark.req("T38", "T34")
    def test_a_batch_again_changes_nothing(self, make: Make) -> None:
        tape = tagged_tape(5)
        store = make(settings_of())
        tape.carry(store)
        before = {tag: shown(query(store, tag)) for tag in TAGS}
        tape.carry(store)
        assert {tag: shown(query(store, tag)) for tag in TAGS} == before

    @pytest.mark.req("T79", "T86")
    @pytest.mark.parametrize("how", ["skip", "retry"])
    def test_a_damaged_event_is_shown_in_its_place_until_it_is_resolved(self, store: Store, how: str) -> None:
        tape = Tape()
        tape.append(KEY, ["a"], tags=("red",))
        damaged = tape.append(KEY, ["b", "c"], tags=("red", "blue"), damaged="digest")
        tape.append(KEY, ["d"], tags=("red",))
        tape.carry(store)
        events = list(query(store, "red"))
        assert [(e.tag_seq_nr, e.damaged) for e in events] == [(1, False), (2, True), (3, True), (4, False)]
        with pytest.raises(Corrupt):
            _ = events[1].payload
        if how == "retry":
            with pytest.raises(Corrupt):
                tape.resolve(store, damaged.offset, how)
            return
        tape.resolve(store, damaged.offset, how)
        left = query(store, "red")
        events = list(left)
        assert [(e.tag_seq_nr, e.payload, e.prev_seq_nr) for e in events] == [(1, "a", 0), (4, "d", 1)]
        blue = query(store, "blue")
        assert list(blue) == []
        assert blue.resume_offset is not None
        assert blue.resume_offset.tag_seq_nr == 2, "fillers move the offset"
        tape.append(KEY, ["e"], tags=("blue",))
        tape.carry(store)
        assert [(e.tag_seq_nr, e.payload) for e in query(store, "blue")] == [(3, "e")]
