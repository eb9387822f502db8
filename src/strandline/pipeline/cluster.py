"""A watch on the cluster of a session: whether it is still there.

Spark waits for a master that is gone, and for executors that nobody starts, without a bound and without a word. So a
thread that waits for Spark asks this watch: if a standalone master cannot be reached for `AWAY_S`, the work ends as
`Unavailable.away`. Work that waits for executors while the master is there goes on waiting, with a warning.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from strandline.clock import seconds_text
from strandline.errors import Unavailable
from strandline.pipeline.jvm import JvmUnwanted
from strandline.repeated_warnings import RepeatedWarnings

AWAY_S: Final = 30.0
LOOK_EVERY_S: Final = 2.0
CONNECT_WAIT_S: Final = 5.0
WAITS_S: Final = 30.0
"""How long work waits for an executor before a warning is logged."""
POLL_S: Final = 0.1
T = TypeVar("T")
_logger = logging.getLogger("strandline")


class ClusterWatch:
    """Looks at a session's cluster for one thread that waits. A local master is always there."""

    def __init__(self, master: str, executors: Callable[[], int] | None = None) -> None:
        """`executors` returns the number of executors; None if it cannot be known."""
        self._master, self._executors = master, executors
        self._addresses = addresses(master)
        self._seen_at = self._looked_at = time.monotonic()
        self._waits_since: float | None = None
        self._warnings = RepeatedWarnings(_logger)

    def check(self, *, waits: bool = False) -> None:
        """Raise `Unavailable.away` if no master can be reached for a while. `waits` says that work
        needs an executor.
        """
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        if not self._addresses or answers(self._addresses):
            self._seen_at = now
        elif now - self._seen_at >= AWAY_S:
            raise _away(self._master, f"for {seconds_text(now - self._seen_at)}")
        self._look_at_executors(now, waits=waits)

    def _look_at_executors(self, now: float, *, waits: bool) -> None:
        if not waits or self._executors is None or self._executors():
            self._waits_since = None
            return
        since = self._waits_since = self._waits_since or now
        if now - since >= WAITS_S:
            text = "the cluster has had no executor for %s: work waits for one; are workers up, and cores free, on %s?"
            self._warnings.warning("executors", text, seconds_text(now - since), self._master)


def check_there(master: str) -> None:
    """Raise `Unavailable.away` if no master can be reached now."""
    masters = addresses(master)
    if masters and not answers(masters):
        raise _away(master, "")


def addresses(master: str) -> list[tuple[str, int]]:
    """Return where the masters of a standalone cluster listen; none for any other cluster, which
    Spark itself watches.
    """
    if not master.startswith("spark://"):
        return []
    found = [re.fullmatch(r"\[?([^\[\]]+)\]?:(\d+)", each) for each in master.removeprefix("spark://").split(",")]
    return [(each[1], int(each[2])) for each in found if each is not None]


def answers(masters: list[tuple[str, int]]) -> bool:
    """Return whether one of these addresses accepts a connection."""
    for address in masters:
        try:
            socket.create_connection(address, CONNECT_WAIT_S).close()
        except OSError:
            continue
        return True
    return False


def answer(call: Callable[[], T], watch: ClusterWatch, stop: threading.Event | None) -> T:
    """Return the result of a call that waits for executors.

    `JvmUnwanted` if `stop` is set before it ends, `Unavailable.away` if the cluster goes away: the call then goes on
    unwatched.
    """
    done: list[T | Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            done.append(call())
        except Exception as error:  # noqa: BLE001 - raised below
            done.append(error)
        ended.set()

    threading.Thread(target=run, name="strandline-asks-cluster", daemon=True).start()
    while not ended.wait(POLL_S):
        if stop is not None and stop.is_set():
            raise JvmUnwanted
        watch.check(waits=True)
    (came,) = done
    if isinstance(came, Exception):
        raise came
    return came


def watch_of(context: Any) -> ClusterWatch:
    """Return a watch on the cluster of a Spark context."""
    from strandline.pipeline.session import is_local

    if is_local(context.master):
        return ClusterWatch(context.master)
    return ClusterWatch(context.master, lambda: int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1)


def _away(master: str, how_long: str) -> Unavailable:
    return Unavailable(
        f"Spark's master {master} cannot be reached{' ' if how_long else ''}{how_long}",
        code="away",
        hint="start it and run this again; what was done is safe",
        master=master,
    )
