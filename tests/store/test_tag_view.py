"""Rows of tag views: numbers, links, places and progress follow from the log alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.errors import InvalidInput
from strandline.fold import LifePurged
from strandline.rows import KeyRun, event_rows
from strandline.store.tag_numbers import number_events
from strandline.store.tag_view import TAG_BUCKET, TAG_PLACE, TAG_PROGRESS, TAG_VIEW, tag_rows, tags_view
from strandline.values.actions import Append, Place
from strandline.values.buckets import LENGTHS_US, bucket_start, bucket_text
from strandline.values.events import EventRow, Life, RecordedEvent
from strandline.values.heads import EndedLife
from strandline.values.tag_rows import TagRow, first_broken

HOUR = LENGTHS_US["hour"]
T0 = 1_800_000_000_000_000 // HOUR * HOUR


def events_of(tags: Sequence[Sequence[str]], *, key: str = "k|A", life: int = 1, first: int = 1) -> list[EventRow]:
    """One event for each set of tags, a second apart."""
    from strandline.fold import EventsAppended
    from strandline.record import Content

    rows = []
    for at, labels in enumerate(tags):
        seq_nr = first + at
        action = Append(key, (("T", tuple(labels)),), "0" * 32, False, "0" * 32)
        effect = EventsAppended(seq_nr, seq_nr, seq_nr - 1, life)
        place = Place(0, at, T0 + at * 1_000_000)
        rows += event_rows(action, place, effect, 10, [Content(1, b"%d" % seq_nr, None)])
    return rows


def naive(events: Sequence[EventRow], tags: Sequence[Sequence[str]]) -> list[tuple[object, ...]]:
    """Counted as the specification says it, with nothing of the product: tag, seq_nr, number, link."""
    counted: dict[tuple[str, int, str], list[EventRow]] = {}
    found = []
    for event, labels in zip(events, tags, strict=True):
        for tag in dict.fromkeys(labels):
            before = counted.setdefault((event.key, event.life, tag), [])
            link = (before[-1].timestamp, before[-1].seq_nr) if before else (0, 0)
            before.append(event)
            found.append((tag, event.key, event.life, event.seq_nr, len(before), *link))
    return sorted(found, key=str)


def said(rows: Sequence[TagRow]) -> list[tuple[object, ...]]:
    return sorted(
        [(r.tag, r.key, r.life, r.seq_nr, r.tag_seq_nr, r.previous_timestamp, r.previous_seq_nr) for r in rows], key=str
    )


@pytest.mark.req("T1", "T15", "RJ10")
def test_numbers() -> None:
    """A appends tagged, untagged, tagged: numbers 1 and 2 with seq_nrs 1 and 3; tags count for themselves."""
    tags = [("x",), (), ("x", "y"), ("y",)]
    view, _, progress = number_events(events_of(tags), tags, (), HOUR)
    assert [(row.tag, row.seq_nr, row.tag_seq_nr) for row in view] == [
        ("x", 1, 1),
        ("x", 3, 2),
        ("y", 3, 1),
        ("y", 4, 2),
    ]
    assert [(row.tag, row.first_seq_nr, row.seq_nr, row.tag_seq_nr) for row in progress] == [
        ("x", 1, 3, 2),
        ("y", 3, 4, 2),
    ]


@pytest.mark.req("T8", "T9")
def test_a_row_is_whole_in_itself_and_linked() -> None:
    tags = [("x",), ("x",)]
    events = events_of(tags)
    (one, two), _, _ = number_events(events, tags, (), HOUR)
    assert (one.previous_timestamp, one.previous_seq_nr, one.link) == (0, 0, None)
    assert two.link == one.place
    assert RecordedEvent(Life(one.key, one.life), one.cells) == events[0].event
    assert first_broken([one, two]) is None
    for name in (
        "tag",
        "bucket",
        "timestamp",
        "key",
        "life",
        "tag_seq_nr",
        "previous_timestamp",
        "previous_seq_nr",
        "seq_nr",
    ):
        value = getattr(two, name)
        changed = two._replace(**{name: value + (1 if isinstance(value, int) else "x")})
        assert first_broken([one, changed]) == 1, name
        nothing: Any = {name: None}
        assert first_broken([one, two._replace(**nothing)]) == 1, name
    assert first_broken([one, two._replace(body=b"", digest=0)]) is None


@pytest.mark.req("T15", "T17", "T32", "T34", "T35", "RJ10")
@pytest.mark.parametrize("seed", range(20))
def test_cuts(seed: int) -> None:
    """One log, cut anywhere, with parts repeated: the same rows as an independent count over the whole."""
    dice = random.Random(seed)
    tags = [tuple(dice.sample("xyz", dice.randint(0, 3))) for _ in range(60)]
    events = events_of(tags, first=dice.choice([1, 10**12]))
    rows: dict[object, TagRow] = {}
    places: dict[object, Any] = {}
    kept: dict[object, Any] = {}
    at = 0
    while at < len(events):
        end = min(len(events), at + dice.randint(1, 20))
        start = max(0, at - dice.randint(0, 15))  # the progress of these was written before the crash
        view, placed, progress = number_events(events[start:end], tags[start:end], kept.values(), HOUR)
        again = number_events(events[start:end], tags[start:end], kept.values(), HOUR)  # or it was lost with the crash
        assert again == (view, placed, progress)
        for row in view:
            assert rows.setdefault((row.tag, row.place), row) == row
        places.update({TAG_PLACE.place_of(row): row for row in placed})
        kept.update({TAG_PROGRESS.place_of(row): row for row in progress})
        at = end
    assert said(list(rows.values())) == naive(events, tags)
    assert {(row.tag, row.seq_nr, row.tag_seq_nr, row.timestamp) for row in places.values()} == {
        (row.tag, row.seq_nr, row.tag_seq_nr, row.timestamp) for row in rows.values()
    }
    assert number_events(events, tags, kept.values(), HOUR) == ([], [], []), "nothing is left to do"


@pytest.mark.req("T17")
def test_the_order_of_tags_and_repeats_of_one_change_nothing() -> None:
    one = number_events(events_of([("x", "y")] * 3), [("x", "y")] * 3, (), HOUR)[0]
    other = number_events(events_of([("x", "y")] * 3), [("y", "x", "y")] * 3, (), HOUR)[0]
    assert said(one) == said(other)


@pytest.mark.req("T16")
def test_a_new_life_starts_again_at_one() -> None:
    tags = [("x",)] * 3
    _, _, progress = number_events(events_of(tags), tags, (), HOUR)
    view, _, _ = number_events(events_of(tags, life=2), tags, progress, HOUR)
    assert [(row.life, row.tag_seq_nr) for row in view] == [(2, 1), (2, 2), (2, 3)]


@pytest.mark.req("T39", "T40")
def test_what_a_cut_that_ends_in_a_purge_leaves() -> None:
    """The rows of events that a purge of the same batch takes are not written; their places and progress are."""
    tags = [("x",)] * 2
    cut = KeyRun("k|A", EndedLife(1, 0, 5), events=events_of(tags), tags=tags, ended_by=LifePurged(1, 2))
    made = tag_rows(cut, HOUR)
    assert set(made) == {TAG_PLACE, TAG_PROGRESS}
    cut.ended_by = None
    made = tag_rows(cut, HOUR)
    assert [row[5] for row in made[TAG_VIEW]] == [1, 2]
    assert made[TAG_BUCKET] == [("x", T0 // HOUR)]
    assert tags_view("hour").rows(KeyRun("k|A", None, events=events_of([(), ()]))) == {}


@pytest.mark.req("T11")
@pytest.mark.parametrize("size", ["minute", "hour", "day"])
def test_edge(size: str) -> None:
    """A bucket's start is in it, its end is not; it is the same in every zone."""
    length = LENGTHS_US[size]
    start = T0 // length * length
    assert (start - 1) // length + 1 == start // length == (start + length - 1) // length
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=start)
    form = {"minute": "%Y-%m-%dT%H:%M", "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d"}[size]
    assert bucket_text(start // length, size) == moment.strftime(form)
    assert bucket_start(bucket_text(start // length, size), size) == start


@pytest.mark.req("T14")
def test_a_set_first_bucket_is_cut_down_to_its_bucket() -> None:
    assert bucket_start("2026-11-15T07:30", "hour") == bucket_start("2026-11-15T07", "hour")
    assert bucket_start("2026-11-15T07:30", "day") == bucket_start("2026-11-15", "day")
    for text, code in (
        ("yesterday", "time_format"), ("2026-13-01", "time_format"), ("2026-11-15T25", "time_format"),
        (5, "time_format"), ("2026-11-15T07:30:01", "time_format"), ("1969-12-31", "time_range"),
        ("10000-01-01", "time_format"), ("٢٠٢٦-11-15", "time_format"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            bucket_start(text, "hour")
        assert caught.value.code == code, text
