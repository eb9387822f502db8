"""A keyspace as Cassandra keeps it, in memory: the last write of a cell wins, cells may have a life.

As much CQL as groups send: INSERT, UPDATE, DELETE with USING TIMESTAMP and TTL, SELECT by key with `writetime` and
`ttl`. Columns are text, int, bigint, boolean and blob, some of them static; there are no collections. For tests: what
it does at equal timestamps and with what was removed is what the server does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Final

from strandline.group.statements import parse
from strandline.group.statements.api import Statement, TargetColumn, TargetTable, Template
from strandline.group.statements.binding import Bound
from strandline.group.statements.cql import CqlShape, Relation, Selected, holds, value_of
from strandline.group.statements.lexer import renamed, tokens_of
from strandline.group.targets.cql import CqlRefused, Described, Row, serialized
from strandline.testing import cells

SECOND_US: Final = 1_000_000
GC_GRACE_S: Final = 864_000
MARKER: Final = ""
"""The cell that an INSERT makes so that a row without columns is there."""
STATIC: Final = ()
"""The place of the static columns of a partition."""


class Kind:
    """A type: packs a value into the bytes that are stored, and back."""

    def __init__(self, typename: str, type_: type[Any], pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any]):
        self.typename, self._type, self._pack, self._unpack = typename, type_, pack, unpack

    def serialize(self, value: Any, _: int) -> bytes:
        if type(value) is not self._type:
            raise TypeError(type(value).__name__)
        return self._pack(value)

    def deserialize(self, data: bytes, _: int) -> Any:
        return self._unpack(data)

    def cql_parameterized_type(self) -> str:
        return self.typename


def _whole(name: str, size: int) -> Kind:
    return Kind(name, int, lambda n: n.to_bytes(size, signed=True), lambda data: int.from_bytes(data, signed=True))


KINDS: Final = {
    "text": Kind("text", str, str.encode, bytes.decode), "int": _whole("int", 4), "bigint": _whole("bigint", 8),
    "boolean": Kind("boolean", bool, lambda b: bytes([b]), lambda data: data != b"\0"),
    "blob": Kind("blob", bytes, bytes, bytes),
}  # fmt: skip


class Keyspace:
    """Keeps tables by name."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.tables: dict[str, TargetTable] = {}
        self.cells: dict[str, cells.CellTable] = {}

    def create(self, text: str) -> None:
        """Make a table: `CREATE TABLE name (a text, b int, c int static, PRIMARY KEY (a, b))`, or `((a, b), c)`."""
        head, _, rest = text.partition("(")
        name, columns, key = head.split()[-1], [], ""
        body, _, keys = rest.rpartition("PRIMARY KEY")
        key = keys.strip().rstrip(")").strip() if body else ""
        single = [part.split() for part in (body or rest).strip().rstrip(",").rstrip(")").split(",")]
        inner, _, outer = key.strip("(").partition(")") if key.startswith("((") else ("", "", "")
        partition = _names(inner) if inner else _names(key.strip("()"))[:1]
        clustering = _names(outer) if inner else _names(key.strip("()"))[1:]
        for words in single:
            if not key and "PRIMARY" in words:
                partition = [words[0]]
            role = "partition" if words[0] in partition else "clustering" if words[0] in clustering else ""
            columns.append(TargetColumn(words[0], words[1], role="static" if "static" in words else role))  # type: ignore[arg-type]
        self.tables[name] = TargetTable(name, tuple(columns), (*partition, *clustering), gc_grace_s=GC_GRACE_S)
        self.cells[name] = cells.CellTable()

    def execute(self, asked: Bound, *, raw: bool = False) -> tuple[list[Row], Described]:
        """Return rows, and name and type of their columns; `raw`: values given are in hexadecimal."""
        return _CqlExecution(self, asked, raw).run()


def _names(text: str) -> list[str]:
    return [name.strip(" ()") for name in text.split(",") if name.strip(" ()")]


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Statement:
    """Return a statement, parsed with `:p0`, `:p1` for each `?`."""
    return parse(renamed(text, tokens_of(text, "cassandra"), "foreign_parameter"), "cassandra")


class _CqlExecution:
    """The execution of one statement."""

    def __init__(self, keyspace: Keyspace, asked: Bound, raw: bool) -> None:
        statement = _parsed(asked.text)
        name = statement.writes or next(iter(statement.reads), "")
        if not isinstance(statement.shape, CqlShape):
            raise CqlRefused(f"{asked.text.split()[0]} is not known here")
        if name not in keyspace.tables:
            raise CqlRefused(f"there is no table {name}")
        if any(len(one.columns) != 1 for one in statement.shape.relations):
            raise CqlRefused("only single columns are compared here")
        self._kind, self._shape = statement.kind, statement.shape
        self._table, self._cells = keyspace.tables[name], keyspace.cells[name]
        self._clustering = self._table.key[len(self._table.partition) :]
        self._given = {f"p{number}": value for number, value in enumerate(asked.values)}
        self._raw, self._now = raw, keyspace.clock()
        self._timestamp, ttl = self._number(self._shape.timestamp, self._now), self._number(self._shape.ttl, 0)
        self._expires = self._now + ttl * SECOND_US if ttl else None

    def run(self) -> tuple[list[Row], Described]:
        if self._kind == "query":
            return self._select()
        {"insert": self._insert, "update": self._update, "delete": self._delete}[self._kind]()
        return [], []

    def _insert(self) -> None:
        given = {one.columns[0]: self._wanted(one)[0] for one in self._shape.relations}
        partition, place = self._place(given)
        if place is not None:
            self._cells.put(partition, place, {MARKER: b""}, self._timestamp, self._expires)
        self._set(partition, place, {name: value for name, value in given.items() if name not in self._table.key})

    def _update(self) -> None:
        terms = zip(self._shape.columns, self._shape.terms, strict=True)
        given = {name: self._typed(name, value_of(term, self._given)) for name, term in terms}
        for partition, place in self._rows(self._shape.relations):
            self._set(partition, place, given)

    def _delete(self) -> None:
        if self._shape.columns:
            for partition, place in self._rows(self._shape.relations):
                self._set(partition, place, dict.fromkeys(self._shape.columns))
            return
        ranges = [
            (self._clustering.index(one.columns[0]), one.sign, self._wanted(one))
            for one in self._shape.relations
            if one.columns[0] in self._clustering
        ]

        def covers(place: Row) -> bool:
            if place == STATIC:
                return not ranges
            return all(holds(place[at], sign, wanted) for at, sign, wanted in ranges)

        named = [one for one in self._shape.relations if one.columns[0] in self._table.partition]
        for partition, _ in self._rows(named):
            self._cells.remove_where(partition, covers, self._timestamp)

    def _select(self) -> tuple[list[Row], Described]:
        where = [(one.columns[0], one.sign, self._wanted(one)) for one in self._shape.relations]
        found = [
            (values, live)
            for values, live in self._read()
            if all(holds(values[name], sign, wanted) for name, sign, wanted in where)
        ]
        if self._shape.selected[0].function == "count":
            return [(len(found),)], [("count", KINDS["bigint"])]
        every = [Selected(name) for name in self._table.names]
        selected = [item for one in self._shape.selected for item in (every if one.column == "*" else [one])]
        limit = self._number(self._shape.limit, len(found))
        rows = [tuple(self._shown(one, values, live) for one in selected) for values, live in found[:limit]]
        return rows, [(one.name, self._type(one)) for one in selected]

    def _read(self) -> Iterator[tuple[dict[str, Any], dict[str, cells.TimedValue]]]:
        """Yield values and cells of each row; of a partition that has none, its static columns."""
        for partition in self._cells.partitions():
            static = self._cells.cells(partition, STATIC, self._now) if self._clustering else {}
            rows = [(place, self._cells.cells(partition, place, self._now)) for place in self._cells.places(partition)]
            there = [(place, live) for place, live in rows if live and (place != STATIC or not self._clustering)]
            for place, own in there or ([((None,) * len(self._clustering), {})] if static else []):
                live = {**static, **own}
                values: dict[str, Any] = dict.fromkeys(self._table.names)
                values |= dict(zip(self._table.key, (*partition, *place), strict=True))
                for name, cell in live.items():
                    if name != MARKER:
                        values[name] = KINDS[self._column(name).type].deserialize(cell.value, 4)
                yield values, live

    def _shown(self, one: Selected, values: Mapping[str, Any], live: Mapping[str, cells.TimedValue]) -> Any:
        cell = live.get(one.column)
        if not one.function:
            return values[one.column]
        if one.function == "writetime" or cell is None:
            return None if cell is None else cell.timestamp
        return None if cell.expires is None else (cell.expires - self._now) // SECOND_US

    # ------------------------------------------------------------ rows and cells

    def _set(self, partition: Row, place: Row | None, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            column = self._column(name)
            static = column.role == "static"
            if place is None and not static:
                raise CqlRefused(f"{name} needs the whole key")
            data = None if value is None else serialized(KINDS[column.type], value)
            at = STATIC if static else place
            self._cells.put(partition, at, {name: data}, self._timestamp, self._expires if data is not None else None)

    def _rows(self, relations: Sequence[Relation]) -> Iterator[tuple[Row, Row | None]]:
        """Yield the rows that a write names by their whole keys."""
        names = [one.columns[0] for one in relations]
        for values in product(*map(self._wanted, relations)):
            yield self._place(dict(zip(names, values, strict=True)))

    def _place(self, given: Mapping[str, Any]) -> tuple[Row, Row | None]:
        """Return the partition, and the place in it; None if no clustering column is given."""
        partition = tuple(given.get(name) for name in self._table.partition)
        if None in partition:
            raise CqlRefused("the partition key is not given")
        if self._clustering and not any(name in given for name in self._clustering):
            return partition, None
        return partition, tuple(given[name] for name in self._clustering)

    # ------------------------------------------------------------ values

    def _wanted(self, relation: Relation) -> list[Any]:
        return [self._typed(relation.columns[0], value) for value in relation.wanted(self._given)]

    def _typed(self, name: str, value: Any) -> Any:
        kind = KINDS[self._column(name).type]
        if self._raw and isinstance(value, str):
            return kind.deserialize(bytes.fromhex(value), 4)
        if value is not None:
            serialized(kind, value)
        return value

    def _number(self, term: Template | None, default: int) -> int:
        return default if term is None else int(value_of(term, self._given))

    def _type(self, selected: Selected) -> Kind:
        return KINDS["bigint" if selected.function else self._column(selected.column).type]

    def _column(self, name: str) -> TargetColumn:
        column = self._table.column(name)
        if column is None:
            raise CqlRefused(f"{self._table.name} has no column {name}")
        return column
