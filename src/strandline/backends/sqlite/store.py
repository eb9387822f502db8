"""Opens a journal store in a SQLite file, and has its lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from strandline.backends.sqlite.database import Database, open_database
from strandline.backends.sqlite.file_lease import FileLease, FileLock, lock_path
from strandline.clock import now_us
from strandline.errors import StrandlineError
from strandline.settings import Settings
from strandline.store.api import PIPELINE
from strandline.store.creation import to_fix
from strandline.store.refusals import lease_held
from strandline.store.sql_store import RaiseFence, SqlLeases, SqlStore, part_of
from strandline.store.views import View

# How long a process that asks for the holder waits for the name, which the holder writes just after taking the lock.
_NAMELESS_S: Final = 0.5


def open_store(
    path: str | Path,
    settings: Settings,
    log_id: str | None,
    partitions: int | None,
    *,
    clock: Callable[[], int] = now_us,
    vfs: str | None = None,
    views: Sequence[View] | None = None,
) -> SqlStore:
    """Open a store, or create it for this log. None stands for what creation fixed.

    `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
    """
    database = open_database(
        path,
        part_of(views),
        settings=settings,
        clock=clock,
        vfs=vfs,
        fixed=to_fix(settings, log_id, partitions),
        create=None if log_id is not None else False,
    )
    return SqlStore.of(database, settings, log_id, partitions, partial(FileLeases, database), views)


class FileLeases(SqlLeases):
    """The lease of a file: a lock beside it says who holds it, its row only names the holder."""

    _database: Database

    def __init__(self, database: Database, raise_fence: RaiseFence) -> None:
        super().__init__(database, raise_fence)
        self._path = lock_path(database.path)
        self._held: list[FileLease] = []

    def _take(self, holder: str) -> FileLease:
        self._database.check()
        lock = FileLock(self._path)
        if not lock.take():
            raise lease_held(*self._named_holder())
        try:
            lock.name(holder)
            with self._database.write() as tx:
                ((fence,),) = tx.rows("take_lease", (PIPELINE, holder, self._database.now_us()))
                self._raise_fence(tx, fence)
        except BaseException:
            lock.free()
            raise
        lease = FileLease(lock, fence, lambda: self._row()[0], self._end)
        self._held.append(lease)
        return lease

    def holder(self) -> tuple[str, int] | None:
        self._database.check()
        return self._named_holder() if FileLock(self._path).taken() else None

    def close(self) -> None:
        for lease in self._held:
            lease.release()
        self._held.clear()

    def _row(self) -> tuple[int, str | None, int | None]:
        rows = self._database.rows("lease", (PIPELINE,))
        return rows[0] if rows else (0, None, None)

    def _named_holder(self) -> tuple[str, int]:
        """Return the lock's holder, and since when. A holder that has just taken it writes its name in a moment."""
        deadline = time.monotonic() + _NAMELESS_S
        while True:
            _, holder, since = self._row()
            if holder is not None and since is not None:
                return holder, since
            if time.monotonic() > deadline:
                return "another process", 0
            time.sleep(0.002)

    def _end(self, fence: int) -> None:
        try:
            with self._database.write() as tx:
                tx.execute("release_lease", (PIPELINE, fence))
        except StrandlineError:
            pass  # the lock tells who holds the lease; the row only names the holder
