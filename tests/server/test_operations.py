"""Projections, work journals and event groups, over real HTTP."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

import strandline
from strandline import BySlices, Event, Group, Projection, WorkDeclaration
from strandline.clock import now_us
from strandline.connect import Strandline
from strandline.testing import carry
from tests.projection.worlds import QUICK, caught_up, running, until
from tests.server.test_frame import problem
from tests.server.test_journals import acts
from tests.server.worlds import Served, served


def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---------------------------------------------------------------- projections


@pytest.mark.req("D11")
def test_projections(client: httpx.Client, s: Strandline) -> None:
    mended: list[bool] = []

    def handle(tx: Any, event: Any) -> None:
        if event.payload == "bad" and not mended:
            raise ValueError("a bad one")

    for number in range(1, 4):
        s.journal.append(f"item|{number}", [Event("Seen", "bad" if number == 2 else number)])
    s.journal.append("item|2", [Event("Seen", 7)])
    carry(s)
    projection = Projection("totals", BySlices("item"), handle, on_failure="park", retries=0, **QUICK)
    assert done(client.get("/projections")) == {"projections": []}
    with running(s, projection):
        until(lambda: caught_up(s))
        until(lambda: done(client.get("/projections/totals/parked"))["keys"] == ["item|2"])
        shown = done(client.get("/projections/totals"))
        assert (shown["name"], shown["state"], shown["paused"]) == ("totals", "serving", False)
        letters = done(client.get("/projections/totals/dead-letters"))["dead_letters"]
        assert (letters[0]["key"], letters[0]["seq_nr"]) == ("item|2", 1)
        since = now_us()
        paused = done(client.post("/projections/totals/pause", json={"why": "to look", "timeout_s": 10}))
        assert paused == {"done": []}
        asked, ended = acts(s, since)
        assert (asked["what"], asked["on"], asked["why"]) == ("projection.pause", "totals", "to look")
        assert (asked["before"][0]["paused"], ended["after"][0]["paused"]) == (False, True)
        assert done(client.post("/projections/totals/rescale", json={"n": 2, "timeout_s": 10})) == {"done": True}
        assert done(client.post("/projections/totals/resume", json={})) == {}
        until(lambda: caught_up(s))
        assert len(done(client.get("/projections/totals"))["ranges"]) == 2
        mended.append(True)
        done(client.post("/projections/totals/unpark", json={"key": "item|2"}))
        until(lambda: done(client.get("/projections/totals/parked"))["keys"] == [])
    assert problem(client.get("/projections/none")) == (404, "projection")
    since = now_us()
    assert problem(client.post("/projections/none/pause", json={})) == (404, "projection")
    assert acts(s, since) == []
    assert problem(client.post("/projections/totals/rescale", json={})) == (422, "option")
    assert problem(client.post("/projections/totals/rescale", json={"n": 0})) == (422, "slice_range")
    assert done(client.post("/projections/totals/rename", json={"new": "sums"})) == {}
    assert done(client.post("/projections/sums/reset", json={})) == {}
    assert done(client.post("/projections/sums/drop", json={})) == {}
    assert done(client.get("/projections")) == {"projections": []}


@pytest.mark.req("D2", "D11")
def test_an_admin_act_needs_its_scope_and_a_place_for_its_record(
    server: Served, s: Strandline, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.journal.append("order|kept", [Event("Placed", 1)])
    every = [route for route in server.app.table.routes if route.scope == "admin" and route.in_document]
    assert len(every) >= 15
    with server.client(server.token_for("append", "read", "work", "group")) as other:
        for route in every:
            path = route.path.replace("{", "").replace("}", "").replace("/id/fence", "/1/1").replace("/id", "/1")
            refused = other.request(route.method, path.replace("dead_id", "1"))
            assert problem(refused) == (403, "scope"), route.path

    def away(*_: object, **__: object) -> None:
        raise strandline.Unavailable("away", code="away")

    with server.client() as client:
        monkeypatch.setattr(s.journal, "append_reserved", away)
        assert problem(client.delete("/journals/order%7Ckept")) == (503, "away")
        assert s.journal.head("order|kept") is not None


# ---------------------------------------------------------------- work


@pytest.fixture(scope="module")
def mails(s: Strandline) -> strandline.WorkJournal:
    return s.work(
        WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}, retry_delay_s=0.01, max_timeouts=1)
    )


def test_work_from_add_to_done(client: httpx.Client, mails: strandline.WorkJournal) -> None:
    entry = {"key": {"order": 1}, "data": {"to": "ann"}}
    added = done(client.post("/work/mails/entries", json=entry, headers={"Idempotency-Key": "m 1"}))
    again = done(client.post("/work/mails/entries", json=entry, headers={"Idempotency-Key": "m 1"}))
    assert (added["outcome"], again["outcome"]) == ("inserted", "repeated")
    assert done(client.get("/work/mails/entry", params={"columns": '{"order": 1}'}))["data"] == {"to": "ann"}
    many = [{"key": {"order": number}, "data": {"to": "bob"}} for number in (2, 3)]
    assert len(done(client.post("/work/mails/adds", json={"adds": many}))["added"]) == 2
    batch = done(client.post("/work/mails/claims", json={"limit": 10, "owner": "me"}))
    assert [one["entry"]["key"] for one in batch["claims"]] == [{"order": 1}, {"order": 2}, {"order": 3}]
    ends = [(one["id"], one["fence"]) for one in batch["claims"]]
    claim = "/work/mails/claims/{}/{}/{}"
    done(client.post(claim.format(*ends[0], "heartbeat")))
    done(client.post(claim.format(*ends[0], "done")))
    assert problem(client.post(claim.format(*ends[0], "done"))) == (409, "lease_lost")
    done(client.post(claim.format(*ends[1], "release")))
    done(client.post(claim.format(*ends[2], "fail"), json={"text": "no such box"}))
    until(lambda: done(client.get("/work/mails"))["due"] == 2 or done(client.get("/work/mails"))["dead"])


def test_a_claim_that_waits_gets_what_comes(server: Served, mails: strandline.WorkJournal) -> None:
    with server.client() as client:
        while done(client.post("/work/mails/claims", json={"limit": 100}))["claims"]:
            pass
        answers: list[Any] = []
        waiting = Thread(
            target=lambda: answers.append(done(client.post("/work/mails/claims", json={"owner": "w", "wait_s": 20})))
        )
        waiting.start()
        mails.add({"order": 77}, {"to": "eve"})
        waiting.join(10)
        assert [one["entry"]["key"] for one in answers[0]["claims"]] == [{"order": 77}]


@pytest.mark.req("D11")
def test_what_operators_do_with_work(client: httpx.Client, s: Strandline, mails: strandline.WorkJournal) -> None:
    since = now_us()
    done(client.post("/work/mails/pause", json={"reason": "server moves", "why": "maintenance"}))
    mails.add({"order": 90}, {"to": "x"})
    assert done(client.post("/work/mails/claims", json={}))["paused"] == "server moves"
    done(client.post("/work/mails/resume"))
    id_ = mails.get({"order": 90}).id  # type: ignore[union-attr]
    done(client.post(f"/work/mails/entries/{id_}/drop", json={"why": "a mistake"}))
    assert mails.get({"order": 90}) is None
    told = [(one["what"], one["on"], one["why"]) for one in acts(s, since) if "what" in one]
    assert told == [
        ("work.pause", "mails", "maintenance"),
        ("work.resume", "mails", ""),
        ("work.drop", f"mails {id_}", "a mistake"),
    ]
    assert problem(client.get("/work/none")) == (404, "work_journal")
    assert problem(client.post("/work/mails/dead-letters/1/requeue")) == (404, "dead_letter")
    bad = client.post("/work/mails/entries", json={"key": {"order": "x"}, "data": {"to": "x"}})
    assert problem(bad) == (422, "column_type")


# ---------------------------------------------------------------- groups


def bonus(id_: str, amount: int) -> Group:
    group = Group(id_)
    text = "UPDATE accounts SET amount = amount + :n WHERE id = 1"
    group.update("give", text, {"n": amount}, target="shop")
    return group


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, strandline.Groups, Path]]:
    folder = tmp_path_factory.mktemp("groups")
    place = folder / "shop.db"
    with sqlite3.connect(place) as database:
        database.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")
        database.execute("INSERT INTO accounts VALUES (1, 100)")
    database.close()
    with strandline.connect(f"sqlite:{folder}/journal") as s:
        groups = s.groups("bonuses", targets={"shop": f"sqlite:{place}"}, named={"bonus": bonus})
        with served(s, folder, groups=groups) as running_server:
            yield running_server, groups, place


@pytest.mark.req("D5")
def test_a_group_is_submitted_by_its_name_alone(shop: tuple[Served, strandline.Groups, Path]) -> None:
    server, groups, _ = shop
    with server.client() as client:
        given = {"name": "bonus", "parameters": {"id_": "b1", "amount": 5}}
        assert done(client.post("/groups/bonuses", json=given)) == {"id": "b1", "stream": "bonuses"}
        assert done(client.get("/groups/bonuses/b1"))["state"] == "queued"
        groups.processor().run_until_idle()
        assert done(client.get("/groups/bonuses/b1?wait_s=10"))["state"] == "committed"
        assert "Defined" in [one["type"] for one in done(client.get("/groups/bonuses/b1/history"))["events"]]
        assert problem(client.get("/groups/bonuses/none")) == (404, "group")
        assert problem(client.post("/groups/bonuses", json={"name": "other"})) == (404, "group")
        assert problem(client.post("/groups/other", json=given)) == (404, "group")
        wrong = {"name": "bonus", "parameters": {"nothing": 1}}
        assert problem(client.post("/groups/bonuses", json=wrong)) == (422, "parameter_type")
        whole = json.loads(bonus("b2", 7).to_json())
        assert problem(client.post("/groups/bonuses", json={"group": whole})) == (403, "adhoc_groups")
        assert problem(client.get("/groups/bonuses/b2")) == (404, "group")
        assert done(client.post("/groups/bonuses/b1/cancel", json={}))["state"] == "committed"
        bad = client.post("/groups/bonuses/b1/resolve", json={"step": "give", "how": "force"})
        assert problem(bad) == (422, "step_state")


@pytest.mark.req("D5")
def test_whole_groups_are_taken_where_the_setting_says_so(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")
    database.close()
    with strandline.connect(f"sqlite:{tmp_path}/journal", allow_adhoc_groups=True) as s:
        groups = s.groups(targets={"shop": f"sqlite:{tmp_path}/shop.db"})
        with served(s, tmp_path, groups=groups) as server, server.client() as client:
            whole = json.loads(bonus("b2", 7).to_json())
            assert done(client.post("/groups/default", json={"group": whole}))["id"] == "b2"
            assert problem(client.post("/groups/default", json={"group": {"id": 1}}))[0] == 422
            assert groups.get("b2").state == "queued"
            assert done(client.get("/groups/default?state=open"))["groups"][0]["id"] == "b2"
            started = time.monotonic()
            assert done(client.get("/groups/default/b2?wait_s=0.2"))["state"] == "queued"
            assert time.monotonic() - started >= 0.2
