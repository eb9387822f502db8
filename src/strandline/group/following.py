"""Works out what follows from a step's rows: expressions and checks, in its transaction or after it. Pure.

every expression has its value      RecipeDone for each
somebody is asked for a result      the question, until its answer is there
every verdict is in                 Checked
one of these has none, or says no   Result: the step has failed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.group.actions import Action, Ask, Note
from strandline.group.checks import Check, Verdict, decided, verdict
from strandline.group.core.encoding import decoded
from strandline.group.core.parts import IDENTITY
from strandline.group.core.step import StepFailed, StepState, evaluated, given, saved, scope_of
from strandline.group.history import History, Payload
from strandline.group.plan import Planned


class Following:
    """Works out expressions and checks, which follow from a step's rows."""

    def __init__(self, history: History) -> None:
        self.history = history

    def answer(self, ask: Ask, now: int, found: list[Action]) -> Payload | None:
        """Return the answer to a question, if it is there. Nobody is asked while a transaction is open."""
        return None

    def follow(self, one: Planned, state: StepState, now: int) -> tuple[list[Action], bool, bool]:
        """Return the actions that follow from a step's rows; whether its success is decided or can be taken for
        granted; and whether all its results and verdicts are there.
        """
        if len(state.results) == len(one.recipes) and (not one.checks or state.success is not None):
            return [], True, True
        notes: list[Action] = []
        asked: list[Action] = []
        try:
            scope = scope_of(one, self.history.steps)
            for recipe in one.recipes:
                if recipe.name in state.results or recipe.handler is not None:
                    continue
                payload: dict[str, Any] = {"step": one.name, "recipe": recipe.name}
                try:
                    if recipe.name != IDENTITY:
                        payload["results"] = evaluated(recipe, scope)
                except StepFailed:
                    if not recipe.optional:
                        raise
                else:
                    notes.append(Note("RecipeDone", payload))
            open_ = False
            for recipe in one.recipes:
                if recipe.name in state.results or recipe.handler is None:
                    continue
                answer = self.answer(Ask(one.name, recipe.name, recipe.handler, recipe.timeout_s), now, asked)
                if answer is None:
                    open_ = True
                elif "results" in answer:
                    payload = {"step": one.name, "recipe": recipe.name}
                    payload["results"] = saved(recipe, decoded(answer["results"]))
                    notes.append(Note("RecipeDone", payload))
                elif not recipe.optional:
                    reason = "recipe_timeout" if answer.get("timed_out") else "recipe_error"
                    raise StepFailed(reason, f"{recipe.name}: {answer['reason']}")
        except StepFailed as failed:
            return [failed_note(one, failed)], False, False
        granted = True
        if one.checks and state.success is None:
            checked, granted = self._verdicts(one, scope, now, asked)
            notes += checked
            open_ = open_ or not checked
            granted = granted and not checked
        return [*notes, *asked], granted and not notes, not open_ and not notes

    def _verdicts(self, one: Planned, scope: Any, now: int, asked: list[Action]) -> tuple[list[Action], bool]:
        """Return `Checked`, once every verdict is in; else whether success can be taken for granted
        meanwhile."""
        affected = given(one, self.history.steps).affected if one.writes else None
        verdicts: list[Verdict | None] = []
        for n, check in enumerate(one.checks):
            if check.kind == "ask":
                ask = Ask(one.name, f"success{n}", check.handler or "", check.timeout_s)
                answer = self.answer(ask, now, asked)
                verdicts.append(None if answer is None else _of_answer(answer))
            else:
                verdicts.append(verdict(check, scope, affected))
        told = [found for found in verdicts if found is not None]
        if len(told) == len(verdicts):
            return [Note("Checked", _checked(one.name, one.checks, told))], False
        waits = any(found is None and not check.optimistic for found, check in zip(verdicts, one.checks, strict=True))
        return [], not waits and all(found.value for found in told)


def failed_note(one: Planned, failed: StepFailed) -> Note:
    payload = {"step": one.name, "reason": failed.reason, "detail": failed.detail, "unknown": failed.unknown}
    return Note("Result", payload)


def _of_answer(answer: Payload) -> Verdict:
    """Return what a handler's answer says about a check."""
    if answer.get("timed_out"):
        return Verdict(False, "check_timeout", answer["reason"])
    if "results" not in answer:
        return Verdict(False, "check_error", answer["reason"])
    results = decoded(answer["results"])
    if "value" not in results:
        return Verdict(False, "check_error", "the answer has no value")
    return decided(results["value"])


def _checked(step: str, checks: tuple[Check, ...], verdicts: list[Verdict]) -> Mapping[str, Any]:
    listed = [
        {"check": check.kind, "value": found.value, "reason": found.reason, "detail": found.detail}
        for check, found in zip(checks, verdicts, strict=True)
    ]
    wrong = next((found for found in verdicts if not found.value), None)
    payload: dict[str, Any] = {"step": step, "verdicts": listed, "success": wrong is None}
    if wrong is not None:
        payload |= {"reason": wrong.reason or "check_false", "detail": wrong.detail}
    return payload
