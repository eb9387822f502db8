"""The judge, row by row of its table; and tallies, against a comparison of sets."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.reconcile.judge import ProvedEvent, StoredEvent, judge_events, judge_head
from strandline.reconcile.tallies import DAY_US, Tallies, differing, item_of
from strandline.values.heads import Head

HEAD = Head(5, 0, 1, 0, 50, 1, 9, None, None, 10, 0, 5, 0, (), None)


def stored(seq_nr: int, prev: int | None = None, **more: Any) -> StoredEvent:
    """An event at offset ten times its number."""
    given = {"timestamp": seq_nr, "log_offset": seq_nr * 10, "content": seq_nr, "whole": True, **more}
    return StoredEvent(seq_nr, seq_nr - 1 if prev is None else prev, **given)


def proved(seq_nr: int, *, damaged: bool = False) -> ProvedEvent:
    return ProvedEvent(seq_nr, seq_nr, seq_nr, damaged)


def told(found: Any) -> list[tuple[Any, ...]]:
    return [(fault.kind, fault.seq_nrs, fault.mend) for fault in found]


ALL = [stored(number) for number in range(1, 6)]
PROOFS = [proved(number) for number in range(1, 6)]
LOG = (0, 50)


@pytest.mark.req("J116")
def test_a_run_that_is_right_has_no_fault() -> None:
    assert judge_events(ALL, PROOFS, HEAD, log=LOG) == []
    assert judge_events(ALL, [], HEAD, log=None) == []
    assert judge_events(ALL[2:], PROOFS, HEAD._replace(delete_to=2), log=LOG) == []
    assert judge_events(ALL[2:], [], HEAD._replace(delete_to=2), log=None) == []
    assert judge_events([stored(11, 0)], [], HEAD._replace(seq_nr=11, prev=11), log=None) == [], "it began at 11"


@pytest.mark.req("J116", "J118")
def test_what_is_missing_different_or_too_much() -> None:
    without = [event for event in ALL if event.seq_nr != 3]
    assert told(judge_events(without, PROOFS, HEAD, log=LOG)) == [("event_missing", (3,), "put")]
    assert told(judge_events(without, [], HEAD, log=None)) == [("event_missing", (3,), "")], "4 names it"
    assert told(judge_events(ALL[:4], [], HEAD, log=None)) == [("event_missing", (5,), "")], "the head names it"
    other = [event._replace(content=0) if event.seq_nr == 2 else event for event in ALL]
    assert told(judge_events(other, PROOFS, HEAD, log=LOG)) == [("event_different", (2,), "put")]
    assert told(judge_events(other, [], HEAD, log=None)) == []
    torn = [event._replace(whole=False) if event.seq_nr == 2 else event for event in ALL]
    assert told(judge_events(torn, PROOFS, HEAD, log=LOG)) == [("event_different", (2,), "put")]
    assert told(judge_events(torn, [], HEAD, log=None)) == [("event_different", (2,), "")]
    moved = [event._replace(in_columns=False) if event.seq_nr == 2 else event for event in ALL]
    assert told(judge_events(moved, [], HEAD, log=None)) == [("event_different", (2,), "columns")]
    deleted = HEAD._replace(delete_to=1)
    assert told(judge_events(ALL, PROOFS[1:], deleted, log=LOG)) == [("event_extra", (1,), "remove")]


@pytest.mark.req("J116", "J117", "J118")
def test_only_what_the_log_keeps_proves_that_an_event_was_never_recorded() -> None:
    """Offsets that were trimmed, or lie above what was read, prove nothing."""
    assert told(judge_events(ALL, PROOFS[:4], HEAD, log=LOG))[0] == ("event_extra", (5,), "remove")
    assert told(judge_events(ALL, PROOFS[:4], HEAD, log=(0, 49))) == []
    assert told(judge_events(ALL, PROOFS[3:], HEAD, log=(40, 50))) == []


@pytest.mark.req("J116", "RR5")
def test_chains() -> None:
    skips = [event._replace(prev_seq_nr=1) if event.seq_nr == 3 else event for event in ALL]
    (fault,) = judge_events(skips, PROOFS, HEAD, log=LOG)
    assert (fault.kind, fault.seq_nrs, fault.mend, fault.prev) == ("chain_broken", (3,), "prev", 2)
    ahead = [event._replace(prev_seq_nr=9) if event.seq_nr == 3 else event for event in ALL]
    assert told(judge_events(ahead, [], HEAD, log=None)) == [("chain_broken", (3,), "prev")]
    skipped = [stored(1), stored(2), stored(4, 2), stored(5)]
    proofs = [proved(1), proved(2), proved(3, damaged=True), proved(4), proved(5)]
    assert judge_events(skipped, proofs, HEAD, log=LOG) == [], "an operator gave a damaged event up"
    assert told(judge_events([*skipped[:2], stored(4), stored(5)], proofs, HEAD, log=LOG)) == [
        ("event_missing", (3,), "put")
    ], "nobody did: 4 names it"


@pytest.mark.req("J116")
def test_heads() -> None:
    assert judge_head(HEAD, HEAD, 5) is None
    assert judge_head(HEAD, None, 5) is None
    assert judge_head(HEAD._replace(prev=4), None, 4) is None, "the last one was skipped"
    behind = judge_head(HEAD._replace(seq_nr=4, prev=4), None, 5)
    assert behind is not None
    assert behind[2] == HEAD
    wrong = judge_head(HEAD._replace(created=7), HEAD, 5)
    assert wrong is not None
    assert wrong == ("created 1", "created 7", HEAD)
    assert judge_head(None, HEAD, 0) == ("a head", "none, or a damaged one", HEAD)


Items = list[tuple[int, int, int]]
ITEMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), max_size=8)


@pytest.mark.req("J116")
@given(ITEMS, ITEMS, st.integers(0, 2**32))
def test_tallies_differ_where_the_items_do(expected: Items, found: Items, seed: int) -> None:
    """In whatever order items come, and however they are dealt out to parts."""
    chance = random.Random(seed)
    parts = [Tallies(by_key=False) for _ in range(3)]
    sides = [(item, False) for item in expected] + [(item, True) for item in found]
    chance.shuffle(sides)
    for (slice_, day, number), is_found in sides:
        item = item_of(slice_, day, number)
        chance.choice(parts).add("events", slice_, day * DAY_US, "k", item, found=is_found)
    cells = {(item[0], item[1]) for item in [*expected, *found]}
    differ = {
        cell
        for cell in cells
        if sorted(i for i in expected if i[:2] == cell) != sorted(i for i in found if i[:2] == cell)
    }
    told = differing(tally for part in parts for tally in part.all())
    assert {(tally.cell.slice, tally.cell.day) for tally in told} == differ
    for tally in told:
        place = tally.cell.slice, tally.cell.day
        counts = [sum(item[:2] == place for item in side) for side in (expected, found)]
        assert [tally.expected, tally.found] == counts


@pytest.mark.req("J116")
def test_two_wrong_numbers_do_not_cancel_out() -> None:
    """Python's own hash of tuples is nearly linear in the last number."""
    right = [item_of(1, 2, 3, number) for number in (1, 2)]
    for step in range(1, 50):
        assert item_of(1, 2, 3, 1) + item_of(7, 8, 9, 2 + step) != item_of(1, 2, 3, 1 + step) + item_of(7, 8, 9, 2)
    assert len(set(right)) == 2
