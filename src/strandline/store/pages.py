"""Pages of a journal that are bounded by bytes as well as by rows: large events must not fill the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

LARGE_BYTES: Final = 16 * 2**10
"""Bodies larger than this are counted before they are fetched. A whole page of smaller bodies fits into memory."""
ANY_BYTES: Final = 2**62
FIRST_ROWS: Final = 8
BODY: Final = itemgetter(2)


def large_bytes(bytes_max: int | None) -> int:
    """Return the size above which bodies are left out of a page at first."""
    return ANY_BYTES if bytes_max is None else LARGE_BYTES


def bytes_of(row: Any) -> int:
    """Return the size of a row's body, which may be anything in a damaged file."""
    body = row[2]
    return len(body) if isinstance(body, bytes) else 0


def up_to(rows: Iterable[Any], bytes_max: int | None, size_of: Callable[[Any], int] = bytes_of) -> list[Any]:
    """Return rows up to the one that brings their bodies to `bytes_max`."""
    if bytes_max is None:
        return list(rows)
    kept = []
    for row in rows:
        kept.append(row)
        bytes_max -= size_of(row)
        if bytes_max <= 0:
            break
    return kept


class GrowingPage:
    """A page of a store that can count rows and not bytes: it asks for few rows first, then for as many as may fit."""

    def __init__(
        self,
        limit: int,
        bytes_max: int | None,
        size_of: Callable[[Any], int] = bytes_of,
        first: int = FIRST_ROWS,
    ) -> None:
        self.rows: list[Any] = []
        self._size_of = size_of
        self._limit, self._bytes_max = limit, ANY_BYTES if bytes_max is None else bytes_max
        self._size = 0
        self.asks = limit if bytes_max is None else min(limit, first)
        """The number of rows to ask for next; 0 if the page is full."""

    def add(self, rows: Sequence[Any]) -> None:
        """Add rows that the store returned; rows beyond the limit are dropped."""
        added = list(rows[: self._limit - len(self.rows)]) if self.asks else []
        size, left = sum(map(self._size_of, added)), self._bytes_max - self._size
        if size > left:
            added = up_to(added, left, self._size_of)
            size = sum(map(self._size_of, added))
        self.rows += added
        self._size += size
        left -= size
        self.asks = 0 if left <= 0 else min(self._limit - len(self.rows), _fitting(left, self._size, len(self.rows)))


def _fitting(left: int, size: int, count: int) -> int:
    """Return how many more rows fit into the remaining bytes, if they are as large as those before."""
    return max(1, left * count // size) if size else FIRST_ROWS
