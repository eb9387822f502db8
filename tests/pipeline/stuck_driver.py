"""A program for a test to kill: a job that is stuck in a task.

Argument: a folder, where the file `task` says that it got stuck, and `fork` has the pid of a fork of the driver that
lives on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

from strandline.pipeline import session


def stay(folder: str, _: int) -> None:
    (Path(folder) / "task").touch()
    while True:
        time.sleep(1)


def main(folder: str) -> None:
    spark = session.start("local[2]", short=True)
    job = spark.sparkContext.parallelize([0], 1).map(partial(stay, folder))
    stuck = threading.Thread(target=job.collect, daemon=True)
    stuck.start()
    while not (Path(folder) / "task").exists():
        time.sleep(0.05)
    fork = os.fork()
    if not fork:
        time.sleep(300)
        os._exit(0)
    named = Path(folder) / "fork.new"
    named.write_text(str(fork))
    named.rename(Path(folder) / "fork")  # never there without its number
    stuck.join()


if __name__ == "__main__":
    main(sys.argv[1])
