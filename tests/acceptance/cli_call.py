"""Runs commands: in this process for tables of input, as a process where the process is what is tested."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from strandline.cli import main

COMMAND = (sys.executable, "-c", "import sys; from strandline_command import main; sys.exit(main())")


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def problem(self) -> dict[str, Any]:
        """The error, as `--json` gives it: one object and nothing else."""
        (line,) = self.err.splitlines()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    @property
    def name(self) -> str:
        return f"{self.problem['title']}.{self.problem['code']}"


def call(*argv: str, stdin: bytes | io.RawIOBase = b"", env: Mapping[str, str] | None = None) -> Answer:
    """A command in this process, without a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    raw = io.BytesIO(stdin) if isinstance(stdin, bytes) else io.BufferedReader(stdin)
    given = io.TextIOWrapper(raw, encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name != "STRANDLINE_URL"}
    with (
        patch.dict(os.environ, {**clean, **(env or {})}, clear=True),
        patch.object(sys, "stdin", given),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main(list(argv))
    return Answer(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def run(*argv: str | bytes, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout_s: float = 60) -> Answer:
    """A command as a process of its own."""
    done = subprocess.run(
        [*COMMAND, *argv], input=stdin, env=process_env(env), capture_output=True, timeout=timeout_s, check=False
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def process_env(more: Mapping[str, str] | None = None) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    return {**clean, **(more or {})}


def lines(*events: Mapping[str, Any]) -> bytes:
    """Events as `append` reads them."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def placed(count: int = 1, **more: Any) -> Sequence[dict[str, Any]]:
    """Events to append."""
    return [{"type": "placed", "payload": {"total": number}, **more} for number in range(1, count + 1)]


def appended(url: str, count: int = 1, key: str = "order|42", **more: Any) -> None:
    """Append events, and see that it is done."""
    assert call("append", key, "--url", url, stdin=lines(*placed(count, **more))).code == 0
