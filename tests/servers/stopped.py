"""A process that was told to stand still."""

from __future__ import annotations

import time
from pathlib import Path


def wait_until_stopped(pid: int) -> None:
    """Each thread stops when the kernel next sees it: until then it may answer."""
    deadline = time.monotonic() + 60
    while any(
        stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
