"""Marks keep a partition that is idle, or whose clock is behind, from holding the strandline back.

A partition gets a Mark when it is below the timestamp of the newest append, delete or purge anywhere, and

- has nothing unreplicated and was still for `mark_idle_s`, or
- is more than `mark_idle_s` behind, or still below what was the newest `mark_idle_s` ago, however busy it is: after a
  clock that was ahead, timestamps of its partition only count on, one microsecond a record.

When one Mark is due, partitions that are half-way to theirs get it at the same time: so most batches have no Mark to
carry, and an event waits no longer than without Marks. A Mark does not count as movement, so a still log stops growing
after one Mark a partition. Marks are written when a batch is planned, before its ends are fixed, so that the batch
carries them. An exact log knows its ends and their timestamps. For any other log only the pointers show the newest
action, so its Marks come one batch later.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from time import monotonic
from typing import Final, NamedTuple, cast

from strandline.errors import StrandlineError
from strandline.log.api import ActionDraft, ExactLog, Log, Recorded, UnfoldedLog
from strandline.record import encode_header
from strandline.rows import Pointer
from strandline.store.api import Store
from strandline.values.actions import Mark

SENT_WAIT_S: Final = 1.0
"""How long a batch waits for Marks that a log writes in the background: other partitions need not wait for one that
cannot be written.
"""
NEVER: Final = float("inf")


def behind(pointers: Sequence[Pointer]) -> dict[int, int]:
    """Return the partitions that hold the strandline back, and the timestamp that each must reach."""
    newest = max(pointer.last_action_at for pointer in pointers)
    return {pointer.partition: newest for pointer in pointers if pointer.timestamp < newest}


def write(log: Log, wanted: dict[int, int]) -> None:
    """Write a Mark without key into each of these partitions."""
    if wanted:
        log.append(_drafts(wanted))


def rounds(log: Log, store: Store) -> Iterator[list[int]]:
    """Yield the present ends, exclusive, by partition; once these are carried, the ends with the Marks that lift the
    strandline to them.
    """
    yield _ends(log)
    wanted = behind(store.pointers())
    if wanted:
        write(log, wanted)
        yield _ends(log)


def _ends(log: Log) -> list[int]:
    return [offset + 1 for offset in log.newest()]


def _drafts(wanted: dict[int, int]) -> list[ActionDraft]:
    drafts = []
    for partition, at_least in sorted(wanted.items()):
        mark = Mark(None, uuid.uuid4().hex, at_least)
        drafts.append(ActionDraft(partition, mark, encode_header(mark)))
    return drafts


class LogSeen(NamedTuple):
    """A log as it was seen: by partition the newest offset and the timestamp that the partition has reached; and the
    timestamp of the newest action in any partition, Marks left out.
    """

    newest: list[int]
    reached: list[int]
    last_action_at: int


def look(log: Log, pointers: Sequence[Pointer]) -> LogSeen:
    if not log.exact:
        return LogSeen(
            log.newest(), [pointer.timestamp for pointer in pointers], max(p.last_action_at for p in pointers)
        )
    ends = cast(ExactLog, log).ends()
    # Only carrying shows whether the newest record of a partition is a Mark; until then it counts as an action.
    times = [
        end.timestamp if end.offset > pointer.offset else pointer.last_action_at
        for end, pointer in zip(ends, pointers, strict=True)
    ]
    return LogSeen([end.offset for end in ends], [end.timestamp for end in ends], max(times))


class Marker:
    """Looks at a log whenever a batch is planned, and writes the Marks that are due."""

    def __init__(self, log: Log, idle_s: float) -> None:
        self._log, self.idle_s = log, idle_s
        self._still: dict[int, tuple[int, float]] = {}  # by partition: the newest offset, and when it was first seen
        self._newest: deque[tuple[int, float]] = deque()  # the newest action's timestamp, and when it was first seen
        self._sent: dict[int, Future[int | None]] = {}  # the offset of the last Mark, or None if it was not written
        self._not_before = 0.0
        self.next_at = NEVER
        """When the next Mark is due, if nothing moves until then."""

    def look(self, pointers: Sequence[Pointer]) -> tuple[LogSeen, list[int]]:
        """Return the log with the Marks that were due, and the partitions that have nothing but a Mark to carry."""
        seen = look(self._log, pointers)
        now = monotonic()
        wanted = self.due(pointers, seen, now)
        if not wanted:
            return seen, []
        self._write(wanted, now)
        alone = [partition for partition in wanted if pointers[partition].offset >= seen.newest[partition]]
        seen = look(self._log, pointers)
        self._remember(seen, now)
        return seen, alone

    def due(self, pointers: Sequence[Pointer], seen: LogSeen, now: float) -> dict[int, int]:
        """Return the partitions that get a Mark now, and the timestamp that it must have."""
        self._remember(seen, now)
        wanted: dict[int, int] = {}
        # these get theirs at the same time, so that most batches have no Marks and end sooner
        soon: dict[int, int] = {}
        self.next_at = NEVER
        if now < self._not_before:
            return wanted
        for partition, offset, *_ in pointers:
            reached = seen.reached[partition]
            if reached >= seen.last_action_at or self._on_its_way(partition, offset):
                continue
            since = self._newest[bisect_right(self._newest, reached, key=lambda item: item[0])][1]
            if offset >= seen.newest[partition]:
                since = min(since, self._still[partition][1])
            if now - since >= self.idle_s or seen.last_action_at - reached > self.idle_s * 1_000_000:
                wanted[partition] = seen.last_action_at
            else:
                self.next_at = min(self.next_at, since + self.idle_s)
                if now - since >= self.idle_s / 2:
                    soon[partition] = seen.last_action_at
        return wanted | soon if wanted else wanted

    def _remember(self, seen: LogSeen, now: float) -> None:
        for partition, offset in enumerate(seen.newest):
            if self._still.get(partition, (None, now))[0] != offset:
                self._still[partition] = offset, now
        if not self._newest or seen.last_action_at > self._newest[-1][0]:
            self._newest.append((seen.last_action_at, now))
        while len(self._newest) > 1 and now - self._newest[1][1] >= self.idle_s:
            self._newest.popleft()

    def _on_its_way(self, partition: int, offset: int) -> bool:
        """Return whether the last Mark of a partition is not carried yet: another one would not arrive sooner."""
        sent = self._sent.get(partition)
        if sent is None or (sent.done() and sent.result() is None):
            return False
        return not sent.done() or cast(int, sent.result()) > offset

    def _write(self, wanted: dict[int, int], now: float) -> None:
        """Write Marks. One that cannot be written now is tried again later; carrying goes on meanwhile."""
        drafts = _drafts(wanted)
        sent: dict[int, Future[int | None]] = {draft.partition: Future() for draft in drafts}
        self._sent.update(sent)
        if self._log.exact:
            try:
                answers: Sequence[Recorded | None] = self._log.append(drafts)
            except StrandlineError:
                answers = [None] * len(drafts)
            for draft, answer in zip(drafts, answers, strict=True):
                _told(sent[draft.partition], answer)
        else:
            for draft in drafts:
                try:
                    cast(UnfoldedLog, self._log).send(draft, partial(_told, sent[draft.partition]))
                except StrandlineError:
                    _told(sent[draft.partition], None)
        wait(sent.values(), SENT_WAIT_S)
        if any(future.done() and future.result() is None for future in sent.values()):
            self._not_before = now + self.idle_s


def _told(sent: Future[int | None], answer: Recorded | None, _error: StrandlineError | None = None) -> None:
    sent.set_result(answer.place.offset if answer is not None and answer.place is not None else None)
