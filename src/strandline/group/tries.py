"""Decides whether and when a failed action is tried again: one rule for all actions. Pure.

    forward   the target is away, and its group has changed nothing    it waits for the target
              an error that may pass                                   `retries` times
              the same of an irreversible step, and of the last        until the answer is definite
              segment while nobody knows whether it is committed
    back      an error that may pass                                   `retries` times, of an undo `undo_retries` times
              the target does not answer                               for `undo_wait_s`

From one try to the next it takes 0.1 s, doubled each time up to 5 s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from strandline.group.core.step import StepFailed
from strandline.group.plan import Planned
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S, GroupSettings


@dataclass(slots=True)
class Tries:
    """The tries of one action. Times are seconds of any clock that goes on."""

    settings: GroupSettings
    since: float
    count: int = 0
    wait_s: float = field(default_factory=lambda: WAIT_LEAST_S)
    unknown: bool = False
    """Whether one of the tries may have been executed although it failed."""

    def again(self) -> float:
        """Count one more try, and return the delay before it."""
        wait_s, self.count, self.wait_s = self.wait_s, self.count + 1, min(2 * self.wait_s, WAIT_MOST_S)
        return wait_s

    def forward(self, failed: StepFailed, one: Planned, *, last: bool, untouched: bool) -> Literal["no", "try", "wait"]:
        """Return what becomes of a segment that failed. `last`: its commit decides the group; `untouched`: the group
        has changed nothing."""
        if failed.away and failed.retry and not failed.unknown and untouched:
            return "wait"
        definite = one.undo != "never" and not (last and failed.unknown)
        return "try" if failed.retry and (not definite or self._left(one)) else "no"

    def back(self, failed: StepFailed, one: Planned, now: float) -> bool:
        """Return whether a rollback step is tried again."""
        return (failed.retry and (one.undo == "never" or self._left(one))) or (failed.gone and self.waits(now))

    def waits(self, now: float) -> bool:
        """Return whether a target that does not answer is waited for, going back."""
        return now - self.since < self.settings.undo_wait_s

    def undo(self) -> bool:
        """Return whether an undo is tried again that was refused for now."""
        return self.count < self.settings.undo_retries

    def _left(self, one: Planned) -> bool:
        retries = self.settings.retries if one.step.retries is None else one.step.retries
        return self.count < retries
