"""Steps on any target that speaks CQL: images with write times and TTLs, writes with timestamps.

A back-end brings a driver (`asked`, `sent`); what a step is, is here. Values of images are bytes as the target stores
them, in hexadecimal: exact for every type, and never interpreted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import product
from math import prod
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from strandline.group.cells import RowState, UndoStatement, rows_written, undo_of
from strandline.group.core.encoding import Opaque
from strandline.group.points import reached
from strandline.group.statements import plan_now, texts
from strandline.group.statements.api import Dialect, Plan, TargetTable
from strandline.group.statements.binding import Bound, Unbound, bound
from strandline.group.statements.cql import TIMESTAMP, CqlShape, Relation, holds, value_of
from strandline.group.target import (
    Cells,
    Failed,
    Image,
    Limits,
    NotUndone,
    OnConflict,
    RowConflict,
    Rows,
    TargetStep,
    Undone,
    Wrote,
)

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]
Described = list[tuple[str, Any]]
"""Name and type of each column; a type packs a value into bytes and back (`serialize`, `deserialize`)."""


class CqlRefused(Exception):
    """The target refuses a statement of the user's: nothing was changed."""


def _answering(call: Callable[P, T]) -> Callable[P, T | Failed]:
    """Return a call that answers with what the target says of a statement, or what is wrong with its values."""

    @wraps(call)
    def answered(*given: P.args, **named: P.kwargs) -> T | Failed:
        try:
            return call(*given, **named)
        except Unbound as error:
            return Failed("binding", str(error))
        except CqlRefused as error:
            return Failed("statement", str(error))

    return answered


class CqlSteps(ABC):
    """Runs and undoes steps, the same way on every target that speaks CQL."""

    dialect: Dialect = "cassandra"
    name: str
    clock: Callable[[], int]

    @abstractmethod
    def asked(
        self, asked: Bound, limits: Limits, *, raw: int = 0, raw_values: bool = False
    ) -> tuple[list[Row], Described]:
        """Return rows, at most one more than `rows_max`, and what their columns are. May be `CqlRefused`.

        The first `raw` columns are left as bytes; `raw_values`: the values given are in hexadecimal.
        """

    @abstractmethod
    def tables(self, names: Sequence[str]) -> Mapping[str, TargetTable]:
        """Return the schema of these tables; those that are not there are left out."""

    @abstractmethod
    def kinds(self, table: TargetTable) -> Mapping[str, Any]:
        """Return the type of each column of a table's key."""

    @abstractmethod
    def sent(self, asked: Bound, limits: Limits, *, raw: bool = False) -> None:
        """Execute a statement that changes something; `raw`: its values are in hexadecimal. May be `CqlRefused`."""

    # ------------------------------------------------------------ reading

    @_answering
    def query(self, plan: Plan, values: Mapping[str, Any], limits: Limits) -> Rows | Failed:
        asked = bound(plan.statement.template, values, "cassandra", limits.rows_max)
        rows, described = self.asked(asked, limits)
        if len(rows) > limits.rows_max:
            return Failed.too_many(limits.rows_max)
        told = plan.statement.columns
        names = told if told is not None and len(told) == len(described) else ("",) * len(described)
        columns = tuple(name or column for name, (column, _) in zip(names, described, strict=True))
        return Rows(columns, tuple(map(tuple, rows)))

    @_answering
    def image(self, step: TargetStep) -> Cells | Failed:
        """Read what the step is about to change."""
        plan, limits, writes = step.plan, step.limits, step.plan.statement.writes
        if plan.before is None or plan.table is None:
            raise AssertionError(plan.statement.text)
        now = plan_now(plan, self.tables([writes]).get(writes), undo=step.undo)
        if isinstance(now, str) or now.columns != plan.columns:
            return Failed("schema_changed", now if isinstance(now, str) else f"{writes} has other columns")
        static = all(_role(plan.table, name) == "static" for name in plan.columns[len(plan.table.key) :])
        asked = bound(plan.before, step.values, "cassandra", limits.rows_max, " LIMIT 1" if static else "")
        read_at = self.clock()
        rows, described = self.asked(asked, limits, raw=len(plan.columns))
        kinds = [kind for _, kind in described[: len(plan.table.key)]]
        keys = self._keys(plan, step.values, kinds, limits.rows_max)
        if keys is None or len(rows) > limits.rows_max:
            return Failed.too_many(limits.rows_max)
        size, cells = len(plan.columns), len(plan.columns) - len(plan.table.key)
        if any(_mixed(ttl) for row in rows for ttl in row[size + cells :]):
            return Failed("statement", "elements of a collection have TTLs of their own: they cannot be put back")
        image = Image(plan.columns, len(plan.table.key), tuple(tuple(map(_hex, row[:size])) for row in rows))
        if sum(len(value or "") for row in image.rows for value in row) > 2 * limits.image_bytes_max:
            return Failed("too_large", f"an image of more than image_bytes_max, {limits.image_bytes_max:,}")
        times = tuple(tuple(map(_greatest, row[size : size + cells])) for row in rows)
        ttls = tuple(tuple(map(_greatest, row[size + cells :])) for row in rows)
        found = Cells(image, times, ttls, read_at, keys, self._applies(plan, step, image, described))
        return self._with_static(found, plan, limits)

    def _with_static(self, cells: Cells, plan: Plan, limits: Limits) -> Cells:
        """Add the static columns of partitions of which no row is there: they are read by themselves."""
        if plan.table is None or plan.undo == "delete":
            return cells
        names = plan.columns[cells.image.keys :]
        static = [name for name in names if _role(plan.table, name) == "static" and name in plan.changed]
        size = len(plan.table.partition)
        known = {row[:size] for row in cells.image.rows}
        for partition in dict.fromkeys(key[:size] for key in cells.keys if key[:size] not in known) if static else ():
            found = self._current(plan.table, partition, static, limits)
            values, times, ttls = zip(*(found.get(name, (None, None, None)) for name in names), strict=True)
            row = (*partition, *(None,) * (cells.image.keys - size), *values)
            image = cells.image._replace(rows=(*cells.image.rows, row))
            cells = cells._replace(image=image, times=(*cells.times, times), ttls=(*cells.ttls, ttls))
        return cells

    def _keys(
        self, plan: Plan, values: Mapping[str, Any], kinds: Sequence[Any], rows_max: int
    ) -> tuple[Row, ...] | None:
        """Return the keys of the rows that the statement writes; None if these are too many."""
        if plan.table is None or plan.undo == "delete":
            return ()
        shape: CqlShape = plan.statement.shape
        told = {one.columns[0]: one for one in shape.relations if one.sign in ("=", "IN") and len(one.columns) == 1}
        parts: list[list[Any]] = []
        for name, kind in zip(plan.table.key, kinds, strict=True):
            try:
                wanted = told[name].wanted(values)
            except (KeyError, Unbound):
                parts.append([None])
            else:
                parts.append([packed(kind, value) for value in wanted])
        return tuple(dict.fromkeys(product(*parts))) if prod(map(len, parts)) <= rows_max else None

    def _applies(self, plan: Plan, step: TargetStep, image: Image, described: Described) -> bool:
        shape: CqlShape = plan.statement.shape
        if not shape.only_if:
            return True
        if shape.only_if == "not exists":
            return not image.rows
        if shape.only_if == "exists":
            return bool(image.rows)
        kinds = dict(described)
        for condition in shape.conditions:
            column = condition.columns[0]
            place = image.columns.index(column)
            nothing: Row = (None,) * len(image.columns)  # of a row that is not there
            for row in image.rows or (nothing,):
                found = None if row[place] is None else kinds[column].deserialize(bytes.fromhex(row[place]), 4)
                if not _holds(condition, kinds[column], found, step.values):
                    return False
        return True

    # ------------------------------------------------------------ writing

    @_answering
    def write(self, step: TargetStep, timestamp: int | None) -> Failed | None:
        """Send the step's statement with this timestamp; None: as it is."""
        statement = step.plan.statement
        text = statement.template if timestamp is None else statement.shape.write
        self.sent(bound(text, {**step.values, TIMESTAMP: timestamp}, "cassandra", step.limits.rows_max), step.limits)
        return None

    @_answering
    def read_back(self, wrote: Wrote) -> Image | Failed:
        """Return the rows after the write, by key."""
        plan = wrote.step.plan
        states, filled = rows_written([wrote], self._covers), set(_filled(wrote.step))
        rows: list[Row] = []
        for state in states:
            found = self._current(state.table, state.key, tuple(state.last), wrote.step.limits)
            for name, (_, time, _) in found.items():
                cell = f"{state.table.name}.{name}"
                if time is not None and time > wrote.timestamp:
                    return Failed("foreign_write", f"{cell} was written by somebody else")
                older = time is not None and time < wrote.timestamp and name not in plan.statement.shape.inside
                if older or (time is None and name in filled):
                    return Failed("not_applied", f"{cell} does not have the value that was written")
            rows.append((*state.key, *(found[name][0] for name in state.last)))
        return Image(plan.columns, len(plan.table.key) if plan.table else 0, tuple(rows))

    def rows_written(self, writes: Sequence[Wrote]) -> list[RowState]:
        return rows_written(writes, self._covers)

    def put_back(
        self, states: Sequence[RowState], limits: Limits, on_conflict: OnConflict, *, now: int,
        over: Callable[[int], int],
    ) -> Undone | NotUndone:  # fmt: skip
        try:
            return self._put_back(states, limits, on_conflict, now, over)
        except CqlRefused as error:
            return NotUndone(str(error))

    def _put_back(
        self, states: Sequence[RowState], limits: Limits, on_conflict: OnConflict, now: int, over: Callable[[int], int]
    ) -> Undone | NotUndone:
        foreign: dict[tuple[str, Row, str], int] = {}
        conflicts: list[RowConflict] = []
        for state in states:
            found = self._current(state.table, state.key, tuple(state.last), limits)
            for name, (value, time, _) in found.items():
                if time is not None and time > state.last[name] + 1:
                    reached("group.cell_written_by_others")
                    foreign[state.table.name, state.key, name] = time
                    conflicts.append(RowConflict((*state.key, name), (state.first[name].value,), None, (value,)))
        if conflicts and on_conflict == "fail":
            return NotUndone("cells were written by others since", tuple(conflicts))
        restored, above = 0, over(max(foreign.values())) if foreign and on_conflict == "overwrite" else 0
        for state in states:
            for back in undo_of([state], now):
                for one in self._against(state, back, foreign, above):
                    self.sent(_statement(one), limits, raw=True)
                    reached("undo.sent")
                    restored += 1
        return Undone(restored=restored, kept=tuple(conflicts) if on_conflict == "keep_current" else ())

    def _covers(self, wrote: Wrote, key: Row) -> bool:
        """Return whether a removal covers the row with this key. If single columns do not decide
        it, the answer is True.
        """
        plan, values = wrote.step.plan, wrote.step.values
        if plan.table is None:
            raise AssertionError(plan.statement.text)
        kinds, shape = self.kinds(plan.table), plan.statement.shape
        for relation in shape.relations:
            if not set(relation.columns) <= set(plan.table.key[: len(key)]):
                return False  # rows of a partition, not its static columns
            if len(relation.columns) == 1:
                column = relation.columns[0]
                found = kinds[column].deserialize(bytes.fromhex(key[plan.table.key.index(column)]), 4)
                with suppress(Unbound):  # not a plain literal
                    if not _holds(relation, kinds[column], found, values):
                        return False
        return True

    def _against(
        self, state: RowState, back: UndoStatement, foreign: Mapping[tuple[str, Row, str], int], above: int
    ) -> list[UndoStatement]:
        """Return a statement without the cells that others wrote; those written before `above` are put back there."""
        if back.how == "remove_row" and not state.present:
            times = {name: foreign.get((back.table.name, back.key, name), above) for name in state.last}
            theirs = tuple((name, None) for name, time in times.items() if time < above)
            if theirs:
                reached("group.made_row_written_by_others")
            if theirs and state.inserted:
                return [back._replace(timestamp=above)]
            return [back, back._replace(how="unset", timestamp=above, values=theirs)] if theirs else [back]
        if back.how not in {"set", "unset"}:
            return [back]
        made = []
        kept = []
        for name, value in back.values:
            time = foreign.get((back.table.name, back.key, name))
            if time is None:
                kept.append((name, value))
            elif time < above:
                made.append(back._replace(values=((name, value),), timestamp=above))
        return [*made, back._replace(values=tuple(kept))] if kept else made

    def _current(
        self, table: TargetTable, key: Row, columns: Sequence[str], limits: Limits
    ) -> dict[str, tuple[Any, int | None, int | None]]:
        """Return value, write time and TTL of these cells of a row."""
        if not columns:
            return {}
        selected = [texts.quoted(name) for name in columns]
        selected += [f"writetime({texts.quoted(name)})" for name in columns]
        selected += [f"ttl({texts.quoted(name)})" for name in columns]
        where = texts.equal(table.key[: len(key)], ["?"] * len(key))
        text = texts.select_cql(selected, table.name, where)
        rows, _ = self.asked(Bound(text, key), limits, raw=len(columns), raw_values=True)
        if not rows:
            return dict.fromkeys(columns, (None, None, None))
        size = len(columns)
        return {
            name: (_hex(rows[0][n]), _greatest(rows[0][size + n]), _greatest(rows[0][2 * size + n]))
            for n, name in enumerate(columns)
        }


def _filled(step: TargetStep) -> Iterator[str]:
    """Yield the columns to which a write gives a value: if one is not there afterwards, it was not applied."""
    shape: CqlShape = step.plan.statement.shape
    for column, term in zip(shape.columns, shape.terms, strict=False) if shape.ttl is None else ():
        with suppress(Unbound):  # not a plain value
            value = value_of(term, step.values)
            if column not in shape.inside and value is not None and value not in ([], {}, set(), ()):
                yield column


def _holds(relation: Relation, kind: Any, found: Any, values: Mapping[str, Any]) -> bool:
    """Return whether a stored value is the wanted one, which is first converted as its column would store it."""
    wanted = [one if one is None else kind.deserialize(serialized(kind, one), 4) for one in relation.wanted(values)]
    return holds(found, relation.sign, wanted)


def _statement(back: UndoStatement) -> Bound:
    """Return the text and values of one statement of an undo."""
    table = back.table
    marks = ["?"] * len(back.key)
    keys = table.key[: len(back.key)]
    where = texts.equal(keys, marks)
    if back.how == "remove_row":
        return Bound(texts.remove_cql(table.name, (), where), (back.timestamp, *back.key))
    if back.how == "unset":
        names = [name for name, _ in back.values]
        return Bound(texts.remove_cql(table.name, names, where), (back.timestamp, *back.key))
    if back.how == "add_row":
        return Bound(texts.insert(table.name, keys, [marks]) + " USING TIMESTAMP ?", (*back.key, back.timestamp))
    names = [name for name, _ in back.values]
    values = [value for _, value in back.values]
    return Bound(texts.put_back_cql(table.name, names, where), (back.timestamp, back.ttl, *values, *back.key))


def _role(table: TargetTable, name: str) -> str:
    column = table.column(name)
    return column.role if column is not None else ""


def packed(kind: Any, value: Any) -> str:
    if value is None:
        raise Unbound("a key has no value")
    return serialized(kind, value).hex()


def serialized(kind: Any, value: Any) -> bytes:
    """Return a value as Cassandra stores it; `Unbound` for one of another type."""
    if isinstance(value, Opaque):
        value = value.text
    try:
        if kind.typename in {"uuid", "timeuuid"} and isinstance(value, str):
            value = UUID(value)
        return kind.serialize(value, 4)  # type: ignore[no-any-return]
    except Exception as error:
        raise Unbound(f"{value!r} is no {kind.cql_parameterized_type()}: {error}") from error


def unhexed(kind: Any, value: Any) -> bytes | None:
    if isinstance(value, int):
        return kind.serialize(value, 4)  # type: ignore[no-any-return]
    return None if value is None else bytes.fromhex(value)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _greatest(value: Any) -> int | None:
    """Return a write time or TTL; the greatest of a collection, which has one for each of its elements."""
    if isinstance(value, (list, tuple)):
        return max((one for one in value if one is not None), default=None)
    return value  # type: ignore[no-any-return]


def _mixed(ttl: Any) -> bool:
    return isinstance(ttl, (list, tuple)) and len(set(ttl)) > 1
