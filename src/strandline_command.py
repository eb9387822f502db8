"""The program `strandline`, as a shell starts it.

Ctrl-C while its modules are loaded ends it as it does later, with a line: nothing is open yet. An interruption in the
middle of an import would be told by a traceback, or by whatever the module makes of it.
"""

import os
import signal
from typing import Any

EXIT_INTERRUPTED = 130


def main() -> int:
    """Run one command; the exit code."""
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a shell's background job
    if not deaf:
        signal.signal(signal.SIGINT, _end)
    from strandline.cli.app import run

    if not deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


def _end(*_: Any) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)
