"""Parses a statement in CQL: its four verbs have a grammar here; any other statement runs as it is.

A write is sent with a timestamp of the processor's and without its IF, so its text is put together from its parts:
what stands before USING, what is used, and the rest.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from strandline.group.statements.api import Given, Parameter, Statement, StatementProblem, Template
from strandline.group.statements.binding import LISTS, Unbound
from strandline.group.statements.lexer import Token, cut, joined

TIMESTAMP: Final = "$timestamp"
"""The name of the parameter whose value the processor gives."""
_PURE: Final = frozenset("token writetime ttl maxwritetime cast count min max sum avg tojson to_json".split())
_TEXT: Final = re.compile(r"'(?:[^']|'')*'")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Relation(NamedTuple):
    """A part of a condition: `column = term`, `column IN (term, term)`, `(a, b) > term`."""

    columns: tuple[str, ...]
    sign: str
    terms: tuple[Template, ...]
    """The terms of IN, each of those in its brackets, or the parameter that is a list; else one."""

    @property
    def is_list(self) -> bool:
        """Whether it is `IN :list`."""
        return [one.many for term in self.terms for one in term.parameters] == ["in"]

    def wanted(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values that it compares with; `Unbound` for a term that is no parameter and no plain literal."""
        if self.is_list:
            return list(value_of(self.terms[0], values))
        return [value_of(term, values) for term in self.terms]


def holds(found: Any, sign: str, wanted: list[Any]) -> bool:
    """Return whether a comparison holds. Null is equal to null alone, and has no order."""
    if sign == "IN":
        return found in wanted
    if found is None or wanted[0] is None:
        return sign in ("=", "!=") and (found is wanted[0]) == (sign == "=")
    return _SIGNS[sign](found, wanted[0])


class Selected(NamedTuple):
    """One thing that a query returns: a column, or `function(column)`; `*` for all columns."""

    column: str
    function: str = ""
    alias: str = ""

    @property
    def name(self) -> str:
        """The name of the column that is returned; "" where only the server knows it."""
        return self.alias or (self.column if not self.function else "count" * (self.function == "count"))


class CqlShape(NamedTuple):
    columns: tuple[str, ...] = ()
    """The columns that an INSERT gives, an UPDATE sets, a DELETE deletes (none: it deletes rows)."""
    terms: tuple[Template, ...] = ()
    """The terms that an INSERT or UPDATE gives them."""
    inside: tuple[str, ...] = ()
    """The columns of which only a part is changed."""
    where: Template = Template(())
    relations: tuple[Relation, ...] = ()
    """The parts of its condition; of an INSERT, what its columns are equal to."""
    write: Template = Template(())
    """The statement with a place for its timestamp, and without IF."""
    only_if: str = ""
    """The kind of its IF: `not exists`, `exists`, `if`."""
    conditions: tuple[Relation, ...] = ()
    timestamp: Template | None = None
    ttl: Template | None = None
    selected: tuple[Selected, ...] = ()
    limit: Template | None = None

    @property
    def given(self) -> tuple[Given, ...]:
        """The columns that are equal to a literal or a parameter."""
        return tuple(
            _bound(relation.columns[0], relation.terms[0])
            for relation in self.relations
            if relation.sign == "=" and len(relation.columns) == 1
        )


class _CqlSyntaxError(Exception):
    """A statement that is not in the grammar."""


def parse_cql(statement: Statement, tokens: list[Token]) -> Statement | None:
    """Return what a statement is, of which the tokens are known; None if it is not in the grammar."""
    if statement.kind == "any":
        wrong = f"{tokens[0].text.upper()} cannot be undone by rewriting"
        return statement._replace(obstacles=(StatementProblem("not_invertible", wrong),))
    try:
        return _CqlReader(statement, tokens).read()
    except (_CqlSyntaxError, IndexError, StopIteration):
        return None


class _CqlReader:
    def __init__(self, statement: Statement, tokens: list[Token]) -> None:
        self._statement = statement
        self._text = statement.text
        self._tokens = tokens
        self._place = 0
        self._problems: list[StatementProblem] = []
        self._obstacles: list[StatementProblem] = []

    def read(self) -> Statement:
        verb = self._statement.kind
        if verb == "query":
            return self._select()
        self._refuse_functions()
        table, shape = {"insert": self._insert, "update": self._update, "delete": self._delete}[verb]()
        if self._place < len(self._tokens):
            raise _CqlSyntaxError
        return self._statement._replace(
            problems=tuple(self._problems),
            obstacles=tuple(self._obstacles),
            writes=table,
            understood=True,
            columns=(),
            shape=shape,
        )

    # ------------------------------------------------------------ the verbs

    def _select(self) -> Statement:
        start = next((n for n, token in enumerate(self._tokens) if token.depth == 0 and token.says("FROM")), None)
        if start is None:
            raise _CqlSyntaxError
        selected = tuple(self._selected(self._tokens[1:start]))
        self._place = start + 1
        table = self._name()
        relations: tuple[Relation, ...] = ()
        if self._says("WHERE"):
            relations = self._relations(self._until("GROUP", "ORDER", "LIMIT", "PER", "ALLOW"))
        limit = cut(self._text, [self._take()]) if self._says("LIMIT") else None
        return self._statement._replace(
            reads=(table,),
            understood=True,
            columns=None if Selected("*") in selected else tuple(one.name for one in selected),
            shape=CqlShape(relations=relations, selected=selected, limit=limit),
        )

    def _insert(self) -> tuple[str, CqlShape]:
        self._expect("INSERT", "INTO")
        table = self._name()
        columns = tuple(_name(part[0]) for part in self._bracket() if len(part) == 1)
        self._expect("VALUES")
        terms = tuple(cut(self._text, part) for part in self._bracket())
        if not columns or len(columns) != len(terms):
            raise _CqlSyntaxError
        head = cut(self._text, self._tokens[: self._place])
        only_if = ""
        if self._says("IF"):
            self._expect("NOT", "EXISTS")
            only_if = "not exists"
        used = self._using()
        equal = tuple(Relation((column,), "=", (term,)) for column, term in zip(columns, terms, strict=True))
        shape = CqlShape(columns, terms, relations=equal, only_if=only_if, **used)
        return table, shape._replace(write=joined(head, *_timed(shape)))

    def _update(self) -> tuple[str, CqlShape]:
        self._expect("UPDATE")
        table = self._name()
        head = cut(self._text, self._tokens[: self._place])
        used = self._using()
        start = self._place
        self._expect("SET")
        assigned: dict[str, Template] = {}
        inside: list[str] = []
        body = self._until("WHERE")
        for token in body:
            if token.depth == 0 and token.says("AND"):
                wrong = "SET a = x AND b = y is no CQL: write SET a = x, b = y"
                self._problems.append(StatementProblem("statement_and_in_set", wrong, token.start))
        for part in _parted(body, ","):
            column = _name(part[0])
            assigned[column] = cut(self._text, part[2:])
            if not (len(part) > 2 and part[1].says("=") and not _adds(part[2:])):
                inside.append(column)
        shape = CqlShape(tuple(assigned), tuple(assigned.values()), tuple(inside), **used)
        return table, self._conditioned(shape, head, start)

    def _delete(self) -> tuple[str, CqlShape]:
        self._expect("DELETE")
        parts = list(_parted(self._until("FROM"), ","))
        columns = tuple(dict.fromkeys(_name(part[0]) for part in parts))
        self._expect("FROM")
        table = self._name()
        head = cut(self._text, self._tokens[: self._place])
        used = self._using()
        if "ttl" in used:
            raise _CqlSyntaxError
        inside = tuple(_name(part[0]) for part in parts if len(part) > 1)
        return table, self._conditioned(CqlShape(columns, inside=inside, **used), head, self._place)

    # ------------------------------------------------------------ parts

    def _conditioned(self, shape: CqlShape, head: Template, start: int) -> CqlShape:
        """Read the rest of an UPDATE or DELETE, which is sent from `start` on, without its IF."""
        self._expect("WHERE")
        body = self._until("IF")
        write = joined(head, *_timed(shape), " ", cut(self._text, self._tokens[start : self._place]))
        shape = shape._replace(where=cut(self._text, body), relations=self._relations(body), write=write)
        if not self._says("IF"):
            return shape
        if self._says("EXISTS"):
            return shape._replace(only_if="exists")
        conditions = self._relations(self._until())
        if any(len(one.columns) != 1 or one.sign not in {*_SIGNS, "IN"} for one in conditions):
            raise _CqlSyntaxError
        return shape._replace(only_if="if", conditions=conditions)

    def _relations(self, tokens: list[Token]) -> tuple[Relation, ...]:
        found = []
        for part in _parted(tokens, "AND"):
            names: tuple[str, ...]
            if part[0].says("("):
                end = next(n for n, token in enumerate(part) if token.depth == 0 and token.says(")"))
                names, rest = tuple(_name(one[0]) for one in _parted(part[1:end], ",", 1)), part[end + 1 :]
            elif part[0].says("token", "TOKEN") or (len(part) > 1 and part[1].says("(", "[")):
                found.append(Relation((), "", (cut(self._text, part),)))
                continue
            else:
                names, rest = (_name(part[0]),), part[1:]
            sign = ""
            while rest and (rest[0].says("=", "<", ">", "!") or (not sign and rest[0].says("IN", "CONTAINS"))):
                sign += rest[0].text.upper()
                rest = rest[1:]
            if not sign or not rest:
                raise _CqlSyntaxError
            terms: tuple[Template, ...] = (cut(self._text, rest),)
            if sign == "IN" and rest[0].says("("):
                terms = tuple(cut(self._text, one) for one in _parted(rest[1:-1], ",", rest[0].depth + 1))
            elif sign == "IN":
                terms = (cut(self._text, part[-len(rest) - 1 :]),)
            found.append(Relation(names, sign, terms))
        return tuple(found)

    def _using(self) -> dict[str, Any]:
        """Read what stands behind USING: a TTL. The timestamp is the processor's to give."""
        found = {}
        for part in _parted(self._until("SET", "WHERE"), "AND") if self._says("USING") else ():
            if not part[0].says("TTL", "TIMESTAMP"):
                raise _CqlSyntaxError
            found[part[0].text.lower()] = cut(self._text, part[1:])
            if part[0].says("TIMESTAMP"):
                wrong = "a statement of a group brings no timestamp: the processor gives it"
                self._problems.append(StatementProblem("value", wrong, part[0].start))
        return found

    def _refuse_functions(self) -> None:
        for token, following in zip(self._tokens, self._tokens[1:], strict=False):
            keyword = token.says("INTO", "VALUES", "IN", "AND", "WHERE", "SET", "IF", "USING", "CONTAINS")
            called = token.kind == "word" and following.says("(") and not keyword and not self._is_table(token)
            if called and token.text.lower() not in _PURE:
                wrong = f"{token.text}() may be another one the next time: bind a value"
                self._obstacles.append(StatementProblem("not_invertible", wrong, token.start))

    def _is_table(self, token: Token) -> bool:
        """Return whether a word is the table of `INSERT INTO t(a, b)`."""
        return self._tokens[0].says("INSERT") and self._tokens.index(token) <= 4 and token.depth == 0

    def _selected(self, tokens: list[Token]) -> Iterable[Selected]:
        if tokens and tokens[0].says("DISTINCT"):
            tokens = tokens[1:]
        if tokens and tokens[0].says("JSON"):
            yield Selected("[json]")
            return
        for part in _parted(tokens, ","):
            aliased = len(part) > 2 and part[-2].says("AS")
            words = part[:-2] if aliased else part
            alias = _name(part[-1]) if aliased else ""
            if words[0].says("*"):
                yield Selected("*")
            elif len(words) == 1:
                yield Selected(_name(words[0]), "", alias)
            else:
                yield Selected("".join(map(_plain, words[2:-1])), _plain(words[0]), alias)

    def _name(self) -> str:
        """Read `table` or `keyspace.table`."""
        name = _name(self._take())
        if self._place < len(self._tokens) and self._tokens[self._place].says("."):
            self._take()
            name = f"{name}.{_name(self._take())}"
        return name

    def _bracket(self) -> list[list[Token]]:
        self._expect("(")
        start = self._place
        while not (self._tokens[self._place].depth == 0 and self._tokens[self._place].says(")")):
            self._place += 1
        self._place += 1
        return list(_parted(self._tokens[start : self._place - 1], ",", depth=1))

    def _until(self, *words: str) -> list[Token]:
        start = self._place
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.depth == 0 and words and token.says(*words):
                break
            self._place += 1
        return self._tokens[start : self._place]

    def _says(self, word: str) -> bool:
        if self._place < len(self._tokens) and self._tokens[self._place].says(word):
            self._place += 1
            return True
        return False

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._says(word):
                raise _CqlSyntaxError

    def _take(self) -> Token:
        self._place += 1
        return self._tokens[self._place - 1]


def _timed(shape: CqlShape) -> tuple[str | Template, ...]:
    ttl = () if shape.ttl is None else (" AND TTL ", shape.ttl)
    return " USING TIMESTAMP ", Template((Parameter(TIMESTAMP, 0),)), *ttl


def _parted(tokens: list[Token], word: str, depth: int = 0) -> Iterable[list[Token]]:
    part: list[Token] = []
    for token in tokens:
        if token.depth == depth and token.says(word):
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _adds(tokens: list[Token]) -> bool:
    """Return whether it is `c = c + …` or `c = … + c`: of a part of a collection, or a counter."""
    return any(token.depth == tokens[0].depth and token.says("+", "-") for token in tokens[1:])


def _name(token: Token) -> str:
    if token.kind not in ("name", "word"):
        raise _CqlSyntaxError
    return _plain(token)


def _plain(token: Token) -> str:
    """Return a name as the server keeps it; any other word as it is."""
    return token.text[1:-1].replace('""', '"') if token.kind == "name" else token.text.lower()


def _bound(column: str, term: Template) -> Given:
    """Return what a term binds its column to, if it is a parameter or a plain literal."""
    if len(term.parameters) == 1 == len(term.parts):
        return Given(column, parameter=term.parameters[0].name)
    try:
        return Given(column, value=value_of(term, {}))
    except Unbound:
        return Given(column)


def value_of(term: Template, values: Mapping[str, Any]) -> Any:
    """Return the value of a parameter or a plain literal; `Unbound` for anything else."""
    text = term.shown().strip()
    if len(term.parts) == 1 and term.parameters:
        name, many = term.parameters[0].name, term.parameters[0].many
        if name not in values:
            raise Unbound(f":{name} has no value")
        if many and not isinstance(values[name], LISTS):
            raise Unbound(f":{name} is one value, and stands where a list is wanted")
        return values[name]
    if _TEXT.fullmatch(text):
        return text[1:-1].replace("''", "'")
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if len(text) == 36 and text.count("-") == 4:
        return text
    try:
        return bytes.fromhex(text[2:]) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        raise Unbound(f"IF … {text}: bind a value") from None
