"""The views of tags: their tables, the rows that a run of a key's events adds to them, and the rows that a purge takes.

`tag_numbers` gives the rows their numbers. A delete leaves tag rows alone. A purge removes all rows of the life: its
progress names the segments, the places in these name the rows. Where events and their purge are in one cut, the rows
are not written, but their places and progress are: a batch that was cut off earlier may have left the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from strandline.fold import LifePurged, segment_of
from strandline.rows import KeyRun
from strandline.store.tables import Table, columns_of
from strandline.store.tag_numbers import number_events
from strandline.store.views import Row, Rows, Span, View
from strandline.values.actions import EventHeader
from strandline.values.buckets import LENGTHS_US
from strandline.values.heads import Head
from strandline.values.tag_rows import TagBucket, TagPlace, TagProgress, TagRow
from strandline.values.tuples import new_tuple

TAG_VIEW: Final = Table(
    "tag_view", TagRow._make,
    columns_of(
        "tag text, bucket bigint, timestamp bigint, key text, life bigint, tag_seq_nr bigint, "
        "previous_timestamp bigint, previous_seq_nr bigint, row_digest bigint, seq_nr bigint, prev_seq_nr bigint, "
        "body blob, digest bigint"
    ),
    place=("tag", "bucket", "timestamp", "key", "seq_nr"), partitioned_by=2, taken_by="purge", phase="views",
    version=None, conflict="tag_row",
)  # fmt: skip
TAG_PROGRESS: Final = Table(
    "tag_progress", TagProgress._make,
    columns_of(
        "key text, life bigint, tag text, first_seq_nr bigint, seq_nr bigint, tag_seq_nr bigint, timestamp bigint"
    ),
    place=("key", "life", "tag"), partitioned_by=2, taken_by="purge", phase="progress", looked_up=True,
)  # fmt: skip
TAG_PLACE: Final = Table(
    "tag_place", TagPlace._make,
    columns_of(
        "key text, life bigint, segment bigint, tag text, seq_nr bigint, timestamp bigint, tag_seq_nr bigint"
    ),
    place=("key", "life", "segment", "tag", "seq_nr"), partitioned_by=3, taken_by="purge", phase="events",
    version=None, partitioned_only=True,
)  # fmt: skip
TAG_BUCKET: Final = Table(
    "tag_bucket", TagBucket._make, columns_of("tag text, bucket bigint"), place=("tag", "bucket"), partitioned_by=1,
    taken_by="never", phase="events", version=None, time=None, partitioned_only=True,
)  # fmt: skip


@cache
def tags_view(bucket_size: str) -> View:
    """Return the views of all tags, in buckets of this size."""
    length = LENGTHS_US[bucket_size]
    tables = (TAG_VIEW, TAG_PROGRESS, TAG_PLACE, TAG_BUCKET)

    def rows(cut: KeyRun) -> Rows:
        return tag_rows(cut, length) if any(cut.tags) else {}

    return View("tags", tables, rows, asks=_places, gone=_gone(length), follows=_is_tagged)


def _is_tagged(event: EventHeader) -> bool:
    return bool(event[1])


def tag_rows(cut: KeyRun, bucket_us: int) -> Rows:
    """Return the rows of a cut, numbered on from what was looked up for its key."""
    purged = isinstance(cut.ended_by, LifePurged)
    view, places, moved = number_events(cut.events, cut.tags, cut.view_rows.get(TAG_PROGRESS, ()), bucket_us)
    made: Rows = {TAG_PLACE: [*places], TAG_PROGRESS: [*moved]}
    if not purged:
        made[TAG_VIEW] = [*view]
        made[TAG_BUCKET] = [*dict.fromkeys([new_tuple(TagBucket, row[:2]) for row in view])]
    return made


# ---------------------------------------------------------------- what a purge takes


def _progress(cut: KeyRun) -> list[TagProgress]:
    """Return the progress of the ended life in each view: what was looked up, and what the cut itself adds."""
    life = cut.ended_by.life if cut.ended_by is not None else 0
    rows = [*cut.view_rows.get(TAG_PROGRESS, ()), *cut.rows.get(TAG_PROGRESS, ())]
    return [TagProgress._make(row) for row in rows if row[1] == life]


def _places(cut: KeyRun) -> Iterator[Span]:
    found = _progress(cut)
    if not found or not isinstance(cut.ended_by, LifePurged) or not isinstance(cut.before, Head):
        return
    size = cut.before.segment_size
    first = segment_of(min(row.first_seq_nr for row in found), size)
    last = segment_of(max(row.seq_nr for row in found), size)
    for segment in range(first, last + 1):
        yield Span(TAG_PLACE, (cut.key, cut.ended_by.life, segment))


def _gone(bucket_us: int) -> Any:
    def gone(cut: KeyRun, found: Mapping[Span, Sequence[Row]]) -> Iterator[Span]:
        if not isinstance(cut.ended_by, LifePurged):
            return
        for span in _places(cut):
            for key, _, _, tag, seq_nr, timestamp, *_ in found[span]:
                place = timestamp, key, seq_nr
                yield Span(TAG_VIEW, (tag, timestamp // bucket_us), place, place)
            yield span
        if _progress(cut):
            yield Span(TAG_PROGRESS, (cut.key, cut.ended_by.life))

    return gone
