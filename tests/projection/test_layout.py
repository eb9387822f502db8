"""Ranges, shares, slices at a rescale, recovery: decisions over values."""

from __future__ import annotations

import random
from itertools import product

import pytest

from strandline.projection.layout import RangeRow, cut_anew, line_of, share
from strandline.projection.offsets import KeyRow, KeyRows, RangeOffsets
from strandline.projection.recovery import RecoveryStep, decide, restart_delay_s, retry_delay_s
from strandline.projection.settings import ProjectionSettings
from strandline.query.acceptance import Acceptance, Candidate
from strandline.query.look_back import candidate
from strandline.query.query_row import QueryRow
from strandline.values.keys import SLICES, slice_of
from strandline.values.ranges import ranges


def row(lo: int, hi: int, owner: str | None = None, position: int = 0, retry_at: int = 0) -> RangeRow:
    return RangeRow(lo, hi, 1, owner, position, 0, 0, None, None, retry_at, 0, "{}")


def rows(n: int, owners: list[str | None] | None = None) -> list[RangeRow]:
    return [row(lo, hi, None if owners is None else owners[i]) for i, (lo, hi) in enumerate(ranges(n))]


@pytest.mark.req("P71")
def test_hosts_come_to_even_shares_and_nobody_owns_what_another_does() -> None:
    random.seed(7)
    for _ in range(200):
        count, hosts = random.randint(1, 20), [f"h{n}" for n in range(random.randint(1, 6))]
        dead = ["dead"]
        found = rows(count, [random.choice([None, *hosts, *dead]) for _ in range(count)])
        for _ in range(10):  # rounds in which each host looks once, in any order
            for me in random.sample(hosts, len(hosts)):
                wanted = share(found, hosts, me, now=5)
                for taken in wanted.claim:
                    assert taken.owner is None or taken.owner in dead
                    found = [one._replace(owner=me) if one.lo == taken.lo else one for one in found]
                for given in wanted.release:
                    assert given.owner == me
                    found = [one._replace(owner=None) if one.lo == given.lo else one for one in found]
        owners = [one.owner for one in found]
        assert all(owner in hosts for owner in owners)
        assert max(owners.count(host) for host in hosts) <= -(-count // len(hosts))


@pytest.mark.req("P71", "P59")
def test_a_failed_range_waits_for_its_time() -> None:
    found = [row(0, 511, retry_at=10), row(512, 1023)]
    assert [one.lo for one in share(found, ["a"], "a", now=9).claim] == [512]
    assert [one.lo for one in share(found, ["a"], "a", now=10).claim] == [0, 512]


@pytest.mark.req("P72", "P73", "RP4", "P30")
def test_no_sequence_of_rescales_loses_or_repeats() -> None:
    """Positions move at random and ranges are cut at random: what a slice has done is never forgotten, nor made up."""
    random.seed(11)
    for _ in range(10):
        layout = [row(lo, hi) for lo, hi in ranges(random.randint(1, 12))]
        slices: dict[int, int] = {}
        done = [0] * SLICES
        for _ in range(20):
            layout = [one._replace(position=one.position + random.choice([0, 0, 1, 7])) for one in layout]
            for one in layout:
                for slice_ in range(one.lo, one.hi + 1):
                    done[slice_] = max(done[slice_], one.position)
            n = random.choice([1, 2, 3, 4, 8, 100, 1024])
            cut = cut_anew(layout, slices, n)
            layout = [row(*range_, position=position) for range_, position in cut.positions.items()]
            slices = cut.slices
            assert [(one.lo, one.hi) for one in layout] == ranges(n)
            for one in layout:
                for slice_ in range(one.lo, one.hi + 1):
                    assert max(one.position, slices.get(slice_, -1)) == done[slice_]
                    assert one.position <= done[slice_]


@pytest.mark.req("P33")
def test_the_line_is_the_least_position_and_only_grows() -> None:
    found = [row(0, 511, position=1000), row(512, 1023, position=700)]
    assert line_of(found, 0, 100) == 600
    assert line_of(found, 650, 100) == 650


def offsets(position: int = 0, slices: dict[int, int] | None = None, most: int = 1000) -> RangeOffsets:
    return RangeOffsets(position, slices or {}, most)


def event(key: str, seq_nr: int, timestamp: int = 100) -> Candidate:
    return Candidate(1, seq_nr, seq_nr - 1, (timestamp, seq_nr, key))


def key_row(key: str, seq_nr: int, timestamp: int = 50) -> KeyRow:
    return KeyRow(slice_of(key), key, 1, seq_nr, timestamp)


@pytest.mark.req("P30", "P73", "P34")
def test_a_slice_may_be_further_than_its_range() -> None:
    key = "order|1"
    found = offsets(50, {slice_of(key): 100})
    assert found.judge(event(key, 1, 100), key) is Acceptance.DUPLICATE
    assert found.judge(event(key, 1, 101), key) is Acceptance.ACCEPTED
    assert found.judge(event("order|2", 1, 60), "order|2") is Acceptance.ACCEPTED


@pytest.mark.req("P32", "P34")
@pytest.mark.parametrize("where", ["memory", "table"])
def test_last_in_memory_or_in_the_table(where: str) -> None:
    key, found = "order|1", offsets()
    if where == "memory":
        found.done(key_row(key, 5))
        assert found.hold([key]) == []
    else:
        assert found.hold([key, key]) == [key]
        found.load([key], KeyRows({key: key_row(key, 5)}, line=0))
    assert found.judge(event(key, 5), key) is Acceptance.DUPLICATE
    assert found.judge(event(key, 6), key) is Acceptance.ACCEPTED
    assert found.judge(event(key, 8), key) is Acceptance.LOOK


@pytest.mark.req("P34", "P30", "P32")
def test_what_is_next_for_sure_is_accepted_whatever_else_is_asked() -> None:
    """Every small case: where the short way says yes, the table does; and it says yes to the next one of a key."""
    key, other = "order|1", "order|2"
    short = 0
    for known, parked, last, line, position, slice_, strandline in product(
        (None, 1, 2), (None, 4), (1, 2), (-1, 3, 5), (-1, 4, 9), (None, 3, 9), (True, False)
    ):
        found = offsets(position, {} if slice_ is None else {slice_of(other): slice_})
        kept = {} if known is None else {key: KeyRow(slice_of(key), key, known, last, 2, parked)}
        found.load([key], KeyRows(kept, line=line))
        for life, seq_nr, prev, timestamp in product((1, 2), (1, 2, 3), (0, 1, 2), (3, 5)):
            read = QueryRow(timestamp, seq_nr, key, life, prev, b"x", 0)
            if prev < seq_nr and found.is_next(read):
                short += 1
                assert found.judge(candidate(read), key, strandline=strandline) is Acceptance.ACCEPTED
    assert short > 100
    assert offsets(2).is_next(QueryRow(3, 1, key, 1, 0, b"x", 0))


@pytest.mark.req("P32")
def test_unsaved_rows_stay_in_memory_and_others_are_forgotten() -> None:
    found = offsets(most=4)
    for number in range(100):
        found.done(key_row(f"order|{number}", 1))
    assert len(found.unsaved) == 100
    assert found.hold(f"order|{n}" for n in range(100)) == []
    found.saved(70)
    assert found.position == 70
    assert found.unsaved == []
    assert all(found.row(f"order|{n}") for n in range(100))  # the page needs them
    assert found.hold(["another"]) == ["another"]
    assert len([n for n in range(100) if found.row(f"order|{n}")]) <= 4


@pytest.mark.req("P32")
def test_a_line_is_not_remembered_from_page_to_page() -> None:
    found = offsets()
    found.load(found.hold(["order|1"]), KeyRows({}, line=100))
    assert found.judge(event("order|1", 5, 100), "order|1") is Acceptance.DUPLICATE
    found.hold(["order|2"])
    assert found.judge(event("order|1", 5, 100), "order|1") is Acceptance.LOOK


@pytest.mark.req("P58", "P59", "P60", "P61", "P63")
def test_the_table_of_recovery() -> None:
    for on_failure in ("fail", "skip", "park"):
        settings = ProjectionSettings.of({"on_failure": on_failure, "retries": 2, "parked_keys_max": 10})
        assert [decide(settings, n, 0).step for n in (1, 2)] == [RecoveryStep.RETRY, RecoveryStep.RETRY]
        assert decide(settings, 3, 0).step is RecoveryStep(on_failure)
    assert decide(ProjectionSettings.of({"on_failure": "park", "retries": 0}), 1, 999).step is RecoveryStep.PARK
    assert decide(ProjectionSettings.of({"on_failure": "park", "retries": 0}), 1, 1000).step is RecoveryStep.FAIL


@pytest.mark.req("P58", "P59")
def test_delays_grow_up_to_a_limit() -> None:
    settings = ProjectionSettings.of({"retry_delay_s": 0.2, "restart_min_s": 1, "restart_max_s": 30})
    assert [retry_delay_s(settings, n) for n in (1, 2, 3, 9)] == [0.2, 0.4, 0.8, 10]
    assert [restart_delay_s(settings, n, 0.5) for n in (0, 1, 2, 50)] == [1, 2, 4, 30]
    assert restart_delay_s(settings, 50, 0) == pytest.approx(24)
    assert restart_delay_s(settings, 50, 1) == pytest.approx(36)
