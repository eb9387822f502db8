"""`strandline work`: each verb is the call of its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import strandline
from tests.acceptance.cli_call import call
from tests.work.worlds import World


@pytest.fixture
def place(world: World, tmp_path: Path) -> list[str]:
    url = f"sqlite:{tmp_path / 'shop'}"
    strandline.connect(url).close()
    return ["--url", url, "--work", world.place]


def lines(*arguments: str) -> list[Any]:
    answer = call(*arguments, "--json")
    assert answer.code == 0, answer
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.mark.req("W78", "W43")
def test_every_verb(place: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mails.toml"
    file.write_text('name = "mails"\nmax_timeouts = 1\n[key]\norder = "int"\n[data]\nto = "text"\n')
    assert lines("work", "declare", str(file), *place) == [{"journal": "mails", "version": 1}]

    def verb(name: str, *arguments: str) -> list[Any]:
        return lines("work", name, "mails", *arguments, *place)

    (added,) = verb("add", "--key", '{"order": 7}', "--data", '{"to": "a"}', "--priority", "10")
    assert added["outcome"] == "inserted"
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
    assert "{'order': 7}" in shown
    assert "\x1b" not in shown
    assert "due 1" in call("work", "counts", "mails", *place).out
    assert "current" in call("work", "tables", "mails", *place).out
    missing = call("work", "counts", "nails", *place)
    assert (missing.code, "declared: mails" in missing.err) == (3, True)
    bad = call("work", "add", "mails", "--key", "5", "--data", "{}", *place)
    assert (bad.code, "JSON object" in bad.err) == (2, True)
    for handlers in ("shop", "no_such_module:x", "json:dumps"):
        refused = call("work", "run", handlers, *place)
        assert (refused.code, "MODULE:NAME" in refused.err) == (2, True)


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
