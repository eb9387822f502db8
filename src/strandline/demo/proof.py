"""The proof: what was checked at the end, in counts that a reader can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from strandline.testing.shop.checker import Finding, Report, claims_of, is_alive
from strandline.testing.shop.ledger import Entry
from strandline.testing.shop.orders import DELETE, PURGE

FINDINGS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Counts of what the ledgers have."""

    keys: int
    appends: int
    """Acknowledged; an append that was sent twice counts once."""
    events: int
    repeats: int
    """Appends that were answered with the first outcome."""
    conflicts: int
    deletes: int
    purges: int
    cut_off: int
    """Calls that a kill left without an answer."""

    @classmethod
    def of(cls, ledgers: Sequence[Sequence[Entry]], keys: int) -> LedgerCounts:
        calls = list(chain.from_iterable(ledgers))
        accepted = {(entry.writer, entry.task): entry for entry in calls if entry.accepted}
        return cls(
            keys,
            len(accepted),
            sum(len(entry.events) for entry in accepted.values()),
            sum(entry.duplicate for entry in calls),
            sum(entry.refused for entry in calls),
            sum(entry.do == DELETE for entry in calls),
            sum(entry.do == PURGE for entry in calls),
            sum(entry.unknown for entry in calls),
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """Three looks at everything, and what the ledgers say."""

    counts: LedgerCounts
    stopped: Report
    """`read` of every key while no pipeline ran."""
    stored: Report
    """The rows of the store after all was carried."""
    carried: Report
    """`read` of every key after that."""
    others: tuple[Finding, ...]

    @classmethod
    def of(
        cls,
        ledgers: Sequence[Sequence[Entry]],
        entries: Mapping[str, Sequence[Entry]],
        stopped: Report,
        stored: Report,
        carried: Report,
        heads: Set[str],
        row_keys: Set[str],
        lag: int,
        quarantined: int,
    ) -> Proof:
        strangers = sorted((heads | row_keys) - set(entries))
        others = [Finding("ghost", key, "is in the store and in no ledger") for key in strangers]
        for key, calls in entries.items():
            alive = is_alive(claims_of(key, calls))
            if alive is True and key not in heads:
                others.append(Finding("lost", key, "has no head in the store"))
            if alive is False and key in heads:
                others.append(Finding("ghost", key, "was purged and has a head in the store"))
        if lag or carried.from_tail:
            others.append(Finding("lost", "the store", f"lacks {lag} actions after the last run"))
        if quarantined:
            others.append(Finding("changed", "the store", f"has {quarantined} records in quarantine"))
        return cls(LedgerCounts.of(ledgers, len(entries)), stopped, stored, carried, tuple(others))

    @property
    def findings(self) -> list[Finding]:
        return [*self.stopped.findings, *self.stored.findings, *self.carried.findings, *self.others]

    @property
    def sound(self) -> bool:
        return not self.findings

    def lines(self) -> list[tuple[bool, str]]:
        """Return each check in a line, and whether it holds."""
        counts, stopped, stored, carried = self.counts, self.stopped, self.stored, self.carried
        tail = stopped.from_tail / max(1, stopped.events)
        lost, doubled = self._count("lost"), self._count("doubled")
        reordered, wrong = self._count("reordered", "numbers"), self._count("ghost", "changed")
        first = f"read() with the pipeline stopped: {stopped.keys:,} journals, {stopped.events:,} events"
        last = f"{counts.conflicts:,} conflicts, {counts.deletes:,} deletes and {counts.purges:,} purges"
        return [
            (stopped.sound, f"{first}, {tail:.0%} of them from the log's tail"),
            (stored.sound, f"the store's own rows after `pipeline run --once`: {stored.events:,} events"),
            (carried.sound, f"read() once more: {carried.events:,} events, {carried.from_tail} from the tail"),
            (not lost, f"lost: {lost} of {counts.events:,} acknowledged events, in {counts.appends:,} appends"),
            (not doubled, f"repeated: {doubled}, after {counts.repeats:,} appends that were sent again with their id"),
            (not reordered, f"reordered: {reordered}, and numbers without a hole in {counts.keys:,} journals"),
            (not wrong, f"shown and should not be: {wrong}, after {last}"),
            (self.sound, f"cut off by a kill: {counts.cut_off}, each there whole or not at all"),
        ]

    def _count(self, *kinds: str) -> int:
        return sum(finding.kind in kinds for finding in self.findings)

    def kept(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {"sound": self.sound, **asdict(self)}
