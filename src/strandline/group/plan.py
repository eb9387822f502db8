"""The plan of a group: its steps and the generated ones, which step waits for which, which rows each touches. The
second layer. It turns checks, preconditions, needs and hooks into steps and dependencies of the core, and finds out how
each step is undone. Pure: the same definition on the same tables gives the same plan, today and after a crash.

    x/NAME     asks for a need             x/check    a query that checks x
    x/before   reads what x will change    x/undo     puts it back             group/pre, group/post   the group's hooks
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from strandline.errors import shown
from strandline.group.checks import Check, is_true
from strandline.group.core.binding import Offer, Source, resolve
from strandline.group.core.encoding import decoded
from strandline.group.core.expression import compiled
from strandline.group.core.graph import Graph
from strandline.group.core.names import Problem, refusal
from strandline.group.core.parts import IDENTITY, SUCCESS, Handler, Hook, Recipe, StartHandler
from strandline.group.core.schedule import Want
from strandline.group.definition import Group, Step
from strandline.group.segments import Segments, segments_of
from strandline.group.statements import held
from strandline.group.statements.api import Held, Plan, TargetTable
from strandline.group.touched import TouchedRows

PRE: Final = "group/pre"
POST: Final = "group/post"
Undoing = Literal["nothing", "automatic", "step", "handler", "never"]

NoHandler = Callable[[str], str | None]
"""Returns why there is no handler of a name; None if there is one."""


@dataclass(slots=True)
class Planned:
    """A step as it runs."""

    step: Step
    name: str
    values: Mapping[str, Any]
    recipes: tuple[Recipe, ...] = ()
    checks: tuple[Check, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    data_from: str | None = None
    wants: list[Want] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Steps that come first only because they may touch the same rows."""
    why: str = ""
    """The reason why a step was generated."""
    plan: Plan | None = None
    undo: Undoing = "nothing"
    holds: tuple[Held, ...] = ()
    values_of: str | None = None
    """The step whose values it has; None: they are its own."""

    @property
    def target(self) -> str | None:
        return self.step.target

    @property
    def writes(self) -> bool:
        return self.plan is not None and self.plan.statement.kind != "query"

    def with_values(self, values: Mapping[str, Any]) -> Planned:
        """Return the same step with other values, and the rows that it touches then."""
        made = object.__new__(Planned)
        for name in Planned.__slots__:  # `replace` takes six times as long
            setattr(made, name, getattr(self, name))
        made.values = values
        made.hold()
        return made

    def hold(self) -> None:
        """Work out which rows the step touches."""
        if self.plan is not None and self.target is not None:
            found = held(self.plan, self.values)
            self.holds = tuple(one._replace(place=(self.target, *one.place)) for one in found)

    @property
    def sql_target(self) -> str | None:
        """Return its target, if it has a statement and that is an SQL target."""
        return self.target if self.plan is not None and self.plan.statement.dialect != "cassandra" else None

    @property
    def answers(self) -> list[str]:
        """Return its recipes whose results a handler gives."""
        return [recipe.name for recipe in self.recipes if recipe.handler is not None]

    @property
    def is_optimistic(self) -> bool:
        """Return whether steps behind it start before its success is decided."""
        return any(check.optimistic for check in self.checks)

    @property
    def is_alone(self) -> bool:
        """Return whether something from outside belongs to it: it asks, is told, or is not undone by images."""
        asks = bool(self.answers) or any(check.kind == "ask" for check in self.checks)
        told = self.name == PRE or self.step.pre_hook is not None or self.step.post_hook is not None
        elsewhere = self.plan is not None and self.sql_target is None
        return asks or told or elsewhere or self.undo in ("step", "handler", "never")


class GroupPlan(NamedTuple):
    """All steps, each behind what it waits for."""

    group: Group
    steps: dict[str, Planned]
    """Going forward."""
    rollback: dict[str, Planned]
    """Rollback steps of the user."""
    tables: dict[str, dict[str, TargetTable]]
    """The tables that this plan rests on, by target, by the name that statements use."""
    sequence: tuple[str, ...]
    """The names of the steps, each behind what it waits for."""
    handlers: frozenset[str]
    """The handlers that the group names, but for one that it starts itself."""
    warnings: tuple[str, ...] = ()
    segments: Segments = Segments({}, {})

    def step(self, name: str) -> Planned:
        """Return a step, going forward or back."""
        return self.steps.get(name) or self.rollback[name]

    @property
    def whole(self) -> str | None:
        """Return the target on which all of it is one transaction, if it is."""
        return self.target_of(self.segments.last) if self.segments.last and len(self.segments.steps) == 1 else None

    def target_of(self, segment: str) -> str | None:
        """Return the target of a segment's statements, or of a rollback step's."""
        if segment in self.rollback:
            return self.rollback[segment].target
        found = (self.steps[name].target for name in self.segments.steps[segment])
        return next((target for target in found if target is not None), None)

    @property
    def targets(self) -> frozenset[str]:
        """Return the targets of all steps, going forward and back."""
        return frozenset(one.target for one in (*self.steps.values(), *self.rollback.values()) if one.target)

    @property
    def unsaved(self) -> tuple[str, ...]:
        """Return the steps of the last segment, which save no images: nothing can fail after them."""
        return self.segments.steps[self.segments.last] if self.segments.last is not None else ()

    def step_by_step(self) -> GroupPlan:
        """Return the same plan with each step as a transaction of its own."""
        return self._replace(segments=Segments.alone(self.sequence))

    def wants(self) -> dict[str, list[Want]]:
        return {name: [*step.wants, *((need, SUCCESS) for need in step.order)] for name, step in self.steps.items()}

    def dependents(self, step: str) -> list[str]:
        """Return the steps that wait for a step, as it was declared."""
        return list(self.group.graph.dependents(step))

    def with_values(self, definition: Mapping[str, Any]) -> GroupPlan:
        """Return the plan of a group that differs from this one in its id and the values of its steps alone; `placed`
        or `pinned` says in which order they run."""
        values = {step["name"]: decoded(step.get("values", {})) for step in definition["steps"]}
        group = copy(self.group)
        group.id = definition["id"]
        return self._replace(
            group=group,
            steps={name: one.with_values(values.get(one.values_of, one.values)) for name, one in self.steps.items()},
            rollback={name: one.with_values(values[name]) for name, one in self.rollback.items()},
        )

    def placed(self, identities: Mapping[str, str] | None = None) -> GroupPlan:
        """Order the steps that may touch the same rows, if one of them writes: they run in the plan's sequence.
        `identities` of targets are needed because two names may lead to one database.
        """
        last = TouchedRows()
        for name in self.sequence:
            one = self.steps[name]
            needed = {need for need, _ in one.wants}
            places = one.holds
            if identities:
                places = tuple(
                    each._replace(place=(identities.get(each.place[0], each.place[0]), *each.place[1:]))
                    for each in places
                )
            one.order = [step for step in last.before(name, places) if step not in needed and step != name]
        return self._replace(segments=segments_of(self.steps, self.sequence))

    def made_order(self) -> dict[str, Any]:
        """Return the order that `placed` found, as JSON values. It must never change: barrier rows name segments."""
        order = {name: one.order for name, one in self.steps.items() if one.order}
        return {"before": order, "segments": list(map(list, self.segments.steps.values())), "last": self.segments.last}

    def pinned(self, order: Mapping[str, Any]) -> GroupPlan:
        """Return the plan with what was found out when its group was submitted."""
        for name, one in self.steps.items():
            one.order = list(order["before"].get(name, ()))
        steps = {names[0]: tuple(names) for names in order["segments"]}
        of = {name: segment for segment, names in steps.items() for name in names}
        return self._replace(segments=Segments(steps, of, order["last"]))

    def holds(self) -> tuple[Held, ...]:
        """Return all rows that the group may touch, going forward and back; a place begins with its target's name."""
        every = (*self.steps.values(), *self.rollback.values())
        return tuple(dict.fromkeys(one for step in every for one in step.holds))


def shape_of(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a definition has in common with those of its kind: all but its id and the values of its steps."""
    steps = [{**step, "values": dict.fromkeys(step.get("values", ()))} for step in definition["steps"]]
    return {**definition, "id": "shape", "steps": steps}


class GroupPlanner:
    """Adds the steps and dependencies that a definition asks for. How statements run is told by `plan_statement`."""

    def __init__(
        self, group: Group, plan_statement: Callable[[Planned, str], Plan | None],
        no_handler: NoHandler | None = None, problems: list[Problem] | None = None, also: Sequence[Problem] = (),
    ) -> None:  # fmt: skip
        """`no_handler` is None where the group was found right before. `also` is told with problems, if there are."""
        self._group, self._plan_statement, self._no_handler = group, plan_statement, no_handler
        self._problems, self._also = [] if problems is None else problems, also
        self._steps: dict[str, Planned] = {}
        self._rollback: dict[str, Planned] = {}
        self._warnings: list[str] = []

    def plan(self) -> GroupPlan:
        """Return the plan, but for which steps come first because of the rows, and which are one transaction."""
        for step in self._group.steps.values():
            self._add(step)
        self._check_handlers()
        self._check()  # later checks would only repeat that names are missing
        for one in [*self._steps.values(), *self._rollback.values()]:
            self._bind(one)
        self._check()
        self._join_checks()
        self._put_irreversible_last()
        self._put_behind_pre()
        for one in (*self._steps.values(), *self._rollback.values()):
            one.hold()
        sequence, warnings = self._sequence(), tuple(self._warnings)
        handlers = frozenset(name for name, _ in handler_names(self._group))
        return GroupPlan(self._group, self._steps, self._rollback, {}, sequence, handlers, warnings)

    def _check(self) -> None:
        if self._problems:
            raise refusal([*self._problems, *self._also], self._group.id)

    # ------------------------------------------------------------ steps

    def _add(self, step: Step) -> None:
        one = self._step(step)
        if step.is_rollback:
            self._rollback[step.name] = one
            return
        for need in step.needs:
            name = f"{step.name}/{need.name}"
            recipe = Recipe(need.name, handler=need.handler, timeout_s=need.timeout_s)
            asking = Planned(_empty(name), name, {}, (recipe,), data_from=need.step, why=f"asks for {need.name}")
            asking.wants = [(need.step, SUCCESS)] if need.step else []
            self._steps[name] = asking
            one.wants.append((name, need.name))
        if (step.must_exist or step.must_not_exist) and one.plan is not None and not _tells(one.plan, step.must_exist):
            self._problem(step, "value", "must_exist, must_not_exist: it is not known which rows this statement names")
        self._steps[step.name] = one
        for check in step.checks:
            if check.kind == "query_check":
                self._check_by_query(one, check)

    def _step(self, step: Step) -> Planned:
        own = tuple(check for check in step.checks if check.kind != "query_check")
        one = Planned(step, step.name, step.values, step.recipes, own, values_of=step.name)
        one.wants = [(dep.step, dep.recipe or SUCCESS) for dep in step.depends_on]
        if step.for_each is not None:
            one.wants.append((step.for_each.partition(".")[0], IDENTITY))
        if step.undo is not None and not step.is_rollback:
            one.undo = "handler" if isinstance(step.undo, Handler) else "step"
        self._read(one, step.statement)
        return one

    def _read(self, one: Planned, text: str | None) -> None:
        made = None if text is None or one.target is None else self._plan_statement(one, text)
        if made is not None:
            one.plan = made
            one.tables = tuple(name for name in (*made.statement.tables, made.statement.alias) if name)
            if made.statement.kind != "query" and not one.step.is_rollback and one.step.undo is None:
                one.undo = "never" if one.step.irreversible else "automatic"

    def _problem(self, step: Step, code: str, text: str) -> None:
        self._problems.append(Problem(code, step.name, text))

    # ------------------------------------------------------------ generated steps

    def _check_by_query(self, one: Planned, check: Check) -> None:
        names = [name for name in self._steps if name.startswith(f"{one.name}/check")]
        name = f"{one.name}/check" + (str(len(names) + 1) if names else "")
        step = replace(
            _empty(name), kind="query", target=check.target or one.target, statement=check.statement,
            values=check.values, timeout_s=check.timeout_s,
        )  # fmt: skip
        checking = Planned(
            step, name, check.values, checks=(is_true(check.expression or "true"),), why=f"checks {one.name}"
        )
        checking.wants = [(one.name, SUCCESS)]
        self._read(checking, check.statement)
        self._steps[name] = checking

    def _join_checks(self) -> None:
        """Make dependents of a step wait for its checking queries, too."""
        checking: dict[str, list[str]] = {}
        for name in self._steps:
            step, _, rest = name.partition("/")
            if rest.startswith("check") and step in self._group.steps:
                checking.setdefault(step, []).append(name)
        for name, one in self._steps.items():
            more = [(check, SUCCESS) for need, _ in one.wants for check in checking.get(need, ()) if check != name]
            if name.partition("/")[0] not in checking or "/check" not in name:
                one.wants += [want for want in dict.fromkeys(more) if want not in one.wants]

    def _put_irreversible_last(self) -> None:
        for one in self._steps.values():
            if one.step.irreversible:
                one.wants = list(
                    dict.fromkeys([*one.wants, *((name, SUCCESS) for name in self._steps if name != one.name)])
                )

    def _put_behind_pre(self) -> None:
        hook = self._group.pre_hook
        if hook is None:
            return
        for one in self._steps.values():
            if not one.wants:
                one.wants.append((PRE, SUCCESS))
        told = hook if isinstance(hook, Hook) else None
        self._steps = {
            PRE: Planned(replace(_empty(PRE), pre_hook=told), PRE, {}, why="hook of the group"),
            **self._steps,
        }

    # ------------------------------------------------------------ parameters and handlers

    def _bind(self, one: Planned) -> None:
        wanted = [] if one.plan is None else [(part.name, part.position) for part in one.plan.statement.parameters]
        offers = [*self._offers(one)]
        for text in _expressions(one):
            wanted += [(_longest(path, one, offers), 0) for path in compiled(text).parameters]
        one.sources, problems = resolve(
            one.name, dict(wanted).items(), one.values, offers, row=one.step.for_each is not None
        )
        self._problems += problems
        for source in one.sources.values():
            if source.kind == "result":
                self._want(one, source.name, source.recipe)
        for need, recipe in one.wants:
            if recipe == IDENTITY:
                self._give_identity(need)
        unused = set(one.values) - {source.name for source in one.sources.values() if source.kind == "value"}
        if unused and not one.why:
            self._warnings.append(f"{one.name}: values that nothing uses: {', '.join(sorted(unused))}")

    def _offers(self, one: Planned) -> Iterable[Offer]:
        source = self._group.steps.get(one.name.partition("/")[0]) if one.why else one.step
        for dep in (source or one.step).depends_on:
            other = self._steps.get(dep.step) or self._rollback.get(dep.step)
            if dep.recipe is not None and dep.recipe != SUCCESS:
                yield Offer(dep.step, dep.recipe, (dep.alias or dep.recipe,))
            for recipe in (*(recipe.name for recipe in (other.recipes if other else ())), IDENTITY):
                yield Offer(dep.step, recipe, ())
        for need in (source or one.step).needs:
            yield Offer(f"{(source or one.step).name}/{need.name}", need.name, (need.name,))

    def _want(self, one: Planned, step: str, recipe: str) -> None:
        if (step, recipe) not in one.wants:
            one.wants.append((step, recipe))
        if recipe == IDENTITY:
            self._give_identity(step)

    def _give_identity(self, step: str) -> None:
        other = self._steps.get(step) or self._rollback.get(step)
        if other is not None and all(recipe.name != IDENTITY for recipe in other.recipes):
            other.recipes = (*other.recipes, Recipe(IDENTITY))

    def _check_handlers(self) -> None:
        if self._no_handler is None:
            return
        for name, step in handler_names(self._group):
            if (why := self._no_handler(name)) is not None:
                self._problems.append(Problem("unknown_handler", step, f"{shown(name)!r}; {why}"))

    def _sequence(self) -> tuple[str, ...]:
        graph = Graph()
        for name, one in self._steps.items():
            graph.add(name, [need for need, _ in one.wants])
        return tuple(graph.order())


def _empty(name: str) -> Step:
    return Step(name, "empty")


def _tells(made: Plan, exists: bool) -> bool:
    """Return whether the target can tell from a statement if its rows were there."""
    if made.undo in ("update", "delete") and made.statement.dialect != "cassandra":
        return True
    if made.before is not None:
        return True
    shape = made.statement.shape
    return not exists and made.undo == "insert" and bool(shape.rows) and shape.conflict != "update"


def _longest(path: tuple[str, ...], one: Planned, offers: list[Offer]) -> str:
    """Return the first part of a path, as far as it names a parameter. The rest names members of
    the parameter's value.
    """
    for cut in range(min(len(path), 3), 0, -1):
        name = ".".join(path[:cut])
        if resolve(one.name, [(name, 0)], one.values, offers)[0]:
            return name
    return ".".join(path)


def _expressions(one: Planned) -> Iterable[str]:
    yield from (recipe.expression for recipe in one.recipes if recipe.expression is not None)
    yield from (check.expression for check in one.checks if check.expression is not None)


def handler_names(group: Group) -> Iterable[tuple[str, str | None]]:
    """Give the handlers that a group names, but for those that it starts itself, and the step that names each."""
    if isinstance(group.pre_hook, StartHandler):
        yield group.pre_hook.factory, None
    for hook in (group.pre_hook, group.post_hook):
        if isinstance(hook, Hook):
            yield hook.handler, None
    started = group.pre_hook.name if isinstance(group.pre_hook, StartHandler) else None
    for step in group.steps.values():
        named = [recipe.handler for recipe in step.recipes if recipe.handler is not None]
        named += [need.handler for need in step.needs]
        named += [check.handler for check in step.checks if check.handler is not None]
        named += [hook.handler for hook in (step.pre_hook, step.post_hook) if hook is not None]
        named += [step.undo.name] if isinstance(step.undo, Handler) else []
        for name in named:
            if name != started:
                yield name, step.name
