"""One step: its state, the values of its parameters and the values of its expressions. Pure.

Order: the statement is executed and its rows are kept; all recipes are made of them, side by side; each result is saved
and handed on as it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import orjson

from strandline.errors import InvalidExpression, InvalidInput
from strandline.group.core.binding import Results, Source, UnboundParameter, bound
from strandline.group.core.encoding import encoded, readable
from strandline.group.core.expression import compiled
from strandline.group.core.parts import Data, Recipe
from strandline.group.core.scope import Scope

State = Literal["waiting", "running", "succeeded", "failed", "unknown", "skipped", "undoing", "undone", "undo_failed"]
VALUE: Final = "value"
DETAIL_MAX: Final = 10_000
"""The most characters of a failure's detail that are kept."""
RESULTS_BYTES: Final = 512 * 1024


class StepFailed(Exception):
    """A step has failed, for one of the reasons of the specification."""

    gone = False
    """True if its target did not answer."""

    def __init__(
        self, reason: str, detail: str = "", *, retry: bool = False, unknown: bool = False, away: bool = False
    ) -> None:
        """`retry`: the same step may succeed in a moment. `unknown`: its statement may have been executed nevertheless.
        `away`: its target did not answer.
        """
        detail = readable(detail[:DETAIL_MAX])
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.retry, self.unknown, self.away = reason, detail, retry, unknown, away


class StepDefinition(Protocol):
    """What the core needs to know of a step."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> Mapping[str, Any]: ...
    @property
    def recipes(self) -> Sequence[Recipe]: ...
    @property
    def sources(self) -> Mapping[str, Source]:
        """The source of each parameter of its statement and its expressions."""

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
        """Return whether the step has no state yet."""
        return self.state in ("waiting", "skipped") and not (self.started or self.ended or self.results or self.reason)


States = Mapping[str, StepState]


def identity(data: Data) -> dict[str, Any]:
    """Return what recipe `identity` saves: the rows, by column, and the columns."""
    return {"rows": data.by_column(), "columns": list(data.columns)}


def context(job: StepDefinition, states: States) -> dict[str, Any]:
    """Return the value of each parameter of a step; `StepFailed` (binding) if one is not there."""
    results: Results = {source.name: states[source.name].results for source in job.sources.values() if source.recipe}
    try:
        return bound({name: one for name, one in job.sources.items() if one.kind != "row"}, job.values, results)
    except UnboundParameter as error:
        raise StepFailed("binding", str(error)) from None


def given(job: StepDefinition, states: States) -> Data:
    """Return the rows that a step's recipes are given."""
    state = states.get(job.data_from or job.name)
    return (state.data if state is not None else None) or Data()


def scope_of(job: StepDefinition, states: States) -> Scope:
    """Return all that a step's expressions may name."""
    data = given(job, states)
    values = {**job.values, **context(job, states)}
    return Scope(data.by_column(), columns=data.columns, tables=job.tables, data=values)


def evaluated(recipe: Recipe, scope: Scope) -> dict[str, Any]:
    """Return the results of an expression as they are saved; `StepFailed` if it has none."""
    try:
        results = {VALUE: compiled(recipe.expression or "")(scope)}
    except InvalidExpression as error:
        raise StepFailed("recipe_error", f"{recipe.name}: {error.message}") from None
    return saved(recipe, results)


def saved(recipe: Recipe, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results as the history keeps them; `StepFailed` for those that it cannot keep."""
    try:
        made: dict[str, Any] = encoded(dict(results))
        size = len(orjson.dumps(made))
    except (InvalidInput, orjson.JSONEncodeError, RecursionError, ValueError) as error:
        raise StepFailed("recipe_error", f"{recipe.name}: {error}") from None
    if size > RESULTS_BYTES:
        raise StepFailed("too_large", f"{recipe.name}: {size:,} bytes of results; at most {RESULTS_BYTES:,}")
    return made
