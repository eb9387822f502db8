"""A short way between submitters, processor and waiters of one process. Everything here is in the log, too, where all
others find it: this only saves reading it.

    submit ──▶ expect ──▶ `Defined` is durable ──▶ define ──▶ entry in the stream ──▶ the processor takes it
    the processor ──▶ `Ended` is durable ──▶ ended ──▶ whoever waits, or holds a handle

A submit hands over the whole history of its group, because only the processor writes into that. A processor that writes
into it before it took the group calls `forget`. Groups that an earlier processor may have run are dropped.
"""

from __future__ import annotations

from threading import Event, Lock
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from strandline.group.history import History, HistoryEvent, folded, packed
from strandline.group.outcome import Outcome, outcome_of
from strandline.group.plan import GroupPlan

BYTES_MAX: Final = 32 * 2**20
"""The most bytes of definitions that wait for the processor."""
ROWS_MAX: Final = 100
"""An outcome with more rows is not kept: whoever wants it reads the log."""
PLANS_MAX: Final = 1000
"""The most plans that wait for the processor; of other groups it reads the plan in the history."""


class Ending:
    """Tells waiters that a group has ended. It lives as long as a caller holds it."""

    __slots__ = ("__weakref__", "_told", "outcome")

    def __init__(self) -> None:
        self._told = Event()
        self.outcome: Outcome | None = None

    def tell(self, outcome: Outcome | None) -> None:
        """Note that the group has ended. With None, waiters read the outcome in the log."""
        self.outcome = outcome
        self._told.set()

    @property
    def told(self) -> bool:
        return self._told.is_set()

    def wait(self, timeout_s: float) -> Outcome | None:
        """Wait until the group has ended or the time is over."""
        self._told.wait(timeout_s)
        return self.outcome


class Slip:
    """A call of `submit`, and the group's events that it hands over."""

    __slots__ = ("entries", "id", "life", "plan", "size")

    def __init__(self, id_: str) -> None:
        self.id, self.life, self.size = id_, 0, 0
        self.entries: list[HistoryEvent] = []
        self.plan: GroupPlan | None = None


class HandedOver(NamedTuple):
    """A group that was submitted here."""

    history: History
    plan: GroupPlan | None
    """Its plan, if submitting it made one; it is the one in the history."""


class InProcess:
    """Hands over the groups of one stream. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._processor: object = None
        self._slips: dict[str, Slip] = {}
        """Calls that run, or whose events the processor has not taken, by id."""
        self._bytes = 0
        self._endings: WeakValueDictionary[str, Ending] = WeakValueDictionary()

    # ------------------------------------------------------------ who runs the stream

    def start(self, processor: object) -> None:
        """Note that this processor runs the stream from now on. Another one may have run the
        groups submitted before.
        """
        with self._lock:
            self._processor, self._slips, self._bytes = processor, {}, 0

    def stop(self, processor: object) -> None:
        with self._lock:
            if self._processor is processor:
                self._processor, self._slips, self._bytes = None, {}, 0

    @property
    def running(self) -> bool:
        """Return whether a processor of this process runs the stream."""
        return self._processor is not None

    # ------------------------------------------------------------ from submit to the processor

    def expect(self, id_: str) -> Slip:
        """Prepare to hand over a group before its first event is in the log."""
        slip = Slip(id_)
        if self._processor is not None:
            with self._lock:
                self._slips.setdefault(id_, slip)
        return slip

    def define(self, slip: Slip, life: int | None, entries: list[HistoryEvent], plan: GroupPlan | None = None) -> None:
        """Hand over the first events of a group. They are its whole history, unless `forget` was called meanwhile."""
        if self._slips.get(slip.id) is not slip or life is None:
            return
        size = len(packed(entries))
        with self._lock:
            if self._slips.get(slip.id) is slip and self._bytes + size <= BYTES_MAX:
                slip.life, slip.entries, slip.size = life, entries, size
                slip.plan = plan if len(self._slips) <= PLANS_MAX else None
                self._bytes += size

    def forget(self, id_: str) -> None:
        """Do not hand this group over, because the log may have other events of it."""
        self._pop(id_)

    def take(self, id_: str) -> HandedOver | None:
        """Return a group that was submitted here and not taken yet; None if it must be read from the log."""
        slip = self._pop(id_)
        history = None if slip is None else folded(id_, ((entry, slip.life, 0) for entry in slip.entries))
        return None if slip is None or history is None else HandedOver(history, slip.plan)

    def _pop(self, id_: str) -> Slip | None:
        with self._lock:
            slip = self._slips.pop(id_, None)
            self._bytes -= 0 if slip is None else slip.size
            return slip

    # ------------------------------------------------------------ from the processor to those who wait

    def ending(self, id_: str) -> Ending:
        """Return the `Ending` of a group, which fires if a processor of this process runs the group."""
        with self._lock:
            known = self._endings.get(id_)
            if known is None or known.told:  # an `Ending` that has fired is of an earlier life of this id
                known = self._endings[id_] = Ending()
            return known

    def known_ending(self, id_: str) -> Ending | None:
        """Return the `Ending` of a group if a caller of this process waits for its end."""
        with self._lock:
            return self._endings.get(id_)

    def ended(self, history: History) -> None:
        """Tell waiters the end of a group. The end is in the log before this call."""
        with self._lock:
            ending = self._endings.get(history.id)
        if ending is not None:
            # Only the log has the times of questions; conflicts of an undo look different there.
            rows = sum(len(step.data.rows) for step in history.steps.values() if step.data is not None)
            plain = history.state == "committed" and not history.questions and rows <= ROWS_MAX
            ending.tell(outcome_of(history) if plain else None)
