"""Scans of tag views: rows by their places, by bucket, by number; and where the rows of a key are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from strandline.store.api import Store
from strandline.store.scans import Scan
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_PROGRESS, TAG_VIEW
from strandline.values.buckets import LENGTHS_US
from strandline.values.tag_rows import Place, TagProgress, TagRow

AT_ONCE: Final = 1000
PAGE_BYTES: Final = 8 * 2**20
_ROW: Final = tuple(column.name for column in TAG_VIEW.columns)
_PLACE: Final = ("timestamp", "key", "seq_nr")
BY_TIME: Final = Scan("tag_by_time", TAG_VIEW, ("tag",), _PLACE, _ROW, large_apart=True)
"""Rows of a tag by their places. Only stores that need no partition key have this scan."""
BY_NUMBER: Final = Scan("tag_by_number", TAG_VIEW, ("key", "life", "tag"), ("tag_seq_nr",), _ROW)
"""Rows of a key by their numbers. Only stores that need no partition key have this scan."""
OF_KEY: Final = Scan("tag_of_key", TAG_VIEW, ("key",), ("life", "tag", "tag_seq_nr"), _ROW, unbounded=True)
"""All rows of a key. Only stores that need no partition key have this scan."""
IN_BUCKET: Final = Scan("tag_in_bucket", TAG_VIEW, ("tag", "bucket"), _PLACE, _ROW)
BUCKETS: Final = Scan("tag_buckets", TAG_BUCKET, ("tag",), ("bucket",), ("bucket",))
TAGS: Final = Scan("tags", TAG_VIEW, (), ("tag",), ("tag",), distinct=True, unbounded=True)
"""The tags that have rows. Only stores that need no partition key have this scan."""
PLACES: Final = Scan(
    "tag_places", TAG_PLACE, ("key", "life", "segment", "tag"), ("seq_nr",), ("seq_nr", "timestamp", "tag_seq_nr")
)
PROGRESS: Final = Scan("tag_progress_of", TAG_PROGRESS, ("key", "life"), ("tag",), unbounded=True)


def is_partitioned(store: Store) -> bool:
    """Return whether a store finds a tag's rows by bucket, and a key's rows by its places."""
    return any(TAG_BUCKET in view.tables for view in store.views)


def progress_of(store: Store, key: str, life: int, tag: str) -> TagProgress | None:
    """Return the progress of a key and life in the view of a tag. A life may have any number of tags."""
    after, more = tag[:-1], True
    while more and after < tag:
        page = store.scan(PROGRESS, (key, life), after=(after,), limit=AT_ONCE)
        for row in page.rows:
            if row[2] == tag:
                return TagProgress._make(row[:7])
        more, after = page.more and bool(page.rows), page.rows[-1][2] if page.rows else after
    return None


def rows_of_key(store: Store, key: str) -> Iterator[list[TagRow]]:
    """Yield pages of all rows of a key; of stores that are not partitioned."""
    after, more = None, True
    while more:
        page = store.scan(OF_KEY, (key,), after=after, limit=AT_ONCE, bytes_max=PAGE_BYTES)
        if page.rows:
            yield list(map(TagRow._make, page.rows))
            after = OF_KEY.place_of(page.rows[-1])
        more = page.more and bool(page.rows)


def tag_row_at(store: Store, tag: str, place: Place) -> TagRow | None:
    """Return the row of a tag at a place."""
    timestamp, key, seq_nr = place
    before = (timestamp, key, seq_nr - 1)
    if is_partitioned(store):
        whose: Sequence[Any] = (tag, timestamp // LENGTHS_US[store.settings.bucket_size])
        rows = store.scan(IN_BUCKET, whose, after=before, to=timestamp, limit=1).rows
    else:
        rows = store.scan(BY_TIME, (tag,), after=before, to=timestamp, limit=1).rows
    return next((TagRow._make(row) for row in rows if (row[2], row[3], row[9]) == place), None)
