"""Lease, quarantine and snapshots."""

# ruff: noqa: S101
from __future__ import annotations

import zlib

import pytest

from strandline.errors import LeaseHeld, LeaseLost, Unavailable
from strandline.store.api import Store
from strandline.store.correction import Correction
from strandline.store.scans import events_of, last_snapshot, quarantined, quarantined_at, snapshots_of
from strandline.testing.store_contract.made import (
    KEY,
    MadeStore,
    Make,
    batch_of,
    contents,
    events,
    numbers,
    settings_of,
    snapshot,
)
from strandline.testing.tape import START_US, Tape
from strandline.values.events import Life
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import key_partition


class KeepingContract(MadeStore):
    """Lease, quarantine, snapshots."""

    @pytest.mark.req("RR3")
    def test_one_pipeline_at_a_time(self, store: Store) -> None:
        first = store.lease().take("host-a, process 1")
        first.check()
        holder = store.lease().holder()
        assert holder is not None
        assert holder[0] == "host-a, process 1"
        assert holder[1] > START_US - 10**15
        with pytest.raises(LeaseHeld) as refused:
            store.lease().take("host-b, process 2")
        assert (refused.value.holder, refused.value.since) == holder
        assert store.lease().holder() == holder
        first.release()
        first.release()
        assert store.lease().holder() is None
        second = store.lease().take("host-b, process 2")
        assert second.fence > first.fence
        assert [pointer.fence for pointer in store.pointers()] == [second.fence]
        second.check()
        with pytest.raises(LeaseLost):
            first.check()
        first.release()
        assert store.lease().holder() is not None
        second.release()

    @pytest.mark.req("RR3", "J74", "J83")
    def test_a_lost_fence_cannot_write(self, make: Make) -> None:
        store, tape = make(settings_of(partitions=2)), Tape(2)
        first = store.lease().take("first")
        tape.append(KEY, ["a"])
        tape.carry(store, fence=first.fence)
        tape.append(KEY, ["b"])
        tape.purge("order|1")
        partition = key_partition(KEY, 2)
        foreign = tape.foreign(partition)
        batch, seen = batch_of(tape, store, partition)
        first.release()
        second = store.lease().take("second")
        before = contents(store, tape.all_keys())
        for stale in (seen, store.pointers()[partition]):
            with pytest.raises(LeaseLost) as refused:
                store.write(batch, stale)
            assert refused.value.name == "LeaseLost.lease_lost"
        assert contents(store, tape.all_keys()) == before
        assert quarantined(store) == []
        tape.carry(store, fence=second.fence)
        assert numbers(events(store, KEY)) == [1, 2]
        assert [row.offset for row in quarantined(store)] == [foreign.offset]

    @pytest.mark.req("J94", "J95", "RJ7")
    def test_the_quarantine_lists_what_the_pointer_passed(self, make: Make) -> None:
        store, tape = make(settings_of(partitions=2)), Tape(2)
        tape.append(KEY, ["good"])
        bad = tape.append(KEY, ["b", "c"], damaged="undecodable")
        foreign = tape.foreign(key_partition(KEY, 2))
        other = tape.foreign(1 - foreign.partition)
        tape.append(KEY, ["d"])
        tape.carry(store, size=2)
        listed = quarantined(store)
        assert [(row.partition, row.offset) for row in listed] == sorted(
            (record.partition, record.offset) for record in (bad, foreign, other)
        )
        found = quarantined_at(store, bad.partition, bad.offset)
        assert found is not None
        assert (found.reason, found.key, found.life, found.first, found.last) == ("undecodable", KEY, 1, 2, 3)
        assert (found.header, found.value, found.timestamp) == (bad.header, bad.value, bad.timestamp)
        listed_foreign = quarantined_at(store, foreign.partition, foreign.offset)
        assert listed_foreign is not None
        assert (listed_foreign.reason, listed_foreign.life, listed_foreign.header) == ("foreign", None, None)
        assert quarantined(store, limit=2) == listed[:2]
        assert [(row.seq_nr, row.event.damaged) for row in events(store, KEY)] == [
            (1, False),
            (2, True),
            (3, True),
            (4, False),
        ]

    @pytest.mark.req("J98", "P16")
    @pytest.mark.parametrize("at", ["first", "middle", "last"])
    def test_a_skipped_event_is_a_gap(self, store: Store, at: str) -> None:
        tape = Tape()
        if at != "first":
            tape.append(KEY, ["a", "b"])
        bad = tape.append(KEY, ["c", "d"], damaged="digest")
        if at != "last":
            tape.append(KEY, ["e"])
        tape.carry(store)
        revision = store.pointers()[0].revision
        tape.resolve(store, bad.offset, "skip")
        assert store.pointers()[0].revision > revision
        assert quarantined(store) == []
        tape.append(KEY, ["f"])
        tape.carry(store)
        rows = events(store, KEY)
        assert [row.event.damaged for row in rows] == [False] * len(rows)
        assert [(row.seq_nr, row.prev_seq_nr) for row in rows] == {
            "first": [(3, 0), (4, 3)],
            "middle": [(1, 0), (2, 1), (5, 2), (6, 5)],
            "last": [(1, 0), (2, 1), (5, 2)],
        }[at]
        assert events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=100).rows == rows

    @pytest.mark.req("J98")
    @pytest.mark.parametrize("followed", [True, False])
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_neighbours_are_skipped_one_after_the_other(
        self, store: Store, order: tuple[int, int], followed: bool
    ) -> None:
        tape = Tape()
        tape.append(KEY, ["a"])
        bad = [tape.append(KEY, ["b"], damaged="digest"), tape.append(KEY, ["c"], damaged="undecodable")]
        if followed:
            tape.append(KEY, ["d"])
        tape.carry(store)
        for index in order:
            tape.resolve(store, bad[index].offset, "skip")
        tape.append(KEY, ["e"])
        tape.carry(store)
        chain = [(row.seq_nr, row.prev_seq_nr) for row in events(store, KEY)]
        assert chain == ([(1, 0), (4, 1), (5, 4)] if followed else [(1, 0), (4, 1)])

    def test_amended_rows_take_the_place_of_others(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY, ["a"])
        tape.append(KEY, ["b"], damaged="undecodable")  # as young as the pointer
        tape.carry(store)
        bad = events(store, KEY)[1]
        mended = bad._replace(body=bad.body + b'"b"')
        mended = mended._replace(digest=zlib.crc32(mended.body, Life(KEY, 1).seed))
        offset = bad.event.log_offset
        with tape.correcting(store) as amend:
            (pointer,) = store.pointers()
            amend(pointer, Correction(resolved=offset, replace=[mended]))
            before = contents(store, tape.all_keys())
            with pytest.raises(Unavailable) as refused:
                amend(pointer, Correction(resolved=offset, remove=[mended]))
        assert refused.value.name == "Unavailable.serialization"
        assert contents(store, tape.all_keys()) == before
        assert events(store, KEY)[1] == mended
        assert events_of(store, 0, after=(0, 0), to=SEQ_NR_MAX, limit=10).rows[1] == mended
        assert quarantined(store) == []

    @pytest.mark.req("J98")
    def test_where_a_correction_needs_the_lease_it_is_not_made_without(self, store: Store) -> None:
        tape = Tape()
        bad = tape.append(KEY, ["a"], damaged="digest")
        tape.carry(store)
        with tape.correcting(store) as amend:
            if store.lease().holder() is None:
                return  # a lock keeps others out
        before = contents(store, tape.all_keys())
        with pytest.raises(LeaseLost):
            amend(store.pointers()[0], Correction(resolved=bad.offset))
        lease = store.lease().take("pipeline")
        with pytest.raises(LeaseHeld):
            tape.resolve(store, bad.offset, "skip")
        assert contents(store, tape.all_keys()) == before
        lease.release()
        tape.resolve(store, bad.offset, "skip")
        assert quarantined(store) == []

    @pytest.mark.req("J89")
    def test_what_a_pipeline_says_of_its_errors_is_kept_for_its_time(self, store: Store) -> None:
        assert store.lease().reported() == {}
        lease = store.lease().take("first")
        store.lease().report(lease.fence, {3: "no space", 0: "é"})
        assert store.lease().reported() == {3: "no space", 0: "é"}
        store.lease().report(lease.fence + 1, {1: "not yours"})
        assert store.lease().reported() == {3: "no space", 0: "é"}
        store.lease().report(lease.fence, {})
        assert store.lease().reported() == {}
        store.lease().report(lease.fence, {3: "again"})
        lease.release()
        assert store.lease().reported() == {3: "again"}
        store.lease().take("second")
        assert store.lease().reported() == {}

    @pytest.mark.req("J104", "J105", "J106")
    def test_snapshots(self, store: Store) -> None:
        tape = Tape()
        tape.append(KEY, list(range(9)))
        tape.carry(store)
        for seq_nr in (7, 2, 5):
            store.save(snapshot(seq_nr, state=str(seq_nr).encode()), 0)
        store.save(snapshot(5, key="order|other"), 0)
        listed = snapshots_of(store, KEY, 1)
        assert [row[0] for row in listed] == [2, 5, 7]
        loaded = last_snapshot(store, KEY, 1, from_=1, to=6)
        assert loaded is not None
        assert loaded == snapshot(5, state=b"5")
        assert last_snapshot(store, KEY, 1, from_=3, to=4) is None
        assert last_snapshot(store, KEY, 2, from_=1, to=9) is None
        store.save(snapshot(5, state=b"again"), 0)
        loaded = last_snapshot(store, KEY, 1, from_=5, to=5)
        assert loaded is not None
        assert loaded.state == b"again"
        tape.delete(KEY, 9, 1)
        tape.carry(store)
        assert [row[0] for row in snapshots_of(store, KEY, 1)] == [2, 5, 7]
        assert store.remove(KEY, 1, to=5) == 2
        assert store.remove(KEY, 1, to=5) == 0
        assert [row[0] for row in snapshots_of(store, KEY, 1)] == [7]
        assert [row[0] for row in snapshots_of(store, "order|other", 1)] == [5]
        store.save(snapshot(5, state=b"once more"), 0)
        assert [row[0] for row in snapshots_of(store, KEY, 1)] == [5, 7]

    @pytest.mark.req("J105")
    def test_a_snapshot_may_be_ahead_of_the_store(self, store: Store) -> None:
        tape = Tape()
        store.save(snapshot(3), 0)  # its life is still in the log alone
        tape.append(KEY, list(range(3)))
        tape.carry(store)
        store.save(snapshot(1, life=2), 0)  # purge and append are still in the log
        tape.purge(KEY)
        tape.append(KEY)
        tape.carry(store)
        assert snapshots_of(store, KEY, 1) == []
        assert [row[0] for row in snapshots_of(store, KEY, 2)] == [1]
