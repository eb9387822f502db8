"""The processes of a shop, each killed at the latest when their starter ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from strandline.children.process import Process
from strandline.errors import Unavailable

GRACE_S = 30.0
_COMMAND = "from strandline.cli import main; raise SystemExit(main())"


class Child(Process):
    """A Python process that listens, and all that it started."""

    def __init__(self, name: str, arguments: Sequence[str], said: Path) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        program = [sys.executable, *arguments]
        super().__init__(name, program, folder=Path.cwd(), log=said, environment=environment, listens=True)

    def end(self) -> None:
        """SIGTERM: it ends in order; `Unavailable.timeout` if it does not."""
        self.send(signal.SIGTERM)
        self.join(GRACE_S)

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended well; `Unavailable` if it has not."""
        if self.wait(timeout_s) is None:
            raise Unavailable(
                f"{self.name} did not end within {timeout_s:.0f} s", code="timeout", hint=f"see {self.log}"
            )
        self.check()

    def check(self) -> None:
        """`Unavailable.away` if it ended badly."""
        if self.code:
            raise self.failure(f"ended with exit code {self.code}")


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
