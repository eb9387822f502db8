"""What becomes of an entry: the rules, field by field, without a database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.work import rules
from strandline.work.dates import period_end
from strandline.work.declaration import WorkSettings
from strandline.work.entries import BEHIND, LAPSED, PROCESSING, READY, SOON, EntryDraft, EntryRow
from strandline.work.rotation import RING_MAX, TableState, is_over, most_to_move, next_slot
from strandline.work.rules import Moment

NOW = 1_800_000_000_000_000
S = 1_000_000
NUMBER = 99
SETTINGS = WorkSettings()


def row(**more: Any) -> EntryRow:
    base = EntryRow(1, 7, 7, b"h" * 16, b"{}", 1, 20, NOW - 5 * S, NOW - 9 * S, NOW - 9 * S, 0, 0, 2, data=b"{}")
    return base._replace(**more)


def draft(**more: Any) -> EntryDraft:
    return EntryDraft(b"{}", b"h" * 16, b"[]", 2, 20, None, None, 0)._replace(**more)


def merged(old: EntryRow, new: EntryDraft, **settings: Any) -> EntryRow:
    return rules.added(new, old, WorkSettings(**settings), NOW, NUMBER, behind=False).row


@pytest.mark.req("W25")
@pytest.mark.parametrize(
    ("field", "before", "given", "after"),
    [
        ("priority", 20, 10, 10),
        ("priority", 20, 20, 20),
        ("priority", 20, 30, 20),
        ("expiration_date", NOW + 5, NOW + 4, NOW + 5),
        ("expiration_date", NOW + 5, NOW + 5, NOW + 5),
        ("expiration_date", NOW + 5, NOW + 6, NOW + 6),
        ("expiration_date", NOW + 5, 0, 0),
        ("expiration_date", 0, NOW + 6, 0),
        ("process_date", NOW + 5, NOW + 4, NOW + 5),
        ("process_date", NOW + 5, NOW + 5, NOW + 5),
        ("process_date", NOW + 5, NOW + 6, NOW + 6),
    ],
)
def test_a_field_of_a_merge(field: str, before: int, given: int, after: int) -> None:
    assert getattr(merged(row(**{field: before}), draft(**{field: given})), field) == after


@pytest.mark.req("W25", "W27")
def test_what_a_merge_keeps_and_what_it_resets() -> None:
    old = row(status=LAPSED, fence=9, counter=2, start_date=NOW - 2 * S, retry_date=NOW + 60 * S)
    new = merged(old, draft())
    assert (new.id, new.number, new.insertion_date, new.started) == (7, NUMBER, NOW - 9 * S, NOW - 2 * S)
    assert merged(old, draft(number=5)).number == 5, "data that was stored before"
    assert (new.counter, new.fence, new.retry_date, new.status) == (0, 0, 0, "W")
    assert (new.data, new.version, new.revised_date, new.place) == (b"[]", 2, NOW, READY)


@pytest.mark.req("W6", "W26")
def test_how_far_merges_move_a_date() -> None:
    old = row(process_date=NOW, insertion_date=NOW - 5 * S)
    assert merged(old, draft(process_date=NOW + 60 * S), merge_process_date="smallest").process_date == NOW
    assert merged(old, draft(process_date=NOW + 60 * S), max_delay_s=15.0).process_date == NOW + 10 * S
    assert merged(old, draft(process_date=NOW + 60 * S), max_delay_s=1.0).process_date == NOW


@pytest.mark.req("W30")
def test_older_data_merges_its_minima_and_maxima_alone() -> None:
    old = row(revised_date=NOW, counter=1, fence=9, retry_date=NOW + 3 * S)
    outcome, new = rules.added(
        draft(insertion_date=NOW - 1, priority=1, process_date=NOW + 30 * S), old, SETTINGS, NOW, NUMBER, behind=False
    )
    assert outcome == "stale"
    assert (new.data, new.number, new.counter, new.retry_date, new.fence) == (b"{}", 7, 1, NOW + 3 * S, 9)
    assert (new.priority, new.process_date, new.revised_date) == (1, NOW + 30 * S, NOW)
    outcome, new = rules.added(draft(insertion_date=NOW), old, SETTINGS, NOW, NUMBER, behind=False)
    assert (outcome, new.data) == ("merged", b"[]")


@pytest.mark.req("W9", "W10")
def test_dates_of_a_new_entry() -> None:
    new = rules.added(draft(), None, SETTINGS, NOW, NUMBER, behind=False).row
    assert (new.insertion_date, new.process_date, new.expiration_date, new.place) == (NOW, NOW, 0, READY)
    assert (new.id, new.number) == (NUMBER, NUMBER)
    early = draft(insertion_date=NOW + 5, process_date=NOW - 5)
    ahead = rules.added(early, None, SETTINGS, NOW, NUMBER, behind=False).row
    assert (ahead.process_date, ahead.place) == (NOW + 5, SOON)
    old = row(revised_date=NOW + 50)
    assert merged(old, draft()).revised_date == NOW + 50, "never below what was accepted"


@pytest.mark.req("W23")
def test_an_add_to_a_running_key_goes_behind() -> None:
    outcome, new = rules.added(draft(), None, SETTINGS, NOW, NUMBER, behind=True)
    assert (outcome, new.place) == ("behind", BEHIND)
    outcome, again = rules.added(draft(priority=1), new, SETTINGS, NOW, NUMBER, behind=True)
    assert (outcome, again.place, again.priority) == ("merged", BEHIND, 1)


@pytest.mark.req("W38", "W40", "W46", "W48")
def test_the_end_of_a_claim() -> None:
    held = row(status=PROCESSING, fence=9, counter=0)
    again = rules.lapsed(held, SETTINGS, NOW)
    assert isinstance(again, EntryRow)
    assert (again.status, again.counter, again.place) == (LAPSED, 1, READY)
    assert rules.lapsed(held._replace(counter=2), SETTINGS, NOW) == rules.DEAD
    never = WorkSettings(max_timeouts=0)
    stays = rules.lapsed(held._replace(counter=255), never, NOW)
    assert isinstance(stays, EntryRow)
    assert stays.counter == 255
    assert rules.lapsed(held._replace(expiration_date=NOW - 1, counter=2), SETTINGS, NOW) == rules.GONE
    released = rules.released(held._replace(counter=2), NOW)
    assert isinstance(released, EntryRow)
    assert (released.status, released.counter, released.fence) == ("W", 2, 9)
    for counter, delay_s in enumerate([1, 2, 4, 8]):
        failed = rules.failed(held._replace(counter=counter), never, NOW, None)
        assert isinstance(failed, EntryRow)
        assert (failed.retry_date, failed.place) == (NOW + delay_s * S, SOON)
    most = rules.failed(held._replace(counter=200), never, NOW, None)
    assert isinstance(most, EntryRow)
    assert most.retry_date == NOW + 3600 * S
    given = rules.failed(held, SETTINGS, NOW, 0)
    assert isinstance(given, EntryRow)
    assert given.place == READY


@pytest.mark.req("W38", "W47")
def test_to_the_microsecond() -> None:
    held = row(status=PROCESSING, fence=9, beat=NOW, lease=30 * S)
    assert not rules.lease_over(held, Moment(0, NOW + 30 * S))
    assert rules.lease_over(held, Moment(0, NOW + 30 * S + 1))
    assert not rules.expired(row(expiration_date=NOW), NOW)
    assert rules.expired(row(expiration_date=NOW - 1), NOW)
    assert not rules.expired(row(expiration_date=0), NOW)


@pytest.mark.req("W28")
def test_a_fold() -> None:
    ended = row(
        id=3, number=3, priority=5, insertion_date=NOW - 60 * S, revised_date=NOW - 60 * S, start_date=NOW - 4,
        counter=2, fence=8, status=LAPSED, expiration_date=NOW + 9, process_date=NOW - 60 * S,
    )  # fmt: skip
    waiting = row(id=4, number=4, data=b"new", size=3, revised_date=NOW - 1, expiration_date=NOW + 5, place=BEHIND)
    both = rules.folded(ended, waiting, SETTINGS, NOW)
    assert (both.id, both.data, both.number, both.insertion_date) == (4, b"new", 4, NOW - 60 * S)
    assert (both.priority, both.expiration_date, both.process_date) == (5, NOW + 9, waiting.process_date)
    assert (both.counter, both.fence, both.started, both.place) == (0, 0, NOW - 4, READY)
    newer = rules.folded(ended._replace(revised_date=NOW), waiting, SETTINGS, NOW)
    assert (newer.id, newer.data, newer.number, newer.revised_date) == (4, b"{}", 3, NOW)


@pytest.mark.req("W49")
@pytest.mark.parametrize(
    ("period", "opened", "end"),
    [
        ("hour", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        ("day", datetime(2026, 2, 28, 12, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        ("month", datetime(2026, 12, 5, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        ("month", datetime(2026, 1, 31, 5, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)),
    ],
)
def test_periods_end_in_utc(period: str, opened: datetime, end: datetime) -> None:
    start, over = round(opened.timestamp() * S), round(end.timestamp() * S)
    assert period_end(start, period) == over
    table = TableState(1, "current", start, 0, 1, 0)
    settings = WorkSettings(table_period=period)
    assert not is_over(table, over - 1, 5, 0, settings)
    assert is_over(table, over, 5, 0, settings)
    assert not is_over(table, over, 0, 0, settings), "nothing was written: nothing closes"
    assert not is_over(table, over * 2, 5, 0, WorkSettings(table_period="none"))


@pytest.mark.req("W49", "W50")
def test_tables_close_by_rows_and_bytes_and_move_what_is_left() -> None:
    table = TableState(1, "current", NOW, 0, 101, 0)
    settings = WorkSettings(table_rows_max=10, table_bytes_max=65_536)
    assert not is_over(table, NOW, 109, 65_535, settings)
    assert is_over(table, NOW, 110, 0, settings)
    assert is_over(table, NOW, 101, 65_536, settings)
    closed = table._replace(state="closed", last_number=200)
    assert (most_to_move(closed, 2), most_to_move(closed, 8)) == (10, 10)
    assert most_to_move(closed, 9) == 50
    assert next_slot([table]) == 2
    assert next_slot([table, closed._replace(slot=2, state="empty")]) == 2
    assert next_slot([closed._replace(slot=slot) for slot in range(1, RING_MAX + 1)]) is None
