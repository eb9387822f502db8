"""One range of a projection, run by one thread under one claim.

load ──▶ read a page ──▶ judge each event ──▶ hand over, in transactions that save the offsets ──▶ …
  ▲                                                 │ a handler fails, a commit is unknown
  └──────────── read again from the position ◀──────┘

range_state     what it knows, and how that is saved        requests    what operators ask for
range_reader    what it reads, and what of it is next       hand_over   taking another generation's place
delivery        handlers, transactions, failures
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from threading import Event as Signal
from threading import Thread

from strandline.clock import seconds_text
from strandline.errors import LeaseLost, StrandlineError
from strandline.points import reached
from strandline.projection.definition import Context, Projection
from strandline.projection.delivery import Delivery
from strandline.projection.hand_over import HandOver
from strandline.projection.live_feed import FedRange, LogFeed
from strandline.projection.offset_store import SERVING, OffsetStore, RangeClaim, SliceRequest
from strandline.projection.range_reader import RangeReader
from strandline.projection.range_state import RangeFailed, RangeGivenBack, RangeState, ReadAgain
from strandline.projection.recovery import CAREFUL_AFTER_CLAIMS, restart_delay_s
from strandline.projection.requests import Requests
from strandline.query.pointer_watch import PointerWatch
from strandline.query.slices import Slices

STOPPED, LOST, FAILED = "stopped", "lost", "failed"
_logger = logging.getLogger("strandline")


class RangeRunner:
    """Runs a range until it is stopped, fails, or loses it. `ended` is set when its thread is done."""

    def __init__(
        self,
        projection: Projection,
        claim: RangeClaim,
        store: OffsetStore,
        slices: Slices,
        watch: PointerWatch,
        may_start: Callable[[], bool],
        ended: Callable[[], None],
        feed: LogFeed | None = None,
        *,
        once: bool = False,
    ) -> None:
        """Begin a range. With `once` it ends when it has come to the bound, and keeps its claim."""
        self.projection, self._settings, self._watch = projection, projection.settings, watch
        self._state = state = RangeState(projection, claim, store, may_start)
        state.fed = None if feed is None else FedRange(feed, slices, state.wake.set)
        self._delivery = Delivery(state)
        self._reader = RangeReader(state, self._delivery, slices, watch)
        self._requests = Requests(state, self._delivery, self._reader)
        self._hand_over = HandOver(state, self._delivery, self._reader)
        self._tell_ended, self._once = ended, once
        self.outcome = FAILED
        """How the run ended: "stopped", "lost" or "failed"."""
        self._asked_ids: set[str] = set()
        self._careful = False
        self.ended = Signal()
        self._thread = Thread(target=self._run, name=f"{projection.name} {claim.row.range}", daemon=True)

    # ------------------------------------------------------------ from the host's thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Give the range back after the event or list in hand."""
        self._state.stop.set()
        self._state.wake.set()

    def lose(self) -> None:
        """Stop, because another host has the range and will hand over this batch."""
        self._state.lost = True
        self.stop()

    def ask(self, request: SliceRequest) -> None:
        """Carry a request out, once."""
        if request.id not in self._asked_ids:
            self._asked_ids.add(request.id)
            self._state.asked.append(request)
            self._state.wake.set()

    def abandon(self) -> None:
        """Give up on a handler that does not return: nothing that it does later counts."""
        reached("projection.handler_abandoned")
        self._state.abandoned = True
        self._delivery.break_off()
        self.stop()

    @property
    def claim(self) -> RangeClaim:
        """Its claim, as it was last saved."""
        return self._state.claim

    @property
    def handling_since(self) -> float | None:
        """When the handler that runs now was called (monotonic); None if none runs."""
        return self._delivery.handling_since

    @property
    def reached(self) -> int:
        """The time up to which all is done."""
        return self._state.reached

    @property
    def levelled(self) -> bool:
        """Return whether it has done all that the generation has whose place it takes."""
        return self._hand_over.done

    @property
    def offset_store(self) -> OffsetStore:
        return self._state.store

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; return whether it has ended."""
        return self.ended.wait(timeout_s)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        for _ in self._rounds():
            self._pause()

    def _rounds(self) -> Iterator[None]:
        """Run the range until it is given back, lost or failed; it pauses wherever there is nothing to do."""
        range_ = self.claim.row.range
        rebuilding = self.claim.projection.state != SERVING
        context = Context(self.projection.name, self.projection.generation, range_.lo, range_.hi, rebuilding)
        try:
            self.projection.started(context)
            try:
                yield from self._work()
            finally:
                self.projection.stopped(context)
        except RangeGivenBack:
            self.outcome = STOPPED
            self._state.begin_again()  # what is still in the batch is not done
            if not self._once:
                self._give_back()
        except LeaseLost:
            self.outcome = LOST
            _logger.info("%s %s: lost", self.projection.name, range_)
        except RangeFailed as failed:
            self._fail(failed)
        except Exception as error:  # noqa: BLE001 (a range that fails must say so, whatever it was)
            self._fail(RangeFailed(None, error))
        finally:
            if self._state.fed is not None:
                self._state.fed.leave()
            self.ended.set()
            self._tell_ended()

    def _give_back(self) -> None:
        try:
            self._state.store.release(self.claim)
        except StrandlineError:
            _logger.warning("%s: a range could not be given back; its lease ends by itself", self.projection.name)

    def _fail(self, failed: RangeFailed) -> None:
        if self._state.abandoned:
            return
        store = self._state.store
        delay_s = restart_delay_s(self._settings, self.claim.row.restarts, random.random())
        name, range_, again = self.projection.name, self.claim.row.range, seconds_text(delay_s)
        _logger.warning("%s %s failed, and starts again in %s: %s", name, range_, again, failed.told())
        try:
            store.fail(self.claim, failed.text(), store.database.now_us() + round(delay_s * 1_000_000))
        except StrandlineError:
            _logger.warning("%s: that a range failed could not be written down", self.projection.name)

    def _work(self) -> Iterator[None]:
        state = self._state
        state.load()
        self._careful = self.claim.row.unclean_claims > CAREFUL_AFTER_CLAIMS
        if self._careful:
            _logger.warning("%s %s goes carefully", self.projection.name, self.claim.row.range)
        while True:
            try:
                self._check()
                self._requests.carry_out()
                if self._careful and self._reader.read_carefully():
                    self._careful = False
                    raise ReadAgain
                read = self._reader.read()
                if not self._reader.take_fed() and not read and not self._level():
                    if self._once and not state.asked:
                        self._finish()
                        raise RangeGivenBack
                    yield
            except ReadAgain:
                state.begin_again()

    def _check(self) -> None:
        if self._state.stop.is_set():
            self._finish()
            raise RangeGivenBack
        self._state.check_lease()

    def _level(self) -> bool:
        before = self._hand_over.done
        worked = self._hand_over.level()
        if self._hand_over.done and not before:
            self._tell_ended()  # the host looks whether all is done
        return worked

    def _finish(self) -> None:
        """Finish before the range is given back: hand over an incomplete list, and save the
        position of an idle range.
        """
        state = self._state
        if state.abandoned or state.lost:
            return
        if state.batch:
            self._delivery.deliver(state.reached)
        elif state.unsaved:
            state.save([], state.reached)

    def _pause(self) -> None:
        state = self._state
        timeout_s = self._settings.refresh_interval_s
        if self._settings.use_strandline:
            timeout_s = self._watch.due_in(timeout_s)
            if state.fed is None:
                self._watch.say_if_still()
        if state.batch:
            timeout_s = min(timeout_s, max(0.0, state.hand_since + self._settings.group_within_s - time.monotonic()))
        state.wake.wait(timeout_s)
        state.wake.clear()
