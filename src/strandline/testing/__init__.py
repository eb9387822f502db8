"""What tests of Strandline, and of programs that use it, can build on.

- `carry` does the work of the pipeline's tasks in a plain process.
- `raw_append` puts any bytes into a log, as a foreign or broken writer would.
- `FakeClock` says the time that a test tells it; `faults` wraps a log or a store so that calls fail, wait or die.
- `LastWriteWinsStore` has Cassandra's order of writes and ties, in memory.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

from strandline.carry import range as carrying
from strandline.connect import Strandline
from strandline.pipeline import marks
from strandline.store.api import Lease
from strandline.testing.clock import FakeClock
from strandline.testing.last_write_wins import LastWriteWinsStore
from strandline.values.actions import Place

__all__ = ["Carried", "FakeClock", "LastWriteWinsStore", "carry", "raw_append"]


class Carried(NamedTuple):
    """The actions and events that a call of `carry` brought into the store."""

    actions: int
    events: int


def carry(
    s: Strandline, *, partition: int | None = None, limit: int | None = None, lease: Lease | None = None
) -> Carried:
    """Carry all that is recorded now and write Marks where the strandline needs them, as `pipeline run --once` does:
    queries by tag and by slices then have all of it.

    With `partition` or `limit` it carries one partition alone, or at most so many offsets of each, and writes no Marks.
    It takes the pipeline's lease for the time of the call, or works under one that the caller holds.
    """
    held = lease or s.store.lease().take("strandline.testing.carry")
    done = []
    try:
        for ends in marks.rounds(s.log, s.store):
            for number in range(len(ends)) if partition is None else (partition,):
                to = ends[number] - 1
                done.append(carrying.carry_up_to(s.log, s.store, number, to, held.fence, s.settings, limit=limit))
            if partition is not None or limit is not None:
                break
    finally:
        if lease is None:
            held.release()
    return Carried(sum(counts.actions for counts in done), sum(counts.events for counts in done))


class _Raw(Protocol):
    def raw_append(self, partition: int, *, key: str | None, header: bytes | None, value: bytes | None) -> Place: ...


def raw_append(
    s: Strandline,
    partition: int,
    *,
    key: str | None = None,
    header: bytes | None = None,
    value: bytes | None = None,
) -> Place:
    """Put a record into a partition as it is, unfolded and unchecked."""
    return cast(_Raw, s.log).raw_append(partition, key=key, header=header, value=value)
