"""A target names the back-ends that a Spark task works on, and opens them where the task runs.

Connections are opened in the process that uses them, after its fork, and kept from batch to batch.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from strandline.connect import Strandline, connect

_OPEN: dict[tuple[int, str], Strandline] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """Where the log and the store are, as text that can travel."""

    url: str | None = None
    log: str | None = None
    store: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def connect(self, **more: Any) -> Strandline:
        """A connection of the caller's own."""
        return connect(self.url, log=self.log, store=self.store, **{**self.settings, **more})

    def open(self) -> Strandline:
        """The connection of this process, opened at the first call."""
        name = os.getpid(), self.to_json()
        if name not in _OPEN:
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
