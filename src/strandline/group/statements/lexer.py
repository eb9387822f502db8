"""Splits a statement into tokens with their places: literals, names, comments, parameters, in each dialect. It is exact
about these: the inside of a literal, a quoted name or a comment is never taken for a parameter, and any text can be cut
at a token without a change of meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from strandline.group.statements.api import Dialect, Parameter, StatementProblem, Template

TokenKind = Literal["word", "name", "text", "number", "parameter", "foreign_parameter", "sign"]

_SPACE: Final = r"\s+|--[^\n]*"
_COMMENT: Final = r"/\*.*?\*/"
_PARAMETER: Final = r"(?P<parameter>:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
_NAME: Final = r'"(?:[^"]|"")*+"'
_TEXT: Final = r"'(?:[^']|'')*+'"
_NUMBER: Final = r"(?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_WORD: Final = r"(?P<word>[^\W\d][\w$]*)"
_UUID: Final = r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})"
_SIGN: Final = r"(?P<sign>.)"

_TOKENS: Final[dict[Dialect, re.Pattern[str]]] = {
    "sqlite": re.compile(
        rf"(?P<space>{_SPACE}|{_COMMENT}|/\*.*\Z)|(?P<text>[xX]?{_TEXT})|(?P<name>{_NAME}|`(?:[^`]|``)*`|\[[^\]]*\])"
        rf"|{_PARAMETER}|(?P<foreign>\?\d*|[@$#][A-Za-z_]\w*)|{_NUMBER}|{_WORD}|{_SIGN}",
        re.DOTALL,
    ),
    "postgres": re.compile(
        rf"(?P<space>{_SPACE})|(?P<comment>/\*)|(?P<text>[eE]'(?:[^'\\]|''|\\.)*'|(?:[bBxXnN]|[uU]&)?{_TEXT}"
        rf"|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)|(?P<name>(?:[uU]&)?{_NAME})"
        rf"|(?P<cast>::)|{_PARAMETER}|(?P<foreign>\$\d+)|{_NUMBER}|{_WORD}|{_SIGN}",
        re.DOTALL,
    ),
    "cassandra": re.compile(
        rf"(?P<space>{_SPACE}|//[^\n]*|{_COMMENT})|(?P<text>{_TEXT}|\$\$.*?\$\$)|(?P<name>{_NAME})|{_PARAMETER}"
        rf"|(?P<foreign>\?)|{_UUID}|{_NUMBER}|{_WORD}|{_SIGN}",
        re.DOTALL,
    ),
}
_KINDS: Final[dict[str, TokenKind]] = {
    "text": "text", "name": "name", "parameter": "parameter", "foreign": "foreign_parameter", "number": "number",
    "uuid": "number", "word": "word", "sign": "sign", "cast": "sign",
}  # fmt: skip
_OPENS, _CLOSES, _OPENS_TEXT = frozenset("([{"), frozenset(")]}"), frozenset("'\"`")
_COMPARES: Final = ("=", "<", ">")
_NESTED: Final = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    kind: TokenKind
    text: str
    start: int
    depth: int
    """The number of brackets that are open around it; a bracket itself counts as outside."""
    compared: bool = False
    """Whether it is a parameter behind a sign of comparison, in a condition."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def says(self, *words: str) -> bool:
        """Return whether the token is one of these keywords (in capitals) or signs."""
        return (self.kind == "word" and self.text.upper() in words) or (self.kind == "sign" and self.text in words)


class Unreadable(Exception):
    """A text that ends in the middle of something."""

    def __init__(self, problem: StatementProblem) -> None:
        super().__init__(problem.text)
        self.problem = problem


def tokens_of(text: str, dialect: Dialect) -> list[Token]:
    """Return all tokens but spaces and comments; `Unreadable` if a literal, a name or a bracket is left open."""
    found: list[Token] = []
    pattern, place, depth, condition = _TOKENS[dialect], 0, 0, False
    while place < len(text):
        match = pattern.match(text, place)
        if match is None:  # the last alternative takes any character
            raise AssertionError(text[place:])
        group = match.lastgroup if match.lastgroup != "tag" else "text"
        if group == "comment":
            place = _comment_end(text, place)
            continue
        place = match.end()
        if group == "space":
            continue
        said = match.group()
        if group == "sign":
            if said in _OPENS_TEXT:
                raise Unreadable(StatementProblem("value", f"{said!r} is opened and not closed", match.start()))
            depth -= said in _CLOSES
        if depth < 0:
            raise Unreadable(StatementProblem("value", f"{said!r} closes nothing", match.start()))
        compared = condition and group == "parameter" and found[-1].says(*_COMPARES)
        found.append(Token(_KINDS[str(group)], said, match.start(), depth, compared))
        condition = condition or found[-1].says("WHERE", "HAVING", "ON")
        depth += group == "sign" and said in _OPENS
    if depth:
        raise Unreadable(StatementProblem("value", "a bracket is opened and not closed", len(text)))
    return found


def _comment_end(text: str, start: int) -> int:
    """Return where a comment of PostgreSQL's ends: they nest."""
    depth = 0
    for match in _NESTED.finditer(text, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    raise Unreadable(StatementProblem("value", "a comment is opened and not closed", start))


def cut(text: str, tokens: list[Token]) -> Template:
    """Return the text from the first of these tokens to the last, with parameters at their places."""
    parts: list[str | Parameter] = []
    if not tokens:
        return Template(())
    place = tokens[0].start
    for number, token in enumerate(tokens):
        if token.kind != "parameter":
            continue
        start, many = token.start, ""
        if number and tokens[number - 1].says("IN"):
            start, many = tokens[number - 1].start, "in"
            if number > 1 and tokens[number - 2].says("NOT"):
                start, many = tokens[number - 2].start, "not in"
        if start > place:
            parts.append(text[place:start])
        parts.append(Parameter(token.text[1:], token.start, many, token.compared))  # type: ignore[arg-type]
        place = token.end
    if tokens[-1].end > place:
        parts.append(text[place : tokens[-1].end])
    return Template(tuple(parts))


def renamed(text: str, tokens: list[Token], kind: TokenKind) -> str:
    """Return the text with plain names for all tokens of this kind: `:p0`, `:p1`, and so on."""
    pieces, place = [], tokens[0].start
    for number, token in enumerate(token for token in tokens if token.kind == kind):
        pieces += [text[place : token.start], f":p{number}"]
        place = token.end
    return "".join([*pieces, text[place : tokens[-1].end]])


def columns_in(text: str, columns: Iterable[str], dialect: Dialect) -> tuple[str, ...]:
    """Return those of a table's columns that a text, such as the definition of an index, may name."""
    quotes = {"word": 0, "name": 1}
    told = [token.text[at : len(token.text) - at] for token in tokens_of(text, dialect)
            if (at := quotes.get(token.kind)) is not None]  # fmt: skip
    found = {name.replace('""', '"').lower() for name in told}
    return tuple(column for column in columns if column.lower() in found)


def joined(*pieces: str | Template) -> Template:
    """Return pieces of text and of templates, joined one after the other."""
    parts: list[str | Parameter] = []
    for piece in pieces:
        for part in (piece,) if isinstance(piece, str) else piece.parts:
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part:
                parts.append(part)
    return Template(tuple(parts))
