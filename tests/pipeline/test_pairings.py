"""The spine from end to end on every pairing of log and store: record, carry on Spark, read; one suite for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile
from typing import Any
from uuid import uuid4

import pytest
from tests.pairings import Pairing, paired, pairing

from strandline import Corrupt, Event, LeaseHeld, SeqNrConflict
from strandline.connect import Strandline
from strandline.journal.checks import new_id
from strandline.log.api import ActionDraft
from strandline.pipeline import events as spark_events
from strandline.pipeline.events import EventsStreamReader
from strandline.pipeline.replicate import run
from strandline.pipeline.selection import STREAM_OPTIONS, Selection
from strandline.record import Content, content_digest, encode_header, encode_value
from strandline.store.scans import look_at, quarantined, quarantined_at
from strandline.testing import carry, raw_append
from strandline.values.actions import Append
from strandline.values.payloads import JSON

__all__ = ["paired", "pairing"]
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")]

KEYS = [f"order|{number}" for number in range(24)]


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)


@contextmanager
def running(pairing: Pairing, spark: Any, **more: Any) -> Iterator[threading.Event]:
    """A pipeline in a thread of this process."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, stop=stop, spark=spark, **pairing.where, **more)
        try:
            yield stop
        finally:
            stop.set()
    done.result()


def shown(s: Strandline, keys: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """All that a reader is told, but the places in the log."""
    return {
        key: [
            (e.seq_nr, e.prev_seq_nr, e.life, e.type, e.payload, e.tags, e.metadata, e.headers, e.timestamp, e.damaged)
            for e in s.journal.read(key)
        ]
        for key in keys
    }


def numbers(s: Strandline, key: str) -> list[int]:
    return [event.seq_nr for event in s.journal.read(key)]


def stored(s: Strandline, key: str) -> list[int]:
    """What the store alone has."""
    pointer_and_state = look_at(s.store, key, s.journal.mark(key).partition)
    head = pointer_and_state[1]
    assert head is not None
    rows = s.store.page(key, head.life, getattr(head, "segment_size", 1), from_=1, to=2**62, limit=10**6).rows
    return [cells[0] for cells in rows]


def some_history(s: Strandline) -> list[str]:
    """Appends, deletes, purges, gaps, expiry, tags and bytes over many keys."""
    journal = s.journal
    for number, key in enumerate(KEYS):
        first = journal.append(key, [Event("Placed", {"n": number, "ø": "é"}, tags=["new"], metadata={"by": "web"})])
        assert (first.first, first.last, first.duplicate) == (1, 1, False)
        journal.append(key, [Event("Paid", b"\x00\xff"), Event("Sent", None)], expected=1, headers={"trace": key})
    for key in KEYS[::4]:
        deleted = journal.delete(key, to=2)
        assert deleted is not None
        assert deleted.delete_to == 2
    for key in KEYS[::6]:
        journal.purge(key)
    for key in KEYS[::12]:
        again = journal.append(key, [Event("Placed", "again")], expected=0)
        assert (again.first, again.last) == (1, 1)
    journal.append("late|1", [Event("Placed", 1)], first=11, expire_after=timedelta(days=1))
    return [*KEYS, "late|1", "nobody|1"]


def streamed(pairing: Pairing, **options: str) -> Iterator[list[Any]]:
    """A stream's rows, one batch after the other, each from a new reader: nothing is kept but the offset.

    The reader's own methods, as Spark calls them, without a JVM.
    """
    settings = {f"set.{name}": str(value) for name, value in pairing.settings.items()}
    given = {"log": pairing.log, "store": pairing.store, **settings, **options}
    offset: dict[str, int] | None = None
    while True:
        reader = EventsStreamReader(Selection.of(given, STREAM_OPTIONS))
        start = reader.initialOffset() if offset is None else offset
        offset = reader.latestOffset(start, reader.getDefaultReadLimit())
        tasks = reader.partitions(start, offset)
        yield [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def check_streams(pairing: Pairing, paired: Strandline, stored: set[tuple[str, int, int]]) -> None:
    """A stream gives what the store has, each event once and by time, of every entity type or of one."""
    latest, stream = streamed(pairing, start="latest"), streamed(pairing, rows_max="100")
    assert next(latest) == []
    batches = list(takewhile(bool, stream))
    assert len(batches) > 1, "cut by the limit"
    rows = [row for batch in batches for row in batch]
    assert len(rows) == len(stored)
    assert {(row["key"], row["life"], row["seq_nr"]) for row in rows} == stored
    for partition in range(paired.log.partitions):
        places = [(row["timestamp"], row["seq_nr"]) for row in rows if row["partition"] == partition]
        assert places == sorted(places)
    late = next(streamed(pairing, entity_type="late"))
    assert [(row["key"], row["seq_nr"]) for row in late] == [("late|1", 11)]
    paired.journal.append("shop|1", [Event("Opened", 1)])
    assert next(stream) == next(latest) == [], "up to the pointers, and no event twice"
    carry(paired)
    for again in (stream, latest):
        assert [(row["key"], row["seq_nr"]) for row in next(again)] == [("shop|1", 1)]


@pytest.mark.req("J50", "J64", "J79", "J85", "J93", "J90", "J113", "J115", "RJ1", "RJ8", "RR1")
@pytest.mark.timeout(300)
def test_all_answers_are_the_same_before_and_after_the_pipeline(
    pairing: Pairing, paired: Strandline, spark: Any
) -> None:
    keys = some_history(paired)
    before = shown(paired, keys)
    heads = {key: paired.journal.head(key) for key in keys}
    assert numbers(paired, KEYS[0]) == [1]
    assert numbers(paired, KEYS[4]) == [3]
    assert numbers(paired, KEYS[6]) == []
    assert numbers(paired, KEYS[1]) == [1, 2, 3]
    assert numbers(paired, "late|1") == [11]
    assert [len(events) for events in shown(paired, [KEYS[18], "nobody|1"]).values()] == [0, 0]
    last = paired.journal.append("order|last", [Event("Placed", 1)])
    summary = run(once=True, spark=spark, **pairing.where)
    assert summary.strandline == paired.strandline() > 0
    paired.journal.wait_replicated(last, timeout_s=1)
    assert last.timestamp is not None
    assert paired.strandline() >= last.timestamp
    assert shown(paired, keys) == before
    assert {key: paired.journal.head(key) for key in keys} == heads
    assert stored(paired, KEYS[1]) == [1, 2, 3]
    assert stored(paired, KEYS[4]) == [3]
    with pairing.connect() as other:
        assert shown(other, keys) == before, "another process would see the same"
    everything = spark_events.replay(spark, **pairing.where).collect()
    assert len(everything) == sum(map(len, before.values())) + 1
    told = sorted((row["key"], row["seq_nr"], row["life"], row["type"]) for row in everything if row["key"] in keys)
    assert told == sorted((key, event[0], event[2], event[3]) for key, events in before.items() for event in events)
    check_streams(pairing, paired, {(row["key"], row["life"], row["seq_nr"]) for row in everything})


@pytest.mark.req("J36", "J37", "J39", "RA9")
@pytest.mark.timeout(300)
def test_of_many_writers_one_wins_and_a_repeat_is_known_at_any_lag(
    pairing: Pairing, paired: Strandline, spark: Any
) -> None:
    def attempt(_: int) -> bool:
        try:
            paired.journal.append("order|1", [Event("Placed", 1)], expected=0)
        except SeqNrConflict as error:
            return error.actual != 1
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1
    given = uuid4()
    first = paired.journal.append("order|1", [Event("Paid", 2)], append_id=given)
    for carried in (False, True):
        if carried:
            run(once=True, spark=spark, **pairing.where)
        again = paired.journal.append("order|1", [Event("Paid", 2)], append_id=given, expected=99)
        assert again.duplicate
        assert (again.first, again.last, again.offset) == (first.first, first.last, first.offset)
        with pytest.raises(SeqNrConflict) as lost:
            paired.journal.append("order|1", [Event("Lost", 3)], expected=1)
        assert lost.value.actual == 2
    assert numbers(paired, "order|1") == [1, 2]


@pytest.mark.req("J50", "J64", "J83", "J90", "U12", "RR3", "RJ5")
@pytest.mark.timeout(300)
def test_reads_are_right_while_the_pipeline_runs_and_when_it_is_gone(
    pairing: Pairing, paired: Strandline, spark: Any
) -> None:
    journal = paired.journal
    lines: list[int] = []
    with running(pairing, spark):
        until(lambda: paired.status().lease_holder is not None)
        with pytest.raises(LeaseHeld) as held:
            run(once=True, spark=spark, **pairing.where)
        assert "pid" in held.value.holder
        for round_ in range(1, 31):
            for key in KEYS[:4]:
                answer = journal.append(key, [Event("Placed", round_)])
                assert answer.last == round_
                assert numbers(paired, key)[-1] == round_, "what was acknowledged is seen"
            lines.append(paired.strandline())
        journal.wait_replicated(answer, timeout_s=60)
    for key in KEYS[:4]:
        journal.append(key, [Event("Placed", 31)])
        assert numbers(paired, key) == list(range(1, 32)), "without a pipeline, too"
    until(lambda: paired.status().lease_holder is None)
    with running(pairing, spark):
        journal.wait_replicated(journal.mark(KEYS[0]), timeout_s=60)
        lines.append(paired.strandline())
    assert lines == sorted(lines), "the strandline never goes back"
    assert stored(paired, KEYS[0]) == list(range(1, 32))


def draft_of(key: str, partition: int, value: bytes) -> ActionDraft:
    """An append of two tagged events whose digest is that of another value."""
    events = (("Placed", ("new",)), ("Paid", ()))
    digest = content_digest(events, None, encode_value([Content(JSON, b"1", None)] * 2))
    action = Append(key, events, new_id(), False, digest)
    return ActionDraft(partition, action, encode_header(action), value)


@pytest.mark.req("J94", "J95", "J97", "RA12")
@pytest.mark.timeout(300)
def test_a_bad_record_stops_nobody(pairing: Pairing, paired: Strandline, spark: Any) -> None:
    """A header that nobody can read changes nothing. A bad value costs its payloads alone."""
    key, values = KEYS[0], (b"no value", encode_value([Content(JSON, b"2", None)] * 2))
    partition = paired.journal.append(key, [Event("Placed", 1)]).partition
    raw_append(paired, partition, key=key, header=b"not ours", value=b"?")
    for value in values:
        paired.log.append([draft_of(key, partition, value)])
    last = paired.journal.append(key, [Event("Sent", 6)])
    assert last.first == 6
    for carried in (False, True):
        if carried:
            run(once=True, spark=spark, **pairing.where)
            assert stored(paired, key) == [1, 2, 3, 4, 5, 6]
        found = list(paired.journal.read(key))
        assert [(e.seq_nr, e.prev_seq_nr, e.damaged) for e in found] == [
            (1, 0, False), (2, 1, True), (3, 2, True), (4, 3, True), (5, 4, True), (6, 5, False)
        ]  # fmt: skip
        assert [(e.type, e.tags) for e in found[1:3]] == [("Placed", ("new",)), ("Paid", ())]
        assert [e.payload for e in (found[0], found[5])] == [1, 6]
        for event, code in zip(found[1:5], ("undecodable", "undecodable", "digest", "digest"), strict=True):
            for name in ("payload", "metadata"):
                with pytest.raises(Corrupt) as touched:
                    getattr(event, name)
                assert (touched.value.code, touched.value.key, touched.value.seq_nr) == (code, key, event.seq_nr)
    listed = [
        (row.partition, row.key, row.reason, whole.value)
        for row in quarantined(paired.store)
        if (whole := quarantined_at(paired.store, row.partition, row.offset)) is not None
    ]
    assert listed == [
        (partition, key, reason, value)
        for reason, value in zip(("foreign", "undecodable", "digest"), (b"?", *values), strict=True)
    ]
