"""What stands in the tables of an offset store, and in the table of effects beside them."""

from __future__ import annotations

from typing import Any

from strandline.projection.layout import RangeRow
from strandline.projection.offset_store import DeadEvent, OffsetStore, ProjectionRow, SliceRequest
from strandline.projection.offsets import KeyRow
from strandline.testing.prove.hosts import Process
from strandline.testing.prove.projection_handler import Effect

WHOSE = ("projection_range", "projection_offset", "projection_host", "projection_request", "projection_dead_letter")


class Tables:
    """An offset store as it is, whatever is away for hosts."""

    def __init__(self, operator: Process, schema: str | None) -> None:
        operator.open_offsets()
        self._store = OffsetStore(operator._databases[0])
        self._schema = "" if schema is None else f'"{schema}".'
        self.effect = f"{self._schema}effect"
        number = "bigserial PRIMARY KEY" if schema is not None else "integer PRIMARY KEY AUTOINCREMENT"
        columns = "generation bigint, key text, life bigint, seq_nr bigint, content text"
        with self._store.database.write() as tx:
            raw: Any = tx.raw
            raw.execute(f"CREATE TABLE {self.effect} (n {number}, {columns})")

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._store.database.read() as tx:
            raw: Any = tx.raw
            return [tuple(row) for row in raw.execute(statement)]

    def projections(self) -> list[ProjectionRow]:
        return self._store.all()

    def serving(self, name: str) -> ProjectionRow:
        return self._store.find(name)

    def ranges(self, row: ProjectionRow) -> list[RangeRow]:
        with self._store.database.read() as tx:
            return self._store.ranges(tx, row)

    def letters(self, row: ProjectionRow) -> list[DeadEvent]:
        return self._store.letters(row.id, ("", 0, 0), 10_000)

    def parked(self, row: ProjectionRow) -> list[KeyRow]:
        return [KeyRow(*found) for found in self._store.database.rows("parked_keys", (row.id, row.epoch))]

    def requests(self, row: ProjectionRow) -> list[SliceRequest]:
        with self._store.database.read() as tx:
            return self._store.requests(tx, row.id)

    def hosts(self, row: ProjectionRow) -> list[str]:
        with self._store.database.read() as tx:
            return sorted(self._store.hosts(tx, row.id))

    def effects(self, upsets: int) -> list[Effect]:
        """Return what handlers wrote in the transactions that save."""
        found = self._rows(f"SELECT generation, key, life, seq_nr, content FROM {self.effect} ORDER BY n")  # noqa: S608
        return [Effect(generation, (key, life, number), content, upsets)
                for generation, key, life, number, content in found]  # fmt: skip

    def state(self, name: str) -> tuple[Any, ...]:
        """Return everything that changes while something is done."""
        rows = self.projections()
        return (
            [(row.id, row.state, row.epoch, row.paused, row.target_ranges) for row in rows if row.name == name],
            [
                (one.lo, one.hi, one.position, one.failed, one.failed is None and one.owner, one.attempt)
                for row in rows
                for one in self.ranges(row)
            ],
            [(one.id, one.refused) for row in rows for one in self.requests(row)],
            [letter[:3] for row in rows for letter in self.letters(row)],
            [one for row in rows for one in self.parked(row)],
            len(self.effects(0)),
        )

    def strays(self) -> list[tuple[Any, ...]]:
        """Rows of projections that are gone."""
        known = f"SELECT id FROM {self._schema}projection"  # noqa: S608
        return [
            (table, *row) for table in WHOSE
            for row in self._rows(f"SELECT * FROM {self._schema}{table} WHERE projection NOT IN ({known})")  # noqa: S608
        ]  # fmt: skip
