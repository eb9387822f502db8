"""Recording where the log does not fold by itself, and finding out what became of it.

    look at pointer and head ──▶ send ──▶ acknowledged at o ──▶ fold (pointer, o] on that head ──▶ verdict

Both are taken before the action is sent, so that the verdict is the same wherever the pipeline is by then. The actions
come from the heads cache, or else from the log. Where no verdict is asked for, or none comes in time, the answer is the
acknowledgement alone; what that is worth is said in `verdict`.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Condition
from typing import Final

from strandline.errors import StrandlineError, Unavailable
from strandline.journal.heads_cache import HeadsCache
from strandline.journal.tail import Tail
from strandline.journal.verdict import is_plain
from strandline.log.api import Draft, InexactLog, Recorded
from strandline.log.cursor import Cursor
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import Readable
from strandline.values.actions import Mark
from strandline.values.heads import State

LOG_PAGE_BYTES: Final = 2**20
THREADS: Final = 4
"""Threads that wait for the verdicts of appends that nobody waits for."""

Seen = tuple[Pointer, State]


class Judge:
    """Records drafts and folds them. Any number of threads may use it."""

    def __init__(self, log: InexactLog, store: Readable, settings: Settings, heads: HeadsCache | None) -> None:
        self._log, self._store, self._settings, self._heads = log, store, settings, heads
        self._pool: ThreadPoolExecutor | None = None
        self._changed = Condition()
        self._pending = 0

    def append(self, draft: Draft, *, numbers: bool = True) -> Recorded:
        """Record a draft; returns when it is durable, with its verdict if that is wanted and comes in time."""
        deadline = time.monotonic() + self._settings.append_timeout_s
        seen = self._look(draft, numbers)
        hold = self._heads.hold(seen[0]) if seen is not None and self._heads is not None else None
        try:
            recorded = self._acknowledged(self._log.submit(draft), deadline)
            return recorded if seen is None else self._judged(draft, seen, recorded, deadline)
        finally:
            if hold is not None:
                hold.release()

    def submit(self, draft: Draft, *, numbers: bool = True) -> Future[Recorded]:
        """Record a draft in the background. Drafts of one thread are recorded in the order of its calls."""
        deadline = time.monotonic() + self._settings.append_timeout_s
        seen = self._look(draft, numbers)
        sent = self._log.submit(draft)
        if seen is None:
            return sent
        hold = self._heads.hold(seen[0]) if self._heads is not None else None
        answer: Future[Recorded] = Future()
        answer.set_running_or_notify_cancel()

        def settle() -> None:
            try:
                answer.set_result(self._judged(draft, seen, sent.result(), deadline))
            except BaseException as error:  # noqa: BLE001 (whatever it is, it is the caller's answer)
                answer.set_exception(error)
            finally:
                if hold is not None:
                    hold.release()
                with self._changed:
                    self._pending -= 1
                    self._changed.notify_all()

        with self._changed:
            self._pending += 1
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="strandline-verdict")
            pool = self._pool
        sent.add_done_callback(lambda _: pool.submit(settle))
        return answer

    def close(self) -> None:
        """Wait for the verdicts that are under way. Twice is harmless."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending, 2 * self._settings.append_timeout_s)
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    # ------------------------------------------------------------ before and after

    def _look(self, draft: Draft, numbers: bool) -> Seen | None:
        """Pointer and head, if a verdict is wanted. A plain append needs the log alone."""
        plain = is_plain(draft)
        key = draft.action.key
        if key is None or isinstance(draft.action, Mark) or (plain and not numbers):
            return None
        try:
            return self._store.look(key, draft.partition)
        except Unavailable:
            if plain:
                return None
            raise

    def _acknowledged(self, sent: Future[Recorded], deadline: float) -> Recorded:
        try:
            return sent.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeoutError:
            raise Unavailable(
                f"the log did not answer within {self._settings.append_timeout_s:g} s",
                code="timeout",
                hint="retry with an append id, or read the head",
                applied="unknown",
            ) from None

    def _judged(self, draft: Draft, seen: Seen, recorded: Recorded, deadline: float) -> Recorded:
        """The same with its verdict, or as it is if there is none in time."""
        key, place = draft.action.key, recorded.place
        if key is None or place is None:
            return recorded
        if self._heads is not None:
            known = self._heads.fold(key, *seen, place.offset, wait_s=deadline - time.monotonic())
            if known is not None and known.last is not None and known.last.offset == place.offset:
                return Recorded(known.last, True, known.effect, known.state)
        try:
            return self._read(key, seen, recorded, deadline)
        except StrandlineError:
            return recorded

    def _read(self, key: str, seen: Seen, recorded: Recorded, deadline: float) -> Recorded:
        pointer, state = seen
        to = recorded.place.offset if recorded.place is not None else -1
        tail = Tail(key, state, self._store.settings.segment_size, to=0, bytes_max=0)
        cursor = Cursor(self._log, pointer.partition, pointer.offset, pointer.timestamp)
        while cursor.offset < to and time.monotonic() < deadline:
            tail.add(
                cursor.read(to=to, limit=self._settings.read_page, bytes_max=LOG_PAGE_BYTES, key=key, values=False)
            )
        if tail.place is None or tail.place.offset != to:
            return recorded
        return Recorded(tail.place, True, tail.effect, tail.state)
