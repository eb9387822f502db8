"""The right to run a stream: a journal of its own, in which its holder appends a beat now and then.

Every append says which event it expects to be the last, so two processors cannot both hold it, on any log, and nobody
needs a clock that others have. A holder whose beat has not changed for `lease_s`, by the boot clock of the watching
process, counts as gone; the next holder raises the fence. A holder that could not beat for two thirds of that time, by
its own clock, stops by itself. A beat contains the stream's progress (`done_to`) and the open groups before it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from threading import Event as Signal
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

from strandline.errors import LeaseLost, SeqNrConflict, StrandlineError, Unavailable
from strandline.group.names import lease_key
from strandline.group.points import reached
from strandline.journal.journal import Journal
from strandline.values.events import Event

WATCH_S: Final = 0.05
DELETE_EVERY: Final = 50
REPLACED_MAX: Final = 100
_logger: Final = logging.getLogger("strandline.group")


class StreamPlace(NamedTuple):
    """An entry of the stream that is a group's."""

    n: int
    id: str
    code: Mapping[str, str]
    """The versions of code that are in force there: by name, `name@version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """The progress of a stream, as a beat contains it."""

    done_to: int = 0
    open: Mapping[str, StreamPlace] = field(default_factory=dict)
    """Groups up to there that are not over."""
    horizon: int = 0
    """No timestamp above it was given to a target."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The versions of code in force at `done_to`, by name."""
    replaced: tuple[str, ...] = ()
    """Versions that were in force before that, the last ones."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Targets that the holder could not fence yet, and why: their groups wait."""
    behind: Mapping[str, str] = field(default_factory=dict)
    """Groups that wait for rows of one that waits itself, and for which; some of them."""

    def loaded(self, name: str, code: str) -> StreamProgress:
        """Return the progress with another version of code in force."""
        before = self.code.get(name, code)
        others = (other for other in (*self.replaced, before) if other != code)
        replaced = tuple(dict.fromkeys(others))[-REPLACED_MAX:]
        return replace(self, code={**self.code, name: code}, replaced=replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBeat(StreamProgress):
    """The last beat of the last holder."""

    fence: int = 0
    holder: str | None = None
    """None: it was given back."""
    seq_nr: int = 0
    since: int = 0


def said(journal: Journal, stream: str) -> LastBeat:
    """Return the last beat of a stream's lease."""
    for event in journal.read(lease_key(stream), limit=1, backwards=True):
        told: dict[str, Any] = dict(event.payload)
        told["open"] = {id_: StreamPlace(n, id_, code) for id_, (n, code) in told["open"].items()}
        return LastBeat(**{**told, "replaced": tuple(told["replaced"])}, seq_nr=event.seq_nr)
    return LastBeat()


class StreamLease:
    """The right to run a stream, held."""

    def __init__(self, journal: Journal, stream: str, lease_s: float, before: LastBeat, holder: str, now: int) -> None:
        """Take the lease over from `before`, which no longer beats. Raises `SeqNrConflict` if
        another processor was faster.
        """
        self.stream, self.fence, self.holder = stream, before.fence + 1, holder
        self.progress = StreamProgress(
            done_to=before.done_to, open=before.open, horizon=before.horizon, code=before.code, replaced=before.replaced
        )
        """The progress that the next beat tells."""
        self.written = self.progress
        """The progress that is in the log: whoever takes over finds this, or a later one."""
        self._saying = Lock()
        self._journal, self._lease_s, self._since = journal, lease_s, now
        self._seq_nr = before.seq_nr
        self._lock = Lock()
        self._over = Signal()
        self._beaten = boot_clock()
        self._lost = ""
        self._beat(first=True)
        _logger.info("lease of stream %s taken by %s, fence %d", stream, holder, self.fence)
        self._thread = Thread(target=self._live, name="strandline-stream-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise `LeaseLost` if the lease may be over, by this process's clock alone."""
        if self._lost or boot_clock() - self._beaten > self._lease_s * 2 / 3:
            raise self._gone(self._lost or "its beat could not be written in time")

    def look(self) -> None:
        """Raise `LeaseLost` if another holder has the lease in the log."""
        found = said(self._journal, self.stream)
        if found.fence > self.fence:
            self._lost = f"{found.holder} took it over"
            raise self._gone(self._lost)

    def say(self, **changes: Any) -> None:
        """Put this progress, all of it or nothing, into the next beat."""
        with self._saying:
            self.progress = replace(self.progress, **changes)

    def beat(self) -> None:
        """Beat now, with the latest progress."""
        self.check()
        try:
            self._beat()
        except SeqNrConflict:
            raise self._gone(self._lost or "somebody else took it over") from None

    def release(self) -> None:
        """Give it back. Twice is harmless."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            try:
                if not self._lost:
                    self._beat(holder=None, away={}, behind={})
            except StrandlineError as error:
                _logger.warning("the lease of stream %s ends by itself: %s", self.stream, error)
            self._lost = self._lost or "it was given back"

    def _gone(self, why: str) -> LeaseLost:
        return LeaseLost(
            f"stream {self.stream} is not this processor's any more: {why}",
            hint="nothing to do: the other one goes on; or start this one again",
            stream=self.stream,
            fence=self.fence,
        )

    def _beat(self, *, first: bool = False, **more: Any) -> None:
        with self._lock:
            try:
                self._append(more)
            except SeqNrConflict:  # perhaps the answer to the previous beat was lost
                if first or not self._found_own():
                    raise
                self._append(more)
        if self._seq_nr % DELETE_EVERY == 0:
            self._journal.delete_reserved(lease_key(self.stream), to=self._seq_nr - 1)

    def _append(self, more: Mapping[str, Any]) -> None:
        progress = self.progress
        told = {one.name: getattr(progress, one.name) for one in fields(progress)}
        told["open"] = {id_: [place.n, place.code] for id_, place in progress.open.items()}
        told |= {"fence": self.fence, "holder": self.holder, "since": self._since, **more}
        began = boot_clock()
        answer = self._journal.append_reserved(lease_key(self.stream), [Event("Held", told)], expected=self._seq_nr)
        self._seq_nr = answer.last or self._seq_nr + 1
        self._beaten, self.written = began, progress

    def _live(self) -> None:
        while not self._over.wait(self._lease_s / 5):
            try:
                self._beat()
            except SeqNrConflict:
                self._lost = "somebody else took it over"
                _logger.warning("the lease of stream %s is lost: %s", self.stream, self._lost)
                return
            except StrandlineError as error:
                _logger.warning("the lease of stream %s could not be renewed: %s", self.stream, error)

    def _found_own(self) -> bool:
        """Return whether the last beat is one of this holder's whose append had an unknown outcome."""
        found = said(self._journal, self.stream)
        if found.fence != self.fence:
            self._lost = f"{found.holder} took it over"
            return False
        self._seq_nr = found.seq_nr
        return True


def take(
    journal: Journal,
    stream: str,
    lease_s: float,
    clock: Callable[[], int],
    waiting: Callable[[LastBeat], bool],
    holder: str = "",
) -> StreamLease | None:
    """Take the lease once it has no holder. `waiting` is called with the holder's name and returns whether to wait on.
    While the log is away this waits for it, because the holder's beats cannot be seen.
    """
    name = holder or f"{socket.gethostname()}:{os.getpid()}"
    found, still = said(journal, stream), boot_clock()
    while True:
        try:
            if found.holder is None or boot_clock() - still >= lease_s:
                if found.holder is not None:
                    reached("group.lease_lapsed")
                return StreamLease(journal, stream, lease_s, found, name, clock())
        except SeqNrConflict:
            pass
        except Unavailable as error:
            if not error.retryable:
                raise
            _logger.warning("the lease of stream %s could not be taken: %s", stream, error)
        if not waiting(found):
            return None
        time.sleep(WATCH_S)
        try:
            now = said(journal, stream)
        except Unavailable as error:
            if not error.retryable:
                raise
            still = boot_clock()
        else:
            if now != found:
                found, still = now, boot_clock()


def boot_clock() -> float:
    """Return the seconds of a clock that nobody can set and that, where the system offers it,
    runs while the machine sleeps.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
