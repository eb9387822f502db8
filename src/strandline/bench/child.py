"""Run a function in a Python process of its own and get its answer back.

A round in a fresh process owes nothing to the rounds before it: no warm cache, no garbage, no hooks, and its peak
memory is its own. Arguments and answer are JSON. The answer gets the process's peak memory as `peak_rss_mb`.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from strandline.children.process import Process
from strandline.errors import Unavailable


def in_child(function: str, **arguments: Any) -> dict[str, Any]:
    """The answer of `module:function` of this package, called with these arguments in a new process."""
    with Child(function, **arguments) as child:
        return child.answer()


class Child:
    """A function of this package at work in a process of its own, until it returns; at the latest it ends with us.

    It is told a line when it may end, or begin, on its standard input.
    """

    def __init__(self, function: str, **arguments: Any) -> None:
        self.function = function
        self._folder = tempfile.TemporaryDirectory(prefix="strandline-bench-child-")
        self._answer = Path(self._folder.name) / "answer.json"
        self._said = Path(self._folder.name) / "said"
        program = [sys.executable, "-m", "strandline.bench.child", function, json.dumps(arguments), str(self._answer)]
        self.process = Process(
            function, program, folder=Path.cwd(), log=self._said, environment=os.environ, listens=True
        )

    def stop(self) -> None:
        """Tell the function that it may go on."""
        self.process.tell("go on")

    def answer(self) -> dict[str, Any]:
        """Wait for the end of the function. `Unavailable.away` if it failed, with what it said."""
        if self.process.wait() != 0:
            raise self.failure()
        answer: dict[str, Any] = json.loads(self._answer.read_bytes())
        return answer

    def failure(self) -> Unavailable:
        """The error of a process that ended too early."""
        said = self._said.read_text(errors="replace").strip()
        lines = [line for line in said.splitlines() if not line.startswith("hint: ")]
        last = lines[-1] if lines else "it said nothing"
        return Unavailable(
            f"a round of the benchmark ended with {self.process.code}: {last}",
            code="away",
            hint="run it again with --quick; all that it said is in the facts",
            function=self.function,
            said=said[-8000:],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._folder.cleanup()


def peak_rss_mb(pid: int | str = "self") -> float:
    """The most memory (10^6 bytes) that a process of this machine ever had resident."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        if pid != "self":
            raise
        # Not Linux: kilobytes there, bytes on macOS.
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def main() -> None:
    """The child's side: call, then leave the answer where the parent looks for it."""
    function, arguments, path = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
    module, _, name = function.partition(":")
    answer = getattr(importlib.import_module(f"strandline.bench.{module}"), name)(**arguments)
    answer["peak_rss_mb"] = round(peak_rss_mb(), 1)
    path.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
