"""Which places a statement holds, once the values are known that its group was created with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from strandline.group.statements.api import Dialect, Held, Plan, RowSet

_INTEGERS: Final = ("int", "serial", "bigint", "smallint", "counter", "tinyint", "varint")
_TEXTS: Final = ("text", "varchar", "character varying", "ascii", "clob", "char", "character", "bpchar")


def held(plan: Plan, values: Mapping[str, Any]) -> tuple[Held, ...]:
    """What a statement holds. A key that is bound later, or whose form is not plain, is any row of its table."""
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


def _plain(value: Any, kind: str, dialect: Dialect) -> Any:
    """A value in the one form that all equal ones have; None if that is not known."""
    try:
        if kind.startswith(_INTEGERS):
            number = Decimal(str(value) if not isinstance(value, bool) else int(value))
            return int(number) if number == number.to_integral_value() else None
        if kind == "uuid":
            return str(value if isinstance(value, UUID) else UUID(str(value)))
        if kind.startswith(_TEXTS) and isinstance(value, str):
            padded = dialect == "postgres" and kind.startswith(("char", "bpchar")) and "varying" not in kind
            return value.rstrip(" ") if padded else value
    except (ValueError, InvalidOperation):
        return None
    return None
