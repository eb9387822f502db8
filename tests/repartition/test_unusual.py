"""Another number of partitions, of a journal that was restored, damaged or repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Event
from strandline.backup import backup, restore
from strandline.store.tables import JOURNAL
from strandline.testing import carry
from strandline.values.keys import key_partition
from tests.backup.conftest import Journals
from tests.reconcile.planting import KEYS, PLANTS, Hand, all_of, history, names, reconciled
from tests.repartition.places import Place, pair_of, seq_nr

PROVED = (
    "columns", "chain", "head", "deleted comes back", "row of an ended life", "snapshot of an ended life",
    "tag row missing", "tag number", "tag link", "tag bucket", "tag digest", "tag event", "tag doubled", "tag extra",
    "tag progress",
)  # fmt: skip
"""The differences that are corrected without a log that has the events."""


@pytest.mark.req("J124", "J118", "RR9")
def test_what_was_damaged_is_found_and_mended_behind_it(alike: Journals) -> None:
    """Damaged before and behind the change, which is no difference itself. No log proves events by then."""
    place = Place(alike, 8)
    with place.connect() as s:
        history(s)
    place.repartition(32)
    with place.connect() as s:
        clean, line = all_of(s), s.strandline()
        assert reconciled(s).findings == []
        hand = Hand(s)
        planted = sorted((kind, key, plant(hand, key)) for kind, key, plant in map(PLANTS.__getitem__, PROVED))
        assert names(reconciled(s).findings) == planted
    place.repartition(5)
    with place.connect() as s:
        assert s.strandline() >= line
        mended = reconciled(s, repair=True)
        assert names(mended.findings) == planted
        assert mended.unrepaired == []
        assert reconciled(s).findings == []
        rows = sorted(row._replace(partition=key_partition(row.key, 5)) for row in clean["events"])
        assert all_of(s) == {**clean, "events": rows}
        assert list(s.by_slices("order", 0, 1023))
        hand = Hand(s)
        hand.remove(JOURNAL, hand.event(KEYS[5], 3))
        assert names(reconciled(s, repair=True).unrepaired) == [("event_missing", KEYS[5], (3,))]
    place.repartition(8)
    with place.connect() as s:
        assert names(reconciled(s).findings) == [("event_missing", KEYS[5], (3,))]


@pytest.mark.req("J124", "RS4")
@pytest.mark.parametrize("alike", ["sqlite"], indirect=True)
def test_a_restored_journal_changes_its_log(alike: Journals, tmp_path: Path) -> None:
    """Beside the one that it was restored from, which goes on with its own log."""
    first, second = Place(alike, 8), Place(alike, 8, "second")
    with first.connect() as s:
        history(s)
        clean = all_of(s)
    backup(tmp_path / "copy", **first.where)
    second.where = alike.place("restored")
    restore(tmp_path / "copy", **second.where)
    second.where = pair_of(second.where)
    second.repartition(32)
    with first.connect() as s, second.connect() as restored:
        assert all_of(s) == clean
        rows = sorted(row._replace(partition=key_partition(row.key, 32)) for row in clean["events"])
        assert all_of(restored) == {**clean, "events": rows}
        assert restored.store.settings.history_id != s.store.settings.history_id
        for journal in (s, restored):
            last = seq_nr(journal, KEYS[5])
            assert journal.journal.append(KEYS[5], [Event("Later")]).last == last + 1
            carry(journal)
            assert reconciled(journal).findings == []
