"""Planted faults: each patch applies to the sources as they are, and the quickest are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("fold-gap-too-far", "work-done-before-the-commit")


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "faults.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)


def test_every_planted_fault_can_still_be_planted() -> None:
    """Where the code moved on, make the patch anew: what it breaks must still be found."""
    done = call("--check")
    assert done.returncode == 0, done.stdout


def test_planted_faults_are_found() -> None:
    done = call(*QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("found ") == len(QUICK)
