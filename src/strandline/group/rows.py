"""Which groups may run side by side: those that hold no row in common, or only read it.

At admission, in stream order, a group joins the queue of each place that it holds. It may start when no earlier group
blocks it, so groups never overtake each other on a row, and never wait in a circle. A place is a path: a target, a
table, a row. A group that holds a table blocks one that holds a row of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from strandline.group.points import reached
from strandline.group.statements.api import Held

Place = tuple[Any, ...]


class _Queue:
    """The groups at one place: those that read or write it whole, or something below it."""

    __slots__ = ("readers", "readers_below", "writers", "writers_below")

    def __init__(self) -> None:
        self.writers: dict[Hashable, None] = {}
        self.readers: dict[Hashable, None] = {}
        self.writers_below: dict[Hashable, None] = {}
        self.readers_below: dict[Hashable, None] = {}

    def all(self) -> tuple[dict[Hashable, None], ...]:
        return self.writers, self.readers, self.writers_below, self.readers_below


class RowQueues:
    """The groups that were admitted and are not over, in the order of their admission."""

    def __init__(self) -> None:
        self._at: dict[Place, _Queue] = {}
        self._places: dict[Hashable, tuple[Held, ...]] = {}
        self._blockers: dict[Hashable, set[Hashable]] = {}
        self._waiting: dict[Hashable, set[Hashable]] = {}

    def admit(self, group: Hashable, holds: Iterable[Held]) -> bool:
        """Join the queues; return whether the group may start at once."""
        held = tuple(dict.fromkeys(holds))
        blockers: set[Hashable] = set()
        for one in held:
            blockers.update(self._in_the_way(one))
        self._join(group, held)
        self._blockers[group] = blockers
        if blockers:
            reached("group.waits_for_rows")
        for blocker in blockers:
            self._waiting.setdefault(blocker, set()).add(group)
        return not blockers

    def behind(self, group: Hashable) -> list[Hashable]:
        """Return the groups that wait for this one."""
        return list(self._waiting.get(group, ()))

    def release(self, group: Hashable, keep: Iterable[Held] = ()) -> list[Hashable]:
        """Leave the queues, except those of `kept` places; return the groups that may start now."""
        for one in self._places.pop(group, ()):
            self._leave(group, one)
        kept = tuple(dict.fromkeys(keep))
        if kept:
            self._join(group, kept)
        free = []
        for waiting in self._waiting.pop(group, set()):
            if kept and any(mine.meets(theirs) for mine in kept for theirs in self._places.get(waiting, ())):
                reached("group.rows_stay_held")
                self._waiting.setdefault(group, set()).add(waiting)
                continue
            blockers = self._blockers.get(waiting)
            if blockers is not None:
                blockers.discard(group)
                if not blockers:
                    free.append(waiting)
        if not kept:
            self._blockers.pop(group, None)
        return free

    def _in_the_way(self, one: Held) -> Iterable[Hashable]:
        for cut in range(len(one.place)):
            if (queue := self._at.get(one.place[:cut])) is not None:
                yield from queue.writers
                if one.writes:
                    yield from queue.readers
        if (queue := self._at.get(one.place)) is not None:
            yield from queue.writers
            yield from queue.writers_below
            if one.writes:
                yield from queue.readers
                yield from queue.readers_below

    def _join(self, group: Hashable, held: tuple[Held, ...]) -> None:
        self._places[group] = held
        for one in held:
            queue = self._at.setdefault(one.place, _Queue())
            (queue.writers if one.writes else queue.readers)[group] = None
            for cut in range(len(one.place)):
                above = self._at.setdefault(one.place[:cut], _Queue())
                (above.writers_below if one.writes else above.readers_below)[group] = None

    def _leave(self, group: Hashable, one: Held) -> None:
        for cut in range(len(one.place) + 1):
            queue = self._at.get(one.place[:cut])
            if queue is not None:
                for those in queue.all():
                    those.pop(group, None)
                if not any(queue.all()):
                    del self._at[one.place[:cut]]
