"""A header that went bad on a log which writes down, beside each record, what it made of it.

The row has key, life and numbers. So the events are there, damaged, for every reader, before and after they are
carried; what was deleted stays deleted, what was purged stays purged; and nobody else's events wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from strandline import Event
from strandline.backends.memory.log import MemoryLog
from strandline.carry.resolve import resolve
from strandline.connect import Strandline
from strandline.errors import Corrupt, InvalidInput, SeqNrConflict
from strandline.record import decode_header, encode_header
from strandline.store.scans import quarantined, quarantined_at
from strandline.testing import carry
from strandline.values.actions import Append, Purge
from strandline.values.events import RecordedEvent
from strandline.values.heads import Head
from tests.journal.damage import ROT, rot
from tests.journal.worlds import KEY, events, last_write_wins, replayed, world

BACKENDS = ("memory", "sqlite", "postgresql")
Shown = list[tuple[Any, ...]]


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=1) as opened:
        yield opened


def headers(s: Strandline) -> list[bytes | None]:
    return [record.header for record in s.log.read(0, after=-1).records]


def put(s: Strandline, *payloads: Any, **options: Any) -> int:
    """Append events of type Placed; the offset."""
    offset = s.journal.append(KEY, [Event("Placed", payload, tags=["new"]) for payload in payloads], **options).offset
    assert offset is not None
    return offset


def told(event: RecordedEvent) -> tuple[Any, ...]:
    """A good event by number and payload, a damaged one by all that is left of it."""
    if not event.damaged:
        return event.seq_nr, event.payload
    for name in ("payload", "metadata"):
        with pytest.raises(Corrupt) as caught:
            getattr(event, name)
        assert (caught.value.key, caught.value.seq_nr) == (str(KEY), event.seq_nr)
        assert caught.value.code in ("undecodable", "digest")
    return event.seq_nr, "damaged", event.type, event.tags, event.headers


def damaged(*seq_nrs: int) -> list[tuple[Any, ...]]:
    return [(seq_nr, "damaged", "", (), {}) for seq_nr in seq_nrs]


def everywhere(s: Strandline) -> Shown:
    """What all readers are told, which must be the same: before it is carried, after it, and by replay."""
    seen: list[Any] = []
    for _ in range(2):
        found = list(s.journal.read(KEY))
        head = s.journal.head(KEY)
        whole = [(e.seq_nr, e.prev_seq_nr, e.life, e.log_offset, e.timestamp, e.append_id, told(e)) for e in found]
        rows = list(replayed(s, 0, cut=s.log.newest()[0]))
        assert [event for event in rows if event.key == KEY] == found
        seen.append((whole, head))
        carry(s)
    assert seen[0] == seen[1]
    assert s.store.pointers()[0].offset == s.log.newest()[0]
    return [event[-1] for event in seen[0][0]]


def head(s: Strandline) -> Head:
    found = s.journal.head(KEY)
    assert isinstance(found, Head)
    return found


@pytest.mark.req("J95", "J94", "J97", "J27", "RR5")
@pytest.mark.parametrize("header", [ROT, None, b"", b'{"crc":"00000000","v":1}'])
def test_the_newest_events_of_a_key_are_there_as_damaged(s: Strandline, header: bytes | None) -> None:
    put(s, 1)
    offset = put(s, 2, 3)
    before = head(s)
    rot(s, offset, header)
    after = head(s)
    assert (after.seq_nr, after.life, after.offset, after.updated) == (3, 1, offset, before.updated)
    assert everywhere(s) == [(1, 1), *damaged(2, 3)]
    (listed,) = quarantined(s.store)
    row = quarantined_at(s.store, 0, offset)
    assert row is not None
    assert (row.partition, row.offset, row.key, row.reason) == (0, offset, str(KEY), listed.reason)
    assert row.reason == ("header" if header and header.startswith(b'{"crc":"') else "foreign")
    assert (row.header, row.life, row.first, row.last) == (header, 1, 2, 3)
    assert row.value is not None


@pytest.mark.req("J95", "J36", "RR5")
@pytest.mark.parametrize("carried", ["before", "between", "never"])
def test_what_was_appended_behind_it_is_there(s: Strandline, carried: str) -> None:
    put(s, 1)
    if carried == "before":
        carry(s)
    offset = put(s, 2, expected=1)
    put(s, 3, expected=2)
    rot(s, offset)
    if carried == "between":
        carry(s, limit=offset + 1)
    put(s, 4, expected=3)
    put(s, 5)
    with pytest.raises(SeqNrConflict):
        put(s, 6, expected=4)
    assert everywhere(s) == [(1, 1), *damaged(2), (3, 3), (4, 4), (5, 5)]


@pytest.mark.req("J95", "J36", "J27")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("carried", [True, False])
def test_a_process_that_never_saw_the_header_appends_behind_it(tmp_path: Path, backend: str, carried: bool) -> None:
    with world(backend, tmp_path, partitions=1) as s:
        put(s, 1)
        offset = put(s, 2)
        rot(s, offset)
        if carried:
            carry(s)
    with world(backend, tmp_path, partitions=1) as s:
        with pytest.raises(SeqNrConflict) as lost:
            put(s, 0, expected=1)
        assert lost.value.actual == 2
        put(s, 3, expected=2)
        rot(s, put(s, 4))
        put(s, 5)
        assert everywhere(s) == [(1, 1), *damaged(2), (3, 3), *damaged(4), (5, 5)]


@pytest.mark.req("J95", "J33")
def test_what_is_known_of_its_key_outlives_it(s: Strandline) -> None:
    offset = put(s, 1)
    s.journal.append("order|7", events("of another"))
    rot(s, offset)
    carry(s)
    assert s.log.trim(0, to=offset, pointer=offset + 1, keep_after=2**62) == 1
    put(s, 2, expected=1)
    assert everywhere(s) == [*damaged(1), (2, 2)]


@pytest.mark.req("J95", "RR5")
def test_what_was_carried_before_stays_whole(s: Strandline) -> None:
    offset = put(s, 1)
    carry(s)
    rot(s, offset)
    put(s, 2, expected=1)
    assert everywhere(s) == [(1, 1), (2, 2)]
    assert quarantined(s.store) == []


@pytest.mark.req("J95")
def test_a_journal_may_begin_with_it_and_have_gaps(s: Strandline) -> None:
    rot(s, put(s, 11, 12, first=11))
    rot(s, put(s, 20, first=20))
    put(s, 21)
    assert everywhere(s) == [*damaged(11, 12, 20), (21, 21)]
    assert (head(s).seq_nr, head(s).delete_to) == (21, 10)


@pytest.mark.req("J95")
def test_a_header_of_another_key_is_none(s: Strandline) -> None:
    """Its checksum is right, but it is not this record's."""
    s.journal.append("order|7", events("of another"))
    offset = put(s, 1)
    rot(s, offset, headers(s)[0])
    put(s, 2, expected=1)
    assert everywhere(s) == [*damaged(1), (2, 2)]
    assert [(row.offset, row.reason) for row in quarantined(s.store)] == [(offset, "key")]
    assert [event.payload for event in s.journal.read("order|7")] == ["of another"]


@pytest.mark.req("J95", "J101", "J102")
def test_it_may_have_lifted_an_expiry_so_there_is_none(s: Strandline) -> None:
    put(s, 1, expire_after=timedelta(days=1))
    rot(s, put(s, 2, expire_after=None))
    assert everywhere(s) == [(1, 1), *damaged(2)]
    assert (head(s).expire_after, head(s).expire_at) == (None, None)


@pytest.mark.req("J95", "RJ2", "J48")
@pytest.mark.parametrize("carried", [True, False])
def test_what_was_deleted_stays_deleted(s: Strandline, carried: bool) -> None:
    put(s, 1, 2, 3)
    if carried:
        carry(s)
    deleted = s.journal.delete(KEY, to=2)
    assert deleted is not None
    rot(s, deleted.offset)
    put(s, 4, expected=3)
    assert everywhere(s) == [(3, 3), (4, 4)]
    assert head(s).delete_to == 2
    (row,) = quarantined(s.store)
    assert (row.offset, row.key, row.life, row.first) == (deleted.offset, str(KEY), None, None)
    with pytest.raises(InvalidInput):
        resolve(s.log, s.store, 0, row.offset, "retry", s.settings)
    resolve(s.log, s.store, 0, row.offset, "skip", s.settings)
    assert quarantined(s.store) == []
    assert everywhere(s) == [(3, 3), (4, 4)]


@pytest.mark.req("J95", "J15", "J47")
def test_a_reset_stands(s: Strandline) -> None:
    reset = s.journal.delete(KEY, to=5, reset=True)
    assert reset is not None
    rot(s, reset.offset)
    put(s, 6, expected=5)
    assert everywhere(s) == [(6, 6)]
    assert (head(s).seq_nr, head(s).delete_to) == (6, 5)


@pytest.mark.req("J95", "RJ2", "J48", "J77")
@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_what_was_purged_stays_purged(s: Strandline, carried: bool, again: bool) -> None:
    put(s, 1, 2, 3)
    if carried:
        carry(s)
    offset = s.journal.purge(KEY).offset
    rot(s, offset)
    if again:
        put(s, "anew", expected=0)
    assert everywhere(s) == ([(1, "anew")] if again else [])
    assert s.store.page(str(KEY), 1, 10_000, from_=1, to=9, limit=9).rows == []
    assert [(row.offset, row.life) for row in quarantined(s.store)] == [(offset, None)]


@pytest.mark.req("J95")
def test_what_changed_nothing_changes_nothing(s: Strandline) -> None:
    """Marks, and deletes and purges that were void: nothing stands beside them."""
    purged = s.journal.purge(KEY)
    put(s, 1)
    marked = s.journal.mark(KEY)
    for offset in (purged.offset, marked.offset):
        rot(s, offset)
    put(s, 2, expected=1)
    assert everywhere(s) == [(1, 1), (2, 2)]
    assert [row.offset for row in quarantined(s.store)] == [purged.offset, marked.offset]


@pytest.mark.req("J95", "RR5", "J84")
def test_one_among_many_plain_appends(s: Strandline) -> None:
    """They are carried by columns; it is not, and holds nobody up."""
    keys = [f"order|{number}" for number in range(100, 140)]
    offsets = []
    for round_ in range(6):
        futures = [s.journal.append_future(key, events(round_)) for key in [*keys, str(KEY)]]
        offsets += [(future.result().offset, str(future.result().key)) for future in futures]
    rotten = [offset for offset, key in offsets if key == str(KEY)][2:4]
    for offset in rotten:
        rot(s, offset)
    assert everywhere(s) == [(1, 0), (2, 1), *damaged(3, 4), (5, 4), (6, 5)]
    assert [row.offset for row in quarantined(s.store)] == rotten
    for key in keys:
        assert [event.payload for event in s.journal.read(key)] == [*range(6)]


@pytest.mark.req("J98")
@pytest.mark.parametrize("last", [True, False])
def test_it_is_skipped_like_any_other(s: Strandline, last: bool) -> None:
    put(s, 1)
    offset = put(s, 2, 3)
    if not last:
        put(s, 4)
    rot(s, offset)
    carry(s)
    resolve(s.log, s.store, 0, offset, "skip", s.settings)
    assert quarantined(s.store) == []
    put(s, 5)
    numbers = [(event.seq_nr, event.prev_seq_nr) for event in s.journal.read(KEY)]
    assert numbers == ([(1, 0), (4, 1)] if last else [(1, 0), (4, 1), (5, 4)])
    assert len(everywhere(s)) == len(numbers)


@pytest.mark.req("J98")
def test_it_is_read_again_once_it_can_be(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    offset = put(s, 1, 2)
    good = headers(s)[0]
    rot(s, offset)
    carry(s)
    for other in (ROT, encode_header(Purge(str(KEY))), encode_header(one_event_of(good))):
        monkeypatch.setattr("strandline.carry.resolve.decode_header", lambda _, other=other: decode_header(other))
        with pytest.raises(Corrupt):
            resolve(s.log, s.store, 0, offset, "retry", s.settings)
    monkeypatch.setattr("strandline.carry.resolve.decode_header", lambda _: decode_header(good))
    resolve(s.log, s.store, 0, offset, "retry", s.settings)
    assert [(event.seq_nr, event.type, event.tags, event.payload) for event in s.journal.read(KEY)] == [
        (1, "Placed", ("new",), 1),
        (2, "Placed", ("new",), 2),
    ]
    assert quarantined(s.store) == []


def one_event_of(header: bytes | None) -> Append:
    """The same append with one event less."""
    action = decode_header(header)
    assert isinstance(action, Append)
    return action._replace(events=action.events[1:])


@pytest.mark.req("J95", "J27")
@pytest.mark.parametrize("header", ["good", "bad"])
@pytest.mark.parametrize(
    "beside", [(2, 2, 2), (1, 1, 2), (1, 1, 1), (1, 2, 3), (1, 3, 2), (1, None, 2), (2, None, None)]
)
def test_numbers_that_do_not_fit_are_told(
    tmp_path: Path, header: str, beside: tuple[int | None, int | None, int | None]
) -> None:
    """A log and a store that do not belong together are no damage of one record."""
    with world("memory", tmp_path, partitions=1) as s:
        put(s, 1)
        put(s, 2)
        put(s, 3)
        assert isinstance(s.log, MemoryLog)
        records = s.log._records[0]
        life, first, last = beside
        records[1] = records[1]._replace(life=life, first=first, last=last)
        if header == "bad":
            rot(s, 1)
        with pytest.raises(Corrupt) as caught:
            list(s.journal.read(KEY))
        assert caught.value.name == "Corrupt.fold"
        with pytest.raises(Corrupt) as caught:
            carry(s)
        assert caught.value.name == "Corrupt.fold"
        assert s.store.pointers()[0].offset == -1


@pytest.mark.req("J95", "RR5")
def test_a_store_without_transactions() -> None:
    s = last_write_wins()
    put(s, 1)
    rot(s, put(s, 2, 3))
    put(s, 4, expected=3)
    assert everywhere(s) == [(1, 1), *damaged(2, 3), (4, 4)]
    purged = s.journal.purge(KEY).offset or 0
    rot(s, purged)
    put(s, 1)
    assert everywhere(s) == [(1, 1)]
    assert [row.offset for row in quarantined(s.store)] == [purged]
