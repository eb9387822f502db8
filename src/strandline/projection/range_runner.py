"""One range of a projection, run by one thread under one claim.

    load ──▶ read a page ──▶ judge each event ──▶ hand over, in transactions that save the offsets ──▶ …
      ▲                                                 │ a handler fails, a commit is unknown
      └──────────── read again from the position ◀──────┘

With a live feed, events come straight from the log, too, once the range has caught up: they pass the same judgement,
and move key rows, never the position.

Whatever goes wrong, the range forgets what is not saved and reads on from its position: key rows tell what is done. So
there is one way on after a failure, a lost answer and a restart.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Event as Signal
from threading import Thread
from typing import Any, Final, NamedTuple

import orjson

from strandline.errors import LeaseLost, MissingEvent, NotFound, StrandlineError, Unavailable, shown
from strandline.plain_calls import check_ran
from strandline.projection.definition import Context, Projection
from strandline.projection.generations import BoundedSlices, covers
from strandline.projection.handed import HandedEvent
from strandline.projection.handler_tx import HandlerTransaction, is_serialization
from strandline.projection.live_feed import FedRange, LiveFeed
from strandline.projection.offset_store import SERVING, SWITCHING, Claim, OffsetStore, Request
from strandline.projection.offsets import KeyRow, RangeOffsets
from strandline.projection.recovery import CAREFUL_AFTER_CLAIMS, Decision, Failure, Step, decide, restart_delay_s
from strandline.query.acceptance import Place, Verdict, Way, end_of
from strandline.query.look_back import candidate
from strandline.query.pointer_watch import PointerWatch
from strandline.query.query_row import QueryRow
from strandline.query.settings import OFF
from strandline.query.slices import Slices, missing_event
from strandline.sql.api import Transaction
from strandline.store.scans import look_at
from strandline.values.events import Life
from strandline.values.heads import SEQ_NR_MAX, Ended
from strandline.values.keys import key_partition
from strandline.values.tuples import make

SERIALIZATION_TRIES: Final = 10
IDLE_SAVE_S: Final = 10.0
STOPPED, LOST, FAILED = "stopped", "lost", "failed"
_logger = logging.getLogger("strandline")


class Accepted(NamedTuple):
    """An event that is the next of its key. `event` is None if the source's filter does not let it pass."""

    row: QueryRow
    event: HandedEvent | None
    key_row: KeyRow
    """What is saved of it."""
    alone: bool = False
    """Whether it came out of the order of the query, by the live feed: that it is next says nothing of other keys."""

    @property
    def before(self) -> int:
        """The position that may be saved without it."""
        return -1 if self.alone else self.row.timestamp - 1


class _Stopped(Exception):
    """The range is to be given back."""


class _ReadAgain(Exception):
    """What was in hand is settled or undone: read on from the position."""


class _HandlerFailed(Exception):
    """The handler failed at the n-th of what was handed over."""

    def __init__(self, index: int, error: BaseException) -> None:
        super().__init__(index, error)
        self.index, self.error = index, error


class RangeFailed(Exception):
    """The range cannot go on by itself."""

    def __init__(self, row: QueryRow | None, error: BaseException) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error

    def text(self) -> str:
        """As it is kept with the range."""
        failure = Failure.of(self.error)
        said: dict[str, Any] = {"error": failure.type, "message": failure.message}
        if self.row is not None:
            said |= {"key": self.row.key, "life": self.row.life, "seq_nr": self.row.seq_nr}
        return orjson.dumps(said).decode()


class RangeRunner:
    """Runs a range until it is stopped, fails, or loses it. `ended` is set when its thread is done."""

    def __init__(
        self,
        projection: Projection,
        claim: Claim,
        store: OffsetStore,
        slices: Slices,
        watch: PointerWatch,
        may_start: Callable[[], bool],
        ended: Callable[[], None],
        feed: LiveFeed | None = None,
        *,
        once: bool = False,
    ) -> None:
        """With `once` it ends when it has come to the bound, and keeps its claim."""
        self.projection, self.claim = projection, claim
        self._settings = projection.settings
        self._store, self._slices, self._watch = store, slices, watch
        self._may_start, self._tell_ended = may_start, ended
        self._once, self._levelled = once, False
        self.outcome = FAILED
        """How it ended: stopped, lost or failed."""
        self._stop, self._wake = Signal(), Signal()
        self._asked: deque[Request] = deque()
        self._asked_ids: set[str] = set()
        self._offsets = RangeOffsets(claim.row.position, {}, self._settings.keys_in_memory_max)
        self._read_to: Place = end_of(claim.row.position)
        self._hand: list[Accepted] = []
        self._hand_since = 0.0
        self._life = Life("", 0)
        """That of the last event that was accepted."""
        self._careful = False
        self._fed = None if feed is None else FedRange(feed, slices, self._wake.set)
        self._saved_at = time.monotonic()
        self._back_track_at: float | None = None
        """Without the strandline: when what lies shortly behind is read again; None: before anything else."""
        self.counts: Counter[str] = Counter()
        self.handling_since: float | None = None
        """When the handler was called that runs now (monotonic)."""
        self._handler_tx: HandlerTransaction | None = None
        self.abandoned = False
        self.ended = Signal()
        self._thread = Thread(target=self._run, name=f"{projection.name} {claim.row.range}", daemon=True)

    # ------------------------------------------------------------ from the host's thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Give the range back after the event or list in hand."""
        self._stop.set()
        self._wake.set()

    def ask(self, request: Request) -> None:
        """Carry a request out, once."""
        if request.id not in self._asked_ids:
            self._asked_ids.add(request.id)
            self._asked.append(request)
            self._wake.set()

    def abandon(self) -> None:
        """Its handler does not return: nothing that it does later counts."""
        self.abandoned = True
        if self._handler_tx is not None:
            self._handler_tx.break_off()
        self.stop()

    @property
    def reached(self) -> int:
        """The time up to which it has read."""
        return self._read_to[0]

    @property
    def levelled(self) -> bool:
        """Whether it has done all that the generation has whose place it takes."""
        return self._levelled

    @property
    def offset_store(self) -> OffsetStore:
        return self._store

    def join(self, timeout_s: float) -> bool:
        """Wait for its thread; whether it has ended."""
        return self.ended.wait(timeout_s)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        range_ = self.claim.row.range
        rebuilding = self.claim.projection.state != SERVING
        context = Context(self.projection.name, self.projection.generation, range_.lo, range_.hi, rebuilding)
        try:
            self.projection.started(context)
            try:
                self._work()
            finally:
                self.projection.stopped(context)
        except _Stopped:
            self.outcome = STOPPED
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
            if self._fed is not None:
                self._fed.leave()
            self.ended.set()
            self._tell_ended()

    def _give_back(self) -> None:
        try:
            self._store.release(self.claim)
        except StrandlineError:
            _logger.warning("%s: a range could not be given back; its lease ends by itself", self.projection.name)

    def _fail(self, failed: RangeFailed) -> None:
        if self.abandoned:
            return
        _logger.warning("%s %s failed: %s", self.projection.name, self.claim.row.range, failed.text())
        delay_s = restart_delay_s(self._settings, self.claim.row.restarts, random.random())
        try:
            retry_at = self._store.database.now_us() + round(delay_s * 1_000_000)
            self._store.fail(self.claim, failed.text(), retry_at)
        except StrandlineError:
            _logger.warning("%s: that a range failed could not be written down", self.projection.name)

    def _work(self) -> None:
        self._load()
        self._careful = self.claim.row.claims > CAREFUL_AFTER_CLAIMS
        while True:
            try:
                self._check()
                self._carry_out()
                if self._careful:
                    self._carefully()
                read = self._round()
                if not self._take_fed() and not read and not self._level():
                    if self._once and not self._asked:
                        self._finish()
                        raise _Stopped
                    self._pause()
            except _ReadAgain:
                self._hand.clear()
                if self._fed is not None:
                    self._fed.undone()
                self._offsets.undone()
                self._read_to = end_of(self._offsets.position)

    def _check(self) -> None:
        if self._stop.is_set():
            self._finish()
            raise _Stopped
        if not self._may_start():
            raise LeaseLost("the lease was not renewed in time", code="lease_lost", hint="nothing is to be done")

    def _finish(self) -> None:
        """Before the range is given back: hand over a list that waits for more, and save how far an idle range is."""
        if self.abandoned:
            return
        reached = self._read_to[0] if self._read_to == end_of(self._read_to[0]) else self._offsets.position
        if self._hand:
            self._deliver(reached)
        elif reached > self._offsets.position:
            self._save([], reached)

    def _load(self) -> None:
        """Begin at what is saved, with nothing in memory."""
        with self._store.database.read() as tx:
            slices = self._store.slice_rows(tx, self.claim.projection, self.claim.row.range)
        self._offsets = RangeOffsets(self.claim.row.position, slices, self._settings.keys_in_memory_max)
        self._read_to = end_of(self._offsets.position)
        self._hand.clear()
        self._back_track_at = None

    def _pause(self) -> None:
        timeout_s = self._settings.refresh_interval_s
        if self._settings.use_strandline:
            timeout_s = self._watch.due_in(timeout_s)
        if self._hand:
            timeout_s = min(timeout_s, max(0.0, self._hand_since + self._settings.group_within_s - time.monotonic()))
        self._wake.wait(timeout_s)
        self._wake.clear()

    # ------------------------------------------------------------ reading

    def _round(self) -> bool:
        """Read up to the bound, as it was not long ago; whether anything was there to read."""
        bound, newest = self._bounds(self._settings.refresh_interval_s)
        if not self._settings.use_strandline and not self._back_tracked(bound):
            return True
        if end_of(bound) <= self._read_to:
            self._settle(self._read_to[0], newest)
            if self._fed is not None:
                self._fed.caught_up(self._read_to[0])
            return False
        rows = self._slices.rows(self._read_to, bound, self._settings.page_size)
        while page := list(islice(rows, self._settings.page_size)):
            self._judge_page(page, self._hand_max)
            if self._stop.is_set() or self._asked:
                return True
        self._read_to = end_of(bound)
        self._settle(bound, newest)
        return self._settings.use_strandline  # the clock has moved, whether or not anything came

    def _bounds(self, age_s: float = 0.0) -> tuple[int, int]:
        """Up to where to read, and the time of the newest event there if it is known."""
        settings = self._settings
        if not settings.use_strandline:
            return self._slices.store.now_us() - round(settings.eventual_consistency_delay_s * 1_000_000) - 1, 0
        pointers = self._watch.within(age_s)
        return self._slices.bound(pointers), self._slices.newest(pointers)

    @property
    def _hand_max(self) -> int:
        return self._settings.group_size if self._settings.grouped else self._settings.save_after

    def _back_tracked(self, bound: int) -> bool:
        """Read again, without bodies, what lies shortly behind, where something else writes the store: events may come
        late. After a start, and every while unless all has arrived there; False if it was interrupted."""
        settings, first = self._settings, self._back_track_at is None
        period_us, reached = round(settings.back_track_period_s * 1_000_000), self._read_to[0]
        if not first:
            due = settings.back_track_interval_s != OFF and time.monotonic() >= (self._back_track_at or 0.0)
            if not due or bound - reached > period_us:
                return True
        rows = self._slices.rows(end_of(reached - period_us - 1), reached, settings.page_size, bodies=False)
        while page := list(islice(rows, settings.page_size)):
            self._judge_page(page, self._hand_max, Way.BACK_TRACK)
            if self._stop.is_set() or self._asked:
                return False
        interval = settings.back_track_interval_s
        self._back_track_at = time.monotonic() + (0.0 if interval == OFF else float(interval))
        return True

    def _settle(self, bound: int, newest: int) -> None:
        """All up to the bound was read: hand over what is in hand, and move the position there.

        A position that only passes Marks need not be saved each time: nobody would see a lag.
        """
        if self._hand:
            waits = time.monotonic() < self._hand_since + self._settings.group_within_s
            if not (self._settings.grouped and waits):
                self._deliver(bound)
        elif bound > self._offsets.position:
            behind = self._offsets.position < newest
            if behind or time.monotonic() - self._saved_at >= IDLE_SAVE_S:
                self._save([], bound)

    def _judge_page(self, page: Sequence[QueryRow], limit: int, way: Way = Way.ORDERED) -> None:
        """Judge rows, and hand over whenever so many are in hand."""
        self._learn(page)
        ordered, is_next = way is Way.ORDERED, self._offsets.is_next
        for row in page:
            verdict = Verdict.ACCEPTED if ordered and is_next(row) else self._judged(row, way)
            if verdict is Verdict.ACCEPTED:
                self._accept(row)
            elif verdict is Verdict.REJECTED:
                self._deliver(row.timestamp - 1)
                self._fill_hole(row)
            if len(self._hand) >= limit:
                if ordered:
                    self._read_to = self._slices.place_of(row)
                self._deliver(row.timestamp - 1)
        if ordered and page:
            self._read_to = self._slices.place_of(page[-1])

    def _take_fed(self) -> bool:
        """Hand over what came by the feed; whether anything did. What is rejected the store will bring."""
        fed = self._fed
        if fed is None or not (page := fed.take(max(1, self._hand_max - len(self._hand)))):
            return False
        self._learn(page)
        for row in page:
            verdict = self._judged(row, Way.FEED)
            if verdict is Verdict.ACCEPTED:
                self._accept(row, alone=True)
            elif verdict is Verdict.REJECTED:
                self.counts["left_out"] += 1
                fed.left_out()
        if not self._settings.grouped or len(self._hand) >= self._hand_max:
            self._deliver(self._offsets.position)
        return True

    def _learn(self, page: Sequence[QueryRow]) -> None:
        unknown = self._offsets.unknown(row.key for row in page)
        if unknown:
            self._offsets.learn(unknown, self._store.key_rows(self.claim.projection, unknown))

    def _judged(self, row: QueryRow, way: Way) -> Verdict:
        """Accepted, rejected, or what else is counted: then nothing is to be done."""
        asked, strandline = candidate(row), self._settings.use_strandline
        verdict = self._offsets.judge(asked, row.key, way=way, strandline=strandline)
        if verdict is Verdict.LOOK:
            looked = self._slices.look(row)
            verdict = self._offsets.judge(asked, row.key, way=way, strandline=strandline, looked=looked)
        if verdict is Verdict.UNSEEN:
            if (known := self._offsets.row(row.key)) is not None:
                self.counts["unseen"] += row.prev_seq_nr - known.seq_nr
            return Verdict.ACCEPTED
        if verdict not in (Verdict.ACCEPTED, Verdict.REJECTED):
            self.counts[verdict.value] += 1
        return verdict

    def _accept(self, row: QueryRow, *, alone: bool = False) -> None:
        whole = row if row.body is not None else self._slices.whole(row)
        if whole is None:  # deleted since it was read
            self.counts["gone"] += 1
            return
        timestamp, seq_nr, key, number, _, body, _ = whole
        life = self._life
        if life.key != key or life.number != number:  # events of one append follow each other
            life = self._life = Life(key, number)
        event = HandedEvent(life, whole, self.claim.projection.id)
        chosen = self.projection.source.filter
        if not self._hand:
            self._hand_since = time.monotonic()
        passes = body and (chosen is None or chosen.passes(event))  # a filler of a tag view has no body
        key_row = make(KeyRow, (life.slice, key, number, seq_nr, timestamp, None))
        self._hand.append(make(Accepted, (whole, event if passes else None, key_row, alone)))
        self._offsets.done(key_row)

    def _fill_hole(self, row: QueryRow, *, alone: bool = False) -> None:
        """Look back by key for what should come before a row; `alone`: as for `_accept`."""
        known = self._offsets.row(row.key)
        last = None if known is None else known.last
        deadline = time.monotonic() + self._settings.gap_timeout_s
        while True:
            found = self._slices.look_back(row, last, self._offsets.line(row.key))
            if found.missing is None:
                break
            if time.monotonic() >= deadline:
                error = missing_event(row.key, found.missing, None)
                if self._settings.on_failure != "park":
                    raise RangeFailed(row, error)
                self._set_aside(row, Step.PARK, 1, error, -1 if alone else row.timestamp - 1)
                raise _ReadAgain
            if self._stop.wait(min(self._settings.refresh_interval_s, self._settings.gap_timeout_s)):
                raise _Stopped
        if len(found.rows) > 1 and self._settings.use_strandline:
            self.counts["violations"] += len(found.rows) - 1
            _logger.error("%s: %s was looked back for", self.projection.name, shown(row.key))
        self.counts["unseen"] += found.unseen
        for each in found.rows:
            self._accept(each, alone=alone)

    # ------------------------------------------------------------ taking another generation's place

    def _level(self) -> bool:
        """Switching: hand over exactly what the serving generation has done; whether there was anything to do."""
        slices = self._slices
        if self._levelled or self.claim.projection.state != SWITCHING or not isinstance(slices, BoundedSlices):
            return False
        goal = slices.goal()
        if goal is None:
            return False
        position, range_ = self._offsets.position, slices.range
        rows = slices.rows(end_of(position), max(goal.done[range_.lo : range_.hi + 1]), self._settings.page_size)
        while page := list(islice(rows, self._settings.page_size)):
            self._hand_over_alone([row for row in page if row.timestamp <= goal.done[row.slice]])
            if self._stop.is_set():
                return True
        if [theirs for theirs in goal.keys if not self._level_key(theirs)]:
            return False  # the pipeline has not carried all of it yet
        further = range(range_.lo, range_.hi + 1)
        self._save_rows([KeyRow(each, "", 0, 0, goal.done[each]) for each in further if goal.done[each] > position])
        self._load()
        self._levelled = True
        self._tell_ended()  # the host looks whether all is done
        return True

    def _hand_over_alone(self, page: Sequence[QueryRow]) -> None:
        self._learn(page)
        for row in page:
            verdict = self._judged(row, Way.ORDERED)
            if verdict is Verdict.ACCEPTED:
                self._accept(row, alone=True)
            elif verdict is Verdict.REJECTED:
                self._deliver(self._offsets.position)
                self._fill_hole(row, alone=True)
            if len(self._hand) >= self._hand_max:
                self._deliver(self._offsets.position)
        self._deliver(self._offsets.position)

    def _level_key(self, theirs: KeyRow) -> bool:
        """Hand over a key's events up to one; False if it is not in the store yet."""
        store, key = self._slices.store, theirs.key
        mine = self._kept(key)
        if covers(mine, theirs):
            return True
        _, state = look_at(store, key, key_partition(key, store.settings.partitions))
        if state is None or (state.life, SEQ_NR_MAX if isinstance(state, Ended) else state.seq_nr) < theirs.last[:2]:
            return False
        first = mine.seq_nr + 1 if mine is not None and mine.life == theirs.life else 1
        rows = list(self._slices.of_key(key, theirs.life, first, theirs.seq_nr))
        if rows:
            self._offsets.forget(key)
            self._learn(rows[-1:])
            known = self._offsets.row(key)
            found = self._slices.look_back(rows[-1], None if known is None else known.last, self._offsets.line(key))
            if found.missing is not None:
                raise RangeFailed(rows[-1], missing_event(key, found.missing, None))
            for each in found.rows:
                self._accept(each, alone=True)
            self._deliver(self._offsets.position)
        if not covers(self._kept(key), theirs):  # what was deleted since is nobody's any more
            self._save_rows([theirs._replace(parked=None)])
            self._offsets.forget(key)
        return True

    # ------------------------------------------------------------ handing over

    def _deliver(self, position: int) -> None:
        """Hand over what is in hand, and save it with this position."""
        hand, self._hand = self._hand, []
        if not hand:
            return
        if not self._may_start():
            raise LeaseLost("the lease was not renewed in time", code="lease_lost", hint="nothing is to be done")
        position = max(position, self._offsets.position)
        if not any(event for _, event, _, _ in hand):
            self._save(hand, position)
        elif self._settings.grouped:
            self._deliver_list(hand, position)
        elif self.projection.exactly_once:
            self._deliver_exactly_once(hand, position)
        else:
            self._deliver_at_least_once(hand, position)
        if self._fed is not None:
            self._fed.settled()

    def _deliver_exactly_once(self, hand: Sequence[Accepted], position: int) -> None:
        try:
            self._transaction(hand, position)
        except _HandlerFailed as failed:
            before, event = hand[: failed.index], hand[failed.index]
            if before:  # once more without it; if one of these fails now, it is the one
                self._deliver_exactly_once(before, max(event.before, self._offsets.position))
            self._recover(event, failed.error)
            raise _ReadAgain from None

    def _deliver_at_least_once(self, hand: Sequence[Accepted], position: int) -> None:
        since, start = time.monotonic(), 0
        for index, each in enumerate(hand):
            if self._stop.is_set() or time.monotonic() - since > self._settings.save_within_s:
                self._save(hand[start:index], each.before)
                if self._stop.is_set():
                    raise _Stopped
                since, start = time.monotonic(), index
            try:
                self._handle(None, [each])
            except _HandlerFailed as failed:
                self._save(hand[start:index], each.before)
                self._recover(each, failed.error)
                raise _ReadAgain from None
        self._save(hand[start:], position)

    def _deliver_list(self, hand: Sequence[Accepted], position: int) -> None:
        """A list, with its retries; then each event as a list of one."""
        attempts = 0
        while True:
            try:
                self._attempt(hand, position)
                return
            except _HandlerFailed:
                attempts += 1
                decision = decide(self._settings, attempts, 0)
                if decision.step is not Step.RETRY:
                    break
                self._delay(decision)
        for each in hand:
            try:
                self._attempt([each], each.before)
            except _HandlerFailed as failed:
                self._give_up(each, attempts + 1, failed.error)
        raise _ReadAgain

    def _attempt(self, hand: Sequence[Accepted], position: int) -> None:
        """Hand over once, and save."""
        if self.projection.exactly_once:
            self._transaction(hand, max(position, self._offsets.position))
        else:
            self._handle(None, hand)
            self._save(hand, max(position, self._offsets.position))

    def _handle(self, tx: HandlerTransaction | None, hand: Sequence[Accepted]) -> None:
        """Call the handler: event by event, or with the list."""
        handle = self.projection.handle
        first = () if tx is None else (tx,)
        index = 0
        try:
            if self._settings.grouped:
                self.handling_since = time.monotonic()
                check_ran(handle(*first, [each.event for each in hand if each.event is not None]))
                _check_whole(tx)
                return
            for index, each in enumerate(hand):  # noqa: B007 (which one failed)
                if each.event is not None:
                    self.handling_since = time.monotonic()
                    result = handle(*first, each.event)
                    if result is not None:
                        check_ran(result)
                    _check_whole(tx)
        except Exception as error:
            raise _HandlerFailed(index, error) from error
        finally:
            self.handling_since = None

    def _transaction(self, hand: Sequence[Accepted], position: int) -> None:
        """Effects and offsets, as one. A serialization failure is none of the handler: the whole again."""
        error: BaseException | None = None
        for tries in range(SERIALIZATION_TRIES):
            if tries and self._stop.wait(random.random() * 0.01 * 2 ** min(tries, 6)):
                raise _Stopped
            try:
                self._try_transaction(hand, position)
            except _HandlerFailed as failed:
                if not is_serialization(failed.error):
                    raise
                error = failed.error
            except Unavailable as refused:
                if not is_serialization(refused):
                    self._unknown(refused)
                error = refused
            else:
                self._done(hand, position)
                return
        last = Unavailable(
            f"the transaction was refused {SERIALIZATION_TRIES} times: {error}",
            code="serialization",
            hint="handlers of several ranges write the same rows: use fewer ranges, smaller save_after, or other rows",
        )
        raise RangeFailed(hand[0].row, last)

    def _try_transaction(self, hand: Sequence[Accepted], position: int) -> None:
        isolation: Any = self._settings.isolation
        with self._store.database.write(isolation=isolation) as tx:
            if tx.dialect == "postgres":
                tx.rows("handler_timeout", (str(round(self._settings.handler_timeout_s * 1000)),))
            self._handler_tx = handler_tx = HandlerTransaction(tx)
            try:
                self._handle(handler_tx, hand)
            finally:
                handler_tx.end()
                self._handler_tx = None
            if self.abandoned:
                raise LeaseLost("the handler took too long", code="lease_lost", hint="raise handler_timeout_s")
            self._store.save(tx, self.claim, _last_rows(hand), position, self._counted(hand))

    # ------------------------------------------------------------ saving

    def _save(self, hand: Sequence[Accepted], position: int) -> None:
        """Save offsets alone."""
        position = max(position, self._offsets.position)
        try:
            with self._store.database.write() as tx:
                self._store.save(tx, self.claim, _last_rows(hand), position, self._counted(hand))
        except Unavailable as error:
            self._unknown(error)
        self._done(hand, position)

    def _unknown(self, error: Unavailable) -> None:
        """A commit may have come through or not: wait until it is over, and begin at what is saved."""
        _logger.warning("%s: %s", self.projection.name, error)
        while True:
            if self._stop.is_set():
                raise _Stopped
            if not self._may_start():
                raise LeaseLost("the lease was not renewed in time", code="lease_lost", hint="nothing is to be done")
            try:
                self.claim = self._store.reload(self.claim)
                self._load()
            except Unavailable:
                self._stop.wait(0.5)
            else:
                raise _ReadAgain

    def _done(self, hand: Sequence[Accepted], position: int) -> None:
        """It is committed: remember it."""
        row = self.claim.row
        self.claim = self.claim._replace(row=row._replace(saves=row.saves + 1, position=position, restarts=0))
        self._offsets.undone([*_last_rows(hand)])
        self._offsets.saved(position)
        handled, filtered = _handled(hand)
        self.counts["accepted"] += handled
        self.counts["filtered"] += filtered
        self._saved_at = time.monotonic()

    def _counted(self, hand: Sequence[Accepted]) -> str:
        handled, filtered = _handled(hand)
        counts = self.counts + Counter(accepted=handled, filtered=filtered)
        return orjson.dumps(counts, option=orjson.OPT_SORT_KEYS).decode()

    # ------------------------------------------------------------ failures

    def _recover(self, event: Accepted, error: BaseException) -> None:
        """An event has failed once: try again, then do what the settings say."""
        attempts = 1
        while True:
            decision = decide(self._settings, attempts, 0)
            if decision.step is not Step.RETRY:
                self._give_up(event, attempts, error)
                return
            self._delay(decision)
            try:
                self._attempt([event], event.before)
                return
            except _HandlerFailed as failed:
                attempts, error = attempts + 1, failed.error

    def _delay(self, decision: Decision) -> None:
        """Wait before another attempt. A request may change what is to be done: it comes first."""
        deadline = time.monotonic() + decision.delay_s
        while (left := deadline - time.monotonic()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if self._stop.is_set():
                raise _Stopped
            if self._asked:
                raise _ReadAgain

    def _give_up(self, event: Accepted, attempts: int, error: BaseException) -> None:
        parked = 0
        if self._settings.on_failure == "park":
            with self._store.database.read() as tx:
                parked = self._store.parked(tx, self.claim.projection)
        step = decide(self._settings, max(attempts, self._settings.retries + 1), parked).step
        if step is Step.FAIL:
            raise RangeFailed(event.row, error)
        self._set_aside(event.row, step, attempts, error, event.before)

    def _set_aside(self, row: QueryRow, step: Step, attempts: int, error: BaseException, before: int) -> None:
        """Skip an event or park its key: a dead letter, in the transaction that saves the offset.

        `before` is the position that may be saved: all up to there is done, whatever becomes of the event.
        """
        self._offsets.undone()
        known = self._offsets.row(row.key)
        kept = KeyRow(row.slice, row.key, row.life, row.seq_nr, row.timestamp)
        if step is Step.PARK:
            done = row.prev_seq_nr if known is None or known.life != row.life else known.seq_nr
            kept = kept._replace(seq_nr=done, parked=row.timestamp)
        reason = "parked" if step is Step.PARK else "skipped"
        self.counts[reason] += 1
        position = max(self._offsets.position, before)
        failure, now = Failure.of(error), self._store.database.now_us()
        letter = (
            self.claim.projection.id, row.key, row.life, row.seq_nr, row.slice, row.timestamp, attempts, now, now,
            failure.type, failure.message, reason,
        )  # fmt: skip
        try:
            with self._store.database.write() as tx:
                tx.execute("add_letter", letter)
                self._store.save(tx, self.claim, [kept], position, self._counted(()))
        except Unavailable as unknown:
            self._unknown(unknown)
        self._done((), position)
        self._offsets.done(kept)
        self._offsets.saved(position)

    def _carefully(self) -> None:
        """Processes died here: each event alone, its attempt saved before the handler runs, until one is past."""
        _logger.warning("%s %s goes carefully", self.projection.name, self.claim.row.range)
        bound, _ = self._bounds()
        for row in self._slices.rows(self._read_to, bound, self._settings.page_size):
            self._judge_page([row], SEQ_NR_MAX)
            hand, self._hand = self._hand, []
            for each in hand:
                attempts = self._tried(each) + 1
                if attempts > self._settings.retries + 1:
                    error = RuntimeError(f"the process ended {attempts - 1} times while this was handled")
                    self._careful = False
                    self._give_up(each, attempts - 1, error)
                    raise _ReadAgain
                with self._store.database.write() as tx:
                    told = orjson.dumps([each.row.key, each.row.life, each.row.seq_nr, attempts]).decode()
                    tx.execute("try_event", (*self.claim.place, told))
                try:
                    self._attempt([each], each.before)
                except _HandlerFailed as failed:
                    self._careful = False
                    self._recover(each, failed.error)
                self._careful = False
            if hand:
                raise _ReadAgain

    def _tried(self, each: Accepted) -> int:
        key, life, seq_nr, attempts = orjson.loads(self.claim.row.trying or '["", 0, 0, 0]')
        return int(attempts) if (key, life, seq_nr) == (each.row.key, each.row.life, each.row.seq_nr) else 0

    # ------------------------------------------------------------ requests

    def _carry_out(self) -> None:
        """What operators ask for, between two transactions."""
        if not self._asked:
            return
        self._deliver(self._offsets.position)
        while self._asked:
            request = self._asked[0]
            verbs = {"unpark": self._unpark, "redeliver": self._redeliver, "skip": self._skip}
            try:
                verbs[request.verb](request)
            except StrandlineError as error:
                if not isinstance(error, NotFound | MissingEvent):
                    raise
                with self._store.database.write() as tx:
                    tx.execute("refuse", (request.id, str(error)))
            self._offsets.forget(request.key)
            self._asked.popleft()
        raise _ReadAgain  # what was read ahead is judged by what has changed

    def _unpark(self, request: Request) -> None:
        """Hand over a key's journal from the event that waits on, in order; a new failure parks it again.

        Until the last one is done the key stays parked: whoever goes on after a crash finds out where.
        """
        kept = self._kept(request.key)
        if kept is not None and kept.parked is not None:
            bound, _ = self._bounds()
            waiting = (
                row for row in self._slices.of_key(request.key, kept.life, kept.seq_nr + 1, SEQ_NR_MAX)
                if row.timestamp <= bound
            )  # fmt: skip
            row = next(waiting, None)
            if row is None:  # all of it was deleted since
                self._save_rows([kept._replace(parked=None)], request.id)
                return
            while row is not None:
                behind = next(waiting, None)
                self._offsets.forget(request.key)
                self._accept(row)
                (accepted,), self._hand = self._hand, []
                waits = accepted.key_row._replace(parked=behind and behind.timestamp)
                if not self._handed_again(accepted._replace(key_row=waits)):
                    break
                self._end_letter(row)
                row = behind
        with self._store.database.write() as tx:
            tx.execute("asked_done", (request.id,))

    def _handed_again(self, each: Accepted) -> bool:
        """Hand over one event of a key that was parked; whether it is done."""
        attempts = 0
        while True:
            try:
                self._attempt([each], self._offsets.position)
                return True
            except _HandlerFailed as failed:
                attempts += 1
                decision = decide(self._settings, attempts, 0)
                if decision.step is not Step.RETRY:
                    self._set_aside(each.row, Step.PARK, attempts, failed.error, self._offsets.position)
                    return False
                if self._stop.wait(decision.delay_s):
                    raise _Stopped from None

    def _redeliver(self, request: Request) -> None:
        """Run a dead letter, and remove it in the same transaction."""
        projection = self.claim.projection
        with self._store.database.read() as tx:
            self._store.letter(tx, projection.id, request.key, request.life, request.seq_nr)
        row = next(self._slices.of_key(request.key, request.life, request.seq_nr, request.seq_nr), None)
        if row is None:
            gone = f"{request.key} {request.seq_nr} is not in the store any more"
            raise NotFound(gone, code="event", hint="discard the dead letter")
        event = HandedEvent(Life(row.key, row.life), row, projection.id)
        place = (projection.id, row.key, row.life, row.seq_nr)
        try:
            if self.projection.exactly_once:
                with self._store.database.write(isolation=self._settings.isolation) as tx:  # type: ignore[arg-type]
                    self._handler_tx = handler_tx = HandlerTransaction(tx)
                    try:
                        self._handle(handler_tx, [Accepted(row, event, _done_row(row))])
                    finally:
                        handler_tx.end()
                        self._handler_tx = None
                    self._redelivered(tx, place, request)
            else:
                self._handle(None, [Accepted(row, event, _done_row(row))])
                with self._store.database.write() as tx:
                    self._redelivered(tx, place, request)
        except _HandlerFailed as failed:
            with self._store.database.write() as tx:
                why = Failure.of(failed.error)
                tx.execute("refuse", (request.id, f"the handler failed: {why.type}: {why.message}"))
            return
        self._done((), self._offsets.position)

    def _redelivered(self, tx: Transaction, place: tuple[str, str, int, int], request: Request) -> None:
        tx.execute("end_letter", place)
        tx.execute("asked_done", (request.id,))
        self._store.save(tx, self.claim, (), self._offsets.position, self._counted(()))

    def _skip(self, request: Request) -> None:
        """Count a key as done up to a number; each event of it that is there leaves a dead letter."""
        kept = self._kept(request.key)
        done = kept.seq_nr if kept is not None and kept.life == request.life else 0
        now = self._store.database.now_us()
        rows = list(self._slices.of_key(request.key, request.life, done + 1, request.seq_nr))
        time_ = max([row.timestamp for row in rows] + ([kept.timestamp] if kept is not None else [0]))
        place = (self.claim.projection.id, request.key, request.life)
        with self._store.database.write() as tx:
            for row in rows:
                letter = (*place, row.seq_nr, row.slice, row.timestamp, 0, now, now, "", "", "operator")
                tx.execute("add_letter", letter)
            tx.execute("asked_done", (request.id,))
            new = []
            if request.seq_nr > done:
                parked = kept.parked if kept is not None and kept.life == request.life else None
                new = [KeyRow(request.slice, request.key, request.life, request.seq_nr, time_, parked)]
            self._store.save(tx, self.claim, new, self._offsets.position, self._counted(()))
        self._done((), self._offsets.position)

    def _kept(self, key: str) -> KeyRow | None:
        """The row of a key, as it is saved."""
        with self._store.database.read() as tx:
            return self._store.key_row(tx, self.claim.projection, key)

    def _save_rows(self, rows: Sequence[KeyRow], request: str | None = None) -> None:
        with self._store.database.write() as tx:
            if request is not None:
                tx.execute("asked_done", (request,))
            self._store.save(tx, self.claim, rows, self._offsets.position, self._counted(()))
        self._done((), self._offsets.position)

    def _end_letter(self, row: QueryRow) -> None:
        with self._store.database.write() as tx:
            tx.execute("end_letter", (self.claim.projection.id, row.key, row.life, row.seq_nr))


def _check_whole(tx: HandlerTransaction | None) -> None:
    if tx is not None and tx.broken:
        raise RuntimeError("the handler swallowed an error of the database: nothing of this transaction can be kept")


def _done_row(row: QueryRow) -> KeyRow:
    """What is saved of a key whose last event is this one."""
    return KeyRow(row.slice, row.key, row.life, row.seq_nr, row.timestamp)


def _handled(hand: Sequence[Accepted]) -> tuple[int, int]:
    """How many of these a handler gets, and how many not."""
    filtered = sum([event is None for _, event, _, _ in hand])
    return len(hand) - filtered, filtered


def _last_rows(hand: Sequence[Accepted]) -> Sequence[KeyRow]:
    """The last row of each key."""
    return list({row[2]: key_row for row, _, key_row, _ in hand}.values())
