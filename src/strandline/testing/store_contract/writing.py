"""How a batch changes a store."""

# ruff: noqa: S101
from __future__ import annotations

import zlib

import pytest

from strandline.errors import Conflict, Corrupt, Unavailable
from strandline.store.api import Store
from strandline.store.correction import Correction
from strandline.store.scans import events_of, keys_of, last_snapshot, quarantined, snapshots_of
from strandline.testing.store_contract.made import (
    KEY,
    MadeStore,
    Make,
    batch_of,
    contents,
    events,
    numbers,
    random_tape,
    settings_of,
    snapshot,
    state,
)
from strandline.testing.tape import Tape
from strandline.values.events import Life
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head


class WritingContract(MadeStore):
    """Batches, pointers, purges."""

    @pytest.mark.req("J13", "J73")
    def test_marks_move_the_pointer_alone(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY)
        tape.carry(store)
        before = contents(store, tape.all_keys())
        (moved,) = store.pointers()
        for _ in range(10):
            tape.mark()
        tape.carry(store, size=3)
        (pointer,) = store.pointers()
        last = tape.records[0][-1]
        assert (pointer.offset, pointer.timestamp, pointer.last_action_at) == (
            last.offset,
            last.timestamp,
            moved.timestamp,
        )
        assert {**contents(store, tape.all_keys()), "pointers": before["pointers"]} == before

    @pytest.mark.req("J19")
    @pytest.mark.parametrize("seed", range(2))
    def test_cut_anyhow(self, make: Make, seed: int) -> None:
        tape = random_tape(seed, actions=80, keys=5, partitions=2)
        shown = []
        for size in (seed + 1, 10 * seed + 7, None):
            store = make(settings_of(partitions=2))
            tape.carry(store, size=size)
            found = contents(store, tape.all_keys(), lives=12)
            found["pointers"] = [pointer._replace(revision=0) for pointer in found["pointers"]]
            shown.append(found)
            assert all(state(store, key) == tape.state(key, 3) for key in tape.all_keys())
        assert shown[0] == shown[1] == shown[2]

    def test_one_batch_with_everything(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY, ["a", "b", "c"])
        tape.delete(KEY, 2, 1)
        tape.append(KEY, ["d"])
        tape.purge(KEY)
        tape.append(KEY, ["e", "f"])
        last = tape.delete(KEY, 1, 2)
        tape.carry(store)
        assert [row.seq_nr for row in events(store, KEY, 1)] == []
        assert [(row.seq_nr, row.event.payload) for row in events(store, KEY, 2)] == [(2, "f")]
        assert state(store, KEY) == tape.state(KEY, 3)
        assert store.pointers()[0].offset == last.offset

    @pytest.mark.req("RJ5")
    def test_the_same_batch_again_changes_nothing(self, store: Store) -> None:
        tape = random_tape(1, actions=60, keys=4)
        batch, seen = batch_of(tape, store)
        store.write(batch, seen)
        before = contents(store, tape.all_keys())
        with pytest.raises(Unavailable) as refused:
            store.write(batch, seen)
        assert refused.value.name == "Unavailable.serialization"
        store.write(batch, store.pointers()[0])
        assert contents(store, tape.all_keys()) == before

    @pytest.mark.req("RJ7", "J73")
    def test_a_pointer_never_moves_back(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY)
        early, nothing = batch_of(tape, store)
        tape.append(KEY)
        tape.purge("order|other")
        tape.carry(store)
        before = contents(store, tape.all_keys())
        with pytest.raises(Unavailable):
            store.write(early, nothing)
        store.write(early, store.pointers()[0])
        assert contents(store, tape.all_keys()) == before

    def test_rows_prepared_before_the_partition_moved_are_refused(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY, ["a"])
        tape.append(KEY, ["b"], damaged="digest")
        tape.carry(store)
        head = state(store, KEY)
        assert isinstance(head, Head)
        with tape.correcting(store) as amend:
            tape.append(KEY, ["c"])
            batch, seen = batch_of(tape, store)
            offset, bad = tape.records[0][1].offset, events(store, KEY)[1]
            amend(seen, Correction(resolved=offset, remove=[bad], head=(KEY, head._replace(prev=1))))
            before = contents(store, tape.all_keys())
            with pytest.raises(Unavailable) as refused:
                store.write(batch, seen)
        assert refused.value.name == "Unavailable.serialization"
        assert refused.value.applied == "no"
        assert contents(store, tape.all_keys()) == before
        tape.carry(store)
        assert [(row.seq_nr, row.prev_seq_nr) for row in events(store, KEY)] == [(1, 0), (3, 1)]

    @pytest.mark.req("J76")
    def test_another_event_at_a_place_is_a_conflict(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY, ["a"])
        tape.carry(store)
        with tape.correcting(store) as amend:
            tape.append("order|other", ["x"])
            tape.append(KEY, ["b", "c", "d"])
            batch, _ = batch_of(tape, store)
            wanted = batch.cuts[-1].events[1]
            other = wanted._replace(body=wanted.body + b"!")
            other = other._replace(digest=zlib.crc32(other.body, Life(KEY, 1).seed))
            amend(store.pointers()[0], Correction(resolved=-1, replace=[other]))
        batch, seen = batch_of(tape, store)
        before = contents(store, tape.all_keys())
        if self.finds_conflicts:
            with pytest.raises(Corrupt) as refused:
                store.write(batch, seen)
            assert refused.value.name == "Corrupt.conflict"
            assert (refused.value.key, refused.value.seq_nr) == (KEY, 3)
            assert contents(store, tape.all_keys()) == before
            with tape.correcting(store) as amend:
                amend(seen, Correction(resolved=-1, replace=[wanted]))
        tape.carry(store)  # the very row is no conflict
        assert numbers(events(store, KEY)) == [1, 2, 3, 4]
        assert numbers(events(store, "order|other")) == [1]

    @pytest.mark.req("RJ6", "J77", "J106", "J11")
    @pytest.mark.parametrize("batch", [1, None])
    def test_a_purge_leaves_nothing(self, store: Store, batch: int | None) -> None:
        tape = Tape()
        tape.append(KEY, list(range(7)), tags=("red",))
        tape.append(KEY, ["bad"], damaged="digest")
        tape.append("order|stays", ["bad"], damaged="undecodable")
        if batch:
            tape.carry(store, size=batch)
            store.save(snapshot(3), 0)
            store.save(snapshot(5, key="order|stays"), 0)
        purge = tape.purge(KEY)
        tape.carry(store, size=batch)
        assert state(store, KEY) == EndedLife(1, 0, purge.offset)
        assert events(store, KEY) == []
        assert snapshots_of(store, KEY, 1) == []
        assert [row.key for row in quarantined(store)] == ["order|stays"]
        assert keys_of(store, "order", after=None, limit=10) == ["order|stays"]
        assert {row.key for row in events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=100).rows} == {"order|stays"}
        with pytest.raises(Conflict) as refused:
            store.save(snapshot(3), 0)
        assert refused.value.name == "Conflict.life_ended"
        assert last_snapshot(store, KEY, 1, from_=1, to=SEQ_NR_MAX) is None
        tape.append(KEY, ["again"])
        tape.carry(store)
        head = state(store, KEY)
        assert isinstance(head, Head)
        assert (head.life, head.seq_nr, head.delete_to) == (2, 1, 0)
        assert events(store, KEY, 1) == []
        assert numbers(events(store, KEY, 2)) == [1]
        with pytest.raises(Conflict):
            store.save(snapshot(3), 0)
        store.save(snapshot(1, life=2), 0)
        assert snapshots_of(store, KEY, 1) == []

    def test_lives_are_counted_on(self, store: Store) -> None:
        tape = Tape()
        for life in range(1, 6):
            tape.append(KEY, [life])
            assert tape.purge(KEY)
        tape.carry(store, size=3)
        assert state(store, KEY) == EndedLife(5, 0, tape.records[0][-1].offset)
        tape.delete(KEY, 4)
        tape.carry(store)
        head = state(store, KEY)
        assert isinstance(head, Head)
        assert (head.life, head.seq_nr, head.delete_to) == (6, 4, 4)
