"""The graph of a group's steps: kept as dependents, free of cycles after every change, and never walked recursively."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping


class Graph:
    """Keeps which step waits for which. A step may be waited for before it is added."""

    def __init__(self) -> None:
        self._needs: dict[str, dict[str, None]] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def add(self, step: str, needs: Iterable[str]) -> list[str] | None:
        """Add a step behind others. If that would close a cycle, change nothing and return the
        cycle's names in order.
        """
        wanted = list(dict.fromkeys(needs))
        if cycle := self._cycle(step, wanted):
            return cycle
        self._needs.setdefault(step, {}).update(dict.fromkeys(wanted))
        for need in wanted:
            self._dependents.setdefault(need, {})[step] = None
        return None

    def has(self, step: str) -> bool:
        """Return whether a step was added, or has to wait for others."""
        return step in self._needs

    def has_edge(self, step: str, need: str) -> bool:
        """Return whether a step waits for another one directly."""
        return need in self._needs.get(step, ())

    def remove(self, step: str, needs: Iterable[str], known: bool) -> None:
        """Undo the last call of `add`. `known`: the graph had the step before that call."""
        for need in needs:
            self._needs[step].pop(need, None)
            self._dependents[need].pop(step, None)
        if not known:
            del self._needs[step]

    def dependents(self, step: str) -> tuple[str, ...]:
        """Return the steps that wait for a step: exactly the inverse of what was declared."""
        return tuple(self._dependents.get(step, ()))

    def order(self) -> list[str]:
        """Return all steps, each behind those that it waits for. Of several, the one added first comes first."""
        place = {step: n for n, step in enumerate(self._needs)}
        left = {step: sum(need in place for need in needs) for step, needs in self._needs.items()}
        ready = [place[step] for step, count in left.items() if not count]
        heapq.heapify(ready)
        names, found = list(place), []
        while ready:
            step = names[heapq.heappop(ready)]
            found.append(step)
            for dependent in self._dependents.get(step, ()):
                left[dependent] -= 1
                if not left[dependent]:
                    heapq.heappush(ready, place[dependent])
        return found

    def _cycle(self, step: str, needs: list[str]) -> list[str] | None:
        """Return the cycle that these needs would close, in the order in which its steps would run.

        The search goes forward from the step and back from its needs in turns, and ends with the side that is exhausted
        first. So a chain costs the same from whichever end it is defined.
        """
        if step in needs:
            return [step, step]
        down: dict[str, str | None] = {step: None}
        up: dict[str, str | None] = dict.fromkeys(needs)
        wanted = set(needs)
        for behind, before in zip(_walk(self._dependents, down), _walk(self._needs, up), strict=False):
            if behind in wanted:
                return [*reversed(_way(behind, down)), step]
            if before == step:
                return [*_way(step, up), step]
        return None


def _walk(edges: Mapping[str, Iterable[str]], came: dict[str, str | None]) -> Iterator[str]:
    """Yield each name that can be reached from those in `came`, once, and note in `came` from where."""
    waiting = list(came)
    while waiting:
        name = waiting.pop()
        for following in edges.get(name, ()):
            if following not in came:
                came[following] = name
                waiting.append(following)
                yield following


def _way(name: str | None, came: Mapping[str, str | None]) -> list[str]:
    found = []
    while name is not None:
        found.append(name)
        name = came[name]
    return found
