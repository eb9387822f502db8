"""Ends or pauses this process at a named point of an event group, or of a change of logs: between two durable writes.

kill_at("step.done", 2)       # the second time that a step is done in its target, and not yet recorded
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from threading import Lock

from strandline import points, repartition
from strandline.group import points as group

__all__ = ["POINTS", "at", "clear", "kill_at"]

POINTS = group.POINTS
ALL = (*group.POINTS, *repartition.POINTS)


def kill_at(point: str, time: int = 1) -> None:
    """End this process as a power cut would, the so-manieth time that it comes to a point."""
    at(point, lambda: os.kill(os.getpid(), signal.SIGKILL), time)


def at(point: str, act: Callable[[], object], time: int = 1) -> None:
    """Do something at a point, in the thread that comes there."""
    if point not in ALL:
        raise ValueError(f"there is no point {point!r}; there are: {', '.join(ALL)}")
    passed: Counter[str] = Counter()
    lock = Lock()

    def told(name: str) -> None:
        with lock:
            passed[name] += 1
            due = name == point and passed[name] == time
        if due:
            act()

    points.told = told


def clear() -> None:
    """Let everything pass again."""
    points.told = None
