"""A process between a child and its starter: the child never outlives the starter, however the starter ends.

Run as a file, because it must start fast: `python -I -S keeper.py COMMAND`, with a COMMAND that `process.py` writes. It
prints the child's pid on its standard output and obeys the lines of its standard input: a number is a signal for the
child, `>TEXT` a line for the child's own input. It ends when the child and all that the child started have ended. When
the input ends, the starter is gone: the keeper kills the child, and removes the folder `remove`, if one was given.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

LAST_WAIT_S = 5
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Keeper:
    """One child and its keeper."""

    def __init__(self, command: dict[str, Any]) -> None:
        self._left_alone = False
        self._remove: str | None = command["remove"]
        self._last_signal: int = command["last_signal"]
        _ask_kernel(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the child come to us
        self._child = subprocess.Popen(  # noqa: S603 - what process.py was told to start
            command["argv"],
            stdin=subprocess.PIPE if command["listens"] else subprocess.DEVNULL,
            stdout=2,
            stderr=2,
            cwd=command["folder"],
            env=command["environment"],
            process_group=0,
            preexec_fn=_before_child,  # noqa: PLW1509 - this process has one thread so far
            **command["user"],
        )

    def run(self) -> int:
        """Run the child and return its exit code."""
        sys.stdout.write(f"{self._child.pid}\n")
        sys.stdout.flush()
        threading.Thread(target=self._obey, daemon=True).start()
        code = self._child.wait()
        self._end_rest()
        if self._left_alone and self._remove is not None:
            shutil.rmtree(self._remove, ignore_errors=True)
        return code if code >= 0 else 128 - code

    def _obey(self) -> None:
        with os.fdopen(0, "rb", buffering=0, closefd=False) as orders:
            for line in orders:
                if line.startswith(b">"):
                    self._tell(line[1:])
                else:
                    self._child.send_signal(int(line))
        self._left_alone = True
        self._child.send_signal(self._last_signal)
        time.sleep(LAST_WAIT_S)
        self._child.kill()

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # the child does not read its input any more
            if self._child.stdin is not None:
                self._child.stdin.write(line)
                self._child.stdin.flush()

    def _end_rest(self) -> None:
        """Kill the processes that the child left behind, until there is none."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if ended == 0:
                time.sleep(0.005)


def _before_child() -> None:
    _ask_kernel(PR_SET_PDEATHSIG, signal.SIGKILL)
    # a shell may have started us with these ignored, as it does with background jobs
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_DFL)


def _ask_kernel(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _children() -> list[int]:
    """Return the pids of this process's children."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    # pid (name) state parent; a name may hold spaces and brackets
                    if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                        found.append(int(entry.name))
    return found


if __name__ == "__main__":
    raise SystemExit(Keeper(json.loads(sys.argv[1])).run())
