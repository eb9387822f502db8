"""Lists of a stream's groups, and the status of streams.

Open groups are those of the stream and its lease, exact, with the pipeline running or not. The others are found by the
tags of their histories (`strandline.group` on `Defined`, `strandline.group.committed` and so on upon `Ended`), as far
as the pipeline has carried them: `as_of` says up to when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple, Protocol, Unpack

from strandline.errors import invalid
from strandline.group.history import ENDS, History
from strandline.group.lease import said
from strandline.group.names import stream_key
from strandline.group.record import TAG
from strandline.journal.journal import Journal
from strandline.query.by_tag import TagFeed
from strandline.query.tags import GivenTagQuery
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.keys import Key

OPEN: Final = ("queued", "running", "rolling_back", "rollback_failed")
STATES: Final = ("open", *OPEN, *ENDS)
LIMIT_MAX: Final = 1000
Load = Callable[[str], History | None]


class Carried(Protocol):
    """The store, as far as the pipeline has carried."""

    def strandline(self) -> int: ...

    def by_tag(self, tag: str, **how: Unpack[GivenTagQuery]) -> TagFeed: ...


class Listed(NamedTuple):
    """A group of a list."""

    id: str
    state: str
    stream: str
    place: int
    started: int
    ended: int
    reason: str | None


class GroupList(NamedTuple):
    """Groups in order: open ones by their place in the stream, others by when they were submitted, or ended."""

    groups: tuple[Listed, ...]
    as_of: int
    """The list has everything that happened up to this time (µs)."""
    after: str | None
    """The place to go on from; None if this was all."""


class StreamStatus(NamedTuple):
    """The state of a stream."""

    stream: str
    holder: str | None
    """The process that runs it."""
    done_to: int
    queued: int
    """Entries after done_to: groups that wait or run."""
    open: int
    """Groups before done_to that are not over."""
    rollback_failed: int
    """Groups before done_to that wait for an operator."""
    away: tuple[str, ...] = ()
    """Targets that the holder has not reached yet: their groups wait."""


class Lister:
    """Lists the groups of one stream."""

    def __init__(self, journal: Journal, stream: str, load: Load, carried: Carried, clock: Callable[[], int]) -> None:
        self._journal, self._stream, self._load, self._carried, self._clock = journal, stream, load, carried, clock

    def listed(self, state: str | None, after: str | None, limit: int) -> GroupList:
        if state is not None and state not in STATES:
            raise invalid("setting", "state", "no state to list", allowed=" or ".join(STATES), got=state)
        if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
            raise invalid("limit_range", "limit", "out of range", allowed=f"1..{LIMIT_MAX}", got=limit)
        if state == "open" or state in OPEN:
            return self._open(OPEN if state == "open" else (state,), after, limit)
        return self._tagged(TAG if state is None else f"{TAG}.{state}", after, limit)

    def _open(self, states: tuple[str, ...], after: str | None, limit: int) -> GroupList:
        if after is not None and not (
            isinstance(after, str) and after.isdecimal() and len(after) < len(str(SEQ_NR_MAX))
        ):
            raise invalid("offset_format", "after", "no place of a stream", allowed="`after` of a list", got=after)
        as_of, from_ = self._clock(), int(after or 0) + 1
        found: dict[str, Listed] = {}
        for place, id_ in self._entries(from_):
            if id_ not in found and (one := self._listed(id_, states)) is not None:
                found[id_] = one._replace(place=place)
                if len(found) > limit:
                    break
        # The lease is read after the entries: it lists groups whose entries were deleted before we looked.
        for id_, told in said(self._journal, self._stream).open.items():
            if id_ not in found and (one := self._listed(id_, states)) is not None:
                at = one.place or told.n
                if at >= from_:
                    found[id_] = one._replace(place=at)
        listed = sorted(found.values(), key=lambda one: one.place)
        return GroupList(tuple(listed[:limit]), as_of, str(listed[limit - 1].place) if len(listed) > limit else None)

    def _entries(self, from_: int) -> Iterator[tuple[int, str]]:
        for event in self._journal.read(stream_key(self._stream), from_=from_):
            if event.type == "Submitted":
                yield event.seq_nr, event.payload["group"]

    def _tagged(self, tag: str, after: str | None, limit: int) -> GroupList:
        as_of, found, more = self._carried.strandline(), [], None
        with closing(self._carried.by_tag(tag, after=after)) as events:
            for event in events:
                if (one := self._listed(event.key.entity_id, STATES)) is not None:
                    found.append(one)
                if len(found) == limit:
                    more = str(event.offset)
                    break
        return GroupList(tuple(found), as_of, more)

    def _listed(self, id_: str, states: tuple[str, ...]) -> Listed | None:
        history = self._load(id_)
        if history is None or history.stream != self._stream or history.state not in states:
            return None
        return Listed(id_, history.state, history.stream, history.place, history.started, history.ended, history.why)


def streams_of(journal: Journal, load: Load) -> list[StreamStatus]:
    """Return the exact status of all streams whose first entry is in the store."""
    found, last = [], None
    while keys := journal.keys("group_stream", after=last, limit=1000):
        last = keys[-1]
        found += [_status(journal, key, load) for key in keys if "/" not in key.entity_id]
    return sorted(found)


def _status(journal: Journal, key: Key, load: Load) -> StreamStatus:
    head, told = journal.head(key), said(journal, key.entity_id)
    failed = sum(history is not None and history.waits_for_operator for history in map(load, told.open))
    away = tuple(sorted(told.away))
    last = told.done_to if head is None else head.seq_nr
    return StreamStatus(key.entity_id, told.holder, told.done_to, last - told.done_to, len(told.open), failed, away)
