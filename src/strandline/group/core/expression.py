"""Expressions: a small language of our own, read once, turned into closures, and evaluated on a scope.

    or  := and (("||" | "or") and)*            sum  := term (("+" | "-") term)*
    and := not (("&&" | "and") not)*           term := sign (("*" | "/") sign)*
    not := ("!" | "not") path | cmp            sign := "-" sign | path
    cmp := sum (("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") sum)?                  does not chain
    path := atom ("." name)*     atom := number | 'text' | "text" | true | false | null | name | :name | "(" or ")"

There are no calls, no loops, no names of Python's, no clock: what an expression says depends on its scope alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from strandline.errors import InvalidExpression
from strandline.group.core import operators
from strandline.group.core.scope import Scope
from strandline.group.core.tokens import ExpressionToken, refused, tokens_of

DEPTH_MAX: Final = 32
NODES_MAX: Final = 500

Evaluate = Callable[[Scope], Any]


class Expression:
    """An expression that was read. Calling it with a scope gives its value, or raises `InvalidExpression`."""

    __slots__ = ("_evaluate", "parameters", "roots", "text")

    def __init__(self, text: str) -> None:
        parser = _Parser(text)
        self.text = text
        self._evaluate = parser.whole()
        self.roots = frozenset(parser.roots)
        """The first names of its paths."""
        self.parameters = tuple(parser.parameters)
        """The names that it has as `:x.y`, without the colon, split at the points."""

    def __call__(self, scope: Scope) -> Any:
        try:
            return self._evaluate(scope)
        except operators.ExpressionError as wrong:
            raise InvalidExpression(
                f"{wrong}\n  {self.text}", code=wrong.code, hint="correct the expression or the values that it uses",
                text=self.text,
            ) from None  # fmt: skip

    def __repr__(self) -> str:
        return f"<Expression {self.text}>"


@lru_cache(maxsize=4096)
def compiled(text: str) -> Expression:
    """Return the expression of this text, read once; `InvalidExpression` with column and caret if it cannot be read."""
    return Expression(text)


class _Parser:
    """Reads from left to right; each method is a line of the grammar and gives a closure."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        self.at = 0
        self.depth = 0
        self.nodes = 0
        self.roots: set[str] = set()
        self.parameters: list[tuple[str, ...]] = []

    def whole(self) -> Evaluate:
        made = self._or()
        if self._token.kind != "end":
            raise self._unexpected()
        return made

    @property
    def _token(self) -> ExpressionToken:
        return self.tokens[self.at]

    def _sign(self, *signs: str) -> str | None:
        """Take the next word and return it, if it is one of these signs."""
        token = self._token
        if token.kind == "sign" and token.what in signs:
            self.at += 1
            return str(token.what)
        return None

    def _node(self, made: Evaluate) -> Evaluate:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise refused("expression_limit", self.text, self._token.column, f"more than {NODES_MAX} parts")
        return made

    def _unexpected(self, wanted: str = "") -> InvalidExpression:
        token = self._token
        found = "the end" if token.kind == "end" else repr(token.what)
        why = f"expected {wanted}, not {found}" if wanted else f"{found} is not expected"
        return refused("expression_syntax", self.text, token.column, why)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise refused("expression_limit", self.text, self._token.column, f"deeper than {DEPTH_MAX}")

    def _or(self) -> Evaluate:
        left = self._and()
        while self._sign("||"):
            left = self._node(operators.either(left, self._and()))
        return left

    def _and(self) -> Evaluate:
        left = self._not()
        while self._sign("&&"):
            left = self._node(operators.both(left, self._not()))
        return left

    def _not(self) -> Evaluate:
        return self._node(operators.negation(self._path())) if self._sign("!") else self._cmp()

    def _cmp(self) -> Evaluate:
        left = self._sum()
        sign = self._sign("==", "=", "!=", "<", "<=", ">", ">=")
        if sign is None:
            return left
        return self._node(operators.comparison(sign, left, self._sum()))

    def _sum(self) -> Evaluate:
        left = self._term()
        while sign := self._sign("+", "-"):
            left = self._node(operators.arithmetic(sign, left, self._term()))
        return left

    def _term(self) -> Evaluate:
        starts_with_text = self._is_text()
        left = self._signed()
        while sign := self._sign("*", "/"):
            if sign == "*" and (starts_with_text or self._is_text()):
                raise refused("expression_limit", self.text, self._token.column, "a text cannot be multiplied")
            left = self._node(operators.arithmetic(sign, left, self._signed()))
        return left

    def _is_text(self) -> bool:
        return self._token.kind == "value" and isinstance(self._token.what, str)

    def _signed(self) -> Evaluate:
        if not self._sign("-"):
            return self._path()
        self._deeper()
        made = self._node(operators.minus(self._signed()))
        self.depth -= 1
        return made

    def _path(self) -> Evaluate:
        token = self._token
        if token.kind == "sign" and token.what == ":":
            return self._parameter()
        if token.kind == "name":
            return self._named()
        self.at += 1
        if token.kind == "value":
            made = self._node(operators.constant(token.what))
        elif token.kind == "sign" and token.what == "(":
            self._deeper()
            made = self._or()
            self.depth -= 1
            if not self._sign(")"):
                raise self._unexpected(")")
        else:
            self.at -= 1
            raise self._unexpected("a value")
        return self._members(made, self._names())

    def _named(self) -> Evaluate:
        names = (self._name(), *self._names())
        self.roots.add(names[0])
        made, used = operators.named(names)
        return self._members(self._node(made), names[used:])

    def _parameter(self) -> Evaluate:
        self.at += 1
        names = (self._name(), *self._names())
        self.parameters.append(names)
        return self._node(operators.parameter(names))

    def _members(self, made: Evaluate, names: tuple[str, ...]) -> Evaluate:
        for name in names:
            made = self._node(operators.member(made, name))
        return made

    def _names(self) -> tuple[str, ...]:
        found = []
        while self._sign("."):
            found.append(self._name())
        return tuple(found)

    def _name(self) -> str:
        token = self._token
        if token.kind != "name":
            raise self._unexpected("a name")
        self.at += 1
        following = self._token
        if following.kind == "sign" and following.what == "(":
            raise refused("expression_not_allowed", self.text, token.column, "there are no calls")
        return str(token.what)
