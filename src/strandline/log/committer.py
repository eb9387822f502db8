"""Group commit: appends that arrive while a commit is under way go together into the next one.

There is no thread of its own for callers that wait: who finds nobody committing leads, and commits for all who wait.
Nobody waits for more to come. Order of arrival is order in the log.

Those who were committed wake each other, one after the other, and the last of them wakes the next leader. Sixty threads
that want the interpreter at the same time cost more than their work; and whoever appends again at once is in the next
commit, not in the one after it.

    a call:  queued ── taken ──▶ in a commit ──▶ answered
               │                     └─ past its time-out: Unavailable.timeout, "unknown"
               └─ past its time-out: withdrawn, Unavailable.timeout, "no"

A signal may raise an exception in a caller at any line, and nobody else may notice. So one call at a time has the turn:
it commits, or hands the turn on. Who is interrupted ends under the lock what it owes to others (`_abandon`), and each
step can be taken twice.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from itertools import pairwise
from threading import Condition, Lock, Thread, current_thread

from strandline import forks
from strandline.errors import StrandlineError, Unavailable
from strandline.log.api import Draft, Log, Recorded
from strandline.log.refusals import closed, used_after_fork
from strandline.settings import Settings


class _Call:
    """An append on its way. `woken` is released when it is answered, or when it is to lead."""

    answer: Recorded | None = None
    error: BaseException | None = None
    queued = False  # it was accepted
    leads = False  # it commits for all who wait
    taken = False  # it is in a commit
    answered = False  # the commit has ended
    gone = False  # its caller did not wait for that
    group: list[_Call] | None = None  # what it commits, itself among them
    following: _Call | None = None  # to be woken by this one
    woken: Lock | None = None

    def __init__(self, draft: Draft, future: Future[Recorded] | None = None) -> None:
        self.draft = draft
        self.future = future

    def wake(self) -> None:
        if self.woken is not None and self.woken.locked():
            self.woken.release()


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
        self._turn: _Call | None = None  # it commits, or is the last to be woken of a commit; if none, nobody waits
        self._answered: deque[_Call] = deque()  # futures that are not told yet
        self._closed = False
        self._helper: Thread | None = None
        self._helper_woken = Lock()
        self._helper_woken.acquire()

    def append(self, draft: Draft, timeout_s: float | None = None) -> Recorded:
        """Record a draft; returns when it is durable, or was refused by the fold (its effect says so)."""
        self._check()
        call = _Call(draft)
        try:
            if self._enqueue(call):
                self._lead(call)
            else:
                self._await(call, self._timeout_s if timeout_s is None else timeout_s)
        except BaseException:
            if call.queued:  # else it was refused
                self._abandon(call)
            raise
        if call.answer is None:
            raise call.error or RuntimeError("a call was woken without an answer")
        return call.answer

    def submit(self, draft: Draft) -> Future[Recorded]:
        """Record a draft in the background. Futures of one thread are recorded in the order of its calls."""
        self._check()
        future: Future[Recorded] = Future()
        future.set_running_or_notify_cancel()
        call = _Call(draft, future)
        try:
            self._enqueue(call)
        except BaseException:
            if call.queued:
                self._abandon(call)
            raise
        return future

    def close(self) -> None:
        """Refuse new appends and finish those that are queued. Twice is harmless."""
        if forks.generation != self._generation:
            return
        with self._lock:
            self._closed = True
            if self._turn is not None and self._helper is current_thread():
                self._replace_helper()
            self._done.wait_for(lambda: self._turn is None)
            helper, self._helper = self._helper, None
            self._wake()
        if helper is not None and helper is not current_thread():
            helper.join()

    def _check(self) -> None:
        if forks.generation != self._generation:
            raise used_after_fork()

    # ------------------------------------------------------------ the queue

    def _enqueue(self, call: _Call) -> bool:
        """Queue a call; whether its caller is to lead."""
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
            call.queued = True
            if self._turn is None:
                self._turn = call
                self._queue.append(call)
                if call.future is None:
                    return True
                self._tell()
                return False
            call.woken = Lock()
            call.woken.acquire()
            self._queue.append(call)
            if call.future is None and self._helper is current_thread():
                self._replace_helper()
            return False

    def _await(self, call: _Call, timeout_s: float) -> None:
        if call.woken is None or not call.woken.acquire(timeout=timeout_s):
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
            call.gone = True
            if not call.taken:
                self._queue.remove(call)
        raise Unavailable(  # and `_abandon` follows: it may have got the turn
            f"the append {'was handed to the log, which' if call.taken else 'waited in the queue and'} did not answer "
            f"within {timeout_s:g} s",
            code="timeout",
            hint="retry with an append id, or read the head" if call.taken else "call again",
            applied="unknown" if call.taken else "no",
        )

    def _abandon(self, call: _Call) -> None:
        """The caller goes away, wherever it was: nobody else may wait for it."""
        with self._lock:
            if call in self._queue:
                self._queue.remove(call)
            if call.future is None and call.group is not None and self._turn is call:
                for taken in call.group:
                    if not taken.answered:
                        taken.error, taken.taken, taken.answered = _interrupted(), True, True
                while self._queue and self._queue[0].answered:
                    self._queue.popleft()
                self._end(call)
            elif call.answered:
                self._pass_on(call)
            elif call.taken:
                call.gone = True
            elif self._turn is call:
                self._hand_on()
            self._tell()

    # ------------------------------------------------------------ leading

    def _lead(self, own: _Call) -> None:
        """One commit, of the calls that wait now."""
        calls = self._take(own)
        if not calls:
            return  # a future whose turn is over
        try:
            answers: Sequence[Recorded | None] = self._log.append([call.draft for call in calls])
            error = None
        except Exception as raised:  # noqa: BLE001 - it is for every caller
            answers, error = [None] * len(calls), raised
        with self._lock:
            for call, answer in zip(calls, answers, strict=True):
                call.answer = answer
                call.error = None if error is None else _own_error(error)
                call.answered = True
            self._end(own)

    def _take(self, own: _Call) -> list[_Call]:
        queue = self._queue
        size = 0
        with self._lock:
            if self._turn is not own or own.taken:
                return []
            calls = own.group = []
            while queue and len(calls) < self._actions_max:
                draft = queue[0].draft
                size += len(draft.header) + len(draft.value or b"")
                if calls and size > self._bytes_max:
                    break
                calls.append(queue[0])
                queue[0].taken = True
                queue.popleft()
        return calls

    def _end(self, own: _Call) -> None:
        """All are answered: let them wake each other. The lock is held."""
        calls = own.group or ()
        chain = [own, *[call for call in calls if call.future is None and call is not own and not call.gone]]
        for call, following in pairwise(chain):
            call.following = following
        self._answered.extend(call for call in calls if call.future is not None)
        self._turn = chain[-1]
        self._pass_on(own)

    def _pass_on(self, call: _Call) -> None:
        """This call's caller goes on: the next one may, too. The lock is held."""
        call.gone = True
        if call.following is not None:
            call.following.wake()
        if self._turn is call:
            self._hand_on()

    def _hand_on(self) -> None:
        """Let the first that waits lead, or nobody. The lock is held."""
        self._turn = self._queue[0] if self._queue else None
        self._tell()

    def _tell(self) -> None:
        """Wake whose turn it is. The lock is held."""
        turn = self._turn
        if turn is None:
            if self._closed:
                self._done.notify_all()
        elif not turn.taken and turn.future is None:  # else it is awake, or the one before it wakes it
            turn.leads = True
            turn.wake()
        if (self._answered and self._helper is not current_thread()) or (
            turn is not None and turn.future is not None and not turn.taken
        ):
            self._wake_helper()

    # ------------------------------------------------------------ futures

    def _wake_helper(self) -> None:
        """Nobody waits for a future: a thread of ours leads in its place, and does what follows it."""
        if self._helper is None:
            self._start_helper()
        self._wake()

    def _wake(self) -> None:
        if self._helper_woken.locked():
            self._helper_woken.release()

    def _start_helper(self) -> None:
        helper = Thread(target=self._help, name="strandline-committer", daemon=True)
        helper.start()
        self._helper = helper  # it waits for the lock, which is held; if this is interrupted, it ends

    def _replace_helper(self) -> None:
        """What follows a future waits, in the helper itself: another one leads meanwhile."""
        self._start_helper()
        self._wake()

    def _help(self) -> None:
        with self._lock:
            pass  # until it is named
        try:
            while self._helper is current_thread():
                self._helper_woken.acquire()
                turn = self._turn
                if turn is not None and turn.future is not None:
                    self._lead(turn)
                self._fulfil()
                if self._closed:
                    with self._lock:
                        if self._turn is None:
                            break
            self._fulfil()  # what came last: `close` waits for this thread
        finally:  # also if what follows a future raised SystemExit
            with self._lock:
                if self._helper is current_thread():
                    self._helper = None
                self._tell()
                self._wake()

    def _fulfil(self) -> None:
        """Answer futures. What follows one may append and wait, and then another helper goes on."""
        while self._answered:
            try:
                call = self._answered.popleft()
                if call.future is None:
                    continue
                if call.answer is not None:
                    call.future.set_result(call.answer)
                else:
                    call.future.set_exception(call.error)
            except (IndexError, InvalidStateError):  # another one was faster
                pass


def _own_error(error: Exception) -> Exception:
    """What one of several callers raises: a traceback belongs to one thread."""
    if not isinstance(error, StrandlineError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own


def _interrupted() -> Unavailable:
    return Unavailable(
        "the thread that committed was interrupted",
        code="log_failed",
        hint="retry with an append id, or read the head",
        applied="unknown",
    )
