"""Works out which rows a statement names, and which places it holds with the values of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from strandline.group.statements.api import Dialect, Given, Held, Plan, RowSet, TargetTable

_INTEGERS: Final = frozenset("int integer bigint smallint tinyint mediumint varint int2 int4 int8".split())
_NUMBERS: Final = 2**63
"""Integers of databases are below it; what others say they are may not fit into memory."""
_PADDED: Final = frozenset("char character bpchar".split())
_TEXTS: Final = _PADDED | {"text", "varchar", "character varying", "ascii", "clob"}


def rows_of(table: TargetTable, key: Sequence[str], given: Iterable[Given], *, writes: bool = False) -> RowSet:
    """Return the rows whose `key` is given as a whole; else any of the table's."""
    by_column = {item.column: item for item in given if item.parameter or item.value is not None}
    columns = [column for name in key if name in by_column and (column := table.column(name)) and not column.collation]
    if not key or len(columns) < len(key) or table.rows_in is None:
        return RowSet(table.rows_in, writes=writes)
    types = tuple(column.type for column in columns)
    return RowSet(table.rows_in, tuple(by_column[name] for name in key), writes, types)


def held(plan: Plan, values: Mapping[str, Any]) -> tuple[Held, ...]:
    """Return what a statement holds. A key that is bound later, or whose form is not plain, is any row of its table."""
    return tuple(dict.fromkeys(_held(plan, values)))


def _held(plan: Plan, values: Mapping[str, Any]) -> Iterable[Held]:
    for rows in plan.rows:
        if rows.table is None:
            yield Held((), rows.writes)
            continue
        key = _key(rows, values, plan.statement.dialect)
        yield Held((rows.table, *key) if key is not None else (rows.table,), rows.writes)


def _key(rows: RowSet, values: Mapping[str, Any], dialect: Dialect) -> tuple[Any, ...] | None:
    if rows.key is None:
        return None
    found = []
    for given, kind in zip(rows.key, rows.types, strict=True):
        if given.parameter and given.parameter not in values:
            return None
        plain = _plain(values[given.parameter] if given.parameter else given.value, kind.lower(), dialect)
        if plain is None:
            return None
        found.append(plain)
    return tuple(found)


def _plain(value: Any, type_: str, dialect: Dialect) -> Any:
    """Return a value in the one form that all equal ones have; None if that is not known, as of any type that users
    declare themselves."""
    kind, _, size = type_.partition("(")
    try:
        if kind in _INTEGERS:
            number = Decimal(str(value) if not isinstance(value, bool) else int(value))
            return int(number) if abs(number) < _NUMBERS and number == number.to_integral_value() else None
        if kind == "uuid":
            return str(value if isinstance(value, UUID) else UUID(str(value)))
        if kind in _TEXTS and isinstance(value, str):
            if dialect == "postgres" and kind in _PADDED:
                return value.rstrip(" ")
            cut = dialect == "postgres" and size and len(value) > int(size.rstrip(")"))
            return None if cut else value
    except (ValueError, ArithmeticError):
        return None
    return None
