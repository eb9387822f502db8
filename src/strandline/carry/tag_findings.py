"""The values that mending a tag's view works with: what was found of a key under a tag, and what to change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from strandline.store.tables import Table
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.tag_rows import TagRow


@dataclass(slots=True)
class TagRebuildCounts:
    """The counts of a rebuild: rows and keys that it looked at, and rows that it mended."""

    keys: int = 0
    rows: int = 0
    """Events that carry the tag."""
    missing: int = 0
    """Rows put back at places that had none."""
    wrong: int = 0
    """Rows corrected in their places: number, link, bucket, digest, or the event itself."""
    extra: int = 0
    """Rows taken out: of ended lives, doubled, or of no such event."""
    places: int = 0
    """Entries of `tag_place` and `tag_bucket` that were not right (Cassandra)."""
    progress: int = 0
    lost: int = 0
    """Numbers whose rows are gone and cannot be made again, because the event was deleted or the journal lost it,
    too."""
    unproven: int = 0
    """Rows that stay as they are, or stay away, because the journal does not prove what they should be: its own rows
    are lost or damaged."""

    def add(self, other: TagRebuildCounts) -> None:
        """Add the counts of another rebuild."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class ExaminedRow(NamedTuple):
    """A row of the view, without its body."""

    row: TagRow
    timestamp: int
    """The place where the row belongs, from its body if that is whole, else the row's own."""
    seq_nr: int
    body_ok: bool
    """Whether body and digest are those of an event of this key and life with this tag."""
    foreign: bool
    """Whether body and digest are those of an event without this tag."""
    is_filler: bool
    """Whether the row only fills the place of an event that was skipped."""
    link_ok: bool
    """Whether number and link are what was written."""

    @property
    def at_home(self) -> bool:
        """Return whether the row is in the place where it belongs."""
        return (self.row.timestamp, self.row.seq_nr) == (self.timestamp, self.seq_nr)


class EventFacts(NamedTuple):
    """The journal's facts about an event with the tag."""

    timestamp: int
    prev_seq_nr: int
    digest: int


class KeyFacts(NamedTuple):
    """The journal's facts about a key and life."""

    tagged: dict[int, EventFacts]
    gaps: list[tuple[int, int]]
    """First and last of the numbers that are missing between its events."""
    doubtful: list[tuple[int, int]]
    """First and last of the numbers whose events are damaged, or are lost, as the event after them or the head shows:
    their tags are unknown."""
    first: int
    last: int

    def has(self, seq_nr: int) -> bool:
        """Return whether there is an event with this number."""
        return self.first <= seq_nr <= self.last and not _any_in(self.gaps, seq_nr, seq_nr)

    def doubts(self, first: int, last: int) -> bool:
        """Return whether a number from one to another may have been that of an event with the tag."""
        return _any_in(self.doubtful, first, last)

    def lost(self, seq_nr: int) -> bool:
        """Return whether the journal has no row for this number but may have had an event there."""
        return self.doubts(seq_nr, seq_nr) and not self.has(seq_nr)

    def whole_between(self, before: int, seq_nr: int) -> bool:
        """Return whether no number between two is missing."""
        between = before + 1, seq_nr - 1
        return not _any_in(self.gaps, *between) and not self.doubts(*between)


def _any_in(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Return whether a number from one to another is in one of these ranges, which are in order."""
    at = bisect_right(ranges, (last, SEQ_NR_MAX)) - 1
    return first <= last and at >= 0 and ranges[at][1] >= first


@dataclass(slots=True)
class Mending:
    """The rows to write and to remove for one key or several."""

    anew: dict[Table, list[Any]]
    gone: dict[Table, list[Any]]
    listed: list[TagRow]
    counts: TagRebuildCounts

    @classmethod
    def none(cls) -> Mending:
        return cls({}, {}, [], TagRebuildCounts())

    def put(self, table: Table, row: Any) -> None:
        self.anew.setdefault(table, []).append(row)

    def take(self, table: Table, row: Any) -> None:
        self.gone.setdefault(table, []).append(row)

    def add(self, other: Mending) -> None:
        """Add the changes of another mending."""
        for mine, theirs in ((self.anew, other.anew), (self.gone, other.gone)):
            for table, rows in theirs.items():
                mine.setdefault(table, []).extend(rows)
        self.listed += other.listed
        self.counts.add(other.counts)

    @property
    def size(self) -> int:
        return sum(len(rows) for rows in (*self.anew.values(), *self.gone.values()))


def choose_rows(
    found: Sequence[ExaminedRow], journal: KeyFacts, delete_to: int, named: Collection[tuple[int, int]]
) -> tuple[dict[int, ExaminedRow], list[ExaminedRow]]:
    """Divide the rows of a key and life into those that stand for an event, by seq_nr, and the others. `named` are the
    places (timestamp, seq_nr) that the tables of places and progress name; links of rows name others.
    """
    links = {(each.row.previous_timestamp, each.row.previous_seq_nr) for each in found if each.link_ok}

    def worth(each: ExaminedRow) -> tuple[bool, ...]:
        place = each.timestamp, each.seq_nr
        return each.at_home, each.body_ok, place in links or place in named, each.link_ok

    kept: dict[int, ExaminedRow] = {}
    extra: list[ExaminedRow] = []
    for each in sorted(found, key=worth):
        if _belongs(each, journal, delete_to):
            if each.seq_nr in kept:
                extra.append(kept[each.seq_nr])
            kept[each.seq_nr] = each
        else:
            extra.append(each)
    return kept, extra


def _belongs(found: ExaminedRow, journal: KeyFacts, delete_to: int) -> bool:
    seq_nr = found.seq_nr
    told = journal.tagged.get(seq_nr)
    if told is not None:
        return told.timestamp == found.timestamp
    if found.foreign:
        return False
    if seq_nr <= delete_to or journal.doubts(seq_nr, seq_nr):
        return True
    return found.is_filler and not journal.has(seq_nr)  # of an event that was skipped


def matches(standing: ExaminedRow, place: tuple[Any, ...], told: EventFacts) -> bool:
    """Return whether a row says what the journal does."""
    row = standing.row
    return standing.body_ok and (*row[:10], row[10], row[12]) == (*place, told.prev_seq_nr, told.digest)
