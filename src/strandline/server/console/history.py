"""An hour's history of a journal: one thread reads its status every few seconds, for all open pages."""

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
"""How old a status may be to be used again."""
_logger: Final = logging.getLogger("strandline.server")


class StatusSample(NamedTuple):
    """The figures of a journal at one time."""

    at: float
    """Monotonic, in seconds."""
    recorded: int
    """The number of records that the log has ever had, with Marks."""
    carried: int
    lag_actions: int
    lag_s: float
    projections: Mapping[str, float | None]
    """How many seconds each projection is behind the store; None before its start."""


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
        """Start reading the status every few seconds. Twice is harmless."""
        with self._looking:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="strandline-console", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop reading the status."""
        self._stop.set()

    def status(self) -> Status:
        """Return a status that is at most `FRESH_S` old; raise the error of reading it."""
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
    """Return the sample of a status."""
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
    """Return the time span of a picture and its title: a minute at first, an hour in the end."""
    passed = samples[-1].at - samples[0].at if samples else 0.0
    if passed >= KEPT_S * 0.95:
        return KEPT_S, "last hour"
    span = max(60.0, passed)
    return span, "last minute" if span < 90 else f"last {span / 60:.0f} min"


def rates(samples: list[StatusSample], what: str) -> list[Rate]:
    """Return the growth of a count per second, between each two neighbouring samples."""
    return list(_rates(samples, what))


def _rates(samples: list[StatusSample], what: str) -> Iterator[Rate]:
    for before, after in pairwise(samples):
        passed = after.at - before.at
        if passed > 0:
            grown: Any = getattr(after, what) - getattr(before, what)
            yield Rate(after.at, max(0.0, grown / passed))
