"""The parts of a step: the steps that it waits for, the results that it hands on, and the handlers that it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from strandline.settings import within

SECONDS: Final = (0.001, 86_400)
"""The bounds of a time-out."""
SUCCESS: Final = "success"
IDENTITY: Final = "identity"
RESERVED_RECIPES: Final = frozenset({SUCCESS, IDENTITY})

Kind = Literal["query", "insert", "update", "delete", "statement", "empty"]


@dataclass(frozen=True, slots=True)
class Dep:
    """A step that must have succeeded before, and its recipe whose results are used. Without a
    recipe only its success counts.
    """

    step: str
    recipe: str | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """Makes results of the rows that a statement returned, by exactly one of an expression and a handler."""

    name: str
    expression: str | None = None
    handler: str | None = None
    ack: bool = False
    timeout_s: float | None = within(None, *SECONDS)
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """Data that a step asks for itself: of a handler, which is given the rows of `step`, or none."""

    name: str
    handler: str
    step: str | None = None
    timeout_s: float | None = within(None, *SECONDS)


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler that undoes a step."""

    name: str
    ack: bool = False
    timeout_s: float | None = within(None, *SECONDS)


@dataclass(frozen=True, slots=True)
class Hook:
    """A handler that is told, and never waited for."""

    handler: str
    ack: bool = False
    timeout_s: float | None = within(None, *SECONDS)


@dataclass(frozen=True, slots=True)
class StartHandler:
    """A group's pre-hook that starts a handler from JSON, for this group alone. This one is waited for."""

    name: str
    factory: str
    props: Mapping[str, Any] = field(default_factory=dict)


# ---------------------------------------------------------------- messages to handlers, and their answers


class Data(NamedTuple):
    """The rows that a statement returned."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    affected: int | None = None

    def by_column(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Produce(NamedTuple):
    """Asks a handler for the results of a recipe, a need or a check. A second delivery has the same `message_id`."""

    data: Data
    group: str
    step: str
    recipe: str
    message_id: str
    attempt: int = 1
    deadline: int = 0
    """Microseconds."""


class Produced(NamedTuple):
    """Gives the results, by name."""

    results: Mapping[str, Any]


class Refused(NamedTuple):
    """Says that there are no results, and why. `retryable`: the handler may be asked again."""

    reason: str
    retryable: bool = False


class Undo(NamedTuple):
    """Asks a handler to undo what a step did, or (outcome `unknown`) may have done."""

    group: str
    step: str
    outcome: Literal["done", "unknown"]
    data: Data
    message_id: str


class HookMessage(NamedTuple):
    """The message to a hook. `n` grows with every message of a group."""

    group: str
    step: str
    when: Literal["pre", "post"]
    n: int
    message_id: str
    succeeded: bool | None = None
    """Of a step's post-hook: whether the step succeeded."""
    end: str | None = None
    """Of the group's post-hook: the state in which the group ended."""


class StartMessage(NamedTuple):
    """Asks the process that serves code of a version to start a handler, for one group alone."""

    group: str
    name: str
    factory: str
    props: Mapping[str, Any]
    message_id: str


class Stop(NamedTuple):
    """Tells a handler that was started for a group that the group has ended."""

    group: str
    name: str
    message_id: str
