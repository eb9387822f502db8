"""Partitions that are held back after a failure: the driver says until when, and the stream's source leaves them alone.

The source lives in a process of its own, on the driver's machine, for as long as the query runs; a file tells it. It
has its full length from the start on, so that a disk that becomes full changes nothing.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Mapping
from pathlib import Path

NOT_HELD = 0.0


class Held:
    """For each partition, until when it is held, by this machine's monotonic clock."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def create(cls, folder: Path, partitions: int) -> Held:
        handle, path = tempfile.mkstemp(prefix="held-", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(array("d", [NOT_HELD] * partitions).tobytes())
        return cls(path)

    def put(self, until: Mapping[int, float], partitions: int) -> None:
        """These are held; no other is."""
        times = array("d", [until.get(partition, NOT_HELD) for partition in range(partitions)])
        with Path(self.path).open("r+b", buffering=0) as file:
            file.write(times.tobytes())

    def get(self, now: float) -> dict[int, float]:
        """Those that are held at this time, and until when."""
        times = array("d")
        times.frombytes(Path(self.path).read_bytes())
        return {partition: until for partition, until in enumerate(times) if until > now}

    def remove(self) -> None:
        Path(self.path).unlink(missing_ok=True)
