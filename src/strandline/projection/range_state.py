"""The state of a running range and how it is saved: its claim, its offsets, its batch, and how far it has read.

After any failure the range forgets everything that is not saved and reads on from its position; key rows tell which
events are done. So a failure, a lost answer and a restart are all handled the same way: `ReadAgain`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from threading import Event as Signal
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from strandline.errors import LeaseLost, Unavailable, shown
from strandline.plain_calls import told
from strandline.points import reached
from strandline.projection.definition import Projection
from strandline.projection.delivered import DeliveredEvent
from strandline.projection.live_feed import FedRange
from strandline.projection.offset_store import OffsetStore, RangeClaim, SliceRequest
from strandline.projection.offsets import KeyRow, RangeOffsets
from strandline.projection.recovery import HandlerFailure
from strandline.query.acceptance import Place, end_of
from strandline.query.query_row import QueryRow
from strandline.sql.api import Transaction

RELOAD_S: Final = 0.5
Also = Callable[[Transaction], object]
"""A further write in the transaction that saves."""
_logger = logging.getLogger("strandline")


class Accepted(NamedTuple):
    """An event that is handed over. `event` is None if the source's filter does not let it pass."""

    row: QueryRow
    event: DeliveredEvent | None
    key_row: KeyRow | None
    """The key row to save; None for an event that its key has passed already."""
    out_of_order: bool = False
    """Whether the event came out of the query's order. If so, earlier events of other keys may not be done."""

    @property
    def safe_position(self) -> int:
        """The position that may be saved without it."""
        return -1 if self.out_of_order else self.row.timestamp - 1


class RangeGivenBack(Exception):
    """Raised to give the range back."""


class ReadAgain(Exception):
    """Raised when the batch's events are settled or undone: the range reads on from its position."""


class RangeFailed(Exception):
    """Raised when the range cannot go on by itself."""

    def __init__(self, row: QueryRow | None, error: BaseException) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error

    def text(self) -> str:
        """Return the failure as the range's row keeps it."""
        failure = HandlerFailure.of(self.error)
        said: dict[str, Any] = {"error": failure.type, "message": failure.message}
        if self.row is not None:
            said |= {"key": self.row.key, "life": self.row.life, "seq_nr": self.row.seq_nr}
        return orjson.dumps(said).decode()

    def told(self) -> str:
        """Return the failure as text for people."""
        event = "" if self.row is None else f"{shown(self.row.key)} {self.row.seq_nr}: "
        return event + told(self.error)


class RangeState:
    """A range under one claim, as its thread knows it."""

    def __init__(
        self, projection: Projection, claim: RangeClaim, store: OffsetStore, may_start: Callable[[], bool]
    ) -> None:
        self.projection, self.claim, self.store = projection, claim, store
        self.settings = projection.settings
        self._may_start = may_start
        self.stop, self.wake = Signal(), Signal()
        self.asked: deque[SliceRequest] = deque()
        """What operators want, in order."""
        self.fed: FedRange | None = None
        """The events that come straight from the log; None without a live feed."""
        self.abandoned = False
        """Whether the range was given up because its handler did not return. Nothing that it does later counts."""
        self.lost = False
        """Whether another host has the range. The batch is then not handed over any more."""
        self.offsets = RangeOffsets(claim.row.position, {}, self.settings.keys_in_memory_max)
        self.read_to: Place = end_of(claim.row.position)
        self.back_track_at: float | None = None
        """Without the strandline: when recent events are read again; None: before anything else."""
        self.batch: list[Accepted] = []
        self.hand_since = 0.0
        self.saved_at = time.monotonic()
        self.counts: Counter[str] = Counter()

    def load(self) -> None:
        """Begin at what is saved, with nothing in memory."""
        with self.store.database.read() as tx:
            slices = self.store.slice_rows(tx, self.claim.projection, self.claim.row.range)
        self.offsets = RangeOffsets(self.claim.row.position, slices, self.settings.keys_in_memory_max)
        self.back_track_at = None
        self.begin_again()

    def begin_again(self) -> None:
        """Forget all that is not saved, since it is not done, and read on from the position."""
        self.batch.clear()
        if self.fed is not None:
            self.fed.undone()
        self.offsets.undone()
        self.read_to = end_of(self.offsets.position)

    @property
    def reached(self) -> int:
        """The time up to which all is done or in batch."""
        return self.read_to[0] if self.read_to == end_of(self.read_to[0]) else self.offsets.position

    @property
    def interrupted(self) -> bool:
        """Return whether a stop or a request comes before the next page."""
        return self.stop.is_set() or bool(self.asked)

    @property
    def batch_max(self) -> int:
        """The most events that are handed over at once."""
        return self.settings.group_size if self.settings.grouped else self.settings.save_after

    def check_lease(self) -> None:
        """Raise `LeaseLost` if nothing new may be begun."""
        if not self._may_start():
            reached("projection.lease_not_renewed")
            raise LeaseLost("the lease was not renewed in time", code="lease_lost", hint="nothing is to be done")

    def wait(self, seconds: float) -> None:
        """Wait. Raises `RangeGivenBack` if the range is to stop."""
        if self.stop.wait(seconds):
            raise RangeGivenBack

    # ------------------------------------------------------------ keys

    def load_key_rows(self, page: Sequence[QueryRow]) -> None:
        """Hold what is known of the keys of a page, and look up the rows of those that are not in memory."""
        unknown = self.offsets.hold([row.key for row in page])
        if unknown:
            self.offsets.load(unknown, self.store.key_rows(self.claim.projection, unknown))

    def saved_key_row(self, key: str) -> KeyRow | None:
        """Return the row of a key, as it is saved."""
        with self.store.database.read() as tx:
            return self.store.key_row(tx, self.claim.projection, key)

    # ------------------------------------------------------------ saving

    def save(
        self, batch: Sequence[Accepted], position: int, *, rows: Sequence[KeyRow] = (), also: Also | None = None
    ) -> None:
        """Save the offsets of events that were handed over, and these rows, without a handler."""
        position = max(position, self.offsets.position)
        try:
            with self.store.database.write() as tx:
                self.write(tx, batch, position, rows=rows, also=also)
        except Unavailable as error:
            self.resolve_in_doubt_commit(error)
        self.done(batch, position, rows)

    def write(
        self,
        tx: Transaction,
        batch: Sequence[Accepted],
        position: int,
        *,
        rows: Sequence[KeyRow] = (),
        also: Also | None = None,
    ) -> None:
        """Write the last statements of a transaction that saves."""
        if also is not None:
            also(tx)
        self.store.save(tx, self.claim, [*_last_rows(batch), *rows], position, self._counted(batch))

    def done(self, batch: Sequence[Accepted], position: int, rows: Sequence[KeyRow] = ()) -> None:
        """Remember what is committed now."""
        row = self.claim.row
        row = row._replace(saves=row.saves + 1, position=position, failed=None, restarts=0)
        self.claim = self.claim._replace(row=row)
        self.offsets.undone([*_last_rows(batch), *rows])
        self.offsets.saved(position)
        self.counts += _outcomes(batch)
        self.saved_at = time.monotonic()

    def resolve_in_doubt_commit(self, error: Unavailable) -> NoReturn:
        """Wait until a commit with unknown outcome is over, then begin at what is saved."""
        _logger.warning("%s: %s", self.projection.name, error)
        while True:
            if self.stop.is_set():
                raise RangeGivenBack
            self.check_lease()
            try:
                before, self.claim = self.claim, self.store.reload(self.claim)
                if self.claim.row.saves > before.row.saves:
                    reached("projection.unknown_commit_came_through")
                self.load()
            except Unavailable:
                self.stop.wait(RELOAD_S)
            else:
                raise ReadAgain

    @property
    def unsaved(self) -> bool:
        """Return whether the batch is empty and the range has read beyond its saved position."""
        return self.reached > self.offsets.position

    def _counted(self, batch: Sequence[Accepted]) -> str:
        return orjson.dumps(self.counts + _outcomes(batch), option=orjson.OPT_SORT_KEYS).decode()


def done_row(row: QueryRow) -> KeyRow:
    """Return the row to save of a key whose last event is this one."""
    return KeyRow(row.slice, row.key, row.life, row.seq_nr, row.timestamp)


def _last_rows(batch: Sequence[Accepted]) -> list[KeyRow]:
    """Return the last row of each key."""
    return list({row[2]: key_row for row, _, key_row, _ in batch if key_row is not None}.values())


def _outcomes(batch: Sequence[Accepted]) -> Counter[str]:
    filtered = sum([event is None for _, event, _, _ in batch])
    return Counter(accepted=len(batch) - filtered, filtered=filtered)
