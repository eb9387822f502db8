"""The leash: a child process dies with the process that started it, however that one ends.

The parent holds the other end of the child's standard input. When it is gone the input ends, and the child kills its
whole process group: a pipeline takes its Java along.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable


def hold(line: Callable[[str], None] | None = None) -> None:
    """Put this process on the leash; `line` is called with each line that the parent sends."""
    threading.Thread(target=_watch, args=(line,), name="leash", daemon=True).start()


def _watch(line: Callable[[str], None] | None) -> None:
    # Bare reads: a thread that waits inside sys.stdin would hold up the end of the interpreter.
    rest = b""
    while data := _read():
        *lines, rest = (rest + data).split(b"\n")
        for text in lines:
            if line is not None:
                line(text.decode())
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _read() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""
