"""Recovery beside a busy owner: a snapshot and the events after it are of one moment, or the reader is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import get_ident
from typing import Any, NamedTuple

import pytest

from strandline import ReadConflict
from strandline.backends.memory.log import MemoryLog
from strandline.connect import Strandline
from strandline.settings import Settings
from strandline.store.api import StoreSettings
from strandline.testing import carry
from strandline.testing.faults import Faults
from strandline.values.answers import Recovery
from tests.journal.worlds import BACKENDS, KEY, events, last_write_wins, seq_nrs, world
from tests.repeats import repeats
from tests.store.keyspaces import RELAXED, EmptyStores

STORES = ("memory", "last-write-wins", "sqlite", "postgresql", "inexact", "cassandra")


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=1) as opened:
        yield opened


@contextmanager
def beside(s: Strandline, faults: Faults) -> Iterator[Strandline]:
    """Another reader of the same log and store, with a point at every call that it makes."""
    reader = Strandline(faults.around("log", s.log), faults.around("store", s.store), s.settings)
    try:
        yield reader
    finally:
        reader.journal.close()


def ten(s: Strandline, number: int) -> None:
    """Ten more events, numbered from there."""
    s.journal.append(KEY, events(*range(number, number + 10)))


# ---------------------------------------------------------------- one schedule each


@pytest.mark.req("J107")
def test_a_delete_before_the_events_are_asked_for(s: Strandline) -> None:
    ten(s, 1)
    s.journal.save_snapshot(KEY, 10, "ten")
    ten(s, 11)
    carry(s)
    recovery = s.journal.recover(KEY)
    s.journal.save_snapshot(KEY, 20, "twenty")
    s.journal.delete(KEY, to=20)
    ten(s, 21)
    carry(s)
    assert recovery.snapshot is not None
    assert recovery.snapshot.state == "ten"
    with pytest.raises(ReadConflict) as caught:
        list(recovery.events)
    assert caught.value.name == "ReadConflict.journal_changed"


@pytest.mark.req("J107")
def test_a_delete_before_the_events_after_the_zero_state_are_asked_for(s: Strandline) -> None:
    ten(s, 1)
    carry(s)
    recovery = s.journal.recover(KEY)
    s.journal.save_snapshot(KEY, 5, "five")
    s.journal.delete(KEY, to=5)
    carry(s)
    assert recovery.snapshot is None
    with pytest.raises(ReadConflict):
        list(recovery.events)


@pytest.mark.req("J107")
@pytest.mark.parametrize("saved", [False, True])
def test_another_life_before_the_events_are_asked_for(s: Strandline, saved: bool) -> None:
    ten(s, 1)
    if saved:
        s.journal.save_snapshot(KEY, 5, "five")
    carry(s)
    recovery = s.journal.recover(KEY)
    s.journal.purge(KEY)
    ten(s, 101)
    carry(s)
    with pytest.raises(ReadConflict):
        list(recovery.events)


@pytest.mark.req("J107")
def test_what_the_pipeline_carries_meanwhile_stops_no_recovery(s: Strandline) -> None:
    ten(s, 1)
    s.journal.save_snapshot(KEY, 5, "five")
    carry(s)
    ten(s, 11)
    recovery = s.journal.recover(KEY)
    ten(s, 21)
    s.journal.delete(KEY, to=5)
    carry(s)
    assert seq_nrs(recovery.events)[:15] == list(range(6, 21))


@pytest.mark.req("J107")
def test_the_snapshot_is_replaced_between_plan_and_look_up(s: Strandline) -> None:
    ten(s, 1)
    s.journal.save_snapshot(KEY, 10, "ten")
    s.journal.delete(KEY, to=10)
    ten(s, 11)
    carry(s)

    def replace() -> None:
        ten(s, 21)
        s.journal.save_snapshot(KEY, 30, "thirty")
        s.journal.delete(KEY, to=30)
        s.journal.delete_snapshots(KEY, to=29)
        ten(s, 31)
        carry(s)

    faults = Faults()
    faults.at("before store.scan", replace)
    with beside(s, faults) as reader:
        recovery = reader.journal.recover(KEY)
        assert recovery.snapshot is not None
        assert recovery.snapshot.state == "thirty"
        assert seq_nrs(recovery.events) == list(range(31, 41))


@pytest.mark.req("J107")
def test_the_snapshot_is_replaced_and_its_delete_comes_late(s: Strandline) -> None:
    """The old snapshot is gone at the look-up, and only after the next plan does a delete tell why."""
    ten(s, 1)
    s.journal.save_snapshot(KEY, 10, "ten")
    s.journal.delete(KEY, to=10)
    ten(s, 11)
    carry(s)

    def replace() -> None:
        ten(s, 21)
        s.journal.save_snapshot(KEY, 30, "thirty")
        s.journal.delete_snapshots(KEY, to=29)

    faults = Faults()
    faults.at("before store.scan", replace)
    with beside(s, faults) as reader:
        recovery = reader.journal.recover(KEY)
        s.journal.delete(KEY, to=30)
        assert recovery.snapshot is not None
        assert recovery.snapshot.state == "thirty"
        assert seq_nrs(recovery.events) == []


@pytest.mark.req("J107")
def test_a_purge_between_plan_and_look_up(s: Strandline) -> None:
    ten(s, 1)
    s.journal.save_snapshot(KEY, 10, "ten")
    s.journal.delete(KEY, to=10)
    ten(s, 11)
    carry(s)

    def purge() -> None:
        s.journal.purge(KEY)
        s.journal.append(KEY, events("new"))
        carry(s)

    faults = Faults()
    faults.at("before store.scan", purge)
    with beside(s, faults) as reader:
        recovery = reader.journal.recover(KEY)
        assert recovery.snapshot is None
        assert [event.payload for event in recovery.events] == ["new"]


@pytest.mark.req("J107")
def test_an_owner_that_never_rests() -> None:
    """The journal is another one at each look-up: the recovery ends all the same."""
    s = last_write_wins()
    ten(s, 1)
    last = 10

    def replace() -> None:
        nonlocal last
        s.journal.save_snapshot(KEY, last, last)
        s.journal.delete(KEY, to=last)
        ten(s, last + 1)
        last += 10
        s.journal.delete_snapshots(KEY)

    replace()
    faults = Faults()
    faults.at("before store.scan", replace, times=10_000)
    with beside(s, faults) as reader, pytest.raises(ReadConflict) as caught:
        reader.journal.recover(KEY)
    assert caught.value.name == "ReadConflict.journal_changed"
    assert faults.seen["before store.scan"] <= 100


# ---------------------------------------------------------------- a loop of all of them


class Moment(NamedTuple):
    """What the owner knows to be so: the life of its key (0 while there is none) and its last number."""

    life: int
    last: int


class Owner:
    """Appends, saves snapshots, deletes what they cover, drops old ones, purges, and carries; all at random.

    It deletes nothing that no snapshot covers, and drops none before it has a newer one. So whoever recovers can get
    from the snapshot, or from nothing, to the last number: every payload and every state says its life and number.
    """

    def __init__(self, s: Strandline, random: Random) -> None:
        self._s, self._random = s, random
        self._lease = s.store.lease().take("the owner")
        self._lives = self._saved = 0
        self.moments = [Moment(0, 0)]

    def act(self, most: int) -> None:
        """Some steps, or none."""
        steps = [self._append, self._append, self._save, self._delete, self._drop, self._carry, self._carry]
        for _ in range(self._random.randint(0, most)):
            self._random.choice([*steps * 2, self._purge])()

    def _append(self) -> None:
        life, last = self.moments[-1]
        if not life:
            life = self._lives = self._lives + 1
        count = self._random.randint(1, 3)
        self._s.journal.append(KEY, events(*([life, last + 1 + index] for index in range(count))))
        self.moments.append(Moment(life, last + count))

    def _save(self) -> None:
        life, last = self.moments[-1]
        if life:
            self._s.journal.save_snapshot(KEY, last, [life, last])
            self._saved = last

    def _delete(self) -> None:
        if self._saved:
            self._s.journal.delete(KEY, to=self._random.randint(1, self._saved))

    def _drop(self) -> None:
        if self._saved > 1:
            self._s.journal.delete_snapshots(KEY, to=self._saved - 1)

    def _purge(self) -> None:
        self._s.journal.purge(KEY)
        self.moments.append(Moment(0, 0))
        self._saved = 0

    def _carry(self) -> None:
        carry(self._s, limit=self._random.choice([1, 2, None]), lease=self._lease)


def check(recovery: Recovery, given: list[Any], before: Moment, during: list[Moment]) -> None:
    """Whether this can be what the key was at one of these moments, and has all that was there before."""
    at = [0, 0] if recovery.snapshot is None else recovery.snapshot.state
    run = [at, *given] if recovery.snapshot is not None else given
    life, last = run[-1] if run else (0, 0)
    assert [number for _, number in given] == list(range(at[1] + 1, last + 1)), (at, given)
    assert {number for number, _ in run} <= {life}, (at, given)
    assert life in {moment.life for moment in during}, (at, given, during)
    if life == before.life:
        assert last >= before.last


class Restless(Faults):
    """Lets somebody act at every call that goes through it, of this thread and not from within."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act, self._thread, self.quiet = act, get_ident(), True

    def reached(self, point: str) -> None:
        if self.quiet or get_ident() != self._thread:
            return
        self.quiet = True
        self._act()
        self.quiet = False


@contextmanager
def store_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Strandline]:
    """An empty journal on that store, with short pages, segments and buffer: many calls for few events."""
    tight: dict[str, Any] = {"segment_size": 3, "read_page": 2, "tail_buffer_bytes": 1500}
    if name == "last-write-wins":
        yield last_write_wins(**tight)
    elif name == "cassandra":
        stores: EmptyStores = request.getfixturevalue("empty_stores")
        log = MemoryLog(partitions=1, segment_size=3)
        yield Strandline(log, stores.make(StoreSettings(log.log_id, 1, 3)), Settings.of(tight))
    else:
        with world(name, folder, partitions=1, **tight) as s:
            yield s


@RELAXED
@pytest.mark.req("J59", "J107")
@pytest.mark.parametrize("name", [*STORES[:-1], pytest.param("cassandra", marks=pytest.mark.soak)])
@repeats(10, 1000)
@pytest.mark.timeout(1800)
def test_recoveries_beside_a_busy_owner(name: str, times: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The owner acts between any two calls that a recovery makes, and before its events are asked for."""
    random = Random(1)
    conflicts = 0
    with store_of(name, request, tmp_path) as s:
        owner = Owner(s, random)
        restless = Restless(lambda: owner.act(1))
        with beside(s, restless) as reader:
            for _ in range(times):
                owner.act(6)
                start = len(owner.moments) - 1
                restless.quiet = random.random() < 0.3
                try:
                    recovery = reader.journal.recover(KEY)
                    seen = owner.moments[start:]
                    owner.act(6)
                    given = [event.payload for event in recovery.events]
                except ReadConflict:
                    conflicts += 1
                    continue
                finally:
                    restless.quiet = True
                check(recovery, given, seen[0], seen)
    assert conflicts < times * 0.9
