"""The live feed: events straight from the log, before the pipeline has carried them.

    log ──▶ records after the pointer ──fold on the store's heads──▶ events ──▶ the ranges that they belong to

One thread of a host follows the partitions of its ranges, each from its pointer on. The feed may leave any event out,
because the store brings it later. So a feed that fails, or holds too many keys, forgets all and begins again at the
pointers, once they have moved. The feed hands over only events that the fold has accepted: it folds the tail on the
store's heads, as a read does. It reads the log as any reader does; no append waits for it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event as Signal
from threading import Lock, Thread
from typing import Final, cast

from strandline.carry.range import CarriedRange, Decoded, decode, prepare
from strandline.errors import StrandlineError
from strandline.log.api import Log, UnfoldedLog
from strandline.log.cursor import PAGE_BYTES, PartitionCursor
from strandline.points import reached
from strandline.query.pointer_watch import PointerWatch
from strandline.query.query_row import QueryRow
from strandline.query.slices import Slices
from strandline.rows import KeyRun, Pointer
from strandline.store.api import KeyStates, Store
from strandline.values.events import EventRow
from strandline.values.heads import State

PAGE_RECORDS: Final = 1000
WAIT_S: Final = 0.1
"""The longest time until a range that joins is fed."""
CUT_EVERY_S: Final = 1.0
BACK_OFF_S: Final = 1.0
ROWS_MAX: Final = 10_000
"""The most events, beside one more page, that wait for a range whose handler is slow."""
_logger = logging.getLogger("strandline")

Offer = Callable[[Sequence[QueryRow]], None]


class Subscription:
    """A range that is fed."""

    def __init__(self, feed: LogFeed, slices: Slices, offer: Offer) -> None:
        self._feed, self.slices, self.offer = feed, slices, offer

    def again(self) -> None:
        """Begin again at the pointers, because an event was left out that the range can take now."""
        self._feed.begin_again(self.slices.partitions)

    def leave(self) -> None:
        """Leave the feed. Twice is harmless."""
        self._feed.remove(self)


class LogFeed:
    """Follows the tail for the ranges of a host. They join and leave from their own threads."""

    def __init__(self, log: Log, store: Store, watch: PointerWatch, keys_max: int) -> None:
        self._log, self._store, self._watch, self._keys_max = log, store, watch, keys_max
        self._lock = Lock()
        self._subscriptions: list[Subscription] = []
        self._again: set[int] = set()
        self._tails: dict[int, _UnreplicatedTail] = {}
        self._cut_at = 0.0
        self._stop, self._joined = Signal(), Signal()
        self._thread: Thread | None = None

    # ------------------------------------------------------------ from any thread

    def join(self, slices: Slices, offer: Offer) -> Subscription:
        """Feed a range, from its partitions' pointers on."""
        subscription = Subscription(self, slices, offer)
        with self._lock:
            self._subscriptions.append(subscription)
            self._again.update(slices.partitions)
            if self._thread is None:
                self._thread = self._started()
        self._joined.set()
        return subscription

    def _started(self) -> Thread | None:
        thread = Thread(target=self._run, name="strandline-feed", daemon=True)
        thread.start()
        return thread

    def begin_again(self, partitions: Iterable[int]) -> None:
        """Read these partitions from their pointers on, once more."""
        with self._lock:
            self._again.update(partitions)

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

    def close(self) -> None:
        """End. Twice is harmless."""
        self._stop.set()
        self._joined.set()
        if self._thread is not None:
            self._thread.join()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except StrandlineError as error:
                _logger.warning("the live feed begins again: %s", error)
                self._tails.clear()
                self._stop.wait(BACK_OFF_S)
            except Exception:
                _logger.exception("the live feed begins again")
                self._tails.clear()
                self._stop.wait(BACK_OFF_S)

    def _follow(self) -> None:
        ends = Ends(self._log)
        try:
            while not self._stop.is_set():
                if not self._round(ends):
                    self._joined.wait()
                    self._joined.clear()
        finally:
            ends.close()

    def _round(self, ends: Ends) -> bool:
        """Hand over new events; return False if no range is fed."""
        with self._lock:
            wanted = {partition for one in self._subscriptions for partition in one.slices.partitions}
            again, self._again = self._again, set()
        if not wanted:
            self._tails.clear()
            return False
        if again or wanted - self._tails.keys():
            self._begin(wanted, again)
        if time.monotonic() - self._cut_at >= CUT_EVERY_S:
            self._cut(self._watch.within(CUT_EVERY_S))
            self._cut_at = time.monotonic()
        self._read_on([self._tails[partition] for partition in wanted], ends)
        return True

    def _read_on(self, tails: Sequence[_UnreplicatedTail], ends: Ends) -> None:
        """Wait for new events, and hand them over."""
        following = {tail.cursor.partition: tail.cursor.offset for tail in tails if not tail.overflowed}
        if not following:
            self._stop.wait(WAIT_S)
            return
        ends.wait(following, WAIT_S)
        for partition, offset in following.items():
            if ends.newest[partition] > offset:
                self._read(self._tails[partition], ends.newest[partition])

    def _begin(self, wanted: set[int], again: set[int]) -> None:
        pointers = self._store.pointers()
        for partition in wanted:
            if partition in again or partition not in self._tails:
                self._tails[partition] = _UnreplicatedTail(self._log, pointers[partition])

    def _cut(self, pointers: Sequence[Pointer]) -> None:
        """Forget what the pointers have passed. A tail that overflowed goes on once its pointer has moved."""
        for partition, tail in list(self._tails.items()):
            pointer = pointers[partition]
            if (tail.overflowed and pointer.offset > tail.began) or pointer.offset > tail.cursor.offset:
                self._tails[partition] = _UnreplicatedTail(self._log, pointer)
            else:
                tail.forget(pointer.offset)

    def _read(self, tail: _UnreplicatedTail, newest: int) -> None:
        """Hand over a page of the tail."""
        if len(tail.states) > self._keys_max:
            tail.overflow()
            return
        rows = tail.read(self._store, newest)
        if not rows:
            return
        with self._lock:
            subscriptions = list(self._subscriptions)
        for one in subscriptions:
            entity_type, range_ = one.slices.entity_type, one.slices.range
            chosen = [_as_read(row) for row in rows if row.entity_type == entity_type and row.slice in range_]
            if chosen:
                one.offer(chosen)


class Ends:
    """The ends of the log's partitions, as far as known. A log that cannot tell its end exactly is followed, because
    asking it each time would be slow.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.newest = log.newest()
        self._follower = None if log.exact else cast(UnfoldedLog, log).follow(list(self.newest), lambda record: None)

    def wait(self, after: Mapping[int, int], timeout_s: float) -> None:
        """Wait until a partition has something after its offset, or the time is up."""
        if any(self.newest[partition] > offset for partition, offset in after.items()):
            return
        if self._follower is None:
            if self._log.wait(after, timeout_s):
                self.newest = self._log.newest()
            return
        for partition, page in self._follower.poll(timeout_s):
            self.newest[partition] = max(self.newest[partition], page.position - 1)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()


class FedRange:
    """The rows that the feed has for one range. The feed's thread puts rows in, the range's own takes them out."""

    def __init__(self, feed: LogFeed, slices: Slices, wake: Callable[[], None]) -> None:
        self._feed, self._slices, self._wake = feed, slices, wake
        self._subscription: Subscription | None = None
        self._rows: deque[QueryRow] = deque()
        self._in_hand: list[QueryRow] = []
        self._left_out, self._begun_at = False, -1

    def caught_up(self, bound: int) -> None:
        """Note that all that the store has up to a time was read: what the feed brings next may follow on it.

        What could not be taken earlier, because something before it was not done, is asked for again.
        """
        if self._subscription is None:
            self._subscription = self._feed.join(self._slices, self._offer)
        elif self._left_out and bound > self._begun_at and not self._rows:
            reached("projection.fed_again")
            self._left_out = False
            self._subscription.again()
        else:
            return
        self._begun_at = bound

    def _offer(self, rows: Sequence[QueryRow]) -> None:
        if len(self._rows) < ROWS_MAX:
            self._rows.extend(rows)
        else:
            reached("projection.fed_too_much")
            self._left_out = True
        self._wake()

    def take(self, most: int) -> list[QueryRow]:
        """Return the next rows. The same rows come again unless `settled` is called."""
        taken = [self._rows.popleft() for _ in range(min(most, len(self._rows)))]
        self._in_hand += taken
        return taken

    def settled(self) -> None:
        """Forget the rows that were taken: they are done."""
        self._in_hand.clear()

    def undone(self) -> None:
        """Put the rows that were taken back: they are judged again, and repeats fall out."""
        if self._in_hand:
            reached("projection.fed_rows_judged_again")
        self._rows.extendleft(reversed(self._in_hand))
        self._in_hand.clear()

    def left_out(self) -> None:
        """Note that a row could not be taken."""
        self._left_out = True

    def leave(self) -> None:
        if self._subscription is not None:
            self._subscription.leave()


class _UnreplicatedTail:
    """The unreplicated tail of a partition: how far it was read, and the states of the keys that are in it."""

    def __init__(self, log: Log, pointer: Pointer) -> None:
        self.began = pointer.offset
        self.cursor = PartitionCursor(log, pointer.partition, pointer.offset, pointer.timestamp)
        self.states: dict[str, State] = {}
        self._last: dict[str, int] = {}
        self.overflowed = False

    def overflow(self) -> None:
        """Forget everything, because the tail has too many keys."""
        reached("projection.feed_has_too_many_keys")
        self.overflowed = True
        self.states.clear()
        self._last.clear()

    def forget(self, to: int) -> None:
        """Forget the keys whose last record is in the store: they are looked up there."""
        for key in [key for key, offset in self._last.items() if offset <= to]:
            del self.states[key], self._last[key]

    def read(self, store: Store, newest: int) -> list[EventRow]:
        """Return the events of the next records, by time."""
        partition, before, timestamp = self.cursor.partition, self.cursor.offset, self.cursor.timestamp
        records = self.cursor.read(to=newest, limit=PAGE_RECORDS, bytes_max=PAGE_BYTES)
        decoded, newer = decode(records, store.settings.partitions)
        if newer is not None:
            raise newer[1]
        last = {
            item.action.key: item.record.offset
            for item in decoded
            if item.action is not None and item.action.key is not None
        }
        decoded = self._known(store, partition, decoded, last.keys() - self.states.keys())
        self._last.update(last)
        range_ = CarriedRange(partition, before + 1, self.cursor.offset + 1, [item.record for item in decoded])
        look = KeyStates(Pointer(partition, before, timestamp), {key: self.states[key] for key in last})
        batch = prepare(range_, decoded, look, store.settings, 0)
        self.states.update(batch.states)
        return sorted((row for cut in batch.cuts for row in _left(cut)), key=lambda row: (row.timestamp, row.seq_nr))

    def _known(self, store: Store, partition: int, decoded: Sequence[Decoded], new: set[str]) -> list[Decoded]:
        """Look up the keys that are new here, and leave out the records that the store has already."""
        if not new:
            return list(decoded)
        look = store.look(partition, new)
        self.states.update({key: look.states.get(key) for key in new})
        carried = look.pointer.offset
        if any(item.record.offset <= carried for item in decoded):
            reached("projection.carried_while_it_was_read")
        return [
            item
            for item in decoded
            if item.action is None or item.action.key not in new or item.record.offset > carried
        ]


def _as_read(row: EventRow) -> QueryRow:
    """Return an event as the row that the store will have for it."""
    return QueryRow(row.timestamp, row.seq_nr, row.key, row.life, row.prev_seq_nr, row.body, row.digest)


def _left(cut: KeyRun) -> Iterable[EventRow]:
    """Return the events of a run that are not removed in the same page."""
    gone = 0 if cut.ended_by is None else cut.ended_by.to
    return (row for row in cut.events if row.seq_nr > gone)
