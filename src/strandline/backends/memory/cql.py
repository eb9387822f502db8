"""Tables as Cassandra keeps them, in memory: the last write of a cell wins, cells may have a life, removals cover rows.

As much CQL as groups send: INSERT, UPDATE, DELETE with USING TIMESTAMP and TTL, SELECT by key with `writetime` and
`ttl`. Columns are text, int, bigint, boolean and blob, some of them static; there are no collections. For tests: what
it does at equal timestamps and with what was removed is what the server does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from strandline.group.cql_steps import Refused, serialized
from strandline.group.statements.api import Column, Table
from strandline.group.statements.binding import Bound
from strandline.group.statements.lexer import Token, tokens_of

SECOND_US: Final = 1_000_000
GC_GRACE_S: Final = 864_000
MARKER: Final = ""
"""The cell that an INSERT makes so that a row without columns is there."""
Row = tuple[Any, ...]
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "IN": lambda found, wanted: found in wanted,
}  # fmt: skip


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


class Cell(NamedTuple):
    timestamp: int
    value: bytes | None
    """None: removed."""
    expires: int | None = None
    """When its life ends (µs)."""

    def beats(self, other: Cell) -> bool:
        """The later one; at equal times a removal, then one with a life, then the greater value."""
        return (self.timestamp, self.value is None, self.expires is not None, self.value or b"") > (
            other.timestamp, other.value is None, other.expires is not None, other.value or b"",
        )  # fmt: skip


class _Removal(NamedTuple):
    covers: Callable[[Row], bool]
    timestamp: int


class Partition:
    """The rows of a partition by clustering key; static columns are those of None."""

    def __init__(self) -> None:
        self.rows: dict[Row | None, dict[str, Cell]] = {}
        self.removals: list[tuple[bool, _Removal]] = []
        """Whether each takes static columns, too."""

    def put(self, place: Row | None, name: str, cell: Cell) -> None:
        row = self.rows.setdefault(place, {})
        if name not in row or cell.beats(row[name]):
            row[name] = cell

    def live(self, place: Row | None, now: int) -> dict[str, Cell]:
        """The cells of a row that are there."""
        covering = (one.timestamp for static, one in self.removals if (static if place is None else one.covers(place)))
        newest = max(covering, default=-1)
        return {
            name: cell
            for name, cell in self.rows.get(place, {}).items()
            if cell.value is not None and cell.timestamp > newest and (cell.expires is None or cell.expires > now)
        }


class Keyspace:
    """Tables by name."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.tables: dict[str, Table] = {}
        self._data: dict[str, dict[Row, Partition]] = {}

    def create(self, text: str) -> None:
        """`CREATE TABLE name (a text, b int, c int static, PRIMARY KEY (a, b))`, or `((a, b), c)`."""
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
            columns.append(Column(words[0], words[1], role="static" if "static" in words else role))  # type: ignore[arg-type]
        self.tables[name] = Table(name, tuple(columns), (*partition, *clustering), gc_grace_s=GC_GRACE_S)

    def execute(self, asked: Bound, raw: bool = False) -> tuple[list[dict[str, Any]], list[str], Table]:
        """Rows by what was selected, and what that was; `raw`: values given are in hexadecimal."""
        return _Statement(self, asked, raw).run()

    def partition(self, table: Table, key: Row) -> Partition:
        return self._data.setdefault(table.name, {}).setdefault(key, Partition())

    def partitions(self, table: Table) -> Mapping[Row, Partition]:
        return self._data.get(table.name, {})


def _names(text: str) -> list[str]:
    return [name.strip(" ()") for name in text.split(",") if name.strip(" ()")]


class _Relation(NamedTuple):
    column: str
    sign: str
    value: Any

    def holds(self, found: Any) -> bool:
        return found is not None and _SIGNS[self.sign](found, self.value)


class _Statement:
    def __init__(self, keyspace: Keyspace, asked: Bound, raw: bool) -> None:
        self._keyspace, self._raw, self._now = keyspace, raw, keyspace.clock()
        self._tokens: list[Token] = tokens_of(asked.text, "cassandra")
        self._values = iter(asked.values)
        self._at = 0
        self._timestamp, self._ttl = self._now, 0

    def run(self) -> tuple[list[dict[str, Any]], list[str], Table]:
        verb = self._take().text.upper()
        how = {"INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete}.get(verb)
        if verb == "SELECT":
            return self._select()
        if how is None:
            raise Refused(f"{verb} is not known here")
        return [], [], how()

    # ------------------------------------------------------------ the verbs

    def _insert(self) -> Table:
        self._take()
        table = self._table()
        names = self._listed(self._name)
        self._take()
        terms = self._terms([self._kind(table, name) for name in names])
        self._using()
        given = dict(zip(names, terms, strict=True))
        partition = self._partition(table, given)
        place = self._place(table, given)
        if place is not None:
            partition.put(place, MARKER, self._cell(b""))
        for name in names:
            if name not in table.key:
                self._set(partition, table, place, name, given[name])
        return table

    def _update(self) -> Table:
        table = self._table()
        self._using()
        self._take()
        given: dict[str, Any] = {}
        while not given or self._says(","):
            name = self._name()
            self._take()
            given[name] = self._term(self._kind(table, name))
        for partition, place in self._rows(table, self._where(table)):
            for name, value in given.items():
                self._set(partition, table, place, name, value)
        return table

    def _delete(self) -> Table:
        names = []
        while not self._peek("FROM"):
            names.append(self._name())
            self._says(",")
        self._take()
        table = self._table()
        self._using()
        where = self._where(table)
        if names:
            for partition, place in self._rows(table, where):
                for name in names:
                    self._set(partition, table, place, name, None)
            return table
        clustering = [name for name in table.key if name not in table.partition]
        ranges = [relation for relation in where if relation.column in clustering]

        def covers(place: Row) -> bool:
            return all(relation.holds(place[clustering.index(relation.column)]) for relation in ranges)

        for partition in self._partitions(table, where):
            partition.removals.append((not ranges, _Removal(covers, self._timestamp)))
        return table

    def _select(self) -> tuple[list[dict[str, Any]], list[str], Table]:
        selected: list[str] = []
        while not selected or self._says(","):
            selected.append(self._selected())
        self._take()
        table = self._table()
        where = self._where(table) if self._peek("WHERE") else []
        limit = int(self._values_of(self._take())) if self._says("LIMIT") else None
        names = [name for one in selected for name in (table.names if one == "*" else [one])]
        rows = [row for key in self._keyspace.partitions(table) for row in self._read(table, key, names)]
        found = [row for row in rows if all(relation.holds(row[relation.column]) for relation in where)]
        if names == ["count"]:
            return [{"count": len(found)}], names, table
        return found[:limit], names, table

    def _selected(self) -> str:
        name = self._name() if not self._says("*") else "*"
        if not self._says("("):
            return name
        inner = "*" if self._says("*") else self._name()
        self._take()
        return "count" if name == "count" else f"{name}({inner})"

    def _read(self, table: Table, key: Row, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        partition = self._keyspace.partitions(table)[key]
        static = partition.live(None, self._now)
        clustering = [name for name in table.key if name not in table.partition]
        places = sorted(place for place in partition.rows if place is not None and partition.live(place, self._now))
        shown: Sequence[Row | None] = places or ([None] if static else [])
        for place in shown:
            cells = {**static, **(partition.live(place, self._now) if place is not None else {})}
            row: dict[str, Any] = dict(zip(table.partition, key, strict=True))
            row |= dict(zip(clustering, place or (None,) * len(clustering), strict=True))
            for column in table.columns:
                if column.name not in table.key:
                    cell = cells.get(column.name)
                    row[column.name] = None if cell is None else KINDS[column.type].deserialize(cell.value or b"", 4)
            for name in names:
                what, _, inner = name.partition("(")
                cell = cells.get(inner.rstrip(")"))
                if what == "writetime":
                    row[name] = None if cell is None else cell.timestamp
                elif what == "ttl":
                    row[name] = None if cell is None or cell.expires is None else self._left(cell.expires)
            yield row

    def _left(self, expires: int) -> int:
        return (expires - self._now) // SECOND_US

    # ------------------------------------------------------------ rows and cells

    def _cell(self, value: bytes | None) -> Cell:
        expires = self._now + self._ttl * SECOND_US if self._ttl and value is not None else None
        return Cell(self._timestamp, value, expires)

    def _set(self, partition: Partition, table: Table, place: Row | None, name: str, value: Any) -> None:
        column = table.column(name)
        if column is None or (place is None and column.role != "static"):
            raise Refused(f"{name} needs the whole key")
        data = None if value is None else serialized(KINDS[column.type], value)
        partition.put(None if column.role == "static" else place, name, self._cell(data))

    def _partition(self, table: Table, given: Mapping[str, Any]) -> Partition:
        key = tuple(given.get(name) for name in table.partition)
        if None in key:
            raise Refused("the partition key is not given")
        return self._keyspace.partition(table, key)

    def _place(self, table: Table, given: Mapping[str, Any]) -> Row | None:
        clustering = [name for name in table.key if name not in table.partition]
        if clustering and not any(name in given for name in clustering):
            return None
        return tuple(given[name] for name in clustering)

    def _rows(self, table: Table, where: Sequence[_Relation]) -> Iterator[tuple[Partition, Row | None]]:
        """Those that a write names by their whole keys."""
        keys: list[dict[str, Any]] = [{}]
        for relation in where:
            values = relation.value if relation.sign == "IN" else [relation.value]
            keys = [{**key, relation.column: value} for key in keys for value in values]
        for key in keys:
            yield self._partition(table, key), self._place(table, key)

    def _partitions(self, table: Table, where: Sequence[_Relation]) -> Iterator[Partition]:
        named = [relation for relation in where if relation.column in table.partition]
        for partition, _ in self._rows(table, named):
            yield partition

    # ------------------------------------------------------------ parts

    def _where(self, table: Table) -> list[_Relation]:
        self._take()
        found: list[_Relation] = []
        while not found or self._says("AND"):
            name = self._name()
            sign = self._take().text.upper()
            if sign in "<>" and self._says("="):
                sign += "="
            kind = self._kind(table, name)
            if sign == "IN" and self._peek("("):
                value: Any = self._terms([kind] * self._count())
            else:
                value = self._term(kind, many=sign == "IN")
            found.append(_Relation(name, sign, value))
        return found

    def _using(self) -> None:
        if self._says("USING"):
            while True:
                what = self._take().text.upper()
                value = int(self._values_of(self._take()))
                if what == "TTL":
                    self._ttl = value
                else:
                    self._timestamp = value
                if not self._says("AND"):
                    return

    def _count(self) -> int:
        end = next(n for n in range(self._at, len(self._tokens)) if self._tokens[n].says(")"))
        return 1 + sum(token.says(",") for token in self._tokens[self._at : end])

    def _terms(self, kinds: Sequence[Kind]) -> list[Any]:
        left = iter(kinds)
        return self._listed(lambda: self._term(next(left)))

    def _listed(self, read: Callable[[], Any]) -> list[Any]:
        self._take()
        found = [read()]
        while self._says(","):
            found.append(read())
        self._take()
        return found

    def _term(self, kind: Kind, *, many: bool = False) -> Any:
        value = self._values_of(self._take())
        if self._raw and isinstance(value, str):
            return kind.deserialize(bytes.fromhex(value), 4)
        for one in value if many else [value]:
            if one is not None:
                serialized(kind, one)
        return value

    def _values_of(self, token: Token) -> Any:
        if token.kind == "foreign_parameter":
            return next(self._values)
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "number":
            return bytes.fromhex(token.text[2:]) if token.text[:2].lower() == "0x" else int(token.text)
        return {"TRUE": True, "FALSE": False, "NULL": None}[token.text.upper()]

    def _kind(self, table: Table, name: str) -> Kind:
        column = table.column(name)
        if column is None:
            raise Refused(f"{table.name} has no column {name}")
        return KINDS[column.type]

    def _table(self) -> Table:
        name = self._name()
        if name not in self._keyspace.tables:
            raise Refused(f"there is no table {name}")
        return self._keyspace.tables[name]

    def _name(self) -> str:
        token = self._take()
        return token.text[1:-1] if token.kind == "name" else token.text.lower()

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self, word: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].says(word)

    def _says(self, word: str) -> bool:
        self._at += (found := self._peek(word))
        return found
