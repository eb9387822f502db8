"""What all servers have in common: a folder, an address that stays, and start, stop, kill, restart.

    new ── start ──▶ up ── stop, kill ──▶ down ── start, restart ──▶ up ── close ──▶ gone

What a server keeps is in its folder: it is there again after `restart`, also after `kill`. A folder that was not given
is a temporary one and goes with `close`, or with this process.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from strandline.children.process import Process
from strandline.errors import StrandlineError, Unavailable

HOST = "127.0.0.1"
# Below the ports that systems give to clients: one that tries to reach a server which is down could be given its port.
PORT_LEAST, PORT_MOST = 12_000, 32_000
PORT_TRIES = 3
PORT_TAKEN = ("Address already in use", "BindException")


class Server(ABC):
    """A server on this machine."""

    name: ClassVar[str]
    up_wait_s: ClassVar[float] = 120.0
    end_wait_s: ClassVar[float] = 30.0
    end_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder
        self._folder = folder
        self._process: Process | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, as `strandline.connect` takes it, apart from what is in it."""

    @abstractmethod
    def _prepare(self) -> None:
        """Write configuration and whatever else must be in the new folder."""

    @abstractmethod
    def _launch(self) -> Process:
        """Start the process."""

    @abstractmethod
    def _is_up(self, process: Process) -> bool:
        """Return whether the process takes requests."""

    @property
    def folder(self) -> Path:
        """Where everything is that it keeps."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"strandline-server-{self.name}-", dir=temporary_place()))
        return self._folder

    def facts(self) -> dict[str, str]:
        """Return what a user of the server must know beside its URL."""
        return {}

    @property
    def log_path(self) -> Path:
        """The server's log file."""
        return self.folder / "server.log"

    @property
    def process(self) -> Process:
        """Its process; `Unavailable` if there is none."""
        if self._process is None:
            raise Unavailable(f"{self.name} was not started", code="away", hint="call start()")
        return self._process

    @property
    def processes(self) -> list[Process]:
        """All that it consists of."""
        return [] if self._process is None else [self._process]

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def start(self) -> Self:
        """Start it and wait until it takes requests; `Unavailable` if it does not."""
        if self.alive:
            return self
        self.kill()  # what is left of it
        for tries_left in reversed(range(PORT_TRIES)):
            new = not self._prepared.exists()
            try:
                if new:
                    self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._prepare()
                    self._prepared.touch()
                self._run()
            except StrandlineError as error:
                # Between choosing a free port and listening on it somebody else may have taken it.
                again = new and tries_left > 0 and any(words in error.message for words in PORT_TAKEN)
                if again or not self.log_path.exists():
                    self._forget()  # otherwise its log is left to be read
                if not again:
                    raise
            except BaseException:  # Ctrl-C
                self.kill()
                self._forget()
                raise
            else:
                break
        return self

    def _run(self) -> None:
        process = self._process = self._launch()
        process.wait_until(lambda: self._is_up(process), self.up_wait_s)

    @property
    def _prepared(self) -> Path:
        return self.folder / "prepared"

    def stop(self) -> None:
        """Stop it in order. What it keeps stays."""
        if self._process is not None:
            self._process.stop(self.end_signal, self.end_wait_s)
            self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> Self:
        """Start it again, at the same address, with what it kept."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop it, and remove its folder if that was made for it. Twice is harmless."""
        self.stop()
        self._forget()

    def _forget(self) -> None:
        if self._folder is not None and self._given is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def _removed_without_us(self) -> Path | None:
        return self.folder if self._given is None else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def temporary_place() -> Path:
    """Where temporary folders are made: a short path that other users can pass through, as sockets need."""
    place = Path(tempfile.gettempdir())
    passable = all(folder.stat().st_mode & 0o001 for folder in (place, *place.parents))
    return place if passable and len(os.fsencode(place)) < 50 else Path("/tmp")  # noqa: S108 - mkdtemp follows


_given: Final = deque[int](maxlen=1000)


def free_port() -> int:
    """A port of loopback on which nobody listens now, and which nobody here was given lately.

    By chance of its own: who seeds the module `random` for all, as tests do, would get the same ports again.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.randint(PORT_LEAST, PORT_MOST)
        if port in _given:
            continue
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((HOST, port))
            except OSError:
                continue
        _given.append(port)
        return port


def plain_environment() -> dict[str, str]:
    """Return our environment without variables that would configure a server."""
    kept = ("PATH", "HOME", "TMPDIR", "TZ")
    return {"LC_ALL": "C.UTF-8", **{name: os.environ[name] for name in kept if name in os.environ}}
