"""Whether something is tried again: the rule alone, without a target and without a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.group.core.step import StepFailed
from strandline.group.definition import Step
from strandline.group.plan import Planned
from strandline.group.settings import GroupSettings
from strandline.group.tries import Tries

STEP = Planned(Step("x", "update"), "x", {}, undo="automatic")
NEVER = Planned(Step("x", "update"), "x", {}, undo="never")
ONCE = Planned(Step("x", "update", retries=1), "x", {}, undo="automatic")
PASSES, STAYS = {"retry": True}, {"retry": False}
AWAY = {"retry": True, "away": True}
LOST = {"retry": True, "away": True, "unknown": True}
"""The answer was lost: it may have been executed."""


def counted(tries: Tries, count: int) -> Tries:
    for _ in range(count):
        tries.again()
    return tries


@pytest.mark.req("G6", "G45", "G47")
@pytest.mark.parametrize(
    ("one", "failed", "count", "last", "untouched", "found"),
    [
        (STEP, PASSES, 2, False, True, "try"),
        (STEP, PASSES, 3, False, True, "no"),
        (STEP, PASSES, 3, True, True, "no"),
        (STEP, STAYS, 0, False, True, "no"),
        (ONCE, PASSES, 0, False, True, "try"),
        (ONCE, PASSES, 1, False, True, "no"),
        (NEVER, PASSES, 1000, False, False, "try"),
        (NEVER, STAYS, 0, False, False, "no"),
        (STEP, AWAY, 1000, False, True, "wait"),
        (STEP, AWAY, 3, False, False, "no"),
        (STEP, AWAY, 2, False, False, "try"),
        (STEP, LOST, 3, False, True, "no"),
        (STEP, LOST, 1000, True, True, "try"),
    ],
)
def test_what_becomes_of_a_segment_that_failed(
    one: Planned, failed: dict[str, Any], count: int, last: bool, untouched: bool, found: str
) -> None:
    tries = counted(Tries(GroupSettings(), 0.0), count)
    assert tries.forward(StepFailed("statement", **failed), one, last=last, untouched=untouched) == found


@pytest.mark.req("G47")
def test_what_is_waited_for_going_back() -> None:
    class Silent(StepFailed):
        gone = True

    tries = counted(Tries(replace(GroupSettings(), undo_wait_s=60, undo_retries=4), 100.0), 3)
    assert (tries.waits(159.9), tries.waits(160.0)) == (True, False)
    assert not tries.back(StepFailed("statement", retry=True), STEP, 100.0)
    assert not tries.back(StepFailed("statement"), STEP, 100.0)
    assert tries.back(Silent("statement", retry=True), STEP, 159.9)
    assert not tries.back(Silent("statement", retry=True), STEP, 160.0)
    assert tries.back(StepFailed("statement", retry=True), NEVER, 1000.0)
    assert tries.undo()
    tries.again()
    assert not tries.undo()


@pytest.mark.req("G47")
def test_from_one_try_to_the_next_it_takes_longer_up_to_a_limit() -> None:
    tries = Tries(GroupSettings(), 0.0)
    assert [tries.again() for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
