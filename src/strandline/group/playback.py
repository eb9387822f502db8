"""Playback works a group out again from its history, without handlers and without targets.

Rows and answers are taken from the history; bindings, expressions, checks and the decision are made anew and compared.
The result names the first difference: a value that was changed afterwards, or a rule that has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.group.checks import verdict
from strandline.group.core.encoding import decoded, encoded
from strandline.group.core.parts import Data, Recipe
from strandline.group.core.scope import Scope
from strandline.group.core.step import VALUE, States, StepFailed, evaluated, scope_of
from strandline.group.history import History
from strandline.group.plan import GroupPlan, Planned


@dataclass(frozen=True, slots=True)
class Played:
    """The finding of a playback."""

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
    states = {name: history.step(name) for name in (*plan.steps, *plan.rollback)}
    for name, one in plan.steps.items():
        yield from _of_step(states, one, name)
    if history.decided == "commit":
        wrong = [name for name in plan.steps if states[name].reason is not None]
        if wrong:
            yield f"decision: commit, though {wrong[0]} failed with {states[wrong[0]].reason}"
    elif history.decided == "rollback" and history.failed_step in plan.steps:
        reason = states[str(history.failed_step)].reason
        if reason != history.reason:
            yield f"decision: {history.failed_step} failed with {history.reason}, its result says {reason}"


def _of_step(states: States, one: Planned, name: str) -> Iterator[str]:
    state = states[name]
    if state.data is None and (one.plan is not None or not (state.results or state.verdicts)):
        return
    try:
        scope = scope_of(one, states)
    except StepFailed as failed:
        if state.reason != failed.reason:
            yield f"{name}: {failed.detail}"
        return
    for recipe in one.recipes:
        if recipe.expression is not None and recipe.name in state.results:
            saved, again = state.results[recipe.name], _again(recipe, scope)
            if again is None or encoded(saved) != again:
                yield f"{name}.{recipe.name}: {_shown(saved)} is saved, {_shown(decoded(again))} is what it comes to"
    for n, check in enumerate(one.checks[: len(state.verdicts)]):
        if check.kind == "ask":
            continue
        affected = (state.data or Data()).affected if one.writes else None
        now = verdict(check, scope, affected)
        if now.value != state.verdicts[n]["value"]:
            yield f"{name}, check {n + 1} ({check.kind}): {state.verdicts[n]['value']} is saved, {now.value} it is"
    if state.verdicts and state.success != all(found["value"] for found in state.verdicts):
        yield f"{name}: its success is {state.success}, its verdicts say otherwise"


def _again(recipe: Recipe, scope: Scope) -> dict[str, Any] | None:
    try:
        return evaluated(recipe, scope)
    except StepFailed:
        return None


def _shown(results: Mapping[str, Any] | None) -> str:
    return "nothing" if results is None or VALUE not in results else f"{results[VALUE]!r:.100}"
