"""Reading: where events come from, what may change under a reader, and what it says when it cannot go on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from strandline import (
    Corrupt,
    Event,
    InvalidInput,
    Key,
    MissingEvent,
    ReadConflict,
    RecordedEvent,
    SchemaMismatch,
    Unavailable,
)
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.carry.resolve import resolve
from strandline.connect import Strandline
from strandline.journal.checks import new_id
from strandline.log.api import ActionDraft, Answered, Log, RecordPage
from strandline.record import decode_header, encode_header, encode_value
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.store.scans import quarantined
from strandline.testing import FakeClock, carry, raw_append
from strandline.testing.faults import Faults, fail
from strandline.testing.inexact import InexactMemoryLog
from strandline.values.actions import Append, Mark
from tests.journal.worlds import BACKENDS, KEY, events, fields, inexact, needs_exact, numbered, paired, seq_nrs, world

OTHER = Key("order", "43")


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=1) as opened:
        yield opened


def faulty(**settings: Any) -> tuple[Strandline, Faults]:
    """A memory log and store with a fault point at every call."""
    faults = Faults()
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    return paired(faults.around("log", log), faults.around("store", store), **settings), faults


def taken(reading: Iterator[RecordedEvent]) -> tuple[list[int], bool]:
    """What a read gives until it ends, and whether it ended because something is away."""
    given: list[int] = []
    try:
        given.extend(event.seq_nr for event in reading)
    except Unavailable:
        return given, True
    return given, False


def away() -> Unavailable:
    return Unavailable("gone", code="away", hint="wait")


# ---------------------------------------------------------------- where events come from


@pytest.mark.req("J9", "RJ4")
def test_an_event_is_the_same_from_log_and_store_on_every_backend(tmp_path: Path) -> None:
    seen = []
    for backend in BACKENDS:
        with world(backend, tmp_path, clock=FakeClock()) as s:
            given = [
                Event("Placed", {"b": 1, "a": [1.0, -0.0, "😀"]}, tags={"z", "a"}, metadata={"by": "eve"}),
                Event("Packed", b"\x00\xff", tags=["z", "a", "z"]),
                Event("Sent", None),
            ]
            s.journal.append(KEY, given, headers={"trace": "7"}, append_id="12345678123456781234567812345678")
            from_log = [fields(event) for event in s.journal.read(KEY)]
            log_events = list(s.journal.read(KEY))
            carry(s)
            assert [fields(event) for event in s.journal.read(KEY)] == from_log
            assert list(s.journal.read(KEY)) == log_events
            seen.append(from_log)
    assert seen[0] == seen[1]
    assert [event["tags"] for event in seen[0]] == [("a", "z"), ("z", "a"), ()]
    assert list(seen[0][0]["payload"]) == ["b", "a"]
    assert repr(seen[0][0]["payload"]["a"][:2]) == "[1.0, -0.0]"
    assert [event["prev_seq_nr"] for event in seen[0]] == [0, 1, 2]


@pytest.mark.req("J54")
def test_only_what_is_needed_is_read() -> None:
    s, faults = faulty()
    s.journal.append(KEY, events(1, 2))
    carry(s)
    before = faults.seen.copy()
    assert seq_nrs(s.journal.read(KEY)) == [1, 2]
    assert faults.seen["before log.read"] == before["before log.read"]
    s.journal.append(KEY, events(3))
    assert seq_nrs(s.journal.read(KEY)) == [1, 2, 3]
    assert faults.seen["before log.read"] == before["before log.read"] + 1


@pytest.mark.req("J55")
def test_the_tail_is_read_twice_only_past_the_buffer() -> None:
    s, faults = faulty(tail_buffer_bytes=1500)
    s.journal.append(KEY, [Event("Placed", b"x" * 600)])
    before = faults.seen["before log.read"]
    assert seq_nrs(s.journal.read(KEY)) == [1]
    assert faults.seen["before log.read"] == before + 1
    s.journal.append(KEY, [Event("Placed", b"x" * 600)])
    assert seq_nrs(s.journal.read(KEY)) == [1, 2]
    assert faults.seen["before log.read"] == before + 3
    s.journal.append(KEY, [Event("Placed", b"y" * 600)])
    s.journal.append(KEY, [Event("Placed", b"z" * 600)])
    found = [(event.seq_nr, event.payload[:1]) for event in s.journal.read(KEY)]
    assert found == [(1, b"x"), (2, b"x"), (3, b"y"), (4, b"z")]
    assert faults.seen["before log.read"] == before + 5


@pytest.mark.req("J55")
def test_past_the_buffer_the_store_is_read_if_the_pipeline_got_there() -> None:
    s, faults = faulty(tail_buffer_bytes=0)
    s.journal.append(KEY, events(1, 2, 3))
    faults.at("after log.read", lambda: carry_once(s))
    reads = faults.seen["before log.read"]
    assert numbered(s.journal.read(KEY)) == [(1, 0, 1), (2, 1, 2), (3, 2, 3)]
    # once by the reader, once by the pipeline, and never again by the reader
    assert faults.seen["before log.read"] == reads + 2
    assert faults.seen["before store.page"] > 0


def carry_once(s: Strandline) -> None:
    carry(s)


@pytest.mark.req("J60")
@pytest.mark.parametrize("taken_before", [3, 5])
def test_a_tail_trimmed_under_a_slow_reader(taken_before: int) -> None:
    """While it hands out what it held in memory, and while it reads the log a second time."""
    clock = FakeClock()
    log = MemoryLog(partitions=1, clock=clock)
    s = paired(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)), tail_buffer_bytes=2000, read_page=2)
    for number in range(20):
        s.journal.append(KEY, events(number))
    reading = s.journal.read(KEY)
    given = [next(reading).seq_nr for _ in range(taken_before)]
    carry(s)
    log.trim(0, to=19, pointer=19, keep_after=clock.advance(1))
    assert log.oldest() == [20]
    assert given + seq_nrs(reading) == list(range(1, 21))


@pytest.mark.req("J32", "RR7")
def test_a_log_trimmed_past_the_pointer(s: Strandline) -> None:
    needs_exact(s, "the heads cache may still have it; see test_inexact")
    for number in range(6):
        s.journal.append(KEY, events(number))
    carry(s, limit=2)
    s.log.trim(0, to=3, pointer=3, keep_after=2**62)
    for call in (lambda: list(s.journal.read(KEY)), lambda: s.journal.head(KEY), lambda: s.journal.delete(KEY, to=1)):
        with pytest.raises(MissingEvent) as caught:
            call()
        assert caught.value.name == "MissingEvent.log_trimmed"
        assert (caught.value.partition, caught.value.first, caught.value.last) == (0, 2, 3)


@pytest.mark.req("J52")
def test_moving() -> None:
    """The pipeline moves between any two calls that a read makes."""
    points = ("log.ask_newest", "store.look", "log.read", "store.page")
    for point in [f"{when} {name}" for name in points for when in ("before", "after")]:
        for buffer in (0, 10_000):
            s, faults = faulty(read_page=1, tail_buffer_bytes=buffer)
            for number in range(1, 6):
                s.journal.append(KEY, events(number))
            carry(s, limit=2)
            before = faults.seen[point]
            faults.at(point, lambda: carry_once(s))  # noqa: B023 (called within this turn)
            assert seq_nrs(s.journal.read(KEY)) == [1, 2, 3, 4, 5], point
            assert faults.seen[point] > before, point


class WaitsForTheStore(InexactMemoryLog):
    """Answers a Mark only once the store was asked."""

    def __init__(self) -> None:
        super().__init__(partitions=1)
        self.answers: list[Callable[[], None]] = []

    def send(self, draft: ActionDraft, answered: Answered) -> None:
        recorded = self._recorded(draft)
        if isinstance(draft.action, Mark):
            self.answers.append(lambda: answered(recorded, None))
        else:
            answered(recorded, None)

    def answer(self) -> None:
        while self.answers:
            self.answers.pop()()


@pytest.mark.req("J52")
def test_the_mark_and_the_store_are_asked_for_at_the_same_time() -> None:
    log, faults = WaitsForTheStore(), Faults()
    store = faults.around("store", MemoryStore(StoreSettings(log.log_id, 1, 10_000)))
    s = Strandline(cast(Log, log), store, Settings.of({"append_timeout_s": 0.5, "heads_cache": False}))
    s.journal.append(KEY, events(1), numbers=False)
    faults.at("before store.look", log.answer)
    assert seq_nrs(s.journal.read(KEY)) == [1]


@pytest.mark.req("J62", "RR6")
def test_a_log_that_has_lost_its_end_is_told() -> None:
    """Half an answer is none."""

    class Short(MemoryLog):
        def read(self, *given: Any, **more: Any) -> RecordPage:
            page = super().read(*given, **more)
            return RecordPage([record for record in page.records if record.offset < 1], min(page.position, 1))

    log = Short(partitions=1)
    s = paired(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)))
    s.journal.append(KEY, events(1, 2))
    s.journal.append(KEY, events(3))
    with pytest.raises(SchemaMismatch) as caught:
        list(s.journal.read(KEY))
    assert (caught.value.code, caught.value.newest, caught.value.expected) == ("log_replaced", 0, 1)


@pytest.mark.req("J51", "RJ1")
def test_a_log_that_cannot_say_where_it_ends_gets_a_mark() -> None:
    with inexact() as s:
        s.journal.append(KEY, events(1))
        assert seq_nrs(s.journal.read(KEY)) == [1]
        assert [type(decode_header(record.header)) for record in s.log.read(0, after=-1).records] == [Append, Mark]


@pytest.mark.req("J53", "RJ2")
def test_hidden_delete(s: Strandline) -> None:
    """The last action of a long tail is a Delete: nothing that it took is shown, not even for a moment."""
    s.journal.append(KEY, events(*range(10)))
    carry(s)
    for number in range(50):
        s.journal.append(KEY, events(number))
    s.journal.delete(KEY, to=40)
    assert next(s.journal.read(KEY)).seq_nr == 41
    s.journal.purge(KEY)
    assert list(s.journal.read(KEY)) == []
    s.journal.append(KEY, events("new"))
    assert numbered(s.journal.read(KEY)) == [(1, 0, "new")]


@pytest.mark.req("J62")
def test_unknown_purged_and_deleted_keys_are_empty(s: Strandline) -> None:
    assert list(s.journal.read("order|nobody")) == []
    assert s.journal.head("order|nobody") is None
    s.journal.append(KEY, events(1, 2))
    s.journal.delete(KEY, to=2)
    assert list(s.journal.read(KEY)) == []
    head = s.journal.head(KEY)
    assert head is not None
    assert (head.seq_nr, head.delete_to) == (2, 2)
    s.journal.append(OTHER, events(1, 2))
    carry(s)
    s.journal.purge(OTHER)
    for _ in range(2):  # the purge in the tail, then in the store
        assert list(s.journal.read(KEY)) == list(s.journal.read(OTHER)) == []
        assert s.journal.head(OTHER) is None
        carry(s)


@pytest.mark.req("J62")
def test_away() -> None:
    """Log or store down, at the start or in mid-stream: never a quiet end, never half an answer taken for a whole."""
    points = ("log.ask_newest", "store.look", "log.read", "store.page")
    for point in points:
        for nth in (1, 2, 3):
            s, faults = faulty(read_page=2, tail_buffer_bytes=600)
            for number in range(1, 9):
                s.journal.append(KEY, events(number))
            carry(s, limit=4)
            before = faults.seen[f"before {point}"]
            faults.at(f"before {point}", fail(away()), nth=nth)
            given, failed = taken(s.journal.read(KEY))
            assert failed == (faults.seen[f"before {point}"] >= before + nth)
            assert given == list(range(1, len(given) + 1 if failed else 9))


@pytest.mark.req("J64")
def test_a_second_read_never_shows_an_earlier_state(s: Strandline, tmp_path: Path) -> None:
    seen: list[int] = []
    for number in range(1, 13):
        s.journal.append(KEY, events(number))
        if number % 4 == 0:
            carry(s, limit=3)
        seen.append(len(list(s.journal.read(KEY))))
        head = s.journal.head(KEY)
        assert head is not None
        seen.append(head.seq_nr)
    assert seen == sorted(seen)


# ---------------------------------------------------------------- what the store may do under a reader


@pytest.mark.req("J59")
@pytest.mark.parametrize("gone", [1, 3, 5])
def test_a_row_that_is_not_there(gone: int) -> None:
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, store, read_page=2)
    s.journal.append(KEY, events(1, 2, 3, 4, 5))
    carry(s)
    store._remove(store._journal[str(KEY), 1][gone - 1])
    for from_, to in ((1, None), (gone, gone), (1, gone), (gone, None)):
        with pytest.raises(MissingEvent) as caught:
            list(s.journal.read(KEY, from_=from_, to=to))
        assert caught.value.name == "MissingEvent.store"
        assert (caught.value.key, caught.value.seq_nr) == (str(KEY), gone)
    s.journal.append(KEY, events(6))
    with pytest.raises(MissingEvent):
        list(s.journal.read(KEY))


@pytest.mark.req("J50", "J107")
@pytest.mark.parametrize("recovered", [False, True])
def test_what_is_appended_under_a_reader_is_no_part_of_its_read(recovered: bool) -> None:
    """Not even where the pipeline passes the place at which the read began, so that it goes on in the store."""
    s, _ = faulty(tail_buffer_bytes=0, read_page=1)
    s.journal.append(KEY, events(1, 2))
    reading = s.journal.recover(KEY).events if recovered else s.journal.read(KEY)
    given = [] if recovered else [next(reading).seq_nr]
    s.journal.append(KEY, events(3))
    carry(s)
    assert given + seq_nrs(reading) == [1, 2]


@pytest.mark.req("J59")
def test_a_delete_or_purge_under_a_reader(s: Strandline) -> None:
    journal = s.journal
    for change in (lambda: journal.delete(KEY, to=8), lambda: journal.purge(KEY)):
        journal.append(KEY, events(*range(10)))
        carry(s)
        with pages_of(s, 2):
            reading = journal.read(KEY)
            next(reading)
            change()
            carry(s)
            with pytest.raises(ReadConflict) as caught:
                list(reading)
            assert caught.value.name == "ReadConflict.journal_changed"
        journal.purge(KEY)


@contextmanager
def pages_of(s: Strandline, size: int) -> Iterator[None]:
    """Smaller pages for a while."""
    reader = s.journal._reader
    before, reader.settings = reader.settings, replace(reader.settings, read_page=size)
    yield
    reader.settings = before


@pytest.mark.req("J59")
@pytest.mark.parametrize(
    ("change", "to", "expected"),
    [("delete", None, [9, 10]), ("delete", 9, [9]), ("purge", None, []), ("purge-append", None, [1, 2])],
)
def test_a_change_before_anything_was_handed_out_is_a_new_plan(
    change: str, to: int | None, expected: list[int]
) -> None:
    s, faults = faulty(read_page=4)
    s.journal.append(KEY, events(*range(10)))
    s.journal.delete(KEY, to=3)
    carry(s)

    def act() -> None:
        if change == "delete":
            s.journal.delete(KEY, to=8)
        else:
            s.journal.purge(KEY)
        if change == "purge-append":
            s.journal.append(KEY, events("a", "b"))
        carry(s)

    faults.at("before store.page", act)
    assert seq_nrs(s.journal.read(KEY, to=to)) == expected


@pytest.mark.req("J59", "J98")
def test_the_last_events_are_skipped_under_a_reader() -> None:
    s, faults = faulty()
    s.journal.append(KEY, events(1, 2))
    damaged(s, count=2)
    carry(s)
    (listed,) = quarantined(s.store)
    faults.at("before store.page", lambda: resolve(s.log, s.store, 0, listed.offset, "skip", s.settings))
    assert numbered(s.journal.read(KEY)) == [(1, 0, 1), (2, 1, 2)]
    s.journal.append(KEY, events(5))
    assert numbered(s.journal.read(KEY)) == [(1, 0, 1), (2, 1, 2), (5, 2, 5)]
    carry(s)
    assert numbered(s.journal.read(KEY)) == [(1, 0, 1), (2, 1, 2), (5, 2, 5)]


@pytest.mark.req("J58")
def test_leftover_rows_of_another_life_or_above_the_head_are_not_shown() -> None:
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, store)
    s.journal.append(KEY, events("old", "old"))
    carry(s)
    rows = list(store._journal[str(KEY), 1])
    s.journal.purge(KEY)
    s.journal.append(KEY, events("new"))
    carry(s)
    (new,) = store._journal[str(KEY), 2]
    store._journal[str(KEY), 1] = rows
    store._journal[str(KEY), 2].append(new._replace(seq_nr=2, prev_seq_nr=1))
    assert numbered(s.journal.read(KEY)) == [(1, 0, "new")]


@pytest.mark.req("J61")
def test_segment_gap(s: Strandline, tmp_path: Path) -> None:
    with world("sqlite", tmp_path / "other", partitions=1, segment_size=2) as small:
        small.journal.append(KEY, events(1, 2, 3))
        small.journal.append(KEY, events(20), first=20)
        for _ in range(2):
            assert numbered(small.journal.read(KEY)) == [(1, 0, 1), (2, 1, 2), (3, 2, 3), (20, 3, 20)]
            assert seq_nrs(small.journal.read(KEY, from_=4, to=19)) == []
            assert seq_nrs(small.journal.read(KEY, from_=4)) == [20]
            carry(small)


@pytest.mark.req("J56", "RJ14", "RS3")
def test_paused_readers_keep_no_transaction_open(tmp_path: Path) -> None:
    """One is paused in the store, one in the tail. With a transaction open, no WAL could start anew."""
    limit = 4 * 2**20
    with world("sqlite", tmp_path, partitions=1, read_page=10, wal_bytes_max=limit, tail_buffer_bytes=0) as s:
        largest = 0

        def look() -> None:
            nonlocal largest
            sizes = [(tmp_path / "orders" / name).stat().st_size for name in ("log.db-wal", "store.db-wal")]
            largest = max(largest, *sizes)

        s.journal.append(KEY, events(*range(100)))
        carry(s)
        s.journal.append(OTHER, events(*range(100)))
        paused = {key: s.journal.read(key) for key in (KEY, OTHER)}
        given = {key: [next(reading).seq_nr] for key, reading in paused.items()}
        for _ in range(100):
            s.journal.append("order|44", [Event("Placed", b"x" * 100_000)])
            look()
        while carry(s, limit=10).actions:
            look()
        assert limit / 8 < largest < limit, "what was written is more than twice the limit"
        for key, reading in paused.items():
            assert given[key] + seq_nrs(reading) == list(range(1, 101))


# ---------------------------------------------------------------- what is not ours


def damaged(s: Strandline, count: int = 1, *, key: Key = KEY, value: bytes = b"no value") -> None:
    """An append whose value nobody can read, or whose digest is not that of its value."""
    action = Append(str(key), (("Placed", ("t",)),) * count, new_id(), False, "f" * 32)
    s.log.append([ActionDraft(0, action, encode_header(action), value)])


@pytest.mark.req("J54", "J95")
def test_foreign_garbage(s: Strandline) -> None:
    s.journal.append(KEY, events(1))
    damaged(s, key=OTHER)
    raw_append(s, 0, key=str(KEY), header=b"not ours", value=b"?")
    raw_append(s, 0, key=None, header=None, value=None)
    header = encode_header(Append(str(OTHER), (("Placed", ()),), "1" * 32, False, "f" * 32))
    raw_append(s, 0, key=str(KEY), header=header, value=b"")
    raw_append(s, 0, key=str(KEY), header=header.replace(b"append", b"apqend"), value=b"")
    s.journal.append("order|44", events(1))
    for _ in range(3):
        assert numbered(s.journal.read(KEY)) == [(1, 0, 1)]
        carry(s, limit=3)


@pytest.mark.req("J94", "J97", "RA12")
def test_damaged(s: Strandline) -> None:
    """Wrong bytes and a wrong digest, in tail and store: all events are there, only their payloads are not."""
    damaged(s, value=encode_value([(0, b"fine", None)]))
    damaged(s, count=2)
    for _ in range(2):
        found = list(s.journal.read(KEY))
        assert [(event.seq_nr, event.prev_seq_nr, event.damaged) for event in found] == [
            (1, 0, True),
            (2, 1, True),
            (3, 2, True),
        ]
        assert (found[0].type, found[0].tags) == ("Placed", ("t",))
        for event, code in zip(found, ("digest", "undecodable", "undecodable"), strict=True):
            for name in ("payload", "metadata"):
                with pytest.raises(Corrupt) as caught:
                    getattr(event, name)
                assert caught.value.code == code
                assert (caught.value.key, caught.value.seq_nr) == (str(KEY), event.seq_nr)
        carry(s)
    assert [row.reason for row in quarantined(s.store)] == ["digest", "undecodable"]


def newer(key: Key) -> bytes:
    """A header that a later version wrote."""
    good = encode_header(Append(str(key), (("Placed", ()),), "1" * 32, False, "f" * 32))
    body = good[18:].replace(b'"v":1', b'"v":2')
    return b'{"crc":"%08x",' % zlib.crc32(b"{" + body) + body


class Unfiltered(MemoryLog):
    """A log that leaves it to its readers to pick out a key, as it may."""

    def read(self, partition: int, *, after: int, key: str | None = None, **more: Any) -> RecordPage:
        return super().read(partition, after=after, **more)


@pytest.mark.req("J54")
def test_a_log_that_gives_records_of_all_keys() -> None:
    log = Unfiltered(partitions=1)
    s = paired(log, MemoryStore(StoreSettings(log.log_id, 1, 10_000)), tail_buffer_bytes=600)
    for number in range(6):
        s.journal.append(KEY if number % 2 else OTHER, events(number))
    raw_append(s, 0, key=str(OTHER), header=newer(OTHER), value=b"")
    damaged(s, key=OTHER)
    assert numbered(s.journal.read(KEY)) == [(1, 0, 1), (2, 1, 3), (3, 2, 5)]


@pytest.mark.req("RR12")
def test_a_record_of_a_newer_version(s: Strandline) -> None:
    s.journal.append(KEY, events(1))
    raw_append(s, 0, key=str(KEY), header=newer(KEY), value=b"")
    for call in (lambda: list(s.journal.read(KEY)), lambda: s.journal.head(KEY)):
        with pytest.raises(SchemaMismatch) as caught:
            call()
        assert caught.value.name == "SchemaMismatch.version"
    assert list(s.journal.read(OTHER)) == []


@pytest.mark.req("J27")
def test_numbers_of_the_log_that_the_store_contradicts() -> None:
    log = MemoryLog(partitions=1)
    store = MemoryStore(StoreSettings(log.log_id, 1, 10_000))
    s = paired(log, store)
    s.journal.append(KEY, events(1, 2))
    carry(s)
    s.journal.append(KEY, events(3))
    head = store._heads[str(KEY)]
    store._heads[str(KEY)] = head._replace(seq_nr=7, prev=7)
    with pytest.raises(Corrupt) as caught:
        list(s.journal.read(KEY))
    assert caught.value.name == "Corrupt.fold"


# ---------------------------------------------------------------- the call itself


@pytest.mark.req("J1")
def test_arguments_are_checked_at_the_call_and_the_view_is_that_of_the_first_event(s: Strandline) -> None:
    with pytest.raises(InvalidInput):
        s.journal.read(KEY, from_=0)
    reading = s.journal.read(KEY)
    s.journal.append(KEY, events(1))
    assert seq_nrs(reading) == [1]


@pytest.mark.req("J68")
def test_entity_types_and_keys(s: Strandline) -> None:
    written = [f"order|{number}" for number in range(30)] + ["user|ä", "user|b"]
    for key in written:
        s.journal.append(key, events(1))
    assert s.journal.entity_types() == []
    carry(s)
    s.journal.purge("user|b")
    carry(s)
    assert s.journal.entity_types() == ["order", "user"]
    assert s.journal.keys("user") == [Key("user", "ä")]
    expected = sorted((Key.of(key) for key in written[:30]), key=lambda key: (key.slice, str(key).encode()))
    found: list[Key] = []
    while page := s.journal.keys("order", after=found[-1] if found else None, limit=7):
        assert len(page) <= 7
        found += page
    assert found == expected
    assert s.journal.keys("nothing") == []
