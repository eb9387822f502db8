"""Ranges of slices: `lo..hi`, both included. How many there are is no property of the data, and changes at any time."""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import invalid
from strandline.values.keys import SLICES, partition_of


class Range(NamedTuple):
    """The slices `lo` to `hi`."""

    lo: int
    hi: int

    def __str__(self) -> str:
        return f"{self.lo}-{self.hi}"

    def __contains__(self, slice_: object) -> bool:
        return isinstance(slice_, int) and self.lo <= slice_ <= self.hi

    def partitions(self, partitions: int) -> range:
        """Return the partitions of a log that hold its slices."""
        return range(partition_of(self.lo, partitions), partition_of(self.hi, partitions) + 1)

    def covers(self, partition: int, partitions: int) -> bool:
        """Return whether all slices of a partition are in it."""
        lo, hi = first_slice(partition, partitions), first_slice(partition + 1, partitions) - 1
        return self.lo <= lo and hi <= self.hi

    @classmethod
    def of(cls, lo: object, hi: object) -> Range:
        """Return a range as callers give it."""
        for name, value in (("lo", lo), ("hi", hi)):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < SLICES:
                raise invalid("slice_range", name, "no slice", allowed=f"0..{SLICES - 1}", got=value)
        if lo > hi:  # type: ignore[operator]
            raise invalid("slice_range", "lo", "above hi", allowed="lo <= hi", got=f"{lo}-{hi}")
        return cls(lo, hi)  # type: ignore[arg-type]


def ranges(n: int) -> list[Range]:
    """Return all slices in `n` ranges whose sizes differ by one at most: slice s lies in range `s * n // 1024`."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= SLICES:
        raise invalid("slice_range", "n", "no number of ranges", allowed=f"1..{SLICES}", got=n)
    return [Range(first_slice(i, n), first_slice(i + 1, n) - 1) for i in range(n)]


def first_slice(i: int, n: int) -> int:
    """Return where the i-th of `n` ranges begins."""
    return -(-i * SLICES // n)
