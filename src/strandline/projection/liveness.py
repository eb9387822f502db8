"""Tells which hosts live. On a server a host beats; beside a file it holds a lock, which its death frees. A host writes
the length of its lease beside its beat. Other hosts use that length, never their own setting.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import uuid4

try:
    import fcntl
except ImportError:  # pragma: no cover (the file's own checks refuse such a system before)
    fcntl = None  # type: ignore[assignment]


def host_name() -> str:
    """Return a unique name for this host that shows a person where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


class Beat(NamedTuple):
    """The last beat of a host, in microseconds of the database's clock."""

    at: int
    lease_us: int
    since: int
    """When the host began to run the projection."""


class Liveness(Protocol):
    """Tells living hosts from dead ones."""

    beats: bool
    """Whether a host has to beat regularly to count as alive."""

    def living(self, hosts: Mapping[str, Beat], now: int) -> set[str]:
        """Return the hosts that live."""

    def until(self, beat: Beat) -> int | None:
        """Return when a host counts as dead if it beats no more; None if beats do not decide that."""

    def close(self) -> None:
        """Note that this host has ended."""


class HeartbeatLiveness:
    """A host whose beat is older than the lease is dead. The clock is the database's."""

    beats = True

    def living(self, hosts: Mapping[str, Beat], now: int) -> set[str]:
        return {host for host, beat in hosts.items() if now <= self.until(beat)}

    def until(self, beat: Beat) -> int:
        return beat.at + beat.lease_us

    def close(self) -> None:
        pass


class FileLockLiveness:
    """A host lives as long as it holds the lock on its file, beside the database."""

    beats = False

    def __init__(self, database: Path, host: str | None) -> None:
        """With `host` None this only reads, and takes no lock."""
        self._database = database
        self._held = -1
        if host is not None:
            self._path = self._file(host)
            while self._held < 0:
                self._held = self._taken()

    def _taken(self) -> int:
        """Return the locked file; -1 if another host found it unlocked and removed it as a dead host's."""
        made = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(made, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(made), self._path.stat()):
                return made
        except FileNotFoundError:
            pass
        os.close(made)
        return -1

    def living(self, hosts: Mapping[str, Beat], now: int) -> set[str]:
        return {host for host in hosts if self._lives(host)}

    def until(self, beat: Beat) -> None:
        return None

    def _lives(self, host: str) -> bool:
        path = self._file(host)
        try:
            found = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(found)

    def _file(self, host: str) -> Path:
        return self._database.with_name(f"{self._database.name}-host-{host.replace(os.sep, '_')}")

    def close(self) -> None:
        if self._held >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._held)
            self._held = -1
