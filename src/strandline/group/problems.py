"""Finds the problems of a single step, apart from other steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from strandline.errors import InvalidInput, shown
from strandline.group import checks as checking
from strandline.group.checks import Check
from strandline.group.core.encoding import encoded
from strandline.group.core.names import Problem, bad_name, is_name, of_error
from strandline.group.core.parts import RESERVED_RECIPES, Need, Recipe
from strandline.settings import checked_settings

if TYPE_CHECKING:
    from strandline.group.definition import Step


def problems_of(step: Step) -> Iterable[Problem]:
    """Give all that is wrong with a step by itself."""
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
    for part in (step, *step.recipes, *step.needs, *step.checks, step.undo, step.pre_hook, step.post_hook):
        yield from bad_fields(part, name)
    if step.irreversible and step.checks:
        yield Problem("irreversible", name, f"{name!r} is irreversible and has no checks")
    if step.must_exist and step.must_not_exist:
        yield Problem("value", name, "give must_exist or must_not_exist, not both")


def _recipe_problems(step: Step) -> Iterable[Problem]:
    seen: set[str] = set()
    named: list[Recipe | Need] = [*step.recipes, *step.needs]
    for recipe in named:
        if not is_name(recipe.name) or recipe.name in RESERVED_RECIPES:
            yield bad_name(recipe.name, "recipe", step.name)
        elif recipe.name in seen:
            yield Problem("name_taken", step.name, f"recipe {recipe.name!r} is defined twice")
        else:
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
    elif check.kind.startswith("affected_rows") and (type(check.n) is not int or not 0 <= check.n < 2**63):
        yield Problem("value", step.name, f"{check.kind}: give a number of rows, not {shown(check.n)}")
    elif check.kind == "query_check" and not step.writes:
        yield Problem("value", step.name, "query_check is for steps that write")


def bad_fields(part: Any, step: str | None) -> Iterable[Problem]:
    """Give what is wrong with the fields of a part; a plain name has none."""
    if is_dataclass(part) and not isinstance(part, type):
        yield from bad_settings(type(part), {one.name: getattr(part, one.name) for one in _limited(type(part))}, step)


def bad_settings(kind: Any, given: Mapping[str, Any], step: str | None) -> Iterable[Problem]:
    """Give what is wrong with values of fields that say what is allowed."""
    for one in _limited(kind):
        if (value := given.get(one.name, one.default)) is not one.default:
            try:
                if checked_settings(kind, {one.name: value})[one.name] != value:
                    yield Problem("setting", step, f"{one.name}: give seconds, not {shown(value)}")
            except InvalidInput as error:
                yield of_error(error, step)


@cache
def _limited(kind: Any) -> tuple[Field[Any], ...]:
    """Return the fields that have limits (`within`, `one_of`), or are true or false."""
    return tuple(one for one in fields(kind) if one.metadata or isinstance(one.default, bool))
