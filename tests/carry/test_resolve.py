"""What an operator does with a quarantined record: one chain, each event once."""

from __future__ import annotations

from pathlib import Path

import pytest

import strandline.pipeline
from strandline import Event
from strandline.carry.resolve import resolve
from strandline.connect import Strandline
from strandline.errors import Corrupt, InvalidInput, NotFound
from strandline.record import Content, content_digest, encode_header, encode_value
from strandline.store.scans import quarantined
from strandline.testing import carry, raw_append
from strandline.values.actions import Append

KEY = "order|42"


def put(s: Strandline, number: int, *, damaged: bool = False, count: int = 1, tags: tuple[str, ...] = ()) -> int:
    """A raw append of `count` events; its offset."""
    events = tuple([("Placed", tags)] * count)
    value = encode_value([Content(1, b"%d" % number, None)] * count)
    header = encode_header(Append(KEY, events, f"{number:032x}", False, content_digest(events, None, value)))
    return raw_append(s, 0, key=KEY, header=header, value=value[:-1] if damaged else value).offset


def chain(s: Strandline) -> list[tuple[int, int, object]]:
    return [(event.seq_nr, event.prev_seq_nr, event.payload) for event in s.journal.read(KEY)]


@pytest.mark.req("J98", "J10")
@pytest.mark.parametrize(
    ("bad", "left"),
    [
        (1, [(2, 0, 2), (3, 2, 3), (4, 3, 4)]),
        (2, [(1, 0, 1), (3, 1, 3), (4, 3, 4)]),
        (3, [(1, 0, 1), (2, 1, 2), (4, 2, 4)]),
    ],
)
def test_skip_turns_a_damaged_event_into_a_gap(s: Strandline, bad: int, left: list[tuple[int, int, int]]) -> None:
    offsets = [put(s, number, damaged=number == bad) for number in (1, 2, 3)]
    carry(s)
    resolve(s.log, s.store, 0, offsets[bad - 1], "skip", s.settings)
    assert quarantined(s.store) == []
    assert chain(s) == [row for row in left if row[0] != 4]
    put(s, 4)
    assert chain(s) == left, "the next event, still in the log"
    carry(s)
    assert chain(s) == left


@pytest.mark.req("J98")
def test_skip_of_several_leaves_one_chain(s: Strandline) -> None:
    put(s, 1)
    first = put(s, 2, damaged=True, count=3)
    second = put(s, 3, damaged=True)
    put(s, 4)
    carry(s)
    resolve(s.log, s.store, 0, second, "skip", s.settings)
    resolve(s.log, s.store, 0, first, "skip", s.settings)
    assert chain(s) == [(1, 0, 1), (6, 1, 4)]
    head = s.journal.head(KEY)
    assert head is not None
    assert head.seq_nr == 6


@pytest.mark.req("J98")
def test_retry_fills_the_rows_once_they_can_be_read(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s, 1)
    offset = put(s, 2, damaged=True)
    put(s, 3)
    carry(s)
    with pytest.raises(Corrupt) as caught:
        resolve(s.log, s.store, 0, offset, "retry", s.settings)
    assert caught.value.name == "Corrupt.undecodable"
    assert len(quarantined(s.store)) == 1
    monkeypatch.setattr("strandline.carry.resolve.read_contents", lambda *_: [Content(1, b'"mended"', None)])
    resolve(s.log, s.store, 0, offset, "retry", s.settings)
    assert quarantined(s.store) == []
    assert chain(s) == [(1, 0, 1), (2, 1, "mended"), (3, 2, 3)]


@pytest.mark.req("T86", "J98")
def test_the_tag_rows_of_an_event_follow_what_an_operator_does(s: Strandline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip leaves a filler behind, which a query passes over; a retry puts the mended event into its row."""
    put(s, 1, tags=("x",))
    skipped = put(s, 2, damaged=True, tags=("x", "y"))
    put(s, 3, tags=("x",))
    retried = put(s, 4, damaged=True, tags=("x", "y"))
    put(s, 5, tags=("x",))
    carry(s)

    def by_tag(tag: str) -> list[tuple[int, int, int, bool]]:
        return [(event.tag_seq_nr, event.seq_nr, event.prev_seq_nr, event.damaged) for event in s.by_tag(tag)]

    assert by_tag("x") == [(1, 1, 0, False), (2, 2, 1, True), (3, 3, 2, False), (4, 4, 3, True), (5, 5, 4, False)]
    resolve(s.log, s.store, 0, skipped, "skip", s.settings)
    assert by_tag("x") == [(1, 1, 0, False), (3, 3, 1, False), (4, 4, 3, True), (5, 5, 4, False)]
    assert by_tag("y") == [(2, 4, 3, True)]
    monkeypatch.setattr("strandline.carry.resolve.read_contents", lambda *_: [Content(1, b'"mended"', None)])
    resolve(s.log, s.store, 0, retried, "retry", s.settings)
    assert by_tag("x") == [(1, 1, 0, False), (3, 3, 1, False), (4, 4, 3, False), (5, 5, 4, False)]
    assert [event.payload for event in s.by_tag("y")] == ["mended"]
    put(s, 6, tags=("x", "y"))
    carry(s)
    assert by_tag("x")[-1] == (6, 6, 5, False)
    assert by_tag("y") == [(2, 4, 3, False), (3, 6, 5, False)]


@pytest.mark.req("J98")
def test_a_record_without_effect_can_only_be_skipped(s: Strandline) -> None:
    offset = raw_append(s, 0, key="who|knows", value=b"not ours").offset
    carry(s)
    with pytest.raises(InvalidInput) as caught:
        resolve(s.log, s.store, 0, offset, "retry", s.settings)
    assert caught.value.code == "how"
    resolve(s.log, s.store, 0, offset, "skip", s.settings)
    assert quarantined(s.store) == []


@pytest.mark.req("J98")
def test_bad_ways_and_places_are_refused(s: Strandline) -> None:
    offset = put(s, 1, damaged=True)
    carry(s)
    with pytest.raises(InvalidInput) as caught:
        resolve(s.log, s.store, 0, offset, "forget", s.settings)
    assert (caught.value.code, caught.value.hint) == ("how", "give skip or retry")
    with pytest.raises(NotFound) as missing:
        resolve(s.log, s.store, 0, offset + 1, "skip", s.settings)
    assert missing.value.code == "quarantine"
    assert len(quarantined(s.store)) == 1


@pytest.mark.req("J98", "J48")
def test_what_was_deleted_or_purged_meanwhile_is_only_taken_off_the_list(s: Strandline) -> None:
    s.journal.append("order|1", [Event("Placed", 1)])
    offset = put(s, 1, damaged=True)
    carry(s)
    put(s, 2)
    carry(s)
    assert [row.offset for row in quarantined(s.store)] == [offset]
    from strandline.values.actions import Delete, Purge

    raw_append(s, 0, key=KEY, header=encode_header(Delete(KEY, 1, life=1)))
    carry(s)
    resolve(s.log, s.store, 0, offset, "skip", s.settings)
    assert chain(s) == [(2, 1, 2)]
    offset = put(s, 3, damaged=True)
    carry(s)
    raw_append(s, 0, key=KEY, header=encode_header(Purge(KEY)))
    carry(s)
    assert quarantined(s.store) == [], "a purge takes the bytes along"


@pytest.mark.req("J98")
def test_an_operator_lists_and_resolves_by_url(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/orders"
    with strandline.connect(url, partitions=1) as s:
        put(s, 1)
        offset = put(s, 2, damaged=True)
        carry(s)
        (listed,) = strandline.pipeline.quarantine(url)
        assert (listed.offset, listed.key, listed.reason) == (offset, KEY, "undecodable")
        strandline.pipeline.resolve(url, 0, offset, "skip")
        assert strandline.pipeline.quarantine(url) == []
        assert chain(s) == [(1, 0, 1)]
