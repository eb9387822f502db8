"""What is wrong with a step by itself, without the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from strandline.errors import InvalidInput, shown
from strandline.group import checks as checking
from strandline.group.checks import Check
from strandline.group.core.encoding import encoded
from strandline.group.core.names import Problem, bad_name, is_name, of_error
from strandline.group.core.parts import RESERVED_RECIPES, Need, Recipe

if TYPE_CHECKING:
    from strandline.group.definition import Step

SECONDS: Final = (0.001, 86_400)


def problems_of(step: Step) -> Iterable[Problem]:
    """All that can be said of it."""
    name = step.name
    if step.kind == "empty":
        if step.statement or step.values or step.target:
            yield Problem("value", name, "an empty step has no statement, no values and no target")
    else:
        if not isinstance(step.statement, str) or not step.statement.strip():
            yield Problem("statement_count", name, "a statement is missing")
        if step.target is None:
            yield Problem("unknown_target", name, "give the target's name")
        elif not is_name(step.target):
            yield bad_name(step.target, "target", name)
    for key in step.values:
        if not is_name(key):
            yield bad_name(key, "value", name)
    try:
        encoded(step.values)
    except InvalidInput as error:
        yield of_error(error, name)
    yield from _recipe_problems(step)
    yield from _alias_problems(step)
    for check in step.checks:
        yield from _check_problems(step, check)
    yield from _setting_problems(step)
    if step.irreversible and step.checks:
        yield Problem("irreversible", name, f"{name!r} is irreversible and has no checks")
    if step.must_exist and step.must_not_exist:
        yield Problem("value", name, "give must_exist or must_not_exist, not both")


def _setting_problems(step: Step) -> Iterable[Problem]:
    name = step.name
    timed: list[Any] = [one for one in (step.pre_hook, step.post_hook) if one is not None]
    for what in (*timed, *step.checks, *step.recipes, *step.needs, step):
        yield from bad_seconds(what.timeout_s, "timeout_s", name)
    if step.retries is not None and (type(step.retries) is not int or not 0 <= step.retries <= 100):
        yield Problem("setting", name, f"retries: {shown(step.retries)} is not in 0..100")
    if step.triggers not in (None, "own_row"):
        yield Problem("setting", name, f"triggers: {shown(step.triggers)} is not 'own_row'")


def _recipe_problems(step: Step) -> Iterable[Problem]:
    seen: set[str] = set()
    named: list[Recipe | Need] = [*step.recipes, *step.needs]
    for recipe in named:
        if not is_name(recipe.name) or recipe.name in RESERVED_RECIPES:
            yield bad_name(recipe.name, "recipe", step.name)
        elif recipe.name in seen:
            yield Problem("name_taken", step.name, f"recipe {recipe.name!r} is defined twice")
        seen.add(recipe.name)
        if isinstance(recipe, Recipe) and (recipe.expression is None) == (recipe.handler is None):
            yield Problem("recipe", step.name, f"{recipe.name}: give exactly one of expression, handler")


def _alias_problems(step: Step) -> Iterable[Problem]:
    aliases = [dep.alias for dep in step.depends_on if dep.alias is not None]
    for alias in aliases:
        if not is_name(alias):
            yield bad_name(alias, "alias", step.name)
    for alias in {alias for alias in aliases if aliases.count(alias) > 1}:
        yield Problem("name_taken", step.name, f"alias {alias!r} is given twice")


def _check_problems(step: Step, check: Check) -> Iterable[Problem]:
    if check.kind not in checking.KINDS:
        yield Problem("value", step.name, f"unknown check {shown(check.kind)!r}")
    elif check.kind.startswith("affected_rows") and (type(check.n) is not int or check.n < 0):
        yield Problem("value", step.name, f"{check.kind}: give a number of rows, not {shown(check.n)}")
    elif check.kind == "query_check" and not step.writes:
        yield Problem("value", step.name, "query_check is for steps that write")


def bad_seconds(value: Any, what: str, step: str | None, least: float = SECONDS[0]) -> list[Problem]:
    if value is None or (
        isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= SECONDS[1]
    ):
        return []
    return [Problem("setting", step, f"{what}: {shown(value)} is not in {least}..{SECONDS[1]}")]
