"""What the guide to work journals shows runs as it stands there, in its order."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.acceptance.cli_call import call
from tests.docs.test_readme import ROOT, run

GUIDE = (ROOT / "docs" / "WORK.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_its_programs_and_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for program in blocks("python"):
        done = run([sys.executable, "-c", program], tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), program
        said.append(done.stdout.splitlines())
    assert said[0][:2] == ["inserted", "merged"]
    assert "due=1, later=1" in said[0][2]
    assert said[1:] == [["to bob"], ["9"]]
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    monkeypatch.chdir(tmp_path)
    assert {command.partition(" ")[0] for command in commands} == {"strandline"}
    answers = [call(*shlex.split(command)[1:]) for command in commands]
    assert [answer.err for answer in answers if answer.code] == []
    assert "1 work journal, 0 alerts" in answers[0].out
    assert "later 2" in answers[3].out


def test_it_names_the_settings_that_there_are() -> None:
    from strandline.work.declaration import WorkSettings

    (settings,) = re.findall(r"## Settings\n(.*)", GUIDE, re.DOTALL)
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", settings))
    assert named <= set(WorkSettings.__dataclass_fields__)
    assert len(named) >= 6
