"""Tallies: both sides of a comparison as counts and order-free digests, cell by cell.

An item stands for one fact of a side, for example an event. Both sides of a check must have the same items; the digest
of a cell is the sum of the items of the side that was found less the sum of those that were expected, modulo 2^64. So
it is 0 if both sides have the same items, in any order and however the work was cut. A cell is a slice and a day, and
where these differ a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

DAY_US: Final = 86_400 * 10**6
ANY_DAY: Final = -1
"""The day of items that belong together across days: the links of a chain."""
_MODULUS: Final = 2**64
_SIGNED: Final = 2**63
_MASK: Final = _MODULUS - 1
MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""An odd number whose bits are spread evenly: 2^64 over the golden ratio."""


class TallyCell(NamedTuple):
    """The place where items are tallied. `key` is empty in the first round."""

    check: str
    slice: int
    day: int
    key: str = ""


class Tally(NamedTuple):
    """The sums of one part of the work in a cell."""

    cell: TallyCell
    expected: int
    found: int
    digest: int
    """As a signed integer of 64 bits."""


class Tallies:
    """Collects items into cells."""

    def __init__(self, *, by_key: bool) -> None:
        self._by_key = by_key
        self._cells: dict[TallyCell, list[int]] = {}

    def add(self, check: str, slice_: int, timestamp: int, key: str, item: int, *, found: bool, count: int = 1) -> None:
        """Count an item of a side. A timestamp below 0 stands for no time."""
        if self._by_key:
            cell = TallyCell(check, slice_, ANY_DAY, key)
        else:
            cell = TallyCell(check, slice_, timestamp // DAY_US if timestamp >= 0 else ANY_DAY)
        sums = self._cells.get(cell)
        if sums is None:
            sums = self._cells[cell] = [0, 0, 0]
        sums[found] += count
        sums[2] += item if found else -item

    def add_sum(self, check: str, slice_: int, day: int | None, total: int, count: int, *, found: bool) -> None:
        """Count items of a side that were added up before; they have no key."""
        sums = self._cells.setdefault(TallyCell(check, slice_, ANY_DAY if day is None else day), [0, 0, 0])
        sums[found] += count
        sums[2] += total if found else -total

    def all(self) -> Iterator[Tally]:
        """Yield the tallies of all cells."""
        for cell, (expected, found, digest) in self._cells.items():
            yield Tally(cell, expected, found, signed(digest))


def signed(digest: int) -> int:
    """Return a sum as a signed integer of 64 bits."""
    return (digest + _SIGNED) % _MODULUS - _SIGNED


def differing(tallies: Iterable[Tally]) -> list[Tally]:
    """Return the cells in which the sides differ, each once, with the sums of all parts. Pure."""
    sums: dict[TallyCell, list[int]] = {}
    for cell, expected, found, digest in tallies:
        into = sums.setdefault(cell, [0, 0, 0])
        into[0] += expected
        into[1] += found
        into[2] += digest
    return [
        Tally(cell, expected, found, signed(digest))
        for cell, (expected, found, digest) in sorted(sums.items())
        if expected != found or signed(digest)
    ]


@lru_cache(maxsize=65536)
def text_number(text: str) -> int:
    """Return the number that stands for a text in items: 61 bits of a digest, the same on every machine."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()) >> 3


def item_of(*numbers: int) -> int:
    """Return an item of some numbers: 64 bits, of which each depends on all of them, in every process alike.

    Python's own hash of a tuple is nearly linear in the last number, so two wrong numbers could cancel out.
    """
    made = 0
    for number in numbers:
        made = ((made ^ (number & _MASK)) * MULTIPLIER) & _MASK
        made ^= made >> 32
    return made
