"""A shipper: a process that carries parcels out, each once, however often such processes are killed.

    python -m strandline.testing.shop.shipper FILE

The work journal and the list of parcels that have left are in one SQLite file, so a parcel is written down and its
piece of work is done in one transaction.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

import strandline
from strandline import WorkDeclaration, Worker
from strandline.work.claims import Claim

SHIPPING = WorkDeclaration("shipping", key={"parcel": "text"}, data={"order": "text"}, lease_s=1, max_timeouts=0)
MAKE = "CREATE TABLE IF NOT EXISTS parcel (name TEXT NOT NULL)"
BUSY_MS = 10_000


def opened(path: Path) -> apsw.Connection:
    """The file, for statements of our own."""
    file = apsw.Connection(str(path))
    file.set_busy_timeout(BUSY_MS)
    return file


def parcels(path: Path) -> list[str]:
    """Return the names of the parcels that have left."""
    with closing(opened(path)) as file:
        return [name for (name,) in file.execute("SELECT name FROM parcel")]


@contextmanager
def _transaction(file: apsw.Connection) -> Iterator[None]:
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


def main(path: Path) -> None:
    """Work until it is told to stop."""
    with strandline.connect("memory:", work=f"sqlite:{path}") as s, closing(opened(path)) as file:

        def ship(claim: Claim) -> None:
            with _transaction(file):
                file.execute("INSERT INTO parcel (name) VALUES (?)", (claim.entry.key["parcel"],))
                claim.done(tx=file)

        Worker(s, {SHIPPING.name: ship}).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
