"""How a run on the command line ends: in order at SIGTERM and at Ctrl-C, at once at a second Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from strandline.cli.failure import EXIT_INTERRUPTED
from strandline.cli.output import note

ENDS_IT = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_in_order(stop: Callable[[], object], waits_for: str) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C call `stop`, and say what is waited for; Ctrl-C is raised when all is over.

    A second Ctrl-C ends the process there and then, as a kill would, which leaves nothing half done: what it had in
    hand is handed out again.
    """
    asked: list[int] = []

    def end() -> None:
        with suppress(OSError):
            note(f"stopping: waits for {waits_for}; Ctrl-C again ends at once")
        stop()

    def heard(number: int, _: Any) -> None:
        if number == signal.SIGINT and number in asked:
            with suppress(OSError):
                os.write(sys.stderr.fileno(), b"interrupted\n")  # a print of this thread may be under way
            os._exit(EXIT_INTERRUPTED)
        if not asked:
            Thread(target=end, name="strandline-stop", daemon=True).start()  # this one may hold what `stop` needs
        asked.append(number)

    heeded = [number for number in ENDS_IT if signal.getsignal(number) is not signal.SIG_IGN]  # as a shell's & is deaf
    before = [(number, signal.signal(number, heard)) for number in heeded]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if signal.SIGINT in asked:
            raise KeyboardInterrupt
