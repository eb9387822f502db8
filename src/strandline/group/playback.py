"""Playback: what a history says is worked out again, without handlers and without targets.

Rows and answers are taken from the history; bindings, expressions, checks and the decision are made anew and compared.
The first difference is named: a value that was changed afterwards, or a rule that is another one now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import InvalidExpression
from strandline.group.checks import verdict
from strandline.group.core.binding import UnboundParameter, bound
from strandline.group.core.encoding import encoded
from strandline.group.core.expression import compiled
from strandline.group.core.parts import Data
from strandline.group.core.scope import Scope
from strandline.group.history import History
from strandline.group.plan import GroupPlan, Planned

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Played:
    """What a playback found."""

    id: str
    steps: int
    difference: str | None = None
    """The first one, None if there is none."""

    @property
    def equal(self) -> bool:
        return self.difference is None


def verified(history: History, plan: GroupPlan) -> Played:
    """Work a group out again from its history."""
    return Played(history.id, len(plan.steps), next(_differences(history, plan), None))


def _differences(history: History, plan: GroupPlan) -> Iterator[str]:
    for name, one in plan.steps.items():
        yield from _of_step(history, one, name)
    if history.decided == "commit":
        wrong = [name for name in plan.steps if history.step(name).reason is not None]
        if wrong:
            yield f"decision: commit, though {wrong[0]} failed with {history.step(wrong[0]).reason}"
    elif history.decided == "rollback" and history.failed_step in plan.steps:
        reason = history.step(str(history.failed_step)).reason
        if reason != history.reason:
            yield f"decision: {history.failed_step} failed with {history.reason}, its result says {reason}"


def _of_step(history: History, one: Planned, name: str) -> Iterator[str]:
    state = history.step(name)
    if state.data is None and (one.plan is not None or not (state.results or state.verdicts)):
        return
    results = {source.name: history.step(source.name).results for source in one.sources.values() if source.recipe}
    try:
        context = bound({key: one_ for key, one_ in one.sources.items() if one_.kind != "row"}, one.values, results)
    except UnboundParameter as error:
        if state.reason != "binding":
            yield f"{name}: {error}"
        return
    source = history.step(one.data_from).data if one.data_from else state.data
    given = source or Data()
    scope = Scope(given.by_column(), columns=given.columns, tables=one.tables, data={**one.values, **context})
    for recipe in one.recipes:
        if recipe.expression is not None and recipe.name in state.results:
            again = _value(recipe.expression, scope)
            saved = state.results[recipe.name].get("value", _NOTHING)
            if again is _NOTHING or saved is _NOTHING or encoded(again) != encoded(saved):
                yield f"{name}.{recipe.name}: {_shown(saved)} is saved, {_shown(again)} is what it comes to"
    for n, check in enumerate(one.checks[: len(state.verdicts)]):
        if check.kind == "ask":
            continue
        affected = (state.data or Data()).affected if one.writes else None
        now = verdict(check, scope, affected)
        if now.value != state.verdicts[n]["value"]:
            yield f"{name}, check {n + 1} ({check.kind}): {state.verdicts[n]['value']} is saved, {now.value} it is"
    if state.verdicts and state.success != all(found["value"] for found in state.verdicts):
        yield f"{name}: its success is {state.success}, its verdicts say otherwise"


def _value(expression: str, scope: Scope) -> Any:
    try:
        return compiled(expression)(scope)
    except InvalidExpression:
        return _NOTHING


def _shown(value: Any) -> str:
    return "nothing" if value is _NOTHING else f"{value!r:.100}"
