"""The targets of a stream while one processor runs it: each is opened, found to be ours, and fenced.

    away ──▶ there ──▶ now and then: old barrier rows are removed

No group runs on a target before it is there: until then one of the processor before may still commit on it. Each target
has a thread of its own, which tries until that worked: one that is away, or does not answer, holds up nobody but its
own groups. What a later try cannot mend (a user who is not let in, a target of another stream) ends the processor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from strandline.errors import Unavailable
from strandline.group.asking import OpenTarget
from strandline.group.lease import StreamLease
from strandline.group.points import reached
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S
from strandline.group.target import CellTarget, SqlTarget

if TYPE_CHECKING:
    from strandline.group.groups import Groups

FIRST_TRY_S: Final = 1.0
"""So long all are waited for to begin with."""
FORGET_S: Final = 600.0
FORGET_GROUPS: Final = 1000
REASON_MAX: Final = 200
_logger: Final = logging.getLogger("strandline.group")


class Fences:
    """What a processor knows of its targets. `there` and `away` change at any time."""

    def __init__(
        self, groups: Groups, lease: StreamLease, open_groups: Callable[[], Collection[str]], wake: Callable[[], None]
    ) -> None:
        self._groups, self._lease, self._open_groups, self._wake = groups, lease, open_groups, wake
        self.there: dict[str, OpenTarget] = {}
        self.away: dict[str, str] = {}
        """Why, of those that were tried in vain."""
        self._tried = {name: Event() for name in groups.targets.given}
        self._admitted, self._over = Event(), Event()
        self._error: BaseException | None = None
        self._lock = Lock()

    def begin(self) -> None:
        """Try all of them; those that take long are left to their threads."""
        until = time.monotonic() + FIRST_TRY_S
        for name in self._tried:
            Thread(target=self._keep, args=(name,), name=f"strandline-target-{name}", daemon=True).start()
        for name, tried in self._tried.items():
            if not tried.wait(max(0.0, until - time.monotonic())):
                self._is_away(name, "it did not answer yet")
        self.check()

    def check(self) -> None:
        """Raise what a later try cannot mend."""
        if self._error is not None:
            raise self._error

    def admitted(self) -> None:
        """All groups that may have barrier rows are known from here on."""
        self._admitted.set()

    def end(self) -> None:
        """Nothing is tried any more. What is under way is not waited for: it changes nothing once another one is."""
        self._over.set()
        self._admitted.set()

    def _keep(self, name: str) -> None:
        try:
            opened = self._until_there(name)
            if opened is not None and isinstance(opened.target, SqlTarget):
                self._admitted.wait()
                self._forget_old(name, opened, opened.target)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the processor raises it)
            self._error = self._error or error
            self._tried[name].set()
            self._wake()

    def _until_there(self, name: str) -> OpenTarget | None:
        wait_s = WAIT_LEAST_S
        while not self._over.is_set():
            opened = self._try(name)
            self._tried[name].set()
            self._wake()
            if opened is not None:
                return opened
            self._over.wait(wait_s)
            wait_s = min(2 * wait_s, WAIT_MOST_S)
        return None

    def _try(self, name: str) -> OpenTarget | None:
        try:
            opened = self._fenced(name)
        except Unavailable as error:
            if not error.retryable:
                raise
            self._is_away(name, error.message)
            return None
        with self._lock:
            self.there[name] = opened
            if self.away.pop(name, None) is not None:
                _logger.warning("stream %s: target %s is there", self._lease.stream, name)
        return opened

    def _is_away(self, name: str, why: str) -> None:
        with self._lock:
            if name in self.there:
                return
            if name not in self.away:
                _logger.warning("stream %s: target %s is away, its groups wait: %s", self._lease.stream, name, why)
            self.away[name] = why[:REASON_MAX]

    def _fenced(self, name: str) -> OpenTarget:
        self._lease.check()
        target, owner = self._groups.targets.target(name), self._groups.targets.owner(name)
        if isinstance(target, SqlTarget):
            target.raise_fence(owner, self._lease.fence)
            reached("fence.raised")
        elif not isinstance(target, CellTarget):
            raise TypeError(target)
        return OpenTarget(target, owner)

    def _forget_old(self, name: str, opened: OpenTarget, target: SqlTarget) -> None:
        """Now and then: barrier rows that are older than a statement could be late."""
        keep_s = self._groups.settings.barrier_keep_s
        while not self._over.is_set():
            gone = 0
            try:
                gone = target.forget(opened.owner, self._lease.fence, keep_s, self._open_groups(), FORGET_GROUPS)
            except Unavailable as error:
                _logger.info("barrier rows of %s are left for later: %s", name, error)
            if gone < FORGET_GROUPS:
                self._over.wait(FORGET_S)
