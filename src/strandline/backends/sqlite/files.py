"""The SQLite files that this process has open: where they are, their modes, and which libraries may not open them.

POSIX locks belong to a process and an inode: if any other code of this process opens and closes the same file, our
locks are dropped, and acknowledged commits may be lost. So nothing here ever opens a database file but the one SQLite
library, and the standard `sqlite3` module (another library) is refused on files that are open.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import apsw

from strandline.errors import Applied, InvalidInput, Unavailable, Unsupported, invalid, unusable, used_after_fork

LOCK_WAIT_S = 60.0
_DESCRIPTORS = Path("/proc/self/fd")
_MAGIC = b"SQLite format 3\0"


class Header(NamedTuple):
    """The first bytes of a database file, decoded."""

    application_id: int
    length: int


def read_header(path: Path, vfs: str | None) -> Header | None:
    """Return the header of a file, taking no lock and changing nothing; None if it is no database.

    It is read through the library's own file system layer: closing a file that plain Python opened would drop the locks
    of other connections of this process.
    """
    try:
        file = apsw.VFSFile(vfs or "", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    except apsw.Error as error:
        raise unusable(path, str(error)) from None
    try:
        data = file.xRead(100, 0)
    except apsw.IOError:
        return None
    finally:
        file.xClose()
    if len(data) < 100 or not data.startswith(_MAGIC):
        return None
    page_bytes = int.from_bytes(data[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    return Header(int.from_bytes(data[68:72], "big"), page_bytes * int.from_bytes(data[28:32], "big"))


def real_path(path: Path | str) -> Path:
    """Return where a file really is, or will be made, whatever links lead there."""
    return Path(os.path.realpath(path))


def prepare_folder(path: Path) -> None:
    """Make the folder of a database file, for its owner alone, in a parent that exists. The folder's name is durable
    after that, even if another process has just made it and not synced it yet.
    """
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)  # before any look: another process may make it then
        _sync(folder.parent)
    except FileExistsError:
        raise invalid(
            "url_incomplete", "path", f"{folder} is no folder", allowed="a path in a folder", got=str(path)
        ) from None
    except FileNotFoundError:
        raise InvalidInput(
            f"path: no folder {folder.parent}; allowed a path whose parent exists; got {path}",
            code="url_incomplete",
            hint=f"make {folder.parent} first",
            field="path",
        ) from None
    except OSError as error:
        raise unusable(folder, error.strerror) from None


def _sync(folder: Path) -> None:
    """Make the names in a folder durable, unless this user may not read the folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_folder(path: Path) -> None:
    """Raise `Unavailable.away` for a file that could not be made where it should be. Nothing is made."""
    if path.exists() or not path.parent.is_dir():
        return
    try:
        with TemporaryFile(dir=path.parent):  # the file has no name in the folder
            return
    except OSError as error:
        raise unusable(path, error.strerror) from None


def create_file(path: Path) -> None:
    """Create an empty file that its owner alone may read. The caller holds the folder's lock; nobody has the file
    open."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise unusable(path, error.strerror) from None


def moved(name: str, why: object, applied: Applied) -> Unavailable:
    """Return the error for an open file to which its name no longer leads."""
    return Unavailable(
        f"{name} was removed or replaced while it was open here: {why}",
        code="away",
        hint="put back what was there, with its -wal and -shm, or connect again to go on with what is there now",
        applied=applied,
        path=name,
        moved=True,
    )


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process in at a time. The lock is on the folder itself, so nothing is left behind, and death frees it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _locked(handle):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"another process holds the lock of {folder} for over {LOCK_WAIT_S:g} s",
                    code="timeout",
                    hint="see which process creates or upgrades a schema there",
                )
            time.sleep(0.005)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class HasConnections(Protocol):
    """An object that keeps a file open."""

    def connections(self) -> list[apsw.Connection]:
        """Return all connections that are open now."""


class OpenFiles:
    """The files that this process has open."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._hooked = False
        self._open: Counter[tuple[int, int]] = Counter()
        self._inherited: set[tuple[int, int]] = set()
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, path: Path, owner: HasConnections, *, refuse_foreign: bool = False) -> tuple[int, int]:
        """Refuse other libraries on this file from now on; return the number for `remove`.

        `refuse_foreign`: `Unsupported.second_library` if this process has it open already through another library. The
        lock is held meanwhile, so that a file which another thread opens right now is not taken for such a one.
        """
        with self._lock:
            if not self._hooked:
                sys.addaudithook(self._refuse_second_library)
                os.register_at_fork(after_in_child=self._leave_to_parent)
                self._hooked = True
            inode = inode_of(path)
            if refuse_foreign:
                self._refuse_foreign(path, inode)
            self._open[inode] += 1
            self._owners.add(owner)
        return inode

    def remove(self, inode: tuple[int, int], owner: HasConnections) -> None:
        """Note that a file is closed."""
        with self._lock:
            self._open[inode] -= 1
            if not self._open[inode]:
                del self._open[inode]
            self._owners.discard(owner)

    def refuse_inherited(self, path: Path) -> None:
        """Raise `Unsupported.used_after_fork` for a file that the parent had open when it forked.

        The library's picture of the locks was copied with the parent's memory, and is wrong in this process.
        """
        if self._inherited and path.exists() and inode_of(path) in self._inherited:
            raise used_after_fork(path)

    def _refuse_foreign(self, path: Path, inode: tuple[int, int]) -> None:
        if inode in self._open or not _DESCRIPTORS.is_dir() or inode in _open_in_library():
            return
        for descriptor in _DESCRIPTORS.iterdir():
            with suppress(OSError):  # closed meanwhile
                if inode_of(descriptor) == inode:
                    raise _second_library(path)

    def _refuse_second_library(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "sqlite3.connect" or not self._open:
            return
        try:
            name = os.fsdecode(args[0])
            inode = inode_of(Path(unquote(urlsplit(name).path) if name.startswith("file:") else name))
        except (OSError, TypeError, ValueError, IndexError):
            return
        if inode in self._open:
            raise _second_library(name)

    def _leave_to_parent(self) -> None:
        """Keep a forked child from ever closing the parent's connections, even when the child ends."""
        self._lock = Lock()
        for owner in list(self._owners):
            for connection in owner.connections():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._inherited.update(self._open)
        self._owners.clear()
        self._open.clear()


def _open_in_library() -> set[tuple[int, int]]:
    """Return the files that any code of this process has open through the SQLite library of this package."""
    found = set()
    for connection in apsw.connections():
        with suppress(OSError, apsw.Error):
            found.add(inode_of(connection.filename))
    return found


def _second_library(path: Path | str) -> Unsupported:
    return Unsupported(
        f"{path} is open here through another SQLite library; a second one would drop its locks, and commits",
        code="second_library",
        hint="read it from another process, or close it here first",
        path=str(path),
    )


OPEN_FILES = OpenFiles()


def inode_of(path: Path | str) -> tuple[int, int]:
    """Return the numbers (device, inode) that identify a file, whatever its name."""
    found = os.stat(path)  # noqa: PTH116
    return found.st_dev, found.st_ino
