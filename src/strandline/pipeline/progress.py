"""The progress that a running pipeline reports after each batch, and during a long one. Values only: a program that
shows them needs no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class PartitionProgress(NamedTuple):
    """The progress of a partition: offsets of its pointer and of its newest action, -1 where there is none."""

    partition: int
    pointer: int
    newest: int
    lag: int
    """Actions that are in the log and not yet in the store."""
    error: str | None = None
    """Why its last range failed; it is tried again."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch, and where the pipeline stands after it."""

    batch: int
    """Batches since the start of the run, from 1."""
    actions: int
    events: int
    seconds: float
    partitions: tuple[PartitionProgress, ...]
    strandline: int
    """Microseconds; 0 while a partition was never carried."""
    quarantined: int
    under_way: bool = False
    """Whether the batch is still running: its counts of actions and events are not known yet."""

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)
