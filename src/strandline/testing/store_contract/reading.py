"""What a store shows of what it was given."""

# ruff: noqa: S101
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.clock import now_us
from strandline.errors import InvalidInput
from strandline.rows import PartitionBatch, Pointer
from strandline.store.api import Store
from strandline.store.pages import LARGE_BYTES
from strandline.store.scans import (
    SLICE_PLACES,
    SLICE_ROWS,
    entity_types_of,
    events_of,
    expired_keys,
    keys_cut_short,
    keys_of,
    look_at,
    quarantined,
    quarantined_at,
)
from strandline.testing.store_contract.made import (
    KEY,
    MadeStore,
    Make,
    batch_of,
    events,
    numbers,
    random_tape,
    settings_of,
    snapshot,
    state,
    states_of,
)
from strandline.testing.tape import Tape
from strandline.values.events import EventRow
from strandline.values.heads import SEQ_NR_MAX, Head
from strandline.values.keys import key_partition, slice_of


class ReadingContract(MadeStore):
    """States, pages, ranges, keys."""

    @pytest.mark.req("J73")
    def test_a_new_store_is_empty(self, make: Make) -> None:
        store = make(settings_of(partitions=3))
        assert store.pointers() == [Pointer(0), Pointer(1), Pointer(2)]
        assert [(p.offset, p.timestamp) for p in store.pointers()] == [(-1, 0)] * 3
        assert look_at(store, "order|1", 2) == (Pointer(2), None)
        assert states_of(store, 1, ["order|1"]) == (Pointer(1), {})
        assert entity_types_of(store) == []
        assert keys_of(store, "order", after=None, limit=10) == []
        assert quarantined(store) == []
        assert quarantined_at(store, 0, 0) is None
        assert store.lease().holder() is None
        assert events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=10).rows == []

    @pytest.mark.req("J71", "J72", "J78")
    @pytest.mark.parametrize(
        ("size", "count", "delete_to", "rows"),
        [
            (5, 3, 0, [(1, 0), (2, 0), (3, 0)]),
            (3, 5, 0, [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]),
            (3, 5, 2, [(3, 0), (4, 1), (5, 1)]),
            (3, 5, 5, []),
        ],
    )
    @pytest.mark.parametrize("batch", [1, None])
    def test_states_after_replication(
        self, make: Make, size: int, count: int, delete_to: int, rows: list[tuple[int, int]], batch: int | None
    ) -> None:
        store, tape = make(settings_of(segment_size=size)), Tape()
        tape.append(KEY, list(range(count)))
        if delete_to:
            tape.delete(KEY, delete_to, 1)
        tape.carry(store, size=batch)
        head = state(store, KEY)
        assert isinstance(head, Head)
        assert (head.seq_nr, head.delete_to, head.removed_to, head.segment_size) == (count, delete_to, delete_to, size)
        stored = events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=10).rows
        assert [(row.seq_nr, row.segment) for row in stored] == rows
        assert numbers(events(store, KEY)) == [seq_nr for seq_nr, _ in rows]

    def test_rows_come_back_as_they_went_in(self, store: Store) -> None:
        tape, key = Tape(), "café ☕|'\"; DROP TABLE journal; --|😀"
        tape.append(key, [b"", b"\x00\xff", {"a": 1.0}, None, "😀"], tags=("red", "été"), headers={"by": "me'"})
        tape.append(key, ["plain"], expire_after_us=1_000_000)
        batch, seen = batch_of(tape, store)
        store.write(batch, seen)
        (cut,) = batch.cuts
        found = events(store, key)
        assert found == cut.events
        assert [type(value) for row in found for value in row] == [type(v) for row in cut.events for v in row]
        assert events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=10).rows == cut.events
        assert [row.event.payload for row in found] == [b"", b"\x00\xff", {"a": 1.0}, None, "😀", "plain"]
        assert state(store, key) == batch.states[key]
        pointer, states = states_of(store, 0, [key])
        assert pointer == batch.pointer == store.pointers()[0]
        assert states == batch.states

    @pytest.mark.req("J70")
    def test_many_keys_of_many_types_and_partitions(self, make: Make) -> None:
        store, tape = make(settings_of(partitions=4)), Tape(4)
        for index in range(3000):
            tape.append(f"type{index % 5}|{index}")
        tape.carry(store, size=500)
        keys = tape.all_keys()
        for partition in range(4):
            mine = [key for key in keys if key_partition(key, 4) == partition]
            pointer, states = states_of(store, partition, [*mine, "type0|absent"])
            assert pointer == store.pointers()[partition]
            assert sorted(states) == mine
            assert all(states[key] == tape.state(key, 3) for key in mine)
        assert entity_types_of(store) == [f"type{index}" for index in range(5)]

    @pytest.mark.req("J24", "J61")
    def test_page(self, make: Make) -> None:
        store, tape = make(settings_of(segment_size=2)), Tape()
        tape.append(KEY, ["a", "b", "c"])
        tape.append(KEY, ["d"], first=20)
        tape.append(f"{KEY}0", ["other"])
        tape.carry(store)
        assert numbers(events(store, KEY)) == [1, 2, 3, 20]
        assert [row.prev_seq_nr for row in events(store, KEY)] == [0, 1, 2, 3]
        for from_ in (1, 2, 3, 4, 20, 21):
            for to in (1, 2, 3, 19, 20, SEQ_NR_MAX):
                for limit in (1, 2, 10):
                    expected = [nr for nr in (1, 2, 3, 20) if from_ <= nr <= to][:limit]
                    page = store.page(KEY, 1, 2, from_=from_, to=to, limit=limit).rows
                    assert [cells[0] for cells in page] == expected
                    expected = [nr for nr in (20, 3, 2, 1) if from_ <= nr <= to][:limit]
                    page = store.page(KEY, 1, 2, from_=from_, to=to, limit=limit, backwards=True).rows
                    assert [cells[0] for cells in page] == expected
        assert store.page(KEY, 2, 2, from_=1, to=SEQ_NR_MAX, limit=10).rows == []

    @pytest.mark.req("RJ11")
    @pytest.mark.parametrize(
        ("segment_size", "sizes"),
        [
            (2, (10, 40_000, 50_000, 10, 10, 30_000, 70_000, 5, 90_000, 10, 10)),
            (100, (10, 40_000, 50_000, 10, 10, 30_000, 70_000, 5, 90_000, 10, 10)),
            (3, (30_000, 30_000, 30_000, 10, 10, 10, 10, 10, 10, 10)),
        ],
    )
    def test_pages_of_large_events(self, make: Make, segment_size: int, sizes: tuple[int, ...]) -> None:
        """One passes the bound, none comes after it; and a page that is below all bounds is the last."""
        store, tape = make(settings_of(segment_size=segment_size)), Tape()
        for size in sizes:
            tape.append(KEY, [bytes(size)])
        tape.carry(store)
        whole = store.page(KEY, 1, segment_size, from_=1, to=SEQ_NR_MAX, limit=100).rows
        assert [row[0] for row in whole] == list(range(1, len(sizes) + 1))
        for bytes_max in (1, 60_000, 130_000, 10**9):
            for limit in (1, 2, 100):
                found: list[Any] = []
                more = True
                while more:
                    start = len(found) + 1
                    rows = store.page(
                        KEY, 1, segment_size, from_=start, to=SEQ_NR_MAX, limit=limit, bytes_max=bytes_max
                    ).rows
                    got = [len(row[2]) for row in rows]
                    assert sum(got[:-1]) < bytes_max or max(got) <= LARGE_BYTES
                    more = len(rows) == limit or sum(got) >= bytes_max
                    found += rows
                assert found == whole

    @pytest.mark.req("J128")
    @pytest.mark.parametrize("segment_size", [2, 3, 100])
    @pytest.mark.parametrize("sizes", [(10, 40_000, 50_000, 10, 10, 30_000, 5, 90_000, 10), (10,) * 11])
    def test_pages_backwards(self, make: Make, segment_size: int, sizes: tuple[int, ...]) -> None:
        store, tape = make(settings_of(segment_size=segment_size)), Tape()
        for size in sizes:
            tape.append(KEY, [bytes(size)])
        tape.delete(KEY, 1, 1)
        tape.carry(store)
        whole = store.page(KEY, 1, segment_size, from_=1, to=SEQ_NR_MAX, limit=100).rows[::-1]
        assert [row[0] for row in whole] == list(range(len(sizes), 1, -1))
        for bytes_max in (1, 60_000, 10**9, None):
            for limit in (1, 2, 100):
                found: list[Any] = []
                more = True
                while more:
                    to = len(sizes) - len(found)
                    rows = store.page(
                        KEY, 1, segment_size, from_=1, to=to, limit=limit, bytes_max=bytes_max, backwards=True
                    ).rows
                    got = [len(row[2]) for row in rows]
                    assert bytes_max is None or sum(got[:-1]) < bytes_max or max(got) <= LARGE_BYTES
                    more = len(rows) == limit or (bytes_max is not None and sum(got) >= bytes_max)
                    found += rows
                assert found == whole

    @pytest.mark.req("J72")
    def test_keys_keep_their_own_segment_size(self, make: Make) -> None:
        store, tape = make(settings_of(segment_size=5)), Tape()
        tape.append("order|a", list(range(4)))
        tape.carry(store, settings=settings_of(segment_size=3))
        tape.append("order|b", list(range(7)))
        tape.append("order|a", list(range(3)))
        tape.carry(store)
        stored = events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=100).rows
        assert [row.segment for row in stored if row.key == "order|a"] == [0, 0, 0, 1, 1, 1, 2]
        assert [row.segment for row in stored if row.key == "order|b"] == [0, 0, 0, 0, 0, 1, 1]
        tape.delete("order|a", 5, 1)
        tape.carry(store)
        assert numbers(events(store, "order|a")) == [6, 7]

    def test_the_greatest_number(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY, ["last but one", "last"], first=SEQ_NR_MAX - 1)
        tape.carry(store)
        assert numbers(events(store, KEY)) == [SEQ_NR_MAX - 1, SEQ_NR_MAX]
        tape.delete(KEY, SEQ_NR_MAX, 1)
        tape.carry(store)
        assert events(store, KEY) == []

    def test_range_gives_each_event_once_in_order(self, make: Make) -> None:
        store = make(settings_of(partitions=2))
        tape = random_tape(5, actions=150, keys=12, partitions=2)
        tape.carry(store, size=20)
        for partition in range(2):
            keys = [key for key in tape.all_keys() if key_partition(key, 2) == partition]
            rows = [row for key in keys for life in range(1, 20) for row in events(store, key, life)]
            rows.sort(key=lambda row: (row.timestamp, row.seq_nr))
            assert len(rows) > 20
            for type_ in (None, "order", "été", "nobody"):
                whole = [row for row in rows if type_ in (None, row.entity_type)]
                to = rows[len(rows) // 2].timestamp
                half = [row for row in whole if row.timestamp <= to]
                for limit in (1, 2, 7, 1000):
                    assert _pages(store, partition, limit, type_, SEQ_NR_MAX) == whole
                    assert _pages(store, partition, limit, type_, to) == half

    @pytest.mark.req("J68")
    def test_keys_and_entity_types(self, make: Make) -> None:
        store, tape = make(settings_of(partitions=2)), Tape(2)
        names = [f"order|{index}" for index in range(300)] + [
            "order|Z",
            "order|é",
            "order|😀",
            "été|1",
            "Z|1",
            "order2|1",
        ]
        for name in names:
            tape.append(name)
        tape.delete("order|3", 1, 1)
        tape.purge("order|4")
        tape.purge("Z|1")
        tape.carry(store)
        assert entity_types_of(store) == ["order", "order2", "été"]
        expected = [name for name in names if name.startswith("order|") and name != "order|4"]
        expected.sort(key=lambda name: (slice_of(name), name.encode()))
        assert keys_of(store, "order", after=None, limit=1000) == expected
        for after in ("order|4", "order|nobody", *expected[::40]):
            place = slice_of(after), after.encode()
            rest = [name for name in expected if (slice_of(name), name.encode()) > place]
            assert keys_of(store, "order", after=after, limit=1000) == rest
            assert keys_of(store, "order", after=after, limit=7) == rest[:7]
            within = [name for name in rest if 200 <= slice_of(name) <= 700]
            assert keys_of(store, "order", after=after, limit=1000, slices=(200, 700)) == within
        assert keys_of(store, "Z", after=None, limit=10) == []
        assert keys_of(store, "été", after=None, limit=10, slices=(slice_of("été|1"),) * 2) == ["été|1"]
        assert [keys_cut_short(store, type_) for type_ in ("order", "été", "Z")] == [1, 0, 0]
        tape.append("order|4")
        tape.append("Z|1")
        tape.carry(store)
        assert [keys_cut_short(store, type_) for type_ in ("order", "été", "Z")] == [2, 0, 1]

    def test_expired(self, make: Make) -> None:
        store, tape = make(settings_of(partitions=2)), Tape(2)
        hour = 3_600_000_000
        records = [tape.append(f"order|{index}", expire_after_us=hour - 500 * index) for index in range(30)]
        tape.append("order|kept", expire_after_us=hour)
        tape.append("order|kept", expire_after_us=0)
        tape.append("order|gone", expire_after_us=1)
        tape.purge("order|gone")
        tape.append("order|never")
        tape.carry(store)
        due = [
            (record.timestamp + hour - 500 * index, record.key, record.offset) for index, record in enumerate(records)
        ]
        assert expired_keys(store, at=SEQ_NR_MAX, after=None, limit=100) == due
        assert expired_keys(store, at=due[9][0], after=None, limit=100) == due[:10]
        assert expired_keys(store, at=due[9][0] - 1, after=None, limit=100) == due[:9]
        assert expired_keys(store, at=due[9][0], after=(due[3][0], f"order|{3}"), limit=4) == due[4:8]

    @pytest.mark.req("P12")
    @pytest.mark.parametrize("entity_type", ["order", None])
    def test_events_by_time_within_slices_and_bytes(self, store: Store, entity_type: str | None) -> None:
        tape = Tape()
        for number in range(12):
            tape.append(f"order|{number}", [bytes(3000), b"small"])
        tape.append("user|1", ["another type"])
        tape.carry(store)
        whole = events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=100, entity_type=entity_type)
        assert not whole.more
        assert len(whole.rows) == (25 if entity_type is None else 24)
        for lo, hi in ((0, 1023), (0, 511), (512, 1023), (whole.rows[4].slice, whole.rows[4].slice)):
            found: list[EventRow] = []
            after, more = (0, 0), True
            while more:
                rows, more = events_of(
                    store, 0, after=after, to=SEQ_NR_MAX, limit=7, entity_type=entity_type, slices=(lo, hi),
                    bytes_max=5000,
                )  # fmt: skip
                assert len(rows) <= 7
                assert sum(len(row.body) for row in rows[:-1]) < 5000
                found += rows
                after = (rows[-1].timestamp, rows[-1].seq_nr) if rows else after
                more = more and bool(rows)
            assert found == [row for row in whole.rows if lo <= row.slice <= hi]

    @pytest.mark.req("P12", "P11", "P24")
    def test_events_by_their_places_with_and_without_bodies(self, store: Store) -> None:
        tape = Tape()
        for number in range(8):
            tape.append(f"order|{number}", [b"small", b"too", bytes(20_000)])
        tape.append("user|1", ["another type"])
        tape.delete("order|2", 2)
        tape.purge("order|3")
        tape.carry(store)
        whole = events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=100, entity_type="order").rows
        assert len(whole) == 8 * 3 - 2 - 3
        for lo, hi in ((0, 1023), (0, 511), (whole[4].slice, whole[4].slice)):
            expected = [row for row in whole if lo <= row.slice <= hi]
            for limit in (1, 4, 100):
                for scan in (SLICE_ROWS, SLICE_PLACES):
                    found: list[Any] = []
                    after, more = (0, 0, ""), True
                    while more:
                        rows, more = store.scan(
                            scan, ("order", 0), after=after, to=whole[-2].timestamp, limit=limit, slices=(lo, hi),
                            bytes_max=50_000,
                        )  # fmt: skip
                        found += rows
                        after, more = (tuple(rows[-1][:3]), more) if rows else (after, False)
                    seen = [row for row in expected if row.timestamp <= whole[-2].timestamp]
                    assert [tuple(row[:5]) for row in found] == [
                        (row.timestamp, row.seq_nr, row.key, row.life, row.prev_seq_nr) for row in seen
                    ]
                    for read, row in zip(found, seen, strict=True) if scan is SLICE_ROWS else ():
                        assert read[5] == row.body or (read[5] is None and len(row.body) > LARGE_BYTES)
                        assert read[6] == row.digest

    @pytest.mark.req("P23")
    def test_a_store_has_a_clock(self, store: Store) -> None:
        first = store.now_us()
        assert abs(first - now_us()) < 60_000_000
        assert store.now_us() >= first

    def test_closed(self, store: Store) -> None:
        store.lease().take("somebody")
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            store.pointers,
            lambda: look_at(store, KEY, 0),
            lambda: store.page(KEY, 1, 3, from_=1, to=2, limit=1).rows,
            lambda: states_of(store, 0, [KEY]),
            lambda: store.write(PartitionBatch(Pointer(0, 1)), Pointer(0)),
            lambda: store.lease().take("nobody"),
            lambda: store.save(snapshot(1), 0),
            lambda: quarantined(store),
            lambda: entity_types_of(store),
        ]
        for call in calls:
            with pytest.raises(InvalidInput) as refused:
                call()
            assert refused.value.name == "InvalidInput.closed"


def _pages(store: Store, partition: int, limit: int, type_: str | None, to: int) -> list[EventRow]:
    """All of a range, page by page."""
    found: list[EventRow] = []
    after = (0, 0)
    while page := events_of(store, partition, after=after, to=to, limit=limit, entity_type=type_).rows:
        assert len(page) <= limit
        found += page
        after = page[-1].timestamp, page[-1].seq_nr
    return found
