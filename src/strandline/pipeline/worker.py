"""How Spark's Python processes start in sessions that Strandline starts.

Spark runs `PYTHON -m MODULE`: daemons that fork workers for tasks and for planning, and one process per stream that
holds its source. Our sessions name as PYTHON a script that runs this file with the same arguments. What is changed:

- A worker takes what it has imported out of the garbage collector's sight after its first task. PySpark collects after
  every task, which takes longer than a small batch otherwise.
- A process whose socket Spark has closed (idle for a minute, or at the end of a query) leaves without a word. Over Unix
  sockets PySpark's own prints a traceback on the user's terminal.
- A process that is to connect to the JVM does so first, and loads PySpark then: Spark waits for it for 10 s, whatever
  is set, and on a busy machine loading takes longer. One that nobody waits for any more leaves without a word.
- A stream's source ends when its parent does, whatever it waits for. Daemons and their workers do so by themselves.

This file is run, not imported, by those processes: they need nothing of Strandline to start.
"""

from __future__ import annotations

import gc
import os
import runpy
import shlex
import sys
import threading
import time
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, create_connection, socket
from typing import Any

LOOK_S = 0.5

SCRIPT = """\
#!/bin/sh
# The Python of Spark's workers: starts theirs through Strandline's worker.py, and is Python otherwise.
case $1-$2 in
    -m-pyspark.*) exec {python} -P {worker} "$@" ;;
    *) exec {python} "$@" ;;
esac
"""


def python() -> str:
    """The program to give to Spark as its Python."""
    from strandline.pipeline import scripts

    text = SCRIPT.format(python=shlex.quote(sys.executable), worker=shlex.quote(str(Path(__file__).resolve())))
    return str(scripts.kept("python", text))


def main(module: str, *arguments: str) -> None:
    """Be `python -m MODULE ARGUMENTS`."""
    sys.argv[:] = [module, *arguments]
    sys.path.insert(0, str(Path.cwd()))  # as -m does
    if module == "pyspark.daemon":
        fork_workers()
    else:
        end_with_parent()
        connect_first()
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)


def connect_first() -> None:
    """Connect to the JVM that has started this process, and let PySpark find the connection when it wants one."""
    path, port = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if path is None and port is None:
        return
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    try:
        if path is not None:
            opened = socket(AF_UNIX, SOCK_STREAM)
            opened.connect(path)
        else:
            opened = create_connection((host, int(port or 0)))
    except OSError:
        os._exit(1)
    opened.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
    waiting = [opened]
    from pyspark import util

    connect = util.local_connect_and_auth

    def connected(where: str | int | None, secret: str | None) -> tuple[Any, ...]:
        if not waiting or where != (path or int(port or 0)):
            return connect(where, secret)
        sock = waiting.pop()
        file = sock.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536")))
        if secret is not None:
            util._do_server_auth(file, secret)
        return file, sock

    util.local_connect_and_auth = connected


def fork_workers() -> None:
    from pyspark import daemon

    work = daemon.worker

    def worker(sock: socket, authenticated: bool) -> int:
        try:
            code: int = work(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        return code

    daemon.worker = worker
    daemon.manager()


def end_with_parent() -> None:
    """End this process when its parent is gone, from a thread beside whatever it does."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[2:])
