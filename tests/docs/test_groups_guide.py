"""What the guide to event groups shows runs as it stands there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.acceptance.cli_call import call
from tests.docs.test_readme import ROOT, run

GUIDE = (ROOT / "docs/GROUPS.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.req("G70", "G86")
def test_the_programs_and_the_commands_after_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = blocks("python")
    for program, times in ((first, 2), (second, 1), (third, 1)):
        for _ in range(times):
            done = run([sys.executable, "-c", program], tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert all(f"`{line}`" in " ".join(GUIDE.split()) for line in done.stdout.splitlines())
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 7
    for command in commands:
        answer = call(*shlex.split(command)[1:])
        assert answer.code == 0, (command, answer.err)
