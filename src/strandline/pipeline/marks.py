"""Idle marks: what keeps a partition without traffic from holding the strandline back.

A partition gets a Mark when it has nothing unreplicated, was still for a while, and its pointer's timestamp is below
that of the newest append, delete or purge anywhere. Marks are no movement, so a still log stops growing after one Mark
a partition.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from strandline.log.api import Draft, Log
from strandline.record import encode_header
from strandline.rows import Pointer
from strandline.values.actions import Mark


def behind(pointers: Sequence[Pointer]) -> dict[int, int]:
    """Partitions that hold the strandline back, and the timestamp that each must reach."""
    moved = max(pointer.moved for pointer in pointers)
    return {pointer.partition: moved for pointer in pointers if pointer.timestamp < moved}


def carried(pointers: Sequence[Pointer], newest: Sequence[int]) -> set[int]:
    """Partitions with nothing unreplicated."""
    return {pointer.partition for pointer, end in zip(pointers, newest, strict=True) if pointer.offset >= end}


def write(log: Log, wanted: dict[int, int]) -> None:
    """Write a Mark without key into each of these partitions."""
    drafts = []
    for partition, at_least in sorted(wanted.items()):
        mark = Mark(None, uuid.uuid4().hex, at_least)
        drafts.append(Draft(partition, mark, encode_header(mark)))
    if drafts:
        log.append(drafts)


class Stillness:
    """Which partitions have been still, and for how long: seen from outside, by their newest offsets."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._seen: dict[int, tuple[int, float]] = {}

    def still(self, newest: Sequence[int], now: float | None = None) -> set[int]:
        """Partitions whose newest offset has not moved for `idle_s`."""
        now = time.monotonic() if now is None else now
        for partition, offset in enumerate(newest):
            if self._seen.get(partition, (None, 0.0))[0] != offset:
                self._seen[partition] = offset, now
        return {partition for partition, (_, since) in self._seen.items() if now - since >= self.idle_s}
