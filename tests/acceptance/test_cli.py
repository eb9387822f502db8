"""The commands on a real folder: what they answer, and with which exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import orjson
import pytest
from tests.acceptance.cli_call import appended, call, lines, placed, run

import strandline
from strandline.testing import carry, raw_append

KEY = "order|42"
PARTITION = 4


def carried(url: str) -> None:
    with strandline.connect(url) as s:
        carry(s)


@contextmanager
def edited(path: Path) -> Iterator[apsw.Connection]:
    """A file of ours, changed behind our back."""
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def closing_lease(s: strandline.Strandline) -> Iterator[None]:
    lease = s.store.lease().take("the holder")
    try:
        yield
    finally:
        lease.release()


# ---------------------------------------------------------------- record and read


def test_a_journal_is_copied_by_piping_it(url: str) -> None:
    given: list[dict[str, Any]] = [
        {"type": "paid"},
        {"type": "raw", "payload_base64": "/w=="},
        {"type": "sent", "payload": 1, "tags": ["a"]},
    ]
    assert call("append", KEY, "--url", url, stdin=lines(*given)).code == 0
    told = call("read", KEY, "--url", url, "--json").lines
    assert call("append", "order|copy", "--url", url, stdin=lines(*told)).code == 0
    copied = call("read", "order|copy", "--url", url, "--json").lines
    alike = ("type", "tags", "metadata", "payload", "payload_base64", "seq_nr")
    assert [{name: event.get(name) for name in alike} for event in copied] == [
        {name: event.get(name) for name in alike} for event in told
    ]
    assert copied[0]["payload"] is None


def test_long_input_goes_in_several_appends(url: str) -> None:
    told = call("append", KEY, "--url", url, "--json", "--expected", "0", stdin=lines(*placed(2500))).lines
    assert [(answer["first"], answer["last"]) for answer in told] == [(1, 1000), (1001, 2000), (2001, 2500)]
    again = call("append", KEY, "--url", url, "--json", "--expected", "0", stdin=lines(*placed(2500)))
    assert again.code == 4
    bad = call("append", KEY, "--url", url, stdin=lines(*placed(1000)) + b"no JSON")
    assert bad.code == 2
    assert call("read", KEY, "--last", "1", "--url", url, "--json").lines[0]["seq_nr"] == 2500
    late = call("append", KEY, "--url", url, stdin=lines(*placed(3000)) + b"no JSON")
    assert late.code == 2
    assert "2000 events are appended, the last is 4500; what comes after them is not" in late.err
    large = [{"type": "large", "payload": "x" * 900_000}] * 8
    told = call("append", "order|large", "--url", url, "--json", stdin=lines(*large)).lines
    assert [answer["last"] for answer in told] == [6, 8]


def test_append_read_head(url: str) -> None:
    event = {"type": "placed", "payload": {"b": 1, "a": 1.0}, "tags": ["red", "blue"], "metadata": {"by": "Ada"}}
    done = run("append", KEY, "--url", url, "--json", "--header", "trace=7", stdin=lines(event, *placed(2)))
    assert (done.code, done.err) == (0, "")
    (answer,) = done.lines
    assert (answer["key"], answer["first"], answer["last"], answer["partition"]) == (KEY, 1, 3, PARTITION)
    first, *rest = call("read", KEY, "--url", url, "--json").lines
    assert {name: first[name] for name in event} == event
    assert (first["seq_nr"], first["prev_seq_nr"], first["slice"], first["headers"]) == (1, 0, 601, {"trace": "7"})
    assert first["damaged"] is False
    assert [event["seq_nr"] for event in rest] == [2, 3]
    (head,) = call("head", KEY, "--url", url, "--json").lines
    assert (head["key"], head["seq_nr"], head["delete_to"], head["life"]) == (KEY, 3, 0, 1)
    assert "seq_nr 3" in call("head", KEY, "--url", url).out
    assert [
        event["seq_nr"] for event in call("read", KEY, "--from", "2", "--to", "2", "--url", url, "--json").lines
    ] == [2]
    last = call("read", KEY, "--last", "2", "--url", url, "--json").lines
    assert [event["seq_nr"] for event in last] == [2, 3]
    assert call("read", KEY, "--last", "2", "--limit", "2", "--url", url).code == 2
    backwards = call("read", KEY, "--backwards", "--limit", "2", "--url", url, "--json").lines
    assert [event["seq_nr"] for event in backwards] == [3, 2]
    assert [event["seq_nr"] for event in call("read", KEY, "--limit", "1", "--url", url, "--json").lines] == [1]


@pytest.mark.parametrize(
    "payload",
    [
        '{"b":1,"a":1.0,"z":-0.0}',
        '"\\ud83d\\ude00 \\u202e"',
        "9223372036854775807",
        "[1,1.0,1e-300,null,true]",
    ],
)
def test_what_goes_in_comes_out(payload: str, url: str) -> None:
    line = f'{{"type": "t", "payload": {payload}}}'
    assert call("append", KEY, "--url", url, "--event", line).code == 0
    out = call("read", KEY, "--url", url, "--json").out
    expected = json.loads(payload)
    found = json.loads(out)["payload"]
    assert repr(found) == repr(expected)
    assert orjson.dumps(found) == orjson.dumps(expected)


def test_bytes(url: str) -> None:
    assert call("append", KEY, "--url", url, "--event", '{"type": "t", "payload_base64": "AP8="}').code == 0
    (event,) = call("read", KEY, "--url", url, "--json").lines
    assert event["payload_base64"] == "AP8="
    assert "payload" not in event
    assert "2 bytes" in call("read", KEY, "--url", url).out


def test_a_journal_without_events_says_so_to_people(url: str) -> None:
    appended(url)
    for asked, said in [
        (("order|none",), "order|none: no events\n"),
        ((KEY, "--from", "99"), f"{KEY}: no events there\n"),
    ]:
        found = run("read", *asked, "--url", url)
        assert (found.code, found.out, found.err) == (0, "", said)
        assert run("read", *asked, "--url", url, "--json").err == ""


def test_readable_lines_do_nothing_to_a_terminal(url: str) -> None:
    hostile = "\x1b[2J\x9b31m\u202e"
    appended(url, tags=["a\u202eb"])
    assert call("append", KEY, "--url", url, stdin=lines({"type": "t", "payload": hostile})).code == 0
    out = call("read", KEY, "--url", url).out
    assert out.isprintable() is False
    assert all(line.isprintable() for line in out.splitlines())
    assert len(out.splitlines()) == 2


def test_expected_first_and_append_id(url: str) -> None:
    event = '{"type": "t", "payload": 1}'
    append_id = str(uuid4())
    base = ["append", KEY, "--url", url, "--event", event, "--json"]
    assert call(*base, "--expected", "0", "--append-id", append_id).code == 0
    again = call(*base, "--expected", "0", "--append-id", append_id)
    assert again.lines[0]["duplicate"] is True
    lost = call(*base, "--expected", "0")
    assert (lost.code, lost.name) == (4, "SeqNrConflict.expected")
    assert lost.problem["facts"]["actual"] == 1
    assert call(*base, "--first", "9").lines[0]["first"] == 9
    assert call(*base, "--first", "9").name == "SeqNrConflict.first"
    reused = call("append", KEY, "--url", url, "--json", "--append-id", append_id, stdin=lines(*placed()))
    assert (reused.code, reused.name) == (2, "InvalidInput.append_id_reused")
    assert [event["seq_nr"] for event in call("read", KEY, "--url", url, "--json").lines] == [1, 9]


def test_expiry(url: str) -> None:
    for text, seconds in (("90m", 5400.0), ("1.5h", 5400.0), ("30d", 2_592_000.0), ("45s", 45.0)):
        assert call("append", KEY, "--url", url, "--expire-after", text, stdin=lines(*placed())).code == 0
        assert call("head", KEY, "--url", url, "--json").lines[0]["expire_after"] == seconds
    appended(url)
    assert call("head", KEY, "--url", url, "--json").lines[0]["expire_after"] == 45.0
    assert call("append", KEY, "--url", url, "--expire-after", "none", stdin=lines(*placed())).code == 0
    assert call("head", KEY, "--url", url, "--json").lines[0]["expire_after"] is None


def test_delete_purge_mark_keys(url: str) -> None:
    appended(url, 3)
    assert call("delete", KEY, "--to", "2", "--url", url, "--yes", "--json").lines[0]["delete_to"] == 2
    assert [event["seq_nr"] for event in call("read", KEY, "--url", url, "--json").lines] == [3]
    assert call("mark", KEY, "--url", url, "--id", "m", "--json").lines[0]["id"] == "m"
    assert call("keys", "--url", url, "--json").lines == []
    appended(url, key="order|7")
    appended(url, key="user|a|b")
    carried(url)
    assert [line["entity_type"] for line in call("keys", "--url", url, "--json").lines] == ["order", "user"]
    both = [line["key"] for line in call("keys", "order", "--url", url, "--json").lines]
    assert sorted(both) == [KEY, "order|7"]
    assert call("keys", "order", "--after", both[0], "--url", url).out == f"{both[1]}\n"
    assert call("keys", "order", "--limit", "1", "--url", url).out == f"{both[0]}\n"
    assert call("purge", KEY, "--url", url, "--yes").out == f"{KEY}: purged\n"
    assert call("purge", KEY, "--url", url, "--yes").out == f"{KEY}: no journal, nothing to purge\n"
    assert call("purge", "order|never", "--url", url, "--yes", "--json").lines[0]["life"] is None
    assert call("head", KEY, "--url", url, "--json").lines == [None]
    assert call("read", KEY, "--url", url).out == ""
    assert call("delete", KEY, "--to", "5", "--url", url, "--yes", "--json").lines == [None]
    assert call("delete", KEY, "--to", "5", "--reset", "--url", url, "--yes").code == 0
    appended(url)
    assert [event["seq_nr"] for event in call("read", KEY, "--url", url, "--json").lines] == [6]


@pytest.mark.req("J123")
def test_types_of_groups_can_be_read(url: str) -> None:
    appended(url)
    assert call("read", "group|x", "--url", url).code == 0
    assert call("head", "group|x", "--url", url, "--json").lines == [None]


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("where", ["tail", "store"])
@pytest.mark.parametrize("value", [b"", b"\x00garbage", b"{}"])
@pytest.mark.req("J97")
def test_damaged_events_are_shown_and_exit_5_comes_at_the_end(where: str, value: bytes, url: str) -> None:
    for _ in range(3):
        appended(url, 2)
    with edited(Path("orders/log.db")) as connection:
        connection.execute("UPDATE action SET value = ? WHERE first = 3", (value,))
    if where == "store":
        carried(url)
    answer = call("read", KEY, "--url", url, "--json")
    assert answer.code == 5
    assert answer.problem["title"] == "Corrupt"
    assert "resolve" in answer.problem["hint"]
    assert [(event["seq_nr"], event["damaged"]) for event in answer.lines] == [
        (number, number in (3, 4)) for number in range(1, 7)
    ]
    assert all(("payload" in event) is not event["damaged"] for event in answer.lines)
    for_people = call("read", KEY, "--url", url)
    assert for_people.code == 5
    assert [("DAMAGED" in line) for line in for_people.out.splitlines()] == [False, False, True, True, False, False]
    assert len(for_people.err.splitlines()) == 2
    assert call("read", KEY, "--to", "2", "--url", url).code == 0


@pytest.mark.parametrize(
    "damage", ["body = x'ff'", "body = substr(body, 1, 70)", "body = CAST(body || x'00' AS BLOB)", "digest = 1"]
)
@pytest.mark.req("J97")
def test_damaged_row_of_the_store(damage: str, url: str) -> None:
    appended(url, 3, tags=["red"])
    carried(url)
    with edited(Path("orders/store.db")) as connection:
        connection.execute(f"UPDATE journal SET {damage} WHERE seq_nr = 2")
    for more in (["--json"], []):
        answer = call("read", KEY, "--url", url, *more)
        assert answer.code == 5
        assert len(answer.out.splitlines()) == 3


def test_quarantine_and_resolve(url: str) -> None:
    appended(url, 2)
    appended(url, 2)
    with strandline.connect(url) as s:
        raw_append(s, 0, header=b"not ours", value=b"secret payload")
    with edited(Path("orders/log.db")) as connection:
        connection.execute("UPDATE action SET value = x'00' WHERE first = 3")
    assert call("pipeline", "quarantine", "--url", url).out == "nothing is quarantined\n"
    carried(url)
    listed = call("pipeline", "quarantine", "--url", url, "--json")
    foreign, damaged = listed.lines
    assert (foreign["partition"], foreign["offset"], foreign["key"]) == (0, 0, None)
    assert (damaged["partition"], damaged["key"], damaged["first"], damaged["last"]) == (PARTITION, KEY, 3, 4)
    table = call("pipeline", "quarantine", "--url", url)
    assert KEY in table.out
    assert "secret payload" not in listed.out + table.out
    assert "2" in call("status", "--url", url).out
    place = [str(damaged["partition"]), str(damaged["offset"])]
    still = call("pipeline", "resolve", *place, "retry", "--url", url, "--json")
    assert (still.code, still.problem["title"]) == (5, "Corrupt")
    assert call("pipeline", "resolve", "0", "0", "retry", "--url", url, "--json").name == "InvalidInput.how"
    assert call("pipeline", "resolve", *place, "skip", "--url", url, "--yes").code == 0
    assert call("pipeline", "resolve", "0", "0", "skip", "--url", url, "--yes").code == 0
    assert [event["seq_nr"] for event in call("read", KEY, "--url", url, "--json").lines] == [1, 2]
    gone = call("pipeline", "resolve", *place, "skip", "--url", url, "--yes", "--json")
    assert (gone.code, gone.name) == (3, "NotFound.quarantine")


# ---------------------------------------------------------------- status, schema


def test_status(url: str) -> None:
    appended(url, 3)
    (before,) = call("status", "--url", url, "--json").lines
    assert before["partitions"][PARTITION]["lag_actions"] == 1
    assert before["strandline"] == 0
    text = call("status", "--url", url).out
    assert "never carried" in text
    assert "pipeline run" in text
    with strandline.connect(url) as s, closing_lease(s):
        (held,) = call("status", "--url", url, "--json").lines
        assert held["lease_holder"] == "the holder"
        assert "the holder" in call("status", "--url", url).out
    with strandline.connect(url) as s:
        carry(s, partition=PARTITION)
    (after,) = call("status", "--url", url, "--json").lines
    assert after["partitions"][PARTITION]["lag_actions"] == 0
    assert "strandline  up to date\n" in call("status", "--url", url).out
    carried(url)
    said = call("status", "--url", url).out
    assert re.search(r"^strandline  up to date, at \S+ \S+Z$", said, re.MULTILINE)
    assert " ago" not in said
    appended(url)
    assert re.search(r"^strandline  \S+ \S+Z, \d\S* s ago$", call("status", "--url", url).out, re.MULTILINE)


@pytest.mark.req("RR7")
def test_a_lost_range_is_seen_by_status_and_doctor(url: str) -> None:
    appended(url, 1, key=KEY)
    with strandline.connect(url) as s:
        s.log.trim(PARTITION, to=0, pointer=0, keep_after=2**62)
    (found,) = call("status", "--url", url, "--json").lines
    assert found["partitions"][PARTITION]["lost"] == [0, 0]
    said = call("status", "--url", url).out
    assert "up to date" not in said
    header, *rows = said.splitlines()
    assert "lost" in header
    assert "0..0" in rows[PARTITION]
    assert f"warning: partition {PARTITION}: offsets 0 to 0 are lost" in said
    doctor = call("doctor", "--url", url, "--json")
    (journal,) = [line for line in doctor.lines if line["name"] == "journal"]
    assert doctor.code == 7
    assert journal["state"] == "wrong"
    assert f"partition {PARTITION}: offsets 0 to 0" in journal["found"]
    assert "backup" in journal["remedy"]


def test_schema(url: str) -> None:
    appended(url)
    log, store = call("schema", "show", "--url", url, "--json").lines
    assert (log["kind"], log["fixed"]["partitions"], log["missing"], log["unknown"]) == ("log", "8", [], [])
    assert (store["kind"], store["fixed"]["log_id"]) == ("store", log["fixed"]["log_id"])
    assert store["done"] == store["known"] != []
    assert call("schema", "upgrade", "--url", url, "--yes").out == "log: up to date\nstore: up to date\n"
    assert "partitions = 8" in call("schema", "show", "--url", url).out


@pytest.mark.req("J110", "RS5")
def test_schemas_of_other_versions(url: str) -> None:
    appended(url)
    with edited(Path("orders/store.db")) as connection:
        connection.execute("INSERT INTO schema_step (name, additive) VALUES ('999_later', 0)")
    newer = call("head", KEY, "--url", url, "--json")
    assert (newer.code, newer.name) == (7, "SchemaMismatch.version")
    assert call("schema", "upgrade", "--url", url, "--yes", "--json").code == 7
    assert call("schema", "show", "--url", url, "--json").lines[1]["unknown"] == ["999_later"]
    assert "newer strandline" in call("schema", "show", "--url", url).out
    with edited(Path("orders/store.db")) as connection:
        connection.execute("DELETE FROM schema_step WHERE name = '999_later'")
        last = connection.execute("SELECT name FROM schema_step ORDER BY nr DESC LIMIT 1").get
        connection.execute("DELETE FROM schema_step WHERE name = ?", (last,))
        connection.execute("DROP TABLE repaired")  # what that step made
    older = call("head", KEY, "--url", url, "--json")
    assert (older.code, older.problem["hint"]) == (7, "strandline schema upgrade")
    assert call("schema", "show", "--url", url, "--json").lines[1]["missing"] == [last]
    assert call("schema", "upgrade", "--url", url, "--yes", "--json").lines[1]["done"] == [last]
    assert call("head", KEY, "--url", url, "--json").lines[0]["seq_nr"] == 1


# ---------------------------------------------------------------- exit codes of what a back-end refuses


def test_folder_that_is_not_there_is_not_made(url: str) -> None:
    for command in (["read", KEY], ["head", KEY], ["keys"], ["status"], ["mark", KEY], ["purge", KEY, "--yes"]):
        answer = call(*command, "--url", url, "--json")
        assert (answer.code, answer.name) == (7, "SchemaMismatch.no_schema")
        assert "append" in answer.problem["hint"]
    assert not Path("orders").exists()


def test_exit_codes_of_log_and_store(url: str) -> None:
    appended(url)
    other = call("append", KEY, "--url", url, "--set", "partitions=4", "--json", stdin=lines(*placed()))
    assert (other.code, other.name) == (7, "SchemaMismatch.setting")
    assert (other.problem["facts"]["stored"], other.problem["facts"]["given"]) == (8, 4)
    with edited(Path("orders/log.db")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        busy = call("append", KEY, "--url", url, "--set", "append_timeout_s=0.1", "--json", stdin=lines(*placed()))
    assert (busy.code, busy.name, busy.problem["retryable"]) == (6, "Unavailable.timeout", True)
    Path("other").mkdir()
    Path("other/log.db").write_bytes(b"no database at all, but long enough to have a header" * 100)
    foreign = call("head", KEY, "--url", "sqlite:other", "--json")
    assert (foreign.code, foreign.name) == (7, "SchemaMismatch.foreign_file")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (strandline.InvalidInput("m", code="option"), 2),
        (strandline.NotFound("m", code="event"), 3),
        (strandline.Conflict("m", code="switch"), 4),
        (strandline.SeqNrConflict("m", code="first"), 4),
        (strandline.ReadConflict("m"), 4),
        (strandline.LeaseHeld("m"), 4),
        (strandline.LeaseLost("m"), 4),
        (strandline.MissingEvent("m", code="store"), 5),
        (strandline.Corrupt("m", code="fold"), 5),
        (strandline.Unavailable("m", code="away", applied="unknown"), 6),
        (strandline.SchemaMismatch("m", code="version"), 7),
        (strandline.Unsupported("m", code="clock"), 7),
    ],
)
def test_exit_code_of_each_class(
    error: strandline.StrandlineError, code: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(url)

    def head(*_: object) -> None:
        raise error

    monkeypatch.setattr(strandline.Journal, "head", head)
    answer = call("head", KEY, "--url", url, "--json")
    assert answer.code == answer.problem["exit_code"] == code
    assert answer.name == error.name
    assert answer.problem["applied"] == error.applied
    said = call("head", KEY, "--url", url)
    assert said.code == code
    assert said.err.startswith("error: m [")
    assert ("unknown" in said.err) == (error.applied == "unknown")


def test_bug_is_one_line_unless_a_traceback_is_asked_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    appended(url)

    def head(*_: object) -> None:
        raise ZeroDivisionError("many\nlines")

    monkeypatch.setattr(strandline.Journal, "head", head)
    answer = call("head", KEY, "--url", url)
    assert answer.code == 1
    said, hint = answer.err.splitlines()
    assert "this is a bug" in said
    assert "STRANDLINE_TRACEBACK=1" in hint
    assert call("head", KEY, "--url", url, "--json").problem["exit_code"] == 1
    assert "Traceback" in call("head", KEY, "--url", url, env={"STRANDLINE_TRACEBACK": "1"}).err


def test_bug_that_cannot_say_what_it_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a library may ask something else for its text, which may be gone."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ConnectionError("nobody there")

    def head(*_: object) -> None:
        raise Mute

    monkeypatch.setattr(strandline.Journal, "head", head)
    appended(url)
    answer = call("head", KEY, "--url", url)
    assert answer.code == 1
    assert answer.err.splitlines()[0] == "error: this is a bug: Mute"


# ---------------------------------------------------------------- where, and settings


def test_places_and_settings(url: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('url = "sqlite:from_file"\npartitions = 3\n')
    assert call("append", KEY, "--config", str(file), stdin=lines(*placed())).code == 0
    assert len(call("status", "--config", str(file), "--json").lines[0]["partitions"]) == 3
    environ = {"STRANDLINE_URL": "sqlite:from_environment"}
    assert call("head", KEY, "--config", str(file), "--json", env=environ).lines[0]["seq_nr"] == 1
    assert (
        call("append", KEY, "--url", url, "--config", str(file), "--set", "partitions=2", stdin=lines(*placed())).code
        == 0
    )
    assert len(call("status", "--url", url, "--json").lines[0]["partitions"]) == 2
    assert call("append", KEY, stdin=lines(*placed()), env=environ).code == 0
    files = ["--log", "sqlite:orders/log.db", "--store", "sqlite:orders/store.db"]
    assert call("head", KEY, *files, "--json").lines[0]["seq_nr"] == 1
    assert call("head", KEY, *files[:2], "--json").name == "InvalidInput.url_incomplete"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "from_environment",
        "from_file",
        "orders",
    ]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("nosuch:x", "url_scheme"),
        ("orders", "url_scheme"),
        ("sqlite:", "url_incomplete"),
        ("sqlite:absent/orders", "url_incomplete"),
        ("sqlite:orders?synchronous=off", "url_parameter"),
        ("postgresql://host:70000/db", "url_port"),
    ],
)
def test_bad_urls(given: str, name: str, url: str) -> None:
    answer = call("append", KEY, "--url", given, "--json", stdin=lines(*placed()))
    assert (answer.code, answer.name) == (2, f"InvalidInput.{name}")
    assert list(Path().iterdir()) == []


def test_purge_expired(url: str) -> None:
    assert call("append", KEY, "--url", url, "--expire-after", "0.001s", stdin=lines(*placed())).code == 0
    assert call("append", "order|7", "--url", url, "--expire-after", "1d", stdin=lines(*placed())).code == 0
    carried(url)
    purge = ["pipeline", "purge-expired", "--url", url]
    for _ in range(2):
        assert call(*purge, "--dry-run", "--json").lines == [{"key": KEY}]
    done = call(*purge, "--yes")
    assert (done.code, done.out) == (0, f"{KEY}\n")
    assert call(*purge, "--yes", "--json").lines == []
    assert call("head", KEY, "--url", url, "--json").lines == [None]
    assert call("head", "order|7", "--url", url, "--json").lines[0]["seq_nr"] == 1
