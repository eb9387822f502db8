"""Plain appends by columns: what comes of a range is the same as one by one, whatever else stands in it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.repeats import examples

import strandline.carry.columns
from strandline.carry.columns import NOTHING, _plain_headers, plain_of
from strandline.carry.range import CarriedRange, decode, prepare
from strandline.errors import Corrupt
from strandline.record import VALUE_BYTES_MAX, Content, Record, content_digest, derived, encode_header, encode_value
from strandline.rows import PartitionBatch, Pointer
from strandline.store.api import KeyStates, StoreSettings
from strandline.values.actions import NO_EXPIRY, Action, Append, Delete, Mark, Purge
from strandline.values.heads import SEQ_NR_MAX, EndedLife, Head, Remembered, State
from strandline.values.keys import key_partition

KEYS = ["order|1", "order|2", "user|ü", 'user|"quoted"', "user|back\\slash"]
SETTINGS = StoreSettings(log_id="log", partitions=1, segment_size=3)
START = Pointer(0)
ID, OTHER_ID = "0a" * 16, "0b" * 16


def append(
    key: str = KEYS[0],
    append_id: str = ID,
    *,
    payload: bytes = b"1",
    form: int = 1,
    metadata: bytes | None = None,
    events: int = 1,
    type_: str = "Placed",
    tags: tuple[str, ...] = (),
    **said: Any,
) -> tuple[Append, bytes]:
    """An append and its value; plain unless something is said."""
    value = encode_value([Content(form, payload, metadata)] * events)
    headers = ((type_, tags),) * events
    digest = content_digest(headers, said.get("headers"), value)
    return Append(key, headers, append_id, said.pop("id_given", False), digest, **said), value


def record(action: Action, value: bytes | None = None, offset: int = 0, **changed: Any) -> Record:
    return Record(0, offset, 1_000 + 10 * offset, action.key, encode_header(action), value)._replace(**changed)


def flipped(data: bytes | None, at: int) -> bytes:
    given = bytearray(data or b"")
    given[at % len(given)] ^= 1 + at % 254
    return bytes(given)


# ---------------------------------------------------------------- the same as one by one


def both(records: list[Record], seen: Pointer, states: dict[str, State], *, exact: bool) -> list[dict[str, Any]]:
    """What comes of a range by columns, and one by one."""
    range_ = CarriedRange(0, records[0].offset, records[-1].offset + 1, records, exact)
    plain, others = plain_of(records, 1)
    ways = [(plain, decode(others, 1)), (NOTHING, decode(records, 1))]
    return [
        shown(prepare(range_, decoded, KeyStates(seen, states), SETTINGS, 7, plain)) for plain, (decoded, _) in ways
    ]


def shown(batch: PartitionBatch) -> dict[str, Any]:
    """A batch without the order of its keys."""
    cuts: dict[str, list[Any]] = {}
    for cut in batch.cuts:
        cuts.setdefault(cut.key, []).append(cut)
    return {
        "pointer": batch.pointer, "states": batch.states, "cuts": cuts, "counts": (batch.actions, batch.events),
        "quarantine": sorted(batch.quarantine, key=lambda row: row.offset),
    }  # fmt: skip


def random_records(chance: Random, count: int) -> list[Record]:
    """Mostly plain appends; among them all that is not quite, and much that is nothing of the kind."""
    records: list[Record] = []
    offset = chance.randrange(3)
    for _ in range(count):
        key = chance.choice(KEYS)
        id_ = f"{chance.getrandbits(128):032x}"
        what = chance.randrange(40)
        given: tuple[Action, bytes | None]
        given = append(key, id_, payload=chance.randbytes(chance.randrange(40)), form=chance.randrange(2))
        if what == 0 and records:  # the same record once more, at another place
            again = chance.choice(records[-3:])
            records.append(again._replace(offset=offset, timestamp=again.timestamp + 1))
            offset += 1
            continue
        if what == 1:
            given = append(key, chance.choice([ID, OTHER_ID, id_]), id_given=True)
        elif what == 2:
            given = append(key, chance.choice([ID, OTHER_ID]), payload=chance.choice([b"1", b"2"]))
        elif what == 3:
            given = append(key, id_, events=2)
        elif what == 4:
            said: list[dict[str, Any]] = [
                {"first": chance.randrange(1, 30)}, {"expected": chance.randrange(9)}, {"headers": {"a": "b"}},
                {"expire_after_us": 1000}, {"expire_after_us": NO_EXPIRY}, {"metadata": b"{}"},
            ]  # fmt: skip
            given = append(key, id_, **chance.choice(said))
        elif what == 5:
            given = Delete(key, chance.randrange(1, 20)), None
        elif what == 6:
            given = Purge(key), None
        elif what == 7:
            given = Mark(chance.choice([None, key]), id_, chance.choice([None, 5_000])), None
        elif what == 8:
            given = append(key, id_, type_=chance.choice(["Paid", 'a"b', '","id":"']), tags=("a", "ü"))
        made = record(given[0], given[1], offset)
        if what == 9:
            made = made._replace(header=flipped(made.header, chance.randrange(300)))
        elif what == 10:
            made = made._replace(value=flipped(made.value, chance.randrange(300)))
        elif what == 11:
            made = made._replace(header=chance.choice([None, b"", b"foreign", made.header and made.header.upper()]))
        elif what == 12:
            made = made._replace(value=chance.choice([None, b"", (made.value or b"")[: chance.randrange(13)]]))
        elif what == 13:
            made = made._replace(key=chance.choice([None, "user|else", *KEYS]))
        records.append(made)
        offset += chance.choice([1, 1, 2])
    return records


def random_states(chance: Random, before: list[Record]) -> dict[str, State]:
    """States that earlier records led to, and some that only much time could lead to."""
    states: dict[str, State] = {}
    if before:
        range_ = CarriedRange(0, 0, before[-1].offset + 1, before)
        states |= prepare(range_, decode(before, 1)[0], KeyStates(START, {}), SETTINGS, 0).states
    key = chance.choice(KEYS)
    head = states.get(key)
    if chance.random() < 0.3:
        states[key] = EndedLife(chance.randrange(1, 5), 0, -1)
    elif isinstance(head, Head) and chance.random() < 0.3:
        near = SEQ_NR_MAX - chance.randrange(4)
        states[key] = head._replace(seq_nr=near, prev=near, expire_after_us=50)
    return states


@pytest.mark.req("RA12", "J95")
@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
@example(1_016_359_313, 5, True)
def test_what_comes_of_a_range_is_the_same(seed: int, count: int, exact: bool) -> None:
    chance = Random(seed)
    records = random_records(chance, count)
    if exact:
        records = derived(records, 0)  # such a log has a clock that never stands still
    cut = chance.randrange(count)
    before = records[: cut if chance.random() < 0.5 else 0]
    states = random_states(chance, before)
    seen = (
        START._replace(offset=before[-1].offset, timestamp=before[-1].timestamp, last_action_at=900)
        if before
        else START
    )
    given = records if chance.random() < 0.3 else records[len(before) :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strandline.carry.columns, "AT_ONCE", chance.choice([1, 7, 1000]))
        by_columns, one_by_one = both(given, seen, states, exact=exact)
    assert by_columns == one_by_one


@pytest.mark.parametrize("partitions", [1, 8])
def test_records_of_a_log_that_numbers_them_itself(partitions: int) -> None:
    """Right numbers change nothing; wrong ones are refused as ever."""
    records = [record(*append(append_id=f"{n:032x}"), offset=n, life=1, first=n + 1, last=n + 1) for n in range(5)]
    partition = key_partition(KEYS[0], partitions)
    records = [made._replace(partition=partition) for made in records]
    plain, others = plain_of(records, partitions)
    assert (len(plain.records), list(others)) == (5, [])
    by_columns, one_by_one = both([made._replace(partition=0) for made in records], START, {}, exact=True)
    assert by_columns == one_by_one
    given = [made._replace(partition=0) for made in records]
    for wrong in (given[3]._replace(life=2), given[3]._replace(first=9), given[3]._replace(last=9)):
        bad = [*given[:3], wrong, *given[4:]]
        with pytest.raises(Corrupt, match="the log numbered"):
            both(bad, START, {}, exact=True)


# ---------------------------------------------------------------- which records are plain


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("form", [0, 1])
def test_appends_as_they_are_written_are_plain(key: str, form: int) -> None:
    kinds = [("Placed", ()), ("Paid", ("a", "b")), ('"quoted"', ("[",)), ("ü", ())]
    made = [append(key, f"{n:032x}", form=form, type_=type_, tags=tags) for n, (type_, tags) in enumerate(kinds)]
    plain, others = plain_of([record(*given, offset=n) for n, given in enumerate(made)], 1)
    assert plain.runs == [(key, 0, len(kinds))]
    assert list(plain.events) == kinds
    assert list(plain.forms) == [form] * len(kinds)
    assert not others


NOT_PLAIN: dict[str, Record] = {
    "an id of the caller's": record(*append(id_given=True)),
    "first": record(*append(first=1)),
    "expected": record(*append(expected=0)),
    "headers": record(*append(headers={"a": "b"})),
    "headers that end like an append": record(*append(headers={"x": "y", "id": ID, "digest": ID})),
    "expiry": record(*append(expire_after_us=5)),
    "metadata": record(*append(metadata=b"{}")),
    "two events": record(*append(events=2)),
    "a Delete": record(Delete(KEYS[0], 1)),
    "a Mark": record(Mark(KEYS[0], ID)),
    "no value": record(append()[0], None),
    "another value": record(append()[0], append(payload=b"2")[1]),
    "a value that is too large": record(*append(payload=bytes(VALUE_BYTES_MAX))),
    "no header": record(*append(), header=None),
    "another key": record(*append(), key=KEYS[1]),
    "another partition": record(*append(), partition=1),
    "a header in capitals": record(*append(), header=encode_header(append()[0]).replace(b"0a0a", b"0A0A")),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_a_key_with_another_record_goes_one_by_one(name: str) -> None:
    odd = NOT_PLAIN[name]._replace(offset=1)
    records = [record(*append(KEYS[2])), odd, record(*append(odd.key or "", OTHER_ID), offset=2)]
    plain, others = plain_of(records, 1)
    assert [key for key, _, _ in plain.runs] == [KEYS[2]]
    assert list(others) == records[1:]


@pytest.mark.parametrize("at", range(len(encode_header(append()[0]))))
def test_no_byte_of_a_header_may_change(at: int) -> None:
    given = record(*append())
    plain, others = plain_of([given._replace(header=flipped(given.header, at))], 1)
    assert (plain, list(others)) == (NOTHING, [given._replace(header=flipped(given.header, at))])


@pytest.mark.parametrize("at", range(len(append()[1])))
def test_no_byte_of_a_value_may_change(at: int) -> None:
    given = record(*append())
    plain, _ = plain_of([given._replace(value=flipped(given.value, at))], 1)
    assert plain == NOTHING


def test_what_headers_say_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.carry.columns.REMEMBERED_MAX", 2)
    said = _plain_headers(1)
    said.clear()
    made = [record(*append(f"order|{n}", type_="x" * (n % 2 * 2_000)), offset=n) for n in range(1, 30)]
    for _ in range(2):
        plain, others = plain_of(made, 1)
        assert [key for key, _, _ in plain.runs] == [given.key for given in made]
        assert not others
        assert 0 < len(said) <= 2
        assert max(map(len, said)) < 1_024


def test_of_runs_that_the_fold_does_not_just_number_every_record_is_looked_at() -> None:
    """Repeats, remembered ids, and numbers that run out: the answers are those of one by one, and there are some."""
    remembered = Remembered(OTHER_ID, "0c" * 16, 1, 1, 0, 1)
    head = Head(1, 0, 1, 0, 0, 1, 1, None, None, 3, 0, 1, 0, (), remembered)
    run = [record(*append(append_id=f"{n:032x}"), offset=n) for n in range(1, 5)]
    again = [*run[:2], run[1]._replace(offset=9, timestamp=2_000)]
    for records, state, events in (
        (run, head, 4),
        (again, head, 2),
        (run, head._replace(given=(remembered._replace(append_id=f"{3:032x}"),)), 3),
        (run, head._replace(seq_nr=SEQ_NR_MAX - 2, prev=SEQ_NR_MAX - 2), 2),
        (run, head._replace(offset=2), 2),
    ):
        seen = START._replace(offset=0)
        by_columns, one_by_one = both(records, seen, {KEYS[0]: state}, exact=True)
        assert by_columns == one_by_one
        assert by_columns["counts"][1] == events
