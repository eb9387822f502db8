"""How far a processor is in its stream: what it has read, and up to which entry all groups have ended. Up to `done_to`
every group has ended or is listed with the lease: the stream is deleted up to there, and a restart reads on from there.
No group begins more than 1,000 entries after `done_to`, so a processor that takes over knows which groups may have
begun.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from strandline.group.lease import LastBeat, StreamLease, StreamPlace
from strandline.group.names import stream_key
from strandline.group.points import reached
from strandline.journal.journal import Journal

LOOK_AHEAD: Final = 1000
TICK_S: Final = 0.5


Position = tuple[int, Mapping[str, str]]


class Advance:
    def __init__(self, journal: Journal, lease: StreamLease) -> None:
        self._journal, self._lease, self._key = journal, lease, stream_key(lease.stream)
        self._stream = journal.follower(self._key)
        self.read_to = lease.progress.done_to
        self.more = True
        """Whether there may be unread entries."""
        self._code: Mapping[str, str] = lease.progress.code
        """The versions of code in force where the stream was read to, by name."""
        self._loads: dict[int, tuple[str, str]] = {}
        """Places above done_to that load one."""
        self._over: set[int] = set()
        """Places above done_to whose groups are over."""
        self._ticked = 0.0

    @property
    def position(self) -> Position:
        return self.read_to, self._code

    @property
    def room(self) -> int:
        """Return how many more entries may be read. Progress that is not known to be in the log does not count."""
        return self._lease.written.done_to + LOOK_AHEAD - self.read_to

    def entries(self, limit: int) -> list[StreamPlace]:
        """Return the groups of the next entries. An entry that loads code applies to all groups after it."""
        found, to, code, loads = [], self.read_to, self._code, dict[int, tuple[str, str]]()
        for event in self._stream.read(from_=to + 1, limit=limit):
            to = event.seq_nr
            if event.type == "LoadCode":
                loads[to] = (event.payload["name"], event.payload["code"])
                code = {**code, loads[to][0]: loads[to][1]}
            else:
                found.append(StreamPlace(to, event.payload["group"], code))
        self.more = to - self.read_to >= limit
        self.read_to, self._code = to, code
        self._loads |= loads
        self._over.update(loads)
        return found

    def read_again(self, from_: Position) -> None:
        """Go back to that place and read on from there again."""
        self.read_to, self._code = from_
        self.more = True

    def behind(self) -> bool:
        """Return whether there are unread entries."""
        head = self._stream.head()
        return head is not None and head.seq_nr > self.read_to

    def over(self, place: int) -> None:
        if place > self._lease.progress.done_to:
            self._over.add(place)

    def due(self) -> bool:
        """Return whether progress is to be recorded now."""
        return time.monotonic() - self._ticked >= TICK_S or len(self._over) >= LOOK_AHEAD // 2

    def tick(self, open_: Iterable[StreamPlace], passed: Collection[int]) -> bool:
        """Hand progress to the next beat; return whether there was any. `open_` has the groups that have not ended;
        `passed` has those of them that other groups need not wait for, so that they may be listed with the lease.
        """
        self._ticked = time.monotonic()
        progress = self._lease.progress
        done_to = progress.done_to
        while done_to + 1 in self._over or done_to + 1 in passed:
            done_to += 1
        listed = {place.id: place for place in open_ if place.n <= done_to}
        if (done_to, listed) == (progress.done_to, progress.open):
            return False
        for place in sorted(place for place in self._loads if place <= done_to):
            progress = progress.loaded(*self._loads.pop(place))
        self._over = {place for place in self._over if place > done_to}
        self._lease.say(done_to=done_to, open=listed, code=progress.code, replaced=progress.replaced)
        self._lease.beat()
        reached("progress.recorded")
        self._journal.delete_reserved(self._key, to=done_to, head=self._stream.known)
        reached("stream.deleted")
        return True


def place_of(journal: Journal, stream: str, group: str, told: LastBeat) -> StreamPlace | None:
    """Return the place of an open group in its stream; None if it is not in the stream."""
    if group in told.open:
        return told.open[group]
    code = dict(told.code)
    for event in journal.read(stream_key(stream), from_=told.done_to + 1):
        if event.type == "LoadCode":
            code[event.payload["name"]] = event.payload["code"]
        elif event.payload["group"] == group:
            return StreamPlace(event.seq_nr, group, code)
    return None
