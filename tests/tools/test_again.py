"""What failed beside others is run once more, alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "again.py"
TESTS = """
from pathlib import Path

def test_of_luck():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_that_is_wrong():
    assert False

def test_that_is_right():
    Path("right").touch()
"""


def again(folder: Path, code: int, *names: str) -> tuple[int, str]:
    (folder / "test_some.py").write_text(TESTS)
    kept = folder / ".pytest_cache/v/strandline/failed"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps([f"test_some.py::{name}" for name in names]))
    ran = subprocess.run(
        [sys.executable, str(TOOL), str(code)], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return ran.returncode, ran.stdout


def test_one_that_passes_alone_is_named(tmp_path: Path) -> None:
    (tmp_path / "seen").touch()
    code, said = again(tmp_path, 1, "test_of_luck")
    assert code == 0
    assert said.splitlines()[-1] == "Failed beside others and passed alone; to be mended: test_some.py::test_of_luck"
    assert not (tmp_path / "right").exists()


def test_one_that_fails_again_is_a_failure(tmp_path: Path) -> None:
    code, said = again(tmp_path, 1, "test_that_is_wrong", "test_that_is_right")
    assert code == 1
    assert "passed alone" not in said
    assert (tmp_path / "right").exists()


@pytest.mark.parametrize(
    ("code", "names"), [(1, ["test_that_is_right"] * 4), (1, []), (2, ["test_that_is_right"]), (5, [])], ids=str
)
def test_what_is_no_matter_of_luck_is_not_run_again(tmp_path: Path, code: int, names: list[str]) -> None:
    assert again(tmp_path, code, *names) == (code, "")
    assert not (tmp_path / "right").exists()


def test_the_tests_of_this_project_keep_what_failed(tmp_path: Path) -> None:
    """`tests/conftest.py` writes what this tool reads."""
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:randomly", "-n", "0", "test_some.py"]
    path = {**os.environ, "PYTHONPATH": str(TOOL.parents[1])}
    ran = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1, ran.stderr
    kept = json.loads((tmp_path / ".pytest_cache/v/strandline/failed").read_text())
    assert sorted(kept) == ["test_some.py::test_of_luck", "test_some.py::test_that_is_wrong"]
