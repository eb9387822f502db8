"""`strandline work`: each verb is the call of its name."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import strandline
from tests.acceptance.cli_call import call
from tests.work.worlds import S, World


@pytest.fixture
def place(world: World, tmp_path: Path) -> list[str]:
    url = f"sqlite:{tmp_path / 'shop'}"
    strandline.connect(url).close()
    return ["--url", url, "--work", world.place]


def lines(*arguments: str) -> list[Any]:
    answer = call(*arguments, "--json")
    assert answer.code == 0, answer
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.mark.req("W78")
def test_before_anything_is_declared(tmp_path: Path) -> None:
    """A journal of events is there, and no work journal yet: that is what is said, not that the URL may be wrong."""
    url = f"sqlite:{tmp_path / 'shop'}"
    assert call("append", "order|1", "--event", '{"type": "A"}', "--url", url).code == 0
    answer = call("work", "counts", "mails", "--url", url, "--json")
    assert (answer.code, answer.name) == (3, "NotFound.work_journal")
    assert "strandline work declare" in answer.problem["hint"]


@pytest.mark.req("W78", "W43")
def test_every_verb(place: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mails.toml"
    file.write_text('name = "mails"\nmax_timeouts = 1\n[key]\norder = "int"\n[data]\nto = "text"\n')
    assert lines("work", "declare", str(file), *place) == [{"journal": "mails", "version": 1}]

    def verb(name: str, *arguments: str) -> list[Any]:
        return lines("work", name, "mails", *arguments, *place)

    (added,) = verb("add", "--key", '{"order": 7}', "--data", '{"to": "a"}', "--priority", "10")
    assert added["outcome"] == "inserted"
    for outcome in ("merged", "repeated"):
        (again,) = verb("add", "--key", '{"order": 7}', "--data", '{"to": "a"}', "--id", "order 7")
        assert (again["outcome"], again["id"]) == (outcome, added["id"])
    verb("add", "--key", '{"order": 8}', "--data", '{"to": "b"}', "--process-date", "4102444800000000")
    (entry,) = verb("get", "--key", '{"order": 7}')
    assert (entry["data"], entry["status"], entry["priority"]) == ({"to": "a"}, "W", 10)
    (claim,) = verb("claim", "--limit", "5", "--owner", "hand")
    assert (claim["id"], claim["owner"]) == (added["id"], "hand")
    held = (str(claim["id"]), str(claim["fence"]))
    verb("heartbeat", *held)
    verb("release", *held)
    assert call("work", "done", "mails", *held, *place).code == 4
    (claim,) = verb("claim")
    verb("fail", str(claim["id"]), str(claim["fence"]), "--reason", "no such mailbox")
    (letter,) = verb("alerts")
    assert letter["reason"] == "failed: no such mailbox"
    verb("acknowledge", str(letter["dead_id"]))
    assert verb("alerts") == []
    assert len(verb("dead")) == 1
    assert verb("requeue", str(letter["dead_id"]))[0]["outcome"] == "inserted"
    verb("pause", "--reason", "move")
    assert "paused (move)" in call("work", "claim", "mails", *place).out
    verb("resume")
    (claim,) = verb("claim")
    verb("done", str(claim["id"]), str(claim["fence"]))
    (counts,) = verb("counts")
    assert (counts["due"], counts["later"], counts["dead"]) == (0, 1, 0)
    (later,) = verb("entries", "--status", "W")
    verb("tick")
    assert verb("tables")[0]["state"] == "current"
    verb("drop", str(later["id"]), "--yes")
    assert verb("entries") == []


@pytest.mark.req("W78")
def test_people_can_read_it(place: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mails.toml"
    file.write_text('name = "mails"\n[key]\norder = "int"\n[data]\nto = "text"\n')
    assert "mails: declared, version 1" in call("work", "declare", str(file), *place).out
    told = call("work", "add", "mails", "--key", '{"order": 7}', "--data", '{"to": "\\u001b[31m"}', *place)
    assert "inserted" in told.out
    shown = call("work", "entries", "mails", *place).out
    assert "\x1b" not in shown
    decoder = json.JSONDecoder()
    key, end = decoder.raw_decode(shown, shown.index("{"))
    data, _ = decoder.raw_decode(shown, shown.index("{", end))
    again = call("work", "add", "mails", "--key", json.dumps(key), "--data", json.dumps(data), *place)
    assert (data, "merged" in again.out) == ({"to": "\x1b[31m"}, True), "what is shown can be given again"
    assert "due 1" in call("work", "counts", "mails", *place).out
    assert "current" in call("work", "tables", "mails", *place).out
    missing = call("work", "counts", "nails", *place)
    assert (missing.code, "declared: mails" in missing.err) == (3, True)
    bad = call("work", "add", "mails", "--key", "5", "--data", "{}", *place)
    assert (bad.code, "JSON object" in bad.err) == (2, True)
    for handlers in ("shop", "no_such_module:x", "json:dumps"):
        refused = call("work", "run", handlers, *place)
        assert (refused.code, "MODULE:NAME" in refused.err) == (2, True)


def declare(place: list[str], tmp_path: Path, text: str) -> None:
    file = tmp_path / "declared.toml"
    file.write_text(text)
    lines("work", "declare", str(file), *place)


@pytest.mark.req("W78", "W4")
def test_bytes_are_base64_on_the_command_line(place: list[str], tmp_path: Path) -> None:
    declare(place, tmp_path, 'name = "blobs"\n[key]\ndigest = "bytes"\n[data]\nbody = "bytes?"\n')
    call("work", "add", "blobs", "--key", '{"digest": "AP8="}', "--data", '{"body": "AAE="}', *place)
    (entry,) = lines("work", "entries", "blobs", *place)
    assert (entry["key"], entry["data"]) == ({"digest": "AP8="}, {"body": "AAE="})
    assert lines("work", "get", "blobs", "--key", json.dumps(entry["key"]), *place)[0]["id"] == entry["id"]
    bad = call("work", "add", "blobs", "--key", '{"digest": "%"}', "--data", "{}", *place)
    assert (bad.code, "base64" in bad.err) == (2, True)


@pytest.mark.req("W8", "W78")
def test_dates_as_people_write_them(place: list[str], tmp_path: Path) -> None:
    declare(place, tmp_path, 'name = "mails"\n[key]\norder = "int"\n[data]\nto = "text"\n')

    def add(order: int, *arguments: str) -> Any:
        key = json.dumps({"order": order})
        return call("work", "add", "mails", "--key", key, "--data", '{"to": "a"}', *arguments, *place)

    before = time.time_ns() // 1000
    assert add(1, "--process-date", "+10m").code == 0
    assert add(2, "--process-date", "2100-01-01T00:00:00Z", "--expiration-date", "2100-01-02T01:00:00+01:00").code == 0
    assert add(3, "--process-date", "4102444800000000").code == 0
    (soon, later, as_before) = lines("work", "entries", "mails", *place)
    assert 0 <= soon["process_date"] - before - 600 * S < 60 * S
    assert (later["process_date"], later["expiration_date"]) == (4102444800 * S, (4102444800 + 86_400) * S)
    assert as_before["process_date"] == later["process_date"]
    for text, code in (("tomorrow", "time_format"), ("2100-01-01", "time_without_zone"), ("+10", "time_format")):
        refused = add(4, "--process-date", text, "--json")
        assert (refused.code, json.loads(refused.err)["code"]) == (2, code)


@pytest.mark.req("W77", "W78")
def test_counts_of_a_paused_journal_say_so(place: list[str], tmp_path: Path) -> None:
    declare(place, tmp_path, 'name = "mails"\n[key]\norder = "int"\n[data]\nto = "text"\n')
    empty = call("work", "counts", "mails", *place).out
    assert "oldest" not in empty, "there is none"
    lines("work", "add", "mails", "--key", '{"order": 7}', "--data", '{"to": "a"}', *place)
    lines("work", "pause", "mails", "--reason", "move", *place)
    told = call("work", "counts", "mails", *place).out
    assert "paused (move), nothing is handed out; due 1" in told
    assert lines("work", "counts", "mails", *place)[0]["paused"] == "move"


@pytest.mark.req("W44")
def test_who_gives_the_number_of_the_entry_is_told_that_of_the_letter(place: list[str], tmp_path: Path) -> None:
    declare(place, tmp_path, 'name = "mails"\nmax_timeouts = 1\n[key]\norder = "int"\n[data]\nto = "text"\n')
    lines("work", "add", "mails", "--key", '{"order": 7}', "--data", '{"to": "a"}', *place)
    (claim,) = lines("work", "claim", "mails", *place)
    lines("work", "fail", "mails", str(claim["id"]), str(claim["fence"]), *place)
    (letter,) = lines("work", "dead", "mails", *place)
    wrong = call("work", "requeue", "mails", str(claim["id"]), *place)
    assert (wrong.code, f"is dead letter {letter['dead_id']}" in wrong.err) == (3, True)
    none = call("work", "acknowledge", "mails", "5", *place)
    assert "`strandline work dead` lists them" in none.err


@pytest.mark.req("W43", "W69")
def test_doctor_knows_work(place: list[str], tmp_path: Path, world: World) -> None:
    assert "work journal" not in call("doctor", *place).out
    file = tmp_path / "mails.toml"
    file.write_text('name = "mails"\nmax_timeouts = 1\n[key]\norder = "int"\n[data]\nto = "text"\n')
    lines("work", "declare", str(file), *place)
    lines("work", "add", "mails", "--key", '{"order": 7}', "--data", '{"to": "a"}', *place)
    (claim,) = lines("work", "claim", "mails", *place)
    lines("work", "fail", "mails", str(claim["id"]), str(claim["fence"]), *place)
    said = call("doctor", *place).out
    assert "1 work journal, 1 alert" in said
    assert ("standbys: 0" in said) is not world.is_sqlite
    steps = [found["kind"] for found in lines("schema", "show", *place)]
    assert steps == ["log", "store", "work"]
