"""The targets of a stream while one processor runs it. Each is opened, checked to be owned by the stream, and fenced.

    away ──▶ there ──▶ now and then: old barrier rows are removed
     ▲         │
     └─────────┘ it went away: fenced again when it is back

No group runs on a target before it is there, because until then the previous processor may still commit on it. A timer
tries a target that is away again; it delays only its own groups. An error that a later try cannot mend (a refused
login, a target of another stream) ends the processor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from strandline.errors import Unavailable
from strandline.group.execution import OpenTarget
from strandline.group.lease import StreamLease
from strandline.group.points import reached
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S
from strandline.group.target import CellTarget, SqlTarget

if TYPE_CHECKING:
    from strandline.group.groups import Groups

FIRST_TRY_S: Final = 1.0
"""How long the processor waits for all targets before it begins."""
FORGET_S: Final = 600.0
FORGET_GROUPS: Final = 1000
REASON_MAX: Final = 200
_logger: Final = logging.getLogger("strandline.group")


class Fences:
    """Knows the targets of a processor. `there` and `away` change at any time."""

    def __init__(
        self,
        groups: Groups,
        lease: StreamLease,
        open_groups: Callable[[], Collection[str]],
        submit: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        self._groups, self._lease, self._open_groups = groups, lease, open_groups
        self._submit, self._later, self._wake = submit, later, wake
        self.there: dict[str, OpenTarget] = {}
        self.away: dict[str, str] = {}
        """Why each target that was tried is not there."""
        self._tried = {name: Event() for name in groups.targets.given}
        self._waits_s = dict.fromkeys(self._tried, WAIT_LEAST_S)
        self._over = False
        self._error: BaseException | None = None
        self._lock = Lock()

    def begin(self) -> None:
        """Try to fence all targets. Tries that take long go on in the background."""
        until = time.monotonic() + FIRST_TRY_S
        for name in self._tried:
            self._try(name)
        for name, tried in self._tried.items():
            if not tried.wait(max(0.0, until - time.monotonic())):
                self._is_away(name, "it did not answer yet")
        self.check()

    def check(self) -> None:
        """Raise an error that a later try cannot mend, if there is one."""
        if self._error is not None:
            raise self._error

    def admitted(self) -> None:
        """Begin to remove old barrier rows: all groups that may have some are known from here on."""
        self._forget()

    def lost(self, name: str, why: str) -> None:
        """Try a target again later, because it stopped answering."""
        with self._lock:
            if self.there.pop(name, None) is None:
                return
        self._is_away(name, why)
        self._wake()
        self._later(WAIT_LEAST_S, lambda: self._try(name))

    def end(self) -> None:
        """Try nothing any more. What is under way is not waited for: it changes nothing once another processor
        fences."""
        self._over = True

    def _try(self, name: str) -> None:
        if not self._over:
            self._submit(lambda: self._tries(name))

    def _tries(self, name: str) -> None:
        try:
            opened = self._fenced(name)
        except Unavailable as error:
            if error.retryable:
                self._is_away(name, error.message)
                wait_s, self._waits_s[name] = self._waits_s[name], min(2 * self._waits_s[name], WAIT_MOST_S)
                self._later(min(wait_s, WAIT_MOST_S), lambda: self._try(name))
            else:
                self._error = self._error or error
        except BaseException as error:  # noqa: BLE001 (whatever it is, the processor raises it)
            self._error = self._error or error
        else:
            with self._lock:
                self.there[name], self._waits_s[name] = opened, WAIT_LEAST_S
                if self.away.pop(name, None) is not None:
                    reached("group.target_is_back")
                    _logger.warning("stream %s: target %s is there", self._lease.stream, name)
        self._tried[name].set()
        self._wake()

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

    def _forget(self) -> None:
        """Remove now and then barrier rows that are older than a statement could be late."""
        if not self._over:
            self._submit(self._forget_old)

    def _forget_old(self) -> None:
        keep_s, wait_s = self._groups.settings.barrier_keep_s, FORGET_S
        for name, opened in self.there.copy().items():
            if self._over or not isinstance(opened.target, SqlTarget):
                continue
            try:
                gone = opened.target.forget(opened.owner, self._lease.fence, keep_s, self._open_groups(), FORGET_GROUPS)
            except Unavailable as error:
                _logger.info("barrier rows of %s are left for later: %s", name, error)
            except BaseException as error:  # noqa: BLE001 (whatever it is, the processor raises it)
                self._error = self._error or error
                self._wake()
                return
            else:
                wait_s = 0.0 if gone >= FORGET_GROUPS else wait_s
        self._later(wait_s, self._forget)
