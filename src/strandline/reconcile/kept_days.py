"""Kept days: the sums that a run of reconcile keeps in a file of the caller's, so that the next run reads only new
days.

A day is finished once the strandline has passed its end: no event can come into it. The file has the sums of each
finished day's links, by slice, of events and of tag rows: in the comparison with the heads they are used instead of the
rows. All other checks compare within a day, so both of their sides skip the day together.

    round 1     days that are not passed over, with the kept sums of the others    ──▶ slices that differ
    these       all days, and their sums are kept anew                             ──▶ slices that differ indeed

So sums that no longer hold (after a Delete, a Purge, a repair) are never a finding: the second round reads the rows and
replaces them. A slice with a difference is read wholly by every run until it has none. Damage in a skipped day shows
when its turn comes: the days that were read longest ago are read again first.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from strandline.errors import invalid
from strandline.reconcile.tallies import ANY_DAY, DAY_US, Tally, TallyCell, signed

if TYPE_CHECKING:
    from strandline.reconcile.rounds import SideTotals

FORM: Final = "strandline kept days 1"
"""The version of items. It grows when items are made in another way, so that older files are not used."""
FORM_OF_ANY: Final = "strandline kept days "
BY_DAY: Final = {"chain": "chain by day", "tag_chain": "tag_chain by day"}
"""The checks whose items belong together across days, each with the check whose tallies have the same sums by day."""
REREAD: Final = 0.05
END_OF_TIME: Final = 2**63 - 1
ALL_TIME: Final = ((-1, END_OF_TIME),)


@dataclass(frozen=True, slots=True)
class KeptDay:
    """The sums of a day, by check and slice, and the run that read it last."""

    read: int
    sums: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class KeptDays:
    """The contents of the file: what one run leaves for the next."""

    history_id: str
    run: int = 0
    days: Mapping[int, KeptDay] = field(default_factory=dict)
    again: frozenset[int] = frozenset()
    """Slices in which a difference was seen: the next run reads all of them."""


def days_passed_over(last_read: Mapping[int, int], share: float, strandline: int) -> frozenset[int]:
    """Return the kept days that a run skips: all but a share of them, which was read longest ago. Pure.

    `last_read` has the run that read each day last. A day that the strandline has not passed is never skipped.
    """
    ended = [day for day in last_read if (day + 1) * DAY_US <= strandline]
    ended.sort(key=lambda day: (last_read[day], day))
    return frozenset(ended[ceil(len(ended) * share) :])


def spans_without(days: Collection[int]) -> list[tuple[int, int]]:
    """Return the stretches of time that leave these days out: first and last microsecond of each. Pure."""
    spans, start = [], ALL_TIME[0][0]
    for day in sorted(days):
        if start < day * DAY_US:
            spans.append((start, day * DAY_US - 1))
        start = (day + 1) * DAY_US
    return [*spans, (start, END_OF_TIME)]


class KeptDaysFile:
    """A file of kept days. A run reads it at its start and writes it anew at its end."""

    def __init__(self, path: str | os.PathLike[str], history_id: str, share: float = REREAD) -> None:
        """Read the file. A file that is not there yet, or is of another history or version, counts as empty."""
        self._path, self._share = Path(path), share
        self._kept = _read(self._path, history_id)
        self._sums: dict[tuple[str, int], dict[int, int]] = {}
        self._strandline = 0
        self.passed_over: frozenset[int] = frozenset()

    @property
    def again(self) -> frozenset[int]:
        """The slices that this run reads wholly, because an earlier run saw a difference in them."""
        return self._kept.again

    def begin(self, strandline: int) -> frozenset[int]:
        """Choose and return the days that this run skips."""
        last_read = {day: kept.read for day, kept in self._kept.days.items()}
        self._strandline = strandline
        self.passed_over = days_passed_over(last_read, self._share, strandline)
        for day in self.passed_over:
            for place, total in self._kept.days[day].sums.items():
                self._sums.setdefault(place, {})[day] = total
        return self.passed_over

    def stand_in(self, totals: SideTotals) -> None:
        """Note the sums by day of a reading that skipped these days, and add the kept sums of the skipped days to its
        totals.
        """
        kept = {place: sum(by_day.values()) for place, by_day in self._sums.items()}
        self._take(totals)
        differing = []
        for tally in totals.differing:
            if tally.cell.check in BY_DAY:
                place = tally.cell.check, tally.cell.slice
                kept[place] = kept.get(place, 0) + tally.digest
            else:
                differing.append(tally)
        differing += [
            Tally(TallyCell(check, slice_, ANY_DAY), 0, 0, signed(digest))
            for (check, slice_), digest in kept.items()
            if signed(digest)
        ]
        totals.differing = sorted(differing)

    def replace(self, totals: SideTotals, slices: Collection[int]) -> None:
        """Replace all sums of these slices by those that a reading of all their days gave."""
        for place in [place for place in self._sums if place[1] in slices]:
            del self._sums[place]
        self._take(totals)

    def _take(self, totals: SideTotals) -> None:
        checks = {told: check for check, told in BY_DAY.items()}
        left = []
        for tally in totals.differing:
            check = checks.get(tally.cell.check)
            if check is None:
                left.append(tally)
            else:
                self._sums.setdefault((check, tally.cell.slice), {})[tally.cell.day] = tally.digest
        totals.differing = left

    def write(self, again: Collection[int]) -> None:
        """Write the sums of finished days; `again` has the slices that the next run must read wholly."""
        run = self._kept.run + 1
        days: dict[int, dict[tuple[str, int], int]] = {day: {} for day in self.passed_over}
        for place, by_day in self._sums.items():
            for day, total in by_day.items():
                if day >= 0 and (day + 1) * DAY_US <= self._strandline:
                    days.setdefault(day, {})[place] = total
        kept = {
            day: KeptDay(self._kept.days[day].read if day in self.passed_over else run, sums)
            for day, sums in days.items()
        }
        written = _written(KeptDays(self._kept.history_id, run, kept, frozenset(again)))
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        beside.write_bytes(written)
        beside.replace(self._path)


def _written(kept: KeptDays) -> bytes:
    days: dict[str, Any] = {}
    for day, (read, sums) in sorted((day, (each.read, each.sums)) for day, each in kept.days.items()):
        by_check: dict[str, dict[str, int]] = {check: {} for check in BY_DAY}
        for (check, slice_), total in sorted(sums.items()):
            by_check[check][str(slice_)] = total
        days[str(day)] = {"read": read, **by_check}
    return orjson.dumps({
        "form": FORM, "history_id": kept.history_id, "run": kept.run, "again": sorted(kept.again), "days": days,
    })  # fmt: skip


def _read(path: Path, history_id: str) -> KeptDays:
    if not path.parent.is_dir():
        raise invalid("option", "keep", "no such folder", allowed="a file of a folder that exists", got=str(path))
    if not path.exists():
        return KeptDays(history_id)
    try:
        found = orjson.loads(path.read_bytes())
        if found["form"] != FORM and found["form"].startswith(FORM_OF_ANY):
            return KeptDays(history_id)
        if found["form"] != FORM:
            raise ValueError(found["form"])
        if found["history_id"] != history_id:
            return KeptDays(history_id)
        return KeptDays(
            history_id, int(found["run"]), {int(day): _day(told) for day, told in found["days"].items()},
            frozenset(map(int, found["again"])),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise invalid(
            "option", "keep", "not a file that reconcile has written", allowed="one of its own, or a new name",
            got=str(path),
        ) from error  # fmt: skip


def _day(told: Mapping[str, Any]) -> KeptDay:
    sums = {(check, int(slice_)): int(total) for check in BY_DAY for slice_, total in told[check].items()}
    return KeptDay(int(told["read"]), sums)
