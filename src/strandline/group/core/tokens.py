"""The words of an expression. Written out by hand: no regular expression, and nothing of Python's own reading."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from strandline.errors import InvalidExpression, shown

EXPRESSION_BYTES_MAX: Final = 4096
TEXT_BYTES_MAX: Final = 64 * 1024
INT_MAX: Final = 2**63 - 1
_PAIRS: Final = ("||", "&&", "==", "!=", "<=", ">=")
_SINGLE: Final = "+-*/=<>!().:"
_WORDS: Final = {"or": "||", "and": "&&", "not": "!"}
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_PYTHON: Final = frozenset("lambda import eval exec def class yield await del".split())

Kind = Literal["value", "name", "sign", "end"]


class ExpressionToken(NamedTuple):
    """A word, and the column (from 1) where it begins."""

    kind: Kind
    what: Any
    column: int


def tokens_of(text: str) -> list[ExpressionToken]:
    """Return the words of an expression and its end; `InvalidExpression` at the first that is none."""
    if not isinstance(text, str):
        raise InvalidExpression("an expression is text", code="expression_syntax", hint="give text", column=1)
    if len(text) > EXPRESSION_BYTES_MAX or len(text.encode(errors="replace")) > EXPRESSION_BYTES_MAX:
        raise refused("expression_limit", text, 1, f"longer than {EXPRESSION_BYTES_MAX} bytes")
    found: list[ExpressionToken] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
            continue
        token, at = _next(text, at)
        found.append(token)
    found.append(ExpressionToken("end", "", len(text) + 1))
    return found


def refused(code: str, text: str, column: int, why: str) -> InvalidExpression:
    """Return the error for an expression, with a caret under its column."""
    start = max(0, column - 41)
    line = shown(text[start : start + 80], 80)
    message = f"{why} at column {column}\n  {line}\n  {' ' * (column - 1 - start)}^"
    return InvalidExpression(
        message, code=code, hint="see expressions in docs/GROUPS.md", column=column, text=text[:100]
    )


def _next(text: str, at: int) -> tuple[ExpressionToken, int]:
    char = text[at]
    if char in "'\"":
        return _quoted(text, at)
    if "0" <= char <= "9":
        return _number(text, at)
    if char == "_":
        raise refused("expression_not_allowed", text, at + 1, "names do not begin with _")
    if _is_letter(char):
        return _name(text, at)
    if text[at : at + 2] == "**":
        raise refused("expression_limit", text, at + 1, "there are no powers")
    if text[at : at + 2] in _PAIRS:
        return ExpressionToken("sign", text[at : at + 2], at + 1), at + 2
    if char in _SINGLE:
        return ExpressionToken("sign", char, at + 1), at + 1
    raise refused("expression_syntax", text, at + 1, f"{shown(char)} is no sign of an expression")


def _quoted(text: str, at: int) -> tuple[ExpressionToken, int]:
    quote, parts, start = text[at], [], at + 1
    while True:
        end = text.find(quote, start)
        if end < 0:
            raise refused("expression_syntax", text, at + 1, "this text does not end")
        parts.append(text[start:end])
        if text[end + 1 : end + 2] != quote:
            return ExpressionToken("value", quote.join(parts), at + 1), end + 1
        start = end + 2


def _number(text: str, at: int) -> tuple[ExpressionToken, int]:
    end = _digits(text, at)
    decimal = text[end : end + 1] == "." and text[end + 1 : end + 2].isascii() and text[end + 1 : end + 2].isdigit()
    if decimal:
        end = _digits(text, end + 1)
    if end < len(text) and (_is_letter(text[end]) or text[end] == "_"):
        raise refused("expression_syntax", text, end + 1, "a number ends here")
    if decimal:
        if end - at > 35:
            raise refused("expression_limit", text, at + 1, "a number has at most 34 digits")
        return ExpressionToken("value", Decimal(text[at:end]), at + 1), end
    if end - at > 19 or int(text[at:end]) > INT_MAX:
        raise refused("expression_limit", text, at + 1, "an integer has at most 64 bits")
    return ExpressionToken("value", int(text[at:end]), at + 1), end


def _digits(text: str, at: int) -> int:
    while at < len(text) and "0" <= text[at] <= "9":
        at += 1
    return at


def _name(text: str, at: int) -> tuple[ExpressionToken, int]:
    end = at
    while end < len(text) and (_is_letter(text[end]) or "0" <= text[end] <= "9" or text[end] == "_"):
        end += 1
    word = text[at:end]
    if text[end : end + 1] in ("'", '"') and text[end : end + 1]:
        raise refused("expression_not_allowed", text, at + 1, "a text has no prefix")
    if word in _PYTHON:
        raise refused("expression_not_allowed", text, at + 1, f"{word} is no word of an expression")
    if word in _WORDS:
        return ExpressionToken("sign", _WORDS[word], at + 1), end
    if word in _CONSTANTS:
        return ExpressionToken("value", _CONSTANTS[word], at + 1), end
    return ExpressionToken("name", word, at + 1), end


def _is_letter(char: str) -> bool:
    return "a" <= char <= "z" or "A" <= char <= "Z"
