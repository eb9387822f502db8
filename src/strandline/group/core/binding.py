"""Binding: where each parameter of a step comes from, found when its group is defined, and its value when it runs.

:name                 a value given at creation
:recipe.result        of a recipe that the step depends on; also :alias.result, and :need.result
:step.recipe.result   of a recipe of a step that it depends on
:row.column           with for_each, of the row at hand
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from strandline.group.core.names import Problem

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Step → recipe → result → value."""
ROW: Final = "row"


class Source(NamedTuple):
    """Where a parameter's value comes from."""

    kind: Literal["value", "result", "row"]
    name: str
    """The name of the value, of the step, or of the column."""
    recipe: str = ""
    result: str = ""


class Offer(NamedTuple):
    """A recipe whose results a step may use, and the names by which it may be called."""

    step: str
    recipe: str
    names: tuple[str, ...]


class UnboundParameter(Exception):
    """A parameter has no value, or not one of this kind."""


def resolve(
    step: str, parameters: Iterable[tuple[str, int]], values: Iterable[str], offers: list[Offer], *, row: bool = False
) -> tuple[dict[str, Source], list[Problem]]:
    """Return the source of each parameter (name, position). No source, or more than one, is a problem."""
    found: dict[str, Source] = {}
    problems: list[Problem] = []
    given = set(values)
    for name, position in parameters:
        sources = _sources(name.split("."), given, offers, row)
        if len(sources) == 1:
            found[name] = sources[0]
            continue
        if sources:
            several = ", ".join(f":{one.name}.{one.recipe}.{one.result}" for one in sources)
            text = f"more than one step provides :{name}: say {several}, or give an alias"
        else:
            text = f"nobody provides :{name}"
        problems.append(Problem("parameter_missing", step, text, position))
    return found, problems


def _sources(path: list[str], values: set[str], offers: list[Offer], row: bool) -> list[Source]:
    if len(path) == 1:
        return [Source("value", path[0])] if path[0] in values else []
    if len(path) == 2:
        if row and path[0] == ROW:
            return [Source("row", path[1])]
        return list(
            dict.fromkeys(Source("result", one.step, one.recipe, path[1]) for one in offers if path[0] in one.names)
        )
    if len(path) == 3:
        named = [one for one in offers if one.step == path[0] and one.recipe == path[1]]
        return [Source("result", path[0], path[1], path[2])] if named else []
    return []


def bound(
    sources: Mapping[str, Source], values: Mapping[str, Any], results: Results, row: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the value of each parameter; `UnboundParameter` if one is not there."""
    made = {}
    for name, source in sources.items():
        try:
            if source.kind == "value":
                made[name] = values[source.name]
            elif source.kind == "row":
                made[name] = (row or {})[source.name]
            else:
                made[name] = results[source.name][source.recipe][source.result]
        except KeyError:
            raise UnboundParameter(f":{name} has no value") from None
    return made
