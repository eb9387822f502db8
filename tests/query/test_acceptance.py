"""The truth table of acceptance: every row by each way that an event can come."""

from __future__ import annotations

import pytest

from strandline.query.acceptance import Acceptance, Candidate, Last, StoreFacts, Way, end_of, judge

KEY = "order|1"
HEAD = StoreFacts(life=2)


def event(seq_nr: int, prev: int, *, life: int = 2, timestamp: int = 100) -> Candidate:
    return Candidate(life, seq_nr, prev, (timestamp, seq_nr, KEY))


@pytest.mark.req("P34", "P61")
@pytest.mark.parametrize("way", Way)
def test_row_1_a_parked_key_waits(way: Way) -> None:
    parked = Last(2, 5, parked=True)
    assert judge(event(6, 5), parked, way=way) is Acceptance.WAITS
    assert judge(event(9, 8), parked, way=way) is Acceptance.WAITS  # and there is no hole
    assert judge(event(6, 5), parked, way=way, position=100) is Acceptance.WAITS  # whatever the position is
    assert judge(event(5, 4), parked, way=way) is Acceptance.DUPLICATE
    assert judge(event(1, 0, life=3), parked, way=way) is Acceptance.ACCEPTED  # a new life is not parked


@pytest.mark.req("P34")
@pytest.mark.parametrize("way", Way)
def test_row_2_what_is_done_comes_again(way: Way) -> None:
    for seq_nr in (1, 4, 5):
        assert judge(event(seq_nr, seq_nr - 1), Last(2, 5), way=way) is Acceptance.DUPLICATE
    assert judge(event(9, 8, life=1), Last(2, 5), way=way) is Acceptance.DUPLICATE


@pytest.mark.req("P34", "P73")
@pytest.mark.parametrize("last", [None, Last(2, 5)])
def test_row_3_at_or_below_the_position(last: Last | None) -> None:
    prev = 0 if last is None else 5
    for way in Way:
        at, above = (judge(event(prev + 1, prev), last, way=way, position=p) for p in (100, 99))
        assert at is (Acceptance.DUPLICATE if way is Way.ORDERED else Acceptance.ACCEPTED)
        assert above is Acceptance.ACCEPTED
    assert judge(event(prev + 1, prev), last, position=100, strandline=False) is Acceptance.ACCEPTED


@pytest.mark.req("P34")
@pytest.mark.parametrize("way", Way)
def test_row_4_the_next_one(way: Way) -> None:
    assert judge(event(6, 5), Last(2, 5), way=way) is Acceptance.ACCEPTED
    assert judge(event(9, 5), Last(2, 5), way=way) is Acceptance.ACCEPTED  # an intended gap
    assert judge(event(9, 3), Last(2, 5), way=way) is Acceptance.ACCEPTED  # skipped ones in between were seen
    assert judge(event(1, 0, life=3), Last(2, 5), way=way) is Acceptance.ACCEPTED


@pytest.mark.req("P34", "P37")
@pytest.mark.parametrize("way", Way)
def test_row_5_deleted_before_anybody_saw_it(way: Way) -> None:
    late = event(9, 8)
    assert judge(late, Last(2, 5), way=way) is Acceptance.LOOK
    assert judge(late, Last(2, 5), way=way, facts=StoreFacts(2, delete_to=8)) is Acceptance.UNSEEN
    assert judge(late, Last(1, 5), way=way, facts=StoreFacts(2, delete_to=8)) is Acceptance.ACCEPTED  # of another life


@pytest.mark.req("P34", "RP5")
@pytest.mark.parametrize("way", Way)
def test_row_6_a_hole(way: Way) -> None:
    assert judge(event(9, 8), Last(2, 5), way=way, facts=StoreFacts(2, delete_to=7)) is Acceptance.REJECTED
    assert judge(event(9, 8), Last(1, 5), way=way, facts=HEAD) is Acceptance.REJECTED
    here = StoreFacts(2, before=(50, 8, KEY))  # that the event before is in the store does not make it done
    assert judge(event(9, 8), Last(2, 5), way=way, facts=here, line=end_of(60)) is Acceptance.REJECTED


@pytest.mark.req("P34", "P36")
@pytest.mark.parametrize("last", [None, Last(2, 5)])
@pytest.mark.parametrize("facts", [StoreFacts(None), StoreFacts(3), StoreFacts(3, delete_to=20)])
def test_what_was_purged_meanwhile_is_gone(last: Last | None, facts: StoreFacts) -> None:
    assert judge(event(9, 8), last, facts=facts) is Acceptance.GONE


@pytest.mark.req("P34")
def test_row_7_below_the_line() -> None:
    for way in Way:
        at = judge(event(6, 5), None, way=way, line=end_of(100), facts=HEAD)
        above = judge(event(6, 5), None, way=way, line=end_of(99), facts=HEAD)
        assert at is (Acceptance.REJECTED if way is Way.LOOK_BACK else Acceptance.DUPLICATE)
        assert above is Acceptance.REJECTED
    assert judge(event(6, 5), None, way=Way.BACK_TRACK, line=end_of(100), strandline=False) is Acceptance.LATE


@pytest.mark.req("P34", "P38")
@pytest.mark.parametrize("way", Way)
def test_row_8_the_first_of_its_key(way: Way) -> None:
    assert judge(event(1, 0), None, way=way) is Acceptance.ACCEPTED
    assert judge(event(9, 8), None, way=way) is Acceptance.LOOK
    assert judge(event(9, 8), None, way=way, facts=StoreFacts(2, delete_to=8)) is Acceptance.ACCEPTED


@pytest.mark.req("P34", "P38")
@pytest.mark.parametrize("way", Way)
def test_row_9_its_row_was_forgotten(way: Way) -> None:
    here = StoreFacts(2, before=(60, 8, KEY))
    assert judge(event(9, 8), None, way=way, line=end_of(60), facts=here) is Acceptance.ACCEPTED
    assert judge(event(9, 8), None, way=way, line=end_of(59), facts=here) is Acceptance.REJECTED


@pytest.mark.req("P34", "P38")
def test_row_9_by_the_whole_order() -> None:
    """The line of a raw query is the place that it has read to: others may share that time."""
    here = StoreFacts(2, before=(60, 8, KEY))
    assert judge(event(9, 8), None, line=(60, 8, KEY), facts=here) is Acceptance.ACCEPTED
    assert judge(event(9, 8), None, line=(60, 8, "order|0"), facts=here) is Acceptance.REJECTED
    assert judge(event(9, 8), None, line=(60, 7, "z"), facts=here) is Acceptance.REJECTED


@pytest.mark.req("P34", "P38")
@pytest.mark.parametrize("way", Way)
def test_row_10_otherwise(way: Way) -> None:
    assert judge(event(9, 8), None, way=way, facts=HEAD) is Acceptance.REJECTED
