"""Carries out what operators ask of a range's owner: unpark a key, hand a dead letter over again, skip events.

A request is carried out between two transactions of the range, under its fence. Its row is removed when it is done; a
request that cannot be done stays, with the reason.
"""

from __future__ import annotations

from itertools import takewhile

from strandline.errors import MissingEvent, NotFound
from strandline.points import reached
from strandline.projection.delivery import Delivery, HandlerFailed
from strandline.projection.offset_store import DeadEvent, SliceRequest
from strandline.projection.offsets import KeyRow
from strandline.projection.range_reader import RangeReader
from strandline.projection.range_state import Accepted, RangeState, ReadAgain, done_row
from strandline.projection.recovery import HandlerFailure, RecoveryStep, decide
from strandline.query.acceptance import Acceptance, Last, Way, judge
from strandline.query.look_back import candidate
from strandline.query.query_row import QueryRow
from strandline.query.slices import missing_event
from strandline.sql.api import Transaction
from strandline.values.heads import SEQ_NR_MAX


class Requests:
    """Carries out the operators' requests to a range."""

    def __init__(self, state: RangeState, delivery: Delivery, reader: RangeReader) -> None:
        self._state, self._delivery, self._reader, self._slices = state, delivery, reader, reader.slices
        self._verbs = {"unpark": self._unpark, "redeliver": self._redeliver, "skip": self._skip}

    def carry_out(self) -> None:
        """Carry out all requests. Events that were read ahead are judged again, because requests change key rows."""
        state = self._state
        if not state.asked:
            return
        self._delivery.deliver()
        while state.asked:
            request = state.asked[0]
            try:
                self._verbs[request.verb](request)
            except (NotFound, MissingEvent) as error:
                self._refuse(request, f"{error.message}: {error.hint}" if error.hint else error.message)
            state.offsets.forget(request.key)
            state.asked.popleft()
        raise ReadAgain

    def _refuse(self, request: SliceRequest, why: str) -> None:
        reached("projection.request_refused")
        with self._state.store.database.write() as tx:
            tx.execute("refuse", (request.id, why))

    # ------------------------------------------------------------ parked keys

    def _unpark(self, request: SliceRequest) -> None:
        """Hand over a parked key's events in order, beginning with the one that waits; a new failure parks it again.
        The key stays parked until the last one is done, so that after a crash a host knows where to go on.
        """
        state = self._state
        kept = state.saved_key_row(request.key)
        if kept is not None and kept.parked is not None:
            bound, _ = self._reader.bounds()
            waiting = (
                row for row in self._slices.of_key(request.key, kept.life, kept.seq_nr + 1, SEQ_NR_MAX)
                if row.timestamp <= bound
            )  # fmt: skip
            row = next(waiting, None)
            if row is None:  # all of it was deleted since
                reached("projection.nothing_to_unpark")
                state.save((), state.offsets.position, rows=[kept._replace(parked=None)])
            last = Last(kept.life, kept.seq_nr)
            while row is not None:
                self._check_next(row, last)
                behind = next(waiting, None)
                accepted = self._reader.accepted(row)
                waits = done_row(row)._replace(parked=behind and behind.timestamp)
                if not self._handed_again(accepted._replace(key_row=waits)):
                    break
                last, row = Last(row.life, row.seq_nr), behind
        with state.store.database.write() as tx:
            tx.execute("asked_done", (request.id,))

    def _check_next(self, row: QueryRow, last: Last) -> None:
        """Raise `MissingEvent` if events are missing between the last done event of a key and this one."""
        verdict = judge(candidate(row), last, way=Way.LOOK_BACK)
        if verdict is Acceptance.LOOK:
            verdict = judge(candidate(row), last, way=Way.LOOK_BACK, facts=self._slices.look(row))
        if verdict is Acceptance.REJECTED:
            missing = missing_event(row.key, (row.life, last.seq_nr + 1, row.prev_seq_nr), None)
            missing.hint = "once it is put back, unpark again; skip counts it as done"
            raise missing

    def _handed_again(self, each: Accepted) -> bool:
        """Hand over one event of a parked key and remove its dead letter; return whether the event is done."""
        attempts = 0
        while True:
            try:
                self._delivery.attempt([each], also=lambda tx: self._end_letter(tx, each.row))
                return True
            except HandlerFailed as failed:
                attempts += 1
                decision = decide(self._state.settings, attempts, 0)
                if decision.step is not RecoveryStep.RETRY:
                    reached("projection.parked_again")
                    self._delivery.set_aside(
                        each.row, RecoveryStep.PARK, attempts, failed.error, self._state.offsets.position
                    )
                    return False
                self._state.wait(decision.delay_s)

    # ------------------------------------------------------------ dead letters

    def _redeliver(self, request: SliceRequest) -> None:
        """Hand over a dead letter, or an event that was put back, and remember it in the same transaction."""
        letter, row = self._letter(request), self._row(request)
        batch = self._judged(row) if letter is None else [self._past(row)]
        if batch is None:
            self._refuse(request, f"{row.key} is parked: unpark it, which hands this over in its place")
            return

        def removed(tx: Transaction) -> None:
            for each in {row.seq_nr: row, **{each.row.seq_nr: each.row for each in batch}}.values():
                self._end_letter(tx, each)
                if letter is None:
                    tx.execute("settle", (self._state.claim.projection.id, each.key, each.life, each.seq_nr))
            tx.execute("asked_done", (request.id,))

        try:
            self._delivery.attempt(batch, also=removed)
        except HandlerFailed as failed:
            why = HandlerFailure.of(failed.error)
            self._refuse(request, f"the handler failed: {why.type}: {why.message}")

    def _past(self, row: QueryRow) -> Accepted:
        """Return an event, for hand-over, that its key has passed already."""
        return self._reader.accepted(row)._replace(key_row=None)

    def _judged(self, row: QueryRow) -> list[Accepted] | None:
        """Return the events of a key to hand over for an event that was put back; None while the key is parked. The
        list is empty if the event is done, and includes the missing events before it. If the key's row may have been
        forgotten, no row is written, because it might be behind what was done.
        """
        state = self._state
        state.offsets.forget(row.key)
        state.load_key_rows([row])
        known, line = state.offsets.row(row.key), state.offsets.line(row.key)
        verdict = self._reader.judged(row, Way.LOOK_BACK)
        if verdict is Acceptance.WAITS:
            return None
        rows = [row] if verdict is Acceptance.ACCEPTED else []
        if verdict is Acceptance.REJECTED:
            found = self._slices.look_back(row, None if known is None else known.last, line)
            if found.missing is not None:
                raise missing_event(row.key, found.missing, None)
            rows = found.rows
        forgotten = known is None and row.timestamp <= line[0]
        return list(map(self._past if forgotten else self._reader.accepted, rows))

    def _letter(self, request: SliceRequest) -> DeadEvent | None:
        store, projection = self._state.store, self._state.claim.projection
        with store.database.read() as tx:
            return store.letter(tx, projection.id, request.key, request.life, request.seq_nr)

    def _row(self, request: SliceRequest) -> QueryRow:
        row = next(self._slices.of_key(request.key, request.life, request.seq_nr, request.seq_nr), None)
        if row is None:
            gone = f"{request.key} {request.seq_nr} is not in the store any more"
            raise NotFound(gone, code="event", hint="discard it")
        return row

    def _end_letter(self, tx: Transaction, row: QueryRow) -> None:
        tx.execute("end_letter", (self._state.claim.projection.id, row.key, row.life, row.seq_nr))

    # ------------------------------------------------------------ skipping

    def _skip(self, request: SliceRequest) -> None:
        """Count a key as done up to a number; each event of it that is there and was not done leaves a dead letter.

        Of a key without a row, what is at or below the line was done.
        """
        state = self._state
        found = state.store.key_rows(state.claim.projection, [request.key])
        kept, line = found.rows.get(request.key), found.line
        same = kept is not None and kept.life == request.life
        done = kept.seq_nr if same and kept is not None else 0
        if kept is None:
            past = self._slices.of_key(request.key, request.life, 1, SEQ_NR_MAX)
            done = max((row.seq_nr for row in takewhile(lambda row: row.timestamp <= line, past)), default=0)
            if done:
                reached("projection.skipped_what_was_forgotten")
        now = state.store.database.now_us()
        rows = list(self._slices.of_key(request.key, request.life, done + 1, request.seq_nr))
        time_ = max([row.timestamp for row in rows] + ([kept.timestamp] if kept is not None else [0]))
        place = (state.claim.projection.id, request.key, request.life)

        def told(tx: Transaction) -> None:
            for row in rows:
                tx.execute(
                    "add_letter", (*place, row.seq_nr, row.slice, row.timestamp, 0, now, now, "", "", "operator")
                )
            tx.execute("asked_done", (request.id,))

        new = []
        if request.seq_nr > done:
            parked = kept.parked if same and kept is not None else None
            new = [KeyRow(request.slice, request.key, request.life, request.seq_nr, time_, parked)]
        state.save((), state.offsets.position, rows=new, also=told)
