"""What a statement in CQL is: the four verbs, by a grammar of their own; anything else is run as it is.

A write is sent with a timestamp of the processor's and without its IF, so its text is put together from its parts:
what stands before USING, what is used, and the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from strandline.group.statements.api import Given, Kind, Parameter, Problem, Statement, Template
from strandline.group.statements.lexer import Token, Unreadable, cut, joined, tokens_of

VERBS: Final[dict[str, Kind]] = {"SELECT": "query", "INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
TIMESTAMP: Final = "$timestamp"
"""The name of the parameter that the processor brings."""
_PURE: Final = frozenset("token writetime ttl maxwritetime cast count min max sum avg tojson to_json".split())
_FORBIDDEN: Final = frozenset({"USE"})


class Relation(NamedTuple):
    """A part of a condition: `column = term`, `column IN term`, `(a, b) > term`."""

    columns: tuple[str, ...]
    sign: str
    term: Template


class CqlShape(NamedTuple):
    columns: tuple[str, ...] = ()
    """Of an INSERT, those given; of an UPDATE, those set; of a DELETE, those deleted (none: rows)."""
    terms: tuple[Template, ...] = ()
    """Of an INSERT."""
    inside: tuple[str, ...] = ()
    """Columns of which only a part is changed."""
    where: Template = Template(())
    relations: tuple[Relation, ...] = ()
    given: tuple[Given, ...] = ()
    write: Template = Template(())
    """The statement with a place for its timestamp, and without IF."""
    only_if: str = ""
    """`not exists`, `exists`, `if`."""
    conditions: tuple[Relation, ...] = ()


class _Wrong(Exception):
    """A statement that is not in the grammar."""


def parse_cql(text: str) -> Statement:
    """What a text is. Never raises."""
    try:
        tokens = tokens_of(text, "cassandra")
    except Unreadable as error:
        return _refused(text, error.problem)
    while tokens and tokens[-1].says(";"):
        tokens.pop()
    if not tokens:
        return _refused(text, Problem("statement_count", "there is no statement"))
    batch = tokens[0].says("BEGIN")
    for token in tokens:
        if token.says(";") and not batch:
            return _refused(text, Problem("statement_count", "a step is one statement", token.start))
        if token.kind == "foreign_parameter":
            return _refused(text, Problem("value", "? is no parameter here: write :name", token.start))
    if tokens[0].says(*_FORBIDDEN):
        return _refused(text, Problem("statement_kind", f"{tokens[0].text.upper()} has no place in a step"))
    kind = VERBS.get(tokens[0].text.upper(), "any")
    statement = Statement(text, "cassandra", kind, cut(text, tokens), understood=False)
    if kind == "any":
        wrong = f"{tokens[0].text.upper()} cannot be undone by rewriting"
        return statement._replace(obstacles=(Problem("not_invertible", wrong),))
    try:
        return _Reader(statement, tokens).read()
    except (_Wrong, IndexError):
        wrong = f"the parser does not know this statement: {text[:60]}"
        return statement._replace(obstacles=(Problem("not_invertible", wrong),) * (kind != "query"))


def _refused(text: str, problem: Problem) -> Statement:
    return Statement(text, "cassandra", "any", Template((text,)), (problem,), understood=False)


class _Reader:
    def __init__(self, statement: Statement, tokens: list[Token]) -> None:
        self._statement = statement
        self._text = statement.text
        self._tokens = tokens
        self._place = 0
        self._problems: list[Problem] = []
        self._obstacles: list[Problem] = []

    def read(self) -> Statement:
        verb = self._statement.kind
        if verb == "query":
            return self._select()
        self._refuse_functions()
        table, shape = {"insert": self._insert, "update": self._update, "delete": self._delete}[verb]()
        if self._place < len(self._tokens):
            raise _Wrong
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
            raise _Wrong
        names = self._output(self._tokens[1:start])
        self._place = start + 1
        table = self._name()
        relations: tuple[Relation, ...] = ()
        if self._says("WHERE"):
            relations = self._relations(self._until("GROUP", "ORDER", "LIMIT", "PER", "ALLOW"))
        return self._statement._replace(
            reads=(table,), understood=True, columns=names, shape=CqlShape(given=_given(relations))
        )

    def _insert(self) -> tuple[str, CqlShape]:
        self._expect("INSERT", "INTO")
        table = self._name()
        columns = tuple(_name(part[0]) for part in self._bracket() if len(part) == 1)
        self._expect("VALUES")
        terms = tuple(cut(self._text, part) for part in self._bracket())
        if not columns or len(columns) != len(terms):
            raise _Wrong
        head = cut(self._text, self._tokens[: self._place])
        only_if = ""
        if self._says("IF"):
            self._expect("NOT", "EXISTS")
            only_if = "not exists"
        ttl = self._using()
        given = tuple(_bound(column, term) for column, term in zip(columns, terms, strict=True))
        write = joined(head, " USING TIMESTAMP ", _TIME, *ttl)
        return table, CqlShape(columns, terms, given=given, write=write, only_if=only_if)

    def _update(self) -> tuple[str, CqlShape]:
        self._expect("UPDATE")
        table = self._name()
        head = cut(self._text, self._tokens[: self._place])
        ttl = self._using()
        start = self._place
        self._expect("SET")
        columns: list[str] = []
        inside: list[str] = []
        body = self._until("WHERE")
        for token in body:
            if token.depth == 0 and token.says("AND"):
                wrong = "SET a = x AND b = y is no CQL: write SET a = x, b = y"
                self._problems.append(Problem("statement_and_in_set", wrong, token.start))
        for part in _parted(body, ","):
            column = _name(part[0])
            columns.append(column)
            whole = len(part) > 2 and part[1].says("=") and not _adds(part[2:])
            if not whole:
                inside.append(column)
        where, relations, only_if, conditions = self._conditions()
        write = joined(head, " USING TIMESTAMP ", _TIME, *ttl, " ", self._since(start, "IF"))
        shape = CqlShape(tuple(dict.fromkeys(columns)), (), tuple(inside), where, relations, _given(relations), write)
        return table, shape._replace(only_if=only_if, conditions=conditions)

    def _delete(self) -> tuple[str, CqlShape]:
        self._expect("DELETE")
        columns: list[str] = []
        inside: list[str] = []
        for part in _parted(self._until("FROM"), ","):
            columns.append(_name(part[0]))
            if len(part) > 1:
                inside.append(_name(part[0]))
        self._expect("FROM")
        table = self._name()
        head = cut(self._text, self._tokens[: self._place])
        if self._using():
            raise _Wrong
        start = self._place
        where, relations, only_if, conditions = self._conditions()
        write = joined(head, " USING TIMESTAMP ", _TIME, " ", self._since(start, "IF"))
        shape = CqlShape(tuple(dict.fromkeys(columns)), (), tuple(inside), where, relations, _given(relations), write)
        return table, shape._replace(only_if=only_if, conditions=conditions)

    # ------------------------------------------------------------ parts

    def _conditions(self) -> tuple[Template, tuple[Relation, ...], str, tuple[Relation, ...]]:
        self._expect("WHERE")
        body = self._until("IF")
        relations = self._relations(body)
        if not self._says("IF"):
            return cut(self._text, body), relations, "", ()
        if self._says("EXISTS"):
            return cut(self._text, body), relations, "exists", ()
        return cut(self._text, body), relations, "if", self._relations(self._until())

    def _relations(self, tokens: list[Token]) -> tuple[Relation, ...]:
        found = []
        for part in _parted(tokens, "AND"):
            names: tuple[str, ...]
            if part[0].says("("):
                end = next(n for n, token in enumerate(part) if token.depth == 0 and token.says(")"))
                names, rest = tuple(_name(one[0]) for one in _parted(part[1:end], ",")), part[end + 1 :]
            elif part[0].says("token", "TOKEN") or (len(part) > 1 and part[1].says("(", "[")):
                found.append(Relation((), "", cut(self._text, part)))
                continue
            else:
                names, rest = (_name(part[0]),), part[1:]
            sign = ""
            while rest and (rest[0].says("=", "<", ">", "!") or (not sign and rest[0].says("IN", "CONTAINS"))):
                sign += rest[0].text.upper()
                rest = rest[1:]
            term = cut(self._text, part[part.index(rest[0]) - 1 :]) if sign == "IN" and rest else cut(self._text, rest)
            if not sign:
                raise _Wrong
            found.append(Relation(names, sign, term))
        return tuple(found)

    def _using(self) -> tuple[str | Template, ...]:
        """What is used beside the timestamp: a TTL."""
        if not self._says("USING"):
            return ()
        body = self._until("SET", "WHERE")
        found: tuple[str | Template, ...] = ()
        for part in _parted(body, "AND"):
            if part[0].says("TTL"):
                found = (" AND TTL ", cut(self._text, part[1:]))
            elif part[0].says("TIMESTAMP"):
                wrong = "a statement of a group brings no timestamp: the processor gives it"
                self._problems.append(Problem("value", wrong, part[0].start))
            else:
                raise _Wrong
        return found

    def _since(self, start: int, end: str) -> Template:
        tokens = self._tokens[start:]
        stop = next((n for n, token in enumerate(tokens) if token.depth == 0 and token.says(end)), len(tokens))
        return cut(self._text, tokens[:stop])

    def _refuse_functions(self) -> None:
        for token, following in zip(self._tokens, self._tokens[1:], strict=False):
            keyword = token.says("INTO", "VALUES", "IN", "AND", "WHERE", "SET", "IF", "USING", "CONTAINS")
            called = token.kind == "word" and following.says("(") and not keyword and not self._is_table(token)
            if called and token.text.lower() not in _PURE:
                wrong = f"{token.text}() may be another one the next time: bind a value"
                self._obstacles.append(Problem("not_invertible", wrong, token.start))

    def _is_table(self, token: Token) -> bool:
        """`INSERT INTO t(a, b)`."""
        return self._tokens[0].says("INSERT") and self._tokens.index(token) <= 4 and token.depth == 0

    def _output(self, tokens: list[Token]) -> tuple[str, ...] | None:
        if tokens and tokens[0].says("DISTINCT"):
            tokens = tokens[1:]
        if tokens and tokens[0].says("JSON"):
            return ("[json]",)
        names = []
        for part in _parted(tokens, ","):
            if part[0].says("*"):
                return None
            if len(part) > 1 and part[-2].says("AS"):
                names.append(_name(part[-1]))
            elif len(part) == 1:
                names.append(_name(part[0]))
            elif part[0].says("COUNT"):
                names.append("count")
            else:
                names.append("")
        return tuple(names)

    def _name(self) -> str:
        """`table` or `keyspace.table`."""
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
                raise _Wrong

    def _take(self) -> Token:
        self._place += 1
        return self._tokens[self._place - 1]


_TIME: Final = Template((Parameter(TIMESTAMP, 0),))


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
    """`c = c + …`, `c = … + c`: a part of a collection, or a counter."""
    return any(token.depth == tokens[0].depth and token.says("+", "-") for token in tokens[1:])


def _name(token: Token) -> str:
    if token.kind == "name":
        return token.text[1:-1].replace('""', '"')
    if token.kind == "word":
        return token.text.lower()
    raise _Wrong


def _given(relations: Iterable[Relation]) -> tuple[Given, ...]:
    return tuple(
        _bound(relation.columns[0], relation.term)
        for relation in relations
        if relation.sign == "=" and len(relation.columns) == 1
    )


def _bound(column: str, term: Template) -> Given:
    """What a term binds its column to, where it is a parameter or a plain literal."""
    if len(term.parts) != 1:
        return Given(column)
    part = term.parts[0]
    if isinstance(part, Parameter):
        return Given(column) if part.many else Given(column, parameter=part.name)
    text = part.strip()
    if text.startswith("'") and text.endswith("'"):
        return Given(column, value=text[1:-1].replace("''", "'"))
    try:
        return Given(column, value=int(text))
    except ValueError:
        return Given(column, value=text if len(text) == 36 and text.count("-") == 4 else None)
