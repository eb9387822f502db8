"""Queries by slices over a Cassandra store, which has no transactions and finds rows by minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline import Event, Key
from strandline.backends.cassandra import Session
from strandline.backends.memory.log import MemoryLog
from strandline.connect import Strandline
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from tests.query.another_writer import write
from tests.query.filling import carry_all, key_in, order_of, put, told
from tests.store.keyspaces import RELAXED, EmptyStores

pytestmark = RELAXED
SECOND = 1_000_000


@pytest.fixture
def s(empty_stores: EmptyStores) -> Iterator[Strandline]:
    log = MemoryLog(partitions=2, segment_size=3)
    with Strandline(log, empty_stores.make(StoreSettings(log.log_id, 2, 3)), Settings()) as opened:
        yield opened


@pytest.mark.req("P15", "P4", "P16", "P10")
def test_in_order_without_what_was_deleted(s: Strandline) -> None:
    for _ in range(3):
        for number in range(6):
            put(s, Key("order", str(number)), 1 + number % 3)
    s.journal.delete(Key("order", "1"), to=2)
    s.journal.purge(Key("order", "2"))
    carry_all(s)
    whole = list(s.by_slices("order", 0, 1023))
    assert [order_of(event) for event in whole] == sorted(order_of(event) for event in whole)
    assert sorted(map(told, whole)) == sorted(
        told(event) for number in range(6) for event in s.journal.read(Key("order", str(number)))
    )
    for page_size in (1, 7):
        assert list(s.by_slices("order", 0, 1023, page_size=page_size)) == whole
        assert list(s.by_slices("order", 0, 1023, page_size=page_size, after=whole[5].offset)) == whole[6:]
    parts = [event for lo, hi in ((0, 300), (301, 1023)) for event in s.by_slices("order", lo, hi)]
    assert sorted(map(told, parts)) == sorted(map(told, whole))


@pytest.mark.req("P23", "P24", "P25", "P26")
def test_where_something_else_writes(s: Strandline) -> None:
    now = s.store.now_us()
    keys = [key_in(0, 2, nth=nth) for nth in range(4)]
    for key in keys[:3]:
        write(s, key, 1, now - 30 * SECOND)  # one time, one number, three keys of one partition
    write(s, keys[3], 1, now + 60 * SECOND)  # not yet
    how: dict[str, Any] = {"use_strandline": False, "page_size": 1}
    with s.by_slices("order", 0, 1023, **how) as events:
        assert {told(event) for event in events} == {(str(key), 1, 1) for key in keys[:3]}
        offset = events.resume_offset
    write(s, keys[0], 3, now - 25 * SECOND)
    write(s, keys[0], 2, now - 20 * SECOND)
    late = key_in(1, 2)
    write(s, late, 1, now - 40 * SECOND)
    with s.by_slices("order", 0, 1023, after=offset, **how) as events:
        assert [told(event) for event in events] == [(str(late), 1, 1), (str(keys[0]), 1, 2), (str(keys[0]), 1, 3)]


@pytest.mark.req("T74", "T76")
def test_a_page_of_a_tag_is_one_request(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the first one, which lists buckets, and looks at few rows to see how large they are."""
    for _ in range(30):
        s.journal.append(Key("order", "1"), [Event("Paid", b"x", tags=("red",))] * 2)
    carry_all(s)
    asked: list[str] = []
    rows = Session.rows

    def counted(session: Session, name: str, *what: Any, **how: Any) -> list[Any]:
        asked.append(name)
        return rows(session, name, *what, **how)

    monkeypatch.setattr(Session, "rows", counted)
    assert len(list(s.by_tag("red", page_size=20))) == 60
    listed, looked = asked.count("tag_buckets"), asked.count("tag_in_bucket")
    buckets = len({event.timestamp // 3_600_000_000 for event in s.by_tag("red")})
    assert listed == 1
    assert looked <= 1 + 60 // 20 + 1 + buckets
