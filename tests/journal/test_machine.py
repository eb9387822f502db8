"""Random work on a few keys, carried at random places, against a naive model: every read says what the model says."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any, cast
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline import Key, ReadConflict, SeqNrConflict
from strandline.backends.memory.log import MemoryLog
from strandline.backends.memory.store import MemoryStore
from strandline.connect import Strandline
from strandline.store.api import StoreSettings
from strandline.testing import LastWriteWinsStore, carry
from strandline.testing.faults import Crash
from tests.journal.model import Model
from tests.journal.test_lags import AfterWrites
from tests.journal.worlds import events, inexact, last_write_wins, numbered, paired, replayed
from tests.repeats import examples

KEYS = [Key("order", "1"), Key("order", "2"), Key("user", "1")]
whose = st.sampled_from(KEYS)
numbers = st.integers(1, 12)
PARTITIONS = 2


class Work(RuleBasedStateMachine):
    """What callers do, and how far the pipeline gets."""

    s: Strandline
    transactions = True

    def __init__(self) -> None:
        super().__init__()
        self.models = {key: Model() for key in KEYS}
        self.payload = 0

    @initialize(page=st.integers(1, 4), buffer=st.sampled_from([0, 700, 2**20]), segment=st.integers(2, 4))
    def open(self, page: int, buffer: int, segment: int) -> None:
        tight: dict[str, Any] = {"read_page": page, "tail_buffer_bytes": buffer}
        if self.transactions:
            log = MemoryLog(partitions=PARTITIONS, segment_size=segment)
            self.s = paired(log, MemoryStore(StoreSettings(log.log_id, PARTITIONS, segment)), **tight)
        else:
            self.s = last_write_wins(partitions=PARTITIONS, segment_size=segment, **tight)
        self.lease = self.s.store.lease().take("a pipeline")

    @rule(
        key=whose,
        count=st.integers(1, 3),
        expected=st.none() | st.integers(0, 12),
        first=st.none() | st.none() | numbers,
    )
    def append(self, key: Key, count: int, expected: int | None, first: int | None) -> None:
        payloads = [self.payload + index for index in range(count)]
        self.payload += count
        told = self.models[key].append(payloads, expected=expected, first=first)
        found: tuple[Any, Any]
        try:
            done = self.s.journal.append(key, events(*payloads), expected=expected, first=first)
            found = done.first, done.last
        except SeqNrConflict as conflict:
            found = "conflict", conflict.actual
        assert found == told

    @rule(key=whose, to=numbers, reset=st.booleans())
    def delete(self, key: Key, to: int, reset: bool) -> None:
        done = self.s.journal.delete(key, to=to, reset=reset)
        assert (None if done is None else done.delete_to) == self.models[key].delete(to, reset=reset)

    @rule(key=whose)
    def purge(self, key: Key) -> None:
        self.s.journal.purge(key)
        self.models[key].purge()

    @rule(key=whose)
    def mark(self, key: Key) -> None:
        self.s.journal.mark(key)

    @rule(partition=st.integers(0, PARTITIONS - 1), limit=st.none() | st.integers(1, 4))
    def carry(self, partition: int, limit: int | None) -> None:
        carry(self.s, partition=partition, limit=limit, lease=self.lease)

    @rule(
        key=whose,
        from_=numbers,
        more=st.none() | st.integers(0, 5),
        limit=st.none() | st.integers(1, 4),
        backwards=st.booleans(),
    )
    def read_a_part(self, key: Key, from_: int, more: int | None, limit: int | None, backwards: bool) -> None:
        to = None if more is None else from_ + more
        found = self.s.journal.read(key, from_=from_, to=to, limit=limit, backwards=backwards)
        assert numbered(found) == self.models[key].read(from_, to, limit=limit, backwards=backwards)

    @rule(key=whose, given=st.integers(0, 3), limit=st.none() | st.integers(1, 4), backwards=st.booleans())
    def carry_under_a_reader(self, key: Key, given: int, limit: int | None, backwards: bool) -> None:
        """The pipeline moves while somebody reads; nothing was deleted meanwhile, so nothing may stop the reader."""
        reading = self.s.journal.read(key, backwards=backwards)
        found = numbered(islice(reading, given))
        carry(self.s, limit=limit, lease=self.lease)
        assert found + numbered(reading) == self.models[key].read(backwards=backwards)

    @rule(
        key=whose,
        given=st.integers(1, 3),
        to=st.none() | numbers,
        limit=st.none() | st.integers(1, 4),
        backwards=st.booleans(),
    )
    def remove_under_a_reader(self, key: Key, given: int, to: int | None, limit: int | None, backwards: bool) -> None:
        """What is removed under a reader it shows, or it says that the journal changed. It never ends early."""
        before = self.models[key].read(backwards=backwards)
        reading = self.s.journal.read(key, backwards=backwards)
        found = numbered(islice(reading, given))
        self.purge(key) if to is None else self.delete(key, to, reset=False)
        carry(self.s, limit=limit, lease=self.lease)
        try:
            found += numbered(reading)
        except ReadConflict:
            return
        assert found == before

    @invariant()
    def every_key_reads_as_it_should(self) -> None:
        if not hasattr(self, "s"):
            return
        for key, model in self.models.items():
            assert numbered(self.s.journal.read(key)) == model.read()
            head = self.s.journal.head(key)
            assert (None if head is None else (head.seq_nr, head.delete_to, head.life)) == model.head()

    @invariant()
    def a_replay_gives_what_reads_give(self) -> None:
        if not hasattr(self, "s"):
            return
        found: dict[str, list[int]] = {}
        for partition, cut in enumerate(self.s.log.newest()):
            for row in replayed(self.s, partition, cut=cut):
                found.setdefault(str(row.key), []).append(row.seq_nr)
        expected = {str(key): [number for number, _, _ in model.read()] for key, model in self.models.items()}
        assert found == {key: given for key, given in expected.items() if given}


class WorkOnAnInexactLog(Work):
    """The same on a log that does not fold: verdicts, marks, and a heads cache that is on, off, small or late."""

    @initialize(
        page=st.integers(1, 4),
        buffer=st.sampled_from([0, 700, 2**20]),
        segment=st.integers(2, 4),
        cache=st.booleans(),
        keys=st.integers(1, 3),
        wait_s=st.sampled_from([0, 1]),
    )
    def open_inexact(self, page: int, buffer: int, segment: int, cache: bool, keys: int, wait_s: float) -> None:
        if hasattr(self, "s"):
            self.s.close()
        self.s = inexact(
            partitions=PARTITIONS,
            segment_size=segment,
            read_page=page,
            tail_buffer_bytes=buffer,
            heads_cache=cache,
            heads_cache_keys_max=keys,
            heads_cache_wait_s=wait_s,
        )
        self.lease = self.s.store.lease().take("a pipeline")

    @initialize()
    def open(self) -> None:
        """Opened above."""

    @rule(key=whose, count=st.integers(1, 3), numbers=st.booleans())
    def append_in_the_background(self, key: Key, count: int, numbers: bool) -> None:
        payloads = [self.payload + index for index in range(count)]
        self.payload += count
        first, last = self.models[key].append(payloads)
        done = self.s.journal.append_future(key, events(*payloads), numbers=numbers).result(30)
        assert (done.first, done.last) == ((first, last) if numbers else (None, None))

    @rule(key=whose, count=st.integers(1, 3))
    def append_twice(self, key: Key, count: int) -> None:
        payloads = [self.payload + index for index in range(count)]
        self.payload += count
        told = self.models[key].append(payloads)
        append_id = uuid4()
        for duplicate in (False, True):
            done = self.s.journal.append(key, events(*payloads), append_id=append_id)
            assert (done.first, done.last, done.duplicate) == (*told, duplicate)

    @rule()
    def restart_the_cache(self) -> None:
        cache = self.s.journal._heads
        if cache is not None:
            cache.close()
            cache._closed = False

    def teardown(self) -> None:
        if hasattr(self, "s"):
            self.s.close()


class WorkWithoutTransactions(Work):
    """The same on a store that has none, with a pipeline that dies between two writes."""

    transactions = False

    @rule(partition=st.integers(0, PARTITIONS - 1), writes=st.integers(0, 12), limit=st.integers(1, 4))
    def die(self, partition: int, writes: int, limit: int) -> None:
        store = cast(LastWriteWinsStore, self.s.store)
        store.before_write = AfterWrites(writes)
        with suppress(Crash):
            carry(self.s, partition=partition, limit=limit, lease=self.lease)
        store.before_write = lambda table: None


quick = settings(
    max_examples=examples(500),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
pytestmark = pytest.mark.req("J50", "J57", "J63", "J114", "J128", "RJ1", "RJ2", "RJ3")
TestWork = Work.TestCase
TestWork.settings = quick
TestOnAnInexactLog = pytest.mark.req("J37", "J38", "J39", "J51", "J65", "J66")(WorkOnAnInexactLog.TestCase)
TestOnAnInexactLog.settings = settings(quick, max_examples=examples(60))
TestWithoutTransactions = WorkWithoutTransactions.TestCase
TestWithoutTransactions.settings = settings(quick, max_examples=examples(300))
