"""Text for `explain`: how a row is put back, and which changes are not."""

from __future__ import annotations

from strandline.group.statements import texts
from strandline.group.statements.api import Plan


def undo_text(plan: Plan) -> str:
    """Return the statement that puts a row back, with names in the place of values."""
    table, cells = plan.table, plan.statement.dialect == "cassandra"
    if table is None or not table.key:
        return ""
    where = texts.equal(table.key, [f":{name}" for name in table.key])
    back = texts.put_back(table.name, plan.changed, [f":before.{name}" for name in plan.changed], where)
    if cells:
        back = back.replace(" SET ", " USING TIMESTAMP :last + 1 AND TTL :left SET ", 1)
    if plan.undo == "insert":
        removed = texts.remove(table.name, where)
        return removed if plan.before is None else f"{removed}; where a row was: {back}"
    if plan.undo == "update" or cells:
        return back
    return texts.insert(table.name, plan.columns, [[f":before.{name}" for name in plan.columns]])


def not_restored(plan: Plan) -> tuple[str, ...]:
    """Return what an undo leaves as the step made it."""
    if plan.table is None:
        return ()
    if plan.statement.dialect == "cassandra":
        return ("write times", "markers of rows")
    numbered = plan.undo == "insert" and any(column.identity for column in plan.table.columns)
    return ("the number that the target gives next",) if numbered else ()
