"""Recover the numbers of a key and life in a damaged view of a tag. Pure. (`store/tag_numbers.py` gives them first.)

The journal proves that tagged events which follow each other in it have consecutive numbers: a *run*. The number at
which a run begins is told by its rows, by the progress and, if nothing was ever deleted, by the journal itself; the
majority decides. Deleted events are known from their rows alone, so each is a run of its own. A run without any such
evidence is counted up from the run below, or down from the run above, unless the journal is damaged in between: it may
have lost events with the tag there, and the numbers cannot be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

PROOF: Final = 2
"""The weight of what a table such as the progress says: more than one row."""


class Member(NamedTuple):
    """An event of a key and life under a tag."""

    seq_nr: int
    timestamp: int
    told: int | None
    """The number that the event's row or another table says."""
    follows: bool
    """Whether no event between the member before and this one is unknown."""
    sure: bool = True
    """Whether the journal is not damaged between the two, nor elsewhere if it does not prove what is between them."""


def recovered_numbers(members: Sequence[Member], *, whole: bool, last: tuple[int, int] | None) -> list[int | None]:
    """Return the number of each member; None where nothing proves one.

    `whole`: nothing was deleted; `last`: seq_nr and number of which the progress speaks.
    """
    runs = list(_runs(members))
    told = [_told(run, first=whole and not index and run[0].sure, last=last) for index, run in enumerate(runs)]
    starts = [start for start, _ in told]
    for index in range(len(runs) - 2, -1, -1):
        (start, weight), (_, weight_above), next_start = told[index], told[index + 1], starts[index + 1]
        beyond = start is not None and next_start is not None and start + len(runs[index]) > next_start
        if beyond and weight <= weight_above:
            starts[index] = None
    above = next((index for index, start in enumerate(starts) if start is not None), None)
    if above is not None:
        for index in range(above - 1, -1, -1):
            start = starts[index + 1]
            if start is not None and runs[index + 1][0].sure:
                starts[index] = max(1, start - len(runs[index]))
    numbers: list[int | None] = []
    # Whether the number before is known, and the least that may be next. Without any evidence they begin anew.
    known, least = whole or above is None, 1
    for run, start in zip(runs, starts, strict=True):
        known = start >= least or run[0].sure if start is not None else known and run[0].sure
        begin = least if start is None else max(start, least)
        least = begin + len(run)
        numbers += range(begin, least) if known else [None] * len(run)
    return numbers


def _runs(members: Sequence[Member]) -> Iterator[Sequence[Member]]:
    start = 0
    for at, member in enumerate(members):
        if at > start and not member.follows:
            yield members[start:at]
            start = at
    if members:
        yield members[start:]


def _told(run: Sequence[Member], *, first: bool, last: tuple[int, int] | None) -> tuple[int | None, int]:
    """Return the number that a run begins with, by majority, and the weight of that majority."""
    votes: Counter[int] = Counter()
    for at, (seq_nr, _, told, *_) in enumerate(run):
        if last is not None and seq_nr == last[0]:
            votes[last[1] - at] += PROOF
        if told is not None:
            votes[told - at] += 1
    if first:
        votes[1] += PROOF
    for start, weight in votes.most_common():
        if start >= 1:
            return start, weight
    return None, 0
