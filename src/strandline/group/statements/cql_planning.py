"""The plan of a statement in CQL: which partitions it touches, which cells it changes, and how they are read before."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.group.statements import texts
from strandline.group.statements.api import Plan, StatementProblem, TargetTable, Template
from strandline.group.statements.cql import CqlShape
from strandline.group.statements.holding import rows_of
from strandline.group.statements.lexer import joined


def plan_cql(plan: Plan, tables: Mapping[str, TargetTable], *, barrier_keep_s: float) -> Plan:
    """Return the plan of a statement. The same statement and tables give the same plan."""
    statement, shape = plan.statement, plan.statement.shape
    table = tables[statement.writes or statement.reads[0]]
    plan = plan._replace(rows=(rows_of(table, table.partition, shape.given, writes=statement.kind != "query"),))
    return plan if statement.kind == "query" else _planned(plan, table, shape, barrier_keep_s)


def _planned(plan: Plan, table: TargetTable, shape: CqlShape, barrier_keep_s: float) -> Plan:
    kind = plan.statement.kind
    problems, obstacles = list(plan.problems), list(plan.obstacles)
    if table.what == "counter":
        problems.append(
            StatementProblem("table_unsafe", f"{table.name} has counters: to repeat a write of them would count twice")
        )
    if table.what == "view":
        obstacles.append(StatementProblem("not_invertible", f"{table.name} is a view"))
    if table.gc_grace_s < barrier_keep_s:
        wrong = f"{table.name} forgets deletions after {table.gc_grace_s} s, barrier_keep_s is {barrier_keep_s:g}"
        problems.append(StatementProblem("table_unsafe", wrong))
    obstacles += [StatementProblem("not_invertible", f"{table.name} {why}") for why in table.unsafe]
    missing = [name for name in shape.columns if table.column(name) is None]
    problems += [StatementProblem("value", f"{table.name} has no column {name}") for name in missing]
    changed = _changed(kind, table, shape)
    if kind == "update" and set(changed) & set(table.key):
        obstacles.append(StatementProblem("not_invertible", f"it changes the key of {table.name}"))
    columns = changed
    if kind == "insert" or (shape.only_if and not shape.columns):
        columns = tuple(name for name in table.names if name not in table.key)
    for condition in shape.conditions:
        columns += tuple(name for name in condition.columns if name not in columns and name not in table.key)
    for name in columns:
        column = table.column(name)
        if column is not None and column.type.startswith("list<"):
            wrong = (
                f"{name} is a list that is not frozen: an answer that was lost could not be told by sending it again"
            )
            obstacles.append(StatementProblem("not_invertible", wrong))
    if kind != "delete" and not problems and not _keys_told(kind, table, shape):
        obstacles.append(
            StatementProblem("not_invertible", "its key is not given by values: write = :value, or IN :list")
        )
    before = None
    if not problems:
        before = _before(kind, table, shape, columns)
    return plan._replace(
        table=table,
        columns=(*table.key, *columns),
        changed=changed,
        used=(*shape.columns, *(name for one in (*shape.relations, *shape.conditions) for name in one.columns)),
        before=before,
        problems=tuple(problems),
        obstacles=tuple(obstacles),
    )


def _keys_told(kind: str, table: TargetTable, shape: CqlShape) -> bool:
    """Return whether the keys of all rows that are written are known before the write."""
    given = {one.column for one in shape.given if one.parameter or one.value is not None}
    lists = {one.columns[0] for one in shape.relations if one.sign == "IN" and len(one.columns) == 1 and one.is_list}
    changed = _changed(kind, table, shape)
    static = bool(changed) and all(getattr(table.column(name), "role", "") == "static" for name in changed)
    return all(name in given or name in lists for name in (table.partition if static else table.key))


def _changed(kind: str, table: TargetTable, shape: CqlShape) -> tuple[str, ...]:
    """Return the columns whose cells the statement writes."""
    if kind == "insert":
        return tuple(name for name in shape.columns if name not in table.key)
    if shape.columns:
        return shape.columns
    clustering = {column.name for column in table.columns if column.role == "clustering"}
    named = {name for relation in shape.relations for name in relation.columns}
    with_static = not clustering & named
    return tuple(
        column.name
        for column in table.columns
        if column.name not in table.key and (with_static or column.role != "static")
    )


def _before(kind: str, table: TargetTable, shape: CqlShape, columns: tuple[str, ...]) -> Template:
    """Return the query of the image: key and columns, then write time and TTL of each column."""
    selected = [*(texts.quoted(name) for name in (*table.key, *columns))]
    selected += [f"writetime({texts.quoted(name)})" for name in columns]
    selected += [f"ttl({texts.quoted(name)})" for name in columns]
    head = f"SELECT {', '.join(selected)} FROM {texts.named(table.name)} WHERE "
    if kind != "insert":
        return joined(head, shape.where)
    pieces: list[str | Template] = [head]
    for name in table.key:
        if name in shape.columns:
            term = shape.terms[shape.columns.index(name)]
            pieces += [" AND " * (len(pieces) > 1), texts.quoted(name), " = ", term]
    return joined(*pieces)
