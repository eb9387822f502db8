"""Rows: what an accepted append puts into the journal, and how a head is kept."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.fold import EventsAppended, segment_of
from strandline.record import BadValue, Content, content_digest, encode_value, read_contents
from strandline.rows import DAMAGED_FORMS, Pointer, damaged_contents, event_cells, event_rows
from strandline.store.heads import head_in, head_row
from strandline.values.actions import Append, Place
from strandline.values.events import DAMAGED_DIGEST, DAMAGED_UNDECODABLE, EventRow, Life, bodies, parts_of
from strandline.values.heads import SEQ_NR_MAX, Head, Remembered
from strandline.values.keys import Key
from strandline.values.payloads import BYTES, JSON

PLACE = Place(partition=4, offset=77, timestamp=1_700_000_000_000_000)
CONTENTS = [
    Content(JSON, b'{"price":1.0}', None),
    Content(BYTES, b"\0\xff", b'{"by":"eve"}'),
    Content(JSON, b"1", b"{}"),
]
ACTION = Append(
    "order|42",
    (("Placed", ("new", "élan")), ("Packed", ()), ("Paid", ("new",))),
    "0123456789abcdef" * 2,
    True,
    "fedcba9876543210" * 2,
    headers={"user": "eve", "b": "é"},
)


def rows(first: int = 9, prev: int = 3, size: int = 4, **changed: Any) -> list[EventRow]:
    action = ACTION._replace(**changed)
    return event_rows(action, PLACE, EventsAppended(first, first + 2, prev, life=2), size, CONTENTS)


@pytest.mark.req("J8")
def test_the_events_of_one_append_share_their_place_and_follow_each_other() -> None:
    made = rows()
    assert {parts_of(row.body)[4:7] for row in made} == {(4, 77, 1_700_000_000_000_000)}
    assert {(row.partition, row.timestamp) for row in made} == {(4, 1_700_000_000_000_000)}
    assert {(row.key, row.entity_type, row.slice, row.life) for row in made} == {("order|42", "order", 601, 2)}
    assert [row.seq_nr for row in made] == [9, 10, 11]


@pytest.mark.req("J10")
def test_only_the_first_of_an_append_can_have_a_gap_before_it() -> None:
    assert [row.prev_seq_nr for row in rows(first=9, prev=3)] == [3, 9, 10]
    assert [row.prev_seq_nr for row in rows(first=1, prev=0)] == [0, 1, 2]


@pytest.mark.req("J5", "J72")
def test_a_row_is_in_the_segment_of_its_own_number() -> None:
    assert [row.segment for row in rows(first=4, size=5)] == [0, 0, 1]
    assert [row.segment for row in rows(first=1, size=2)] == [0, 0, 1]


@pytest.mark.req("J9")
def test_rows_read_as_what_was_appended() -> None:
    events = [row.event for row in rows()]
    assert not any(event.damaged for event in events)
    assert [event.payload for event in events] == [{"price": 1.0}, b"\0\xff", 1]
    assert [event.metadata for event in events] == [None, {"by": "eve"}, {}]
    assert [event.type for event in events] == ["Placed", "Packed", "Paid"]
    assert [event.tags for event in events] == [("new", "élan"), (), ("new",)]
    assert [event.headers for event in events] == [{"user": "eve", "b": "é"}] * 3
    assert {event.append_id.hex for event in events} == {ACTION.append_id}
    assert {event.key for event in events} == {Key("order", "42")}


def test_what_was_not_given_takes_no_room() -> None:
    row = event_rows(
        Append("user|a|b", (("T", ()),), "0" * 32, False, "0" * 32), PLACE, EventsAppended(1, 1, 0, 1), 10, CONTENTS[:1]
    )[0]
    assert (row.event.tags, row.event.headers, row.event.metadata, row.entity_type) == ((), {}, None, "user")
    assert row.body.endswith(b"T" + CONTENTS[0].payload)


def test_a_reader_gets_the_same_as_a_store() -> None:
    assert event_cells(ACTION, PLACE, EventsAppended(9, 11, 3, life=2), CONTENTS) == [row.cells for row in rows()]


@pytest.mark.parametrize("headers", [None, {}, {"user": "eve"}])
@pytest.mark.parametrize("content", [*CONTENTS, Content(BYTES, b"", None), Content(DAMAGED_DIGEST, b"", None)])
def test_a_single_event_is_packed_as_one_of_many(content: Content, headers: dict[str, str] | None) -> None:
    action = ACTION._replace(events=ACTION.events[:1], headers=headers)
    effect = EventsAppended(9, 9, 3, life=2)
    life = Life("order|42", 2)
    told = [(action.events[0], content)]
    (cells,) = bodies(9, 3, PLACE, bytes.fromhex(action.append_id), headers, told, life.seed)
    assert event_cells(action, PLACE, effect, [content]) == [cells]
    assert event_rows(action, PLACE, effect, 4, [content]) == [EventRow.of(life, 4, cells)]


@pytest.mark.req("J94")
@pytest.mark.parametrize(
    ("spoil", "reason", "form"),
    [
        (lambda value: value[:-1], "undecodable", DAMAGED_UNDECODABLE),
        (lambda value: value[:-1] + b"?", "digest", DAMAGED_DIGEST),
    ],
)
def test_damaged_events_take_numbers_rows_and_places_like_any_other(spoil: Any, reason: str, form: int) -> None:
    value = encode_value(CONTENTS)
    action = ACTION._replace(digest=content_digest(ACTION.events, ACTION.headers, value))
    with pytest.raises(BadValue) as caught:
        read_contents(action, spoil(value))
    assert caught.value.reason == reason
    contents = damaged_contents(3, DAMAGED_FORMS[reason])
    made = event_rows(action, PLACE, EventsAppended(9, 11, 3, life=2), 4, contents)
    assert [row[:9] for row in made] == [row[:9] for row in rows()]
    assert [parts_of(row.body).form for row in made] == [form] * 3
    assert [row.event.type for row in made] == ["Placed", "Packed", "Paid"]
    assert all(row.event.damaged for row in made)


def test_contents_of_another_count_are_no_rows() -> None:
    with pytest.raises(ValueError, match="zip"):
        event_rows(ACTION, PLACE, EventsAppended(9, 11, 3, life=2), 4, CONTENTS[:2])


# ---------------------------------------------------------------- heads

NUMBERS = st.integers(0, SEQ_NR_MAX)
HEX = st.binary(min_size=16, max_size=16).map(bytes.hex)
REMEMBERED = st.builds(Remembered, HEX, HEX, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
HEADS = st.builds(
    Head,
    **dict.fromkeys(Head._fields, NUMBERS)
    | {
        "expire_after_us": st.none() | NUMBERS,
        "expire_at": st.none() | NUMBERS,
        "given": st.lists(REMEMBERED, max_size=32).map(tuple),
        "generated": st.none() | REMEMBERED,
    },
)


@given(HEADS)
def test_a_head_comes_out_of_its_columns_as_it_went_in(head: Head) -> None:
    columns = head_row("order|42", head)
    assert columns[:3] == ("order", 601, "order|42")
    found = head_in(list(columns), head.life, head.archive_to)
    assert found == head
    assert head_in(columns, head.life + 1, 5).archive_to == 0  # of another life
    assert isinstance(found, Head)
    assert all(isinstance(answer, Remembered) for answer in found.given)
    assert all(column is None or isinstance(column, (int, str)) for column in columns)  # what SQL tables can keep
    orjson.loads(columns[-1])


@pytest.mark.req("J24", "J72")
@given(st.integers(1, SEQ_NR_MAX), st.integers(2, 1_000_000))
def test_segments_are_runs_of_their_size(seq_nr: int, size: int) -> None:
    segment = segment_of(seq_nr, size)
    assert segment * size < seq_nr <= (segment + 1) * size


def test_a_pointer_starts_before_the_first_offset() -> None:
    assert Pointer(3) == Pointer(partition=3, offset=-1, timestamp=0, last_action_at=0, fence=0, revision=0)
