"""Ctrl-C on what runs until it is stopped: it says what it waits for, and a second one waits for nothing."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.acceptance.cli_call import COMMAND, process_env
from tests.query.filling import carry_all

import strandline
from strandline import Event, Group, Recipe, WorkDeclaration

HANDLERS = """
import time
from pathlib import Path

from strandline import BySlices, Projection


def handle(*given):
    Path("in_hand").touch()
    while not Path("go").exists():
        time.sleep(0.01)


WORK = {"mails": handle}
GROUP = {"price": handle}
TOTALS = Projection("totals", BySlices("order"), handle)
"""
RUNS = {
    "work": ["work", "run", "handlers_of_ours:WORK"],
    "projections": ["projections", "run", "handlers_of_ours:TOTALS"],
    "group": ["group", "run", "--handlers", "handlers_of_ours:GROUP"],
}


@contextmanager
def with_something_in_hand(folder: Path, what: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run whose handler waits for a file `go`."""
    (folder / "handlers_of_ours.py").write_text(HANDLERS)
    with strandline.connect(f"sqlite:{folder}/orders", partitions=1) as s:
        if what == "work":
            s.work(WorkDeclaration("mails", key={"n": "int"}, data={"to": "text"})).add({"n": 1}, {"to": "ann"})
        elif what == "group":
            group = Group("g")
            group.empty("quote", recipes=[Recipe("price", handler="price", timeout_s=60)])
            s.groups(handlers={"price": print}).submit(group)
        else:
            s.journal.append("order|1", [Event("Placed")])
            carry_all(s)
    argv = [*COMMAND, *RUNS[what], "--url", "sqlite:orders"]
    run = subprocess.Popen(argv, cwd=folder, env=process_env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while not (folder / "in_hand").exists():
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield run
    finally:
        run.kill()
        run.communicate()


def told(run: subprocess.Popen[bytes]) -> str:
    """Ctrl-C, and what it says of it."""
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    while not (line := run.stderr.readline().decode()).startswith("stopping"):
        assert line, run.poll()
    return line


@pytest.mark.req("W76", "P91")
@pytest.mark.parametrize("what", RUNS)
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path, what: str) -> None:
    with with_something_in_hand(tmp_path, what) as run:
        line = told(run)
        assert "waits for" in line
        assert "Ctrl-C again ends at once" in line
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        assert run.wait(5) == 130
        assert time.monotonic() - began < 3
        assert run.stderr is not None
        assert run.stderr.read() == b"interrupted\n"


@pytest.mark.req("W76")
def test_the_first_one_lets_a_handler_end(tmp_path: Path) -> None:
    with with_something_in_hand(tmp_path, "work") as run:
        assert "up to 10 s" in told(run)
        (tmp_path / "go").touch()
        assert run.wait(10) == 130
        assert run.stderr is not None
        assert run.stderr.read() == b"interrupted\n"
    with strandline.connect(f"sqlite:{tmp_path}/orders") as s:
        assert s.work("mails").get({"n": 1}) is None
