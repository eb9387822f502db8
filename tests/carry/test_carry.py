"""One partition from log to store: order, bad records, what stops it, what may be repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import strandline
from strandline import Event
from strandline.backends.memory.store import MemoryStore
from strandline.carry.range import CarriedRange, carry, decode
from strandline.connect import Strandline
from strandline.errors import Corrupt, SchemaMismatch, StrandlineError, Unavailable
from strandline.record import Content, Record, content_digest, encode_header, encode_value
from strandline.store.api import StoreSettings
from strandline.store.scans import entity_types_of, look_at, quarantined, quarantined_at
from strandline.testing import carry as carry_all
from strandline.testing import raw_append
from strandline.values.actions import Append, Delete

KEY = "order|42"


def an_append(key: str = KEY, payload: bytes = b"x", append_id: str = "a" * 32) -> tuple[bytes, bytes]:
    events = (("Placed", ()),)
    value = encode_value([Content(0, payload, None)])
    return encode_header(Append(key, events, append_id, False, content_digest(events, None, value))), value


def payloads(s: Strandline, key: str = KEY) -> list[object]:
    return [event.payload for event in s.journal.read(key)]


def numbers(s: Strandline, key: str = KEY) -> list[int]:
    return [event.seq_nr for event in s.journal.read(key)]


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def with_header(change: Callable[[bytes], bytes | None]) -> dict[str, object]:
    header, value = an_append()
    return {"key": KEY, "header": change(header), "value": value}


BAD_RECORDS: dict[str, tuple[dict[str, object], str]] = {
    "no header": (with_header(lambda _: None), "foreign"),
    "empty header": (with_header(lambda _: b""), "foreign"),
    "foreign header": (with_header(lambda _: b'{"type":"something else"}'), "foreign"),
    "broken header": (with_header(flip), "header"),
    "cut header": (with_header(lambda header: header[:-5]), "header"),
    "another key": ({"key": "order|43", "header": an_append()[0], "value": an_append()[1]}, "key"),
}


@pytest.mark.req("J91")
@pytest.mark.parametrize("exact", [True, False])
def test_the_time_of_a_pointer_never_goes_back(exact: bool) -> None:
    """Not by a clock that does, nor by offsets without records, nor by what is carried again."""
    store = MemoryStore(StoreSettings("log", 1, 100, 2))
    header, value = an_append()
    fence = store.lease().take("a test").fence
    times = []
    ranges: list[tuple[int, int, list[int]]] = [
        (0, 2, [1000, 2000]), (2, 5, []), (5, 6, [3000 if exact else 500]), (6, 7, []), (0, 6, [1000]), (7, 9, []),
    ]  # fmt: skip
    for start, position, clock in ranges:
        records = [Record(0, start + n, at, KEY, header, value) for n, at in enumerate(clock)]
        carry(store, store.settings, CarriedRange(0, start, position, records, exact), fence)
        times.append(store.pointers()[0].timestamp)
    assert times == sorted(times)
    assert times[0] == 2000
    assert times[-1] == (3000 if exact else 2001)
    assert store.pointers()[0].offset == 8


@pytest.mark.req("J95", "RR5")
@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_record_without_an_action_is_listed_and_changes_nothing(s: Strandline, name: str) -> None:
    record, reason = BAD_RECORDS[name]
    s.journal.append(KEY, [Event("Placed", 1)])
    place = raw_append(s, 0, **record)  # type: ignore[arg-type]
    s.journal.append(KEY, [Event("Paid", 2)])
    carry_all(s)
    (listed,) = quarantined(s.store)
    assert (listed.partition, listed.offset, listed.key, listed.reason) == (0, place.offset, record["key"], reason)
    assert quarantined_at(s.store, 0, place.offset) is not None
    assert s.store.pointers()[0].offset == s.log.newest()[0], "the pointer goes on"
    assert payloads(s) == [1, 2]


@pytest.mark.req("J73", "J31")
def test_the_pointer_comes_to_the_end_of_the_range_whatever_stands_there() -> None:
    """Behind the last record may be places without one, as Kafka's markers."""
    with strandline.connect("memory:", partitions=8) as s:
        lease = s.store.lease().take("a task")
        header, value = an_append()
        record = Record(4, 2, 1_000_000, KEY, header, value)
        done = carry(s.store, s.store.settings, CarriedRange(4, 0, 7, [record]), lease.fence)
        assert (done.events, done.pointer.offset, s.store.pointers()[4].offset) == (1, 6, 6)
        lease.release()


@pytest.mark.req("J95")
@pytest.mark.parametrize("partition", [4, 3])
def test_what_stands_beside_a_bad_header_counts_in_the_partition_of_its_key_alone(partition: int) -> None:
    record = Record(partition, 0, 1_000_000, KEY, b"rotten", b"", 1, 1, 2)  # order|42 belongs to partition 4
    ((found, action, reason),), newer = decode([record], 8)
    assert (found, reason, newer) == (record, "foreign", None)
    assert isinstance(action, Append) is (partition == 4)


@pytest.mark.req("J95")
def test_a_record_in_a_partition_that_is_not_its_keys_is_listed() -> None:
    with strandline.connect("memory:", partitions=8) as s:
        header, value = an_append()  # order|42 belongs to partition 4
        raw_append(s, 3, key=KEY, header=header, value=value)
        carry_all(s)
        (listed,) = quarantined(s.store)
        assert (listed.partition, listed.reason) == (3, "partition")
        assert s.journal.head(KEY) is None


BAD_VALUES: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "none": (lambda _: None, "undecodable"),
    "empty": (lambda _: b"", "undecodable"),
    "cut": (lambda value: value[:-1], "undecodable"),
    "other count": (lambda value: value[:1] + b"\x02" + value[2:], "undecodable"),
    "flipped bit": (flip, "digest"),
}


@pytest.mark.req("J94", "J97", "RR5")
@pytest.mark.parametrize("name", BAD_VALUES)
@pytest.mark.parametrize("carried", [False, True])
def test_a_bad_value_costs_its_payload_alone(s: Strandline, name: str, carried: bool) -> None:
    change, reason = BAD_VALUES[name]
    header, value = an_append()
    s.journal.append("order|1", [Event("Placed", 1)])
    raw_append(s, 0, key=KEY, header=header, value=change(value))
    carry_all(s)  # the SQLite log numbers the next append by its own heads, which a raw record does not move
    raw_append(s, 0, key=KEY, header=an_append(append_id="b" * 32)[0], value=value)
    if carried:
        carry_all(s)
    first, second = s.journal.read(KEY)
    assert (first.seq_nr, first.type, first.damaged) == (1, "Placed", True)
    assert (second.seq_nr, second.prev_seq_nr, second.payload) == (2, 1, b"x")
    with pytest.raises(Corrupt) as caught:
        _ = first.payload
    assert caught.value.name == f"Corrupt.{reason}"
    assert (caught.value.key, caught.value.seq_nr, caught.value.partition) == (KEY, 1, 0)
    assert caught.value.hint
    (listed,) = quarantined(s.store)
    assert (listed.key, listed.reason, listed.first, listed.last) == (KEY, reason, 1, 1)
    assert payloads(s, "order|1") == [1]


@pytest.mark.req("RR12")
@pytest.mark.parametrize("field", [b'"v":1', b'"kind":"append"'])
def test_a_record_of_a_newer_version_stops_its_partition_there(s: Strandline, field: bytes) -> None:
    import zlib

    header, value = an_append("order|7")
    body = header.replace(field, {b'"v":1': b'"v":2'}.get(field, b'"kind":"rename"'))
    plain = b"{" + body[18:]
    newer = b'{"crc":"%08x",%s' % (zlib.crc32(plain), plain[1:])
    s.journal.append(KEY, [Event("Placed", 1)])
    place = raw_append(s, 0, key="order|7", header=newer, value=value)
    s.journal.append(KEY, [Event("Paid", 2)])
    for _ in range(2):
        with pytest.raises(SchemaMismatch) as caught:
            carry_all(s)
        assert caught.value.code == "version"
        assert s.store.pointers()[0].offset == place.offset - 1, "what comes before it is carried, nothing is skipped"
    assert quarantined(s.store) == []


@pytest.mark.req("J80")
def test_a_range_that_starts_above_the_pointer_is_refused(s: Strandline) -> None:
    for number in range(3):
        s.journal.append(KEY, [Event("Placed", number)])
    lease = s.store.lease().take("test")
    records = s.log.read(0, after=0).records
    with pytest.raises(Unavailable) as caught:
        carry(s.store, s.store.settings, CarriedRange(0, 1, 3, records), lease.fence)
    assert caught.value.name == "Unavailable.serialization"
    assert s.store.pointers()[0].offset == -1
    assert look_at(s.store, KEY, 0)[1] is None


@pytest.mark.req("J80", "J81", "RR1")
def test_what_is_at_or_below_the_pointer_is_dropped(s: Strandline) -> None:
    for number in range(6):
        s.journal.append(KEY, [Event("Placed", number)])
    lease = s.store.lease().take("test")
    records = s.log.read(0, after=-1).records
    carry(s.store, s.store.settings, CarriedRange(0, 0, 4, records[:4]), lease.fence)
    again = carry(s.store, s.store.settings, CarriedRange(0, 0, 4, records[:4]), lease.fence)
    assert (again.actions, again.events) == (0, 0)
    rest = carry(s.store, s.store.settings, CarriedRange(0, 2, 6, records[2:]), lease.fence)
    assert (rest.actions, rest.events) == (2, 2)
    assert payloads(s) == list(range(6))
    assert numbers(s) == [1, 2, 3, 4, 5, 6]


@pytest.mark.req("J27")
def test_numbers_that_the_log_did_not_give_are_found(s: Strandline) -> None:
    s.journal.append(KEY, [Event("Placed", 1)])
    (record,) = s.log.read(0, after=-1).records
    lease = s.store.lease().take("test")
    wrong: list[Record] = [record._replace(first=5, last=5), record._replace(life=2)]
    for changed in wrong:
        with pytest.raises(Corrupt) as caught:
            carry(s.store, s.store.settings, CarriedRange(0, 0, 1, [changed]), lease.fence)
        assert caught.value.name == "Corrupt.fold"
    assert s.store.pointers()[0].offset == -1
    carry(s.store, s.store.settings, CarriedRange(0, 0, 1, [record]), lease.fence)
    assert numbers(s) == [1]


@pytest.mark.req("J13", "J80")
def test_marks_move_the_pointer_and_nothing_else(s: Strandline) -> None:
    marked = [s.journal.mark(KEY) for _ in range(100)]
    carry_all(s)
    pointer = s.store.pointers()[0]
    assert (pointer.offset, pointer.timestamp, pointer.last_action_at) == (99, marked[-1].timestamp, 0)
    assert look_at(s.store, KEY, 0)[1] is None
    assert entity_types_of(s.store) == []


@pytest.mark.req("J22", "J57")
def test_a_record_that_is_twice_in_the_log_is_shown_once(s: Strandline) -> None:
    header, value = an_append()
    raw_append(s, 0, key=KEY, header=header, value=value)
    raw_append(s, 0, key=KEY, header=header, value=value)
    assert numbers(s) == [1]
    carry_all(s)
    assert numbers(s) == [1]
    head = s.journal.head(KEY)
    assert head is not None
    assert head.seq_nr == 1


@pytest.mark.req("J20")
def test_a_delete_behind_a_purge_brings_nothing_back(s: Strandline) -> None:
    s.journal.append(KEY, [Event("Placed", 1)])
    s.journal.purge(KEY)
    raw_append(s, 0, key=KEY, header=encode_header(Delete(KEY, 1, life=1)))
    assert s.journal.head(KEY) is None
    carry_all(s)
    assert s.journal.head(KEY) is None


def test_an_error_of_the_store_reaches_the_caller(s: Strandline) -> None:
    s.journal.append(KEY, [Event("Placed", 1)])
    stale = s.store.lease().take("old")
    stale.release()
    s.store.lease().take("new")
    records = s.log.read(0, after=-1).records
    with pytest.raises(StrandlineError) as caught:
        carry(s.store, s.store.settings, CarriedRange(0, 0, 1, records), stale.fence)
    assert caught.value.name == "LeaseLost.lease_lost"
    assert s.store.pointers()[0].offset == -1
