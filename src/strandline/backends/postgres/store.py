"""A journal store in a PostgreSQL database: how it is opened, and who carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.backends.postgres.database import Database, open_database
from strandline.errors import Unavailable
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.sql.api import Transaction
from strandline.store.beating_lease import FREE, BeatingLease, LeaseRow, wait_until_free
from strandline.store.creation import to_fix
from strandline.store.refusals import lease_held
from strandline.store.sql_rows import pointer_row
from strandline.store.sql_store import PART, SqlStore
from strandline.urls import Url

TAKE_TRIES: Final = 10


def open_store(
    url: Url,
    settings: Settings,
    log_id: str | None,
    partitions: int | None,
    *,
    clock: Callable[[], int] | None = None,
    advisory: bool = True,
) -> SqlStore:
    """Open a store, or create it for this log. None stands for what creation fixed, and for the server's clock.

    `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
    """
    fixed = to_fix(settings, log_id, partitions)
    pointers = [("set_pointer", pointer_row(Pointer(number))) for number in range(int(fixed["partitions"]))]
    database = open_database(
        url,
        PART,
        settings=settings,
        fixed=fixed,
        filling=pointers,
        advisory=advisory,
        create=None if log_id is not None else False,
    )
    return SqlStore.of(database, settings, log_id, partitions, BeatingLeases(database, settings.lease_s, clock))


class BeatingLeases:
    """Leases of a schema (`sql_store.Leases`): a row that its holder changes all the time."""

    def __init__(self, database: Database, lease_s: float, clock: Callable[[], int] | None) -> None:
        self._database = database
        self._lease_s = lease_s
        self._clock = clock
        self._held: list[BeatingLease] = []

    def take(self, holder: str, raise_fence: Callable[[Transaction, int], None]) -> BeatingLease:
        for _ in range(TAKE_TRIES):
            row = self._free_row()
            since = None if self._clock is None else self._clock()
            with self._database.write() as tx:
                taken = tx.rows("take_lease", (holder, row.fence, row.beat, since))
                if taken:
                    ((fence,),) = taken
                    raise_fence(tx, fence)
            if taken:
                break
        else:
            raise Unavailable("others take the lease all the time", code="serialization", hint="call again")
        lease = BeatingLease(fence, self._lease_s, beat=self._beat, in_force=lambda: self.row().fence, ended=self._end)
        self._held = [held for held in self._held if not held.over] + [lease]
        return lease

    def holder(self) -> tuple[str, int] | None:
        return self.row().held(self._lease_s)

    def close(self) -> None:
        for lease in self._held:
            lease.release()
        self._held.clear()

    def row(self) -> LeaseRow:
        """What the row says now."""
        rows = self._database.rows("lease")
        if not rows:
            return FREE
        fence, holder, since, beat, still_us = rows[0]
        return LeaseRow(fence, holder, since, beat, still_us / 10**6)

    def _free_row(self) -> LeaseRow:
        if any(not lease.over for lease in self._held):  # our own needs no watching
            holder = self.holder()
            if holder is not None:
                raise lease_held(*holder)
        return wait_until_free(self.row, self._lease_s)

    def _beat(self, fence: int) -> bool:
        with self._database.write() as tx:
            return tx.execute("beat", (fence,)) > 0

    def _end(self, fence: int) -> None:
        with self._database.write() as tx:
            tx.execute("release_lease", (fence,))
