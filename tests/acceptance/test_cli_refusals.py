"""What a command refuses before it opens anything: one table per kind of mistake, each with its code and exit 2."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.acceptance.cli_call import Answer, call, run

from strandline.cli.events import INPUT_FACTOR
from strandline.servers.kafka import KafkaServer
from strandline.settings import Settings

KEY = "order|42"
GOOD = '{"type": "placed", "payload": {}}'


def refused(answer: Answer, name: str) -> None:
    assert answer.name == name
    assert answer.code == answer.problem["exit_code"] == 2
    assert answer.problem["applied"] == "no"
    assert answer.problem["hint"]
    assert answer.out == ""


@pytest.mark.parametrize(
    ("argv", "near"),
    [
        (["apend", KEY], "append"),
        (["raed", KEY], "read"),
        (["pipelin"], "pipeline"),
        (["pipeline", "rnu"], "run"),
        (["pipeline", "purge_expired"], "purge-expired"),
        (["schema", "upgade"], "upgrade"),
        (["read", KEY, "--form", "3"], "--from"),
        (["append", KEY, "--expectd", "3"], "--expected"),
        (["status", "--wach"], "--watch"),
        (["--versoin"], "--version"),
        (["pipeline", "run", "--onec"], "--once"),
        (["read", KEY, "--set", "read_pge=10"], "read_page"),
    ],
)
def test_unknown_name_gets_the_nearest(argv: list[str], near: str) -> None:
    answer = call(*argv)
    assert answer.code == 2
    said, hint = answer.err.splitlines()
    assert said.startswith("error: ")
    assert hint == f"hint: did you mean {near}?"
    assert answer.out == ""


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["read"], "option"),
        (["read", KEY, "order|43"], "option"),
        (["delete", KEY], "option"),
        (["read", "order"], "key_type"),
        (["read", "|42"], "invalid_key"),
        (["read", "order|"], "invalid_key"),
        (["read", "order|a\x01b"], "invalid_key"),
        (["read", "order|" + "x" * 507], "key_too_long"),
        (["read", KEY, "--from", "abc"], "seq_nr_range"),
        (["read", KEY, "--from", "1.0"], "seq_nr_range"),
        (["read", KEY, "--from", "0"], "seq_nr_range"),
        (["read", KEY, "--from", "٣"], "seq_nr_range"),
        (["read", KEY, "--to", "0"], "seq_nr_range"),
        (["read", KEY, "--to", "9223372036854775808"], "seq_nr_range"),
        (["read", KEY, "--from", "4", "--to", "3"], "empty_range"),
        (["append", KEY, "--event", GOOD, "--expected", "-1"], "seq_nr_range"),
        (["append", KEY, "--event", GOOD, "--expected", "9223372036854775808"], "seq_nr_range"),
        (["append", KEY, "--event", GOOD, "--first", "0"], "seq_nr_range"),
        (["append", KEY, "--event", GOOD, "--append-id", ""], "append_id"),
        (["append", KEY, "--event", GOOD, "--expire-after", "30"], "expire_after"),
        (["append", KEY, "--event", GOOD, "--expire-after", "0d"], "expire_after"),
        (["append", KEY, "--event", GOOD, "--expire-after", "-1d"], "expire_after"),
        (["append", KEY, "--event", GOOD, "--expire-after", "36501d"], "expire_after"),
        (["append", KEY, "--event", GOOD, "--expire-after", "999999999999d"], "expire_after"),
        (["append", KEY, "--event", GOOD, "--header", "trace"], "header"),
        (["delete", KEY, "--to", "0", "--yes"], "seq_nr_range"),
        (["delete", KEY, "--to", "True", "--yes"], "seq_nr_range"),
        (["mark", KEY, "--id", ""], "mark_id"),
        (["mark", KEY, "--id", "x" * 129], "mark_id"),
        (["mark", KEY, "--id", "a\x07"], "mark_id"),
        (["keys", "order", "--limit", "0"], "limit_range"),
        (["keys", "order", "--limit", "1001"], "limit_range"),
        (["keys", "order", "--limit", "abc"], "limit_range"),
        (["read", KEY, "--limit", "0"], "limit_range"),
        (["read", KEY, "--limit", "-1"], "limit_range"),
        (["read", KEY, "--limit", "x"], "limit_range"),
        (["keys", "a|b"], "invalid_key"),
        (["keys", "order", "--after", "42"], "key_type"),
        (["pipeline", "resolve", "x", "1", "skip"], "option"),
        (["pipeline", "resolve", "1", "x", "skip"], "option"),
        (["pipeline", "resolve", "1", "1", "mend"], "how"),
        (["pipeline", "quarantine", "--limit", "0"], "limit_range"),
    ],
)
@pytest.mark.req("J122")
def test_bad_argument(argv: list[str], name: str, tmp_path: Path) -> None:
    refused(call(*argv, "--json", env={"STRANDLINE_URL": f"sqlite:{tmp_path}/none"}), f"InvalidInput.{name}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["read", KEY, "--from", "-2"], "--from: not a seq_nr"),
        (["read", KEY, "--from", "4", "--to", "3"], "--from: above --to"),
        (["read", KEY, "--to", "0"], "--to: not a seq_nr"),
        (["read", "order"], "KEY: not a key"),
        (["append", KEY, "--event", GOOD, "--expected", "-1"], "--expected: not a seq_nr"),
        (["append", KEY, "--event", GOOD, "--first", "0"], "--first: not a seq_nr"),
        (["append", KEY, "--event", GOOD, "--append-id", ""], "--append-id: not an append id; allowed a UUID, or text"),
        (["append", KEY, "--event", GOOD, "--expire-after", "36501d"], "--expire-after: out of range; allowed up to"),
        (["delete", KEY, "--to", "0", "--yes"], "--to: not a seq_nr"),
        (["mark", KEY, "--id", ""], "--id: "),
        (["keys", "order", "--after", "nope"], "--after: not a key"),
        (["keys", "order", "--limit", "0"], "--limit: out of range"),
        (["by-slices", "order", "0-"], "LO-HI: no slices"),
        (["by-slices", "order", "0-" + 5000 * "9"], "LO-HI: no slices"),
        (["by-slices", "order", "0-5", "--from", 5000 * "9"], "--from: not a time"),
        (["pipeline", "quarantine", "--limit", "0"], "--limit: out of range"),
        (["pipeline", "replay", "--out", "new", "--slices", "9-3"], "--slices: not a run of slices"),
        (["pipeline", "replay", "--out", "new", "--from", "yesterday"], "--from: not a time"),
    ],
)
@pytest.mark.req("J122")
def test_a_bad_argument_is_named_as_it_was_typed(argv: list[str], named: str, tmp_path: Path) -> None:
    env = {"STRANDLINE_URL": f"sqlite:{tmp_path}/none"}
    assert call(*argv, env=env).err.startswith(f"error: {named}")
    problem = call(*argv, "--json", env=env).problem
    assert problem["detail"].startswith(named)
    assert problem["facts"]["field"] == named.partition(":")[0]


@pytest.mark.parametrize("argv", [["--url", "sqlite:x", "status"], ["--once", "pipeline", "run"], ["--watch"]])
def test_an_option_before_the_command(argv: list[str]) -> None:
    answer = call(*argv)
    assert answer.code == 2
    said, hint = answer.err.splitlines()
    assert said.startswith(f"error: {argv[0]}: ")
    assert hint == f"hint: options follow the command: `strandline COMMAND {argv[0]} …`"
    assert call("pipeline", *argv).err.splitlines()[1].startswith("hint: ")


@pytest.mark.parametrize(
    ("argv", "said", "hint"),
    [
        (["help"], "command: unknown", "see `strandline --help`"),
        (["pipeline", "help"], "command: unknown", "see `strandline pipeline --help`"),
        (
            ["status", "sqlite:orders"],
            "strandline status: got unexpected extra argument",
            "a journal is named by --url",
        ),
        (["status", "--url"], "--url: requires an argument", "see `strandline COMMAND --help`"),
        (["pipeline", "run", "--once=yes"], "--once: does not take a value", "see `strandline COMMAND --help`"),
        (["status", "--url", "orders"], "--url: unknown scheme", "did you mean sqlite:orders?"),
        (["append", KEY, "--url", "sqlite:x"], "events: none", "give --event JSON, or JSON lines on standard input"),
        (["append", KEY, "--url", "sqlite:x", "--event", "[]"], "events[0]: no JSON object", 'give {"type": "…"'),
        (["demo", "--orders", "0"], "--orders: too few", "give 1 or more"),
        (["demo", "--on", "oracle"], "--on: unknown", "give sqlite"),
        (["bench", "append", "--rounds", "0"], "--rounds: ", "give 1 or more"),
        (["bench", "append", "--on", "oracle"], "--on: unknown", "give sqlite"),
    ],
)
def test_what_new_users_try(argv: list[str], said: str, hint: str, url: str) -> None:
    answer = call(*argv)
    assert answer.code == 2
    message, advice = answer.err.splitlines()
    assert message.startswith(f"error: {said}")
    assert advice.startswith(f"hint: {hint}")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"", "empty_append"),
        (b" \n\n", "empty_append"),
        (b"{", "invalid_json"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b'{"type": "a", "payload": {}} {}', "invalid_json"),
        (b"\xff\xfe", "invalid_unicode"),
        (b"[]", "events_type"),
        (b'"placed"', "events_type"),
        (b"{}", "events_type"),
        (b'{"payload": 1}', "events_type"),
        (b'{"type": 1, "payload": 1}', "events_type"),
        (b'{"type": "", "payload": 1}', "events_type"),
        (b'{"type": "a", "payload": 1, "payload_base64": "AA=="}', "events_type"),
        (b'{"type": "a", "payload_base64": "A"}', "payload_type"),
        (b'{"type": "a", "payload_base64": 7}', "payload_type"),
        (b'{"type": "a", "payload": 1, "kez": "order|1"}', "events_type"),
        (b'{"type": "a", "damaged": true}', "events_type"),
        (b'{"type": "a", "payload": 1, "metadata": 1}', "payload_type"),
        (b'{"type": "a", "payload": 1, "tags": "red"}', "invalid_tag"),
        (b'{"type": "a", "payload": 1, "tags": [1]}', "invalid_tag"),
        (b'{"type": "a", "payload": 1, "tags": [" red"]}', "invalid_tag"),
        (b'{"type": "a", "payload": NaN}', "number_not_finite"),
        (b'{"type": "a", "payload": {"x": [-Infinity]}}', "number_not_finite"),
        (b'{"type": "a", "payload": 1e999}', "number_out_of_range"),
        (b'{"type": "a", "payload": 9223372036854775808}', "integer_out_of_range"),
        (b'{"type": "a", "payload": ' + b"1" * 401 + b"}", "number_too_long"),
        (b'{"type": "a", "payload": "\\u0000"}', "nul_character"),
        (b'{"type": "a", "payload": "\\ud800"}', "invalid_unicode"),
        (b'{"type": "a", "payload": ' + b"[" * 65 + b"]" * 65 + b"}", "too_deep"),
        (b'{"type": "a", "payload": ' + b"[" * 100_000, "too_deep"),
        (b'{"type": "a", "payload": {"x": 1, "x": 2}}', "duplicate_key"),
        (b'{"type": "a", "type": "b", "payload": 1}', "duplicate_key"),
        (b'{"type": "a", "payload": "' + b"x" * 2**20 + b'"}', "event_too_large"),
    ],
)
def test_bad_event(text: bytes, name: str, tmp_path: Path) -> None:
    answer = call("append", KEY, "--url", f"sqlite:{tmp_path}/none", "--json", stdin=text)
    refused(answer, f"InvalidInput.{name}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", [0, 2])
def test_bad_event_among_good_ones_is_named(index: int) -> None:
    events = [b'{"type": "a", "payload": 1}'] * 3
    events[index] = b'{"type": "a", "payload": {"price": 1e999}}'
    answer = call("append", KEY, "--url", "sqlite:none", "--json", stdin=b"\n".join(events))
    assert f"events[{index}]" in answer.problem["detail"]


def test_unknown_field_gets_the_allowed_ones() -> None:
    answer = call("append", KEY, "--url", "sqlite:none", stdin=b'{"type": "a", "paylod": 1}')
    assert answer.code == 2
    said, hint = answer.err.splitlines()
    assert "metadata payload payload_base64 tags type" in said
    assert hint == "hint: did you mean payload?"


class Endless(io.RawIOBase):
    """The same again and again; somebody who takes a gigabyte of it would take it all."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text, self.taken = text, 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        assert self.taken < 2**30, "it is read without a limit"
        at = self.taken % len(self._text)
        part = self._text[at : at + len(into)]
        into[: len(part)] = part
        self.taken += len(part)
        return len(part)


@pytest.mark.req("RS3")
def test_endless_input_is_refused_before_memory_is_gone(tmp_path: Path) -> None:
    for text, code, *words in (
        (b"x" * 1_000_000, "append_too_large"),  # and never an end of its line
        (b'{"type": "a", "payload": "' + b"x" * 900_000 + b'"}\n', "too_many_events", "--append-id", "one append"),
    ):
        given = Endless(text)
        answer = call("append", KEY, "--url", f"sqlite:{tmp_path}/none", "--json", *words, stdin=given)
        refused(answer, f"InvalidInput.{code}")
        assert given.taken < 2 * INPUT_FACTOR * Settings().append_bytes_max
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("entity_type", ["group", "group_stream", "group_inbox", "admin_act"])
@pytest.mark.req("J123")
def test_types_of_strandline_itself_are_reserved(entity_type: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/none"
    for argv in (["append", "--event", GOOD], ["delete", "--to", "1", "--yes"], ["purge", "--yes"]):
        refused(call(*argv, f"{entity_type}|x", "--url", url, "--json"), "InvalidInput.reserved_entity_type")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "argv",
    [
        ["delete", KEY, "--to", "1"],
        ["purge", KEY],
        ["pipeline", "purge-expired"],
        ["pipeline", "resolve", "0", "0", "skip"],
        ["schema", "upgrade"],
    ],
)
def test_what_destroys_needs_a_terminal_or_yes(argv: list[str], tmp_path: Path) -> None:
    answer = call(*argv, "--url", f"sqlite:{tmp_path}/none", "--json", stdin=b"y\n")
    refused(answer, "InvalidInput.option")
    assert "--yes" in answer.problem["hint"]
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- where, and settings


def test_without_a_url() -> None:
    refused(call("head", KEY, "--json"), "InvalidInput.url_incomplete")
    assert "STRANDLINE_URL" in call("head", KEY).err


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["--url", "sqlite:a", "--log", "sqlite:b"], "url_incomplete"),
        (["--set", "read_page"], "setting"),
        (["--set", "=1"], "setting"),
        (["--set", "read_page=many"], "setting"),
        (["--set", "read_page=0"], "setting"),
        (["--set", "lease_s=nan"], "setting"),
        (["--set", "accept_power_loss=maybe"], "setting"),
        (["--set", "schema=drop"], "setting"),
        (["--config", "absent.toml"], "option"),
    ],
)
def test_bad_option(argv: list[str], name: str) -> None:
    refused(call("head", KEY, "--json", *argv), f"InvalidInput.{name}")


@pytest.mark.parametrize(
    ("text", "name", "near"),
    [
        ('urll = "sqlite:a"', "setting", "url"),
        ('url = "sqlite:a"\nread_pagee = 3', "setting", "read_page"),
        ('url = "sqlite:a"\n[groups]\nlease_s = 3', "setting", ""),
        ("url = 7", "setting", ""),
        ('url = "sqlite:a"\nread_page = "3"', "setting", ""),
        ("url = ", "option", ""),
        ("url = \xff", "invalid_unicode", ""),
    ],
)
def test_bad_configuration(text: str, name: str, near: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(text.encode("latin-1"))
    answer = call("head", KEY, "--json", "--config", str(file))
    refused(answer, f"InvalidInput.{name}")
    assert not near or near in answer.problem["hint"]


# ---------------------------------------------------------------- text and secrets


def test_argument_that_is_not_utf_8() -> None:
    answer = run("head", b"order|\xff", "--json")
    refused(answer, "InvalidInput.invalid_unicode")


def test_token_in_argv() -> None:
    token = "sl_a1b2_" + "s3cr3tS3cr3t" * 4
    for argv in (["head", KEY, "--token", token], ["head", KEY, f"--token={token}"]):
        answer = call(*argv, "--json")
        refused(answer, "InvalidInput.secret_in_argv")
        assert "s3cr3t" not in answer.err + answer.out


@pytest.mark.parametrize(
    "url",
    [
        "nosuch://user:hunter2hunter2@host/db",
        "nosuch://user:hunter2%2Fhunter2@host/db",
        "nosuch://user:hunter2/hunter2@host/db",
        "nosuch://user:" + "hunter2" * 40 + "@host/db",
        "nosuch://host/db?password=hunter2",
    ],
)
@pytest.mark.parametrize("how", ["option", "environment", "configuration"])
@pytest.mark.req("RS10")
def test_password_in_a_url_is_never_printed(url: str, how: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"url = {json.dumps(url)}\n")
    argv = {"option": ["--url", url], "environment": [], "configuration": ["--config", str(file)]}[how]
    env = {"STRANDLINE_URL": url} if how == "environment" else {}
    for command in (["head", KEY], ["doctor"], ["status", "--jsno"], ["schema", "show"], ["pipeline", "quarantine"]):
        for more in ([], ["--json"]):
            answer = call(*command, *argv, *more, env=env)
            assert answer.code in (2, 7)
            assert "hunter2" not in answer.out + answer.err


@pytest.mark.parametrize("password", ["postgres", "away", "start", "Unavailable", "mend", "password", "error", "hint"])
@pytest.mark.req("RS10")
def test_a_password_that_is_a_word_of_ours_leaves_our_words_alone(password: str) -> None:
    """It is masked where it stands as a password, and an error can still be read, by people and programs."""
    argv = ["status", "--set", "append_timeout_s=1", "--url"]
    plain = call(*argv, "postgresql://me:hunter22@127.0.0.1:1/db")
    masked = call(*argv, f"postgresql://me:{password}@127.0.0.1:1/db")
    assert masked.err == plain.err
    assert "postgresql://me:***@127.0.0.1:1/db" in masked.err
    problem = call(*argv, f"postgresql://me:{password}@127.0.0.1:1/db", "--json").problem
    assert (problem["title"], problem["code"]) == ("Unavailable", "away")


# ------------------------------------------------------------ in the words of the command line


@pytest.mark.parametrize(
    ("places", "message", "hint"),
    [
        (
            ["--log", "kafka://host:70000/orders", "--store", "memory:"],
            "--log: not a port; allowed 1..65535; got '70000'",
            "write HOST:PORT, or HOST alone for port 9092",
        ),
        (
            ["--url", "kafka://host/orders"],
            "--url: kafka holds a log alone; allowed --log URL and --store URL; got kafka://host/orders",
            "give --log URL and --store URL",
        ),
        (["--log", "memory:"], "--store: missing; allowed --url, or --log and --store", "give --store too"),
        (["--store", "memory:"], "--log: missing; allowed --url, or --log and --store", "give --log too"),
        (
            ["--log", "memory:", "--store", "oracle:x"],
            "--store: unknown scheme; allowed sqlite:FILE memory: postgresql://HOST/DATABASE cassandra://HOST/KEYSPACE;",
            "give sqlite:FILE",
        ),
        (["--url", "oracle:x"], "--url: unknown scheme; allowed sqlite:FOLDER", "or --log and --store with"),
    ],
)
def test_urls_are_named_by_their_options(places: list[str], message: str, hint: str) -> None:
    told = call("status", *places)
    assert told.code == 2
    said, advice = told.err.splitlines()
    assert said.startswith(f"error: {message}")
    assert hint in advice
    problem = call("status", "--json", *places).problem
    assert problem["detail"].startswith(message)
    assert hint in problem["hint"]
    assert problem["facts"]["field"].startswith("--")


def test_settings_are_named_by_their_option(kafka: KafkaServer, tmp_path: Path) -> None:
    log = f"{kafka.url}/{uuid4().hex}"
    told = call("append", "order|1", "--event", GOOD, "--log", log, "--store", f"sqlite:{tmp_path}/s.db")
    assert told.err.splitlines()[1].endswith(": --set accept_power_loss=true")


@pytest.mark.parametrize("places", [["--url", "sqlite:nosuch"], ["--log", "sqlite:no.db", "--store", "sqlite:none.db"]])
@pytest.mark.parametrize("command", [["status"], ["pipeline", "purge-expired", "--dry-run"], ["doctor"]])
def test_a_journal_that_is_not_there(command: list[str], places: list[str], url: str) -> None:
    answer = call(*command, *places)
    assert "is the URL right? `strandline append` and `group submit` make a new one" in answer.out + answer.err
