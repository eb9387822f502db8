"""A journal store in a PostgreSQL database: how it is opened, and who carries it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from strandline.backends.postgres.database import Database, open_database
from strandline.errors import Unavailable
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.sql.api import Transaction
from strandline.store.beating_lease import FREE, BeatingLease, LeaseRow, wait_until_free
from strandline.store.creation import to_fix
from strandline.store.refusals import lease_held
from strandline.store.sql_store import SqlStore, part_of
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
    leases = BeatingLeases(database, settings.lease_s, clock)
    return SqlStore.of(database, settings, log_id, partitions, leases, views)


class BeatingLeases:
    """Leases of a schema (`sql_store.Leases`): a row that its holder changes all the time."""

    def __init__(self, database: Database, lease_s: float, clock: Callable[[], int] | None) -> None:
        self._database = database
        self._lease_s = lease_s
        self._clock = clock
        self._held: list[tuple[str, BeatingLease]] = []

    def take(self, name: str, holder: str, raise_fence: Callable[[Transaction, int], None]) -> BeatingLease:
        for _ in range(TAKE_TRIES):
            row = self._free_row(name)
            since = None if self._clock is None else self._clock()
            with self._database.write() as tx:
                taken = tx.rows("take_lease", (name, holder, row.fence, row.beat, since))
                if taken:
                    ((fence,),) = taken
                    raise_fence(tx, fence)
            if taken:
                break
        else:
            raise Unavailable("others take the lease all the time", code="serialization", hint="call again")
        lease = BeatingLease(
            fence,
            self._lease_s,
            beat=lambda fence: self._beat(name, fence),
            in_force=lambda: self.row(name).fence,
            ended=lambda fence: self._end(name, fence),
        )
        self._held = [(of, held) for of, held in self._held if not held.over] + [(name, lease)]
        return lease

    def holder(self, name: str) -> tuple[str, int] | None:
        return self.row(name).held(self._lease_s)

    def close(self) -> None:
        for _, lease in self._held:
            lease.release()
        self._held.clear()

    def row(self, name: str) -> LeaseRow:
        """Return the row as it is now."""
        rows = self._database.rows("lease", (name,))
        if not rows:
            return FREE
        fence, holder, since, beat, still_us = rows[0]
        return LeaseRow(fence, holder, since, beat, still_us / 10**6)

    def _free_row(self, name: str) -> LeaseRow:
        if any(of == name and not lease.over for of, lease in self._held):  # our own needs no watching
            holder = self.holder(name)
            if holder is not None:
                raise lease_held(*holder)
        return wait_until_free(lambda: self.row(name), self._lease_s)

    def _beat(self, name: str, fence: int) -> bool:
        with self._database.write() as tx:
            return tx.execute("beat", (name, fence)) > 0

    def _end(self, name: str, fence: int) -> None:
        with self._database.write() as tx:
            tx.execute("release_lease", (name, fence))
