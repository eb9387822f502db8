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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.errors import InvalidGroup, StrandlineError, Unavailable
from strandline.group import lease as leases
from strandline.group.asking import OpenTarget, Paused, Shared
from strandline.group.handlers import Handlers
from strandline.group.history import ENDS, History
from strandline.group.inbox import Inbox, Message
from strandline.group.mail import WORK, Code, Mail, bundle_of
from strandline.group.names import inbox_key, stream_key
from strandline.group.plan import GroupPlan
from strandline.group.points import reached
from strandline.group.record import Record
from strandline.group.rollback import Execution
from strandline.group.rows import RowQueues
from strandline.group.settings import WAIT_LEAST_S, WAIT_MOST_S
from strandline.group.statements.api import Held
from strandline.group.target import Barrier, SqlTarget
from strandline.group.times import Times
from strandline.values.keys import key_partition

if TYPE_CHECKING:
    from strandline.group.groups import Groups

LOOK_AHEAD: Final = 1000
ASKING_MAX: Final = 1000
TICK_S: Final = 0.5
FORGET_S: Final = 600.0
FORGET_GROUPS: Final = 1000
FOLLOW_S: Final = 0.1
PAUSE_S: Final = 0.02
"""While groups run, what comes within this time is looked at together."""
_logger: Final = logging.getLogger("strandline.group")


class _Place(NamedTuple):
    """An entry of the stream that is a group's."""

    n: int
    id: str
    code: Mapping[str, Code]
    """The versions that are in force there."""


@dataclass(slots=True)
class _Open:
    """A group that was admitted and is not over."""

    id: str
    place: int
    history: History
    execution: Execution
    code: Mapping[str, Code]
    """The versions of the bundles that it uses."""
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
        """Until every group of the stream has ended, or waits for an operator; another processor may see to that."""
        self._work(until_idle=True)

    def stop(self) -> None:
        """Start nothing more; `run` returns when what runs has ended. From any thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _work(self, *, until_idle: bool) -> None:
        groups, settings = self._groups, self._settings
        first: list[leases.LastBeat] = []

        def waiting(holder: leases.LastBeat) -> bool:
            self._say_whom(holder)
            if not first or first[0].fence != holder.fence:
                first[:] = [holder]  # a later beat shows that it lives, and what it has done
            done = until_idle and holder.seq_nr > first[0].seq_nr and self._has_done_all(holder)
            return not (done or self._stopping)

        lease = leases.take(self._journal, groups.stream, settings.lease_s, groups.clock, waiting)
        self.waits_for = None
        if lease is None:
            return
        self.lease = lease
        steps = ThreadPoolExecutor(settings.parallel_steps, thread_name_prefix="strandline-step")
        runners = ThreadPoolExecutor(LOOK_AHEAD, thread_name_prefix="strandline-group")
        turn = _Turn(self, lease, steps, runners)
        try:
            turn.begin()
            turn.loop(until_idle)
        finally:
            try:
                turn.end()
            finally:
                runners.shutdown()
                steps.shutdown()
                lease.release()

    def _say_whom(self, holder: leases.LastBeat) -> None:
        if self.waits_for != holder.holder:
            self.waits_for = holder.holder
            _logger.warning("stream %s is run by %s: waiting", self._groups.stream, holder.holder)

    def _has_done_all(self, holder: leases.LastBeat) -> bool:
        """Whether the one that runs the stream has left nothing but what waits for an operator."""
        head = self._journal.head(stream_key(self._groups.stream))
        if head is not None and head.seq_nr > holder.done_to:
            return False
        found = map(self._groups.load, holder.open)
        return all(history is not None and history.state == "rollback_failed" for history in found)


class _Turn:
    """A processor's time with the lease."""

    def __init__(
        self, processor: Processor, lease: leases.StreamLease, steps: ThreadPoolExecutor, runners: ThreadPoolExecutor
    ) -> None:
        self._processor, self._lease, self._runners = processor, lease, runners
        self._groups, self._settings = processor._groups, processor._settings
        self._journal, self._changed, self._near = processor._journal, processor._changed, self._groups.near
        self._targets: dict[str, OpenTarget] = {}
        handlers = Handlers(self._groups.handlers, self._groups.stream)
        self._groups.calls = handlers
        clock = self._groups.clock
        times = Times(lease, clock)
        mail = Mail(self._journal, self._groups.stream, self._groups.box, self._over_soon)
        self._asking = ThreadPoolExecutor(ASKING_MAX, thread_name_prefix="strandline-asking")
        self._shared = Shared(
            self._settings, self._targets, handlers, mail, lease, clock, steps, self._asking, self._waits, times,
            self._wake,
        )  # fmt: skip
        self._waiting: Counter[str] = Counter()
        """Groups that wait for answers by mail: they are in nobody's way but on their rows."""
        self._ending = False
        self._open: dict[str, _Open] = {}
        self._done: dict[str, _Open] = {}
        """Those of them that have ended; hooks may be under way."""
        self._rows = RowQueues()
        self._ready: deque[_Open] = deque()
        self._running = 0
        self._unserved: list[_Open] = []
        """Groups whose code nobody serves yet."""
        self._looked = 0.0
        self._read_to = lease.progress.done_to
        self._code = dict(lease.progress.code)
        """By bundle, the version in force where the stream was read to."""
        self._loads: dict[int, tuple[str, Code]] = {}
        """Places above done_to that load one."""
        self._over: set[int] = set()
        """Places above done_to whose groups are over."""
        self._inbox = Inbox(self._journal, self._groups.stream)
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
        self._stream = self._journal.follower(stream_key(self._groups.stream))

    # ------------------------------------------------------------ taking over

    def begin(self) -> None:
        """Fence the one before, and take its groups over."""
        self._near.start(self)
        for name, target in self._groups.targets.all().items():
            self._until_there(lambda name=name, target=target: self._fence(name, target))  # type: ignore[misc]
        listed = [_Place(0, id_, {}) for id_ in self._lease.progress.open]
        self._take([*listed, *self._entries(LOOK_AHEAD)])
        self._follower.start()

    def _fence(self, name: str, target: Any) -> None:
        owner = self._groups.targets.owner(name)
        if isinstance(target, SqlTarget):
            target.raise_fence(owner, self._lease.fence)
            reached("fence.raised")
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
            wait_s = min(2 * wait_s, WAIT_MOST_S)

    def _take(self, entries: list[_Place]) -> None:
        """Take groups over that the one before may have begun: what barrier rows know goes into their histories."""
        found: dict[str, tuple[_Place, Record]] = {}
        ids = list(dict.fromkeys(place.id for place in entries))
        for id_ in ids:
            self._near.forget(id_)
        loaded = dict(zip(ids, self._loading.map(self._groups.load, ids), strict=True))
        for place in entries:
            history = loaded[place.id] if place.id not in found else None
            if history is None or history.stream != self._groups.stream or history.over:
                self._pass(place.n)
                continue
            found[place.id] = (place, Record(self._journal, history, self._lease, self._settings.history_keep_s))
        barriers = self._barriers(record.history for _, record in found.values())
        written: list[tuple[_Place, Record]] = []
        for id_, (place, record) in found.items():
            if record.history.state not in ENDS:
                record.restore(barriers.get(id_, []), self._groups.clock())
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
            try:
                self._look()
                self._start()
                self._tick()
                self._forget()
                if until_idle and self._idle():
                    return
            except Unavailable as error:  # the log: as long as the lease is held, it may come back
                if not error.retryable:
                    raise
                _logger.warning("stream %s: %s", self._groups.stream, error)
                self._news = True
            with self._changed:
                if not self._processor._ended and not self._woken and not self._processor._stopping:
                    self._changed.wait(TICK_S)

    def _look(self) -> None:
        """Take in what came into stream and inbox."""
        news, self._news = self._news, False
        if news:
            self._inbox.hear(self._act_on)
            self._more = True
        if self._more and len(self._ready) < self._settings.parallel_groups:  # else what came can wait
            self._admit_new()
        self._look_for_code()

    def end(self) -> None:
        """Let what runs come to its end, or to where it waits for an answer of another process."""
        self._following = False
        with self._changed:
            self._ending = True
        self._near.stop(self)
        if self._follower.ident is not None:
            self._follower.join()
        self._loading.shutdown()
        for one in list(self._open.values()):
            if not one.running:
                continue
            with self._changed:
                self._changed.wait_for(lambda: any(ended[0] is one for ended in self._processor._ended))  # noqa: B023
        self._asking.shutdown(wait=False)
        self._shared.times.settle()
        try:
            self._settle()
            self._tick(now=True)
        except StrandlineError as error:
            _logger.info("stream %s: %s", self._groups.stream, error)

    def _over_soon(self) -> bool:
        return self._ending or self._processor._stopping

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
                if now == after:
                    log.wait(after, FOLLOW_S)
                    continue
                after = now
                self._news = True
                self._wake()
                with self._changed:
                    self._changed.wait_for(lambda: self._ending or not self._busy(), PAUSE_S)
            except StrandlineError as error:
                _logger.warning("stream %s cannot be followed: %s", self._groups.stream, error)
                time.sleep(TICK_S)

    def _entries(self, limit: int) -> list[_Place]:
        """The groups of the next entries. Those that load code are in force for all behind them."""
        found, before = [], self._read_to
        for event in self._stream.read(from_=before + 1, limit=limit):
            self._read_to = event.seq_nr
            if event.type == "LoadCode":
                code = Code(event.payload["version"], event.payload["sha256"])
                self._loads[event.seq_nr] = (event.payload["name"], code)
                self._code = {**self._code, event.payload["name"]: code}
                self._pass(event.seq_nr)
            else:
                found.append(_Place(event.seq_nr, event.payload["group"], self._code))
        self._more = self._read_to - before >= limit
        return found

    def _admit_new(self) -> None:
        """Read on in the stream, as far as the look-ahead goes."""
        ahead = self._lease.progress.done_to + LOOK_AHEAD - self._read_to
        room = min(LOOK_AHEAD - len(self._open), ahead)
        if room <= 0:
            return
        before = self._read_to, self._code
        try:
            entries = self._entries(room)
            loaded = {place.id: self._near.take(place.id) for place in entries if place.id not in self._open}
            others = [id_ for id_, history in loaded.items() if history is None]
            loaded |= zip(others, self._loading.map(self._groups.load, others), strict=True)
        except Unavailable:
            self._read_to, self._code = before  # they are read again
            raise
        for place in entries:
            if place.id in self._open:
                self._pass(place.n)
                continue
            history = loaded[place.id]
            if history is None or history.stream != self._groups.stream or history.state != "queued":
                self._pass(place.n)
                continue
            self._admit(place, Record(self._journal, history, self._lease, self._settings.history_keep_s))
        if self._inbox.waiting and entries:
            self._inbox.hear(self._act_on)

    def _admit(self, place: _Place, record: Record, *, resumed: bool = False) -> None:
        """A group joins the queues of what it holds."""
        history = record.history
        plan = self._groups.plan_of(history)
        self._check_has(plan)
        execution = Execution(self._shared, record, plan, resumed=resumed)
        used = {bundle_of(name) for name in plan.handlers if name not in self._groups.handlers}
        code = history.code if history.started else {name: one for name, one in place.code.items() if name in used}
        one = self._open[history.id] = _Open(history.id, place.n, history, execution, code)
        if history.state in ENDS:
            self._done[one.id] = one
            execution.send_hooks()
        elif self._rows.admit(history.id, self._places(plan.holds())):
            self._ready.append(one)

    def _check_has(self, plan: GroupPlan) -> None:
        """A group that names what is not here is not begun: it would end for good, where another processor could."""
        every = (*plan.steps.values(), *plan.rollback.values())
        here = {name for name in plan.handlers if not name.startswith(WORK) and bundle_of(name) is None}
        for what, option, needed, known in (
            ("target", "--target NAME=URL", {one.target for one in every if one.target}, self._targets.keys()),
            ("handler", "--handlers MODULE:NAME", here, self._groups.handlers.keys()),
        ):
            if missing := ", ".join(sorted(needed - known)):
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
        while True:
            with self._changed:
                one = self._ready[0] if self._ready else None
            if one is None:
                return
            missing = self._missing(one)
            with self._changed:
                if not self._ready or self._ready[0] is not one:
                    continue  # it runs in the place of another one
                if missing is not None:
                    self._unserved.append(self._ready.popleft())
                    continue
                if self._next() is None:
                    return
            self._runners.submit(self._run, one)

    def _next(self) -> _Open | None:
        """The next group that may run, if there is room for one more. The lock is held."""
        if not self._ready or self._busy() >= self._settings.parallel_groups:
            return None
        one = self._ready.popleft()
        one.running, one.parked = True, False
        self._running += 1
        return one

    def _busy(self) -> int:
        """How many groups run and do not just wait for an answer by mail; with one at a time, that counts, too."""
        waiting = len(self._waiting) if self._settings.parallel_groups > 1 else 0
        return self._running - len(self._processor._ended) - waiting

    def _waits(self, id_: str, more: int) -> None:
        with self._changed:
            self._waiting[id_] += more
            if not self._waiting[id_]:
                del self._waiting[id_]
            self._woken = True
            self._changed.notify_all()

    def _missing(self, one: _Open) -> Code | None:
        """A version of code that a group needs and nobody serves yet; one that was cancelled needs none."""
        if one.execution.failure is not None:
            return None
        return next((code for code in one.code.values() if not self._groups.has_box(code.box)), None)

    def _look_for_code(self) -> None:
        """Now and then: groups whose code may be served by now."""
        if self._unserved and time.monotonic() - self._looked >= TICK_S:
            self._looked = time.monotonic()
            self._ready.extend(self._unserved)
            self._unserved = []

    def _run(self, first: _Open) -> None:
        """Run a group, and then others in its place: threads that need not wake each other have more done."""
        one: _Open | None = first
        while one is not None:
            error: BaseException | None = None
            try:
                self._run_group(one)
                if one.history.state in ENDS:
                    self._near.ended(one.history)
            except BaseException as raised:  # noqa: BLE001 (whatever it is, the loop raises it)
                error = raised
            with self._changed:
                ended = self._processor._ended
                ended.append((one, error))
                code = bool(self._ready) and self._ready[0].code  # whether somebody serves it, the loop finds out
                one = None if error is not None or code or self._over_soon() else self._next()
                if one is None or len(ended) >= self._settings.parallel_groups:
                    self._changed.notify_all()

    def _run_group(self, one: _Open) -> None:
        execution = one.execution
        if not one.history.started:
            started: dict[str, Any] = {"fence": self._lease.fence, "place": one.place, "at": self._groups.clock()}
            if one.code:
                started["code"] = {name: list(code) for name, code in one.code.items()}
            execution.record.add("Started", started)
            reached("group.started")
            execution.check_tables(self._groups.targets.changed_table)
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
            if isinstance(error, Paused):
                one.execution.record.flush()
                continue
            if error is not None:
                raise error
            if one.history.state in ENDS:
                self._done[one.id] = one
                free = self._rows.release(one.id)
            else:
                one.parked = True
                free = self._rows.release(one.id, self._places(one.execution.still_held()))
            self._ready.extend(sorted((self._open[str(id_)] for id_ in free), key=lambda other: other.place))
            self._woken = True
            self._news = self._news or self._inbox.waiting  # a message may have waited for this one

    # ------------------------------------------------------------ how far it came

    def _pass(self, place: int) -> None:
        if place > self._lease.progress.done_to:
            self._over.add(place)

    def _tick(self, *, now: bool = False) -> None:
        """Now and then: hooks that hang, groups that are over, and how far that is."""
        for one in list(self._done.values()):
            one.execution.give_up_hooks()
            if one.history.over:
                one.execution.record.flush()
                del self._open[one.id], self._done[one.id]
                self._pass(one.place)
        due = time.monotonic() - self._ticked >= TICK_S or len(self._over) >= LOOK_AHEAD // 2
        if not (now or due):
            return
        self._ticked = time.monotonic()
        progress = self._lease.progress
        parked = [one for one in self._open.values() if one.parked]
        passed = self._over | {one.place for one in parked}
        done_to = progress.done_to
        while done_to + 1 in passed:
            done_to += 1
        listed = tuple(one.id for one in parked if one.place <= done_to)
        if (done_to, listed) == (progress.done_to, progress.open):
            return
        self._over = {place for place in self._over if place > done_to}
        for place in sorted(place for place in self._loads if place <= done_to):
            progress.load(*self._loads.pop(place))
        progress.done_to, progress.open = done_to, listed
        self._lease.beat()
        reached("progress.recorded")
        self._journal.delete_reserved(stream_key(self._groups.stream), to=done_to, head=self._stream.head())
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
        """Whether nothing is left to do: what is open waits for an operator, for code, or for rows of such a one."""
        if self._processor._ended or self._ready:
            return False
        if self._done or any(one.running for one in self._open.values()):
            return False
        head = self._journal.head(stream_key(self._groups.stream))
        if (head is not None and head.seq_nr > self._read_to) or self._inbox.messages():
            self._news = self._woken = True
            return False
        return True

    # ------------------------------------------------------------ inbox

    def _act_on(self, message: Message) -> bool:
        """Whether a message has acted, or has nothing to act on.

        One for a group that is not admitted yet waits, as does a resolve until its group has come to rest.
        """
        if message["type"] == "Tick":
            return True
        one = self._open.get(message["group"])
        if one is not None:
            return self._tell(one, one.execution, message)
        history = self._groups.load(message["group"])
        if history is None or history.state in ENDS or history.stream != self._groups.stream:
            return True
        head = self._journal.head(stream_key(self._groups.stream))
        if head is not None and head.seq_nr > self._read_to:
            return False
        if message["type"] == "Cancel" and not history.cancelled:  # who submits it again finds it cancelled
            self._near.forget(history.id)
            record = Record(self._journal, history, self._lease, self._settings.history_keep_s)
            record.add("Cancelled", {"at": self._groups.clock()})
            record.flush()
        return True

    def _tell(self, one: _Open, execution: Execution, message: Message) -> bool:
        """Let a message act. False if it has to wait: its group still runs, or runs again after another resolve."""
        if message["type"] in ("Answer", "Ack"):
            execution.hear(message)
        elif message["type"] == "Cancel":
            execution.cancel()
        elif message["type"] == "Resolve" and one.history.state not in ENDS:
            if not one.parked:
                return False
            if message["step"] in execution.not_undone():
                execution.resolve(message["step"], message["how"])
                one.parked = False
                self._ready.append(one)
        return True
