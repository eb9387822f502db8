"""Reads the events of a range in order, judges which is the next of its key, and puts that into the batch.

Rows come from the store, page by page, up to the bound. Once the range has caught up, a live feed also brings rows
straight from the log. These are judged in the same way, and move key rows but never the position. Without the
strandline, recent events are read again regularly. Where a key's previous event is missing, the reader looks back by
key.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import islice
from typing import Final

from strandline.errors import shown
from strandline.points import reached
from strandline.projection.delivered import DeliveredEvent
from strandline.projection.delivery import Delivery
from strandline.projection.offsets import KeyRow
from strandline.projection.range_state import Accepted, RangeFailed, RangeState, ReadAgain
from strandline.query.acceptance import Acceptance, Way, end_of
from strandline.query.look_back import candidate
from strandline.query.pointer_watch import PointerWatch
from strandline.query.query_row import QueryRow
from strandline.query.settings import OFF
from strandline.query.slices import Slices, missing_event
from strandline.values.events import Life
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.tuples import new_tuple

IDLE_SAVE_S: Final = 10.0
_logger = logging.getLogger("strandline")


class RangeReader:
    """Reads a range, and puts what is next into its batch; the batch is handed over whenever there is enough."""

    def __init__(self, state: RangeState, delivery: Delivery, slices: Slices, watch: PointerWatch) -> None:
        self._state, self._delivery, self.slices, self._watch = state, delivery, slices, watch
        self._settings = state.settings
        self._life = Life("", 0)
        """The timestamp of the last accepted event."""

    def bounds(self, age_s: float = 0.0) -> tuple[int, int]:
        """Return the bound up to which to read, and the time of the newest event below it if known."""
        settings = self._settings
        if not settings.use_strandline:
            return self.slices.store.now_us() - round(settings.eventual_consistency_delay_s * 1_000_000) - 1, 0
        pointers = self._watch.within(age_s)
        return self.slices.bound(pointers), self.slices.newest(pointers)

    # ------------------------------------------------------------ in order

    def read(self) -> bool:
        """Read up to the latest known bound; return whether there was anything to read."""
        state, size = self._state, self._settings.page_size
        bound, newest = self.bounds(self._settings.refresh_interval_s)
        if not self._settings.use_strandline and not self._back_tracked(bound):
            return True
        if end_of(bound) <= state.read_to:
            self._settle(state.read_to[0], newest)
            if state.fed is not None:
                state.fed.caught_up(state.read_to[0])
            return False
        rows = self.slices.rows(state.read_to, bound, size)
        while page := list(islice(rows, size)):
            self._judge_page(page, state.batch_max)
            if state.interrupted:
                return True
        state.read_to = end_of(bound)
        self._settle(bound, newest)
        return self._settings.use_strandline  # the clock has moved, whether or not anything came

    def read_carefully(self) -> bool:
        """Read up to the next event and hand it over alone, because processes died here; return
        whether there was one.
        """
        state = self._state
        bound, _ = self.bounds(self._settings.refresh_interval_s)
        for row in self.slices.rows(state.read_to, bound, self._settings.page_size):
            self._judge_page([row], SEQ_NR_MAX)
            batch, state.batch = state.batch, []
            for each in batch:
                if not self._delivery.attempt_carefully(each):
                    break
            if batch:
                return True
        return False

    def _back_tracked(self, bound: int) -> bool:
        """Read recent events again, without bodies: where another program writes the store, events may come late. This
        is done after a start and then regularly, until all have arrived. Return False if it was interrupted.
        """
        state, settings = self._state, self._settings
        period_us, reached = round(settings.back_track_period_s * 1_000_000), state.read_to[0]
        if state.back_track_at is not None:
            due = settings.back_track_interval_s != OFF and time.monotonic() >= state.back_track_at
            if not due or bound - reached > period_us:
                return True
        rows = self.slices.rows(end_of(reached - period_us - 1), reached, settings.page_size, bodies=False)
        while page := list(islice(rows, settings.page_size)):
            self._judge_page(page, state.batch_max, Way.BACK_TRACK)
            if state.interrupted:
                return False
        interval = settings.back_track_interval_s
        state.back_track_at = time.monotonic() + (0.0 if interval == OFF else float(interval))
        return True

    def _settle(self, bound: int, newest: int) -> None:
        """Hand the batch over, and move the position to the bound, up to which all was read. A position that only
        passes Marks is not saved each time, because that shows as no lag. A save also clears the failure that `status`
        shows.
        """
        state = self._state
        if state.batch:
            waits = time.monotonic() < state.hand_since + self._settings.group_within_s
            if not (self._settings.grouped and waits):
                self._delivery.deliver(bound)
        elif bound > state.offsets.position or state.claim.row.failed is not None:
            behind = state.offsets.position < newest
            if behind or time.monotonic() - state.saved_at >= IDLE_SAVE_S:
                state.save([], bound)

    def _judge_page(self, page: Sequence[QueryRow], limit: int, way: Way = Way.ORDERED) -> None:
        """Judge rows, and hand the batch over whenever it is full."""
        state = self._state
        state.load_key_rows(page)
        ordered, is_next = way is Way.ORDERED, state.offsets.is_next
        for row in page:
            verdict = Acceptance.ACCEPTED if ordered and is_next(row) else self.judged(row, way)
            if verdict is Acceptance.ACCEPTED:
                self.accept(row)
            elif verdict is Acceptance.REJECTED:
                self._delivery.deliver(row.timestamp - 1)
                self._fill_hole(row)
            if len(state.batch) >= limit:
                if ordered:
                    state.read_to = self.slices.place_of(row)
                self._delivery.deliver(row.timestamp - 1)
        if ordered and page:
            state.read_to = self.slices.place_of(page[-1])

    # ------------------------------------------------------------ out of the order of the query

    def take_fed(self) -> bool:
        """Hand over events from the feed; return whether there were any. The store will bring the
        rejected ones again.
        """
        state = self._state
        if state.fed is None or not (page := state.fed.take(max(1, state.batch_max - len(state.batch)))):
            return False
        state.load_key_rows(page)
        for row in page:
            verdict = self.judged(row, Way.FEED)
            if verdict is Acceptance.ACCEPTED:
                reached("projection.fed_before_its_row")
                self.accept(row, out_of_order=True)
            elif verdict is Acceptance.REJECTED:
                reached("projection.fed_too_early")
                state.counts["left_out"] += 1
                state.fed.left_out()
        if not self._settings.grouped or len(state.batch) >= state.batch_max:
            self._delivery.deliver()
        return True

    def hand_over_alone(self, page: Sequence[QueryRow]) -> None:
        """Hand over rows while other events at or below their time are not done, so only key rows
        move, not the position.
        """
        state = self._state
        state.load_key_rows(page)
        for row in page:
            verdict = self.judged(row, Way.ORDERED)
            if verdict is Acceptance.ACCEPTED:
                self.accept(row, out_of_order=True)
            elif verdict is Acceptance.REJECTED:
                self._delivery.deliver()
                self._fill_hole(row, out_of_order=True)
            if len(state.batch) >= state.batch_max:
                self._delivery.deliver()
        self._delivery.deliver()

    # ------------------------------------------------------------ one row

    def judged(self, row: QueryRow, way: Way) -> Acceptance:
        """Return the verdict on a row: accepted, rejected, or another one that needs no action and is only counted."""
        state = self._state
        asked, strandline = candidate(row), self._settings.use_strandline
        verdict = state.offsets.judge(asked, row.key, way=way, strandline=strandline)
        if verdict is Acceptance.LOOK:
            reached("projection.key_asked_of_the_store")
            facts = self.slices.look(row, state.offsets.line(row.key))
            verdict = state.offsets.judge(asked, row.key, way=way, strandline=strandline, facts=facts)
        if verdict is Acceptance.UNSEEN:
            reached("projection.deleted_unseen")
            if (known := state.offsets.row(row.key)) is not None:
                state.counts["unseen"] += row.prev_seq_nr - known.seq_nr
            return Acceptance.ACCEPTED
        if verdict not in (Acceptance.ACCEPTED, Acceptance.REJECTED):
            if verdict is Acceptance.WAITS:
                reached("projection.waits_for_its_key")
            state.counts[verdict.value] += 1
        return verdict

    def accept(self, row: QueryRow, *, out_of_order: bool = False) -> None:
        """Put an event into the batch."""
        state = self._state
        whole = row if row.body is not None else self.slices.whole(row)
        if whole is None:  # deleted since it was read
            state.counts["gone"] += 1
            return
        if not state.batch:
            state.hand_since = time.monotonic()
        accepted = self.accepted(whole, out_of_order=out_of_order)
        state.batch.append(accepted)
        if accepted.key_row is not None:
            state.offsets.done(accepted.key_row)

    def accepted(self, row: QueryRow, *, out_of_order: bool = False) -> Accepted:
        """Return an event as it is handed over, if it passes."""
        timestamp, seq_nr, key, number, _, body, _ = row
        life = self._life
        if life.key != key or life.number != number:  # events of one append follow each other
            life = self._life = Life(key, number)
        event = DeliveredEvent(life, row, self._state.claim.projection.id)
        chosen = self._state.projection.source.filter
        passes = body and (chosen is None or chosen.passes(event))  # a filler of a tag view has no body
        key_row = new_tuple(KeyRow, (life.slice, key, number, seq_nr, timestamp, None))
        return new_tuple(Accepted, (row, event if passes else None, key_row, out_of_order))

    def _fill_hole(self, row: QueryRow, *, out_of_order: bool = False) -> None:
        """Look back by key for the events that are missing before a row. `out_of_order` is as in `accept`."""
        state = self._state
        known = state.offsets.row(row.key)
        last = None if known is None else known.last
        deadline = time.monotonic() + self._settings.gap_timeout_s
        while True:
            found = self.slices.look_back(row, last, state.offsets.line(row.key))
            if found.missing is None:
                break
            if time.monotonic() >= deadline:
                error = missing_event(row.key, found.missing, None)
                if self._settings.on_failure != "park":
                    raise RangeFailed(row, error)
                self._delivery.give_up(
                    self.accepted(row, out_of_order=out_of_order), 1, error, done=found.missing[1] - 1
                )
                raise ReadAgain
            state.wait(min(self._settings.refresh_interval_s, self._settings.gap_timeout_s))
        if len(found.rows) > 1 and self._settings.use_strandline:
            state.counts["violations"] += len(found.rows) - 1
            _logger.error("%s: %s was looked back for", state.projection.name, shown(row.key))
        state.counts["unseen"] += found.unseen
        for each in found.rows:
            self.accept(each, out_of_order=out_of_order)
