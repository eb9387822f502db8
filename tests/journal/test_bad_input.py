"""Bad input is refused before anything is written, with the same code, field and text on every back-end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from strandline import Event, InvalidInput, Key
from strandline.connect import Strandline
from strandline.errors import StrandlineError
from strandline.testing import carry
from tests.journal.worlds import BACKENDS, KEY, digest, events, world

SMALL = {"event_bytes_max": 1000, "append_bytes_max": 4000, "append_events_max": 5, "metadata_bytes_max": 100}
NO_LIMITS: tuple[Any, ...] = (0, -1, True, False, 1.0, "5", 2**63)


@pytest.fixture(params=BACKENDS, scope="module")
def s(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strandline]:
    """A journal with something in it, half of it carried; one for all, as nothing changes it."""
    with world(request.param, tmp_path_factory.mktemp("bad"), partitions=2, **SMALL) as opened:
        opened.journal.append(KEY, events(1, 2, 3))
        carry(opened)
        opened.journal.append(KEY, events(4))
        yield opened


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def payload(value: Any) -> Callable[[Strandline], object]:
    """An append whose second event has this payload."""
    return lambda s: s.journal.append(KEY, [Event("Placed", 1), Event("Placed", value)])


def append(given: Any, **more: Any) -> Callable[[Strandline], object]:
    return lambda s: s.journal.append(KEY, given, **more)


def with_key(key: Any) -> Callable[[Strandline], object]:
    return lambda s: s.journal.append(key, events(1))


def tagged(tags: Any) -> Callable[[Strandline], object]:
    return lambda s: s.journal.append(KEY, [Event("Placed", 1, tags=["fine"]), Event("Placed", 1, tags=tags)])


VALUES = "events[1].payload"
BAD: list[tuple[str, str, str, Callable[[Strandline], object]]] = [
    # values
    ("NaN", "number_not_finite", VALUES, payload({"price": float("nan")})),
    ("Infinity", "number_not_finite", VALUES, payload([float("-inf")])),
    ("2^63", "integer_out_of_range", VALUES, payload(2**63)),
    ("-2^63-1", "integer_out_of_range", VALUES, payload({"a": -(2**63) - 1})),
    ("NUL", "nul_character", VALUES, payload("a\0b")),
    ("NUL in a key", "nul_character", VALUES, payload({"a\0": 1})),
    ("lone surrogate", "invalid_unicode", VALUES, payload(["\ud800"])),
    ("depth 65", "too_deep", VALUES, payload(nested(65))),
    ("cycle", "too_deep", VALUES, payload(cycle())),
    ("number as key", "key_not_text", VALUES, payload({1: "x"})),
    ("set", "payload_type", VALUES, payload({1, 2})),
    ("Decimal", "payload_type", VALUES, payload([Decimal("1.5")])),
    ("bytes in JSON", "payload_type", VALUES, payload({"a": b"x"})),
    ("metadata is a list", "payload_type", "events[0].metadata", append([Event("Placed", 1, metadata=[1])])),  # type: ignore[arg-type]
    ("metadata NaN", "number_not_finite", "events[0].metadata", append([Event("P", 1, metadata={"a": float("nan")})])),
    # keys
    ("no key", "key_type", "key", with_key(None)),
    ("a number", "key_type", "key", with_key(42)),
    ("no bar", "key_type", "key", with_key("order42")),
    ("a tuple", "key_type", "key", with_key(("order", "42"))),
    ("empty id", "invalid_key", "key.entity_id", with_key("order|")),
    ("empty type", "invalid_key", "key.entity_type", with_key("|42")),
    ("control character", "invalid_key", "key.entity_id", with_key("order|4\n2")),
    ("bar in the type", "invalid_key", "key.entity_type", lambda s: s.journal.append(Key("a|b", "c"), events(1))),
    ("513 bytes", "key_too_long", "key", with_key("order|" + "x" * 507)),
    ("surrogate in a key", "invalid_unicode", "key", with_key("order|\udfff")),
    # events
    ("no events", "empty_append", "events", append([])),
    ("6 events", "too_many_events", "events", append(events(*range(6)))),
    ("endless events", "too_many_events", "events", append(iter(lambda: Event("Placed", 1), None))),
    ("one Event", "events_type", "events", append(Event("Placed", 1))),
    ("a text", "events_type", "events", append("Placed")),
    ("a mapping", "events_type", "events", append({"type": "Placed"})),
    ("None", "events_type", "events", append(None)),
    ("a set", "events_type", "events", append({1})),
    ("not an Event", "events_type", "events[1]", append([Event("Placed", 1), "Placed"])),
    ("empty type", "events_type", "events[0].type", append([Event("", 1)])),
    ("type is no text", "events_type", "events[0].type", append([Event(7, 1)])),  # type: ignore[arg-type]
    ("257 bytes of type", "events_type", "events[0].type", append([Event("x" * 257, 1)])),
    ("control in type", "events_type", "events[0].type", append([Event("a\tb", 1)])),
    ("surrogate in type", "events_type", "events[0].type", append([Event("\ud800", 1)])),
    # sizes
    ("an event one byte over", "event_too_large", VALUES, payload(b"x" * 1001)),
    ("JSON one byte over", "event_too_large", VALUES, payload("x" * 999)),
    ("metadata over", "event_too_large", "events[0].metadata", append([Event("P", 1, metadata={"a": "x" * 100})])),
    ("an append over", "append_too_large", "events", append([Event("Placed", b"x" * 1000)] * 4)),
    ("tags over", "append_too_large", "events", append([Event("P", 1, tags=[f"{n}" + "x" * 200 for n in range(20)])])),
    # tags
    ("bare text", "invalid_tag", "events[1].tags", tagged("blue")),
    ("a dict", "invalid_tag", "events[1].tags", tagged({"blue": 1})),
    ("None as tags", "invalid_tag", "events[1].tags", tagged(None)),
    ("a number as tag", "invalid_tag", "events[1].tags", tagged([1])),
    ("a number in a set", "invalid_tag", "events[1].tags", tagged({1, "a"})),
    ("empty tag", "invalid_tag", "events[1].tags", tagged([""])),
    ("257 bytes of tag", "invalid_tag", "events[1].tags", tagged({"ä" * 128 + "x"})),
    ("control in tag", "invalid_tag", "events[1].tags", tagged(["a\x85b"])),
    ("surrogate in tag", "invalid_tag", "events[1].tags", tagged(["\ud800"])),
    ("space before a tag", "invalid_tag", "events[1].tags", tagged([" blue"])),
    ("space after a tag", "invalid_tag", "events[1].tags", tagged(["blue\u2003"])),
    ("our own tag", "invalid_tag", "events[1].tags", tagged(["strandline.group"])),
    # the rest of an append
    ("header not text", "header", "headers", append(events(1), headers={"a": 1})),
    ("header name not text", "header", "headers", append(events(1), headers={1: "a"})),
    ("headers a list", "header", "headers", append(events(1), headers=["a"])),
    ("NUL in a header", "nul_character", "headers", append(events(1), headers={"a": "\0"})),
    ("surrogate in a header", "invalid_unicode", "headers", append(events(1), headers={"\ud800": "a"})),
    ("append id empty", "append_id", "append_id", append(events(1), append_id="")),
    ("append id too long", "append_id", "append_id", append(events(1), append_id="ä" * 129)),
    ("surrogate in an append id", "append_id", "append_id", append(events(1), append_id="\ud800")),
    ("append id a number", "append_id", "append_id", append(events(1), append_id=42)),
    ("expire_after a number", "expire_after", "expire_after", append(events(1), expire_after=60)),
    ("expire_after zero", "expire_after", "expire_after", append(events(1), expire_after=timedelta(0))),
    ("expire_after negative", "expire_after", "expire_after", append(events(1), expire_after=timedelta(days=-1))),
    ("expire_after too long", "expire_after", "expire_after", append(events(1), expire_after=timedelta(36500, 1))),
    *[(f"expected {x!r}", "seq_nr_range", "expected", append(events(1), expected=x)) for x in (-1, 1.0, True, 2**63)],
    *[(f"first {x!r}", "seq_nr_range", "first", append(events(1), first=x)) for x in (0, -1, 1.0, True, 2**63)],
    # bounds
    *[(f"from_ {x!r}", "seq_nr_range", "from_", lambda s, x=x: s.journal.read(KEY, from_=x)) for x in (0, True, None)],
    *[(f"to {x!r}", "seq_nr_range", "to", lambda s, x=x: s.journal.read(KEY, to=x)) for x in (0, 1.0, 2**63)],
    ("from_ above to", "empty_range", "from_", lambda s: s.journal.read(KEY, from_=3, to=2)),
    *[(f"delete {x!r}", "seq_nr_range", "to", lambda s, x=x: s.journal.delete(KEY, to=x)) for x in (0, -1, 1.0, None)],
    ("delete True", "seq_nr_range", "to", lambda s: s.journal.delete(KEY, to=True, reset=True)),
    *[(f"read limit {x!r}", "limit_range", "limit", lambda s, x=x: s.journal.read(KEY, limit=x)) for x in NO_LIMITS],
    *[(f"backwards {x!r}", "setting", "backwards", lambda s, x=x: s.journal.read(KEY, backwards=x)) for x in ("no", 1)],
    *[(f"limit {x}", "limit_range", "limit", lambda s, x=x: s.journal.keys("o", limit=x)) for x in (0, -1, 1001, "a")],
    ("after of another type", "offset_foreign", "after", lambda s: s.journal.keys("order", after="user|1")),
    ("entity type with a bar", "invalid_key", "key.entity_type", lambda s: s.journal.keys("a|b")),
    *[(f"mark {x[:3]!r}", "mark_id", "id", lambda s, x=x: s.journal.mark(KEY, id=x)) for x in ("", "x" * 129, "a\nb")],
    ("mark surrogate", "mark_id", "id", lambda s: s.journal.mark(KEY, id="\ud800")),
    ("mark id a number", "mark_id", "id", lambda s: s.journal.mark(KEY, id=7)),  # type: ignore[arg-type]
    ("timeout", "setting", "timeout_s", lambda s: s.journal.wait_replicated(s.journal.purge, timeout_s=-1)),  # type: ignore[arg-type]
    # reserved types
    *[
        (f"{call} {entity_type}", "reserved_entity_type", "key.entity_type", act)
        for entity_type in ("group", "group_stream", "group_inbox", "admin_act")
        for call, act in (
            ("append", lambda s, key=entity_type: s.journal.append(f"{key}|x", events(1))),
            ("append_future", lambda s, key=entity_type: s.journal.append_future(f"{key}|x", events(1))),
            ("delete", lambda s, key=entity_type: s.journal.delete(Key(key, "x"), to=1, reset=True)),
            ("purge", lambda s, key=entity_type: s.journal.purge(f"{key}|x")),
            ("save_snapshot", lambda s, key=entity_type: s.journal.save_snapshot(f"{key}|x", 1, 1)),
            ("delete_snapshots", lambda s, key=entity_type: s.journal.delete_snapshots(f"{key}|x")),
        )
    ],
    # snapshots
    ("state is a set", "payload_type", "state", lambda s: s.journal.save_snapshot(KEY, 1, {1})),
    ("state too large", "event_too_large", "state", lambda s: s.journal.save_snapshot(KEY, 1, b"x" * 1001)),
    ("snapshot to 0", "seq_nr_range", "to", lambda s: s.journal.load_snapshot(KEY, to=0)),
    ("delete snapshots to 0", "seq_nr_range", "to", lambda s: s.journal.delete_snapshots(KEY, to=0)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "field", "call"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
@pytest.mark.req("J122")
def test_refused_and_nothing_written(
    s: Strandline, code: str, field: str, call: Callable[[Strandline], object]
) -> None:
    before = digest(s)
    with pytest.raises(InvalidInput) as caught:
        call(s)
    error = caught.value
    assert (error.code, error.applied, error.retryable) == (code, "no", False)
    assert error.field == field
    assert error.hint
    assert error.message.startswith(field)
    assert "; allowed " in error.message
    assert "; got " in error.message
    assert len(error.message.partition("; got ")[2]) <= 110
    assert digest(s) == before


@pytest.mark.req("J123")
@pytest.mark.parametrize("entity_type", ["group", "group_stream", "group_inbox", "admin_act"])
def test_reserved_types_can_be_read(s: Strandline, entity_type: str) -> None:
    assert list(s.journal.read(f"{entity_type}|x")) == []
    assert s.journal.head(f"{entity_type}|x") is None
    assert s.journal.snapshots(f"{entity_type}|x") == []
    assert s.journal.keys(entity_type) == []


@pytest.mark.req("J122")
def test_the_text_of_an_error(s: Strandline) -> None:
    bad = [Event("P", 1), Event("P", 1), Event("P", 1), Event("P", {"price": float("nan")})]
    with pytest.raises(InvalidInput) as caught:
        s.journal.append(KEY, bad)
    expected = "events[3].payload $.price: number is not finite; allowed finite numbers; got nan"
    assert str(caught.value) == expected
    with pytest.raises(InvalidInput) as caught:
        s.journal.append(KEY, Event("P", 1))  # type: ignore[arg-type]
    assert caught.value.hint == "give a list of Event"


class Kind(StrEnum):
    PLACED = "Placed"


@pytest.mark.req("J2", "J3", "J6", "J7")
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_at_the_limit_is_taken_and_kept(backend: str, tmp_path: Path) -> None:
    with world(backend, tmp_path, **SMALL) as s:
        s.journal.append(KEY, events(1, 2, 3, 4))
        _check_limits(s)


def _check_limits(s: Strandline) -> None:
    before = len(list(s.journal.read(KEY)))
    given = [
        Event("x" * 256, b"y" * 1000, tags={"ä" * 128, "a b"}, metadata={"a": "z" * 92}),
        Event("Placed", {"1": 1, "0": 1.0, "z": -0.0, "t": (1, 2)}, tags=("b", "a", "b")),
        Event(Kind.PLACED, nested(64), tags=[]),
        Event("Placed", bytearray(b"ab")),
        Event("Placed", -(2**63)),
    ]
    s.journal.append(KEY, iter(given), expected=4, headers={}, append_id=uuid4())  # type: ignore[arg-type]
    found = list(s.journal.read(KEY, from_=before + 1))
    assert [event.type for event in found] == ["x" * 256, "Placed", "Placed", "Placed", "Placed"]
    assert found[0].tags == ("a b", "ä" * 128)
    assert found[1].tags == ("b", "a")
    assert found[1].headers == {}
    assert found[0].metadata == {"a": "z" * 92}
    assert repr(found[1].payload) == "{'1': 1, '0': 1.0, 'z': -0.0, 't': [1, 2]}"
    assert found[2].payload == nested(64)
    assert found[3].payload == b"ab"
    assert found[4].payload == -(2**63)
    long = Key("order", "x" * 506)
    assert s.journal.append(long, events(1)).key == long


def test_many_tags_are_taken_and_advised_against_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with world("memory", tmp_path) as s:
        name = f"type{uuid4().hex}"
        many = [Event("Placed", 1, tags=[f"t{number}" for number in range(40)])]
        with caplog.at_level("WARNING", "strandline"):
            s.journal.append(f"{name}|1", [Event("Placed", 1, tags=[f"t{number}" for number in range(9)])])
            assert not caplog.records
            s.journal.append(f"{name}|1", many)
            s.journal.append(f"{name}|2", many)
        assert len(caplog.records) == 1
        assert len(next(s.journal.read(f"{name}|2")).tags) == 40


@pytest.mark.req("RJ4")
def test_the_same_error_on_every_backend(tmp_path: Path) -> None:
    """Conflicts, too: same class, code and facts."""
    seen: list[list[Any]] = []
    for backend in BACKENDS:
        with world(backend, tmp_path) as s:
            errors: list[Any] = []
            s.journal.append(KEY, events(1), append_id="0" * 32)
            calls: list[Callable[[], object]] = [
                lambda: s.journal.append(KEY, events(1), expected=0),
                lambda: s.journal.append(KEY, events(1), first=1),
                lambda: s.journal.append(KEY, events(2), append_id="0" * 32),
                lambda: s.journal.append(KEY, events(1), first=10**7),
                lambda: s.journal.save_snapshot(KEY, 5, 1),
                lambda: s.journal.save_snapshot(KEY, 1, 1, life=9),
                lambda: s.journal.wait_replicated(s.journal.mark(KEY, id="m"), timeout_s=0),
            ]
            for call in calls:
                with pytest.raises(StrandlineError) as caught:
                    call()
                errors.append((caught.value.name, caught.value.message, caught.value.facts, caught.value.hint))
            seen.append(errors)
    assert seen[0] == seen[1]


@pytest.mark.req("J122")
def test_a_text_instead_of_a_number_is_shown_as_a_text(tmp_path: Path) -> None:
    with world("memory", tmp_path) as s:
        wrong: list[dict[str, Any]] = [{"expected": "1"}, {"first": "1"}]
        for given in wrong:
            with pytest.raises(InvalidInput, match="got '1'"):
                s.journal.append(KEY, [Event("a", 1)], **given)
