"""The pipeline's lease on a SQLite store: an OS lock that death frees, and a fence that only grows.

The lock says who may carry; it is on a file beside the store, `pipeline.lock` for a `store.db`, else `NAME.lock`. The
fence in the pointer rows says whose writes count: it protects the store even from a holder that does not know yet.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from strandline.errors import unusable
from strandline.store.refusals import check_fence

# A process that asks for the holder takes the lock for a moment; a process that wants the lease waits that long.
_PATIENCE_S = 0.2


def lock_path(store: Path) -> Path:
    """Return the path of a store file's lock."""
    return store.with_name("pipeline.lock" if store.name == "store.db" else f"{store.name}.lock")


class FileLock:
    """An exclusive lock on a file; the text in the file names the holder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Try to take the lock; return whether this object has it now."""
        handle = self._open()
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(handle)
                return False
            time.sleep(0.002)
        self._handle = handle
        _held.add(self)
        return True

    def taken(self) -> bool:
        """Return whether any process holds the lock."""
        handle = self._open()
        try:
            return not _locked(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def name(self, holder: str) -> None:
        """Write the holder's name into the file."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{holder}\n".encode(), 0)

    def free(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._handle is not None:
            self.name("")
            self.drop()

    def drop(self) -> None:
        """Close the file in a forked child, and leave the lock to the parent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._path, error.strerror) from None


class FileLease:
    """The right to carry a SQLite store."""

    def __init__(self, lock: FileLock, fence: int, in_force: Callable[[], int], ended: Callable[[int], None]) -> None:
        self.fence = fence
        self._lock = lock
        self._in_force = in_force
        self._ended = ended
        self._released = False

    def check(self) -> None:
        """Raise `LeaseLost` if another fence is in force."""
        check_fence(self._in_force(), self.fence)

    def release(self) -> None:
        """Give the lease back; the lock is released last."""
        if self._released:
            return
        self._released = True
        try:
            self._ended(self.fence)
        finally:
            self._lock.free()


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for lock in list(_held):
        lock.drop()


os.register_at_fork(after_in_child=_leave_to_parent)
