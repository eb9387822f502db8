"""Decides which host owns which ranges, and how a rescale cuts ranges. Pure: rows in, decisions out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from strandline.values.keys import SLICES
from strandline.values.ranges import Range, ranges


class RangeRow(NamedTuple):
    """A range as the offset store has it."""

    lo: int
    hi: int
    fence: int
    owner: str | None
    position: int
    """Everything of the range at or below it is done."""
    saves: int
    """A number that grows with every save, so that a late save finds another number and fails."""
    unclean_claims: int
    """How many claims in a row ended without a release and without a save."""
    attempt: str | None
    """The event that is tried alone because it may kill the process, and its attempts, as JSON."""
    failed: str | None
    """Why the range is not running, as JSON."""
    retry_at: int
    """The time (µs) before which no host starts a failed range."""
    restarts: int
    counts: str

    @property
    def range(self) -> Range:
        return Range(self.lo, self.hi)


class Share(NamedTuple):
    """The ranges that a host claims and releases."""

    claim: list[RangeRow]
    release: list[RangeRow]


def share(rows: Sequence[RangeRow], alive: Collection[str], me: str, now: int) -> Share:
    """Return an even share: no host keeps more than ceil(ranges / hosts), and none is left without an owner.

    A range whose owner is not alive is free; one that failed is free when its time has come.
    """
    most = -(-len(rows) // max(1, len({*alive, me})))
    mine = [row for row in rows if row.owner == me]
    if len(mine) > most:
        return Share([], mine[most:])
    free = [row for row in rows if (row.owner is None or row.owner not in {*alive, me}) and row.retry_at <= now]
    return Share(free[: most - len(mine)], [])


class RangeLayout(NamedTuple):
    """A new layout: the position of each range, and the slices that are beyond their range's position."""

    positions: dict[Range, int]
    slices: dict[int, int]


def done_of(rows: Iterable[RangeRow], slice_rows: Mapping[int, int]) -> list[int]:
    """Return the position of each slice: the greater of its own and its range's."""
    done = [-1] * SLICES
    for row in rows:
        for slice_ in range(row.lo, row.hi + 1):
            done[slice_] = max(row.position, slice_rows.get(slice_, -1))
    return done


def cut_anew(rows: Sequence[RangeRow], slice_rows: Mapping[int, int], n: int) -> RangeLayout:
    """Return the ranges of a rescale. A new range starts at the least position of its slices. Events that slices
    further on have done already are recognised by the slice rows, and dropped.
    """
    done = done_of(rows, slice_rows)
    positions = {new: min(done[new.lo : new.hi + 1]) for new in ranges(n)}
    further = {
        slice_: done[slice_] for new, least in positions.items() for slice_ in range(new.lo, new.hi + 1)
        if done[slice_] > least
    }  # fmt: skip
    return RangeLayout(positions, further)


def line_of(rows: Iterable[RangeRow], old: int, delete_after_us: int) -> int:
    """Return the line up to which key rows may be missing: the least position minus `delete_after_s`. It only grows."""
    return max(old, min(row.position for row in rows) - delete_after_us)
