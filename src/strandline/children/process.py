"""A process of ours, started by a keeper, so that it never outlives us; its output goes into a file."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from strandline.children import keeper
from strandline.errors import Unavailable

POLL_S = 0.02
LINES_TOLD = 5


class Process:
    """One process and all processes that it starts. Its output is appended to `log`.

    If we die, it gets `last_signal` and is killed soon after, and the folder `remove` is removed. If it `listens`,
    `tell` writes to its standard input.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        user: pwd.struct_passwd | None = None,
        remove: Path | None = None,
        last_signal: signal.Signals = signal.SIGKILL,
        listens: bool = False,
    ) -> None:
        self.name, self.log = name, log
        command = {
            "argv": [str(part) for part in argv],
            "folder": str(folder),
            "environment": dict(environment),
            "user": as_user(user),
            "remove": None if remove is None else str(remove),
            "last_signal": last_signal.value,
            "listens": listens,
        }
        with log.open("ab") as said:
            self._log_start = said.tell()
            self._keeper = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                [sys.executable, "-I", "-S", keeper.__file__, json.dumps(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,  # Ctrl-C is for us to handle
            )
        self._orders = cast("IO[bytes]", self._keeper.stdin)
        # A fork of ours would hold the pipe open and keep the server alive after our death.
        os.register_at_fork(after_in_child=self._orders.close)
        try:
            with cast("IO[bytes]", self._keeper.stdout) as told:
                pid = told.readline()
        except BaseException:  # Ctrl-C
            self._orders.close()
            self._keeper.wait()
            raise
        if not pid:
            self._ended()
            raise self.failure(f"does not start (exit code {self._keeper.returncode})")
        self.pid = int(pid)

    @property
    def alive(self) -> bool:
        return self.code is None

    @property
    def code(self) -> int | None:
        """The exit code; 128 plus the signal's number if the process was killed; None while it runs."""
        return self._keeper.poll()

    def said(self) -> str:
        """Return its output since it was started."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def wait_until(self, up: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `up` returns true. If the process ends before, or that takes too long, stop it and raise
        `Unavailable`.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while not up():
                if not self.alive:
                    raise self.failure(f"ended with exit code {self._keeper.returncode}")
                if time.monotonic() > deadline:
                    raise self.failure(f"is not up after {timeout_s:.0f} s")
                time.sleep(POLL_S)
        except BaseException:
            self.kill()
            raise

    def send(self, sent: signal.Signals) -> None:
        """Send the process a signal, for example SIGSTOP; do nothing if it has ended."""
        self._order(str(sent.value))

    def tell(self, line: str) -> None:
        """Send the process a line; do nothing if it has ended."""
        self._order(f">{line}")

    def _order(self, order: str) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._orders.write(f"{order}\n".encode())
            self._orders.flush()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end; return the exit code, or None if it has not ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(timeout_s)
            self._ended()
        return self.code

    def stop(self, with_signal: signal.Signals, timeout_s: float) -> None:
        """Ask the process to end in order; kill it after `timeout_s`."""
        self.send(with_signal)
        if self.wait(timeout_s) is None:
            self.kill()

    def kill(self) -> None:
        """Kill the process with SIGKILL. When this returns, all processes that it started have ended, too."""
        self.send(signal.SIGKILL)
        self._ended()

    def failure(self, what: str) -> Unavailable:
        """Return the error for a process that failed."""
        lines = [line for line in self.said().splitlines() if line.strip()]
        told = " / ".join(line.strip()[:200] for line in lines[-LINES_TOLD:])
        return Unavailable(
            f"{self.name} {what}: {told or 'it said nothing'}", code="away", hint=f"all that it said is in {self.log}"
        )

    def _ended(self) -> None:
        self._keeper.wait()
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return the arguments with which `subprocess` runs a program as another user."""
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
