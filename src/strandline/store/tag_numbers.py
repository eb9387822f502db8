"""How an event gets its number under a tag. Pure.

Each key and life counts its events under each tag from 1. The progress says how far that count is:

    no progress for this life and tag        number 1, no link
    seq_nr at or below the progress          nothing to do: the event has its row
    seq_nr above the progress                the next number, and a link to the row before

So the same log gives the same rows, however it is cut into batches, and a batch that is repeated gives its rows the
numbers that they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from strandline.points import reached
from strandline.store.views import Row
from strandline.values.events import EventRow
from strandline.values.tag_rows import TagPlace, TagProgress, TagRow, row_digest
from strandline.values.tuples import new_tuple


def number_events(
    events: Iterable[EventRow], tags: Iterable[Sequence[str]], progress: Iterable[Row], bucket_us: int
) -> tuple[list[TagRow], list[TagPlace], list[TagProgress]]:
    """Return tag rows, places and progress for events of one key, in their order, each with its tags."""
    last: dict[tuple[int, str], Sequence[Any]] = {(row[1], row[2]): row for row in progress}
    view: list[TagRow] = []
    places: list[TagPlace] = []
    moved: dict[tuple[int, str], TagProgress] = {}
    for event, labels in zip(events, tags, strict=True):
        if not labels:
            continue
        key, life, segment, seq_nr, prev_seq_nr, _, _, _, timestamp, body, digest = event
        bucket = timestamp // bucket_us
        for tag in labels:
            before = last.get((life, tag))
            if before is None:
                first, number, linked_at, linked_nr = seq_nr, 1, 0, 0
            else:
                _, _, _, first, linked_nr, number, linked_at = before
                if seq_nr <= linked_nr:
                    reached("tag.numbered_before")
                    continue
                number += 1
            sealed = row_digest(tag, bucket, timestamp, key, life, number, linked_at, linked_nr, seq_nr)
            row = (
                tag, bucket, timestamp, key, life, number, linked_at, linked_nr, sealed, seq_nr, prev_seq_nr, body,
                digest,
            )  # fmt: skip
            view.append(new_tuple(TagRow, row))
            places.append(new_tuple(TagPlace, (key, life, segment, tag, seq_nr, timestamp, number)))
            progressed = new_tuple(TagProgress, (key, life, tag, first, seq_nr, number, timestamp))
            last[life, tag] = moved[life, tag] = progressed
    return view, places, list(moved.values())
