"""What a group would do, shown to a person: as data, as text, and its graph as a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from graphlib import TopologicalSorter
from html import escape
from typing import Any, Final

from strandline.group.core.parts import Recipe
from strandline.group.plan import POST, GroupPlan, Planned
from strandline.group.statements.api import Held
from strandline.group.statements.showing import not_restored, undo_text

STEP_WIDTH, STEP_HEIGHT, GAP_X, GAP_Y, EDGE = 150, 34, 60, 18, 20
EDGES_THINNED_MAX: Final = 2000
_COLOURS: Final = {"query": "#dbeafe", "empty": "#f3f4f6", "rollback": "#fee2e2", "write": "#dcfce7"}
_ARROW: Final = """\
<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#6b7280"/></marker></defs>"""


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
    """The things that it waits for: `step` or `step.recipe`."""
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

    def svg(self) -> str:
        """Return a drawing of the graph, from left to right; an edge is dashed where only the rows ask for it."""
        return drawn(self)


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


# ---------------------------------------------------------------- the drawing


def drawn(explanation: Explanation) -> str:
    """Return an SVG picture: columns by depth, steps as boxes."""
    steps = {step.name: step for step in explanation.steps}
    needs = {name: _needs(step, steps) for name, step in steps.items()}
    depth: dict[str, int] = {}
    for name in TopologicalSorter(needs).static_order():
        depth[name] = 1 + max((depth[need] for need in needs[name]), default=-1)
    for name in steps:  # steps that are added to a step stand beside it
        step, _, added = name.rpartition("/")
        if step in depth and added in ("before", "undo"):
            depth[name] = max(0, depth[step] - 1) if added == "before" else depth[step]
    place: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for name in steps:
        column = depth[name]
        row = filled.get(column, 0)
        filled[column] = row + 1
        place[name] = EDGE + column * (STEP_WIDTH + GAP_X), EDGE + row * (STEP_HEIGHT + GAP_Y)
    width = 2 * EDGE + (max(depth.values(), default=0) + 1) * (STEP_WIDTH + GAP_X) - GAP_X
    height = 2 * EDGE + max(filled.values(), default=1) * (STEP_HEIGHT + GAP_Y) - GAP_Y
    label = escape(explanation.id, quote=True)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
        _ARROW,
        '<g fill="none" stroke="#6b7280" marker-end="url(#a)">',
    ]
    parts += [_edge(place[a], place[b], dashed) for a, b, dashed in _edges(needs, depth)]
    parts.append('</g><g font-family="sans-serif" font-size="12" text-anchor="middle">')
    parts += [_box(step, *place[name]) for name, step in steps.items()]
    return "\n".join([*parts, "</g></svg>"])


def _needs(step: ExplainedStep, steps: Mapping[str, ExplainedStep]) -> dict[str, bool]:
    """Return the steps that one waits for, and whether only the rows ask for it."""
    named = {
        need if need in steps else need.partition(".")[0]: need in step.order for need in (*step.order, *step.needs)
    }
    return {need: dashed for need, dashed in named.items() if need in steps}


def _edges(needs: Mapping[str, dict[str, bool]], depth: Mapping[str, int]) -> Iterator[tuple[str, str, bool]]:
    """Give the edges without those that others imply (c waits for b, b for a: so c waits for a); of a large graph
    all."""
    before: dict[str, set[str]] = {}
    if sum(map(len, needs.values())) <= EDGES_THINNED_MAX:
        for name in sorted(needs, key=lambda one: depth[one]):
            before[name] = set(needs[name]).union(*(before.get(need, ()) for need in needs[name]))
    for name, own in needs.items():
        implied = set().union(*(before.get(need, ()) for need in own))
        yield from ((need, name, dashed) for need, dashed in own.items() if need not in implied)


def _edge(before: tuple[int, int], after: tuple[int, int], dashed: bool) -> str:
    x1, y1 = before[0] + STEP_WIDTH, before[1] + STEP_HEIGHT // 2
    x2, y2 = after[0], after[1] + STEP_HEIGHT // 2
    bend = GAP_X // 2
    style = ' stroke-dasharray="4 3"' if dashed else ""
    if before[0] == after[0]:  # the undo of a step stands below it
        middle = before[0] + STEP_WIDTH // 2
        y1, y2 = (before[1] + STEP_HEIGHT, after[1]) if before[1] < after[1] else (before[1], after[1] + STEP_HEIGHT)
        return f'<path d="M{middle} {y1}L{middle} {y2}"{style}/>'
    return f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"{style}/>'


def _box(step: ExplainedStep, x: int, y: int) -> str:
    kind = "rollback" if step.rollback else step.kind if step.kind in _COLOURS else "write"
    dash = ' stroke-dasharray="3 2"' if step.why else ""
    name = step.name if len(step.name) <= 22 else step.name[:21] + "…"
    box = f'x="{x}" y="{y}" width="{STEP_WIDTH}" height="{STEP_HEIGHT}" rx="5" fill="{_COLOURS[kind]}"'
    middle = f'x="{x + STEP_WIDTH // 2}" y="{y + STEP_HEIGHT // 2 + 4}"'
    title = escape(step.statement or step.why or step.name)
    return f'<g><title>{title}</title><rect {box} stroke="#374151"{dash}/><text {middle}>{escape(name)}</text></g>'
