"""Run the few tests once more, one by one, that failed beside others; the exit code is then theirs.

    python tools/again.py CODE    behind `pytest`, with its exit code

Two cores carry three lanes, four servers and Spark, and tests kill some of these under others. A test that fails there
and passes alone met a race, or a machine that was too slow. Its failure stays in the output, its name is the last line,
and it wants to be mended. More than three failures are never a matter of luck, and are not run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/strandline/failed")
"""Written by `tests/conftest.py`: the names of the tests that failed in the last run."""
FEW = 3
TESTS_FAILED = 1  # pytest's own; every other code is a run that did not come to its end


def again(code: int) -> int:
    """The exit code: of the second run if there was one, else the given one."""
    names: list[str] = json.loads(FAILED.read_text()) if FAILED.exists() else []
    if code != TESTS_FAILED or not 0 < len(names) <= FEW:
        return code
    print(f"Once more, one by one: {', '.join(names)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:randomly", *names]
    code = subprocess.run(command, check=False).returncode  # noqa: S603 (our own tests)
    if code == 0:
        print(f"Failed beside others and passed alone; to be mended: {', '.join(names)}", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(again(int(sys.argv[1])))
