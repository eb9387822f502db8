"""Decides which steps may start: each as soon as what it waits for is there, independently of all other steps.

A dependency is met when the named recipe's result is saved *and* the success of its step is decided. A step that waits
for a failed step never starts. The schedule does no input or output. Its caller holds a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from strandline.group.core.parts import SUCCESS

Want = tuple[str, str]
"""A step, and the recipe of it that another step waits for."""


class Schedule:
    """Keeps which steps of a group may start."""

    def __init__(self, wants: Mapping[str, Iterable[Want]]) -> None:
        """`wants` has what each step waits for, in the order of definition."""
        self._left = {step: len(set(wanted)) for step, wanted in wants.items()}
        self._waiting: dict[Want, list[str]] = {}
        for step, wanted in wants.items():
            for want in dict.fromkeys(wanted):
                self._waiting.setdefault(want, []).append(step)
        self._saved: dict[str, list[str]] = {}
        self._decided: set[str] = set()
        self._ready = deque(step for step, left in self._left.items() if not left)

    def take(self) -> str | None:
        """Return a step that may start, the one that became ready first. Each is returned once."""
        return self._ready.popleft() if self._ready else None

    def saved(self, step: str, recipe: str) -> None:
        """Note that the result of a recipe is saved."""
        if recipe not in self._saved.setdefault(step, []):
            self._saved[step].append(recipe)
            if step in self._decided:
                self._met((step, recipe))

    def decided(self, step: str) -> None:
        """Note that a step has succeeded, or that this is taken for granted; not all of its recipes need be done."""
        if step not in self._decided:
            self._decided.add(step)
            for recipe in dict.fromkeys([SUCCESS, *self._saved.get(step, ())]):
                self._met((step, recipe))

    def _met(self, want: Want) -> None:
        for step in self._waiting.get(want, ()):
            self._left[step] -= 1
            if not self._left[step]:
                self._ready.append(step)
