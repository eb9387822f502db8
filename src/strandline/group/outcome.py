"""The outcome, or present state, of a group and its steps: what a program sees of a history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strandline.group.history import History


class StepOutcome(NamedTuple):
    """The outcome of a step."""

    state: str
    results: Mapping[str, Mapping[str, Any]]
    """Recipe → result → value."""
    affected: int | None = None
    reason: str | None = None
    detail: str = ""
    verdicts: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    started: int = 0
    ended: int = 0
    conflicts: tuple[Mapping[str, Any], ...] = ()
    """The rows in the way of an undo that failed: key, before, after, current."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a group, or its present state."""

    id: str
    state: str
    failed_step: str | None = None
    reason: str | None = None
    detail: str = ""
    steps: Mapping[str, StepOutcome] = field(default_factory=dict)
    stream: str = ""
    place: int = 0
    started: int = 0
    ended: int = 0
    holder: str | None = None
    """The process that runs its stream."""
    hung: tuple[str, ...] = ()
    """Handlers that were asked and have not returned in time."""
    waits_for: str | None = None
    """The thing that must be there before it runs."""


def outcome_of(history: History, *, holder: str | None = None, hung: tuple[str, ...] = ()) -> Outcome:
    """Return a history as a program sees it."""
    detail = "; ".join(filter(None, (history.detail, history.stuck)))
    return Outcome(
        history.id, history.state, history.failed_step, history.why, detail, dict(_steps(history)),
        history.stream, history.place, history.started, history.ended, holder, hung,
    )  # fmt: skip


def _steps(history: History) -> Iterator[tuple[str, StepOutcome]]:
    declared = [step["name"] for step in history.definition.get("steps", ())]
    touched = (name for name, step in history.steps.items() if not step.untouched)  # generated steps may be among them
    for name in dict.fromkeys([*declared, *touched]):
        step = history.step(name)
        state = step.state
        if state == "waiting" and history.decided == "rollback":
            state = "skipped"
        elif state == "waiting" and history.decided == "commit":
            state = "succeeded"  # it is an empty step without results
        undo = history.undo.get(name)
        yield (
            name,
            StepOutcome(
                state,
                step.results,
                step.data.affected if step.data is not None else None,
                step.reason,
                "; ".join(filter(None, (step.detail, f"undo: {undo.detail}" if undo and undo.detail else ""))),
                tuple(step.verdicts),
                tuple(step.data.by_column()) if step.data is not None else (),
                step.started,
                step.ended,
                tuple(undo.conflicts) if undo is not None else (),
            ),
        )
