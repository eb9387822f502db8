"""The pipeline's lease on a Cassandra store: a row with a fence, a holder, and a beat that grows while it lives.

    free ──take──▶ held ──beat, beat, …──▶ held ──release──▶ free
                     └── no beat for its lease ──take by another, with the next fence──▶ held

Nobody's clock decides: who wants the lease watches the beat with its own monotonic clock, and takes over what stood
still for `lease_s`. Then it raises the fence in all pointer rows: from there on the old holder moves no pointer, and
what it still writes changes nothing.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import NamedTuple

from strandline.cassandra import Session
from strandline.errors import StrandlineError, Unavailable
from strandline.store.refusals import check_fence, lease_held

WATCH_S = 0.1


class LeaseRow(NamedTuple):
    """The row as it was read."""

    fence: int | None = None
    beat: int | None = None
    beat_us: int | None = None
    """How long the holder's lease is."""
    holder: str | None = None
    since: int | None = None
    errors: str | None = None
    beaten_us: int | None = None
    """When the beat was last written, by the server's clock."""
    now_us: int = 0
    """What the server's clock says now."""

    @property
    def alive(self) -> bool:
        """Whether the holder has said lately that it lives."""
        if self.holder is None or self.beaten_us is None or self.beat_us is None:
            return False
        return self.now_us - self.beaten_us < self.beat_us


def read_lease(session: Session) -> LeaseRow:
    """The row, as the last conditional write left it."""
    rows = session.serial_rows("lease")
    if not rows:
        return LeaseRow()
    *columns, now = rows[0]
    return LeaseRow._make([*columns, now * 1000])


def take_lease(session: Session, holder: str, lease_s: float, now_us: int) -> CassandraLease:
    """Become the holder. Who holds it now is watched: `LeaseHeld` as soon as it beats."""
    row = read_lease(session)
    since = time.monotonic()
    while row.holder is not None and time.monotonic() - since < _patience_s(row, lease_s):
        time.sleep(WATCH_S)
        again = read_lease(session)
        if again.holder is not None and (again.fence, again.beat) != (row.fence, row.beat):
            raise lease_held(again.holder, again.since or 0)
        row = again
    fence, beat = (row.fence or 0) + 1, (row.beat or 0) + 1
    mine = (fence, beat, round(lease_s * 1e6), holder, now_us)
    if not session.conditional("take_lease", (*mine, row.fence, row.beat)):
        again = read_lease(session)
        if (again.fence, again.holder, again.since) != (
            fence,
            holder,
            now_us,
        ):  # else the answer was lost, not the write
            raise lease_held(again.holder or "another process", again.since or 0)
    return CassandraLease(session, fence, beat, holder, lease_s)


def _patience_s(row: LeaseRow, lease_s: float) -> float:
    """A holder has its own lease; what cannot be read counts as ours."""
    return max(lease_s, (row.beat_us or 0) / 1e6)


class CassandraLease:
    """The right to carry. A thread of its own lets the beat grow."""

    def __init__(self, session: Session, fence: int, beat: int, holder: str, lease_s: float) -> None:
        self.fence = fence
        self._session = session
        self._beat = beat
        self._holder = holder
        self._lease_s = lease_s
        self._renewed = time.monotonic()
        self._lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name="strandline-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """`LeaseLost` if it went to somebody else; `Unavailable` if it was not renewed for two thirds of its time."""
        check_fence(read_lease(self._session).fence or 0, self.fence)
        if self.held and time.monotonic() - self._renewed > self._lease_s * 2 / 3:
            raise Unavailable(
                "the lease could not be renewed", code="away", hint="it goes on when Cassandra answers again"
            )

    def release(self) -> None:
        """Give it back. Twice is harmless."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(timeout=self._lease_s)
        with suppress(StrandlineError):  # else it ends by itself
            self._session.conditional("release_lease", (self.fence,))

    @property
    def held(self) -> bool:
        """Whether this process believes to hold it."""
        return not self._lost and not self._ended.is_set()

    def _live(self) -> None:
        while not self._ended.wait(self._lease_s / 3):
            sent = time.monotonic()
            try:
                self._beat += 1
                beaten = self._session.conditional("beat", (self._beat, self.fence, self._holder))
                if not beaten and read_lease(self._session).fence != self.fence:
                    self._lost = True
                    return
            except StrandlineError:
                continue  # tried again; `check` says so when it lasts
            self._renewed = sent
