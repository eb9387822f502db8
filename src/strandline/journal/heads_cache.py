"""The heads cache: what the log has beyond the pointers, by key, for a log that does not fold by itself.

One thread follows all partitions from their pointers and keeps the headers of each key's actions: actions, not results.
They are folded on the store's head when a caller asks. This process's own records enter the cache with their
acknowledgement: while nobody else writes a partition, no caller waits for the thread. The cache never changes an
answer: where it is cold, late, full or failing, the caller reads the log instead.

Of each partition it knows
    position       every record below it was looked at
    kept keys      each with all its actions after some offset
    other keys     that they have no action after `absent_after`
    own            records of this process above the position: somebody else's lie between, and are on their way
Actions that the pointers have passed are dropped, unless a caller still has to fold from an older pointer. The thread
ends when no caller has asked for a while; the next caller starts a new, cold cache.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

from strandline.errors import SchemaMismatch, StrandlineError
from strandline.fold import Effect, FoldRules, fold
from strandline.log.api import Follower, RecordPage, UnfoldedLog
from strandline.log.refusals import trimmed
from strandline.points import reached
from strandline.record import BadHeader, Record, decode_header, is_mark, time_of
from strandline.rows import Pointer
from strandline.settings import Settings
from strandline.store.api import Store
from strandline.values.actions import Place
from strandline.values.heads import State

POLL_S: Final = 0.1
CUT_EVERY_S: Final = 0.5
BACK_OFF_S: Final = 1.0
BYTES_A_KEY: Final = 4096
"""How many bytes a partition may keep, for each key that it may keep."""
SeenState = tuple[Pointer, State]
_logger = logging.getLogger(__name__)


class FoldedKey(NamedTuple):
    """The fold of a key's actions without its Marks: places of the first and last, effect of the last, state after
    it."""

    first: Place | None
    last: Place | None
    effect: Effect
    state: State


class HeadsCache:
    """The cache of one log and store. Any number of threads may use it."""

    def __init__(self, log: UnfoldedLog, store: Store, settings: Settings) -> None:
        self._log, self._store, self._settings = log, store, settings
        self._lock = Lock()
        self._following: _FollowedLog | None = None
        self._closed = False
        self._failed_until = 0.0

    def fold(
        self, key: str, pointer: Pointer, state: State, to: int, *, wait_s: float | None = None
    ) -> FoldedKey | None:
        """Return the key's actions after the pointer, up to offset `to`, folded on the store's state; None: ask the
        log.

        It waits for the follower up to `heads_cache_wait_s`, or `wait_s` if that is less.
        """
        following = self._follow()
        if following is None:
            return None
        most_s = self._settings.heads_cache_wait_s
        return following.fold(key, pointer, state, to, most_s if wait_s is None else min(most_s, wait_s))

    def hold(self, key: str, partition: int, look: Callable[[], SeenState]) -> Hold | None:
        """Keep what comes after a pointer until the hold is released: the pointer, and the state taken with it.

        If the cache has all actions of the key since an earlier look at the store, that look still holds and is reused.
        """
        following = self._follow()
        return None if following is None else following.hold(key, partition, look)

    def holds(self, key: str, partition: int) -> bool:
        """Return whether `hold` would reuse an earlier look at the store."""
        following = self._follow()
        return following is not None and following.seen(key, partition) is not None

    def close(self) -> None:
        """End the thread. A second call does nothing."""
        with self._lock:
            self._closed = True
            following, self._following = self._following, None
        if following is not None:
            following.end()

    def _follow(self) -> _FollowedLog | None:
        now = time.monotonic()
        with self._lock:
            following = self._following
            if following is None or following.ended.is_set():
                if following is not None and following.failed:
                    self._failed_until = now + BACK_OFF_S
                    following.failed = False
                if self._closed or now < self._failed_until:
                    return None
                following = self._following = _FollowedLog(self._log, self._store, self._settings)
            following.asked = now
            return following


class Hold:
    """A pointer and a state taken with it; keeps a partition from forgetting what comes after."""

    __slots__ = ("_partition", "pointer", "state")

    def __init__(self, partition: _Partition, seen: SeenState) -> None:
        self._partition = partition
        self.pointer, self.state = seen
        partition.held[self.pointer.offset] += 1

    def fold(self, key: str, to: int) -> FoldedKey | None:
        """Fold as `HeadsCache.fold` does, on what is held, without waiting."""
        return self._partition.known(key, self.pointer.offset, self.state, to)

    def when(self, offset: int, tell: Callable[[], None]) -> None:
        """Call `tell` once everything up to an offset was looked at, or nothing more comes."""
        self._partition.when(offset, tell)

    def release(self) -> None:
        """Let the partition forget again. To be called once."""
        with self._partition.lock:
            held, offset = self._partition.held, self.pointer.offset
            held[offset] -= 1
            if not held[offset]:
                del held[offset]


class _FollowedLog:
    """One run of the thread that follows."""

    def __init__(self, log: UnfoldedLog, store: Store, settings: Settings) -> None:
        self._log, self._store, self._settings = log, store, settings
        self._partitions: list[_Partition] = []
        self._started = Event()
        self._stop = Event()
        self._wanted = Event()  # a caller waits for records of other processes
        self.ended = Event()
        self.failed = False
        self.asked = time.monotonic()
        self._thread = Thread(target=self._run, name="strandline-heads-cache", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ asked by anybody

    def fold(self, key: str, pointer: Pointer, state: State, to: int, wait_s: float) -> FoldedKey | None:
        deadline = time.monotonic() + wait_s
        if not self._started.wait(wait_s) or not self._partitions:
            return None
        partition = self._partitions[pointer.partition]
        if not partition.reached(to, deadline):
            reached("heads.not_caught_up")
            return None
        return partition.known(key, pointer.offset, state, to)

    def seen(self, key: str, number: int) -> SeenState | None:
        if not self._partitions or self.ended.is_set():
            return None
        partition = self._partitions[number]
        with partition.lock:
            actions = partition.keys.get(key)
            return None if actions is None else actions.seen

    def hold(self, key: str, number: int, look: Callable[[], SeenState]) -> Hold | None:
        if not self._partitions or self.ended.is_set():
            return None
        partition = self._partitions[number]
        with partition.lock:
            actions = partition.keys.get(key)
            if actions is not None and actions.seen is not None:
                return Hold(partition, actions.seen)
        seen = look()
        with partition.lock:
            actions = partition.keys.get(key)
            if actions is not None and actions.after <= seen[0].offset:
                actions.seen = seen
            return Hold(partition, seen)

    def end(self) -> None:
        self._stop.set()
        self._wanted.set()
        self._thread.join()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            pointers = self._store.pointers()
            after = [pointer.offset for pointer in pointers]
            keys_max, rules = self._settings.heads_cache_keys_max, self._store.settings.rules
            self._partitions = [_Partition(pointer, after, self._wanted, keys_max, rules) for pointer in pointers]
            follower = self._log.follow(after, self._own)
            try:
                self._started.set()
                cut = time.monotonic()
                while not self._stop.is_set():
                    self._take(follower)
                    now = time.monotonic()
                    if now - self.asked > self._settings.heads_cache_idle_s:
                        break
                    if now - cut >= CUT_EVERY_S:
                        self._cut()
                        cut = now
            finally:
                follower.close()
        except StrandlineError as error:
            self.failed = True
            _logger.debug("the heads cache ends: %s", error)
        except Exception:
            self.failed = True
            _logger.exception("the heads cache ends")
        finally:
            self.ended.set()
            self._started.set()
            for partition in self._partitions:
                partition.end()

    def _take(self, follower: Follower) -> None:
        """Take the records that arrive. While no caller waits for them, several are taken together: each wake-up costs
        other threads time."""
        wanted = self._wanted.wait(POLL_S)
        while pages := follower.poll(POLL_S if wanted else 0.0):
            for number, page in pages:
                self._partitions[number].add(page)
            if wanted:
                break
        self._wanted.clear()
        if any(partition.is_waited_for for partition in self._partitions):
            self._wanted.set()

    def _own(self, record: Record) -> None:
        """Add what this process has recorded."""
        self._partitions[record.partition].add_own(record)

    def _cut(self) -> None:
        if not any(partition.keys for partition in self._partitions):
            return
        pointers = self._store.pointers()
        for pointer, oldest in zip(pointers, self._log.oldest(), strict=True):
            # A caller that reads the log gets an error for lost records: so must one that asks here.
            if oldest > pointer.offset + 1:
                raise trimmed(pointer.partition, pointer.offset, oldest)
            partition = self._partitions[pointer.partition]
            with partition.lock:
                partition.cut(pointer.offset)


class _Actions:
    """The actions of one key after offset `after`, and what they came to on the state that was asked for last."""

    __slots__ = ("after", "base", "effects", "headers", "offsets", "seen", "states", "timestamps")

    def __init__(self, after: int) -> None:
        self.after = after
        self.seen: SeenState | None = None
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.headers: list[bytes] = []
        self.base: State = None
        self.effects: list[Effect] = []
        self.states: list[State] = []

    def cut(self, to: int) -> int:
        """Forget the actions up to `to`; return how many bytes they took."""
        count = bisect_right(self.offsets, to)
        if not count:
            return 0
        self.after = self.offsets[count - 1]
        if self.seen is not None and self.seen[0].offset < self.after:
            self.seen = None
        size = sum(map(len, self.headers[:count]))
        for column in (self.offsets, self.timestamps, self.headers, self.effects, self.states):
            del column[:count]
        return size

    def fold(self, key: str, partition: int, state: State, count: int, rules: FoldRules) -> bool:
        """Fold the first `count` actions; return whether that could be done."""
        if state is not self.base and state != self.base:
            # Equal states stand for equal pasts: what was folded on one holds for the other, wherever the pointer is.
            if self.states:
                reached("heads.folded_anew")
            self.base, self.effects, self.states = state, [], []
        for index in range(len(self.states), count):
            before = self.states[-1] if index else state
            after, effect = before, None
            try:
                action = decode_header(self.headers[index])
                if action.key == key:
                    place = Place(partition, self.offsets[index], self.timestamps[index])
                    after, effect = fold(before, action, place, rules)
            except BadHeader:
                pass
            except SchemaMismatch:
                return False
            self.effects.append(effect)
            self.states.append(after)
        return True


class _Partition:
    """The cached state of one partition. The caller of `cut` holds `lock`.

    `after` has, for each partition, the last offset that was looked at; `wanted` is set while a caller waits.
    """

    def __init__(self, pointer: Pointer, after: list[int], wanted: Event, keys_max: int, rules: FoldRules) -> None:
        self.lock = Lock()
        self.keys: dict[str, _Actions] = {}  # keys by their last action, oldest first
        self.held: Counter[int] = Counter()
        self._number, self._after, self._wanted = pointer.partition, after, wanted
        self._position, self._timestamp = pointer.offset + 1, pointer.timestamp
        self._absent_after = pointer.offset
        self._keys_max, self._free, self._rules = keys_max, keys_max * BYTES_A_KEY, rules
        self._own: dict[int, Record] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._ended = False

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def add(self, page: RecordPage) -> None:
        """Add the next records, and wake the callers that waited for them."""
        with self.lock:
            for record in page.records:
                if record.offset >= self._position:
                    self._next(record)
            self._position = max(self._position, page.position)
            self._go_on()
            waiting = self._reached()
        for tell in waiting:
            tell()

    def add_own(self, record: Record) -> None:
        """Add a record of this process: it is the next one, or is kept until the records before it have come."""
        offset = record.offset
        with self.lock:
            if offset != self._position:
                if offset > self._position:
                    reached("heads.own_before_what_lies_between")
                if offset > self._position and len(self._own) < self._keys_max and not self._ended:
                    self._own[offset] = record
                return
            self._next(record)
            self._go_on()
            waiting = self._reached() if self._waiting else ()
        for tell in waiting:
            tell()

    def _go_on(self) -> None:
        """Add the kept records of this process that come next."""
        own = self._own
        if own:
            while (record := own.pop(self._position, None)) is not None:
                self._next(record)
            if own and min(own) < self._position:  # what came from elsewhere had them, too
                self._own = {offset: record for offset, record in own.items() if offset > self._position}
        self._after[self._number] = self._position - 1

    def _next(self, record: Record) -> None:
        _, offset, recorded, key, header, *_ = record
        timestamp = time_of(recorded, header, self._timestamp)
        self._timestamp, self._position = timestamp, offset + 1
        if key is not None and header is not None and not is_mark(header):
            self._keep(key, offset, timestamp, header)

    def _reached(self) -> list[Callable[[], None]]:
        """Return the calls that wake callers which need not wait any more."""
        position = self._position
        reached = [tell for offset, tell in self._waiting if offset < position]
        if reached:
            self._waiting = [entry for entry in self._waiting if entry[0] >= position]
        return reached

    def _keep(self, key: str, offset: int, timestamp: int, header: bytes) -> None:
        actions = self.keys.pop(key, None) or _Actions(self._absent_after)
        actions.offsets.append(offset)
        actions.timestamps.append(timestamp)
        actions.headers.append(header)
        self.keys[key] = actions
        self._free -= len(header)
        while len(self.keys) > self._keys_max or (self._free < 0 and self.keys):
            self._drop(next(iter(self.keys)))

    def _drop(self, key: str) -> None:
        reached("heads.key_dropped")
        actions = self.keys.pop(key)
        self._absent_after = max(self._absent_after, actions.offsets[-1])
        self._free += sum(map(len, actions.headers))

    def when(self, to: int, tell: Callable[[], None]) -> None:
        """Call `tell` once everything up to `to` was looked at, or nothing more comes."""
        with self.lock:
            waits = self._position <= to and not self._ended
            if waits:
                self._waiting.append((to, tell))
        if not waits:
            tell()
        elif not self._wanted.is_set():
            self._wanted.set()

    def reached(self, to: int, deadline: float) -> bool:
        """Wait until everything up to `to` was looked at; False if that is not so in time."""
        if self._position > to:
            return True
        wait = Lock()
        wait.acquire()
        tell = wait.release
        self.when(to, tell)
        wait.acquire(timeout=max(0.0, deadline - time.monotonic()))
        with self.lock:
            if self._position > to:
                return True
            self._waiting = [entry for entry in self._waiting if entry[1] is not tell]
            return False

    def known(self, key: str, after: int, state: State, to: int) -> FoldedKey | None:
        """Return the key's actions in (`after`, `to`], folded on a state, if all of them are here."""
        with self.lock:
            return self._fold(key, after, state, to) if self._position > to else None

    def _fold(self, key: str, after: int, state: State, to: int) -> FoldedKey | None:
        actions = self.keys.get(key)
        if actions is None:
            return FoldedKey(None, None, None, state) if self._absent_after <= after else None
        if actions.after > after:
            return None
        first, count = bisect_right(actions.offsets, after), bisect_right(actions.offsets, to)
        if first == count:
            return FoldedKey(None, None, None, state)
        if not actions.fold(key, self._number, state, count, self._rules):
            return None
        return FoldedKey(
            Place(self._number, actions.offsets[first], actions.timestamps[first]),
            Place(self._number, actions.offsets[count - 1], actions.timestamps[count - 1]),
            actions.effects[count - 1],
            actions.states[count - 1],
        )

    def cut(self, pointer: int) -> None:
        """Forget the actions that the pointer has passed and no hold keeps."""
        to = min(pointer, *self.held) if self.held else pointer
        gone = []
        for key, actions in self.keys.items():
            if actions.seen is not None and actions.seen[0].offset < pointer:
                actions.seen = None  # or a busy key would be held at its first look for ever
            if actions.offsets[-1] <= to:
                gone.append(key)
            else:
                self._free += actions.cut(to)
        for key in gone:
            self._drop(key)

    def end(self) -> None:
        """Note that nothing comes any more."""
        with self.lock:
            self._ended = True
            waiting, self._waiting = self._waiting, []
            self._own.clear()
        for _, tell in waiting:
            tell()
