"""Keys whose time has passed are purged, by the log's clock, and never one that was revived."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import strandline
from strandline import Event, Key
from strandline.connect import Strandline
from strandline.pipeline.expiry import purge_expired
from strandline.store.scans import entity_types_of
from strandline.testing import FakeClock, carry

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/shop"


@pytest.fixture
def s(url: str, clock: FakeClock) -> Iterator[Strandline]:
    with strandline.connect(url, clock=clock) as connected:
        yield connected


def sweep(url: str, clock: FakeClock, *, dry_run: bool = False) -> list[str]:
    return sorted(str(key) for key in purge_expired(url, dry_run=dry_run, clock=clock))


@pytest.mark.req("J101", "J102", "J103")
def test_a_key_expires_by_its_last_append_and_not_a_microsecond_early(
    url: str, s: Strandline, clock: FakeClock
) -> None:
    s.journal.append("order|1", [Event("Placed", 1)], expire_after=HOUR)
    clock.advance(timedelta(minutes=30))
    last = s.journal.append("order|1", [Event("Paid", 2)])  # kept
    s.journal.append("order|2", [Event("Placed", 1)])
    carry(s)
    head = s.journal.head("order|1")
    assert head is not None
    assert (head.expire_after, head.expire_at) == (HOUR, (last.timestamp or 0) + 3_600_000_000)
    clock.now = (head.expire_at or 0) - 1
    assert sweep(url, clock) == []
    clock.now = head.expire_at or 0
    assert [event.seq_nr for event in s.journal.read("order|1")] == [1, 2], "until purged it reads as before"
    assert sweep(url, clock, dry_run=True) == ["order|1"]
    assert s.journal.head("order|1") is not None
    assert sweep(url, clock) == ["order|1"]
    assert s.journal.head("order|1") is None
    assert sweep(url, clock) == [], "twice is harmless"
    carry(s)
    assert sweep(url, clock) == []
    assert s.journal.keys("order") == [Key("order", "2")]


@pytest.mark.req("J101")
def test_an_expiry_can_be_changed_and_removed(url: str, s: Strandline, clock: FakeClock) -> None:
    for key in ("order|1", "order|2", "order|3"):
        s.journal.append(key, [Event("Placed", 1)], expire_after=HOUR)
    s.journal.append("order|1", [Event("Paid", 2)], expire_after=None)
    s.journal.append("order|2", [Event("Paid", 2)], expire_after=timedelta(days=2))
    carry(s)
    clock.advance(timedelta(days=1))
    assert sweep(url, clock) == ["order|3"]
    clock.advance(timedelta(days=40))
    assert sweep(url, clock) == ["order|2"], "after 40 missed days"


@pytest.mark.req("J102", "J21")
@pytest.mark.parametrize("carried", [False, True])
def test_a_key_that_was_revived_stays(url: str, s: Strandline, clock: FakeClock, carried: bool) -> None:
    s.journal.append("order|1", [Event("Placed", 1)], expire_after=HOUR)
    carry(s)
    clock.advance(timedelta(hours=2))
    s.journal.append("order|1", [Event("Back", 2)])
    if carried:
        carry(s)
    assert sweep(url, clock) == []
    carry(s)
    assert [event.seq_nr for event in s.journal.read("order|1")] == [1, 2]


@pytest.mark.req("J102")
def test_every_expired_key_goes_however_many(url: str, s: Strandline, clock: FakeClock) -> None:
    futures = [
        s.journal.append_future(f"order|{number}", [Event("Placed", number)], expire_after=HOUR)
        for number in range(2500)
    ]
    for future in futures:
        future.result()
    carry(s)
    clock.advance(timedelta(hours=2))
    assert len(sweep(url, clock)) == 2500
    carry(s)
    assert entity_types_of(s.store) == []
