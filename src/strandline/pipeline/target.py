"""A target names the back-ends that a Spark task works on, and opens them where the task runs.

Connections are opened in the process that uses them, after its fork, and kept from batch to batch. Options and plans of
Spark are no place for a password: a target that has one travels as the name of a file.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from strandline.connect import Strandline, connect
from strandline.urls import masked

_OPEN: dict[tuple[int, str], Strandline] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """Where the log and the store are, as text that can travel."""

    url: str | None = None
    log: str | None = None
    store: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    kept_in: str | None = None
    """The file that has all of it."""

    def by_reference(self, folder: Path) -> Target:
        """The same without passwords: itself if it has none, else one that is kept in a file of this folder."""
        if not any(place and masked(place) != place for place in (self.url, self.log, self.store)):
            return self
        handle, path = tempfile.mkstemp(prefix="target-", suffix=".json", dir=folder)  # for this user alone
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.to_json())
        return Target(kept_in=path)

    def connect(self, **more: Any) -> Strandline:
        """A connection of the caller's own."""
        if self.kept_in is not None:
            return Target.from_json(_kept(Path(self.kept_in))).connect(**more)
        return connect(self.url, log=self.log, store=self.store, **{**self.settings, **more})

    def open(self) -> Strandline:
        """The connection of this process, opened at the first call."""
        name = os.getpid(), self.to_json()
        if name not in _OPEN:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the driver has said what can be lost, once
                _OPEN[name] = self.connect(schema="check")
        return _OPEN[name]

    def drop(self) -> None:
        """Forget this process's connection: after an error the next call opens a new one."""
        opened = _OPEN.pop((os.getpid(), self.to_json()), None)
        if opened is not None:
            opened.close()

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Target:
        return cls(**orjson.loads(text))


def _kept(path: Path) -> str:
    """What is in a file of the driver's: on its own machine, or where Spark has put it on another."""
    if not path.exists():
        from pyspark import SparkFiles

        path = Path(SparkFiles.get(path.name))
    return path.read_text(encoding="utf-8")
