"""The groups of a stream whose rows are free, in stream order, and the running ones. The caller
holds a lock at each call.

ready ──▶ running, something of it under way (`busy`) or not ──▶ at rest: ended, put aside or parked ──▶ settled
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.group.driver import Drive


class RunLine:
    def __init__(self, most: int) -> None:
        """`most`: the most groups that run at a time."""
        self._most = most
        self.ready: deque[Drive] = deque()
        self.busy: set[str] = set()
        """Groups of which something runs here."""
        self.at_rest: deque[Drive] = deque()
        self._running = 0
        """The number of groups that run and are not settled."""

    @property
    def is_full(self) -> bool:
        """Return whether so many groups have come to rest that the loop should settle them."""
        return len(self.at_rest) >= self._most

    def start(self) -> Drive | None:
        """Take the next group that may run, if there is room for one more."""
        busy = len(self.busy) if self._most > 1 else self._running - len(self.at_rest)
        if not self.ready or busy >= self._most:
            return None
        one = self.ready.popleft()
        one.running = True
        self._running += 1
        self.busy.add(one.id)
        return one

    def left(self, one: Drive) -> None:
        """Note that no thread works on a group any more: it waits, is put aside, or has ended."""
        self.busy.discard(one.id)
        if one.running and not one.resting and (one.ended or not one.begun):
            one.resting = True
            self.at_rest.append(one)

    def settle(self) -> Drive | None:
        """Note that the loop has seen that a group came to rest. The group may be started again."""
        if not self.at_rest:
            return None
        one = self.at_rest.popleft()
        one.running = one.resting = False
        self._running -= 1
        return one
