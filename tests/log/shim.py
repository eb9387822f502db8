"""A file system layer between SQLite and the disk that fails when a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import apsw

_names = count(1)


class Shim(apsw.VFS):
    """Passes everything on, but `fault(call, file)` may raise first. `calls` counts what was done."""

    def __init__(self) -> None:
        self.name = f"shim-{next(_names)}"
        self.calls: dict[tuple[str, str], int] = {}
        self.fault: Callable[[str, str], None] = lambda call, file: None
        super().__init__(self.name, "unix", iVersion=3)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:  # noqa: N802
        return _File(self, name, flags)

    def reached(self, call: str, file: str) -> None:
        """A call is about to be made on the file "main", "wal" or "other"."""
        self.calls[call, file] = self.calls.get((call, file), 0) + 1
        self.fault(call, file)


class _File(apsw.VFSFile):
    def __init__(self, shim: Shim, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._shim = shim
        kinds = {apsw.SQLITE_OPEN_MAIN_DB: "main", apsw.SQLITE_OPEN_WAL: "wal"}
        self._kind = next((word for flag, word in kinds.items() if flags[0] & flag), "other")
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._shim.reached("sync", self._kind)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._shim.reached("write", self._kind)
        super().xWrite(data, offset)


@contextmanager
def shim() -> Iterator[Shim]:
    """A layer that is there for the time of a test."""
    made = Shim()
    try:
        yield made
    finally:
        made.unregister()
