"""Another number of partitions: all that was there stays as it was, and goes on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from strandline import Conflict, Event, InvalidInput, LeaseHeld, SchemaMismatch, Unsupported, connect
from strandline.backup import backup, restore, verify, verify_backup
from strandline.carry.resolve import resolve
from strandline.connect import Strandline
from strandline.pipeline.expiry import purge_expired
from strandline.repartition import repartition, undo
from strandline.store.scans import quarantined
from strandline.testing import carry, raw_append
from strandline.values.keys import key_partition
from tests.acceptance.cli_call import call
from tests.backup.conftest import Journals, words
from tests.pipeline.test_pairings import draft_of
from tests.reconcile.planting import reconciled
from tests.repartition.places import Place, seq_nr

KEYS = [f"order|{number}" for number in range(24)]


def fill(s: Strandline, round_: int) -> None:
    """Something of everything; the last of it is in the log alone."""
    for number, key in enumerate(KEYS):
        events = [Event("Placed", {"n": number}, tags=["blue"], metadata={"round": round_}), Event("Paid")]
        s.journal.append(key, events, append_id=f"{round_}-{number}")
    s.journal.delete(KEYS[1], to=seq_nr(s, KEYS[1]) - 1)
    s.journal.append("gone|1", [Event("Placed", tags=["blue"])])
    s.journal.purge("gone|1")
    carry(s)
    s.journal.save_snapshot(KEYS[2], seq_nr(s, KEYS[2]), {"round": round_})
    s.journal.append(KEYS[3], [Event("Placed", {"late": round_}, tags=["blue"])])
    s.journal.purge("gone|2")


def all_of(s: Strandline) -> dict[str, Any]:
    """What readers see."""
    keys = [*KEYS, "gone|1", "gone|2"]
    return {
        "events": {key: [event.to_dict() for event in s.journal.read(key)] for key in keys},
        "heads": {key: head and (*head[:3], *head[5:]) for key in keys for head in [s.journal.head(key)]},
        "slices": [event.to_dict() for event in s.by_slices("order", 0, 1023)],
        "tags": [event.to_dict() for event in s.by_tag("blue")],
        "recovered": s.journal.recover(KEYS[2]).snapshot,
    }


@pytest.mark.req("J124")
def test_there_and_back(journals: Journals) -> None:
    place = Place(journals, 8)
    for round_, partitions in enumerate((32, 8), 1):
        with place.connect() as s:
            fill(s, round_)
            carry(s)
            before, line = all_of(s), s.strandline()
            s.journal.append(KEYS[4], [Event("Placed", {"in": "the log alone"}, tags=["blue"])])
            history, log = s.store.settings.history_id, s.log.log_id
        place.repartition(partitions)
        with place.connect() as s:
            assert (s.log.partitions, s.store.settings.partitions) == (partitions, partitions)
            assert s.store.settings.history_id == history
            assert s.log.log_id != log
            now = all_of(s)
            last = now["events"][KEYS[4]].pop()
            assert last["payload"] == {"in": "the log alone"}
            assert now["slices"].pop()["timestamp"] == now["tags"].pop()["timestamp"] == last["timestamp"]
            del before["heads"][KEYS[4]], now["heads"][KEYS[4]]
            assert now == before
            assert s.strandline() > line
            answer = s.journal.append(KEYS[0], [Event("Next")], expected=before["heads"][KEYS[0]][0])
            assert answer.partition == key_partition(KEYS[0], partitions)
            assert (answer.timestamp or 0) > max(event["timestamp"] for event in before["slices"])
            s.journal.wait_replicated(answer) if carry(s) else None
            assert [event["seq_nr"] for event in all_of(s)["events"][KEYS[0]]][-1] == answer.last
            assert reconciled(s).findings == []


@pytest.mark.req("J124")
def test_what_a_key_remembers(journals: Journals) -> None:
    """Numbers, ids of appends, lives of purged keys, expiry: of keys that the new log has never seen."""
    place = Place(journals, 8)
    with place.connect() as s:
        fill(s, 1)
        first = s.journal.append(KEYS[5], [Event("Placed")], append_id="mine", expire_after=timedelta(microseconds=1))
    place.repartition(32)
    with place.connect() as s:
        again = s.journal.append(KEYS[5], [Event("Placed")], append_id="mine")
        assert (again.first, again.duplicate, again.timestamp) == (first.first, True, first.timestamp)
        s.journal.wait_replicated(again)
        assert s.wait_for_strandline(first)
        with pytest.raises(InvalidInput) as reused:
            s.journal.append(KEYS[5], [Event("Paid")], append_id="mine")
        assert reused.value.code == "append_id_reused"
        with pytest.raises(Conflict) as refused:
            s.journal.append(KEYS[6], [Event("Paid")], expected=0)
        assert refused.value.actual == seq_nr(s, KEYS[6])
        assert s.journal.append("gone|1", [Event("Placed")]).last == 1
        assert next(s.journal.read("gone|1")).life == 2
        carry(s)
        assert next(s.journal.read("gone|1")).life == 2
    purged = purge_expired(**place.where)
    assert [str(key) for key in purged] == [KEYS[5]]
    with place.connect() as s:
        carry(s)
        assert s.journal.head(KEYS[5]) is None


@pytest.mark.req("J124")
def test_who_has_the_old_log_open_is_refused(journals: Journals) -> None:
    """Nothing is acknowledged into a log that nobody carries, and nothing is read beside it."""
    place = Place(journals, 8)
    old = dict(place.where)
    with place.connect() as s, place.connect() as other:
        fill(s, 1)
        query = s.by_slices("order", 0, 1023, live=True)
        assert next(query).seq_nr == 1
        halfway = s.journal.read(KEYS[0])
        next(halfway)
        offset = next(iter(s.by_tag("blue"))).offset
        kept = s.log.newest()
        place.repartition(32)
        for key in KEYS:
            for service in (s, other):
                with pytest.raises(SchemaMismatch) as refused:
                    service.journal.append(key, [Event("Lost")])
                assert (refused.value.code, refused.value.applied) == ("log_replaced", "no")
        assert s.log.newest() == kept
        assert [event.seq_nr for event in halfway] == [2]  # it was planned before, and is whole
        for act in (
            lambda: list(s.journal.read(KEYS[0])),
            lambda: s.journal.head(KEYS[0]),
            lambda: list(query),
            lambda: list(s.by_slices("order", 0, 1023)),
            lambda: list(s.by_tag("blue")),
            lambda: s.journal.save_snapshot(KEYS[0], 1, {}),
            s.strandline,
            s.status,
            lambda: s.store.lease().take("an old pipeline"),
            lambda: carry(s),
        ):
            with pytest.raises(SchemaMismatch) as refused:
                act()
            assert refused.value.code == "log_replaced"
        with place.connect() as now:
            now.journal.append(KEYS[0], [Event("Kept")])
            carry(now)
            with pytest.raises(SchemaMismatch):
                list(s.journal.read(KEYS[0]))
            assert "Kept" in {event.type for event in now.by_slices("order", 0, 1023)}
            assert len(list(now.by_tag("blue", after=str(offset)))) == len(list(now.by_tag("blue"))) - 1
    with pytest.raises(SchemaMismatch) as refused:
        connect(**old)
    assert refused.value.code == "log_replaced"
    assert "repartitioned" in refused.value.hint


@pytest.mark.req("J124")
def test_what_is_quarantined_is_resolved_behind_it(journals: Journals) -> None:
    place = Place(journals, 8)
    with place.connect() as s:
        partition = s.journal.append(KEYS[0], [Event("Placed")]).partition
        raw_append(s, 7, key="who|knows", header=b"nothing", value=None)
        s.log.append([draft_of(KEYS[0], partition, b"no value")])
        s.journal.append(KEYS[0], [Event("Sent")])
        carry(s)
    place.repartition(32)
    with place.connect() as s:
        for listed in quarantined(s.store):
            resolve(s.log, s.store, listed.partition, listed.offset, "skip", s.settings)
        assert quarantined(s.store) == []
        assert [event.seq_nr for event in s.journal.read(KEYS[0])] == [1, 4]
        assert [event.seq_nr for event in s.by_slices("order", 0, 1023)] == [1, 4]
        assert reconciled(s).findings == []


@pytest.mark.req("J124")
def test_what_is_refused_changes_nothing(alike: Journals) -> None:
    place = Place(alike, 8)
    with place.connect() as s:
        fill(s, 1)
        lease = s.store.lease().take("a pipeline")
        with pytest.raises(LeaseHeld):
            place.repartition(32)
        lease.release()
        s.journal.append(KEYS[0], [Event("Paid")])
        with pytest.raises(InvalidInput) as refused:
            repartition(32, place.where["log"], **place.where)
        assert refused.value.code == "not_empty"
        with pytest.raises(InvalidInput) as refused:
            repartition(8, place.another_log(), **place.where)
        assert refused.value.code == "setting"
        used = Place(alike, 4, "used")
        with used.connect() as another:
            another.journal.append(KEYS[0], [Event("Placed")])
        with pytest.raises(InvalidInput) as refused:
            repartition(4, used.where["log"], **place.where)
        assert refused.value.code == "not_empty"
        s.journal.append(KEYS[0], [Event("Paid")])
    with pytest.raises(Unsupported) as told:
        repartition(4, "memory:", **place.where)
    assert told.value.code == "repartition"


@pytest.mark.req("J124")
def test_an_error_on_the_way_gives_the_old_log_back(alike: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(alike, 8)
    with place.connect() as s:
        fill(s, 1)

        def fails(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr("strandline.store.sql_store.pair", fails)
            with pytest.raises(KeyboardInterrupt):
                place.repartition(32)
        s.journal.append(KEYS[0], [Event("Paid")])
        carry(s)
        assert undo(**place.where)


@pytest.mark.req("J124", "RS4")
def test_doctor_verify_and_backup_know_it(alike: Journals, tmp_path: Path) -> None:
    place = Place(alike, 8)
    with place.connect() as s:
        fill(s, 1)
    place.repartition(32)
    for again in (False, True):
        answer = call("doctor", *words(place.where))
        assert answer.code == 0, answer.out + answer.err
        assert verify(**place.where).damages == []
        path = tmp_path / f"copy-{again}"
        backup(path, **place.where)
        assert verify_backup(path).damages == []
        with place.connect() as s:
            fill(s, 2)
            seen = all_of(s)
    there: dict[str, Any] = {"log": place.another_log(), "store": place.another_log()}
    restore(path, **there)
    with connect(**there) as s:
        assert s.log.partitions == 32
        assert set(all_of(s)["events"]) == set(seen["events"])
        assert s.journal.append(KEYS[7], [Event("Next")]).last == seq_nr(s, KEYS[7])
        carry(s)
        assert reconciled(s).findings == []
