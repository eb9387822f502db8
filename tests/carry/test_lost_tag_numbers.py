"""Which numbers rows of a tag's view have, from what is left that tells them."""

from __future__ import annotations

import random

import pytest

from strandline.carry.lost_tag_numbers import Member, recovered_numbers


def members(*told: int | None, breaks: tuple[int, ...] = ()) -> list[Member]:
    """Members at seq_nrs 10, 20, …; those at `breaks` do not follow the one before."""
    return [Member(10 * at, at, number, at > 1 and at not in breaks) for at, number in enumerate(told, 1)]


@pytest.mark.req("T82")
def test_what_is_told_holds() -> None:
    assert recovered_numbers([], whole=True, last=None) == []
    assert recovered_numbers(members(1, 2, 3), whole=True, last=(30, 3)) == [1, 2, 3]
    assert recovered_numbers(members(5, 6, 7), whole=False, last=(30, 7)) == [5, 6, 7]
    assert recovered_numbers(members(2, 7, 9, breaks=(1, 2, 3)), whole=False, last=None) == [2, 7, 9], (
        "rows of deleted events"
    )


@pytest.mark.req("T82")
def test_what_is_not_told_is_counted() -> None:
    """Up from the row below; else down from the progress, or from the row above; else from 1."""
    assert recovered_numbers(members(None, None, None), whole=True, last=None) == [1, 2, 3]
    assert recovered_numbers(members(None, None, None), whole=False, last=(30, 8)) == [6, 7, 8]
    assert recovered_numbers(members(4, None, None, breaks=(2,)), whole=False, last=None) == [4, 5, 6]
    assert recovered_numbers(members(None, 4, None, breaks=(2, 3)), whole=False, last=None) == [3, 4, 5]
    assert recovered_numbers(members(None, None), whole=False, last=(99, 8)) == [1, 2], (
        "the progress speaks of another event"
    )


@pytest.mark.req("T82", "T88")
def test_what_lies_behind_damage_is_not_counted() -> None:
    """Nobody knows how many events with the tag the journal has lost: a number is told, or it is none."""

    def beside(*told: int | None, damaged: int, breaks: tuple[int, ...] = ()) -> list[Member]:
        found = members(*told, breaks=(*breaks, damaged))
        return [each._replace(sure=at != damaged) for at, each in enumerate(found, 1)]

    assert recovered_numbers(beside(1, 2, None, None, damaged=3), whole=True, last=None) == [1, 2, None, None]
    assert recovered_numbers(beside(1, 2, None, 6, damaged=3), whole=True, last=None) == [1, 2, 5, 6]
    assert recovered_numbers(beside(1, 2, None, None, damaged=3), whole=True, last=(40, 9)) == [1, 2, 8, 9]
    assert recovered_numbers(beside(None, 7, damaged=1), whole=True, last=None) == [6, 7], "not from 1"
    assert recovered_numbers(beside(None, 7, damaged=2), whole=False, last=None) == [None, 7]
    assert recovered_numbers(beside(None, None, 7, damaged=2, breaks=(3,)), whole=False, last=None) == [None, 6, 7]
    assert recovered_numbers(beside(5, 6, 3, damaged=3), whole=False, last=None) == [5, 6, None], "numbers only grow"


@pytest.mark.req("T82", "T83")
def test_what_contradicts_the_journal_is_outvoted() -> None:
    assert recovered_numbers(members(7), whole=True, last=(10, 1)) == [1]
    assert recovered_numbers(members(7), whole=False, last=(10, 3)) == [3]
    assert recovered_numbers(members(5, 99, 7), whole=False, last=None) == [5, 6, 7]
    assert recovered_numbers(members(5, 6, 7), whole=False, last=(30, 70)) == [5, 6, 7]
    assert recovered_numbers(members(7, 3, breaks=(2,)), whole=False, last=None) == [2, 3], "numbers only grow"
    assert recovered_numbers(members(77, 2, 3, breaks=(2,)), whole=False, last=(30, 3)) == [1, 2, 3]


@pytest.mark.req("T82")
@pytest.mark.parametrize("seed", range(20))
def test_numbers_stay_as_long_as_one_row_of_a_run_tells(seed: int) -> None:
    dice = random.Random(seed)
    start, count = dice.randint(1, 9), dice.randint(1, 12)
    numbers = list(range(start, start + count))
    kept = dice.randrange(count)
    told = [number if at == kept or dice.random() < 0.3 else None for at, number in enumerate(numbers)]
    assert recovered_numbers(members(*told), whole=False, last=None) == numbers
