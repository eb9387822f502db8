"""The view of a tag in a store: the questions of a query by tag, as scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from strandline.fold import segment_of
from strandline.points import reached
from strandline.query.feed import PAGE_BYTES, FeedPage
from strandline.query.pointer_watch import PointerWatch
from strandline.query.tag_offset import TagView, place_of
from strandline.rows import Pointer
from strandline.store.api import Store
from strandline.store.scans import look_at
from strandline.store.tag_scans import (
    AT_ONCE,
    BUCKETS,
    BY_NUMBER,
    BY_TIME,
    IN_BUCKET,
    PLACES,
    is_partitioned,
    progress_of,
    tag_row_at,
)
from strandline.values.buckets import LENGTHS_US
from strandline.values.heads import EndedLife, Head
from strandline.values.keys import key_partition
from strandline.values.tag_rows import Place


class _BucketPage(NamedTuple):
    """Buckets that a page found and did not finish: the next page need not list them again."""

    behind: tuple[Place, int]
    """Where the page ended, and the time up to which rows were asked for."""
    buckets: Sequence[int]
    all: bool
    """Whether these are all buckets up to that time."""


class StoredTags:
    """A `TagSource` over a store."""

    def __init__(self, store: Store, watch: PointerWatch, tag: str, history_id: str) -> None:
        self.of = TagView(tag, history_id)
        self.bucket_us = LENGTHS_US[store.settings.bucket_size]
        self.now = store.now_us
        self._store, self._watch = store, watch
        self._partitioned = is_partitioned(store)
        self._listed: _BucketPage | None = None

    # ------------------------------------------------------------ rows in order

    def page(self, after: Place, to: int, limit: int, bytes_max: int | None = None) -> FeedPage:
        """Return rows after a place, up to a timestamp, in order of their places; at most about `bytes_max` of them."""
        bytes_max = PAGE_BYTES if bytes_max is None else bytes_max
        if self._partitioned:
            return self._page_by_buckets(after, to, limit, bytes_max)
        page = self._store.scan(BY_TIME, (self.of.tag,), after=after, to=to, limit=limit, bytes_max=bytes_max)
        return FeedPage(page.rows, page.more)

    def _page_by_buckets(self, after: Place, to: int, limit: int, bytes_max: int) -> FeedPage:
        """Read the page bucket by bucket, of those buckets that exist."""
        rows: list[Any] = []
        bucket, last = after[0] // self.bucket_us - 1, to // self.bucket_us
        listed = self._listed if self._listed is not None and self._listed.behind == (after, to) else None
        if listed is not None:
            reached("tag.buckets_kept_for_the_next_page")
        while True:
            if listed is None:
                following = self._buckets_after(bucket, last, limit)
                listed = _BucketPage((after, to), following, all=len(following) < limit)
            for index, bucket in enumerate(listed.buckets):
                page = self._store.scan(
                    IN_BUCKET, (self.of.tag, bucket), after=after, to=to, limit=limit - len(rows), bytes_max=bytes_max
                )
                rows += page.rows
                if page.more or len(rows) >= limit:
                    reached("tag.page_ends_within_its_buckets")
                    behind = (place_of(rows[-1]), to) if rows else (after, to)
                    self._listed = _BucketPage(behind, listed.buckets[index:], listed.all)
                    return FeedPage(rows, more=True)
            if listed.all:
                return FeedPage(rows, more=False)
            listed = None

    def _buckets_after(self, bucket: int, last: int, limit: int) -> list[int]:
        page = self._store.scan(BUCKETS, (self.of.tag,), after=(bucket,), to=last, limit=limit)
        return [found for (found,) in page.rows]

    # ------------------------------------------------------------ rows by key

    def numbered(self, key: str, life: int, first: int, last: int, limit: int) -> Sequence[Any]:
        """Return rows of a key and life with these numbers, in their order, at most so many."""
        if last < first:
            return ()
        if not self._partitioned:
            whose = (key, life, self.of.tag)
            return self._store.scan(BY_NUMBER, whose, after=(first - 1,), to=last, limit=limit).rows
        rows: list[Any] = []
        for seq_nr, timestamp, number in self._places(key, life):
            if number > last or len(rows) == limit:
                break
            if number >= first and (row := tag_row_at(self._store, self.of.tag, (timestamp, key, seq_nr))) is not None:
                rows.append(row)
        return rows

    def _places(self, key: str, life: int) -> Any:
        """Yield where the rows of a key and life are, by their numbers."""
        _, state = look_at(self._store, key, key_partition(key, self._store.settings.partitions))
        if not isinstance(state, Head) or state.life != life:
            return
        progress, size = progress_of(self._store, key, life, self.of.tag), state.segment_size
        if progress is None:
            return
        for segment in range(segment_of(progress.first_seq_nr, size), segment_of(progress.seq_nr, size) + 1):
            after, more = None, True
            while more:
                page = self._store.scan(PLACES, (key, life, segment, self.of.tag), after=after, limit=AT_ONCE)
                yield from page.rows
                more = page.more and bool(page.rows)
                after = page.rows[-1][:1] if page.rows else None

    def there(self, places: Sequence[Place]) -> set[Place]:
        """Return those of these places that have a row."""
        return {place for place in places if tag_row_at(self._store, self.of.tag, place) is not None}

    def ended(self, key: str, life: int) -> bool:
        """Return whether a life of a key is over."""
        _, state = look_at(self._store, key, key_partition(key, self._store.settings.partitions))
        return state is not None and state.life >= life + (not isinstance(state, EndedLife))

    # ------------------------------------------------------------ the bound

    def strandline(self) -> int:
        """Return the time up to which everything is in the store."""
        return _least(self._watch.now())

    def strandline_within(self, age_s: float) -> int:
        """Return the strandline as it was at most so long ago, for a query that waits until it moves."""
        return _least(self._watch.awaited(age_s))


def _least(pointers: Sequence[Pointer]) -> int:
    return min(pointer.timestamp for pointer in pointers)
