"""Hands accepted events over to the handler, in transactions that save the offsets.

    exactly once     effects and offsets are one transaction; a failed event is left out of it, then tried alone
    at least once    the handler runs first, then the offsets are saved
    lists            one list is one of these; a list that still fails is handed over event by event

A failed event is retried. After the last retry the range fails, or a dead letter is written and the event is skipped or
its key parked.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from strandline.errors import LeaseLost, Unavailable
from strandline.plain_calls import check_ran
from strandline.points import reached
from strandline.projection.handler_tx import HandlerTransaction, is_serialization
from strandline.projection.range_state import (
    Accepted,
    Also,
    RangeFailed,
    RangeGivenBack,
    RangeState,
    ReadAgain,
    done_row,
)
from strandline.projection.recovery import Decision, HandlerFailure, RecoveryStep, decide
from strandline.query.query_row import QueryRow

SERIALIZATION_TRIES: Final = 10
_SAME_ROWS: Final = "handlers of several ranges write the same rows: use fewer ranges, a smaller save_after, other rows"
_REFUSED_HINTS: Final = {
    "read_committed": _SAME_ROWS,
    "repeatable_read": f'{_SAME_ROWS}, or isolation="read_committed" and one statement for each change',
    "serializable": "handlers of several ranges read what others write: use fewer ranges, or the default isolation",
}


_logger = logging.getLogger("strandline")


class HandlerFailed(Exception):
    """The handler failed at the event with this index in the batch."""

    def __init__(self, index: int, error: BaseException) -> None:
        super().__init__(index, error)
        self.index, self.error = index, error


class Delivery:
    """Hands over the batch of a range."""

    def __init__(self, state: RangeState) -> None:
        self._state, self._settings, self._projection = state, state.settings, state.projection
        self.handling_since: float | None = None
        """When the handler that runs now was called (monotonic); None if none runs."""
        self._handler_tx: HandlerTransaction | None = None

    def break_off(self) -> None:
        """Undo the running handler's transaction, from another thread. Nothing that the handler does later is kept."""
        if self._handler_tx is not None:
            self._handler_tx.break_off()

    def deliver(self, position: int | None = None) -> None:
        """Hand over the batch, and save it with `position` or the current position, whichever is greater."""
        state = self._state
        batch, state.batch = state.batch, []
        if not batch:
            return
        state.check_lease()
        position = max(-1 if position is None else position, state.offsets.position)
        if not any(event for _, event, _, _ in batch):
            state.save(batch, position)
        elif self._settings.grouped:
            self._list(batch, position)
        elif self._projection.exactly_once:
            self._exactly_once(batch, position)
        else:
            self._at_least_once(batch, position)
        if state.fed is not None:
            state.fed.settled()

    def attempt(self, batch: Sequence[Accepted], position: int | None = None, also: Also | None = None) -> None:
        """Hand over once, without retries, and save. Raises `HandlerFailed`."""
        position = max(-1 if position is None else position, self._state.offsets.position)
        if not any(each.event for each in batch):
            self._state.save(batch, position, also=also)
        elif self._projection.exactly_once:
            self._transaction(batch, position, also)
        else:
            self._handle(None, batch)
            self._state.save(batch, position, also=also)

    # ------------------------------------------------------------ ways of handing over

    def _exactly_once(self, batch: Sequence[Accepted], position: int) -> None:
        """Hand over in transactions of at most `save_within_s` each. A stop takes effect between two of them."""
        while batch:
            try:
                done = self._transaction(batch, position, within_s=self._settings.save_within_s)
            except HandlerFailed as failed:
                before, event = batch[: failed.index], batch[failed.index]
                if before:  # again without it: if one of these fails now, that one is to be recovered
                    reached("projection.once_more_without_the_last")
                    self._exactly_once(before, event.safe_position)
                self.recover(event, failed.error)
                raise ReadAgain from None
            batch = batch[done:]
            if batch:
                reached("projection.transaction_cut_by_time")
            if batch and self._state.stop.is_set():
                raise RangeGivenBack

    def _at_least_once(self, batch: Sequence[Accepted], position: int) -> None:
        state, since, start = self._state, time.monotonic(), 0
        for index, each in enumerate(batch):
            if state.stop.is_set() or time.monotonic() - since > self._settings.save_within_s:
                state.save(batch[start:index], each.safe_position)
                if state.stop.is_set():
                    raise RangeGivenBack
                since, start = time.monotonic(), index
            try:
                self._handle(None, [each])
            except HandlerFailed as failed:
                state.save(batch[start:index], each.safe_position)
                self.recover(each, failed.error)
                raise ReadAgain from None
        state.save(batch[start:], position)

    def _list(self, batch: Sequence[Accepted], position: int) -> None:
        """Hand over a list, with its retries; then each event as a list of one."""
        attempts = 0
        while True:
            try:
                self.attempt(batch, position)
                return
            except HandlerFailed:
                attempts += 1
                decision = decide(self._settings, attempts, 0)
                if decision.step is not RecoveryStep.RETRY:
                    break
                self._delay(decision)
        reached("projection.list_one_by_one")
        parked: set[str] = set()
        for each in batch:
            if each.row.key in parked:
                reached("projection.list_waits_for_its_key")
                continue  # it has to wait for the event that failed
            try:
                self.attempt([each], each.safe_position)
            except HandlerFailed as failed:
                self.give_up(each, attempts + 1, failed.error)
                if self._settings.on_failure == "park":
                    parked.add(each.row.key)
        raise ReadAgain

    def _handle(self, tx: HandlerTransaction | None, batch: Sequence[Accepted], within_s: float | None = None) -> int:
        """Call the handler event by event, or with the list; return the number of events it was called for. With
        `within_s` this returns early, between two events, if that time is over or the range is to stop.
        """
        handle, stop = self._projection.handle, self._state.stop
        first = () if tx is None else (tx,)
        since, index = time.monotonic(), 0
        try:
            if self._settings.grouped:
                self.handling_since = since
                check_ran(handle(*first, [each.event for each in batch if each.event is not None]))
                _check_whole(tx)
                return len(batch)
            for index, each in enumerate(batch):
                if each.event is not None:
                    self.handling_since = now = time.monotonic()
                    if index and within_s is not None and (now - since > within_s or stop.is_set()):
                        return index
                    result = handle(*first, each.event)
                    if result is not None:
                        check_ran(result)
                    _check_whole(tx)
            return len(batch)
        except Exception as error:
            raise HandlerFailed(index, error) from error
        finally:
            self.handling_since = None

    def _transaction(
        self, batch: Sequence[Accepted], position: int, also: Also | None = None, *, within_s: float | None = None
    ) -> int:
        """Commit effects and offsets in one transaction; return the number of its events. A serialization failure is no
        failure of the handler: the whole transaction is retried.
        """
        state = self._state
        error: BaseException | None = None
        for tries in range(SERIALIZATION_TRIES):
            if tries:
                state.wait(random.random() * 0.01 * 2 ** min(tries, 6))
            try:
                return self._try_transaction(batch, position, also, within_s)
            except HandlerFailed as failed:
                if not is_serialization(failed.error):
                    raise
                error = failed.error
            except Unavailable as refused:
                if not is_serialization(refused):
                    state.resolve_in_doubt_commit(refused)
                error = refused
        last = Unavailable(
            f"the transaction was refused {SERIALIZATION_TRIES} times: {error}",
            code="serialization",
            hint=_REFUSED_HINTS[self._settings.isolation],
        )
        raise RangeFailed(batch[0].row, last)

    def _try_transaction(
        self, batch: Sequence[Accepted], position: int, also: Also | None, within_s: float | None
    ) -> int:
        state = self._state
        isolation: Any = self._settings.isolation
        with state.store.database.write(isolation=isolation) as tx:
            state.store.hold(tx, state.claim)
            state.store.limit_handler(tx, self._settings.handler_timeout_s)
            self._handler_tx = handler_tx = HandlerTransaction(tx)
            try:
                count = self._handle(handler_tx, batch, within_s)
            finally:
                handler_tx.end()
                self._handler_tx = None
            if state.abandoned:
                raise LeaseLost("the handler took too long", code="lease_lost", hint="raise handler_timeout_s")
            if count < len(batch):
                batch, position = batch[:count], batch[count].safe_position
            position = max(position, state.offsets.position)
            state.write(tx, batch, position, also=also)
        state.done(batch, position)
        return count

    # ------------------------------------------------------------ failures

    def recover(self, event: Accepted, error: BaseException) -> None:
        """Try an event again that has failed once, then do what the settings say."""
        attempts = 1
        while True:
            decision = decide(self._settings, attempts, 0)
            if decision.step is not RecoveryStep.RETRY:
                self.give_up(event, attempts, error)
                return
            self._delay(decision)
            try:
                self.attempt([event], event.safe_position)
                return
            except HandlerFailed as failed:
                attempts, error = attempts + 1, failed.error

    def _delay(self, decision: Decision) -> None:
        """Wait before the next attempt. A request ends the wait, because it may change what is to be done."""
        state = self._state
        deadline = time.monotonic() + decision.delay_s
        while (left := deadline - time.monotonic()) > 0:
            state.wake.wait(left)
            state.wake.clear()
            if state.stop.is_set():
                raise RangeGivenBack
            if state.asked:
                raise ReadAgain

    def give_up(self, event: Accepted, attempts: int, error: BaseException, *, done: int | None = None) -> None:
        """Do what `on_failure` says about an event that still fails. `done`: the number of the last event before it
        that is done, if events in between are missing.
        """
        parked = 0
        if self._settings.on_failure == "park":
            with self._state.store.database.read() as tx:
                parked = self._state.store.parked(tx, self._state.claim.projection)
        step = decide(self._settings, max(attempts, self._settings.retries + 1), parked).step
        if step is RecoveryStep.FAIL:
            raise RangeFailed(event.row, error)
        self.set_aside(event.row, step, attempts, error, event.safe_position, done=done)

    def set_aside(
        self,
        row: QueryRow,
        step: RecoveryStep,
        attempts: int,
        error: BaseException,
        before: int,
        *,
        done: int | None = None,
    ) -> None:
        """Skip an event or park its key. The dead letter is written in the transaction that saves the offset.

        `before` is the position that may be saved, because everything up to it is done without this event. `done` is as
        in `give_up`, and counts only if nothing is known of the key.
        """
        state = self._state
        state.offsets.undone()
        known, kept = state.offsets.row(row.key), done_row(row)
        if step is RecoveryStep.PARK:
            last = row.prev_seq_nr if done is None else done
            if known is not None and known.life == row.life:
                last = known.seq_nr
            kept = kept._replace(seq_nr=last, parked=row.timestamp)
        reason = "parked" if step is RecoveryStep.PARK else "skipped"
        state.counts[reason] += 1
        failure, now = HandlerFailure.of(error), state.store.database.now_us()
        letter = (
            state.claim.projection.id, row.key, row.life, row.seq_nr, row.slice, row.timestamp, attempts, now, now,
            failure.type, failure.message, reason,
        )  # fmt: skip
        state.save((), before, rows=[kept], also=lambda tx: tx.execute("add_letter", letter))
        _logger.warning("%s: %s", state.projection.name, f"{RangeFailed(row, error).told()}; {reason}")

    # ------------------------------------------------------------ carefully

    def attempt_carefully(self, each: Accepted) -> bool:
        """Try an event, and save the attempt before that, because the handler may kill the process. An event that has
        done so too often is given up. Return False if later events of its key may have to wait.
        """
        state = self._state
        attempts = self._tried(each.row) + 1
        reached("projection.carefully")
        if attempts > self._settings.retries + 1:
            reached("projection.killed_too_often")
            error = RuntimeError(f"the process ended {attempts - 1} times while this was handled")
            self.give_up(each, attempts - 1, error)
            return False
        told = orjson.dumps([each.row.key, each.row.life, each.row.seq_nr, attempts]).decode()
        with state.store.database.write() as tx:
            tx.execute("try_event", (*state.claim.place, told))
        try:
            self.attempt([each], each.safe_position)
        except HandlerFailed as failed:
            self.recover(each, failed.error)
            return False
        return True

    def _tried(self, row: QueryRow) -> int:
        *place, attempts = orjson.loads(self._state.claim.row.attempt or '["", 0, 0, 0]')
        return int(attempts) if place == [row.key, row.life, row.seq_nr] else 0


def _check_whole(tx: HandlerTransaction | None) -> None:
    if tx is not None and tx.broken:
        raise RuntimeError("the handler swallowed an error of the database: nothing of this transaction can be kept")
