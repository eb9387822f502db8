"""Streams of Spark and copies for analysts: gone on from, whatever the number of partitions was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Event
from strandline.connect import Strandline
from strandline.pipeline.event_ranges import ranges_between
from strandline.pipeline.events import EventsStreamReader
from strandline.pipeline.selection import STREAM_OPTIONS, Selection
from strandline.testing import carry
from strandline.values.keys import SLICES, partition_of
from tests.backup.conftest import Journals
from tests.repartition.places import Place

COUNTS = st.integers(1, 64)


@given(before=COUNTS, then=COUNTS, now=COUNTS)
def test_every_slice_goes_on_where_it_was(before: int, then: int, now: int) -> None:
    after, to = list(range(before)), [1000 + number for number in range(then)]
    ranges = list(ranges_between(after, to, now))
    for slice_ in range(SLICES):
        mine = [
            each
            for each in ranges
            if each.partition == partition_of(slice_, now)
            and (each.slices is None or each.slices[0] <= slice_ <= each.slices[1])
        ]
        assert [(each.after, each.to) for each in mine] == [
            (partition_of(slice_, before), 1000 + partition_of(slice_, then))
        ]


def record(s: Strandline, number: int) -> None:
    for key in range(24):
        s.journal.append(f"order|{key}", [Event("Placed", {"n": number})])
    carry(s)


def rows(place: Place, start: dict[str, int], end: dict[str, int] | None = None) -> tuple[list[Any], dict[str, int]]:
    """A batch of a stream, by the reader's own methods, as Spark calls them."""
    reader = EventsStreamReader(Selection.of(dict(place.where), STREAM_OPTIONS))
    end = end or reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [row for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()]
    reader.stop()
    return sorted((row["key"], row["seq_nr"]) for row in found), end


@pytest.mark.req("J124", "J115", "J133")
def test_a_stream_goes_on(alike: Journals) -> None:
    """Each event once, also of a batch that was planned before the change and is read behind it."""
    place = Place(alike, 8)
    with place.connect() as s:
        record(s, 1)
    first = EventsStreamReader(Selection.of(dict(place.where), STREAM_OPTIONS))
    seen, offset = rows(place, first.initialOffset())
    assert seen == sorted((f"order|{key}", 1) for key in range(24))
    for number, partitions in enumerate((32, 5), 2):
        with place.connect() as s:
            record(s, 2 * number - 2)
        planned = EventsStreamReader(Selection.of(dict(place.where), STREAM_OPTIONS))
        end = planned.latestOffset(offset, planned.getDefaultReadLimit())
        planned.stop()
        place.repartition(partitions)
        with place.connect() as s:
            record(s, 2 * number - 1)
        seen, _ = rows(place, offset, end)
        assert seen == sorted((f"order|{key}", 2 * number - 2) for key in range(24))
        seen, offset = rows(place, end)
        assert seen == sorted((f"order|{key}", 2 * number - 1) for key in range(24))
        assert len(offset) == partitions
    assert rows(place, offset)[0] == []
