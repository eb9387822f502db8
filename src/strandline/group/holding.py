"""The rows that a group keeps while it waits for an operator. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.group.history import History
from strandline.group.plan import GroupPlan, Planned
from strandline.group.points import reached
from strandline.group.statements import held
from strandline.group.statements.api import Given, Held, Plan
from strandline.group.statements.holding import rows_of


def still_held(plan: GroupPlan, history: History) -> Iterator[Held]:
    """Give the rows in images of steps that are not undone (no image: the row set), and those of rollback steps that
    are still to run; all rows of a group with which an error of this program is."""
    if history.stuck:
        yield from plan.holds()
        return
    failed = plan.group.steps.get(history.failed_step or "")
    to_run = set(failed.execute_on_failure if failed is not None else ())
    for name, one in plan.steps.items():
        undo = history.undo.get(name)
        if one.plan is None or undo is None or undo.state == "undone":
            continue
        if isinstance(one.step.undo, str):
            to_run.add(one.step.undo)
        yield from _rows_of(one, history) or one.holds
    for name in to_run:
        undo = history.undo.get(name)
        if undo is None or undo.state != "undone":
            yield from plan.rollback[name].holds


def _rows_of(one: Planned, history: History) -> list[Held]:
    images = history.images.get(one.name, {})
    table = one.plan.table if one.plan is not None else None
    if not images or table is None or one.plan is None or one.target is None:
        return []
    if one.plan.statement.dialect == "cassandra":  # a group holds partitions there, and keys in images are bytes
        return []
    reached("group.rows_of_an_image_held")
    found = []
    for image in images.values():
        for row in image["rows"]:
            given = tuple(Given(name, value) for name, value in zip(table.key, row, strict=False))
            plan = Plan(one.plan.statement, rows=(rows_of(table, table.key, given, writes=True),))
            found += [place._replace(place=(one.target, *place.place)) for place in held(plan, {})]
    return found
