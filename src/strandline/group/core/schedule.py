"""Which steps may start: as soon as what they wait for is there, whatever others of equal depth do.

    waiting ──▶ running ──▶ succeeded | failed | unknown
       └──────▶ skipped, once a step before it has failed

A dependency is met when the named recipe's result is saved *and* the success of its step is decided. Pure: it is told
what happened, and says what comes next. Used under a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal

from strandline.group.core.parts import SUCCESS

State = Literal["waiting", "running", "succeeded", "failed", "unknown", "skipped", "undoing", "undone", "undo_failed"]
Want = tuple[str, str]
"""A step, and the recipe of it that is waited for."""


class Schedule:
    """Keeps which steps of a group have run, run now and may start."""

    def __init__(self, wants: Mapping[str, Iterable[Want]]) -> None:
        """`wants` has what each step waits for, in the order of definition."""
        self.state: dict[str, State] = dict.fromkeys(wants, "waiting")
        self._left = {step: len(set(wanted)) for step, wanted in wants.items()}
        self._waiting: dict[Want, list[str]] = {}
        for step, wanted in wants.items():
            for want in dict.fromkeys(wanted):
                self._waiting.setdefault(want, []).append(step)
        self._behind: dict[str, list[str]] = {}
        for (need, _), steps in self._waiting.items():
            self._behind.setdefault(need, []).extend(steps)
        self._saved: dict[str, list[str]] = {}
        self._decided: set[str] = set()
        self._ready = deque(step for step, left in self._left.items() if not left)

    def take(self) -> str | None:
        """Return a step that may start, the one that became ready first; it counts as running from here on."""
        while self._ready:
            step = self._ready.popleft()
            if self.state[step] == "waiting":
                self.state[step] = "running"
                return step
        return None

    def saved(self, step: str, recipe: str) -> None:
        """Note that the result of a recipe is saved."""
        if recipe not in self._saved.setdefault(step, []):
            self._saved[step].append(recipe)
            if step in self._decided:
                self._met((step, recipe))

    def succeeded(self, step: str) -> None:
        """Note that a step has succeeded."""
        self.state[step] = "succeeded"
        self.decided(step)

    def decided(self, step: str) -> None:
        """Note that a step's success is decided, or taken for granted; not all of its recipes need be done."""
        if step not in self._decided:
            self._decided.add(step)
            for recipe in dict.fromkeys([SUCCESS, *self._saved.get(step, ())]):
                self._met((step, recipe))

    def failed(self, step: str, state: State = "failed") -> list[str]:
        """Note that a step has failed, and return the steps behind it: they never start."""
        self.state[step] = state
        skipped = []
        waiting = [step]
        while waiting:
            for behind in self._behind.get(waiting.pop(), ()):
                if self.state[behind] == "waiting":
                    self.state[behind] = "skipped"
                    skipped.append(behind)
                    waiting.append(behind)
        return skipped

    def _met(self, want: Want) -> None:
        for step in self._waiting.get(want, ()):
            self._left[step] -= 1
            if not self._left[step]:
                self._ready.append(step)
