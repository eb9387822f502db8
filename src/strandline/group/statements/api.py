"""Facts about a statement before it runs. Pure, and without a connection.

    parse(text, dialect)              -> Statement   what it is: verb, tables, parameters; what is wrong with it
    plan(statement, tables, ...)      -> Plan        with the schema: rows it touches, before-image, undo, or why not
    held(plan, values)                -> places      with the values given at creation: what other groups must wait for

The user's text is never rewritten: it is cut between tokens, and its parts are joined with text of ours. The SQL
library only says what the parts are.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

Dialect = Literal["sqlite", "postgres", "cassandra"]
Kind = Literal["query", "insert", "update", "delete", "any"]
Undo = Literal["none", "insert", "update", "delete"]
"""The kind of undo: none for a query; for other statements it follows from what they do to rows."""

TEXT_BYTES_MAX: Final = 64 * 1024
OURS: Final = ("strandline_target", "strandline_barrier")
"""Tables that a statement of the user's does not touch."""


class StatementProblem(NamedTuple):
    """Something wrong with a statement. `code` is one of `InvalidGroup`'s or `NotInvertible`'s."""

    code: str
    text: str
    position: int = 0
    """The number of characters before the place in the statement's text."""


class Parameter(NamedTuple):
    """`:name`, `:recipe.result`, `:step.recipe.result`, `:row.column`."""

    name: str
    """The name without its colon."""
    position: int
    many: Literal["", "in", "not in"] = ""
    """Set where a list is wanted: the part stands for `IN :name` or `NOT IN :name` as a whole."""
    compared: bool = False
    """Whether it stands in a condition, where one value is wanted."""


class Template(NamedTuple):
    """Text with parameters at their places."""

    parts: tuple[str | Parameter, ...]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(part for part in self.parts if isinstance(part, Parameter))

    def shown(self) -> str:
        """Return the text as a person wrote it."""
        return "".join(part if isinstance(part, str) else _shown(part) for part in self.parts)


def _shown(parameter: Parameter) -> str:
    return f"{parameter.many.upper()} :{parameter.name}" if parameter.many else f":{parameter.name}"


# ---------------------------------------------------------------- a table, as its target describes it


class TargetColumn(NamedTuple):
    name: str
    type: str
    """The type in the target's own words."""
    generated: bool = False
    """Whether the target computes it: it is never written back."""
    identity: bool = False
    """Whether the target gives it, unless that is overridden."""
    always: bool = False
    """Whether it also gives each new value of it: no UPDATE can set another one."""
    role: Literal["", "partition", "clustering", "static"] = ""
    """Its part in a table of Cassandra's."""
    collation: str = ""
    """A collation under which unlike texts may be equal; "" if it has none such."""


class ForeignKey(NamedTuple):
    """A foreign key, from the columns of a child to those of its parent."""

    child: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    carries_on: tuple[Literal["delete", "update"], ...] = ()
    """The changes of a parent that it carries on into the child: CASCADE, SET NULL, SET DEFAULT."""


class TargetTable(NamedTuple):
    """A table, on which the plan of a statement rests: a change of its key or used columns fails the step."""

    name: str
    """The name as the target spells it, with its schema where it has schemas."""
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    """The columns of the primary key, in its order; Cassandra: partition, then clustering columns."""
    what: Literal["table", "view", "counter"] = "table"
    unique: tuple[tuple[str, ...], ...] = ()
    """The columns on which each other unique index, or exclusion constraint, rests; () if that is not told."""
    foreign: tuple[ForeignKey, ...] = ()
    """The foreign keys to its parents."""
    children: tuple[ForeignKey, ...] = ()
    unsafe: tuple[str, ...] = ()
    """The reasons why no change of it can be undone by rewriting, e.g. "has the trigger stamp"."""
    gc_grace_s: int = 0
    """The seconds for which Cassandra remembers what was deleted."""
    part_of: str = ""
    """The partitioned table that it is a partition of."""
    inherits: bool = False
    """Whether its rows may also be rows of other tables, or theirs of this one."""

    @property
    def rows_in(self) -> str | None:
        """The table under whose name its rows are held; None if they may be rows of any table."""
        return None if self.what == "view" or self.inherits else self.part_of or self.name

    def column(self, name: str) -> TargetColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns of Cassandra's partition key."""
        return tuple(column.name for column in self.columns if column.role == "partition")


# ---------------------------------------------------------------- a statement


class Given(NamedTuple):
    """The literal or parameter that a condition or a row binds a column to."""

    column: str
    value: Any = None
    """The value of a literal."""
    parameter: str = ""
    """The name of a parameter; "" for a literal."""


class Statement(NamedTuple):
    """A statement, as far as its text tells what it is. With `problems` nothing else may be known."""

    text: str
    dialect: Dialect
    kind: Kind
    template: Template
    problems: tuple[StatementProblem, ...] = ()
    """The reasons to refuse it: several statements, none, one that the grammar does not know, a slip."""
    obstacles: tuple[StatementProblem, ...] = ()
    """The reasons why it cannot be undone by rewriting, as far as the text alone tells."""
    writes: str = ""
    """The table that it changes, as the text names it: `schema.table` or `table`, folded to lower case if unquoted."""
    reads: tuple[str, ...] = ()
    """All other tables that it names."""
    understood: bool = True
    """False if it may touch rows that it does not tell (DDL, a function): then it holds all of the target."""
    alias: str = ""
    """The alias of the first table: in expressions a row goes by it, too."""
    columns: tuple[str, ...] | None = None
    """The names of the columns that it returns, if the text tells them all."""
    shape: Any = None
    """Its parts, from which the planner of its dialect makes a plan."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.template.parameters

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose schema a plan needs."""
        return ((self.writes,) if self.writes else ()) + self.reads


# ---------------------------------------------------------------- the plan of a statement


class RowSet(NamedTuple):
    """Rows that a statement may touch: those with this key, a table, or (`table` None) all of the target."""

    table: str | None
    key: tuple[Given, ...] | None = None
    """The values of the key's columns, in its order; Cassandra: of the partition key. None: all rows."""
    writes: bool = False
    types: tuple[str, ...] = ()


class Held(NamedTuple):
    """A place that a group holds: () for all of the target, (table,), (table, key…). Those within it are in its way."""

    place: tuple[Any, ...]
    writes: bool

    def meets(self, other: Held) -> bool:
        """Return whether both may be the same rows while at least one of them writes."""
        shorter = min(len(self.place), len(other.place))
        return (self.writes or other.writes) and self.place[:shorter] == other.place[:shorter]


class Plan(NamedTuple):
    """The plan of a statement: how it runs on its target, and back. It is made once, when its group is submitted."""

    statement: Statement
    table: TargetTable | None = None
    """The table that it changes."""
    columns: tuple[str, ...] = ()
    """The columns of the image: the key, then all that the statement can change."""
    before: Template | None = None
    """The query of the before-image; None where there can be none (a plain INSERT), or nothing is undone."""
    changed: tuple[str, ...] = ()
    """The columns that are compared and restored; the others survive."""
    used: tuple[str, ...] = ()
    """The columns of the table that its text rests on: with the key, they must be what they were (G85)."""
    rows: tuple[RowSet, ...] = ()
    problems: tuple[StatementProblem, ...] = ()
    """The reasons to refuse the statement in any case: unknown tables or columns, `table_unsafe`."""
    obstacles: tuple[StatementProblem, ...] = ()
    """The reasons why it cannot be undone by rewriting: `not_invertible`, unless an undo is given."""

    @property
    def undo(self) -> Undo:
        """The kind of its undo; "none" if it only reads rows, or if its effect on them is unknown."""
        kind = self.statement.kind
        return kind if self.table is not None and kind in ("insert", "update", "delete") else "none"

    @property
    def reads_one(self) -> bool:
        """Whether it is a query of one row by the table's key that calls no function which could write."""
        one = self.statement.kind == "query" and bool(self.rows) and self.rows[0].key is not None
        return one and "(" not in self.statement.text
