"""A target names the back-ends that a Spark task works on, and opens them where the task runs.

Connections are opened in the process that uses them, after its fork, and kept from batch to batch. A worker process
outlasts many jobs: connections that were not used for `UNUSED_S` are closed when another target is opened.

Options and plans of Spark are no place for a password: Spark prints them. So a URL that has one travels as a reference,
`file:PATH` or `env:NAME`, and is looked up where it is used. The file may be one that Spark has sent to the task's
machine.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from strandline.connect import Strandline, connect
from strandline.errors import InvalidInput, invalid
from strandline.urls import masked

PLACES = ("url", "log", "store")
UNUSED_S = 60.0


@dataclass(slots=True)
class _Opened:
    strandline: Strandline
    used: float


_OPEN: dict[tuple[int, str], _Opened] = {}


@dataclass(frozen=True, slots=True)
class JournalRef:
    """The URLs of log and store, as text that can travel."""

    url: str | None = None
    log: str | None = None
    store: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def by_reference(self, folder: Path) -> JournalRef:
        """Return this reference as it travels: a URL with a password is kept in a file of this folder, and a path
        becomes absolute, because the processes of Spark have another working directory.
        """
        url, log, store = (
            _kept(place, folder) if place and has_password(place) else place and _from_root(place)
            for place in self._places()
        )
        return replace(self, url=url, log=log, store=store)

    @property
    def files(self) -> list[str]:
        """The files that it refers to."""
        return [place.removeprefix("file:") for place in self._places() if place and place.startswith("file:")]

    def connect(self, **more: Any) -> Strandline:
        """Open a connection of the caller's own."""
        found = self._resolved()
        return connect(found.url, log=found.log, store=found.store, **{**self.settings, **more})

    def open(self) -> Strandline:
        """Return the connection of this process to what is named, opened at the first call."""
        found = self._resolved()
        name, now = (os.getpid(), found.to_json()), time.monotonic()
        opened = _OPEN.get(name)
        if opened is None:
            _close_unused(now)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the driver has already warned that data can be lost
                opened = _OPEN[name] = _Opened(found.connect(schema="check"), now)
        opened.used = now
        return opened.strandline

    def drop(self) -> None:
        """Forget this process's connection: after an error the next call opens a new one."""
        with suppress(InvalidInput):  # a target that cannot be looked up was not opened
            opened = _OPEN.pop((os.getpid(), self._resolved().to_json()), None)
            if opened is not None:
                opened.strandline.close()

    def _resolved(self) -> JournalRef:
        """Return the target with its URLs read from the files."""
        url, log, store = map(_resolved, PLACES, self._places())
        return replace(self, url=url, log=log, store=store)

    def _places(self) -> tuple[str | None, ...]:
        return self.url, self.log, self.store

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> JournalRef:
        return cls(**orjson.loads(text))


def has_password(place: str) -> bool:
    """Return whether the text is a URL with a password."""
    return masked(place) != place


def _from_root(place: str) -> str:
    scheme, _, path = place.partition(":")
    return place if scheme != "sqlite" or path.startswith("/") else f"sqlite:{Path(path).absolute()}"


def _kept(place: str, folder: Path) -> str:
    """Write the URL into a new file that only this user can read, and return a reference to it."""
    handle, path = tempfile.mkstemp(prefix="url-", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(place)
    return f"file:{path}"


def _resolved(name: str, place: str | None) -> str | None:
    """Return the URL that a reference stands for on this machine; a plain URL is returned as it is."""
    kind, _, where = (place or "").partition(":")
    if kind == "env":
        if where not in os.environ:
            raise _nothing(name, place, f"set the environment variable {where} wherever Spark runs Python")
        return os.environ[where]
    if kind == "file":
        try:
            return _found(Path(where)).read_text(encoding="utf-8").strip()
        except OSError:
            raise _nothing(name, place, "name a file that can be read wherever Spark runs Python") from None
    return place


def _found(path: Path) -> Path:
    """Return the file's path: on this machine as it is, or where Spark has put its copy."""
    if not path.exists():
        from pyspark import SparkFiles

        with suppress(Exception):  # Spark has sent no files
            return Path(SparkFiles.get(path.name))
    return path


def _nothing(name: str, place: str | None, hint: str) -> InvalidInput:
    allowed = "a URL, file:PATH or env:NAME"
    return invalid("url_incomplete", name, "refers to nothing that is here", allowed=allowed, got=place, hint=hint)


def _close_unused(now: float) -> None:
    process = os.getpid()
    for name, opened in list(_OPEN.items()):
        if name[0] == process and now - opened.used >= UNUSED_S:
            del _OPEN[name]
            opened.strandline.close()
