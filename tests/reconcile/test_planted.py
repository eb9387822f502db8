"""Differences planted by hand, on every pairing of log and store: each is found once, with its name, and mended."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.connect import Strandline
from strandline.store.scans import put_back
from strandline.store.tables import JOURNAL, POINTER, SLICE_BUCKET, SLICE_VIEW
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.testing import LastWriteWinsStore
from strandline.testing.cells import CellTable
from tests.journal.worlds import last_write_wins
from tests.pairings import paired, pairing
from tests.reconcile.planting import KEYS, TAG, Hand, all_of, history, names, plants_of, reconciled

__all__ = ["paired", "pairing"]
pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")


def check_all(s: Strandline) -> None:
    """Plant every difference at once; find each, mend all, and find nothing more."""
    history(s)
    clean = all_of(s)
    report = reconciled(s)
    assert (report.findings, report.suspects, report.busy) == ([], 0, [])
    assert (report.events, report.keys, report.slices) == (len(clean["events"]), 23, 1024)
    every = reconciled(s, sample=1.0)
    assert (every.findings, every.events, every.tag_rows) == ([], report.events, report.tag_rows)
    hand = Hand(s)
    planted = sorted((kind, key, plant(hand, key)) for kind, key, plant in plants_of(s).values())
    assert names(reconciled(s).findings) == planted
    assert names(reconciled(s).findings) == planted, "looking changes nothing"
    mended = reconciled(s, repair=True)
    assert names(mended.findings) == planted
    assert mended.unrepaired == []
    assert all_of(s) == clean
    again = reconciled(s)
    assert (again.findings, again.suspects) == ([], 0)


@pytest.mark.req("J116", "J118", "T83", "RR9")
@pytest.mark.timeout(300)
def test_reconcile_names(paired: Strandline) -> None:
    """Scenario `reconcile-names`, for events, heads, snapshots and slices, too. What was put back is listed."""
    check_all(paired)
    listed = [row for part in range(paired.log.partitions) for row in put_back(paired.store, part)]
    events = {(row.key, row.seq_nr) for row in listed if row.tag is None}
    tags = {(row.key, row.seq_nr, row.tag) for row in listed if row.tag is not None}
    assert {(KEYS[5], 3), (KEYS[6], 4)} <= events
    assert events <= {(KEYS[5], 3), (KEYS[6], 4), (KEYS[20], 2)}, "what stood there all the time is not listed"
    assert (KEYS[12], 2, TAG) in tags


@pytest.mark.req("J116", "J118", "T83")
def test_reconcile_names_without_transactions() -> None:
    with last_write_wins(partitions=4, segment_size=3) as s:
        check_all(s)


@pytest.mark.req("J116", "J118")
def test_a_pointer_that_does_not_say_what_the_log_says(sqlite: Strandline) -> None:
    history(sqlite)
    pointer = sqlite.store.pointers()[3]
    _set_pointer(sqlite, pointer._replace(timestamp=pointer.timestamp - 7, last_action_at=pointer.timestamp - 9))
    report = reconciled(sqlite)
    assert [(f.kind, f.partition, f.repaired) for f in report.findings] == [("pointer_wrong", 3, False)]
    assert str(pointer.timestamp - 7) in report.findings[0].found
    assert [finding.repaired for finding in reconciled(sqlite, repair=True).findings] == [True]
    assert reconciled(sqlite).findings == []


def _set_pointer(s: Strandline, pointer: Any) -> None:
    with s.store._database.write() as tx:  # type: ignore[attr-defined]
        tx.execute("set_pointer", POINTER.stored(pointer))


@pytest.mark.req("J116", "J118", "RR9")
def test_what_the_kept_log_no_longer_proves_is_named_and_left_alone(sqlite: Strandline) -> None:
    """After a trim the chain and the head still name what is missing, and its own digest what is damaged."""
    history(sqlite)
    for pointer in sqlite.store.pointers():
        sqlite.log.trim(pointer.partition, to=pointer.offset, pointer=pointer.offset, keep_after=2**62)
    report = reconciled(sqlite)
    assert (report.findings, report.suspects, report.log_events) == ([], 0, 0)
    hand = Hand(sqlite)
    hand.remove(JOURNAL, hand.event(KEYS[5], 3))
    hand.remove(JOURNAL, hand.event(KEYS[6], 4))
    row = hand.event(KEYS[7], 2)
    hand.replace(JOURNAL, row, row._replace(body=row.body[:-1] + b"?"))
    planted = [
        ("event_different", KEYS[7], (2,)), ("event_missing", KEYS[5], (3,)), ("event_missing", KEYS[6], (4,)),
    ]  # fmt: skip
    assert names(reconciled(sqlite).findings) == planted
    left = reconciled(sqlite, repair=True)
    assert names(left.unrepaired) == planted
    assert names(reconciled(sqlite).findings) == planted


@pytest.mark.req("J116", "RR5")
def test_an_event_that_an_operator_skipped_is_no_difference(sqlite: Strandline) -> None:
    from strandline import Event
    from strandline.carry.resolve import resolve
    from strandline.testing import carry
    from tests.pipeline.test_pairings import draft_of

    key = KEYS[0]
    partition = sqlite.journal.append(key, [Event("Placed", 1, tags=[TAG])]).partition
    (recorded,) = sqlite.log.append([draft_of(key, partition, b"no value")])
    sqlite.journal.append(key, [Event("Sent", 4, tags=[TAG])])
    carry(sqlite)
    assert reconciled(sqlite).findings == [], "damaged as it was recorded"
    assert recorded.place is not None
    resolve(sqlite.log, sqlite.store, partition, recorded.place.offset, "skip", sqlite.settings)
    assert reconciled(sqlite).findings == []
    assert reconciled(sqlite, repair=True).findings == []
    assert [event.seq_nr for event in sqlite.journal.read(key)] == [1, 4]


@pytest.mark.req("J116", "J118", "RR8", "RR9", "T83")
@pytest.mark.parametrize("kind", ["sqlite", "last write wins"])
def test_views_that_were_dropped_are_made_again_row_for_row(kind: str, sqlite: Strandline) -> None:
    """Of deleted events the view alone had rows: these are named as lost, and nothing else is left to find."""
    s = sqlite if kind == "sqlite" else last_write_wins(partitions=4, segment_size=3)
    with s:
        history(s)
        clean = all_of(s)
        hand = Hand(s)
        drop_views(hand, clean)
        report = reconciled(s)
        rows = [row for tag in (TAG, "paid") for row in clean["tags"][tag]]
        kept = {(row.key, row.seq_nr) for row in clean["events"]}
        missing = {(f.key, f.seq_nrs[0], f.tag) for f in report.findings if f.kind == "tag_missing"}
        assert missing == {(row.key, row.seq_nr, row.tag) for row in rows if (row.key, row.seq_nr) in kept}
        reconciled(s, repair=True)
        made = all_of(s)
        for name in made:
            assert of_whole(made[name]) == of_whole(clean[name]), name
        assert [(e.seq_nr, e.key) for e in s.by_slices("order", 0, 1023)], "the buckets are listed again"
        again = reconciled(s)
        assert {finding.key for finding in again.findings} <= set(KEYS[:2])


def drop_views(hand: Hand, clean: dict[str, Any]) -> None:
    """Remove all rows of all views; where a removal would outlast what is put back, as TRUNCATE does it."""
    if isinstance(hand.store, LastWriteWinsStore):
        for table in (TAG_VIEW, TAG_PROGRESS, TAG_PLACE, TAG_BUCKET, SLICE_VIEW, SLICE_BUCKET):
            hand.store.tables[table.name] = CellTable()
        return
    for rows in clean["tags"].values():
        for row in rows:
            hand.remove(TAG_VIEW, row)
    for row in filter(None, clean["progress"]):
        hand.remove(TAG_PROGRESS, row)


def of_whole(found: Any) -> Any:
    """What is there of keys that never lost an event to a Delete."""
    if isinstance(found, dict):
        return {name: of_whole(some) for name, some in found.items() if name not in KEYS[:2]}
    if isinstance(found, list):
        return [row for row in found if row is not None and not set(KEYS[:2]) & set(map(str, row))]
    return found
