"""Runs the steps of one group, as early and as many at a time as their dependencies allow.

Whoever runs a group gives `perform`, which does one step and tells the runner as soon as something of it is there, so
that others start while the rest of it goes on. A step that is alone runs in the caller's thread: a chain costs no
change of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition
from typing import Protocol

from strandline.group.core.schedule import Schedule

Perform = Callable[[str], bool]
"""Do a step; whether it succeeded. An exception ends the run: the group is left as it is."""


class Pool(Protocol):
    """Threads for steps."""

    def submit(self, do: Callable[[str], None], step: str, /) -> object: ...


class Runner:
    """One group's run. `run` returns when nothing runs any more and nothing can start."""

    def __init__(
        self, schedule: Schedule, perform: Perform, pool: Pool | None, *, stop_on_failure: bool = True
    ) -> None:
        """`stop_on_failure`: whether nothing more starts once a step has failed, or only nothing behind it."""
        self.schedule = schedule
        self._stop_on_failure = stop_on_failure
        self._perform = perform
        self._pool = pool
        self._changed = Condition()
        self._running = 0
        self._stopped = False
        self._error: BaseException | None = None

    def run(self, deadline: float | None = None, on_deadline: Callable[[], None] | None = None) -> None:
        """Until the end. `deadline` is of `time.monotonic`; past it `on_deadline` is called, once."""
        while True:
            with self._changed:
                if deadline is not None and time.monotonic() >= deadline:
                    deadline = None
                    if on_deadline is not None:
                        on_deadline()
                step = None if self._stopped else self.schedule.take()
                if step is None:
                    if not self._running:
                        break
                    self._changed.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
                    continue
                self._running += 1
                alone = self._pool is None or (self._running == 1 and not self.schedule.ready)
            if alone or self._pool is None:
                self._do(step)
            else:
                self._pool.submit(self._do, step)
        if self._error is not None:
            raise self._error

    def saved(self, step: str, recipe: str) -> None:
        """A recipe's result is there."""
        with self._changed:
            self.schedule.saved(step, recipe)
            self._start_others()

    def decided(self, step: str) -> None:
        """A step's success is there, or taken for granted."""
        with self._changed:
            self.schedule.decided(step)
            self._start_others()

    def stop(self) -> None:
        """Start nothing more; what runs goes on to its end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def alone(self) -> bool:
        """Wait until the caller's step is the only one that runs; False if nothing is to start any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._running <= 1 or self._stopped)
            return not self._stopped

    @property
    def stopped(self) -> bool:
        return self._stopped

    def _start_others(self) -> None:
        """A step that is still under way has made others ready; the thread that starts steps may be the one it has."""
        while self._pool is not None and not self._stopped and (step := self.schedule.take()) is not None:
            self._running += 1
            self._pool.submit(self._do, step)
        self._changed.notify_all()

    def _do(self, step: str) -> None:
        succeeded, error = False, None
        try:
            succeeded = self._perform(step)
        except BaseException as raised:  # noqa: BLE001 (whatever it is, it is the run's)
            error = raised
        with self._changed:
            self._running -= 1
            if error is not None:
                self._error, self._stopped = self._error or error, True
            elif succeeded:
                self.schedule.succeeded(step)
            else:
                self.schedule.failed(step)
                self._stopped = self._stopped or self._stop_on_failure
            self._changed.notify_all()
