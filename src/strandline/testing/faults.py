"""Faults at the seams: a log or a store whose calls fail, wait or die, before they do their work or after it.

    faults = Faults()
    s = Strandline(faults.around("log", log), faults.around("store", store))
    faults.at("before log.append", fail(Unavailable("away", code="away")))
    faults.at("after store.write", crash, nth=3)

Points are named after the methods of the protocols, "before NAME.METHOD" and "after NAME.METHOD", so nothing in the
product knows of them. `seen` counts every point that was passed: a fault whose point was never reached tests nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar, cast

Act = Callable[[], None]
T = TypeVar("T")


class Crash(BaseException):
    """The process dies here, as far as the code under test can tell: no `except Exception` sees it."""


class Faults:
    """Plans an act at a named point, and counts the points that were passed."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._planned: dict[str, list[tuple[int, int, Act]]] = {}
        self._lock = Lock()

    def at(self, point: str, act: Act, *, nth: int = 1, times: int = 1) -> None:
        """From the `nth` time on that the point is passed, counted from now, `times` times."""
        if not point.startswith(("before ", "after ")):
            raise ValueError(f'{point!r} is no point; write "before log.append" or "after log.append"')
        with self._lock:
            start = self.seen[point] + nth
            self._planned.setdefault(point, []).append((start, start + times, act))

    def clear(self) -> None:
        """Nothing happens any more."""
        with self._lock:
            self._planned.clear()

    def around(self, name: str, target: T) -> T:
        """Return the log or store with a point before and after each call of a method."""
        return cast(T, _Wrapped(name, target, self))

    def reached(self, point: str) -> None:
        """Pass a point."""
        with self._lock:
            self.seen[point] += 1
            count = self.seen[point]
            acts = [act for start, end, act in self._planned.get(point, ()) if start <= count < end]
        for act in acts:
            act()


class _Wrapped:
    """Passes a point before and after each call; everything else is the target's."""

    def __init__(self, name: str, target: object, faults: Faults) -> None:
        self._name, self._target, self._faults = name, target, faults

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name.startswith("_") or not callable(value):
            return value
        point = f"{self._name}.{name}"

        def call(*args: Any, **kwargs: Any) -> Any:
            self._faults.reached(f"before {point}")
            answer = value(*args, **kwargs)
            self._faults.reached(f"after {point}")
            return answer

        return call


def fail(error: BaseException) -> Act:
    """Raise this error."""

    def act() -> None:
        raise error

    return act


def delay(seconds: float) -> Act:
    """Wait."""
    return lambda: time.sleep(seconds)


def crash() -> None:
    """Die, but let the test live: `Crash` passes through everything."""
    raise Crash


def die() -> None:
    """Die for good, without a word, as by kill -9."""
    os._exit(137)
