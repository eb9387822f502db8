"""A journal store in a SQLite file: how it is opened, and who carries it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from strandline.backends.sqlite.database import Database, open_database
from strandline.backends.sqlite.file_lease import FileLease, FileLock, lock_path
from strandline.clock import now_us
from strandline.errors import StrandlineError
from strandline.settings import Settings
from strandline.sql.api import Transaction
from strandline.store.creation import to_fix
from strandline.store.refusals import lease_held
from strandline.store.sql_store import PART, SqlStore

# Who has taken the lock writes its name within a moment; who asks for the holder waits that long for it.
_NAMELESS_S: Final = 0.5


def open_store(
    path: str | Path,
    settings: Settings,
    log_id: str | None,
    partitions: int | None,
    *,
    clock: Callable[[], int] = now_us,
    vfs: str | None = None,
) -> SqlStore:
    """Open a store, or create it for this log. None stands for what creation fixed.

    `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
    """
    database = open_database(
        path,
        PART,
        settings=settings,
        clock=clock,
        vfs=vfs,
        fixed=to_fix(settings, log_id, partitions),
        create=None if log_id is not None else False,
    )
    return SqlStore.of(database, settings, log_id, partitions, FileLeases(database))


class FileLeases:
    """Leases of a file (`sql_store.Leases`): a lock beside it says who holds one, its row only names the holder."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock_path = lock_path(database.path)
        self._held: list[FileLease] = []

    def take(self, holder: str, raise_fence: Callable[[Transaction, int], None]) -> FileLease:
        self._database.check()
        lock = FileLock(self._lock_path)
        if not lock.take():
            raise lease_held(*self._named_holder())
        try:
            lock.name(holder)
            with self._database.write() as tx:
                ((fence,),) = tx.rows("take_lease", (holder, self._database.now_us()))
                raise_fence(tx, fence)
        except BaseException:
            lock.free()
            raise
        lease = FileLease(lock, fence, lambda: self._row()[0], self._end)
        self._held.append(lease)
        return lease

    def holder(self) -> tuple[str, int] | None:
        self._database.check()
        return self._named_holder() if FileLock(self._lock_path).taken() else None

    def close(self) -> None:
        for lease in self._held:
            lease.release()
        self._held.clear()

    def _row(self) -> tuple[int, str | None, int | None]:
        rows = self._database.rows("lease")
        return rows[0] if rows else (0, None, None)

    def _named_holder(self) -> tuple[str, int]:
        """Who holds the lock, and since when. Who has just taken it writes that down in a moment."""
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
                tx.execute("release_lease", (fence,))
        except StrandlineError:
            pass  # the lock tells who holds the lease; the row only names the holder
