"""What the guide to projections shows runs as it stands there."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

import apsw
import pytest
from tests.acceptance.cli_call import call
from tests.projection.worlds import caught_up, running, until
from tests.query.filling import carry_all

import strandline
from strandline.cli.projections import _projections
from strandline.projection import host

GUIDE = (Path(__file__).parents[2] / "docs/PROJECTIONS.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    return [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]


def printed(program: str) -> str:
    """What a program of the guide prints, in this process."""
    capture = io.StringIO()
    with redirect_stdout(capture):
        runpy.run_path(program)
    return capture.getvalue().strip()


@pytest.mark.req("P47", "P61", "P62", "P72", "P76", "P79", "P82")
def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(host, "LOOK_S", 0.1)
    for block in blocks("python"):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    python, carrying, running_them, *rest = commands()
    assert running_them[:3] == ["strandline", "projections", "run"]
    assert (python, carrying[:4]) == (["python", "record.py"], ["strandline", "pipeline", "run", "--once"])
    runpy.run_path("record.py")
    with strandline.connect("sqlite:shop") as s:
        carry_all(s)  # as the pipeline does, without starting Spark
        with running(s, *_projections(running_them[3])):  # as the command does, in a process of its own
            until(lambda: s.projections.parked("totals") == ["order|3"] and caught_up(s))
            assert printed("look.py") in GUIDE
            said = {}
            for command in rest:
                answer = call(*command[1:])
                assert answer.code == 0, (command, answer.err)
                said[" ".join(command[1:3])] = answer.out
                until(lambda: not s.projections.status("totals").requests)
                if command[2] == "unpark":
                    assert s.projections.parked("totals") == []
            assert said["projections parked"] == "order|3\n"
            assert "ValueError" in said["projections dead-letters"]
            assert "totals" in said["status --url"]
            assert len(s.projections.status("totals").ranges) == 16
            until(lambda: s.projections.parked("totals") == ["order|3"])  # after its reset
    assert printed("run.py") == "totals runs"
    table = apsw.Connection("shop/projections.db")
    found = dict(table.execute("SELECT customer, cents FROM total"))
    table.close()
    sys.modules.pop("shop_projections")
    assert found == {"ann": 2000, "bob": 900}  # all events came once, and once more after the reset
