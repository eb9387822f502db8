"""What the README shows runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.projection.worlds import until

import strandline

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def run(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_first_program_and_the_commands_after_it(tmp_path: Path) -> None:
    program, projection, _ = blocks("python")
    first = run([sys.executable, "-c", program], tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    printed = first.stdout.splitlines()
    assert printed == ["1 Placed {'total': 99}", "2 Paid {'by': 'card'}", "2"]
    assert all(f"`{line}`" in README for line in printed)
    assert len(program.strip().splitlines()) <= 10, "a first program of ten lines"
    again = run([sys.executable, "-c", program], tmp_path)
    assert "SeqNrConflict" in again.stderr
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("strandline ")]
    *commands, runs = commands
    assert len(commands) == 3
    for command in commands:
        answer = run(shlex.split(command), tmp_path)
        assert answer.returncode == 0, (command, answer.stderr)
    assert "Placed" in answer.stdout
    (tmp_path / "counts.py").write_text(projection, encoding="utf-8")
    for _ in range(2):  # what was counted is not counted again
        assert counted(shlex.split(runs, comments=True), tmp_path) == {"Placed": 1, "Paid": 1}


def counted(argv: list[str], folder: Path) -> dict[str, int]:
    """What the projection has counted, once it has come to the end; then it is stopped."""
    with subprocess.Popen(argv, cwd=folder, env=environment()) as running:
        try:
            with strandline.connect(f"sqlite:{folder}/shop") as s:
                until(lambda: [name for name, *_ in s.projections.list()] == ["seen"], 60)
                until(lambda: (one := s.projections.status("seen")).hosts and not one.behind_store_s, 60)
                with s.open_offsets(None).store.database.read() as tx:
                    return dict(tx.raw.execute("SELECT type, times FROM seen"))  # type: ignore[attr-defined]
        finally:
            running.terminate()
            assert running.wait(30) == 0


def test_the_program_for_asyncio(tmp_path: Path) -> None:
    *_, program = blocks("python")
    done = run([sys.executable, "-c", program], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    event, mail = done.stdout.splitlines()
    assert re.search(r"^20\d\d-.* Placed {'total': 12}$", event)
    assert mail == "a mail to ann"


def test_make_has_the_targets_that_are_shown() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
    assert shown == ["demo", "test", "soak", "servers", "setup"]
    assert all(f"\n{target}: " in makefile for target in shown)


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
