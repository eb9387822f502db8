"""The events of a tag, as a projection reads them: by their numbers under the tag.

The numbers of a key under a tag have no gaps, and each row links to the one before it. So acceptance judges by these
numbers alone, and the row that the link names tells of a key whose row was forgotten. Deletes do not reach tag views,
so no event counts as deleted here. A query by tag makes its own checks, which are not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from strandline.errors import Corrupt, shown
from strandline.projection.definition import ByTag
from strandline.query.acceptance import Last, Place, StoreFacts, end_of
from strandline.query.look_back import STEP, LookedBack, followed
from strandline.query.pointer_watch import PointerWatch
from strandline.query.query_row import QueryRow, place_of
from strandline.query.slices import Slices
from strandline.query.stored_tags import StoredTags
from strandline.store.api import Store
from strandline.store.scans import LAST_KEY
from strandline.store.tag_scans import progress_of
from strandline.values.events import EventCells
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.ranges import Range
from strandline.values.tag_rows import TagRow, first_broken


class TaggedRow(QueryRow):
    """A row of the view of a tag: its numbers are those under the tag, 0 where there is none before it."""

    of: TagRow

    @classmethod
    def made(cls, row: Sequence[Any]) -> TaggedRow:
        of = TagRow._make(row)
        before = of.tag_seq_nr - 1 if of.link is not None else 0
        new = cls(of.timestamp, of.tag_seq_nr, of.key, of.life, before, of.body, of.digest)
        new.of = of
        return new

    @property
    def cells(self) -> EventCells:
        return self.of.cells


def tagged(row: QueryRow) -> TagRow:
    """Return the row of the view that a row of this source was made from."""
    return cast(TaggedRow, row).of


class TagEvents(Slices):
    """The events of a tag, in the one range that its projections have."""

    def __init__(self, store: Store, source: ByTag, range_: Range) -> None:
        super().__init__(store, "", range_)
        self._tag = source.tag
        self._tags = StoredTags(store, PointerWatch(store), source.tag, store.settings.history_id)

    def rows(self, after: Place, to: int, page_size: int, *, bodies: bool = True) -> Iterator[QueryRow]:
        """Yield the rows after a place, up to a time, in the order of the view: by time, key and number."""
        timestamp, seq_nr, key = after
        place = (timestamp, LAST_KEY, SEQ_NR_MAX) if after == end_of(timestamp) else (timestamp, key, seq_nr)
        more = True
        while more:
            rows, more = self._tags.page(place, to, page_size)
            self._check(rows)
            if rows:
                place = rows[-1][2], rows[-1][3], rows[-1][9]
            yield from map(TaggedRow.made, rows)

    def place_of(self, row: QueryRow) -> Place:
        """Return the place of a row, with which `rows` continues behind it."""
        return row.timestamp, tagged(row).seq_nr, row.key

    def look(self, row: QueryRow, line: Place | None = None) -> StoreFacts:
        """Look up an event's key, and the row before it, which its link names."""
        if self._tags.ended(row.key, row.life):
            return StoreFacts(None)
        link = tagged(row).link
        is_there = link is not None and self._tags.there([link])
        return StoreFacts(row.life, 0, (link[0], row.prev_seq_nr, row.key) if link is not None and is_there else None)

    def look_back(self, row: QueryRow, last: Last | None, line: Place) -> LookedBack:
        """Return the rows of a key under the tag that come before a row, and the row itself, if they follow on each
        other."""
        if self._tags.ended(row.key, row.life):
            return LookedBack([])
        own = next(self.of_key(row.key, row.life, row.seq_nr, row.seq_nr), None)
        if own is None:
            return LookedBack([], (row.life, row.seq_nr, row.seq_nr))
        known = last is not None and last.life == row.life
        low = last.seq_nr + 1 if known and last is not None else 1
        found, done, to = [own], None, row.seq_nr - 1
        while to >= low and done is None:
            for each in reversed(list(self.of_key(row.key, row.life, max(low, to - STEP + 1), to))):
                if not known and place_of(each) <= line:
                    done = each
                    break
                found.append(each)
            to -= STEP
        if done is None:
            return followed(found[::-1], last, line, low, StoreFacts(row.life))
        linked = done.seq_nr == found[-1].prev_seq_nr  # else something lacks between the two
        facts = StoreFacts(row.life, 0, place_of(done) if linked else None)
        return followed(found[::-1], last, line, done.seq_nr + 1, facts)

    def of_key(self, key: str, life: int, from_: int, to: int) -> Iterator[QueryRow]:
        """Yield the rows of a key's life under the tag, by number; none if the life is over."""
        while from_ <= to:
            rows = self._tags.numbered(key, life, from_, min(to, from_ + STEP - 1), STEP)
            self._check(rows)
            yield from map(TaggedRow.made, rows)
            if len(rows) < STEP:
                return
            from_ += STEP

    def last_number(self, key: str, life: int) -> int:
        """Return the greatest number of a key's life under the tag; 0 if it has none."""
        progress = progress_of(self.store, key, life, self._tag)
        return 0 if progress is None else progress.tag_seq_nr

    def _check(self, rows: Sequence[Any]) -> None:
        broken = first_broken(rows)
        if broken is not None:
            key, seq_nr = rows[broken][3], rows[broken][9]
            raise Corrupt(
                f"tag {shown(self._tag)!r}: the row of {shown(key)} {shown(seq_nr)} is not what was written",
                code="tag_row",
                hint="rebuild the view of the tag, or put the store back from a backup",
                tag=self._tag,
                key=key,
                seq_nr=seq_nr,
            )
