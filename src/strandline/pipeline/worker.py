"""How Spark's Python daemons start in sessions that Strandline starts.

Spark runs `PYTHON -m pyspark.daemon`, which forks workers for tasks, and others for planning. Our sessions name as
PYTHON a script that runs this file with the same arguments. One thing is changed: a worker whose socket Spark has
closed (idle for a minute) leaves without a word. Over Unix sockets PySpark's own prints a traceback on the user's
terminal.

This file is run, not imported, by those processes: they need nothing of Strandline to start.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from socket import socket

SCRIPT = """\
#!/bin/sh
# The Python of Spark's workers: starts their daemon through Strandline's worker.py, and is Python otherwise.
case $1-$2 in
    -m-pyspark.daemon) exec {python} -P {worker} "$@" ;;
    *) exec {python} "$@" ;;
esac
"""


def python() -> str:
    """Return the program to give to Spark as its Python."""
    from strandline.pipeline import scripts

    text = SCRIPT.format(python=shlex.quote(sys.executable), worker=shlex.quote(str(Path(__file__).resolve())))
    return str(scripts.kept("python", text))


def main(*arguments: str) -> None:
    """Run as `python -m pyspark.daemon ARGUMENTS`."""
    sys.argv[:] = ["pyspark.daemon", *arguments]
    sys.path.insert(0, str(Path.cwd()))  # as -m does
    fork_workers()


def fork_workers() -> None:
    from pyspark import daemon

    work = daemon.worker

    def worker(sock: socket, authenticated: bool) -> int:
        try:
            code: int = work(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)
        return code

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main(*sys.argv[3:])
