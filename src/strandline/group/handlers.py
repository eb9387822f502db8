"""Handlers: callables known by name, called in threads of their own, and never looked up anywhere but in the registry.

A call that raises, refuses or takes too long is an answer, too. Within a handler a wait for a group of the same stream
is refused: it could wait for itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidInput, text_of
from strandline.group.core.encoding import readable
from strandline.group.core.names import is_name
from strandline.group.core.parts import Produced, Refused
from strandline.plain_calls import check_plain, check_ran

THREADS: Final = 33
"""One of them waits for news in the log."""
IDLE_S: Final = 5.0
Callee = Callable[[Any], Any]
_here = threading.local()


class HandlerAnswer(NamedTuple):
    """The outcome of a call: results, or the reason why there are none."""

    results: Mapping[str, Any] | None
    reason: str = ""
    retryable: bool = False
    timed_out: bool = False


class Handlers:
    """A registry, and threads that call what is in it. Threads start when they are needed and end by themselves."""

    def __init__(self, registry: Mapping[str, Callee], stream: str) -> None:
        self.registry = dict(registry)
        self._stream = stream
        self._calls: deque[tuple[Callee, Any, Future[HandlerAnswer]]] = deque()
        self._changed = threading.Condition()
        self._threads = self._busy = 0
        self.hung: dict[str, str] = {}
        """Message ids of calls that did not return in time, and whom they went to."""

    def run(self, callee: Callee, message: Any) -> Future[HandlerAnswer]:
        """Run `call` in a thread. Its answer, whenever it comes, is the future's result."""
        answer: Future[HandlerAnswer] = Future()
        with self._changed:
            self._calls.append((callee, message, answer))
            if len(self._calls) > self._threads - self._busy and self._threads < THREADS:
                self._threads += 1
                threading.Thread(target=self._serve, name="strandline-handler", daemon=True).start()
            self._changed.notify()
        return answer

    def _serve(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._calls, timeout=IDLE_S):
                    self._threads -= 1
                    return
                callee, message, answer = self._calls.popleft()
                self._busy += 1
            with inside(self._stream):
                answer.set_result(called(callee, message))
            self.hung.pop(getattr(message, "message_id", ""), None)
            with self._changed:
                self._busy -= 1


def check_handlers(registry: Mapping[str, Callee]) -> None:
    """Refuse handlers whose call does nothing by itself, before anything is asked of them."""
    hint = "give a plain function, or take s.groups of strandline.aio, whose handlers may be async"
    for name, handler in registry.items():
        check_plain(handler, f"handlers.{name}".rstrip("."), hint)


def called(callee: Callee, message: Any) -> HandlerAnswer:
    """Call a handler and return its answer. An exception is an answer, too."""
    try:
        given = callee(message)
        check_ran(given)
    except BaseException as error:  # noqa: BLE001 (a handler of the user's; one that exits has answered, too)
        return HandlerAnswer(None, readable(f"{type(error).__name__}: {text_of(error)}"[:1000]))
    return answer_of(given)


def answer_of(given: Any) -> HandlerAnswer:
    """Return a handler's return value as an answer."""
    if isinstance(given, Refused):
        return HandlerAnswer(None, readable(str(given.reason)), given.retryable)
    results = given.results if isinstance(given, Produced) else given
    if results is None:
        return HandlerAnswer({})
    if not isinstance(results, Mapping) or not all(map(is_name, results)):
        return HandlerAnswer(None, f"a handler gives results by name, not {type(given).__name__}")
    return HandlerAnswer(dict(results))


@contextmanager
def inside(stream: str) -> Iterator[None]:
    """Mark this thread as one that calls a handler of this stream."""
    _here.stream = stream
    try:
        yield
    finally:
        _here.stream = None


def check_not_inside(stream: str) -> None:
    """Raise `InvalidInput.wait_in_handler` within a handler of this stream."""
    if getattr(_here, "stream", None) == stream:
        raise InvalidInput(
            "a handler waits for a group of its own stream, which may wait for this handler",
            code="wait_in_handler",
            hint="submit and return; or use another stream",
        )
