"""Digests of finished days, kept from run to run: what is read again, what shows at once, what when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from strandline import Event
from strandline.connect import Strandline
from strandline.errors import InvalidInput
from strandline.reconcile.findings import ReconcileReport
from strandline.reconcile.kept_days import END_OF_TIME, KeptDaysFile, days_passed_over, spans_without
from strandline.reconcile.tallies import DAY_US
from strandline.store.scans import ALL_EVENTS
from strandline.store.tables import JOURNAL
from strandline.store.tag_scans import BY_TIME
from strandline.store.tag_view import TAG_VIEW
from strandline.testing import FakeClock, carry
from strandline.testing.archive import archive_here
from tests.pairings import Pairing, pairing
from tests.reconcile.planting import TAG, Hand, names, reconciled

__all__ = ["pairing"]
SQL = pytest.mark.parametrize("pairing", ["sqlite-sqlite", "postgres-postgres"], indirect=True)
DAYS = 8
KEYS = [f"order|{number}" for number in range(6)]


@pytest.mark.req("J116")
@pytest.mark.parametrize(
    ("last_read", "share", "strandline", "passed_over"),
    [
        ({}, 0.05, 100, set()),
        ({1: 1, 2: 1, 3: 1}, 0.05, 100, {2, 3}),  # one at least is read again
        ({1: 2, 2: 1, 3: 1}, 0.05, 100, {1, 3}),  # the one that was read longest ago
        ({1: 2, 2: 3, 3: 1}, 0.5, 100, {2}),
        (dict.fromkeys(range(100), 1), 0.05, 100, set(range(5, 100))),
        ({1: 1, 2: 1, 3: 1}, 1.0, 100, set()),
        ({1: 1, 2: 1, 3: 1}, 0.01, 3, {2}),  # the strandline stands at the first moment of day 3
    ],
)
def test_which_days_are_passed_over(
    last_read: dict[int, int], share: float, strandline: int, passed_over: set[int]
) -> None:
    assert days_passed_over(last_read, share, strandline * DAY_US) == passed_over
    if strandline == 3:
        assert days_passed_over(last_read, share, 3 * DAY_US - 1) == set()


@pytest.mark.req("J116")
def test_all_days_come_round() -> None:
    last_read, seen = dict.fromkeys(range(90), 0), set[int]()
    for run in range(1, 21):
        read = set(last_read) - days_passed_over(last_read, 0.05, END_OF_TIME)
        assert len(read) == 5
        last_read.update(dict.fromkeys(read, run))
        seen |= read
    assert seen == set(range(90))


@pytest.mark.req("J116")
@pytest.mark.parametrize("days", [set(), {0}, {3}, {3, 4}, {1, 3, 4, 9}])
def test_spans_have_each_moment_of_the_other_days_once(days: set[int]) -> None:
    spans = spans_without(days)
    for day in range(12):
        for moment in (day * DAY_US, day * DAY_US + 5, (day + 1) * DAY_US - 1):
            assert sum(first <= moment <= last for first, last in spans) == (day not in days)
    assert (spans[0][0], spans[-1][1]) == (-1, END_OF_TIME)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def s(pairing: Pairing, clock: FakeClock) -> Iterator[Strandline]:
    """A journal in which each key got two tagged events on each of some days; the day after has begun."""
    with pairing.connect(clock=clock) as s:
        for _ in range(DAYS):
            a_day(s, clock)
        yield s


def a_day(s: Strandline, clock: FakeClock) -> None:
    """Let each key get two events, and a day go by; all of it is carried."""
    s.journal.append_many([(key, [Event("Placed", 1, tags=[TAG]), Event("Paid", 2, tags=[TAG])]) for key in KEYS])
    clock.advance(86_400)
    s.journal.append("morning|1", [Event("Morning", 1)])
    carry(s)


class Reads:
    """The rows of a table that a store gives out, counted."""

    def __init__(self, s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, list[Any]] = {JOURNAL.name: [], TAG_VIEW.name: []}
        real = s.store.scan

        def scan(scan: Any, *given: Any, **more: Any) -> Any:
            page = real(scan, *given, **more)
            if scan is ALL_EVENTS or scan is BY_TIME:
                self.rows[scan.table.name] += page.rows
            return page

        monkeypatch.setattr(s.store, "scan", scan)

    def taken(self) -> tuple[int, int]:
        """Events and tag rows since the last call."""
        found = tuple(len(self.rows[table.name]) for table in (JOURNAL, TAG_VIEW))
        for rows in self.rows.values():
            rows.clear()
        return found  # type: ignore[return-value]


@pytest.fixture
def run(s: Strandline, tmp_path: Path) -> Callable[..., ReconcileReport]:
    """Reconcile with a file of kept days."""

    def run(share: float = 0.05, **how: Any) -> ReconcileReport:
        keep = KeptDaysFile(tmp_path / "kept.json", s.store.settings.history_id, share)
        return reconciled(s, keep=keep, **how)

    return run


A_DAY = 2 * len(KEYS)


@SQL
@pytest.mark.req("J116")
def test_the_next_run_reads_what_is_new_and_a_share_of_what_is_old(
    s: Strandline, clock: FakeClock, run: Callable[..., ReconcileReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(s, monkeypatch)
    first = run()
    assert (first.findings, first.days_passed_over, first.suspects) == ([], 0, 0)
    assert reads.taken()[0] == first.events == DAYS * (A_DAY + 1)
    again = run()
    assert (again.findings, again.days_passed_over, again.slices_reread) == ([], DAYS - 1, 0)
    events, tag_rows = reads.taken()
    assert events == again.events == A_DAY + 1, "the first day; of the last one what its morning had"
    assert again.tag_rows == A_DAY
    assert tag_rows < 2 * A_DAY, "the view's first rows tell where it begins"
    a_day(s, clock)
    reads.taken()
    third = run()
    assert (third.findings, third.days_passed_over, third.slices_reread) == ([], DAYS - 1, 0)
    assert reads.taken()[0] == third.events == 2 * (A_DAY + 1) + 1, "the second day, the new one, and this morning"
    assert run(0.5).days_passed_over == (DAYS + 1) // 2
    whole = run(1.0)
    assert (whole.findings, whole.days_passed_over, whole.events) == ([], 0, (DAYS + 1) * (A_DAY + 1))


@SQL
@pytest.mark.req("J116")
def test_damage_in_an_old_day_shows_when_its_turn_comes_or_at_once(
    s: Strandline, run: Callable[..., ReconcileReport], tmp_path: Path
) -> None:
    run()
    hand = Hand(s)
    row = hand.event(KEYS[2], 5)  # of the third day
    hand.replace(JOURNAL, row, row._replace(body=row.body[:-1] + bytes([row.body[-1] ^ 1])))
    hand.remove(TAG_VIEW, hand.tag_row(KEYS[3], 5))
    planted = [("event_different", KEYS[2], (5,)), ("tag_missing", KEYS[3], (5,))]
    kept = (tmp_path / "kept.json").read_bytes()
    assert [names(run().findings) for _ in range(4)] == [[], [], planted, planted], "and from then on"
    (tmp_path / "kept.json").write_bytes(kept)
    assert names(run(1.0).findings) == planted
    assert [finding.repaired for finding in run(repair=True).findings] == [True, True]
    mended = run()
    assert (mended.findings, mended.slices_reread) == ([], 2), "what was repaired is looked at once more"
    assert (run().slices_reread, reconciled(s).findings) == (0, [])


@SQL
@pytest.mark.req("J116", "J117")
def test_kept_sums_that_no_longer_hold_are_no_finding(
    s: Strandline, clock: FakeClock, run: Callable[..., ReconcileReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    s.journal.delete(KEYS[0], to=7)
    s.journal.purge(KEYS[1])
    s.journal.append(KEYS[1], [Event("Placed", "again", tags=[TAG])])
    carry(s)
    reads = Reads(s, monkeypatch)
    changed = run()
    assert (changed.findings, changed.suspects, changed.slices_reread) == ([], 0, 2)
    assert reads.taken()[0] - changed.events == 2 * DAYS - 7 + 1, "of the old days, what these two keys have"
    quiet = run()
    assert (quiet.findings, quiet.slices_reread, quiet.days_passed_over) == ([], 0, DAYS - 1)
    a_day(s, clock)
    hand = Hand(s)
    hand.remove(JOURNAL, hand.event(KEYS[0], 2 * DAYS + 1))
    assert names(run().findings) == [("event_missing", KEYS[0], (2 * DAYS + 1,))], "what is new is compared"
    hand.put_head(KEYS[4], hand.head(KEYS[4])._replace(seq_nr=3, prev=3))
    assert ("head_wrong", KEYS[4], ()) in names(run().findings), "all heads are, with kept sums"


@SQL
@pytest.mark.req("J116", "J120")
def test_what_left_for_an_archive_still_fits(
    s: Strandline, run: Callable[..., ReconcileReport], tmp_path: Path
) -> None:
    run()
    assert archive_here(s, tmp_path / "archive", s.strandline() + 1).removed > 0
    for _ in range(2):
        report = run()
        assert (report.findings, report.days_passed_over, report.slices_reread) == ([], DAYS - 1, 0)
    s.journal.delete(KEYS[0], to=7)
    carry(s)
    assert [(report.findings, report.slices_reread) for report in (run(), run())] == [([], 1), ([], 0)]


@SQL
@pytest.mark.req("J116")
def test_a_file_of_another_history_keeps_nothing_and_a_foreign_one_is_left_alone(
    s: Strandline, run: Callable[..., ReconcileReport], tmp_path: Path
) -> None:
    path = tmp_path / "kept.json"
    run()
    for name, value in (("history_id", "0" * 32), ("form", "strandline kept days 0")):
        told = orjson.loads(path.read_bytes())
        path.write_bytes(orjson.dumps({**told, name: value}))
        assert run().days_passed_over == 0
        assert run().days_passed_over == DAYS - 1
    for foreign in (b"", b"[]", b'{"form": "notes"}', b'{"form": "strandline kept days 1"}', b"\xff"):
        path.write_bytes(foreign)
        with pytest.raises(InvalidInput):
            run()
        assert path.read_bytes() == foreign
    with pytest.raises(InvalidInput):
        KeptDaysFile(tmp_path / "nowhere" / "kept.json", s.store.settings.history_id)
    assert sorted(each.name for each in tmp_path.glob("kept*")) == ["kept.json"]


@SQL
@pytest.mark.req("J116")
def test_a_sample_of_one_percent_reads_events_of_one_percent_of_slices(
    s: Strandline, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.journal.append_many([(f"many|{number}", [Event("Placed", 1)]) for number in range(2000)])
    carry(s)
    reads = Reads(s, monkeypatch)
    report = reconciled(s, sample=0.01, start=0.3)
    assert (report.findings, report.slices) == ([], 8), "one of the 128 of each partition"
    rows = reads.rows[JOURNAL.name]
    assert 0 < len({row.slice for row in rows}) <= 8
    assert 0 < report.events == len(rows) < 100
