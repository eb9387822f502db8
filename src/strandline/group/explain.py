"""Shows a person what a group would do, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from strandline.group.core.parts import Recipe
from strandline.group.plan import POST, GroupPlan, Planned
from strandline.group.statements.api import Held
from strandline.group.statements.showing import not_restored, undo_text


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """A step as it would run."""

    name: str
    kind: str
    why: str
    """The reason why a step was added."""
    target: str | None
    statement: str | None
    needs: tuple[str, ...]
    """The steps or results that it waits for: `step` or `step.recipe`."""
    order: tuple[str, ...]
    """Steps that come before it only because of the rows."""
    dependents: tuple[str, ...]
    rows: tuple[str, ...]
    """Places that it holds while the group runs."""
    before: str | None = None
    undo: str | None = None
    not_restored: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    rollback: bool = False
    recipes: tuple[str, ...] = ()
    """The results that it hands on: `name = expression`, or `name: handler`."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A group, rewritten."""

    id: str
    steps: tuple[ExplainedStep, ...]
    warnings: tuple[str, ...]
    transaction: str | None = None
    """The target on which all of it is one transaction: what is undone then is rolled back there."""
    segments: tuple[tuple[str, ...], ...] = ()
    """Steps that are one transaction together, where the whole group is not."""
    unsaved: tuple[str, ...] = ()
    """Steps that save no image, because nothing can fail after them."""

    def made(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Return the explanation as text for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"group {self.id}: {len(self.steps)} steps"
        if self.transaction is not None:
            yield f"one transaction on {self.transaction}: what would be undone is rolled back, and no image is saved"
        for together in self.segments:
            last = "; it comes last, and saves no image" if together == self.unsaved else ""
            yield f"one transaction: {', '.join(together)}{last}"
        for step in self.steps:
            yield ""
            added = f"   ({step.why})" if step.why else ""
            yield f"{step.name}: {step.kind}{f' on {step.target}' if step.target else ''}{added}"
            for label, value in (
                ("statement", step.statement), ("before", step.before), ("undo", step.undo),
                ("recipes", ", ".join(step.recipes)),
                ("after", ", ".join(step.needs)), ("order", ", ".join(step.order)), ("rows", ", ".join(step.rows)),
                ("checks", ", ".join(step.checks)), ("not restored", ", ".join(step.not_restored)),
            ):  # fmt: skip
                if value:
                    yield f"    {label:<12} {value}"
        for warning in self.warnings:
            yield f"warning: {warning}"


def explained(plan: GroupPlan) -> Explanation:
    """Return the explanation of a plan."""
    every = [*plan.steps.values(), *plan.rollback.values()]
    steps: list[ExplainedStep] = []
    for one in every:
        steps += _with_undo(one, _step(one, plan))
    if plan.group.post_hook is not None:
        names = tuple(plan.steps)
        steps.append(ExplainedStep(POST, "empty", "the group's hook", None, None, names, (), (), ()))
    together = tuple(names for names in plan.segments.steps.values() if len(names) > 1 and plan.whole is None)
    return Explanation(plan.group.id, tuple(steps), plan.warnings, plan.whole, together, plan.unsaved)


def _with_undo(one: Planned, step: ExplainedStep) -> Iterator[ExplainedStep]:
    """Give a step, with those that save what it changes and put it back."""
    if one.undo != "automatic" or one.plan is None:
        yield step
        return
    source = one.name
    if step.before is not None:
        saved, source = f"{one.name}/before", f"{one.name}/before.identity"
        why = f"saves what {one.name} changes, in its transaction"
        yield ExplainedStep(saved, "query", why, one.target, step.before, (), (), (one.name,), ())
        step = replace(step, needs=(*step.needs, saved))
    yield step
    kind = {"insert": "delete", "delete": "insert"}.get(one.plan.undo, "update")
    yield ExplainedStep(
        f"{one.name}/undo", kind, f"undoes {one.name}", one.target, step.undo, (source,), (), (), (), rollback=True
    )


def _required(one: Planned) -> Iterator[str]:
    """Give the names of what is checked on the change itself."""
    yield from (name for name in ("must_exist", "must_not_exist") if getattr(one.step, name))


def _step(one: Planned, plan: GroupPlan) -> ExplainedStep:
    before = undo = None
    if one.undo == "automatic" and one.plan is not None:
        before, undo = one.plan.before and one.plan.before.shown(), undo_text(one.plan)
    elif one.undo in ("step", "handler"):
        undo = f"{one.undo} {one.step.undo if isinstance(one.step.undo, str) else getattr(one.step.undo, 'name', '')}"
    elif one.undo == "never":
        undo = "never: irreversible"
    return ExplainedStep(
        one.name,
        one.step.kind,
        one.why,
        one.target,
        one.step.statement,
        tuple(step if recipe == "success" else f"{step}.{recipe}" for step, recipe in one.wants),
        tuple(one.order),
        tuple(plan.dependents(one.name)) or tuple(_waiting(one, plan)),
        tuple(_place(place) for place in one.holds),
        before,
        undo,
        not_restored(one.plan) if one.plan is not None else (),
        (
            *_required(one),
            *(check.text for check in one.checks),
        ),
        one.step.is_rollback,
        tuple(_recipe(recipe) for recipe in one.step.recipes),
    )


def _recipe(recipe: Recipe) -> str:
    return f"{recipe.name} = {recipe.expression}" if recipe.handler is None else f"{recipe.name}: {recipe.handler}"


def _waiting(one: Planned, plan: GroupPlan) -> Iterator[str]:
    return (name for name, other in plan.steps.items() if any(need == one.name for need, _ in other.wants))


def _place(one: Held) -> str:
    target, *rest = one.place
    what = f"{target}.{rest[0]}" if rest else f"all of {target}"
    key = f"[{', '.join(map(str, rest[1:]))}]" if len(rest) > 1 else ""
    return f"{'writes' if one.writes else 'reads'} {what}{key}"
