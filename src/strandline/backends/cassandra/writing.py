"""Turns the steps of `store.phases` into requests. The writes of one step are sent together.

Rows of one partition key go into one unlogged batch, as far as they fit; a batch never spans two. Nothing here knows a
table by name: statements are called after the tables (`store.tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from strandline.backends.cassandra.session import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    OWN_PACKAGE,
    CqlRequest,
    Query,
    Session,
)
from strandline.store.heads import key_place
from strandline.store.phases import Hide, Put, Remove, SpanRows, Write
from strandline.store.tables import PACKAGE, Table
from strandline.store.views import Row, Span

_Values = tuple[Any, ...]
Limits = Mapping[str, tuple[int, int]]
_ROW_BYTES: Final = 16
"""How many bytes a value takes beside its own bytes, at most."""


def package_of(table: Table) -> str:
    """Return the package that has a table's statements. This back-end has the statements of the store's own tables."""
    return OWN_PACKAGE if table.package == PACKAGE else table.package


class Writing:
    """Writes and finds rows of any table through a session."""

    def __init__(self, session: Session, limits: Limits | None = None) -> None:
        """`limits`: for some tables, how many rows and bytes a batch has at most."""
        self._session = session
        self._limits = limits or {}

    def write(self, writes: Sequence[Write]) -> None:
        """Execute the writes of a step, in any order; they are acknowledged when this returns."""
        self._session.write(_requests(writes, self._limits))

    def find(self, spans: Sequence[Span]) -> SpanRows:
        """Return the rows of stretches, with the columns that `find_TABLE` reads; the others are None."""
        rows = self._session.each(Query(f"find_{s.table.name}", _bounds(s), package_of(s.table)) for s in spans)
        found = {}
        for span, some in zip(spans, rows, strict=True):
            package = package_of(span.table)
            names = self._session.columns(f"find_{span.table.name}", package)
            at = [names.index(column.name) if column.name in names else None for column in span.table.columns]
            found[span] = [tuple([None if i is None else row[i] for i in at]) for row in some]
        return found

    def read(self, spans: Sequence[Span]) -> SpanRows:
        """Return the rows of whole partitions, with their digests: `look_TABLE`."""
        rows = self._session.each(Query(f"look_{s.table.name}", s.partition, package_of(s.table)) for s in spans)
        return {
            span: [span.table.read(values_in(span.table, row)) for row in some]
            for span, some in zip(spans, rows, strict=True)
        }


def _bounds(span: Span) -> _Values:
    return (*span.partition, *span.first, *span.last)


def _requests(writes: Sequence[Write], limits: Limits) -> Iterator[CqlRequest]:
    for write in writes:
        if isinstance(write, Put):
            yield from put_requests(write, *limits.get(write.table.name, (BATCH_ROWS_MAX, BATCH_BYTES_MAX)))
        elif isinstance(write, Hide):
            yield CqlRequest("hide", [(write.timestamp, write.to, *key_place(write.key))])
    yield from _removals([write for write in writes if isinstance(write, Remove)])


# ---------------------------------------------------------------- rows


def put_requests(put: Put, rows_max: int = BATCH_ROWS_MAX, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[CqlRequest]:
    """Yield the requests that write rows: rows of one partition key together, in the order of partition keys."""
    table, rows, timestamp = put
    name, package, values_of, size_of = f"put_{table.name}", package_of(table), _values(table), _size(table)
    time = None if table.time is None or timestamp is not None else table.at(table.time)
    by_partition: dict[_Values, tuple[list[_Values], list[int]]] = {}
    partition_of = table.partition_of
    for row in sorted(rows, key=partition_of) if table.phase == "views" else rows:
        values = values_of(row)
        if time is not None:
            values = (*values, row[time])
        elif timestamp is not None and table.time is not None:
            values = (*values, timestamp)
        place = partition_of(row)
        batch = by_partition.get(place)
        if batch is None:
            batch = by_partition[place] = ([], [0])
        some, size = batch
        more = size_of(row)
        if some and (len(some) == rows_max or size[0] + more > bytes_max):
            yield CqlRequest(name, some, size[0], package)
            batch = by_partition[place] = ([], [0])
            some, size = batch
        some.append(values)
        size[0] += more
    for some, (total,) in by_partition.values():
        yield CqlRequest(name, some, total, package)


@cache
def _values(table: Table) -> Callable[[Row], _Values]:
    """Return the columns that are written, without those for SQL's indexes, and with a value for frequent nulls."""
    kept = [index for index, column in enumerate(table.columns) if not column.sql_only]
    absent = [(index, column.absent) for index, column in enumerate(table.columns) if column.absent is not None]
    if len(kept) < len(table.columns):  # this table has no digest of its own
        return lambda row: tuple([row[index] for index in kept])

    def values(row: Row) -> _Values:
        stored = list(table.stored(row))
        for index, instead in absent:
            if stored[index] is None:
                stored[index] = instead
        return tuple(stored)

    return values if absent else lambda row: tuple(table.stored(row))


def values_in(table: Table, values: Sequence[Any]) -> Sequence[Any]:
    """Return stored values as `Table.read` takes them."""
    absent = [(index, column.absent) for index, column in enumerate(table.columns) if column.absent is not None]
    if not absent:
        return values
    found = list(values)
    for index, instead in absent:
        if found[index] == instead:
            found[index] = None
    return found


@cache
def _size(table: Table) -> Callable[[Row], int]:
    """Return a function that says about how many bytes a row has in a request, not less."""
    blobs = [index for index, column in enumerate(table.columns) if column.kind == "blob"]
    texts = [index for index, column in enumerate(table.columns) if column.kind == "text"]
    fixed = _ROW_BYTES * (len(table.columns) + 2)
    if not blobs:
        return lambda row: 0
    if table.phase == "views":
        return lambda row: (
            fixed
            + sum([len(row[index] or b"") for index in blobs])
            + sum([len((row[index] or "").encode()) for index in texts])
        )
    if len(blobs) == 1:
        (blob,) = blobs
        return lambda row: len(row[blob])
    return lambda row: sum([len(row[index] or b"") for index in blobs])


# ---------------------------------------------------------------- removals


ALL: Final = ()


def _removals(removals: Sequence[Remove]) -> Iterator[CqlRequest]:
    rows: dict[tuple[Table, _Values], list[_Values]] = {}
    for (table, partition, first, last), timestamp in removals:
        if first == ALL:
            yield CqlRequest(f"remove_{table.name}_all", [(timestamp, *partition)], 0, package_of(table))
        elif first == last and len(first) == len(table.place) - table.partitioned_by:
            rows.setdefault((table, partition), []).append((timestamp, *partition, *first))
        else:
            yield CqlRequest(
                f"remove_{table.name}_rows", [(timestamp, *partition, *first, *last)], 0, package_of(table)
            )
    for (table, _), some in rows.items():
        for start in range(0, len(some), BATCH_ROWS_MAX):
            part = some[start : start + BATCH_ROWS_MAX]
            yield CqlRequest(f"remove_{table.name}_row", part, 0, package_of(table))
