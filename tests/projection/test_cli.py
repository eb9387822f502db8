"""Projections from the command line, in processes that are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import strandline
from strandline import BySlices, Key, Projection
from tests.acceptance.cli_call import COMMAND, call
from tests.projection.worlds import QUICK, caught_up, everything, running, until
from tests.query.filling import carry_all, put

PROJECTIONS = """
import os
import time
from strandline import BySlices, Projection

QUICK = dict(refresh_interval_s=0.02, restart_min_s=0.05, restart_max_s=0.1, save_after=5)


def add(tx, event):
    tx.execute("create table if not exists handled (key text, life int, seq_nr int, pid int)")
    tx.execute("insert into handled values (?, ?, ?, ?)", (str(event.key), event.life, event.seq_nr, os.getpid()))


def fail(tx, event):
    add(tx, event)
    if event.key.entity_id == "3" and event.seq_nr == 2:
        raise ValueError("no")


totals = Projection("totals", BySlices("order"), add, **QUICK)
failing = [Projection("totals", BySlices("order"), fail, on_failure="skip", retries=0, **QUICK)]
something = 5
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop_projections.py").write_text(PROJECTIONS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("shop_projections", None)
    sys.path[:] = [place for place in sys.path if place != str(tmp_path)]


def handled(shop: Path) -> list[tuple[str, int, int]]:
    if not (shop / "orders/projections.db").exists():
        return []
    file = apsw.Connection(str(shop / "orders/projections.db"))
    file.set_busy_timeout(5000)
    try:
        return [tuple(row) for row in file.execute("select key, life, seq_nr from handled order by rowid")]
    except (apsw.SQLError, apsw.BusyError):  # not made yet
        return []
    finally:
        file.close()


def project(*more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "projections", "run", "shop_projections:totals", "--url", "sqlite:orders", *more]
    )


def pids(shop: Path) -> list[int]:
    """The processes that own ranges."""
    with strandline.connect(f"sqlite:{shop}/orders") as s:
        owners = {found.owner for found in s.projections.status("totals").ranges if found.owner}
    return [int(owner.split(":")[1]) for owner in owners]


@pytest.mark.req("P47", "RP1", "RP3", "P68", "P71", "P103", "P72", "RP4")
def test_killed_and_rescaled_on_the_way(shop: Path) -> None:
    """From 1 to 4 processes, killed with -9 and rescaled while events are written: totals equal a plain fold."""
    with strandline.connect("sqlite:orders", partitions=4) as s:

        def write() -> None:
            for number in range(40):
                put(s, Key("order", str(number)), 2)
            carry_all(s)

        write()
        runs = [project()]
        try:
            until(lambda: handled(shop), 20)
            runs[0].send_signal(signal.SIGKILL)
            runs[0].wait()
            runs = [project("--instances", "4")]
            write()
            until(lambda: len(pids(shop)) >= 3, 30)
            for n in (7, 2, 5):
                for pid in pids(shop)[:1]:
                    os.kill(pid, signal.SIGKILL)
                s.projections.rescale("totals", n, timeout_s=5)
                write()
            until(lambda: len(handled(shop)) >= len(everything(s)), 40)
            runs[0].send_signal(signal.SIGTERM)
            assert runs[0].wait(30) == 0
        finally:
            for run in runs:
                run.kill()
                run.wait()
        found = handled(shop)
        assert sorted(found) == sorted(everything(s))
        for key in {key for key, _, _ in found}:
            of_key = [(life, seq_nr) for one, life, seq_nr in found if one == key]
            assert of_key == sorted(of_key)


@pytest.mark.req("P91")
def test_sigterm_ends_it_in_order(shop: Path) -> None:
    with strandline.connect("sqlite:orders", partitions=2) as s:
        put(s, Key("order", "1"), 3)
        carry_all(s)
        run = project()
        until(lambda: handled(shop), 20)
        began = time.monotonic()
        run.send_signal(signal.SIGTERM)
        assert run.wait(20) == 0
        assert time.monotonic() - began < 10
        assert all(found.owner is None for found in s.projections.status("totals").ranges)


@pytest.mark.req("P76", "P93")
def test_verbs(shop: Path) -> None:
    url = ("--url", "sqlite:orders")
    with strandline.connect("sqlite:orders", partitions=2) as s:
        for number in range(5):
            put(s, Key("order", str(number)), 4)
        carry_all(s)
    argv = [*COMMAND, "projections", "run", "shop_projections:failing", *url]
    run = subprocess.Popen(argv)

    def asked(*words: str, code: int = 0) -> Any:
        answer = call("projections", *words, *url, "--json", *(["--yes"] if words[0] in ("drop", "reset") else []))
        assert answer.code == code, answer.err
        return answer.lines if not code else answer.problem

    try:
        until(lambda: len(handled(shop)) == 19, 20)
        (letter,) = asked("dead-letters", "totals")
        assert (letter["key"], letter["seq_nr"], letter["reason"]) == ("order|3", 2, "skipped")
        assert asked("list") == [{"name": "totals", "generation": 1, "state": "serving"}]
        (status,) = asked("status", "totals")
        assert [(one["lo"], one["hi"]) for one in status["ranges"]] == [(0, 511), (512, 1023)]
        asked("discard", "totals", "order|3", "2")
        assert asked("dead-letters", "totals") == asked("parked", "totals") == []
        assert asked("unpark", "totals", "order|3", code=3)["code"] == "parked_key"
        assert asked("redeliver", "totals", "order|3", "2", code=3)["code"] == "dead_letter"
        asked("skip", "totals", "order|1", "4")
        asked("rescale", "totals", "3")
        asked("pause", "totals")
        asked("resume", "totals")
        until(lambda: pids(shop))
        assert asked("rename", "totals", "sums", code=4)["code"] == "lease_held"
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(20)
    asked("rename", "totals", "sums")
    asked("reset", "sums")
    assert call("projections", "set-offset", "sums", "5", "--yes", *url).code == 0
    answer = call("projections", "set-offset", "sums", "2026-11-15T07:30:00Z", "--yes", *url)
    assert answer.out == "sums: set to 2026-11-15 07:30:00.000000Z\n"
    asked("pause", "sums", "--generation", "1")
    for verb in (
        ["resume", "sums"],
        ["parked", "sums"],
        ["dead-letters", "sums"],
        ["rescale", "sums", "2"],
        ["reset", "sums"],
    ):
        assert asked(*verb, "--generation", "2", code=3)["code"] == "projection"
    assert "sums: generation 1, serving" in call("projections", "status", "sums", *url).out
    asked("drop", "sums")
    assert asked("status", "sums", code=3)["code"] == "projection"


@pytest.mark.req("P4", "P93")
def test_by_slices(shop: Path) -> None:
    url = ("--url", "sqlite:orders")
    with strandline.connect("sqlite:orders", partitions=2) as s:
        for number in range(5):
            put(s, Key("order", str(number)), 2)
        carry_all(s)
        events = list(s.by_slices("order", 0, 1023))
    found = call("by-slices", "order", *url, "--json").lines
    assert [(one["key"], one["seq_nr"]) for one in found] == [(str(event.key), event.seq_nr) for event in events]
    rest = call("by-slices", "order", "0-1023", "--after", found[3]["offset"], "--limit", "2", *url, "--json").lines
    assert [one["offset"] for one in rest] == [one["offset"] for one in found[4:6]]
    nothing = call("by-slices", "order", "--after", found[-1]["offset"], *url)
    assert (nothing.code, nothing.err.strip()) == (0, "no carried event of order matches")
    low = call("by-slices", "order", "0-511", *url, "--json").lines
    assert [one["key"] for one in low] == [str(event.key) for event in events if event.slice < 512]
    for words, code in (
        (("order", "5"), "slice_range"), (("order", "9-3"), "slice_range"), (("order", "0-1024"), "slice_range"),
        (("order", "--after", "x"), "offset_format"), (("order", "--from", "x"), "time_format"),
        (("order", "--from", "2026-01-01T00:00"), "time_without_zone"), (("order", "--limit", "0"), "limit_range"),
    ):  # fmt: skip
        answer = call("by-slices", *words, *url, "--json")
        assert (answer.code, answer.problem["code"]) == (2, code)


@pytest.mark.parametrize("what", ["shop_projections", "shop_projections:something", "shop_projections:nope", "nope:a"])
def test_what_is_no_projection(shop: Path, what: str) -> None:
    answer = call("projections", "run", what, "--url", "sqlite:orders", "--json")
    assert (answer.code, answer.problem["code"]) == (2, "option")


@pytest.mark.req("P82")
def test_a_range_that_stands_at_the_start_is_not_decades_behind(shop: Path) -> None:
    def fail(tx: Any, event: Any) -> None:
        raise ValueError("no")

    with strandline.connect("sqlite:orders", partitions=2) as s:
        put(s, Key("order", "3"), 2)
        carry_all(s)
        with running(s, Projection("totals", BySlices("order"), fail, **{**QUICK, "retries": 0})):
            until(lambda: any(one.last_error for one in s.projections.status("totals").ranges))
    said = call("projections", "status", "totals", "--url", "sqlite:orders").out.splitlines()
    assert "serving, at the start; the store is" in said[0]
    assert any("at the start  order|3 no" in line for line in said[1:])


@pytest.mark.req("P83")
def test_what_was_not_begun_is_not_up_to_date(shop: Path) -> None:
    """Nothing is carried yet, and then something is, but not handed over."""
    url = ("--url", "sqlite:orders")
    with strandline.connect("sqlite:orders", partitions=2) as s:
        put(s, Key("order", "3"), 2)
        with running(s, Projection("totals", BySlices("order"), lambda tx, event: None, **QUICK)):
            until(s.projections.list)
        assert (
            "serving, at the start, with nothing to do yet; the store is"
            in call("projections", "status", "totals", *url).out
        )
        carry_all(s)
    assert "serving, at the start; the store is" in call("projections", "status", "totals", *url).out
    assert re.search(r"totals .* serving, no host +at the start", call("status", *url).out)
    assert call("status", *url, "--json").lines[0]["projections"][0]["behind_store_s"] is None


@pytest.mark.req("P82", "P83", "P100", "P76")
def test_status_doctor_and_schema_know_projections(shop: Path) -> None:
    def fail(tx: Any, event: Any) -> None:
        raise ValueError("no")

    with strandline.connect("sqlite:orders", partitions=2) as s:
        put(s, Key("order", "3"), 2)
        carry_all(s)
        assert "projections" not in call("status", "--url", "sqlite:orders", "--json").lines[0]
        settings: dict[str, Any] = {**QUICK, "on_failure": "park", "retries": 0}
        here = Projection("totals", BySlices("order"), fail, **settings)
        there = Projection("others", BySlices("order"), fail, offset_store="sqlite:elsewhere.db", **settings)
        with running(s, here, there), strandline.connect("sqlite:orders", projections="sqlite:elsewhere.db") as other:
            until(lambda: s.projections.parked("totals") and other.projections.parked("others"))
            until(lambda: caught_up(s))
    (told,) = call("status", "--url", "sqlite:orders", "--json").lines[0]["projections"]
    assert (told["name"], told["state"], told["behind_store_s"]) == ("totals", "serving, no host", 0.0)
    assert told["parked"] == 1
    assert re.search(r"totals .* serving, no host", call("status", "--url", "sqlite:orders").out)
    kinds = [line["kind"] for line in call("schema", "show", "--url", "sqlite:orders", "--json").lines]
    assert kinds == ["log", "store", "projection"]
    found = {line["name"]: line for line in call("doctor", "--url", "sqlite:orders", "--json").lines}
    assert found["projections"]["state"] == "ok"
    assert found["projections"]["found"] == "1 projection, 0 failed ranges, 1 parked key"
    env = {"STRANDLINE_URL": "sqlite:orders"}
    for verb in ("status", "pause", "resume", "parked", "dead-letters"):
        assert call("projections", verb, "others", "--projections", "sqlite:elsewhere.db", env=env).code == 0
        assert call("projections", verb, "others", env=env).code == 3
    assert call("projections", "list", "--projections", "sqlite:nowhere.db", env=env).out == ""
    assert not Path("nowhere.db").exists()


@pytest.mark.req("P100")
def test_the_pipeline_leaves_alone_what_is_beside_the_journal(shop: Path) -> None:
    """One configuration for all commands names places that not every command goes to."""
    with strandline.connect("sqlite:orders", partitions=2) as s:
        put(s, Key("order", "3"))
        carry_all(s)
    Path("shop.toml").write_text('url = "sqlite:orders"\nwork = "sqlite:work.db"\nprojections = "sqlite:totals.db"\n')
    for command in (["pipeline", "quarantine"], ["status"], ["head", "order|3"], ["doctor"], ["schema", "show"]):
        answer = call(*command, "--config", "shop.toml")
        assert answer.code == 0, (command, answer.err)


@pytest.mark.req("P76", "P88")
def test_what_was_dropped_is_said(shop: Path) -> None:
    from strandline.pipeline.projections import begin

    def of(generation: int) -> Projection:
        return Projection("totals", BySlices("order"), lambda tx, event: None, generation=generation, **QUICK)

    url = ("--url", "sqlite:orders")
    with strandline.connect("sqlite:orders", partitions=2) as s:
        with running(s, of(1)):
            until(s.projections.list)
        begin(s, of(2), None, allow_deleted=True)
    dropped = call("projections", "drop", "totals", "--generation", "2", "--yes", *url)
    assert dropped.out == "totals: generation 2 is dropped\n"
    assert call("projections", "drop", "totals", "--yes", *url).out == "totals: dropped\n"


@pytest.mark.req("P88", "P84")
def test_a_rebuild_of_what_serves_is_refused_before_spark_starts(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("strandline.pipeline.projections.open_session", starts)
    with strandline.connect("sqlite:orders", partitions=2) as s:
        put(s, Key("order", "1"))
        carry_all(s)
        with running(s, Projection("totals", BySlices("order"), lambda tx, event: None)):
            until(s.projections.list)
    answer = call("projections", "rebuild", "shop_projections:totals", "--url", "sqlite:orders")
    assert (answer.code, "[InvalidInput.generation_serving]" in answer.err) == (2, True)
    assert "starting Spark" not in answer.err
