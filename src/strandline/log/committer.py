"""Group commit: appends that arrive while a commit is under way go together into the next one.

There is no thread of its own for callers that wait: who finds nobody committing leads, and commits for all who wait.
Nobody waits for more to come. Order of arrival is order in the log.

Those who were committed wake each other, one after the other, and the last of them wakes the next leader. Sixty threads
that want the interpreter at the same time cost more than their work; and whoever appends again at once is in the next
commit, not in the one after it.

    a call:  queued ── taken ──▶ in a commit ──▶ answered
               │                     └─ past its time-out: Unavailable.timeout, "unknown"
               └─ past its time-out: withdrawn, Unavailable.timeout, "no"
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import pairwise
from threading import Condition, Lock, Thread

from strandline import forks
from strandline.errors import StrandlineError, Unavailable
from strandline.log.api import Draft, Log, Recorded
from strandline.log.refusals import closed, used_after_fork
from strandline.settings import Settings


class _Call:
    """An append on its way. `woken` is released when it is answered, or when it is to lead."""

    answer: Recorded | None = None
    error: BaseException | None = None
    leads = False  # it commits for all who wait
    taken = False  # it is in a commit
    answered = False  # the commit has ended
    gone = False  # its caller did not wait for that
    following: _Call | None = None  # to be woken by this one
    hands_on = False  # it wakes the next leader, too

    woken: Lock

    def __init__(self, draft: Draft, future: Future[Recorded] | None = None) -> None:
        self.draft = draft
        self.future = future


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
        self._queue: deque[_Call] = deque()
        self._led = False  # somebody commits, or those who were committed are woken; if not, the queue is empty
        self._closed = False
        self._helper: Thread | None = None
        self._helper_woken = Lock()
        self._helper_woken.acquire()

    def append(self, draft: Draft, timeout_s: float | None = None) -> Recorded:
        """Record a draft; returns when it is durable, or was refused by the fold (its effect says so)."""
        call = _Call(draft)
        if self._enqueue(call):
            self._lead(call)
        else:
            self._await(call, self._timeout_s if timeout_s is None else timeout_s)
        if call.answer is None:
            raise call.error or RuntimeError("a call was woken without an answer")
        return call.answer

    def submit(self, draft: Draft) -> Future[Recorded]:
        """Record a draft in the background. Futures of one thread are recorded in the order of its calls."""
        future: Future[Recorded] = Future()
        future.set_running_or_notify_cancel()
        if self._enqueue(_Call(draft, future)):
            self._wake_helper()
        return future

    def close(self) -> None:
        """Refuse new appends and finish those that are queued. Twice is harmless."""
        if forks.generation != self._generation:
            return
        with self._done:
            self._closed = True
            self._done.wait_for(lambda: not self._led)
            helper, self._helper = self._helper, None
        if helper is not None:
            self._helper_woken.release()
            helper.join()

    # ------------------------------------------------------------ the queue

    def _enqueue(self, call: _Call) -> bool:
        """Queue a call; whether its caller is to lead."""
        if forks.generation != self._generation:
            raise used_after_fork()
        with self._lock:
            if self._closed:
                raise closed()
            if len(self._queue) >= self._queue_max:
                raise Unavailable(
                    f"{len(self._queue)} appends wait already",
                    code="overloaded",
                    hint="append less at a time, or raise append_queue_max; call again later",
                    queued=len(self._queue),
                )
            self._queue.append(call)
            if not self._led:
                self._led = True
                return True
            call.woken = Lock()
            call.woken.acquire()
            return False

    def _await(self, call: _Call, timeout_s: float) -> None:
        try:
            woken = call.woken.acquire(timeout=timeout_s)
        except BaseException:
            self._abandon(call)
            raise
        if not woken:
            self._expire(call, timeout_s)
        if call.leads:
            self._lead(call)
            return
        with self._lock:
            self._pass_on(call)

    def _expire(self, call: _Call, timeout_s: float) -> None:
        with self._lock:
            if call.leads or call.answered:
                return  # it came at the last moment
            if call.taken:
                call.gone = True
            else:
                self._queue.remove(call)
        raise Unavailable(
            f"the append {'was handed to the log, which' if call.taken else 'waited in the queue and'} did not answer "
            f"within {timeout_s:g} s",
            code="timeout",
            hint="retry with an append id, or read the head" if call.taken else "call again",
            applied="unknown" if call.taken else "no",
        )

    def _abandon(self, call: _Call) -> None:
        """The caller was interrupted: nobody waits for this call any more."""
        with self._lock:
            if call.answered:
                self._pass_on(call)
            elif call.taken:
                call.gone = True
            else:
                self._queue.remove(call)
                if call.leads:
                    self._hand_on()

    # ------------------------------------------------------------ leading

    def _lead(self, own: _Call | None) -> None:
        """One commit, of the calls that wait now."""
        calls = self._take()
        try:
            answers = self._log.append([call.draft for call in calls])
        except BaseException as error:
            self._answer(calls, own, [None] * len(calls), error)
            if not isinstance(error, Exception):
                raise
        else:
            self._answer(calls, own, answers, None)

    def _take(self) -> list[_Call]:
        queue = self._queue
        calls: list[_Call] = []
        size = 0
        with self._lock:
            while queue and len(calls) < self._actions_max:
                draft = queue[0].draft
                size += len(draft.header) + len(draft.value or b"")
                if calls and size > self._bytes_max:
                    break
                call = queue.popleft()
                call.taken = True
                calls.append(call)
        return calls

    def _answer(
        self,
        calls: Sequence[_Call],
        own: _Call | None,
        answers: Sequence[Recorded | None],
        error: BaseException | None,
    ) -> None:
        """Tell everybody. The leader's own call needs no waking, and for a future nobody waits."""
        with self._lock:
            for call, answer in zip(calls, answers, strict=True):
                call.answer = answer
                call.error = None if error is None else _own_error(error)
                call.answered = True
            waiting = [call for call in calls if call.future is None and call is not own and not call.gone]
            for call, following in pairwise(waiting):
                call.following = following
            if waiting:
                waiting[-1].hands_on = True
                waiting[0].woken.release()
            else:
                self._hand_on()
        for call in calls:
            if call.future is None:
                continue
            if call.answer is not None:
                call.future.set_result(call.answer)
            else:
                call.future.set_exception(call.error)

    def _pass_on(self, call: _Call) -> None:
        """This call's caller goes on: the next one may, too. The lock is held."""
        if call.following is not None and call.following.woken.locked():
            call.following.woken.release()
        if call.hands_on:
            self._hand_on()

    def _hand_on(self) -> None:
        """Let the first that waits lead, or nobody. The lock is held."""
        if not self._queue:
            self._led = False
            if self._closed:
                self._done.notify_all()
            return
        call = self._queue[0]
        if call.future is None:
            call.leads = True
            call.woken.release()
        else:
            self._wake_helper()

    # ------------------------------------------------------------ futures

    def _wake_helper(self) -> None:
        """Nobody waits for a future, so a thread of ours leads in its place."""
        if self._helper is None:
            self._helper = Thread(target=self._help, name="strandline-committer", daemon=True)
            self._helper.start()
        self._helper_woken.release()

    def _help(self) -> None:
        while True:
            self._helper_woken.acquire()
            with self._lock:
                if self._closed and not self._led:
                    return
            self._lead(None)


def _own_error(error: BaseException) -> BaseException:
    """What one of several callers raises: a traceback belongs to one thread."""
    if isinstance(error, StrandlineError):
        own = copy.copy(error)
        own.__cause__ = error.__cause__
        return own
    if isinstance(error, Exception):
        return error
    return Unavailable(
        "the thread that committed was interrupted",
        code="log_failed",
        hint="retry with an append id, or read the head",
        applied="unknown",
    )
