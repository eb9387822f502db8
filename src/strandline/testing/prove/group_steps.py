"""Steps of groups as plain data, and what they mean: what makes no sense is left out, so that any list is a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.testing.prove.group_statements import (
    AFFECTED,
    CELLS,
    EXPRESSIONS,
    LOOSE,
    SQL,
    VALUES,
    ProgramExpression,
    ProgramStatement,
    Spec,
)

Place = tuple[str, str, tuple[Any, ...] | None, bool]
"""Target, table, key (None: any row), whether it is written."""


@dataclass
class ProgramStep:
    """A step as it is given to the product and to the model."""

    name: str
    on: str | None
    statement: ProgramStatement | None
    spec: Spec
    needs: list[str]
    from_: str | None = None
    """The step whose result is the statement's `:v`."""
    expression: ProgramExpression | None = None
    ask: Spec | None = None
    """A handler makes the recipe's result."""
    optional: bool = False
    """It may do without that one."""
    checks: list[Any] = field(default_factory=list)
    must: str | None = None
    undo: Any = None
    final: bool = False
    on_failure: list[Spec] = field(default_factory=list)
    plain: bool = False
    """It is given as any one statement, not by its verb."""
    pre: bool = False
    post: bool = False

    @property
    def writes(self) -> bool:
        return self.statement is not None and self.statement.writes

    @property
    def asks(self) -> Spec | None:
        """Return what the step's handler does, whichever it is."""
        verdicts = [check["ask"] for check in self.checks if isinstance(check, dict)]
        return self.ask or (verdicts[0] if verdicts else None)

    def values(self, value: Any) -> dict[str, Any]:
        """Return the values of the statement's parameters that are given at creation."""
        text = "" if self.statement is None else self.statement.text
        every = {**self.spec, "id2": self.spec["id"] + 1, "v": value}
        return {name: every[name] for name in ("id", "id2", "k", "b", "name", "v") if f":{name}" in _spaced(text)}

    def places(self) -> list[Place]:
        """Return what the step may touch, as far as that is known before (3.5)."""
        if self.statement is None or self.on is None:
            return []
        key = tuple(self.spec[name] for name in self.statement.exact) or None
        more = [(self.on, self.statement.table, (self.spec["id"] + 1,), True)] if ":id2" in self.statement.text else []
        reads = [(self.on, self.statement.reads, None, False)] if self.statement.reads else []
        return [(self.on, self.statement.table, key, self.statement.writes), *more, *reads]

    @staticmethod
    def all_of(steps: list[Any], kinds: Mapping[str, str], *, chain: bool) -> list[ProgramStep]:
        """The steps of a group; what cannot be part of one is left out."""
        found: list[ProgramStep] = []
        for given in steps or []:
            if isinstance(given, dict) and (one := _step(given, found, kinds, chain=chain)) is not None:
                found.append(one)
        patient = any((one.asks or {}).get("do") in ("refuse", "late") for one in found)
        for one in found:
            if patient and one.asks is not None and one.asks["do"] == "deadline":
                one.ask, one.checks = None, []
                for other in found:
                    other.from_ = None if other.from_ == one.name else other.from_
            if one.undo is not None and _undone_twice(one, found, kinds):
                one.undo = None
        finals = [one for one in found if one.final]
        if finals and (finals[-1] is not found[-1] or len(finals) > 1):
            for one in finals:
                one.final = False
        return found


def _undone_twice(one: ProgramStep, every: list[ProgramStep], kinds: Mapping[str, str]) -> bool:
    """Whether another step may write the same cells: an undo that is given would have to be later than its own."""
    others = [place for other in every if other is not one and other.writes for place in other.places()]
    return one.on is not None and kinds[one.on] == "lww" and meet(one.places(), others)


def _spaced(text: str) -> set[str]:
    return {word.strip("(),") for word in text.replace("(", " (").split()}


def _step(given: Spec, before: list[ProgramStep], kinds: Mapping[str, str], *, chain: bool) -> ProgramStep | None:
    name = f"s{given.get('n')}"
    known = {one.name: one for one in before}
    on = given.get("on")
    statements = statements_of(kinds, on)
    statement = statements.get(given.get("op") or "")
    if name in known or not isinstance(given.get("n"), int) or (given.get("op") is not None and statement is None):
        return None
    spec = {key: given.get(key) if given.get(key) is not None else value for key, value in VALUES.items()}
    needs = [f"s{number}" for number in given.get("needs") or [] if f"s{number}" in known]
    if chain and before:
        needs = list(dict.fromkeys([*needs, before[-1].name]))
    made = ProgramStep(name, on if statement is not None else None, statement, spec, needs)
    source = known.get(f"s{given.get('from')}")
    if statement is not None and statement.wants and source is not None and _gives(source) == statement.wants:
        made.from_ = source.name
    expression = EXPRESSIONS.get(given.get("e") or "")
    if expression is not None and _fits(expression, statement) and expression.gives in ("value", "list"):
        made.expression = expression
    elif isinstance(given.get("ask"), dict) and given["ask"].get("do"):
        made.ask = given["ask"]
        made.optional = bool(given.get("optional")) and made.ask["do"] in ("raise", "refuse", "late")
    made.checks = [check for check in given.get("checks") or [] if made.ask is None and _is_check(check, made)]
    if given.get("must") == "exist" and statement is not None and statement.kind == "update" and on is not None:
        made.must = "exist"
    if given.get("must") == "absent" and given.get("op") in _ONE_ROW:
        made.must = "absent"
    if not made.writes and made.must is not None:
        made.must = None
    undo = given.get("undo")
    if chain and (undo == "handler" or (isinstance(undo, dict) and _back_statement(undo, statements) is not None)):
        made.undo = undo
    cells = on is not None and kinds.get(on) == "lww"
    made.final = bool(given.get("final")) and made.writes and not made.checks and made.undo is None and not cells
    made.final = made.final and made.expression is None and made.ask is None and made.must is None
    made.on_failure = [
        one for one in given.get("failing") or []
        if isinstance(one, dict) and _back_statement(one, statements_of(kinds, one.get("on"))) is not None
    ] if not made.final else []  # fmt: skip
    made.plain = bool(given.get("plain"))
    made.pre, made.post = bool(given.get("pre")), bool(given.get("post"))
    return made


_ONE_ROW: Final = ("new", "new_of", "up_not", "up_where")


def _gives(step: ProgramStep) -> str:
    if step.expression is not None:
        return step.expression.gives
    return "value" if step.ask is not None and not step.optional else ""


def _fits(expression: ProgramExpression, statement: ProgramStatement | None) -> bool:
    if not expression.column:
        return True
    return statement is not None and expression.column in statement.gives


def _is_check(check: Any, step: ProgramStep) -> bool:
    if isinstance(check, str):
        expression = EXPRESSIONS.get(check)
        return expression is not None and expression.gives in ("verdict", "odd") and _fits(expression, step.statement)
    if isinstance(check, list):
        return len(check) == 2 and check[0] in AFFECTED and isinstance(check[1], int) and step.writes
    return isinstance(check, dict) and isinstance(check.get("ask"), dict) and step.ask is None and "do" in check["ask"]


def _back_statement(spec: Spec, statements: Mapping[str, ProgramStatement]) -> ProgramStatement | None:
    """Return the statement of a rollback step: one that cannot fail."""
    return statements.get("name") if spec.get("op") == "name" else None


def statements_of(kinds: Mapping[str, str], on: Any) -> Mapping[str, ProgramStatement]:
    """Return the statements of a target."""
    kind = kinds.get(on) if isinstance(on, str) else None
    if kind is None:
        return {}
    if kind == "lww":
        return CELLS
    return {**SQL, **LOOSE} if kind == "sqlite" else SQL


def meet(one: list[Place], other: list[Place]) -> bool:
    """Whether two may touch the same row, one of them writing."""
    return any(
        a[:2] == b[:2] and (a[3] or b[3]) and (a[2] is None or b[2] is None or a[2] == b[2]) for a in one for b in other
    )


def answer_of(ask: Spec) -> Any:
    """The `value` that a handler answers."""
    return ask.get("v", 7)
