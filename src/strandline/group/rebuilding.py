"""A target made anew from histories: what groups left there, in the order of their stream.

Of a step that was saved before and after its change, the rows after it are put there; of one that was not (it has an
undo of its own, or cannot be undone), the statement runs again with the values it had. On a target without transactions
every statement is sent again, with its timestamp. Of a group that was rolled back there is only what its own rollback
steps were for. No handler is asked, and the target that the groups ran on is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from strandline.errors import InvalidInput
from strandline.group import cell_steps
from strandline.group.core.perform import StepFailed, context
from strandline.group.execution import each_of
from strandline.group.history import History, done_of
from strandline.group.plan import GroupPlan, Planned
from strandline.group.target import CellTarget, Done, Failed, Limits, NotUndone, SqlTarget, StepId, Target, Undone, Work


class Rebuilt(NamedTuple):
    """What a rebuild did, or would do."""

    groups: int
    steps: int
    as_of: int
    """Groups that ended up to then (µs) are in it."""
    shown: tuple[str, ...] = ()
    """Of a dry run: a line for each step."""


class Redone(NamedTuple):
    """A step whose change is to be there."""

    one: Planned
    name: str
    work: Work
    history: History

    def __str__(self) -> str:
        values = {name: value for name, value in self.work.values.items() if name}
        return f"{self.history.place} {self.history.id}.{self.name}: {self.work.plan.statement.text} {values}"

    def apply(self, target: Target) -> None:
        if isinstance(target, SqlTarget):
            found: Any = self._on_sql(target)
        elif isinstance(target, CellTarget):
            found = self._on_cells(target)
        if isinstance(found, (Failed, NotUndone)):
            raise InvalidInput(
                f"group {self.history.id}, step {self.name}: {found.detail}",
                code="step_state",
                hint="begin with an empty database that has the tables of then",
                group=self.history.id,
                step=self.name,
            )

    def _on_sql(self, target: SqlTarget) -> Done | Undone | Failed | NotUndone:
        images = self.history.images.get(self.name)
        return target.redo(self.work, done_of(self.history, self.name) if images else None)

    def _on_cells(self, target: CellTarget) -> Failed | None:
        intent = self.history.intents.get(self.name)
        if intent is None:
            return target.send(self.work)
        return target.write(self.work, cell_steps.cells_of(intent), int(intent["timestamp"]))


def redone(history: History, plan: GroupPlan, target: str, order: list[str], limits: Limits) -> Iterator[Redone]:
    """What a group left on a target, step by step in the order in which they were done."""
    for name in order:
        one = plan.steps.get(name) or plan.rollback.get(name)
        if one is None or one.target != target or not one.writes or history.step(name).data is None:
            continue
        if history.state != "committed" and one.undo == "automatic":
            continue
        yield Redone(one, name, _work(history, one, limits), history)


def _work(history: History, one: Planned, limits: Limits) -> Work:
    if one.plan is None:
        raise TypeError(one)
    intent = history.intents.get(one.name)
    try:
        values: dict[str, Any] = cell_steps.values_of(intent) if intent else context(one, history.steps)
    except StepFailed:  # saved rows are all that is needed
        values = {}
    step = StepId(history.id, history.life, history.hash, one.name)
    return Work(step, one.plan, values, 0, undo=False, each=each_of(history, one), limits=limits)
