"""Makes named tuples quickly, and divides sequences into runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

new_tuple: Final = tuple.__new__
"""`new_tuple(Place, (1, 2, 3))` makes a named tuple in a third of the time that its own constructor takes."""


def in_runs(many: Iterable[T], most: int) -> Iterator[list[T]]:
    """Yield runs of a sequence, in order, each of at most this many items."""
    left = iter(many)
    while some := list(islice(left, most)):
        yield some
