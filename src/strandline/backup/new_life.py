"""A new life: the ids, fences and claims that set a restored journal apart from the copied one, which may still exist.

    log           another id: a store of the first life refuses it, and so do streams of groups on their targets
    store         another history: saved offsets, projections and archives of the first life are refused, not misread;
                  the fences of leases and pointers leap: a lease of the first life's pipeline is not valid here
    projections   fences leap, nobody owns a range; each waits until an operator says where it goes on
    work          numbers leap, so that no entry and no claim has a number that the first life may have given away; all
                  claims are over
    all           another database id: a transaction on the first life's database is not joined

Fences and numbers leap by a random distance, so that two restores of one backup differ, too. Offsets and timestamps of
the log go on where the copy ends, under the new ids.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import orjson

from strandline.backup.manifest import BackupManifest
from strandline.sql.api import DATABASE_ID
from strandline.store.tables import POINTER

LEAP: Final = 2**32
"""The least distance of a leap: more than a life ever counts."""
RESTORED: Final = "restored"
"""The setting of a store that names the lives that it was restored from."""


class PartTables(Protocol):
    """Statements of a part on its tables, within the transaction that puts it back."""

    def rows(self, name: str, values: Any = ()) -> list[Any]:
        """Return the rows of a named statement."""

    def fix(self, name: str, value: str) -> None:
        """Change the value of a setting that creation fixed."""


class NewLife(NamedTuple):
    """The ids, the time and the fences of a restored journal."""

    log_id: str
    history_id: str
    began: int
    """When it was restored (µs)."""
    leap: int
    keep_projections: bool
    """Whether projections go on from their copied offsets: their targets were put back to the same moment."""

    @classmethod
    def of(cls, began: int, *, keep_projections: bool) -> NewLife:
        return cls(uuid4().hex, uuid4().hex, began, LEAP + secrets.randbelow(LEAP), keep_projections)

    def begin(self, kind: str, tables: PartTables, manifest: BackupManifest, fixed: Mapping[str, str]) -> None:
        """Begin this life in a part that was put back."""
        tables.fix(DATABASE_ID, uuid4().hex)
        if kind == "log":
            tables.fix("log_id", self.log_id)
        elif kind == "store":
            self._store(tables, manifest, fixed)
        elif kind == "projections":
            tables.rows("leap_projections", (self.leap,))
            tables.rows("leap_ranges", (self.leap,))
            tables.rows("forget_hosts")
            if self.keep_projections:
                tables.rows("move_history", (manifest.history_id, self.history_id))

    def _store(self, tables: PartTables, manifest: BackupManifest, fixed: Mapping[str, str]) -> None:
        tables.fix("log_id", self.log_id)
        tables.fix("history_id", self.history_id)
        before = orjson.loads(fixed.get(RESTORED, "[]"))
        life = {"log_id": manifest.log_id, "history_id": manifest.history_id, "moment": manifest.moment,
                "restored": self.began}  # fmt: skip
        tables.fix(RESTORED, orjson.dumps([*before, life]).decode())
        tables.rows("leap_leases", (self.leap,))
        for row in tables.rows("pointers"):
            pointer = POINTER.read(row)
            tables.rows("set_pointer", tuple(POINTER.stored(pointer._replace(fence=pointer.fence + self.leap))))
