"""Metrics: what this process does is counted, how a journal stands is looked at; off, there is nothing."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import strandline
from strandline import Event, Group, SeqNrConflict, WorkDeclaration, Worker, aio, metrics, seams
from strandline.connect import Strandline
from strandline.errors import InvalidInput, LeaseLost, Unavailable
from strandline.metrics.started import Metrics
from strandline.projection.definition import Projection
from strandline.testing import carry
from strandline.testing.faults import Faults, fail
from tests.projection.worlds import ORDERS, QUICK, caught_up, running, until

TAKE = "update account set amount = amount - 1 where id = 1"
TWO = [Event("Placed", {"total": 1}), Event("Paid")]


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Strandline]:
    with strandline.connect(f"sqlite:{tmp_path}/shop", partitions=2) as opened:
        yield opened


@pytest.fixture
def counted(s: Strandline) -> Iterator[Metrics]:
    with metrics.start(s) as started:
        yield started


def value(counted: Metrics, metric: str, /, **labels: str) -> float | None:
    return counted.registry.get_sample_value(f"strandline_{metric}", labels)


def test_appends_by_outcome_with_their_events_and_times(s: Strandline, counted: Metrics) -> None:
    s.journal.append("order|1", TWO)
    s.journal.append_future("order|2", TWO).result()
    answers = s.journal.append_many(iter([("order|3", TWO), ("order|1", TWO, {"expected": 9})]))
    with pytest.raises(SeqNrConflict):
        s.journal.append("order|1", TWO, expected=0)
    with pytest.raises(SeqNrConflict):
        s.journal.append_future("order|1", TWO, expected=0).result()
    with pytest.raises(InvalidInput):
        s.journal.append("order|1", [])
    with pytest.raises(InvalidInput):
        s.journal.append_future("group|1", TWO)
    assert isinstance(answers[1], SeqNrConflict)
    s.journal.append("order|4", TWO, append_id="request 7")
    s.journal.append("order|4", TWO, append_id="request 7")
    until(lambda: value(counted, "appends_total", outcome="recorded") == 4)  # a future may be told before its counter
    until(lambda: value(counted, "appends_total", outcome="conflict") == 3)
    assert value(counted, "appends_total", outcome="duplicate") == 1
    assert value(counted, "appends_total", outcome="refused") == 2
    assert value(counted, "events_appended_total") == 8
    assert value(counted, "append_seconds_count") == 4, "of one alone; many have no time of their own"
    assert value(counted, "commit_seconds_count") == value(counted, "commit_actions_count") == 7
    assert value(counted, "commit_actions_sum") == 8


def test_an_append_that_fails_says_whether_it_may_be_recorded(s: Strandline, counted: Metrics) -> None:
    faults = Faults()
    broken = Strandline(faults.around("log", s.log), s.store)
    for applied in ("no", "unknown"):
        faults.at("before log.append", fail(Unavailable("the log is away", code="away", applied=applied)))
        with pytest.raises(Unavailable):
            broken.journal.append("order|1", TWO)
    assert value(counted, "appends_total", outcome="failed") == 1
    assert value(counted, "appends_total", outcome="unknown") == 1


def test_from_asyncio_too(tmp_path: Path, counted: Metrics) -> None:
    async def main() -> None:
        async with aio.connect(f"sqlite:{tmp_path}/other") as other:
            await other.journal.append("order|1", TWO)
            assert [event.seq_nr async for event in other.journal.read("order|1")] == [1, 2]

    asyncio.run(main())
    assert value(counted, "appends_total", outcome="recorded") == 1
    assert value(counted, "events_read_total") == 2


def test_reads_those_that_are_left_early_too(s: Strandline, counted: Metrics) -> None:
    s.journal.append("order|1", TWO)
    list(s.journal.read("order|1"))
    early = s.journal.read("order|1")
    next(early)
    early.close()  # type: ignore[attr-defined]
    list(s.journal.read("group_stream|default"))
    assert value(counted, "reads_total") == value(counted, "read_seconds_count") == 2, "none of those of groups"
    assert value(counted, "events_read_total") == 3


def test_how_a_journal_stands_is_looked_at_when_it_is_asked(s: Strandline, counted: Metrics) -> None:
    answer = s.journal.append("order|1", TWO)
    partition = str(answer.partition)
    assert value(counted, "up") == 1
    assert value(counted, "lag_actions", partition=partition) == 1
    assert value(counted, "age_seconds") is None, "nothing was carried: it has no age"
    assert value(counted, "pipeline_running") == 0
    lease = s.store.lease().take("test")
    carry(s, lease=lease)
    assert value(counted, "pipeline_running") == 1
    lease.release()
    assert value(counted, "lag_actions", partition=partition) == 0
    assert value(counted, "lag_seconds", partition=partition) == 0
    assert value(counted, "partition_failed", partition=partition) == 0
    assert 0 < (value(counted, "age_seconds") or 0) < 60
    assert value(counted, "quarantined") == 0


def test_a_journal_that_cannot_be_looked_at_is_down(s: Strandline, counted: Metrics) -> None:
    s.close()
    assert value(counted, "up") == 0
    assert value(counted, "lag_actions", partition="0") is None
    assert value(counted, "reads_total") == 0, "what this process counts is there all the same"


def test_projections(s: Strandline, counted: Metrics) -> None:
    def handle(tx: Any, event: Any) -> None:
        if event.type == "Bad":
            raise ValueError

    s.journal.append("order|1", [*TWO, Event("Bad")])
    carry(s)
    one = Projection("totals", ORDERS, handle, on_failure="park", retries=1, **QUICK)
    with running(s, one):
        until(lambda: value(counted, "projection_parked", name="totals", generation="1") == 1)
    assert value(counted, "handled_events_total", projection="totals") == 4, "two events, and again without the third"
    assert value(counted, "handler_seconds_count", projection="totals") == 4
    assert value(counted, "handler_failures_total", projection="totals") == 2
    assert value(counted, "projection_dead_letters", name="totals", generation="1") == 1
    assert value(counted, "projection_ranges", name="totals", generation="1") == 2


def test_a_list_counts_its_events(s: Strandline, counted: Metrics) -> None:
    s.journal.append("order|1", TWO)
    carry(s)
    with running(s, Projection("lists", ORDERS, lambda tx, events: None, group_size=2, **QUICK)):
        until(lambda: caught_up(s, "lists"))
    assert value(counted, "handled_events_total", projection="lists") == 2
    assert value(counted, "handler_seconds_count", projection="lists") == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_groups(s: Strandline, counted: Metrics, tmp_path: Path, at_once: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("strandline.group.turn.SEGMENTS", at_once)
    _account(tmp_path / "shop.db")
    groups = s.groups(targets={"shop": f"sqlite:{tmp_path}/shop.db"}, retries=0)
    good, bad = Group("good"), Group("bad")
    good.update("take", TAKE, target="shop")
    bad.update("take", TAKE, target="shop")
    bad.insert("twice", "insert into account (id, amount) values (1, 5)", target="shop", depends_on=["take"])
    groups.submit(good)
    groups.submit(bad)
    groups.processor().run_until_idle()
    assert value(counted, "groups_ended_total", outcome="committed") == 1
    assert value(counted, "groups_ended_total", outcome="rolled_back") == 1
    assert value(counted, "group_steps_total", outcome="failed") == 1
    assert value(counted, "group_steps_total", outcome="succeeded") == 2
    assert (value(counted, "group_step_seconds_count") or 0) >= 2
    carry(s)
    assert value(counted, "group_rollback_failed", stream="default") == 0


def _account(path: Path) -> None:
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("create table account (id integer primary key, amount integer)")
    connection.execute("insert into account values (1, 10)")
    connection.close()


def test_work(s: Strandline, counted: Metrics) -> None:
    mails = s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}, retry_delay_s=0, max_timeouts=0))
    mails.add({"order": 1}, {"to": "ann"})
    mails.add({"order": 1}, {"to": "bob"})
    mails.add({"order": 2}, {"to": "bad"})

    def send(claim: Any) -> None:
        if claim.entry.data["to"] == "bad":
            worker.stop()
            raise ValueError

    worker = Worker(s, {"mails": send})
    worker.run()
    (lost,) = _claim(mails, {"order": 3})
    mails.drop(lost.entry.id)
    with pytest.raises(LeaseLost):
        lost.done()
    assert value(counted, "work_adds_total", journal="mails", outcome="inserted") == 3
    assert value(counted, "work_claims_total", journal="mails") == 3
    assert value(counted, "work_ended_total", journal="mails", outcome="done") == 1
    assert value(counted, "work_ended_total", journal="mails", outcome="failed") == 1
    assert value(counted, "work_seconds_count", journal="mails") == 2
    assert value(counted, "leases_lost_total", part="work") == 1
    assert value(counted, "work_running", journal="mails") == 0


def _claim(mails: Any, key: dict[str, int]) -> Any:
    mails.add(key, {"to": "ann"}, priority=1)
    return mails.cursor("me").claim().claims


def test_a_lease_of_a_stream_that_is_lost(s: Strandline, counted: Metrics) -> None:
    groups = s.groups(lease_s=1)
    slow = groups.processor()

    def run() -> None:
        with suppress(LeaseLost):
            slow.run()

    thread = Thread(target=run)
    thread.start()
    until(lambda: slow.lease is not None)
    assert slow.lease is not None
    slow.lease._lost = "somebody else took it over"
    thread.join(10)
    assert value(counted, "leases_lost_total", part="group") == 1


def test_a_lease_of_a_range_that_is_lost(s: Strandline, counted: Metrics) -> None:
    s.journal.append("order|1", TWO)
    carry(s)
    with running(s, Projection("totals", ORDERS, lambda tx, event: None, **QUICK)):
        until(lambda: caught_up(s))
        with s.open_offsets(None).store.closed_after() as store, store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute("UPDATE projection_range SET fence = fence + 1")
        s.journal.append("order|1", TWO)
        carry(s)
        until(lambda: value(counted, "leases_lost_total", part="projection"))


def test_the_text_is_what_prometheus_reads_also_over_http(s: Strandline, counted: Metrics) -> None:
    s.journal.append("order|1", TWO)
    body, kind = counted.text()
    assert b'strandline_appends_total{outcome="recorded"} 1.0' in body
    assert kind.startswith("text/plain")
    assert b"# EOF" in counted.text("application/openmetrics-text; version=1.0.0")[0]
    port = counted.serve(0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert b"strandline_up 1.0" in answer.read()


def test_before_and_after_the_methods_are_as_they_were(s: Strandline) -> None:
    every = [one for one in vars(seams).values() if isinstance(one, seams.Seam)]
    assert len(every) > 15
    before = [one.now for one in every]
    registry = CollectorRegistry()
    first, second = metrics.start(s, registry=registry), metrics.start()
    assert all(one.now is not was for one, was in zip(every, before, strict=True))
    first.stop()
    s.journal.append("order|1", TWO)
    assert value(second, "events_appended_total") == 2
    second.stop()
    second.stop()
    assert [one.now for one in every] == before
    assert not list(registry.collect()), "the caller's registry is as it was"


DOCS = Path(__file__).parents[2] / "docs"


def test_the_guide_lists_every_name_and_the_dashboard_knows_them(s: Strandline, counted: Metrics) -> None:
    s.work(WorkDeclaration("mails", key={"order": "int"}, data={"to": "text"}))
    s.groups().load_code("price", "1")
    carry(s)
    with running(s, Projection("totals", ORDERS, lambda tx, event: None, **QUICK)):
        found = {family.name + ("_total" if family.type == "counter" else "") for family in counted.registry.collect()}
    found |= {"strandline_age_seconds"}
    rows = [line for line in (DOCS / "METRICS.md").read_text().splitlines() if line.startswith("| `strandline_")]
    listed = {
        "strandline" + name.removeprefix("strandline")
        for row in rows
        for name in re.findall(r"`((?:strandline)?_\w+)`", row.split("|")[1])
    }
    assert listed == found
    dashboard = (DOCS / "grafana.json").read_text()
    used = set(re.findall(r"strandline_\w+", " ".join(_expressions(json.loads(dashboard)))))
    histograms = {name + end for name in found for end in ("_bucket", "_count", "_sum")}
    assert used <= found | histograms
    assert len(used) > 30


def _expressions(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
