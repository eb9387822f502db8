"""What the guide to projections shows runs as it stands there."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.acceptance.cli_call import COMMAND, call
from tests.projection.worlds import until
from tests.query.filling import carry_all

import strandline

GUIDE = (Path(__file__).parents[2] / "docs/PROJECTIONS.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    return [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]


def run(argv: list[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout


@pytest.mark.req("P47", "P61", "P62", "P72", "P76", "P79", "P82")
def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    python, carrying, project, *rest = commands()
    assert (python, carrying[:4]) == (["python", "record.py"], ["strandline", "pipeline", "run", "--once"])
    run([sys.executable, *python[1:]], tmp_path)
    with strandline.connect("sqlite:shop") as s:
        carry_all(s)  # as the pipeline does, without starting Spark
        host = subprocess.Popen([*COMMAND, *project[1:]], cwd=tmp_path)
        try:
            until(lambda: s.projections.statuses() and s.projections.parked("totals") == ["order|3"], 30)
            said = {}
            for command in rest:
                answer = call(*command[1:])
                assert answer.code == 0, (command, answer.err)
                said[" ".join(command[1:3])] = answer.out
                until(lambda: not s.projections.status("totals").requests, 10)
                if command[2] == "unpark":
                    assert s.projections.parked("totals") == []
            assert said["projections parked"] == "order|3\n"
            assert "ValueError" in said["projections dead-letters"]
            assert "totals" in said["status --url"]
            assert len(s.projections.status("totals").ranges) == 16
            until(lambda: s.projections.parked("totals") == ["order|3"], 30)  # after its reset
        finally:
            host.send_signal(signal.SIGTERM)
            assert host.wait(30) == 0
    assert run([sys.executable, "run.py"], tmp_path) == "totals runs\n"
    table = apsw.Connection(str(tmp_path / "shop/projections.db"))
    found = dict(table.execute("SELECT customer, cents FROM total"))
    table.close()
    assert found == {"ann": 2000, "bob": 900}  # all events came once, and once more after the reset
