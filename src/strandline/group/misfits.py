"""What a caller gives for a step that is of another kind: told with all else that is wrong with the group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final

from strandline.errors import received
from strandline.group.checks import Check
from strandline.group.core.names import Problem
from strandline.group.core.parts import Dep, Handler, Hook, Need, Recipe

LISTS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "depends_on": ((Dep,), "a step's name, or Dep(…)"),
    "recipes": ((Recipe,), "Recipe(…)"),
    "needs": ((Need,), "Need(…)"),
    "checks": ((Check,), "a check, e.g. affected_rows_equal(1)"),
    "execute_on_failure": ((str,), "a step's name"),
}
"""What is in the lists of a step."""
ONES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "undo": ((str, Handler), "a step's name, or Handler(…)"),
    "pre_hook": ((Hook,), "a handler's name, or Hook(…)"),
    "post_hook": ((Hook,), "a handler's name, or Hook(…)"),
    "for_each": ((str,), "STEP.identity.rows"),
}
"""What it has one of, or None."""
PLACE: Final = "(TARGET, TABLE, {COLUMN: VALUE})"
_OF_FIELDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "str": ((str,), "text"),
    "str | None": ((str, type(None)), "text"),
}
"""What a field may hold, by its annotation."""


def fitting(given: Mapping[str, Any], step: str | None, found: list[Problem]) -> dict[str, Any]:
    """What a step can be made of; of the rest it is said what should be there."""
    kept = dict(given)
    for name, one in given.items():
        if name in LISTS:
            kept[name] = [part for part in listed(one) if _fits(part, LISTS[name], step, name, found)]
        elif name in ONES and one is not None:
            if not _fits(one, ONES[name], step, name, found):
                del kept[name]
        elif name == "touches":
            kept[name] = [place for place in listed(one) if _is_place(place)]
            found += [_wrong(step, name, place, PLACE) for place in listed(one) if not _is_place(place)]
    return kept


def listed(given: Any) -> list[Any]:
    """Several of something, or one."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    return [] if given is None else list(given) if several else [given]


def hook_problems(what: str, hook: object, kinds: tuple[type, ...]) -> list[Problem]:
    """Of a group's own hook."""
    if hook is None or isinstance(hook, kinds):
        return list(_of_part(hook, None))
    return [_wrong(None, what, hook, ONES["pre_hook"][1])]


def _fits(part: Any, wanted: tuple[tuple[type, ...], str], step: str | None, what: str, found: list[Problem]) -> bool:
    """Whether it is what is wanted, with all its fields; else what is wrong is told."""
    kinds, words = wanted
    wrong = [*_of_part(part, step)] if isinstance(part, kinds) else [_wrong(step, what, part, words)]
    found += wrong
    return not wrong


def _of_part(part: Any, step: str | None) -> Iterator[Problem]:
    for name, kinds, wanted in _fields(part.__class__):
        if not isinstance(value := getattr(part, name), kinds):
            yield _wrong(step, f"{type(part).__name__}: {name}", value, wanted)


@cache
def _fields(kind: Any) -> list[tuple[str, tuple[type, ...], str]]:
    """Of a part, those that are text."""
    if not is_dataclass(kind):
        return []
    named = {"name"} if kind in (Recipe, Need) else set()  # those are names as a step's is, and told as such
    known = [one for one in fields(kind) if str(one.type) in _OF_FIELDS and one.name not in named]
    return [(one.name, *_OF_FIELDS[str(one.type)]) for one in known]


def _wrong(step: str | None, what: str, value: object, wanted: str) -> Problem:
    if callable(value) and getattr(value, "__module__", "") == Check.__module__:
        wanted = f"{getattr(value, '__name__', '')}(…)"
    elif callable(value):
        wanted += "; a function is named here, and given to s.groups(handlers={NAME: function})"
    return Problem("value", step, f"{what}: {received(value)} is of another kind; give {wanted}")


def _is_place(given: Any) -> bool:
    return (
        isinstance(given, (list, tuple))
        and len(given) == 3
        and isinstance(given[0], str)
        and isinstance(given[1], str)
        and isinstance(given[2], Mapping)
    )
