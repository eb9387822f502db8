"""Plans a group at its submit: parses its statements, and plans them on the present tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from strandline.group.core.names import Problem, refusal
from strandline.group.definition import Group, Step
from strandline.group.plan import GroupPlan, GroupPlanner, NoHandler, Planned
from strandline.group.statements import parse, plan
from strandline.group.statements.api import Dialect, Given, Plan, Statement, TargetTable
from strandline.group.statements.api import StatementProblem as WrongStatement
from strandline.group.statements.holding import rows_of

_VERBS: Final = {"query": "query", "insert": "insert", "update": "update", "delete": "delete"}

Tables = Callable[[str, Iterable[str]], Mapping[str, TargetTable]]
"""The schema of tables of a target, by the names that statements use."""


def planned(
    group: Group, dialects: Mapping[str, Dialect], tables: Tables, no_handler: NoHandler,
    steps_max: int = 10_000, barrier_keep_s: float = 0.0, identities: Mapping[str, str] | None = None,
) -> GroupPlan:  # fmt: skip
    """Return the plan of a group; one `InvalidGroup` says all that is wrong. `no_handler` says what is wrong with a
    handler's name."""
    statements = _Statements(dialects, tables, barrier_keep_s, group.problems(steps_max))
    made = GroupPlanner(group, statements, no_handler, statements.problems, statements.obstacles).plan()
    made = made._replace(tables=statements.used).placed(identities)
    if obstacles := [problem for problem in statements.obstacles if problem.step not in made.unsaved]:
        raise refusal(obstacles, group.id)
    return made


class _Statements:
    """Plans the statements of a group that is submitted, on the tables as they are now."""

    def __init__(self, dialects: Mapping[str, Dialect], tables: Tables, keep_s: float, problems: list[Problem]) -> None:
        self._dialects, self._tables, self._keep_s, self.problems = dialects, tables, keep_s, problems
        self.used: dict[str, dict[str, TargetTable]] = {}
        self.obstacles: list[Problem] = []
        """Reasons why steps cannot be undone by images: nothing is wrong with that where they need none."""

    def __call__(self, one: Planned, text: str) -> Plan | None:
        """Parse a statement, look its tables up, and plan it."""
        step, target = one.step, one.target or ""
        dialect = self._dialects.get(target)
        if dialect is None:
            given = f"targets={{{target!r}: URL}}, or --target {target}=URL"
            self._problem(step, "unknown_target", f"there is no target {target!r}: give {given}")
            return None
        statement = _parsed(text, dialect)
        verb = _VERBS.get(step.kind)
        if verb is not None and not statement.problems and statement.kind != verb:
            self._problem(step, "statement_kind", f"the statement of this {step.kind} step is no {verb}")
        if statement.problems:
            self.problems += _of_statement(statement.problems, step)
            return None
        found = self._tables(target, statement.tables)
        self.used.setdefault(target, {}).update(found)
        made = _planned(text, dialect, tuple(found.items()), self._keep_s)
        self.problems += _of_statement(made.problems, step)
        if not (statement.kind == "query" or step.is_rollback or step.undo is not None or step.irreversible):
            for obstacle in made.obstacles:
                why = f"cannot be undone: {obstacle.text}; give undo= or irreversible=True"
                self.obstacles.append(Problem("not_invertible", step.name, why, obstacle.position))
        return self._touching(made, step, target)

    def _touching(self, made: Plan, step: Step, target: str) -> Plan:
        """Return a plan with what `touches` adds; for a statement that is not understood it replaces all of the
        target."""
        rows = [] if step.touches and not made.statement.understood else list(made.rows)
        for where, table, key in step.touches:
            found = self._tables(where, [table]).get(table)
            if where != target or found is None:
                self._problem(step, "value", f"touches: there is no table {table} in {where}, or it is no {target}")
                continue
            given = [Given(name, value) for name, value in key.items()]
            rows.append(rows_of(found, found.key, given, writes=True))
        return made._replace(rows=tuple(rows))

    def _problem(self, step: Step, code: str, text: str) -> None:
        self.problems.append(Problem(code, step.name, text))


@lru_cache(maxsize=2048)
def _parsed(text: str, dialect: Dialect) -> Statement:
    """Parse a statement. Groups of one kind have the same statements: each is parsed once."""
    return parse(text, dialect)


@lru_cache(maxsize=2048)
def _planned(text: str, dialect: Dialect, tables: tuple[tuple[str, TargetTable], ...], keep_s: float) -> Plan:
    return plan(_parsed(text, dialect), dict(tables), barrier_keep_s=keep_s)


def _of_statement(problems: Iterable[WrongStatement], step: Step) -> list[Problem]:
    return [Problem(wrong.code, step.name, wrong.text, wrong.position) for wrong in problems]
