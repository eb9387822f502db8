"""Statements of users: what they are, which rows they touch, and how they are undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from strandline.group.statements.api import (
    OURS,
    Plan,
    RowSet,
    Statement,
    StatementProblem,
    TargetTable,
)
from strandline.group.statements.cql_planning import plan_cql
from strandline.group.statements.holding import held
from strandline.group.statements.parsing import parse

__all__ = ["held", "parse", "plan", "plan_now"]


def plan(
    statement: Statement,
    tables: Mapping[str, TargetTable],
    *,
    barrier_keep_s: float = 0.0,
) -> Plan:
    """Return how a statement runs and is undone on these tables (by the names that `statement.tables` asks for).

    Cassandra must remember what was deleted for as long as a statement may still arrive: `barrier_keep_s`.
    """
    problems = (*statement.problems, *_of_tables(statement, tables))
    made = Plan(statement, problems=problems, obstacles=statement.obstacles)
    whole = (RowSet(None, writes=statement.kind != "query"),)
    if problems or statement.shape is None:
        return made._replace(rows=whole)
    if statement.dialect == "cassandra":
        return plan_cql(made, tables, barrier_keep_s=barrier_keep_s)
    from strandline.group.statements.planning import plan_sql

    made = plan_sql(made, tables)
    return made if statement.understood else made._replace(rows=whole)


def plan_now(made: Plan, now: TargetTable | None, *, undo: bool) -> Plan | str:
    """Return the plan of the same statement on its table as it is now, or what has changed that it rests on.

    That is the key, columns that it uses, and, if it is to be undone, whatever stands in the way of that.
    """
    then = made.table
    if then is None or now == then:
        return made
    if now is None or now.name != then.name:
        return f"{then.name} is not there any more"
    if now.key != then.key:
        return f"{then.name} has another key"
    for name in (*then.key, *made.used):
        if now.column(name) != then.column(name):
            return f"{then.name}.{name} is not what it was when the group was submitted"
    again = plan(made.statement, dict.fromkeys(made.statement.tables, now))
    if undo and again.obstacles:
        return f"since the group was submitted, {again.obstacles[0].text}"
    return again._replace(rows=made.rows)


def _of_tables(statement: Statement, tables: Mapping[str, TargetTable]) -> Iterator[StatementProblem]:
    """Yield a problem for each table that is not there, or is ours."""
    for name in statement.tables:
        if name not in tables:
            yield StatementProblem("value", f"there is no table {name}")
    named, text = {name.rpartition(".")[2].lower() for name in statement.tables}, statement.text.lower()
    for ours in OURS:
        if ours in named or (not statement.understood and ours in text):
            yield StatementProblem("table_unsafe", f"{ours} belongs to Strandline")
