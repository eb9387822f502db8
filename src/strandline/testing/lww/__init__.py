"""`lww:NAME`, a target of groups in this process: no transactions, the last write of a cell wins.

It is known where this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, Final

from strandline.clock import now_us
from strandline.group.statements.api import TargetTable
from strandline.group.statements.binding import Bound
from strandline.group.target import Limits, Owner
from strandline.group.targets import IN_MEMORY
from strandline.group.targets.cql import CqlSteps, Described, Row, serialized
from strandline.testing.lww.keyspace import KINDS, Keyspace, Kind
from strandline.urls import Url

_keyspaces: Final[dict[str, LwwTarget]] = {}
_lock: Final = RLock()


class LwwTarget(CqlSteps):
    """A keyspace. Whoever opens its name in this process has the same one."""

    def __init__(self, name: str, *, clock: Callable[[], int] = now_us) -> None:
        self.name, self.clock = f"lww:{name}", clock
        self.keyspace = Keyspace(self._now)
        self._owners: list[Owner] = []
        self._lock = RLock()

    def _now(self) -> int:
        return self.clock()  # which a test may set

    def create(self, text: str) -> None:
        """Make a table: `CREATE TABLE seat (hall text, row int, guest text, PRIMARY KEY (hall, row))`."""
        self.keyspace.create(text)

    def execute(self, text: str, *values: Any) -> list[Row]:
        """Execute a statement as another program of the user would; `?` are its values."""
        with self._lock:
            return self.keyspace.execute(Bound(text, values))[0]

    def asked(
        self, asked: Bound, limits: Limits, *, raw: int = 0, raw_values: bool = False
    ) -> tuple[list[Row], Described]:
        with self._lock:
            rows, described = self.keyspace.execute(asked, raw=raw_values)
        kinds = [kind for _, kind in described[:raw]]
        packed = (map(_packed, kinds, row) for row in rows[: limits.rows_max + 1])
        return [(*left, *row[raw:]) for left, row in zip(packed, rows, strict=False)], described

    def kinds(self, table: TargetTable) -> Mapping[str, Any]:
        return {column.name: KINDS[column.type] for column in table.columns}

    def sent(self, asked: Bound, limits: Limits, *, raw: bool = False) -> None:
        with self._lock:
            self.keyspace.execute(asked, raw=raw)

    def tables(self, names: Sequence[str]) -> Mapping[str, TargetTable]:
        return {name: self.keyspace.tables[name] for name in names if name in self.keyspace.tables}

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        with self._lock:
            mine = Owner.among(self._owners, self.name, history_id, stream, shared=shared)
            if mine not in self._owners:
                self._owners.append(mine)
            return mine

    def close(self) -> None:
        """Do nothing: the keyspace stays, it is data."""


def _packed(kind: Kind, value: Any) -> bytes | None:
    return None if value is None else serialized(kind, value)


def lww(name: str) -> LwwTarget:
    """Return the target of this name, made if it is not there."""
    with _lock:
        return _keyspaces.setdefault(name, LwwTarget(name))


def forget(name: str) -> None:
    """Let go of the target of this name; whoever has it open keeps it."""
    with _lock:
        _keyspaces.pop(name, None)


def open_target(url: Url) -> LwwTarget:
    """Return the target that a URL names."""
    return lww(url.name)


IN_MEMORY["lww"] = open_target
