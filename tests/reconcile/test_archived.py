"""Repair from an archive whose files are ahead of the heads: what was recorded comes back, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import strandline
from strandline import Event, InvalidInput
from strandline.backup import backup, restore
from strandline.connect import Strandline
from strandline.store.tables import JOURNAL
from strandline.testing import carry
from strandline.testing.archive import archive_here
from tests.reconcile.planting import KEYS, TAG, Hand, all_of, history, names, reconciled

KEY = KEYS[5]


def record(s: Strandline, number: int) -> None:
    for key in KEYS[4:8]:
        s.journal.append(key, [Event("More", {"n": number}, tags=[TAG]), Event("And", b"\x00")])
    carry(s)


def trim(s: Strandline) -> None:
    """Let the log prove nothing more."""
    for at in s.store.pointers():
        s.log.trim(at.partition, to=at.offset, pointer=at.offset, keep_after=2**62)


def line(s: Strandline) -> int:
    return s.strandline() + 1


@pytest.fixture
def ahead(sqlite: Strandline, tmp_path: Path) -> Strandline:
    """Events 1 to 4 of each key left the store; 5 to 8 are in the files, and stand in the store as well."""
    history(sqlite)
    archive_here(sqlite, tmp_path / "archive", line(sqlite))
    record(sqlite, 1)
    record(sqlite, 2)
    archive_here(sqlite, tmp_path / "archive", line(sqlite), remove=False)
    trim(sqlite)
    return sqlite


@pytest.mark.req("J118", "J120", "J121")
def test_what_the_files_prove_comes_back(ahead: Strandline) -> None:
    """The first that is in the store alone, one in the middle, the last; and one that is damaged."""
    clean, events = all_of(ahead), list(ahead.journal.read(KEY))
    assert [event.seq_nr for event in events] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reconciled(ahead).findings == []
    hand = Hand(ahead)
    for number in (5, 6, 8):
        hand.remove(JOURNAL, hand.event(KEY, number))
    row = hand.event(KEY, 7)
    hand.replace(JOURNAL, row, row._replace(body=row.body[:-1] + b"\x01"))
    planted = [("event_different", KEY, (7,)), *(("event_missing", KEY, (number,)) for number in (5, 6, 8))]
    report = reconciled(ahead)
    assert names(report.findings) == planted
    assert report.findings[0].expected in ("what the archive has", "a row")
    mended = reconciled(ahead, repair=True)
    assert (names(mended.findings), mended.unrepaired) == (planted, [])
    assert all_of(ahead) == clean
    assert list(ahead.journal.read(KEY)) == events
    again = reconciled(ahead)
    assert (again.findings, again.suspects) == ([], 0)


@pytest.mark.req("J118", "J121", "RR9")
def test_what_was_deleted_or_purged_since_stays_away(ahead: Strandline) -> None:
    ahead.journal.delete(KEY, to=6)
    ahead.journal.purge(KEYS[6])
    ahead.journal.append(KEYS[6], [Event("Again", n) for n in range(6)])
    carry(ahead)
    trim(ahead)
    hand = Hand(ahead)
    hand.remove(JOURNAL, hand.event(KEY, 7))
    hand.remove(JOURNAL, hand.event(KEYS[6], 5))
    mended = reconciled(ahead, repair=True)
    assert names(mended.findings) == [("event_missing", KEY, (7,)), ("event_missing", KEYS[6], (5,))]
    assert names(mended.unrepaired) == [("event_missing", KEYS[6], (5,))]
    assert [event.seq_nr for event in ahead.journal.read(KEY)] == [7, 8]


@pytest.mark.req("J118", "J120", "RS4")
@pytest.mark.parametrize("copied", [False, True], ids=["beside the first", "in a copy"])
def test_a_restored_journal_takes_nothing_of_the_first_ones_later_events(tmp_path: Path, copied: bool) -> None:
    """Both have events 5 and 6, which are in the files of the first journal. It goes on in a copy without these."""
    url, other, folder = f"sqlite:{tmp_path}/first", f"sqlite:{tmp_path}/restored", tmp_path / "archive"
    with strandline.connect(url) as s:
        history(s)
        archive_here(s, folder, line(s))
        backup(tmp_path / "backup", url)
        record(s, 1)
        archive_here(s, folder, line(s), remove=False)
    restore(tmp_path / "backup", other)
    with strandline.connect(other) as s:
        s.journal.append(KEY, [Event("Other", 1), Event("Other", 2)])
        carry(s)
        if copied:
            shutil.copytree(folder, tmp_path / "copy")
            assert archive_here(s, tmp_path / "copy", line(s)).removed == 2
            assert [event.type for event in s.journal.read(KEY)][4:] == ["Other", "Other"]
            s.journal.append(KEY, [Event("Other", 3), Event("Other", 4)])
            carry(s)
            archive_here(s, tmp_path / "copy", line(s), remove=False)
        trim(s)
        hand, gone = Hand(s), 7 if copied else 5
        hand.remove(JOURNAL, hand.event(KEY, gone))
        mended = reconciled(s, repair=True)
        assert names(mended.findings) == [("event_missing", KEY, (gone,))]
        assert bool(mended.unrepaired) is not copied
        if copied:
            assert [event.payload for event in s.journal.read(KEY)][4:] == [1, 2, 3, 4]
            assert reconciled(s).findings == []


@pytest.mark.req("J120", "RS4")
def test_a_copy_with_a_file_from_before_and_after_the_backup_is_refused(tmp_path: Path) -> None:
    url, other, folder = f"sqlite:{tmp_path}/first", f"sqlite:{tmp_path}/restored", tmp_path / "archive"
    with strandline.connect(url) as s:
        history(s)
        before = line(s)
        record(s, 1)
        archive_here(s, folder, line(s), remove=False)
        archive_here(s, folder, before)
        backup(tmp_path / "backup", url)
    restore(tmp_path / "backup", other)
    shutil.copytree(folder, tmp_path / "copy")
    with strandline.connect(other) as s:
        record(s, 2)
        with pytest.raises(InvalidInput) as refused:
            archive_here(s, tmp_path / "copy", line(s))
        assert refused.value.code == "archive_path"
        assert [event.seq_nr for event in s.journal.read(KEY)] == [1, 2, 3, 4, 5, 6, 7, 8]
