"""The processor of a stream: it waits for the stream's lease, and runs the groups for as long as it has it (`turn`)."""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import TYPE_CHECKING, Final

from strandline.errors import Unavailable
from strandline.group import lease as leases
from strandline.group.names import stream_key
from strandline.group.turn import Turn

if TYPE_CHECKING:
    from strandline.group.groups import Groups

_logger: Final = logging.getLogger("strandline.group")


class Processor:
    """Runs a stream. `run` returns after `stop`, `run_until_idle` when there is nothing left to do."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._journal, self._settings = groups.journal, groups.settings
        self._changed = Condition()
        self._stopping = False
        self.waits_for: str | None = None
        """The process that holds the stream, while this processor waits."""
        self.lease: leases.StreamLease | None = None
        self.ended: Counter[str] = Counter()
        """The number of groups that have ended here, by the state in which they did."""

    def run(self) -> None:
        """Run the stream until `stop`. Raises `LeaseLost` if another processor took over."""
        self._work(until_idle=False)

    def run_until_idle(self) -> None:
        """Run until every group of the stream has ended, or waits for an operator; another processor may see to
        that."""
        self._work(until_idle=True)

    def stop(self) -> None:
        """Start no more steps; `run` returns when the running ones have ended. May be called from any thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _work(self, *, until_idle: bool) -> None:
        groups, settings = self._groups, self._settings
        first: list[leases.LastBeat] = []

        def waiting(holder: leases.LastBeat) -> bool:
            self._say_whom(holder)
            if not first or first[0].fence != holder.fence:
                first[:] = [holder]  # a later beat shows that the holder lives, and how far it came
            if self._stopping or not until_idle or holder.seq_nr <= first[0].seq_nr:
                return not self._stopping
            try:
                return not self._has_done_all(holder)
            except Unavailable as error:  # the log may come back
                if not error.retryable:
                    raise
                return True

        lease = leases.take(self._journal, groups.stream, settings.lease_s, groups.clock, waiting)
        self.waits_for = None
        if lease is None:
            return
        self.lease = lease
        most = max(settings.parallel_groups, settings.parallel_steps) + len(groups.targets.given)
        pool = ThreadPoolExecutor(most, thread_name_prefix="strandline-group")
        turn = Turn(self, lease, pool)
        try:
            turn.begin()
            turn.loop(until_idle)
        finally:
            try:
                turn.end()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)  # do not wait for a target that does not answer
                lease.release()

    def _say_whom(self, holder: leases.LastBeat) -> None:
        if holder.holder is not None and self.waits_for != holder.holder:
            self.waits_for = holder.holder
            _logger.warning("stream %s is run by %s: waiting", self._groups.stream, holder.holder)

    def _has_done_all(self, holder: leases.LastBeat) -> bool:
        """Return whether the processor that runs the stream has ended all groups except those
        that wait for an operator.
        """
        head = self._journal.head(stream_key(self._groups.stream))
        if head is not None and head.seq_nr > holder.done_to:
            return False
        found = map(self._groups.load, holder.open)
        return all(history is not None and history.waits_for_operator for history in found)
