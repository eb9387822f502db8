"""The operations of expressions, as closures over a scope.

Integers have 64 bits, numbers with a point are exact decimals, and a float makes the result a float. Values of unlike
kinds are never compared, null has no order, and only booleans are true or false.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from strandline.group.core.scope import Scope
from strandline.group.core.tokens import INT_MAX, TEXT_BYTES_MAX

ELEMENTS_MAX: Final = 100_000
_TRAPS: Final = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
_EXACT: Final = decimal.Context(prec=34, rounding=decimal.ROUND_HALF_EVEN, traps=[*_TRAPS, decimal.Inexact])
_ROUNDED: Final = decimal.Context(prec=34, rounding=decimal.ROUND_HALF_EVEN, traps=_TRAPS)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})

Evaluate = Callable[[Scope], Any]


class ExpressionError(Exception):
    """An expression has no value on this scope."""

    def __init__(self, why: str, code: str = "expression_value") -> None:
        super().__init__(why)
        self.code = code


# ---------------------------------------------------------------- names


def constant(value: Any) -> Evaluate:
    return lambda _: value


def named(names: tuple[str, ...]) -> tuple[Evaluate, int]:
    """Return the value that a path begins with, and how many of the path's names belong to it."""
    name, following = names[0], names[1] if len(names) > 1 else None
    if name == "rows":
        if following is None:
            return lambda scope: _counted([dict(row) for row in scope.rows]), 1
        if following == "size":
            return lambda scope: len(scope.rows), 2
        return lambda scope: _column(scope, following), 2
    if name == "row_count":
        return lambda scope: len(scope.rows), 1
    if name == "first":
        if following is None:
            return lambda scope: dict(_first(scope)), 1
        return lambda scope: _cell(scope, _first(scope), following), 2
    return _cell_or_table(name, following)


def _cell_or_table(name: str, following: str | None) -> tuple[Evaluate, int]:
    """Return a column of the one row, or of the row's table by its name. A column wins."""

    def cell(scope: Scope) -> Any:
        row = scope.row
        if row is not None and name in row:
            return row[name]
        return _cell(scope, _one(scope, name), name)

    if following is None:
        return cell, 1

    def either(scope: Scope) -> Any:
        row = scope.row
        if row is not None and name in row:
            return _member(row[name], following)
        if name not in scope.columns and name.lower() not in scope.columns and name in scope.tables:
            return _cell(scope, _one(scope, f"{name}.{following}"), following)
        return _member(_cell(scope, _one(scope, name), name), following)

    return either, 2


def _one(scope: Scope, name: str) -> Mapping[str, Any]:
    if scope.row is not None:
        return scope.row
    if scope.columns and name.partition(".")[0] not in (scope.columns | scope.tables):
        raise _unknown(scope, name)
    if not scope.rows:
        raise ExpressionError(f"{name}: no row")
    raise ExpressionError(f"{name}: {len(scope.rows)} rows: say first.{name} or rows.{name}")


def _first(scope: Scope) -> Mapping[str, Any]:
    if not scope.rows:
        raise ExpressionError("first: no row")
    return scope.rows[0]


def _cell(scope: Scope, row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    if name.lower() in row:
        return row[name.lower()]
    raise _unknown(scope, name)


def _unknown(scope: Scope, name: str) -> ExpressionError:
    known = ", ".join(sorted(scope.columns)[:20]) or "none"
    return ExpressionError(f"there is no column {name}; columns: {known}", "expression_name")


def _column(scope: Scope, name: str) -> list[Any]:
    return [_cell(scope, row, name) for row in _counted(scope.rows)]


def _counted(elements: Any) -> Any:
    if len(elements) > ELEMENTS_MAX:
        raise ExpressionError(f"more than {ELEMENTS_MAX} elements", "expression_limit")
    return elements


def parameter(names: tuple[str, ...]) -> Evaluate:
    """Return `:x`, `:x.y` or a member of it: a value bound to the step, by its whole name or inside of one that is."""
    cuts = [(".".join(names[:cut]), names[cut:]) for cut in range(len(names), 0, -1)]

    def bound(scope: Scope) -> Any:
        for written, members in cuts:
            if written in scope.data:
                found = scope.data[written]
                for name in members:
                    found = _member(found, name)
                return found
        raise ExpressionError(f"nothing is bound to :{'.'.join(names)}", "expression_name")

    return bound


def member(of: Evaluate, name: str) -> Evaluate:
    return lambda scope: _member(of(scope), name)


def _member(value: Any, name: str) -> Any:
    if value is None:
        raise ExpressionError(f"null has no {name}")
    if name == "size" and isinstance(value, (str, bytes, list, tuple, Mapping, set, frozenset)):
        return len(value)
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
        raise ExpressionError(f"there is no {name}", "expression_name")
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, Mapping) for one in _counted(value)):
        return [_member(one, name) for one in value]
    raise ExpressionError(f"{_kind(value)} has no {name}")


# ---------------------------------------------------------------- true and false


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise ExpressionError(f"{_kind(value)} is neither true nor false")


def both(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope: _truth(left(scope)) and _truth(right(scope))


def either(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope: _truth(left(scope)) or _truth(right(scope))


def negation(of: Evaluate) -> Evaluate:
    return lambda scope: not _truth(of(scope))


def comparison(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    compare, ordered = _COMPARE[sign], sign in _ORDERED

    def compared(scope: Scope) -> bool:
        a, b = left(scope), right(scope)
        kind = type(a)
        if kind is type(b) and kind in (int, str):
            return compare(a, b)
        return compare(*_alike(a, b, ordered))

    return compared


def _alike(a: Any, b: Any, ordered: bool) -> tuple[Any, Any]:
    if a is None or b is None:
        if ordered:
            raise ExpressionError("null has no order")
        return a is None, b is None
    kind = _kind(a)
    if kind != _kind(b):
        raise ExpressionError(f"{kind} and {_kind(b)} are not compared")
    if kind == "number":
        return _same_numbers(a, b)
    if ordered and kind in ("boolean", "list", "map"):
        raise ExpressionError(f"a {kind} has no order")
    if kind in ("list", "map"):
        _counted(a)
        _counted(b)
        return (list(a), list(b)) if kind == "list" else (dict(a), dict(b))
    return a, b


def _same_numbers(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two numbers of one type: a float makes the other one a float."""
    if isinstance(a, float) or isinstance(b, float):
        try:
            return float(a), float(b)
        except OverflowError:
            raise ExpressionError("a number is too large for a float") from None
    return a, b


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "list"
    return "map" if isinstance(value, Mapping) else type(value).__name__


# ---------------------------------------------------------------- numbers


def minus(of: Evaluate) -> Evaluate:
    return arithmetic("-", constant(0), of)


def arithmetic(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    calculate = _CALCULATE[sign]

    def calculated(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        if sign == "+" and isinstance(a, str) and isinstance(b, str):
            return _joined(a, b)
        for value in (a, b):
            if _kind(value) != "number":
                raise ExpressionError(f"{_kind(value)} is no number")
        try:
            return calculate(*_same_numbers(a, b))
        except (decimal.DivisionByZero, ZeroDivisionError):
            raise ExpressionError("division by zero") from None
        except decimal.InvalidOperation:
            raise ExpressionError("this has no result") from None
        except (decimal.Inexact, decimal.Overflow, OverflowError):
            raise ExpressionError("the result has more than 34 digits, or is too large") from None

    return calculated


def _joined(a: str, b: str) -> str:
    if len(a) + len(b) > TEXT_BYTES_MAX or len((a + b).encode(errors="replace")) > TEXT_BYTES_MAX:
        raise ExpressionError(f"a text of more than {TEXT_BYTES_MAX} bytes", "expression_limit")
    return a + b


def _whole(value: int) -> int:
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise ExpressionError("an integer has at most 64 bits")
    return value


def _by(plain: Callable[[Any, Any], Any], exact: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Any, Any], Any]:
    """Return an operation: on floats the machine's, on integers one of 64 bits, on the rest one of exact decimals."""

    def calculate(a: Any, b: Any) -> Any:
        if isinstance(a, float):
            return plain(a, b)
        return _whole(plain(a, b)) if type(a) is type(b) is int else exact(Decimal(a), Decimal(b))

    return calculate


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, float):
        return a / b
    if type(a) is type(b) is int and b and a % b == 0:
        return _whole(a // b)
    return _ROUNDED.divide(Decimal(a), Decimal(b))


_CALCULATE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": _by(operator.add, _EXACT.add),
    "-": _by(operator.sub, _EXACT.subtract),
    "*": _by(operator.mul, _EXACT.multiply),
    "/": _divide,
}
