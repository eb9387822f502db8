"""Parses a text in any dialect: it must be one statement, with a verb that is allowed in a step
and named parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.group.statements.api import TEXT_BYTES_MAX, Dialect, Kind, Statement, StatementProblem, Template
from strandline.group.statements.cql import parse_cql
from strandline.group.statements.lexer import Token, Unreadable, cut, tokens_of

VERBS: Final[dict[str, Kind]] = {
    "SELECT": "query", "VALUES": "query", "TABLE": "query", "INSERT": "insert", "UPDATE": "update", "DELETE": "delete",
}  # fmt: skip
_SQL: Final = (
    "BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE PREPARE ATTACH DETACH PRAGMA VACUUM SET RESET DISCARD "
    "COPY CALL DO LISTEN UNLISTEN NOTIFY LOCK DECLARE FETCH CLOSE EXECUTE DEALLOCATE CHECKPOINT CLUSTER REINDEX "
    "LOAD"
).split()
FORBIDDEN: Final[dict[Dialect, list[str]]] = {"sqlite": [*_SQL, "EXPLAIN"], "postgres": _SQL, "cassandra": ["USE"]}
"""Verbs that would end the step's transaction, change the connection for later steps, or stand in no transaction."""
_TEMPORARY: Final[dict[Dialect, str]] = {"sqlite": "temp", "postgres": "pg_temp", "cassandra": ""}
"""The schema of what belongs to a connection."""
_LOCKS: Final = "pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared".split()
"""Functions of PostgreSQL's that take locks which a connection keeps."""


def parse(text: str, dialect: Dialect) -> Statement:
    """Return the statement of a text. Its `problems` say what is wrong with it; this raises nothing."""
    if len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        wrong = StatementProblem("statement_too_long", f"a statement has at most {TEXT_BYTES_MAX:,} bytes")
        return _refused(text[:100], dialect, wrong)
    try:
        tokens = tokens_of(text, dialect)
    except Unreadable as error:
        return _refused(text, dialect, error.problem)
    while tokens and tokens[-1].says(";"):
        tokens.pop()
    if problem := _misuse(tokens, dialect):
        return _refused(text, dialect, problem)
    kind = _kind(tokens)
    statement = Statement(text, dialect, kind, cut(text, tokens), understood=False)
    known = _parser(dialect)(statement, tokens)
    if known is not None:
        return known
    wrong = StatementProblem("not_invertible", f"the parser does not know this statement: {text[:60]}")
    return statement._replace(obstacles=(wrong,) * (kind != "query"))


def _parser(dialect: Dialect) -> Callable[[Statement, list[Token]], Statement | None]:
    if dialect == "cassandra":
        return parse_cql
    from strandline.group.statements.sql import parse_sql  # only programs that define groups need sqlglot

    return parse_sql


def _refused(text: str, dialect: Dialect, problem: StatementProblem) -> Statement:
    return Statement(text, dialect, "any", Template((text,)), (problem,), understood=False)


def _misuse(tokens: list[Token], dialect: Dialect) -> StatementProblem | None:
    if not tokens:
        return StatementProblem("statement_count", "there is no statement")
    for token in tokens:
        if token.says(";") and token.depth == 0 and not _has_statements(tokens):
            return StatementProblem("statement_count", "a step is one statement", token.start)
        if token.kind == "foreign_parameter":
            return StatementProblem("value", f"{token.text} is no parameter here: write :name", token.start)
    wrong = tokens[0] if tokens[0].says(*FORBIDDEN[dialect]) else _of_session(tokens, dialect)
    if wrong is not None:
        return StatementProblem("statement_kind", f"{wrong.text.upper()} has no place in a step", wrong.start)
    return None


def _of_session(tokens: list[Token], dialect: Dialect) -> Token | None:
    """Return the word that would leave something in the connection, which belongs to other steps, too: a temporary
    table, a setting, a lock."""
    before_temporary: tuple[str, ...] = ("CREATE", "REPLACE", "LOCAL", "GLOBAL")
    if dialect == "postgres" and not any(token.says("INSERT") for token in tokens):  # SELECT … INTO TEMP
        before_temporary += ("INTO",)
    for number, token in enumerate(tokens[:-1]):
        if token.says("TEMP", "TEMPORARY") and number and tokens[number - 1].says(*before_temporary):
            return token
        name = token.text.strip('"').lower() if token.kind in ("word", "name") else ""
        if name == _TEMPORARY[dialect] and tokens[number + 1].says("."):
            return token
        if dialect == "postgres" and name in ("set_config", *_LOCKS) and tokens[number + 1].says("("):
            end = next((n for n in range(number + 2, len(tokens)) if tokens[n].depth == token.depth), 0)
            if name in _LOCKS or not tokens[end - 1].says("TRUE"):
                return token
    return None


def _has_statements(tokens: list[Token]) -> bool:
    """Return whether a statement has others inside: a trigger of SQLite's, a batch of Cassandra's."""
    trigger = tokens[0].says("CREATE") and any(token.says("TRIGGER") for token in tokens[:4]) and tokens[-1].says("END")
    return trigger or (tokens[0].says("BEGIN") and tokens[-1].says("BATCH"))


def _kind(tokens: list[Token]) -> Kind:
    """Return the kind of a statement by its verb; behind WITH, by the first one outside of brackets."""
    words = [token.text.upper() for token in tokens if token.depth == 0 and token.kind == "word"]
    if not tokens[0].says("WITH"):
        words = words[:1] if tokens[0].kind == "word" else []
    return next((VERBS[word] for word in words if word in VERBS), "any")
