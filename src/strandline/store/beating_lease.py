"""A lease that its holder renews by a heartbeat: for stores on servers, where nothing else tells that a holder died.

The holder changes a number in the lease's row, the beat; a process that wants the lease watches that number. A number
that moves belongs to somebody; one that is still for `lease_s` belongs to nobody, and the next holder raises the fence.
The fence in the pointer rows says whose writes count: it protects the store even from a holder that does not know yet
that it is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final, NamedTuple

from strandline import forks
from strandline.errors import StrandlineError
from strandline.repeated_warnings import RepeatedWarnings
from strandline.store.refusals import check_fence, lease_held, used_after_fork

BEAT_MOST_S: Final = 1.0
WATCH_S: Final = 0.05
_logger: Final = logging.getLogger("strandline.store")


class LeaseRow(NamedTuple):
    """The row of a lease. `still_s`: for how long the beat has not moved, by the store's clock."""

    fence: int
    holder: str | None
    since: int | None
    beat: int
    still_s: float

    def held(self, lease_s: float) -> tuple[str, int] | None:
        """Return its holder, and since when."""
        if self.holder is None or self.still_s >= lease_s:
            return None
        return self.holder, self.since or 0


FREE: Final = LeaseRow(0, None, None, 0, 0.0)


def wait_until_free(look: Callable[[], LeaseRow], lease_s: float) -> LeaseRow:
    """Return the row, once nobody holds the lease: `LeaseHeld` as soon as its beat is seen to move."""
    first = row = look()
    watched = time.monotonic()
    while (holder := row.held(lease_s)) is not None and time.monotonic() - watched < lease_s:
        if (row.fence, row.beat) != (first.fence, first.beat):
            raise lease_held(*holder)
        time.sleep(WATCH_S)
        row = look()
    return row


def told_taken(where: object, holder: str, fence: int) -> None:
    """Write to the program's log that this process has a lease now."""
    _logger.info("lease pipeline of %s taken by %s, fence %d", where, holder, fence)


class BeatingLease:
    """The right to carry. The lease's own thread calls `beat`, which says whether the fence is still in force."""

    def __init__(
        self,
        fence: int,
        lease_s: float,
        *,
        beat: Callable[[int], bool],
        in_force: Callable[[], int],
        ended: Callable[[int], None],
    ) -> None:
        self.fence = fence
        self._beat = beat
        self._in_force = in_force
        self._ended = ended
        self._warnings = RepeatedWarnings(_logger)
        self._interval_s = min(lease_s / 3, BEAT_MOST_S)
        self._generation = forks.generation
        self._over = Event()
        self._thread = Thread(target=self._live, name="strandline-lease", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Return whether the lease was given back, or lost."""
        return self._over.is_set()

    def check(self) -> None:
        """Raise `LeaseLost` if another fence is in force."""
        if forks.generation != self._generation:
            raise used_after_fork()
        check_fence(self._in_force(), self.fence)

    def release(self) -> None:
        """Give the lease back. A second call, or a call in a forked child, does nothing."""
        if forks.generation != self._generation:
            return
        if not self._over.is_set():
            self._over.set()
            try:
                self._ended(self.fence)
            except StrandlineError as error:
                _logger.warning("the lease ends by itself, since it could not be given back: %s", error)
        self._thread.join()

    def _live(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                if not self._beat(self.fence):
                    self._over.set()
                    _logger.warning("the lease with fence %d is lost: somebody else has taken it", self.fence)
            except StrandlineError as error:
                self._warnings.warning(error.name, "the lease could not be renewed: %s", error)
