"""Recorded events: what a reader gets, also where something is damaged."""

from __future__ import annotations

import inspect
import pickle
import zlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import Corrupt, SchemaMismatch
from strandline.fold import EventsAppended
from strandline.record import Content
from strandline.rows import event_cells
from strandline.values.actions import Append, Place
from strandline.values.events import (
    DAMAGED_DIGEST,
    DAMAGED_UNDECODABLE,
    Event,
    EventCells,
    EventRow,
    Life,
    RecordedEvent,
    parts_of,
    with_prev,
)
from strandline.values.keys import Key
from strandline.values.payloads import BYTES, JSON
from tests.repeats import examples

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
PLACE = Place(4, 77, 1_700_000_000_000_000)


def cells(
    key: str = "order|42",
    life: int = 2,
    seq_nr: int = 9,
    prev: int = 3,
    type_: str = "Placed",
    tags: tuple[str, ...] = ("new", "élan"),
    headers: dict[str, str] | None = {"by": "eve"},  # noqa: B006 - never changed
    form: int = JSON,
    metadata: bytes | None = b'{"source":"shop"}',
    payload: bytes = b'{"price":1.0}',
) -> EventCells:
    """Those of a sound row."""
    action = Append(key, ((type_, tags),), ID.hex, False, "0" * 32, headers=headers)
    effect = EventsAppended(seq_nr, seq_nr, prev, life)
    (made,) = event_cells(action, PLACE, effect, [Content(form, payload, metadata)])
    return EventCells._make(made)


def recorded(**changed: Any) -> RecordedEvent:
    return RecordedEvent(Life(changed.get("key", "order|42"), changed.get("life", 2)), cells(**changed))


def damaged(form: int) -> RecordedEvent:
    return recorded(form=form, payload=b"", metadata=None)


@pytest.mark.req("J6")
def test_an_event_as_a_caller_gives_it() -> None:
    assert str(inspect.signature(Event)).startswith("(type: 'str', payload: 'Any' = None, tags: 'Any' = (), metadata: ")
    event = Event("Placed", {"price": 1.0})
    assert (event.type, event.payload, event.tags, event.metadata) == ("Placed", {"price": 1.0}, (), None)
    with pytest.raises(AttributeError):
        event.type = "Paid"  # type: ignore[misc]


@pytest.mark.req("J9")
def test_a_recorded_event_says_what_and_where() -> None:
    event = recorded()
    assert event.key == Key("order", "42")
    assert (event.slice, event.seq_nr, event.prev_seq_nr, event.life) == (601, 9, 3, 2)
    assert (event.partition, event.log_offset, event.timestamp) == (4, 77, 1_700_000_000_000_000)
    assert (event.headers, event.append_id, event.damaged) == ({"by": "eve"}, ID, False)
    assert (event.type, event.tags) == ("Placed", ("new", "élan"))
    assert (event.payload, event.metadata) == ({"price": 1.0}, {"source": "shop"})
    assert repr(event) == "<RecordedEvent order|42 9 Placed {'price': 1.0}>"
    assert event.offset is None
    assert event.time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    told = event.to_dict()
    assert orjson.loads(orjson.dumps(told)) == told
    assert (told["key"], told["payload"], told["time"]) == ("order|42", {"price": 1.0}, "2023-11-14T22:13:20+00:00")


@pytest.mark.req("J6", "J9")
def test_what_was_not_given_is_empty() -> None:
    event = recorded(tags=(), headers=None, metadata=None, form=BYTES, payload=b"")
    assert (event.tags, event.headers, event.metadata, event.payload) == ((), {}, None, b"")
    assert recorded(payload=b"null").payload is None
    assert (recorded(metadata=b"{}").metadata, recorded(headers={}).headers) == ({}, {})


def test_an_event_gives_no_part_of_itself_away() -> None:
    event = recorded()
    event.payload["price"] = 2.0
    event.headers["by"] = "adam"
    assert (event.payload, event.headers) == ({"price": 1.0}, {"by": "eve"})


def test_equal_is_what_reads_alike() -> None:
    event = recorded()
    assert event == recorded()
    assert hash(event) == hash(recorded())
    assert event != RecordedEvent(Life("order|42", 2), cells()._replace(digest=0)), "the one is damaged"
    for changed in ({"key": "order|4"}, {"life": 3}, {"seq_nr": 10}, {"prev": 4}, {"type_": "Paid"}, {"payload": b"1"}):
        assert event != recorded(**changed)
    assert event != cells()


def test_an_event_can_be_sent_to_another_process() -> None:
    for event in (recorded(), damaged(DAMAGED_DIGEST)):
        found = pickle.loads(pickle.dumps(event))
        assert found == event
        assert found.damaged == event.damaged


def test_an_event_can_be_put_behind_another_one() -> None:
    life = Life("order|42", 2)
    event = RecordedEvent(life, with_prev(life, cells(), 7))
    assert (event.prev_seq_nr, event.damaged, event.payload) == (7, False, {"price": 1.0})
    assert event == recorded(prev=7)


def test_a_row_repeats_what_the_body_says() -> None:
    row = EventRow.of(Life("order|42", 2), 4, cells())
    assert row[:9] == ("order|42", 2, 2, 9, 3, "order", 601, 4, 1_700_000_000_000_000)
    assert (row.cells, row.event) == (cells(), recorded())
    assert parts_of(row.body)[:8] == (1, 9, 3, JSON, 4, 77, 1_700_000_000_000_000, ID.bytes)


@pytest.mark.req("J76")
@pytest.mark.parametrize("changed", [{"timestamp": 5}, {"slice": 7}, {"entity_type": "orders"}, {"prev_seq_nr": 2}])
def test_a_row_whose_columns_say_something_else_reads_as_damaged(changed: dict[str, Any]) -> None:
    row = EventRow.of(Life("order|42", 2), 4, cells())
    assert row._replace(partition=9).event == recorded()  # where it is kept may change
    event = row._replace(**changed).event
    assert event.damaged
    with pytest.raises(Corrupt):
        _ = event.payload


@pytest.mark.req("RR12")
def test_a_body_of_an_unknown_version_is_not_damaged() -> None:
    seq_nr, prev, body, _ = cells()
    life = Life("order|42", 2)
    newer = b"\x02" + body[1:]
    event = RecordedEvent(life, (seq_nr, prev, newer, zlib.crc32(newer, life.seed)))
    for touch in ("payload", "metadata", "damaged", "type", "tags", "timestamp"):
        with pytest.raises(SchemaMismatch) as refused:
            getattr(event, touch)
        assert refused.value.name == "SchemaMismatch.version"
    assert RecordedEvent(life, (seq_nr, prev, newer, 1)).damaged  # nobody wrote that


# ---------------------------------------------------------------- damaged


def raises_when_touched(event: RecordedEvent, code: str) -> None:
    """J97: only payload and metadata raise, with all that an operator needs; the rest is there."""
    assert event.damaged
    for touch in (lambda: event.payload, lambda: event.metadata):
        with pytest.raises(Corrupt) as caught:
            touch()
        assert caught.value.code == code
        assert (caught.value.seq_nr, caught.value.partition) == (event.seq_nr, event.partition)
        assert caught.value.offset == event.log_offset
        assert str(event.key).startswith(str(caught.value.key))
        assert caught.value.hint
        assert not caught.value.retryable
    for name in ("life", "prev_seq_nr", "slice", "timestamp", "append_id", "type", "tags", "headers"):
        getattr(event, name)
    assert "damaged" in repr(event)


@pytest.mark.req("J97")
@pytest.mark.parametrize(("form", "code"), [(DAMAGED_UNDECODABLE, "undecodable"), (DAMAGED_DIGEST, "digest")])
def test_a_damaged_event_keeps_its_number_and_place(form: int, code: str) -> None:
    event = damaged(form)
    raises_when_touched(event, code)
    assert (event.seq_nr, event.prev_seq_nr, event.tags, event.headers) == (9, 3, ("new", "élan"), {"by": "eve"})
    assert (event.key, event.append_id, event.type) == (Key("order", "42"), ID, "Placed")


@pytest.mark.req("J76", "RA12")
def test_a_row_with_one_changed_bit_is_damaged() -> None:
    sound = cells()
    life = Life("order|42", 2)
    for at in range(len(sound.body) * 8):
        body = bytearray(sound.body)
        body[at // 8] ^= 1 << at % 8
        raises_when_touched(RecordedEvent(life, sound._replace(body=bytes(body))), "digest")
    for changed in (sound._replace(seq_nr=10), sound._replace(prev_seq_nr=4), sound._replace(digest=sound.digest ^ 1)):
        raises_when_touched(RecordedEvent(life, changed), "digest")
    for other in (Life("order|43", 2), Life("order|42", 1)):
        raises_when_touched(RecordedEvent(other, sound), "digest")


@pytest.mark.req("J76", "RA12")
def test_a_row_cut_anywhere_is_damaged() -> None:
    sound = cells()
    for end in range(len(sound.body)):
        raises_when_touched(RecordedEvent(Life("order|42", 2), sound._replace(body=sound.body[:end])), "digest")


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
OF_ANY_TYPE = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT | st.binary()
"""What a damaged file can give for a column."""
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "key": st.just("order|42") | st.from_regex(r"a\|[a-z]{1,9}", fullmatch=True),
        "life": st.integers(1, 2**63 - 1),
        "seq_nr": st.integers(1, 2**63 - 1),
        "type_": TEXT,
        "tags": st.lists(TEXT, max_size=3).map(tuple),
        "headers": st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
        "metadata": st.none() | st.dictionaries(TEXT, TEXT).map(orjson.dumps),
        "payload": st.lists(TEXT).map(orjson.dumps),
    },
)


@given(CHANGES)
def test_what_goes_in_comes_out(changed: dict[str, Any]) -> None:
    event = recorded(**changed)
    assert not event.damaged
    metadata = changed.get("metadata", b'{"source":"shop"}')
    assert (event.type, event.tags) == (changed.get("type_", "Placed"), changed.get("tags", ("new", "élan")))
    assert event.headers == (changed.get("headers", {"by": "eve"}) or {})
    assert event.metadata == (None if metadata is None else orjson.loads(metadata))
    assert event.payload == orjson.loads(changed.get("payload", b'{"price":1.0}'))


@pytest.mark.req("J76", "RA12")
@settings(max_examples=examples(300), deadline=None)
@given(CHANGES, st.sampled_from(EventCells._fields), st.data())
def test_a_row_with_any_other_value_in_a_column_is_damaged(
    changed: dict[str, Any], name: str, data: st.DataObject
) -> None:
    sound = cells(**changed)
    value = data.draw(OF_ANY_TYPE.filter(lambda value: value != getattr(sound, name)))
    life = Life(changed.get("key", "order|42"), changed.get("life", 2))
    raises_when_touched(RecordedEvent(life, sound._replace(**{name: value})), "digest")  # type: ignore[arg-type]


@pytest.mark.req("J97")
@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"payload": b'{"price":'}, "payload"), ({"payload": b""}, "payload"), ({"metadata": b"{"}, "metadata")],
)
def test_json_that_no_writer_of_ours_wrote_is_undecodable(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(Corrupt) as caught:
        getattr(recorded(**wrong), name)
    assert caught.value.code == "undecodable"


def test_an_operator_is_told_where_to_look() -> None:
    with pytest.raises(Corrupt) as caught:
        _ = damaged(DAMAGED_DIGEST).payload
    assert str(caught.value) == "event 9 of order|42 is damaged"
    assert "strandline pipeline resolve 4 77 skip" in caught.value.hint
    with pytest.raises(Corrupt) as caught:  # not a record of the log, so not in the quarantine either
        _ = RecordedEvent(Life("order|42", 2), cells()._replace(digest=1)).payload
    assert "resolve" not in caught.value.hint
    assert "backup" in caught.value.hint
    with pytest.raises(Corrupt) as caught:
        _ = recorded(key="order|" + "x" * 500, form=DAMAGED_DIGEST).payload
    assert len(str(caught.value)) < 150


def test_a_body_of_today_is_read_for_ever() -> None:
    """What stands in stores: a change of this needs a new version of the schema."""
    made = cells(tags=("a",), headers={"b": "c"}, metadata=b'{"d":1}', payload=b"2")
    assert made.body.hex() == (
        "01090000000000000003000000000000000104004d0000000000000000401e18240a060000112233445566778899aabbccddeeff"
        "4a0000004f000000580000005f000000506c616365645b2261225d7b2262223a2263227d7b2264223a317d32"
    )
    assert made.digest == 4275643091
