"""What a reader holds (`memory_cases`), measured in a process of its own.

Python 3.11 may crash when it stops counting memory while threads of other tests take and give back some.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_readers_hold_little() -> None:
    options = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    program = [sys.executable, "-m", "pytest", *options, "tests/journal/memory_cases.py"]
    answer = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert " passed" in answer.stdout
