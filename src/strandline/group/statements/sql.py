"""Parses a statement in SQL: verb, tables, columns that it sets, condition. For SQLite and PostgreSQL.

sqlglot says what the parts are; the parts themselves are cut out of the user's text. What it does not understand can
still run, but is not undone by rewriting, and touches all of the target.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple

import sqlglot
from sqlglot import exp

from strandline.group.statements.api import Dialect, Given, Statement, StatementProblem, Template
from strandline.group.statements.lexer import Token, cut, renamed
from strandline.group.statements.texts import quoted

# sqlglot logs a warning for each command that it does not know. Our answer has the same information.
logging.getLogger("sqlglot").addFilter(lambda _: False)

_VOLATILE: Final[dict[Dialect, frozenset[str]]] = {
    "sqlite": frozenset(
        "random randomblob rand changes total_changes last_insert_rowid now current_timestamp current_date "
        "current_time currenttimestamp currentdate currenttime load_extension".split()
    ),
    "postgres": frozenset(
        "random rand randn clock_timestamp statement_timestamp timeofday gen_random_uuid uuid uuidv4 uuidv7 nextval "
        "currval lastval setval pg_sleep txid_current pg_current_xact_id uuid_generate_v1 uuid_generate_v4".split()
    ),
}
_TIMES: Final = frozenset("date time datetime julianday unixepoch strftime timediff".split())
"""Functions of SQLite's that give the moment if they are given 'now' or nothing."""
_PURE: Final = frozenset(
    "abs acos age array_length array_position ascii asin atan atan2 btrim cardinality ceil ceiling char char_length "
    "chr coalesce concat concat_ws cos date_part date_trunc decode degrees div encode exp extract floor format glob "
    "greatest hex ifnull iif initcap instr jsonb_array_length json_array_length jsonb_extract_path json_extract "
    "json_valid least left length like ln log log10 lower lpad ltrim make_date make_interval max md5 min mod now "
    "nullif octet_length overlay pi position power printf quote radians regexp_replace repeat replace reverse right "
    "round rpad rtrim sha256 sign sin soundex split_part sqrt starts_with strpos substr substring tan to_char to_date "
    "to_number to_timestamp translate trim trunc typeof unhex unicode unlikely upper width_bucket zeroblob".split()
)
"""Functions that sqlglot has no class for, or may not have one day, and that give the same for the same."""


_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


class Shape(NamedTuple):
    """The parts of a statement that changes rows, or of a query."""

    prefix: Template = Template(())
    """The text of `WITH …` before the verb."""
    place: str = ""
    """The table as the text writes it, with its alias."""
    reference: str = ""
    """The name by which a column of it can be qualified."""
    where: Template | None = None
    given: tuple[Given, ...] = ()
    """The columns that the condition binds; all of these hold for each row that it takes."""
    sets: tuple[str, ...] = ()
    """The columns that UPDATE, or ON CONFLICT DO UPDATE, sets."""
    into: tuple[str, ...] | None = None
    """The columns of an INSERT; None: all columns, in their order."""
    rows: tuple[tuple[Template, ...], ...] | None = None
    """The expressions of INSERT … VALUES."""
    row_given: tuple[tuple[Given, ...], ...] = ()
    """The same as literals or parameters; `column` is the number of its place."""
    conflict: str = ""
    """What an INSERT does on a conflict: `nothing`, `update`."""
    conflict_on: tuple[str, ...] | None = None
    """The columns that ON CONFLICT names; None if it names no columns."""
    returning: bool = False
    volatile_rows: bool = False
    """Whether a value of an INSERT may be another one the next time."""
    single: bool = False
    """Whether it is a query of one table, no more."""
    locks: bool = False
    """Whether it is a query that locks rows: FOR UPDATE, FOR SHARE."""
    calls: bool = False
    """Whether it is a change that calls a function of the user's, which may read and change other rows."""
    names: frozenset[str] = frozenset()
    """All columns that the text names, in lower case."""


def parse_sql(statement: Statement, tokens: list[Token]) -> Statement | None:
    """Return what a statement is, of which the tokens are known; None if the library does not know."""
    tree = _tree(statement.text, tokens, statement.dialect)
    return None if tree is None else _SqlReader(statement, tree, tokens).read()


def _tree(text: str, tokens: list[Token], dialect: Dialect) -> exp.Expr | None:
    """Return the tree of a text, with plain names for parameters: the library knows no `:a.b`."""
    try:
        trees = sqlglot.parse(renamed(text, tokens, "parameter"), dialect=dialect)
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    return tree if isinstance(tree, exp.Expr) and not isinstance(tree, exp.Command) else None


class _SqlReader:
    """Reads one tree."""

    def __init__(self, statement: Statement, tree: exp.Expr, tokens: list[Token]) -> None:
        self._statement = statement
        self._tree = tree
        self._tokens = tokens
        self._dialect = statement.dialect
        self._names = [token.text[1:] for token in tokens if token.kind == "parameter"]
        self._obstacles: list[StatementProblem] = []

    def read(self) -> Statement:
        tree, statement = self._tree, self._statement
        if isinstance(tree, (exp.Query, exp.Values)):
            return self._query(tree)
        if not isinstance(tree, (exp.Insert, exp.Update, exp.Delete)):
            wrong = f"{self._tokens[0].text.upper()} cannot be undone by rewriting"
            return statement._replace(kind="any", obstacles=(StatementProblem("not_invertible", wrong),))
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if not isinstance(table, exp.Table) or not _is_plain(table):
            return statement._replace(
                obstacles=(StatementProblem("not_invertible", "what it changes is no plain table"),)
            )
        written = _qualified(table)
        problems = tuple(self._slips())
        self._look_for_obstacles(table)
        shape = {exp.Insert: self._insert, exp.Update: self._change, exp.Delete: self._change}[type(tree)](table)
        names = frozenset(_folded(column.this).lower() for column in tree.find_all(exp.Column))
        reads, known = self._reads(table)
        calls = self._calls_users(tree)
        return statement._replace(
            problems=problems,
            obstacles=tuple(self._obstacles),
            writes=written,
            reads=reads,
            understood=known and not calls,
            alias=table.alias,
            columns=_output(tree.args.get("returning")),
            shape=shape._replace(names=names, calls=calls),
        )

    # ------------------------------------------------------------ queries

    def _query(self, tree: exp.Query | exp.Values) -> Statement:
        if any(True for _ in tree.find_all(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into)):
            wrong = StatementProblem("not_invertible", "a query that changes data cannot be undone by rewriting")
            return self._statement._replace(kind="any", obstacles=(wrong,))
        reads, known = self._reads(None)
        tables = list(tree.find_all(exp.Table))
        single = isinstance(tree, exp.Select) and len(tables) == 1 and not tree.find(exp.Subquery, exp.SetOperation)
        where = tree.args.get("where")
        given = tuple(self._given(where)) if single and where else ()
        shape = Shape(single=single, given=given, locks=tree.find(exp.Lock) is not None)
        first = tables[0] if tables else None
        return self._statement._replace(
            kind="query",
            reads=reads,
            understood=known and not self._calls_users(tree),
            alias=first.alias if first is not None else "",
            columns=_output(tree),
            shape=shape,
        )

    # ------------------------------------------------------------ changes

    def _change(self, table: exp.Table) -> Shape:
        """Return the parts of an UPDATE or DELETE."""
        tree, tokens, text = self._tree, self._tokens, self._statement.text
        verb = next(n for n, token in enumerate(tokens) if token.depth == 0 and token.says("UPDATE", "DELETE"))
        place_from = verb + (2 if tokens[verb].says("DELETE") else 1)
        ends = [n for n, token in enumerate(tokens) if token.depth == 0 and n > verb]
        where_at = next((n for n in ends if tokens[n].says("WHERE")), None)
        until = next((n for n in ends if tokens[n].says("RETURNING", "ORDER", "LIMIT")), len(tokens))
        place_to = next((n for n in ends if tokens[n].says("SET", "WHERE", "USING", "RETURNING")), len(tokens))
        where = tree.args.get("where")
        if (where is None) != (where_at is None) or place_to <= place_from:
            self._obstacle("its parts cannot be told apart")
            return Shape()
        sets: list[str] = []
        for assignment in tree.expressions if isinstance(tree, exp.Update) else ():
            sets += self._targets(assignment)
        if where is not None:
            self._refuse_volatile(where)
        return Shape(
            prefix=cut(text, tokens[:verb]),
            place=cut(text, tokens[place_from:place_to]).shown(),
            reference=_reference(table),
            where=None if where_at is None else cut(text, tokens[where_at + 1 : until]),
            given=tuple(self._given(where)) if where and not _joins_others(tree) else (),
            sets=tuple(dict.fromkeys(sets)),
            returning=tree.args.get("returning") is not None,
        )

    def _insert(self, table: exp.Table) -> Shape:
        tree, tokens, text = self._tree, self._tokens, self._statement.text
        into = tuple(map(_folded, tree.this.expressions)) if isinstance(tree.this, exp.Schema) else None
        source = tree.expression
        rows: tuple[tuple[Template, ...], ...] | None = None
        given: list[tuple[Given, ...]] = []
        volatile = False
        if isinstance(source, exp.Values):
            rows = tuple(_rows(text, tokens))
            for row in source.expressions:
                items = row.expressions if isinstance(row, exp.Tuple) else [row]
                given.append(tuple(self._bound(str(n), item) for n, item in enumerate(items)))
                volatile = volatile or any(self._volatile(item) for item in items)
            if [len(row) for row in rows] != [len(row) for row in given]:
                self._obstacle("the rows of VALUES cannot be told apart")
        elif source is not None:
            volatile = self._volatile(source)
        conflict = tree.args.get("conflict")
        sets: list[str] = []
        how, on = "", None
        if conflict is not None:
            how = "update" if conflict.expressions else "nothing"
            for assignment in conflict.expressions:
                sets += self._targets(assignment)
            keys = conflict.args.get("conflict_keys")
            if keys and all(isinstance(_unordered(key), (exp.Column, exp.Identifier)) for key in keys):
                on = tuple(_folded(_unordered(key)) for key in keys)
            if conflict.args.get("index_predicate") or conflict.args.get("constraint"):
                on = None
        elif str(tree.args.get("alternative") or "").upper() == "IGNORE":
            how = "nothing"
        return Shape(
            sets=tuple(dict.fromkeys(sets)),
            into=into,
            rows=rows,
            row_given=tuple(given),
            conflict=how,
            conflict_on=on,
            returning=tree.args.get("returning") is not None,
            volatile_rows=volatile,
        )

    def _targets(self, assignment: exp.Expr) -> list[str]:
        """Return the columns on the left of an assignment."""
        left = assignment.this if isinstance(assignment, exp.EQ) else None
        items = left.expressions if isinstance(left, exp.Tuple) else [left]
        found = []
        for item in items:
            column = item
            while isinstance(column, (exp.Bracket, exp.Dot)):
                column = column.this
            if isinstance(column, exp.Column):
                parts = column.parts
                found.append(_folded(parts[0] if isinstance(item, exp.Column) and len(parts) > 1 else column.this))
            elif isinstance(column, exp.Identifier):
                found.append(_folded(column))
            else:
                self._obstacle("a column that it sets cannot be told")
        return found

    def _slips(self) -> Iterable[StatementProblem]:
        """Yield words of another dialect, and `SET a = :x AND b = :y`, which stores a boolean."""
        if self._dialect == "postgres" and self._tree.args.get("alternative"):
            yield StatementProblem(
                "value", "PostgreSQL has no INSERT OR …, nor REPLACE: write ON CONFLICT", self._tokens[0].start
            )
        if isinstance(self._tree, exp.Update):
            for assignment in self._tree.expressions:
                if isinstance(assignment, exp.And) or isinstance(assignment.args.get("expression"), exp.And):
                    at = next((t.start for t in self._tokens if t.says("AND")), 0)
                    yield StatementProblem(
                        "statement_and_in_set", "SET a = x AND b = y stores a boolean: write SET a = x, b = y", at
                    )

    def _look_for_obstacles(self, table: exp.Table) -> None:
        tree = self._tree
        if tree.args.get("from_"):
            self._obstacle("UPDATE … FROM takes values from other rows")
        if tree.args.get("using"):
            self._obstacle("DELETE … USING takes its condition from other rows")
        if tree.args.get("order") is not None or tree.args.get("limit") is not None:
            self._obstacle("ORDER BY or LIMIT in a change")
        if table.args.get("only") or table.args.get("joins") or table.args.get("sample"):
            self._obstacle("only a plain table, or its alias, can be changed")
        written = {exp.Insert, exp.Update, exp.Delete, exp.Merge}
        if any(type(node) in written and node is not tree for node in tree.walk()):
            self._obstacle("a WITH that changes data")
        if isinstance(tree, exp.Insert) and tree.args.get("with_") is not None:
            self._obstacle("WITH before an INSERT: put it behind INTO")
        if isinstance(tree, exp.Insert):
            alternative = str(tree.args.get("alternative") or "").upper()
            if alternative not in {"", "IGNORE", "ABORT"}:
                self._obstacle(f"INSERT OR {alternative} removes or leaves other rows")

    def _obstacle(self, text: str) -> None:
        self._obstacles.append(StatementProblem("not_invertible", text))

    # ------------------------------------------------------------ what is read

    def _reads(self, written: exp.Table | None) -> tuple[tuple[str, ...], bool]:
        """Return the tables that are named beside the one written, and whether these are all."""
        hidden = {cte.alias for cte in self._tree.find_all(exp.CTE)}
        shown = self._tables() if hidden and self._dialect == "postgres" else set()
        found, known = [], True
        for table in self._tree.find_all(exp.Table):
            if table is written:
                continue
            if not _is_plain(table):
                known = False  # a function that gives rows
            elif table.args.get("db") or table.name not in hidden or id(table) in shown:
                found.append(_qualified(table))
        for part in self._tree.find_all(exp.In):
            if isinstance(part.args.get("field"), exp.Column):
                known = False  # SQLite's `x IN name`: the name is that of a table
        return tuple(dict.fromkeys(found)), known

    def _tables(self) -> set[int]:
        """Return the tables that names really stand for: a WITH is not seen by itself, nor by what is before it."""
        from sqlglot.optimizer.scope import traverse_scope

        sources = (source for scope in traverse_scope(self._tree) for source in scope.sources.values())
        return {id(source) for source in sources if isinstance(source, exp.Table)}

    def _given(self, where: exp.Expr) -> Iterable[Given]:
        """Yield the columns that are equal to a literal or a parameter, whatever else holds."""
        for part in _conjuncts(where.this):
            if isinstance(part, exp.EQ):
                for column, value in ((part.this, part.expression), (part.expression, part.this)):
                    if isinstance(column, exp.Column):
                        bound = self._bound(_folded(column.this), value)
                        if bound.parameter or bound.value is not None:
                            yield bound
                            break

    def _bound(self, column: str, value: exp.Expr) -> Given:
        while isinstance(value, exp.Paren):
            value = value.this
        if isinstance(value, exp.Placeholder) and value.this:
            return Given(column, parameter=self._names[int(str(value.this)[1:])])
        negative = isinstance(value, exp.Neg)
        literal = value.this if negative else value
        if isinstance(literal, exp.Boolean):
            return Given(column, value=bool(literal.this))
        if not isinstance(literal, exp.Literal):
            return Given(column)
        if literal.is_string:
            return Given(column, value=str(literal.this))
        if literal.is_int:
            return Given(column, value=int(literal.this) * (-1 if negative else 1))
        return Given(column)

    # ------------------------------------------------------------ functions

    def _refuse_volatile(self, where: exp.Expr) -> None:
        for name in self._volatile_functions(where):
            self._obstacle(f"{name}() in its condition may be another one the next time: bind a value")

    def _volatile(self, tree: exp.Expr) -> bool:
        return bool(self._volatile_functions(tree))

    def _volatile_functions(self, tree: exp.Expr) -> list[str]:
        """Return the functions that may give another value the next time."""
        return [name for name, function in _functions(tree) if self._is_volatile(name, function)]

    def _is_volatile(self, name: str, function: exp.Func) -> bool:
        volatile = name in _VOLATILE[self._dialect] or _is_unknown(name, function)
        if self._dialect == "sqlite":
            return _says_now(function) or (volatile and name not in _TIMES)
        return volatile

    def _calls_users(self, tree: exp.Expr) -> bool:
        """Return whether a part calls a function of the user's. SQLite has none that read or change rows."""
        if self._dialect == "sqlite":
            return False
        known = _VOLATILE[self._dialect]
        return any(_is_unknown(name, function) and name not in known for name, function in _functions(tree))


def _functions(tree: exp.Expr) -> Iterable[tuple[str, exp.Func]]:
    """Yield the functions that a part calls, with their names in lower case."""
    for function in tree.find_all(exp.Func):
        if not isinstance(function, (exp.And, exp.Or, exp.Xor, exp.Cast, exp.Case, exp.If)):
            yield (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower(), function


def _is_unknown(name: str, function: exp.Func) -> bool:
    """Return whether a function may be the user's: its name is unknown, or it has a schema but pg_catalog."""
    schema = function.parent.this if isinstance(function.parent, exp.Dot) else None
    if schema is not None and _folded(schema) != "pg_catalog":
        return True
    return isinstance(function, exp.Anonymous) and name not in _PURE


def _says_now(function: exp.Expr) -> bool:
    """Return whether it is a function of time of SQLite's, given 'now' or nothing at all."""
    name = function.sql_name().lower() if isinstance(function, exp.Func) else ""
    texts = [str(literal.this).lower() for literal in function.find_all(exp.Literal) if literal.is_string]
    return "now" in texts or (name in _TIMES and not any(True for _ in function.iter_expressions()))


def _joins_others(tree: exp.Expr) -> bool:
    """Return whether a column of the condition may be another table's: UPDATE … FROM, DELETE … USING."""
    return bool(tree.args.get("from_") or tree.args.get("using"))


def _conjuncts(tree: exp.Expr) -> Iterable[exp.Expr]:
    pending = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.And):
            pending += [part.expression, part.this]
        elif isinstance(part, exp.Paren):
            pending.append(part.this)
        else:
            yield part


def _rows(text: str, tokens: list[Token]) -> Iterable[tuple[Template, ...]]:
    """Yield the expressions of each row of VALUES."""
    start = next(n for n, token in enumerate(tokens) if token.depth == 0 and token.says("VALUES"))
    row: list[list[Token]] = []
    for token in tokens[start + 1 :]:
        if token.depth == 0 and token.says("("):
            row = [[]]
        elif token.depth == 0 and token.says(")"):
            yield tuple(cut(text, item) for item in row)
        elif token.depth == 0 and not token.says(","):
            return
        elif token.depth == 1 and token.says(","):
            row.append([])
        elif token.depth >= 1:
            row[-1].append(token)


def _output(tree: Any) -> tuple[str, ...] | None:
    """Return the columns that a query or a RETURNING gives, named as PostgreSQL would name them; None for a star."""
    if tree is None:
        return ()
    if isinstance(tree, exp.SetOperation):
        return _output(tree.this)
    if not isinstance(tree, (exp.Select, exp.Returning)):
        return None
    found = []
    for item in tree.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            return None
        if isinstance(item, exp.Alias):
            found.append(_folded(item.args["alias"]))
        elif isinstance(item, exp.Column):
            found.append(_folded(item.this))
        elif isinstance(item, exp.Func):
            name = item.name if isinstance(item, exp.Anonymous) else item.sql_name()
            found.append(name.lower())
        else:
            found.append("")
    return tuple(found)


def _unordered(key: exp.Expr) -> Any:
    return key.this if isinstance(key, exp.Ordered) else key


def _folded(name: Any) -> str:
    """Return a name as databases know it: its ASCII letters are small, unless it is quoted."""
    identifier = name.this if isinstance(name, exp.Column) else name
    text = str(identifier.this if isinstance(identifier, exp.Identifier) else identifier)
    return text if isinstance(identifier, exp.Identifier) and identifier.args.get("quoted") else text.translate(_LOWER)


def _is_plain(table: exp.Table) -> bool:
    """Return whether a table has a name, without a point in its parts: in our names a point
    separates schema and table.
    """
    return isinstance(table.this, exp.Identifier) and not any("." in part.name for part in table.parts)


def _qualified(table: exp.Table) -> str:
    parts = [table.args.get("catalog"), table.args.get("db"), table.this]
    return ".".join(_folded(part) for part in parts if part)


def _reference(table: exp.Table) -> str:
    """Return the name by which a column of the table can be qualified."""
    alias = table.args.get("alias")
    identifier = alias.this if alias is not None else table.this
    return quoted(_folded(identifier))
