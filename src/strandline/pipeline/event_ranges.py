"""Ranges: the parts of a read of events, each for one task, and how a task reads its part.

A partition of the log is cut by times, so that each part is read by one scan; the times are chosen so that each part
has about as many appends as the others, because time says nothing about how many events there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from strandline.connect import Strandline
from strandline.journal.read import log_offset_of
from strandline.journal.replay import LAST, replay_partition
from strandline.pipeline.selection import Selection
from strandline.pipeline.task import uncollected
from strandline.store.api import Store
from strandline.store.scans import events_of
from strandline.values.events import EventRow
from strandline.values.keys import SLICES, partition_of

PAGE: Final = 2000
LOOKS_MAX: Final = 40
"""How many times at most a partition is asked for an append, to find where to cut it."""


@dataclass
class TimeRange(InputPartition):
    """The events of a partition that one task returns: after one timestamp, up to another, and up to an offset."""

    partition: int
    after: int
    to: int
    cut: int = LAST
    slices: tuple[int, int] | None = None
    """Only these slices; set when the offsets of a stream are from a log with another number of partitions."""


@dataclass
class KeyRange(InputPartition):
    """The events of some keys of a partition that one task returns, up to an offset."""

    partition: int
    keys: tuple[str, ...]
    cut: int


def ranges_between(after: Sequence[int], to: Sequence[int], partitions: int) -> Iterator[TimeRange]:
    """Yield the ranges between two lists of timestamps by partition, of a log that now has `partitions`.

    The log may have had another number of partitions when each list was noted.
    """
    counts = {len(after), len(to), partitions}
    if len(counts) == 1:
        yield from (TimeRange(partition, after[partition], to[partition]) for partition in range(partitions))
        return
    starts = sorted({ceil(number * SLICES / count) for count in counts for number in range(count)})
    for lo, hi in pairwise([*starts, SLICES]):
        low, high = after[partition_of(lo, len(after))], to[partition_of(lo, len(to))]
        yield TimeRange(partition_of(lo, partitions), low, high, slices=(lo, hi - 1))


def read_range(
    chosen: Selection, range_: InputPartition, *, tail: bool, archive: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a part of a read."""
    s = chosen.target.open()
    if isinstance(range_, KeyRange):
        pages: Iterable[Sequence[EventRow]] = _pages_of_keys(s, chosen, range_)
    elif isinstance(range_, TimeRange):
        lo, hi = range_.slices or (chosen.lo, chosen.hi)
        chosen = replace(chosen, lo=max(lo, chosen.lo), hi=min(hi, chosen.hi))
        wanted = chosen.wanted(range_.partition, range_.cut, range_.after, range_.to)
        pages = replay_partition(s.log, s.store, s.settings, wanted, tail=tail, archive=archive)
    else:  # a read of nothing still has one part
        return
    with uncollected():
        for rows in pages:
            batch = chosen.batch(rows)
            if batch is not None:
                yield batch


def _pages_of_keys(s: Strandline, chosen: Selection, range_: KeyRange) -> Iterator[list[EventRow]]:
    segment_size = s.store.settings.segment_size
    for key in range_.keys:
        page: list[EventRow] = []
        for event in s.journal.read(key):
            if event.log_offset <= range_.cut and chosen.from_ <= event.timestamp < chosen.to:
                page.append(event.row(segment_size))
            if len(page) >= PAGE:
                yield page
                page = []
        yield page


def parts_of_partition(
    store: Store, chosen: Selection, partition: int, after: int, newest: int, end: int | None = None
) -> list[tuple[int, int]]:
    """Cut a partition after one time and up to another into `chosen.tasks` parts of about as many appends each.

    `newest` is where the store ends; the last part goes on to `end`, with what is not in the store yet.
    """
    end = newest if end is None else end
    if newest <= after:
        return [(after, end)] if end > after else []
    if chosen.tasks == 1:
        return [(after, end)]
    last = _append_after(store, chosen, partition, newest - 1, newest) or (newest, 0)
    if chosen.to <= newest:
        last = _append_after(store, chosen, partition, chosen.to, newest) or last

    def append_after(time: int) -> tuple[int, int]:
        return _append_after(store, chosen, partition, time, newest) or last

    first = append_after(max(after, chosen.from_ - 1))
    return list(pairwise([after, *edges_by_offset(append_after, first, last, chosen.tasks), end]))


def _append_after(store: Store, chosen: Selection, partition: int, time: int, to: int) -> tuple[int, int] | None:
    """Return time and offset of the first append in the store after a time."""
    found = events_of(store, partition, after=(time, LAST), to=to, limit=1, entity_type=chosen.entity_type).rows
    return (found[0].timestamp, log_offset_of(found[0].body)) if found else None


def edges_by_offset(
    append_after: Callable[[int], tuple[int, int]], first: tuple[int, int], last: tuple[int, int], parts: int
) -> list[int]:
    """Return times that cut a partition into parts with about as many appends each.

    `append_after` returns time and offset of the first append after a time; `first` and `last` are the appends at both
    ends. Offsets count appends, times do not. So between two known appends the search looks next at the time where the
    offset would be if appends came evenly, and every second time in the middle, in case they did not.
    """
    known = [(first[0] - 1, first[1]), last]
    close = max(1, (last[1] - first[1]) // (parts * 8))
    edges: list[int] = []
    for part in range(1, parts):
        goal = first[1] + (last[1] - first[1]) * part // parts
        for look in range(LOOKS_MAX):
            at = max(index for index, (_, offset) in enumerate(known) if offset <= goal or index == 0)
            low, high = known[at], known[min(at + 1, len(known) - 1)]
            if goal - low[1] <= close or high[0] - low[0] <= 1:
                break
            share = 0.5 if look % 2 else (goal - low[1]) / max(1, high[1] - low[1])
            time = min(high[0] - 1, max(low[0] + 1, low[0] + int((high[0] - low[0]) * share)))
            found = append_after(time)
            if found[0] >= high[0]:  # nothing lies between
                known.insert(at + 1, (time, high[1]))
            else:
                known.insert(at + 1, (found[0] - 1, found[1]))
        edges.append(known[at][0])
    return edges
