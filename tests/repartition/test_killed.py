"""A change of logs that was killed: one pairing holds, and the same call goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from strandline import Event, SchemaMismatch, connect
from strandline.repartition import POINTS, repartition, undo
from strandline.testing import carry
from tests.acceptance.cli_call import call
from tests.backup.conftest import Journals, words
from tests.repartition.places import Place, seq_nr

KEYS = [f"order|{number}" for number in range(12)]
KILLED = """
import json, sys
from strandline.repartition import repartition
from strandline.testing.points import kill_at
kill_at(sys.argv[1])
repartition(int(sys.argv[2]), sys.argv[3], **{"lease_s": 1, **json.loads(sys.argv[4])})
"""
BOTH_WAYS = ("repartition.begun", "repartition.paired")


def killed(point: str, partitions: int, to: str, where: dict[str, Any]) -> None:
    given = [point, str(partitions), to, json.dumps(where)]
    done = subprocess.run([sys.executable, "-c", KILLED, *given], check=False, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr


@pytest.mark.req("J124")
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_one_pairing_holds(alike: Journals, point: str) -> None:
    place = Place(alike, 8)
    for partitions in (32, 8) if point in BOTH_WAYS else (32,):
        before = dict(place.where)
        with connect(**before) as s:
            for key in KEYS:
                s.journal.append(key, [Event("Placed", tags=["blue"])], append_id=f"{partitions}")
            carry(s)
            s.journal.append(KEYS[0], [Event("Paid")])
            known = {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS}
        to = place.another_log()
        killed(point, partitions, to, before)
        after = {**before, "log": to}
        paired = after if point == "repartition.paired" else before
        other = before if paired is after else after
        with connect(**paired) as s:
            assert {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS} == known
            if point == "repartition.before_appends_end" or paired is after:
                s.journal.append(KEYS[1], [Event("Paid")])
                known[KEYS[1]] = [event.to_dict() for event in s.journal.read(KEYS[1])]
            else:
                with pytest.raises(SchemaMismatch) as refused:
                    s.journal.append(KEYS[1], [Event("Paid")])
                assert refused.value.code == "log_replaced"
        with pytest.raises(SchemaMismatch) as refused:
            connect(**other)
        assert refused.value.code == "log_replaced"
        done = repartition(partitions, to, lease_s=1, **before)
        assert done.done_before == (paired is after)
        place.where = after
        with connect(**after, lease_s=1) as s:
            assert {key: [event.to_dict() for event in s.journal.read(key)] for key in KEYS} == known
            for key in KEYS:
                assert s.journal.append(key, [Event("Placed", tags=["blue"])], append_id=f"{partitions}").duplicate
            carry(s)
            assert len(list(s.by_slices("order", 0, 1023))) == sum(map(len, known.values()))


@pytest.mark.req("J124")
def test_a_change_that_was_killed_is_taken_back(alike: Journals) -> None:
    place = Place(alike, 8)
    killed("repartition.begun", 32, place.another_log(), place.where)
    with connect(**place.where) as s:
        with pytest.raises(SchemaMismatch):
            s.journal.append(KEYS[0], [Event("Placed")])
        assert undo(lease_s=1, **place.where)
        s.journal.append(KEYS[0], [Event("Placed")])
    answer = call(
        "schema",
        "repartition",
        "32",
        to := place.another_log(),
        "--yes",
        "--json",
        "--set",
        "lease_s=1",
        *words(place.where),
    )
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["partitions"] == 32
    assert not undo(lease_s=1, log=place.where["log"], store=place.where["store"])
    with connect(log=to, store=place.where["store"]) as s:
        assert seq_nr(s, KEYS[0]) == 1
