"""A group as it is defined: plain data, in Python or as JSON. Defining executes nothing.

    g = Group("bonus-42")
    g.query("customer", "SELECT is_active FROM customer WHERE id = :id", {"id": 42}, target="shop", success="is_active")
    g.update("grant", "UPDATE account SET bonus = 5 WHERE id = :id", {"id": 42}, target="shop", depends_on=["customer"])

The call that closes a cycle refuses it, and the call that is given an unreadable expression refuses that. All other
problems are reported together, when the group is submitted or explained (`problems`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, get_args
from uuid import UUID

from strandline.errors import CycleFound, InvalidInput, shown
from strandline.group import checks as checking
from strandline.group.checks import Check
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.graph import Graph
from strandline.group.core.names import Problem, bad_id, bad_name, is_id, is_name, of_error, refusal
from strandline.group.core.parts import RESERVED_RECIPES, SECONDS, Dep, Handler, Hook, Kind, Need, Recipe, StartHandler
from strandline.group.decoder import PARTS, START, Decoder, listed
from strandline.group.problems import bad_fields, bad_settings, problems_of
from strandline.group.settings import GroupSettings
from strandline.group.target import OnConflict
from strandline.settings import within
from strandline.values.payloads import encode_json, parse_json

FORM: Final = 1
"""The version of the JSON; another one is refused."""
STEPS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """A step: one statement, or none, and all that goes with it."""

    name: str
    kind: Kind
    statement: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None
    depends_on: tuple[Dep, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    needs: tuple[Need, ...] = ()
    checks: tuple[Check, ...] = ()
    must_exist: bool = False
    must_not_exist: bool = False
    undo: str | Handler | None = None
    is_rollback: bool = False
    execute_on_failure: tuple[str, ...] = ()
    irreversible: bool = False
    for_each: str | None = None
    touches: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    pre_hook: Hook | None = None
    post_hook: Hook | None = None
    timeout_s: float | None = within(None, *SECONDS)
    retries: int | None = within(None, 0, 100, kind=int)

    def behind(self) -> list[str]:
        """Return the steps that this one waits for."""
        named = [dep.step for dep in self.depends_on] + [need.step for need in self.needs if need.step]
        return [*named, self.for_each.partition(".")[0]] if self.for_each else named

    def rollback_steps(self) -> list[str]:
        """Return the rollback steps that its failure calls for."""
        return [*([self.undo] if isinstance(self.undo, str) else []), *self.execute_on_failure]

    def recipe(self, name: str) -> Recipe | None:
        return next((recipe for recipe in self.recipes if recipe.name == name), None)

    @property
    def writes(self) -> bool:
        return self.kind not in ("query", "empty")


class Group:
    """Steps that succeed, or are undone, as a whole."""

    def __init__(
        self,
        id: str | UUID,  # noqa: A002 (the specification's name)
        *,
        deadline_s: float | None = None,
        on_conflict: OnConflict | None = None,
        pre_hook: Hook | StartHandler | str | None = None,
        post_hook: Hook | str | None = None,
    ) -> None:
        """`id` tells it from all others: `event.derived_id()` in a projection, `claim.append_id` in a worker."""
        self.id = str(id) if isinstance(id, UUID) else id
        self.deadline_s, self.on_conflict = deadline_s, on_conflict
        self.steps: dict[str, Step] = {}
        self.graph = Graph()
        self.slips: list[Problem] = []
        """Problems with what could not become part of the group."""
        self.pre_hook: Hook | StartHandler | None = self._hook("pre_hook", pre_hook)
        self.post_hook: Hook | None = self._hook("post_hook", post_hook)

    def _hook(self, name: str, given: Any, *, json: bool = False) -> Any:
        started = isinstance(given, StartHandler) or (isinstance(given, dict) and "factory" in given)
        part = START if name == "pre_hook" and started else PARTS[name]
        return None if given is None else Decoder(None, self.slips, json=json).part(name, part, given)

    # ------------------------------------------------------------ steps

    def query(self, name: str, statement: str, values: Mapping[str, Any] | None = None, **more: Any) -> Step:
        """Add a statement that returns rows."""
        return self._add("query", name, statement, values, more)

    def insert(self, name: str, statement: str, values: Mapping[str, Any] | None = None, **more: Any) -> Step:
        return self._add("insert", name, statement, values, more)

    def update(self, name: str, statement: str, values: Mapping[str, Any] | None = None, **more: Any) -> Step:
        return self._add("update", name, statement, values, more)

    def delete(self, name: str, statement: str, values: Mapping[str, Any] | None = None, **more: Any) -> Step:
        return self._add("delete", name, statement, values, more)

    def statement(self, name: str, statement: str, values: Mapping[str, Any] | None = None, **more: Any) -> Step:
        """Add any one statement."""
        return self._add("statement", name, statement, values, more)

    def empty(self, name: str, **more: Any) -> Step:
        """Add a step without a statement: it returns no rows, and succeeds."""
        return self._add("empty", name, None, None, more)

    def _add(
        self, kind: Kind, name: str, statement: str | None, values: Mapping[str, Any] | None, more: Mapping[str, Any],
        *, json: bool = False,
    ) -> Step:  # fmt: skip
        step = _step(kind, name, statement, values, more, Decoder(name, self.slips, json=json))
        if not is_name(name):
            self.slips.append(bad_name(name, "step"))
            return step
        if name in self.steps:
            self.slips.append(Problem("name_taken", name, f"{name!r} is defined twice"))
            return step
        self._connect(step)
        self.steps[name] = step
        return step

    def _connect(self, step: Step) -> None:
        """Put a step behind the steps that it waits for, and before its rollback steps. After an
        error the graph is unchanged.
        """
        added: list[tuple[str, list[str], bool]] = []
        for behind, before in [(step.name, step.behind()), *((name, [step.name]) for name in step.rollback_steps())]:
            known, new = self.graph.has(behind), [one for one in before if not self.graph.has_edge(behind, one)]
            if cycle := self.graph.add(behind, before):
                for done in reversed(added):
                    self.graph.remove(*done)
                raise _cycle(cycle)
            added.append((behind, new, known))

    # ------------------------------------------------------------ JSON

    def to_json(self) -> str:
        """Return the whole definition as text; `from_json` gives the same group."""
        self.check()
        return encode_json(self.made(), "group").decode()

    def made(self) -> dict[str, Any]:
        """Return the definition as JSON values; what has its default is left out."""
        made: dict[str, Any] = {"form": FORM, "id": self.id}
        for name in ("deadline_s", "on_conflict"):
            if (value := getattr(self, name)) is not None:
                made[name] = value
        for name in ("pre_hook", "post_hook"):
            if (hook := getattr(self, name)) is not None:
                made[name] = _made(hook)
        made["steps"] = [_made(step) for step in self.steps.values()]
        return made

    @classmethod
    def from_json(cls, text: str | bytes) -> Group:
        """Return a group from its text; one `InvalidGroup` says all that is wrong with it."""
        try:
            made = parse_json(text, "group")
        except InvalidInput as error:
            raise refusal([of_error(error, None)], "?") from None
        return cls.of(made)

    @classmethod
    def of(cls, made: Any, *, checked: bool = False) -> Group:
        """Return a group from JSON values. `checked`: the values were found valid before."""
        if not isinstance(made, dict) or made.get("form", FORM) != FORM:
            raise refusal([Problem("value", None, f"not a group of form {FORM}")], "?")
        group = cls(made.get("id", ""), deadline_s=made.get("deadline_s"), on_conflict=made.get("on_conflict"))
        Decoder(None, group.slips, json=True).known(made, _OF_GROUP)
        group.pre_hook = group._hook("pre_hook", made.get("pre_hook"), json=True)
        group.post_hook = group._hook("post_hook", made.get("post_hook"), json=True)
        steps = made.get("steps")
        for step in steps if isinstance(steps, list) else []:
            group._add_json(step)
        if problems := group.slips if checked else group.problems():
            raise refusal(problems, group.id)
        return group

    def _add_json(self, made: Any) -> None:
        if not isinstance(made, dict) or made.get("kind") not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            self.slips.append(Problem("value", None, f"not a step: {shown(made)}; kinds are {kinds}"))
            return
        given = {name: value for name, value in made.items() if value is not None}
        kind, name, statement = given.pop("kind"), given.pop("name", ""), given.pop("statement", None)
        label = name if isinstance(name, str) else None
        try:
            self._add(kind, name, statement, decoded(given.pop("values", {})), given, json=True)
        except CycleFound as error:
            self.slips.extend(error.problems)
        except InvalidInput as error:
            self.slips.append(of_error(error, label))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            self.slips.append(Problem("value", label, f"cannot be read: {error}"))

    @property
    def hash(self) -> str:
        """Return the hash of the definition, by which two groups with one id are told apart."""
        return hash_of(self.made())

    # ------------------------------------------------------------ problems

    def check(self) -> None:
        """Raise one `InvalidGroup` for all that is wrong, as far as the definition alone tells."""
        if problems := self.problems():
            raise refusal(problems, self.id)

    def problems(self, steps_max: int = STEPS_MAX) -> list[Problem]:
        """Return all that is wrong with the definition by itself, without its targets and handlers."""
        found = list(self.slips)
        if not is_id(self.id):
            found.append(bad_id(self.id, "id"))
        if not 1 <= len(self.steps) <= steps_max:
            found.append(Problem("steps", None, f"{len(self.steps)} steps: give 1..{steps_max:,}"))
        own = {"deadline_s": self.deadline_s, "on_conflict": self.on_conflict}
        found += bad_settings(GroupSettings, {name: value for name, value in own.items() if value is not None}, None)
        found += [*bad_fields(self.pre_hook, None), *bad_fields(self.post_hook, None)]
        for step in self.steps.values():
            found += self._problems_of(step)
        irreversible = [step.name for step in self.steps.values() if step.irreversible]
        found += [
            Problem("irreversible", name, f"{name!r} is irreversible and must be last; so is {irreversible[0]!r}")
            for name in irreversible[1:]
        ]
        if not found:
            try:
                self.made()
            except InvalidInput as error:  # a value in a check, in `touches` or in props cannot be kept
                found.append(of_error(error, None))
        return found

    def _problems_of(self, step: Step) -> list[Problem]:
        name = step.name
        found = [*problems_of(step)]
        for dep in step.depends_on:
            found += self._dep_problems(step, dep)
        for need in step.needs:
            if need.step is not None and need.step not in self.steps:
                found.append(self._unknown(name, need.step))
        if step.for_each is not None:
            source, _, rest = step.for_each.partition(".")
            if rest != "identity.rows":
                found.append(Problem("value", name, f"for_each: give STEP.identity.rows, not {shown(step.for_each)}"))
            elif source not in self.steps:
                found.append(self._unknown(name, source))
        for rollback in step.rollback_steps():
            other = self.steps.get(rollback)
            if other is None:
                found.append(self._unknown(name, rollback))
            elif not other.is_rollback:
                found.append(Problem("rollback_step", name, f"{rollback!r} is no rollback step: give is_rollback=True"))
        if step.irreversible and self.graph.dependents(name):
            found.append(Problem("irreversible", name, f"{name!r} is irreversible and must be last"))
        return found

    def _dep_problems(self, step: Step, dep: Dep) -> list[Problem]:
        other = self.steps.get(dep.step)
        if other is None:
            return [self._unknown(step.name, dep.step)]
        if other.is_rollback and not step.is_rollback:
            return [Problem("rollback_step", step.name, f"{dep.step!r} is a rollback step")]
        if dep.recipe is not None and dep.recipe not in RESERVED_RECIPES and other.recipe(dep.recipe) is None:
            has = ", ".join(shown(recipe.name) for recipe in other.recipes) or "none"
            return [Problem("unknown_step", step.name, f"needs '{dep.step}.{dep.recipe}', {dep.step!r} has: {has}")]
        return []

    def _unknown(self, step: str, named: str) -> Problem:
        known = ", ".join(list(self.steps)[:20])
        return Problem("unknown_step", step, f"{step!r} needs {shown(named)!r}; steps are: {known}")


def hash_of(made: Mapping[str, Any]) -> str:
    """Return the hash of a definition, which is given as JSON values."""
    return hashlib.sha256(encode_json(made, "group")).hexdigest()


def _cycle(names: list[str]) -> CycleFound:
    way = " → ".join(names)
    problem = Problem("cycle", names[0], way)
    return CycleFound(way, hint="take one of these dependencies away", names=tuple(names), problems=(problem,))


# ---------------------------------------------------------------- a step from what a caller gives


def _step(
    kind: Kind, name: str, statement: str | None, values: Mapping[str, Any] | None, more: Mapping[str, Any],
    decoder: Decoder,
) -> Step:  # fmt: skip
    behind = [one.name if isinstance(one, Step) else one for one in listed(more.get("depends_on"))]
    given = decoder.options({**more, "depends_on": behind}, _OPTIONS)
    if (success := given.pop("success", None)) is not None:
        given["checks"] = (checking.is_true(success), *given.get("checks", ()))
    return Step(name=name, kind=kind, statement=statement, values=decoder.values(values), **given)


_FIXED: Final = {"name", "kind", "statement", "values"}
_OPTIONS: Final = frozenset(one.name for one in fields(Step)) - _FIXED | {"success"}
_OF_GROUP: Final = frozenset({"form", "id", "deadline_s", "on_conflict", "pre_hook", "post_hook", "steps"})


# ---------------------------------------------------------------- to JSON


_DEFAULTS: Final[dict[Any, list[tuple[Any, Any]]]] = {}


def _defaults(kind: Any) -> list[tuple[Any, Any]]:
    """Return the fields of a dataclass, and what each has if nothing is given."""
    if kind not in _DEFAULTS:
        _DEFAULTS[kind] = [
            (one, one.default_factory() if one.default_factory is not MISSING else one.default) for one in fields(kind)
        ]
    return _DEFAULTS[kind]


def _made(part: Any) -> dict[str, Any]:
    """Return a dataclass of a definition as JSON, without what has its default."""
    made: dict[str, Any] = {}
    for one, default in _defaults(type(part)):
        value = getattr(part, one.name)
        if value == default:
            continue
        if one.name in ("values", "props"):
            made[one.name] = encoded(value)
        elif one.name == "touches":
            made[one.name] = [[target, table, encoded(key)] for target, table, key in value]
        elif isinstance(value, tuple):
            made[one.name] = [item if isinstance(item, str) else _made(item) for item in value]
        else:
            made[one.name] = value if isinstance(value, (str, int, float, bool)) else _made(value)
    return made
