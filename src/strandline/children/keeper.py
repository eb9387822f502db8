"""Stands between a server and whoever started it: the server never outlives its starter, however that one ends.

Run as a file, because it must start fast: `python -I -S keeper.py COMMAND`, with a COMMAND that `process.py` writes. It
says the server's pid on its standard output, passes on the signals that come as lines on its standard input, and ends
when the server and all that the server started have ended. When the input ends, the starter is gone: the server is
ended by force, and a folder that nobody will ask for again is removed.
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
    """One server and its keeper."""

    def __init__(self, command: dict[str, Any]) -> None:
        self._left_alone = False
        self._remove: str | None = command["remove"]
        self._last_signal: int = command["last_signal"]
        _ask_kernel(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the server come to us
        self._server = subprocess.Popen(  # noqa: S603 - what process.py was told to start
            command["argv"],
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=2,
            cwd=command["folder"],
            env=command["environment"],
            process_group=0,
            preexec_fn=_before_server,  # noqa: PLW1509 - this process has one thread so far
            **command["user"],
        )

    def run(self) -> int:
        """Keep it; the server's exit code."""
        sys.stdout.write(f"{self._server.pid}\n")
        sys.stdout.flush()
        threading.Thread(target=self._obey, daemon=True).start()
        code = self._server.wait()
        self._end_rest()
        if self._left_alone and self._remove is not None:
            shutil.rmtree(self._remove, ignore_errors=True)
        return code if code >= 0 else 128 - code

    def _obey(self) -> None:
        with os.fdopen(0, "rb", buffering=0, closefd=False) as orders:
            for line in orders:
                self._server.send_signal(int(line))
        self._left_alone = True
        self._server.send_signal(self._last_signal)
        time.sleep(LAST_WAIT_S)
        self._server.kill()

    def _end_rest(self) -> None:
        """Kill what the server left behind, until there is nothing."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._server.pid, signal.SIGKILL)
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


def _before_server() -> None:
    _ask_kernel(PR_SET_PDEATHSIG, signal.SIGKILL)
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as a background job of a shell may have made us
        signal.signal(deaf, signal.SIG_DFL)


def _ask_kernel(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _children() -> list[int]:
    """Processes whose parent this one is."""
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
