"""The process that forks Spark's Python workers, in sessions that Strandline starts.

It is PySpark's daemon with two changes to what a worker does around its tasks:

- After a worker's first task everything it has imported is taken out of the garbage collector's sight. PySpark collects
  after every task, which takes longer than a small batch otherwise.
- A worker whose socket Spark has closed (idle for a minute, or a query that ended) leaves without a word. Over Unix
  sockets PySpark's own would print a traceback on the user's terminal.
"""

from __future__ import annotations

import gc
import os
from socket import socket

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket, authenticated: bool) -> int:
    """Serve one task."""
    try:
        code = _work(sock, authenticated)
    except BrokenPipeError:
        os._exit(0)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
