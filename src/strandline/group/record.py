"""A group's history while it runs: what is in the log, and what is not there yet.

Events are numbered as they are made, so each has its seq_nr before it is in the log. `flush` appends them at these
numbers; if the log has another event there, this processor may have lost its lease. The barrier row of an SQL step says
what the step did before its events are in the log: a processor that resumes runs the step again and gets its outcome.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Lock, RLock
from typing import Final
from uuid import uuid4

from strandline.errors import SeqNrConflict, Unavailable
from strandline.group.history import ENDS, History, HistoryEvent, Payload, folded, packed, result
from strandline.group.lease import StreamLease
from strandline.group.names import group_key
from strandline.group.points import reached
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S
from strandline.group.target import Barrier
from strandline.journal.journal import Journal
from strandline.values.answers import KEEP
from strandline.values.events import Event

APPEND_BYTES: Final = 3 * 2**18
TAG: Final = "strandline.group"
LOADING_MAX: Final = 8
"""Threads that load histories side by side."""


class GroupRecord:
    """The history of one group, written by its processor alone."""

    def __init__(
        self,
        journal: Journal,
        history: History,
        lease: StreamLease,
        clock: Callable[[], int],
        keep_s: float | None = None,
        lock: RLock | None = None,
    ) -> None:
        """`keep_s`: how long it stays after the end."""
        self.history = history
        self._journal, self._lease, self._clock, self._keep_s = journal, lease, clock, keep_s
        self._pending: list[HistoryEvent] = []
        self._logged = history.last
        self.lock = lock or RLock()
        self._flushing = Lock()

    def add(self, type_: str, payload: Payload) -> HistoryEvent:
        """Make an event and apply it to the state at once. Its time is this one unless it has its own."""
        if "at" not in payload:
            payload = {**payload, "at": self._clock()}
        with self.lock:
            entry = HistoryEvent(self.history.last + 1, type_, payload)
            self.history.apply(entry)
            self._pending.append(entry)
            return entry

    @property
    def pending(self) -> bool:
        """Return whether there are events that are not in the log."""
        return bool(self._pending)

    def flush(self) -> None:
        """Write everything into the log, in one append if it is not long; returns when it is durable.

        While the log is away it is tried again, as long as the lease is held: nothing goes out meanwhile.
        """
        with self._flushing:
            while True:
                with self.lock:
                    entries = _first_of(self._pending)
                    if not entries:
                        return
                timestamp = self._write(entries)
                with self.lock:
                    self.history.logged(entries, timestamp)
                    self._logged = entries[-1].n
                    del self._pending[: len(entries)]

    def _write(self, entries: list[HistoryEvent]) -> int:
        append_id, wait_s = uuid4(), WAIT_LEAST_S
        ended = any(entry.type == "Ended" for entry in entries)
        keep = timedelta(seconds=self._keep_s) if ended and self._keep_s is not None else KEEP
        events = [event_of(entry) for entry in entries]
        while True:
            self._lease.check()
            try:
                answer = self._journal.append_reserved(
                    group_key(self.history.id), events, expected=self._logged, append_id=append_id, expire_after=keep
                )
                return answer.timestamp or 0
            except SeqNrConflict:
                self._lease.look()
                raise
            except Unavailable as error:
                if not error.retryable:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_MOST_S)


def seen(history: History, barriers: Iterable[Barrier], now: int) -> None:
    """Bring into a history what only barrier rows know, for a look at it: steps that were done or undone."""
    mine = [one for one in barriers if (one.id.definition, one.id.life) == (history.hash, history.life)]
    more: list[tuple[str, Payload]] = []
    if mine:
        reached("group.seen_by_its_barrier_rows")
    for one in mine:
        for name, done in one.steps.items() if one.op == "do" else ():
            if history.step(name).data is None:
                more += result(name, done, now)
    for one in mine:
        undo = history.undo.get(one.id.step)
        if one.op == "undo" and history.decided == "rollback" and (undo is None or undo.state != "undone"):
            more.append(("UndoResult", {"step": one.id.step, "at": now, "state": "undone"}))
    if more and history.state == "queued":
        history.state = "running"
    for type_, payload in more:
        history.apply(HistoryEvent(history.last + 1, type_, payload))


def load(journal: Journal, id_: str) -> History | None:
    """Return the history of a group, folded; None if there is none."""
    read = journal.read(group_key(id_))
    return folded(
        id_, ((HistoryEvent(event.seq_nr, event.type, event.payload), event.life, event.timestamp) for event in read)
    )


def load_all(
    pool: ThreadPoolExecutor, load_one: Callable[[str], History | None], ids: Iterable[str]
) -> dict[str, History | None]:
    """Load histories, with the help of such threads of a pool as have nothing else to do."""
    wanted, found = deque(dict.fromkeys(ids)), dict[str, History | None]()

    def load_some() -> None:
        while wanted:
            try:
                id_ = wanted.popleft()
            except IndexError:  # another thread has taken the last one
                return
            found[id_] = load_one(id_)

    helpers = [pool.submit(load_some) for _ in range(min(LOADING_MAX, len(wanted) // LOADING_MAX))]
    try:
        load_some()
    finally:
        wanted.clear()
        running = [one for one in helpers if not one.cancel()]
        wait(running)
    for one in running:
        one.result()
    return found


def event_of(entry: HistoryEvent) -> Event:
    tags: tuple[str, ...] = ()
    if entry.type == "Defined":
        tags = (TAG,)
    elif entry.type == "Ended" and entry.payload["end"] in ENDS:
        tags = (f"{TAG}.{entry.payload['end']}",)
    return Event(entry.type, dict(entry.payload), tags=tags)


def _first_of(entries: list[HistoryEvent]) -> list[HistoryEvent]:
    """Return as many entries as one append takes."""
    if len(packed(entries)) <= APPEND_BYTES:
        return entries[:]
    size, count = 0, 0
    for entry in entries:
        size += len(packed([entry]))
        if count and size > APPEND_BYTES:
            break
        count += 1
    return entries[:count]
