"""What an expression can see: the rows that a statement returned, and the values that are bound to its step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

EMPTY: Final[Mapping[str, Any]] = {}


class Scope:
    """Holds rows by column, and bound data by name."""

    __slots__ = ("columns", "data", "row", "rows", "tables")

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]] = (),
        *,
        columns: Iterable[str] = (),
        tables: Iterable[str] = (),
        data: Mapping[str, Any] = EMPTY,
    ) -> None:
        """`tables`: the names that the row may also be reached by. `data` has everything that `:x` may name."""
        self.rows = rows
        self.row: Mapping[str, Any] | None = rows[0] if len(rows) == 1 else None
        self.columns = frozenset(columns) or (frozenset(rows[0]) if rows else frozenset())
        self.tables = _spelled(tuple(tables))
        self.data = data


@lru_cache(maxsize=1024)
def _spelled(tables: tuple[str, ...]) -> frozenset[str]:
    return frozenset(spelled for table in tables for spelled in _spellings(table))


def _spellings(table: str) -> tuple[str, ...]:
    """Return a table's name with and without a final s, and both in lower case."""
    bare = table.rpartition(".")[2]
    other = bare[:-1] if bare.endswith("s") else bare + "s"
    return bare, other, bare.lower(), other.lower()
