"""Records drafts in a log that does not fold by itself, and finds out their verdicts.

    look at pointer and head ──▶ send ──▶ acknowledged at o ──▶ fold (pointer, o] on that head ──▶ verdict

Both are taken before the action is sent, so that the verdict is the same wherever the pipeline is by then. The actions
come from the heads cache, or else from the log. Where no verdict is asked for, or none comes in time, the answer is the
acknowledgement alone; what that is worth is said in `verdict`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Condition, Lock, RLock
from typing import Final, TypeVar, cast

from strandline.errors import StrandlineError, Unavailable
from strandline.journal.heads_cache import HeadsCache, Hold, SeenState
from strandline.journal.tail import KeyTail
from strandline.journal.verdict import is_plain
from strandline.log.answer_future import AnswerFuture
from strandline.log.api import ActionDraft, Recorded, UnfoldedLog
from strandline.log.committer import own_error
from strandline.log.cursor import PAGE_BYTES, PartitionCursor
from strandline.points import reached
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.store.scans import look_at, look_at_all
from strandline.values.actions import Mark

T = TypeVar("T")

PATIENCE_LEAST_S: Final = 0.01
NOTHING_SEEN: Final[Mapping[str, SeenState | Unavailable]] = {}
THREADS: Final = 4
"""How many threads wait for the verdicts of appends whose callers do not wait."""


class _WakeQueue:
    """A queue of answered callers, which wake each other one after the other.

    Sixty threads that want the interpreter at the same time cost more than their work: with the queue they append 1.2
    (with verdicts) to 1.4 times as much, four threads the same.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[_PendingDraft] = deque()
        self._busy = False  # a caller was woken and has not woken the next one yet

    def wake(self, call: _PendingDraft) -> None:
        """Wake the caller of a call, or queue the call while another caller is being woken."""
        with self._lock:
            if call.gone:
                return
            if self._busy:
                self._waiting.append(call)
                return
            self._busy = True
            call.woken.release()

    def pass_on(self) -> None:
        """Wake the caller of the next call. A caller that was woken calls this."""
        with self._lock:
            while self._waiting:
                call = self._waiting.popleft()
                if not call.gone:
                    call.woken.release()
                    return
            self._busy = False

    def enter(self, call: _PendingDraft) -> bool:
        """Note that a caller waits for this call again; False if the call was answered meanwhile and wakes nobody."""
        with self._lock:
            call.gone = call.gone and call.is_answered
            return not call.gone

    def leave(self, call: _PendingDraft) -> bool:
        """Take a call out of the queue. Return whether its caller was woken before that."""
        with self._lock:
            call.gone = not call.woken.acquire(blocking=False)
            return not call.gone


class _PendingDraft:
    """A draft on its way: the pointer and head before it, and the log's answer.

    The caller is woken once: for a verdict when the heads cache has seen the action too, else when the log has
    answered. Where callers wake each other, the queue wakes it.
    """

    __slots__ = ("deadline", "error", "gone", "hold", "recorded", "row", "seen", "woken")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.row: _WakeQueue | None = None
        self.seen: SeenState | None = None
        self.hold: Hold | None = None
        self.recorded: Recorded | None = None
        self.error: StrandlineError | None = None
        self.gone = False
        self.woken = Lock()
        self.woken.acquire()

    def answered(self, recorded: Recorded | None, error: StrandlineError | None) -> None:
        """Take the log's answer."""
        self.recorded, self.error = recorded, error
        if self.hold is not None and recorded is not None and recorded.place is not None:
            self.hold.when(recorded.place.offset, self._wake)
        else:
            self._wake()

    def _wake(self) -> None:
        if self.row is not None:
            self.row.wake(self)
        else:
            self.woken.release()

    @property
    def is_answered(self) -> bool:
        return self.recorded is not None or self.error is not None

    def told(self) -> Recorded:
        """Return the log's answer, or raise its error."""
        if self.error is not None:
            raise self.error
        return cast(Recorded, self.recorded)

    def wait(self, deadline: float) -> bool:
        """Wait to be woken; False if that does not happen in time. May be called again."""
        row = self.row
        if row is None:
            return self.woken.acquire(timeout=max(0.0, deadline - time.monotonic()))
        if not row.enter(self):
            return False
        woken = False
        try:
            woken = self.woken.acquire(timeout=max(0.0, deadline - time.monotonic()))
        finally:
            if woken or row.leave(self):
                row.pass_on()
        return woken

    def release(self) -> None:
        if self.hold is not None:
            self.hold.release()


class Judge:
    """Records drafts and folds them. Any number of threads may use it."""

    def __init__(self, log: UnfoldedLog, store: Store, settings: Settings, heads: HeadsCache | None) -> None:
        self._log, self._store, self._settings, self._heads = log, store, settings, heads
        self._row = _WakeQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = RLock()  # Condition's own way in is Python, and could be interrupted half-way
        self._changed = Condition(self._lock)
        self._pending = 0
        self._answered: deque[Callable[[], None]] = deque()  # calls that settle futures which the log has answered
        self._settling = 0  # the threads that settle them

    def append(self, draft: ActionDraft, *, numbers: bool = True) -> Recorded:
        """Record a draft; returns when it is durable, with its verdict if that is wanted and comes in time."""
        call = self._call(draft, numbers)
        call.row = self._row
        try:
            self._log.send(draft, call.answered)
            return self._judged(draft, call, self._acknowledged(call))
        finally:
            call.release()

    def append_all(self, drafts: Sequence[ActionDraft], numbers: Sequence[bool]) -> list[Recorded | BaseException]:
        """Record drafts: send all before waiting for the first. Return the answer of each, or its error."""
        sent: list[_PendingDraft | StrandlineError] = []
        answers: list[Recorded | BaseException] = []
        looks = self._looks(drafts, numbers)
        try:
            for draft, wanted in zip(drafts, numbers, strict=True):
                sent.append(self._sent(draft, wanted, looks))
            for draft, one in zip(drafts, sent, strict=True):
                try:
                    answers.append(
                        self._judged(draft, one, self._acknowledged(one)) if isinstance(one, _PendingDraft) else one
                    )
                except StrandlineError as error:
                    answers.append(error)
        finally:
            for one in sent:
                if isinstance(one, _PendingDraft):
                    one.release()
        return answers

    def submit(self, draft: ActionDraft, outcome: Callable[[Recorded], T], *, numbers: bool = True) -> Future[T]:
        """Record a draft in the background; the future gets what `outcome` returns for the answer, or raises.

        Drafts of one thread are recorded in the order of its calls.
        """
        call = self._call(draft, numbers)
        future: Future[T] = AnswerFuture()

        def settle() -> None:
            try:
                told = outcome(
                    call.told() if call.seen is None else self._judged(draft, call, self._acknowledged(call))
                )
            except BaseException as error:  # noqa: BLE001 (whatever it is, it is the caller's answer)
                future.set_exception(error)
            else:
                future.set_result(told)
            finally:
                call.release()

        def answered(recorded: Recorded | None, error: StrandlineError | None) -> None:
            call.answered(recorded, error)
            # An acknowledgement without a verdict needs no wait, so one thread resolves all such futures.
            self._settle_soon(settle, THREADS if call.seen is not None else 1)

        with self._lock:
            self._pending += 1
        try:
            self._log.send(draft, answered)
        except BaseException:
            call.release()
            with self._lock:
                self._pending -= 1
            raise
        return future

    def _settle_soon(self, settle: Callable[[], None], threads: int) -> None:
        """Have a thread of the judge settle it, not the log's: a callback of a future may be slow, or append and
        wait."""
        with self._lock:
            self._answered.append(settle)
            if self._settling >= threads:
                return
            self._settling += 1
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="strandline-verdict")
            self._pool.submit(self._settle)

    def _settle(self) -> None:
        """Settle answered futures until there are none."""
        while True:
            with self._lock:
                if not self._answered:
                    self._settling -= 1
                    return
                settle = self._answered.popleft()
            # Whatever a callback raises, even SystemExit: the next future is resolved all the same.
            with suppress(BaseException):
                settle()
            del settle
            with self._lock:
                self._pending -= 1
                if not self._pending:
                    self._changed.notify_all()

    def close(self) -> None:
        """Wait for the verdicts that are under way. A second call does nothing."""
        with self._lock:
            self._changed.wait_for(lambda: not self._pending, 2 * self._settings.append_timeout_s)
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    # ------------------------------------------------------------ before and after

    def _looks(self, drafts: Sequence[ActionDraft], numbers: Sequence[bool]) -> Mapping[str, SeenState | Unavailable]:
        """Look up in one request all keys that need a lookup."""
        keys = {
            key: draft.partition
            for draft, wanted in zip(drafts, numbers, strict=True)
            if (key := _judged_key(draft, wanted)) is not None
            and not (self._heads is not None and self._heads.holds(key, draft.partition))
        }
        if len(keys) < 2:
            return NOTHING_SEEN
        try:
            return look_at_all(self._store, keys)
        except Unavailable as error:
            return dict.fromkeys(keys, error)
        except StrandlineError:
            return {}  # one key may be the cause: each is then looked up by itself

    def _sent(
        self, draft: ActionDraft, numbers: bool, looks: Mapping[str, SeenState | Unavailable]
    ) -> _PendingDraft | StrandlineError:
        """Return a call on its way, or the error that prevented it."""
        try:
            call = self._call(draft, numbers, looks)
        except StrandlineError as error:
            return error
        try:
            self._log.send(draft, call.answered)
        except BaseException as error:
            call.release()
            if isinstance(error, StrandlineError):
                return error
            raise
        return call

    def _call(
        self, draft: ActionDraft, numbers: bool, looks: Mapping[str, SeenState | Unavailable] = NOTHING_SEEN
    ) -> _PendingDraft:
        """Return a call, with pointer and head if a verdict is wanted. A plain append needs the log alone."""
        call = _PendingDraft(time.monotonic() + self._settings.append_timeout_s)
        key, partition = _judged_key(draft, numbers), draft.partition
        if key is None:
            return call

        def look() -> SeenState:
            found = looks.get(key)
            if isinstance(found, Unavailable):
                raise own_error(found)
            return look_at(self._store, key, partition) if found is None else found

        try:
            if self._heads is not None:
                call.hold = self._heads.hold(key, partition, look)
            call.seen = look() if call.hold is None else (call.hold.pointer, call.hold.state)
        except Unavailable:
            if not is_plain(draft):
                raise
        return call

    def _acknowledged(self, call: _PendingDraft) -> Recorded:
        """Wait for the brokers' answer, and for the heads cache to reach it, which the verdict needs next."""
        patience_s = max(self._settings.heads_cache_wait_s, PATIENCE_LEAST_S)
        while not call.wait(min(call.deadline, time.monotonic() + patience_s)) and not call.is_answered:
            if time.monotonic() >= call.deadline:
                raise Unavailable(
                    f"the log did not answer within {self._settings.append_timeout_s:g} s",
                    code="timeout",
                    hint="retry with an append id, or read the head",
                    applied="unknown",
                )
        return call.told()

    def _judged(self, draft: ActionDraft, call: _PendingDraft, recorded: Recorded) -> Recorded:
        """Return the record with its verdict, or as it is if none is wanted, or none comes in time."""
        key, place, seen = draft.action.key, recorded.place, call.seen
        if seen is None or key is None or place is None:
            return recorded
        known = None if call.hold is None else call.hold.fold(key, place.offset)
        if known is None and self._heads is not None:
            known = self._heads.fold(key, *seen, place.offset, wait_s=call.deadline - time.monotonic())
        if known is not None and known.last is not None and known.last.offset == place.offset:
            return Recorded(known.last, True, known.effect, known.state)
        reached("judge.log_read_for_a_verdict")
        try:
            return self._read(key, seen, recorded, call.deadline)
        except StrandlineError:
            return recorded

    def _read(self, key: str, seen: SeenState, recorded: Recorded, deadline: float) -> Recorded:
        pointer, state = seen
        to = recorded.place.offset if recorded.place is not None else -1
        tail = KeyTail(key, state, self._store.settings.rules, to=0, bytes_max=0)
        cursor = PartitionCursor(self._log, pointer.partition, pointer.offset, pointer.timestamp)
        while cursor.offset < to and time.monotonic() < deadline:
            tail.add(cursor.read(to=to, limit=self._settings.read_page, bytes_max=PAGE_BYTES, key=key, values=False))
        if tail.place is None or tail.place.offset != to:
            return recorded
        return Recorded(tail.place, True, tail.effect, tail.state)


def _judged_key(draft: ActionDraft, numbers: bool) -> str | None:
    """Return the key of a draft that wants a verdict."""
    if isinstance(draft.action, Mark) or (is_plain(draft) and not numbers):
        return None
    return draft.action.key
