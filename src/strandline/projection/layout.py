"""Who owns which ranges, and how they are cut anew. Pure: rows in, decisions out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson

from strandline.values.keys import SLICES
from strandline.values.ranges import Range, first_slice, ranges


class RangeRow(NamedTuple):
    """A range as the offset store has it."""

    lo: int
    hi: int
    fence: int
    owner: str | None
    position: int
    """Everything of the range at or below it is done."""
    saves: int
    """Grows with every save: a save that comes late finds another number."""
    claims: int
    """How many claims in a row ended without a release and without a save."""
    trying: str | None
    """The event that is tried, carefully."""
    failed: str | None
    """Why the range is not running, as JSON."""
    retry_at: int
    """Before this time (µs) nobody starts a range that failed."""
    restarts: int
    counts: str
    repaired: str = "{}"
    """Up to which number it has judged rows that were put back, by partition (`numbers_in`)."""

    @property
    def range(self) -> Range:
        return Range(self.lo, self.hi)


class Share(NamedTuple):
    """What a host does about the ranges of a projection."""

    claim: list[RangeRow]
    release: list[RangeRow]


def share(rows: Sequence[RangeRow], alive: Collection[str], me: str, now: int) -> Share:
    """An even share: no host keeps more than ceil(ranges / hosts), and none is left without an owner.

    A range whose owner is not alive is free; one that failed is free when its time has come.
    """
    most = -(-len(rows) // max(1, len({*alive, me})))
    mine = [row for row in rows if row.owner == me]
    if len(mine) > most:
        return Share([], mine[most:])
    free = [row for row in rows if (row.owner is None or row.owner not in {*alive, me}) and row.retry_at <= now]
    return Share(free[: most - len(mine)], [])


class RangeLayout(NamedTuple):
    """A new layout: the position of each range, and those slices that are further than their range."""

    positions: dict[Range, int]
    slices: dict[int, int]
    repaired: dict[Range, str]
    """Up to which numbers rows that were put back are judged."""


def done_of(rows: Iterable[RangeRow], slice_rows: Mapping[int, int]) -> list[int]:
    """The position of each slice: the greater of its own and its range's."""
    done = [-1] * SLICES
    for row in rows:
        for slice_ in range(row.lo, row.hi + 1):
            done[slice_] = max(row.position, slice_rows.get(slice_, -1))
    return done


def cut_anew(rows: Sequence[RangeRow], slice_rows: Mapping[int, int], n: int, partitions: int) -> RangeLayout:
    """Ranges for a rescale. A new one starts at the least position of its slices; what the others have done already is
    known by their slice rows, and dropped. Of the numbers of `repaired` the least counts, too: to judge twice does no
    harm."""
    done = done_of(rows, slice_rows)
    positions = {new: min(done[new.lo : new.hi + 1]) for new in ranges(n)}
    further = {
        slice_: done[slice_] for new, least in positions.items() for slice_ in range(new.lo, new.hi + 1)
        if done[slice_] > least
    }  # fmt: skip
    return RangeLayout(positions, further, _least_numbers(rows, positions, partitions))


def _least_numbers(rows: Iterable[RangeRow], new: Iterable[Range], partitions: int) -> dict[Range, str]:
    """By new range, for each partition the least number that any of its slices there has come to."""
    judged = [0] * SLICES
    for row in rows:
        for partition, number in numbers_in(row.repaired).items():
            for slice_ in _shared(row.range, partition, partitions):
                judged[slice_] = number
    return {
        range_: numbers_text({
            partition: min(judged[slice_] for slice_ in _shared(range_, partition, partitions))
            for partition in range_.partitions(partitions)
        })
        for range_ in new
    }  # fmt: skip


def _shared(range_: Range, partition: int, partitions: int) -> range:
    """The slices of a partition that are in a range."""
    lo = max(range_.lo, first_slice(partition, partitions))
    return range(lo, min(range_.hi + 1, first_slice(partition + 1, partitions)))


def numbers_in(text: str) -> dict[int, int]:
    """Numbers by partition, as a range keeps them; one that is not there is 0."""
    return {int(partition): number for partition, number in orjson.loads(text).items()}


def numbers_text(numbers: Mapping[int, int]) -> str:
    """The same as text."""
    return orjson.dumps({str(each): numbers[each] for each in sorted(numbers) if numbers[each]}).decode()


def line_of(rows: Iterable[RangeRow], old: int, delete_after_us: int) -> int:
    """The line up to which key rows may be missing: the least position minus a while. It only grows."""
    return max(old, min(row.position for row in rows) - delete_after_us)
