"""Status, the strandline, and retention."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Event, InvalidInput, Key
from strandline.connect import Strandline
from strandline.errors import MissingEvent
from strandline.journal.retention import trim
from strandline.rows import Pointer
from strandline.testing import FakeClock, carry, raw_append
from tests.journal.worlds import BACKENDS, events, needs_exact, seq_nrs, world

HOUR_US = 3_600_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=BACKENDS)
def s(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Strandline]:
    with world(request.param, tmp_path, partitions=2, clock=clock) as opened:
        yield opened


def key_of(partition: int, partitions: int = 2) -> str:
    return next(f"order|{n}" for n in range(100) if _partition(f"order|{n}", partitions) == partition)


def _partition(key: str, partitions: int) -> int:
    return Key.of(key).partition(partitions)


@pytest.mark.req("J89")
def test_status(s: Strandline, clock: FakeClock) -> None:
    s.journal.append(key_of(0), events(1))
    clock.advance(5)
    s.journal.append(key_of(0), events(2))
    clock.advance(10)
    status = s.status()
    busy, idle = status.partitions
    assert (busy.partition, busy.pointer, busy.newest, busy.lag_actions, busy.lag_s) == (0, -1, 1, 2, 15.0)
    assert (idle.pointer, idle.newest, idle.lag_actions, idle.lag_s, idle.oldest_kept) == (-1, -1, 0, 0.0, 0)
    assert (status.lease_holder, status.lease_since, status.quarantined, status.warnings) == (None, None, 0, ())
    lease = s.store.lease().take("a pipeline")
    carry(s, limit=1, lease=lease)
    raw_append(s, 1, key=None, header=b"foreign", value=None)
    carry(s, partition=1, lease=lease)
    status = s.status()
    assert (status.partitions[0].lag_actions, status.partitions[0].lag_s) == (1, 10.0)
    assert (status.lease_holder, status.lease_since, status.quarantined) == ("a pipeline", clock(), 1)
    assert len(status.warnings) == 1
    assert json.loads(json.dumps(status.to_dict()))["partitions"][1]["pointer"] == 0
    assert status.durability == "full"


@pytest.mark.req("J89")
def test_marks_are_no_lag(s: Strandline, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mark, such as a read leaves behind on a log that is not exact, keeps nobody waiting."""
    s.journal.append(key_of(0), events(1))
    carry(s)
    for _ in range(3):
        s.journal.mark(key_of(0))
        assert seq_nrs(s.journal.read(key_of(0))) == [1]
    clock.advance(20 * 3600)
    status = s.status()
    assert status.partitions[0].newest >= 3
    assert (status.partitions[0].lag_actions, status.partitions[0].lag_s, status.warnings) == (0, 0.0, ())
    s.journal.append(key_of(0), events(2))
    raw_append(s, 0, key=None, header=None, value=b"foreign")
    clock.advance(5)
    assert s.status().partitions[0].lag_actions == 2
    assert s.status().partitions[0].lag_s == 5.0
    monkeypatch.setattr("strandline.journal.status.LAG_LOOKED_AT_MAX", 2)
    assert s.status().partitions[0].lag_actions >= 5  # too many to look at: all of them
    assert s.status().partitions[0].lag_s > 5.0


@pytest.mark.req("J90")
def test_the_strandline_is_the_least_pointer(s: Strandline, clock: FakeClock) -> None:
    assert s.strandline() == 0
    first = s.journal.append(key_of(0), events(1)).timestamp
    carry(s, partition=0)
    assert s.strandline() == 0
    assert s.status().strandline_age_s is None
    clock.advance(3)
    s.journal.append(key_of(1), events(1))
    carry(s, partition=1)
    assert s.strandline() == first
    clock.advance(4)
    assert s.status().strandline == first
    assert s.status().strandline_age_s == 7.0


@pytest.mark.req("RA13")
def test_at_half_of_the_retention_status_warns(s: Strandline, clock: FakeClock) -> None:
    s.journal.append(key_of(1), events(1))
    clock.advance(12 * 3600)
    assert s.status().warnings == ()
    clock.advance(1)
    (warning,) = s.status().warnings
    assert "partition 1" in warning
    assert seq_nrs(s.journal.read(key_of(1))) == [1]
    assert s.journal.append(key_of(1), events(2)).first == 2
    carry(s)
    assert s.status().warnings == ()


@pytest.mark.req("RS11")
def test_durability(tmp_path: Path) -> None:
    for accepted, durability in ((True, "relaxed"), (False, "full")):
        with world("memory", tmp_path, accept_power_loss=accepted) as s:
            assert s.status().durability == durability


@pytest.mark.req("J33", "RA14")
def test_trim_takes_what_is_old_and_carried(s: Strandline, clock: FakeClock) -> None:
    needs_exact(s, "reads leave Marks behind")
    for _ in range(4):
        for partition in (0, 1):
            s.journal.append(key_of(partition), [Event("Placed", 1)])
        clock.advance(8 * 3600)
    carry(s, partition=0)
    carry(s, partition=1, limit=2)
    before = [seq_nrs(s.journal.read(key_of(partition))) for partition in (0, 1)]
    # written 32, 24, 16 and 8 hours ago; a day is kept, by this clock and not by that of the pipeline's host
    assert trim(s.log, s.store, s.settings) == 2
    assert s.log.oldest() == [1, 1]
    clock.now += 1
    assert trim(s.log, s.store, s.settings) == 2
    assert s.log.oldest() == [2, 2]
    clock.now += 1000 * HOUR_US
    assert trim(s.log, s.store, s.settings) == 2
    assert s.log.oldest() == [4, 2]
    assert [seq_nrs(s.journal.read(key_of(partition))) for partition in (0, 1)] == before
    with pytest.raises(InvalidInput) as caught:
        s.log.trim(1, to=3, pointer=2, keep_after=2**62)
    assert caught.value.name == "InvalidInput.trim_range"
    assert s.log.newest() == [3, 3]


@pytest.mark.req("J33")
def test_a_log_with_a_retention_of_its_own_is_left_to_it(s: Strandline, clock: FakeClock) -> None:
    if s.log.exact:
        pytest.skip("a SQL log is trimmed by the pipeline")
    s.journal.append(key_of(0), events(1))
    carry(s)
    clock.advance(1000 * 3600)
    assert trim(s.log, s.store, s.settings) == 0
    assert s.log.oldest() == [0, 0]


def test_trim_is_harmless_on_a_new_store(s: Strandline) -> None:
    s.journal.append(key_of(0), events(1))
    assert trim(s.log, s.store, s.settings) == 0
    assert seq_nrs(s.journal.read(key_of(0))) == [1]


@pytest.mark.req("J89")
def test_up_to_date(s: Strandline, clock: FakeClock) -> None:
    assert s.status().up_to_date
    s.journal.append(key_of(0), events(1))
    assert not s.status().up_to_date
    carry(s)
    s.journal.mark(key_of(0))
    clock.advance(1080)
    assert s.status().up_to_date


@pytest.mark.req("RR7", "J89")
@pytest.mark.parametrize("to", [2, 3])
def test_a_lost_range_is_shown(s: Strandline, to: int) -> None:
    """Some of what was not carried was trimmed, or all of it: then nothing waits, and all is not well."""
    for number in range(4):
        s.journal.append(key_of(0), events(number))
    carry(s, limit=1)
    s.log.trim(0, to=to, pointer=to, keep_after=2**62)
    status = s.status()
    assert [p.lost for p in status.partitions] == [(1, to), None]
    assert status.partitions[0].lag_actions == 3 - to
    assert not status.up_to_date
    (warning,) = status.warnings
    assert warning.startswith(f"partition 0: offsets 1 to {to} are lost")


@pytest.mark.req("J89")
def test_what_is_carried_and_trimmed_under_a_look_is_not_lost(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        s.journal.append(key_of(0), events(number))
    pointers = s.store.pointers

    def then_carried_and_trimmed() -> list[Pointer]:
        seen = pointers()
        monkeypatch.undo()
        carry(s)
        s.log.trim(0, to=2, pointer=3, keep_after=2**62)
        return seen

    monkeypatch.setattr(s.store, "pointers", then_carried_and_trimmed)
    status = s.status()
    assert s.log.oldest()[0] == 3
    assert (status.partitions[0].lost, status.warnings) == (None, ())


@pytest.mark.req("RR7")
def test_a_lost_tail_is_no_head(s: Strandline) -> None:
    needs_exact(s, "the heads cache may still have it; see test_inexact")
    s.journal.append(key_of(0), events(1))
    s.journal.append(key_of(0), events(2))
    s.log.trim(0, to=0, pointer=0, keep_after=2**62)
    with pytest.raises(MissingEvent) as caught:
        s.journal.head(key_of(0))
    assert (caught.value.name, caught.value.first, caught.value.last) == ("MissingEvent.log_trimmed", 0, 0)
