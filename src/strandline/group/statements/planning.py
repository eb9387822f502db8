"""The plan of a statement in SQL: with the schema of its tables, which rows it touches and how it is undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.group.statements import texts
from strandline.group.statements.api import Plan, RowSet, Statement, StatementProblem, TargetTable, Template
from strandline.group.statements.holding import rows_of
from strandline.group.statements.lexer import joined
from strandline.group.statements.sql import Shape
from strandline.group.statements.texts import named, quoted


def plan_sql(plan: Plan, tables: Mapping[str, TargetTable]) -> Plan:
    """Return the plan of a statement. The same statement and tables give the same plan."""
    statement, shape = plan.statement, plan.statement.shape
    if statement.kind != "query":
        return _ChangePlanner(statement, tables).plan(plan)
    read = [tables[name] for name in statement.reads]
    if shape.single and read:
        return plan._replace(rows=(rows_of(read[0], read[0].key, shape.given),))
    return plan._replace(rows=tuple(RowSet(table.rows_in) for table in read))


class _ChangePlanner:
    """Plans a statement that changes a table."""

    def __init__(self, statement: Statement, tables: Mapping[str, TargetTable]) -> None:
        self._statement = statement
        self._shape: Shape = statement.shape
        self._tables = tables
        self._table = tables[statement.writes]
        self._cast = texts.CAST[statement.dialect]
        self._obstacles: list[StatementProblem] = []
        self._problems: list[StatementProblem] = []
        sets = [self._column(name) for name in self._shape.sets]
        self._sets = tuple(name for name in sets if name)

    def plan(self, plan: Plan) -> Plan:
        table, kind = self._table, self._statement.kind
        self._look_for_obstacles()
        own = [column.name for column in table.columns if not column.generated]
        rest = [name for name in own if name not in table.key]
        changed = tuple(rest)
        if kind == "update":
            changed = tuple(name for name in rest if name in self._sets)
        columns = (*table.key, *changed)
        if kind == "insert" and self._shape.conflict == "update":
            changed = tuple(name for name in rest if name in self._sets)
        return plan._replace(
            table=table,
            columns=columns,
            changed=changed,
            used=self._used(),
            before=self._before(columns),
            rows=tuple(dict.fromkeys(self._rows())),
            problems=(*plan.problems, *self._problems),
            obstacles=(*plan.obstacles, *self._obstacles),
        )

    def _used(self) -> tuple[str, ...]:
        if self._statement.kind == "insert" and self._shape.into is None:
            return self._table.names
        named = self._shape.names | {name.lower() for name in (*self._shape.sets, *(self._shape.into or ()))}
        return tuple(name for name in self._table.names if name.lower() in named)

    def _column(self, name: str) -> str:
        """Return a column's name as the table spells it; SQLite does not tell upper from lower case."""
        for column in self._table.columns:
            if column.name == name or (self._statement.dialect == "sqlite" and column.name.lower() == name.lower()):
                return column.name
        self._problems.append(StatementProblem("value", f"{self._table.name} has no column {name}"))
        return ""

    # ------------------------------------------------------------ what cannot be undone

    def _look_for_obstacles(self) -> None:
        table, kind, shape = self._table, self._statement.kind, self._shape
        if table.what == "view":
            self._obstacle(f"{table.name} is a view")
        elif not table.key:
            self._obstacle(f"{table.name} has no primary key")
        if set(self._sets) & set(table.key):
            self._obstacle(f"it changes the key of {table.name}")
        if any(column.generated for column in table.columns if column.name in table.key):
            self._obstacle(f"the key of {table.name} is computed")
        for why in table.unsafe:
            self._obstacle(f"{table.name} {why}")
        for child in table.children:
            if kind == "delete" and "delete" in child.carries_on:
                self._obstacle(f"a foreign key carries the deletion on into {child.child}")
            if "update" in child.carries_on and set(self._sets) & set(child.parent_columns):
                self._obstacle(f"a foreign key carries the change on into {child.child}")
        for name in self._sets:
            if (column := table.column(name)) and column.always:
                self._obstacle(f"{name} is given by {table.name} alone")
        if kind == "insert":
            self._look_at_conflict(shape)

    def _look_at_conflict(self, shape: Shape) -> None:
        if shape.conflict != "update":
            return
        if not self._conflicts_on_the_key():
            self._obstacle("ON CONFLICT on anything but the key")
        elif shape.rows is None or self._key_rows() is None:
            self._obstacle("ON CONFLICT DO UPDATE where the keys are not written in VALUES")
        elif shape.volatile_rows:
            self._obstacle("a value of its rows may be another one the next time: bind a value")

    def _conflicts_on_the_key(self) -> bool:
        named = self._shape.conflict_on
        return named is not None and {self._column(name) for name in named} == set(self._table.key)

    def _obstacle(self, text: str) -> None:
        self._obstacles.append(StatementProblem("not_invertible", text))

    # ------------------------------------------------------------ the image

    def _before(self, columns: tuple[str, ...]) -> Template | None:
        shape, kind = self._shape, self._statement.kind
        if self._problems:
            return None
        if kind == "insert":  # also where it cannot be undone: `must_not_exist` looks for its rows
            known = shape.conflict == "update" and self._conflicts_on_the_key() and not shape.volatile_rows
            return self._before_insert(columns) if known and self._key_rows() is not None else None
        if self._obstacles:
            return None
        prefix = (shape.prefix, " ") if shape.prefix.parts else ()
        where = (" WHERE (", shape.where, ")") if shape.where is not None else ()
        return joined(*prefix, texts.select(columns, shape.place, shape.reference, self._cast), *where)

    def _before_insert(self, columns: tuple[str, ...]) -> Template:
        key, rows = self._table.key, self._key_rows() or []
        head = texts.select(columns, named(self._table.name), cast=self._cast) + " WHERE "
        if self._statement.dialect == "sqlite":  # a row a term would be too deep for it
            pieces: list[str | Template] = [head, "(", ", ".join(map(quoted, key)), ") IN (VALUES "]
            for number, row in enumerate(rows):
                pieces.append(", (" if number else "(")
                for place, value in enumerate(row):
                    pieces += [", " * bool(place), value]
                pieces.append(")")
            return joined(*pieces, ")")
        pieces = [head]
        for number, row in enumerate(rows):
            pieces.append(" OR (" if number else "(")
            for name, value in zip(key, row, strict=True):
                column = self._table.column(name)
                # Assigning a value converts, rounds and cuts it; comparing it does not.
                sought = (" = CAST((", value, f") AS {column.type if column else 'text'})")
                pieces += [" AND " * (name != key[0]), quoted(name), *sought]
            pieces.append(")")
        return joined(*pieces)

    def _key_rows(self) -> list[tuple[Template, ...]] | None:
        """Return the expressions of the key in each row of VALUES; None if they are not all there."""
        into = self._into()
        if self._shape.rows is None or any(name not in into for name in self._table.key):
            return None
        places = [into.index(name) for name in self._table.key]
        if any(len(row) != len(into) for row in self._shape.rows):
            return None
        found = [tuple(row[place] for place in places) for row in self._shape.rows]
        return None if any(value.shown().upper() == "DEFAULT" for row in found for value in row) else found

    def _into(self) -> list[str]:
        if self._shape.into is None:
            return [column.name for column in self._table.columns if not column.generated]
        return [self._column(name) for name in self._shape.into]

    # ------------------------------------------------------------ which rows

    def _rows(self) -> Iterable[RowSet]:
        table, kind = self._table, self._statement.kind
        # The schema does not say what a column is computed from: an UPDATE may write each of these.
        computed = [column.name for column in table.columns if column.generated]
        written = set(table.names if kind in ("insert", "delete") else (*self._sets, *computed))
        if self._reaches_further():
            yield RowSet(None, writes=True)
        elif self._shares_unique(written):
            yield RowSet(table.rows_in, writes=True)
        elif kind == "insert":
            yield from self._inserted_rows()
        else:
            given = [one._replace(column=self._spelled(one.column)) for one in self._shape.given]
            yield rows_of(table, table.key, given, writes=True)
        for name in self._statement.reads:
            yield RowSet(self._tables[name].rows_in)
        for key in table.foreign:
            if kind != "delete" and (kind == "insert" or written & set(key.columns)):
                yield RowSet(key.parent)
        for child in table.children:
            if kind == "delete" or written & set(child.parent_columns):
                yield RowSet(child.child)

    def _reaches_further(self) -> bool:
        """Return whether triggers or cascades of foreign keys may write rows that the plan does not know."""
        carried = {verb for child in self._table.children for verb in child.carries_on}
        return bool(self._table.unsafe) or self._statement.kind in carried

    def _shares_unique(self, written: set[str]) -> bool:
        """Return whether a unique index couples the rows that are written with others: these count as the same rows."""
        return any(not columns or written & set(columns) for columns in self._table.unique)

    def _spelled(self, name: str) -> str:
        return next((column for column in self._table.names if column.lower() == name.lower()), name)

    def _inserted_rows(self) -> Iterable[RowSet]:
        into = self._into()
        for row in self._shape.row_given or [()]:
            known = row if len(row) == len(into) else ()
            given = [item._replace(column=into[int(item.column)]) for item in known]
            yield rows_of(self._table, self._table.key, given, writes=True)
