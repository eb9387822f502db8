"""Findings: the differences that reconcile names, and where the comparison was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from strandline.rows import Pointer

KINDS: Final = {
    "event_missing": "an event that log, chain or head name has no row",
    "event_extra": "a row of an event that was deleted, or that the log does not have",
    "event_different": "a row says something else than the log, or than its own body",
    "chain_broken": "an event names another event before it than the one that stands there",
    "head_wrong": "a head does not fit its events, or the log",
    "ended_life": "rows of a life that has ended",
    "snapshot_orphaned": "snapshots of a life that has ended",
    "slice_missing": "an event has no row in the slice view (Cassandra)",
    "slice_extra": "a row of the slice view has no event (Cassandra)",
    "slice_wrong": "a row of the slice view says something else than its event (Cassandra)",
    "tag_missing": "an event has no row in the view of its tag",
    "tag_extra": "a row in the view of a tag belongs to no event of a living journal",
    "tag_doubled": "an event has a second row in the view of its tag",
    "tag_bucket": "a tag row stands in a wrong bucket",
    "tag_number": "a tag row has a wrong number",
    "tag_link": "a tag row names a wrong row before it",
    "tag_digest": "a tag row, or the event in it, is not what was written",
    "tag_place": "the place of a tag row, or its bucket, is not listed right (Cassandra)",
    "tag_progress": "what is kept of how far a key is under a tag is wrong",
    "tag_lost": "tag rows are gone, or cannot be proved, and nothing is left to make them from",
    "pointer_wrong": "a pointer does not say what the log says of its offset",
}
"""Each kind of finding, and what it means."""
SHOWN_MAX: Final = 1000
"""How many numbers a finding lists at most."""


class Difference(NamedTuple):
    """A difference."""

    kind: str
    partition: int
    key: str | None = None
    life: int | None = None
    seq_nrs: tuple[int, ...] = ()
    expected: str = ""
    found: str = ""
    timestamp: int = 0
    """When the event was recorded, if that is known."""
    tag: str | None = None
    repaired: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "seq_nrs": list(self.seq_nrs)}

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return the fields that stay the same when the key is looked at again."""
        return self.kind, self.key, self.life, self.seq_nrs, self.tag


@dataclass(frozen=True, slots=True)
class FrozenEnds:
    """The places where both sides were cut: the pointers that were read first, and the first offset that the log
    keeps."""

    pointers: Sequence[Pointer]
    oldest: Sequence[int]


@dataclass(slots=True)
class ReconcileReport:
    """The counts of a run of reconcile, and its findings."""

    findings: list[Difference] = field(default_factory=list)
    events: int = 0
    """Rows of events that were compared."""
    keys: int = 0
    """Keys with a head that were compared."""
    tag_rows: int = 0
    log_events: int = 0
    """Events of the kept log that were compared with the store."""
    slices: int = 0
    """Slices that were compared."""
    suspects: int = 0
    """Keys that were examined one by one, because digests differed."""
    busy: list[str] = field(default_factory=list)
    """Keys that were being written each time they were read. The next run compares them."""
    strandline: int = 0
    days_passed_over: int = 0
    """Finished days that were not read; the sums that an earlier run kept were used instead."""
    slices_reread: int = 0
    """Slices of which all days were read after all, because the kept sums did not fit."""

    @property
    def unrepaired(self) -> list[Difference]:
        return [finding for finding in self.findings if not finding.repaired]

    def to_dict(self) -> dict[str, Any]:
        counted = {name: getattr(self, name) for name in COUNTED}
        return {**counted, "busy": self.busy, "findings": [finding.to_dict() for finding in self.findings]}


COUNTED: Final = (
    "events", "keys", "tag_rows", "log_events", "slices", "suspects", "strandline", "days_passed_over", "slices_reread",
)  # fmt: skip


def numbers_shown(first: int, last: int) -> tuple[int, ...]:
    """Return the numbers from one to another, cut to as many as a finding lists."""
    return tuple(range(first, min(last, first + SHOWN_MAX - 1) + 1))
