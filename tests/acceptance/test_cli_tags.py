"""`strandline by-tag`: lines for people, JSON for programs, offsets to go on from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.cli_call import call
from tests.query.filling import carry_all

import strandline
from strandline import Event

URL = "sqlite:shop"


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with strandline.connect(URL, partitions=2) as s:
        for number in range(3):
            s.journal.append(f"order|{number}", [Event("Paid", {"total": number}, tags=["blue"])])
        carry_all(s)


@pytest.mark.req("T42", "T43", "T47")
def test_by_tag() -> None:
    shown = call("by-tag", "blue", "--url", URL)
    assert shown.code == 0
    heading, *lines = shown.out.splitlines()
    assert heading.split() == ["time", "#", "event"]
    assert [line.split()[3:] for line in lines] == [
        [f"order|{number}", "1", "Paid", f'{{"total":{number}}}'] for number in range(3)
    ]
    events = call("by-tag", "blue", "--url", URL, "--json").lines
    assert [(event["key"], event["tag"], event["tag_seq_nr"]) for event in events] == [
        (f"order|{number}", "blue", 1) for number in range(3)
    ]
    rest = call("by-tag", "blue", "--url", URL, "--json", "--after", events[0]["offset"]).lines
    assert rest == events[1:]
    assert call("by-tag", "blue", "--url", URL, "--json", "--from", events[1]["time"]).lines == events[1:]
    assert call("by-tag", "blue", "--url", URL, "--json", "--to", events[1]["time"]).lines == events[:2]
    assert call("by-tag", "blue", "--url", URL, "--json", "--limit", "1").lines == events[:1]
    none = call("by-tag", "red", "--url", URL)
    assert (none.code, none.out) == (0, "")
    assert "red" in none.err


@pytest.mark.req("T5", "T42")
def test_refused() -> None:
    for words, code in (
        (("", ), "invalid_tag"), ((" a",), "invalid_tag"), (("blue", "--after", "x"), "offset_format"),
        (("blue", "--from", "now"), "time_format"), (("blue", "--from", "2026-01-01T00:00:00"), "time_without_zone"),
        (("blue", "--limit", "0"), "limit_range"),
    ):  # fmt: skip
        answer = call("by-tag", *words, "--url", URL, "--json")
        assert (answer.code, answer.name) == (2, f"InvalidInput.{code}"), words


@pytest.mark.req("T47", "T80")
def test_live_ends_with_its_reader() -> None:
    """`by-tag --live | head -2`: what is there comes at once, and the program does not outlive its reader."""
    command = [sys.executable, "-c", "from strandline_command import main; main()"]
    words = [*command, "by-tag", "blue", "--live", "--limit", "3", "--url", URL, "--json"]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
