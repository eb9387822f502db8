"""Opens a journal store in a PostgreSQL database, and has its lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from strandline.backends.postgres.database import Database, open_database
from strandline.errors import Unavailable
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import PIPELINE
from strandline.store.beating_lease import FREE, BeatingLease, LeaseRow, wait_until_free
from strandline.store.creation import to_fix
from strandline.store.refusals import lease_held
from strandline.store.sql_store import RaiseFence, SqlLeases, SqlStore, part_of
from strandline.store.tables import POINTER
from strandline.store.views import View
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
    views: Sequence[View] | None = None,
) -> SqlStore:
    """Open a store, or create it for this log. None stands for what creation fixed, and for the server's clock.

    `SchemaMismatch` for another log, other fixed settings, another fold; without a `log_id` nothing is created.
    """
    fixed = to_fix(settings, log_id, partitions)
    pointers = [("set_pointer", tuple(POINTER.stored(Pointer(number)))) for number in range(int(fixed["partitions"]))]
    database = open_database(
        url,
        part_of(views),
        settings=settings,
        fixed=fixed,
        clock=clock,
        filling=pointers,
        advisory=advisory,
        create=None if log_id is not None else False,
    )
    leases = partial(BeatingLeases, database, settings.lease_s, clock)
    return SqlStore.of(database, settings, log_id, partitions, leases, views)


class BeatingLeases(SqlLeases):
    """A lease of a schema: a row that its holder changes all the time."""

    def __init__(
        self,
        database: Database,
        lease_s: float,
        clock: Callable[[], int] | None,
        raise_fence: RaiseFence,
    ) -> None:
        super().__init__(database, raise_fence)
        self._lease_s, self._clock = lease_s, clock
        self._held: list[BeatingLease] = []

    def _take(self, holder: str) -> BeatingLease:
        for _ in range(TAKE_TRIES):
            row = self._free_row()
            since = None if self._clock is None else self._clock()
            with self._database.write() as tx:
                taken = tx.rows("take_lease", (PIPELINE, holder, row.fence, row.beat, since))
                if taken:
                    ((fence,),) = taken
                    self._raise_fence(tx, fence)
            if taken:
                break
        else:
            raise Unavailable("other processes keep taking the lease", code="serialization", hint="call again")
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
        """Return the row as it is now."""
        rows = self._database.rows("lease", (PIPELINE,))
        if not rows:
            return FREE
        fence, holder, since, beat, still_us = rows[0]
        return LeaseRow(fence, holder, since, beat, still_us / 10**6)

    def _free_row(self) -> LeaseRow:
        if any(not lease.over for lease in self._held) and (holder := self.holder()) is not None:
            raise lease_held(*holder)  # this process's own lease needs no watching
        return wait_until_free(self.row, self._lease_s)

    def _beat(self, fence: int) -> bool:
        with self._database.write() as tx:
            return tx.execute("beat", (PIPELINE, fence)) > 0

    def _end(self, fence: int) -> None:
        with self._database.write() as tx:
            tx.execute("release_lease", (PIPELINE, fence))
