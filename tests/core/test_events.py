"""Recorded events: what a reader gets, also where something is damaged."""

from __future__ import annotations

import inspect
import pickle
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import Corrupt
from strandline.values.events import (
    DAMAGED_DIGEST,
    DAMAGED_UNDECODABLE,
    Event,
    EventRow,
    RecordedEvent,
    row_digest,
)
from strandline.values.keys import Key
from strandline.values.payloads import BYTES, JSON

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def row(**changed: Any) -> EventRow:
    """A sound row."""
    usual = EventRow(
        key="order|42",
        life=2,
        segment=0,
        seq_nr=9,
        prev_seq_nr=3,
        entity_type="order",
        slice=601,
        partition=4,
        log_offset=77,
        timestamp=1_700_000_000_000_000,
        append_id=ID.bytes,
        type="Placed",
        tags='["new","élan"]',
        headers='{"by":"eve"}',
        form=JSON,
        metadata=b'{"source":"shop"}',
        payload=b'{"price":1.0}',
        digest=0,
    )._replace(**changed)
    return usual._replace(digest=row_digest(usual))


@pytest.mark.req("J6")
def test_an_event_as_a_caller_gives_it() -> None:
    assert str(inspect.signature(Event)).startswith("(type: 'str', payload: 'Any', tags: 'Any' = (), metadata: ")
    event = Event("Placed", {"price": 1.0})
    assert (event.type, event.payload, event.tags, event.metadata) == ("Placed", {"price": 1.0}, (), None)
    with pytest.raises(AttributeError):
        event.type = "Paid"  # type: ignore[misc]


@pytest.mark.req("J9")
def test_a_recorded_event_says_what_and_where() -> None:
    event = RecordedEvent(row())
    assert event.key == Key("order", "42")
    assert (event.slice, event.seq_nr, event.prev_seq_nr, event.life) == (601, 9, 3, 2)
    assert (event.partition, event.log_offset, event.timestamp) == (4, 77, 1_700_000_000_000_000)
    assert (event.headers, event.append_id, event.damaged) == ({"by": "eve"}, ID, False)
    assert (event.type, event.tags) == ("Placed", ("new", "élan"))
    assert (event.payload, event.metadata) == ({"price": 1.0}, {"source": "shop"})
    assert repr(event) == "<RecordedEvent order|42 9 Placed>"


@pytest.mark.req("J6", "J9")
def test_what_was_not_given_is_empty() -> None:
    event = RecordedEvent(row(tags=None, headers=None, metadata=None, form=BYTES, payload=b""))
    assert (event.tags, event.headers, event.metadata, event.payload) == ((), {}, None, b"")
    assert RecordedEvent(row(payload=b"null")).payload is None


def test_an_event_gives_no_part_of_itself_away() -> None:
    event = RecordedEvent(row())
    event.payload["price"] = 2.0
    event.headers["by"] = "adam"
    assert (event.payload, event.headers) == ({"price": 1.0}, {"by": "eve"})


def test_equal_is_what_reads_alike() -> None:
    event = RecordedEvent(row())
    assert event == RecordedEvent(row())
    assert hash(event) == hash(RecordedEvent(row()))
    verified = RecordedEvent(row()._replace(digest=0), sound=True)  # read from the log
    assert (verified, hash(verified)) == (event, hash(event))
    assert event != RecordedEvent(row()._replace(digest=0))
    for name in EventRow._fields[:-1]:
        assert event != RecordedEvent(changed(row(), name, other(row(), name)))
    assert event != row()


def test_an_event_can_be_sent_to_another_process() -> None:
    for event in (RecordedEvent(row()), RecordedEvent(row(form=DAMAGED_DIGEST, payload=None, metadata=None))):
        found = pickle.loads(pickle.dumps(event))
        assert found == event
        assert found.damaged == event.damaged


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
@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize(("form", "code"), [(DAMAGED_UNDECODABLE, "undecodable"), (DAMAGED_DIGEST, "digest")])
def test_a_damaged_event_keeps_its_number_and_place(form: int, code: str, sound: bool) -> None:
    event = RecordedEvent(row(form=form, payload=None, metadata=None), sound)
    raises_when_touched(event, code)
    assert (event.seq_nr, event.prev_seq_nr, event.tags, event.headers) == (9, 3, ("new", "élan"), {"by": "eve"})
    assert (event.key, event.append_id, event.type) == (Key("order", "42"), ID, "Placed")


def changed(before: EventRow, name: str, value: Any) -> EventRow:
    return before._replace(**{name: value})


def other(before: EventRow, name: str) -> Any:
    value = getattr(before, name)
    return value + 1 if isinstance(value, int) else value[:-1]


@pytest.mark.req("J76", "RA12")
@pytest.mark.parametrize("name", EventRow._fields)
def test_a_row_with_one_changed_field_is_damaged(name: str) -> None:
    raises_when_touched(RecordedEvent(changed(row(), name, other(row(), name))), code_of(name, other(row(), name)))


def code_of(name: str, value: object) -> str:
    return "undecodable" if (name, value) == ("form", DAMAGED_UNDECODABLE) else "digest"


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBER = st.integers(-(2**63), 2**63 - 1)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "key": TEXT,
    "life": NUMBER,
    "segment": NUMBER,
    "seq_nr": NUMBER,
    "prev_seq_nr": NUMBER,
    "entity_type": TEXT,
    "slice": NUMBER,
    "partition": NUMBER,
    "log_offset": NUMBER,
    "timestamp": NUMBER,
    "append_id": st.binary(max_size=20),
    "type": TEXT,
    "tags": st.none() | TEXT | st.lists(TEXT, max_size=3).map(lambda tags: orjson.dumps(tags).decode()),
    "headers": st.none() | TEXT | st.dictionaries(TEXT, TEXT, max_size=3).map(lambda said: orjson.dumps(said).decode()),
    "form": NUMBER | st.integers(-1, 5),
    "metadata": st.none() | st.binary(),
    "payload": st.none() | st.binary(),
    "digest": NUMBER,
}
OF_ANY_TYPE = st.none() | NUMBER | st.floats(allow_nan=False) | TEXT | st.binary()
"""What a damaged file can give for a column."""
ROWS = st.builds(
    row,
    key=st.just("order|42") | TEXT.map("a|{}".format),
    life=NUMBER,
    seq_nr=NUMBER,
    type=TEXT,
    tags=FIELDS["tags"],
    headers=FIELDS["headers"],
    form=st.sampled_from([BYTES, JSON]),
    metadata=FIELDS["metadata"],
    payload=st.binary(),
)


def test_every_field_has_a_strategy() -> None:
    assert tuple(FIELDS) == EventRow._fields


@pytest.mark.req("J76", "RA12")
@settings(max_examples=1_000, deadline=None)
@given(ROWS, st.sampled_from(EventRow._fields), st.data())
def test_a_row_with_any_change_of_a_field_is_damaged(before: EventRow, name: str, data: st.DataObject) -> None:
    old = getattr(before, name)
    assert not RecordedEvent(before).damaged
    value = data.draw((FIELDS[name] | OF_ANY_TYPE).filter(lambda value: value != old))
    raises_when_touched(RecordedEvent(changed(before, name, value)), code_of(name, value))


@pytest.mark.req("J76")
@pytest.mark.parametrize(
    "two",
    [
        ({"metadata": b"ap", "payload": b"b"}, {"metadata": b"a", "payload": b"pb"}),
        ({"metadata": b"ab", "payload": b""}, {"metadata": b"a", "payload": b"b"}),
        ({"type": "a\0b", "tags": None}, {"type": "a", "tags": "b"}),
        ({"tags": "[]", "headers": None}, {"tags": None, "headers": "[]"}),
        ({"entity_type": "order", "type": "Placed"}, {"entity_type": "orderP", "type": "laced"}),
        ({"key": "order|42", "entity_type": "order"}, {"key": "order|4", "entity_type": "2order"}),
        ({"tags": None}, {"tags": "None"}),
        ({"tags": None}, {"tags": ""}),
        ({"headers": None}, {"headers": ""}),
        ({"metadata": None}, {"metadata": b""}),
        ({"payload": None}, {"payload": b""}),
    ],
)
def test_fields_do_not_run_into_each_other(two: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, another = two
    assert row(**one).digest != row(**another).digest


@pytest.mark.req("J97")
@pytest.mark.parametrize(
    ("lost", "name", "left"),
    [
        ({"append_id": b"cut"}, "append_id", UUID(int=0)),
        ({"append_id": None}, "append_id", UUID(int=0)),
        ({"append_id": "x" * 16}, "append_id", UUID(int=0)),
        ({"tags": '["new"'}, "tags", ()),
        ({"tags": '{"new":1}'}, "tags", ()),
        ({"tags": 7}, "tags", ()),
        ({"headers": "["}, "headers", {}),
        ({"headers": "[1]"}, "headers", {}),
        ({"key": "order"}, "key", Key.kept("order")),
        ({"key": "or\nder|42"}, "key", Key.kept("or\nder|42")),
    ],
)
def test_what_is_left_of_a_damaged_row_can_be_read(lost: dict[str, Any], name: str, left: object) -> None:
    event = RecordedEvent(row()._replace(**lost))
    assert event.damaged
    assert getattr(event, name) == left


def test_what_stands_in_stores_never_changes() -> None:
    assert (BYTES, JSON, DAMAGED_UNDECODABLE, DAMAGED_DIGEST) == (0, 1, 2, 3)
    assert row().digest == 3824327529
    assert row(tags=None, headers=None, metadata=None, form=DAMAGED_DIGEST, payload=None).digest == 2553000359


@pytest.mark.req("J97")
@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"payload": b'{"price":'}, "payload"), ({"payload": b""}, "payload"), ({"metadata": b"{"}, "metadata")],
)
def test_json_that_no_writer_of_ours_wrote_is_undecodable(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(Corrupt) as caught:
        getattr(RecordedEvent(row(**wrong)), name)
    assert caught.value.code == "undecodable"


def test_an_operator_is_told_where_to_look() -> None:
    with pytest.raises(Corrupt) as caught:
        _ = RecordedEvent(row(form=DAMAGED_DIGEST, payload=None, metadata=None)).payload
    assert str(caught.value) == "event 9 of order|42 is damaged"
    assert "strandline pipeline resolve 4 77 skip" in caught.value.hint
    with pytest.raises(Corrupt) as caught:  # not a record of the log, so not in the quarantine either
        _ = RecordedEvent(row()._replace(payload=b"1")).payload
    assert "resolve" not in caught.value.hint
    assert "backup" in caught.value.hint
    with pytest.raises(Corrupt) as caught:
        _ = RecordedEvent(row(key="order|" + "x" * 500, form=DAMAGED_DIGEST)).payload
    assert len(str(caught.value)) < 150
