"""The end of a run on the command line: in order at SIGTERM and Ctrl-C, at once at a second Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from strandline.cli.failure import EXIT_INTERRUPTED
from strandline.cli.output import note

ENDS_IT = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_in_order(stop: Callable[[], object], waits_for: str) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C call `stop`, and print what the end waits for; raise Ctrl-C when the run is over.

    A second Ctrl-C ends the process at once, as a kill would. That leaves nothing half done: the work in hand is handed
    out again. A thread receives the signals, because the main thread may wait in a call to a database, or hold a lock
    that `stop` needs.
    """
    asked: list[int] = []
    heard, told = os.pipe()
    os.set_blocking(told, False)

    def listen() -> None:
        while number := os.read(heard, 1):
            if number[0] == signal.SIGINT and signal.SIGINT in asked:
                with suppress(OSError):
                    os.write(sys.stderr.fileno(), b"interrupted\n")
                os._exit(EXIT_INTERRUPTED)
            if number[0] not in ENDS_IT:
                continue
            asked.append(number[0])
            if len(asked) == 1:
                with suppress(OSError):
                    note(f"stopping: waits for {waits_for}; Ctrl-C again ends at once")
                Thread(target=stop, name="strandline-stop", daemon=True).start()

    listener = Thread(target=listen, name="strandline-signals", daemon=True)
    # a command that a shell starts with & ignores SIGINT
    heeded = [number for number in ENDS_IT if signal.getsignal(number) is not signal.SIG_IGN]
    fd_before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    before = [(number, signal.signal(number, lambda *_: None)) for number in heeded]
    listener.start()
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd_before)
        os.close(told)
        listener.join()
        os.close(heard)
        if signal.SIGINT in asked:
            raise KeyboardInterrupt
