"""The processor of a stream: runs its groups in order, side by side where it is known that they touch different rows.

    stream ──▶ admitted, in order ──▶ waiting for rows ──▶ running ──▶ ended, or waiting for an operator
                 (1,000 ahead)          (`rows`)            (`parallel_groups` at a time)

There is one per stream, by a lease. Whoever takes over first raises the fence in every target, so that nothing of the
one before it commits there any more; then it copies into each open history what only barrier rows know, and writes
`Taken`, so that nothing of the one before it gets into the history. Then it goes on from there.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final

from strandline.errors import InvalidGroup, StrandlineError, Unavailable
from strandline.group import lease as leases
from strandline.group.execution import OpenTarget, Shared
from strandline.group.handlers import Handlers
from strandline.group.history import ENDS, Entry, History, result, unpacked
from strandline.group.names import inbox_key, stream_key
from strandline.group.plan import GroupPlan, handler_names
from strandline.group.points import reached
from strandline.group.record import Record
from strandline.group.rollback import Execution
from strandline.group.rows import RowQueues
from strandline.group.statements.api import Held
from strandline.group.target import Barrier, SqlTarget
from strandline.group.times import Times
from strandline.values.keys import key_partition

if TYPE_CHECKING:
    from strandline.group.groups import Groups

LOOK_AHEAD: Final = 1000
TICK_S: Final = 0.5
FORGET_S: Final = 600.0
FORGET_GROUPS: Final = 1000
FOLLOW_S: Final = 0.1
WAIT_LEAST_S: Final = 0.1
_logger: Final = logging.getLogger("strandline.group")


@dataclass(slots=True)
class _Open:
    """A group that was admitted and is not over."""

    id: str
    place: int
    history: History
    execution: Execution | None
    resumed: bool = False
    running: bool = False
    parked: bool = False
    """It waits for an operator."""


class Processor:
    """Runs a stream. `run` returns after `stop`, `run_until_idle` when there is nothing left to do."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._journal, self._settings = groups.journal, groups.settings
        self._changed = Condition()
        self._stopping = False
        self._ended: deque[tuple[_Open, BaseException | None]] = deque()
        self.waits_for: str | None = None
        """Who holds the stream, while this one waits."""
        self.lease: leases.StreamLease | None = None

    def run(self) -> None:
        """Until `stop`. `LeaseLost` if another processor took over."""
        self._work(until_idle=False)

    def run_until_idle(self) -> None:
        """Until every group of the stream has ended, or waits for an operator."""
        self._work(until_idle=True)

    def stop(self) -> None:
        """Start nothing more; `run` returns when what runs has ended. From any thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _work(self, *, until_idle: bool) -> None:
        groups, settings = self._groups, self._settings
        lease = leases.take(self._journal, groups.stream, settings.lease_s, groups.clock, self._waiting)
        if lease is None:
            return
        self.waits_for, self.lease = None, lease
        steps = ThreadPoolExecutor(settings.parallel_steps, thread_name_prefix="strandline-step")
        runners = ThreadPoolExecutor(settings.parallel_groups, thread_name_prefix="strandline-group")
        turn = _Turn(self, lease, steps, runners)
        try:
            turn.begin()
            turn.loop(until_idle)
        finally:
            turn.end()
            runners.shutdown()
            steps.shutdown()
            lease.release()

    def _waiting(self, holder: leases.Said) -> bool:
        if self.waits_for != holder.holder:
            self.waits_for = holder.holder
            _logger.info("stream %s is run by %s: waiting", self._groups.stream, holder.holder)
        return not self._stopping


class _Turn:
    """A processor's time with the lease."""

    def __init__(
        self, processor: Processor, lease: leases.StreamLease, steps: ThreadPoolExecutor, runners: ThreadPoolExecutor
    ) -> None:
        self._processor, self._lease, self._runners = processor, lease, runners
        self._groups, self._settings = processor._groups, processor._settings
        self._journal, self._changed = processor._journal, processor._changed
        self._targets: dict[str, OpenTarget] = {}
        handlers = Handlers(self._groups.handlers, self._groups.stream)
        self._groups.calls = handlers
        clock = self._groups.clock
        times = Times(lease, clock)
        self._shared = Shared(self._settings, self._targets, handlers, lease, clock, steps, times, self._wake)
        self._open: dict[str, _Open] = {}
        self._rows = RowQueues()
        self._ready: deque[_Open] = deque()
        self._running = 0
        self._read_to = lease.progress.done_to
        self._over: set[int] = set()
        """Places above done_to whose groups are over."""
        head = self._journal.head(inbox_key(self._groups.stream))
        self._inbox_to = 0 if head is None else head.delete_to
        self._heard: set[int] = set()
        """Messages above that which were heard."""
        self._unheard = False
        """There are messages for groups that are not admitted yet."""
        self._woken = True
        self._news = True
        """Something came into stream or inbox."""
        self._more = True
        """There may be entries of the stream that were not read."""
        self._follower = Thread(target=self._follow, name="strandline-follow", daemon=True)
        self._following = True
        self._ticked = 0.0
        self._forget_at = 0.0
        self._loading = ThreadPoolExecutor(8, thread_name_prefix="strandline-load")

    # ------------------------------------------------------------ taking over

    def begin(self) -> None:
        """Fence the one before, and take its groups over."""
        for name, target in self._groups.open_targets().items():
            self._until_there(lambda name=name, target=target: self._fence(name, target))  # type: ignore[misc]
        listed = [(0, id_) for id_ in self._lease.progress.open]
        self._take([*listed, *self._entries(LOOK_AHEAD)])
        self._follower.start()

    def _fence(self, name: str, target: Any) -> None:
        owner = self._groups.owner(name)
        if isinstance(target, SqlTarget):
            target.raise_fence(owner, self._lease.fence)
        self._targets[name] = OpenTarget(target, owner)

    def _until_there(self, call: Callable[[], None]) -> None:
        wait_s = WAIT_LEAST_S
        while True:
            self._lease.check()
            try:
                return call()
            except Unavailable as error:
                if not error.retryable or self._processor._stopping:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 5.0)

    def _take(self, entries: list[tuple[int, str]]) -> None:
        """Take groups over that the one before may have begun: what barrier rows know goes into their histories."""
        found: dict[str, tuple[int, Record]] = {}
        ids = list(dict.fromkeys(id_ for _, id_ in entries))
        loaded = dict(zip(ids, self._loading.map(self._groups.load, ids), strict=True))
        for place, id_ in entries:
            history = loaded[id_] if id_ not in found else None
            if history is None or history.stream != self._groups.stream or history.over:
                self._pass(place)
                continue
            found[id_] = (place, Record(self._journal, history, self._lease, self._settings.history_keep_s))
        barriers = self._barriers(record.history for _, record in found.values())
        written: list[tuple[int, Record]] = []
        for id_, (place, record) in found.items():
            if record.history.state not in ENDS:
                _restore(record, barriers.get(id_, []), self._groups.clock())
                record.add("Taken", {"fence": self._lease.fence, "at": self._groups.clock()})
            written.append((place, record))
        self._flush(record for _, record in written)
        reached("group.taken")
        for place, record in written:
            self._admit(place, record, resumed=True)

    def _flush(self, records: Iterable[Record]) -> None:
        """Many histories at once: their appends go into few commits."""
        with ThreadPoolExecutor(16, thread_name_prefix="strandline-take") as pool:
            flushed: list[Future[None]] = [pool.submit(record.flush) for record in records]
        for one in flushed:
            one.result()

    def _barriers(self, histories: Iterable[History]) -> dict[str, list[Barrier]]:
        ids = [(history.id, history.life) for history in histories]
        found: dict[str, list[Barrier]] = {}
        for opened in self._targets.values():
            if not isinstance(opened.target, SqlTarget):
                continue
            for barrier in opened.target.barriers(opened.owner, ids) if ids else ():
                found.setdefault(barrier.id.group, []).append(barrier)
        return found

    # ------------------------------------------------------------ the loop

    def loop(self, until_idle: bool) -> None:
        while True:
            self._lease.check()
            self._settle()
            if self._processor._stopping:
                return
            with self._changed:
                self._woken = False
                news, self._news = self._news, False
            if news:
                self._hear()
                self._more = True
            if self._more:
                self._admit_new()
            self._start()
            self._tick()
            self._forget()
            if until_idle and self._idle():
                return
            with self._changed:
                if not self._processor._ended and not self._woken and not self._processor._stopping:
                    self._changed.wait(TICK_S)

    def end(self) -> None:
        """Let what runs come to its end."""
        self._following = False
        if self._follower.ident is not None:
            self._follower.join()
        self._loading.shutdown()
        for one in list(self._open.values()):
            if not one.running:
                continue
            with self._changed:
                self._changed.wait_for(lambda: any(ended[0] is one for ended in self._processor._ended))  # noqa: B023
        try:
            self._settle()
            self._tick(now=True)
        except StrandlineError as error:
            _logger.info("stream %s: %s", self._groups.stream, error)

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _follow(self) -> None:
        """Wake the loop when something comes into stream or inbox."""
        log = self._groups.log
        keys = (stream_key(self._groups.stream), inbox_key(self._groups.stream))
        partitions = {key_partition(key, log.partitions) for key in keys}
        after = dict.fromkeys(partitions, -2)
        while self._following:
            try:
                newest = log.newest()
                now = {partition: newest[partition] for partition in partitions}
                if now != after:
                    after = now
                    self._news = True
                    self._wake()
                log.wait(after, FOLLOW_S)
            except StrandlineError as error:
                _logger.warning("stream %s cannot be followed: %s", self._groups.stream, error)
                time.sleep(TICK_S)

    def _entries(self, limit: int) -> list[tuple[int, str]]:
        found = []
        if limit > 0:
            for event in self._journal.read(stream_key(self._groups.stream), from_=self._read_to + 1, limit=limit):
                found.append((event.seq_nr, event.payload["group"]))
                self._read_to = event.seq_nr
        return found

    def _admit_new(self) -> None:
        """Read on in the stream, as far as the look-ahead goes."""
        ahead = self._lease.progress.done_to + LOOK_AHEAD - self._read_to
        room = min(LOOK_AHEAD - len(self._open), ahead)
        if room <= 0:
            return
        entries = self._entries(room)
        self._more = len(entries) == room

        new = [id_ for _, id_ in entries if id_ not in self._open]
        loaded = dict(zip(new, self._loading.map(self._groups.load, new), strict=True))
        for place, id_ in entries:
            if id_ in self._open:
                self._pass(place)
                continue
            history = loaded[id_]
            if history is None or history.stream != self._groups.stream or history.state != "queued":
                self._pass(place)
                continue
            self._admit(place, Record(self._journal, history, self._lease, self._settings.history_keep_s))
        if self._unheard and entries:
            self._hear()

    def _admit(self, place: int, record: Record, *, resumed: bool = False) -> None:
        """A group joins the queues of what it holds."""
        history = record.history
        plan = self._groups.plan_of(history)
        self._check_has(plan)
        execution = Execution(self._shared, record, plan, resumed=resumed)
        one = self._open[history.id] = _Open(history.id, place, history, execution, resumed)
        if history.state in ENDS:
            execution.send_hooks()
        elif self._rows.admit(history.id, self._places(plan.holds())):
            self._ready.append(one)

    def _check_has(self, plan: GroupPlan) -> None:
        """A group that names what is not here is not begun: it would end for good, where another processor could."""
        every = (*plan.steps.values(), *plan.rollback.values())
        for what, option, needed, here in (
            ("target", "--target NAME=URL", {one.target for one in every if one.target}, self._targets.keys()),
            ("handler", "--handlers MODULE:NAME", dict(handler_names(plan.group)).keys(), self._groups.handlers.keys()),
        ):
            if missing := ", ".join(sorted(needed - here)):
                raise InvalidGroup(
                    f"group {plan.group.id} needs the {what} {missing}, which this processor does not have",
                    code=f"unknown_{what}",
                    hint=f"give all {what}s of the stream to its processor: {what}s=, or {option}",
                    group=plan.group.id,
                )

    def _places(self, holds: Iterable[Held]) -> Iterable[Held]:
        """By the targets' own identities: two names may lead to one database."""
        for one in holds:
            yield one._replace(place=(self._targets[one.place[0]].owner.identity, *one.place[1:]))

    def _start(self) -> None:
        while self._ready and self._running < self._settings.parallel_groups:
            one = self._ready.popleft()
            one.running, one.parked = True, False
            self._running += 1
            self._runners.submit(self._run, one)

    def _run(self, one: _Open) -> None:
        error: BaseException | None = None
        try:
            self._run_group(one)
        except BaseException as raised:  # noqa: BLE001 (whatever it is, the loop raises it)
            error = raised
        with self._changed:
            self._processor._ended.append((one, error))
            self._changed.notify_all()

    def _run_group(self, one: _Open) -> None:
        execution = one.execution
        if execution is None:
            raise TypeError(one)
        if not one.history.started:
            now = self._groups.clock()
            execution.record.add("Started", {"fence": self._lease.fence, "place": one.place, "at": now})
            reached("group.started")
            if (changed := self._groups.changed_table(execution.plan)) is not None:
                execution.fail(None, "schema_changed", f"{changed} is not what it was when the group was submitted")
        execution.run()

    def _settle(self) -> None:
        """What became of groups that ran."""
        while True:
            with self._changed:
                if not self._processor._ended:
                    return
                one, error = self._processor._ended.popleft()
            one.running = False
            self._running -= 1
            if error is not None:
                raise error
            execution = one.execution
            if execution is None:
                raise TypeError(one)
            if one.history.state in ENDS:
                free = self._rows.release(one.id)
            else:
                one.parked = True
                free = self._rows.release(one.id, self._places(execution.still_held()))
            self._ready.extend(sorted((self._open[str(id_)] for id_ in free), key=lambda other: other.place))
            self._woken = True
            self._news = self._news or self._unheard  # a message may have waited for this one

    # ------------------------------------------------------------ how far it came

    def _pass(self, place: int) -> None:
        if place > self._lease.progress.done_to:
            self._over.add(place)

    def _tick(self, *, now: bool = False) -> None:
        """Now and then: hooks that hang, groups that are over, and how far that is."""
        for one in list(self._open.values()):
            if one.history.state in ENDS and one.execution is not None and not one.running:
                one.execution.give_up_hooks()
                if one.history.over:
                    one.execution.record.flush()
                    del self._open[one.id]
                    self._pass(one.place)
        progress = self._lease.progress
        parked = [one for one in self._open.values() if one.parked]
        passed = self._over | {one.place for one in parked}
        done_to = progress.done_to
        while done_to + 1 in passed:
            done_to += 1
        listed = tuple(one.id for one in parked if one.place <= done_to)
        if (done_to, listed) == (progress.done_to, progress.open):
            return
        if now or time.monotonic() - self._ticked >= TICK_S or done_to - progress.done_to >= LOOK_AHEAD // 2:
            self._ticked = time.monotonic()
            self._over = {place for place in self._over if place > done_to}
            progress.done_to, progress.open = done_to, listed
            self._lease.beat()
            self._journal.delete_reserved(stream_key(self._groups.stream), to=done_to)
            reached("stream.deleted")
            self._woken = True

    def _forget(self) -> None:
        """Now and then: barrier rows that are older than a statement could be late."""
        if time.monotonic() < self._forget_at:
            return
        full = False
        for name, opened in self._targets.items():
            if isinstance(opened.target, SqlTarget):
                try:
                    gone = opened.target.forget(
                        opened.owner, self._lease.fence, self._settings.barrier_keep_s, self._open.keys(), FORGET_GROUPS
                    )
                except Unavailable as error:
                    _logger.info("barrier rows of %s are left for later: %s", name, error)
                else:
                    full = full or gone == FORGET_GROUPS
        self._forget_at = time.monotonic() + (TICK_S if full else FORGET_S)

    def _idle(self) -> bool:
        if self._processor._ended or self._ready:
            return False
        if any(one.running or one.history.state in ENDS for one in self._open.values()):
            return False  # what neither runs nor is ready waits for one that waits for an operator
        head = self._journal.head(stream_key(self._groups.stream))
        if (head is not None and head.seq_nr > self._read_to) or self._messages():
            self._news = self._woken = True
            return False
        return True

    # ------------------------------------------------------------ inbox

    def _messages(self) -> list[tuple[int, Mapping[str, Any]]]:
        read = self._journal.read(inbox_key(self._groups.stream), from_=self._inbox_to + 1)
        return [(event.seq_nr, {"type": event.type, **event.payload}) for event in read]

    def _hear(self) -> None:
        """Take cancels and resolves from the inbox: into the history, then they act, then they are deleted.

        One for a group that is not admitted yet waits, as does a resolve until its group has come to rest; neither
        holds back any of the others.
        """
        self._unheard = False
        for seq_nr, message in self._messages():
            one = self._open.get(message["group"])
            if seq_nr in self._heard:
                continue
            if one is None and not self._ended_or_unknown(message["group"]):
                self._unheard = True
                continue
            if one is not None and one.execution is not None and not self._tell(one, one.execution, message):
                self._unheard = True
                continue
            self._heard.add(seq_nr)
        heard = self._inbox_to
        while heard + 1 in self._heard:
            heard += 1
            self._heard.discard(heard)
        if heard > self._inbox_to:
            reached("inbox.copied")
            self._inbox_to = heard
            self._journal.delete_reserved(inbox_key(self._groups.stream), to=heard)

    def _ended_or_unknown(self, id_: str) -> bool:
        history = self._groups.load(id_)
        return history is None or history.state in ENDS or history.stream != self._groups.stream

    def _tell(self, one: _Open, execution: Execution, message: Mapping[str, Any]) -> bool:
        """Let a message act. False if it has to wait: its group still runs, or runs again after another resolve."""
        if message["type"] == "Cancel":
            with execution.record.lock:
                if one.history.decided is None and not one.history.cancelled:
                    execution.record.add("Cancelled", {"at": self._groups.clock()})
            execution.record.flush()
            execution.fail(None, "cancelled", "")
        elif message["type"] == "Resolve" and one.history.state not in ENDS:
            if not one.parked:
                return False
            if message["step"] in execution.not_undone():
                execution.resolve(message["step"], message["how"])
                one.parked = False
                self._ready.append(one)
        return True


def _restore(record: Record, barriers: list[Barrier], now: int) -> None:
    """Bring into a history what only barrier rows know: events that travelled with them, and that steps were done."""
    history = record.history
    mine = [
        barrier for barrier in barriers if barrier.id.definition == history.hash and barrier.id.life == history.life
    ]
    events: list[Entry] = []
    for barrier in mine:
        if barrier.done is not None:
            events += unpacked(barrier.done.events)
    record.copied(events)
    for barrier in mine:
        step = history.step(barrier.id.step)
        if barrier.op == "do" and barrier.done is not None and step.data is None and not barrier.void:
            record.add_all(result(barrier.id.step, barrier.done, now))
    for barrier in mine:
        undo = history.undo.get(barrier.id.step)
        if barrier.op == "undo" and history.decided == "rollback" and (undo is None or undo.state != "undone"):
            record.add("UndoResult", {"step": barrier.id.step, "at": now, "state": "undone"})
