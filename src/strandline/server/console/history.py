"""An hour's history of a journal: a thread looks at it every few seconds, once for all who watch."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Event as Signal
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.errors import StrandlineError
from strandline.journal.status import Status

if TYPE_CHECKING:
    from strandline.connect import Strandline

LOOK_S: Final = 5.0
KEPT_S: Final = 3600.0
FRESH_S: Final = 1.0
"""A look that is no older serves everybody who asks."""
_logger: Final = logging.getLogger("strandline.server")


class StatusSample(NamedTuple):
    """How a journal stood at one time."""

    at: float
    """Monotonic, in seconds."""
    recorded: int
    """Records that the log has ever had, Marks too."""
    carried: int
    lag_actions: int
    lag_s: float
    projections: Mapping[str, float | None]
    """How far each is behind the store; None before its start."""


class Rate(NamedTuple):
    """A figure between two samples."""

    at: float
    value: float


class StatusHistory:
    """Samples of the last hour, and the newest status."""

    def __init__(self, s: Strandline) -> None:
        self._s = s
        self._samples: deque[StatusSample] = deque(maxlen=round(KEPT_S / LOOK_S))
        self._status: Status | None = None
        self._error: StrandlineError | None = None
        self._looked_at = -FRESH_S
        self._looking = Lock()
        self._stop = Signal()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Look every few seconds from here on. Twice is harmless."""
        with self._looking:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="strandline-console", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def status(self) -> Status:
        """Return how the journal stands, by a look that is fresh; raises what the look raised."""
        with self._looking:
            if time.monotonic() - self._looked_at > FRESH_S:
                self._look()
            if self._error is not None:
                raise self._error
            if self._status is None:
                raise AssertionError("unreachable: a look leaves a status or an error")
            return self._status

    def samples(self) -> list[StatusSample]:
        """Return all samples, the oldest first."""
        return list(self._samples)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._looking:
                    self._look()
                    if self._error is None and self._status is not None:
                        self._samples.append(sample_of(self._status, self._looked_at))
            except Exception:
                if not self._stop.is_set():
                    _logger.exception("bug: the console's look at the journal")
            self._stop.wait(LOOK_S)

    def _look(self) -> None:
        try:
            self._status, self._error = self._s.status(), None
        except StrandlineError as error:
            self._error = error
            if error.code == "closed":
                self._stop.set()
        self._looked_at = time.monotonic()


def sample_of(status: Status, at: float) -> StatusSample:
    """Return what is kept of a status."""
    rows = {section.name: section.rows for section in status.sections}
    return StatusSample(
        at,
        sum(one.newest + 1 for one in status.partitions),
        sum(one.pointer + 1 for one in status.partitions),
        sum(one.lag_actions for one in status.partitions),
        max(one.lag_s for one in status.partitions),
        {f"{row['name']} {row['generation']}": row["behind_store_s"] for row in rows.get("projections", ())},
    )


def span_of(samples: Sequence[StatusSample]) -> tuple[float, str]:
    """Return how far back a picture goes, and what that is called: a minute at first, an hour in the end."""
    passed = samples[-1].at - samples[0].at if samples else 0.0
    if passed >= KEPT_S * 0.95:
        return KEPT_S, "last hour"
    span = max(60.0, passed)
    return span, "last minute" if span < 90 else f"last {span / 60:.0f} min"


def rates(samples: list[StatusSample], what: str) -> list[Rate]:
    """Return how much of a count came each second, between any two samples."""
    return list(_rates(samples, what))


def _rates(samples: list[StatusSample], what: str) -> Iterator[Rate]:
    for before, after in pairwise(samples):
        passed = after.at - before.at
        if passed > 0:
            grown: Any = getattr(after, what) - getattr(before, what)
            yield Rate(after.at, max(0.0, grown / passed))
