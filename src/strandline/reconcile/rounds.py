"""Rounds: how a store is reconciled. The caller says how the parts of a round are run: here, or on Spark.

    freeze     pointers, and the first offset that the log keeps
    round 1    all sides, tallied by slice and day           ──▶ slices that differ
    round 2    these slices again, tallied by key            ──▶ keys that differ, and odd rows of theirs
    round 3    these keys one by one, read afresh            ──▶ findings; corrected, if that is asked for

A sample begins with round 2, on some slices. If nothing differs, the run ends after round 1. With a file of kept days,
round 1 skips days that an earlier run has read (`kept_days`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from strandline.errors import Corrupt
from strandline.log.api import Log
from strandline.reconcile.examine import KeyExaminer
from strandline.reconcile.findings import Difference, FrozenEnds, ReconcileReport
from strandline.reconcile.kept_days import KeptDaysFile
from strandline.reconcile.sides import OddRow, SidePart, SideReader, SideResult, parts_of_round
from strandline.reconcile.tallies import Tally, differing
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.raw_rows import tags_in_view
from strandline.store.tag_scans import is_partitioned
from strandline.values.keys import SLICES, key_partition, partition_of, slice_of

KEYS_A_PART: Final = 500


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Keys of one partition that are examined one by one, each with its odd rows."""

    number: int
    partition: int
    keys: Mapping[str, Sequence[OddRow]]
    fence: int | None = None
    """The fence of the pipeline's lease, under which keys are corrected; None if they are only examined."""

    @property
    def part(self) -> int:
        return self.number


class Repair(NamedTuple):
    """The right to correct, which the caller holds."""

    fence: int
    """The fence of the pipeline's lease."""
    carry_mark: Callable[[int, int], None]
    """Writes a Mark into a partition and carries the partition up to it, under the fence."""


@dataclass(slots=True)
class SideTotals:
    """The sums, rows and keys that the parts of a round found."""

    differing: list[Tally] = field(default_factory=list)
    odd: list[OddRow] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, result: SideResult) -> None:
        """Add the result of a part, except its tallies."""
        self.odd += result.odd
        self.suspects.update(result.suspects)
        for name, count in result.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count


class RoundRunner(Protocol):
    """Runs the parts of a round."""

    def sides(self, frozen: FrozenEnds, parts: Sequence[SidePart]) -> SideTotals:
        """Read parts of sides; return the cells that differ over all of them, and their other results."""

    def keys(self, parts: Sequence[KeyPart]) -> Iterable[tuple[list[Difference], str | None]]:
        """Examine keys; yield the findings of each, and the key itself if it was busy."""


class HereRunner:
    """Runs all parts in this process, one after the other."""

    def __init__(self, log: Log, store: Store, settings: Settings) -> None:
        self._log, self._store, self._settings = log, store, settings

    def sides(self, frozen: FrozenEnds, parts: Sequence[SidePart]) -> SideTotals:
        totals, tallies = SideTotals(), list[Tally]()
        for part in parts:
            result = read_side(self._log, self._store, self._settings, frozen, part)
            totals.add(result)
            tallies += result.tallies
        totals.differing = differing(tallies)
        return totals

    def keys(self, parts: Sequence[KeyPart]) -> Iterable[tuple[list[Difference], str | None]]:
        for part in parts:
            yield from look_at_keys(self._log, self._store, self._settings, part)


def read_side(log: Log, store: Store, settings: Settings, frozen: FrozenEnds, part: SidePart) -> SideResult:
    """Read one part of a side."""
    return SideReader(log, store, settings, frozen, part).read()


def look_at_keys(
    log: Log, store: Store, settings: Settings, part: KeyPart
) -> Iterable[tuple[list[Difference], str | None]]:
    """Examine some keys, and correct them if the part has a fence."""
    examiner = KeyExaminer(log, store, settings, part.partition, part.fence)
    return examiner.examine(part.keys) if part.fence is None else examiner.repair(part.keys)


def reconcile_rounds(
    log: Log,
    store: Store,
    runner: RoundRunner,
    *,
    sample: float | None = None,
    start: float = 0.0,
    repair: Repair | None = None,
    keep: KeptDaysFile | None = None,
    going_on: Callable[[], None] = lambda: None,
) -> ReconcileReport:
    """Compare log, store and views; with a `repair` correct what can be proved.

    `sample` is the share of slices to compare; `start`, from 0 up to 1, says which ones. `keep` (not with a sample, nor
    for a partitioned store) has the sums of finished days that earlier runs kept. `going_on` is called between rounds,
    and raises if the work must end.
    """
    report = ReconcileReport()
    try:
        frozen = FrozenEnds(store.pointers(), log.oldest())
    except Corrupt as error:
        report.findings.append(Difference("pointer_wrong", -1, expected="what was written", found=error.message))
        return report
    report.strandline = min(pointer.timestamp for pointer in frozen.pointers)
    report.findings += _pointers(log, store, frozen, repair)
    slices = None if sample is None else sampled(sample, start, store.settings.partitions)
    tags = [] if is_partitioned(store) else tags_in_view(store)
    report.slices = SLICES if slices is None else len(slices)
    odd: list[OddRow] = []
    if slices is None:
        totals = _first_round(store, runner, frozen, tags, keep, report)
        going_on()
        _count(report, totals)
        odd += totals.odd
        differing_slices = {tally.cell.slice for tally in totals.differing}
        slices = frozenset(differing_slices | {slice_of(key) for key in totals.suspects})
        if keep is not None:
            keep.write(slices)
        if not slices:
            return report
        suspects = set(totals.suspects)
        totals = runner.sides(frozen, list(parts_of_round(store, tags, slices)))
    else:
        suspects = set()
        totals = runner.sides(frozen, list(parts_of_round(store, tags, slices, sampled=True)))
        _count(report, totals)
    going_on()
    suspects |= totals.suspects | {tally.cell.key for tally in totals.differing}
    by_key: dict[str, list[OddRow]] = {key: [] for key in sorted(suspects)}
    for row in dict.fromkeys([*odd, *totals.odd]):
        by_key.setdefault(row.key, []).append(row)
    report.suspects = len(by_key)
    for findings, busy in runner.keys(_key_parts(by_key, store.settings.partitions, repair.fence if repair else None)):
        report.findings += findings
        if busy is not None:
            report.busy.append(busy)
    return report


def _first_round(
    store: Store,
    runner: RoundRunner,
    frozen: FrozenEnds,
    tags: Sequence[str],
    keep: KeptDaysFile | None,
    report: ReconcileReport,
) -> SideTotals:
    """Return the cells by slice and day that differ. Slices whose kept sums do not fit are read wholly."""
    if keep is None:
        return runner.sides(frozen, list(parts_of_round(store, tags)))
    without = keep.begin(report.strandline)
    report.days_passed_over = len(without)
    totals = runner.sides(frozen, list(parts_of_round(store, tags, without=without)))
    keep.stand_in(totals)
    unsure = keep.again | {tally.cell.slice for tally in totals.differing}
    if without and unsure:
        report.slices_reread = len(unsure)
        again = runner.sides(frozen, list(parts_of_round(store, tags, frozenset(unsure), frozenset())))
        keep.replace(again, unsure)
        totals.differing = again.differing
        totals.odd += again.odd
        totals.suspects |= again.suspects
    return totals


def _pointers(log: Log, store: Store, frozen: FrozenEnds, repair: Repair | None) -> list[Difference]:
    """Return the differences of pointers. A repair carries a Mark, because that writes the partition's pointer anew."""
    findings = pointer_findings(log, frozen)
    if repair is None or not findings:
        return findings
    for partition in {finding.partition for finding in findings}:
        repair.carry_mark(partition, repair.fence)
    left = {finding.partition for finding in pointer_findings(log, FrozenEnds(store.pointers(), log.oldest()))}
    return [finding._replace(repaired=finding.partition not in left) for finding in findings]


def sampled(share: float, start: float, partitions: int) -> frozenset[int]:
    """Return a run of slices in each partition, so many that together they are this share of all."""
    found: set[int] = set()
    for partition in range(min(partitions, SLICES)):
        mine = [slice_ for slice_ in range(SLICES) if partition_of(slice_, partitions) == partition]
        count = max(1, round(len(mine) * share))
        first = int(start * (len(mine) - count + 1))
        found.update(mine[first : first + count])
    return frozenset(found)


def pointer_findings(log: Log, frozen: FrozenEnds) -> list[Difference]:
    """Return the faults of pointers: a timestamp below the last action's, or other than the log's for the offset, if
    the log keeps that.
    """
    found = []
    for pointer, oldest in zip(frozen.pointers, frozen.oldest, strict=True):
        partition, offset, timestamp, last_action_at = pointer[:4]
        if last_action_at > timestamp:
            found.append(
                Difference(
                    "pointer_wrong", partition, expected=f"last action by {timestamp}", found=f"{last_action_at}"
                )
            )
        if not log.exact or offset < max(oldest, 0):
            continue
        records = log.read(partition, after=offset - 1, to=offset, limit=1, values=False).records
        if records and records[0].timestamp != timestamp:
            expected, was = f"timestamp {records[0].timestamp} of offset {offset}", f"timestamp {timestamp}"
            found.append(Difference("pointer_wrong", partition, expected=expected, found=was))
    return found


def _count(report: ReconcileReport, totals: SideTotals) -> None:
    for name, count in totals.counts.items():
        setattr(report, name, getattr(report, name) + count)


def _key_parts(odd: Mapping[str, Sequence[OddRow]], partitions: int, fence: int | None) -> list[KeyPart]:
    """Return parts of keys. A repair has one part for each partition: its corrections go one after the other."""
    by_partition: dict[int, list[str]] = {}
    for key in odd:
        by_partition.setdefault(key_partition(key, partitions), []).append(key)
    parts: list[KeyPart] = []
    for partition, keys in sorted(by_partition.items()):
        step = KEYS_A_PART if fence is None else len(keys)
        for at in range(0, len(keys), step):
            chosen = {key: tuple(odd[key]) for key in keys[at : at + step]}
            parts.append(KeyPart(len(parts), partition, chosen, fence))
    return parts
