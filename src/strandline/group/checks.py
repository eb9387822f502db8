"""Success checks: conditions that must hold after a step's statement.

    checks=[affected_rows_equal(1), is_true("balance >= 0"), ask("auditor", timeout_s=5)]

All of them must hold. A check is data, so that a definition can be stored; `verdict` evaluates it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidExpression
from strandline.group.core.encoding import readable
from strandline.group.core.expression import compiled
from strandline.group.core.parts import SECONDS
from strandline.group.core.scope import Scope
from strandline.settings import within

_AFFECTED: Final[dict[str, Callable[[int, int], bool]]] = {
    "affected_rows_equal": operator.eq,
    "affected_rows_less_than": operator.lt,
    "affected_rows_at_least": operator.ge,
}
KINDS: Final = frozenset({*_AFFECTED, "no_exception", "is_true", "row_exists", "row_absent", "ask", "query_check"})


@dataclass(frozen=True, slots=True)
class Check:
    """A success check. Its kind says which fields are used."""

    kind: str
    n: int | None = None
    expression: str | None = None
    handler: str | None = None
    ack: bool = False
    timeout_s: float | None = within(None, *SECONDS)
    optimistic: bool = False
    statement: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None

    @property
    def text(self) -> str:
        """Return the check as a person reads it, such as `is_true(balance >= 0)`."""
        of = self.statement if self.statement is not None else self.handler
        told = [str(one) for one in (self.n, of, self.expression) if one is not None]
        return f"{self.kind}({': '.join(told)})" if told else self.kind


def no_exception() -> Check:
    """Hold if the statement raised no error."""
    return Check("no_exception")


def affected_rows_equal(n: int) -> Check:
    """Hold if exactly `n` rows existed and matched."""
    return Check("affected_rows_equal", n)


def affected_rows_less_than(n: int) -> Check:
    return Check("affected_rows_less_than", n)


def affected_rows_at_least(n: int) -> Check:
    return Check("affected_rows_at_least", n)


def is_true(expression: str) -> Check:
    """Hold if an expression over what the statement returned is true."""
    compiled(expression)
    return Check("is_true", expression=expression)


def row_exists() -> Check:
    """Hold if the statement returned a row."""
    return Check("row_exists")


def row_absent() -> Check:
    """Hold if the statement returned no row."""
    return Check("row_absent")


def ask(handler: str, *, ack: bool = False, timeout_s: float | None = None, optimistic: bool = False) -> Check:
    """Let a handler decide: its result `value` must be true. `optimistic`: only the commit waits for it."""
    return Check("ask", handler=handler, ack=ack, timeout_s=timeout_s, optimistic=optimistic)


def query_check(
    statement: str, values: Mapping[str, Any] | None = None, expression: str = "row_count > 0",
    *, target: str | None = None,
) -> Check:  # fmt: skip
    """Run a query after the step, and hold if an expression over what it returns is true."""
    compiled(expression)
    return Check("query_check", expression=expression, statement=statement, values=values or {}, target=target)


class Verdict(NamedTuple):
    """The outcome of a check: true, false, or (`reason`) an error."""

    value: bool
    reason: str | None = None
    detail: str = ""


def verdict(check: Check, scope: Scope, affected: int | None) -> Verdict:
    """Return the verdict of a check that asks no handler and runs no query."""
    if check.kind in _AFFECTED:
        if affected is None:
            return Verdict(False, "check_error", "the statement changes no rows")
        held = _AFFECTED[check.kind](affected, check.n or 0)
        return Verdict(held, detail="" if held else f"{affected} rows were affected")
    if check.kind == "row_exists":
        return Verdict(bool(scope.rows), detail=f"{len(scope.rows)} rows")
    if check.kind == "row_absent":
        return Verdict(not scope.rows, detail=f"{len(scope.rows)} rows")
    if check.kind == "is_true" and check.expression is not None:
        return decided(_evaluated(check.expression, scope))
    return Verdict(True)


def _evaluated(expression: str, scope: Scope) -> Any:
    try:
        return compiled(expression)(scope)
    except InvalidExpression as error:
        return error


def decided(value: Any) -> Verdict:
    """Return a verdict: `true` and `"true"` alone are success, `false` and `"false"` are not; anything else is an
    error."""
    if value is True or value == "true":
        return Verdict(True)
    if value is False or value == "false":
        return Verdict(False, detail="it is false")
    if isinstance(value, InvalidExpression):
        return Verdict(False, "check_error", readable(value.message))
    return Verdict(False, "check_error", f"neither true nor false: {value!r:.100}")
