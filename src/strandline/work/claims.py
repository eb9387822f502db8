"""Claims of entries: the right to process one, the cursor that takes them, and what a call hands out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from strandline.errors import LeaseLost, invalid
from strandline.work import rules
from strandline.work.dates import US
from strandline.work.entries import Entry, EntryRow
from strandline.work.tables import ClaimRef, JournalState

if TYPE_CHECKING:
    from strandline.work.journal import WorkJournal

TEXT_MAX: Final = 2000
"""The most characters of a failure's text that are kept."""
_BUSY_S, _BUSY_MAX_S = 0.01, 1.0
_EVENTS: Final = Lock()
"""Held while a thread makes the `lost` event of a claim."""


class Batch(NamedTuple):
    """The answer to a claim. `next_date`: the earliest date at which a claim could find an entry, None if unknown."""

    claims: list[Claim]
    next_date: int | None
    lost: list[Claim]
    """Claims in `done` whose entries were claimed, merged or dropped since, so that they could not be ended."""
    paused: str | None
    """The reason, if the journal is paused."""


class ClaimResult(NamedTuple):
    """The entries that a transaction claimed, and when the next claim could find an entry."""

    look: JournalState
    entries: list[tuple[Entry, EntryRow]]
    next_date: int | None
    upkeep_date: int | None
    handed_out: bool


class Cursor:
    """Claims entries under an owner's name. For one thread at a time.

    A pass hands out entries with a priority of `slow_from` or above only if it handed out no entry below that.
    """

    def __init__(self, journal: WorkJournal, owner: str) -> None:
        self.owner = owner
        self.pass_handed_out = False
        """Whether the current pass has handed out an entry below `slow_from`."""
        self.wait_s = 0.0
        self.found = False
        """Whether the last claim found something."""
        self._journal = journal

    def claim(self, limit: int = 1, *, done: Sequence[Claim] = ()) -> Batch:
        """Claim the most urgent due entries. The same transaction ends the claims in `done`."""
        return self._journal.claim(self, limit, done)

    def busy(self) -> int:
        """Return how long to wait while other transactions lock all due entries (µs). It grows with every call."""
        self.wait_s = min(max(_BUSY_S, 2 * self.wait_s), _BUSY_MAX_S)
        return round(self.wait_s * US)

    def __repr__(self) -> str:
        return f"<Cursor {self.owner} of {self._journal.name}>"


class Claim:
    """The right to process an entry until its lease ends."""

    __slots__ = ("_lost", "_lost_event", "ended", "entry", "in_tx", "journal", "row", "was_done")

    def __init__(self, journal: WorkJournal, entry: Entry, row: EntryRow) -> None:
        self.journal, self.entry, self.row = journal, entry, row
        self.ended = False
        self.was_done = False
        """Whether a call on this claim ended it, outside of a caller's transaction. Ending it again does nothing."""
        self.in_tx = False
        """Whether `done` was called in a caller's transaction, whose outcome decides about the claim."""
        self._lost = False
        self._lost_event: Event | None = None

    @property
    def lost(self) -> Event:
        """An event that is set once this process knows that the claim is over. The handler should stop then."""
        with _EVENTS:
            if self._lost_event is None:  # made on first use: most claims end before anybody asks for it
                self._lost_event = Event()
                if self._lost:
                    self._lost_event.set()
            return self._lost_event

    @property
    def is_lost(self) -> bool:
        """Return whether `lost` is set."""
        return self._lost or (self._lost_event is not None and self._lost_event.is_set())

    def lose(self) -> None:
        """Note that the claim is over."""
        with _EVENTS:
            self._lost = True
            if self._lost_event is not None:
                self._lost_event.set()

    @property
    def fence(self) -> int:
        """The number of this claim; later ones of the entry have larger ones."""
        return self.row.fence

    @property
    def lease_s(self) -> float:
        """How long the claim lives without a heartbeat: the journal's setting at the time of the claim."""
        return self.row.lease / US

    @property
    def held(self) -> ClaimRef:
        """The numbers that identify this claim in the tables."""
        return ClaimRef(self.entry.id, self.row.fence, self.row.slot)

    @property
    def append_id(self) -> str:
        """The append id for an append that this entry causes: the same in all runs of the same data."""
        high = int(self.journal.journal_id[:16], 16)
        return str(UUID(int=(high << 64) | self.row.number))

    def heartbeat(self) -> None:
        """Keep the claim for another lease. Raises `LeaseLost` if the claim is over."""
        if self.journal.beat([self]):
            raise lease_lost([self.entry.id])

    def done(self, *, tx: object = None) -> None:
        """End the claim and remove its entry. Raises `LeaseLost` if the entry was claimed, merged or dropped since, but
        not merely because the lease is over. A second call does nothing. With `tx` the caller's transaction decides:
        after a rollback the claim is as it was, and after a commit a second call is `LeaseLost`, so that no effect is
        committed twice.
        """
        if tx is None and self.was_done:
            return
        if self.journal.done_many([self], tx=tx) != ["done"]:
            raise lease_lost([self.entry.id])

    def fail(self, text: str = "", *, delay_s: float | None = None) -> None:
        """End the claim as failed: its entry waits for `delay_s` (or a delay that doubles), or is a dead letter now."""
        if delay_s is not None and (isinstance(delay_s, bool) or not isinstance(delay_s, (int, float)) or delay_s < 0):
            raise invalid("delay_range", "delay_s", "not a delay", allowed="0 or more seconds", got=delay_s)
        settings = self.journal.settings
        self.journal.apply_outcome(
            self,
            lambda row, look: rules.failed(row, settings, look.now, delay_s),
            f"failed: {str(text)[:TEXT_MAX]}",
        )

    def release(self) -> None:
        """End the claim and let its entry wait again, with its dates and counter unchanged."""
        self.journal.apply_outcome(self, lambda row, look: rules.released(row, look.now), "")

    def over(self, *, done: bool) -> None:
        """Note that the claim has ended."""
        self.ended = True
        self.was_done = self.was_done or done
        if not done:
            self.lose()

    def __repr__(self) -> str:
        return f"<Claim {self.fence} of entry {self.entry.id}>"


def without_entries(claims: Sequence[Claim], ids: Collection[int]) -> list[Claim]:
    """Return the claims on other entries than these. Of two claims on one entry the older one is over."""
    newest: dict[int, int] = {}
    for claim in claims:
        newest[claim.entry.id] = max(claim.fence, newest.get(claim.entry.id, 0))
    return [claim for claim in claims if claim.entry.id not in ids or claim.fence < newest[claim.entry.id]]


def lease_lost(ids: Sequence[int]) -> LeaseLost:
    named = ", ".join(map(str, ids))
    return LeaseLost(
        f"the claim on {'entry' if len(ids) == 1 else 'entries'} {named} is over",
        code="lease_lost",
        hint="stop: the entry was claimed again or is done",
        entries=list(ids),
    )
