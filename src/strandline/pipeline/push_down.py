"""Push-down: filters of a query become part of the selection, so that events outside them are not read.

    entity_type, key, type, slice     = and IN
    slice, timestamp                  < <= > >=

`array_contains(tags, …)` is no filter that Spark hands to a source: the option `tags` is there for it. Spark itself
applies every filter that is not taken over here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from strandline.pipeline.selection import ALL_COLUMNS, Selection
from strandline.values.keys import SLICES

NULLABLE: Final = ("metadata", "payload")
WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def is_asked_for() -> bool:
    """Return whether Spark hands filters to sources in this process.

    In any other, Spark refuses a source that takes filters while its switch for that is off, as it is by default.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return WORKER in sys.modules or getattr(spec, "name", None) == WORKER


def narrowed(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return the selection with these filters, and the filters that it could not take over."""
    left: list[Filter] = []
    for each in filters:
        found = _narrowed(selection, each)
        if found is None:
            left.append(each)
        else:
            selection = found
    return selection, left


def _narrowed(selection: Selection, filter_: Filter) -> Selection | None:
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    if isinstance(filter_, IsNotNull) and column in ALL_COLUMNS and column not in NULLABLE:
        return selection
    if isinstance(filter_, (EqualTo, In)):
        values = filter_.value if isinstance(filter_, In) else [filter_.value]
        return _with_values(selection, column, [value for value in values if value is not None])
    if isinstance(filter_, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
        if column == "slice" and isinstance(filter_.value, int):
            return _with_slices(selection, *_from_to(filter_, filter_.value, SLICES))
        if column == "timestamp" and (time := _time_us(filter_.value)) is not None:
            from_, to = _from_to(filter_, time, selection.to)
            return replace(selection, from_=max(selection.from_, from_), to=min(selection.to, to))
    return None


def _with_values(selection: Selection, column: str, values: Sequence[Any]) -> Selection | None:
    if column == "key":
        return selection.of_keys(values)
    if column == "type":
        return replace(selection, types=_both(selection.types, values))
    if column == "entity_type":
        types = _both(selection.entity_types, values)
        if selection.entity_type is None and len(types) == 1:
            return replace(selection, entity_types=types, entity_type=next(iter(types)))
        return replace(selection, entity_types=types)
    if column == "slice":
        numbers = [value for value in values if isinstance(value, int)]
        kept = _both(selection.slices, numbers)
        return _with_slices(replace(selection, slices=kept), min(kept, default=SLICES), max(kept, default=-1) + 1)
    if column == "timestamp" and len(values) == 1 and (time := _time_us(values[0])) is not None:
        return replace(selection, from_=max(selection.from_, time), to=min(selection.to, time + 1))
    return None


def _with_slices(selection: Selection, from_: int, to: int) -> Selection:
    return replace(selection, lo=max(selection.lo, from_), hi=min(selection.hi, to - 1))


def _from_to(filter_: Filter, value: int, end: int) -> tuple[int, int]:
    """Return the least number that passes, and the greatest one plus 1."""
    if isinstance(filter_, GreaterThan):
        return value + 1, end
    if isinstance(filter_, GreaterThanOrEqual):
        return value, end
    return 0, value if isinstance(filter_, LessThan) else value + 1


def _time_us(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    delta = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _both(had: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if had is None else had & frozenset(values)
