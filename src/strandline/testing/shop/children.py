"""The demo's processes: started on a leash, each in a session of its own, killed at the latest when the demo ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from strandline.errors import Unavailable

GRACE_S = 30.0
# The command itself, on the leash.
_COMMAND = "from strandline.demo import leash; leash.hold(); from strandline.cli import main; raise SystemExit(main())"


class Child:
    """A process and all that it started."""

    def __init__(self, name: str, arguments: Sequence[str], said: Path) -> None:
        self.name, self.said = name, said
        with said.open("ab") as file:
            self.process = subprocess.Popen(  # noqa: S603 (our own interpreter and modules)
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is the demo's to handle; and a kill can take its Java along
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tell(self, line: str) -> None:
        """Send a line; a child that is gone does not mind."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()

    def kill(self) -> None:
        """kill -9, of it and all that it started: Spark's Java and workers have process groups of their own."""
        while pids := _session(self.process.pid):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()  # takes it off the list
        if self.process.returncode is None:
            self.process.kill()
        self.process.wait()
        self._let_go()

    def stop(self) -> None:
        """SIGTERM: it ends in order; `Unavailable.timeout` if it does not."""
        if self.alive:
            self.process.terminate()
        self.join(GRACE_S)

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended well; `Unavailable` if it has not."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"{self.name} did not end within {timeout_s:.0f} s", code="timeout", hint=f"see {self.said}"
            ) from None
        self._let_go()
        if code != 0:
            raise self.failure()

    def check(self) -> None:
        """`Unavailable.away` if it ended badly."""
        if self.process.poll() not in (None, 0):
            raise self.failure()

    def failure(self) -> Unavailable:
        """What to say of a child that ended badly."""
        lines = self.said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "")
        return Unavailable(
            f"{self.name} ended with exit code {self.process.returncode}: {last[:300] or 'it said nothing'}",
            code="away",
            hint=f"all that it said is in {self.said}",
        )

    def _let_go(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


class Children:
    """All of them. Leaving the context kills whoever is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Child] = []

    def module(self, name: str, module: str, *arguments: object) -> Child:
        """Start `python -m MODULE`."""
        return self._start(name, ["-m", module, *map(str, arguments)])

    def command(self, name: str, *arguments: object) -> Child:
        """Start `strandline ARGUMENTS`."""
        return self._start(name, ["-c", _COMMAND, *map(str, arguments)])

    def _start(self, name: str, arguments: Sequence[str]) -> Child:
        child = Child(name, arguments, self._folder / f"{name.replace(' ', '-')}.out")
        self._all.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._all:
            child.kill()


def _session(leader: int) -> list[int]:
    """Processes of a session that are left; none where the system does not say: there the leash sees to them."""
    try:
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if _session_of(pid) == leader]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
