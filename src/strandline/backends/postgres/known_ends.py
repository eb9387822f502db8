"""Remembers, after a writer's commit, where each partition ended and the states of keys that the writer knew then.

As long as no other process writes these partitions, these facts hold, and the next append needs no query: its one
statement moves the partitions on from these ends, or changes nothing because one of them has another end by now. A
thread removes the facts that it uses, so that two threads never go on from the same end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Final, NamedTuple

from strandline.log.folding import PartitionEnd
from strandline.values.heads import State

STATES_MAX: Final = 10_000
LATER: Final = 16
"""How many appends query first after another process has written, or after a key was wrongly taken for new."""


class KnownEnd(NamedTuple):
    """The end of a partition, and states of its keys as of then; None for a key that had none."""

    end: PartitionEnd
    states: dict[str, State]


class KnownEnds:
    """Keeps the last commit of each partition, and the server's clock. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ends: dict[int, KnownEnd] = {}
        self._wary: dict[int, int] = {}
        self._unsure = 0
        self._ahead_us = 0

    def pop(self, partitions: Iterable[int]) -> dict[int, KnownEnd]:
        """Remove and return the known ends of partitions. No other thread has them until `store` puts them back."""
        with self._lock:
            return {partition: self._ends.pop(partition) for partition in partitions if partition in self._ends}

    def store(
        self,
        partition: int,
        before: KnownEnd | None,
        start: PartitionEnd,
        end: PartitionEnd,
        states: Mapping[str, State],
    ) -> None:
        """Note that a commit moved the partition from `start` to `end`. The states of `before` hold if it ended at
        `start`."""
        known = before.states if before is not None and before.end == start else {}
        if len(known) > STATES_MAX:
            known = {}
        known.update(states)
        with self._lock:
            wary = self._wary.get(partition, 0)
            if wary:
                self._wary[partition] = wary - 1
            else:
                self._ends[partition] = KnownEnd(end, known)

    def met_others(self, partitions: Iterable[int]) -> None:
        """Note that another process had written to one of the partitions."""
        with self._lock:
            self._wary.update(dict.fromkeys(partitions, LATER))

    def may_guess(self) -> bool:
        """Return whether a key of which nothing is known may be taken for new."""
        with self._lock:
            self._unsure = max(self._unsure - 1, 0)
            return not self._unsure

    def guessed_wrong(self) -> None:
        """Note that a key which was taken for new may not have been."""
        self._unsure = LATER + 1

    def note_clock(self, server_us: int) -> None:
        """Note what the server's clock said a moment ago."""
        self._ahead_us = server_us - time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """Return the server's clock, as far as is known here: never the clock of this machine, which may be set."""
        return time.monotonic_ns() // 1000 + self._ahead_us
