"""Group commit: appends that arrive while a commit is under way go together into the next one.

A caller that is alone, now and in the last few commits, commits in its own thread, which saves two changes of threads.
For all others the committer's own thread commits: a caller that commits as soon as no commit is under way would go
alone, and leave the others to the next commit. No commit waits for more calls. Order of arrival is order in the log.

The time-out bounds how long a caller waits for others, and how long the back-end waits for locks and servers. A disk
that hangs in its sync holds up the lone caller whose commit it is. With `commit_in_thread` the committer's thread
commits for that caller, too, and no caller waits longer than its time-out.

The callers of a commit wake each other, one after the other, and the last of them wakes the thread that commits. Sixty
threads that want the interpreter at the same time cost more than their work; and a caller that appends again at once is
in the next commit, not in the one after it.

    a call:  queued ── taken ──▶ in a commit ──▶ answered
               │                     └─ past its time-out: Unavailable.timeout, "unknown"
               └─ past its time-out: withdrawn, Unavailable.timeout, "no"

A second thread resolves futures, because a callback may be slow, or may itself append and wait.

In the main thread a signal may raise an exception at any line, in the midst of a commit too, and logs are not made for
that: its commits are always left to the committer's thread.

A signal may raise an exception in a caller at any line, and no other caller may suffer from it. A caller that is
interrupted first releases, under the lock, every caller that waits on it (`_abandon`). Each of these steps is
idempotent.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import pairwise
from threading import Condition, Lock, Thread, current_thread, main_thread
from typing import Any, Final, Generic, TypeVar
from weakref import WeakMethod

from strandline import forks
from strandline.errors import StrandlineError, Unavailable, closed, used_after_fork
from strandline.log.answer_future import AnswerFuture
from strandline.log.api import ActionDraft, Log, Recorded
from strandline.settings import Settings

T = TypeVar("T")

SLOW_S: Final = 1.0
"""A commit that takes longer is logged."""
GRACE_LEAST_S: Final = 0.1
GRACE_SHARE: Final = 0.1
LONELY: Final = 8
_logger: Final = logging.getLogger(__name__)


def grace_s(timeout_s: float) -> float:
    """Return how much longer a caller waits for a commit that is under way.

    Back-ends give up by themselves after the same time. Their answer knows more ("no", where nothing was sent yet), so
    it may come first.
    """
    return GRACE_LEAST_S + GRACE_SHARE * timeout_s


class _PendingAppend:
    """An append on its way, or several that one caller hands over together, which share one commit."""

    answers: Sequence[Recorded] = ()
    error: BaseException | None = None
    queued = False  # it was accepted
    taken = False  # it is in a commit
    answered = False  # the commit has ended, or there will be none
    gone = False  # its caller did not wait for that
    following: _AwaitedAppend | None = None  # to be woken by this one

    def __init__(self, drafts: Sequence[ActionDraft], timeout_s: float) -> None:
        self.drafts = drafts
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s

    def late(self) -> Unavailable:
        """Return the error for a call whose time is over."""
        return Unavailable(
            f"the append {'was handed to the log, which' if self.taken else 'waited in the queue and'} did not answer "
            f"within {self.timeout_s:g} s",
            code="timeout",
            hint="retry with an append id, or read the head" if self.taken else "call again",
            applied="unknown" if self.taken else "no",
        )


class _AwaitedAppend(_PendingAppend):
    """An append that a thread waits for. `woken` is released when it is answered."""

    def __init__(self, drafts: Sequence[ActionDraft], timeout_s: float) -> None:
        super().__init__(drafts, timeout_s)
        self.woken = Lock()
        self.woken.acquire()

    def wake(self) -> None:
        if self.woken.locked():
            self.woken.release()


class _PromisedAppend(_PendingAppend, Generic[T]):
    """An append whose future gets what `outcome` returns for the answer."""

    def __init__(self, draft: ActionDraft, timeout_s: float, outcome: Callable[[Recorded], T]) -> None:
        super().__init__((draft,), timeout_s)
        self.future: Future[T] = AnswerFuture()
        self.outcome = outcome

    def tell(self) -> None:
        """Answer the future. Whatever its callbacks raise, SystemExit too, the next one is answered all the same."""
        try:
            if not self.answers:
                raise self.error or RuntimeError("a call was told without an answer")
            told = self.outcome(self.answers[0])
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is the caller's answer)
            with suppress(BaseException):
                self.future.set_exception(error)
            return
        try:  # noqa: SIM105 (as below)
            self.future.set_result(told)
        except BaseException:  # noqa: BLE001, S110 (of a callback; quicker than `suppress`)
            pass


class _Helper:
    """A thread that calls `step` whenever it is woken, or after the time that the last step returned; None ends it. The
    thread also ends when the owner of the step is garbage collected, which `kept` prevents while there is work to do.
    """

    kept: object = None

    def __init__(self, name: str, step: Callable[[], float | None]) -> None:
        self._woken = Lock()
        self._woken.acquire()
        self._step = WeakMethod(step, lambda _: self.wake())
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread. The caller holds the committer's lock."""
        if self._woken.locked():
            self._woken.release()

    def join(self, timeout_s: float | None = None) -> None:
        if self._thread is not current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        wait_s: float | None = -1.0
        while wait_s is not None:
            self._woken.acquire(timeout=wait_s)
            step = self._step()
            wait_s = None if step is None else step()
            del step


class Committer:
    """Appends to a log, many at a time. Any number of threads may use it."""

    def __init__(self, log: Log, settings: Settings) -> None:
        self._log = log
        self._actions_max = settings.group_actions_max
        self._bytes_max = settings.group_bytes_max
        self._queue_max = settings.append_queue_max
        self._timeout_s = settings.append_timeout_s
        self._generation = forks.generation
        self._lock = Lock()
        self._done = Condition(self._lock)
        self._queue: deque[_PendingAppend] = deque()
        self._may_be_alone = not settings.commit_in_thread
        self._lonely = LONELY  # how many commits in a row had one caller, with no other waiting
        self._committing: object = False  # True for the committer's thread, or the call of a lone caller
        self._waking: _AwaitedAppend | None = None  # of the committed calls, the one that is woken last
        self._futures: deque[_PromisedAppend[Any]] = (
            deque()
        )  # futures that are not resolved yet, in the order of their deadlines
        self._answered: deque[_PromisedAppend[Any]] = deque()  # those of them that have an answer
        self._closed = False
        self._helper: _Helper | None = None
        self._teller: _Helper | None = None

    def append(self, draft: ActionDraft, timeout_s: float | None = None) -> Recorded:
        """Record a draft; returns when it is durable, or was refused by the fold (its effect says so)."""
        (answer,) = self._append((draft,), self._timeout_s if timeout_s is None else timeout_s)
        return answer

    def append_all(self, drafts: Sequence[ActionDraft]) -> Sequence[Recorded]:
        """Record drafts that arrive together, all in one commit (`commits_of`); an error is that of all of them."""
        return self._append(drafts, self._timeout_s)

    def _append(self, drafts: Sequence[ActionDraft], timeout_s: float) -> Sequence[Recorded]:
        self._check()
        if self._is_alone() and (alone := self._append_alone(drafts)) is not None:
            return alone
        call = _AwaitedAppend(drafts, timeout_s)
        try:
            self._enqueue(call)
            if not call.woken.acquire(timeout=call.timeout_s):
                self._expire(call)
            with self._lock:
                self._pass_on(call)
        except BaseException:
            if call.queued:  # else it was refused
                self._abandon(call)
            raise
        if not call.answers:
            raise call.error or RuntimeError("a call was woken without an answer")
        return call.answers

    def _append_alone(self, drafts: Sequence[ActionDraft]) -> list[Recorded] | None:
        """Record drafts in the caller's thread; None if there is another caller after all."""
        me = object()
        try:
            with self._lock:
                if self._closed or not self._is_alone():
                    return None
                self._committing = me
            answers = self._commit(drafts)
            self._leave(me)
        except BaseException:
            self._leave(me)
            raise
        return answers

    def _leave(self, me: object) -> None:
        """End the commit of a lone caller; calls that came meanwhile are committed next."""
        with self._lock:
            if self._queue:
                self._lonely = 0
            if self._committing is me:
                self._committing = False
            self._tell()

    def submit(self, draft: ActionDraft, outcome: Callable[[Recorded], T]) -> Future[T]:
        """Record a draft in the background; the future gets what `outcome` returns for the answer, or raises. Drafts of
        one thread are recorded in the order of its calls.
        """
        self._check()
        call = _PromisedAppend(draft, self._timeout_s, outcome)
        try:
            self._enqueue(call)
        except BaseException:
            if call.queued:  # else it was refused
                self._abandon(call)
            raise
        return call.future

    def close(self) -> None:
        """Refuse new appends, and finish queued ones within their time-outs. A second call does nothing."""
        if forks.generation != self._generation:
            return
        with self._lock:
            self._closed = True
            idle = self._done.wait_for(self._is_idle, self._timeout_s + 2 * grace_s(self._timeout_s))
            for helper in (self._helper, self._teller):
                if helper is not None:
                    helper.wake()
        if self._helper is not None and idle:  # else the thread hangs in the log, and ends when the log answers
            self._helper.join()
        if self._teller is not None:  # the thread may hang in a future's callback
            self._teller.join(self._timeout_s)

    def _check(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork("this log")

    # ------------------------------------------------------------ callers

    def _enqueue(self, call: _PendingAppend) -> None:
        with self._lock:
            if self._closed:
                raise closed("this log")
            # Appends that came together count as one while they wait: their caller waits, too, so there are few of
            # these.
            if len(self._queue) + len(call.drafts) > self._queue_max:
                raise Unavailable(
                    f"{len(self._queue)} appends wait already",
                    code="overloaded",
                    hint="append less at a time, or raise append_queue_max; call again later",
                    queued=len(self._queue),
                )
            if self._helper is None:
                self._helper = _started("strandline-committer", self._commit_waiting)
            call.queued = True
            if isinstance(call, _PromisedAppend):
                self._follow(call)
            self._queue.append(call)
            self._tell()

    def _follow(self, call: _PromisedAppend[Any]) -> None:
        """Make sure that a call's future is resolved in time, whatever happens. The caller holds the lock."""
        if self._teller is None:
            self._teller = _started("strandline-futures", self._tell_futures)
        if not self._futures:
            self._teller.wake()  # so far the thread waits for no deadline
            self._teller.kept = self  # a program may keep a future without keeping its journal
        self._futures.append(call)

    def _expire(self, call: _AwaitedAppend) -> None:
        """End a call whose time is over: withdraw it, or leave a commit that goes on without it."""
        left_s = call.deadline + grace_s(call.timeout_s) - time.monotonic()
        if call.taken and call.woken.acquire(timeout=max(0.0, left_s)):
            return
        with self._lock:
            self._give_up(call)
        if not call.answered:
            raise call.late()

    def _give_up(self, call: _PendingAppend) -> None:
        """Give up a call that its caller has left. The caller of this method holds the lock."""
        if not call.answered:
            call.gone = True
            if not call.taken and call in self._queue:
                self._queue.remove(call)

    def _abandon(self, call: _PendingAppend) -> None:
        """Release all callers that wait on an interrupted caller, whatever state its call is in."""
        with self._lock:
            self._give_up(call)
            if isinstance(call, _PromisedAppend) and not call.taken and call in self._futures:
                self._futures.remove(call)
            self._pass_on(call)

    def _pass_on(self, call: _PendingAppend) -> None:
        """Wake the next caller, since this call's caller was woken. The lock is held."""
        if call.following is not None:
            call.following.wake()
        if self._waking is call:
            self._waking = None
        self._tell()

    def _tell(self) -> None:
        """Wake the thread that commits if there is something to do, else the one that closes. The lock is held."""
        if self._queue:
            if not self._committing and self._waking is None and self._helper is not None:
                self._helper.wake()
        elif self._closed and self._is_idle():
            self._done.notify_all()
            if self._helper is not None:
                self._helper.wake()

    def _is_idle(self) -> bool:
        return not self._queue and not self._committing and self._waking is None

    def _is_alone(self) -> bool:
        return self._may_be_alone and self._lonely >= LONELY and self._is_idle() and current_thread() != main_thread()

    # ------------------------------------------------------------ committing

    def _commit_waiting(self) -> float | None:
        """Commit the calls that wait, until there are none."""
        while calls := self._take():
            error: BaseException | None = None
            answers: Sequence[Recorded] = ()
            try:
                answers = self._commit([draft for call in calls for draft in call.drafts])
            except BaseException as raised:  # noqa: BLE001 - it is for every caller
                error = raised
            self._answer(calls, answers, error)
        return None if self._closed and self._is_idle() else -1.0

    def _commit(self, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        """Record drafts, and say what takes long or fails."""
        began = time.monotonic()
        try:
            answers = self._log.append(drafts)
        except BaseException as error:
            _logger.info("a commit of %d appends failed after %.1f s: %s", len(drafts), time.monotonic() - began, error)
            raise
        took_s = time.monotonic() - began
        if took_s > SLOW_S:
            _logger.warning("a commit of %d appends took %.1f s", len(drafts), took_s)
        return answers

    def _take(self) -> list[_PendingAppend]:
        """Return the calls of the next commit; none while those of the last one are being woken."""
        queue, size, count = self._queue, 0, 0
        calls: list[_PendingAppend] = []
        with self._lock:
            if self._waking is not None:
                return calls
            now = time.monotonic()
            while queue and count < self._actions_max:
                call = queue[0]
                if call.deadline < now:
                    call.error, call.answered = call.late(), True
                    if isinstance(call, _PromisedAppend):
                        self._answered.append(call)
                else:
                    count += len(call.drafts)
                    for draft in call.drafts:
                        size += len(draft.header) + len(draft.value or b"")
                    if calls and (size > self._bytes_max or count > self._actions_max):
                        break
                    call.taken = True
                    calls.append(call)
                queue.popleft()
            self._committing = bool(calls)
            self._wake_teller()
            self._tell()
        return calls

    def _answer(self, calls: list[_PendingAppend], answers: Sequence[Recorded], error: BaseException | None) -> None:
        """Let the answered callers wake each other, one after the other."""
        waiting: list[_AwaitedAppend] = []
        told = end = 0
        with self._lock:
            for call in calls:
                start, end = end, end + len(call.drafts)
                call.answers = answers[start:end]
                if error is not None:
                    call.error = own_error(error)
                call.answered = True
                if call.gone:
                    continue
                if isinstance(call, _AwaitedAppend):
                    waiting.append(call)
                elif isinstance(call, _PromisedAppend):
                    told += 1
                    self._answered.append(call)
            self._lonely = 0 if self._queue or len(waiting) + told > 1 else self._lonely + 1
            for one, following in pairwise(waiting):
                one.following = following
            self._committing = False
            if waiting:
                self._waking = waiting[-1]
                waiting[0].wake()
            self._wake_teller()
            self._tell()

    # ------------------------------------------------------------ futures

    def _wake_teller(self) -> None:
        if self._answered and self._teller is not None:
            self._teller.wake()

    def _tell_futures(self) -> float | None:
        """Resolve the futures that have an answer or are past their time-out; return how long the next one may wait."""
        while self._answered:
            self._answered.popleft().tell()
        with self._lock:
            while self._futures and (self._futures[0].answered or self._futures[0].gone):
                self._futures.popleft()
            if self._answered:
                return 0.0
            if not self._futures:
                if self._teller is not None:
                    self._teller.kept = None
                return None if self._closed else -1.0
            call = self._futures[0]
            left_s = call.deadline + grace_s(call.timeout_s) - time.monotonic()
            if left_s > 0:
                return left_s
            self._give_up(call)
            call.error = call.late()
            self._tell()
        call.tell()
        return 0.0


def _started(name: str, step: Callable[[], float | None]) -> _Helper:
    helper = _Helper(name, step)
    helper.start()
    return helper


def unchanged(recorded: Recorded) -> Recorded:
    """Return the answer as it is: the `outcome` of a future that needs no other."""
    return recorded


def commits_of(drafts: Sequence[ActionDraft], settings: Settings) -> Iterator[Sequence[ActionDraft]]:
    """Drafts in their order, cut into as few parts as a commit can take, and the queue."""
    actions_max = min(settings.group_actions_max, settings.append_queue_max)
    start = size = 0
    for index, draft in enumerate(drafts):
        bytes_ = len(draft.header) + len(draft.value or b"")
        if index - start >= actions_max or (index > start and size + bytes_ > settings.group_bytes_max):
            yield drafts[start:index]
            start, size = index, 0
        size += bytes_
    if drafts:
        yield drafts[start:]


def own_error(error: BaseException) -> BaseException:
    """Return a caller's own copy of an error: a traceback belongs to one thread."""
    if not isinstance(error, StrandlineError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
