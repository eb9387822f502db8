"""Processors of random programs: killed at named points, stopped while another takes over, or run to the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from strandline import points
from strandline.group.points import POINTS
from strandline.testing.faults import Crash
from strandline.testing.prove.program import Difference

HANGS_S: Final = 60.0


class RunningProcessor:
    """A processor in a thread of its own."""

    def __init__(self, groups: Any) -> None:
        self._groups, self._processor = groups, groups.processor()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._processor.run_until_idle()
        except BaseException as error:  # noqa: BLE001 (whoever started it looks at it)
            self._error = error

    def start(self) -> None:
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> BaseException | None:
        """Wait until it has come to an end; with which error."""
        self._thread.join(HANGS_S)
        if self._thread.is_alive():
            self._processor.stop()
            raise Difference("hangs", f"the processor does not come to an end: {self._groups.list('open')}")
        return self._error


def gone() -> None:
    """Wait until the threads of a processor that was killed have ended."""
    until = time.monotonic() + 10
    for thread in threading.enumerate():
        if thread.name.startswith("strandline-group"):
            thread.join(max(0.0, until - time.monotonic()))


class ProcessorKills:
    """Ends a processor at a named point: whatever thread comes to any point from then on dies, too."""

    def __init__(self) -> None:
        self.left: list[Any] = []
        self._lock = threading.Lock()
        self._passed: Counter[str] = Counter()
        self._dead = False
        self._stop: tuple[str, int] | None = None
        self._stopped, self._goes_on = threading.Event(), threading.Event()
        self._away: set[str] = set()

    def plan(self, kills: list[Any]) -> None:
        self.left = list(kills)

    def is_stopped(self, running: RunningProcessor) -> bool:
        """Wait until a thread stands still; False if the processor ended before."""
        while not self._stopped.wait(0.005):
            if running.is_over:
                return False
        return True

    def go_on(self) -> None:
        """The log is back, and who stood still goes on."""
        self._away.discard("log")
        self._goes_on.set()

    def _stands(self) -> None:
        """This thread stands still, and the log is away for its processor, so that its lease lapses."""
        self._away.add("log")
        self._stopped.set()
        self._goes_on.wait(30)

    @contextmanager
    def within(self, stop: Any, away: set[str]) -> Iterator[None]:
        """A processor runs. `stop`: the point, and the how manieth time, at which it stands still."""
        before = points.told
        self._passed.clear()
        self._dead, self._stop, self._away = False, stop, away
        self._stopped.clear()
        self._goes_on.clear()

        def told(name: str) -> None:
            if before is not None:
                before(name)
            with self._lock:
                self._passed[name] += 1
                if self.left and self.left[0][0] == name and self._passed[name] >= self.left[0][1]:
                    self.left.pop(0)
                    self._dead = True
                stands = self._stop is not None and (name, self._passed[name]) == tuple(self._stop)
                dead = self._dead
            if stands:
                self._stands()
            if dead and name in POINTS:
                raise Crash

        points.told = told
        try:
            yield
        finally:
            points.told = before
            self.go_on()
