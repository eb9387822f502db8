"""Pages of events by columns: the work of `sides` with NumPy, for pages in which every row is sound.

NumPy comes with Spark's packages; without it, or where a row is odd, `sides` takes the rows one by one. Both ways give
the same items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from strandline.reconcile.tallies import DAY_US, MULTIPLIER, text_number
from strandline.rows import life_of
from strandline.values.events import BODY_VERSION, FIXED, EventRow, Parts
from strandline.values.keys import SLICES

try:
    import numpy as np
except ImportError:  # pragma: no cover - an installation without Spark
    np = None  # type: ignore[assignment]

_NUMPY_TYPES: Final = {"q": "<i8", "I": "<u4", "H": "<u2", "B": "u1", "16s": "(16,)u1"}
_CODES: Final = re.findall(r"\d*[a-zA-Z]", FIXED.format)
_FIELDS: Final = [(name, _NUMPY_TYPES[code]) for name, code in zip(Parts._fields, _CODES, strict=True)]
_BODY: Final = None if np is None else np.dtype(_FIELDS)


class CellSum(NamedTuple):
    """Items of one check that fall into one cell. `day` is None for items that belong to no day."""

    check: str
    slice: int
    day: int | None
    items: int
    total: int
    found: bool


class EventColumns:
    """A page of events."""

    def __init__(self, rows: Sequence[EventRow], partitions: int) -> None:
        keys, lives, _, seq_nrs, prevs, types, slices, of, times, bodies, digests = zip(*rows, strict=True)
        of_key = list(map(life_of, keys, lives))
        self.fixed = np.frombuffer(b"".join([body[: FIXED.size] for body in bodies]), _BODY)
        self.slices = np.array(slices, np.int64)
        self.homes = self.slices * partitions // SLICES
        self.seq_nrs, self.prevs = np.array(seq_nrs, np.int64), np.array(prevs, np.int64)
        self.lives, self.digests = np.array(lives, np.int64), np.array(digests, np.int64)
        self.times = np.array(times, np.int64)
        self.keys = np.array(list(map(text_number, keys)), np.uint64)
        fixed = self.fixed
        self.sound = bool(
            (fixed["version"] == BODY_VERSION).all()
            and np.array_equal(fixed["seq_nr"], self.seq_nrs)
            and np.array_equal(fixed["prev_seq_nr"], self.prevs)
            and np.array_equal(fixed["timestamp"], self.times)
            and np.array_equal(self.homes, np.array(of, np.int64))
            and [life.slice for life in of_key] == list(slices)
            and [life.entity_type for life in of_key] == list(types)
            and list(map(crc32, bodies, [life.seed for life in of_key])) == list(digests)
        )
        """Whether every row is sound: its body has its digest, and its columns are those of its body."""

    @classmethod
    def of(cls, rows: Sequence[EventRow], partitions: int) -> EventColumns | None:
        """Return the page as columns; None if it must be read row by row."""
        if np is None or not rows:
            return None
        try:
            made = cls(rows, partitions)
        except (TypeError, ValueError, OverflowError):  # a damaged file may give any type for a column
            return None
        return made if made.sound else None

    def sums(
        self, ends: Sequence[int], oldest: Sequence[int | None], *, partitioned: bool, by_day: bool = False
    ) -> tuple[int, list[tuple[int, int, int]], Iterator[CellSum]]:
        """Return the number of events up to `ends`, offsets by partition; the events with tags; and the sums by cell.

        `oldest` is the first offset of each partition that the log keeps; None where the log proves nothing. An event
        with tags comes as its row's index and the two places between which its body has the tags. `by_day` says that
        links are summed by day, too.
        """
        offsets = self.fixed["log_offset"]
        kept = offsets <= np.array(ends, np.int64)[self.homes]
        tags_at, headers_at = self.fixed["tags_at"], self.fixed["headers_at"]
        (tagged,) = np.nonzero(kept & (tags_at != headers_at))
        places = list(zip(tagged.tolist(), tags_at[tagged].tolist(), headers_at[tagged].tolist(), strict=True))
        firsts = np.array([2**62 if first is None else first for first in oldest], np.int64)[self.homes]
        return int(kept.sum()), places, self._sums(kept, kept & (offsets >= firsts), partitioned, by_day)

    def _sums(self, kept: Any, logged: Any, partitioned: bool, by_day: bool) -> Iterator[CellSum]:
        own = mixed(self.keys, self.lives, self.seq_nrs)
        links = own - mixed(self.keys, self.lives, self.prevs)
        yield from self._cells("chain", kept, links, by_day=by_day, found=True)
        if logged.any():
            items = mixed(self.keys, self.lives, self.seq_nrs, self.digests)
            yield from self._cells("log", logged, items, by_day=True, found=True)
        if partitioned:
            items = mixed(self.keys, self.lives, self.times, self.seq_nrs, self.prevs, self.digests)
            yield from self._cells("slices", kept, items, by_day=True, found=False)

    def _cells(self, check: str, chosen: Any, items: Any, *, by_day: bool, found: bool) -> Iterator[CellSum]:
        slices, items = self.slices[chosen], items[chosen]
        if not len(slices):
            return
        days = self.times[chosen] // DAY_US if by_day else np.zeros(len(slices), np.int64)
        cells = days * SLICES + slices
        order = np.argsort(cells, kind="stable")
        places, starts = np.unique(cells[order], return_index=True)
        totals = np.add.reduceat(items[order], starts)
        counts = np.diff([*starts, len(cells)])
        for place, total, count in zip(places.tolist(), totals.tolist(), counts.tolist(), strict=True):
            yield CellSum(check, place % SLICES, place // SLICES if by_day else None, count, total, found)


def archive_digest(rows: Sequence[EventRow]) -> int:
    """Return the sum of the items of events in an archive: key, life, number and digest of each."""
    if not rows:
        return 0
    keys, lives, _, seq_nrs, _, _, _, _, _, _, digests = zip(*rows, strict=True)
    numbers = [np.array(column, np.int64) for column in (lives, seq_nrs, digests)]
    return int(mixed(np.array(list(map(text_number, keys)), np.uint64), *numbers).sum())


def mixed(*columns: Any) -> Any:
    """Return the items of rows: `tallies.item_of`, column by column."""
    with np.errstate(over="ignore"):
        made = np.zeros(len(columns[0]), np.uint64)
        for column in columns:
            made = (made ^ column.astype(np.uint64)) * np.uint64(MULTIPLIER)
            made ^= made >> np.uint64(32)
    return made
