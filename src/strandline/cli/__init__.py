"""The command `strandline`: every operation of this package from a shell.

It promises: an error is one line and a hint on stderr, never a traceback; the exit code is that of the error's class;
with `--json` answers are JSON lines on stdout and an error is a JSON object on stderr; no secret is ever printed.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    from strandline.cli.app import run

    return run(argv)


__all__ = ["main"]
