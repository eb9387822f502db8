"""A change of topics: brokers refuse records of the old one, and offsets of the new one begin above it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline import Event, SchemaMismatch, Unsupported, connect
from strandline.repartition import POINTS, repartition, undo
from strandline.testing import carry
from tests.lanes import needs_servers
from tests.pairings import pairing_of
from tests.reconcile.planting import reconciled
from tests.repartition.places import seq_nr
from tests.repartition.test_killed import killed

KEYS = [f"order|{number}" for number in range(12)]
pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")


def record(s: Any, id_: str) -> None:
    for key in KEYS:
        s.journal.append(key, [Event("Placed", {"id": id_}, tags=["blue"])], append_id=id_)


@needs_servers
@pytest.mark.req("J124")
@pytest.mark.parametrize("pairing", ["kafka-sqlite", "kafka-postgres"])
def test_there_and_back_on_topics(request: pytest.FixtureRequest, tmp_path: Path, pairing: str) -> None:
    """To a topic with more partitions, to one with fewer, and to a log in a file, which keeps heads."""
    pair = pairing_of(pairing, request, tmp_path)
    topics = [f"{pair.log}-{number}" for number in range(2)]
    where = dict(pair.where)
    with connect(**where, partitions=4) as s:
        record(s, "first")
    for number, (partitions, to) in enumerate(((12, topics[0]), (3, topics[1]), (8, f"sqlite:{tmp_path}/next.db"))):
        with connect(**where) as old:
            carry(old)
            record(old, f"round {number}")
            offset = str(next(iter(old.by_slices("order", 0, 1023))).offset)
            known = {key: [event.to_dict() for event in old.journal.read(key)] for key in KEYS}
            repartition(partitions, to, **where)
            with pytest.raises(SchemaMismatch) as refused:
                old.journal.append(KEYS[0], [Event("Lost")])
            assert refused.value.code == "log_replaced"
            with pytest.raises(SchemaMismatch):
                list(old.journal.read(KEYS[0]))
        where = {**where, "log": to}
        with connect(**where) as s:
            assert s.log.partitions == partitions
            assert {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS} == known
            for key in KEYS:
                assert s.journal.append(
                    key, [Event("Placed", {"id": "first"}, tags=["blue"])], append_id="first"
                ).duplicate
            last = s.journal.append(KEYS[0], [Event("Next")], expected=seq_nr(s, KEYS[0]))
            assert last.offset > max(event["log_offset"] for event in known[KEYS[0]])
            s.journal.delete(KEYS[1], to=1)
            carry(s)
            s.journal.wait_replicated(last)
            left = sum(len(list(s.journal.read(key))) for key in KEYS)
            assert len(list(s.by_slices("order", 0, 1023, after=offset))) == left - 1
            assert reconciled(s).findings == []
            s.journal.append(KEYS[1], [Event("Placed")])


@needs_servers
@pytest.mark.req("J124")
def test_a_topic_takes_records_again(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What is refused gives the topic back, and so does undo; a store without transactions is refused before."""
    pair = pairing_of("kafka-sqlite", request, tmp_path)
    with connect(**pair.where, partitions=2) as s:
        record(s, "first")
        s.log.end_appends()  # type: ignore[attr-defined]
        with pytest.raises(SchemaMismatch) as refused:
            s.journal.append(KEYS[0], [Event("Lost")])
        assert (refused.value.code, refused.value.applied) == ("log_replaced", "unknown")
    assert undo(**pair.where)
    with connect(**pair.where) as s:
        s.journal.append(KEYS[0], [Event("Paid")])
        assert [event.type for event in s.journal.read(KEYS[0])] == ["Placed", "Paid"]
    other = pairing_of("kafka-cassandra", request, tmp_path)
    with connect(**other.where, partitions=2) as s:
        record(s, "first")
        with pytest.raises(Unsupported) as told:
            repartition(4, f"{other.log}-next", **other.where)
        assert told.value.code == "repartition"
        s.journal.append(KEYS[0], [Event("Paid")])


@needs_servers
@pytest.mark.req("J124")
@pytest.mark.parametrize(
    "point", [POINTS[3], *(pytest.param(each, marks=pytest.mark.soak) for each in (*POINTS[:3], *POINTS[4:]))]
)
def test_killed_anywhere_one_topic_holds(request: pytest.FixtureRequest, tmp_path: Path, point: str) -> None:
    """As on SQL; but a read needs a record in the topic, too, so readers wait for the end of it as writers do."""
    pair = pairing_of("kafka-postgres", request, tmp_path)
    before, to = {**pair.where, "lease_s": 1.0}, f"{pair.log}-next"
    with connect(**before, partitions=4) as s:
        record(s, "first")
        carry(s)
        s.journal.append(KEYS[0], [Event("Paid")])
        known = {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS}
    killed(point, 12, to, before)
    after = {**before, "log": to}
    paired, other = (after, before) if point == "repartition.paired" else (before, after)
    with connect(**paired) as s:
        if point in POINTS[1:4]:
            with pytest.raises(SchemaMismatch):
                list(s.journal.read(KEYS[0]))
            assert len(list(s.by_slices("order", 0, 1023))) >= len(KEYS)
        else:
            assert {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS} == known
    if point not in POINTS[:3]:  # else it is not there yet
        with pytest.raises(SchemaMismatch) as refused:
            connect(**other)
        assert refused.value.code == "log_replaced"
    assert repartition(12, to, **before).done_before == (paired is after)
    with connect(**after) as s:
        assert {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS} == known
        for key in KEYS:
            again = s.journal.append(key, [Event("Placed", {"id": "first"}, tags=["blue"])], append_id="first")
            assert again.duplicate
        carry(s)
        assert len(list(s.by_slices("order", 0, 1023))) == sum(map(len, known.values()))
        assert reconciled(s).findings == []
