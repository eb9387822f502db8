"""Counts how often each rare path of the product is reached.

    with counting() as reached:
        ...                       # run programs
    never = set(RARE) - reached.keys()

A path that no run reaches is one that nothing tests. They are named where they are, by `strandline.points.reached`, and
listed in `strandline.points.RARE`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from strandline import points

RARE = points.RARE


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Within, count every named place that any thread reaches."""
    found: Counter[str] = Counter()
    lock = Lock()

    def told(name: str) -> None:
        with lock:
            found[name] += 1

    before, points.told = points.told, told
    try:
        yield found
    finally:
        points.told = before
