"""The core routes on every pairing of log and store: what is recorded by HTTP is carried, queried and followed live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.testing import carry
from tests.pairings import PAIRINGS, pairing_of
from tests.server.test_frame import problem
from tests.server.test_journals import Listener, lines, placed
from tests.server.worlds import served

pytestmark = pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
NUMBERS = ["order|1", "order|2"]


@pytest.mark.parametrize("name", PAIRINGS)
def test_record_read_and_query(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with pairing_of(name, request, tmp_path).connect() as s, served(s, tmp_path) as server, server.client() as client:
        path = "/journals/order%7C1/events"
        first = {"If-Match": '"0"', "Idempotency-Key": "a"}
        events = [placed(1, tags=["blue"]), placed(2, tags=["blue"], metadata={"by": "ann"})]
        assert client.post(path, json={"events": events}, headers=first).json()["last"] == 2
        assert client.post(path, json={"events": events}, headers=first).json()["duplicate"] is True
        assert problem(client.post(path, json={"events": events}, headers={"If-Match": '"0"'})) == (409, "expected")
        many = [{"key": key, "events": [placed(number, tags=["blue"])]} for number, key in enumerate(NUMBERS, 3)]
        results = client.post("/append", json={"appends": many}).json()["results"]
        assert [one["appended"]["last"] for one in results] == [3, 1]
        assert [one["payload"]["total"] for one in lines(client.get(path))] == [1, 2, 3]
        assert client.get("/journals/order%7C1").headers["etag"] == '"3"'
        with server.client() as other:
            listener = Listener(other, "/tags/blue/live")
            carry(s)
            came = [json.loads(one["data"]) for one in listener.wait(4)]
            assert sorted((one["key"], one["seq_nr"]) for one in came) == [
                ("order|1", 1), ("order|1", 2), ("order|1", 3), ("order|2", 1),
            ]  # fmt: skip
            assert [one["seq_nr"] for one in came if one["key"] == "order|1"] == [1, 2, 3]
            assert lines(client.get("/tags/blue/events")) == came
            sliced = lines(client.get("/slices/order/0-1023/events"))
            assert sorted(one["payload"]["total"] for one in sliced) == [1, 2, 3, 4]
            assert client.get("/keys/order").json()["keys"] == [str(key) for key in s.journal.keys("order")]
            assert client.delete(f"{path}?to=2").json()["deleted"]["delete_to"] == 2
            assert [one["seq_nr"] for one in lines(client.get(path))] == [3]
            assert client.delete("/journals/order%7C2").status_code == 200
            assert lines(client.get("/journals/order%7C2/events")) == []
            assert client.get("/status").json()["lease_holder"] is None
            listener.stop()
            client.post(path, json={"events": [placed(9, tags=["blue"])]})
            carry(s)
            listener.thread.join()
