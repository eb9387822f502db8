"""Callers of the committer hold up nobody: interrupted anywhere, or with whatever follows a future of theirs."""

from __future__ import annotations

import ast
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, cast

import pytest

from strandline.backends.memory.log import MemoryLog
from strandline.errors import Unavailable
from strandline.log import committer as module
from strandline.log.committer import Committer, unchanged
from strandline.settings import Settings
from strandline.testing.log_contract.committing import Gate, until
from strandline.testing.log_contract.made import PARTITIONS, draft_of

ANSWER_S = 5.0
SOURCE = inspect.getsource(module)
LOCKS = {node.lineno for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.With)}


class Interruption:
    """Raises KeyboardInterrupt in this thread at the line of the committer that is reached as this many-th.

    Python raises no signal's exception between the last line of a `with` and the exit from it; nor does this.
    """

    def __init__(self, at: int) -> None:
        self._left = at
        self.line = 0

    def __enter__(self) -> Interruption:
        sys.settrace(self._frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _frame(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return partial(self._step, set()) if frame.f_code.co_filename == module.__file__ else None

    def _step(self, entered: set[int], frame: FrameType, event: str, argument: Any) -> Any:
        line = frame.f_lineno
        if event == "line" and not self.line and line not in entered:
            self._left -= 1
            if self._left < 0:
                self.line = line
                raise KeyboardInterrupt
            if line in LOCKS:
                entered.add(line)
        return partial(self._step, entered)


class Scene:
    """A committer over a log in memory, and threads that append beside the one that is interrupted."""

    def __init__(self) -> None:
        self.gate = Gate(MemoryLog(partitions=PARTITIONS))
        self.committer = Committer(self.gate, Settings(append_timeout_s=ANSWER_S))
        self.pool = ThreadPoolExecutor(8)
        self.others: list[Future[Any]] = []

    def hold(self) -> None:
        """From here on a commit waits, that of somebody else."""
        self.gate.open.clear()
        self.append()
        assert self.gate.entered.acquire(timeout=ANSWER_S)

    def append(self) -> None:
        """Append beside, in a thread."""
        queued = len(self.committer._queue)
        waits = not self.gate.open.is_set() and bool(self.others)
        self.others.append(self.pool.submit(self.committer.append, draft_of("order|other")))
        if waits:
            until(lambda: len(self.committer._queue) > queued)

    def submit(self) -> None:
        """Append beside, for a future."""
        self.others.append(self.committer.submit(draft_of("order|other"), unchanged))

    def close(self) -> None:
        self.pool.submit(self.committer.close).result(ANSWER_S)
        self.pool.shutdown()


def helpers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name in {"strandline-committer", "strandline-futures"}}


BEFORE: set[threading.Thread] = set()
"""Those of other tests, which may have left a journal open."""


@pytest.fixture(autouse=True)
def _others() -> None:
    BEFORE.clear()
    BEFORE.update(helpers())


def no_helper() -> bool:
    return helpers() <= BEFORE


def alone(scene: Scene) -> None:
    scene.committer.append(draft_of("order|interrupted"))


def commit(scene: Scene) -> None:
    """Others come while this one commits."""
    scene.gate.open.clear()

    def others() -> None:
        scene.gate.entered.acquire(timeout=0.05)  # it may be interrupted before
        scene.append()
        scene.submit()
        scene.gate.open.set()

    beside = scene.pool.submit(others)
    try:
        scene.committer.append(draft_of("order|interrupted"))
    finally:
        beside.result(ANSWER_S)


def wait(scene: Scene, before: int) -> None:
    """Others are queued before this one and after it."""
    scene.hold()
    for _ in range(before):
        scene.append()
    done = threading.Event()

    def others() -> None:
        until(lambda: len(scene.committer._queue) > before or done.is_set())
        scene.submit()
        scene.append()
        scene.gate.open.set()

    beside = scene.pool.submit(others)
    try:
        scene.committer.append(draft_of("order|interrupted"))
    finally:
        done.set()
        beside.result(ANSWER_S)


def submit(scene: Scene, *, held: bool) -> None:
    if held:
        scene.hold()
    try:
        scene.committer.submit(draft_of("order|interrupted"), unchanged)
    finally:
        scene.gate.open.set()


def append_all(scene: Scene, *, held: bool) -> None:
    if held:
        scene.hold()
        opening = threading.Timer(0.01, scene.gate.open.set)
        opening.start()
    try:
        scene.committer.append_all([draft_of("order|interrupted"), draft_of("order|interrupted")])
    finally:
        scene.gate.open.set()


CALLS: dict[str, Callable[[Scene], None]] = {
    "alone": alone,
    "alone, by itself": alone,
    "in a commit": commit,
    "in a commit, by itself": commit,
    "waits": partial(wait, before=0),
    "waits behind others": partial(wait, before=2),
    "two at once": partial(append_all, held=False),
    "two at once, by itself": partial(append_all, held=False),
    "two at once, behind others": partial(append_all, held=True),
    "for a future": partial(submit, held=False),
    "for a future, behind others": partial(submit, held=True),
}


def interrupted(call: Callable[[Scene], None]) -> Iterator[tuple[Scene, int]]:
    """A scene for every line that the call comes through, after it was interrupted there."""
    for at in count():
        scene = Scene()
        with Interruption(at) as interruption:
            try:
                call(scene)
            except KeyboardInterrupt:
                pass
            else:
                if not interruption.line:
                    scene.close()
                    return
        yield scene, interruption.line


@pytest.mark.parametrize("name", CALLS)
def test_a_caller_that_is_interrupted_anywhere_holds_up_nobody(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "by itself" in name:  # as if in another thread, where no signal, but a debugger may raise
        monkeypatch.setattr(module, "main_thread", lambda: None)
    lines = set()
    for scene, line in interrupted(CALLS[name]):
        lines.add(line)
        where = SOURCE.splitlines()[line - 1].strip()
        scene.append()
        errors = [other.exception(ANSWER_S + 1) for other in scene.others]
        assert {getattr(error, "code", error) for error in errors} <= {None, "log_failed"}, where
        scene.close()
    assert len(lines) > 10
    until(no_helper)


# ---------------------------------------------------------------- what follows a future


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.gate.open.set()
    scene.close()
    until(no_helper)


def submitted(scene: Scene) -> Future[Any]:
    return scene.committer.submit(draft_of("order|future"), unchanged)


def test_close_waits_for_a_future_that_comes_while_another_one_is_followed(scene: Scene) -> None:
    scene.hold()
    scene.append()
    begun, go_on = threading.Event(), threading.Event()

    def follow(_: object) -> None:
        begun.set()
        go_on.wait(ANSWER_S)

    submitted(scene).add_done_callback(follow)
    scene.gate.open.set()
    assert begun.wait(ANSWER_S)
    late = submitted(scene)
    closing = scene.pool.submit(scene.committer.close)
    until(lambda: scene.committer._closed)
    go_on.set()
    closing.result(ANSWER_S)
    assert late.result(0).place is not None


@pytest.mark.parametrize("others", [0, 1])
def test_what_follows_a_future_may_close(scene: Scene, others: int) -> None:
    scene.gate.open.clear()
    first = submitted(scene)
    assert scene.gate.entered.acquire(timeout=ANSWER_S)
    closed: Future[None] = Future()

    def close(_: object) -> None:
        try:
            scene.committer.close()
            closed.set_result(None)
        except BaseException as error:
            closed.set_exception(error)

    first.add_done_callback(close)
    behind = [submitted(scene) for _ in range(others)]
    scene.gate.open.set()
    closed.result(ANSWER_S)
    assert all(future.result(ANSWER_S).place is not None for future in behind)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_follows_a_future_may_end_its_thread(scene: Scene) -> None:
    scene.gate.open.clear()
    first = submitted(scene)
    assert scene.gate.entered.acquire(timeout=ANSWER_S)
    first.add_done_callback(lambda _: sys.exit(1))
    second = submitted(scene)
    scene.gate.open.set()
    assert second.result(ANSWER_S).place is not None
    assert submitted(scene).result(ANSWER_S).place is not None


# ---------------------------------------------------------------- signals


class Interrupting:
    """The committer's lock, which raises a signal in this thread right after it was let go of, once."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._left = True

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._lock.__exit__(*raised)
        if self._left and threading.current_thread() is threading.main_thread():
            self._left = False
            signal.raise_signal(signal.SIGUSR1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


@contextmanager
def handled(handler: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_future_that_is_abandoned_while_it_is_committed_lets_nobody_commit_beside(scene: Scene) -> None:
    """The signal's handler takes a while, and its commit begins meanwhile."""
    scene.gate.open.clear()

    def handle() -> None:
        assert scene.gate.entered.acquire(timeout=ANSWER_S)
        raise KeyboardInterrupt

    lock = scene.committer._lock
    scene.committer._lock = cast(Any, Interrupting(lock))
    with handled(handle), pytest.raises(KeyboardInterrupt):
        submitted(scene)
    scene.committer._lock = lock
    scene.append()
    assert not scene.gate.entered.acquire(timeout=0.2), "two commits at once"
    scene.gate.open.set()
    assert scene.others[0].result(ANSWER_S).place is not None


def test_a_signal_may_raise_one_of_our_errors(scene: Scene) -> None:
    def handle() -> None:
        raise Unavailable("late", code="timeout", hint="of the caller's own")

    scene.hold()

    def interrupt() -> None:
        until(lambda: len(scene.committer._queue) == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    scene.pool.submit(interrupt)
    with handled(handle), pytest.raises(Unavailable, match="late"):
        scene.committer.append(draft_of("order|interrupted"))
    assert not scene.committer._queue
