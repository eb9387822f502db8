"""One step: its statement, its rows, its recipes, and what it hands on.

Order: the statement is executed and its rows are kept; all recipes are made of them, side by side; each result is saved
and handed on as it comes. What is known already (after a crash) is not done or asked again. Who runs a step is its
*host*: it executes, asks handlers, decides about success, and records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from strandline.errors import InvalidExpression
from strandline.group.core.binding import Results, Source, Unbound, bound
from strandline.group.core.encoding import readable
from strandline.group.core.expression import compiled
from strandline.group.core.parts import IDENTITY, Data, Recipe
from strandline.group.core.schedule import State
from strandline.group.core.scope import Scope

VALUE: Final = "value"
DETAIL_MAX: Final = 10_000
"""Characters of what is told of a failure."""


class StepFailed(Exception):
    """A step has failed, for one of the reasons of the specification."""

    def __init__(self, reason: str, detail: str = "", *, unknown: bool = False, away: bool = False) -> None:
        """`unknown`: its statement may have been executed all the same; `away`: its target did not answer."""
        detail = readable(detail[:DETAIL_MAX])
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.unknown, self.away = reason, detail, unknown, away


class Job(Protocol):
    """What the core needs to know of a step."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> Mapping[str, Any]: ...
    @property
    def recipes(self) -> Sequence[Recipe]: ...
    @property
    def sources(self) -> Mapping[str, Source]:
        """Of the parameters of its statement and its expressions."""

    @property
    def tables(self) -> Sequence[str]:
        """Names by which an expression may call its row."""

    @property
    def data_from(self) -> str | None:
        """The step whose rows its recipes are given, if not its own."""


@dataclass(slots=True)
class StepState:
    """What is known of a step."""

    state: State = "waiting"
    data: Data | None = None
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Recipe → result → value."""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    success: bool | None = None
    reason: str | None = None
    detail: str = ""
    started: int = 0
    ended: int = 0
    attempts: int = 0

    @property
    def untouched(self) -> bool:
        """Whether nothing is known of it."""
        return self.state in ("waiting", "skipped") and not (self.started or self.ended or self.results or self.reason)


class Host(Protocol):
    """Who runs the steps of a group. Any of its methods may raise `StepFailed`."""

    def execute(self, job: Job, values: Mapping[str, Any]) -> Data:
        """Execute the statement."""

    def ask(self, job: Job, recipe: Recipe, data: Data) -> Callable[[], Mapping[str, Any]]:
        """Ask the recipe's handler; what is given waits for its results."""

    def decide(self, job: Job, data: Data, scope: Scope, decided: Callable[[], None]) -> None:
        """Return if the step has succeeded. `decided` may be called before that is sure, so that others start."""

    def save(self, job: Job, recipe: str, results: Mapping[str, Any]) -> None:
        """A recipe's results are there: keep them, then hand them on."""


def perform(
    job: Job, state: StepState, states: Mapping[str, StepState], host: Host, decided: Callable[[], None]
) -> None:
    """Do a step, or what is left of it; `StepFailed` if it fails.

    `decided` is called as soon as it has succeeded, if there is something of it still to come.
    """
    values = context(job, states)
    if state.data is None:
        state.data = host.execute(job, values)
    data = state.data
    given = states[job.data_from].data or Data() if job.data_from else data
    scope = Scope(given.by_column(), columns=given.columns, tables=job.tables, data={**job.values, **values})
    wanted = [recipe for recipe in job.recipes if recipe.name not in state.results]
    asked = [(recipe, host.ask(job, recipe, given)) for recipe in wanted if recipe.handler is not None]
    for recipe in wanted:
        if recipe.name == IDENTITY:
            host.save(job, IDENTITY, identity(given))
        elif recipe.expression is not None:
            _save(job, recipe, host, partial(_evaluated, recipe.expression, scope))
    host.decide(job, data, scope, decided)
    if asked:
        decided()
    for recipe, answer in asked:
        _save(job, recipe, host, answer)


def _evaluated(expression: str, scope: Scope) -> dict[str, Any]:
    return {VALUE: compiled(expression)(scope)}


def identity(data: Data) -> dict[str, Any]:
    """What recipe `identity` saves: the rows, by column, and the columns."""
    return {"rows": data.by_column(), "columns": list(data.columns)}


def context(job: Job, states: Mapping[str, StepState]) -> dict[str, Any]:
    """The value of each parameter of a step."""
    results: Results = {source.name: states[source.name].results for source in job.sources.values() if source.recipe}
    try:
        return bound({name: one for name, one in job.sources.items() if one.kind != "row"}, job.values, results)
    except Unbound as error:
        raise StepFailed("binding", str(error)) from None


def _save(job: Job, recipe: Recipe, host: Host, made: Callable[[], Mapping[str, Any]]) -> None:
    try:
        results = made()
    except InvalidExpression as error:
        results, failure = {}, StepFailed("recipe_error", f"{recipe.name}: {error.message}")
    except StepFailed as error:
        results, failure = {}, error
    else:
        host.save(job, recipe.name, results)
        return
    if not recipe.optional:
        raise failure
